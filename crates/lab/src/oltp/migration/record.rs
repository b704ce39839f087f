//! What is kept of a migration in a bundle.

use crate::target::TargetSpec;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::ToSchema;

/// Bytes copied are noted so often, in seconds.
const NOTE_EVERY: f64 = 1.0;

/// One migration. Times are seconds since the first cycle began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MigrationRecord {
    /// Where to.
    pub to: String,
    /// Version of QEMU's storage daemon.
    pub front: String,
    /// When each cycle began.
    pub cycles: Vec<f64>,
    /// The warm-up of each, in seconds.
    pub warm_up: f64,
    /// The move began.
    pub began: Option<f64>,
    /// Both homes were alike for the first time.
    pub alike: Option<f64>,
    /// The load was on its new home alone.
    pub moved: Option<f64>,
    /// Bytes that were copied, those written meanwhile among them.
    pub copied: u64,
    /// Bytes that there were to copy in the end.
    pub of: u64,
    /// About each second.
    pub progress: Vec<Copied>,
    /// What ended it before its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// How far it was.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Copied {
    /// When.
    pub second: f64,
    /// Bytes that had been copied.
    pub bytes: u64,
}

impl MigrationRecord {
    pub(super) fn new(to: &TargetSpec, front: &str, warm_up: Duration) -> Self {
        let (to, front, warm_up) = (to.to_string(), front.to_owned(), warm_up.as_secs_f64());
        MigrationRecord { to, front, warm_up, ..MigrationRecord::default() }
    }

    pub(super) fn note(&mut self, now: f64, copied: u64, of: u64) {
        (self.copied, self.of) = (copied, of);
        if self.progress.last().is_none_or(|last| now - last.second >= NOTE_EVERY) {
            self.progress.push(Copied { second: now, bytes: copied });
        }
    }

    /// Well or not.
    pub(super) fn has_ended(&self) -> bool {
        self.moved.is_some() || self.failure.is_some()
    }
}
