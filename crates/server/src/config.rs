//! How a server is run: flags over the configuration file over defaults.

use serde::{Deserialize, Deserializer};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use stonefold_nbd::Address as NbdAddress;
use stonefold_types::{Durability, Error, Kind, Result, Size};

/// Where NBD listens when nothing else is said.
const NBD_DEFAULT: &str = "tcp://127.0.0.1:10809";
/// Where the API listens when nothing else is said.
const API_DEFAULT: &str = "127.0.0.1:7770";
const CACHE_DEFAULT: Size = Size(1 << 30);
/// Enough for the fold to run in large steps; it is memory on top of the cache's.
const JOURNAL_DEFAULT: Size = Size(192 << 20);

/// Everything a server needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// The pool's URL.
    pub pool: String,
    /// Whether to go on without directories that may hold what the others do not.
    pub degraded: bool,
    /// Where NBD listens.
    pub nbd: Vec<NbdAddress>,
    /// Where the API listens.
    pub api: Vec<ApiAddress>,
    /// Memory for the caches, in bytes.
    pub cache_bytes: u64,
    /// Memory for acknowledged data not yet folded, in bytes.
    pub journal_bytes_max: u64,
    /// What new disks get where nothing else is said.
    pub durability: Durability,
}

/// What may be said of a server, by flags or in a file; nothing has to be.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The pool's URL.
    pub pool: Option<String>,
    /// Whether to go on without directories that may hold what the others do not. A flag only: in a file it would
    /// stay, and one day give up a directory unasked.
    #[serde(skip)]
    pub degraded: bool,
    /// Where NBD listens.
    #[serde(default, deserialize_with = "nbd_addresses")]
    pub nbd: Vec<NbdAddress>,
    /// Where the API listens.
    #[serde(default)]
    pub api: Vec<ApiAddress>,
    /// Memory for the caches.
    #[serde(default, deserialize_with = "size")]
    pub cache: Option<Size>,
    /// Memory for acknowledged data not yet folded.
    #[serde(default, deserialize_with = "size")]
    pub journal: Option<Size>,
    /// What new disks get where nothing else is said.
    pub durability: Option<Durability>,
    /// What is logged.
    pub log: Option<String>,
}

impl Settings {
    /// Reads a configuration file: TOML, with the names of the flags. Unknown names are errors.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|e| {
            Error::io(format!("configuration file '{}' cannot be read", path.display()), e)
                .remedy("name a readable file after --config")
        })?;
        toml::from_str(&text).map_err(|e| {
            let line = 1 + e.span().map_or(0, |span| text[..span.start].matches('\n').count());
            Error::new(
                Kind::Invalid,
                format!("configuration file '{}', line {line}: {}", path.display(), e.message().trim()),
            )
            .remedy("correct that line; 'stonefold serve --help' shows the names")
        })
    }

    /// These settings, and where they say nothing, those `below`.
    #[must_use]
    pub fn over(self, below: Settings) -> Settings {
        Settings {
            pool: self.pool.or(below.pool),
            degraded: self.degraded || below.degraded,
            nbd: if self.nbd.is_empty() { below.nbd } else { self.nbd },
            api: if self.api.is_empty() { below.api } else { self.api },
            cache: self.cache.or(below.cache),
            journal: self.journal.or(below.journal),
            durability: self.durability.or(below.durability),
            log: self.log.or(below.log),
        }
    }

    /// Fills in the defaults. A server without a pool makes no sense.
    pub fn resolve(self) -> Result<Config> {
        let pool = self.pool.ok_or_else(|| {
            Error::new(Kind::Invalid, "no pool is named").remedy("name one, as in --pool file:///srv/pool")
        })?;
        let nbd = if self.nbd.is_empty() { vec![parsed(NBD_DEFAULT)] } else { self.nbd };
        Ok(Config {
            pool,
            degraded: self.degraded,
            durability: self.durability.unwrap_or_else(|| durability_for(&nbd)),
            nbd,
            api: if self.api.is_empty() { vec![parsed(API_DEFAULT)] } else { self.api },
            cache_bytes: self.cache.unwrap_or(CACHE_DEFAULT).0,
            journal_bytes_max: self.journal.unwrap_or(JOURNAL_DEFAULT).0,
        })
    }
}

/// A client on another machine can outlive this one's memory, and with it what was acknowledged and not flushed: for
/// such clients a write is acknowledged only when it is durable, unless the operator chose otherwise.
fn durability_for(doors: &[NbdAddress]) -> Durability {
    let local = |host: &str| host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    let remote = doors.iter().any(|door| matches!(door, NbdAddress::Tcp { host, .. } if !local(host)));
    if remote { Durability::Ack } else { Durability::Flush }
}

fn parsed<T: FromStr<Err: fmt::Debug>>(default: &str) -> T {
    default.parse().expect("a default reads")
}

fn nbd_addresses<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Vec<NbdAddress>, D::Error> {
    let written = Vec::<String>::deserialize(from)?;
    written.iter().map(|text| text.parse().map_err(serde::de::Error::custom)).collect()
}

fn size<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Option<Size>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Bytes(u64),
        Text(String),
    }
    match Option::<Written>::deserialize(from)? {
        None => Ok(None),
        Some(Written::Bytes(bytes)) => Ok(Some(Size(bytes))),
        Some(Written::Text(text)) => text.parse().map(Some).map_err(serde::de::Error::custom),
    }
}

/// Where the API listens: `HOST:PORT`, or `unix:///path`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum ApiAddress {
    /// HTTP over TCP.
    Tcp(SocketAddr),
    /// HTTP over a Unix socket, guarded by the file's mode.
    Unix(PathBuf),
}

impl FromStr for ApiAddress {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let wrong =
            || format!("'{text}' is not an address; write 127.0.0.1:7770 or unix:///run/stonefold-api.sock");
        if let Some(path) = text.strip_prefix("unix://") {
            return if path.starts_with('/') { Ok(ApiAddress::Unix(path.into())) } else { Err(wrong()) };
        }
        let bare = text.strip_prefix("http://").or(text.strip_prefix("tcp://")).unwrap_or(text);
        let bare = bare.trim_end_matches('/').replace("localhost", "127.0.0.1");
        bare.parse().map(ApiAddress::Tcp).map_err(|_| wrong())
    }
}

impl TryFrom<String> for ApiAddress {
    type Error = String;
    fn try_from(text: String) -> std::result::Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for ApiAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ApiAddress::Tcp(address) => write!(f, "http://{address}"),
            ApiAddress::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

/// Whether only this machine reaches an address.
pub(crate) fn is_local(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Result<Settings> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Settings::read(file.path())
    }

    #[test]
    fn flags_win_over_the_file_and_the_file_over_defaults() {
        let file = settings("pool = 'file:///a'\ncache = '2G'\njournal = 4096\ndurability = 'ack'").unwrap();
        let flags = Settings { pool: Some("file:///b".into()), ..Settings::default() };
        let config = flags.over(file).resolve().unwrap();
        assert_eq!((config.pool.as_str(), config.cache_bytes), ("file:///b", 2 << 30));
        assert_eq!((config.journal_bytes_max, config.durability), (4096, Durability::Ack));
        assert_eq!(config.api, [ApiAddress::Tcp("127.0.0.1:7770".parse().unwrap())]);
    }

    #[test]
    fn a_mistake_in_the_file_is_told_with_its_line() {
        for (text, line, word) in [
            ("pool = 'file:///a'\ncach = '1G'", "line 2", "cach"),
            ("cache = '1X'", "line 1", "1X"),
            ("\n\nnbd = ['udp://x']", "line 3", "udp://x"),
            ("pool = ", "line 1", ""),
        ] {
            let error = settings(text).unwrap_err().to_string();
            assert!(error.contains(line) && error.contains(word), "{error}");
        }
    }

    #[test]
    fn without_a_pool_there_is_no_server() {
        assert_eq!(Settings::default().resolve().unwrap_err().kind(), Kind::Invalid);
    }

    #[test]
    fn addresses_read() {
        for good in ["127.0.0.1:7770", "http://127.0.0.1:7770/", "localhost:80", "[::1]:1", "unix:///a b"] {
            assert!(good.parse::<ApiAddress>().is_ok(), "{good}");
        }
        for bad in ["", "7770", "host", "unix://a", "https://127.0.0.1:1"] {
            assert!(bad.parse::<ApiAddress>().is_err(), "{bad}");
        }
    }
}
