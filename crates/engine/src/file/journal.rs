//! The writing end of a journal in files.
//!
//! Chunks lie one behind the other in files numbered without a gap; one that does not fit the rest of a file
//! begins the next. Files are of any length, whole pages, and durable under their name *before* the first chunk
//! goes into them, so that a sync is an fdatasync of the files written since the last one and nothing else.
//!
//! A file begins with a page of zeros until its first chunk is written: so the first chunk found in a journal's
//! oldest file is one that was written there, not one it held before it was recycled. Beyond that page, what it
//! held before has a lower sequence number or another incarnation.
//!
//! One append at a time; syncs and trims beside it. An append that fails or is dropped before it returned, and a
//! sync that fails, end the journal: what lies at its tail is not known any more. Only where there was no room for the
//! next file nothing was changed, and the journal goes on.

use super::member::{Member, SharedFile, file_error};
use super::spares::{self, Spares};
use crate::chunks;
use crate::{Journal, JournalId};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use stonefold_types::{AlignedBuf, Error, Kind, Result};

/// The writing end.
struct FileJournal {
    member: Arc<Member>,
    id: JournalId,
    folder: PathBuf,
    tail: tokio::sync::Mutex<Tail>,
    /// The file that is written, last, and those before it.
    files: Mutex<VecDeque<Arc<JournalFile>>>,
    failed: AtomicBool,
}

/// Where the next chunk goes.
struct Tail {
    file: Arc<JournalFile>,
    at: u64,
    next_seq: u64,
}

struct JournalFile {
    file: SharedFile,
    path: PathBuf,
    number: u64,
    bytes: u64,
    /// Bytes written, and how many of these are durable.
    written: AtomicU64,
    synced: AtomicU64,
    /// The sequence number behind its last chunk.
    end_seq: AtomicU64,
}

/// Makes a journal's folder and its first file, durably.
pub(super) async fn create(member: Arc<Member>, id: JournalId) -> Result<Arc<dyn Journal>> {
    member.check_sound()?;
    let folder = member.layout.journal(id);
    let path = folder.clone();
    let made = member.io.blocking(move || fs::create_dir(&path)).await;
    made.map_err(|e| match e.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Error::new(Kind::AlreadyExists, format!("journal {id} exists already"))
        }
        _ => file_error("making journal", &folder, e),
    })?;
    let first = match next_file(&member, &folder, 0, 0, true).await {
        Ok(first) => Arc::new(first),
        Err(error) => {
            // Nothing is left behind, as with any put.
            member.io.blocking(move || fs::remove_dir_all(folder)).await.ok();
            return Err(error);
        }
    };
    let by = member.clone();
    member.io.blocking(move || by.sync_folder_now(&by.layout.journals())).await?;
    Spares::prepare_ahead(&member);
    Ok(Arc::new(FileJournal {
        id,
        folder,
        tail: tokio::sync::Mutex::new(Tail { file: first.clone(), at: 0, next_seq: 0 }),
        files: Mutex::new(VecDeque::from([first])),
        failed: AtomicBool::new(false),
        member,
    }))
}

/// Brings a file with room for `min_bytes` into a journal's folder, durably: a spare, or else a new one.
async fn next_file(
    member: &Arc<Member>,
    folder: &Path,
    number: u64,
    min_bytes: u64,
    filled: bool,
) -> Result<JournalFile> {
    let (spare, file) = match member.spares.take(min_bytes) {
        Some(spare) => {
            let file = spares::reopen(member, &spare).await?;
            (spare, file)
        }
        None => {
            let spare = member.spares.to_make(min_bytes);
            let file = spares::make(member, &spare, filled).await?;
            (spare, file)
        }
    };
    let (by, folder, path) = (member.clone(), folder.to_path_buf(), folder.join(format!("{number:08}")));
    let (from, to) = (spare.path, path.clone());
    let moved = member.io.blocking(move || {
        fs::rename(&from, &to).map_err(|e| file_error("moving journal file", &from, e))?;
        by.sync_folder_now(&folder)
    });
    moved.await?;
    let (written, synced, end_seq) = Default::default();
    Ok(JournalFile { file, path, number, bytes: spare.bytes, written, synced, end_seq })
}

/// Forgets a journal: first its name, then its files, so that no crash leaves half of it.
pub(super) async fn remove(member: &Arc<Member>, id: JournalId) -> Result<()> {
    member.check_sound()?;
    let (by, folder) = (member.clone(), member.layout.journal(id));
    let gone = member.temporary_path();
    let removed = member.io.blocking(move || -> Result<()> {
        let failed = |e| file_error("removing journal", &folder, e);
        match fs::rename(&folder, &gone) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(failed)?,
        }
        by.sync_folder_now(&by.layout.journals())?;
        for entry in fs::read_dir(&gone).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let bytes = entry.metadata().map_err(failed)?.len();
            let given = by.spares.give(&entry.path(), bytes).map_err(failed)?;
            by.count_bytes(given, 0);
        }
        fs::remove_dir(&gone).map_err(failed)
    });
    removed.await
}

impl FileJournal {
    fn check_sound(&self) -> Result<()> {
        if self.failed.load(Ordering::Acquire) {
            let why = format!("journal {} has failed and takes nothing more", self.id);
            return Err(
                Error::new(Kind::Closed, why).remedy("write what is still in memory into a new journal")
            );
        }
        Ok(())
    }

    /// Makes room at the tail for one chunk.
    async fn make_room(&self, tail: &mut Tail, bytes: u64) -> Result<()> {
        if tail.at + bytes <= tail.file.bytes {
            return Ok(());
        }
        // A file too short for its first chunk is replaced: an empty one must never lie before one with chunks,
        // because a reader could not tell it from one whose chunks were lost.
        let empty = tail.at == 0;
        let number = if empty { tail.file.number } else { tail.file.number + 1 };
        let next = Arc::new(next_file(&self.member, &self.folder, number, bytes, false).await?);
        let mut files = self.files.lock();
        if empty {
            files.pop_back();
            self.member.count_bytes(tail.file.bytes, 0);
        }
        files.push_back(next.clone());
        drop(files);
        tail.file = next;
        tail.at = 0;
        Spares::prepare_ahead(&self.member);
        Ok(())
    }

    async fn append_at(&self, tail: &mut Tail, chunk: Bytes) -> Result<()> {
        chunks::check_next(&chunk, self.id, tail.next_seq)?;
        let len = chunk.len() as u64;
        self.make_room(tail, len).await?;
        let aligned = !self.member.is_direct() || chunk.as_ptr().align_offset(AlignedBuf::ALIGN) == 0;
        let chunk = if aligned { chunk } else { AlignedBuf::copy_of(&chunk).freeze() };
        let written = self.member.io.write_all_at(&tail.file.file, chunk, tail.at).await;
        // Not NoSpace, whatever the cause: part of it may have been written.
        written.map_err(|e| file_error("appending to journal", &tail.file.path, e).with_kind(Kind::Io))?;
        tail.at += len;
        tail.next_seq += 1;
        tail.file.end_seq.store(tail.next_seq, Ordering::Release);
        tail.file.written.store(tail.at, Ordering::Release);
        Ok(())
    }

    async fn sync_file(&self, file: &JournalFile) -> Result<()> {
        let written = file.written.load(Ordering::Acquire);
        if file.synced.load(Ordering::Acquire) >= written {
            return Ok(());
        }
        let synced = self.member.io.datasync(&file.file).await;
        synced.map_err(|e| file_error("making journal durable:", &file.path, e).with_kind(Kind::Io))?;
        file.synced.fetch_max(written, Ordering::AcqRel);
        Ok(())
    }
}

/// Ends the journal unless it is told that all went well.
struct Doubt<'a>(Option<&'a AtomicBool>);

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        if let Some(failed) = self.0 {
            failed.store(true, Ordering::Release);
        }
    }
}

#[async_trait]
impl Journal for FileJournal {
    async fn append(&self, chunk: Bytes) -> Result<()> {
        let mut tail = self.tail.lock().await;
        self.check_sound()?;
        let mut doubt = Doubt(Some(&self.failed));
        let appended = self.append_at(&mut tail, chunk).await;
        if appended.as_ref().err().is_none_or(|e| e.kind() == Kind::NoSpace) {
            doubt.0 = None;
        }
        appended
    }

    async fn sync(&self) -> Result<()> {
        self.check_sound()?;
        let files: Vec<_> = self.files.lock().iter().cloned().collect();
        let all = futures::future::try_join_all(files.iter().map(|file| self.sync_file(file))).await;
        if all.is_err() {
            self.failed.store(true, Ordering::Release);
        }
        all?;
        // Another sync may have failed meanwhile, and taken the kernel's only report of what both waited for.
        self.check_sound()
    }

    async fn trim(&self, below: u64) -> Result<()> {
        let gone: Vec<_> = {
            let mut files = self.files.lock();
            // Never the last: it is being written.
            let done = |f: &Arc<JournalFile>| f.end_seq.load(Ordering::Acquire) <= below;
            let count = files.iter().take(files.len() - 1).take_while(|f| done(f)).count();
            files.drain(..count).collect()
        };
        if gone.is_empty() {
            return Ok(());
        }
        let (member, folder) = (self.member.clone(), self.folder.clone());
        let trimmed = self.member.io.blocking(move || recycle(&member, &folder, &gone));
        trimmed.await
    }
}

/// Hands files back, oldest first, so that what a crash leaves of the journal has no gap behind what matters. Their
/// removal is durable before anyone may overwrite them.
fn recycle(member: &Member, folder: &Path, gone: &[Arc<JournalFile>]) -> Result<()> {
    let mut moved = Vec::new();
    for file in gone {
        let to = member.temporary_path();
        fs::rename(&file.path, &to).map_err(|e| file_error("trimming journal", &file.path, e))?;
        moved.push((to, file.bytes));
    }
    member.sync_folder_now(folder)?;
    for (path, bytes) in moved {
        let given = member.spares.give(&path, bytes).map_err(|e| file_error("trimming journal", &path, e))?;
        member.count_bytes(given, 0);
    }
    Ok(())
}
