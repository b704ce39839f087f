//! What an update of a map did to references, and what becomes of it.
//!
//! A disk's map refers to blocks and to nodes. Each reference is born in an epoch of the disk and dies in one; a snapshot
//! holds it when it was born no later than the snapshot and died later. So whatever dies is either *freed* at once, or
//! goes to the deaths of the gap between two snapshots, until the last of those that hold it is removed. No map is read for that:
//! birth stands in the entry, death is now.

use stonefold_format::entry::Entry;
use stonefold_format::head::Head;
use stonefold_format::ledger::{Changes, Deaths, LedgerRef};

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

/// The epochs of a disk that something holds on to: those of its snapshots, and what it has from the disk it was
/// cloned from.
pub(crate) struct Held {
    /// Of the snapshot it began as; 0 when it began empty.
    base: u64,
    /// Ascending.
    snapshots: Vec<u64>,
}

impl Held {
    pub(crate) fn new(base: Option<u64>, snapshots: impl Iterator<Item = u64>) -> Self {
        Held { base: base.unwrap_or(0), snapshots: snapshots.collect() }
    }

    /// What was born at or before this epoch, and was alive at the end of `epoch`, is held: by the newest snapshot that ended no
    /// later than that, or by the base.
    pub(crate) fn up_to(&self, epoch: u64) -> u64 {
        let before = self.snapshots.partition_point(|id| *id <= epoch);
        before.checked_sub(1).map_or(self.base, |at| self.snapshots[at])
    }

    /// Tells what is freed from what is held, of what died in `epoch`.
    pub(crate) fn settle(&self, tally: Tally, epoch: u64, changes: &mut Changes) -> Deaths {
        let held_up_to = self.up_to(epoch - 1);
        changes.born.extend(tally.born);
        changes.shared.extend(tally.shared);
        let (held, freed): (Vec<Entry>, Vec<Entry>) =
            tally.died.into_iter().partition(|entry| entry.birth() <= held_up_to);
        changes.freed.extend(freed.iter().map(|entry| entry.address));
        held.iter().map(|entry| (entry.birth(), entry.address)).collect()
    }
}

/// Adds what died in `epoch` to the gap it belongs to: before the first snapshot that is not older.
pub(crate) fn add_deaths(head: &mut Head, epoch: u64, refs: &[LedgerRef]) {
    let after = head.snapshots.partition_point(|snapshot| snapshot.id < epoch);
    let gap = head.snapshots.get_mut(after).map_or(&mut head.deaths, |snapshot| &mut snapshot.deaths);
    gap.extend_from_slice(refs);
}
