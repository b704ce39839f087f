//! What removed snapshots and removed disks held alone.
//!
//! A removed snapshot stays in its disk's head, out of sight, until here. What died in the gap behind it is looked through:
//! what was born after the snapshot before it was held by it alone, and is freed; the rest goes to the gap of that one.
//! No map is read, and the work is that gap. A snapshot that clones began as stays until the last of them is gone.
//!
//! Every round of the fold adds a section to a gap; when they are many, runs of them are merged into one.
//!
//! A section of the ledger that cannot be read is told anew first ([`crate::mended`]), from the map of the very snapshot that is to go.
//! Where that is damaged, too, it holds up nobody: what it names stays counted as alive, as does what lies below a node of a removed
//! disk's map that cannot be read; `check` tells how much that is.
//!
//! A removed disk's head lies under `gone/` until its map has been walked and everything that is its own is freed; what it
//! had from the disk that it was cloned from belongs to that one. A walk is cut into steps, each taken over by one swap.

use crate::disk::{Disk, State};
use crate::map;
use crate::pages::Edit;
use crate::planted;
use crate::reclaim::{Memory, cloned};
use crate::snapshot::{SECTIONS_MAX, Snapshot};
use crate::store::Store;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use stonefold_format::head::Head;
use stonefold_format::ledger::{Changes, Deaths, LedgerBuilder, LedgerRef, SECTION_ADDRESSES_MAX};
use stonefold_format::snapshots::{Commit, SnapshotRecord};
use stonefold_types::{Kind, Result};

/// Addresses looked at in one step: some milliseconds, and a few megabytes of memory.
pub(crate) const STEP_ADDRESSES: usize = if cfg!(test) { 64 } else { 1 << 18 };

/// Snapshots that go in one step: as many as a page or two hold.
const STEP_SNAPSHOTS: usize = 256;
/// Fewer are not worth it.
const MERGED_MIN: usize = 8;
/// What one step reads and writes, about, in bytes: the nodes that name so many addresses, and a ledger of them.
pub(crate) const STEP_BYTES: u64 = 8 << 20;

/// Sections that hold nothing to be freed as long as what was born up to an epoch is held.
type Filtered = HashSet<(LedgerRef, u64)>;

/// Settles removed snapshots and removed disks as far as one step each goes; tells whether there is more to do. What fails for one
/// disk does not hold up the others, nor the batch.
pub(crate) async fn settle(store: &Store, memory: &mut Memory) -> Result<bool> {
    let mut more = false;
    for disk in store.disks_and_gone() {
        store.check_open()?;
        if let Err(error) = settle_deaths(store, &disk, memory).await {
            tracing::warn!(
                "what removed snapshots of disk '{}' held stays taken for now: {error}",
                disk.name
            );
        }
    }
    for disk in store.gone_disks() {
        store.check_open()?;
        match walk_gone(store, &disk).await {
            Ok(not_done) => more |= not_done,
            Err(error) => {
                tracing::warn!("what the removed disk '{}' held stays taken for now: {error}", disk.name);
            }
        }
    }
    Ok(more)
}

/// Merges sections of crowded gaps, and settles nothing.
pub(crate) async fn merge(store: &Store, memory: &mut Memory) {
    for disk in store.disks_and_gone() {
        while match merge_deaths(store, &disk, memory).await {
            Ok(more) => more,
            Err(error) => {
                tracing::debug!("gaps of disk '{}' stay crowded: {error}", disk.name);
                false
            }
        } {}
    }
}

async fn settle_deaths(store: &Store, disk: &Arc<Disk>, memory: &mut Memory) -> Result<()> {
    let mut filtered = Filtered::new();
    while settle_snapshots(store, disk, memory, &mut filtered).await? {
        // A gap that several joined is short again before the next step carries it on.
        while merge_deaths(store, disk, memory).await? {}
    }
    while merge_deaths(store, disk, memory).await? {}
    Ok(())
}

/// A section of deaths; `None` when it is damaged, which is told once, and noted.
async fn read_deaths(
    store: &Store,
    disk: &Disk,
    at: &LedgerRef,
    memory: &mut Memory,
) -> Result<Option<Deaths>> {
    if memory.damaged.contains(at) || memory.untold.contains(at) {
        return Ok(None);
    }
    match store.segments.accounts.read_deaths(at).await {
        Err(error) if error.kind() == Kind::Corrupt => {
            tracing::error!(
                "up to {} blocks that disk '{}' has overwritten cannot be given back until they are told anew: {error}",
                at.addresses,
                disk.name
            );
            memory.damaged.insert(*at);
            Ok(None)
        }
        done => done.map(Some),
    }
}

/// What becomes of one gap when the snapshot before it goes.
pub(crate) struct Gap {
    /// The snapshot that ends it, or `None` for the present.
    end: Option<u64>,
    /// What was born later was held by nothing but what goes.
    pub(crate) held_up_to: u64,
    pub(crate) refs: Vec<LedgerRef>,
}

/// The snapshots that can go in one step, and the gaps behind them.
fn plan(store: &Store, disk: &Disk) -> (BTreeSet<u64>, Vec<Gap>) {
    let disks = store.disks_and_gone();
    let cloned = if planted::is("clones-not-asked") { HashSet::new() } else { cloned(&disks, disk.id) };
    let state = disk.state.lock();
    let can_go = |s: &&Snapshot| s.commit.is_some() && s.readers + s.held == 0 && !cloned.contains(&s.id);
    // Where the gap behind it ends is in a page that cannot be read: there is nowhere to put what it leaves.
    let known_after =
        |s: &&Snapshot| !state.snapshots.lost_between(s.id, end_of_gap(&state, s.id).unwrap_or(u64::MAX));
    let removed = state.snapshots.removed().filter(can_go).filter(known_after);
    let going: BTreeSet<u64> = removed.map(|s| s.id).take(STEP_SNAPSHOTS).collect();
    let gaps = gaps(&state, &going);
    (going, gaps)
}

/// The gaps behind snapshots that go.
pub(crate) fn gaps(state: &State, going: &BTreeSet<u64>) -> Vec<Gap> {
    going.iter().map(|id| gap_behind(state, *id, going)).collect()
}

/// The snapshot that ends the gap behind another, or `None` for the present.
fn end_of_gap(state: &State, id: u64) -> Option<u64> {
    state.snapshots.within(id + 1..).find(|s| s.commit.is_some()).map(|s| s.id)
}

fn gap_behind(state: &State, id: u64, going: &BTreeSet<u64>) -> Gap {
    let mut before = id;
    let held_up_to = loop {
        match before.checked_sub(1).and_then(|before| state.snapshots.newest_up_to(before)) {
            Some(found) if going.contains(&found) => before = found,
            Some(found) => break found,
            None => break state.base.map_or(0, |base| base.epoch),
        }
    };
    let end = end_of_gap(state, id);
    let deaths = end.map_or(&state.deaths, |end| &state.snapshots.get(end).expect("found just now").deaths);
    Gap { end, held_up_to, refs: deaths.clone() }
}

/// One step for one disk's removed snapshots. `filtered` has what earlier steps found; another snapshot may have been removed since.
async fn settle_snapshots(
    store: &Store,
    disk: &Arc<Disk>,
    memory: &mut Memory,
    filtered: &mut Filtered,
) -> Result<bool> {
    // No round may add to a gap meanwhile by what it believed before.
    let _alone = store.folding.lock().await;
    let (going, gaps) = plan(store, disk);
    // A disk that was removed meanwhile is among the gone ones in the next pass.
    let removed = disk.state.lock().check_not_barred().is_err_and(|why| why.kind() == Kind::NotFound);
    if going.is_empty() || removed {
        return Ok(false);
    }
    let mut builder = LedgerBuilder::new(store.segments.next_id().0);
    let (mut freed, mut looked_at) = (Vec::new(), 0);
    // Section, and what takes its place.
    let mut replaced: Vec<(LedgerRef, Vec<LedgerRef>)> = Vec::new();
    let (mut complete, mut found) = (true, Vec::new());
    for gap in &gaps {
        let held_up_to = if planted::is("deaths-of-wrong-gap") { 0 } else { gap.held_up_to };
        for at in &gap.refs {
            if filtered.contains(&(*at, held_up_to)) {
                continue;
            }
            if looked_at >= STEP_ADDRESSES {
                complete = false;
                break;
            }
            let Some(deaths) = read_deaths(store, disk, at, memory).await? else {
                if memory.damaged.contains(at) {
                    // It is told anew first: from the map of the very snapshot that is to go.
                    return Ok(false);
                }
                continue;
            };
            looked_at += at.addresses as usize;
            let (kept, free): (Deaths, Deaths) =
                deaths.into_iter().partition(|(birth, _)| *birth <= held_up_to);
            if free.is_empty() {
                filtered.insert((*at, held_up_to));
                continue;
            }
            freed.extend(free.into_iter().map(|(_, address)| address));
            let kept = builder.deaths(kept);
            found.extend(kept.iter().map(|at| (*at, held_up_to)));
            replaced.push((*at, kept));
        }
    }
    let changes = builder.changes(Changes { freed, ..Changes::default() });
    store.segments.accounts.put_ledger(builder).await?;
    let left = leave(&disk.state.lock(), &gaps, &replaced, if complete { going } else { BTreeSet::new() });
    let draft = |head: &mut Head, _: &State| {
        head.changes.extend_from_slice(&changes);
        head.deaths = left.open;
    };
    store.change_snapshots(disk, left.edit, draft, |_| ()).await?;
    memory.read_ledgers.extend(replaced.iter().map(|(at, _)| at.id));
    filtered.extend(found);
    // Another step, also for those that this one left.
    Ok(true)
}

/// Merges sections of a gap that has many into one, so that heads stay short: each round adds one. `false` when there was
/// nothing to do.
async fn merge_deaths(store: &Store, disk: &Arc<Disk>, memory: &mut Memory) -> Result<bool> {
    let _alone = store.folding.lock().await;
    let crowded = {
        let state = disk.state.lock();
        let removed = state.check_not_barred().is_err_and(|why| why.kind() == Kind::NotFound);
        let sound = |refs: &[LedgerRef]| -> Vec<LedgerRef> {
            let unread = |at: &LedgerRef| memory.damaged.contains(at) || memory.untold.contains(at);
            refs.iter().filter(|at| !unread(at)).copied().collect()
        };
        let closed = state.snapshots.crowded().filter(|s| s.commit.is_some());
        let open = (state.deaths.len() > SECTIONS_MAX).then_some((None, &state.deaths));
        let crowded = closed.map(|s| (Some(s.id), &s.deaths)).chain(open).filter(|_| !removed);
        let mut windows = crowded.map(|(end, refs)| (end, mergeable(&sound(refs))));
        windows.find(|(_, window)| window.len() >= MERGED_MIN)
    };
    let Some((end, window)) = crowded else { return Ok(false) };
    let mut deaths = Deaths::new();
    for at in &window {
        match read_deaths(store, disk, at, memory).await? {
            Some(more) => deaths.extend(more),
            // Another run, without it.
            None => return Ok(true),
        }
    }
    let mut builder = LedgerBuilder::new(store.segments.next_id().0);
    let merged = builder.deaths(deaths);
    store.segments.accounts.put_ledger(builder).await?;
    let gone: HashSet<LedgerRef> = window.iter().copied().collect();
    let rest = |list: &[LedgerRef]| {
        let rest = list.iter().filter(|at| !gone.contains(at));
        rest.chain(&merged).copied().collect::<Vec<LedgerRef>>()
    };
    let (edit, open) = {
        let state = disk.state.lock();
        match end.and_then(|id| state.snapshot(id)) {
            None => (Edit::new(), rest(&state.deaths)),
            Some(snapshot) => {
                let commit = snapshot.commit.expect("a gap ends with what is materialised");
                let record = SnapshotRecord { deaths: rest(&snapshot.deaths), ..snapshot.record(commit) };
                (Edit::from([(snapshot.id, Some(record))]), state.deaths.clone())
            }
        }
    };
    store.change_snapshots(disk, edit, |head, _| head.deaths = open, |_| ()).await?;
    memory.read_ledgers.extend(window.iter().map(|at| at.id));
    Ok(true)
}

/// The longest run of sections that one can hold together.
fn mergeable(refs: &[LedgerRef]) -> Vec<LedgerRef> {
    let (mut start, mut addresses) = (0, 0);
    let mut best = 0..0;
    for (at, section) in refs.iter().enumerate() {
        addresses += section.addresses as usize;
        while addresses > SECTION_ADDRESSES_MAX {
            addresses -= refs[start].addresses as usize;
            start += 1;
        }
        if at + 1 - start > best.len() {
            best = start..at + 1;
        }
    }
    refs[best].to_vec()
}

/// What a step leaves of snapshots and gaps.
struct Left {
    edit: Edit,
    /// Of the gap behind the newest snapshot.
    open: Vec<LedgerRef>,
}

/// Puts what is kept in place of what was looked through, and takes snapshots away: the gap before each joins the gap
/// behind it.
fn leave(
    state: &State,
    gaps: &[Gap],
    replaced: &[(LedgerRef, Vec<LedgerRef>)],
    going: BTreeSet<u64>,
) -> Left {
    let replaced: HashMap<LedgerRef, &Vec<LedgerRef>> =
        replaced.iter().map(|(old, kept)| (*old, kept)).collect();
    let kept = |refs: &[LedgerRef]| -> Vec<LedgerRef> {
        refs.iter()
            .flat_map(|at| replaced.get(at).map_or_else(|| vec![*at], |kept| (*kept).clone()))
            .collect()
    };
    let mut left = Left { edit: Edit::new(), open: kept(&state.deaths) };
    // Of those that go and those behind which a gap ends, oldest first.
    let mut touched = going.clone();
    touched.extend(gaps.iter().filter_map(|gap| gap.end));
    let mut carried: Vec<LedgerRef> = Vec::new();
    for id in touched {
        let snapshot = state.snapshots.get(id).expect("a list changes under the fold's lock alone");
        let deaths = [std::mem::take(&mut carried), kept(&snapshot.deaths)].concat();
        if going.contains(&id) {
            carried = if planted::is("gap-not-joined") { Vec::new() } else { deaths };
            left.edit.insert(id, None);
        } else {
            let commit = snapshot.commit.expect("a gap ends with what is materialised");
            left.edit.insert(id, Some(SnapshotRecord { deaths, ..snapshot.record(commit) }));
        }
    }
    left.open = [carried, std::mem::take(&mut left.open)].concat();
    left
}

/// One step through the map of a removed disk; tells whether there is more to do.
async fn walk_gone(store: &Store, disk: &Arc<Disk>) -> Result<bool> {
    let (root, from, own_after) = {
        let state = disk.state.lock();
        if !state.snapshots.is_empty() || state.commit.root.is_hole() {
            return Ok(false);
        }
        (state.commit.root, state.reclaimed, state.base.map_or(0, |base| base.epoch))
    };
    store.pace_reclaim(STEP_BYTES).await;
    let mut freed = Vec::new();
    let own_after = if planted::is("clone-frees-all") { 0 } else { own_after };
    let (next, damaged) =
        map::own(&store.segments, &root, own_after, from, STEP_ADDRESSES, &mut freed).await?;
    for error in damaged {
        tracing::error!("a part of the removed disk '{}' cannot be given back: {error}", disk.name);
    }
    let mut builder = LedgerBuilder::new(store.segments.next_id().0);
    let freed = freed.iter().map(|entry| entry.address).collect();
    let changes = builder.changes(Changes { freed, ..Changes::default() });
    store.segments.accounts.put_ledger(builder).await?;
    let draft = |head: &mut Head, _: &State| {
        head.changes.extend_from_slice(&changes);
        match next {
            Some(next) => head.reclaimed = next,
            None => (head.commit, head.deaths) = (Commit::default(), Vec::new()),
        }
    };
    store.change_head(disk, draft, |_| ()).await?;
    Ok(next.is_some())
}

/// Deletes the heads of removed disks of which nothing is left; tells whether there was one.
pub(crate) async fn forget_gone(store: &Store) -> Result<bool> {
    let mut any = false;
    for disk in store.gone_disks() {
        let done = {
            let state = disk.state.lock();
            state.snapshots.is_empty() && state.commit.root.is_hole() && state.changes.is_empty()
        };
        if done && disk.head.lock().await.is_settled() {
            store.engine.delete(&disk.key).await?;
            store.gone.lock().retain(|other| other.id != disk.id);
            any = true;
        }
    }
    Ok(any)
}

#[cfg(test)]
mod tests;
