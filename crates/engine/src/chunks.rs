//! What every engine must know of a journal's chunks: what may come next when writing and when reading.

use crate::JournalId;
use bytes::Bytes;
use stonefold_format::chunk::{CHUNK_ALIGN, CHUNK_BYTES_MAX, ChunkHeader};
use stonefold_types::{Error, Kind, Result};

/// Refuses to append anything but the chunk that comes next; its checksum is its writer's business.
pub fn check_next(chunk: &[u8], id: JournalId, seq: u64) -> Result<()> {
    let header = ChunkHeader::peek(chunk).filter(|h| h.padded_len() == chunk.len());
    let good = header.is_some_and(|h| h.incarnation == id.0 && h.seq == seq);
    if good && chunk.len() % CHUNK_ALIGN == 0 && chunk.len() <= CHUNK_BYTES_MAX {
        return Ok(());
    }
    let found = header.map_or("no chunk".into(), |h| {
        format!("chunk {} of journal {} ({} bytes)", h.seq, JournalId(h.incarnation), chunk.len())
    });
    Err(Error::new(Kind::Invalid, format!("chunk {seq} of journal {id} was expected, but this is {found}")))
}

/// Decides, chunk by chunk, how far a replay may go.
pub struct Replay {
    id: JournalId,
    next_seq: u64,
    ended: bool,
}

impl Replay {
    /// `first_seq` is the number of the first chunk that is kept; those before it were trimmed.
    pub fn new(id: JournalId, first_seq: u64) -> Self {
        Replay { id, next_seq: first_seq, ended: false }
    }

    /// The chunk, without anything behind its padding, when it is the next valid one. The replay's owner decides
    /// whether to look elsewhere for the one that was expected.
    pub fn accept(&mut self, bytes: Bytes) -> Option<Bytes> {
        let header = if self.ended { None } else { ChunkHeader::verify(&bytes).ok() };
        let header = header.filter(|h| {
            h.incarnation == self.id.0 && h.seq == self.next_seq && h.padded_len() <= bytes.len()
        })?;
        self.next_seq = header.seq + 1;
        Some(bytes.slice(..header.padded_len()))
    }

    /// Accepts nothing any more.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Looks at what lies behind the end: a sound chunk of this journal that vouches for the one that is missing shows
    /// that the medium has taken it, not a crash, and that what was made durable would be lost.
    pub fn check_beyond(&self, bytes: &[u8]) -> Result<()> {
        let missing = self.next_seq;
        let header = ChunkHeader::verify(bytes).ok().filter(|h| h.incarnation == self.id.0);
        match header {
            Some(beyond) if beyond.durable_below > missing => {
                let what = format!(
                    "chunk {missing} of journal {} is damaged, and writes that were flushed lie in it and behind it",
                    self.id
                );
                Err(Error::new(Kind::Corrupt, what)
                    .remedy("restore the journal's files from another copy; nothing was changed"))
            }
            _ => Ok(()),
        }
    }
}
