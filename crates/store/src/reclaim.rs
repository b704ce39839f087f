//! Reclaim: finds what nothing refers to, and gives its space back.
//!
//! *Promises*: nothing that a head, a snapshot or the journal reaches is ever deleted, whatever crashes when; no safety rests on a
//! clock; the work grows with what changed, not with the pool; every step can be the last one before a crash.
//! *Never*: changes a map, or holds up a client for longer than a round of the fold does.
//!
//! A *pass* has these steps, each in its own room:
//! 1. [`crate::removed`]: what removed snapshots and removed disks held alone goes into the ledger as freed.
//! 2. *Batch*, here: everything the heads' ledgers tell is added up into the accounts, by one swap. A block without references
//!    becomes *idle*; one that was idle already, and that no round has referred to since, is *dead*. Deduplication is
//!    kept from idle blocks: it forgets them while no round is under way, and loads only what has
//!    references. So whatever a round could still have found is counted before anything is condemned.
//! 3. Segments of which all blocks are dead are deleted, once nobody who could follow an older reference is left.
//! 4. [`crate::rewrite`]: segments of which much is dead are written anew without it.

mod shards;

pub(crate) use shards::{Deltas, of_shard, sum_up, totals};

use crate::cache::AddressSet;
use crate::disk::{Disk, StoredHead};
use crate::mended;
use crate::planted;
use crate::recount;
use crate::removed;
use crate::rewrite;
use crate::segments;
use crate::store::{Counters, Store};
use crate::sweep;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stonefold_format::account::{self, Accounts as Document, Shard, shard_of};
use stonefold_format::entry::SegmentId;
use stonefold_format::ledger::LedgerRef;
use stonefold_format::segment::{Header, SEGMENT_HEADER};
use stonefold_types::{Error, Kind, Result};
use tokio::sync::MutexGuard;

/// Passes, when somebody asked, for blocks that are idle and nothing else: one finds them, the next takes them for dead, and
/// what that frees may be idle once. More would go on as long as somebody overwrites.
const IDLE_PASSES_ASKED: u32 = 4;

/// What reclaim did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Blocks found to be referred to by nothing.
    pub dead_blocks: u64,
    /// Segments deleted.
    pub deleted_segments: u64,
    /// Segments written anew without what was dead.
    pub rewritten_segments: u64,
    /// Bytes of objects deleted, less those of objects written instead.
    pub freed_bytes: u64,
}

/// What stays in memory from pass to pass.
#[derive(Default)]
pub(crate) struct Memory {
    /// Ledger objects some sections of which were taken over: deleted when no head names them any more.
    pub(crate) read_ledgers: BTreeSet<u64>,
    /// Sections of deaths that cannot be read, and are about to be told anew.
    pub(crate) damaged: HashSet<LedgerRef>,
    /// Those of them that cannot be told anew either, because a map is damaged, too.
    pub(crate) untold: HashSet<LedgerRef>,
    /// Whether leftovers of earlier sessions were looked for.
    pub(crate) swept: bool,
}

/// A batch that was taken over.
struct Batch {
    /// Segments before this one were in it, or nothing refers to them.
    young_from: SegmentId,
    /// Segments with nothing alive, and their form.
    empty: Vec<(SegmentId, u8)>,
    /// Segments with enough dead blocks.
    sparse: Vec<SegmentId>,
    dead_blocks: u64,
    /// Whether a further batch would find more.
    idle: bool,
}

impl Batch {
    fn add(&mut self, done: &shards::Done) {
        self.empty.extend_from_slice(&done.empty);
        self.sparse.extend_from_slice(&done.sparse);
        self.dead_blocks += done.dead_blocks;
        self.idle |= done.idle > 0;
    }
}

/// What the heads' ledgers tell, gathered at one instant between two rounds.
struct Pending {
    refs: Vec<LedgerRef>,
    /// Per disk: the last ledger object of all it names; of disks whose heads cannot be read, the last that was taken over.
    last: BTreeMap<u64, u64>,
    young_from: SegmentId,
}

impl Store {
    /// Gives back everything that can be given back now.
    pub async fn reclaim(&self) -> Result<Reclaimed> {
        self.check_open()?;
        let mut all = Reclaimed::default();
        let mut memory = self.reclaiming.lock().await;
        let _telling = self.tell("reclaim");
        memory.swept = false;
        // What was overwritten or trimmed until now is to be counted; on a full place, or beside a disk that cannot be folded,
        // what can be given back without it.
        if let Err(error) = self.fold(None).await {
            self.check_open()?;
            tracing::warn!("reclaim goes on without what could not be folded: {error}");
        }
        let mut idle_passes = IDLE_PASSES_ASKED;
        loop {
            let (done, more) = pass(self, &mut memory, rewrite::DEAD_PART_ASKED).await?;
            if let Some(why) = self.segments.accounts.hidden().or_else(|| self.damage.why()) {
                return Err(why.context("nothing is given back"));
            }
            all.add(&done);
            if more.steps {
                idle_passes = IDLE_PASSES_ASKED;
            } else if more.idle && idle_passes > 0 {
                idle_passes -= 1;
            } else {
                self.look_at_room().await;
                return Ok(all);
            }
        }
    }
}

impl Reclaimed {
    fn add(&mut self, other: &Reclaimed) {
        self.dead_blocks += other.dead_blocks;
        self.deleted_segments += other.deleted_segments;
        self.rewritten_segments += other.rewritten_segments;
        self.freed_bytes += other.freed_bytes;
    }
}

/// What a further pass would do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct More {
    /// Go on with what is done in steps.
    steps: bool,
    /// Take for dead what nothing referred to lately, if still nothing does.
    idle: bool,
}

/// One pass; tells also whether another would do more. Segments are written anew when at least one part in `dead_part` of their
/// blocks is dead.
pub(crate) async fn pass(store: &Store, memory: &mut Memory, dead_part: u32) -> Result<(Reclaimed, More)> {
    const NOTHING: More = More { steps: false, idle: false };
    if store.segments.accounts.hidden().is_some() {
        return Ok((Reclaimed::default(), NOTHING));
    }
    if store.damage.hides_a_disk() && !planted::is("hidden-head-ignored") {
        removed::merge(store, memory).await;
        // Counting goes on, so that heads stay short and deduplication has what it leans on, unless it is all to be done anew.
        if store.damage.lost().is_empty() {
            batch(store, memory, dead_part).await?;
        }
        return Ok((Reclaimed::default(), NOTHING));
    }
    if store.damage.is_any() {
        mended::mend_gaps(store, memory).await;
        recount::recount(store, memory).await?;
    }
    let mut done = Reclaimed::default();
    let more = match steps(store, memory, dead_part, &mut done).await {
        // An account, or a section of changes: what they told is counted from the maps.
        Err(error) if error.kind() == Kind::Corrupt => {
            tracing::warn!("everything is counted anew: {error}");
            recount::recount(store, memory).await?;
            steps(store, memory, dead_part, &mut done).await?
        }
        more => more?,
    };
    count(&store.counters, &done);
    Ok((done, more))
}

/// The steps of a pass.
async fn steps(store: &Store, memory: &mut Memory, dead_part: u32, done: &mut Reclaimed) -> Result<More> {
    let mut more = removed::settle(store, memory).await?;
    // What waits for it is settled by the next pass.
    more |= mended::mend_gaps(store, memory).await;
    let batch = batch(store, memory, dead_part).await?;
    done.dead_blocks += batch.dead_blocks;
    delete_empty(store, &batch, done).await?;
    if !memory.swept {
        sweep::sweep(store, batch.young_from, done).await?;
        memory.swept = true;
    }
    rewrite::rewrite(store, &batch.sparse, done).await?;
    more |= removed::forget_gone(store).await?;
    sweep::forget_ledgers(store, memory).await?;
    Ok(More { steps: more, idle: batch.idle })
}

fn count(counters: &Counters, done: &Reclaimed) {
    counters.passes.fetch_add(1, Ordering::Relaxed);
    counters.dead_blocks.fetch_add(done.dead_blocks, Ordering::Relaxed);
    counters.freed_bytes.fetch_add(done.freed_bytes, Ordering::Relaxed);
    counters.deleted_segments.fetch_add(done.deleted_segments, Ordering::Relaxed);
    counters.rewritten_segments.fetch_add(done.rewritten_segments, Ordering::Relaxed);
}

/// Adds up what the heads tell. While some head cannot be read nothing is condemned: it may refer to what has no references.
async fn batch(store: &Store, memory: &mut Memory, dead_part: u32) -> Result<Batch> {
    let accounts = &store.segments.accounts;
    accounts.settle_doubt().await?;
    let condemns = !store.damage.hides_a_disk() || planted::is("hidden-head-ignored");
    let idle = if condemns { idle_addresses(store).await? } else { AddressSet::default() };
    let pending = gather(store, &idle).await?;
    let deltas = Arc::new(read_deltas(store, &pending.refs).await?);
    let mut next = Document::clone(&accounts.document());
    let young_from = pending.young_from;
    let mut batch = Batch { young_from, empty: Vec::new(), sparse: Vec::new(), dead_blocks: 0, idle: false };
    let idle_shards = next.shards.iter().filter(|(_, (_, idle))| *idle > 0 && condemns);
    let mut touched: BTreeSet<u64> = idle_shards.map(|(shard, _)| *shard).collect();
    touched.extend(deltas.iter().map(|(address, _)| shard_of(SegmentId(address >> 20))));
    let changed = !touched.is_empty() || next.consumed != pending.last;
    for number in touched {
        let (before, deltas) = (accounts.shard(number).await?, deltas.clone());
        let job = shards::Job { number, before, deltas, dead_part: condemns.then_some(dead_part) };
        let done = store.env.offload(move || job.run()).await?;
        let [before, after] = done.totals;
        next.live_blocks = next.live_blocks + after.0 - before.0;
        next.present_blocks = next.present_blocks + after.1 - before.1;
        batch.add(&done);
        if done.shard.is_empty() {
            next.shards.remove(&number);
            continue;
        }
        let object = store.segments.next_id().0;
        accounts.put_shard(&store.env, done.shard, object).await?;
        next.shards.insert(number, (object, done.idle));
    }
    next.consumed = pending.last;
    if changed {
        next.batch += 1;
        accounts.swap(next).await?;
    }
    forget_consumed(store, memory).await;
    Ok(batch)
}

/// The addresses of all idle slots.
async fn idle_addresses(store: &Store) -> Result<AddressSet> {
    let mut idle = AddressSet::default();
    let accounts = &store.segments.accounts;
    for (number, _) in accounts.document().shards.iter().filter(|(_, (_, idle))| *idle > 0) {
        let shard = accounts.shard(*number).await?;
        let add = move || {
            idle.extend(shards::idle_addresses(&shard));
            idle
        };
        idle = store.env.offload(add).await;
    }
    Ok(idle)
}

/// Everything pending, at one instant between two rounds, so that no release is seen without the references that
/// were made before it. Deduplication forgets what is idle.
async fn gather(store: &Store, idle: &AddressSet) -> Result<Pending> {
    let _alone = store.folding.lock().await;
    let consumed = &store.segments.accounts.document().consumed;
    let young_from = store.segments.settled_below();
    let mut pending = Pending { refs: Vec::new(), last: BTreeMap::new(), young_from };
    let disks = store.disks_and_gone();
    if store.damage.hides_a_disk() {
        // The hidden disks' are among these; when their heads come back, so does what they name.
        pending.last.extend(consumed.iter().filter(|(id, _)| !disks.iter().any(|disk| disk.id == **id)));
    }
    for disk in disks {
        let _stored = settled(&disk).await?;
        let state = disk.state.lock();
        if let Some(last) = state.changes.iter().map(|at| at.id).max() {
            pending.last.insert(disk.id, last);
        }
        let taken = consumed.get(&disk.id).copied().unwrap_or(0);
        let taken = if planted::is("batch-taken-twice") { 0 } else { taken };
        pending.refs.extend(state.changes.iter().filter(|at| at.id > taken));
    }
    if !planted::is("idle-not-forgotten") {
        if !idle.is_empty() {
            store.dedupe.forget(&store.env, idle).await;
        }
        store.segments.accounts.set_young_from(young_from);
    }
    Ok(pending)
}

/// Holds a disk's head as it is. Fails while it is not known what is stored of it: whatever that refers to must not be deleted.
pub(crate) async fn settled(disk: &Disk) -> Result<MutexGuard<'_, StoredHead>> {
    let stored = disk.head.lock().await;
    if !stored.is_settled() {
        let what = format!("it is not known which head of disk '{}' is stored", disk.name);
        return Err(Error::new(Kind::Busy, what).remedy("it is tried again"));
    }
    if disk.state.lock().buried {
        let what = format!("disk '{}' may have been removed", disk.name);
        return Err(Error::new(Kind::Busy, what).remedy("remove it again"));
    }
    Ok(stored)
}

/// Sections of changes that no batch has taken over, of all disks. One instant, if the fold is held off.
pub(crate) fn untold(store: &Store, disks: &[Arc<Disk>]) -> Vec<LedgerRef> {
    let consumed = &store.segments.accounts.document().consumed;
    let taken = |disk: &Disk| consumed.get(&disk.id).copied().unwrap_or(0);
    let new = |disk: &Arc<Disk>| {
        let changes = disk.state.lock().changes.clone();
        changes.into_iter().filter(|at| at.id > taken(disk)).collect::<Vec<_>>()
    };
    disks.iter().flat_map(new).collect()
}

/// What sections of changes add up to.
pub(crate) async fn read_deltas(store: &Store, refs: &[LedgerRef]) -> Result<Deltas> {
    let mut deltas = Deltas::new();
    for at in refs {
        store.pace_reclaim(at.length.into()).await;
        let changes = store.segments.accounts.read_changes(at).await?;
        let more = changes.born.iter().chain(&changes.shared).map(|address| (*address, 1));
        deltas.extend(more.filter(|_| !planted::is("shared-not-counted")));
        if planted::is("shared-not-counted") {
            deltas.extend(changes.born.iter().map(|address| (*address, 1)));
        }
        deltas.extend(changes.freed.iter().map(|address| (*address, -1)));
    }
    Ok(sum_up(&store.env, deltas).await)
}

/// Drops from the heads what the newest batch took over.
pub(crate) async fn forget_consumed(store: &Store, memory: &mut Memory) {
    let consumed = store.segments.accounts.document().consumed.clone();
    for disk in store.disks_and_gone() {
        let Some(upto) = consumed.get(&disk.id).copied() else { continue };
        let gone: Vec<u64> = {
            let state = disk.state.lock();
            state.changes.iter().map(|at| at.id).filter(|id| *id <= upto).collect()
        };
        if gone.is_empty() {
            continue;
        }
        let dropped =
            store.change_head(&disk, |head, _| head.changes.retain(|at| at.id > upto), |_| ()).await;
        match dropped {
            Ok(()) => memory.read_ledgers.extend(gone),
            // The document says that they are taken over; it is tried again after the next batch.
            Err(error) => {
                tracing::debug!("the head of disk '{}' goes on naming old ledgers: {error}", disk.name)
            }
        }
    }
}

async fn delete_empty(store: &Store, batch: &Batch, done: &mut Reclaimed) -> Result<()> {
    if batch.empty.is_empty() {
        return Ok(());
    }
    store.segments.pins.drained().await;
    for (segment, generation) in &batch.empty {
        store.dedupe.note_form(*segment, None);
        done.freed_bytes += delete_form(store, *segment, *generation).await?;
        store.segments.accounts.forget_generation(*segment);
        done.deleted_segments += 1;
    }
    Ok(())
}

/// Deletes a physical form; returns its length in bytes.
pub(crate) async fn delete_form(store: &Store, segment: SegmentId, generation: u8) -> Result<u64> {
    let key = segments::key(segment, generation);
    let header = store.engine.get_range(&key, 0, SEGMENT_HEADER).await;
    let bytes = header.ok().and_then(|h| Header::decode(&h, segment).ok().map(|h| h.object_bytes));
    store.engine.delete(&key).await?;
    Ok(bytes.unwrap_or(0))
}

/// The accounts of a shard, changed, become the newest.
pub(crate) async fn swap_shard(store: &Store, number: u64, shard: Shard) -> Result<()> {
    let accounts = &store.segments.accounts;
    let before = totals(&*accounts.shard(number).await?);
    let after = totals(&shard);
    let object = store.segments.next_id().0;
    let idle = shard.values().map(account::Account::idle).sum();
    accounts.put_shard(&store.env, shard, object).await?;
    let mut next = Document::clone(&accounts.document());
    next.live_blocks = next.live_blocks + after.0 - before.0;
    next.present_blocks = next.present_blocks + after.1 - before.1;
    next.shards.insert(number, (object, idle));
    accounts.swap(next).await
}

/// The snapshots of a disk that clones, or removed ones, began as.
pub(crate) fn cloned(disks: &[Arc<Disk>], disk: u64) -> HashSet<u64> {
    let bases = disks.iter().filter_map(|other| other.state.lock().base);
    bases.filter(|base| base.disk == disk).map(|base| base.epoch).collect()
}
