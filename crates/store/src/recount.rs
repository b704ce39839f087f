//! Counting every reference anew.
//!
//! The accounts follow what the ledger tells, so what is missing there is missing for ever. When it is known that something is (a
//! disk was given up, a removed disk's head or an account cannot be read), all references are counted from the maps and the
//! deaths themselves, as of one instant between two rounds of the fold, and one swap puts the result in the place of what
//! was counted before.
//!
//! *Promises*: what is reached is counted, each reference once; what no reference reaches becomes idle and not dead, so that it
//! goes by the two batches that everything goes by; a count that cannot be finished changes nothing. Memory is bounded
//! ([`WINDOW_BYTES`]), at the price of another walk of all maps for each further window. Clients go on.
//! *Never*: begins while something that may refer to blocks cannot be read.
//!
//! A disk's references are what its map was born with since its base, and its deaths. A clone of what is not there any more has no
//! base from then on: what it shares is its own, and each such clone counts for itself.

use crate::disk::{Disk, State};
use crate::map;
use crate::mended;
use crate::pages::Edit;
use crate::reclaim::{self, Memory, settled, totals};
use crate::releases::Own;
use crate::removed::{STEP_ADDRESSES, STEP_BYTES};
use crate::segments;
use crate::store::Store;
use crate::usage::cells::{Cells, Counts};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use stonefold_format::account::{Account, Accounts as Document, Shard, Slot, shard_of};
use stonefold_format::entry::{SLOTS_MAX, SegmentId};
use stonefold_format::head::Head;
use stonefold_format::ledger::LedgerRef;
use stonefold_format::snapshots::SnapshotRecord;
use stonefold_types::{Kind, Result};

/// Memory for counting, in bytes: four for each block, so some 64 GiB of data in one walk.
const WINDOW_BYTES: usize = if cfg!(test) { 4 << 10 } else { 64 << 20 };
/// Keys asked for at one time; large, because an engine may look at every name for every page.
const LIST_LIMIT: usize = 100_000;

/// Everything that refers to blocks, at one instant.
struct Instant {
    maps: Vec<Own>,
    /// Of these sections what was born after the epoch beside them.
    deaths: Vec<(LedgerRef, u64)>,
    /// Per disk: the last ledger object that it names, all of which is counted.
    last: BTreeMap<u64, u64>,
    /// Segments before this one are referred to by what is counted, or by nothing.
    young_from: SegmentId,
}

/// The accounts as they will be.
#[derive(Default)]
struct Anew {
    document: Document,
    /// The shard that is being filled.
    shard: Option<(u64, Shard)>,
}

/// Counts everything, makes that the accounts, and deletes what said that it had to be done. Called by a pass of reclaim.
pub(crate) async fn recount(store: &Store, memory: &mut Memory) -> Result<()> {
    let _telling = store.tell("recount");
    let lost = store.damage.lost();
    store.segments.accounts.settle_doubt().await?;
    free_orphans(store).await?;
    match count_all(store, memory).await {
        // Sections of deaths that cannot be read are known now, and told anew.
        Err(error) if error.kind() == Kind::Corrupt && !memory.damaged.is_empty() => {
            mended::mend_gaps(store, memory).await;
            count_all(store, memory).await?;
        }
        done => done?,
    }
    reclaim::forget_consumed(store, memory).await;
    for key in &lost {
        store.engine.delete(key).await?;
    }
    store.damage.forget_lost(&lost);
    memory.swept = false;
    tracing::info!("all references were counted anew; what nothing refers to is given back from here on");
    Ok(())
}

/// Counts everything as of one instant, and makes that the accounts.
async fn count_all(store: &Store, memory: &mut Memory) -> Result<()> {
    let instant = look(store).await?;
    let forms = list_forms(store).await?;
    let mut anew = Anew::default();
    let mut next = Some(SegmentId(0));
    while let Some(from) = next {
        let mut cells = Cells::new(from, WINDOW_BYTES);
        count(store, &instant, &mut cells, memory).await?;
        next = cells.end();
        write_window(store, &instant, &forms, &cells, from, &mut anew).await?;
    }
    finish_shard(store, &mut anew).await?;
    let mut document = anew.document;
    document.batch = store.segments.accounts.document().batch + 1;
    document.consumed = instant.last;
    store.segments.accounts.swap(document).await
}

/// Clones of disks that are not there any more: what they share with them becomes their own.
async fn free_orphans(store: &Store) -> Result<()> {
    let there: HashSet<u64> = store.disks_and_gone().iter().map(|disk| disk.id).collect();
    for disk in store.disks_and_gone() {
        let _alone = store.folding.lock().await;
        let orphan = disk.state.lock().base.is_some_and(|base| !there.contains(&base.disk));
        if !orphan {
            continue;
        }
        let (edit, opens) = without_first_gap(&disk.state.lock());
        let draft = |head: &mut Head, _: &State| {
            head.base = None;
            if opens {
                head.deaths = Vec::new();
            }
        };
        store.change_snapshots(&disk, edit, draft, |_| ()).await?;
        tracing::info!("disk '{}' stands alone now: what it was cloned from is gone", disk.name);
    }
    Ok(())
}

/// What died before a clone's first snapshot was held by what it was cloned from, and is its own in no way. Tells whether that is the
/// gap that is still open.
fn without_first_gap(state: &State) -> (Edit, bool) {
    let first = state.snapshots.iter().find(|s| s.commit.is_some());
    let Some((first, commit)) = first.and_then(|s| Some((s, s.commit?))) else { return (Edit::new(), true) };
    let record = SnapshotRecord { deaths: Vec::new(), ..first.record(commit) };
    (Edit::from([(first.id, Some(record))]), false)
}

/// One instant between two rounds.
async fn look(store: &Store) -> Result<Instant> {
    let _alone = store.folding.lock().await;
    let young_from = store.segments.settled_below();
    let mut instant = Instant { maps: Vec::new(), deaths: Vec::new(), last: BTreeMap::new(), young_from };
    for disk in store.disks_and_gone() {
        let _stored = settled(&disk).await?;
        look_at(&disk, &mut instant)?;
    }
    Ok(instant)
}

fn look_at(disk: &Arc<Disk>, instant: &mut Instant) -> Result<()> {
    let state = disk.state.lock();
    if let Some((_, why)) = state.snapshots.list.lost().next() {
        return Err(why.clone().context(format!("snapshots of disk '{}' cannot be counted", disk.name)));
    }
    let after = state.base.map_or(0, |base| base.epoch);
    instant.maps.push(Own { root: state.commit.root, after, from: state.reclaimed });
    let gaps = state.snapshots.iter().map(|snapshot| &snapshot.deaths);
    instant.deaths.extend(gaps.chain([&state.deaths]).flatten().map(|at| (*at, after)));
    if let Some(last) = state.changes.iter().map(|at| at.id).max() {
        instant.last.insert(disk.id, last);
    }
    Ok(())
}

/// The newest physical form of each segment.
pub(crate) async fn list_forms(store: &Store) -> Result<BTreeMap<SegmentId, u8>> {
    let mut forms = BTreeMap::new();
    let mut after = None;
    loop {
        let listed = store.engine.list("segment/", after.as_ref(), LIST_LIMIT).await?;
        let Some(last) = listed.last() else { return Ok(forms) };
        after = Some(last.key.clone());
        for (segment, generation) in listed.iter().filter_map(|one| segments::form_of(&one.key)) {
            let newest = forms.entry(segment).or_insert(generation);
            *newest = generation.max(*newest);
        }
    }
}

/// Counts the references of one window.
async fn count(store: &Store, instant: &Instant, cells: &mut Cells, memory: &mut Memory) -> Result<()> {
    const ONE: Counts = Counts { now: 1, without: 0, forgotten: 0, referred: false };
    // All of them are looked at, so that all can be told anew.
    let mut untold = Ok(());
    for (at, after) in &instant.deaths {
        store.check_staying()?;
        store.pace_reclaim(at.length.into()).await;
        match store.segments.accounts.read_deaths(at).await {
            Ok(deaths) => {
                let own = deaths.into_iter().filter(|(birth, _)| birth > after);
                own.for_each(|(_, address)| cells.add(address, &ONE));
            }
            Err(error) if error.kind() == Kind::Corrupt => {
                memory.damaged.insert(*at);
                untold = Err(error);
            }
            Err(error) => return Err(error),
        }
    }
    untold?;
    for own in &instant.maps {
        let mut from = Some(own.from);
        while let Some(start) = from {
            store.check_open()?;
            store.check_staying()?;
            store.pace_reclaim(STEP_BYTES).await;
            let mut found = Vec::new();
            let (next, damaged) =
                map::own(&store.segments, &own.root, own.after, start, STEP_ADDRESSES, &mut found).await?;
            if let Some(error) = damaged.into_iter().next() {
                return Err(error.context("not all references can be counted"));
            }
            found.iter().for_each(|entry| cells.add(entry.address, &ONE));
            from = next;
        }
    }
    Ok(())
}

/// Writes the accounts of a window's segments: of those that are referred to, and of those that are there although nothing refers
/// to them.
async fn write_window(
    store: &Store,
    instant: &Instant,
    forms: &BTreeMap<SegmentId, u8>,
    cells: &Cells,
    from: SegmentId,
    anew: &mut Anew,
) -> Result<()> {
    let end = cells.end().unwrap_or(SegmentId(u64::MAX));
    let there = forms.range(from..end).map(|(segment, _)| *segment).filter(|id| *id < instant.young_from);
    let mut counted: BTreeMap<SegmentId, Vec<(u32, u32)>> =
        there.map(|segment| (segment, Vec::new())).collect();
    for (segment, slots) in cells.segments() {
        counted.insert(segment, slots.map(|(slot, counts)| (slot, counts.now)).collect());
    }
    for (segment, slots) in counted {
        store.check_staying()?;
        let number = shard_of(segment);
        if anew.shard.as_ref().is_some_and(|(filling, _)| *filling != number) {
            finish_shard(store, anew).await?;
        }
        let account = account_of(store, segment, forms.get(&segment).copied(), &slots).await?;
        anew.shard.get_or_insert_with(|| (number, Shard::new())).1.insert(segment, account);
    }
    Ok(())
}

/// A segment's account: its form and what is dead in it as known before or, when that cannot be read, as its index says; its
/// references as counted.
async fn account_of(
    store: &Store,
    segment: SegmentId,
    form: Option<u8>,
    counted: &[(u32, u32)],
) -> Result<Account> {
    let known = match store.segments.accounts.shard(shard_of(segment)).await {
        Ok(shard) => shard.get(&segment).cloned(),
        Err(error) if error.kind() == Kind::Corrupt => None,
        Err(error) => return Err(error),
    };
    let mut account = match known {
        Some(known) => known,
        None => by_index(store, segment, form).await?,
    };
    account.slots.iter_mut().filter(|slot| **slot != Slot::Dead).for_each(|slot| *slot = Slot::Live(0));
    for (slot, references) in counted {
        let slot = *slot as usize;
        if account.slots.len() <= slot {
            account.slots.resize(slot + 1, Slot::Live(0));
        }
        account.slots[slot] = Slot::Live(*references);
    }
    account.present = account.present.max(account.live());
    Ok(account)
}

/// What the index of a segment's newest form tells: what lies there is idle, what does not is dead.
async fn by_index(store: &Store, segment: SegmentId, form: Option<u8>) -> Result<Account> {
    let Some(generation) = form else { return Ok(Account::default()) };
    store.segments.accounts.set_generation(segment, generation);
    let index = match store.segments.index(segment, generation).await {
        Ok(index) => index,
        // Nobody knows what lies there: all that could be is idle until two batches have found it so.
        Err(error) if error.kind() == Kind::Corrupt => {
            let slots = vec![Slot::Live(0); SLOTS_MAX as usize];
            return Ok(Account { generation, present: 0, slots });
        }
        Err(error) => return Err(error),
    };
    let mut account = Account { generation, ..Account::default() };
    for record in index.iter() {
        let (first, end) =
            (record.first_slot as usize, record.first_slot as usize + usize::from(record.blocks));
        account.slots.resize(end, Slot::Dead);
        account.slots[first..end].fill(Slot::Live(0));
        account.present += u32::from(record.blocks);
    }
    Ok(account)
}

async fn finish_shard(store: &Store, anew: &mut Anew) -> Result<()> {
    let Some((number, shard)) = anew.shard.take() else { return Ok(()) };
    let (live, present) = totals(&shard);
    anew.document.live_blocks += live;
    anew.document.present_blocks += present;
    let object = store.segments.next_id().0;
    let idle = shard.values().map(Account::idle).sum();
    store.segments.accounts.put_shard(&store.env, shard, object).await?;
    anew.document.shards.insert(number, (object, idle));
    Ok(())
}
