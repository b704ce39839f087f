//! Chunks of the journal: being filled, waiting, and kept until they are durable.

use crate::arena::{ArenaSlice, ArenaWriter, Rest};
use crate::domains::{JournalSeed, RecordKey};
use crate::gate::Gate;
use bytes::Bytes;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use stonefold_format::chunk::{self, CHUNK_ALIGN, CHUNK_HEADER};
use stonefold_format::record::{self, PAYLOAD_HEADER};
use stonefold_types::{AlignedBuf, Error, Result};

/// A chunk takes records until it has this many bytes, or until the append before it is done. One append is under way at a time, and a medium
/// takes a long one in parts side by side: with 256 KiB each write of a mebibyte was one by itself, and eight in flight
/// were as slow as one after the other (0.44 of qemu-nbd on raw; 0.53 so).
const CHUNK_BYTES_SOFT: usize = 4 << 20;

/// Where a record was put.
pub(crate) struct Appended {
    pub(crate) lsn: u64,
    /// Opens when the record is handed over.
    pub(crate) handed: Arc<Gate>,
}

/// What is appended and not durable.
pub(super) struct Queue {
    /// Stands in every chunk; see [`record`].
    pub(super) seed: [u8; 32],
    pub(super) next_lsn: u64,
    pub(super) next_seq: u64,
    pub(super) filling: Option<Chunk>,
    pub(super) full: VecDeque<Chunk>,
    /// Where the next chunk is built.
    pub(super) rest: Option<Rest>,
    /// Nothing is taken any more.
    pub(super) failed: Option<Error>,
    /// The journal's medium failed, and another has not taken its place yet.
    pub(super) broken: Option<Error>,
    /// Media that failed since the last sync that succeeded.
    pub(super) failures: u32,
    /// Opens when the newest chunk there is is handed over.
    pub(super) newest: Arc<Gate>,
    /// Of chunks not yet trimmed: sequence number, and the lsn after their last record. Oldest first.
    pub(super) written: VecDeque<(u64, u64)>,
    /// Chunks below this number may be forgotten.
    pub(super) trim_below: u64,
    /// Chunks that the medium was given and that are not durable, oldest first, without a gap.
    pub(super) kept: VecDeque<Arc<Kept>>,
}

pub(super) struct Chunk {
    pub(super) arena: ArenaWriter,
    pub(super) records: u32,
    pub(super) handed: Arc<Gate>,
    /// What is to be sealed.
    pub(super) sealed: Vec<Sealed>,
}

/// A record to be sealed.
pub(super) struct Sealed {
    /// Its bytes in the chunk.
    pub(super) at: Range<usize>,
    pub(super) lsn: u64,
    pub(super) key: Arc<RecordKey>,
}

/// A chunk that was given to the medium, in the clear: should that fail it is written anew elsewhere.
pub(super) struct Kept {
    /// The lsn after its last record.
    pub(super) end: u64,
    pub(super) handed: Arc<Gate>,
    /// Without the padding.
    len: usize,
    records: u32,
    /// Header, payload, padding; the header is not always filled in.
    clear: Bytes,
    sealed: Vec<Sealed>,
}

impl Queue {
    pub(super) fn new(seed: [u8; 32], first_lsn: u64) -> Self {
        Queue {
            seed,
            next_lsn: first_lsn,
            next_seq: 0,
            filling: None,
            full: VecDeque::new(),
            rest: None,
            failed: None,
            broken: None,
            failures: 0,
            newest: Arc::default(),
            written: VecDeque::new(),
            trim_below: 0,
            kept: VecDeque::new(),
        }
    }

    /// The chunk being filled, which gets nothing more.
    pub(super) fn end_chunk(&mut self) -> Option<Chunk> {
        let mut chunk = self.filling.take()?;
        self.rest = Some(chunk.arena.split_rest());
        Some(chunk)
    }

    /// Room for a record of `bytes`, or for `count` records that take as much together, in the chunk being filled.
    pub(super) fn begin_record(&mut self, bytes: usize, count: u32) -> Result<(Appended, &mut Chunk)> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.filling.as_ref().is_some_and(|chunk| !chunk.arena.has_room(bytes)) {
            let full = self.end_chunk();
            self.full.extend(full);
        }
        let lsn = self.next_lsn;
        self.next_lsn += u64::from(count);
        let (newest, seed, rest) = (&mut self.newest, &self.seed, &mut self.rest);
        let chunk = self.filling.get_or_insert_with(|| {
            let chunk = Chunk::new(rest.take(), bytes, lsn, seed);
            *newest = chunk.handed.clone();
            chunk
        });
        chunk.records += count;
        Ok((Appended { lsn, handed: chunk.handed.clone() }, chunk))
    }
}

impl Chunk {
    fn new(rest: Option<Rest>, bytes: usize, first_lsn: u64, seed: &[u8; 32]) -> Self {
        let needed = CHUNK_HEADER + PAYLOAD_HEADER + bytes;
        let mut arena = ArenaWriter::new(rest, needed, CHUNK_BYTES_SOFT, CHUNK_HEADER);
        arena.push(&record::payload_header(first_lsn, seed));
        Chunk { arena, records: 0, handed: Arc::default(), sealed: Vec::new() }
    }

    /// A record's data, from the chunk's byte `from` on.
    pub(super) fn slice(&self, from: usize, bytes: usize) -> ArenaSlice {
        self.arena.slice(from, bytes)
    }

    /// The chunk as it is appended to a journal as number `seq`, and as it is kept; `end` is the lsn after its last record.
    pub(super) fn complete(self, id: &JournalSeed, seq: u64, durable_below: u64, end: u64) -> (Bytes, Kept) {
        let (len, records, handed, sealed) = (self.arena.len(), self.records, self.handed, self.sealed);
        let padded = len.next_multiple_of(CHUNK_ALIGN);
        if sealed.is_empty() {
            // Not copied: what is kept is what is appended.
            let header = chunk::seal(self.arena.payload(), id.incarnation, seq, records, durable_below);
            let clear = self.arena.finish(&header, padded);
            return (clear.clone(), Kept { end, handed, len, records, clear, sealed });
        }
        let clear = self.arena.finish(&[0; CHUNK_HEADER], padded);
        let kept = Kept { end, handed, len, records, clear, sealed };
        (kept.written_anew(id, seq, durable_below), kept)
    }
}

impl Kept {
    /// A copy of the chunk as it is appended to a journal as number `seq`.
    pub(super) fn written_anew(&self, id: &JournalSeed, seq: u64, durable_below: u64) -> Bytes {
        let mut copy = AlignedBuf::stale(self.clear.len());
        copy.copy_from_slice(&self.clear);
        for Sealed { at, lsn, key } in &self.sealed {
            record::seal(&mut copy[at.clone()], *lsn, &key.of_journal(id));
        }
        let payload = &copy[CHUNK_HEADER..self.len];
        let header = chunk::seal(payload, id.incarnation, seq, self.records, durable_below);
        copy[..CHUNK_HEADER].copy_from_slice(&header);
        copy.freeze()
    }
}
