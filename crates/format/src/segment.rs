//! A segment: an immutable object of many frames and their index.
//!
//! ```text
//! +-----------+---------+---------+---+-------+--------------+---------+-----------+
//! | header 80 | frame 0 | frame 1 | … | index | fingerprints | samples | footer 64 |
//! +-----------+---------+---------+---+-------+--------------+---------+-----------+
//! header = check 8 · magic 8 · segment id 8 · generation 1 · kind 1 · domain 2 · object bytes 4 · seed 32 · key version 4 · 0 (12)
//! index  = per frame: first slot 4 · offset 4 · length 4 · blocks 1 · 0 (3) · owner 8 · place 8
//! fingerprints = per block 16, in the order of the frames, or nothing
//! samples      = per sample: slot 4 · fingerprint 16
//! footer = check 8 · magic 8 · segment id 8 · index offset 8 · frames 4 · slots 4 · fingerprints 4 · samples 4 · index check 8 · samples check 8
//! ```
//! Checks cover everything behind them in their own part; index and fingerprints together, and the samples, have theirs in
//! the footer. That lies last, behind the samples, so that one read of an object's tail finds both: rebuilding the
//! dedupe index after a start reads no more of a segment than that. `kind`: 0 data, 1 map nodes. `owner` and `place` say for whom the frame was
//! first written (disk id and first block; for a map node its level in the top byte), so that a lost map can be rebuilt.
//! Data of different domains never shares a segment; map nodes of all domains do (domain 0). `key version`: of the domain's key, from
//! which and from `seed`, fresh randomness per physical form, the key of the frames is derived ([`crate::seal`]); 0 when they
//! are not sealed.
//! Slots number the blocks of the segment in the order of the frames. Frames begin at multiples of 16 bytes.
//!
//! A segment can be written anew as its next *generation*, object `segment/ID.GENERATION`, without the frames, or the
//! blocks of frames, that nothing refers to any more. Each block keeps its slot; a frame holds consecutive slots, always.

use crate::entry::{
    FRAME_ALIGN, FRAME_BLOCKS_MAX, FRAME_STORED_MAX, SEGMENT_BYTES_MAX, SLOTS_MAX, SegmentId,
};
use crate::fingerprint::{FINGERPRINT_BYTES, Fingerprint};
use crate::frame::{self, FRAME_HEADER};
use crate::seal::{DataKey, SealKey, Secret, TAG_BYTES};
use crate::wire::{Reader, Writer};
use stonefold_types::{AlignedBuf, Error, Kind, Result};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes before the first frame.
pub const SEGMENT_HEADER: usize = 80;
/// Bytes of the footer.
pub const SEGMENT_FOOTER: usize = 64;
/// Bytes of one frame's index record.
pub const INDEX_RECORD: usize = 32;
/// Bytes of one sample.
pub const SAMPLE_RECORD: usize = 4 + FINGERPRINT_BYTES;
/// Bytes that a block takes behind the frames, at most: its fingerprint, and that again if it is a sample.
const SLOT_BYTES_MAX: usize = FINGERPRINT_BYTES + SAMPLE_RECORD;
/// Reading this much of a segment's tail, in bytes, nearly always finds all its samples.
pub const SEGMENT_TAIL: usize = 16 << 10;

const HEADER_MAGIC: [u8; 8] = *b"SFSEGMT1";
const FOOTER_MAGIC: [u8; 8] = *b"SFSEGEND";

/// What a segment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SegmentKind {
    /// Blocks of disks.
    Data = 0,
    /// Map nodes.
    Map = 1,
}

/// Whose blocks a segment holds, and what seals them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// The domain's id; 0 for map nodes.
    pub domain: u16,
    /// The newest version of its key, when its frames are sealed.
    pub key: Option<DataKey>,
}

/// Where a frame lies in its segment, and for whom it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexRecord {
    /// The slot of its first block.
    pub first_slot: u32,
    /// Byte offset in the object.
    pub offset: u32,
    /// Stored bytes.
    pub length: u32,
    /// Blocks of content.
    pub blocks: u8,
    /// The disk it was first written for.
    pub owner: u64,
    /// The first block's address in that disk.
    pub place: u64,
}

/// Bytes of an object that has room for so many frames of so many blocks, stored in `stored_bytes` all together, whatever
/// they are.
pub fn object_bytes_for(frames: usize, blocks: usize, stored_bytes: usize) -> usize {
    let aligned = stored_bytes + frames * (FRAME_ALIGN - 1);
    SEGMENT_HEADER + aligned + frames * INDEX_RECORD + blocks * SLOT_BYTES_MAX + SEGMENT_FOOTER
}

/// Collects frames into a segment object.
pub struct SegmentBuilder {
    id: SegmentId,
    generation: u8,
    kind: SegmentKind,
    scope: Scope,
    seed: [u8; 32],
    buffer: AlignedBuf,
    filled: usize,
    index: Vec<IndexRecord>,
    fingerprints: Vec<Fingerprint>,
    /// Blocks held.
    slots: u32,
    /// The next block gets this slot.
    next_slot: u32,
}

impl SegmentBuilder {
    /// An empty segment that will hold `frames_bytes` of frames, or at least one frame.
    pub fn new(id: SegmentId, kind: SegmentKind, scope: Scope, seed: [u8; 32], frames_bytes: usize) -> Self {
        // Frames of single incompressible blocks need the most index: 32 bytes for each 4 KiB.
        let object_bytes = SEGMENT_HEADER + frames_bytes + frames_bytes / 64 + 2 * AlignedBuf::ALIGN;
        Self::next_generation(id, 0, kind, scope, seed, object_bytes)
    }

    /// A later physical form of a segment, in an object of at most `object_bytes`; see [`object_bytes_for`].
    pub fn next_generation(
        id: SegmentId,
        generation: u8,
        kind: SegmentKind,
        scope: Scope,
        seed: [u8; 32],
        object_bytes: usize,
    ) -> Self {
        assert!(object_bytes <= SEGMENT_BYTES_MAX);
        let buffer = AlignedBuf::stale(object_bytes);
        SegmentBuilder {
            id,
            generation,
            kind,
            scope,
            seed,
            buffer,
            filled: SEGMENT_HEADER,
            index: Vec::new(),
            fingerprints: Vec::new(),
            slots: 0,
            next_slot: 0,
        }
    }

    /// Its number.
    pub fn id(&self) -> SegmentId {
        self.id
    }

    /// Whether no frame has been added.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Bytes by which a frame grows here.
    pub fn tag_bytes(&self) -> usize {
        if self.scope.key.is_some() { TAG_BYTES } else { 0 }
    }

    /// Whether a frame encoded in `length` bytes and `blocks` blocks still fits.
    pub fn has_room(&self, length: usize, blocks: usize) -> bool {
        // Were every block a sample, there would still be room.
        let slots = self.slots as usize + blocks;
        let tail = (self.index.len() + 1) * INDEX_RECORD + slots * SLOT_BYTES_MAX + SEGMENT_FOOTER;
        let length = (length + self.tag_bytes()).next_multiple_of(FRAME_ALIGN);
        self.filled + length + tail <= self.buffer.len() && self.next_slot + blocks as u32 <= SLOTS_MAX
    }

    /// The next frame begins at this slot, which is not below any that is held: the slots between hold nothing.
    pub fn skip_to(&mut self, slot: u32) {
        assert!(slot >= self.next_slot && slot < SLOTS_MAX, "slot {slot} after {}", self.next_slot);
        self.next_slot = slot;
    }

    /// Adds an encoded frame and returns its first slot, its byte offset and its stored length. Either every block of a segment
    /// has a fingerprint, or none.
    pub fn push(
        &mut self,
        encoded: &[u8],
        blocks: usize,
        fingerprints: &[Fingerprint],
        owner: u64,
        place: u64,
    ) -> (u32, usize, usize) {
        assert!(self.has_room(encoded.len(), blocks), "segment {} is full", self.id);
        assert!(fingerprints.len() == blocks || (fingerprints.is_empty() && self.fingerprints.is_empty()));
        self.fingerprints.extend_from_slice(fingerprints);
        let (offset, first_slot) = (self.filled, self.next_slot);
        let length = encoded.len() + self.tag_bytes();
        self.buffer[offset..offset + encoded.len()].copy_from_slice(encoded);
        self.index.push(IndexRecord {
            first_slot,
            offset: offset as u32,
            length: length as u32,
            blocks: blocks as u8,
            owner,
            place,
        });
        self.filled = (offset + length).next_multiple_of(FRAME_ALIGN);
        self.buffer[offset + length..self.filled].fill(0);
        self.slots += blocks as u32;
        self.next_slot += blocks as u32;
        (first_slot, offset, length)
    }

    /// Whether [`finish`](Self::finish) has much to do: sealing is work for a worker.
    pub fn is_sealed(&self) -> bool {
        self.scope.key.is_some()
    }

    /// Binds every frame to its address, sealed where the domain is.
    fn place_frames(&mut self) {
        let data_key = self.scope.key.as_ref();
        let key = data_key.map(|key| SealKey::of_segment(&key.secret, &self.seed, self.id, self.generation));
        for record in &self.index {
            let frame = &mut self.buffer[record.offset as usize..][..record.length as usize];
            let address = self.id.0 << 20 | u64::from(record.first_slot);
            match &key {
                Some(key) => frame::seal_and_place(frame, address, key),
                None => frame::place(frame, address),
            }
        }
    }

    /// Completes the frames, writes header, index and footer, and returns the whole object.
    pub fn finish(mut self) -> AlignedBuf {
        self.place_frames();
        let mut index = encode_index(&self.index);
        self.fingerprints.iter().for_each(|fingerprint| index.put(&fingerprint.encode()));
        let samples = encode_samples(&self.index, &self.fingerprints);
        let footer = self.encode_footer(&index, &samples);
        let object_bytes = self.filled + index.len() + samples.len() + footer.len();
        let header = self.encode_header(object_bytes as u32);
        self.buffer[..SEGMENT_HEADER].copy_from_slice(&header);
        let mut end = self.filled;
        for part in [index, samples, footer] {
            self.buffer[end..end + part.len()].copy_from_slice(&part);
            end += part.len();
        }
        self.buffer.set_len(end);
        self.buffer
    }

    fn encode_header(&self, object_bytes: u32) -> Vec<u8> {
        let mut rest = Vec::with_capacity(SEGMENT_HEADER);
        rest.put(&HEADER_MAGIC);
        rest.u64(self.id.0);
        rest.put(&[self.generation, self.kind as u8]);
        rest.u16(self.scope.domain);
        rest.u32(object_bytes);
        rest.put(&self.seed);
        rest.u32(self.scope.key.as_ref().map_or(0, |key| key.version));
        rest.put(&[0; 12]);
        checked(rest)
    }

    fn encode_footer(&self, index: &[u8], samples: &[u8]) -> Vec<u8> {
        let mut rest = Vec::with_capacity(SEGMENT_FOOTER);
        rest.put(&FOOTER_MAGIC);
        rest.u64(self.id.0);
        rest.u64(self.filled as u64);
        rest.u32(self.index.len() as u32);
        rest.u32(self.slots);
        rest.u32(self.fingerprints.len() as u32);
        rest.u32((samples.len() / SAMPLE_RECORD) as u32);
        rest.u64(xxh3_64(index));
        rest.u64(xxh3_64(samples));
        checked(rest)
    }
}

/// The samples among the fingerprints of the frames' blocks.
fn encode_samples(records: &[IndexRecord], fingerprints: &[Fingerprint]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let slots = records.iter().flat_map(|r| r.first_slot..r.first_slot + u32::from(r.blocks));
    for (slot, fingerprint) in slots.zip(fingerprints).filter(|(_, f)| f.is_sample()) {
        bytes.u32(slot);
        bytes.put(&fingerprint.encode());
    }
    bytes
}

fn checked(rest: Vec<u8>) -> Vec<u8> {
    [&xxh3_64(&rest).to_le_bytes()[..], &rest].concat()
}

fn encode_index(records: &[IndexRecord]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(records.len() * INDEX_RECORD);
    for record in records {
        bytes.u32(record.first_slot);
        bytes.u32(record.offset);
        bytes.u32(record.length);
        bytes.put(&[record.blocks, 0, 0, 0]);
        bytes.u64(record.owner);
        bytes.u64(record.place);
    }
    bytes
}

/// What a segment's form says of itself at its beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    id: SegmentId,
    generation: u8,
    /// How long the object is.
    pub object_bytes: u64,
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
        let (generation, _kind, domain) = (reader.u8()?, reader.u8()?, reader.u16()?);
        let object_bytes = reader.u32()?.into();
        let seed = reader.bytes(32)?.try_into().expect("as many as asked for");
        let key_version = Some(reader.u32()?).filter(|version| *version > 0);
        Ok(Header { id, generation, object_bytes, domain, key_version, seed })
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

    /// Reads and verifies the index and the fingerprints: those of the blocks of the first frame, of the second, …. Checksums are
    /// no proof of who wrote them, so what they cover is bounded, too.
    pub fn decode_index(&self, bytes: &[u8]) -> Result<(Vec<IndexRecord>, Vec<Fingerprint>)> {
        if bytes.len() != self.index_bytes() || xxh3_64(bytes) != self.index_check {
            return Err(Error::new(
                Kind::Corrupt,
                format!("the index of segment {} fails its checksum", self.id),
            ));
        }
        let mut reader = Reader::new(bytes, "a segment's index");
        let mut records = Vec::with_capacity(self.frames as usize);
        for _ in 0..self.frames {
            records.push(IndexRecord {
                first_slot: reader.u32()?,
                offset: reader.u32()?,
                length: reader.u32()?,
                blocks: reader.bytes(4)?[0],
                owner: reader.u64()?,
                place: reader.u64()?,
            });
        }
        self.check_index(&records)?;
        let fingerprints = (0..self.fingerprints).map(|_| Ok(Fingerprint::decode(&reader.id()?)));
        Ok((records, fingerprints.collect::<Result<_>>()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stonefold_types::{BLOCK_BYTES, Compression};

    fn a_segment(scope: Scope) -> (SegmentId, AlignedBuf, Vec<(u32, usize, usize)>) {
        let id = SegmentId::new(1, 5);
        let mut builder = SegmentBuilder::new(id, SegmentKind::Data, scope, [7; 32], 1 << 20);
        let mut placed = Vec::new();
        for (at, blocks) in [1, 8, 3].into_iter().enumerate() {
            let mut encoded = Vec::new();
            frame::encode(&vec![at as u8 + 1; blocks * BLOCK_BYTES], Compression::Lz4, &mut encoded);
            let fingerprint =
                |block: usize| Fingerprint { low: 32 * (at * 8 + block) as u64, high: at as u64 };
            let fingerprints: Vec<_> = (0..blocks).map(fingerprint).collect();
            placed.push(builder.push(&encoded, blocks, &fingerprints, 42, at as u64 * 100));
        }
        (id, builder.finish(), placed)
    }

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
        }
        assert_eq!(placed.iter().map(|p| p.0).collect::<Vec<_>>(), [0, 1, 9]);
    }

    fn sealed_scope() -> Scope {
        Scope { domain: 5, key: Some(DataKey { version: 2, secret: Secret::new(&[4; 32]) }) }
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

    /// Past bug: room was reckoned by the buffer's pages, and taken from its shorter length.
    #[test]
    fn can_be_filled_to_the_brim() {
        for length in [17usize, 1000, 4113, 32_785] {
            let mut builder =
                SegmentBuilder::new(SegmentId(1), SegmentKind::Data, sealed_scope(), [0; 32], 1 << 18);
            let mut encoded = Vec::new();
            frame::encode(&[1; BLOCK_BYTES], Compression::Lz4, &mut encoded);
            encoded.resize(length, 7);
            while builder.has_room(encoded.len(), 1) {
                builder.push(&encoded, 1, &[Fingerprint { low: 0, high: 0 }], 0, 0);
            }
            let object = builder.finish();
            assert!(
                Footer::decode(&object[object.len() - SEGMENT_FOOTER..], SegmentId(1)).is_ok(),
                "{length}"
            );
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
