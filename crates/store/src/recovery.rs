//! Opening a pool: its record, its heads, and the replay of its journals.
//!
//! *Promises*: after a crash each disk holds the state after some prefix of its records that contains all that was made durable (P1).
//! What is served from a replayed journal is durable: the engine made it so before it was read. A journal of an
//! earlier session is never appended to; it stays until everything in it is folded. The new session's records are numbered from
//! where the replay ended, and its journal is begun before anything is served.

use crate::accounts::Accounts;
use crate::arena::ArenaSlice;
use crate::dedupe::Dedupe;
use crate::disk::Disk;
use crate::journal::Journal;
use crate::overlay::Source;
use crate::planted;
use crate::qos::{self, Qos};
use crate::segments::Segments;
use crate::store::{Options, Store};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use stonefold_engine::{Engine, JournalId, Key, Version};
use stonefold_env::Env;
use stonefold_format::chunk::{CHUNK_HEADER, ChunkHeader};
use stonefold_format::fingerprint::FingerprintKey;
use stonefold_format::head::Head;
use stonefold_format::pool::Pool;
use stonefold_format::record::{self, Change, EXTENT_HEADER};
use stonefold_types::{BLOCK_BYTES, Error, Kind, Name, Result};

/// Heads read at one time.
const HEADS_ABREAST: usize = 32;
/// One part in this many of the cache is for fingerprints.
const DEDUPE_CACHE_PART: u64 = 8;
/// Keys asked for at one time.
const LIST_LIMIT: usize = 1000;

pub(crate) async fn open(env: Env, engine: Arc<dyn Engine>, options: Options) -> Result<Arc<Store>> {
    let pool = begin_session(&env, &*engine).await?;
    let (disks, gone) = load_heads(&*engine).await?;
    let mut replay = Replay::new(disks.values().cloned());
    let mut retired = Vec::new();
    for (id, chunks) in read_journals(&*engine).await? {
        for chunk in &chunks {
            replay.chunk(chunk)?;
        }
        retired.push((id, replay.next_lsn));
    }
    let journal_id = JournalId(env.random());
    let engine_journal = engine.journal_create(journal_id).await?;
    let journal = Journal::start(&env, engine_journal, journal_id.0, replay.next_lsn);
    let dedupe_bytes = options.cache_bytes / DEDUPE_CACHE_PART;
    let accounts = Accounts::open(engine.clone()).await?;
    let cache_bytes = options.cache_bytes - dedupe_bytes;
    let segments = Segments::new(env.clone(), engine.clone(), accounts.clone(), pool.sessions, cache_bytes);
    let key = FingerprintKey::derive(&pool.id);
    let dedupe = Dedupe::new(engine.clone(), accounts, key, dedupe_bytes);
    let qos = Qos::new(env.clone(), qos::open(&*engine).await?);
    tracing::info!(
        session = pool.sessions,
        disks = disks.len(),
        replayed_records = replay.applied,
        "the pool is open"
    );
    let journal = (journal, journal_id, retired);
    Ok(Store::new(env, engine, options, (segments, dedupe), journal, (disks, gone), qos))
}

/// Takes the next session number, making the pool when there is none.
async fn begin_session(env: &Env, engine: &dyn Engine) -> Result<Pool> {
    let key = Key::new("pool");
    let (mut pool, version) = match engine.get(&key).await {
        Ok((bytes, version)) => (Pool::decode(&bytes)?, version),
        Err(error) if error.kind() == Kind::NotFound => make_pool(env, engine, &key).await?,
        Err(error) => return Err(error.context("reading the pool's record")),
    };
    pool.sessions += 1;
    engine
        .put_if(&key, pool.encode().into(), &version)
        .await
        .map_err(|e| e.context("beginning a session"))?;
    Ok(pool)
}

async fn make_pool(env: &Env, engine: &dyn Engine, key: &Key) -> Result<(Pool, Version)> {
    if let Some(found) = engine.list("", None, 1).await?.first() {
        let what = format!("{} holds '{}' but no pool record", engine.describe(), found.key);
        return Err(
            Error::new(Kind::Invalid, what).remedy("name an empty place, or restore the pool's record")
        );
    }
    let pool = Pool { id: env.random(), created: env.wall(), sessions: 0 };
    let version =
        engine.put_new(key, pool.encode().into()).await.map_err(|e| e.context("making the pool"))?;
    Ok((pool, version))
}

/// The disks there are, and those that were removed and that reclaim is not done with.
async fn load_heads(engine: &dyn Engine) -> Result<(BTreeMap<Name, Arc<Disk>>, Vec<Arc<Disk>>)> {
    let gone = load_below(engine, "gone/").await?;
    let mut disks = BTreeMap::new();
    for disk in load_below(engine, "head/").await? {
        if gone.iter().any(|other| other.id == disk.id) {
            // Its removal was broken off between the two.
            engine.delete(&disk.key).await?;
            continue;
        }
        disks.insert(disk.name.clone(), disk);
    }
    Ok((disks, gone))
}

async fn load_below(engine: &dyn Engine, prefix: &str) -> Result<Vec<Arc<Disk>>> {
    let mut disks = Vec::new();
    let mut after: Option<Key> = None;
    loop {
        let keys = engine.list(prefix, after.as_ref(), LIST_LIMIT).await?;
        let Some(last) = keys.last() else { return Ok(disks) };
        after = Some(last.key.clone());
        for group in keys.chunks(HEADS_ABREAST) {
            let heads = group.iter().map(|listed| load_head(engine, &listed.key));
            disks.extend(futures::future::try_join_all(heads).await?);
        }
    }
}

async fn load_head(engine: &dyn Engine, key: &Key) -> Result<Arc<Disk>> {
    let (bytes, version) = engine.get(key).await?;
    let head = Head::decode(&bytes).map_err(|e| e.context(format!("reading '{key}'")))?;
    Ok(Disk::from_head(key.clone(), head, version))
}

/// Every journal's valid chunks, in the order in which the journals were written.
async fn read_journals(engine: &dyn Engine) -> Result<Vec<(JournalId, Vec<bytes::Bytes>)>> {
    let mut journals = Vec::new();
    for id in engine.journal_list().await? {
        let mut reader =
            engine.journal_open(id).await.map_err(|e| e.context(format!("opening journal {id}")))?;
        let mut chunks = Vec::new();
        while let Some(chunk) = reader.next().await? {
            chunks.push(chunk);
        }
        journals.push((id, chunks));
    }
    // One that holds nothing has no first record; where it stands makes no difference.
    let first_lsn =
        |chunks: &[bytes::Bytes]| chunks.first().and_then(|c| records(c).ok()).map_or(0, |(lsn, _)| lsn);
    journals.sort_by_key(|(_, chunks)| first_lsn(chunks));
    if planted::is("journals-reversed") {
        journals.reverse();
    }
    Ok(journals)
}

fn records(chunk: &[u8]) -> Result<(u64, record::Records<'_>)> {
    let header = ChunkHeader::verify(chunk)?;
    record::decode(&chunk[CHUNK_HEADER..header.len])
}

/// Applies journal records to disks.
struct Replay {
    disks: HashMap<u64, Arc<Disk>>,
    next_lsn: u64,
    applied: u64,
}

impl Replay {
    fn new(disks: impl Iterator<Item = Arc<Disk>>) -> Self {
        let disks: HashMap<_, _> = disks.map(|disk| (disk.id, disk)).collect();
        let folded = disks.values().map(|disk| disk.state.lock().folded_lsn).max().unwrap_or(0);
        let folded = if planted::is("lsn-restarts") { 0 } else { folded };
        Replay { disks, next_lsn: folded + 1, applied: 0 }
    }

    fn chunk(&mut self, chunk: &[u8]) -> Result<()> {
        let (first_lsn, records) = records(chunk)?;
        for (at, record) in records.enumerate() {
            let lsn = first_lsn + at as u64;
            let record = record?;
            self.next_lsn = self.next_lsn.max(lsn + 1);
            // A disk that is gone has no use for its records.
            let Some(disk) = self.disks.get(&record.disk) else { continue };
            if lsn > disk.state.lock().folded_lsn {
                apply(disk, lsn, record.change);
                self.applied += 1;
            }
        }
        Ok(())
    }
}

fn apply(disk: &Disk, lsn: u64, change: Change<'_>) {
    let mut state = disk.state.lock();
    match change {
        Change::Write { block, data } => {
            let blocks = block..block + (data.len() / BLOCK_BYTES) as u64;
            state.active.insert(blocks, lsn, Source::Data(ArenaSlice::copy_of(data)));
            state.active.note(lsn, (data.len() + EXTENT_HEADER) as u64);
        }
        Change::Zero { block, blocks } => {
            state.active.insert(block..block + blocks, lsn, Source::Zero);
            state.active.note(lsn, EXTENT_HEADER as u64);
        }
        Change::Mark { .. } if planted::is("marks-not-replayed") => {}
        Change::Mark { snapshot, created, size_bytes, name } => {
            state.apply_mark(snapshot, lsn, name, created, size_bytes);
        }
        Change::Unmark { snapshot } => state.apply_unmark(snapshot, lsn),
        Change::Resize { size_bytes } => {
            state.active.note(lsn, 0);
            state.active.size_bytes = Some(size_bytes);
            state.size_bytes = size_bytes;
        }
    }
}
