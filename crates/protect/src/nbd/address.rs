//! Where an NBD export is: `nbd://HOST[:PORT][/EXPORT]`, `nbds://HOST[:PORT][/EXPORT]?tls-certificates=DIR`, or `nbd+unix:///[EXPORT]?socket=PATH`
//! (<https://github.com/NetworkBlockDevice/nbd/blob/master/doc/uri.md>; the folder is named as libnbd has it named).

use std::path::PathBuf;
use std::str::FromStr;
use stonefold_types::{Error, Kind, Result};

/// The port of NBD servers.
const PORT: u16 = 10809;
/// The longest URI, in bytes: an export's name has 4096 at most, and each of its bytes may be written with three.
const URI_BYTES_MAX: usize = 16 << 10;
/// The longest name of an export, in bytes, by the protocol.
const EXPORT_BYTES_MAX: usize = 4096;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) place: Place,
    pub(crate) export: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Host and port.
    Tcp(String, u16),
    /// The same by TLS, and the folder with the certificates.
    Tls(String, u16, PathBuf),
    /// A socket's path.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let shown = text.chars().take(100).collect::<String>();
        let wrong = |why: &str| {
            Error::new(Kind::Invalid, format!("'{}' is no NBD URI: {why}", shown.escape_debug()))
                .remedy("write nbd://HOST[:PORT]/EXPORT, nbds://HOST[:PORT]/EXPORT?tls-certificates=DIR or nbd+unix:///EXPORT?socket=PATH")
        };
        if text.len() > URI_BYTES_MAX {
            return Err(wrong("it is too long"));
        }
        let of = |scheme: &str| text.strip_prefix(scheme);
        let read = match (of("nbd+unix://"), of("nbd://"), of("nbds://")) {
            (Some(rest), ..) => unix(rest),
            (_, Some(rest), _) if rest.contains("?tls-") => Err("by TLS it begins with nbds://".into()),
            (_, Some(rest), _) => tcp(rest),
            (.., Some(rest)) => tls(rest),
            _ if of("nbds+unix://").is_some() => {
                Err("a socket of this machine is reached without TLS: nbd+unix://".into())
            }
            _ => Err("it begins with none of nbd://, nbds:// and nbd+unix://".into()),
        };
        let address = read.map_err(|why| wrong(&why))?;
        if address.export.len() > EXPORT_BYTES_MAX {
            return Err(wrong("the name of its export is too long"));
        }
        Ok(address)
    }
}

fn tcp(rest: &str) -> std::result::Result<Address, String> {
    let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = match authority.strip_prefix('[') {
        Some(v6) => {
            let (host, rest) = v6.split_once(']').ok_or("its address has no closing bracket")?;
            match (rest.is_empty(), rest.strip_prefix(':')) {
                (true, _) => (host, None),
                (false, Some(port)) => (host, Some(port)),
                (false, None) => return Err("something follows its address".into()),
            }
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.is_empty() || host.contains(['@', '?', '#', '[', ']']) {
        return Err("it names no host".into());
    }
    let port = port.map_or(Ok(PORT), str::parse).map_err(|_| "its port is no number up to 65535")?;
    Ok(Address { place: Place::Tcp(host.into(), port), export: decoded(export)? })
}

fn tls(rest: &str) -> std::result::Result<Address, String> {
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut folder = String::new();
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        // What says how the other end is trusted is never passed over.
        let named = parameter.strip_prefix("tls-certificates=");
        folder = decoded(named.ok_or_else(|| format!("'{}' is not understood", parameter.escape_debug()))?)?;
    }
    if !folder.starts_with('/') {
        return Err("it names no tls-certificates=DIR, from the root on, with ca-cert.pem in it".into());
    }
    let Address { place: Place::Tcp(host, port), export } = tcp(rest)? else {
        return Err("it names no host".into());
    };
    Ok(Address { place: Place::Tls(host, port, folder.into()), export })
}

fn unix(rest: &str) -> std::result::Result<Address, String> {
    let (path, query) = rest.split_once('?').ok_or("it names no socket=PATH")?;
    let socket = query.split('&').find_map(|parameter| parameter.strip_prefix("socket="));
    let socket = socket.map(decoded).transpose()?.unwrap_or_default();
    // Ours is another folder than his who wrote it.
    if !socket.starts_with('/') {
        return Err("it names no socket=PATH, from the root on".into());
    }
    let export = match path.strip_prefix('/') {
        Some(export) => decoded(export)?,
        None if path.is_empty() => String::new(),
        None => return Err("it names a host and a socket".into()),
    };
    Ok(Address { place: Place::Unix(socket.into()), export })
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
        let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or("a % is not followed by two hex digits")?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn uris_are_read() {
        let tcp = |host: &str, port, export: &str| Address {
            place: Place::Tcp(host.into(), port),
            export: export.into(),
        };
        let tls = |host: &str, port, export: &str| Address {
            place: Place::Tls(host.into(), port, "/etc/pki/nbd".into()),
            export: export.into(),
        };
        let unix =
            |path: &str, export: &str| Address { place: Place::Unix(path.into()), export: export.into() };
        for (text, address) in [
            ("nbd://host/web", tcp("host", 10809, "web")),
            ("nbd://host:99", tcp("host", 99, "")),
            ("nbd://[::1]:99/a/b", tcp("::1", 99, "a/b")),
            ("nbd://[::1]/", tcp("::1", 10809, "")),
            ("nbds://host/web?tls-certificates=/etc/pki/nbd", tls("host", 10809, "web")),
            ("nbds://host:99?tls-certificates=/etc/pki%2fnbd", tls("host", 99, "")),
            ("nbd+unix:///web%40a?socket=/run/s%20t", unix("/run/s t", "web@a")),
            ("nbd+unix://?x=1&socket=/run/s", unix("/run/s", "")),
        ] {
            assert_eq!(text.parse::<Address>().unwrap(), address, "{text}");
        }
    }

    #[test]
    fn what_is_none_is_refused_with_the_reason() {
        for (bad, why) in [
            ("", "none of nbd://"),
            ("/srv/image", "none of nbd://"),
            ("nbd://", "no host"),
            ("nbd://user@host/x", "no host"),
            ("nbd://h:x/", "port"),
            ("nbd://[::1]x/", "follows"),
            ("nbds://h/x", "tls-certificates"),
            ("nbds://h/x?tls-certificates=pki", "from the root on"),
            ("nbds://?tls-certificates=/pki", "no host"),
            ("nbds://h/x?tls-certificates=/pki&tls-verify-peer=no", "not understood"),
            ("nbd://h/x?tls-certificates=/pki", "nbds://"),
            ("nbds+unix:///x?socket=/s", "without TLS"),
            ("nbd+unix:///web", "socket=PATH"),
            ("nbd+unix:///web?socket=s", "from the root"),
            ("nbd+unix://host/web?socket=/s", "a host and a socket"),
            ("nbd+unix:///%zz?socket=/s", "hex digits"),
            ("nbd+unix:///%+1?socket=/s", "hex digits"),
        ] {
            let error = bad.parse::<Address>().unwrap_err();
            assert!(error.to_string().contains(why) && error.remedy_text().is_some(), "{bad}: {error}");
        }
        assert!(format!("nbd://h/{}", "x".repeat(5000)).parse::<Address>().is_err());
    }

    proptest! {
        #[test]
        fn noise_is_survived(text in "(nbd|nbd\\+unix)://\\PC{0,40}") {
            let _ = text.parse::<Address>();
        }
    }
}
