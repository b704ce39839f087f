//! Machines that a server of a place has started: they outlive it, and are not to outlive the test.

use crate::gateway::Place;
use std::fs;
use std::process::{Command, Stdio};

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
