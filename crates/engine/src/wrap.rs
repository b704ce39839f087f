//! Engines around engines.
//!
//! *Promises*: whatever the inner engine promises, unless the wrapper is there to break it. *Never*: retries, or
//! keeps an object. *Owns*: nothing but its settings and counters. *May be used by*: whoever opens a pool, tests, the
//! simulation; wrappers can be stacked.
//!
//! All of them are one [`Wrapped`] engine with another [`Hook`], so that a wrapper is a page long and none
//! forgets an operation.

mod fault;
#[cfg(test)]
mod tests;
mod throttle;
mod trace;

pub use fault::{Decision, FaultEngine, Faults, Outcome};
pub use throttle::{Limits, Throttle, ThrottleEngine};
pub use trace::{Count, Trace, TraceEngine};

use crate::{
    Directories, Engine, Journal, JournalId, JournalReader, Key, Listed, Repaired, Room, Sound, Version,
};
use async_trait::async_trait;
use bytes::Bytes;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use stonefold_types::{Error, Kind, Result};

/// What an engine can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is the method of its name")]
pub enum Ask {
    PutNew,
    PutIf,
    Get,
    GetRange,
    Repair,
    Delete,
    List,
    Room,
    JournalCreate,
    JournalList,
    JournalOpen,
    JournalRemove,
    JournalAppend,
    JournalSync,
    JournalTrim,
    JournalRead,
}

impl Ask {
    /// All of them, each at its own index.
    pub const ALL: [Ask; 16] = [
        Ask::PutNew,
        Ask::PutIf,
        Ask::Get,
        Ask::GetRange,
        Ask::Repair,
        Ask::Delete,
        Ask::List,
        Ask::Room,
        Ask::JournalCreate,
        Ask::JournalList,
        Ask::JournalOpen,
        Ask::JournalRemove,
        Ask::JournalAppend,
        Ask::JournalSync,
        Ask::JournalTrim,
        Ask::JournalRead,
    ];

    /// Its name, as in a metric.
    pub fn name(self) -> &'static str {
        match self {
            Ask::PutNew => "put_new",
            Ask::PutIf => "put_if",
            Ask::Get => "get",
            Ask::GetRange => "get_range",
            Ask::Repair => "repair",
            Ask::Delete => "delete",
            Ask::List => "list",
            Ask::Room => "room",
            Ask::JournalCreate => "journal_create",
            Ask::JournalList => "journal_list",
            Ask::JournalOpen => "journal_open",
            Ask::JournalRemove => "journal_remove",
            Ask::JournalAppend => "journal_append",
            Ask::JournalSync => "journal_sync",
            Ask::JournalTrim => "journal_trim",
            Ask::JournalRead => "journal_read",
        }
    }
}

/// What an operation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject<'a> {
    /// One object.
    Object(&'a Key),
    /// All objects whose keys begin so.
    Prefix(&'a str),
    /// One journal.
    Journal(JournalId),
    /// The whole place.
    Place,
}

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Object(key) => write!(f, "object '{key}'"),
            Subject::Prefix(prefix) => write!(f, "objects '{prefix}…'"),
            Subject::Journal(id) => write!(f, "journal {id}"),
            Subject::Place => write!(f, "the pool"),
        }
    }
}

/// One operation as a hook sees it before it happens.
#[derive(Clone, Copy, Debug)]
pub struct Operation<'a> {
    /// What is asked.
    pub ask: Ask,
    /// Of what.
    pub subject: Subject<'a>,
    /// Bytes handed over; 0 for a read, whose length is known when it is done.
    pub bytes: usize,
}

/// What an operation returns, as far as a hook may look at it.
pub trait Answer: Send {
    /// Bytes read.
    fn bytes_read(&self) -> usize {
        0
    }

    /// The same with one bit flipped, where there is one.
    #[must_use]
    fn rotten(self, bit: u64) -> Self
    where
        Self: Sized,
    {
        let _ = bit;
        self
    }
}

/// A journal that was made. By a name of its own, as what follows: Rust 1.85 asks of a trait object in an `async_trait` that it be an [`Answer`]
/// whatever its lifetime.
struct Made(Arc<dyn Journal>);

/// The reader of one that was there.
struct Opened(Box<dyn JournalReader>);

impl Answer for () {}
impl Answer for u64 {}
impl Answer for Version {}
impl Answer for Room {}
impl Answer for Vec<Listed> {}
impl Answer for Vec<JournalId> {}
impl Answer for Made {}
impl Answer for Opened {}

impl Answer for Bytes {
    fn bytes_read(&self) -> usize {
        self.len()
    }

    fn rotten(self, bit: u64) -> Self {
        if self.is_empty() {
            return self;
        }
        let mut bytes = self.to_vec();
        let bit = bit % (bytes.len() as u64 * 8);
        bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        bytes.into()
    }
}

/// Never rotten: what a repair gives back is sound by the word of whoever asked.
impl Answer for Option<Repaired> {
    fn bytes_read(&self) -> usize {
        self.as_ref().map_or(0, |repaired| repaired.bytes.len())
    }
}

impl Answer for (Bytes, Version) {
    fn bytes_read(&self) -> usize {
        self.0.len()
    }

    fn rotten(self, bit: u64) -> Self {
        (self.0.rotten(bit), self.1)
    }
}

impl Answer for Option<Bytes> {
    fn bytes_read(&self) -> usize {
        self.as_ref().map_or(0, Bytes::len)
    }

    fn rotten(self, bit: u64) -> Self {
        self.map(|bytes| bytes.rotten(bit))
    }
}

/// What a wrapper does around every operation.
pub trait Hook: Send + Sync + 'static {
    /// Adds itself to what the inner engine says of itself.
    fn describe(&self, inner: String) -> String;

    /// Lets the operation happen, or not; `run` is the operation.
    fn around<T: Answer>(
        &self,
        operation: Operation<'_>,
        run: impl Future<Output = Result<T>> + Send,
    ) -> impl Future<Output = Result<T>> + Send;
}

/// An engine with a hook around every operation. Clones share both.
pub struct Wrapped<H> {
    inner: Arc<dyn Engine>,
    hook: Arc<H>,
}

impl<H> Clone for Wrapped<H> {
    fn clone(&self) -> Self {
        Wrapped { inner: self.inner.clone(), hook: self.hook.clone() }
    }
}

impl<H: Hook> Wrapped<H> {
    /// Puts a hook around an engine.
    pub fn around(inner: Arc<dyn Engine>, hook: H) -> Self {
        Wrapped { inner, hook: Arc::new(hook) }
    }

    /// The hook: its settings or counters.
    pub fn hook(&self) -> &H {
        &self.hook
    }

    async fn ask<T: Answer>(
        &self,
        ask: Ask,
        subject: Subject<'_>,
        bytes: usize,
        run: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        self.hook.around(Operation { ask, subject, bytes }, run).await
    }
}

#[async_trait]
impl<H: Hook> Engine for Wrapped<H> {
    fn describe(&self) -> String {
        self.hook.describe(self.inner.describe())
    }

    fn missing(&self) -> Vec<String> {
        self.inner.missing()
    }

    fn directories(&self) -> Option<&dyn Directories> {
        self.inner.directories()
    }

    fn healed(&self) -> u64 {
        self.inner.healed()
    }

    async fn put_new(&self, key: &Key, bytes: Bytes) -> Result<Version> {
        let len = bytes.len();
        self.ask(Ask::PutNew, Subject::Object(key), len, self.inner.put_new(key, bytes)).await
    }

    async fn put_if(&self, key: &Key, bytes: Bytes, expected: &Version) -> Result<Version> {
        let len = bytes.len();
        self.ask(Ask::PutIf, Subject::Object(key), len, self.inner.put_if(key, bytes, expected)).await
    }

    async fn get(&self, key: &Key) -> Result<(Bytes, Version)> {
        self.ask(Ask::Get, Subject::Object(key), 0, self.inner.get(key)).await
    }

    async fn get_range(&self, key: &Key, offset: u64, len: usize) -> Result<Bytes> {
        self.ask(Ask::GetRange, Subject::Object(key), 0, self.inner.get_range(key, offset, len)).await
    }

    async fn repair(
        &self,
        key: &Key,
        offset: u64,
        len: usize,
        sound: &Sound<'_>,
    ) -> Result<Option<Repaired>> {
        let repair = self.inner.repair(key, offset, len, sound);
        self.ask(Ask::Repair, Subject::Object(key), 0, repair).await
    }

    async fn delete(&self, key: &Key) -> Result<()> {
        self.ask(Ask::Delete, Subject::Object(key), 0, self.inner.delete(key)).await
    }

    async fn list(&self, prefix: &str, after: Option<&Key>, limit: usize) -> Result<Vec<Listed>> {
        self.ask(Ask::List, Subject::Prefix(prefix), 0, self.inner.list(prefix, after, limit)).await
    }

    async fn room(&self) -> Result<Room> {
        self.ask(Ask::Room, Subject::Place, 0, self.inner.room()).await
    }

    async fn journal_create(&self, id: JournalId) -> Result<Arc<dyn Journal>> {
        let create = async { Ok(Made(self.inner.journal_create(id).await?)) };
        let Made(inner) = self.ask(Ask::JournalCreate, Subject::Journal(id), 0, create).await?;
        Ok(Arc::new(WrappedJournal { id, inner, hook: self.hook.clone(), failed: AtomicBool::new(false) }))
    }

    async fn journal_list(&self) -> Result<Vec<JournalId>> {
        self.ask(Ask::JournalList, Subject::Place, 0, self.inner.journal_list()).await
    }

    async fn journal_open(&self, id: JournalId) -> Result<Box<dyn JournalReader>> {
        let open = async { Ok(Opened(self.inner.journal_open(id).await?)) };
        let Opened(inner) = self.ask(Ask::JournalOpen, Subject::Journal(id), 0, open).await?;
        Ok(Box::new(WrappedReader { id, inner, hook: self.hook.clone() }))
    }

    async fn journal_remove(&self, id: JournalId) -> Result<()> {
        self.ask(Ask::JournalRemove, Subject::Journal(id), 0, self.inner.journal_remove(id)).await
    }

    async fn rest(&self) {
        self.inner.rest().await;
    }
}

/// A journal with a hook around it. What a hook reports as failed stays failed, as the trait demands.
struct WrappedJournal<H> {
    id: JournalId,
    inner: Arc<dyn Journal>,
    hook: Arc<H>,
    failed: AtomicBool,
}

impl<H: Hook> WrappedJournal<H> {
    async fn ask(&self, ask: Ask, bytes: usize, run: impl Future<Output = Result<()>> + Send) -> Result<()> {
        let closed =
            || Error::new(Kind::Closed, format!("journal {} has failed and takes nothing more", self.id));
        if self.failed.load(Ordering::Acquire) {
            return Err(closed());
        }
        let operation = Operation { ask, subject: Subject::Journal(self.id), bytes };
        let result = self.hook.around(operation, run).await;
        let final_error =
            result.as_ref().err().is_some_and(|e| e.kind() != Kind::NoSpace || ask == Ask::JournalSync);
        if final_error && ask != Ask::JournalTrim {
            self.failed.store(true, Ordering::Release);
        } else if self.failed.load(Ordering::Acquire) {
            return Err(closed());
        }
        result
    }
}

#[async_trait]
impl<H: Hook> Journal for WrappedJournal<H> {
    async fn append(&self, chunk: Bytes) -> Result<()> {
        let len = chunk.len();
        self.ask(Ask::JournalAppend, len, self.inner.append(chunk)).await
    }

    async fn sync(&self) -> Result<()> {
        self.ask(Ask::JournalSync, 0, self.inner.sync()).await
    }

    async fn trim(&self, below: u64) -> Result<()> {
        self.ask(Ask::JournalTrim, 0, self.inner.trim(below)).await
    }
}

struct WrappedReader<H> {
    id: JournalId,
    inner: Box<dyn JournalReader>,
    hook: Arc<H>,
}

#[async_trait]
impl<H: Hook> JournalReader for WrappedReader<H> {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        let operation = Operation { ask: Ask::JournalRead, subject: Subject::Journal(self.id), bytes: 0 };
        self.hook.around(operation, self.inner.next()).await
    }
}
