//! The reading end of a journal in files.
//!
//! The files are made durable first. Then they are read in the order of their numbers: within a file chunk follows chunk;
//! where the next one is not there, it can only be at the beginning of the next file; where it is not there
//! either, the journal ends. Files before a gap in the numbers were trimmed, and a crash brought them back.
//!
//! Where a file has several replicas a chunk is taken from any that has it whole, and written, durably, to those that
//! have not, before it is given out: what was served from it cannot be lost with one directory.

use super::durable::sync_file;
use super::member::{Member, SharedFile, file_error};
use super::members::Members;
use super::planted;
use super::replica::FileNumber;
use super::view::View;
use crate::chunks::Replay;
use crate::{JournalId, JournalReader};
use async_trait::async_trait;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use stonefold_format::chunk::{CHUNK_BYTES_MAX, ChunkHeader};
use stonefold_types::{AlignedBuf, Error, Kind, Result};

/// Bytes read at once where chunks are short.
const WINDOW_BYTES: usize = 1 << 20;

/// The reading end.
pub(super) struct FileReader {
    members: Arc<Members>,
    replay: Replay,
    /// The file being read, first, and those behind it; of each all replicas.
    files: VecDeque<Vec<ReplayFile>>,
    at: u64,
}

struct ReplayFile {
    seat: usize,
    member: Arc<Member>,
    file: SharedFile,
    path: PathBuf,
    /// What was read of it last, and from where.
    window: (u64, Bytes),
}

/// Opens a journal that nobody writes any more.
pub(super) async fn open(members: &Arc<Members>, id: JournalId) -> Result<FileReader> {
    let view = members.view();
    let files = files_of(&view, id)
        .await?
        .ok_or_else(|| Error::new(Kind::NotFound, format!("journal {id} does not exist")))?;
    let first_seq = files.keys().next().map_or(0, |first| first.first_seq);
    let mut opened = VecDeque::new();
    for (number, seats) in files {
        let mut replicas = Vec::new();
        let mut failed = None;
        for seat in seats {
            match ReplayFile::open(seat, view.member(seat), id, number).await {
                Ok(replica) => replicas.push(replica),
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if replicas.is_empty() => return Err(error),
            Some(error) => tracing::warn!(%error, "a copy of a journal's file cannot be opened, another can"),
            None => {}
        }
        opened.push_back(replicas);
    }
    Ok(FileReader { members: members.clone(), replay: Replay::new(id, first_seq), files: opened, at: 0 })
}

/// The files of a journal that were kept, and the seats of the members that have them; `None`: nobody knows it.
pub(super) async fn files_of(view: &View, id: JournalId) -> Result<Option<BTreeMap<FileNumber, Vec<usize>>>> {
    let mut found: Option<BTreeMap<FileNumber, Vec<usize>>> = None;
    for (seat, member) in view.current() {
        let (by, folder) = (member.clone(), member.layout.journal(id));
        let listed = member.io.blocking(move || -> Result<Option<Vec<FileNumber>>> {
            let failed = |e| file_error("opening journal", &folder, e);
            let entries = match fs::read_dir(&folder) {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
                other => other.map_err(failed)?,
            };
            let mut numbers = Vec::new();
            for entry in entries {
                let name = entry.map_err(failed)?.file_name();
                numbers.extend(name.to_str().and_then(FileNumber::parse));
            }
            by.sync_folder_now(&folder)?;
            Ok(Some(numbers))
        });
        if let Some(numbers) = listed.await? {
            let found = found.get_or_insert_default();
            numbers.into_iter().for_each(|number| found.entry(number).or_default().push(seat));
        }
    }
    Ok(found.map(|mut files| {
        let kept = kept(files.keys().map(|file| file.number).collect());
        files.retain(|file, _| kept.contains(&file.number));
        files
    }))
}

/// The numbers behind the last gap, in order.
fn kept(mut numbers: Vec<u64>) -> Vec<u64> {
    numbers.sort_unstable();
    let after_gap = numbers.windows(2).rposition(|pair| pair[1] != pair[0] + 1).map_or(0, |at| at + 1);
    numbers.split_off(after_gap)
}

impl ReplayFile {
    async fn open(
        seat: usize,
        member: &Arc<Member>,
        id: JournalId,
        number: FileNumber,
    ) -> Result<ReplayFile> {
        let (by, path) = (member.clone(), member.layout.journal(id).join(number.name()));
        let at = path.clone();
        let opened = member.io.blocking(move || {
            let file = by.open_options().read(true).write(true).open(&at);
            let file = file.map_err(|e| file_error("opening", &at, e))?;
            if planted::is("replay-not-synced") {
                return Ok(file);
            }
            sync_file(&file).map_err(|e| file_error("making durable", &at, e))?;
            Ok::<_, Error>(file)
        });
        let file = Arc::new(opened.await?);
        Ok(ReplayFile { seat, member: member.clone(), file, path, window: (0, Bytes::new()) })
    }

    /// `len` bytes at a place, or what the file has of them.
    async fn read(&mut self, at: u64, len: usize) -> Result<Bytes> {
        let (begin, bytes) = &self.window;
        let skip = at.checked_sub(*begin).map_or(usize::MAX, |skip| skip as usize);
        if let Some(end) = skip.checked_add(len).filter(|end| *end <= bytes.len()) {
            return Ok(bytes.slice(skip..end));
        }
        let buf = AlignedBuf::zeroed(len.max(WINDOW_BYTES));
        let read = self.member.io.read_at(&self.file, buf, at).await;
        let bytes = read.map_err(|e| file_error("reading journal", &self.path, e))?.freeze();
        self.window = (at, bytes.clone());
        Ok(bytes.slice(..len.min(bytes.len())))
    }

    /// What lies at a place, if it looks like a chunk.
    async fn candidate(&mut self, at: u64) -> Result<Option<Bytes>> {
        let head = self.read(at, AlignedBuf::ALIGN).await?;
        let Some(header) = ChunkHeader::peek(&head).filter(|h| h.padded_len() <= CHUNK_BYTES_MAX) else {
            return Ok(None);
        };
        let chunk = self.read(at, header.padded_len()).await?;
        Ok((chunk.len() == header.padded_len()).then_some(chunk))
    }

    /// Looks at every chunk behind the end, wherever in the file it begins.
    async fn check_beyond(&mut self, replay: &Replay, mut at: u64) -> Result<()> {
        while !self.read(at, 1).await?.is_empty() {
            if let Some(chunk) = self.candidate(at).await? {
                replay.check_beyond(&chunk)?;
            }
            // What looks like a chunk may be a torn one that hides others.
            at += AlignedBuf::ALIGN as u64;
        }
        Ok(())
    }

    /// Makes this replica hold the chunk too, durably.
    async fn level(&mut self, at: u64, chunk: &Bytes) -> Result<()> {
        // One that cannot be read is written like one that is torn.
        if self.read(at, chunk.len()).await.is_ok_and(|found| found == chunk) {
            return Ok(());
        }
        self.window = (0, Bytes::new());
        self.member.check_sound()?;
        let aligned = AlignedBuf::copy_of(chunk).freeze();
        let written = async {
            self.member.io.write_all_at(&self.file, aligned, at).await?;
            self.member.io.datasync(&self.file).await
        };
        written.await.map_err(|e| file_error("making journals the same:", &self.path, e).with_kind(Kind::Io))
    }
}

impl FileReader {
    /// The chunk at the present place if it is the next one.
    async fn accept(&mut self) -> Result<Option<Bytes>> {
        let Some(replicas) = self.files.front_mut() else { return Ok(None) };
        let (mut accepted, mut failed, mut readable) = (None, None, false);
        for replica in replicas.iter_mut() {
            match replica.candidate(self.at).await {
                Ok(candidate) => {
                    readable = true;
                    accepted = candidate.and_then(|chunk| self.replay.accept(chunk));
                }
                Err(error) => failed = Some(error),
            }
            if accepted.is_some() {
                break;
            }
        }
        let Some(chunk) = accepted else {
            // An end that nobody could look at is no end.
            return match failed {
                Some(error) if !readable => Err(error),
                _ => Ok(None),
            };
        };
        if replicas.len() > 1 {
            let mut lost = Vec::new();
            for replica in replicas.iter_mut() {
                if let Err(error) = replica.level(self.at, &chunk).await {
                    self.members.without(replica.seat, error).await?;
                    lost.push(replica.seat);
                }
            }
            replicas.retain(|replica| !lost.contains(&replica.seat));
        }
        self.at += chunk.len() as u64;
        Ok(Some(chunk))
    }

    async fn check_beyond(&mut self) -> Result<()> {
        let mut at = self.at;
        for replicas in &mut self.files {
            let several = replicas.len() > 1;
            for replica in replicas {
                match replica.check_beyond(&self.replay, at).await {
                    Err(error) if several && error.kind() == Kind::Io => {
                        tracing::warn!(%error, "a copy of a journal's file cannot be read");
                    }
                    other => other?,
                }
            }
            at = 0;
        }
        Ok(())
    }
}

#[async_trait]
impl JournalReader for FileReader {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        if let Some(chunk) = self.accept().await? {
            return Ok(Some(chunk));
        }
        if self.at > 0 && self.files.len() > 1 {
            self.files.pop_front();
            self.at = 0;
            if let Some(chunk) = self.accept().await? {
                return Ok(Some(chunk));
            }
        }
        // The end is final: what lies beyond was never durable.
        self.replay.end();
        let checked = self.check_beyond().await;
        self.files.clear();
        checked.map(|()| None)
    }
}

#[cfg(test)]
mod tests {
    use super::kept;

    #[test]
    fn files_before_a_gap_were_trimmed() {
        assert_eq!(kept(vec![]), [0; 0]);
        assert_eq!(kept(vec![5, 3, 4]), [3, 4, 5]);
        assert_eq!(kept(vec![9, 0, 1, 8]), [8, 9]);
    }
}
