//! The header page of an object's file.
//!
//! ```text
//!  0        8        16       24       32       40               56
//!  +--------+--------+--------+--------+--------+----------------+-- … zeros --+ 4096
//!  | check  | magic  | len    | sum    | count  | nonce          |             | payload …
//!  +--------+--------+--------+--------+--------+----------------+-------------+
//! ```
//! All integers little-endian. `check` is XXH3-64 of bytes 8..56. `len` counts the payload, which follows and ends
//! with the file. `sum` is XXH3-64 of the payload of a document; 0, none, for anything longer than
//! [`SUMMED_BYTES_MAX`]: a segment's frames carry their own sums. `count` numbers the puts of a
//! document; `nonce` makes every put of every object different, so that a version never comes back after a delete.
//!
//! The header has a page of its own, so that the payload is aligned for direct I/O exactly as its reader
//! aligns it; and it comes first, so that the file's length tells the payload's without a read.

use crate::Version;
use stonefold_types::{AlignedBuf, Error, Kind, Result};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes before the payload.
pub(super) const HEADER_BYTES: usize = AlignedBuf::ALIGN;
/// Longest payload with a sum of its own: the trait's bound for documents.
pub(super) const SUMMED_BYTES_MAX: usize = 1 << 20;

const MAGIC: &[u8; 8] = b"SFOBJCT1";
const USED_BYTES: usize = 56;

/// What an object's file says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) len: u64,
    pub(super) sum: u64,
    pub(super) count: u64,
    pub(super) nonce: [u8; 16],
}

impl Header {
    /// The header of the put number `count` of these bytes.
    pub(super) fn of(payload: &[u8], count: u64, nonce: [u8; 16]) -> Self {
        Header { len: payload.len() as u64, sum: sum_of(payload), count, nonce }
    }

    /// The page as it lies on disk.
    pub(super) fn encode(&self) -> AlignedBuf {
        let mut page = AlignedBuf::zeroed(HEADER_BYTES);
        page[8..16].copy_from_slice(MAGIC);
        page[16..24].copy_from_slice(&self.len.to_le_bytes());
        page[24..32].copy_from_slice(&self.sum.to_le_bytes());
        page[32..40].copy_from_slice(&self.count.to_le_bytes());
        page[40..56].copy_from_slice(&self.nonce);
        let check = xxh3_64(&page[8..USED_BYTES]);
        page[..8].copy_from_slice(&check.to_le_bytes());
        page
    }

    /// Reads a header; the words of the error leave out the object, which the caller knows.
    pub(super) fn decode(page: &[u8]) -> Result<Header> {
        let u64_at =
            |at: usize| page.get(at..at + 8).map(|b| u64::from_le_bytes(b.try_into().expect("8 bytes")));
        let header = || {
            let sound = page.get(8..16)? == MAGIC && u64_at(0)? == xxh3_64(page.get(8..USED_BYTES)?);
            let nonce = page.get(40..56)?.try_into().ok()?;
            sound.then_some(Header { len: u64_at(16)?, sum: u64_at(24)?, count: u64_at(32)?, nonce })
        };
        header().ok_or_else(|| Error::new(Kind::Corrupt, "its header is damaged"))
    }

    /// Whether this is the payload that was put.
    pub(super) fn verify(&self, payload: &[u8]) -> Result<()> {
        if self.len != payload.len() as u64 {
            let why = format!("{} bytes of it are there, {} were put", payload.len(), self.len);
            return Err(Error::new(Kind::Corrupt, why));
        }
        if self.sum != 0 && self.sum != sum_of(payload) {
            return Err(Error::new(Kind::Corrupt, "its checksum does not match"));
        }
        Ok(())
    }

    pub(super) fn version(&self) -> Version {
        Version(format!("{}-{:032x}", self.count, u128::from_be_bytes(self.nonce)).into())
    }
}

fn sum_of(payload: &[u8]) -> u64 {
    // 0 says that there is no sum; losing one value of 2^64 costs nothing.
    if payload.len() > SUMMED_BYTES_MAX { 0 } else { xxh3_64(payload).max(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_and_sees_damage() {
        let header = Header::of(b"payload", 3, [9; 16]);
        let mut page = header.encode();
        assert_eq!(Header::decode(&page).unwrap(), header);
        assert!(header.verify(b"payload").is_ok());
        assert!(header.verify(b"paylaod").is_err());
        assert!(header.verify(b"payloa").is_err());
        for bit in 0..USED_BYTES * 8 {
            page[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&page).is_err(), "bit {bit}");
            page[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(Header::decode(&page[..20]).is_err());
    }
}
