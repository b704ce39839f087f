//! Frames in segments: reading them through the cache, and packing new ones.
//!
//! *Promises*: no frame's content leaves here unverified; a frame is durable before [`Packer::finish`] returns.
//! *Owns*: segment numbers of this session, the block and node caches. *May be called by*: map, read, fold.

use crate::accounts::Accounts;
use crate::cache::Cache;
use crate::gate::Gate;
use crate::pins::Pins;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use stonefold_engine::{Engine, Key};
use stonefold_env::Env;
use stonefold_format::entry::{Entry, Hint, SegmentId};
use stonefold_format::fingerprint::Fingerprint;
use stonefold_format::frame;
use stonefold_format::node::Node;
use stonefold_format::segment::{
    self, Footer, IndexRecord, SEGMENT_HEADER, SEGMENT_TAIL, SegmentBuilder, SegmentKind,
};
use stonefold_types::{BLOCK_BYTES, Error, Kind, Result};

/// Frames of a segment together take about this many bytes. Larger ones amortise the put and its syncs; smaller
/// ones are given back sooner.
pub(crate) const SEGMENT_FRAMES_BYTES: usize = 16 << 20;
/// Segments being put at one time: one under way while the next is filled, and memory for no more.
const PUTS_MAX: usize = 2;
/// One engine read fetches frames that lie no further apart than this, in bytes: skipping costs less than asking again.
const READ_GAP_MAX: u64 = 16 << 10;
/// One engine read is at most this long, in bytes.
const READ_BYTES_MAX: u64 = 1 << 20;

/// See the module.
pub(crate) struct Segments {
    env: Env,
    engine: Arc<dyn Engine>,
    session: u32,
    next_count: AtomicU32,
    blocks: Cache<Bytes>,
    nodes: Cache<Arc<Node>>,
    /// Where frames lie in segments whose hints did not hold.
    indexes: Cache<Arc<Vec<IndexRecord>>>,
    pub(crate) accounts: Arc<Accounts>,
    /// Held by whoever follows references, so that what they lead to is not deleted meanwhile.
    pub(crate) pins: Pins,
    pub(crate) counters: Counters,
}

/// What happened since the start.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) reads: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) puts: AtomicU64,
    pub(crate) put_bytes: AtomicU64,
    pub(crate) stale_hints: AtomicU64,
    /// Copies that were damaged and are not any more.
    pub(crate) healed: AtomicU64,
}

/// Memory for indexes of segments, in bytes: some dozens.
const INDEX_CACHE_BYTES: u64 = 8 << 20;
/// One part in this many of the cache is for map nodes.
const NODE_CACHE_PART: u64 = 4;

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
    Some((SegmentId(u64::from_str_radix(id, 16).ok()?), generation.parse().ok()?))
}

impl Segments {
    pub(crate) fn new(
        env: Env,
        engine: Arc<dyn Engine>,
        accounts: Arc<Accounts>,
        session: u32,
        cache_bytes: u64,
    ) -> Arc<Self> {
        Arc::new(Segments {
            env,
            engine,
            session,
            next_count: AtomicU32::new(0),
            blocks: Cache::new(cache_bytes - cache_bytes / NODE_CACHE_PART),
            nodes: Cache::new(cache_bytes / NODE_CACHE_PART),
            indexes: Cache::new(INDEX_CACHE_BYTES),
            accounts,
            pins: Pins::default(),
            counters: Counters::default(),
        })
    }

    /// The block at `entry`, if it is in memory.
    ///
    /// What is cached under an address begins with the block of that address; the rest of its frame follows.
    pub(crate) fn cached_block(&self, entry: &Entry) -> Option<Bytes> {
        let frame = self.blocks.get(entry.frame_address());
        let block = frame.and_then(|frame| block_of(&frame, entry.hint.index()));
        // A block whose hint did not hold is kept under its own address.
        let alone = || self.blocks.get(entry.address).and_then(|frame| block_of(&frame, 0));
        if entry.hint.index() == 0 { block } else { block.or_else(alone) }
    }

    /// The blocks at `entries`, none of them a hole, in their order. Neighbours in a segment are read together.
    pub(crate) async fn blocks(&self, entries: &[Entry]) -> Result<Vec<Bytes>> {
        let mut found: Vec<Option<Bytes>> = entries.iter().map(|entry| self.cached_block(entry)).collect();
        let mut missing: Vec<usize> = (0..entries.len()).filter(|at| found[*at].is_none()).collect();
        missing.sort_unstable_by_key(|at| (entries[*at].segment(), entries[*at].hint.offset()));
        let mut reads = Vec::new();
        let mut rest = &missing[..];
        while let Some(first) = rest.first() {
            let together = 1 + rest
                .windows(2)
                .take_while(|w| near(&entries[*first], &entries[w[0]], &entries[w[1]]))
                .count();
            let (run, others) = rest.split_at(together);
            reads.push(self.read_run(run.iter().map(|at| entries[*at]).collect()));
            rest = others;
        }
        let contents = futures::future::try_join_all(reads).await?;
        for (at, content) in missing.iter().zip(contents.into_iter().flatten()) {
            found[*at] = Some(content);
        }
        Ok(found.into_iter().map(|content| content.expect("every missing block was read")).collect())
    }

    /// Reads blocks whose frames lie near one another, in ascending order, with one engine read.
    async fn read_run(&self, entries: Vec<Entry>) -> Result<Vec<Bytes>> {
        let (first, last) = (entries[0], entries[entries.len() - 1]);
        let start = first.hint.offset();
        let len = (last.hint.offset() - start) as usize + last.hint.length();
        let raw = self.read(first.segment(), start, len).await?;
        let mut blocks: Vec<Bytes> = Vec::with_capacity(entries.len());
        let mut last: Option<(u64, Bytes)> = None;
        for entry in &entries {
            let address = entry.frame_address();
            // Several blocks of one frame may be asked for at once.
            if last.as_ref().is_none_or(|(decoded, _)| *decoded != address) {
                let at = (entry.hint.offset() - start) as usize;
                last = frame::decode(raw.get(at..).unwrap_or_default(), address).ok().map(|content| {
                    let content = Bytes::from(content);
                    self.blocks.insert(address, content.clone(), content.len() as u64);
                    (address, content)
                });
            }
            let hinted = last.as_ref().and_then(|(_, content)| block_of(content, entry.hint.index()));
            blocks.push(match hinted {
                Some(block) => block,
                None => self.block_by_index(entry).await?,
            });
        }
        Ok(blocks)
    }

    /// Reads a block whose hint did not hold, and keeps it under its own address.
    async fn block_by_index(&self, entry: &Entry) -> Result<Bytes> {
        let (first_slot, content) = self.frame_by_index(entry).await?;
        let index = (entry.slot() - first_slot) as usize;
        let absent = || Error::new(Kind::Corrupt, format!("the frame of {entry:?} is too short"));
        let block = block_of(&content, index).ok_or_else(absent)?;
        let address = entry.segment().0 << 20 | u64::from(first_slot);
        self.blocks.insert(address, content.clone(), content.len() as u64);
        self.blocks.insert(entry.address, block.clone(), BLOCK_BYTES as u64);
        Ok(block)
    }

    async fn read(&self, segment: SegmentId, offset: u64, len: usize) -> Result<Bytes> {
        self.counters.reads.fetch_add(1, Ordering::Relaxed);
        self.counters.read_bytes.fetch_add(len as u64, Ordering::Relaxed);
        let tried = self.accounts.generation(segment);
        let form = key(segment, tried);
        match self.engine.get_range(&form, offset, len).await {
            Err(error) if error.kind() == Kind::NotFound => {
                // What a map names must be there, if not in this form then in a later one.
                let Some(generation) = self.accounts.newer_generation(segment, tried).await? else {
                    return Err(error.with_kind(Kind::Corrupt));
                };
                let found = self.engine.get_range(&key(segment, generation), offset, len).await;
                found.map_err(|error| match error.kind() {
                    Kind::NotFound => error.with_kind(Kind::Corrupt),
                    _ => error,
                })
            }
            done => done,
        }
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
            let raw = self.read(segment, record.offset.into(), record.length as usize).await?;
            // Written anew in between: the index of another form says where it lies now.
            if self.accounts.generation(segment) == generation {
                let address = segment.0 << 20 | u64::from(record.first_slot);
                let content = match frame::decode(&raw, address) {
                    Ok(content) => content,
                    Err(error) => self.heal_frame(segment, generation, &record).await?.ok_or(error)?,
                };
                return Ok((record.first_slot, Bytes::from(content)));
            }
        }
    }

    /// The content of a frame that was found damaged, from a copy in which it is not; that one takes the others' place.
    async fn heal_frame(
        &self,
        segment: SegmentId,
        generation: u8,
        record: &IndexRecord,
    ) -> Result<Option<Vec<u8>>> {
        let address = segment.0 << 20 | u64::from(record.first_slot);
        let form = key(segment, generation);
        let sound = |bytes: &[u8]| frame::decode(bytes, address).is_ok();
        let (offset, length) = (record.offset.into(), record.length as usize);
        let repaired = self.engine.repair(&form, offset, length, &sound).await?;
        let Some(repaired) = repaired else { return Ok(None) };
        self.counters.healed.fetch_add(repaired.healed.into(), Ordering::Relaxed);
        tracing::warn!("a damaged frame of segment {segment} was read from another copy, and healed");
        frame::decode(&repaired.bytes, address).map(Some)
    }

    /// The index of a segment's form; of a later one, when that has taken its place meanwhile.
    async fn index(&self, segment: SegmentId, generation: u8) -> Result<Arc<Vec<IndexRecord>>> {
        let cached_as = segment.0 << 8 | u64::from(generation);
        if let Some(records) = self.indexes.get(cached_as) {
            return Ok(records);
        }
        let header = self.read(segment, 0, SEGMENT_HEADER).await?;
        let length = segment::object_bytes(&header, segment)?;
        let tail_bytes = (SEGMENT_TAIL as u64).min(length);
        let tail = self.read(segment, length - tail_bytes, tail_bytes as usize).await?;
        let footer = Footer::decode(&tail, segment)?;
        let index = self.read(segment, footer.index_offset, footer.index_bytes()).await?;
        let records = Arc::new(footer.decode_index(&index)?.0);
        if self.accounts.generation(segment) != generation {
            return Ok(records);
        }
        self.indexes.insert(cached_as, records.clone(), (records.len() * size_of::<IndexRecord>()) as u64);
        Ok(records)
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
        let raw = self.read(at.segment(), at.hint.offset(), at.hint.length()).await?;
        let content = match frame::decode(&raw, at.frame_address()) {
            Ok(content) => Bytes::from(content),
            Err(_) => self.frame_by_index(at).await?.1,
        };
        let node = Arc::new(Node::decode(&content)?);
        self.keep_node(at, node.clone());
        Ok(node)
    }

    fn keep_node(&self, at: &Entry, node: Arc<Node>) {
        self.nodes.insert(at.address, node, BLOCK_BYTES as u64);
    }

    pub(crate) fn drop_caches(&self) {
        self.blocks.clear();
        self.nodes.clear();
    }

    pub(crate) fn resize_caches(&self, bytes: u64) {
        self.blocks.resize(bytes - bytes / NODE_CACHE_PART);
        self.nodes.resize(bytes / NODE_CACHE_PART);
    }

    /// Bytes held and bound of both caches.
    pub(crate) fn cache_bytes(&self) -> (u64, u64) {
        (self.blocks.bytes() + self.nodes.bytes(), self.blocks.bytes_max() + self.nodes.bytes_max())
    }

    /// Hits and misses of the block cache.
    pub(crate) fn cache_hits_misses(&self) -> (u64, u64) {
        self.blocks.hits_misses()
    }

    fn new_builder(&self, kind: SegmentKind) -> SegmentBuilder {
        SegmentBuilder::new(self.next_id(), kind, self.env.random(), SEGMENT_FRAMES_BYTES)
    }

    /// Every number given out so far is lower.
    pub(crate) fn peek_id(&self) -> SegmentId {
        SegmentId::new(self.session, self.next_count.load(Ordering::Relaxed))
    }

    /// A number that no other segment, ledger or account has.
    pub(crate) fn next_id(&self) -> SegmentId {
        SegmentId::new(self.session, self.next_count.fetch_add(1, Ordering::Relaxed))
    }
}

/// One block of a frame's content, when it is long enough.
fn block_of(content: &Bytes, index: usize) -> Option<Bytes> {
    let range = index * BLOCK_BYTES..(index + 1) * BLOCK_BYTES;
    (content.len() >= range.end).then(|| content.slice(range))
}

/// Whether `next`, behind `last`, is read together with a run that began at `first`.
fn near(first: &Entry, last: &Entry, next: &Entry) -> bool {
    let end = |entry: &Entry| entry.hint.offset() + entry.hint.length() as u64;
    next.segment() == last.segment()
        && next.hint.offset() <= end(last) + READ_GAP_MAX
        && end(next) - first.hint.offset() <= READ_BYTES_MAX
}

/// Packs new frames into segments and puts these while the next is filled.
pub(crate) struct Packer {
    segments: Arc<Segments>,
    kind: SegmentKind,
    state: Mutex<Packing>,
}

#[derive(Default)]
struct Packing {
    builder: Option<SegmentBuilder>,
    /// Every segment begun.
    begun: Vec<SegmentId>,
    /// Lengths of those that were put, in bytes.
    lengths: Arc<Mutex<Vec<(SegmentId, u64)>>>,
    puts: VecDeque<Arc<Gate>>,
}

impl Packer {
    pub(crate) fn new(segments: Arc<Segments>, kind: SegmentKind) -> Self {
        Packer { segments, kind, state: Mutex::default() }
    }

    /// Adds an encoded frame of `blocks` blocks; returns the entry of its first block. The frame can be read once
    /// [`Packer::finish`] has returned.
    pub(crate) fn push(
        &self,
        encoded: &[u8],
        blocks: usize,
        fingerprints: &[Fingerprint],
        owner: u64,
        place: u64,
    ) -> Entry {
        let mut state = self.state.lock();
        if state.builder.as_ref().is_some_and(|builder| !builder.has_room(encoded.len(), blocks)) {
            let full = state.builder.take();
            let lengths = state.lengths.clone();
            state.puts.extend(full.map(|builder| self.put(builder, lengths)));
        }
        let Packing { builder, begun, .. } = &mut *state;
        let builder = builder.get_or_insert_with(|| {
            let builder = self.segments.new_builder(self.kind);
            begun.push(builder.id());
            builder
        });
        let (slot, offset) = builder.push(encoded, blocks, fingerprints, owner, place);
        Entry::new(builder.id(), slot, Hint::new(offset, encoded.len(), 0))
    }

    /// Adds a map node. It can be read from the cache at once.
    pub(crate) fn push_node(&self, node: Node, encoded: &[u8], owner: u64, place: u64) -> Entry {
        let entry = self.push(encoded, 1, &[], owner, place);
        self.segments.keep_node(&entry, Arc::new(node));
        entry
    }

    fn put(&self, builder: SegmentBuilder, lengths: Arc<Mutex<Vec<(SegmentId, u64)>>>) -> Arc<Gate> {
        let gate = Arc::new(Gate::default());
        let (segments, done) = (self.segments.clone(), gate.clone());
        self.segments.env.spawn("segment put", async move {
            let id = builder.id();
            let key = key(id, 0);
            let object = builder.finish().freeze();
            segments.counters.puts.fetch_add(1, Ordering::Relaxed);
            lengths.lock().push((id, object.len() as u64));
            segments.counters.put_bytes.fetch_add(object.len() as u64, Ordering::Relaxed);
            done.open(segments.engine.put_new(&key, object).await.map(|_| ()));
        });
        gate
    }

    /// Waits until few enough puts are under way that more may be packed.
    pub(crate) async fn throttle(&self) -> Result<()> {
        loop {
            let oldest = {
                let mut state = self.state.lock();
                if state.puts.len() < PUTS_MAX { None } else { state.puts.pop_front() }
            };
            match oldest {
                Some(put) => put.wait().await?,
                None => return Ok(()),
            }
        }
    }

    /// Segments put so far and their lengths in bytes.
    pub(crate) fn lengths(&self) -> Vec<(SegmentId, u64)> {
        self.state.lock().lengths.lock().clone()
    }

    /// Takes back every segment: nothing that is stored names them.
    pub(crate) async fn abandon(&self) {
        let (puts, begun) = {
            let mut state = self.state.lock();
            state.builder = None;
            (std::mem::take(&mut state.puts), std::mem::take(&mut state.begun))
        };
        for put in puts {
            // Whether it was put or not: it is deleted below.
            let _ = put.wait().await;
        }
        for id in begun {
            if let Err(error) = self.segments.engine.delete(&key(id, 0)).await {
                tracing::warn!("segment {id} is left over until the next reclaim: {error}");
            }
        }
    }

    /// Puts what is left, and waits until every frame pushed so far is durable.
    pub(crate) async fn finish(&self) -> Result<()> {
        let puts = {
            let mut state = self.state.lock();
            let last = state.builder.take();
            let lengths = state.lengths.clone();
            state.puts.extend(last.map(|builder| self.put(builder, lengths)));
            std::mem::take(&mut state.puts)
        };
        for put in puts {
            put.wait().await?;
        }
        Ok(())
    }
}
