//! What comes back when snapshots are removed, one set of them after another.
//!
//! *Promises*: exact as of one instant between two rounds of the fold, whatever goes on meanwhile: what a pass of reclaim, asked for, then finds
//! dead. Nothing is changed, but that what was written is folded first. Memory is bounded ([`WINDOW_BYTES`]), at the price of reading
//! the same again for each 64 GiB or so of what is looked at; no map is read but those of disks that were removed. Clients go on; reclaim waits.
//!
//! A reference is held by the snapshots from the one it was born in to the last before it died ([`crate::ledger`]), so it is released by
//! the last of these that goes. A block comes back with the last of its references; deduplication's and those of other disks are known by
//! the accounts. So one look through the deaths tells it for all sets, however many there are. A snapshot that a clone began as
//! holds on, whoever removes it.

#[cfg(test)]
mod tests;

use crate::disk::Disk;
use crate::fold;
use crate::map;
use crate::reclaim;
use crate::releases::{Future, Own};
use crate::removed::{STEP_ADDRESSES, STEP_BYTES};
use crate::store::Store;
use crate::usage::WINDOW_BYTES;
use crate::usage::cells::{Cells, Count};
use std::collections::HashMap;
use stonefold_format::account::{Slot, shard_of};
use stonefold_format::entry::SegmentId;
use stonefold_format::ledger::LedgerRef;
use stonefold_types::{Error, Kind, Result, SnapshotName};

/// Sets that can be asked about at one time: a block's takes two bytes of memory.
const SETS_MAX: usize = u16::MAX as usize - 1;
/// By what is removed already.
const NOW: u16 = 0;
/// By none of the sets.
const NEVER: u16 = u16::MAX;

/// What comes back when one more set of snapshots is removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    /// Blocks and nodes of maps, of 4 KiB each before anything is saved.
    pub blocks: u64,
    /// What is stored of them, compressed, in bytes: of each frame their part.
    pub bytes: u64,
}

/// How many references to a block are released, and by which set the last of them: counted from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Fate {
    released: u32,
    last: u16,
}

impl Count for Fate {
    fn add(&mut self, other: &Self) {
        self.released += other.released;
        self.last = self.last.max(other.last);
    }

    fn pack(&self) -> Option<[u8; 4]> {
        let [low, high] = self.last.to_le_bytes();
        Some([u8::try_from(self.released).ok()?, low, high, 0])
    }

    fn unpack([released, low, high, _]: [u8; 4]) -> Self {
        Fate { released: released.into(), last: u16::from_le_bytes([low, high]) }
    }
}

/// The snapshots of a disk, oldest first: number, and the set that releases it.
struct Row {
    /// What was born up to this epoch is another disk's.
    base: u64,
    snapshots: Vec<(u64, u16)>,
}

/// Sections of deaths of one gap: behind the snapshot at a place of a row.
struct Gap {
    row: usize,
    at: usize,
    refs: Vec<LedgerRef>,
}

/// Everything that has to be looked through.
struct Sources {
    rows: Vec<Row>,
    gaps: Vec<Gap>,
    /// Of disks that were removed.
    maps: Vec<Own>,
    /// Changes that the accounts do not know yet.
    untold: Vec<LedgerRef>,
}

impl Store {
    /// What each of these sets of snapshots gives back when it is removed after those before it; together, what all of them give
    /// back. Whether they may be removed (locks, readers) is not asked.
    pub async fn freed_by(&self, sets: &[Vec<SnapshotName>]) -> Result<Vec<Freed>> {
        self.freed_within(sets, WINDOW_BYTES).await
    }

    async fn freed_within(&self, sets: &[Vec<SnapshotName>], window_bytes: usize) -> Result<Vec<Freed>> {
        if sets.len() > SETS_MAX {
            let what = format!("{} sets of snapshots are too many to be looked at together", sets.len());
            return Err(Error::new(Kind::Invalid, what).remedy(format!("ask about {SETS_MAX} at most")));
        }
        if let Some(why) = self.segments.accounts.hidden().or_else(|| self.damage.why()) {
            return Err(why.context("not everything that disks refer to is known"));
        }
        // Nothing may be deleted, moved or counted anew while it is looked at.
        let _no_pass = self.reclaiming.lock().await;
        let _telling = self.tell("freed");
        let sources = {
            let _alone = self.folding.lock().await;
            fold::round(self, None).await?;
            self.sources_of(sets)?
        };
        let deltas = reclaim::read_deltas(self, &sources.untold).await?;
        let mut freed = vec![Freed::default(); sets.len()];
        let mut next = Some(SegmentId(0));
        while let Some(from) = next {
            let mut cells = Cells::new(from, window_bytes);
            self.follow(&sources, &mut cells).await?;
            self.hold_against(&cells, &deltas, &mut freed).await?;
            next = cells.end();
        }
        Ok(freed)
    }

    fn sources_of(&self, sets: &[Vec<SnapshotName>]) -> Result<Sources> {
        let mut going = HashMap::new();
        for (at, name) in sets.iter().enumerate().flat_map(|(at, set)| set.iter().map(move |one| (at, one))) {
            let disk = self.find(&name.disk)?;
            let id = disk.state.lock().snapshot_named(&name.disk, &name.snapshot)?.id;
            going.entry((disk.id, id)).or_insert(at as u16 + 1);
        }
        let disks = self.disks_and_gone();
        let future = Future::new(&disks, None);
        let (mut rows, mut gaps) = (Vec::new(), Vec::new());
        for disk in &disks {
            let row = row_of(disk, &future, &going)?;
            gaps.extend(gaps_of(disk, &row, rows.len()));
            rows.push(row);
        }
        let (maps, untold) = (future.releases().maps, reclaim::untold(self, &disks));
        Ok(Sources { rows, gaps, maps, untold })
    }

    /// Counts the references of this window that are released.
    async fn follow(&self, sources: &Sources, cells: &mut Cells<Fate>) -> Result<()> {
        for gap in &sources.gaps {
            let bounds = sources.rows[gap.row].bounds(gap.at);
            for at in &gap.refs {
                self.check_open()?;
                self.pace_looking(at.length.into()).await;
                for (birth, address) in self.segments.accounts.read_deaths(at).await? {
                    // Bounds go back in time.
                    let found = bounds.partition_point(|(after, _)| birth <= *after);
                    if let Some((_, last)) = bounds.get(found) {
                        cells.add(address, &Fate { released: 1, last: *last });
                    }
                }
            }
        }
        for own in &sources.maps {
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
                found.iter().for_each(|entry| cells.add(entry.address, &Fate { released: 1, last: NOW }));
            }
        }
        Ok(())
    }

    /// Holds what is released of this window against what the accounts know.
    async fn hold_against(
        &self,
        cells: &Cells<Fate>,
        deltas: &[(u64, i64)],
        freed: &mut [Freed],
    ) -> Result<()> {
        for (segment, found) in cells.segments() {
            let shard = self.segments.accounts.shard(shard_of(segment)).await?;
            let account = shard.get(&segment);
            let comes_back = |(slot, fate): &(u32, Fate)| {
                let counted = match account.and_then(|account| account.slots.get(*slot as usize)) {
                    Some(Slot::Live(references)) => i64::from(*references),
                    Some(Slot::Dead) | None => 0,
                };
                let address = segment.0 << 20 | u64::from(*slot);
                let delta = deltas.binary_search_by_key(&address, |(address, _)| *address);
                fate.last != NOW && counted + delta.map_or(0, |at| deltas[at].1) <= i64::from(fate.released)
            };
            let back: Vec<(u32, Fate)> = found.filter(comes_back).collect();
            if back.is_empty() {
                continue;
            }
            let generation = account.map_or(0, |account| account.generation);
            let index = self.segments.index(segment, generation).await?;
            for record in index.iter() {
                let end = record.first_slot + u32::from(record.blocks);
                let within = back.partition_point(|(slot, _)| *slot < record.first_slot)
                    ..back.partition_point(|(slot, _)| *slot < end);
                share(record.length.into(), record.blocks.into(), &back[within], freed);
            }
        }
        Ok(())
    }
}

/// Gives the sets their parts of a frame: so that all together have of its bytes what its blocks that come back have.
fn share(length: u64, blocks: u64, back: &[(u32, Fate)], freed: &mut [Freed]) {
    let mut sets: Vec<u16> = back.iter().map(|(_, fate)| fate.last).collect();
    sets.sort_unstable();
    for (before, set) in (0u64..).zip(sets) {
        let freed = &mut freed[usize::from(set) - 1];
        freed.blocks += 1;
        freed.bytes += length * (before + 1) / blocks - length * before / blocks;
    }
}

/// The snapshots of a disk, and what releases each.
fn row_of(disk: &Disk, future: &Future<'_>, going: &HashMap<(u64, u64), u16>) -> Result<Row> {
    let state = disk.state.lock();
    if state.snapshots.lost_between(0, u64::MAX) {
        let what = format!("not all snapshots of disk '{}' can be read", disk.name);
        return Err(Error::new(Kind::Corrupt, what).remedy("'stonefold pool check' says more"));
    }
    let set = |id: u64, removed: bool| match going.get(&(disk.id, id)) {
        _ if future.holds(disk, id) => NEVER,
        _ if removed || disk.is_gone() => NOW,
        found => found.copied().unwrap_or(NEVER),
    };
    let there = state.snapshots.iter().filter(|s| s.commit.is_some());
    Ok(Row {
        base: state.base.map_or(0, |base| base.epoch),
        snapshots: there.map(|s| (s.id, set(s.id, s.removed))).collect(),
    })
}

/// The gaps of a disk in which something is released.
fn gaps_of(disk: &Disk, row: &Row, number: usize) -> Vec<Gap> {
    let state = disk.state.lock();
    let released = (0..row.snapshots.len()).filter(|at| row.snapshots[*at].1 != NEVER);
    let deaths = |at: usize| match row.snapshots.get(at + 1) {
        Some((end, _)) => state.snapshots.get(*end).map(|s| s.deaths.clone()).unwrap_or_default(),
        None => state.deaths.clone(),
    };
    let gaps = released.map(|at| Gap { row: number, at, refs: deaths(at) });
    gaps.filter(|gap| !gap.refs.is_empty()).collect()
}

impl Row {
    /// Of what died behind a snapshot: what was born after the first of each pair, and not after the one before it, is released by the
    /// second.
    fn bounds(&self, behind: usize) -> Vec<(u64, u16)> {
        let (mut bounds, mut last): (Vec<(u64, u16)>, u16) = (Vec::new(), NOW);
        for at in (0..=behind).rev() {
            last = last.max(self.snapshots[at].1);
            if last == NEVER {
                break;
            }
            let after = at.checked_sub(1).map_or(self.base, |before| self.snapshots[before].0);
            match bounds.last_mut() {
                Some((known, by)) if *by == last => *known = after,
                _ => bounds.push((after, last)),
            }
        }
        bounds
    }
}
