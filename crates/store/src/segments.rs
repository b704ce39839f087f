//! Frames in segments, read through the cache.
//!
//! *Promises*: no frame's content leaves here unverified, nor a sealed one's unless its key opens it.
//! *Owns*: segment numbers of this session, the block and node caches, the keys of segments lately read.
//! *May be called by*: map, read, fold; [`crate::packer`] makes new ones.
//!
//! `blocks`: blocks out of frames; `numbers`: numbers of segments.

mod blocks;
mod numbers;

use crate::accounts::Accounts;
use crate::cache::Cache;
use crate::domains::Keyring;
use crate::locator::Locator;
use crate::pins::Pins;
use crate::planted;
use crate::sound;
use blocks::Sought;
use bytes::Bytes;
use parking_lot::Mutex;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use stonefold_engine::{Engine, Key};
use stonefold_env::Env;
use stonefold_format::entry::{Entry, SEGMENT_IDS_END, SegmentId};
use stonefold_format::frame::{self, FrameHeader};
use stonefold_format::node::Node;
use stonefold_format::seal::SealKey;
use stonefold_format::segment::{Footer, Header, IndexRecord, SEGMENT_HEADER, SEGMENT_TAIL, SegmentKind};
use stonefold_types::{BLOCK_BYTES, Error, Kind, Result};
use tokio::sync::Notify;

/// Frames of a segment together take about this many bytes. Larger ones amortise the put and its syncs; smaller
/// ones are given back sooner.
pub(crate) const SEGMENT_FRAMES_BYTES: usize = 16 << 20;
/// See the module.
pub(crate) struct Segments {
    pub(crate) env: Env,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) keyring: Arc<Keyring>,
    session: u32,
    next_count: AtomicU32,
    /// The next number when each of those began who write segments outside of rounds.
    writing: Mutex<Vec<SegmentId>>,
    writing_ended: Notify,
    cache_sizes: Mutex<CacheSizes>,
    blocks: Cache<Bytes>,
    nodes: Cache<Arc<Node>>,
    pub(crate) locator: Locator,
    /// Whole indexes, for who looks at all frames of a segment and where a place did not hold.
    indexes: Cache<Arc<Index>>,
    /// What opens the frames of a segment's form; nothing where they are not sealed.
    keys: Cache<Option<Arc<SealKey>>>,
    pub(crate) accounts: Arc<Accounts>,
    /// Held by whoever follows references, so that what they lead to is not deleted meanwhile.
    pub(crate) pins: Pins,
    pub(crate) counters: Counters,
}

/// Where the frames of a segment's form lie, and for whom they were first written, in the order of their slots.
pub(crate) struct Index {
    pub(crate) kind: SegmentKind,
    /// The domain of its blocks.
    pub(crate) domain: u16,
    pub(crate) records: Vec<IndexRecord>,
}

impl Deref for Index {
    type Target = [IndexRecord];

    fn deref(&self) -> &[IndexRecord] {
        &self.records
    }
}

/// What happened since the start.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) reads: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    /// Of the reads, those of map nodes.
    pub(crate) node_reads: AtomicU64,
    pub(crate) puts: AtomicU64,
    pub(crate) put_bytes: AtomicU64,
    /// Of these, in segments of map nodes.
    pub(crate) map_bytes: AtomicU64,
    /// Leaves written, and nodes above them.
    pub(crate) leaves: AtomicU64,
    pub(crate) inner_nodes: AtomicU64,
    /// Bytes of segments written anew by reclaim.
    pub(crate) rewritten_bytes: AtomicU64,
    pub(crate) stale_hints: AtomicU64,
}

/// Memory for indexes of segments, in bytes: some dozens.
const INDEX_CACHE_BYTES: u64 = 8 << 20;
/// Memory for keys of segments, in bytes: thousands, some 64 GiB of data, because a miss costs a read.
const KEY_CACHE_BYTES: u64 = 4 << 20;
/// What is set aside of the caches is counted in steps of so many bytes.
const ASIDE_STEP_BYTES: u64 = 1 << 20;
/// One part in this many of the cache is for map nodes.
const NODE_CACHE_PART: u64 = 4;
/// And one in this many for where blocks lie in segments that were written anew: 8 bytes for a block.
const LOCATOR_CACHE_PART: u64 = 32;

/// The key of a segment's physical form.
pub(crate) fn key(id: SegmentId, generation: u8) -> Key {
    match generation {
        0 => Key::new(format!("segment/{id}")),
        later => Key::new(format!("segment/{id}.{later}")),
    }
}

/// The segment of which an object is a physical form, and which form.
pub(crate) fn form_of(key: &Key) -> Option<(SegmentId, u8)> {
    let form = key.as_str().strip_prefix("segment/")?;
    let (id, generation) = form.split_once('.').unwrap_or((form, "0"));
    let id = u64::from_str_radix(id, 16).ok().filter(|id| *id < SEGMENT_IDS_END)?;
    Some((SegmentId(id), generation.parse().ok()?))
}

impl Segments {
    pub(crate) fn new(
        env: Env,
        engine: Arc<dyn Engine>,
        accounts: Arc<Accounts>,
        keyring: Arc<Keyring>,
        session: u32,
        cache_bytes: u64,
    ) -> Arc<Self> {
        Arc::new(Segments {
            env,
            engine,
            keyring,
            session,
            next_count: AtomicU32::new(0),
            writing: Mutex::default(),
            writing_ended: Notify::new(),
            cache_sizes: Mutex::new(CacheSizes { all: cache_bytes, aside: 0, withheld: 0 }),
            blocks: Cache::new(blocks_part(cache_bytes)),
            nodes: Cache::new(cache_bytes / NODE_CACHE_PART),
            locator: Locator::new(cache_bytes / LOCATOR_CACHE_PART),
            indexes: Cache::new(INDEX_CACHE_BYTES),
            keys: Cache::new(KEY_CACHE_BYTES),
            accounts,
            pins: Pins::default(),
            counters: Counters::default(),
        })
    }

    /// Reads a part of a segment, and tells of which generation.
    pub(crate) async fn read(&self, segment: SegmentId, offset: u64, len: usize) -> Result<(Bytes, u8)> {
        self.counters.reads.fetch_add(1, Ordering::Relaxed);
        self.counters.read_bytes.fetch_add(len as u64, Ordering::Relaxed);
        let tried = self.accounts.generation(segment);
        match self.engine.get_range(&key(segment, tried), offset, len).await {
            Err(error) if error.kind() == Kind::NotFound => {
                // What a map names must be there, if not in this form then in a later one.
                let Some(generation) = self.accounts.newer_generation(segment, tried).await? else {
                    return Err(error.with_kind(Kind::Corrupt));
                };
                let found = self.engine.get_range(&key(segment, generation), offset, len).await;
                let found = found.map_err(|error| match error.kind() {
                    Kind::NotFound => error.with_kind(Kind::Corrupt),
                    _ => error,
                })?;
                Ok((found, generation))
            }
            done => Ok((done?, tried)),
        }
    }

    /// The content of a frame, verified, and opened where it is sealed. `raw` is of the segment's form of this generation.
    async fn content(&self, raw: &[u8], address: u64, generation: u8) -> Result<Bytes> {
        let segment = SegmentId(address >> 20);
        let key = match frame::is_sealed(raw) {
            true => self.key(segment, generation).await?,
            // The frame alone could have been changed into one that is not. Without a sound front nobody knows, and it is taken for what it says.
            false if self.keyring.has_sealed() => self.key(segment, generation).await.ok().flatten(),
            false => None,
        };
        if planted::is("checksum-not-checked") {
            let mut believed = raw.to_vec();
            let length = FrameHeader::peek(raw).map_or(0, |header| header.length.min(raw.len()));
            if length > 0 {
                frame::place(&mut believed[..length], address);
            }
            return frame::decode(&believed, address, key.as_deref()).map(Bytes::from);
        }
        frame::decode(raw, address, key.as_deref()).map(Bytes::from)
    }

    /// What opens the frames of a segment's form; nothing where they are not sealed.
    pub(crate) async fn key(&self, segment: SegmentId, generation: u8) -> Result<Option<Arc<SealKey>>> {
        let cached_as = segment.0 << 8 | u64::from(generation);
        if let Some(found) = self.keys.get(cached_as) {
            return Ok(found);
        }
        let form = key(segment, generation);
        let header = self.engine.get_range(&form, 0, SEGMENT_HEADER).await?;
        let header = self.sound(&form, 0, &header, |bytes| Header::decode(bytes, segment)).await?;
        let found = self.key_of(&header)?.map(Arc::new);
        self.keys.insert(cached_as, found.clone(), size_of::<SealKey>() as u64);
        Ok(found)
    }

    /// The same, from the front of the form. Fails with `WrongKey` when the domain is not open.
    pub(crate) fn key_by_header(&self, form: &[u8], segment: SegmentId) -> Result<Option<SealKey>> {
        self.key_of(&Header::decode(form, segment)?)
    }

    fn key_of(&self, header: &Header) -> Result<Option<SealKey>> {
        let Some(version) = header.key_version else { return Ok(None) };
        self.keyring.data_key(header.domain, version).map(|data| Some(header.seal_key(&data)))
    }

    /// A decoded part of a form, from whichever copy is sound.
    async fn sound<T>(
        &self,
        form: &Key,
        offset: u64,
        read: &Bytes,
        decode: impl Fn(&[u8]) -> Result<T> + Send + Sync,
    ) -> Result<T> {
        sound::decode(&*self.engine, form, offset, read, decode).await
    }

    /// Keeps no keys: a domain is shredded.
    pub(crate) fn forget_keys(&self) {
        self.keys.clear();
    }

    /// Reads the frame of a block whose hint did not hold: asks the segment's own index where it lies. Returns its first slot and
    /// its content.
    async fn frame_by_index(&self, entry: &Entry) -> Result<(u32, Bytes)> {
        self.counters.stale_hints.fetch_add(1, Ordering::Relaxed);
        let (segment, slot) = (entry.segment(), entry.slot());
        loop {
            let generation = self.accounts.generation(segment);
            let records = self.index(segment, generation).await;
            if self.accounts.generation(segment) != generation {
                continue;
            }
            let records = records?;
            let after = records.partition_point(|record| record.first_slot <= slot);
            let record = after.checked_sub(1).map(|at| records[at]);
            let record = record.filter(|record| slot < record.first_slot + u32::from(record.blocks));
            let absent = || Error::new(Kind::Corrupt, format!("segment {segment} has no slot {slot}"));
            let record = record.ok_or_else(absent)?;
            let (raw, form) = self.read(segment, record.offset.into(), record.length as usize).await?;
            // Written anew in between: the index of another form says where it lies now.
            if self.accounts.generation(segment) == generation {
                let address = segment.0 << 20 | u64::from(record.first_slot);
                let content = match self.content(&raw, address, form).await {
                    Err(error) if error.kind() == Kind::Corrupt => {
                        match self.heal_frame(segment, generation, &record).await? {
                            Some(content) => content,
                            None if planted::is("damage-reads-as-zeros") => {
                                vec![0; usize::from(record.blocks) * BLOCK_BYTES].into()
                            }
                            None => return Err(error),
                        }
                    }
                    done => done?,
                };
                return Ok((record.first_slot, content));
            }
        }
    }

    /// The content of a frame that was found damaged, from a copy in which it is not; that one takes the others' place.
    async fn heal_frame(
        &self,
        segment: SegmentId,
        generation: u8,
        record: &IndexRecord,
    ) -> Result<Option<Bytes>> {
        if planted::is("copies-not-asked") {
            return Ok(None);
        }
        let address = segment.0 << 20 | u64::from(record.first_slot);
        let form = key(segment, generation);
        // Without one a sealed frame is not taken for sound.
        let opener = self.key(segment, generation).await.ok().flatten();
        let sound = |bytes: &[u8]| frame::decode(bytes, address, opener.as_deref()).is_ok();
        let (offset, length) = (record.offset.into(), record.length as usize);
        let repaired = self.engine.repair(&form, offset, length, &sound).await?;
        let Some(repaired) = repaired else { return Ok(None) };
        tracing::warn!("a damaged frame of segment {segment} was read from another copy, and healed");
        frame::decode(&repaired.bytes, address, opener.as_deref()).map(|content| Some(Bytes::from(content)))
    }

    /// The index of a segment's form; of a later one, when that has taken its place meanwhile.
    pub(crate) async fn index(&self, segment: SegmentId, generation: u8) -> Result<Arc<Index>> {
        let cached_as = segment.0 << 8 | u64::from(generation);
        if let Some(records) = self.indexes.get(cached_as) {
            return Ok(records);
        }
        let (header, footer) = self.ends(segment).await?;
        let (index, read_from) = self.read(segment, footer.index_offset, footer.index_bytes()).await?;
        let form = key(segment, read_from);
        let decode = |bytes: &[u8]| footer.decode_index(bytes);
        let (records, _) = self.sound(&form, footer.index_offset, &index, decode).await?;
        let records = Arc::new(Index { kind: header.kind, domain: header.domain, records });
        if self.accounts.generation(segment) != generation {
            return Ok(records);
        }
        self.indexes.insert(cached_as, records.clone(), (records.len() * size_of::<IndexRecord>()) as u64);
        Ok(records)
    }

    /// What a segment's form says of itself at its beginning and its end.
    pub(crate) async fn ends(&self, segment: SegmentId) -> Result<(Header, Footer)> {
        let (header, read_from) = self.read(segment, 0, SEGMENT_HEADER).await?;
        let form = key(segment, read_from);
        let header = self.sound(&form, 0, &header, |bytes| Header::decode(bytes, segment)).await?;
        let length = header.object_bytes;
        let tail_bytes = (SEGMENT_TAIL as u64).min(length);
        let at = length - tail_bytes;
        let (tail, read_from) = self.read(segment, at, tail_bytes as usize).await?;
        let form = key(segment, read_from);
        let footer = self.sound(&form, at, &tail, |bytes| Footer::decode(bytes, segment)).await?;
        Ok((header, footer))
    }

    /// A map node, if it is in memory.
    pub(crate) fn cached_node(&self, at: &Entry) -> Option<Arc<Node>> {
        self.nodes.get(at.address)
    }

    /// A map node.
    pub(crate) async fn node(&self, at: &Entry) -> Result<Arc<Node>> {
        if let Some(node) = self.cached_node(at) {
            return Ok(node);
        }
        self.counters.node_reads.fetch_add(1, Ordering::Relaxed);
        let mut sought = [Sought::by_hint(0, at)];
        self.find_moved(&mut sought).await;
        let [one] = sought;
        let (raw, form) = self.read(at.segment(), one.offset, one.length).await?;
        // A node is a frame of its own. A piece that is wrong may lead to another, which is as sound.
        let is_own = |frame: u64| frame == at.address;
        let content = match self.content(&raw, one.frame, form).await {
            Ok(content) if is_own(one.frame) => content,
            _ => match self.frame_elsewhere(&one).await {
                Some((frame, content)) if is_own(frame) => content,
                _ => self.frame_by_index(at).await?.1,
            },
        };
        let node = Arc::new(Node::decode(&content)?);
        self.keep_node(at, node.clone());
        Ok(node)
    }

    pub(crate) fn keep_node(&self, at: &Entry, node: Arc<Node>) {
        self.nodes.insert(at.address, node, BLOCK_BYTES as u64);
    }

    pub(crate) fn drop_caches(&self) {
        self.blocks.clear();
        self.nodes.clear();
        self.locator.clear();
    }

    pub(crate) fn resize_caches(&self, bytes: u64) {
        self.keep_to(|sizes| sizes.all = bytes);
    }

    /// Makes the caches so much smaller, in bytes, because others need that for what grows with the pool. Small amounts are
    /// nobody's concern.
    pub(crate) fn set_aside(&self, bytes: u64) {
        self.keep_to(|sizes| sizes.aside = bytes / ASIDE_STEP_BYTES * ASIDE_STEP_BYTES);
    }

    /// Makes the caches smaller by `bytes`, too, because the process as a whole takes more than it was given. Without the
    /// former.
    pub(crate) fn withhold(&self, bytes: u64) {
        self.keep_to(|sizes| sizes.withheld = bytes / ASIDE_STEP_BYTES * ASIDE_STEP_BYTES);
    }

    /// Bytes that are withheld from the caches.
    pub(crate) fn cache_withheld(&self) -> u64 {
        self.cache_sizes.lock().withheld
    }

    fn keep_to(&self, change: impl FnOnce(&mut CacheSizes)) {
        let mut sizes = self.cache_sizes.lock();
        let before = *sizes;
        change(&mut sizes);
        if *sizes != before {
            let bytes = sizes.all - sizes.of_others();
            self.blocks.resize(blocks_part(bytes));
            self.nodes.resize(bytes / NODE_CACHE_PART);
            self.locator.resize(bytes / LOCATOR_CACHE_PART);
        }
    }

    /// Bytes that all caches may hold now.
    #[cfg(test)]
    pub(crate) fn cache_rooms(&self) -> u64 {
        self.blocks.bytes_max() + self.nodes.bytes_max() + self.locator.bytes_max()
    }

    /// Bytes held by all caches and set aside of them, and the bound of all that.
    pub(crate) fn cache_bytes(&self) -> (u64, u64) {
        let sizes = *self.cache_sizes.lock();
        let held = self.blocks.bytes() + self.nodes.bytes() + self.locator.bytes();
        (held + sizes.of_others(), sizes.all)
    }

    /// Hits and misses of the block cache.
    pub(crate) fn cache_hits_misses(&self) -> (u64, u64) {
        self.blocks.hits_misses()
    }
}

/// Who has the bytes that are meant for caches.
#[derive(Clone, Copy, PartialEq, Eq)]
struct CacheSizes {
    all: u64,
    /// Needed for what grows with the pool.
    aside: u64,
    /// Taken by the rest of the process.
    withheld: u64,
}

impl CacheSizes {
    /// Caches keep half of it, whoever wants more.
    fn of_others(self) -> u64 {
        (self.aside + self.withheld).min(self.all / 2)
    }
}

/// What of the cache is for blocks.
fn blocks_part(bytes: u64) -> u64 {
    bytes - bytes / NODE_CACHE_PART - bytes / LOCATOR_CACHE_PART
}
