//! How a server is run: flags over the configuration file over defaults.

use crate::durability::durability_for;
use crate::keys::KeySource;
use crate::{bounds, engines};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use stonefold_nbd::{Address as NbdAddress, TlsMode};
use stonefold_protect::{Accelerator, Hypervisors};
use stonefold_tls::Files;
use stonefold_types::{Durability, Error, Kind, Result, Size};

/// Where NBD listens when nothing else is said.
const NBD_DEFAULT: &str = "tcp://127.0.0.1:10809";
/// Where the API listens when nothing else is said.
const API_DEFAULT: &str = "127.0.0.1:7770";
const CACHE_DEFAULT: Size = Size(1 << 30);
/// Enough for the fold to run in large steps; it is memory on top of the cache's.
const JOURNAL_DEFAULT: Size = Size(192 << 20);
/// In how many days every copy of everything is read once.
pub(crate) const SCRUB_DAYS_DEFAULT: u32 = 30;

/// Everything a server needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// The pool's URL.
    pub pool: String,
    /// Whether to go on without directories that may hold what the others do not.
    pub degraded: bool,
    /// Whether this is one command's own server: the pool must exist, and tokens are not asked for.
    pub own: bool,
    /// Where NBD listens.
    pub nbd: Vec<NbdAddress>,
    /// Where the API listens.
    pub api: Vec<ApiAddress>,
    /// TLS on TCP doors.
    pub tls: Option<Tls>,
    /// Whether the API has TLS on loopback, too.
    pub api_tls: bool,
    /// Whether the API's tokens are removed at start.
    pub forget_tokens: bool,
    /// Where the keys of encrypted domains come from.
    pub keys: KeySource,
    /// Memory for the caches, in bytes.
    pub cache_bytes: u64,
    /// Memory for acknowledged data not yet folded, in bytes.
    pub journal_bytes_max: u64,
    /// What new disks get where nothing else is said.
    pub durability: Durability,
    /// In how many days every copy of everything is read once in the background; 0 for never.
    pub scrub_days: u32,
    /// Bytes a second that backups and what is sent to other pools may move together.
    pub copy_bandwidth: Option<NonZeroU64>,
    /// What machines are started with that are recovered or proven.
    pub hypervisors: Hypervisors,
    /// What is run to tell of policies' runs.
    pub notify_command: Option<PathBuf>,
}

/// TLS of a server's TCP doors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The server's certificate and key.
    pub files: Files,
    /// Who signs the certificates of NBD clients, where they must have one.
    pub client_ca: Option<PathBuf>,
    /// Whether NBD clients must use TLS.
    pub mode: TlsMode,
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
    /// Whether this is one command's own server, reached by nobody else: the pool must exist, and tokens are not asked for, since
    /// whoever can open the place itself needs none.
    #[serde(skip)]
    pub own: bool,
    /// Where NBD listens.
    #[serde(default, deserialize_with = "nbd_addresses")]
    pub nbd: Vec<NbdAddress>,
    /// Where the API listens.
    #[serde(default)]
    pub api: Vec<ApiAddress>,
    /// The server's certificate.
    #[serde(rename = "tls-cert")]
    pub tls_cert: Option<PathBuf>,
    /// Its key.
    #[serde(rename = "tls-key")]
    pub tls_key: Option<PathBuf>,
    /// Who signs the certificates of NBD clients.
    #[serde(rename = "tls-client-ca")]
    pub tls_client_ca: Option<PathBuf>,
    /// Whether NBD clients must use TLS.
    #[serde(default, deserialize_with = "tls_mode")]
    pub tls: Option<TlsMode>,
    /// Whether the API has TLS on loopback, too.
    #[serde(rename = "api-tls")]
    pub api_tls: Option<bool>,
    /// Whether the API's tokens are removed at start; not for a file, where it would be forgotten.
    #[serde(skip)]
    pub forget_tokens: bool,
    /// A file with the master key of encrypted domains.
    #[serde(rename = "key-file")]
    pub key_file: Option<PathBuf>,
    /// A file with a passphrase, from which it is made.
    #[serde(rename = "passphrase-file")]
    pub passphrase_file: Option<PathBuf>,
    /// A command that prints it.
    #[serde(rename = "key-command")]
    pub key_command: Option<String>,
    /// Files with exported keys; not for a file, where they would stay.
    #[serde(skip)]
    pub recovery_keys: Vec<PathBuf>,
    /// Memory for the caches.
    #[serde(default, deserialize_with = "size")]
    pub cache: Option<Size>,
    /// Memory for acknowledged data not yet folded.
    #[serde(default, deserialize_with = "size")]
    pub journal: Option<Size>,
    /// What new disks get where nothing else is said.
    pub durability: Option<Durability>,
    /// In how many days every copy of everything is read once in the background.
    #[serde(rename = "scrub-days")]
    pub scrub_days: Option<u32>,
    /// Bytes a second that backups and what is sent to other pools may move together.
    #[serde(rename = "copy-bandwidth", default, deserialize_with = "size")]
    pub copy_bandwidth: Option<Size>,
    /// Where folders of machines are made that the server starts.
    pub machines: Option<PathBuf>,
    /// What runs their processors.
    #[serde(default, deserialize_with = "accelerator")]
    pub accelerator: Option<Accelerator>,
    /// What is run to tell of policies' runs.
    #[serde(rename = "notify-command")]
    pub notify_command: Option<PathBuf>,
    /// What is logged.
    pub log: Option<String>,
}

/// Less than a piece of a copy in a second is a slip, as for one who means megabytes.
fn copy_bandwidth(asked: Option<Size>) -> Result<Option<NonZeroU64>> {
    match asked {
        Some(Size(bytes)) if bytes < 1 << 20 => {
            let what = format!("--copy-bandwidth: {bytes} bytes a second are too few to copy with");
            Err(Error::new(Kind::Invalid, what).remedy("write bytes a second, 1M at least, as in 100M"))
        }
        asked => Ok(asked.and_then(|size| NonZeroU64::new(size.0))),
    }
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
            .remedy(
                "correct that line: text stands in quotes, as in pool = \"file:///srv/pool\"; 'stonefold serve --help' \
                 shows the names",
            )
        })
    }

    /// These settings, and where they say nothing, those `below`.
    #[must_use]
    pub fn over(self, below: Settings) -> Settings {
        // One master key: a flag leaves none of the file's standing.
        let above = self.key_file.is_some() || self.passphrase_file.is_some() || self.key_command.is_some();
        let below = match above {
            true => Settings { key_file: None, passphrase_file: None, key_command: None, ..below },
            false => below,
        };
        Settings {
            pool: self.pool.or(below.pool),
            degraded: self.degraded || below.degraded,
            own: self.own || below.own,
            nbd: if self.nbd.is_empty() { below.nbd } else { self.nbd },
            api: if self.api.is_empty() { below.api } else { self.api },
            tls_cert: self.tls_cert.or(below.tls_cert),
            tls_key: self.tls_key.or(below.tls_key),
            tls_client_ca: self.tls_client_ca.or(below.tls_client_ca),
            tls: self.tls.or(below.tls),
            api_tls: self.api_tls.or(below.api_tls),
            forget_tokens: self.forget_tokens || below.forget_tokens,
            key_file: self.key_file.or(below.key_file),
            passphrase_file: self.passphrase_file.or(below.passphrase_file),
            key_command: self.key_command.or(below.key_command),
            recovery_keys: self.recovery_keys,
            cache: self.cache.or(below.cache),
            journal: self.journal.or(below.journal),
            durability: self.durability.or(below.durability),
            scrub_days: self.scrub_days.or(below.scrub_days),
            copy_bandwidth: self.copy_bandwidth.or(below.copy_bandwidth),
            machines: self.machines.or(below.machines),
            accelerator: self.accelerator.or(below.accelerator),
            notify_command: self.notify_command.or(below.notify_command),
            log: self.log.or(below.log),
        }
    }

    /// Fills in the defaults. Fails where what is said makes no sense: without a pool, with a URL that names none, with
    /// memory that is too little or is not there.
    pub fn resolve(self) -> Result<Config> {
        let tls = self.tls()?;
        let pool = self.pool.ok_or_else(|| {
            Error::new(Kind::Invalid, "no pool is named").remedy("name one, as in --pool file:///srv/pool")
        })?;
        engines::check(&pool)?;
        let cache_bytes = self.cache.unwrap_or(CACHE_DEFAULT).0;
        bounds::check_cache(cache_bytes).map_err(|e| e.context("--cache"))?;
        let journal_bytes_max = self.journal.unwrap_or(JOURNAL_DEFAULT).0;
        bounds::check_journal(journal_bytes_max).map_err(|e| e.context("--journal"))?;
        if let Some(path) = self.notify_command.as_ref().filter(|path| !path.is_absolute() || !path.is_file())
        {
            let what = format!("--notify-command: '{}' is not the whole path of a program", path.display());
            return Err(Error::new(Kind::Invalid, what)
                .remedy("name a program or script by its path from the root on, without arguments"));
        }
        let nbd = if self.nbd.is_empty() { vec![parsed(NBD_DEFAULT)] } else { self.nbd };
        Ok(Config {
            pool,
            degraded: self.degraded,
            own: self.own,
            durability: self.durability.unwrap_or_else(|| durability_for(&nbd)),
            scrub_days: self.scrub_days.unwrap_or(SCRUB_DAYS_DEFAULT),
            copy_bandwidth: copy_bandwidth(self.copy_bandwidth)?,
            hypervisors: Hypervisors {
                // A machine's process has another working directory.
                folder: self.machines.map_or_else(
                    || Hypervisors::default().folder,
                    |path| std::path::absolute(&path).unwrap_or(path),
                ),
                accelerator: self.accelerator.unwrap_or_default(),
            },
            nbd,
            api: if self.api.is_empty() { vec![parsed(API_DEFAULT)] } else { self.api },
            tls,
            api_tls: self.api_tls.unwrap_or(false),
            forget_tokens: self.forget_tokens,
            keys: KeySource {
                key_file: self.key_file,
                passphrase_file: self.passphrase_file,
                key_command: self.key_command,
                recovery_keys: self.recovery_keys,
            },
            cache_bytes,
            journal_bytes_max,
            notify_command: self.notify_command,
        })
    }

    fn tls(&self) -> Result<Option<Tls>> {
        let lacks = |given: &str, lacking: &str| {
            Err(Error::new(Kind::Invalid, format!("{given} is given without {lacking}"))
                .remedy(format!("give both, or leave {given} out")))
        };
        match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => Ok(Some(Tls {
                files: Files { certificate: certificate.clone(), key: key.clone() },
                client_ca: self.tls_client_ca.clone(),
                mode: self.tls.unwrap_or_default(),
            })),
            (Some(_), None) => lacks("--tls-cert", "--tls-key"),
            (None, Some(_)) => lacks("--tls-key", "--tls-cert"),
            (None, None) if self.tls_client_ca.is_some() => lacks("--tls-client-ca", "--tls-cert"),
            (None, None) if self.tls.is_some() => lacks("--tls", "--tls-cert"),
            (None, None) if self.api_tls == Some(true) => lacks("--api-tls", "--tls-cert"),
            (None, None) => Ok(None),
        }
    }
}

fn parsed<T: FromStr<Err: fmt::Debug>>(default: &str) -> T {
    default.parse().expect("a default reads")
}

fn nbd_addresses<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Vec<NbdAddress>, D::Error> {
    let written = Vec::<String>::deserialize(from)?;
    written.iter().map(|text| text.parse().map_err(serde::de::Error::custom)).collect()
}

fn tls_mode<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Option<TlsMode>, D::Error> {
    let written = Option::<String>::deserialize(from)?;
    written.map(|text| text.parse().map_err(serde::de::Error::custom)).transpose()
}

fn accelerator<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Option<Accelerator>, D::Error> {
    let written = Option::<String>::deserialize(from)?;
    written.map(|text| text.parse().map_err(serde::de::Error::custom)).transpose()
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

impl ApiAddress {
    /// Whether other machines reach it.
    pub(crate) fn is_networked(&self) -> bool {
        matches!(self, ApiAddress::Tcp(address) if !is_local(address.ip()))
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
        let file =
            settings("pool = 'file:///a'\ncache = '2G'\njournal = 8388608\ndurability = 'ack'").unwrap();
        let flags = Settings { pool: Some("file:///b".into()), ..Settings::default() };
        let config = flags.over(file).resolve().unwrap();
        assert_eq!((config.pool.as_str(), config.cache_bytes), ("file:///b", 2 << 30));
        assert_eq!((config.journal_bytes_max, config.durability), (8 << 20, Durability::Ack));
        assert_eq!(config.api, [ApiAddress::Tcp("127.0.0.1:7770".parse().unwrap())]);
    }

    #[test]
    fn where_nobody_says_it_the_doors_tell_when_a_write_is_acknowledged() {
        let durability = |text: &str| {
            settings(&format!("pool = 'memory:'\n{text}")).unwrap().resolve().unwrap().durability
        };
        assert_eq!(durability(""), Durability::Flush);
        assert_eq!(durability("nbd = ['unix:///s', 'tcp://0.0.0.0:1']"), Durability::Ack);
        assert_eq!(durability("nbd = ['tcp://0.0.0.0:1']\ndurability = 'flush'"), Durability::Flush);
        assert_eq!(durability("durability = 'ack'"), Durability::Ack);
    }

    #[test]
    fn a_mistake_in_the_file_is_told_with_its_line() {
        for (text, line, word) in [
            ("pool = 'file:///a'\ncach = '1G'", "line 2", "cach"),
            ("cache = '1X'", "line 1", "1X"),
            ("\n\nnbd = ['udp://x']", "line 3", "udp://x"),
            ("tls = 'maybe'", "line 1", "allow or require"),
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
    fn tls_needs_a_certificate_and_its_key_and_is_then_required() {
        let resolved = |text: &str| settings(&format!("pool = 'memory:'\n{text}")).unwrap().resolve();
        let tls = |text: &str| resolved(text).unwrap().tls;
        assert_eq!(tls(""), None);
        let both = "tls-cert = 'c'\ntls-key = 'k'\n";
        let files = Files { certificate: "c".into(), key: "k".into() };
        let expected = Tls { files, client_ca: None, mode: TlsMode::Require };
        assert_eq!(tls(both), Some(expected.clone()));
        let more = format!("{both}tls-client-ca = 'a'\ntls = 'allow'");
        assert_eq!(tls(&more), Some(Tls { client_ca: Some("a".into()), mode: TlsMode::Allow, ..expected }));
        for (text, lacking) in [
            ("tls-cert = 'c'", "--tls-key"),
            ("tls-key = 'k'", "--tls-cert"),
            ("tls-client-ca = 'a'", "--tls-cert"),
            ("tls = 'require'", "--tls-cert"),
            ("api-tls = true", "--tls-cert"),
        ] {
            let error = resolved(text).unwrap_err();
            assert!(error.kind() == Kind::Invalid && error.to_string().contains(lacking), "{error}");
        }
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
