//! Outages: a target that is killed, frozen or power-cycled in mid-run, and what it must have kept.
//!
//! The lab does not know how to kill somebody's storage: commands that the user gives do that, and bring it back. What
//! the target promises is declared: that what it has *acknowledged* is kept, or that what was *flushed* is.
//!
//! *Promises*: what was struck is brought back, also when the run is ended meanwhile; every block is read afterwards and
//! held against both lines; what nobody promised is told and decides nothing. *Never*: takes a target that hangs up by
//! itself for one that was struck. *May be used by*: [`crate::measure`] and the command line.

mod direct;
mod record;
mod rules;

pub(crate) use direct::{Director, Struck};
pub use record::OutageRecord;
pub(crate) use rules::{judge, required};

use serde::{Deserialize, Serialize};
use std::time::Duration;
use stonefold_types::{Error, Kind, Result};
use utoipa::ToSchema;

/// How long a target may take to answer again, where nothing else is said.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long an outage lasts, where nothing else is said.
const LASTS: Duration = Duration::from_secs(2);
/// Repetitions of one outage at most.
const TIMES_MAX: u32 = 1000;

/// What a target promises to have kept when it comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Promise {
    /// Every write that it has acknowledged.
    Ack,
    /// Every write that it had acknowledged when a flush was issued that it has acknowledged, too.
    Flush,
}

/// What is done to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Strike {
    /// Its process dies: what it has not promised may be gone.
    Kill,
    /// It stands still and goes on: nothing may be gone.
    Freeze,
    /// Its machine loses power: what it has not promised may be gone.
    Power,
}

impl Strike {
    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Strike::Kill => "kill",
            Strike::Freeze => "freeze",
            Strike::Power => "power",
        }
    }
}

/// One outage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Outage {
    /// For people.
    pub name: String,
    /// What it is.
    pub kind: Strike,
    /// The command that strikes, for the shell.
    pub strike: String,
    /// The command that brings the target back.
    pub restore: String,
    /// Seconds of the sample before it; without, a third of it.
    pub after: Option<f64>,
    /// Seconds from the end of the one command to the other.
    pub lasts: f64,
    /// Seconds that the target may take to answer again, once it was brought back.
    pub patience: f64,
}

/// All outages of a run, and what the target promises.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Outages {
    /// Declared by whoever runs it.
    pub promise: Promise,
    /// One after the other.
    pub outages: Vec<Outage>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OutagesFile {
    promise: Promise,
    outage: Vec<OutageWords>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OutageWords {
    kind: Strike,
    name: Option<String>,
    strike: String,
    restore: String,
    after: Option<String>,
    lasts: Option<String>,
    patience: Option<String>,
    #[serde(default = "once")]
    times: u32,
}

fn once() -> u32 {
    1
}

impl Outages {
    /// Reads them from a file's text; `name` is the file's, for errors.
    ///
    /// # Errors
    /// [`Kind::Invalid`], with what is wrong and in which outage.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let file: OutagesFile = toml::from_str(text).map_err(|e| {
            Error::new(Kind::Invalid, format!("outages '{name}': {}", e.to_string().trim_end()))
                .remedy("docs/use/lab.md has a file that is right")
        })?;
        let mut outages = Vec::new();
        for words in &file.outage {
            outages.extend(words.check().map_err(|e| e.context(format!("outages '{name}'")))?);
        }
        if outages.is_empty() {
            return Err(Error::new(Kind::Invalid, format!("outages '{name}': there is none"))
                .remedy("write at least one [[outage]]"));
        }
        for number in 1..outages.len() {
            let (before, rest) = outages.split_at(number);
            if before.iter().any(|other: &Outage| other.name == rest[0].name) {
                let what = format!("outages '{name}': two are called '{}'", rest[0].name);
                return Err(Error::new(Kind::Invalid, what).remedy("give each a name of its own"));
            }
        }
        Ok(Outages { promise: file.promise, outages })
    }

    /// Refuses what does not fit into samples of this length.
    ///
    /// # Errors
    /// [`Kind::Invalid`], with the outage.
    pub fn check_within(&self, sample: Duration) -> Result<()> {
        let room = sample.as_secs_f64() * 0.8;
        for outage in &self.outages {
            let ends = outage.begins(sample).as_secs_f64() + outage.lasts;
            if ends > room {
                let what = format!(
                    "outage '{}' ends {ends:.1} s after its load began, which goes on for {:.1} s",
                    outage.name,
                    sample.as_secs_f64()
                );
                return Err(Error::new(Kind::Invalid, what)
                    .remedy("let it begin earlier or last shorter: by four fifths of the load it is over"));
            }
        }
        Ok(())
    }
}

impl OutageWords {
    fn check(&self) -> Result<Vec<Outage>> {
        let name = self.name.clone().unwrap_or_else(|| self.kind.word().to_owned());
        let wrong = |why: &str| Error::new(Kind::Invalid, format!("outage '{name}': {why}"));
        for (word, command) in [("strike", &self.strike), ("restore", &self.restore)] {
            if command.trim().is_empty() {
                return Err(wrong(&format!("'{word}' is empty")).remedy("write a command for the shell"));
            }
        }
        if self.times == 0 || self.times > TIMES_MAX {
            return Err(wrong(&format!("'times' from 1 to {TIMES_MAX} can be")));
        }
        let seconds = |text: &Option<String>, otherwise: Duration| -> Result<f64> {
            let time = text.as_deref().map_or(Ok(otherwise), crate::profile::read_time)?;
            Ok(time.as_secs_f64())
        };
        let after = self.after.as_deref().map(crate::profile::read_time).transpose()?;
        let one = Outage {
            name: name.clone(),
            kind: self.kind,
            strike: self.strike.clone(),
            restore: self.restore.clone(),
            after: after.map(|after| after.as_secs_f64()),
            lasts: seconds(&self.lasts, LASTS)?,
            patience: seconds(&self.patience, PATIENCE)?.max(1.0),
        };
        let named = |number| if self.times > 1 { format!("{name} {number}") } else { name.clone() };
        Ok((1..=self.times).map(|number| Outage { name: named(number), ..one.clone() }).collect())
    }
}

impl Outage {
    /// How long after the beginning of a sample.
    pub fn begins(&self, sample: Duration) -> Duration {
        self.after.map_or(sample / 3, Duration::from_secs_f64)
    }

    /// What may be gone afterwards, of a target with this promise.
    pub(crate) fn may_lose(&self, promise: Promise) -> Allowance {
        match self.kind {
            Strike::Freeze => Allowance::Nothing,
            Strike::Kill | Strike::Power => Allowance::Unpromised(promise),
        }
    }
}

/// What may be gone when a target hangs up that was struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allowance {
    Nothing,
    /// All but what is promised.
    Unpromised(Promise),
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "promise = 'flush'\n[[outage]]\nkind = 'kill'\nstrike = 'a'\nrestore = 'b'\ntimes = 2\n\
        [[outage]]\nkind = 'freeze'\nstrike = 'c'\nrestore = 'd'\nafter = '4s'\nlasts = '1s'\npatience = '5s'\n";

    #[test]
    fn a_file_is_read_and_repeated_outages_have_names_of_their_own() {
        let outages = Outages::parse("x", GOOD).unwrap();
        let names: Vec<&str> = outages.outages.iter().map(|outage| outage.name.as_str()).collect();
        assert_eq!((outages.promise, names), (Promise::Flush, vec!["kill 1", "kill 2", "freeze"]));
        assert_eq!(outages.outages[2].after, Some(4.0));
        assert_eq!(outages.outages[0].begins(Duration::from_secs(30)), Duration::from_secs(10));
        outages.check_within(Duration::from_secs(10)).unwrap();
        let short = outages.check_within(Duration::from_secs(5)).unwrap_err().to_string();
        assert!(short.contains("'freeze'"), "{short}");
    }

    #[test]
    fn what_is_wrong_in_a_file_is_told() {
        for (from, to, says) in [
            ("'flush'", "'always'", "always"),
            ("'kill'", "'hit'", "hit"),
            ("strike = 'a'", "strike = ' '", "'strike' is empty"),
            ("restore = 'b'\n", "", "restore"),
            ("times = 2", "times = 0", "times"),
            ("times = 2", "tmies = 2", "tmies"),
            ("'4s'", "'soon'", "soon"),
            ("kind = 'freeze'", "kind = 'freeze'\nname = 'kill 1'", "two are called"),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let error = Outages::parse("x", &GOOD.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(says), "{from} → {to}: {error}");
        }
        assert!(Outages::parse("x", "promise = 'ack'\noutage = []").is_err());
    }
}
