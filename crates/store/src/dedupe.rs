//! Finding blocks that are stored already.
//!
//! *Promises*: never names a block that is not durable or whose round may yet fail; takes no more memory than its
//! bounds, whatever the pool holds. *Never*: is needed: it is soft state, and a duplicate it misses is stored twice.
//!
//! Domains share the memory, and nothing else: each has a key of its own for fingerprints, so that none is found in another.
//!
//! Memory holds one fingerprint in 64 of the whole pool, the *samples*. A duplicate run of any length soon meets
//! one; then the index of the segment it points into, the *neighbourhood*, is loaded into a bounded cache, where the
//! rest of the run is found. What was folded lately is there already, and loaded again like all else when others have taken its
//! place. After a start the samples are read from the segments'
//! tails in the background; until then fewer duplicates are found.

use crate::accounts::Accounts;
use crate::cache::{AddressHasher, AddressSet, Cache};
use crate::planted;
use crate::segments;
use futures::StreamExt;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use stonefold_engine::{Engine, Key, Listed};
use stonefold_env::Env;
use stonefold_format::account::{Slot, shard_of};
use stonefold_format::entry::{Entry, Hint, SegmentId};
use stonefold_format::fingerprint::{Fingerprint, SAMPLE_ONE_IN};
use stonefold_format::segment::{Footer, SEGMENT_TAIL};
use stonefold_types::{Error, Kind, Result};

/// Samples kept, at most: one stands for 64 blocks, so that 1 TiB fits. Beyond it, every other one is let go.
const SAMPLES_MAX: usize = 4 << 20;
/// What a sample takes at most, in bytes: a table is seven eighths full before it doubles, and 17 bytes a place.
const SAMPLE_BYTES: u64 = 40;
/// Memory for samples, at most, in memories for neighbourhoods.
const SAMPLES_PART: u64 = 2;
/// Segments whose tails are read at one time after a start; and at first, when what is recovered right then is read beside it, from the same disk and by
/// the same thread.
const TAILS_ABREAST: usize = 16;
const TAILS_AT_FIRST: usize = 2;
/// How long that is.
const AT_FIRST: Duration = Duration::from_secs(10);
/// Segments between two looks at the clock.
const TAILS_A_GROUP: usize = 256;
/// Blocks taken over from a round at one time: some tenths of a millisecond.
const ADOPTED_AT_ONCE: usize = 512;
/// Keys asked for at one time; large, because an engine may look at every name for every page.
const LIST_LIMIT: usize = 100_000;

type Table<V> = HashMap<u64, V, BuildHasherDefault<AddressHasher>>;

/// A block by its fingerprint. The low half is the key it is kept under.
#[derive(Clone, Copy)]
struct Known {
    high: u64,
    entry: Entry,
}

/// Blocks that a round of the fold has packed: known to that round at once, and to all when it has succeeded.
#[derive(Default)]
pub(crate) struct Fresh {
    /// Each with the part of the round that it was packed for.
    packed: Mutex<Vec<(Fingerprint, Entry, usize)>>,
    known: Mutex<Table<Known>>,
}

/// See the module.
pub(crate) struct Dedupe {
    engine: Arc<dyn Engine>,
    accounts: Arc<Accounts>,
    samples: Mutex<Samples>,
    samples_max: AtomicUsize,
    known: Cache<Known>,
    /// Segments whose neighbourhoods were loaded lately, each with how many neighbours had been kept by then.
    loaded: Mutex<Table<u64>>,
    /// Neighbours kept so far.
    kept: AtomicU64,
    /// Of segments that no account knows yet, the slots that rounds have mapped.
    young: Mutex<Table<Slots>>,
    /// Blocks that were not stored again.
    pub(crate) found_blocks: AtomicU64,
    /// Blocks that were looked for.
    pub(crate) sought_blocks: AtomicU64,
}

#[derive(Default)]
struct Samples {
    /// From the low half of a fingerprint to the address of a block that has it.
    places: Table<u64>,
    /// Of segments: the physical form, and its length in bytes, which tells where the tail is.
    forms: Table<(u8, u64)>,
    /// Only samples divisible by 2 to this are kept.
    thinned: u32,
}

/// Slots of a segment, a bit each.
#[derive(Default)]
struct Slots(Vec<u64>);

impl Slots {
    fn add(&mut self, slot: u32) {
        let at = slot as usize / 64;
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        self.0[at] |= 1 << (slot % 64);
    }

    fn has(&self, slot: u32) -> bool {
        self.0.get(slot as usize / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }
}

/// Weight of a neighbour in the cache, in bytes.
const KNOWN_BYTES: u64 = size_of::<Known>() as u64;

impl Dedupe {
    /// `memory_bytes` bounds the neighbourhoods; samples take [`SAMPLES_PART`] times as much at most.
    pub(crate) fn new(engine: Arc<dyn Engine>, accounts: Arc<Accounts>, memory_bytes: u64) -> Arc<Self> {
        Arc::new(Dedupe {
            engine,
            accounts,
            samples: Mutex::default(),
            samples_max: AtomicUsize::new(samples_max(memory_bytes)),
            known: Cache::new(memory_bytes),
            loaded: Mutex::default(),
            kept: AtomicU64::new(0),
            young: Mutex::default(),
            found_blocks: AtomicU64::new(0),
            sought_blocks: AtomicU64::new(0),
        })
    }

    /// Another bound for the neighbourhoods, and with it for the samples; these are thinned when the next one comes.
    pub(crate) fn resize(&self, memory_bytes: u64) {
        self.known.resize(memory_bytes);
        self.samples_max.store(samples_max(memory_bytes), Ordering::Relaxed);
    }

    /// Bytes of neighbourhoods held, and their bound.
    pub(crate) fn cache_bytes(&self) -> (u64, u64) {
        (self.known.bytes(), self.known.bytes_max())
    }

    pub(crate) fn samples(&self) -> u64 {
        self.samples.lock().places.len() as u64
    }

    /// Memory that the samples take, in bytes.
    pub(crate) fn samples_bytes(&self) -> u64 {
        let samples = self.samples.lock();
        // A table has a place more for each seven that it may fill, and a byte beside each.
        let bytes = |capacity: usize, each: usize| (capacity * 8 / 7 * (each + 1)) as u64;
        bytes(samples.places.capacity(), size_of::<(u64, u64)>())
            + bytes(samples.forms.capacity(), size_of::<(u64, (u8, u64))>())
    }

    /// Where blocks with these fingerprints, which lie together, are stored.
    pub(crate) async fn find(&self, fingerprints: &[Fingerprint], fresh: &Fresh) -> Vec<Option<Entry>> {
        for sample in fingerprints.iter().filter(|fingerprint| fingerprint.is_sample()) {
            if self.lookup(sample, fresh).is_none() {
                self.load_around(sample).await;
            }
        }
        fingerprints.iter().map(|fingerprint| self.lookup(fingerprint, fresh)).collect()
    }

    fn lookup(&self, fingerprint: &Fingerprint, fresh: &Fresh) -> Option<Entry> {
        let known = fresh.lookup(fingerprint).or_else(|| self.known.get(fingerprint.low))?;
        (known.high == fingerprint.high).then_some(known.entry)
    }

    /// Loads the neighbourhood of a sample that is stored somewhere.
    async fn load_around(&self, sample: &Fingerprint) {
        let (segment, form) = {
            let samples = self.samples.lock();
            let Some(address) = samples.places.get(&sample.low) else { return };
            let segment = SegmentId(address >> 20);
            let Some(form) = samples.forms.get(&segment.0) else { return };
            (segment, *form)
        };
        // After a start nothing is known of what no batch has counted: what nobody has mapped may be among it.
        if self.accounts.is_young(segment) && !self.young.lock().contains_key(&segment.0) {
            return;
        }
        // As many as half of what there is room for: until then the neighbours are there, and what is not found is not stored.
        let room = self.known.bytes_max() / Cache::<Known>::weight(KNOWN_BYTES) / 2;
        let kept = self.kept.load(Ordering::Relaxed);
        if self.loaded.lock().get(&segment.0).is_some_and(|at| kept - at < room) {
            return;
        }
        if let Err(error) = self.load(segment, form).await {
            // Soft state: the block is stored once more, and whoever reads that segment is told.
            tracing::warn!("the index of segment {segment} cannot be used for dedupe: {error}");
        }
        self.loaded.lock().insert(segment.0, self.kept.load(Ordering::Relaxed));
    }

    async fn load(&self, segment: SegmentId, (generation, length): (u8, u64)) -> Result<()> {
        let young = self.accounts.is_young(segment);
        let shard = if young { None } else { Some(self.accounts.shard(shard_of(segment)).await?) };
        let counted =
            shard.as_ref().and_then(|shard| shard.get(&segment)).map_or(&[][..], |account| &account.slots);
        // What no batch has counted yet none has found idle: whatever a round has mapped will do, even if nothing refers to it now.
        let mapped = |slot: u32| self.young.lock().get(&segment.0).is_some_and(|slots| slots.has(slot));
        let referred = |slot: u32| match young {
            true => mapped(slot),
            false => matches!(counted.get(slot as usize), Some(Slot::Live(1..))),
        };
        let key = segments::key(segment, generation);
        let tail_bytes = (SEGMENT_TAIL as u64).min(length);
        let tail = self.engine.get_range(&key, length - tail_bytes, tail_bytes as usize).await?;
        let footer = Footer::decode(&tail, segment)?;
        let index = self.engine.get_range(&key, footer.index_offset, footer.index_bytes()).await?;
        let (records, fingerprints) = footer.decode_index(&index)?;
        let mut fingerprints = fingerprints.iter();
        for record in records {
            let hint = Hint::new(record.offset as usize, record.length as usize, 0);
            for (at, fingerprint) in fingerprints.by_ref().take(usize::from(record.blocks)).enumerate() {
                let slot = record.first_slot + at as u32;
                if referred(slot) || planted::is("idle-not-forgotten") {
                    self.keep(fingerprint, Entry::new(segment, slot, hint.with_index(at)));
                }
            }
        }
        Ok(())
    }

    fn keep(&self, fingerprint: &Fingerprint, entry: Entry) {
        self.known.insert(fingerprint.low, Known { high: fingerprint.high, entry }, KNOWN_BYTES);
        self.kept.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes over what a round has packed for those of its parts that were committed: what nobody has mapped is in no
    /// account, and may be given back. `lengths` are those of the segments it put. In steps, so that nobody waits long for the
    /// thread.
    pub(crate) async fn adopt(
        &self,
        env: &Env,
        fresh: &Fresh,
        lengths: &[(SegmentId, u64)],
        committed: impl Fn(usize) -> bool + Send,
    ) {
        let packed = std::mem::take(&mut *fresh.packed.lock());
        let forms = lengths.iter().map(|(segment, length)| (segment.0, (0, *length)));
        self.samples.lock().forms.extend(forms);
        self.young.lock().retain(|segment, _| self.accounts.is_young(SegmentId(*segment)));
        for step in packed.chunks(ADOPTED_AT_ONCE) {
            let samples_max = self.samples_max.load(Ordering::Relaxed);
            for (fingerprint, entry, _) in step.iter().filter(|(_, _, part)| committed(*part)) {
                self.samples.lock().add(fingerprint, entry.address, samples_max);
                self.young.lock().entry(entry.segment().0).or_default().add(entry.slot());
                self.keep(fingerprint, *entry);
            }
            env.yield_now().await;
        }
    }

    /// Forgets the blocks at these addresses: reclaim has found nothing that refers to them. In steps, so that nobody waits long
    /// for the thread.
    pub(crate) async fn forget(&self, env: &Env, idle: &AddressSet) {
        for part in 0..self.known.parts() {
            self.known.retain_part(part, |known| !idle.contains(&known.entry.address));
            env.yield_now().await;
        }
    }

    /// A segment was deleted (`None`), or written anew as this generation, so many bytes long.
    pub(crate) fn note_form(&self, segment: SegmentId, form: Option<(u8, u64)>) {
        let mut samples = self.samples.lock();
        match form {
            Some(form) => samples.forms.insert(segment.0, form),
            None => {
                self.loaded.lock().remove(&segment.0);
                samples.forms.remove(&segment.0)
            }
        };
    }

    /// Reads the samples of every data segment: the background work after a start.
    pub(crate) async fn read_samples(&self, env: &Env) -> Result<()> {
        let (mut after, began): (Option<Key>, _) = (None, env.monotonic());
        loop {
            let listed = self.engine.list("segment/", after.as_ref(), LIST_LIMIT).await?;
            let Some(last) = listed.last() else { return Ok(()) };
            after = Some(last.key.clone());
            for group in listed.chunks(TAILS_A_GROUP) {
                let is_first = env.monotonic().saturating_sub(began) < AT_FIRST;
                let reads = group.iter().cloned().map(|one| async move { self.read_tail(&one).await });
                let mut reads = futures::stream::iter(reads).buffer_unordered(if is_first {
                    TAILS_AT_FIRST
                } else {
                    TAILS_ABREAST
                });
                while let Some(read) = reads.next().await {
                    if let Err(error) = read {
                        tracing::warn!("dedupe will not know a segment: {error}");
                    }
                    env.yield_now().await;
                }
            }
        }
    }

    async fn read_tail(&self, listed: &Listed) -> Result<()> {
        let stranger = || Error::new(Kind::Invalid, format!("'{}' is no segment's name", listed.key));
        let (segment, generation) = segments::form_of(&listed.key).ok_or_else(stranger)?;
        if self.samples.lock().forms.get(&segment.0).is_some_and(|(known, _)| *known >= generation) {
            return Ok(());
        }
        let read = |bytes: u64| {
            let bytes = bytes.min(listed.bytes);
            self.engine.get_range(&listed.key, listed.bytes - bytes, bytes as usize)
        };
        let mut tail = read(SEGMENT_TAIL as u64).await?;
        let footer = Footer::decode(&tail, segment)?;
        if footer.tail_bytes() > tail.len() {
            tail = read(footer.tail_bytes() as u64).await?;
        }
        let found = footer.decode_samples(&tail)?;
        let samples_max = self.samples_max.load(Ordering::Relaxed);
        let mut samples = self.samples.lock();
        samples.forms.insert(segment.0, (generation, listed.bytes));
        for (slot, fingerprint) in &found {
            samples.add(fingerprint, segment.0 << 20 | u64::from(*slot), samples_max);
        }
        Ok(())
    }
}

/// How many samples go with so much memory for neighbourhoods, in bytes.
fn samples_max(memory_bytes: u64) -> usize {
    SAMPLES_MAX.min((memory_bytes * SAMPLES_PART / SAMPLE_BYTES) as usize).max(1)
}

impl Samples {
    fn add(&mut self, fingerprint: &Fingerprint, address: u64, samples_max: usize) {
        if fingerprint.is_sample() && self.keeps(fingerprint.low) {
            self.places.insert(fingerprint.low, address);
        }
        while self.places.len() > samples_max {
            self.thinned += 1;
            let thinned = self.thinned;
            self.places.retain(|low, _| keeps(*low, thinned));
        }
    }

    fn keeps(&self, low: u64) -> bool {
        keeps(low, self.thinned)
    }
}

fn keeps(low: u64, thinned: u32) -> bool {
    (low / SAMPLE_ONE_IN) % (1 << thinned) == 0
}

impl Fresh {
    fn lookup(&self, fingerprint: &Fingerprint) -> Option<Known> {
        self.known.lock().get(&fingerprint.low).copied()
    }

    /// Where the round has packed a block with this fingerprint.
    pub(crate) fn entry(&self, fingerprint: &Fingerprint) -> Option<Entry> {
        self.lookup(fingerprint).filter(|known| known.high == fingerprint.high).map(|known| known.entry)
    }

    /// Notes a block that was packed for a part of the round.
    pub(crate) fn add(&self, fingerprint: Fingerprint, entry: Entry, part: usize) {
        self.packed.lock().push((fingerprint, entry, part));
        self.known.lock().insert(fingerprint.low, Known { high: fingerprint.high, entry });
    }
}

impl Dedupe {
    /// Counts what a job looked for, and what of it was not stored again.
    pub(crate) fn count(&self, sought: u64, found: u64) {
        self.sought_blocks.fetch_add(sought, Ordering::Relaxed);
        self.found_blocks.fetch_add(found, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Options, Store};
    use stonefold_engine::MemoryEngine;
    use stonefold_env::SystemWorld;

    /// Goal: samples grow with the pool only up to their bound; beyond it they thin, by the same rule for those that come later.
    #[test]
    fn samples_keep_to_their_bound() {
        let mut samples = Samples::default();
        let number = |n: u64| Fingerprint { low: n * SAMPLE_ONE_IN, high: n };
        (1..=10_000).for_each(|n| samples.add(&number(n), n, 100));
        let kept = samples.places.len();
        assert!((50..=100).contains(&kept), "{kept} samples");
        assert!(samples.places.keys().all(|low| samples.keeps(*low)));
        assert_eq!((samples_max(0), samples_max(1 << 40)), (1, SAMPLES_MAX));
    }

    /// Goal: what samples take is taken from the caches, so that all of them keep to what the operator said, also when he says it
    /// anew.
    #[tokio::test]
    async fn caches_and_samples_share_one_budget() {
        let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap());
        let options = Options { cache_bytes: 64 << 20, ..Options::default() };
        let store = Store::open(env, Arc::new(MemoryEngine::default()), options).await.unwrap();
        let told = async || {
            let status = store.status().await.unwrap();
            (status.cache_bytes, status.cache_bytes_max)
        };
        assert_eq!(told().await, (0, 64 << 20));
        let rooms = || store.segments.cache_rooms();
        let before = rooms();
        store.segments.set_aside(5 << 20);
        assert_eq!((told().await, rooms()), ((5 << 20, 64 << 20), before - (5 << 20)));
        store.withhold_cache(3 << 20);
        assert_eq!(
            (told().await, rooms()),
            ((8 << 20, 64 << 20), before - (8 << 20)),
            "what the process takes, too"
        );
        store.withhold_cache(1 << 40);
        assert_eq!(rooms(), (64 << 20) / 8 * 7 / 2, "caches keep half");
        store.withhold_cache(0);
        store.resize_cache(32 << 20);
        assert_eq!((told().await, rooms()), ((5 << 20, 32 << 20), (32 << 20) / 8 * 7 - (5 << 20)));
        assert_eq!(store.dedupe.cache_bytes().1, 4 << 20);
    }

    /// Goal: of a segment that no batch has counted, only what a round has mapped is loaded again: the rest is in no account, and may be given
    /// back under whoever leans on it (P3).
    #[tokio::test]
    async fn what_no_round_has_mapped_is_not_loaded_again() {
        const BLOCKS: usize = 512;
        let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap());
        let options = Options { cache_bytes: 64 << 20, ..Options::default() };
        let store = Store::open(env, Arc::new(MemoryEngine::default()), options).await.unwrap();
        // The pass at the start is over: what is written now is young.
        store.reclaim().await.unwrap();
        let data = stonefold_dice::noise(7, BLOCKS * 4096);
        let found_in = async |disk: &str| {
            let before = store.dedupe.found_blocks.load(Ordering::Relaxed);
            store.create_disk(&disk.parse().unwrap(), 1 << 30, Default::default()).await.unwrap();
            store.attach(&disk.parse().unwrap()).unwrap().write(0, &data, false).await.unwrap();
            store.fold(None).await.unwrap();
            store.dedupe.known.clear();
            store.dedupe.loaded.lock().clear();
            store.dedupe.found_blocks.load(Ordering::Relaxed) - before
        };
        assert_eq!(found_in("first").await, 0);
        let mapped: Vec<(u64, Slots)> = {
            let mut young = store.dedupe.young.lock();
            young.iter_mut().map(|(segment, slots)| (*segment, std::mem::take(slots))).collect()
        };
        assert_eq!(found_in("second").await, 0, "blocks that nobody has mapped are leant on");
        store.dedupe.young.lock().extend(mapped);
        assert!(found_in("third").await as usize > BLOCKS / 2);
    }
}
