//! What a disk takes of the pool: alone, with others, and what comes back when it goes.
//!
//! *Promises*: exact as of one instant between two rounds of the fold, whatever goes on meanwhile. Memory is bounded
//! ([`WINDOW_BYTES`]); the work is one walk through the disk's map for each window, its deaths, and the accounts of what it
//! refers to. It does not grow with the pool. Clients go on; reclaim waits. Why it is counted when asked and not kept:
//! `docs/decisions/0015-usage-is-counted-when-asked.md`.
//!
//! The accounts tell of each block how many references it has; the disk's map and its deaths are the references that
//! are its own. So a block is its alone exactly if those are all there are. What others are about to release is taken off, and
//! clones are asked for by what they began as, not by what they have kept of it: see [`crate::releases`].

pub(crate) mod cells;
#[cfg(test)]
pub(crate) mod tests;

use crate::disk::{Disk, State};
use crate::fold;
use crate::map;
use crate::reclaim;
use crate::releases::{Future, Own, Releases};
use crate::removed::{STEP_ADDRESSES, STEP_BYTES};
use crate::store::Store;
use cells::{Cells, Counts};
use std::collections::BTreeMap;
use std::sync::Arc;
use stonefold_env::WallNanos;
use stonefold_format::account::{Slot, shard_of};
use stonefold_format::entry::SegmentId;
use stonefold_format::ledger::LedgerRef;
use stonefold_types::{BLOCK_BYTES, Name, Result};

/// Memory for counting, in bytes: four for each block that is looked at in one walk, so some 64 GiB of data each.
pub(crate) const WINDOW_BYTES: usize = 64 << 20;

/// What a disk with its snapshots takes of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of the blocks that the disk maps, before anything is saved.
    pub logical_bytes: u64,
    /// Bytes stored that nothing else refers to: compressed, with the nodes of the map.
    pub unique_bytes: u64,
    /// Bytes stored that others refer to as well: disks with the same content, what clones began as.
    pub shared_bytes: u64,
    /// Bytes stored that nothing refers to any more once the disk and its snapshots are removed. Less than what is unique while
    /// clones hold a removed disk; more when it is the last to hold something removed.
    pub reclaimable_bytes: u64,
    /// The same in blocks and nodes.
    pub reclaimable_blocks: u64,
    /// When: nanoseconds since 1970.
    pub as_of: WallNanos,
}

/// Which references of a source are released in which case: those born after an epoch, if any.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    /// By what was removed already.
    now: Option<u64>,
    /// When the disk is removed, too.
    without: Option<u64>,
    /// If the disk were forgotten even where clones hold it.
    forgotten: Option<u64>,
    /// The disk refers to what was born up to here.
    referred: Option<u64>,
}

/// Everything that has to be looked through.
struct Sources {
    sections: BTreeMap<LedgerRef, Marks>,
    maps: Vec<(Own, Marks)>,
    /// Changes that the accounts do not know yet.
    untold: Vec<LedgerRef>,
    logical_blocks: u64,
}

impl Store {
    /// Counts what a disk takes of the pool, with everything written until now. It is remembered, and told by [`Store::disk`],
    /// until the next time or the end.
    pub async fn usage(&self, name: &Name) -> Result<Usage> {
        self.usage_within(name, WINDOW_BYTES).await
    }

    async fn usage_within(&self, name: &Name, window_bytes: usize) -> Result<Usage> {
        let disk = self.find(name)?;
        if let Some(why) = self.segments.accounts.hidden().or_else(|| self.damage.why()) {
            return Err(why.context("not everything that disks refer to is known"));
        }
        // Nothing may be deleted, moved or counted anew while it is looked at.
        let _no_pass = self.reclaiming.lock().await;
        let _telling = self.tell("usage");
        let (sources, as_of) = {
            let _alone = self.folding.lock().await;
            fold::round(self, Some(&disk)).await?;
            disk.state.lock().check_not_barred()?;
            (self.sources(&disk), self.env.wall())
        };
        let deltas = reclaim::read_deltas(self, &sources.untold).await?;
        let logical_bytes = sources.logical_blocks * BLOCK_BYTES as u64;
        let mut usage = Usage { logical_bytes, as_of, ..Usage::default() };
        let mut next = Some(SegmentId(0));
        while let Some(from) = next {
            let mut cells = Cells::new(from, window_bytes);
            self.look_through(&sources, &mut cells).await?;
            self.add_up(&cells, &deltas, &mut usage).await?;
            next = cells.end();
        }
        *disk.usage.lock() = Some(usage);
        Ok(usage)
    }

    fn sources(&self, disk: &Arc<Disk>) -> Sources {
        let disks = self.disks_and_gone();
        let without = Future::new(&disks, Some(disk.id));
        let mut sources = Sources {
            sections: BTreeMap::new(),
            maps: Vec::new(),
            untold: reclaim::untold(self, &disks),
            logical_blocks: disk.state.lock().commit.mapped_blocks,
        };
        sources.add(Future::new(&disks, None).releases(), |marks, after| marks.now = Some(after));
        sources.add(without.releases(), |marks, after| {
            (marks.without, marks.forgotten) = (Some(after), Some(after));
        });
        sources.add_own(disk, &disk.state.lock(), &without);
        sources
    }

    /// Counts the references of this window.
    async fn look_through(&self, sources: &Sources, cells: &mut Cells) -> Result<()> {
        for (at, marks) in &sources.sections {
            self.pace_looking(at.length.into()).await;
            for (birth, address) in self.segments.accounts.read_deaths(at).await? {
                cells.add(address, &marks.counts(birth));
            }
        }
        for (own, marks) in &sources.maps {
            let mut from = Some(own.from);
            while let Some(start) = from {
                self.check_open()?;
                self.pace_looking(STEP_BYTES).await;
                let mut found = Vec::new();
                let (next, damaged) =
                    map::own(&self.segments, &own.root, own.after, start, STEP_ADDRESSES, &mut found).await?;
                if let Some(error) = damaged.into_iter().next() {
                    return Err(error);
                }
                from = next;
                for entry in found {
                    cells.add(entry.address, &marks.counts(entry.birth()));
                }
            }
        }
        Ok(())
    }

    /// Holds the references of this window against those that the accounts know.
    async fn add_up(&self, cells: &Cells, deltas: &[(u64, i64)], usage: &mut Usage) -> Result<()> {
        let accounts = &self.segments.accounts;
        for (segment, found) in cells.segments() {
            let shard = accounts.shard(shard_of(segment)).await?;
            let account = shard.get(&segment);
            let (mut unique, mut shared, mut back) = (Vec::new(), Vec::new(), Vec::new());
            for (slot, counts) in found {
                let counted = match account.and_then(|account| account.slots.get(slot as usize)) {
                    Some(Slot::Live(references)) => i64::from(*references),
                    Some(Slot::Dead) | None => 0,
                };
                let address = segment.0 << 20 | u64::from(slot);
                let delta = deltas.binary_search_by_key(&address, |(address, _)| *address);
                let all = counted + delta.map_or(0, |at| deltas[at].1);
                if all <= i64::from(counts.now) {
                    continue;
                }
                if all <= i64::from(counts.without) {
                    back.push(slot);
                }
                if all <= i64::from(counts.forgotten) {
                    unique.push(slot);
                } else if counts.referred {
                    shared.push(slot);
                }
            }
            let generation = account.map_or(0, |account| account.generation);
            usage.unique_bytes += self.bytes_of_slots(segment, generation, &unique).await?;
            usage.shared_bytes += self.bytes_of_slots(segment, generation, &shared).await?;
            usage.reclaimable_bytes += self.bytes_of_slots(segment, generation, &back).await?;
            usage.reclaimable_blocks += back.len() as u64;
        }
        Ok(())
    }

    /// What blocks of a segment take there, in bytes: of each frame their part. `slots` ascends.
    async fn bytes_of_slots(&self, segment: SegmentId, generation: u8, slots: &[u32]) -> Result<u64> {
        if slots.is_empty() {
            return Ok(0);
        }
        let index = self.segments.index(segment, generation).await?;
        let bytes = index.iter().map(|record| {
            let end = record.first_slot + u32::from(record.blocks);
            let from = slots.partition_point(|slot| *slot < record.first_slot);
            let upto = slots.partition_point(|slot| *slot < end);
            u64::from(record.length) * (upto - from) as u64 / u64::from(record.blocks)
        });
        Ok(bytes.sum())
    }
}

impl Sources {
    fn add(&mut self, releases: Releases, mark: impl Fn(&mut Marks, u64)) {
        for (at, after) in releases.deaths {
            mark(self.sections.entry(at).or_default(), after);
        }
        for own in releases.maps {
            match self.maps.iter_mut().find(|(known, _)| *known == own) {
                Some((_, marks)) => mark(marks, own.after),
                None => {
                    let mut marks = Marks::default();
                    mark(&mut marks, own.after);
                    self.maps.push((own, marks));
                }
            }
        }
    }

    /// What the disk refers to, by its map and by its snapshots.
    fn add_own(&mut self, disk: &Disk, state: &State, without: &Future<'_>) {
        let base = state.base.map_or(0, |base| base.epoch);
        let snapshots = || state.snapshots.iter().filter(|s| s.commit.is_some());
        let held = snapshots().map(|s| s.id).filter(|id| without.holds(disk, *id)).max();
        let own = Own { root: state.commit.root, after: base, from: state.reclaimed };
        // The map is walked whole, for what it has from another disk.
        let released = self.maps.iter().position(|(known, _)| *known == own).map(|at| self.maps.remove(at));
        let marks = Marks {
            forgotten: Some(held.map_or(base, |held| held.max(base))),
            referred: Some(u64::MAX),
            ..released.map_or(Marks::default(), |(_, marks)| marks)
        };
        self.maps.push((Own { after: 0, ..own }, marks));
        let mut newest = None;
        let ends = snapshots().map(|s| (Some(s).filter(|s| !s.removed), &s.deaths));
        for (end, deaths) in ends.chain([(None, &state.deaths)]) {
            for at in deaths.iter().filter(|_| newest.is_some()) {
                self.sections.entry(*at).or_default().referred = newest;
            }
            newest = end.map(|s| s.id).or(newest);
        }
    }
}

impl Marks {
    /// What one reference counts for.
    fn counts(&self, birth: u64) -> Counts {
        let is = |after: Option<u64>| u32::from(after.is_some_and(|after| birth > after));
        Counts {
            now: is(self.now),
            without: is(self.without),
            forgotten: is(self.forgotten),
            referred: self.referred.is_some_and(|upto| birth <= upto),
        }
    }
}
