//! Reading a segment: what it says of itself at its two ends, and the index. Checksums are no proof of who wrote
//! something, so what they cover is bounded, too.

use super::{
    FOOTER_MAGIC, HEADER_MAGIC, INDEX_RECORD, IndexRecord, SAMPLE_RECORD, SEGMENT_FOOTER, SEGMENT_HEADER,
    SegmentKind,
};
use crate::entry::{
    FRAME_ALIGN, FRAME_BLOCKS_MAX, FRAME_STORED_MAX, SEGMENT_BYTES_MAX, SLOTS_MAX, SegmentId,
};
use crate::fingerprint::{FINGERPRINT_BYTES, Fingerprint};
use crate::frame::FRAME_HEADER;
use crate::seal::{SealKey, Secret};
use crate::wire::Reader;
use stonefold_types::{Error, Kind, Result};
use xxhash_rust::xxh3::xxh3_64;

/// What a segment's form says of itself at its beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    id: SegmentId,
    generation: u8,
    /// How long the object is.
    pub object_bytes: u64,
    /// What it holds.
    pub kind: SegmentKind,
    /// The domain its blocks are of.
    pub domain: u16,
    /// The version of the domain's key; `None` when the frames are not sealed.
    pub key_version: Option<u32>,
    seed: [u8; 32],
}

impl Header {
    /// Reads and verifies the header at the front of `bytes`, of segment `id`.
    pub fn decode(bytes: &[u8], id: SegmentId) -> Result<Header> {
        let wrong = |why: &str| Error::new(Kind::Corrupt, format!("the header of segment {id} {why}"));
        let bytes: &[u8; SEGMENT_HEADER] = bytes.first_chunk().ok_or_else(|| wrong("is cut short"))?;
        if xxh3_64(&bytes[8..]).to_le_bytes() != bytes[..8] {
            return Err(wrong("fails its checksum"));
        }
        let mut reader = Reader::new(&bytes[8..], "a segment's header");
        if reader.bytes(8)? != HEADER_MAGIC || reader.u64()? != id.0 {
            return Err(wrong("belongs elsewhere"));
        }
        let (generation, kind, domain) = (reader.u8()?, reader.u8()?, reader.u16()?);
        let kind = match kind {
            0 => SegmentKind::Data,
            1 => SegmentKind::Map,
            other => return Err(wrong(&format!("is of kind {other}"))),
        };
        let object_bytes = reader.u32()?.into();
        let seed = reader.bytes(32)?.try_into().expect("as many as asked for");
        let key_version = Some(reader.u32()?).filter(|version| *version > 0);
        Ok(Header { id, generation, kind, object_bytes, domain, key_version, seed })
    }

    /// What opens the frames, given the domain's key of that version.
    pub fn seal_key(&self, data: &Secret) -> SealKey {
        SealKey::of_segment(data, &self.seed, self.id, self.generation)
    }
}

/// What a segment says of itself at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    id: SegmentId,
    /// Where the index lies in the object.
    pub index_offset: u64,
    /// Frames.
    pub frames: u32,
    /// Blocks.
    pub slots: u32,
    /// As many as blocks, or none.
    pub fingerprints: u32,
    /// Fingerprints that are samples.
    pub samples: u32,
    index_check: u64,
    samples_check: u64,
}

impl Footer {
    /// Reads and verifies the footer at the end of `tail`, the last bytes of segment `id`.
    pub fn decode(tail: &[u8], id: SegmentId) -> Result<Footer> {
        let wrong = |why: &str| Error::new(Kind::Corrupt, format!("the footer of segment {id} {why}"));
        let bytes = tail.len().checked_sub(SEGMENT_FOOTER).map(|at| &tail[at..]);
        let bytes = bytes.ok_or_else(|| wrong("is cut short"))?;
        if xxh3_64(&bytes[8..]).to_le_bytes() != bytes[..8] {
            return Err(wrong("fails its checksum"));
        }
        let mut reader = Reader::new(&bytes[8..], "a segment's footer");
        if reader.bytes(8)? != FOOTER_MAGIC || reader.u64()? != id.0 {
            return Err(wrong("belongs elsewhere"));
        }
        let footer = Footer {
            id,
            index_offset: reader.u64()?,
            frames: reader.u32()?,
            slots: reader.u32()?,
            fingerprints: reader.u32()?,
            samples: reader.u32()?,
            index_check: reader.u64()?,
            samples_check: reader.u64()?,
        };
        let whole = footer.fingerprints == 0 || footer.fingerprints == footer.slots;
        let few = footer.slots <= SLOTS_MAX
            && footer.frames <= footer.slots
            && footer.samples <= footer.fingerprints
            && footer.index_offset <= SEGMENT_BYTES_MAX as u64;
        if whole && few { Ok(footer) } else { Err(wrong("contradicts itself")) }
    }

    /// Bytes of the index and the fingerprints behind it.
    pub fn index_bytes(&self) -> usize {
        self.frames as usize * INDEX_RECORD + self.fingerprints as usize * FINGERPRINT_BYTES
    }

    /// Bytes of samples and footer at the end of the object.
    pub fn tail_bytes(&self) -> usize {
        self.samples as usize * SAMPLE_RECORD + SEGMENT_FOOTER
    }

    /// Reads and verifies the samples: slots and their fingerprints. `tail` ends with the object and holds at least
    /// [`Footer::tail_bytes`].
    pub fn decode_samples(&self, tail: &[u8]) -> Result<Vec<(u32, Fingerprint)>> {
        let wrong =
            || Error::new(Kind::Corrupt, format!("the samples of segment {} fail their checksum", self.id));
        let start = tail.len().checked_sub(self.tail_bytes()).ok_or_else(wrong)?;
        let bytes = &tail[start..tail.len() - SEGMENT_FOOTER];
        if xxh3_64(bytes) != self.samples_check {
            return Err(wrong());
        }
        let mut reader = Reader::new(bytes, "a segment's samples");
        let mut sample = || {
            let slot = Some(reader.u32()?).filter(|slot| *slot < SLOTS_MAX);
            Ok((slot.ok_or_else(wrong)?, Fingerprint::decode(&reader.id()?)))
        };
        (0..self.samples).map(|_| sample()).collect()
    }

    /// Fails unless what the index says can be: frames that an entry can point at, in ascending order of their slots, none over
    /// another, all before the index.
    fn check_index(&self, records: &[IndexRecord]) -> Result<()> {
        let (mut slot, mut offset, mut blocks) = (0, SEGMENT_HEADER as u64, 0);
        for (at, record) in records.iter().enumerate() {
            let (first, count) = (u64::from(record.first_slot), u64::from(record.blocks));
            let (start, length) = (u64::from(record.offset), record.length as usize);
            let fits = (1..=FRAME_BLOCKS_MAX).contains(&usize::from(record.blocks))
                && (FRAME_HEADER..=FRAME_STORED_MAX - FRAME_ALIGN).contains(&length)
                && first >= slot
                && first + count <= u64::from(SLOTS_MAX)
                && start % FRAME_ALIGN as u64 == 0
                && start >= offset
                && start + length as u64 <= self.index_offset;
            if !fits {
                let what = format!("frame {at} in the index of segment {} cannot be: {record:?}", self.id);
                return Err(Error::new(Kind::Corrupt, what));
            }
            (slot, offset, blocks) = (first + count, start + length as u64, blocks + count);
        }
        if blocks != u64::from(self.slots) {
            let what = format!("the index of segment {} has {blocks} blocks, not {}", self.id, self.slots);
            return Err(Error::new(Kind::Corrupt, what));
        }
        Ok(())
    }

    /// Reads and verifies the index and the fingerprints: those of the blocks of the first frame, of the
    /// second, ….
    pub fn decode_index(&self, bytes: &[u8]) -> Result<(Vec<IndexRecord>, Vec<Fingerprint>)> {
        if bytes.len() != self.index_bytes() || xxh3_64(bytes) != self.index_check {
            return Err(Error::new(
                Kind::Corrupt,
                format!("the index of segment {} fails its checksum", self.id),
            ));
        }
        let (records, fingerprints) = bytes.split_at(self.frames as usize * INDEX_RECORD);
        let records: Vec<IndexRecord> = IndexRecord::decode_unverified(records).collect();
        self.check_index(&records)?;
        let mut reader = Reader::new(fingerprints, "a segment's fingerprints");
        let fingerprints = (0..self.fingerprints).map(|_| Ok(Fingerprint::decode(&reader.id()?)));
        Ok((records, fingerprints.collect::<Result<_>>()?))
    }
}

impl IndexRecord {
    /// The whole records in `bytes`, which are part of an index: nothing of what they say was verified, nor that it can be. Whoever follows
    /// one must see from the frame whether it is the one that was sought.
    pub fn decode_unverified(bytes: &[u8]) -> impl Iterator<Item = IndexRecord> + '_ {
        bytes.chunks_exact(INDEX_RECORD).map(|bytes| {
            let u32_at = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().expect("within a record"));
            let u64_at = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("within a record"));
            let both = u32_at(12);
            IndexRecord {
                first_slot: u32_at(0),
                offset: u32_at(4),
                length: u32_at(8),
                blocks: both as u8,
                epoch: both >> 8,
                owner: u64_at(16),
                place: u64_at(24),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Scope;
    use super::super::writing::checked;
    use super::super::writing::tests::{a_segment, sealed_scope};
    use super::*;
    use crate::frame;
    use stonefold_types::BLOCK_BYTES;

    #[test]
    fn frames_are_found_by_hint_and_by_index() {
        let (id, object, placed) = a_segment(Scope::default());
        let footer = Footer::decode(&object, id).unwrap();
        assert_eq!((footer.frames, footer.slots, footer.fingerprints, footer.samples), (3, 12, 12, 7));
        let at = footer.index_offset as usize;
        let (index, fingerprints) = footer.decode_index(&object[at..at + footer.index_bytes()]).unwrap();
        let samples = footer.decode_samples(&object[object.len() - footer.tail_bytes()..]).unwrap();
        assert!(samples.iter().all(|(slot, fingerprint)| fingerprints[*slot as usize] == *fingerprint));
        for (record, (slot, offset, length)) in index.iter().zip(&placed) {
            assert_eq!(
                (record.first_slot, record.offset as usize, record.length as usize),
                (*slot, *offset, *length)
            );
            let frame = &object[*offset..*offset + *length];
            let content = frame::decode(frame, id.0 << 20 | u64::from(*slot), None).unwrap();
            assert_eq!(content.len(), record.blocks as usize * BLOCK_BYTES);
            assert_eq!((record.owner, record.epoch), (42, 6));
            let told = [5, 6, 7, 1 << 26 | 9].map(|last| record.epoch_up_to(last));
            assert_eq!(told, [None, Some(6), Some(6), Some(1 << 26 | 6)]);
        }
        assert_eq!(placed.iter().map(|p| p.0).collect::<Vec<_>>(), [0, 1, 9]);
    }

    /// Goal: the header tells whose key opens the frames, and nothing of a frame's content stands in the object.
    #[test]
    fn a_sealed_segment_opens_by_its_header() {
        let (id, object, placed) = a_segment(sealed_scope());
        let header = Header::decode(&object, id).unwrap();
        assert_eq!((header.domain, header.key_version), (5, Some(2)));
        assert_eq!(header.object_bytes, object.len() as u64);
        let (key, wrong) = (header.seal_key(&Secret::new(&[4; 32])), header.seal_key(&Secret::new(&[5; 32])));
        for (at, (slot, offset, length)) in placed.into_iter().enumerate() {
            let (frame, address) = (&object[offset..offset + length], id.0 << 20 | u64::from(slot));
            assert!(frame::decode(frame, address, Some(&key)).unwrap().iter().all(|b| *b == at as u8 + 1));
            assert!(frame::decode(frame, address, Some(&wrong)).is_err());
            assert!(frame::decode(frame, address, None).is_err());
        }
        for at in 0..SEGMENT_HEADER {
            let mut damaged = object.to_vec();
            damaged[at] ^= 4;
            assert!(Header::decode(&damaged, id).is_err(), "byte {at}");
        }
    }

    /// Goal: whatever a pool was made to say, with checksums that fit, no index comes through that nobody could have written.
    #[test]
    fn an_index_that_cannot_be_is_refused() {
        let (id, object, _) = a_segment(Scope::default());
        let footer_at = object.len() - SEGMENT_FOOTER;
        let footer = Footer::decode(&object, id).unwrap();
        let start = footer.index_offset as usize;
        let index = object[start..start + footer.index_bytes()].to_vec();
        let decoded = |at: usize, bytes: &[u8]| {
            let mut index = index.clone();
            index[at..at + bytes.len()].copy_from_slice(bytes);
            let mut rest = object[footer_at + 8..].to_vec();
            // The check of the index, behind magic, id, its offset and four counts.
            rest[40..48].copy_from_slice(&xxh3_64(&index).to_le_bytes());
            Footer::decode(&checked(rest), id).unwrap().decode_index(&index)
        };
        assert!(decoded(0, &[]).is_ok(), "as it was written");
        let second = INDEX_RECORD;
        for (what, at, value) in [
            ("a slot twice", second, 0u32),
            ("a slot beyond all", 2 * second, SLOTS_MAX),
            ("a frame over another", second + 4, SEGMENT_HEADER as u32),
            ("a frame between the places", second + 4, SEGMENT_HEADER as u32 + 4097),
            ("a frame in the header", 4, 0),
            ("a frame behind the index", 2 * second + 4, 1 << 30),
            ("a frame of nothing", 8, 0),
            ("a frame longer than an entry can say", 2 * second + 8, u32::MAX),
            ("no blocks", 12, 0),
            ("too many blocks", 12, 9),
            ("another number of blocks", 2 * second + 12, 4),
        ] {
            let refused = decoded(at, &value.to_le_bytes()).expect_err(what);
            assert_eq!(refused.kind(), Kind::Corrupt, "{what}");
        }
    }

    #[test]
    fn damage_anywhere_behind_the_frames_is_seen() {
        let (id, object, _) = a_segment(Scope::default());
        let footer_at = object.len() - SEGMENT_FOOTER;
        for at in footer_at..object.len() {
            let mut damaged = object.to_vec();
            damaged[at] ^= 4;
            assert!(Footer::decode(&damaged[footer_at..], id).is_err(), "byte {at}");
        }
        let footer = Footer::decode(&object[footer_at..], id).unwrap();
        let at = footer.index_offset as usize;
        let mut index = object[at..at + footer.index_bytes()].to_vec();
        index[5] ^= 1;
        assert!(footer.decode_index(&index).is_err());
        let mut tail = object[object.len() - footer.tail_bytes()..].to_vec();
        tail[7] ^= 1;
        assert!(footer.decode_samples(&tail).is_err());
        assert!(Footer::decode(&object[footer_at..], SegmentId(9)).is_err(), "another segment");
    }
}
