//! What of a disk's data the pool did not have yet, from one snapshot to the next.
//!
//! The fold tells it, which is where it is known: bytes of frames, compressed, without maps and what heals. Of blocks that are new to several disks in
//! one round the frame counts for the disk that comes first. *Kept* in memory alone, of the newest [`TOLD_MAX`] snapshots that were folded since the start;
//! of one whose data was folded before the start in part nothing is known.

use crate::disk::State;
use crate::store::Store;
use std::collections::VecDeque;
use stonefold_format::snapshots::Commit;
use stonefold_types::{Result, SnapshotName};

/// Snapshots of a disk that are remembered: whoever wants to know asks soon.
const TOLD_MAX: usize = 8;

/// Of one disk.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    /// Bytes since the newest snapshot that was folded, where they are known.
    since: Option<u64>,
    /// Those before some snapshots, by their numbers.
    told: VecDeque<(u64, u64)>,
}

impl Stored {
    /// Of a disk that was loaded, or made: known from now on if nothing was folded since its newest snapshot.
    pub(crate) fn of(commit: &Commit, newest: Option<&Commit>) -> Self {
        let is_alike = newest.map_or(commit.mapped_blocks == 0, |newest| newest.root == commit.root);
        Stored { since: is_alike.then_some(0), told: VecDeque::new() }
    }

    /// A layer was folded that ends with this snapshot, or with none.
    pub(crate) fn add(&mut self, bytes: u64, ends_with: Option<u64>) {
        self.since = self.since.map(|since| since + bytes);
        let Some(snapshot) = ends_with else { return };
        if let Some(bytes) = self.since.replace(0) {
            self.told.push_back((snapshot, bytes));
        }
        if self.told.len() > TOLD_MAX {
            self.told.pop_front();
        }
    }

    fn before(&self, snapshot: u64) -> Option<u64> {
        self.told.iter().find(|(of, _)| *of == snapshot).map(|(_, bytes)| *bytes)
    }
}

impl Store {
    /// Bytes that were stored of what was written to a disk between the snapshot before this one and this one: what the pool had already is not counted.
    /// Folds the disk where the snapshot is not folded. Nothing where it is not known: of an older one, or while the disk cannot be folded.
    pub async fn stored_bytes(&self, name: &SnapshotName) -> Result<Option<u64>> {
        let disk = self.find(&name.disk)?;
        let look = |state: &State| {
            let snapshot = state.snapshot_named(&name.disk, &name.snapshot)?;
            Ok((snapshot.commit.is_some(), state.stored.before(snapshot.id)))
        };
        let ((is_folded, known), is_ailing) = {
            let state = disk.state.lock();
            (look(&state)?, state.ailing.is_some())
        };
        // One more attempt at what cannot be folded counts towards giving the disk up.
        if is_folded || is_ailing {
            return Ok(known);
        }
        self.fold_unhurried(Some(&disk)).await?;
        let told = look(&disk.state.lock())?.1;
        Ok(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_belong_to_the_snapshot_that_comes_after_them() {
        let mut stored = Stored { since: Some(0), ..Stored::default() };
        stored.add(5, None);
        stored.add(7, Some(1));
        stored.add(0, Some(2));
        stored.add(9, None);
        assert_eq!([1, 2, 3].map(|of| stored.before(of)), [Some(12), Some(0), None]);
        (3..20).for_each(|of| stored.add(1, Some(of)));
        assert_eq!([2, 11, 12, 19].map(|of| stored.before(of)), [None, None, Some(1), Some(1)]);
    }

    #[test]
    fn what_was_folded_in_part_before_the_start_is_not_known() {
        let (empty, other) = (Commit::default(), Commit { mapped_blocks: 1, ..Commit::default() });
        assert_eq!(Stored::of(&empty, None).since, Some(0));
        let mut stored = Stored::of(&other, None);
        stored.add(5, Some(1));
        stored.add(6, Some(2));
        assert_eq!([1, 2].map(|of| stored.before(of)), [None, Some(6)]);
    }
}
