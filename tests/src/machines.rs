//! Machines that a server of a place has started: they outlive it, and are not to outlive the test.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::gateway::Place;

/// Ends what a test leaves running, however it ends; the server was told to keep its machines in the place's `machines`.
pub struct Machines<'a>(pub &'a Place);

impl Drop for Machines<'_> {
    fn drop(&mut self) {
        let folders = fs::read_dir(self.0.path("machines")).into_iter().flatten().flatten();
        for folder in folders {
            let pid = fs::read_to_string(folder.path().join("pid")).unwrap_or_default();
            // One that has gone needs no end.
            let _ = Command::new("kill").arg("-9").arg(pid.trim()).stderr(Stdio::null()).status();
        }
    }
}

/// The folder of the one machine of a recovery.
///
/// # Errors
/// When there is no such recovery, or no QEMU of ours runs it.
pub fn folder(place: &Place, name: &str) -> Result<PathBuf> {
    let found = place.json(&format!("recover show {name}"))?;
    Ok(found["started"]["folder"].as_str().context("it was not started by QEMU")?.into())
}
