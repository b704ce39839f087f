//! The engine: what the trait asks, of a bucket, under a lease.

use crate::bucket::{Bucket, Condition};
use crate::changes::{Change, Changes};
use crate::journal;
use crate::lease::Lease;
use crate::options::Options;
use crate::probe;
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use stonefold_engine::{Engine, Journal, JournalId, JournalReader, Key, Listed, Room, Version};
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result, Size};

const OBJECTS: &str = "objects/";
/// As the trait has it.
const DOCUMENT_BYTES_MAX: u64 = 1 << 20;
/// What a store is taken to hold that tells no end: an exbibyte.
const UNBOUNDED: u64 = 1 << 60;

/// A pool's objects and journals in an object store.
pub struct S3Engine {
    place: Arc<Place>,
    endpoint: Option<String>,
}

/// A bucket that is leased, and how full it is.
pub(crate) struct Place {
    bucket: Arc<Bucket>,
    lease: Arc<Lease>,
    changes: Arc<Changes>,
    size_bytes: u64,
    /// Bytes of all objects, as they were counted at opening and have changed since.
    used: AtomicI64,
    /// How long documents are that were read or put; what changes them tells no length.
    documents: Mutex<HashMap<String, u64>>,
}

/// Whether there is a pool at the place; asks, and changes nothing.
pub async fn is_made(options: &Options, env: &Env) -> Result<bool> {
    let bucket = bucket(options, env).await?;
    let of = bucket.clone();
    bucket.run(async move { Ok(!of.list(OBJECTS, None, 1).await?.is_empty()) }).await
}

/// Files are read for it, which may hang, and keep no disk waiting.
async fn bucket(options: &Options, env: &Env) -> Result<Arc<Bucket>> {
    let (options, of) = (options.clone(), env.clone());
    env.offload(move || Bucket::new(&options, of).map(Arc::new)).await
}

impl S3Engine {
    /// Tries the place out, takes the lease on it, and counts what is there: a request for each thousand objects.
    ///
    /// `Unsupported`: conditional puts are not honoured. `Busy`: another server has the pool. `NotFound`: there is none, and none is to be made.
    /// `Denied`: the keys. Waits some 30 s where it is not known whether the last server lives.
    pub async fn open(env: Env, options: Options) -> Result<S3Engine> {
        let bucket = bucket(&options, &env).await?;
        let (of, create) = (bucket.clone(), options.create);
        bucket
            .run(async move {
                look(&of, create).await?;
                probe::probe(&of).await
            })
            .await?;
        let lease = Lease::take(bucket.clone()).await?;
        let size_bytes = options.size_bytes.unwrap_or(UNBOUNDED);
        let place = Place {
            bucket,
            lease,
            changes: Arc::default(),
            size_bytes,
            used: AtomicI64::new(0),
            documents: Mutex::default(),
        };
        let engine = S3Engine { place: Arc::new(place), endpoint: options.endpoint };
        journal::sweep(&engine.place).await?;
        for (name, bytes) in engine.place.list("probe/", None, usize::MAX).await? {
            // Of an opening that was cut off.
            engine.place.delete(&name, Some(bytes)).await?;
        }
        let used = engine.place.run(|bucket| async move { bucket.bytes().await }).await?;
        engine.place.used(used as i64);
        Ok(engine)
    }
}

/// Refuses a place that belongs to something else.
async fn look(bucket: &Bucket, create: bool) -> Result<()> {
    let ours = ["owner", OBJECTS, "journals/", "chunks/", "probe/"];
    let first = bucket.list("", None, 1).await?.pop();
    match first {
        None if create => Ok(()),
        None => {
            Err(Error::new(Kind::NotFound, format!("{} holds no pool", bucket.place))
                .remedy("correct the URL"))
        }
        Some((name, _)) if ours.iter().any(|ours| name.starts_with(ours)) => Ok(()),
        Some((name, _)) => {
            let what = format!("{} holds '{name}', which is no pool's", bucket.place);
            Err(Error::new(Kind::Invalid, what)
                .remedy("name a prefix of its own for the pool: s3://bucket/prefix"))
        }
    }
}

impl Drop for S3Engine {
    fn drop(&mut self) {
        self.place.lease.begin_release();
    }
}

impl Place {
    /// The world that it is in.
    pub(crate) fn env(&self) -> &Env {
        &self.bucket.env
    }

    /// Counts bytes that came, or went.
    pub(crate) fn used(&self, bytes: i64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed).max(0) as u64
    }

    /// Fails where that much is not free.
    pub(crate) fn reserve(&self, what: &dyn fmt::Display, bytes: usize) -> Result<()> {
        let free = self.size_bytes.saturating_sub(self.used_bytes());
        if bytes as u64 <= free {
            return Ok(());
        }
        let what = format!(
            "{what} needs {}, and {} of {} are free in {}",
            Size(bytes as u64),
            Size(free),
            Size(self.size_bytes),
            self.bucket.place
        );
        Err(Error::new(Kind::NoSpace, what)
            .remedy("remove something, or give the pool more: size= in its URL"))
    }

    /// Asks something of the bucket while the lease holds, which it must do still when the answer is there: what came after it counts for nothing.
    pub(crate) async fn run<T, F>(&self, ask: impl FnOnce(Arc<Bucket>) -> F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        self.lease.ready().await?;
        let answer = self.bucket.run(ask(self.bucket.clone())).await?;
        self.lease.check()?;
        Ok(answer)
    }

    /// Counts what was put: of a document what it is longer than before, as far as that is known.
    fn came(&self, name: &str, len: u64, is_new: bool) {
        let before = self.is_long(name, len);
        let before = if is_new { 0 } else { before.unwrap_or(len) };
        self.used(len as i64 - before as i64);
    }

    /// Notes how long a document is; returns how long it was.
    fn is_long(&self, name: &str, len: u64) -> Option<u64> {
        match len <= DOCUMENT_BYTES_MAX {
            true => self.documents.lock().insert(name.to_owned(), len),
            false => None,
        }
    }

    /// Puts an object that changes the room by its length.
    pub(crate) async fn put(
        self: &Arc<Self>,
        name: &str,
        bytes: Bytes,
        condition: Condition,
    ) -> Result<Version> {
        let change = self.changes.begin(name).await;
        let (place, object) = (self.clone(), name.to_owned());
        let put = self.run(move |bucket| async move {
            let _change: Change = change;
            let is_new = matches!(condition, Condition::Absent);
            let len = bytes.len() as u64;
            let version = bucket.put(&object, bytes, condition, true).await?;
            place.came(&object, len, is_new);
            Ok(version)
        });
        put.await
    }

    pub(crate) async fn get(&self, name: &str) -> Result<(Bytes, Version)> {
        self.changes.settled(name).await;
        let of = name.to_owned();
        let got = self.run(move |bucket| async move { bucket.get(&of).await }).await?;
        // Who changes a document has read it first.
        self.is_long(name, got.0.len() as u64);
        Ok(got)
    }

    /// Deletes an object; an absent one is no error. Its length, where that is known, saves a request.
    pub(crate) async fn delete(self: &Arc<Self>, name: &str, bytes: Option<u64>) -> Result<()> {
        let change = self.changes.begin(name).await;
        let (place, name) = (self.clone(), name.to_owned());
        let delete = move |bucket: Arc<Bucket>| async move {
            let _change: Change = change;
            let (bytes, version) = match bytes {
                Some(bytes) => (bytes, None),
                None => match bucket.known_of(&name).await {
                    Ok((bytes, version)) => (bytes, Some(version)),
                    Err(error) if error.kind() == Kind::NotFound => return Ok(()),
                    Err(error) => return Err(error),
                },
            };
            bucket.delete(&name, version, true).await?;
            place.documents.lock().remove(&name);
            place.used(-(bytes as i64));
            Ok(())
        };
        self.run(delete).await
    }

    /// Names below the pool's prefix, and their objects' lengths.
    pub(crate) async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, u64)>> {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        self.run(move |bucket| async move { bucket.list(&prefix, after.as_deref(), limit).await }).await
    }
}

fn name(key: &Key) -> String {
    format!("{OBJECTS}{key}")
}

#[async_trait]
impl Engine for S3Engine {
    fn describe(&self) -> String {
        let at = self.endpoint.as_ref().map_or("AWS".into(), |endpoint| format!("at {endpoint}"));
        format!("{}, {at}, by conditional puts", self.place.bucket.place)
    }

    async fn put_new(&self, key: &Key, bytes: Bytes) -> Result<Version> {
        self.place.reserve(&format_args!("object '{key}'"), bytes.len())?;
        self.place.put(&name(key), bytes, Condition::Absent).await
    }

    async fn put_if(&self, key: &Key, bytes: Bytes, expected: &Version) -> Result<Version> {
        self.place.reserve(&format_args!("object '{key}'"), bytes.len())?;
        self.place.put(&name(key), bytes, Condition::Is(expected.clone())).await
    }

    async fn get(&self, key: &Key) -> Result<(Bytes, Version)> {
        self.place.get(&name(key)).await
    }

    async fn get_range(&self, key: &Key, offset: u64, len: usize) -> Result<Bytes> {
        let name = name(key);
        self.place.changes.settled(&name).await;
        self.place.run(move |bucket| async move { bucket.get_range(&name, offset, len).await }).await
    }

    async fn delete(&self, key: &Key) -> Result<()> {
        self.place.delete(&name(key), None).await
    }

    async fn list(&self, prefix: &str, after: Option<&Key>, limit: usize) -> Result<Vec<Listed>> {
        let (prefix, after) = (format!("{OBJECTS}{prefix}"), after.map(name));
        let names = self.place.list(&prefix, after.as_deref(), limit).await?;
        let listed = |(name, bytes): (String, u64)| {
            let key = &name[OBJECTS.len()..];
            // A name that no key can have was put there by somebody else, and is none of the pool's.
            Key::is_valid(key).then(|| Listed { key: Key::new(key), bytes })
        };
        Ok(names.into_iter().filter_map(listed).collect())
    }

    async fn room(&self) -> Result<Room> {
        let (used_bytes, total_bytes) = (self.place.used_bytes(), self.place.size_bytes);
        let free_bytes = total_bytes.saturating_sub(used_bytes);
        Ok(Room { raw_bytes: total_bytes, total_bytes, free_bytes, used_bytes })
    }

    async fn journal_create(&self, id: JournalId) -> Result<Arc<dyn Journal>> {
        journal::create(&self.place, id).await
    }

    async fn journal_list(&self) -> Result<Vec<JournalId>> {
        journal::list(&self.place).await
    }

    async fn journal_open(&self, id: JournalId) -> Result<Box<dyn JournalReader>> {
        journal::open(&self.place, id).await
    }

    async fn journal_remove(&self, id: JournalId) -> Result<()> {
        journal::remove(&self.place, id).await
    }

    async fn rest(&self) {
        self.place.lease.release().await;
    }
}
