//! Which machine is read, and how ssh finds it.

use super::{DISKS_MAX, facts};
use crate::catalog::Unknown;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use stonefold_types::{DISK_BYTES_MAX, Error, Kind, Result};

/// The longest name of a host or a user, in bytes.
const WORDS_MAX: usize = 255;

/// A machine that is reached by SSH.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshMachine {
    /// `ssh://[USER@]HOST[:PORT]`.
    pub url: String,
    /// Paths of devices there, each a disk of its points; those that its file systems lie on where none is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// The private key, from the root on, on the server's machine; what ssh takes by itself where none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<PathBuf>,
    /// How much of each volume may be overwritten while it is read, in bytes; a tenth of it where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_bytes: Option<u64>,
    #[serde(flatten)]
    pub(crate) unknown: Unknown,
}

/// Where ssh goes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Destination {
    pub(super) user: Option<String>,
    pub(super) host: String,
    pub(super) port: Option<u16>,
}

impl SshMachine {
    /// One at a URL, with nothing said besides.
    pub fn new(url: String) -> Self {
        SshMachine { url, devices: Vec::new(), identity: None, snapshot_bytes: None, unknown: Unknown::new() }
    }

    /// Looks at what can be known beforehand; it need not be there yet.
    pub(crate) fn check(&self) -> Result<()> {
        let refused = |what: String, remedy: &str| Err(Error::new(Kind::Invalid, what).remedy(remedy));
        self.place()?;
        if let Some(file) = self.identity.as_ref().filter(|file| !file.is_absolute()) {
            let what = format!("'{}' is no path from the root on", file.display());
            return refused(what, "name the key from the root on");
        }
        if self.devices.len() > DISKS_MAX {
            let what = format!("{} devices are named, and {DISKS_MAX} are the most", self.devices.len());
            return refused(what, "make several sources of it");
        }
        let is_device = |device: &String| device.starts_with('/') && facts::is_plain(device);
        if let Some(device) = self.devices.iter().find(|device| !is_device(device)) {
            let what = format!("'{}' is no device that can be named", device.escape_debug());
            return refused(what, "write its path, as in /dev/sda or /dev/vg/root");
        }
        if let Some((at, device)) =
            self.devices.iter().enumerate().find(|(at, device)| self.devices[..*at].contains(device))
        {
            return refused(format!("device '{device}' is named twice (as the {}.)", at + 1), "name it once");
        }
        match self.snapshot_bytes {
            Some(bytes) if bytes < 4096 => {
                refused("a snapshot of no room overflows at once".to_owned(), "write a size, as in 2G")
            }
            Some(bytes) if bytes > DISK_BYTES_MAX => {
                refused("a snapshot is no larger than a disk may be".to_owned(), "write a size, as in 2G")
            }
            _ => Ok(()),
        }
    }

    /// Where it is.
    pub(super) fn place(&self) -> Result<Destination> {
        let wrong = |why: &str| {
            let what = format!("'{}' is no machine's address: {why}", self.url.escape_debug());
            Error::new(Kind::Invalid, what)
                .remedy("write ssh://USER@HOST, ssh://USER@HOST:PORT or ssh://HOST")
        };
        let rest = self.url.strip_prefix("ssh://").ok_or_else(|| wrong("it does not begin with ssh://"))?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (user, place) = match rest.rsplit_once('@') {
            Some((user, place)) => (Some(user.to_owned()), place),
            None => (None, rest),
        };
        let (host, port) = match place.strip_prefix('[') {
            Some(v6) => {
                let (host, rest) = v6.split_once(']').ok_or_else(|| wrong("a bracket has no end"))?;
                (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':').unwrap_or("")) })
            }
            None => place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port))),
        };
        let port =
            port.map(str::parse).transpose().map_err(|_| wrong("its port is no number up to 65535"))?;
        // What ssh would take for an option, or a shell of somebody's ProxyCommand for more than a name.
        let is_name = |text: &str, more: &str| {
            let plain = |c: char| c.is_ascii_alphanumeric() || more.contains(c);
            !text.is_empty() && text.len() <= WORDS_MAX && !text.starts_with('-') && text.chars().all(plain)
        };
        if !is_name(host, "._-:%") {
            return Err(wrong("it names no host"));
        }
        if user.as_deref().is_some_and(|user| !is_name(user, "._-\\+@")) {
            return Err(wrong("its user is none, and a password has no place in it"));
        }
        Ok(Destination { user, host: host.to_owned(), port })
    }

    /// What somebody types who tries it.
    pub(super) fn by_hand(&self) -> String {
        let Ok(Destination { user, host, port }) = self.place() else { return "ssh".to_owned() };
        let mut line = "ssh".to_owned();
        line += &port.map(|port| format!(" -p {port}")).unwrap_or_default();
        line += &self.identity.as_ref().map(|file| format!(" -i {}", file.display())).unwrap_or_default();
        line += &user.map(|user| format!(" -l {user}")).unwrap_or_default();
        format!("{line} {host}")
    }

    /// As `known_hosts` knows it.
    pub(super) fn known_as(&self) -> String {
        match self.place() {
            Ok(Destination { host, port: Some(port), .. }) if port != 22 => format!("[{host}]:{port}"),
            Ok(Destination { host, .. }) => host,
            Err(_) => self.url.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_what_ssh_may_be_told() {
        let of = |url: &str| SshMachine::new(url.to_owned()).place();
        let place = |user: Option<&str>, host: &str, port| Destination {
            user: user.map(str::to_owned),
            host: host.to_owned(),
            port,
        };
        for (url, is) in [
            ("ssh://web", place(None, "web", None)),
            ("ssh://root@web.example/", place(Some("root"), "web.example", None)),
            ("ssh://me@10.0.0.7:2222", place(Some("me"), "10.0.0.7", Some(2222))),
            ("ssh://root@[fe80::1%eth0]:22", place(Some("root"), "fe80::1%eth0", Some(22))),
            ("ssh://[::1]", place(None, "::1", None)),
        ] {
            assert_eq!(of(url).unwrap(), is, "{url}");
        }
        for wrong in [
            "web",
            "http://web",
            "ssh://",
            "ssh://-oProxyCommand=x",
            "ssh://-l@web",
            "ssh://root:hush@web",
            "ssh://web:70000",
            "ssh://web:",
            "ssh://[::1",
            "ssh://[::1]x",
            "ssh://we b",
            "ssh://web;reboot",
            "ssh://$(x)@web",
            "ssh://@web",
        ] {
            let error = of(wrong).unwrap_err().to_string();
            assert!(error.contains("ssh://USER@HOST"), "{wrong}: {error}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_when_it_is_added() {
        let with = |devices: &[&str]| SshMachine {
            devices: devices.iter().map(|device| (*device).to_owned()).collect(),
            ..SshMachine::new("ssh://root@web".to_owned())
        };
        with(&["/dev/sda", "/dev/disk/by-id/nvme-x_1", "/srv/x.img"]).check().unwrap();
        for wrong in [&["sda"][..], &["/dev/a b"], &["/dev/$x"], &["/dev/sda", "/dev/sda"], &["/dev/x"; 27]] {
            assert!(with(wrong).check().is_err(), "{wrong:?}");
        }
        let key = SshMachine { identity: Some("key".into()), ..with(&[]) };
        assert!(key.check().unwrap_err().to_string().contains("from the root on"));
        let none = SshMachine { snapshot_bytes: Some(0), ..with(&[]) };
        assert!(none.check().is_err());
        assert_eq!(
            SshMachine { identity: Some("/k".into()), ..with(&[]) }.by_hand(),
            "ssh -i /k -l root web"
        );
    }
}
