//! One file of a journal, on each of the members that have it.

use super::member::{Member, SharedFile, file_error};
use super::members::Members;
use super::planted;
use super::private;
use super::spares;
use super::view::View;
use crate::JournalId;
use bytes::Bytes;
use futures::future::join_all;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use stonefold_types::{AlignedBuf, Error, Kind, Result};

/// A file of a journal.
pub(super) struct JournalFile {
    pub(super) number: FileNumber,
    /// Bytes that fit into every replica.
    pub(super) bytes: u64,
    /// The sequence number behind its last chunk.
    pub(super) end_seq: AtomicU64,
    /// Bytes written to every replica that counts.
    written: AtomicU64,
    replicas: Vec<Replica>,
}

/// One copy of it.
struct Replica {
    seat: usize,
    member: Arc<Member>,
    file: SharedFile,
    path: PathBuf,
    bytes: u64,
    synced: AtomicU64,
    /// A sync has failed: the kernel may have dropped what it could not write, and tells nobody else.
    failed: AtomicBool,
}

impl JournalFile {
    /// Brings file `number` with room for `min_bytes` into a journal's folders, durably, on members whose turn it is.
    pub(super) async fn make(
        members: &Arc<Members>,
        id: JournalId,
        number: FileNumber,
        min_bytes: u64,
        filled: bool,
    ) -> Result<JournalFile> {
        loop {
            let view = members.view();
            let seats = view.journal_targets(id, number.number);
            let made = seats
                .iter()
                .map(|seat| Replica::make(*seat, view.member(*seat), id, number, min_bytes, filled));
            let (mut replicas, mut failed) = (Vec::new(), None);
            for (seat, made) in seats.iter().zip(join_all(made).await) {
                match made {
                    Ok(replica) => replicas.push(replica),
                    Err(error) => failed = Some((*seat, error)),
                }
            }
            let Some((seat, error)) = failed else {
                let bytes = replicas.iter().map(|replica| replica.bytes).min().unwrap_or(0);
                let (end_seq, written) = Default::default();
                return Ok(JournalFile { number, bytes, end_seq, written, replicas });
            };
            join_all(replicas.iter().map(Replica::unmake)).await;
            members.without(seat, error).await?;
        }
    }

    fn standing<'a>(&'a self, view: &'a View) -> impl Iterator<Item = &'a Replica> {
        self.replicas.iter().filter(|replica| view.is_current(replica.seat))
    }

    /// Whether a member that has it was dropped or is to leave, and another could have it instead.
    pub(super) fn is_short(&self, view: &View) -> bool {
        self.standing(view).filter(|replica| view.receives(replica.seat)).count() < view.copies_now()
    }

    /// Writes a chunk at the same place of every replica.
    pub(super) async fn write(&self, members: &Arc<Members>, chunk: Bytes, at: u64) -> Result<()> {
        let view = members.view();
        let unaligned = chunk.as_ptr().align_offset(AlignedBuf::ALIGN) != 0;
        let copy = unaligned && self.standing(&view).any(|replica| replica.member.is_direct());
        let chunk = if copy { AlignedBuf::copy_of(&chunk).freeze() } else { chunk };
        let len = chunk.len() as u64;
        let writes = self.standing(&view).map(|replica| replica.write(chunk.clone(), at));
        let results = join_all(writes).await;
        let failures: Vec<(usize, Error)> = self
            .standing(&view)
            .zip(results)
            .filter_map(|(replica, result)| Some((replica.seat, result.err()?)))
            .collect();
        if failures.len() == self.standing(&view).count() {
            return Err(self.none_left(failures));
        }
        for (seat, error) in failures {
            members.without(seat, error).await?;
        }
        self.written.store(at + len, Ordering::Release);
        Ok(())
    }

    /// Makes what is written durable, on every replica.
    pub(super) async fn sync(&self, members: &Arc<Members>) -> Result<()> {
        let written = self.written.load(Ordering::Acquire);
        let view = members.view();
        let answering = if planted::is("one-journal-will-do") { 1 } else { usize::MAX };
        let syncs = self.standing(&view).take(answering).map(|replica| replica.sync(written));
        let results = join_all(syncs).await;
        let failures: Vec<(usize, Error)> = self
            .standing(&view)
            .zip(results)
            .filter_map(|(replica, result)| Some((replica.seat, result.err()?)))
            .collect();
        if failures.len() == self.standing(&view).count() && written > 0 {
            return Err(self.none_left(failures));
        }
        for (seat, error) in failures {
            members.without(seat, error).await?;
        }
        Ok(())
    }

    /// For tests: how much of each replica is known to be durable, in bytes.
    #[cfg(test)]
    pub(super) fn synced(&self) -> Vec<u64> {
        self.replicas.iter().map(|replica| replica.synced.load(Ordering::Acquire)).collect()
    }

    fn none_left(&self, failures: Vec<(usize, Error)>) -> Error {
        let why = || {
            Error::new(
                Kind::Io,
                format!("no directory has file {} of the journal any more", self.number.number),
            )
        };
        failures.into_iter().next().map_or_else(why, |(_, error)| error)
    }

    /// Makes it no part of the journal any more, on every member that is current; nothing is durable yet.
    pub(super) fn removals(&self, view: &View) -> Vec<Removal> {
        self.standing(view)
            .map(|replica| Removal {
                member: replica.member.clone(),
                path: replica.path.clone(),
                bytes: replica.bytes,
            })
            .collect()
    }

    /// An empty file makes way for another of its number, which has taken its names where both lie on a member.
    pub(super) async fn give_way(&self, view: &View, to: &JournalFile) {
        for replica in self.standing(view) {
            if to.replicas.iter().any(|other| other.seat == replica.seat) {
                replica.member.count_bytes(replica.bytes, 0);
            } else {
                // Should that not last, it is an empty copy, which a reader fills like one that is torn.
                replica.unmake().await;
            }
        }
    }
}

/// A replica that shall go.
pub(super) struct Removal {
    pub(super) member: Arc<Member>,
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
}

impl Replica {
    async fn make(
        seat: usize,
        member: &Arc<Member>,
        id: JournalId,
        number: FileNumber,
        min_bytes: u64,
        filled: bool,
    ) -> Result<Replica> {
        member.check_sound()?;
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
        let folder = member.layout.journal(id);
        let path = folder.join(number.name());
        let (by, from, to) = (member.clone(), spare.path, path.clone());
        let moved = member.io.blocking(move || {
            ensure_folder(&by, id)?;
            fs::rename(&from, &to).map_err(|e| file_error("moving journal file", &from, e))?;
            if planted::is("journal-file-not-synced") { Ok(()) } else { by.sync_folder_now(&folder) }
        });
        moved.await?;
        let (synced, failed) = Default::default();
        Ok(Replica { seat, member: member.clone(), file, path, bytes: spare.bytes, synced, failed })
    }

    /// Takes it out of its folder again; should that not last, it is an empty file that its successor replaces.
    async fn unmake(&self) {
        let path = self.path.clone();
        if self.member.io.blocking(move || fs::remove_file(path)).await.is_ok() {
            self.member.count_bytes(self.bytes, 0);
        }
    }

    async fn write(&self, chunk: Bytes, at: u64) -> Result<()> {
        self.member.check_sound()?;
        let written = self.member.io.write_all_at(&self.file, chunk, at).await;
        // Not NoSpace, whatever the cause: part of it may have been written.
        written.map_err(|e| file_error("appending to journal", &self.path, e).with_kind(Kind::Io))
    }

    async fn sync(&self, written: u64) -> Result<()> {
        self.member.check_sound()?;
        let failed = |e| file_error("making journal durable:", &self.path, e).with_kind(Kind::Io);
        if self.synced.load(Ordering::Acquire) < written && !planted::is("journal-not-synced") {
            if let Err(error) = self.member.io.datasync(&self.file).await {
                self.failed.store(true, Ordering::Release);
                return Err(failed(error));
            }
            self.synced.fetch_max(written, Ordering::AcqRel);
        }
        // Another sync may have failed meanwhile, and taken the kernel's only report of what both waited for.
        match self.failed.load(Ordering::Acquire) {
            true => Err(failed(std::io::Error::other("an earlier attempt failed"))),
            false => Ok(()),
        }
    }
}

/// Makes a journal's folder on a member durably, where it is not there: a directory may have come after the journal began.
pub(super) fn ensure_folder(member: &Member, id: JournalId) -> Result<()> {
    let folder = member.layout.journal(id);
    match private::make_folder(&folder) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(file_error("making journal", &folder, e)),
        Ok(()) => member.sync_folder_now(&member.layout.journals()),
    }
}

/// Which of a journal's files one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileNumber {
    /// In the order of their chunks, from 0 without a gap.
    pub(super) number: u64,
    /// The sequence number of its first chunk.
    pub(super) first_seq: u64,
}

impl FileNumber {
    /// Where a journal begins.
    pub(super) const FIRST: FileNumber = FileNumber { number: 0, first_seq: 0 };

    /// The file's name: `NUMBER-SEQ`. When a crash has spoilt its first chunk this is all that tells which one that was.
    pub(super) fn name(self) -> String {
        format!("{:08}-{}", self.number, self.first_seq)
    }

    pub(super) fn parse(name: &str) -> Option<Self> {
        let (number, first_seq) = name.split_once('-')?;
        Some(FileNumber { number: number.parse().ok()?, first_seq: first_seq.parse().ok()? })
    }
}

/// Hands files of one member back, oldest first, so that what a crash leaves of the journal has no gap behind what
/// matters. Their removal is durable before anyone may overwrite them.
pub(super) fn recycle(member: &Member, folder: &Path, gone: &[(PathBuf, u64)]) -> Result<()> {
    let mut moved = Vec::new();
    for (path, bytes) in gone {
        let to = member.temporary_path();
        fs::rename(path, &to).map_err(|e| file_error("trimming journal", path, e))?;
        moved.push((to, *bytes));
    }
    // No test would fail without this sync: where a rename happens or does not, as on the file systems that we know, a file with a
    // durable name in another folder has none here any more. It is for those that do not promise that.
    member.sync_folder_now(folder)?;
    for (path, bytes) in moved {
        let given = member.spares.give(&path, bytes).map_err(|e| file_error("trimming journal", &path, e))?;
        member.count_bytes(given, 0);
    }
    Ok(())
}
