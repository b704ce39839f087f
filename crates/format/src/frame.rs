//! A frame: one to eight contiguous blocks, or one map node, compressed and checksummed together.
//!
//! ```text
//!  0        8        12   13     14       16
//!  +--------+--------+----+------+--------+------------------+
//!  | check  | length | codec | blocks | 0 0 | payload …        |
//!  +--------+--------+----+------+--------+------------------+
//!           ^ covered by check ------------------------------^
//! ```
//! `length` counts header and payload. `check` is XXH3-64 of everything behind it, seeded with the frame's address
//! (segment and first slot): a frame that is sound but in the wrong place fails as surely as a flipped bit, so that a
//! stale hint is never believed. `codec`: 0 stored, 1 LZ4 block, 2 Zstandard frame. `blocks` counts 4 KiB blocks of content; content is always whole blocks.

use stonefold_types::{BLOCK_BYTES, Compression, Error, Kind, Result};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::entry::{FRAME_BLOCKS_MAX, SegmentId};

/// Bytes before the payload.
pub const FRAME_HEADER: usize = 16;

const CODEC_STORED: u8 = 0;
const CODEC_LZ4: u8 = 1;
const CODEC_ZSTD: u8 = 2;

/// Compression must save at least one part in this many, or the frame is stored raw: less would cost every reader
/// more time than it saves space.
const SAVING_MIN_PART: usize = 16;

/// Compresses `content` (one to eight whole blocks) and appends the frame to `out` with its address left open, to
/// be filled in by [`place`]. Returns the frame's length in bytes.
pub fn encode(content: &[u8], compression: Compression, out: &mut Vec<u8>) -> usize {
    let blocks = content.len() / BLOCK_BYTES;
    assert!(
        content.len() % BLOCK_BYTES == 0 && (1..=FRAME_BLOCKS_MAX).contains(&blocks),
        "{} bytes",
        content.len()
    );
    let start = out.len();
    out.resize(start + FRAME_HEADER, 0);
    let codec = encode_payload(content, compression, out);
    let length = out.len() - start;
    out[start + 8..start + 12].copy_from_slice(&(length as u32).to_le_bytes());
    out[start + 12] = codec;
    out[start + 13] = blocks as u8;
    length
}

fn encode_payload(content: &[u8], compression: Compression, out: &mut Vec<u8>) -> u8 {
    let start = out.len();
    let (codec, packed) = match compression {
        Compression::None => (CODEC_STORED, None),
        Compression::Lz4 => {
            out.resize(start + lz4_flex::block::get_maximum_output_size(content.len()), 0);
            (CODEC_LZ4, lz4_flex::block::compress_into(content, &mut out[start..]).ok())
        }
        Compression::Zstd(level) => {
            out.resize(start + zstd::zstd_safe::compress_bound(content.len()), 0);
            let level = i32::from(level);
            (CODEC_ZSTD, zstd::bulk::compress_to_buffer(content, &mut out[start..], level).ok())
        }
    };
    let enough = content.len() - content.len() / SAVING_MIN_PART;
    if let Some(packed) = packed.filter(|packed| *packed <= enough) {
        out.truncate(start + packed);
        return codec;
    }
    out.truncate(start);
    out.extend_from_slice(content);
    CODEC_STORED
}

/// Binds an encoded frame to its address and completes its check.
pub fn place(frame: &mut [u8], address: u64) {
    let check = xxh3_64_with_seed(&frame[8..], address);
    frame[..8].copy_from_slice(&check.to_le_bytes());
}

/// What a frame's header says, unverified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Header and payload, in bytes.
    pub length: usize,
    /// Blocks of content.
    pub blocks: usize,
}

impl FrameHeader {
    /// Reads the header; `None` when it cannot be one.
    pub fn peek(bytes: &[u8]) -> Option<FrameHeader> {
        let header: &[u8; FRAME_HEADER] = bytes.first_chunk()?;
        let length = u32::from_le_bytes(header[8..12].try_into().expect("4 bytes")) as usize;
        let blocks = header[13] as usize;
        let sound = length >= FRAME_HEADER && (1..=FRAME_BLOCKS_MAX).contains(&blocks);
        sound.then_some(FrameHeader { length, blocks })
    }
}

/// Verifies the frame at the front of `bytes` against its address and returns its content. Fails with `Corrupt`.
pub fn decode(bytes: &[u8], address: u64) -> Result<Vec<u8>> {
    let (segment, slot) = (SegmentId(address >> 20), address & 0xf_ffff);
    let wrong =
        |why: &str| Error::new(Kind::Corrupt, format!("the frame at slot {slot} of segment {segment} {why}"));
    let header = FrameHeader::peek(bytes).ok_or_else(|| wrong("has no valid header"))?;
    let frame = bytes.get(..header.length).ok_or_else(|| wrong("is cut short"))?;
    if xxh3_64_with_seed(&frame[8..], address).to_le_bytes() != frame[..8] {
        return Err(wrong("fails its checksum"));
    }
    let payload = &frame[FRAME_HEADER..];
    let size = header.blocks * BLOCK_BYTES;
    match frame[12] {
        CODEC_STORED if payload.len() == size => Ok(payload.to_vec()),
        CODEC_LZ4 => match lz4_flex::block::decompress(payload, size) {
            Ok(content) if content.len() == size => Ok(content),
            _ => Err(wrong("does not decompress to its size")),
        },
        CODEC_ZSTD => match zstd::bulk::decompress(payload, size) {
            Ok(content) if content.len() == size => Ok(content),
            _ => Err(wrong("does not decompress to its size")),
        },
        codec => Err(wrong(&format!("has codec {codec} and {} bytes", payload.len()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn content() -> impl Strategy<Value = Vec<u8>> {
        (1usize..=8, any::<u64>(), any::<bool>()).prop_map(|(blocks, seed, random)| {
            let mut state = seed | 1;
            (0..blocks * BLOCK_BYTES)
                .map(|i| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    if random || i % 3 == 0 { (state >> 56) as u8 } else { 7 }
                })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn comes_back_only_at_its_own_address(content in content(), address: u64, codec in 0usize..3, flip: prop::sample::Index) {
            let mut out = vec![0xee; 5];
            let compression = [Compression::None, Compression::Lz4, Compression::Zstd(3)][codec];
            let length = encode(&content, compression, &mut out);
            let frame = &mut out[5..];
            prop_assert_eq!(frame.len(), length);
            prop_assert!(length <= content.len() + FRAME_HEADER);
            place(frame, address);
            prop_assert_eq!(decode(frame, address).unwrap(), content);
            prop_assert!(decode(frame, address ^ 1).is_err(), "another address");
            let bit = flip.index(length * 8);
            frame[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(decode(frame, address).is_err(), "a flipped bit");
        }

        #[test]
        fn noise_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300), address: u64) {
            prop_assert!(decode(&bytes, address).is_err());
        }
    }
}
