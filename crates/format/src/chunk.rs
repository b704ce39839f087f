//! A journal chunk: one group commit.
//!
//! ```text
//!  0        8        16                32       40       44       48       56
//!  +--------+--------+-----------------+--------+--------+--------+--------+-----------+---------+
//!  | check  | magic  | incarnation     | seq    | len    | records| durable| payload … | zeros … |
//!  +--------+--------+-----------------+--------+--------+--------+--------+-----------+---------+
//!                                                                          ^ CHUNK_HEADER
//!                                                                                      ^ len     ^ next 4 KiB boundary
//! ```
//! All integers little-endian. `check` is XXH3-64 of everything from `magic` to `len` bytes, header included;
//! it comes first so that one call covers the rest. `len` counts header and payload; the chunk is padded with zeros to a
//! whole number of 4 KiB, so that it can be written directly and a torn neighbour never shares its sector.
//! `incarnation` and `seq` make a stale chunk in a recycled file, or one of another journal, visible:
//! a journal's chunks are numbered from 0 without a gap. `durable`: every chunk with a lower number was durable when this one was
//! sealed, so that a replay which stops before it knows that the medium, not a crash, has taken something. `records` counts the records in the payload
//! (drawn in [`crate::record`]).

use stonefold_types::{AlignedBuf, Error, Kind, Result};
use xxhash_rust::xxh3::Xxh3Default;

/// Bytes before the payload.
pub const CHUNK_HEADER: usize = 56;
/// Chunks are padded to this, in bytes.
pub const CHUNK_ALIGN: usize = 4096;
/// The longest chunk, header and padding included: one request of 32 MiB and its record fit.
pub const CHUNK_BYTES_MAX: usize = 40 << 20;

const MAGIC: [u8; 8] = *b"SFJCHNK1";

/// What a chunk says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    /// The journal it belongs to.
    pub incarnation: [u8; 16],
    /// Its place in that journal.
    pub seq: u64,
    /// Header and payload, in bytes, without the padding.
    pub len: usize,
    /// Records in the payload.
    pub records: u32,
    /// Chunks with a lower number were durable when this one was sealed.
    pub durable_below: u64,
}

impl ChunkHeader {
    /// Bytes the chunk occupies with its padding.
    pub fn padded_len(&self) -> usize {
        self.len.next_multiple_of(CHUNK_ALIGN)
    }

    /// Reads a header without checking the sum over the payload: enough to know how much to read.
    /// `None` when this is not the beginning of a chunk.
    pub fn peek(bytes: &[u8]) -> Option<ChunkHeader> {
        let header: &[u8; CHUNK_HEADER] = bytes.first_chunk()?;
        let u32_at = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("4 bytes"));
        let len = u32_at(40) as usize;
        if header[8..16] != MAGIC || !(CHUNK_HEADER..=CHUNK_BYTES_MAX).contains(&len) {
            return None;
        }
        Some(ChunkHeader {
            incarnation: header[16..32].try_into().expect("16 bytes"),
            seq: u64::from_le_bytes(header[32..40].try_into().expect("8 bytes")),
            len,
            records: u32_at(44),
            durable_below: u64::from_le_bytes(header[48..56].try_into().expect("8 bytes")),
        })
    }

    /// Reads and verifies a whole chunk; the payload is `bytes[CHUNK_HEADER..header.len]`.
    pub fn verify(bytes: &[u8]) -> Result<ChunkHeader> {
        let torn = || Error::new(Kind::Corrupt, "a journal chunk is torn or not one");
        let header = Self::peek(bytes).ok_or_else(torn)?;
        if bytes.len() < header.len
            || checksum(&bytes[..CHUNK_HEADER], &bytes[CHUNK_HEADER..header.len]) != bytes[..8]
        {
            return Err(torn());
        }
        Ok(header)
    }
}

/// The header of a chunk around `payload`, complete with its check.
pub fn seal(
    payload: &[u8],
    incarnation: [u8; 16],
    seq: u64,
    records: u32,
    durable_below: u64,
) -> [u8; CHUNK_HEADER] {
    let len = CHUNK_HEADER + payload.len();
    assert!(len <= CHUNK_BYTES_MAX, "a chunk of {len} bytes");
    let mut header = [0; CHUNK_HEADER];
    header[8..16].copy_from_slice(&MAGIC);
    header[16..32].copy_from_slice(&incarnation);
    header[32..40].copy_from_slice(&seq.to_le_bytes());
    header[40..44].copy_from_slice(&(len as u32).to_le_bytes());
    header[44..48].copy_from_slice(&records.to_le_bytes());
    header[48..56].copy_from_slice(&durable_below.to_le_bytes());
    let check = checksum(&header, payload);
    header[..8].copy_from_slice(&check);
    header
}

fn checksum(header: &[u8], payload: &[u8]) -> [u8; 8] {
    let mut hash = Xxh3Default::new();
    hash.update(&header[8..]);
    hash.update(payload);
    hash.digest().to_le_bytes()
}

/// A sealed and padded chunk around `payload`, which vouches for no other.
pub fn encode(incarnation: [u8; 16], seq: u64, records: u32, payload: &[u8]) -> AlignedBuf {
    encode_after(incarnation, seq, records, 0, payload)
}

/// A sealed and padded chunk around `payload`, behind chunks of which those below `durable_below` are durable.
pub fn encode_after(
    incarnation: [u8; 16],
    seq: u64,
    records: u32,
    durable_below: u64,
    payload: &[u8],
) -> AlignedBuf {
    let len = CHUNK_HEADER + payload.len();
    let mut buf = AlignedBuf::zeroed(len.next_multiple_of(CHUNK_ALIGN));
    buf[CHUNK_HEADER..len].copy_from_slice(payload);
    buf[..CHUNK_HEADER].copy_from_slice(&seal(payload, incarnation, seq, records, durable_below));
    buf
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// What is sealed verifies, and any single flipped bit is seen.
        #[test]
        fn a_flipped_bit_is_seen(payload in proptest::collection::vec(any::<u8>(), 0..5000), seq: u64, flip: prop::sample::Index) {
            let mut chunk = encode_after([9; 16], seq, 3, seq / 2, &payload);
            let header = ChunkHeader::verify(&chunk).unwrap();
            prop_assert_eq!((header.seq, header.records, header.durable_below), (seq, 3, seq / 2));
            prop_assert_eq!(header.len, CHUNK_HEADER + payload.len());
            prop_assert_eq!(&chunk[CHUNK_HEADER..header.len], &payload[..]);
            let bit = flip.index(header.len * 8);
            chunk[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(ChunkHeader::verify(&chunk).is_err());
        }

        /// Arbitrary bytes never panic.
        #[test]
        fn noise_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(ChunkHeader::verify(&bytes).is_err());
        }
    }

    #[test]
    fn a_cut_chunk_is_refused() {
        let chunk = encode([1; 16], 7, 1, &[5; 6000]);
        assert!(ChunkHeader::verify(&chunk[..6000]).is_err());
        assert_eq!(chunk.len(), 8192);
    }
}
