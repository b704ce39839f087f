//! The records of a journal: what is in a chunk's payload.
//!
//! ```text
//! payload = first lsn 8 · record …          records are numbered from first lsn on
//! record  = kind 1 · 0 (7) · disk id 8 · then by kind:
//!   1 write     block 8 · blocks 8 · data (blocks × 4 KiB)
//!   2 zero      block 8 · blocks 8
//!   3 mark      snapshot id 8 · created 8 · size 8 · name text
//!   4 unmark    snapshot id 8
//!   5 resize    size 8
//! ```
//! A *lsn* numbers every record of a pool's gateway in the order in which they took effect, across journals.
//! A mark of several disks is several records in one chunk, which is whole or absent: one instant.
//! A write's data is taken by reference, so that a group commit copies it once.

use crate::wire::{Reader, Writer};
use stonefold_types::{BLOCK_BYTES, Name, Result};

/// Bytes of a write or a zero record before its data.
pub const EXTENT_HEADER: usize = 32;
/// Bytes of the payload before the first record.
pub const PAYLOAD_HEADER: usize = 8;

/// One change to one disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The disk's id.
    pub disk: u64,
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
    /// The disk has a new size.
    Resize {
        /// In bytes.
        size_bytes: u64,
    },
}

/// The header of a write or zero record; a write's data follows it.
pub fn extent_header(disk: u64, write: bool, block: u64, blocks: u64) -> [u8; EXTENT_HEADER] {
    let mut header = [0; EXTENT_HEADER];
    header[0] = if write { 1 } else { 2 };
    header[8..16].copy_from_slice(&disk.to_le_bytes());
    header[16..24].copy_from_slice(&block.to_le_bytes());
    header[24..32].copy_from_slice(&blocks.to_le_bytes());
    header
}

impl Record<'_> {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match &self.change {
            Change::Write { block, data } => {
                let blocks = (data.len() / BLOCK_BYTES) as u64;
                out.extend_from_slice(&extent_header(self.disk, true, *block, blocks));
                out.extend_from_slice(data);
            }
            Change::Zero { block, blocks } => {
                out.extend_from_slice(&extent_header(self.disk, false, *block, *blocks));
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
            Change::Resize { size_bytes } => {
                self.begin(5, out);
                out.u64(*size_bytes);
            }
        }
    }

    fn begin(&self, kind: u8, out: &mut Vec<u8>) {
        out.put(&[kind, 0, 0, 0, 0, 0, 0, 0]);
        out.u64(self.disk);
    }
}

/// The payload of a chunk: the number of its first record, and an iterator over them. It ends at the first that is malformed,
/// with an error: a chunk's checksum has already been verified, so that is damage no crash makes.
pub fn decode(payload: &[u8]) -> Result<(u64, Records<'_>)> {
    let mut reader = Reader::new(payload, "a journal chunk");
    let first = reader.u64()?;
    Ok((first, Records { reader }))
}

/// See [`decode`].
pub struct Records<'a> {
    reader: Reader<'a>,
}

impl<'a> Records<'a> {
    fn read(&mut self) -> Result<Record<'a>> {
        let reader = &mut self.reader;
        let kind = reader.bytes(8)?[0];
        let disk = reader.u64()?;
        let change = match kind {
            1 => {
                let (block, blocks) = (reader.u64()?, reader.u64()?);
                let len = usize::try_from(blocks).ok().and_then(|n| n.checked_mul(BLOCK_BYTES));
                let len = len.ok_or_else(|| reader.malformed("a write is too long"))?;
                Change::Write { block, data: reader.bytes(len)? }
            }
            2 => Change::Zero { block: reader.u64()?, blocks: reader.u64()? },
            3 => Change::Mark {
                snapshot: reader.u64()?,
                created: reader.u64()?,
                size_bytes: reader.u64()?,
                name: Name::new(reader.text()?)?,
            },
            4 => Change::Unmark { snapshot: reader.u64()? },
            5 => Change::Resize { size_bytes: reader.u64()? },
            other => return Err(reader.malformed(&format!("record kind {other}"))),
        };
        Ok(Record { disk, change })
    }
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
    use proptest::prelude::*;

    #[test]
    fn every_kind_comes_back() {
        let data = vec![5; 2 * BLOCK_BYTES];
        let name = Name::new("monday").unwrap();
        let records = [
            Change::Write { block: 3, data: &data },
            Change::Zero { block: 4, blocks: 1 << 30 },
            Change::Mark { snapshot: 1, created: 2, size_bytes: 3, name },
            Change::Unmark { snapshot: 1 },
            Change::Resize { size_bytes: 8192 },
        ]
        .map(|change| Record { disk: 77, change });
        let mut payload = 41u64.to_le_bytes().to_vec();
        records.iter().for_each(|r| r.encode(&mut payload));
        let (first, back) = decode(&payload).unwrap();
        assert_eq!(first, 41);
        assert_eq!(back.collect::<Result<Vec<_>>>().unwrap(), records);
    }

    proptest! {
        #[test]
        fn noise_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok((_, records)) = decode(&bytes) {
                let mut failed = false;
                for record in records.take(300) {
                    failed |= record.is_err();
                    if failed { break; }
                }
            }
        }
    }
}
