//! Disks that are mapped without being written, to measure what size alone costs.
//!
//! *Promises*: what comes out is a pool like any other: maps are written by [`Update`], what they refer to is told in the ledger,
//! heads change by one swap, and a check finds nothing wrong. *Never*: is part of anything that is shipped; it exists with the
//! feature `synthetic` alone. *May be called by*: the bench.
//!
//! Each block comes to refer to one that is stored already, as if deduplication had found it: a terabyte is mapped in minutes,
//! and takes the space of its map.

use crate::disk::State;
use crate::ledger;
use crate::map::{self, Run, Update};
use crate::packer::Packer;
use crate::store::Store;
use parking_lot::Mutex;
use stonefold_format::entry::Entry;
use stonefold_format::head::Head;
use stonefold_format::ledger::{Changes, LedgerBuilder};
use stonefold_format::snapshots::Commit;
use stonefold_types::{BLOCK_BYTES, Error, Kind, Name, Result};

/// Blocks looked up in one step, 256 MiB.
const STEP_BLOCKS: u64 = 1 << 16;

/// Stored blocks that others are made to refer to.
pub struct Stock(Vec<Entry>);

impl Stock {
    /// How many there are.
    pub fn blocks(&self) -> usize {
        self.0.len()
    }

    /// How many segments they lie in.
    pub fn segments(&self) -> usize {
        let mut segments: Vec<u64> = self.0.iter().map(|entry| entry.segment().0).collect();
        segments.sort_unstable();
        segments.dedup();
        segments.len()
    }
}

impl Store {
    /// The blocks that a disk holds, in the order of their addresses. They stay stored as long as the disk does.
    pub async fn stock(&self, name: &Name) -> Result<Stock> {
        let disk = self.find(name)?;
        self.fold(Some(&disk)).await?;
        let (root, size_bytes) = {
            let state = disk.state.lock();
            (state.commit.root, state.size_bytes)
        };
        let end = size_bytes.div_ceil(BLOCK_BYTES as u64);
        let mut entries = Vec::new();
        for start in (0..end).step_by(STEP_BLOCKS as usize) {
            let blocks = start..(start + STEP_BLOCKS).min(end);
            let found = map::lookup(&self.segments, &root, &blocks).await?;
            entries.extend(found.into_iter().filter(Entry::is_stored));
        }
        Ok(Stock(entries))
    }

    /// Makes blocks of a disk the same as some of a stock, given as block address and number in the stock, addresses ascending.
    /// One round of the fold, as it were. Fails with `Busy` while the disk has clients or unfolded writes.
    pub async fn refer(&self, name: &Name, stock: &Stock, blocks: &[(u64, usize)]) -> Result<()> {
        let disk = self.find(name)?;
        let _alone = self.folding.lock().await;
        let (before, epoch, held) = {
            let state = disk.state.lock();
            if state.clients.writers() > 0 || state.first_unfolded_lsn().is_some() {
                let what = format!("disk '{name}' is being written to");
                return Err(Error::new(Kind::Busy, what).remedy("disconnect its clients and fold"));
            }
            (state.commit, state.next_snapshot_id, state.held_in(state.next_snapshot_id))
        };
        let run =
            |(block, at): &(u64, usize)| Run { blocks: *block..block + 1, first: stock.0[*at], shared: true };
        let runs: Vec<Run> = blocks.iter().map(run).collect();
        let packer = Packer::nodes(self.segments.clone());
        let (segments, owner) = (&self.segments, disk.id);
        let update = Update { segments, packer: &packer, owner, epoch, tally: Mutex::default() };
        let commit = match write(&update, &before, &runs).await {
            Ok(commit) => commit,
            Err(error) => {
                packer.abandon().await;
                return Err(error);
            }
        };
        let mut changes = Changes::default();
        let deaths = ledger::settle(update.tally.into_inner(), held, &mut changes);
        let mut builder = LedgerBuilder::new(self.segments.next_id().0);
        let (changes, deaths) = (builder.changes(changes), builder.deaths(deaths));
        self.segments.accounts.put_ledger(builder).await?;
        let draft = |head: &mut Head, _: &_| {
            head.commit = commit;
            head.changes.extend_from_slice(&changes);
            head.deaths.extend_from_slice(&deaths);
        };
        self.change_head(&disk, draft, |state: &mut State| state.folds += 1).await
    }
}

/// Writes the map; durable on return.
async fn write(update: &Update<'_>, before: &Commit, runs: &[Run]) -> Result<Commit> {
    let commit = update.apply(before, runs).await?;
    update.packer.finish().await?;
    Ok(commit)
}
