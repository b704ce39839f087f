//! The reading end of a journal in files.
//!
//! The files are made durable first. Then they are read in the order of their numbers: within a file chunk follows chunk;
//! where the next one is not there, it can only be at the beginning of the next file; where it is not there
//! either, the journal ends. Files before a gap in the numbers were trimmed, and a crash brought them back.

use super::member::{Member, SharedFile, file_error};
use crate::chunks::Replay;
use crate::{JournalId, JournalReader};
use async_trait::async_trait;
use bytes::Bytes;
use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use stonefold_format::chunk::{CHUNK_BYTES_MAX, ChunkHeader};
use stonefold_types::{AlignedBuf, Error, Kind, Result};

/// Bytes read at once where chunks are short.
const WINDOW_BYTES: usize = 1 << 20;

/// The reading end.
pub(super) struct FileReader {
    member: Arc<Member>,
    replay: Replay,
    /// The file being read, first, and those behind it.
    files: VecDeque<ReplayFile>,
    at: u64,
    /// What was read of the first file last, and from where.
    window: (u64, Bytes),
}

struct ReplayFile {
    file: SharedFile,
    path: PathBuf,
}

/// Opens a journal that nobody writes any more.
pub(super) async fn open(member: &Arc<Member>, id: JournalId) -> Result<FileReader> {
    let (by, folder) = (member.clone(), member.layout.journal(id));
    let opened = member.io.blocking(move || -> Result<VecDeque<ReplayFile>> {
        let failed = |e: std::io::Error| match e.kind() {
            std::io::ErrorKind::NotFound => {
                Error::new(Kind::NotFound, format!("journal {id} does not exist"))
            }
            _ => file_error("opening journal", &folder, e),
        };
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            numbers.extend(name.to_str().and_then(|name| name.parse::<u64>().ok()));
        }
        by.sync_folder_now(&folder)?;
        let open = |number| {
            let path = folder.join(format!("{number:08}"));
            let file =
                by.open_options().read(true).open(&path).map_err(|e| file_error("opening", &path, e))?;
            file.sync_data().map_err(|e| file_error("making durable", &path, e))?;
            Ok(ReplayFile { file: Arc::new(file), path })
        };
        kept(numbers).into_iter().map(open).collect()
    });
    let files = opened.await?;
    Ok(FileReader {
        member: member.clone(),
        replay: Replay::new(id),
        files,
        at: 0,
        window: (0, Bytes::new()),
    })
}

/// The numbers behind the last gap, in order.
fn kept(mut numbers: Vec<u64>) -> Vec<u64> {
    numbers.sort_unstable();
    let after_gap = numbers.windows(2).rposition(|pair| pair[1] != pair[0] + 1).map_or(0, |at| at + 1);
    numbers.split_off(after_gap)
}

impl FileReader {
    /// `len` bytes at the present place, or what the file has of them.
    async fn read(&mut self, len: usize) -> Result<Bytes> {
        let (begin, bytes) = &self.window;
        let skip = self.at.checked_sub(*begin).map_or(usize::MAX, |skip| skip as usize);
        if let Some(end) = skip.checked_add(len).filter(|end| *end <= bytes.len()) {
            return Ok(bytes.slice(skip..end));
        }
        let Some(first) = self.files.front() else { return Ok(Bytes::new()) };
        let buf = AlignedBuf::zeroed(len.max(WINDOW_BYTES));
        let read = self.member.io.read_at(&first.file, buf, self.at).await;
        let bytes = read.map_err(|e| file_error("reading journal", &first.path, e))?.freeze();
        self.window = (self.at, bytes.clone());
        Ok(bytes.slice(..len.min(bytes.len())))
    }

    /// What lies at the present place, if it looks like a chunk.
    async fn candidate(&mut self) -> Result<Option<Bytes>> {
        let head = self.read(AlignedBuf::ALIGN).await?;
        let Some(header) = ChunkHeader::peek(&head).filter(|h| h.padded_len() <= CHUNK_BYTES_MAX) else {
            return Ok(None);
        };
        let chunk = self.read(header.padded_len()).await?;
        Ok((chunk.len() == header.padded_len()).then_some(chunk))
    }

    /// Looks at every chunk behind the end, wherever in the files it begins.
    async fn check_beyond(&mut self) -> Result<()> {
        while !self.files.is_empty() {
            while !self.read(1).await?.is_empty() {
                let found = self.candidate().await?;
                if let Some(chunk) = &found {
                    self.replay.check_beyond(chunk)?;
                }
                // What looks like a chunk may be a torn one that hides others.
                self.at += AlignedBuf::ALIGN as u64;
            }
            self.files.pop_front();
            self.at = 0;
            self.window = (0, Bytes::new());
        }
        Ok(())
    }

    /// The chunk at the present place if it is the next one.
    async fn accept(&mut self) -> Result<Option<Bytes>> {
        let accepted = self.candidate().await?.and_then(|chunk| self.replay.accept(chunk));
        self.at += accepted.as_ref().map_or(0, |chunk| chunk.len() as u64);
        Ok(accepted)
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
            self.window = (0, Bytes::new());
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
