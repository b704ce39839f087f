//! A frame: one to eight contiguous blocks, or one map node, compressed, checksummed and, in a sealed domain, sealed together.
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
//! stale hint is never believed. `codec`: 0 stored, 1 LZ4 block, 2 Zstandard frame; plus 128 when the payload is sealed. `blocks`
//! counts 4 KiB blocks of content; content is always whole blocks.
//!
//! A *sealed* payload ends with a tag of 16 bytes ([`crate::seal`]); the key is that of the segment's form, the position is the first slot,
//! and bound to it are the frame's address (8) and the header from `length` on. `check` covers what is stored, sealed, so
//! that copies are verified and healed by whoever has no key.

use std::borrow::Cow;
use stonefold_types::{BLOCK_BYTES, Compression, Error, Kind, Result};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::entry::{FRAME_BLOCKS_MAX, SLOTS_MAX, SegmentId};
use crate::seal::{SealKey, TAG_BYTES};

/// Bytes before the payload.
pub const FRAME_HEADER: usize = 16;

const CODEC_STORED: u8 = 0;
const CODEC_LZ4: u8 = 1;
const CODEC_ZSTD: u8 = 2;
/// Added to the codec of a sealed payload.
const SEALED: u8 = 128;

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

/// Seals an encoded frame, behind which there is room for the tag, and places it.
pub fn seal_and_place(frame: &mut [u8], address: u64, key: &SealKey) {
    let length = frame.len() as u32;
    frame[8..12].copy_from_slice(&length.to_le_bytes());
    frame[12] |= SEALED;
    let bound = bound(frame, address);
    let (text, room) = frame[FRAME_HEADER..].split_at_mut(length as usize - FRAME_HEADER - TAG_BYTES);
    room.copy_from_slice(&key.seal(slot(address), &bound, text));
    place(frame, address);
}

fn slot(address: u64) -> u64 {
    address & u64::from(SLOTS_MAX - 1)
}

/// What a sealed payload is bound to.
fn bound(frame: &[u8], address: u64) -> [u8; 16] {
    let mut bound = [0; 16];
    bound[..8].copy_from_slice(&address.to_le_bytes());
    bound[8..].copy_from_slice(&frame[8..FRAME_HEADER]);
    bound
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

fn wrong(address: u64, why: &str) -> Error {
    let (segment, slot) = (SegmentId(address >> 20), slot(address));
    Error::new(Kind::Corrupt, format!("the frame at slot {slot} of segment {segment} {why}"))
}

/// Verifies the check of the frame at the front of `bytes` and returns what is stored of it, sealed or not. Needs no key.
/// Fails with `Corrupt`.
pub fn verify(bytes: &[u8], address: u64) -> Result<&[u8]> {
    let header = FrameHeader::peek(bytes).ok_or_else(|| wrong(address, "has no valid header"))?;
    let frame = bytes.get(..header.length).ok_or_else(|| wrong(address, "is cut short"))?;
    if xxh3_64_with_seed(&frame[8..], address).to_le_bytes() != frame[..8] {
        return Err(wrong(address, "fails its checksum"));
    }
    Ok(frame)
}

/// Whether the frame at the front of `bytes`, unverified, is sealed.
pub fn is_sealed(bytes: &[u8]) -> bool {
    bytes.get(12).is_some_and(|codec| codec & SEALED != 0)
}

/// The payload of a verified frame, opened. Fails with `WrongKey` when it is sealed and there is no key.
fn payload<'a>(frame: &'a [u8], address: u64, key: Option<&SealKey>) -> Result<Cow<'a, [u8]>> {
    let stored = &frame[FRAME_HEADER..];
    match (is_sealed(frame), key) {
        (false, None) => Ok(Cow::Borrowed(stored)),
        // A form is sealed whole, or not at all: whoever makes a checksum anew can clear a bit, too.
        (false, Some(_)) => Err(wrong(address, "is not sealed, as its segment is")),
        (true, None) => {
            Err(wrong(address, "is sealed, and there is no key for it").with_kind(Kind::WrongKey))
        }
        (true, Some(key)) => {
            let opened = key.open(slot(address), &bound(frame, address), stored);
            opened.map(Cow::Owned).ok_or_else(|| wrong(address, "is not what was sealed there"))
        }
    }
}

/// Verifies and opens the frame at the front of `bytes`, and returns it as [`encode`] made it: for whoever stores it elsewhere.
pub fn unsealed(bytes: &[u8], address: u64, key: Option<&SealKey>) -> Result<Vec<u8>> {
    let frame = verify(bytes, address)?;
    let payload = payload(frame, address, key)?;
    let mut out = [&frame[..FRAME_HEADER], &payload].concat();
    let length = out.len() as u32;
    out[8..12].copy_from_slice(&length.to_le_bytes());
    out[12] &= !SEALED;
    Ok(out)
}

/// Verifies the frame at the front of `bytes` against its address and returns its content. `key` is that of the segment's form, where it is
/// sealed. Fails with `Corrupt`, also when there is a key and the frame is not sealed, or with `WrongKey` when it is sealed and there is no key.
pub fn decode(bytes: &[u8], address: u64, key: Option<&SealKey>) -> Result<Vec<u8>> {
    let frame = verify(bytes, address)?;
    let payload = payload(frame, address, key)?;
    let size = usize::from(frame[13]) * BLOCK_BYTES;
    let whole = |content: Vec<u8>| (content.len() == size).then_some(content);
    let (codec, bytes) = (frame[12] & !SEALED, payload.len());
    let content = match codec {
        CODEC_STORED => whole(payload.into_owned()),
        CODEC_LZ4 => lz4_flex::block::decompress(&payload, size).ok().and_then(whole),
        CODEC_ZSTD => zstd::bulk::decompress(&payload, size).ok().and_then(whole),
        _ => None,
    };
    content.ok_or_else(|| {
        wrong(address, &format!("does not decompress to its size from codec {codec} and {bytes} bytes"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::Secret;
    use proptest::prelude::*;

    fn content() -> impl Strategy<Value = Vec<u8>> {
        (1usize..=8, any::<u64>(), any::<bool>()).prop_map(|(blocks, seed, random)| {
            let noise = stonefold_dice::noise(seed, blocks * BLOCK_BYTES).into_iter().enumerate();
            noise.map(|(i, byte)| if random || i % 3 == 0 { byte } else { 7 }).collect()
        })
    }

    fn key(generation: u8) -> SealKey {
        SealKey::of_segment(&Secret::new(&[1; 32]), &[2; 32], SegmentId(3), generation)
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
            prop_assert_eq!(decode(frame, address, None).unwrap(), content);
            prop_assert!(decode(frame, address ^ 1, None).is_err(), "another address");
            let bit = flip.index(length * 8);
            frame[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(decode(frame, address, None).is_err(), "a flipped bit");
        }

        /// Goal: a sealed frame opens at its own address under its form's key, also when whoever changed it made the checksum anew.
        /// *Past bug*: one that was not sealed at all was accepted in its place.
        #[test]
        fn sealed_it_opens_only_with_its_key(content in content(), address in 0u64..1 << 63, flip: prop::sample::Index) {
            let mut frame = Vec::new();
            encode(&content, Compression::Lz4, &mut frame);
            let plain = frame.clone();
            frame.extend([0; TAG_BYTES]);
            seal_and_place(&mut frame, address, &key(0));
            prop_assert!(is_sealed(&frame) && verify(&frame, address).is_ok());
            prop_assert!(frame.len() < crate::entry::FRAME_STORED_MAX);
            prop_assert_eq!(decode(&frame, address, Some(&key(0))).unwrap(), content);
            prop_assert_eq!(&unsealed(&frame, address, Some(&key(0))).unwrap()[8..], &plain[8..]);
            prop_assert_eq!(decode(&frame, address, None).unwrap_err().kind(), Kind::WrongKey);
            prop_assert_eq!(decode(&frame, address, Some(&key(1))).unwrap_err().kind(), Kind::Corrupt, "another form");
            let mut bare = plain.clone();
            place(&mut bare, address);
            prop_assert!(decode(&bare, address, Some(&key(0))).is_err(), "without its seal");
            prop_assert!(unsealed(&bare, address, Some(&key(0))).is_err(), "without its seal");
            let mut moved = frame.clone();
            place(&mut moved, address ^ 1 << 40);
            prop_assert!(decode(&moved, address ^ 1 << 40, Some(&key(0))).is_err(), "another segment");
            let bit = 64 + flip.index(frame.len() * 8 - 64);
            frame[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(verify(&frame, address).is_err(), "a flipped bit");
            place(&mut frame, address);
            prop_assert!(decode(&frame, address, Some(&key(0))).is_err(), "a flipped bit under a new checksum");
        }

        #[test]
        fn noise_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300), address: u64) {
            prop_assert!(decode(&bytes, address, Some(&key(0))).is_err());
        }
    }
}
