//! Setting a disk back to one of its snapshots.
//!
//! The map is not replaced by the snapshot's: its references would live in two places of the disk's time, and no birth could
//! tell which snapshot holds them. Instead every block that differs is referred to once more, as deduplication does it:
//! nothing is copied, and the work is what has changed since.

use crate::accounts;
use crate::disk::Disk;
use crate::ledger::{self, Held};
use crate::map::{self, Run, Update};
use crate::overlay::Blocks;
use crate::packer::Packer;
use crate::snapshots::Materialised;
use crate::store::Store;
use parking_lot::Mutex;
use std::sync::Arc;
use stonefold_format::head::{Commit, Head};
use stonefold_format::ledger::{Changes, LedgerBuilder, LedgerRef};
use stonefold_types::{BLOCK_BYTES, Result};

/// Blocks looked at in one step, 1 GiB: bounds the memory it takes.
const STEP_BLOCKS: u64 = 1 << 18;

/// The new map, and what the ledger tells of it.
struct Back {
    commit: Commit,
    epoch: u64,
    changes: Vec<LedgerRef>,
    deaths: Vec<LedgerRef>,
}

/// Makes the present what `target` holds. Nothing is unfolded, nobody writes, and no round is under way.
pub(crate) async fn set_back(store: &Store, disk: &Arc<Disk>, target: &Materialised) -> Result<()> {
    debug_assert!(disk.state.lock().first_unfolded_lsn().is_none(), "nobody writes to a barred disk");
    let nodes = Packer::nodes(store.segments.clone());
    let back = match write_back(store, disk, target, &nodes).await {
        Ok(back) => back,
        Err(error) => {
            nodes.abandon().await;
            return Err(error);
        }
    };
    let size_bytes = target.size_bytes;
    let draft = |head: &mut Head, _: &_| {
        (head.commit, head.size_bytes) = (back.commit, size_bytes);
        head.changes.extend_from_slice(&back.changes);
        ledger::add_deaths(head, back.epoch, &back.deaths);
    };
    let adopt = |state: &mut crate::disk::State| {
        state.size_bytes = size_bytes;
        state.folds += 1;
    };
    store.change_head(disk, draft, adopt).await
}

async fn write_back(store: &Store, disk: &Disk, target: &Materialised, nodes: &Packer) -> Result<Back> {
    let (before, held, epoch, size_bytes) = {
        let state = disk.state.lock();
        let held = Held::new(state.base.map(|base| base.epoch), state.snapshots.iter().map(|s| s.id));
        (state.commit, held, state.next_snapshot_id, state.size_bytes.max(target.size_bytes))
    };
    let wanted = target.commit;
    let segments = &store.segments;
    let update = Update { segments, packer: nodes, owner: disk.id, epoch, tally: Mutex::default() };
    let mut commit = before;
    let end = size_bytes.div_ceil(BLOCK_BYTES as u64);
    for start in (0..end).step_by(STEP_BLOCKS as usize) {
        let runs = differing(store, &before, &wanted, start..(start + STEP_BLOCKS).min(end)).await?;
        if !runs.is_empty() {
            commit = update.apply(&commit, &runs).await?;
            // The next step reads these nodes, and may not find them in the cache.
            nodes.finish().await?;
        }
    }
    let mut changes = Changes::default();
    let deaths = held.settle(update.tally.into_inner(), epoch, &mut changes);
    let mut builder = LedgerBuilder::new(store.segments.next_id().0);
    let (changes, deaths) = (builder.changes(changes), builder.deaths(deaths));
    accounts::put_ledger(&*store.engine, builder).await?;
    Ok(Back { commit, epoch, changes, deaths })
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
