//! Where a machine's disks go.

use super::{MovedDisk, ends};
use crate::hypervisor::{Host, is_of_this_host};
use crate::machines::MachineDisk;
use crate::nbd::{self, Address, Place};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result, Size};

/// A place outside of the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Home {
    /// A file, on the server's host.
    File(PathBuf),
    /// An export of another server's, by its URI.
    Nbd(String),
}

/// What a file is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HomeFormat {
    /// The bytes as they are, sparse.
    #[default]
    Raw,
    /// QEMU's own.
    Qcow2,
}

impl FromStr for Home {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.split_once(':') {
            Some(("file", path)) if path.strip_prefix("//").unwrap_or(path).starts_with('/') => {
                Ok(Home::File(path.strip_prefix("//").unwrap_or(path).into()))
            }
            // As a URI, or behind the word that says what it is.
            Some(("nbd", uri)) if is_open(uri) => Ok(Home::Nbd(uri.to_owned())),
            _ if is_open(text) => Ok(Home::Nbd(text.to_owned())),
            _ => Err(format!(
                "'{text}' is no place for disks: write file:/PATH, nbd://HOST/EXPORT or nbd+unix:///EXPORT?socket=PATH"
            )),
        }
    }
}

/// Whether it is an export that is reached without TLS.
fn is_open(uri: &str) -> bool {
    uri.parse::<Address>().is_ok_and(|address| !matches!(address.place, Place::Tls(..)))
}

impl fmt::Display for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Home::File(path) => write!(f, "{}", path.display()),
            Home::Nbd(uri) => f.write_str(uri),
        }
    }
}

impl HomeFormat {
    /// As QEMU calls it.
    pub fn name(self) -> &'static str {
        match self {
            HomeFormat::Raw => "raw",
            HomeFormat::Qcow2 => "qcow2",
        }
    }
}

impl FromStr for HomeFormat {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "raw" => Ok(HomeFormat::Raw),
            "qcow2" => Ok(HomeFormat::Qcow2),
            _ => Err(format!("'{text}' is no format of a new image: write raw or qcow2")),
        }
    }
}

/// Where one of a machine's disks goes: into the folder, where there is one or there are several disks.
pub(super) fn of_disk(
    to: &Home,
    format: HomeFormat,
    all: &[MachineDisk],
    disk: &MachineDisk,
) -> Result<Home> {
    match to {
        Home::File(path) if path.is_dir() => {
            Ok(Home::File(path.join(format!("{}.{}", disk.disk, format.name()))))
        }
        Home::File(path) if all.len() > 1 => {
            let what = format!("the machine has {} disks, and '{}' is no folder", all.len(), path.display());
            Err(Error::new(Kind::Invalid, what)
                .remedy("name a folder that is there: each disk gets a file in it"))
        }
        Home::Nbd(_) if all.len() > 1 => {
            let what = format!("the machine has {} disks, and there is one export", all.len());
            Err(Error::new(Kind::Invalid, what).remedy("name a folder: --to file:/FOLDER"))
        }
        Home::Nbd(_) if format != HomeFormat::Raw => {
            let what = "an export is written as it is, and not in the qcow2 format";
            Err(Error::new(Kind::Invalid, what).remedy("say --format raw"))
        }
        home => Ok(home.clone()),
    }
}

/// Fails where a libvirt of another host is to write what only this one has: a file, or a server's socket.
pub(super) fn check_reach(host: &Host, disks: &[MovedDisk]) -> Result<()> {
    let Host::Libvirt { uri, .. } = host else { return Ok(()) };
    let is_reached = |home: &Home| match home {
        Home::File(_) => false,
        Home::Nbd(uri) => uri.parse::<Address>().is_ok_and(|address| matches!(address.place, Place::Tcp(..))),
    };
    match disks.iter().find(|disk| !is_of_this_host(uri) && !is_reached(&disk.home)) {
        None => Ok(()),
        Some(disk) => {
            let what = format!("the libvirt at '{uri}' is on another host than '{}'", disk.home);
            Err(Error::new(Kind::Unsupported, what)
                .remedy("name an export that it reaches: nbd://HOST/EXPORT"))
        }
    }
}

/// Fails where a file is there already, or the folders of them have too little room for what the disks hold.
pub(super) fn check_room(disks: &[&MovedDisk], held_bytes: u64) -> Result<()> {
    let files = disks.iter().filter_map(|disk| match &disk.home {
        Home::File(path) => Some(path),
        Home::Nbd(_) => None,
    });
    for path in files {
        if path.symlink_metadata().is_ok() {
            let what = format!("'{}' exists already", path.display());
            return Err(
                Error::new(Kind::AlreadyExists, what).remedy("name another file; none is written over")
            );
        }
        let folder = path.parent().filter(|folder| folder.is_dir()).ok_or_else(|| {
            Error::new(
                Kind::NotFound,
                format!("there is no folder for '{}' on the server's host", path.display()),
            )
            .remedy("make it there, or name another")
        })?;
        let free = free_bytes(folder)?;
        if free < held_bytes {
            let what = format!(
                "'{}' has {} free, and the disks hold {}",
                folder.display(),
                Size(free),
                Size(held_bytes)
            );
            return Err(Error::new(Kind::NoSpace, what).remedy("make room there, or name another place"));
        }
    }
    Ok(())
}

/// Fails where an export is too small for its disk, cannot be written, or is not there. What only another host reaches is found by its libvirt.
pub(super) async fn check_exports(env: &Env, host: &Host, disks: &[&MovedDisk]) -> Result<()> {
    for disk in disks {
        let Home::Nbd(uri) = &disk.home else { continue };
        let offer = match nbd::look(env, &uri.parse()?, ends::PATIENCE).await {
            Err(_) if matches!(host, Host::Libvirt { uri, .. } if !is_of_this_host(uri)) => continue,
            offer => offer.map_err(|e| e.context(format!("looking at {}", disk.home)))?,
        };
        let Some(offer) = offer else { continue };
        check_size(disk, disk.total_bytes, offer.bytes)?;
        if offer.read_only {
            let what = format!("{} cannot be written: it is served read-only", disk.home);
            return Err(Error::new(Kind::ReadOnly, what).remedy("have it served to be written"));
        }
    }
    Ok(())
}

/// Fails where a new place is smaller than its disk, in bytes: another's export, which nobody here has made.
pub(super) fn check_size(disk: &MovedDisk, wants: u64, has: u64) -> Result<()> {
    if has >= wants {
        return Ok(());
    }
    let what = format!("{} has {}, and disk '{}' has {}", disk.home, Size(has), disk.target, Size(wants));
    Err(Error::new(Kind::NoSpace, what).remedy("have an export served that is as large"))
}

fn free_bytes(folder: &Path) -> Result<u64> {
    let found = rustix::fs::statvfs(folder);
    let found =
        found.map_err(|e| Error::io(format!("looking for room in '{}'", folder.display()), e.into()))?;
    Ok(found.f_bavail * found.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stonefold_types::Name;

    fn disk(target: &str) -> MachineDisk {
        MachineDisk { target: Name::new(target).unwrap(), disk: Name::new(&format!("w.{target}")).unwrap() }
    }

    #[test]
    fn places_are_read() {
        assert_eq!("file:/a/b".parse(), Ok(Home::File("/a/b".into())));
        assert_eq!("file:///a/b".parse(), Ok(Home::File("/a/b".into())));
        assert_eq!("nbd://h/x".parse(), Ok(Home::Nbd("nbd://h/x".into())));
        assert_eq!("nbd:nbd+unix:///x?socket=/s".parse(), Ok(Home::Nbd("nbd+unix:///x?socket=/s".into())));
        assert_eq!("nbd+unix:///x?socket=/s".parse(), Ok(Home::Nbd("nbd+unix:///x?socket=/s".into())));
        for wrong in [
            "",
            "file:a",
            "file://a/b",
            "nbd:x",
            "nbds://h/x",
            "nbds://h/x?tls-certificates=/pki",
            "nbd+unix:///x",
            "s3://b",
        ] {
            assert!(wrong.parse::<Home>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn several_disks_go_into_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let disks = [disk("vda"), disk("vdb")];
        let to = Home::File(folder.path().into());
        let home = of_disk(&to, HomeFormat::Qcow2, &disks, &disks[1]).unwrap();
        assert_eq!(home, Home::File(folder.path().join("w.vdb.qcow2")));
        let file = Home::File(folder.path().join("x"));
        assert!(of_disk(&file, HomeFormat::Raw, &disks, &disks[0]).is_err());
        assert_eq!(of_disk(&file, HomeFormat::Raw, &disks[..1], &disks[0]).unwrap(), file);
        let moved = |home| MovedDisk::new(disks[0].clone(), home, 1);
        check_room(&[&moved(file.clone())], 1).unwrap();
        assert_eq!(check_room(&[&moved(file)], u64::MAX).unwrap_err().kind(), Kind::NoSpace);
        assert_eq!(check_room(&[&moved(to)], 1).unwrap_err().kind(), Kind::AlreadyExists);
    }

    #[test]
    fn a_libvirt_of_another_host_writes_no_file_of_this_one() {
        let of = |uri: &str| Host::Libvirt { uri: uri.into(), domain: "again".into() };
        let to = |home: &str| [MovedDisk::new(disk("vda"), home.parse().unwrap(), 1)];
        for here in ["qemu:///system", "qemu+unix:///system?socket=/run/x", "qemu:///session"] {
            check_reach(&of(here), &to("file:/srv/a")).unwrap();
            check_reach(&of(here), &to("nbd+unix:///a?socket=/s")).unwrap();
        }
        let there = of("qemu+ssh://root@host/system");
        check_reach(&there, &to("nbd://nas/a")).unwrap();
        for home in ["file:/srv/a", "nbd+unix:///a?socket=/s"] {
            assert_eq!(check_reach(&there, &to(home)).unwrap_err().kind(), Kind::Unsupported);
        }
    }
}
