//! The writing end of a journal in files.
//!
//! Chunks lie one behind the other in files numbered without a gap; one that does not fit the rest of a file
//! begins the next. Files are of any length, whole pages, and durable under their name *before* the first chunk
//! goes into them, so that a sync is an fdatasync of the files written since the last one and nothing else.
//! On several directories each file lies on as many as there are copies ([`super::replica`]), which take turns.
//!
//! A file begins with a page of zeros until its first chunk is written: so the first chunk found in a journal's
//! oldest file is one that was written there, not one it held before it was recycled. Beyond that page, what it
//! held before has a lower sequence number or another incarnation.
//!
//! One append at a time; syncs and trims beside it. An append that fails or is dropped before it returned, and a
//! sync that fails, end the journal: what lies at its tail is not known any more. Only where there was no room for the
//! next file nothing was changed, and the journal goes on; and where a member failed that could be spared, the others
//! have it all.

use super::member::{Member, file_error};
use super::members::Members;
use super::planted;
use super::private;
use super::replica::{FileNumber, JournalFile, recycle};
use super::spares::Spares;
use super::view::View;
use crate::chunks;
use crate::{Journal, JournalId};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use stonefold_types::{Error, Kind, Result};

/// The writing end.
pub(super) struct FileJournal {
    members: Arc<Members>,
    id: JournalId,
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

/// Makes a journal's folders and its first file, durably.
pub(super) async fn create(members: Arc<Members>, id: JournalId) -> Result<Arc<dyn Journal>> {
    let made = make_folders(&members, id).await?;
    let first = match JournalFile::make(&members, id, FileNumber::FIRST, 0, true).await {
        Ok(first) => Arc::new(first),
        Err(error) => {
            remove_folders(&made, id).await;
            return Err(error);
        }
    };
    let view = members.view();
    for (seat, member) in view.current() {
        let by = member.clone();
        let synced = member.io.blocking(move || match planted::is("journal-folder-not-synced") {
            true => Ok(()),
            false => by.sync_folder_now(&by.layout.journals()),
        });
        let synced = synced.await;
        if let Err(error) = synced {
            members.without(seat, error).await?;
        }
        Spares::prepare_ahead(member);
    }
    let journal = Arc::new(FileJournal {
        id,
        tail: tokio::sync::Mutex::new(Tail { file: first.clone(), at: 0, next_seq: 0 }),
        files: Mutex::new(VecDeque::from([first])),
        failed: AtomicBool::new(false),
        members: members.clone(),
    });
    let mut journals = members.journals.lock();
    journals.retain(|journal| journal.strong_count() > 0);
    journals.push(Arc::downgrade(&journal));
    Ok(journal)
}

/// Makes the folder on every member, any of which may get a file of it.
async fn make_folders(members: &Arc<Members>, id: JournalId) -> Result<Vec<Arc<Member>>> {
    let mut made = Vec::new();
    let view = members.view();
    for (seat, member) in view.current() {
        let folder = member.layout.journal(id);
        let path = folder.clone();
        let error = match member.check_sound() {
            Ok(()) => match member.io.blocking(move || private::make_folder(&path)).await {
                Ok(()) => {
                    made.push(member.clone());
                    continue;
                }
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                    Error::new(Kind::AlreadyExists, format!("journal {id} exists already"))
                }
                Err(e) => file_error("making journal", &folder, e),
            },
            Err(error) => error,
        };
        if let Err(error) = members.without(seat, error).await {
            remove_folders(&made, id).await;
            return Err(error);
        }
    }
    Ok(made)
}

/// Nothing is left behind by what failed, as with any put.
async fn remove_folders(made: &[Arc<Member>], id: JournalId) {
    for member in made {
        let folder = member.layout.journal(id);
        member.io.blocking(move || fs::remove_dir_all(folder)).await.ok();
    }
}

/// Forgets a journal: on each member first its name, then its files, so that no crash leaves half of it there.
pub(super) async fn remove(members: &Arc<Members>, id: JournalId) -> Result<()> {
    let view = members.view();
    for (seat, member) in view.current() {
        if let Err(error) = remove_from(member, id).await {
            members.without(seat, error).await?;
        }
    }
    Ok(())
}

pub(super) async fn remove_from(member: &Arc<Member>, id: JournalId) -> Result<()> {
    member.check_sound()?;
    let (by, folder) = (member.clone(), member.layout.journal(id));
    let gone = member.temporary_path();
    let removed = member.io.blocking(move || -> Result<()> {
        let failed = |e| file_error("removing journal", &folder, e);
        match fs::rename(&folder, &gone) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(failed)?,
        }
        if !planted::is("journal-removal-not-synced") {
            by.sync_folder_now(&by.layout.journals())?;
        }
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

/// The journals that exist.
pub(super) async fn list(view: &View) -> Result<Vec<JournalId>> {
    let mut ids = BTreeSet::new();
    for (_, member) in view.current() {
        ids.extend(member.journal_list().await?);
    }
    Ok(ids.into_iter().collect())
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
        // Once a member is dropped, or is to leave, the next chunks go where they have all their copies.
        let view = self.members.view();
        if tail.at + bytes <= tail.file.bytes && !tail.file.is_short(&view) {
            return Ok(());
        }
        // A file too short for its first chunk is replaced: an empty one must never lie before one with chunks,
        // because a reader could not tell it from one whose chunks were lost.
        let empty = tail.at == 0;
        let number = tail.file.number.number + u64::from(!empty);
        let number = FileNumber { number, first_seq: tail.next_seq };
        let next = Arc::new(JournalFile::make(&self.members, self.id, number, bytes, false).await?);
        {
            let mut files = self.files.lock();
            if empty {
                files.pop_back();
            }
            files.push_back(next.clone());
        }
        if empty {
            tail.file.give_way(&view, &next).await;
        }
        tail.file = next;
        tail.at = 0;
        let receiving = view.current().filter(|(seat, _)| view.receives(*seat));
        receiving.for_each(|(_, member)| Spares::prepare_ahead(member));
        Ok(())
    }

    /// Lets the next chunk go where it shall lie as things are now, and not where the last one lies.
    pub(super) async fn go_on_elsewhere(&self) -> Result<()> {
        let mut tail = self.tail.lock().await;
        if self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        self.make_room(&mut tail, 0).await
    }

    async fn append_at(&self, tail: &mut Tail, chunk: Bytes) -> Result<()> {
        chunks::check_next(&chunk, self.id, tail.next_seq)?;
        let len = chunk.len() as u64;
        self.make_room(tail, len).await?;
        tail.file.write(&self.members, chunk, tail.at).await?;
        tail.at += len;
        tail.next_seq += 1;
        tail.file.end_seq.store(tail.next_seq, Ordering::Release);
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
        let all = futures::future::try_join_all(files.iter().map(|file| file.sync(&self.members))).await;
        if all.is_err() {
            self.failed.store(true, Ordering::Release);
        }
        all?;
        // Another sync may have failed meanwhile.
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
        let view = self.members.view();
        let removals: Vec<_> = gone.iter().flat_map(|file| file.removals(&view)).collect();
        for (seat, member) in view.current() {
            let of_it = removals.iter().filter(|removal| Arc::ptr_eq(&removal.member, member));
            let gone: Vec<_> = of_it.map(|removal| (removal.path.clone(), removal.bytes)).collect();
            if gone.is_empty() {
                continue;
            }
            let (by, folder) = (member.clone(), member.layout.journal(self.id));
            let trimmed = member.io.blocking(move || recycle(&by, &folder, &gone)).await;
            if let Err(error) = trimmed {
                self.members.without(seat, error).await?;
            }
        }
        Ok(())
    }
}
