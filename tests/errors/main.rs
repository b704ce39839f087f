//! Bad input, through the real command line and the real door.
//!
//! *Promise*: each gets an error that says what, on which object, and what to do; exit status 1, or 2 for misuse; the pool
//! stays as it was; a damaged frame is an I/O error that names disk, address and segment, and never other data (P6); a
//! full place refuses writes, goes on reading, and loses nothing that it acknowledged (P1). *Method*: a server of its own
//! for each, on real files; damage by hand in the pool's files. *Past bug*: none yet.

mod damage;
mod full;
mod guarded;
mod network;
mod pools;
mod records;
mod refusals;
mod salvage;

use anyhow::{Result, ensure};
use std::fs;
use std::path::PathBuf;
use stonefold_e2e::gateway::Place;

/// An error's words must have all of these, and a remedy.
fn says(error: &str, words: &[&str]) -> Result<()> {
    for word in words.iter().chain(&["what to do"]) {
        ensure!(error.contains(word), "no {word:?} in: {error}");
    }
    Ok(())
}

/// Files of a kind of objects.
fn objects(place: &Place, kind: &str) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for bucket in fs::read_dir(place.pool().join("objects").join(kind))? {
        files.extend(fs::read_dir(bucket?.path())?.flatten().map(|entry| entry.path()));
    }
    files.sort();
    Ok(files)
}
