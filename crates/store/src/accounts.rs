//! How often each block is referred to, as of the last batch of reclaim.
//!
//! *Promises*: a batch is taken over whole or not at all, by one swap of the document `accounts`; what is read here is what
//! that document names. Memory holds the document and a few shards. *Changed by*: reclaim alone, one batch at a time.
//! *Read by*: deduplication, which may only point at blocks that are referred to; readers that look for a segment's newest
//! physical form.

use crate::cache::Cache;
use crate::planted;
use crate::segments;
use crate::sound;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stonefold_engine::{Engine, Key, Version};
use stonefold_env::Env;
use stonefold_format::account::{self, Account, Accounts as Document, Shard, Slot, shard_of};
use stonefold_format::entry::SegmentId;
use stonefold_format::ledger::{Changes, Deaths, LedgerBuilder, LedgerRef, decode_deaths};
use stonefold_types::{Error, Kind, Result};

/// Memory for shards, in bytes: a few, because batches and deduplication go through them in order.
const SHARD_CACHE_BYTES: u64 = 16 << 20;

/// Keys asked for at one time: more shards than a pool has.
const LIST_LIMIT: usize = 1 << 20;

/// See the module.
pub(crate) struct Accounts {
    engine: Arc<dyn Engine>,
    current: Mutex<Arc<Document>>,
    /// Why the document cannot be read: an I/O error, which may have passed at the next opening. Until then nothing is counted.
    hidden: Option<Error>,
    stored: tokio::sync::Mutex<Stored>,
    shards: Cache<Arc<Shard>>,
    /// Of segments that were written anew: the newest form known.
    generations: Mutex<HashMap<SegmentId, u8>>,
    /// Segments from this one on are younger than the newest batch, and in no account yet.
    young_from: AtomicU64,
    /// Objects and sections read since the start.
    pub(crate) reads: AtomicU64,
    /// Bytes of account objects put.
    pub(crate) put_bytes: AtomicU64,
    /// Bytes of ledger objects put.
    pub(crate) ledger_bytes: AtomicU64,
}

struct Stored {
    /// `None` before the first batch.
    version: Option<Version>,
    /// A swap failed, and what is stored must be read before the next.
    in_doubt: bool,
}

fn document_key() -> Key {
    Key::new("accounts")
}

fn object_key(id: u64) -> Key {
    Key::new(format!("account/{id:011x}"))
}

pub(crate) fn ledger_key(id: u64) -> Key {
    Key::new(format!("ledger/{id:011x}"))
}

impl Accounts {
    pub(crate) async fn open(engine: Arc<dyn Engine>, prepared: Prepared) -> Result<Arc<Self>> {
        // What could not be read a moment ago is not believed now: it was not prepared.
        let read = match prepared {
            Prepared::Hidden(error) => Err(error),
            Prepared::Sound | Prepared::Lost => read_document(&*engine).await,
        };
        let (document, version, hidden) = match read {
            Ok((document, version)) => (document, version, None),
            Err(error) if error.kind() == Kind::Io => {
                let why = error.remedy(
                    "look at the medium and the kernel's log, and start again: nothing is lost meanwhile",
                );
                tracing::error!(
                    "{why}; until then nothing is counted or given back, and all disks are served"
                );
                (Document::default(), None, Some(why))
            }
            Err(error) => return Err(error),
        };
        Ok(Arc::new(Accounts {
            engine,
            current: Mutex::new(Arc::new(document)),
            hidden,
            stored: tokio::sync::Mutex::new(Stored { version, in_doubt: false }),
            shards: Cache::new(SHARD_CACHE_BYTES),
            generations: Mutex::default(),
            young_from: AtomicU64::new(u64::MAX),
            reads: AtomicU64::new(0),
            put_bytes: AtomicU64::new(0),
            ledger_bytes: AtomicU64::new(0),
        }))
    }

    /// Why nothing can be counted, if so.
    pub(crate) fn hidden(&self) -> Option<Error> {
        self.hidden.clone()
    }

    fn check_known(&self) -> Result<()> {
        self.hidden().map_or(Ok(()), Err)
    }

    /// The newest document; an empty one while it cannot be read.
    pub(crate) fn document(&self) -> Arc<Document> {
        self.current.lock().clone()
    }

    /// Segments before this one are in an account, or no committed map refers to them.
    pub(crate) fn set_young_from(&self, first: SegmentId) {
        self.young_from.store(first.0, Ordering::Release);
    }

    /// The accounts of a shard, as of the newest document.
    pub(crate) async fn shard(&self, number: u64) -> Result<Arc<Shard>> {
        self.check_known()?;
        let named = || self.document().shards.get(&number).map(|(object, _)| *object);
        let (object, bytes) = loop {
            let Some(object) = named() else { return Ok(Arc::default()) };
            if let Some(shard) = self.shards.get(object) {
                return Ok(shard);
            }
            self.reads.fetch_add(1, Ordering::Relaxed);
            match self.engine.get(&object_key(object)).await {
                Ok((bytes, _)) => break (object, bytes),
                // A batch may have put another in its place meanwhile.
                Err(error) if error.kind() == Kind::NotFound && named() != Some(object) => {}
                Err(error) => return Err(lost(error)),
            }
        };
        let decode = |bytes: &[u8]| account::decode(bytes, object);
        let shard = sound::decode(&*self.engine, &object_key(object), 0, &bytes, decode).await?;
        let shard = Arc::new(shard);
        self.keep(object, &shard);
        Ok(shard)
    }

    /// Whether a segment is younger than the newest batch: no account knows it yet.
    pub(crate) fn is_young(&self, segment: SegmentId) -> bool {
        segment.0 >= self.young_from.load(Ordering::Acquire)
    }

    /// The physical form of a segment to read.
    pub(crate) fn generation(&self, segment: SegmentId) -> u8 {
        self.generations.lock().get(&segment).copied().unwrap_or(0)
    }

    /// Looks up the physical form of a segment of which `tried` was not found; `None` when there is no other.
    pub(crate) async fn newer_generation(&self, segment: SegmentId, tried: u8) -> Result<Option<u8>> {
        let newest = match self.shard(shard_of(segment)).await {
            Ok(shard) if shard.contains_key(&segment) => shard[&segment].generation,
            // A segment that is not counted yet, or not any more because the accounts were lost.
            Ok(_) => self.newest_form(segment).await?,
            // The forms themselves tell, too: each means the same, and what is read from one is verified.
            Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::Io) => {
                self.newest_form(segment).await?
            }
            Err(error) => return Err(error),
        };
        self.set_generation(segment, newest);
        Ok((newest != tried).then_some(newest))
    }

    /// The newest physical form of a segment by its name alone; 0 when there is none.
    pub(crate) async fn newest_form(&self, segment: SegmentId) -> Result<u8> {
        let listed = self.engine.list(segments::key(segment, 0).as_str(), None, LIST_LIMIT).await?;
        let forms = listed.iter().filter_map(|one| segments::form_of(&one.key));
        Ok(forms.filter(|(id, _)| *id == segment).map(|(_, generation)| generation).max().unwrap_or(0))
    }

    pub(crate) fn set_generation(&self, segment: SegmentId, generation: u8) {
        if generation > 0 {
            self.generations.lock().insert(segment, generation);
        }
    }

    pub(crate) fn forget_generation(&self, segment: SegmentId) {
        self.generations.lock().remove(&segment);
    }

    /// Reads the document again when a swap left it unclear what is stored.
    pub(crate) async fn settle_doubt(&self) -> Result<()> {
        self.check_known()?;
        let mut stored = self.stored.lock().await;
        if stored.in_doubt {
            let (document, version) = read_document(&*self.engine).await?;
            *self.current.lock() = Arc::new(document);
            *stored = Stored { version, in_doubt: false };
        }
        Ok(())
    }

    /// Puts a shard's new object, which nothing names yet.
    pub(crate) async fn put_shard(&self, env: &Env, shard: Shard, id: u64) -> Result<()> {
        let shard = Arc::new(shard);
        let encoded = shard.clone();
        let object = env.offload(move || account::encode(&encoded, id)).await;
        self.put_bytes.fetch_add(object.len() as u64, Ordering::Relaxed);
        self.engine.put_new(&object_key(id), object.into()).await?;
        self.keep(id, &shard);
        Ok(())
    }

    fn keep(&self, object: u64, shard: &Arc<Shard>) {
        let weight = shard.values().map(|account| account.slots.len() * size_of::<Slot>()).sum::<usize>();
        self.shards.insert(object, shard.clone(), weight as u64);
    }

    /// Makes `next` the newest document, and forgets the objects that it no longer names.
    pub(crate) async fn swap(&self, next: Document) -> Result<()> {
        self.check_known()?;
        let mut stored = self.stored.lock().await;
        let (key, bytes) = (document_key(), next.encode());
        let done = match &stored.version {
            Some(version) => self.engine.put_if(&key, bytes.clone().into(), version).await,
            None => self.engine.put_new(&key, bytes.clone().into()).await,
        };
        let version = match done {
            Ok(version) => version,
            // An error does not say whether it happened: what is stored does.
            Err(error) => match self.engine.get(&key).await {
                Ok((found, version)) if found == bytes => version,
                _ => {
                    stored.in_doubt = true;
                    return Err(error.context("taking over a batch of reclaim"));
                }
            },
        };
        stored.version = Some(version);
        let before = std::mem::replace(&mut *self.current.lock(), Arc::new(next));
        let now = self.document();
        let still_named =
            |shard: &u64, object: u64| now.shards.get(shard).is_some_and(|(named, _)| *named == object);
        for (_, (object, _)) in
            before.shards.iter().filter(|(shard, (object, _))| !still_named(shard, *object))
        {
            // What cannot be deleted now is swept at the next start.
            let _ = self.engine.delete(&object_key(*object)).await;
        }
        Ok(())
    }

    /// Deletes account objects that the document does not name: leftovers of batches that failed.
    pub(crate) async fn sweep(&self, below: SegmentId) -> Result<()> {
        let named: Vec<u64> = self.document().shards.values().map(|(object, _)| *object).collect();
        for listed in self.engine.list("account/", None, LIST_LIMIT).await? {
            let id =
                listed.key.as_str().strip_prefix("account/").and_then(|id| u64::from_str_radix(id, 16).ok());
            if id.is_some_and(|id| id < below.0 && !named.contains(&id)) {
                self.engine.delete(&listed.key).await?;
            }
        }
        Ok(())
    }
}

/// What became of the accounts before they are opened.
pub(crate) enum Prepared {
    /// They are there, or others tell already that they are to be counted anew.
    Sound,
    /// It was put that they are.
    Lost,
    /// They could not be read, which may pass.
    Hidden(Error),
}

/// Begins the accounts of a new pool. Those of any other that cannot be read, or are not there, are made as if there were none: no
/// account of a segment must not be taken for no reference to it. `lost` says from before on, durably, that everything is to be
/// counted anew, unless something does already (`is_known`).
pub(crate) async fn prepare(
    engine: &dyn Engine,
    is_new: bool,
    lost: &Key,
    is_known: bool,
) -> Result<Prepared> {
    let why = match read_document(engine).await {
        Ok((document, None)) if is_new => {
            let begun = engine.put_new(&document_key(), document.encode().into()).await;
            return begun.map(|_| Prepared::Sound);
        }
        Ok((_, None)) if !is_known && !planted::is("no-accounts-no-references") => {
            "the accounts are not there".to_owned()
        }
        Err(error) if error.kind() == Kind::Corrupt => error.to_string(),
        // It may pass: nothing is changed for it, and nothing counted ([`Accounts::hidden`]).
        Err(error) if error.kind() == Kind::Io => return Ok(Prepared::Hidden(error)),
        done => return done.map(|_| Prepared::Sound),
    };
    tracing::error!("everything is counted anew: {why}");
    engine.put_new(lost, why.into_bytes().into()).await?;
    engine.delete(&document_key()).await.map(|()| Prepared::Lost)
}

async fn read_document(engine: &dyn Engine) -> Result<(Document, Option<Version>)> {
    match engine.get(&document_key()).await {
        Ok((bytes, version)) => {
            let document = Document::decode(&bytes).map_err(|e| e.context("reading the accounts"))?;
            Ok((document, Some(version)))
        }
        Err(error) if error.kind() == Kind::NotFound => Ok((Document::default(), None)),
        Err(error) => Err(error.context("reading the accounts")),
    }
}

/// What a document names must be there.
fn lost(error: Error) -> Error {
    if error.kind() == Kind::NotFound { error.with_kind(Kind::Corrupt) } else { error }
}

impl Accounts {
    /// Puts an object of the ledger, unless it is empty.
    pub(crate) async fn put_ledger(&self, builder: LedgerBuilder) -> Result<()> {
        if builder.is_empty() {
            return Ok(());
        }
        let (key, object) = (ledger_key(builder.id()), builder.finish());
        self.ledger_bytes.fetch_add(object.len() as u64, Ordering::Relaxed);
        self.engine.put_new(&key, object.into()).await.map(|_| ())
    }

    pub(crate) async fn read_changes(&self, at: &LedgerRef) -> Result<Changes> {
        self.read_section(at, |bytes| Changes::decode(bytes, at.id)).await
    }

    pub(crate) async fn read_deaths(&self, at: &LedgerRef) -> Result<Deaths> {
        self.read_section(at, |bytes| decode_deaths(bytes, at.id)).await
    }

    async fn read_section<T>(
        &self,
        at: &LedgerRef,
        decode: impl Fn(&[u8]) -> Result<T> + Send + Sync,
    ) -> Result<T> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let (key, offset) = (ledger_key(at.id), at.offset.into());
        let read = self.engine.get_range(&key, offset, at.length as usize).await.map_err(lost)?;
        sound::decode(&*self.engine, &key, offset, &read, decode).await
    }
}

/// Changes the number of references to a slot by `by`; a slot that was not known has none.
pub(crate) fn change(account: &mut Account, slot: u32, by: i64) -> Result<()> {
    let known = account.slots.len() as u32;
    if slot >= known {
        account.slots.resize(slot as usize + 1, Slot::Live(0));
        account.present += slot + 1 - known;
    }
    let slot = &mut account.slots[slot as usize];
    let next = match slot {
        Slot::Live(count) => u32::try_from(i64::from(*count) + by).ok(),
        Slot::Dead => None,
    };
    let wrong = || Error::new(Kind::Corrupt, format!("{by:+} references where {slot:?} is known"));
    *slot = Slot::Live(next.ok_or_else(wrong)?);
    Ok(())
}
