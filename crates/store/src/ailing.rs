//! Disks that the fold cannot go on with, because their maps cannot be read.
//!
//! What was written to such a disk stays in memory and in the journal. It must cost the other disks nothing: it is tried again
//! ever less often, its map first and its data only once that can be read, and when trying has failed a few times the disk
//! takes no more writes until it succeeds.

use crate::disk::Disk;
use crate::map;
use crate::overlay::Layer;
use crate::segments::Segments;
use crate::store::Store;
use std::sync::Arc;
use std::time::Duration;
use stonefold_format::entry::Entry;
use stonefold_types::{Error, Kind, Result};

/// After the first failure a disk is left out of the rounds for this long, and twice as long after each further one.
const LEFT_OUT_MIN: Duration = Duration::from_secs(1);
/// Times that it doubles: then it is a minute.
const DOUBLINGS_MAX: u32 = 6;
/// After so many failures in a row the disk takes no more writes; until then it may have been a moment's trouble.
const FAILURES_MAX: u32 = 3;

/// How folding a disk has gone wrong.
#[derive(Clone, Copy)]
pub(crate) struct Ailing {
    failures: u32,
    retry_at: Duration,
}

impl Ailing {
    /// Whether a round that is for all disks leaves this one out.
    pub(crate) fn is_left_out(&self, now: Duration) -> bool {
        now < self.retry_at
    }
}

/// Notes that a disk could not be folded. One that is damaged takes no more writes at once: otherwise it would go on taking room
/// that the other disks need.
pub(crate) fn note(store: &Store, disk: &Disk, error: &Error) {
    let mut state = disk.state.lock();
    let failures = state.ailing.map_or(1, |ailing| ailing.failures + 1);
    let left_out = LEFT_OUT_MIN * (1 << (failures - 1).min(DOUBLINGS_MAX));
    state.ailing = Some(Ailing { failures, retry_at: store.env.monotonic() + left_out });
    if error.kind() == Kind::Corrupt {
        let remedy = "reads of what is sound go on; restore the disk from another copy";
        state.damaged = Some(error.clone().remedy(remedy));
    } else if failures >= FAILURES_MAX {
        let remedy = "see to the medium of the pool: the disk takes writes again once its map can be read";
        state.damaged = Some(error.clone().remedy(remedy));
    }
}

/// Reads what of a map an update by `layers` would read.
pub(crate) async fn probe(segments: &Segments, root: &Entry, layers: &[Arc<Layer>]) -> Result<()> {
    for layer in layers {
        for (blocks, _) in layer.all() {
            map::extents(segments, root, blocks).await?;
        }
    }
    Ok(())
}
