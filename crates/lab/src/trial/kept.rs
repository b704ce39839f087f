//! What a trial leaves behind: the bundle of each run, in a folder each, and `trial.json`, which says whose they are.
//!
//! `trial.json` holds no figure: everything that is concluded is computed from the bundles. It names each with its hash,
//! and is written anew after each run, so that a trial that was ended has what it made. Beside it lies `arms.toml`, the list of the arms: the
//! one that was given, or one that says what was given on the command line.

use super::{Shared, Turn};
use crate::bundle::{self, Bundle};
use crate::system::{System, unlike};
use crate::verdict::Verdict;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use stonefold_types::{Error, Kind, Result};
use utoipa::ToSchema;

const FILE: &str = "trial.json";
/// The list of the arms, in the folder of a trial. Commands that do the same again name it so.
pub const ARMS_FILE: &str = "arms.toml";

/// Whose runs they are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Trial {
    /// Layout of the file.
    pub format: u32,
    /// Version of the lab, with the commit that it was built from where that is known.
    pub version: String,
    /// The profile's name.
    pub profile: String,
    /// It is the one that is shipped under this name, and nothing of it was changed.
    pub locked: bool,
    /// At its quick size and times.
    pub quick: bool,
    /// How many seconds each load was measured at least, where that is longer than the profile says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_seconds: Option<f64>,
    /// The steps that were chosen, where not all of the profile's were run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<String>,
    /// Each arm's name.
    pub arms: Vec<String>,
    /// What was done before and after each run of an arm, by its name.
    pub commands: BTreeMap<String, String>,
    /// The hash (BLAKE3) of the list of the arms, where it is kept beside this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arms_hash: Option<String>,
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
    /// What open loops of every arm were given shares of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<Shared>,
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

    /// What it may conclude of what it found: nothing where intervals did not become as narrow as was asked for.
    pub fn may_conclude(&self, found: Verdict) -> Verdict {
        match found {
            Verdict::Pass if self.within.is_some() && !self.narrow => Verdict::Inconclusive,
            found => found,
        }
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

/// Keeps the list of the arms; to be done before the first [`save`].
///
/// # Errors
/// What the file system says.
pub fn save_arms(dir: &Path, arms: &str) -> Result<()> {
    let path = dir.join(ARMS_FILE);
    fs::create_dir_all(dir)
        .and_then(|()| fs::write(&path, arms))
        .map_err(|e| Error::io(format!("writing '{}'", path.display()), e))
}

/// By which a kept list of arms is known.
pub fn hash_of_arms(arms: &str) -> String {
    blake3::hash(arms.as_bytes()).to_hex().to_string()
}

/// Refuses a list of arms that is not the one that was kept: the command that does the same again would do something else.
fn check_arms(dir: &Path, trial: &Trial) -> Result<()> {
    let Some(hash) = &trial.arms_hash else { return Ok(()) };
    let path = dir.join(ARMS_FILE);
    let text =
        fs::read_to_string(&path).map_err(|e| Error::io(format!("reading '{}'", path.display()), e))?;
    match hash_of_arms(&text) == *hash {
        true => Ok(()),
        false => {
            let what = format!("'{}' is not the list of arms that the trial was made with", path.display());
            Err(Error::new(Kind::Corrupt, what).remedy("take the trial from where it is whole"))
        }
    }
}

/// Reads a trial and its runs, each held against its manifest and against the trial.
///
/// # Errors
/// As [`bundle::load`]; [`Kind::Corrupt`] where a run, or the list of the arms, is not the one that was made.
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
    check_arms(dir, &trial)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_arms_that_was_changed_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let trial = Trial { arms_hash: Some(hash_of_arms("one")), ..Trial::default() };
        save_arms(dir.path(), "one").unwrap();
        save(dir.path(), &trial).unwrap();
        assert_eq!(load(dir.path()).unwrap().0, trial);
        save_arms(dir.path(), "other").unwrap();
        let error = load(dir.path()).unwrap_err();
        assert!(error.kind() == Kind::Corrupt && error.to_string().contains("arms.toml"), "{error}");
        // One of before lists were kept.
        save(dir.path(), &Trial { arms_hash: None, ..trial }).unwrap();
        load(dir.path()).unwrap();
    }
}
