//! The records of a journal: what is in a chunk's payload.
//!
//! ```text
//! payload = first lsn 8 · seed 32 · record …          records are numbered from first lsn on
//! record  = kind 1 · 0 (1) · domain 2 · key version 4 · disk id 8 · lease epoch 8 · then by kind:
//!   1 write     block 8 · blocks 8 · data (blocks × 4 KiB)
//!   2 zero      block 8 · blocks 8
//!   3 mark      snapshot id 8 · created 8 · size 8 · name text
//!   4 unmark    snapshot id 8
//!   5 resize    size 8
//!   6 sealed    block 8 · blocks 8 · data (blocks × 4 KiB), sealed · tag 16
//!   7 lock      snapshot id 8 · until 8
//! ```
//! A *lsn* numbers every record of a pool's gateway in the order in which they took effect, across journals.
//! *Lease epoch*: that of the disk's [lease](crate::head::Lease) when the record was made. A replay skips records of another
//! epoch than the head's: who was fenced off can append, and changes nothing by it.
//! A mark of several disks is several records in one chunk, which is whole or absent: one instant.
//! A write's data is taken by reference, so that a group commit copies it once.
//!
//! *Domain* and *key version* are 0 but for a sealed write. Its key is derived from that version of the domain's key and from
//! `seed`, randomness that all chunks of a session share and those of no other have, and the journal's incarnation ([`crate::seal`]); the position is the record's
//! lsn, and bound to it are the 40 bytes before the data.

use crate::bounds::{disk_size, epoch, extent, lsn};
use crate::seal::{SealKey, TAG_BYTES};
use crate::wire::{Reader, Writer};
use stonefold_types::{BLOCK_BYTES, Name, Result};

/// Bytes of a write or a zero record before its data.
pub const EXTENT_HEADER: usize = 40;
/// Bytes of the payload before the first record.
pub const PAYLOAD_HEADER: usize = 40;

/// A disk in the hands of one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leased {
    /// Its id.
    pub disk: u64,
    /// The epoch of its lease.
    pub epoch: u64,
}

/// One change to one disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Which disk, and whose.
    pub of: Leased,
    /// What happened to it.
    pub change: Change<'a>,
}

/// What happened to a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// Whole blocks were written.
    Write {
        /// The first.
        block: u64,
        /// Their contents.
        data: &'a [u8],
    },
    /// Whole blocks were written, to a disk of a sealed domain.
    Sealed(SealedWrite<'a>),
    /// Blocks became zeros.
    Zero {
        /// The first.
        block: u64,
        /// How many.
        blocks: u64,
    },
    /// A snapshot was taken here.
    Mark {
        /// Unique in its disk.
        snapshot: u64,
        /// Nanoseconds since 1970.
        created: u64,
        /// The disk's size.
        size_bytes: u64,
        /// The snapshot's name.
        name: Name,
    },
    /// A snapshot was removed.
    Unmark {
        /// Its id.
        snapshot: u64,
    },
    /// A snapshot was locked.
    Lock {
        /// Its id.
        snapshot: u64,
        /// Nanoseconds since 1970, by trusted time.
        until: u64,
    },
    /// The disk has a new size.
    Resize {
        /// In bytes.
        size_bytes: u64,
    },
}

/// A write whose data is sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedWrite<'a> {
    /// The first block.
    pub block: u64,
    /// How many.
    pub blocks: u64,
    /// The disk's domain.
    pub domain: u16,
    /// The version of its key.
    pub key_version: u32,
    /// Data and tag.
    pub sealed: &'a [u8],
}

impl SealedWrite<'_> {
    /// The data; `None` unless it is what was sealed for this disk under this number.
    pub fn open(&self, of: Leased, lsn: u64, key: &SealKey) -> Option<Vec<u8>> {
        key.open(lsn, &self.header(of), self.sealed)
    }

    fn header(&self, of: Leased) -> [u8; EXTENT_HEADER] {
        sealed_header(of, self.block, self.blocks, (self.domain, self.key_version))
    }
}

/// The header of a sealed write by a domain's key of a version; its data follows, then its tag.
pub fn sealed_header(of: Leased, block: u64, blocks: u64, key: (u16, u32)) -> [u8; EXTENT_HEADER] {
    let mut header = extent_header(of, true, block, blocks);
    header[0] = 6;
    header[2..4].copy_from_slice(&key.0.to_le_bytes());
    header[4..8].copy_from_slice(&key.1.to_le_bytes());
    header
}

/// Seals the data of a whole record that begins with a [`sealed_header`], and puts its tag at the end.
pub fn seal(record: &mut [u8], lsn: u64, key: &SealKey) {
    let (header, rest) = record.split_at_mut(EXTENT_HEADER);
    let (data, tag) = rest.split_at_mut(rest.len() - TAG_BYTES);
    tag.copy_from_slice(&key.seal(lsn, header, data));
}

/// The front of a chunk's payload.
pub fn payload_header(first_lsn: u64, seed: &[u8; 32]) -> [u8; PAYLOAD_HEADER] {
    let mut header = [0; PAYLOAD_HEADER];
    header[..8].copy_from_slice(&first_lsn.to_le_bytes());
    header[8..].copy_from_slice(seed);
    header
}

/// The header of a write or zero record; a write's data follows it.
pub fn extent_header(of: Leased, write: bool, block: u64, blocks: u64) -> [u8; EXTENT_HEADER] {
    let mut header = [0; EXTENT_HEADER];
    header[0] = if write { 1 } else { 2 };
    header[8..16].copy_from_slice(&of.disk.to_le_bytes());
    header[16..24].copy_from_slice(&of.epoch.to_le_bytes());
    header[24..32].copy_from_slice(&block.to_le_bytes());
    header[32..40].copy_from_slice(&blocks.to_le_bytes());
    header
}

impl Record<'_> {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match &self.change {
            Change::Write { block, data } => {
                let blocks = (data.len() / BLOCK_BYTES) as u64;
                out.extend_from_slice(&extent_header(self.of, true, *block, blocks));
                out.extend_from_slice(data);
            }
            Change::Sealed(write) => {
                out.extend_from_slice(&write.header(self.of));
                out.extend_from_slice(write.sealed);
            }
            Change::Zero { block, blocks } => {
                out.extend_from_slice(&extent_header(self.of, false, *block, *blocks));
            }
            Change::Mark { snapshot, created, size_bytes, name } => {
                self.begin(3, out);
                out.u64(*snapshot);
                out.u64(*created);
                out.u64(*size_bytes);
                out.text(name.as_str());
            }
            Change::Unmark { snapshot } => {
                self.begin(4, out);
                out.u64(*snapshot);
            }
            Change::Lock { snapshot, until } => {
                self.begin(7, out);
                out.u64(*snapshot);
                out.u64(*until);
            }
            Change::Resize { size_bytes } => {
                self.begin(5, out);
                out.u64(*size_bytes);
            }
        }
    }

    fn begin(&self, kind: u8, out: &mut Vec<u8>) {
        out.put(&[kind, 0, 0, 0, 0, 0, 0, 0]);
        out.u64(self.of.disk);
        out.u64(self.of.epoch);
    }
}

/// The payload of a chunk.
pub struct Payload<'a> {
    /// The number of its first record.
    pub first_lsn: u64,
    /// What the journal's keys are derived with.
    pub seed: [u8; 32],
    /// Its records. Ends at the first that is malformed, with an error: a chunk's checksum has already been verified, so that
    /// is damage no crash makes.
    pub records: Records<'a>,
}

/// Reads the front of a payload.
pub fn decode(payload: &[u8]) -> Result<Payload<'_>> {
    let mut reader = Reader::new(payload, "a journal chunk");
    let first_lsn = lsn(&mut reader)?;
    let seed = reader.bytes(32)?.try_into().expect("as many as asked for");
    Ok(Payload { first_lsn, seed, records: Records { reader } })
}

/// See [`decode`].
pub struct Records<'a> {
    reader: Reader<'a>,
}

impl<'a> Records<'a> {
    fn read(&mut self) -> Result<Record<'a>> {
        let reader = &mut self.reader;
        let kind = reader.bytes(2)?[0];
        let (domain, key_version) = (reader.u16()?, reader.u32()?);
        let of = Leased { disk: reader.u64()?, epoch: reader.u64()? };
        let change = match kind {
            1 => {
                let (block, blocks) = extent(reader)?;
                Change::Write { block, data: data(reader, blocks, 0)? }
            }
            2 => {
                let (block, blocks) = extent(reader)?;
                Change::Zero { block, blocks }
            }
            3 => Change::Mark {
                snapshot: epoch(reader)?,
                created: reader.u64()?,
                size_bytes: disk_size(reader)?,
                name: Name::new(reader.text()?)?,
            },
            4 => Change::Unmark { snapshot: epoch(reader)? },
            5 => Change::Resize { size_bytes: disk_size(reader)? },
            6 => {
                let (block, blocks) = extent(reader)?;
                let sealed = data(reader, blocks, TAG_BYTES)?;
                Change::Sealed(SealedWrite { block, blocks, domain, key_version, sealed })
            }
            7 => Change::Lock { snapshot: epoch(reader)?, until: reader.u64()? },
            other => return Err(reader.malformed(&format!("record kind {other}"))),
        };
        Ok(Record { of, change })
    }
}

/// So many blocks, and what follows them.
fn data<'a>(reader: &mut Reader<'a>, blocks: u64, more: usize) -> Result<&'a [u8]> {
    let len = usize::try_from(blocks).ok().and_then(|n| n.checked_mul(BLOCK_BYTES)?.checked_add(more));
    let len = len.ok_or_else(|| reader.malformed("a write is too long"))?;
    reader.bytes(len)
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>>;
    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() { None } else { Some(self.read()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::Secret;
    use proptest::prelude::*;

    const OF: Leased = Leased { disk: 77, epoch: 6 };

    #[test]
    fn every_kind_comes_back() {
        let data = vec![5; 2 * BLOCK_BYTES];
        let name = Name::new("monday").unwrap();
        let records = [
            Change::Write { block: 3, data: &data },
            Change::Zero { block: 4, blocks: 1 << 30 },
            Change::Mark { snapshot: 1, created: 2, size_bytes: 3, name },
            Change::Unmark { snapshot: 1 },
            Change::Lock { snapshot: 1, until: 9 },
            Change::Resize { size_bytes: 8192 },
        ]
        .map(|change| Record { of: OF, change });
        let mut payload = payload_header(41, &[6; 32]).to_vec();
        records.iter().for_each(|r| r.encode(&mut payload));
        let back = decode(&payload).unwrap();
        assert_eq!((back.first_lsn, back.seed), (41, [6; 32]));
        assert_eq!(back.records.collect::<Result<Vec<_>>>().unwrap(), records);
    }

    /// Goal: a sealed write opens for its own disk, block and number, under its journal's key, and for nothing else.
    #[test]
    fn a_sealed_write_is_bound_to_its_place() {
        let key = |incarnation| SealKey::of_journal(&Secret::new(&[1; 32]), &[2; 32], &[incarnation; 16]);
        let mut record = sealed_header(OF, 5, 1, (3, 4)).to_vec();
        record.extend([9; BLOCK_BYTES + TAG_BYTES]);
        seal(&mut record, 41, &key(0));
        let payload = [&payload_header(41, &[2; 32])[..], &record].concat();
        let found = decode(&payload).unwrap().records.next().unwrap().unwrap();
        let Change::Sealed(write) = &found.change else { panic!("{found:?}") };
        assert_eq!((write.domain, write.key_version), (3, 4));
        assert_eq!(write.open(OF, 41, &key(0)).unwrap(), [9; BLOCK_BYTES]);
        assert!(write.open(Leased { disk: 78, ..OF }, 41, &key(0)).is_none(), "another disk");
        assert!(write.open(Leased { epoch: 7, ..OF }, 41, &key(0)).is_none(), "another owner");
        assert!(write.open(OF, 42, &key(0)).is_none(), "another record");
        assert!(write.open(OF, 41, &key(1)).is_none(), "another journal");
        let elsewhere = SealedWrite { block: 6, ..write.clone() };
        assert!(elsewhere.open(OF, 41, &key(0)).is_none(), "another block");
        let mut again = Vec::new();
        found.encode(&mut again);
        assert_eq!(again, record);
    }

    proptest! {
        #[test]
        fn noise_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(payload) = decode(&bytes) {
                let mut failed = false;
                for record in payload.records.take(300) {
                    failed |= record.is_err();
                    if failed { break; }
                }
            }
        }
    }
}
