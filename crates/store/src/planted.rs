//! Bugs that can be planted, to see that the tests find them.
//!
//! With the feature `planted` a test chooses one by name for its thread; without it every question is answered
//! "no" at compile time and nothing of this is left. A bug is one wrong decision at one place; [`BUGS`] names them all.

/// Every bug there is, and what it breaks.
pub const BUGS: &[(&str, &str)] = &[
    ("sync-skipped", "a flush is answered without the journal having been made durable"),
    ("flush-at-once", "a flush is answered without asking for anything"),
    ("fua-ignored", "a FUA write is acknowledged like any other"),
    ("ack-ignored", "a write to an ack disk is acknowledged like any other"),
    ("handed-early", "a write is acknowledged before the journal has it"),
    ("head-before-data", "a head names data that is still being put"),
    ("head-before-nodes", "a head names map nodes that are still being put"),
    ("merged-across-mark", "a snapshot gets writes that came after it"),
    ("trimmed-too-far", "the journal forgets what is not folded"),
    ("retired-too-early", "the journal of an earlier session is removed before it is folded"),
    ("folded-too-high", "a head claims records that came while it was being folded"),
    ("zeros-not-mapped", "the fold forgets that blocks became zeros"),
    ("last-frame-lost", "the fold forgets the last frame of a job"),
    ("one-slot-per-frame", "every block of a frame is mapped to its first"),
    ("oldest-layer-wins", "a read prefers the older of two layers"),
    ("partial-write-unchecked", "a partial write undoes what came to the same block meanwhile"),
    ("snapshot-reads-on", "a pending snapshot shows what came after it"),
    ("marks-not-replayed", "a snapshot that was not folded is gone after a crash"),
    ("unmark-not-journaled", "a removed snapshot comes back after a crash"),
    ("journals-reversed", "journals are replayed newest first"),
    ("lsn-restarts", "a new session numbers its records from the beginning again"),
    ("group-torn", "only the first disk of a group snapshot is marked in the journal"),
    ("clone-of-now", "a clone begins as the disk's present, not as the snapshot"),
    ("diff-one-child", "a comparison looks only at the first half of each node"),
    ("dedupe-trusts-failed", "dedupe leans on blocks of a round that failed"),
    ("repeat-misplaced", "a repeated block is mapped to the block before the one it repeats"),
    ("pins-ignored", "an object is deleted while somebody follows a reference to it"),
    ("clones-not-asked", "a removed snapshot is given back although a clone began as it"),
    ("deaths-of-wrong-gap", "removing a snapshot frees what an older one holds"),
    ("batch-taken-twice", "a batch counts again what an earlier one has counted"),
    ("shared-not-counted", "a reference made by dedupe is not counted"),
    ("idle-not-forgotten", "dedupe goes on pointing at blocks that reclaim is about to condemn"),
    ("clone-frees-all", "removing a clone frees what it has from its origin"),
    ("left-unsynced", "a server that leaves in a hurry does not make its journal durable"),
    ("shrink-keeps", "what a shrink cuts off comes back when the disk grows"),
    ("resize-not-replayed", "a resize that was not folded is undone by a crash"),
    ("resize-first-wins", "a head gets the first of several sizes, not the last"),
    ("write-behind-end", "a write that waited while the disk shrank is taken all the same"),
    ("damage-reads-as-zeros", "a frame that fails its checksum reads as zeros"),
    ("checksum-not-checked", "a frame is taken for what it says, whatever its checksum is"),
    ("copies-not-asked", "a damaged frame is an error although another copy is sound"),
    ("scrub-heals-nothing", "a scrub does not look at the other copies"),
    ("rollback-not-young", "what a rollback has written so far is taken for leftovers"),
    ("page-put-late", "a head names pages of snapshots that are still being put"),
    ("page-freed-early", "a page of snapshots is deleted before a head names the one in its place"),
    ("page-not-renewed", "the removal of a snapshot does not reach its page"),
    ("gap-not-joined", "what died before a removed snapshot is forgotten with it"),
    ("wall-clock-believed", "an opening takes the wall clock's word for any time"),
    ("locks-by-wall-clock", "locks are judged by the wall clock"),
    ("lock-not-asked", "a locked snapshot can be removed"),
    ("lock-not-journaled", "a lock is forgotten in a crash"),
    ("rollover-drops-kept", "a journal that takes the place of a failed one begins empty"),
    ("hidden-head-ignored", "reclaim goes on while a disk's head cannot be read"),
    ("hidden-journal-dropped", "a journal is removed that has writes to a disk whose head cannot be read"),
    ("no-accounts-no-references", "accounts that are not there are taken for those of a new pool"),
    ("hidden-head-swept", "what only a head names that cannot be read is taken for left over"),
    ("resolve-drops-gap", "a read takes the gap between two extents for zeros"),
];

#[cfg(feature = "planted")]
mod chosen {
    use std::cell::Cell;

    thread_local! {
        static CHOSEN: Cell<Option<&'static str>> = const { Cell::new(None) };
    }

    /// Plants a bug for this thread, or none.
    pub fn plant(bug: Option<&'static str>) {
        assert!(
            bug.is_none_or(|bug| super::BUGS.iter().any(|(name, _)| *name == bug)),
            "{bug:?} is no bug of ours"
        );
        CHOSEN.set(bug);
    }

    pub(crate) fn is(bug: &str) -> bool {
        CHOSEN.get() == Some(bug)
    }
}

#[cfg(feature = "planted")]
pub use chosen::plant;

#[cfg(feature = "planted")]
pub(crate) use chosen::is;

#[cfg(not(feature = "planted"))]
pub(crate) const fn is(_bug: &str) -> bool {
    false
}
