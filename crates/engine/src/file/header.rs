//! An object's file: what it says of itself, its parity, the first again, its bytes.
//!
//! ```text
//! +--------------+-------------------+--------------+------------- … -+
//! | header pages | P pages of parity | header again | payload         |
//! +--------------+-------------------+--------------+------------- … -+
//! header:
//!  0        8        16       24       32       40               56        56 + 4·n
//!  +--------+--------+--------+--------+--------+----------------+---- … ---+-- … zeros --+
//!  | check  | magic  | len    | sum    | count  | nonce          | page sums|             |
//!  +--------+--------+--------+--------+--------+----------------+---- … ---+-- … zeros --+
//! ```
//! All integers little-endian. `check` is XXH3-64 of all behind it up to the last page sum. `len` counts the payload, which ends
//! with the file. `sum` is XXH3-64 of the payload of a document; 0, none, for anything longer than
//! [`SUMMED_BYTES_MAX`]: a segment's frames carry their own sums. `count` numbers the puts of a
//! document; `nonce` makes every put of every object different, so that a version never comes back after a delete.
//! A page sum is the lower half of the XXH3-64 of a page: first those of the payload's n − P pages, then those of the parity's
//! ([`super::parity`]).
//!
//! How long header and parity are follows from the payload's length and never falls as that grows, so a file's length tells the payload's
//! without a read. Both come first for the same reason, and have pages of their own, so that the payload is aligned for direct I/O
//! exactly as its reader aligns it. The headers lie apart, so that a medium that loses some pages in a row does not lose both.

use super::parity::{PAGE, pages, parity_of, parity_pages, sums_of};
use crate::Version;
use stonefold_types::{AlignedBuf, Error, Kind, Result};
use xxhash_rust::xxh3::xxh3_64;

/// Longest payload with a sum of its own: the trait's bound for documents.
pub(super) const SUMMED_BYTES_MAX: usize = 1 << 20;

const MAGIC: &[u8; 8] = b"SFOBJCT1";
/// Bytes of a header before the page sums.
const FIXED_BYTES: usize = 56;

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

    /// The pages as they lie on disk.
    fn encode(&self, page_sums: &[u32]) -> Vec<u8> {
        let mut bytes = [0; 8].to_vec();
        bytes.extend(MAGIC);
        for field in [self.len, self.sum, self.count] {
            bytes.extend(field.to_le_bytes());
        }
        bytes.extend(self.nonce);
        page_sums.iter().for_each(|sum| bytes.extend(sum.to_le_bytes()));
        let check = xxh3_64(&bytes[8..]);
        bytes[..8].copy_from_slice(&check.to_le_bytes());
        bytes.resize(header_bytes(self.len), 0);
        bytes
    }

    /// Reads the header of a payload that is `len` bytes long by the length of its file, and its page sums; the words of the error
    /// leave out the object, which the caller knows.
    pub(super) fn decode(bytes: &[u8], len: u64) -> Result<(Header, Vec<u32>)> {
        let u64_at =
            |at: usize| bytes.get(at..at + 8).map(|b| u64::from_le_bytes(b.try_into().expect("8 bytes")));
        let header = || {
            let used = FIXED_BYTES + 4 * page_sums(len);
            let checked = bytes.get(8..used)?;
            let sound = checked.starts_with(MAGIC) && u64_at(0)? == xxh3_64(checked);
            let nonce = bytes.get(40..56)?.try_into().ok()?;
            let sums = bytes[FIXED_BYTES..used].chunks_exact(4);
            let sums = sums.map(|sum| u32::from_le_bytes(sum.try_into().expect("4 bytes"))).collect();
            let header = Header { len: u64_at(16)?, sum: u64_at(24)?, count: u64_at(32)?, nonce };
            (sound && header.len == len).then_some((header, sums))
        };
        header()
            .ok_or_else(|| Error::new(Kind::Corrupt, "its header is damaged, or it is not as long as it was"))
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

/// Checksums of pages in the header of a payload of so many bytes.
fn page_sums(len: u64) -> usize {
    pages(len) + parity_pages(len)
}

/// Bytes of each of the two headers before a payload of so many bytes.
pub(super) fn header_bytes(len: u64) -> usize {
    (FIXED_BYTES + 4 * page_sums(len)).next_multiple_of(PAGE)
}

/// Bytes before a payload of so many bytes.
pub(super) fn front_bytes(len: u64) -> usize {
    2 * header_bytes(len) + parity_pages(len) * PAGE
}

/// What comes before a payload.
pub(super) fn front(header: &Header, payload: &[u8]) -> AlignedBuf {
    let parity = parity_of(payload);
    let encoded = header.encode(&sums_of(payload, &parity));
    let mut front = AlignedBuf::zeroed(front_bytes(header.len));
    let again = front.len() - encoded.len();
    front[..encoded.len()].copy_from_slice(&encoded);
    front[encoded.len()..again].copy_from_slice(&parity);
    front[again..].copy_from_slice(&encoded);
    front
}

/// How long the payload in a file of so many bytes is; `None` for a length that no object's file has.
pub(super) fn payload_len(file_bytes: u64) -> Option<u64> {
    // The fewest whole pages of payload whose file is as long or longer.
    let (mut low, mut high) = (0, file_bytes / PAGE as u64);
    while low < high {
        let middle = u64::midpoint(low, high);
        let bytes = middle * PAGE as u64;
        if front_bytes(bytes) as u64 + bytes >= file_bytes { high = middle } else { low = middle + 1 }
    }
    let len = file_bytes.checked_sub(front_bytes(low * PAGE as u64) as u64)?;
    (len.div_ceil(PAGE as u64) == low).then_some(len)
}

fn sum_of(payload: &[u8]) -> u64 {
    // 0 says that there is no sum; losing one value of 2^64 costs nothing.
    if payload.len() > SUMMED_BYTES_MAX { 0 } else { xxh3_64(payload).max(1) }
}

#[cfg(test)]
mod tests {
    use super::super::tests::hex;
    use super::*;
    use stonefold_dice::Dice;

    #[test]
    fn reads_back_and_sees_damage() {
        let header = Header::of(b"payload", 3, [9; 16]);
        let mut page = header.encode(&[1, 2]);
        assert_eq!((page.len(), front_bytes(7)), (PAGE, 3 * PAGE));
        assert_eq!(Header::decode(&page, 7).unwrap(), (header.clone(), vec![1, 2]));
        assert!(Header::decode(&page, 8).is_err());
        assert!(header.verify(b"payload").is_ok());
        assert!(header.verify(b"paylaod").is_err());
        assert!(header.verify(b"payloa").is_err());
        for bit in 0..(FIXED_BYTES + 8) * 8 {
            page[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&page, 7).is_err(), "bit {bit}");
            page[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(Header::decode(&page[..20], 7).is_err());
        assert!(Header::decode(&page[..60], 7).is_err());
    }

    /// Noise under a right check is what it says, or refused: nothing is believed about lengths.
    #[test]
    fn noise_under_a_right_check_breaks_nothing() {
        let mut dice = Dice::new(Dice::seed("STONEFOLD_HEADER_SEED"));
        for _ in 0..20_000 {
            let len = if dice.one_in(2) { dice.below(9000) } else { dice.below(1 << 26) };
            let mut page = Header::of(b"payload", 3, [9; 16]).encode(&vec![7; page_sums(len)]);
            page.truncate(dice.index(page.len() + 1));
            for _ in 0..dice.below(4) {
                if page.len() > 8 {
                    let at = 8 + dice.index(page.len() - 8);
                    page[at] = dice.number() as u8;
                }
            }
            let used = (FIXED_BYTES + 4 * page_sums(len)).min(page.len());
            if used > 8 {
                let check = xxh3_64(&page[8..used]);
                page[..8].copy_from_slice(&check.to_le_bytes());
            }
            if let Ok((header, sums)) = Header::decode(&page, len) {
                assert_eq!((header.len, sums.len()), (len, page_sums(len)));
            }
        }
    }

    /// Kept bytes of version 1, which every later program reads.
    #[test]
    fn version_1_is_read() {
        let header = Header { len: 7, sum: 0x1122_3344_5566_7788, count: 3, nonce: [9; 16] };
        let kept = "d577d08514c8a42653464f424a435431070000000000000088776655443322110300000000000000090909090909090909090909090909090100000002000000";
        let used = FIXED_BYTES + 4 * page_sums(7);
        let written = header.encode(&[1, 2]);
        assert_eq!(hex(&written[..used]), kept);
        assert_eq!(Header::decode(&written, 7).unwrap(), (header, vec![1, 2]));
    }

    #[test]
    fn a_files_length_tells_the_payloads() {
        let near = |at: u64| at.saturating_sub(5000)..at + 5000;
        let lengths = near(0).chain(near(64 << 10)).chain(near(1 << 20)).chain(near(4 << 20));
        for len in lengths.chain((0..64 << 20).step_by(40_009)) {
            assert_eq!(payload_len(front_bytes(len) as u64 + len), Some(len), "{len}");
        }
        for file in [1, 4096, 8191, 3 * 4096, 4 * 4096 + 1] {
            assert_eq!(payload_len(file), None, "{file}");
        }
    }
}
