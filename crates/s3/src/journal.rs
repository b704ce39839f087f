//! Journals of numbered objects: each chunk is put under its number, which must be free.
//!
//! A chunk is durable once its put returns, so a sync has nothing to do. Who opens a journal for replay closes its record, so that no trim comes
//! after, and takes the lowest free number with a *fence*: an owner that goes on meets it, and writes nothing behind. Fences stay as long as the
//! journal does.

use crate::bucket::{Bucket, Condition};
use crate::engine::Place;
use crate::record::JournalRecord;
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use stonefold_engine::chunks::{Replay, check_next};
use stonefold_engine::{Journal, JournalId, JournalReader, Version};
use stonefold_types::{Error, Kind, Result};

/// What lies under a fence's number; shorter than any chunk.
const FENCE: &[u8] = b"a fence\n";
/// How many chunks may go before their record is swapped for it: a swap costs as much as a chunk.
const TRIM_MIN: u64 = 4;
/// How long a write waits for a store that does not answer, before it fails and the disks with it.
const OUTAGE_MAX: Duration = Duration::from_secs(600);
const OUTAGE_LOOK: Duration = Duration::from_secs(1);
/// Deletes under way at one time.
const DELETES: usize = 16;
const JOURNALS: &str = "journals/";
const CHUNKS: &str = "chunks/";

fn record_name(id: JournalId) -> String {
    format!("{JOURNALS}{id}")
}

fn chunk_name(id: JournalId, seq: u64) -> String {
    format!("{CHUNKS}{id}/{seq:020}")
}

/// Begins a journal that does not exist.
pub(crate) async fn create(place: &Arc<Place>, id: JournalId) -> Result<Arc<dyn Journal>> {
    let record = JournalRecord::new(false, 0).encode();
    let version = place.put(&record_name(id), record.into(), Condition::Absent).await?;
    let end = End { next_seq: 0, failed: false, lengths: VecDeque::new() };
    let trimmed = Trimmed { low: 0, version: Some(version) };
    Ok(Arc::new(S3Journal { place: place.clone(), id, end: end.into(), trimmed: trimmed.into() }))
}

/// The journals that exist.
pub(crate) async fn list(place: &Arc<Place>) -> Result<Vec<JournalId>> {
    let names = place.list(JOURNALS, None, usize::MAX).await?;
    names.iter().map(|(name, _)| id_of(&name[JOURNALS.len()..]).ok_or_else(|| stranger(name))).collect()
}

fn stranger(name: &str) -> Error {
    Error::new(Kind::Invalid, format!("object '{name}' is no journal's"))
        .remedy("remove what does not belong to the pool")
}

fn id_of(hex: &str) -> Option<JournalId> {
    let byte = |at: usize| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
    let mut id = [0; 16];
    for (index, slot) in id.iter_mut().enumerate() {
        *slot = byte(2 * index)?;
    }
    (hex.len() == 32).then_some(JournalId(id))
}

/// Closes a journal for good, and reads it.
pub(crate) async fn open(place: &Arc<Place>, id: JournalId) -> Result<Box<dyn JournalReader>> {
    let low = close(place, id).await?;
    let bucket = place.clone();
    let fenced = place.run(move |at| async move { fence(&at, &bucket, id, low).await }).await?;
    let beyond = fenced.chunks.range(fenced.at..).map(|(seq, _)| *seq).collect();
    Ok(Box::new(S3Reader {
        place: place.clone(),
        id,
        replay: Replay::new(id, low),
        seqs: low..fenced.at,
        beyond,
    }))
}

/// Swaps the record; returns the number of the first chunk that counts.
async fn close(place: &Arc<Place>, id: JournalId) -> Result<u64> {
    loop {
        let (bytes, version) = place.get(&record_name(id)).await.map_err(|error| match error.kind() {
            Kind::NotFound => Error::new(Kind::NotFound, format!("journal {id} does not exist")),
            _ => error,
        })?;
        let record = JournalRecord::decode(&bytes)?;
        if record.closed {
            return Ok(record.low);
        }
        let closed = JournalRecord::new(true, record.low).encode();
        match place.put(&record_name(id), closed.into(), Condition::Is(version)).await {
            Ok(_) => return Ok(record.low),
            // A trim of its owner's came first.
            Err(error) if error.kind() == Kind::Conflict => {}
            Err(error) => return Err(error),
        }
    }
}

struct Fenced {
    /// The fence's number.
    at: u64,
    /// The chunks that are there, by number, without fences.
    chunks: BTreeMap<u64, u64>,
}

/// Puts a fence under the lowest free number, or finds the one that is there.
async fn fence(bucket: &Bucket, place: &Place, id: JournalId, low: u64) -> Result<Fenced> {
    let folder = format!("{CHUNKS}{id}/");
    let mut found = BTreeMap::new();
    let mut fences = Vec::new();
    for (name, bytes) in bucket.list(&folder, None, usize::MAX).await? {
        let seq: u64 = name[folder.len()..].parse().map_err(|_| stranger(&name))?;
        match bytes == FENCE.len() as u64 {
            true => fences.push(seq),
            false => drop(found.insert(seq, bytes)),
        }
    }
    let mut at = low;
    loop {
        while found.contains_key(&at) {
            at += 1;
        }
        if fences.contains(&at) {
            return Ok(Fenced { at, chunks: found });
        }
        let name = chunk_name(id, at);
        match bucket.put(&name, Bytes::from_static(FENCE), Condition::Absent, true).await {
            Ok(_) => {
                place.used(FENCE.len() as i64);
                return Ok(Fenced { at, chunks: found });
            }
            // Its owner was quicker: that chunk counts, and the next number is tried.
            Err(error) if error.kind() == Kind::AlreadyExists => {
                match bucket.len(&name).await? {
                    // Or it is the fence of an opening that nobody waited for.
                    bytes if bytes == FENCE.len() as u64 => return Ok(Fenced { at, chunks: found }),
                    bytes => drop(found.insert(at, bytes)),
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Forgets a journal: first that it exists, then its chunks.
pub(crate) async fn remove(place: &Arc<Place>, id: JournalId) -> Result<()> {
    place.delete(&record_name(id), None).await?;
    remove_chunks(place, &format!("{CHUNKS}{id}/")).await
}

/// Removes chunks of journals that do not exist any more: of a removal that was cut off.
pub(crate) async fn sweep(place: &Arc<Place>) -> Result<()> {
    let journals = list(place).await?;
    let mut after = None;
    loop {
        let Some((name, _)) = place.list(CHUNKS, after.as_deref(), 1).await?.pop() else { return Ok(()) };
        let id = name.get(CHUNKS.len()..CHUNKS.len() + 32).and_then(id_of).ok_or_else(|| stranger(&name))?;
        if !journals.contains(&id) {
            remove_chunks(place, &format!("{CHUNKS}{id}/")).await?;
        }
        // Behind all numbers of this one.
        after = Some(format!("{CHUNKS}{id}/z"));
    }
}

async fn remove_chunks(place: &Arc<Place>, folder: &str) -> Result<()> {
    let names = place.list(folder, None, usize::MAX).await?;
    delete_all(place, names).await
}

/// Deletes objects of which the lengths are known.
async fn delete_all(place: &Arc<Place>, names: Vec<(String, u64)>) -> Result<()> {
    let deletes =
        names.into_iter().map(|(name, bytes)| async move { place.delete(&name, Some(bytes)).await });
    stream::iter(deletes).buffer_unordered(DELETES).try_collect().await
}

/// The writing end.
struct S3Journal {
    place: Arc<Place>,
    id: JournalId,
    end: tokio::sync::Mutex<End>,
    trimmed: tokio::sync::Mutex<Trimmed>,
}

struct End {
    next_seq: u64,
    /// Set while a chunk is under way, so that a call that is dropped leaves it set.
    failed: bool,
    /// Lengths of the chunks that are there, in bytes: those before `next_seq`.
    lengths: VecDeque<u64>,
}

impl End {
    /// The chunks below a number that are there, and their lengths; they are not counted any more.
    fn take_below(&mut self, below: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        let first = self.next_seq - self.lengths.len() as u64;
        let count = below.saturating_sub(first).min(self.lengths.len() as u64);
        let lengths: Vec<u64> = self.lengths.drain(..count as usize).collect();
        (first..).zip(lengths)
    }
}

struct Trimmed {
    low: u64,
    /// The record's; nothing where a swap of it has ended nobody knows how.
    version: Option<Version>,
}

impl S3Journal {
    /// Puts a chunk under its number. An outage is waited out: a journal that fails would be written anew, into the same outage.
    async fn put(&self, name: &str, chunk: &Bytes) -> Result<()> {
        let until = self.place.env().monotonic() + OUTAGE_MAX;
        loop {
            let put = match self.place.put(name, chunk.clone(), Condition::Absent).await {
                Err(error) if error.kind() == Kind::AlreadyExists => self.check_own(name, chunk).await,
                put => put.map(drop),
            };
            match put {
                Err(error) if error.kind() == Kind::Io && self.place.env().monotonic() < until => {
                    tracing::warn!("a write waits for the store: {error}");
                    self.place.env().sleep(OUTAGE_LOOK).await;
                }
                put => return put,
            }
        }
    }

    /// Fails unless what lies under a number is this chunk: of a put that was given up before it landed. A chunk's header has
    /// the journal, the number and a checksum, so that no other is like it.
    async fn check_own(&self, name: &str, chunk: &Bytes) -> Result<()> {
        let (found, _) = self.place.get(name).await?;
        if found == *chunk {
            return Ok(());
        }
        Err(opened(self.id))
    }

    /// The record's version and low-water mark, after a swap that ended nobody knows how.
    async fn look_again(&self, trimmed: &mut Trimmed) -> Result<Version> {
        let (bytes, version) = self.place.get(&record_name(self.id)).await?;
        let record = JournalRecord::decode(&bytes)?;
        if record.closed {
            return Err(opened(self.id));
        }
        // What that swap allowed to go, if it has happened, goes with the next.
        trimmed.low = trimmed.low.max(record.low);
        trimmed.version = Some(version.clone());
        Ok(version)
    }
}

fn opened(id: JournalId) -> Error {
    let what = format!("journal {id} was opened by another server, and is nobody's to write");
    Error::new(Kind::Conflict, what).remedy("stop this server: the other has the pool")
}

#[async_trait]
impl Journal for S3Journal {
    async fn append(&self, chunk: Bytes) -> Result<()> {
        let mut end = self.end.lock().await;
        if end.failed {
            let what = format!("journal {} has failed and takes nothing more", self.id);
            return Err(
                Error::new(Kind::Closed, what).remedy("write what is still in memory into a new journal")
            );
        }
        self.place.reserve(&format_args!("a chunk of journal {}", self.id), chunk.len())?;
        end.failed = true;
        check_next(&chunk, self.id, end.next_seq)?;
        self.put(&chunk_name(self.id, end.next_seq), &chunk).await?;
        end.lengths.push_back(chunk.len() as u64);
        end.next_seq += 1;
        end.failed = false;
        Ok(())
    }

    async fn sync(&self) -> Result<()> {
        // What is appended is durable: append returns when the place has it, and all before it.
        Ok(())
    }

    async fn trim(&self, below: u64) -> Result<()> {
        let mut trimmed = self.trimmed.lock().await;
        if below < trimmed.low + TRIM_MIN {
            return Ok(());
        }
        let version = match trimmed.version.take() {
            Some(version) => version,
            None => self.look_again(&mut trimmed).await?,
        };
        trimmed.version = None;
        let record = JournalRecord::new(false, below.max(trimmed.low)).encode();
        let swapped = self.place.put(&record_name(self.id), record.into(), Condition::Is(version)).await;
        trimmed.version = Some(swapped.map_err(|error| match error.kind() {
            Kind::Conflict => opened(self.id),
            _ => error,
        })?);
        trimmed.low = trimmed.low.max(below);
        let gone = self.end.lock().await.take_below(below);
        delete_all(&self.place, gone.map(|(seq, bytes)| (chunk_name(self.id, seq), bytes)).collect()).await
    }
}

/// The reading end.
struct S3Reader {
    place: Arc<Place>,
    id: JournalId,
    replay: Replay,
    /// What is still to be read, up to the fence.
    seqs: std::ops::Range<u64>,
    /// The numbers of chunks that lie behind it.
    beyond: Vec<u64>,
}

#[async_trait]
impl JournalReader for S3Reader {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        let mut next = None;
        if let Some(seq) = self.seqs.next() {
            let (chunk, _) = self.place.get(&chunk_name(self.id, seq)).await?;
            next = self.replay.accept(chunk);
        }
        if next.is_none() {
            self.replay.end();
            let unread = std::mem::replace(&mut self.seqs, 0..0);
            for seq in unread.chain(std::mem::take(&mut self.beyond)) {
                let (chunk, _) = self.place.get(&chunk_name(self.id, seq)).await?;
                self.replay.check_beyond(&chunk)?;
            }
        }
        Ok(next)
    }
}
