//! Writing a segment: frames are collected, then completed to an object in one go.

use super::{
    EPOCH_MASK, FOOTER_MAGIC, FirstUse, HEADER_MAGIC, INDEX_RECORD, IndexRecord, SAMPLE_RECORD,
    SEGMENT_FOOTER, SEGMENT_HEADER, SLOT_BYTES_MAX, Scope, SegmentKind,
};
use crate::entry::{FRAME_ALIGN, SEGMENT_BYTES_MAX, SLOTS_MAX, SegmentId};
use crate::fingerprint::Fingerprint;
use crate::frame;
use crate::seal::{SealKey, TAG_BYTES};
use crate::wire::Writer;
use stonefold_types::AlignedBuf;
use xxhash_rust::xxh3::xxh3_64;

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
        first_use: FirstUse,
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
            owner: first_use.owner,
            epoch: first_use.epoch as u32 & EPOCH_MASK,
            place: first_use.place,
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

pub(super) fn checked(rest: Vec<u8>) -> Vec<u8> {
    [&xxh3_64(&rest).to_le_bytes()[..], &rest].concat()
}

fn encode_index(records: &[IndexRecord]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(records.len() * INDEX_RECORD);
    for record in records {
        bytes.u32(record.first_slot);
        bytes.u32(record.offset);
        bytes.u32(record.length);
        bytes.u32(u32::from(record.blocks) | record.epoch << 8);
        bytes.u64(record.owner);
        bytes.u64(record.place);
    }
    bytes
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::Footer;
    use super::*;
    use crate::seal::{DataKey, Secret};
    use stonefold_types::{BLOCK_BYTES, Compression};

    fn first_use(place: u64) -> FirstUse {
        FirstUse { owner: 42, epoch: 1 << 25 | 6, place }
    }

    /// Three frames of one, eight and three blocks; for each its first slot, its offset and its length.
    pub(in super::super) fn a_segment(scope: Scope) -> (SegmentId, AlignedBuf, Vec<(u32, usize, usize)>) {
        let id = SegmentId::new(1, 5);
        let mut builder = SegmentBuilder::new(id, SegmentKind::Data, scope, [7; 32], 1 << 20);
        let mut placed = Vec::new();
        for (at, blocks) in [1, 8, 3].into_iter().enumerate() {
            let mut encoded = Vec::new();
            frame::encode(&vec![at as u8 + 1; blocks * BLOCK_BYTES], Compression::Lz4, &mut encoded);
            let fingerprint =
                |block: usize| Fingerprint { low: 32 * (at * 8 + block) as u64, high: at as u64 };
            let fingerprints: Vec<_> = (0..blocks).map(fingerprint).collect();
            placed.push(builder.push(&encoded, blocks, &fingerprints, first_use(at as u64 * 100)));
        }
        (id, builder.finish(), placed)
    }

    pub(in super::super) fn sealed_scope() -> Scope {
        Scope { domain: 5, key: Some(DataKey { version: 2, secret: Secret::new(&[4; 32]) }) }
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
                builder.push(&encoded, 1, &[Fingerprint { low: 0, high: 0 }], first_use(0));
            }
            let object = builder.finish();
            assert!(
                Footer::decode(&object[object.len() - SEGMENT_FOOTER..], SegmentId(1)).is_ok(),
                "{length}"
            );
        }
    }
}
