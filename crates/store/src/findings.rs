//! What is known to be damaged: what the last check found, and what clients met since then.
//!
//! *Promises*: telling of it costs a lock and no I/O, and only where something was damaged. *Never*: grows: one entry for a disk or a
//! snapshot, and [`READS_MAX`] of them. *Owns*: this memory; a restart begins without it, and the scrub's own count is kept
//! ([`scrubber`](crate::scrubber)).

use parking_lot::Mutex;
use stonefold_env::WallNanos;
use stonefold_types::Error;

/// Disks and snapshots of which it is remembered that a read met damage: more than a person reads, and a few KiB.
const READS_MAX: usize = 64;

/// See the module.
#[derive(Default)]
pub(crate) struct Findings(Mutex<Known>);

/// What is known to be damaged.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// What the last check or scrub on command found, since the pool was opened.
    pub check: Option<CheckFound>,
    /// What clients met since then, by disk or snapshot, the oldest first.
    pub reads: Vec<DamagedReads>,
}

/// What a check or a scrub found.
#[derive(Clone, Debug)]
pub struct CheckFound {
    /// Trusted time, nanoseconds since 1970.
    pub finished: WallNanos,
    /// How many problems.
    pub problems: u64,
    /// One of them, in words.
    pub first: Option<String>,
}

/// Reads of one disk or snapshot that met damage.
#[derive(Clone, Debug)]
pub struct DamagedReads {
    /// `disk` or `disk@snapshot`.
    pub export: String,
    /// How many.
    pub times: u64,
    /// When the last was, trusted time, nanoseconds since 1970.
    pub last: WallNanos,
    /// What it met, in words: place and segment.
    pub what: String,
}

impl Findings {
    pub(crate) fn known(&self) -> Known {
        self.0.lock().clone()
    }

    /// A check has looked at everything: what was met before is part of what it found, or is mended.
    pub(crate) fn checked(&self, finished: WallNanos, problems: &[String]) {
        let check =
            CheckFound { finished, problems: problems.len() as u64, first: problems.first().cloned() };
        *self.0.lock() = Known { check: Some(check), reads: Vec::new() };
    }

    /// A read met damage.
    pub(crate) fn met(&self, export: &str, now: WallNanos, error: &Error) {
        let mut known = self.0.lock();
        let what = error.what().to_owned();
        if let Some(reads) = known.reads.iter_mut().find(|reads| reads.export == export) {
            (reads.times, reads.last, reads.what) = (reads.times + 1, now, what);
        } else if known.reads.len() < READS_MAX {
            known.reads.push(DamagedReads { export: export.to_owned(), times: 1, last: now, what });
        }
    }
}
