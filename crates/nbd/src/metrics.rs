//! What the door has done, counted for each export. Connections count for themselves and add up once a turn, so counting
//! costs the hot path no shared memory.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::wire::request::Command;

/// Commands that are counted, in the order of [`ExportCounts::requests`].
pub const COMMANDS: [&str; 8] =
    ["read", "write", "flush", "trim", "write_zeroes", "cache", "block_status", "other"];

/// Counters of a server, kept for as long as it lives.
#[derive(Default)]
pub struct Metrics {
    exports: Mutex<BTreeMap<String, Arc<ExportCounters>>>,
    pub(crate) connections: AtomicU64,
    pub(crate) connections_total: AtomicU64,
    pub(crate) connections_refused: AtomicU64,
    pub(crate) handshakes_failed: AtomicU64,
    pub(crate) panics: AtomicU64,
}

/// A reading of [`Metrics`].
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Open now.
    pub connections: u64,
    /// Ever accepted.
    pub connections_total: u64,
    /// Closed at once because there were too many.
    pub connections_refused: u64,
    /// Ended before an export was opened, other than by the client's wish.
    pub handshakes_failed: u64,
    /// Connections that ended in a panic: a bug.
    pub panics: u64,
    /// By export name.
    pub exports: Vec<(String, ExportCounts)>,
}

/// A reading of one export's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportCounts {
    /// Clients connected now.
    pub connections: u64,
    /// Requests answered, by command, as in [`COMMANDS`].
    pub requests: [u64; COMMANDS.len()],
    /// Requests answered with an error.
    pub errors: u64,
    /// Payload sent, holes included.
    pub read_bytes: u64,
    /// Payload taken.
    pub written_bytes: u64,
}

#[derive(Default)]
pub(crate) struct ExportCounters {
    connections: AtomicU64,
    requests: [AtomicU64; COMMANDS.len()],
    errors: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

impl Metrics {
    /// Reads all counters.
    pub fn read(&self) -> Counts {
        let exports = self.exports.lock();
        Counts {
            connections: self.connections.load(Relaxed),
            connections_total: self.connections_total.load(Relaxed),
            connections_refused: self.connections_refused.load(Relaxed),
            handshakes_failed: self.handshakes_failed.load(Relaxed),
            panics: self.panics.load(Relaxed),
            exports: exports.iter().map(|(name, counters)| (name.clone(), counters.read())).collect(),
        }
    }

    pub(crate) fn export(&self, name: &str) -> Tally {
        let counters = self.exports.lock().entry(name.to_owned()).or_default().clone();
        counters.connections.fetch_add(1, Relaxed);
        Tally { now: ExportCounts::default(), counters, dirty: false }
    }
}

impl ExportCounters {
    fn read(&self) -> ExportCounts {
        ExportCounts {
            connections: self.connections.load(Relaxed),
            requests: std::array::from_fn(|i| self.requests[i].load(Relaxed)),
            errors: self.errors.load(Relaxed),
            read_bytes: self.read_bytes.load(Relaxed),
            written_bytes: self.written_bytes.load(Relaxed),
        }
    }
}

/// One connection's share of its export's counters.
pub(crate) struct Tally {
    now: ExportCounts,
    counters: Arc<ExportCounters>,
    dirty: bool,
}

impl Tally {
    #[inline]
    pub(crate) fn request(&mut self, command: Command) {
        let index = match command {
            Command::Read => 0,
            Command::Write => 1,
            Command::Flush => 2,
            Command::Trim => 3,
            Command::WriteZeroes => 4,
            Command::Cache => 5,
            Command::BlockStatus => 6,
            Command::Disconnect | Command::Unknown(_) => 7,
        };
        self.now.requests[index] += 1;
        self.dirty = true;
    }

    #[inline]
    pub(crate) fn read_bytes(&mut self, bytes: usize) {
        self.now.read_bytes += bytes as u64;
    }

    #[inline]
    pub(crate) fn written_bytes(&mut self, bytes: usize) {
        self.now.written_bytes += bytes as u64;
    }

    pub(crate) fn error(&mut self) {
        self.now.errors += 1;
        self.dirty = true;
    }

    /// Adds what was counted since the last time to the shared counters.
    pub(crate) fn publish(&mut self) {
        if !std::mem::take(&mut self.dirty) {
            return;
        }
        let now = std::mem::take(&mut self.now);
        let add = |counter: &AtomicU64, value: u64| {
            if value != 0 {
                counter.fetch_add(value, Relaxed);
            }
        };
        self.counters.requests.iter().zip(now.requests).for_each(|(counter, value)| add(counter, value));
        add(&self.counters.errors, now.errors);
        add(&self.counters.read_bytes, now.read_bytes);
        add(&self.counters.written_bytes, now.written_bytes);
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.publish();
        self.counters.connections.fetch_sub(1, Relaxed);
    }
}
