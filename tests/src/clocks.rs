//! Servers whose wall clock a test sets, while they run, too: by libfaketime, which answers for the C library. The steady clock goes on as it does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use crate::gateway::Place;

/// A place that has it has such a server: how far its wall clock is ahead, or behind.
pub(crate) const FILE: &str = "clock";

/// Where Debian and Ubuntu have it, for programs of several threads.
fn library() -> PathBuf {
    format!("/usr/lib/{}-linux-gnu/faketime/libfaketimeMT.so.1", std::env::consts::ARCH).into()
}

pub(crate) fn set(command: &mut Command, clock: &Path) {
    if clock.exists() {
        command
            .env("LD_PRELOAD", library())
            .env("FAKETIME_TIMESTAMP_FILE", clock)
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .env("NO_FAKE_STAT", "1");
    }
}

/// Sets the wall clock of a place's server, also of the next ones: so many minutes from what it is here.
///
/// # Errors
/// When nothing can be written there, or libfaketime is missing.
pub fn set_clock(place: &Place, minutes: i64) -> Result<()> {
    ensure!(library().exists(), "{} is missing: install faketime", library().display());
    let new = place.path("clock.new");
    fs::write(&new, format!("{minutes:+}m\n"))?;
    Ok(fs::rename(new, place.path(FILE))?)
}
