//! The journal's writing side: group commit of every disk's changes.
//!
//! *Promises*: records take effect in the order of their numbers (lsn); a wait for a record's hand-over ends when it
//! outlives this process, and a wait for durability when it outlives the loss of power. *Owns*: the chunk being filled, what is not
//! durable yet, and the engine's journal. When that one's medium fails, another [takes its place](rollover).
//!
//! Two tasks work beside the callers: the *writer* appends chunks one after another; what arrives while one append is
//! under way makes up the next. The *syncer* makes durable what was handed over; flushes that arrive while one sync
//! is under way share the next.
//!
//! A write of a sealed domain is sealed in a copy of its chunk just before that is appended: the chunk itself is what readers see
//! until it is folded. A chunk without any is not copied.

mod chunks;
mod rollover;

pub(crate) use chunks::Appended;

use crate::arena::ArenaSlice;
use crate::domains::{JournalSeed, RecordKey};
use crate::gate::Gate;
use crate::planted;
use bytes::Bytes;
use chunks::{Chunk, Kept, Queue, Sealed};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use stonefold_engine::{self as engine, JournalId};
use stonefold_env::Env;
use stonefold_format::record::{self, Leased};
use stonefold_format::seal::TAG_BYTES;
use stonefold_types::{BLOCK_BYTES, Error, Kind, Result};
use tokio::sync::Notify;

/// How often a chunk for which there is no room is handed over again before the journal ends: ten seconds in all, less than a
/// guest waits for its disk.
const NO_ROOM_TRIES_MAX: u32 = 20;
const NO_ROOM_PAUSE: Duration = Duration::from_millis(500);

/// A chunk with more sealed data than this, in bytes, is sealed by a worker: what takes longer than going there does.
const SEAL_HERE_BYTES_MAX: usize = 128 << 10;

/// See the module.
pub(crate) struct Journal {
    env: Env,
    engine: Arc<dyn engine::Engine>,
    /// Changed under the lock of `queue`.
    medium: Mutex<Arc<Medium>>,
    /// Journals whose medium failed, each with the lsn below which it made all durable.
    left: Mutex<Vec<(JournalId, u64)>>,
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
    /// Journals that failed and were gone on with in another.
    pub(crate) rollovers: AtomicU64,
}

/// What takes the chunks.
struct Medium {
    engine: Arc<dyn engine::Journal>,
    id: JournalSeed,
}

impl Journal {
    /// Begins a journal whose first record gets `first_lsn`. The tasks run until [`Journal::close`].
    pub(crate) async fn start(
        env: &Env,
        engine: Arc<dyn engine::Engine>,
        id: JournalSeed,
        first_lsn: u64,
    ) -> Result<Arc<Self>> {
        let medium = Medium::create(&*engine, id).await?;
        let queue = Queue::new(id.seed, first_lsn);
        let journal = Arc::new(Journal {
            env: env.clone(),
            engine,
            medium: Mutex::new(medium),
            left: Mutex::default(),
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
        Ok(journal)
    }

    /// Which journal takes what is appended now.
    pub(crate) fn id(&self) -> JournalId {
        self.medium().id()
    }

    fn medium(&self) -> Arc<Medium> {
        self.medium.lock().clone()
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
        let slice = chunk.slice(start, bytes);
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
        let (medium, below) = {
            let mut queue = self.queue.lock();
            if queue.broken.is_some() {
                return Ok(());
            }
            while let Some((seq, _)) = queue.written.front().copied().filter(|(_, end)| *end <= lsn) {
                queue.written.pop_front();
                queue.trim_below = seq + 1;
            }
            (self.medium(), queue.trim_below)
        };
        // Also when it was told so before: chunks may lie elsewhere since.
        if below > 0 { medium.engine.trim(below).await } else { Ok(()) }
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
        let filling = queue.filling.take().into_iter();
        let waiting: Vec<Chunk> = filling.chain(std::mem::take(&mut queue.full)).collect();
        let kept = std::mem::take(&mut queue.kept);
        drop(queue);
        waiting.into_iter().for_each(|chunk| chunk.handed.open(Err(error.clone())));
        // Of no effect where it was handed over.
        kept.into_iter().for_each(|kept| kept.handed.open(Err(error.clone())));
        self.syncer_wake.notify_one();
    }

    async fn write_chunks(self: Arc<Self>) {
        loop {
            let Some((chunk, seq, end)) = self.take_chunk() else {
                if self.closed.load(Ordering::Acquire) {
                    return;
                }
                if !self.roll_over_if_broken().await {
                    self.writer_wake.notified().await;
                }
                continue;
            };
            let medium = self.medium();
            let (bytes, kept) = self.complete(chunk, &medium.id, seq, end).await;
            let kept = Arc::new(kept);
            self.queue.lock().kept.push_back(kept.clone());
            self.counters.chunks.fetch_add(1, Ordering::Relaxed);
            self.counters.chunk_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            if planted::is("handed-early") {
                kept.handed.open(Ok(()));
            }
            match self.append_patiently(&medium, bytes).await {
                Ok(()) => {
                    self.handed_chunks.store(seq + 1, Ordering::Release);
                    self.handed_below.store(end, Ordering::Release);
                    kept.handed.open(Ok(()));
                }
                Err(error) if error.kind() == Kind::NoSpace => self.give_up(&error),
                // It is handed over once it was written anew.
                Err(error) => self.note_broken(&medium, error),
            }
        }
    }

    fn give_up(&self, error: &Error) {
        tracing::error!("the journal failed; nothing more is acknowledged until a restart: {error}");
        self.fail(error);
    }

    /// Hands a chunk to the engine. Where there is no room for it, which is how an engine says that it has changed nothing, it is
    /// tried again for a while: what lacks may be a descriptor, or bytes that somebody else is about to give back.
    async fn append_patiently(&self, medium: &Medium, chunk: Bytes) -> Result<()> {
        for _ in 0..NO_ROOM_TRIES_MAX {
            match medium.engine.append(chunk.clone()).await {
                Err(error) if error.kind() == Kind::NoSpace && !self.closed.load(Ordering::Acquire) => {
                    tracing::warn!("the journal waits for room: {error}");
                    self.env.sleep(NO_ROOM_PAUSE).await;
                }
                done => return done,
            }
        }
        medium.engine.append(chunk).await
    }

    /// The next chunk to write, its sequence number, and the lsn after its last record.
    fn take_chunk(&self) -> Option<(Chunk, u64, u64)> {
        let mut queue = self.queue.lock();
        if queue.failed.is_some() || queue.broken.is_some() {
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

    /// The chunk as it is appended, and as it is kept.
    async fn complete(&self, chunk: Chunk, id: &JournalSeed, seq: u64, end: u64) -> (Bytes, Kept) {
        let to_seal: usize = chunk.sealed.iter().map(|record| record.at.len()).sum();
        let (id, durable) = (*id, self.durable_chunks.load(Ordering::Acquire));
        let complete = move || chunk.complete(&id, seq, durable, end);
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
            gate.open(self.sync().await);
        }
    }

    /// Makes durable what was handed over before the call, in another journal where this one's medium fails.
    async fn sync(&self) -> Result<()> {
        loop {
            let (medium, target, chunks) = {
                let queue = self.queue.lock();
                if let Some(error) = &queue.failed {
                    return Err(error.clone());
                }
                let medium = queue.broken.is_none().then(|| self.medium());
                (medium, self.handed_below(), self.handed_chunks.load(Ordering::Acquire))
            };
            let Some(medium) = medium else {
                self.syncer_wake.notified().await;
                continue;
            };
            let synced = if planted::is("sync-skipped") { Ok(()) } else { medium.engine.sync().await };
            self.counters.syncs.fetch_add(1, Ordering::Relaxed);
            match synced {
                Err(error) => self.note_broken(&medium, error),
                Ok(()) if self.note_durable(&medium, target, chunks) => return Ok(()),
                // Another has taken its place, and has yet to be asked.
                Ok(()) => {}
            }
        }
    }

    /// Notes that so many chunks of a journal are durable; does not where that is not the one that counts any more.
    fn note_durable(&self, medium: &Arc<Medium>, target: u64, chunks: u64) -> bool {
        let mut queue = self.queue.lock();
        if !Arc::ptr_eq(medium, &self.medium()) {
            return false;
        }
        queue.failures = 0;
        while queue.kept.front().is_some_and(|kept| kept.end <= target) {
            queue.kept.pop_front();
        }
        self.durable_below.store(target, Ordering::Release);
        self.durable_chunks.store(chunks, Ordering::Release);
        true
    }
}
