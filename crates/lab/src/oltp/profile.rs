//! The words of a profile that runs a database: a table `[database]` in place of volumes and streams.

mod chain;

pub use chain::Chain;

use crate::profile::time;
use chain::ChainWords;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;
use stonefold_types::{Error, Kind, Result, Size};

/// The lab's own, by their names.
const SHIPPED: [(&str, &str); 3] = [
    ("oltp", include_str!("../../profiles/oltp.toml")),
    ("migrate-live", include_str!("../../profiles/migrate-live.toml")),
    ("chain-recover", include_str!("../../profiles/chain-recover.toml")),
];
/// Cycles before or after a move at most.
const CYCLES_MAX: u32 = 100;
/// Warehouses at most: 10 TB, and far below where 32 bits of a key end.
const WAREHOUSES_MAX: u32 = 100_000;
/// Users at most; each is a thread and a process of PostgreSQL.
const USERS_MAX: u32 = 1_000;
/// What the lab sets itself, so that a profile may not.
const OWN_SETTINGS: [&str; 6] = [
    "shared_buffers",
    "max_connections",
    "listen_addresses",
    "unix_socket_directories",
    "unix_socket_permissions",
    "data_directory",
];

/// A profile that runs a database, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// By which it is run.
    pub name: String,
    /// One line.
    pub title: String,
    /// What it is for, and what it is not.
    pub about: String,
    /// The published method it is after.
    pub source: String,
    /// At full size, and with `--quick`.
    pub sizes: [Scale; 2],
    /// Settings of PostgreSQL beside the lab's own.
    pub settings: BTreeMap<String, String>,
    /// Where the disk is moved elsewhere meanwhile.
    pub migration: Option<Migration>,
    /// Where it is recovered from points.
    pub chain: Option<Chain>,
    /// The text it was read from.
    pub text: String,
}

/// A move of the disk below the database. It begins with the warm-up of the cycle that follows those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Migration {
    /// Cycles before it.
    pub before: u32,
    /// Cycles after the one in which it ended.
    pub after: u32,
}

/// How large, how many and how long.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    /// Some 100 MiB each.
    pub warehouses: u32,
    /// PostgreSQL's own buffers, in bytes.
    pub buffer_bytes: u64,
    /// Users of each step, more and more.
    pub users: Vec<u32>,
    /// Before each sample, not counted.
    pub warm_up: Duration,
    /// What is counted of each step.
    pub sample: Duration,
    /// Mean time between a user's transactions.
    pub think: Duration,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    about: String,
    #[serde(default)]
    source: String,
    database: ScaleWords,
    quick: Option<ScaleWords>,
    migration: Option<Migration>,
    chain: Option<ChainWords>,
    #[serde(default)]
    settings: BTreeMap<String, String>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScaleWords {
    warehouses: u32,
    buffers: String,
    users: Vec<u32>,
    warm_up: String,
    sample: String,
    #[serde(default = "none")]
    think: String,
}

fn none() -> String {
    "0s".into()
}

impl Profile {
    /// The lab's own.
    pub fn shipped() -> impl Iterator<Item = Self> {
        let parse =
            |(name, text)| Profile::parse(name, text).expect("a shipped profile is right, as a test shows");
        SHIPPED.into_iter().map(parse)
    }

    /// Whether a profile's text is one of these, by its table `[database]`.
    pub fn is_one(text: &str) -> bool {
        text.parse::<toml::Table>().is_ok_and(|table| table.contains_key("database"))
    }

    /// Reads a profile's file.
    ///
    /// # Errors
    /// [`Kind::Invalid`], with the line where the file is no TOML or has a word that is not known, else with what cannot be
    /// run and why.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let file: File = toml::from_str(text).map_err(|e| {
            Error::new(Kind::Invalid, format!("profile '{name}': {}", e.to_string().trim_end()))
                .remedy("'stonefold lab show oltp' prints one that is right")
        })?;
        let checked = |words: &ScaleWords| words.check().map_err(|e| e.context(format!("profile '{name}'")));
        if let Some(own) = OWN_SETTINGS.iter().find(|own| file.settings.contains_key(**own)) {
            let what = format!("profile '{name}': the setting '{own}' is the lab's own");
            return Err(
                Error::new(Kind::Invalid, what).remedy("leave it out; buffers and users set what it says")
            );
        }
        let quick = file.quick.as_ref().unwrap_or(&file.database);
        if file.chain.is_some() && file.migration.is_some() {
            let what = format!("profile '{name}' moves the disk and recovers it, too");
            return Err(Error::new(Kind::Invalid, what).remedy("make two of it"));
        }
        if let Some(migration) = file.migration {
            migration
                .check(&[&file.database.users, &quick.users])
                .map_err(|e| e.context(format!("profile '{name}'")))?;
        }
        let chain = file.chain.map(|words| words.check().map_err(|e| e.context(format!("profile '{name}'"))));
        let chain = chain.transpose()?;
        Ok(Profile {
            name: name.into(),
            title: file.title,
            about: file.about.trim().into(),
            source: file.source,
            sizes: [checked(&file.database)?, checked(quick)?],
            settings: file.settings,
            migration: file.migration,
            chain,
            text: text.into(),
        })
    }

    /// Full or quick.
    pub fn scale(&self, quick: bool) -> &Scale {
        &self.sizes[usize::from(quick)]
    }

    /// How long all steps take together, or the fewest cycles, without loading, restoring and checking.
    pub fn duration(&self, quick: bool) -> Duration {
        let cycles = self.migration.map_or(1, |migration| migration.before + 1 + migration.after);
        let ramps = self.chain.as_ref().map_or(cycles, |chain| 1 + chain.recover.len() as u32);
        let making = self.chain.as_ref().map_or(Duration::ZERO, |chain| chain.duration(quick));
        self.scale(quick).duration() * ramps + making
    }

    /// What it sets as `max_wal_size`, in bytes.
    pub(super) fn log_bytes(&self) -> Option<u64> {
        let text = self.settings.get("max_wal_size")?;
        let units = [("kB", 10), ("MB", 20), ("GB", 30), ("TB", 40)];
        units
            .iter()
            .find_map(|(unit, shift)| Some(text.strip_suffix(unit)?.trim().parse::<u64>().ok()? << shift))
    }

    /// With so many warehouses in place of what it says.
    #[must_use]
    pub fn with_warehouses(mut self, warehouses: Option<u32>) -> Self {
        self.sizes.iter_mut().for_each(|scale| scale.warehouses = warehouses.unwrap_or(scale.warehouses));
        self
    }
}

impl Migration {
    fn check(self, users: &[&Vec<u32>]) -> Result<()> {
        let wrong = |what: String| Err(Error::new(Kind::Invalid, what));
        let cycles = 1..=CYCLES_MAX;
        if !cycles.contains(&self.before) || !cycles.contains(&self.after) {
            return wrong(format!(
                "{} cycles before the move and {} after it; from 1 to {CYCLES_MAX} of each can be",
                self.before, self.after
            ));
        }
        match users.iter().find(|users| users.len() != 1) {
            Some(users) => {
                wrong(format!("users {users:?}; while a disk is moved their number stays the same"))
            }
            None => Ok(()),
        }
    }
}

impl Scale {
    fn duration(&self) -> Duration {
        (self.warm_up + self.sample) * self.users.len() as u32
    }

    /// Bytes of the loaded database, about.
    pub fn bytes(&self) -> u64 {
        super::schema::CLUSTER_BYTES + u64::from(self.warehouses) * super::schema::WAREHOUSE_BYTES
    }
}

impl ScaleWords {
    fn check(&self) -> Result<Scale> {
        let wrong = |what: String| Err(Error::new(Kind::Invalid, what));
        if self.warehouses == 0 || self.warehouses > WAREHOUSES_MAX {
            return wrong(format!("{} warehouses; from 1 to {WAREHOUSES_MAX} can be", self.warehouses));
        }
        let rising = self.users.windows(2).all(|pair| pair[0] < pair[1]);
        if self.users.is_empty() || !rising || !self.users.iter().all(|users| (1..=USERS_MAX).contains(users))
        {
            return wrong(format!(
                "users {:?}; from 1 to {USERS_MAX}, each step more than the last",
                self.users
            ));
        }
        let size = self.buffers.parse::<Size>().map_err(|e| Error::new(Kind::Invalid, e.to_string()));
        let buffer_bytes = size?.0;
        if buffer_bytes < 1 << 20 {
            return wrong(format!("buffers of {}; PostgreSQL needs 1M at least", self.buffers));
        }
        let scale = Scale {
            warehouses: self.warehouses,
            buffer_bytes,
            users: self.users.clone(),
            warm_up: time(&self.warm_up)?,
            sample: time(&self.sample)?,
            think: time(&self.think)?,
        };
        match scale.sample < Duration::from_secs(5) {
            true => {
                wrong(format!("a sample of {}; the steady state takes five seconds at least", self.sample))
            }
            false => Ok(scale),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_profile_is_the_published_ramp() {
        let profile = Profile::shipped().next().unwrap();
        let full = profile.scale(false);
        assert_eq!(full.users, [1, 3, 5, 8, 13, 21, 34, 55, 89, 144]);
        assert_eq!((full.warm_up.as_secs(), full.sample.as_secs()), (120, 780));
        assert!(full.bytes() > 4 * full.buffer_bytes, "the database does not fit its buffers");
        assert!(profile.duration(true) < profile.duration(false));
        assert!(Profile::is_one(&profile.text));
        assert!(crate::profile::shipped::all().all(|other| !Profile::is_one(&other.text)));
        assert_eq!(profile.log_bytes(), Some(4 << 30));
    }

    #[test]
    fn a_move_is_under_the_published_load() {
        let profile = Profile::shipped().find(|profile| profile.migration.is_some()).unwrap();
        let full = profile.scale(false);
        assert_eq!((profile.name.as_str(), &full.users[..]), ("migrate-live", &[13][..]));
        assert_eq!(profile.duration(false).as_secs(), 3 * 15 * 60);
        for (from, to, says) in [
            ("before = 1", "before = 0", "0 cycles before"),
            ("after = 1", "after = 101", "101 after"),
            ("after = 1", "aftre = 1", "aftre"),
            ("users = [13]", "users = [8, 13]", "stays the same"),
        ] {
            assert!(profile.text.contains(from), "{from}");
            let error = Profile::parse("x", &profile.text.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(says), "{from} → {to}: {error}");
        }
    }

    #[test]
    fn points_are_recovered_as_published() {
        let profile = Profile::shipped().find(|profile| profile.chain.is_some()).unwrap();
        let chain = profile.chain.clone().unwrap();
        assert_eq!((chain.changes, &chain.recover[..]), (24, &[0, 1, 12, 24][..]));
        assert_eq!(profile.duration(true).as_secs(), 5 * 40 + 24 * 3);
        for (from, to, says) in [
            ("changes = 24", "changes = 0", "0 changes"),
            ("users = 8", "users = 0", "0 users"),
            ("recover = [0, 1, 12, 24]", "recover = [0, 25]", "from 0 to 24"),
            ("recover = [0, 1, 12, 24]", "recover = [1, 1]", "each more"),
            ("recover = [0, 1, 12, 24]", "recover = []", "recovered"),
            ("between = \"2m\"", "between = \"0s\"", "less than a second"),
            ("[chain]", "[migration]\nbefore = 1\nafter = 1\n[chain]", "moves the disk"),
        ] {
            assert!(profile.text.contains(from), "{from}");
            let error = Profile::parse("x", &profile.text.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(says), "{from} → {to}: {error}");
        }
    }

    #[test]
    fn what_is_wrong_in_a_file_is_told() {
        for (from, to, says) in [
            ("warehouses =", "warehosues =", "warehosues"),
            ("warehouses = 100", "warehouses = 0", "0 warehouses"),
            ("users = [1, 3, 5", "users = [1, 5, 5", "users"),
            ("buffers = \"2G\"", "buffers = \"2X\"", "2X"),
            ("sample = \"13m\"", "sample = \"4s\"", "4s"),
            ("[settings]", "[settings]\nmax_connections = \"9\"", "max_connections"),
        ] {
            let shipped = SHIPPED[0].1;
            assert!(shipped.contains(from), "{from}");
            let error = Profile::parse("x", &shipped.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(says), "{from} → {to}: {error}");
        }
    }
}
