//! The journal's writing side: group commit of every disk's changes.
//!
//! *Promises*: records take effect in the order of their numbers (lsn); a wait for a record's hand-over ends when it
//! outlives this process, and a wait for durability when it outlives the loss of power. After the first failure of
//! the medium nothing is acknowledged any more. *Owns*: the chunk being filled and the engine's journal.
//!
//! Two tasks work beside the callers: the *writer* appends chunks one after another; what arrives while one append is
//! under way makes up the next. The *syncer* makes durable what was handed over; flushes that arrive while one sync
//! is under way share the next.
//!
//! A write of a sealed domain is sealed in a copy of its chunk just before that is appended: the chunk itself is what readers see
//! until it is folded. A chunk without any is not copied.

use crate::arena::{ArenaSlice, ArenaWriter, Rest};
use crate::domains::{JournalSeed, RecordKey};
use crate::gate::Gate;
use crate::planted;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use stonefold_engine as engine;
use stonefold_env::Env;
use stonefold_format::chunk::{self, CHUNK_ALIGN, CHUNK_HEADER};
use stonefold_format::record::{self, Leased, PAYLOAD_HEADER};
use stonefold_format::seal::TAG_BYTES;
use stonefold_types::{AlignedBuf, BLOCK_BYTES, Error, Kind, Result};
use tokio::sync::Notify;

/// How often a chunk for which there is no room is handed over again before the journal ends: ten seconds in all, less than a
/// guest waits for its disk.
const NO_ROOM_TRIES_MAX: u32 = 20;
const NO_ROOM_PAUSE: Duration = Duration::from_millis(500);

/// A chunk takes records until it has this many bytes: enough that the medium's time per append is well used, and
/// little enough that the first record does not wait long for the last.
const CHUNK_BYTES_SOFT: usize = 256 << 10;
/// A chunk with more sealed data than this, in bytes, is sealed by a worker: what takes longer than going there does.
const SEAL_HERE_BYTES_MAX: usize = 128 << 10;

/// Where a record was put.
pub(crate) struct Appended {
    pub(crate) lsn: u64,
    /// Opens when the record is handed over.
    pub(crate) handed: Arc<Gate>,
}

/// See the module.
pub(crate) struct Journal {
    env: Env,
    engine: Arc<dyn engine::Journal>,
    id: JournalSeed,
    queue: Mutex<Queue>,
    writer_wake: Notify,
    syncer_wake: Notify,
    next_sync: Mutex<Arc<Gate>>,
    sync_wanted: AtomicBool,
    /// Every record with a lower number is handed over.
    handed_below: AtomicU64,
    /// Every record with a lower number is durable.
    durable_below: AtomicU64,
    /// Chunks handed over.
    handed_chunks: AtomicU64,
    /// Chunks known to be durable, told in each new one.
    durable_chunks: AtomicU64,
    closed: AtomicBool,
    pub(crate) counters: Counters,
}

/// What happened since the start.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) chunks: AtomicU64,
    pub(crate) chunk_bytes: AtomicU64,
    pub(crate) syncs: AtomicU64,
}

struct Queue {
    /// Of the journal's keys: stands in every chunk.
    seed: [u8; 32],
    next_lsn: u64,
    next_seq: u64,
    filling: Option<Chunk>,
    full: VecDeque<Chunk>,
    /// Where the next chunk is built.
    rest: Option<Rest>,
    failed: Option<Error>,
    /// Opens when the newest chunk there is is handed over.
    newest: Arc<Gate>,
    /// Of chunks not yet trimmed: sequence number, and the lsn after their last record. Oldest first.
    written: VecDeque<(u64, u64)>,
    /// Chunks below this number may be forgotten.
    trim_below: u64,
}

struct Chunk {
    arena: ArenaWriter,
    records: u32,
    handed: Arc<Gate>,
    /// What is to be sealed.
    sealed: Vec<Sealed>,
}

/// A record to be sealed.
struct Sealed {
    /// Its bytes in the chunk.
    at: Range<usize>,
    lsn: u64,
    key: Arc<RecordKey>,
}

impl Journal {
    /// Takes over an empty journal; the first record gets `first_lsn`. The tasks run until [`Journal::close`].
    pub(crate) fn start(
        env: &Env,
        engine: Arc<dyn engine::Journal>,
        id: JournalSeed,
        first_lsn: u64,
    ) -> Arc<Self> {
        let queue = Queue {
            seed: id.seed,
            next_lsn: first_lsn,
            next_seq: 0,
            filling: None,
            full: VecDeque::new(),
            rest: None,
            failed: None,
            newest: Arc::default(),
            written: VecDeque::new(),
            trim_below: 0,
        };
        let journal = Arc::new(Journal {
            env: env.clone(),
            engine,
            id,
            queue: Mutex::new(queue),
            writer_wake: Notify::new(),
            syncer_wake: Notify::new(),
            next_sync: Mutex::default(),
            sync_wanted: AtomicBool::new(false),
            handed_below: AtomicU64::new(first_lsn),
            durable_below: AtomicU64::new(first_lsn),
            handed_chunks: AtomicU64::new(0),
            durable_chunks: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            counters: Counters::default(),
        });
        env.spawn("journal writer", journal.clone().write_chunks());
        env.spawn("journal syncer", journal.clone().sync_chunks());
        journal
    }

    /// Appends whole blocks given in parts, to be sealed where there is a key, and shows where their bytes are from now on.
    pub(crate) fn append_write(
        &self,
        of: Leased,
        block: u64,
        parts: &[&[u8]],
        key: Option<Arc<RecordKey>>,
    ) -> Result<(Appended, ArenaSlice)> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        debug_assert!(bytes > 0 && bytes % BLOCK_BYTES == 0);
        let blocks = (bytes / BLOCK_BYTES) as u64;
        let header = match &key {
            Some(key) => record::sealed_header(of, block, blocks, (key.domain, key.version)),
            None => record::extent_header(of, true, block, blocks),
        };
        let tag = if key.is_some() { &[0; TAG_BYTES][..] } else { &[] };
        let mut queue = self.queue.lock();
        let (appended, chunk) = queue.begin_record(header.len() + bytes + tag.len(), 1)?;
        let record_start = chunk.arena.len();
        chunk.arena.push(&header);
        let start = chunk.arena.len();
        parts.iter().for_each(|part| chunk.arena.push(part));
        let slice = chunk.arena.slice(start, bytes);
        if let Some(key) = key {
            chunk.arena.push(tag);
            chunk.sealed.push(Sealed { at: record_start..chunk.arena.len(), lsn: appended.lsn, key });
        }
        drop(queue);
        self.writer_wake.notify_one();
        Ok((appended, slice))
    }

    /// Appends encoded records, all in one chunk: after a crash all of them are there or none. Returns where the
    /// first was put.
    pub(crate) fn append_records(&self, encoded: &[u8], count: u32) -> Result<Appended> {
        let mut queue = self.queue.lock();
        let (appended, chunk) = queue.begin_record(encoded.len(), count)?;
        chunk.arena.push(encoded);
        drop(queue);
        self.writer_wake.notify_one();
        Ok(appended)
    }

    /// The number the next record will get.
    pub(crate) fn next_lsn(&self) -> u64 {
        self.queue.lock().next_lsn
    }

    /// Why it takes nothing more, when it does not.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.queue.lock().failed.clone()
    }

    /// Every record with a lower number has been handed over.
    pub(crate) fn handed_below(&self) -> u64 {
        self.handed_below.load(Ordering::Acquire)
    }

    /// Waits until every record appended before this call is handed over.
    pub(crate) async fn hand_over(&self) -> Result<()> {
        let newest = {
            let queue = self.queue.lock();
            if queue.next_lsn == self.handed_below() {
                return Ok(());
            }
            queue.newest.clone()
        };
        newest.wait().await
    }

    /// Waits until every record below `lsn`, all of which have been handed over, is durable.
    pub(crate) async fn make_durable(&self, lsn: u64) -> Result<()> {
        debug_assert!(lsn <= self.handed_below() || planted::is("handed-early"));
        if self.durable_below.load(Ordering::Acquire) >= lsn || planted::is("flush-at-once") {
            return Ok(());
        }
        let gate = {
            let gate = self.next_sync.lock();
            self.sync_wanted.store(true, Ordering::Release);
            gate.clone()
        };
        self.syncer_wake.notify_one();
        gate.wait().await
    }

    /// Allows the engine to forget the chunks that hold only records below `lsn`.
    pub(crate) async fn trim(&self, lsn: u64) -> Result<()> {
        let below = {
            let mut queue = self.queue.lock();
            while let Some((seq, _)) = queue.written.front().copied().filter(|(_, end)| *end <= lsn) {
                queue.written.pop_front();
                queue.trim_below = seq + 1;
            }
            queue.trim_below
        };
        // Also when it was told so before: chunks may lie elsewhere since.
        if below > 0 { self.engine.trim(below).await } else { Ok(()) }
    }

    /// Ends the tasks. What was not handed over by now never will be.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.fail(&crate::closed());
        self.writer_wake.notify_one();
        self.syncer_wake.notify_one();
    }

    fn fail(&self, error: &Error) {
        let mut queue = self.queue.lock();
        queue.failed.get_or_insert_with(|| error.clone());
        let waiting: Vec<Chunk> =
            queue.filling.take().into_iter().chain(std::mem::take(&mut queue.full)).collect();
        drop(queue);
        waiting.into_iter().for_each(|chunk| chunk.handed.open(Err(error.clone())));
    }

    async fn write_chunks(self: Arc<Self>) {
        loop {
            let Some((chunk, seq, end)) = self.take_chunk() else {
                if self.closed.load(Ordering::Acquire) {
                    return;
                }
                self.writer_wake.notified().await;
                continue;
            };
            let handed = chunk.handed.clone();
            let bytes = self.complete(chunk, seq).await;
            self.counters.chunks.fetch_add(1, Ordering::Relaxed);
            self.counters.chunk_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            if planted::is("handed-early") {
                handed.open(Ok(()));
            }
            let result = self.append_patiently(bytes).await;
            match &result {
                Ok(()) => {
                    self.handed_chunks.store(seq + 1, Ordering::Release);
                    self.handed_below.store(end, Ordering::Release);
                }
                Err(error) => {
                    tracing::error!(
                        "the journal failed; nothing more is acknowledged until a restart: {error}"
                    );
                    self.fail(error);
                }
            }
            handed.open(result);
        }
    }

    /// Hands a chunk to the engine. Where there is no room for it, which is how an engine says that it has changed nothing, it is
    /// tried again for a while: what lacks may be a descriptor, or bytes that somebody else is about to give back.
    async fn append_patiently(&self, chunk: Bytes) -> Result<()> {
        for _ in 0..NO_ROOM_TRIES_MAX {
            match self.engine.append(chunk.clone()).await {
                Err(error) if error.kind() == Kind::NoSpace && !self.closed.load(Ordering::Acquire) => {
                    tracing::warn!("the journal waits for room: {error}");
                    self.env.sleep(NO_ROOM_PAUSE).await;
                }
                done => return done,
            }
        }
        self.engine.append(chunk).await
    }

    /// The next chunk to write, its sequence number, and the lsn after its last record.
    fn take_chunk(&self) -> Option<(Chunk, u64, u64)> {
        let mut queue = self.queue.lock();
        if queue.failed.is_some() {
            return None;
        }
        let chunk = queue.full.pop_front().or_else(|| queue.end_chunk())?;
        let seq = queue.next_seq;
        queue.next_seq += 1;
        let start = queue.written.back().map_or_else(|| self.handed_below(), |(_, end)| *end);
        let end = start + u64::from(chunk.records);
        queue.written.push_back((seq, end));
        Some((chunk, seq, end))
    }

    /// The chunk as it is appended.
    async fn complete(&self, chunk: Chunk, seq: u64) -> Bytes {
        let to_seal: usize = chunk.sealed.iter().map(|record| record.at.len()).sum();
        let (incarnation, durable) = (self.id.incarnation, self.durable_chunks.load(Ordering::Acquire));
        let complete = move || chunk.complete(incarnation, seq, durable);
        if to_seal > SEAL_HERE_BYTES_MAX { self.env.offload(complete).await } else { complete() }
    }

    async fn sync_chunks(self: Arc<Self>) {
        loop {
            if self.closed.load(Ordering::Acquire) {
                self.next_sync.lock().open(Err(crate::closed()));
                return;
            }
            if !self.sync_wanted.load(Ordering::Acquire) {
                self.syncer_wake.notified().await;
                continue;
            }
            // Whoever asks from here on waits for the next sync: this one may miss what they mean.
            let gate = {
                let mut next = self.next_sync.lock();
                self.sync_wanted.store(false, Ordering::Release);
                std::mem::take(&mut *next)
            };
            let failed = self.queue.lock().failed.clone();
            let (target, chunks) = (self.handed_below(), self.handed_chunks.load(Ordering::Acquire));
            let result = match failed {
                Some(error) => Err(error),
                None if planted::is("sync-skipped") => Ok(()),
                None => self.engine.sync().await,
            };
            let target = if planted::is("sync-covers-later") { self.handed_below() } else { target };
            self.counters.syncs.fetch_add(1, Ordering::Relaxed);
            match &result {
                Ok(()) => {
                    self.durable_below.store(target, Ordering::Release);
                    self.durable_chunks.store(chunks, Ordering::Release);
                }
                Err(error) => self.fail(error),
            }
            gate.open(result);
        }
    }
}

impl Queue {
    /// The chunk being filled, which gets nothing more.
    fn end_chunk(&mut self) -> Option<Chunk> {
        let mut chunk = self.filling.take()?;
        self.rest = Some(chunk.arena.split_rest());
        Some(chunk)
    }

    /// Room for a record of `bytes`, or for `count` records that take as much together, in the chunk being filled.
    fn begin_record(&mut self, bytes: usize, count: u32) -> Result<(Appended, &mut Chunk)> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.filling.as_ref().is_some_and(|chunk| !chunk.arena.has_room(bytes)) {
            let full = self.end_chunk();
            self.full.extend(full);
        }
        let lsn = self.next_lsn;
        self.next_lsn += u64::from(count);
        let (newest, seed, rest) = (&mut self.newest, &self.seed, &mut self.rest);
        let chunk = self.filling.get_or_insert_with(|| {
            let chunk = Chunk::new(rest.take(), bytes, lsn, seed);
            *newest = chunk.handed.clone();
            chunk
        });
        chunk.records += count;
        Ok((Appended { lsn, handed: chunk.handed.clone() }, chunk))
    }
}

impl Chunk {
    fn new(rest: Option<Rest>, bytes: usize, first_lsn: u64, seed: &[u8; 32]) -> Self {
        let needed = CHUNK_HEADER + PAYLOAD_HEADER + bytes;
        let mut arena = ArenaWriter::new(rest, needed, CHUNK_BYTES_SOFT, CHUNK_HEADER);
        arena.push(&record::payload_header(first_lsn, seed));
        Chunk { arena, records: 0, handed: Arc::default(), sealed: Vec::new() }
    }

    fn complete(self, incarnation: [u8; 16], seq: u64, durable_below: u64) -> Bytes {
        let (len, records) = (self.arena.len(), self.records);
        let padded = len.next_multiple_of(CHUNK_ALIGN);
        let header = |payload: &[u8]| chunk::seal(payload, incarnation, seq, records, durable_below);
        if self.sealed.is_empty() {
            let header = header(self.arena.payload());
            return self.arena.finish(&header, padded);
        }
        let mut copy = AlignedBuf::stale(padded);
        copy[len..].fill(0);
        copy[CHUNK_HEADER..len].copy_from_slice(self.arena.payload());
        for Sealed { at, lsn, key } in self.sealed {
            record::seal(&mut copy[at], lsn, &key.key);
        }
        let header = header(&copy[CHUNK_HEADER..len]);
        copy[..CHUNK_HEADER].copy_from_slice(&header);
        copy.freeze()
    }
}
