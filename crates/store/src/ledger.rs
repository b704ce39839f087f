//! What an update of a map did to references, and what becomes of it.
//!
//! A disk's map refers to blocks and to nodes. Each reference is born in an epoch of the disk and dies in one; a snapshot
//! holds it when it was born no later than the snapshot and died later. So whatever dies is either *freed* at once, or
//! goes to the deaths of the gap between two snapshots, until the last of those that hold it is removed. No map is read for that:
//! birth stands in the entry, death is now.

use stonefold_format::entry::Entry;
use stonefold_format::ledger::{Changes, Deaths, LedgerRef};
use stonefold_format::snapshots::SnapshotRecord;

/// What an update of a map did. Addresses in any order.
#[derive(Default)]
pub(crate) struct Tally {
    /// Packed just now and mapped.
    pub(crate) born: Vec<u64>,
    /// Mapped although stored already.
    pub(crate) shared: Vec<u64>,
    /// No longer mapped.
    pub(crate) died: Vec<Entry>,
}

impl Tally {
    /// Adds what another part of the update did.
    pub(crate) fn add(&mut self, other: Tally) {
        self.born.extend(other.born);
        self.shared.extend(other.shared);
        self.died.extend(other.died);
    }
}

/// Tells what is freed from what is held, of what died; what was born up to `held` is held ([`crate::disk::State::held_in`]).
pub(crate) fn settle(tally: Tally, held: u64, changes: &mut Changes) -> Deaths {
    changes.born.extend(tally.born);
    changes.shared.extend(tally.shared);
    let (held, freed): (Vec<Entry>, Vec<Entry>) =
        tally.died.into_iter().partition(|entry| entry.birth() <= held);
    changes.freed.extend(freed.iter().map(|entry| entry.address));
    held.iter().map(|entry| (entry.birth(), entry.address)).collect()
}

/// The newest gaps of a disk while a round adds to them.
pub(crate) struct Gaps {
    /// What the round materialises, oldest first.
    pub(crate) marked: Vec<SnapshotRecord>,
    /// Of the gap behind the newest.
    pub(crate) open: Vec<LedgerRef>,
}

impl Gaps {
    /// The gap that was open until now ends with the first of `marked`.
    pub(crate) fn new(mut marked: Vec<SnapshotRecord>, mut open: Vec<LedgerRef>) -> Self {
        if let Some(first) = marked.first_mut() {
            first.deaths = std::mem::take(&mut open);
        }
        Gaps { marked, open }
    }

    /// Adds what died in `epoch` to the gap it belongs to: before the first snapshot that is not older.
    pub(crate) fn add(&mut self, epoch: u64, refs: &[LedgerRef]) {
        let after = self.marked.partition_point(|snapshot| snapshot.id < epoch);
        let gap = self.marked.get_mut(after).map_or(&mut self.open, |snapshot| &mut snapshot.deaths);
        gap.extend_from_slice(refs);
    }
}
