//! What a trial leaves behind: the bundle of each run, in a folder each, and `trial.json`, which says whose they are.
//!
//! `trial.json` holds no figure: everything that is concluded is computed from the bundles. It names each with its hash,
//! and is written anew after each run, so that a trial that was ended has what it made.

use super::Turn;
use crate::bundle::{self, Bundle};
use crate::system::{System, unlike};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use stonefold_types::{Error, Kind, Result};
use utoipa::ToSchema;

const FILE: &str = "trial.json";

/// Whose runs they are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Trial {
    /// Layout of the file.
    pub format: u32,
    /// Version of the lab.
    pub version: String,
    /// The profile's name.
    pub profile: String,
    /// It is the one that is shipped under this name, and nothing of it was changed.
    pub locked: bool,
    /// At its quick size and times.
    pub quick: bool,
    /// Each arm's name.
    pub arms: Vec<String>,
    /// What was done before and after each run of an arm, by its name.
    pub commands: BTreeMap<String, String>,
    /// What is behind each arm, as it was declared, in the order of the arms.
    #[serde(default)]
    pub systems: Vec<Option<System>>,
    /// How many rounds were meant, at most.
    pub rounds: usize,
    /// Where rounds go on until intervals are narrow: how far an interval may reach either way, as a share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<f64>,
    /// And whether they became so narrow, so that no more rounds were made.
    #[serde(default)]
    pub narrow: bool,
    /// Of everything that was drawn.
    pub seed: u64,
    /// When it began: seconds since 1970.
    pub began: u64,
    /// The command that does the same.
    pub reproduce: String,
    /// What it ran on.
    pub machine: BTreeMap<String, String>,
    /// Each run, and the hash of its bundle, in the order in which they were made.
    pub runs: Vec<(Turn, String)>,
}

impl Trial {
    /// The layout that this build writes.
    pub const FORMAT: u32 = 1;

    /// Whether a folder holds a trial, and not a run.
    pub fn is_in(dir: &Path) -> bool {
        dir.join(FILE).exists()
    }

    /// In what the arms are not alike, beside what is compared; `bytes` are those of the volumes.
    pub fn unlike(&self, bytes: u64) -> Vec<String> {
        let told: Vec<(&str, &System)> = self
            .arms
            .iter()
            .zip(&self.systems)
            .filter_map(|(arm, system)| Some((arm.as_str(), system.as_ref()?)))
            .collect();
        let mut found = Vec::new();
        if !told.is_empty() {
            let silent = self.arms.iter().filter(|arm| told.iter().all(|(name, _)| name != arm));
            found.extend(silent.map(|arm| format!("what is behind {arm} is not told, and of others it is")));
        }
        let is_prepared = |arm: &str| self.commands.keys().any(|what| *what == format!("{arm}, before"));
        let (made, as_it_is): (Vec<&str>, Vec<&str>) =
            self.arms.iter().map(String::as_str).partition(|arm| is_prepared(arm));
        if !made.is_empty() && !as_it_is.is_empty() {
            let (made, as_it_is) = (made.join(", "), as_it_is.join(", "));
            found
                .push(format!("{made}: made ready by a command before each run; {as_it_is}: taken as it is"));
        }
        if let [first, others @ ..] = &told[..] {
            found.extend(others.iter().flat_map(|other| unlike(*first, *other, bytes)));
        }
        found
    }
}

/// The name of a run's folder within the trial's.
pub fn run_folder(turn: &Turn) -> String {
    format!("round-{:02}-arm-{}", turn.round + 1, turn.arm + 1)
}

/// Writes it, in place of what was written after the run before.
///
/// # Errors
/// What the file system says.
pub fn save(dir: &Path, trial: &Trial) -> Result<()> {
    let text = serde_json::to_string_pretty(trial)
        .map_err(|e| Error::new(Kind::Io, format!("writing JSON: {e}")))?;
    let path = dir.join(FILE);
    fs::create_dir_all(dir)
        .and_then(|()| fs::write(&path, text + "\n"))
        .map_err(|e| Error::io(format!("writing '{}'", path.display()), e))
}

/// Reads a trial and its runs, each held against its manifest and against the trial.
///
/// # Errors
/// As [`bundle::load`]; [`Kind::Corrupt`] where a run is not the one that was made.
pub fn load(dir: &Path) -> Result<(Trial, Vec<Bundle>)> {
    let path = dir.join(FILE);
    let text =
        fs::read_to_string(&path).map_err(|e| Error::io(format!("reading '{}'", path.display()), e))?;
    let trial: Trial = serde_json::from_str(&text)
        .map_err(|e| Error::new(Kind::Corrupt, format!("'{}' cannot be read: {e}", path.display())))?;
    if trial.format > Trial::FORMAT {
        return Err(Error::new(
            Kind::Unsupported,
            format!("'{}' was written by a newer version", dir.display()),
        )
        .remedy("read it with that"));
    }
    let bundles = trial.runs.iter().map(|(turn, hash)| {
        let at = dir.join(run_folder(turn));
        let bundle = bundle::load(&at)?;
        if bundle.hash != *hash || turn.arm >= trial.arms.len() {
            let what = format!("'{}' is not the run that the trial made", at.display());
            return Err(Error::new(Kind::Corrupt, what).remedy("take the trial from where it is whole"));
        }
        Ok(bundle)
    });
    let bundles = bundles.collect::<Result<_>>()?;
    Ok((trial, bundles))
}
