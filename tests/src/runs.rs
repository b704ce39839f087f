//! Backups that end with their server, and are made again by the next one.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stonefold_guest::time::Deadline;

use crate::gateway::Place;

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Waits until this server has made again what a killed one had begun of a source, if it had.
///
/// # Errors
/// When the source's newest run has not made a point within `patience`.
pub fn until_made_again(place: &Place, source: &str, patience: Duration) -> Result<()> {
    let patience = Deadline::after(patience);
    loop {
        let runs = place.json("backup ls")?;
        let runs = runs.as_array().context("'backup ls' lists")?;
        let is_its = |name: &str| name.split_once('@').is_some_and(|(of, _)| of == source);
        let last = runs.iter().rev().find(|run| run["name"].as_str().is_some_and(is_its));
        if last.is_none_or(|run| run["state"] == "done") {
            return Ok(());
        }
        ensure!(!patience.passed(), "it is not made again: {last:?}");
        sleep(LOOK_EVERY);
    }
}
