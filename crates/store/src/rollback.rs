//! Setting a disk back to one of its snapshots.
//!
//! The map is not replaced by the snapshot's: its references would live in two places of the disk's time, and no birth could
//! tell which snapshot holds them. Instead every block that differs is referred to once more, as deduplication does it:
//! nothing is copied, and the work is what has changed since.

use crate::disk::{Disk, State};
use crate::ledger::{self, Tally};
use crate::map::{self, Run, Update};
use crate::overlay::Blocks;
use crate::packer::Packer;
use crate::snapshots::Materialised;
use crate::store::Store;
use parking_lot::Mutex;
use std::sync::Arc;
use stonefold_format::head::Head;
use stonefold_format::ledger::{Changes, LedgerBuilder};
use stonefold_format::snapshots::Commit;
use stonefold_types::{BLOCK_BYTES, Result};

/// Blocks looked at in one step, 256 MiB: bounds the memory it takes, and how long a stop waits.
const STEP_BLOCKS: u64 = 1 << 16;

/// The new map, and what it does to references.
struct Back {
    before: Commit,
    commit: Commit,
    epoch: u64,
    tally: Tally,
}

/// Makes the present what `target` holds, which stays there. The disk is barred and nothing of it is unfolded. Comparing the
/// maps takes its time, and rounds of the fold go on meanwhile: what they do is nothing to a disk that nobody writes to.
pub(crate) async fn set_back(store: &Store, disk: &Arc<Disk>, target: &Materialised) -> Result<()> {
    debug_assert!(disk.state.lock().first_unfolded_lsn().is_none(), "nobody writes to a barred disk");
    let _writing = store.segments.begin_writing();
    let nodes = Packer::nodes(store.segments.clone());
    match write_back(store, disk, target, &nodes).await {
        Ok(back) => adopt(store, disk, target, back).await,
        Err(error) => {
            nodes.abandon().await;
            Err(error)
        }
    }
}

/// Writes the map of what `target` holds; durable on return.
async fn write_back(store: &Store, disk: &Disk, target: &Materialised, nodes: &Packer) -> Result<Back> {
    let (before, epoch, size_bytes) = {
        let state = disk.state.lock();
        (state.commit, state.next_snapshot_id, state.size_bytes.max(target.size_bytes))
    };
    let wanted = target.commit;
    let segments = &store.segments;
    let update = Update { segments, packer: nodes, owner: disk.id, epoch, tally: Mutex::default() };
    let mut commit = before;
    let end = size_bytes.div_ceil(BLOCK_BYTES as u64);
    for start in (0..end).step_by(STEP_BLOCKS as usize) {
        store.check_open()?;
        let runs = differing(store, &before, &wanted, start..(start + STEP_BLOCKS).min(end)).await?;
        if !runs.is_empty() {
            commit = update.apply(&commit, &runs).await?;
            // The next step reads these nodes, and may not find them in the cache.
            nodes.finish().await?;
        }
    }
    Ok(Back { before, commit, epoch, tally: update.tally.into_inner() })
}

/// Puts the new map in the place of the old, between two rounds: what is held by a snapshot, and by which, must not change while
/// it is told in the ledger.
async fn adopt(store: &Store, disk: &Arc<Disk>, target: &Materialised, back: Back) -> Result<()> {
    let _alone = store.folding.lock().await;
    store.check_open()?;
    let held = {
        let state = disk.state.lock();
        assert!(
            state.commit == back.before && state.next_snapshot_id == back.epoch,
            "nobody changes a barred disk"
        );
        state.held_in(back.epoch)
    };
    let mut changes = Changes::default();
    let deaths = ledger::settle(back.tally, held, &mut changes);
    let mut builder = LedgerBuilder::new(store.segments.next_id().0);
    let (changes, deaths) = (builder.changes(changes), builder.deaths(deaths));
    store.segments.accounts.put_ledger(builder).await?;
    let (commit, size_bytes) = (back.commit, target.size_bytes);
    let draft = |head: &mut Head, _: &_| {
        (head.commit, head.size_bytes) = (commit, size_bytes);
        head.changes.extend_from_slice(&changes);
        // The epoch under way: no snapshot has ended it.
        head.deaths.extend_from_slice(&deaths);
    };
    let adopt = |state: &mut State| {
        state.size_bytes = size_bytes;
        state.folds += 1;
    };
    store.change_head(disk, draft, adopt).await
}

/// What `wanted` maps where it differs from `before`.
async fn differing(store: &Store, before: &Commit, wanted: &Commit, within: Blocks) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    for blocks in map::diff(&store.segments, &before.root, &wanted.root, within).await? {
        let entries = map::lookup(&store.segments, &wanted.root, &blocks).await?;
        let run = |(block, first)| Run { blocks: block..block + 1, first, shared: true };
        runs.extend(blocks.zip(entries).map(run));
    }
    Ok(runs)
}
