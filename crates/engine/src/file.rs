//! An engine on the local file system.
//!
//! *Promises*: the trait's, by fsync of files and of folders before anything is acknowledged; one process at a
//! time. *Never*: serves what it cannot be sure is durable. *Owns*: everything below its directories, as
//! [`layout`] draws it. *May be used by*: whoever opens a pool by URL.
//!
//! The engine is a thin layer over *members*, one per directory ([`member`]), each of which is complete in
//! itself. Today a pool has one member; several, with copies, place objects over them here.

mod durable;
mod handles;
mod header;
mod journal;
mod layout;
mod list;
mod lock;
mod member;
mod object;
mod options;
mod punch;
mod replay;
mod spares;
#[cfg(test)]
mod tests;

pub use options::{Direct, Options};

use crate::{Engine, Journal, JournalId, JournalReader, Key, Listed, Room, Version, uring};
use async_trait::async_trait;
use bytes::Bytes;
use member::Member;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result};

/// An engine whose objects are files. Clones share it; the last one gives the directories free.
#[derive(Clone)]
pub struct FileEngine {
    member: Arc<Member>,
    copies: usize,
}

impl FileEngine {
    /// Opens the pool in these directories, or makes it where they are empty or absent.
    ///
    /// Everything found is made durable, leftovers of a crash are removed, and the directories are locked against
    /// other processes until the engine is dropped.
    pub async fn open(env: Env, options: Options) -> Result<FileEngine> {
        options.check()?;
        let [dir] = &options.dirs[..] else {
            return Err(Error::new(Kind::Unsupported, "a pool on several directories is not served yet")
                .remedy("name one directory"));
        };
        let member = Member::open(&env, Path::new(dir), &options).await?;
        Ok(FileEngine { member: Arc::new(member), copies: options.copies })
    }

    /// Runs a change to its end even if the caller loses interest: a put half done would leave it unclear what a
    /// later read has shown.
    async fn detached<T: Send + 'static>(
        &self,
        name: &'static str,
        change: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let (tell, told) = tokio::sync::oneshot::channel();
        self.member.env.spawn(name, async move {
            let _ = tell.send(change.await);
        });
        told.await.unwrap_or_else(|_| Err(Error::new(Kind::Closed, format!("{name}: the runtime has ended"))))
    }
}

#[async_trait]
impl Engine for FileEngine {
    fn describe(&self) -> String {
        let copies = if self.copies > 1 { format!(", {} copies", self.copies) } else { String::new() };
        let by = if uring::installed() { "io_uring" } else { "threads (no ring on this thread)" };
        format!("file://{}{copies}, {} by {by}", self.member.path().display(), self.member.access())
    }

    async fn put_new(&self, key: &Key, bytes: Bytes) -> Result<Version> {
        let (member, key) = (self.member.clone(), key.clone());
        self.detached("put", async move { member.put(&key, bytes, None).await }).await
    }

    async fn put_if(&self, key: &Key, bytes: Bytes, expected: &Version) -> Result<Version> {
        let (member, key, expected) = (self.member.clone(), key.clone(), expected.clone());
        self.detached("put", async move { member.put(&key, bytes, Some(&expected)).await }).await
    }

    async fn get(&self, key: &Key) -> Result<(Bytes, Version)> {
        self.member.get(key).await
    }

    async fn get_range(&self, key: &Key, offset: u64, len: usize) -> Result<Bytes> {
        self.member.get_range(key, offset, len).await
    }

    async fn punch(&self, key: &Key, ranges: &[Range<u64>]) -> Result<u64> {
        self.member.punch(key, ranges).await
    }

    async fn delete(&self, key: &Key) -> Result<()> {
        let (member, key) = (self.member.clone(), key.clone());
        self.detached("delete", async move { member.delete(&key).await }).await
    }

    async fn list(&self, prefix: &str, after: Option<&Key>, limit: usize) -> Result<Vec<Listed>> {
        self.member.list(prefix, after, limit).await
    }

    async fn room(&self) -> Result<Room> {
        self.member.room().await
    }

    async fn journal_create(&self, id: JournalId) -> Result<Arc<dyn Journal>> {
        let member = self.member.clone();
        self.detached("journal", journal::create(member, id)).await
    }

    async fn journal_list(&self) -> Result<Vec<JournalId>> {
        self.member.journal_list().await
    }

    async fn journal_open(&self, id: JournalId) -> Result<Box<dyn JournalReader>> {
        Ok(Box::new(replay::open(&self.member, id).await?))
    }

    async fn journal_remove(&self, id: JournalId) -> Result<()> {
        let member = self.member.clone();
        self.detached("journal", async move { journal::remove(&member, id).await }).await
    }
}
