//! What reclaim will release when it is through with what was removed: now, or if one more disk were removed.
//!
//! *Promises*: tells references as [`crate::removed`] frees them, and nothing of what it has freed already. It looks at memory
//! alone, so that what it tells belongs to one instant: call it with the fold held off, and follow it before reclaim goes on.
//!
//! A removed snapshot *stays* while something that stays began as it; so does a removed disk while one of its snapshots does.

use crate::disk::Disk;
use crate::removed;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use stonefold_format::entry::Entry;
use stonefold_format::ledger::LedgerRef;

/// Part of a map: what was born after an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Own {
    pub(crate) root: Entry,
    /// What was born up to this epoch is another's.
    pub(crate) after: u64,
    /// The first block that was not given back yet.
    pub(crate) from: u64,
}

/// References that are about to be released.
#[derive(Default)]
pub(crate) struct Releases {
    /// Of these sections of deaths what was born after the epoch beside them.
    pub(crate) deaths: Vec<(LedgerRef, u64)>,
    /// All of these.
    pub(crate) maps: Vec<Own>,
}

/// Which disks there will be, and which snapshots are held on account of clones.
pub(crate) struct Future<'a> {
    disks: &'a [Arc<Disk>],
    /// Of disks that are there, or are removed and stay.
    staying: HashSet<u64>,
    /// Snapshots that something which stays began as: disk and number.
    held: HashSet<(u64, u64)>,
    /// The disk that is thought away, with its snapshots.
    without: Option<u64>,
}

impl<'a> Future<'a> {
    /// `disks`: all there are, removed ones too.
    pub(crate) fn new(disks: &'a [Arc<Disk>], without: Option<u64>) -> Self {
        let bases: Vec<_> = disks.iter().map(|disk| (disk.id, disk.state.lock().base)).collect();
        let there = disks.iter().filter(|disk| !disk.is_gone() && Some(disk.id) != without);
        let mut staying: HashSet<u64> = there.map(|disk| disk.id).collect();
        loop {
            let held = bases.iter().filter(|(id, _)| staying.contains(id)).filter_map(|(_, base)| *base);
            let held: HashSet<(u64, u64)> = held.map(|base| (base.disk, base.epoch)).collect();
            let before = staying.len();
            staying.extend(bases.iter().map(|(id, _)| *id).filter(|id| held.iter().any(|(of, _)| of == id)));
            if staying.len() == before {
                return Future { disks, staying, held, without };
            }
        }
    }

    /// Whether a disk that was removed, or is thought away, stays on account of its clones.
    pub(crate) fn stays(&self, disk: &Disk) -> bool {
        self.staying.contains(&disk.id)
    }

    /// Whether a snapshot stays on account of its clones.
    pub(crate) fn holds(&self, disk: &Disk, snapshot: u64) -> bool {
        self.held.contains(&(disk.id, snapshot))
    }

    /// What has to be released before it is so.
    pub(crate) fn releases(&self) -> Releases {
        let mut releases = Releases::default();
        for disk in self.disks {
            let state = disk.state.lock();
            let goes = disk.is_gone() || Some(disk.id) == self.without;
            let going = state.snapshots.iter().filter(|s| s.commit.is_some() && (goes || s.removed));
            let going: BTreeSet<u64> = going.map(|s| s.id).filter(|id| !self.holds(disk, *id)).collect();
            for gap in removed::gaps(&state, &going) {
                releases.deaths.extend(gap.refs.into_iter().map(|at| (at, gap.held_up_to)));
            }
            if goes && !self.stays(disk) {
                let after = state.base.map_or(0, |base| base.epoch);
                releases.maps.push(Own { root: state.commit.root, after, from: state.reclaimed });
            }
        }
        releases
    }
}
