//! Opening a pool: its record, its heads, and the replay of its journals.
//!
//! *Promises*: after a crash each disk holds the state after some prefix of its records that contains all that was made durable (P1).
//! What is served from a replayed journal is durable: the engine made it so before it was read. A journal of an
//! earlier session is never appended to; it stays until everything in it is folded. The new session's records are numbered from
//! where the replay ended, and its journal is begun before anything is served.

use crate::accounts::{self, Accounts, Prepared};
use crate::arena::Copies;
use crate::dedupe::Dedupe;
use crate::disk::Disk;
use crate::domains::{Domains, JournalSeed, Keyring};
use crate::growth::Growth;
use crate::journal::Journal;
use crate::loading::{Heads, load_heads};
use crate::overlay::Source;
use crate::planted;
use crate::qos::{self, Qos};
use crate::scrubber::Scrubber;
use crate::segments::Segments;
use crate::store::{Options, Store};
use crate::time::{self, Clock};
use crate::unreadable;
use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::sync::Arc;
use std::time::Duration;
use stonefold_engine::{Engine, JournalId, Key, Version};
use stonefold_env::Env;
use stonefold_format::chunk::{CHUNK_HEADER, ChunkHeader};
use stonefold_format::pool::{Pool, TrustedTime};
use stonefold_format::record::{self, Change, EXTENT_HEADER, SealedWrite};
use stonefold_format::seal::SealKey;
use stonefold_types::{BLOCK_BYTES, Error, Kind, Result};

/// One part in this many of the cache is for fingerprints.
pub(crate) const DEDUPE_CACHE_PART: u64 = 8;

pub(crate) async fn open(env: Env, engine: Arc<dyn Engine>, mut options: Options) -> Result<Arc<Store>> {
    let (pool, version) = read_pool(&env, &*engine).await?;
    let journal_seed = JournalSeed { seed: env.random(), incarnation: env.random() };
    let keys = std::mem::take(&mut options.keys);
    // Before anything is changed: a wrong key shall change nothing.
    let domains = Domains::open(env.clone(), engine.clone(), pool.id, keys).await?;
    let (pool, version) = begin_session(&env, &*engine, pool, &version, options.time_step_max).await?;
    let Heads { disks, gone, damage } = load_heads(&*engine).await?;
    let lost = unreadable::lost_key(&env);
    let (is_new, is_known) = (pool.sessions == 1, !damage.lost().is_empty());
    let prepared = accounts::prepare(&*engine, is_new, &lost, is_known).await?;
    if matches!(prepared, Prepared::Lost) {
        damage.note_lost(lost);
    }
    let mut replay = Replay::new(disks.values().cloned(), domains.keyring.clone());
    let mut retired = Vec::new();
    for (id, chunks) in read_journals(&*engine).await? {
        replay.begin_journal();
        // Each is let go when it was applied: what a journal holds is in memory once, and not twice.
        for chunk in chunks {
            replay.chunk(&chunk)?;
        }
        retired.push(Retired { id, end: replay.next_lsn, has_strangers: replay.met_strangers });
    }
    let journal = Journal::start(&env, engine.clone(), journal_seed, replay.next_lsn).await?;
    let dedupe_bytes = options.cache_bytes / DEDUPE_CACHE_PART;
    let accounts = Accounts::open(engine.clone(), prepared).await?;
    let cache_bytes = options.cache_bytes - dedupe_bytes;
    let (keyring, session) = (domains.keyring.clone(), pool.sessions);
    let segments =
        Segments::new(env.clone(), engine.clone(), accounts.clone(), keyring, session, cache_bytes);
    let dedupe = Dedupe::new(engine.clone(), accounts, dedupe_bytes);
    let qos = Qos::new(env.clone(), qos::open(&*engine).await?);
    let growth = Growth::open(&*engine).await?;
    let scrubber = Scrubber::open(&*engine).await;
    tracing::info!(
        session = pool.sessions,
        disks = disks.len(),
        replayed_records = replay.applied,
        "the pool is open"
    );
    let clock = Clock::new(env.clone(), engine.clone(), pool, version);
    let parts = (domains, segments, dedupe);
    let journal = (journal, retired);
    Ok(Store::new(
        env,
        engine,
        options,
        parts,
        journal,
        (disks, gone, damage),
        (qos, growth, scrubber, clock),
    ))
}

/// A journal of an earlier session, or one of this whose medium failed.
pub(crate) struct Retired {
    pub(crate) id: JournalId,
    /// The record after its last.
    pub(crate) end: u64,
    /// It has records of disks that are not here: removed, or with a head that cannot be read.
    pub(crate) has_strangers: bool,
}

impl Retired {
    /// Whether everything in it is folded, when all before this record is. `hidden`: some disk's head cannot be read.
    pub(crate) fn is_needless(&self, folded_below: u64, hidden: bool) -> bool {
        let kept = self.has_strangers && hidden && !planted::is("hidden-journal-dropped");
        (self.end <= folded_below || planted::is("retired-too-early")) && !kept
    }
}

/// The pool's record, which is made when there is none.
async fn read_pool(env: &Env, engine: &dyn Engine) -> Result<(Pool, Version)> {
    let key = Key::new("pool");
    match engine.get(&key).await {
        Ok((bytes, version)) => Ok((Pool::decode(&bytes)?, version)),
        Err(error) if error.kind() == Kind::NotFound => make_pool(env, engine, &key).await,
        Err(error) => Err(error.context("reading the pool's record")),
    }
}

/// Takes the next session number.
async fn begin_session(
    env: &Env,
    engine: &dyn Engine,
    mut pool: Pool,
    version: &Version,
    time_step_max: Duration,
) -> Result<(Pool, Version)> {
    pool.sessions += 1;
    pool.time = time::at_opening(pool.time, env.wall(), time_step_max);
    if pool.time.in_doubt {
        tracing::warn!(
            "the machine's clock is ahead of the pool's time; no lock ends by it until 'stonefold pool confirm-time'"
        );
    }
    let put = engine.put_if(&Key::new("pool"), pool.encode().into(), version).await;
    put.map_err(|e| e.context("beginning a session")).map(|version| (pool, version))
}

async fn make_pool(env: &Env, engine: &dyn Engine, key: &Key) -> Result<(Pool, Version)> {
    if let Some(found) = engine.list("", None, 1).await?.first() {
        let what = format!("{} holds '{}' but no pool record", engine.describe(), found.key);
        return Err(
            Error::new(Kind::Invalid, what).remedy("name an empty place, or restore the pool's record")
        );
    }
    let created = env.wall();
    let time = TrustedTime { trusted: created, unproven: 0, in_doubt: false };
    let pool = Pool { id: env.random(), created, sessions: 0, time };
    let version =
        engine.put_new(key, pool.encode().into()).await.map_err(|e| e.context("making the pool"))?;
    Ok((pool, version))
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
    let first_lsn = |chunks: &[bytes::Bytes]| {
        chunks.first().and_then(|c| payload(c).ok()).map_or(0, |(_, p)| p.first_lsn)
    };
    journals.sort_by_key(|(_, chunks)| first_lsn(chunks));
    if planted::is("journals-reversed") {
        journals.reverse();
    }
    Ok(journals)
}

/// A chunk's payload, and what the keys of its sealed records are derived with.
fn payload(chunk: &[u8]) -> Result<(JournalSeed, record::Payload<'_>)> {
    let header = ChunkHeader::verify(chunk)?;
    let payload = record::decode(&chunk[CHUNK_HEADER..header.len])?;
    Ok((JournalSeed { seed: payload.seed, incarnation: header.incarnation }, payload))
}

/// Applies journal records to disks.
struct Replay {
    disks: HashMap<u64, Arc<Disk>>,
    keyring: Arc<Keyring>,
    /// By journal, domain and version: one is derived for many records.
    keys: HashMap<([u8; 16], u16, u32), SealKey>,
    copies: Copies,
    next_lsn: u64,
    /// The record after the last that an earlier journal had. One that took the place of another repeats what was not durable there.
    met_below: u64,
    /// The record after the last that any had.
    next_met: u64,
    applied: u64,
    /// Records of disks that are not here.
    met_strangers: bool,
}

impl Replay {
    fn new(disks: impl Iterator<Item = Arc<Disk>>, keyring: Arc<Keyring>) -> Self {
        let disks: HashMap<_, _> = disks.map(|disk| (disk.id, disk)).collect();
        let folded = disks.values().map(|disk| disk.state.lock().folded_lsn).max().unwrap_or(0);
        let folded = if planted::is("lsn-restarts") { 0 } else { folded };
        Replay {
            disks,
            keyring,
            keys: HashMap::new(),
            copies: Copies::default(),
            next_lsn: folded + 1,
            next_met: 0,
            met_below: 0,
            applied: 0,
            met_strangers: false,
        }
    }

    fn begin_journal(&mut self) {
        self.met_below = self.next_met;
        self.met_strangers = false;
    }

    fn chunk(&mut self, chunk: &[u8]) -> Result<()> {
        let (journal, payload) = payload(chunk)?;
        for (at, record) in payload.records.enumerate() {
            let lsn = payload.first_lsn + at as u64;
            let record = record?;
            self.next_lsn = self.next_lsn.max(lsn + 1);
            self.next_met = self.next_met.max(lsn + 1);
            if lsn < self.met_below {
                continue;
            }
            // A disk that is gone has no use for its records; one with a head that cannot be read may have.
            let Some(disk) = self.disks.get(&record.of.disk).cloned() else {
                self.met_strangers = true;
                continue;
            };
            // Nor is there any for what an owner appended whose turn was over, or has not begun.
            if record.of.epoch != disk.lease.epoch || lsn <= disk.state.lock().folded_lsn {
                continue;
            }
            match record.change {
                Change::Sealed(write) => {
                    let Some(data) = self.open(&journal, &disk, lsn, &write)? else { continue };
                    apply(&disk, lsn, Change::Write { block: write.block, data: &data }, &mut self.copies);
                }
                change => apply(&disk, lsn, change, &mut self.copies),
            }
            self.applied += 1;
        }
        Ok(())
    }

    /// What a sealed write holds; `None` when its domain was shredded, and it with it.
    fn open(
        &mut self,
        journal: &JournalSeed,
        disk: &Disk,
        lsn: u64,
        write: &SealedWrite<'_>,
    ) -> Result<Option<Vec<u8>>> {
        if self.keyring.is_shredded(write.domain) {
            return Ok(None);
        }
        let key = match self.keys.entry((journal.incarnation, write.domain, write.key_version)) {
            Occupied(known) => known.into_mut(),
            Vacant(place) => {
                let key = self.keyring.replay_key(write.domain, write.key_version, journal);
                place.insert(key.map_err(|e| {
                    e.context(format!("the journal holds writes to disk '{}' that are not folded", disk.name))
                })?)
            }
        };
        let damaged = || {
            let what =
                format!("record {lsn} of the journal, of disk '{}', is not what was sealed there", disk.name);
            Error::new(Kind::Corrupt, what).remedy("restore the journal from another copy")
        };
        write.open(disk.leased(), lsn, key).map(Some).ok_or_else(damaged)
    }
}

fn apply(disk: &Disk, lsn: u64, change: Change<'_>, copies: &mut Copies) {
    let mut state = disk.state.lock();
    match change {
        Change::Write { block, data } => {
            let blocks = block..block + (data.len() / BLOCK_BYTES) as u64;
            state.active.insert(blocks, lsn, Source::Data(copies.of(data)));
            state.active.note(lsn, (data.len() + EXTENT_HEADER) as u64);
        }
        Change::Sealed(_) => unreachable!("a replay opens it before"),
        Change::Zero { block, blocks } => {
            state.active.insert(block..block + blocks, lsn, Source::Zero);
            state.active.note(lsn, EXTENT_HEADER as u64);
        }
        Change::Mark { .. } if planted::is("marks-not-replayed") => {}
        Change::Mark { snapshot, created, size_bytes, name } => {
            state.apply_mark(snapshot, lsn, name, created, size_bytes);
        }
        Change::Unmark { snapshot } => state.apply_unmark(snapshot, lsn),
        Change::Lock { snapshot, until } => state.apply_lock(snapshot, lsn, until),
        Change::Resize { .. } if planted::is("resize-not-replayed") => state.active.note(lsn, 0),
        Change::Resize { size_bytes } => {
            state.active.note(lsn, 0);
            state.active.size_bytes = Some(size_bytes);
            state.size_bytes = size_bytes;
        }
    }
}
