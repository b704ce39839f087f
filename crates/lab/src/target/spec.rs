//! Targets as people write them.

use super::nbd::Place;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use stonefold_types::{Error, Kind, Result};

/// The port of NBD servers.
const NBD_PORT: u16 = 10809;

/// What is to be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetSpec {
    /// `file:PATH`: a file, made where there is none.
    File(PathBuf),
    /// `dir:PATH`: a folder, for databases; made where there is none.
    Directory(PathBuf),
    /// `dev:PATH`: a block device.
    Device(PathBuf),
    /// `nbd://HOST[:PORT][/EXPORT]` or `nbd+unix:///[EXPORT]?socket=PATH`.
    Nbd(NbdAddress),
    /// `stonefold:DISK`: a disk of the server that the command line asks.
    Stonefold(String),
    /// `null:`: answers at once; what the generator itself can do.
    Null,
}

/// Where an export is, and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdAddress {
    place: Place,
    export: String,
}

impl NbdAddress {
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    pub(crate) fn export(&self) -> &str {
        &self.export
    }
}

impl FromStr for TargetSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |why: &str| {
            Error::new(Kind::Invalid, format!("'{text}' is no target: {why}")).remedy(
                "write file:PATH, dev:/dev/NAME, dir:PATH (for databases), nbd://HOST[:PORT]/EXPORT, nbd+unix:///EXPORT?socket=PATH, stonefold:DISK or null:",
            )
        };
        if let Some(rest) = text.strip_prefix("nbd://") {
            return tcp(rest).map(TargetSpec::Nbd).map_err(|why| wrong(&why));
        }
        if let Some(rest) = text.strip_prefix("nbd+unix://") {
            return unix(rest).map(TargetSpec::Nbd).map_err(|why| wrong(&why));
        }
        let (scheme, rest) =
            text.split_once(':').ok_or_else(|| wrong("it does not say of what kind it is"))?;
        match scheme {
            "null" if rest.is_empty() => Ok(TargetSpec::Null),
            "null" => Err(wrong("null: has no name")),
            "file" | "dev" | "dir" | "stonefold" if rest.is_empty() => Err(wrong("it names nothing")),
            // file:///srv/x is what a pool's URL would look like; the same is meant.
            "file" => Ok(TargetSpec::File(rest.strip_prefix("//").unwrap_or(rest).into())),
            "dev" => Ok(TargetSpec::Device(rest.into())),
            "dir" => Ok(TargetSpec::Directory(rest.into())),
            "stonefold" => Ok(TargetSpec::Stonefold(rest.into())),
            _ => Err(wrong(&format!("'{scheme}' is not a kind of target"))),
        }
    }
}

fn tcp(rest: &str) -> std::result::Result<NbdAddress, String> {
    let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = match authority.strip_prefix('[') {
        Some(v6) => {
            let (host, rest) = v6.split_once(']').ok_or("its address has no closing bracket")?;
            (host, rest.strip_prefix(':'))
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.is_empty() {
        return Err("it names no host".into());
    }
    let port = port.map_or(Ok(NBD_PORT), str::parse).map_err(|_| "its port is no number up to 65535")?;
    Ok(NbdAddress { place: Place::Tcp(host.into(), port), export: decoded(export)? })
}

fn unix(rest: &str) -> std::result::Result<NbdAddress, String> {
    let (path, query) = rest.split_once('?').ok_or("it names no socket=PATH")?;
    let socket = query.split('&').find_map(|parameter| parameter.strip_prefix("socket="));
    let socket = socket.filter(|socket| !socket.is_empty()).ok_or("it names no socket=PATH")?;
    let export = decoded(path.strip_prefix('/').unwrap_or(path))?;
    Ok(NbdAddress { place: Place::Unix(decoded(socket)?.into()), export })
}

/// Without percent-encoding.
fn decoded(text: &str) -> std::result::Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or("a % is not followed by two hex digits")?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8".into())
}

impl fmt::Display for TargetSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TargetSpec::File(path) => write!(f, "file:{}", path.display()),
            TargetSpec::Directory(path) => write!(f, "dir:{}", path.display()),
            TargetSpec::Device(path) => write!(f, "dev:{}", path.display()),
            TargetSpec::Nbd(NbdAddress { place: Place::Tcp(host, port), export }) => {
                let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
                write!(f, "nbd://{host}:{port}/{export}")
            }
            TargetSpec::Nbd(NbdAddress { place: Place::Unix(path), export }) => {
                write!(f, "nbd+unix:///{export}?socket={}", path.display())
            }
            TargetSpec::Stonefold(disk) => write!(f, "stonefold:{disk}"),
            TargetSpec::Null => f.write_str("null:"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_read_and_print() {
        for (text, printed) in [
            ("file:/srv/x", "file:/srv/x"),
            ("file:///srv/x", "file:/srv/x"),
            ("file:x.raw", "file:x.raw"),
            ("dev:/dev/sdb", "dev:/dev/sdb"),
            ("dir:/srv/db", "dir:/srv/db"),
            ("nbd://host/web", "nbd://host:10809/web"),
            ("nbd://host:99", "nbd://host:99/"),
            ("nbd://[::1]:99/a", "nbd://[::1]:99/a"),
            ("nbd+unix:///web%40a?socket=/run/s", "nbd+unix:///web@a?socket=/run/s"),
            ("nbd+unix://?socket=/run/s", "nbd+unix:///?socket=/run/s"),
            ("stonefold:web", "stonefold:web"),
            ("null:", "null:"),
        ] {
            assert_eq!(text.parse::<TargetSpec>().unwrap().to_string(), printed, "{text}");
        }
    }

    #[test]
    fn what_is_no_target_is_refused_with_the_reason() {
        for bad in [
            "",
            "web",
            "file:",
            "dir:",
            "ftp:x",
            "null:x",
            "nbd://",
            "nbd://h:x/",
            "nbd+unix:///web",
            "nbd+unix:///%zz?socket=/s",
        ] {
            let error = bad.parse::<TargetSpec>().unwrap_err();
            assert!(error.remedy_text().is_some(), "{bad}: {error}");
        }
    }
}
