//! An engine on the local file system.
//!
//! *Promises*: the trait's, by fsync of files and of folders before anything is acknowledged; one process at a
//! time. On several directories also: every acknowledgement waits for all that are current, and what is damaged or
//! missing in one is healed from another. *Never*: serves what it cannot be sure is durable, or what a missing
//! directory may know better. *Owns*: everything below its directories, as [`layout`] draws it. *May be used by*:
//! whoever opens a pool by URL.
//!
//! A pool has *members*, one per directory ([`member`]: files, and nothing of each other). [`members`] says who counts,
//! [`placement`] and [`view`] what lies where, [`copies`] and [`replica`] write everywhere at once, [`settle`] and [`heal`] make
//! copies agree, [`finding`] looks for them and [`opening`] decides who may be believed. One directory is a pool of one member.
//! Each file has [`parity`] of its own, by which [`whole`] mends it where no other copy is sound. [`change`] lets directories come
//! and go on command, [`moving`] brings objects to where they shall lie then, [`leaving`] empties what has left, and
//! leaves a [`tombstone`] there.

mod change;
mod copies;
mod durable;
mod finding;
mod handles;
mod header;
mod heal;
mod journal;
mod layout;
mod leaving;
mod list;
mod lock;
mod member;
mod members;
mod moving;
mod object;
mod opening;
mod options;
mod parity;
mod placement;
pub(crate) mod planted;
mod private;
mod refill;
mod replay;
mod replica;
mod room;
mod roster;
mod settle;
mod spares;
#[cfg(test)]
mod tests;
mod tombstone;
mod view;
mod whole;

pub use options::{Direct, Options};

use crate::directories::{Directories, Directory, Moving, Step};
use crate::{Engine, Journal, JournalId, JournalReader, Key, Listed, Repaired, Room, Sound, Version, uring};
use async_trait::async_trait;
use bytes::Bytes;
use members::Members;
use std::path::Path;
use std::sync::Arc;
use stonefold_env::Env;
use stonefold_types::Result;

/// An engine whose objects are files. Clones share it; the last one gives the directories free.
#[derive(Clone)]
pub struct FileEngine {
    members: Arc<Members>,
}

impl FileEngine {
    /// Opens the pool in these directories, or makes it where they are empty or absent.
    ///
    /// Everything found is made durable, leftovers of a crash are removed, and the directories are locked against
    /// other processes until the engine is dropped. A directory that was dropped is filled again, which takes as long
    /// as copying what lies on it. Fails when a directory is missing that may know more than the others, unless
    /// [`Options::degraded`] allows it.
    pub async fn open(env: Env, options: Options) -> Result<FileEngine> {
        options.check()?;
        Ok(FileEngine { members: opening::open(env, &options).await? })
    }
}

#[async_trait]
impl Engine for FileEngine {
    fn describe(&self) -> String {
        let view = self.members.view();
        let dirs: Vec<_> = view.entries().map(|(_, entry)| entry.dir.display().to_string()).collect();
        let copies = if dirs.len() > 1 { format!(", copies={}", view.copies()) } else { String::new() };
        let dropped: Vec<_> = self.missing().iter().map(|dir| format!("'{dir}'")).collect();
        let degraded = match dropped.is_empty() {
            true => String::new(),
            false => format!(", DEGRADED: without {}", dropped.join(" and ")),
        };
        let mut access: Vec<_> = view.current().map(|(_, member)| member.access()).collect();
        access.dedup();
        let by = if uring::installed() { "io_uring" } else { "threads (no ring on this thread)" };
        format!("file://{}{copies}{degraded}, {} by {by}", dirs.join(" and "), access.join(" and "))
    }

    fn missing(&self) -> Vec<String> {
        self.members.view().roster.dropped().map(|entry| entry.dir.display().to_string()).collect()
    }

    fn directories(&self) -> Option<&dyn Directories> {
        Some(self)
    }

    fn healed(&self) -> u64 {
        self.members.healed()
    }

    async fn put_new(&self, key: &Key, bytes: Bytes) -> Result<Version> {
        let (members, key) = (self.members.clone(), key.clone());
        self.members.detached("put", async move { members.put(&key, bytes, None).await }).await
    }

    async fn put_if(&self, key: &Key, bytes: Bytes, expected: &Version) -> Result<Version> {
        let (members, key, expected) = (self.members.clone(), key.clone(), expected.clone());
        self.members.detached("put", async move { members.put(&key, bytes, Some(&expected)).await }).await
    }

    async fn get(&self, key: &Key) -> Result<(Bytes, Version)> {
        self.members.get(key).await
    }

    async fn get_range(&self, key: &Key, offset: u64, len: usize) -> Result<Bytes> {
        self.members.get_range(key, offset, len).await
    }

    async fn repair(
        &self,
        key: &Key,
        offset: u64,
        len: usize,
        sound: &Sound<'_>,
    ) -> Result<Option<Repaired>> {
        self.members.repair(key, offset, len, sound).await
    }

    async fn delete(&self, key: &Key) -> Result<()> {
        let (members, key) = (self.members.clone(), key.clone());
        self.members.detached("delete", async move { members.delete(&key).await }).await
    }

    async fn list(&self, prefix: &str, after: Option<&Key>, limit: usize) -> Result<Vec<Listed>> {
        self.members.list(prefix, after, limit).await
    }

    async fn room(&self) -> Result<Room> {
        self.members.room().await
    }

    async fn journal_create(&self, id: JournalId) -> Result<Arc<dyn Journal>> {
        let members = self.members.clone();
        self.members.detached("journal", journal::create(members, id)).await
    }

    async fn journal_list(&self) -> Result<Vec<JournalId>> {
        journal::list(&self.members.view()).await
    }

    async fn journal_open(&self, id: JournalId) -> Result<Box<dyn JournalReader>> {
        Ok(Box::new(replay::open(&self.members, id).await?))
    }

    async fn journal_remove(&self, id: JournalId) -> Result<()> {
        let members = self.members.clone();
        self.members.detached("journal", async move { journal::remove(&members, id).await }).await
    }

    async fn rest(&self) {
        let view = self.members.view();
        futures::future::join_all(view.current().map(|(_, member)| member.rest())).await;
    }
}

#[async_trait]
impl Directories for FileEngine {
    async fn states(&self) -> Result<Vec<Directory>> {
        self.members.directories().await
    }

    fn url(&self) -> String {
        self.members.url()
    }

    fn moving(&self) -> Option<Moving> {
        let changing = self.members.view().is_changing();
        changing.then(|| self.members.moving.lock().clone().unwrap_or_default())
    }

    async fn add(&self, dir: &Path) -> Result<()> {
        let (members, dir) = (self.members.clone(), dir.to_path_buf());
        self.members.detached("add directory", async move { members.add_directory(&dir).await }).await
    }

    async fn drain(&self, dir: &Path) -> Result<()> {
        let (members, dir) = (self.members.clone(), dir.to_path_buf());
        self.members.detached("drain directory", async move { members.drain_directory(&dir).await }).await
    }

    async fn replace(&self, old: &Path, new: &Path) -> Result<()> {
        let (members, old, new) = (self.members.clone(), old.to_path_buf(), new.to_path_buf());
        let replaced = async move { members.replace_directory(&old, &new).await };
        self.members.detached("replace directory", replaced).await
    }

    async fn cancel(&self) -> Result<()> {
        let members = self.members.clone();
        self.members.detached("cancel change", async move { members.cancel_change().await }).await
    }

    async fn step(&self) -> Result<Step> {
        self.members.step().await
    }
}
