//! What is sealed: frames, records of a journal, wrapped keys. Behind a checksum that is right again nothing is accepted that is not, bit
//! for bit, what was sealed for this place; and behind a tag that is right, too, the readers are on their own again.

use std::sync::OnceLock;

use crate::Target;
use stonefold_format::entry::SegmentId;
use stonefold_format::frame::{self, FRAME_HEADER};
use stonefold_format::record::{self, Change, EXTENT_HEADER, Leased, PAYLOAD_HEADER, Record};
use stonefold_format::seal::{DataKey, SealKey, Secret, TAG_BYTES, WRAPPED_BYTES, WrappingKey};
use stonefold_types::{BLOCK_BYTES, Compression, Kind};

const SEGMENT: SegmentId = SegmentId(0x10_0005);
/// The frame in question.
const ADDRESS: u64 = SEGMENT.0 << 20 | 3;
/// The disk in question.
const OF: Leased = Leased { disk: 77, epoch: 6 };
/// The number of a payload's first record, and what its journal's keys are derived with.
const FIRST_LSN: u64 = 41;
const SEED: [u8; 32] = [6; 32];
/// Of a wrapped key: its domain and its version.
const DOMAIN: u16 = 5;
const VERSION: u32 = 2;

/// The readers.
pub fn targets() -> Vec<Target> {
    let target = |name, seeds, read, bytes_max| Target { name, seeds, read, bytes_max };
    // As of a frame that is not sealed, and what was opened beside what is stored.
    vec![
        target("sealed frame", || frames().clone(), read_frame, 8 << 20),
        target("a frame behind its seal", plain_frames, read_sealed_anew, 8 << 20),
        target("sealed journal records", || vec![payload().clone(), short()], read_payload, 64 << 10),
        target("a journal record behind its seal", records, read_record, 64 << 10),
        target("wrapped key", || vec![wrapped().to_vec()], read_wrapped, 4 << 10),
    ]
}

fn data_key() -> Secret {
    Secret::new(&[1; 32])
}

fn frame_key() -> &'static SealKey {
    static KEY: OnceLock<SealKey> = OnceLock::new();
    KEY.get_or_init(|| SealKey::of_segment(&data_key(), &[2; 32], SEGMENT, 0))
}

/// By each codec, one and eight blocks.
fn plain_frames() -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd(3)] {
        for blocks in [1, 8] {
            let content: Vec<u8> = (0..blocks * BLOCK_BYTES).map(|at| (at / 100) as u8).collect();
            let mut frame = Vec::new();
            frame::encode(&content, compression, &mut frame);
            out.push(frame);
        }
    }
    out
}

/// The same, sealed.
fn frames() -> &'static Vec<Vec<u8>> {
    static FRAMES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    FRAMES.get_or_init(|| plain_frames().into_iter().map(|frame| sealed(&frame)).collect())
}

fn sealed(frame: &[u8]) -> Vec<u8> {
    let mut sealed = [frame, &[0; TAG_BYTES]].concat();
    frame::seal_and_place(&mut sealed, ADDRESS, frame_key());
    sealed
}

/// Only what was sealed is accepted, though the checksum is right, whatever else is changed: its length, its codec, the bit that says
/// that it is sealed.
fn read_frame(bytes: &[u8]) {
    accept_only_what_was_sealed(bytes);
    if bytes.len() < FRAME_HEADER {
        return;
    }
    for length in [bytes.len() as u32, u32::from_le_bytes(bytes[8..12].try_into().expect("4 bytes"))] {
        let mut placed = bytes.to_vec();
        placed[8..12].copy_from_slice(&length.to_le_bytes());
        // The check covers what the length says, if there is as much.
        let end = placed.len().min(length as usize).max(FRAME_HEADER);
        frame::place(&mut placed[..end], ADDRESS);
        accept_only_what_was_sealed(&placed);
    }
}

fn accept_only_what_was_sealed(bytes: &[u8]) {
    let opened = frame::decode(bytes, ADDRESS, Some(frame_key()));
    assert_eq!(opened.is_ok(), frame::unsealed(bytes, ADDRESS, Some(frame_key())).is_ok());
    if opened.is_ok() {
        let stored = frame::verify(bytes, ADDRESS).expect("it was verified");
        assert!(frames().iter().any(|frame| frame == stored), "it was changed, and is accepted");
    }
    // Without the key nothing of it is shown, and without a sound checksum it is not even looked at.
    if frame::is_sealed(bytes) {
        let kind = frame::decode(bytes, ADDRESS, None).expect_err("there is no key").kind();
        assert!(kind == Kind::WrongKey || frame::verify(bytes, ADDRESS).is_err(), "{kind:?}");
    }
}

/// Whoever has the key may still have written nonsense.
fn read_sealed_anew(bytes: &[u8]) {
    if bytes.len() < FRAME_HEADER {
        return;
    }
    let frame = sealed(bytes);
    assert!(frame::decode(&frame, ADDRESS ^ 1, Some(frame_key())).is_err(), "at another slot");
    let Ok(content) = frame::decode(&frame, ADDRESS, Some(frame_key())) else { return };
    assert!(content.len() % BLOCK_BYTES == 0 && content.len() <= 8 * BLOCK_BYTES && !content.is_empty());
    let plain = frame::unsealed(&frame, ADDRESS, Some(frame_key())).expect("it was opened");
    assert_eq!(plain.len(), bytes.len());
    assert!(sealed(&plain) == frame, "it is not sealed the same way again");
}

fn journal_key(seed: &[u8; 32]) -> SealKey {
    SealKey::of_journal(&data_key(), seed, &[9; 16])
}

fn sealed_record(lsn: u64, block: u64, blocks: u64) -> Vec<u8> {
    let mut record = record::sealed_header(OF, block, blocks, (DOMAIN, VERSION)).to_vec();
    record.resize(EXTENT_HEADER + blocks as usize * BLOCK_BYTES + TAG_BYTES, lsn as u8);
    record::seal(&mut record, lsn, &journal_key(&SEED));
    record
}

/// Sealed writes among others.
fn payload() -> &'static Vec<u8> {
    static PAYLOAD: OnceLock<Vec<u8>> = OnceLock::new();
    PAYLOAD.get_or_init(|| {
        let mut payload = record::payload_header(FIRST_LSN, &SEED).to_vec();
        payload.extend(sealed_record(FIRST_LSN, 5, 2));
        Record { of: OF, change: Change::Zero { block: 4, blocks: 9 } }.encode(&mut payload);
        payload.extend(sealed_record(FIRST_LSN + 2, 5, 1));
        payload
    })
}

/// Its last record alone: a change of it is likely to hit a header, and a number one off to be another's.
fn short() -> Vec<u8> {
    [&record::payload_header(FIRST_LSN + 2, &SEED)[..], &sealed_record(FIRST_LSN + 2, 5, 1)].concat()
}

/// A sealed write opens only as it was made: for its disk, its blocks, its number, in its journal.
fn read_payload(bytes: &[u8]) {
    let Ok(read) = record::decode(bytes) else { return };
    // As the replay does: the key is derived with what the payload says.
    let key = journal_key(&read.seed);
    for (at, record) in read.records.enumerate() {
        let Ok(record) = record else { return };
        let Change::Sealed(write) = &record.change else { continue };
        let lsn = read.first_lsn + at as u64;
        let Some(data) = write.open(record.of, lsn, &key) else { continue };
        assert_eq!(data.len() as u64, write.blocks * BLOCK_BYTES as u64);
        let mut stored = Vec::new();
        record.encode(&mut stored);
        assert_eq!(read.seed, SEED, "it was opened under another journal's key");
        let genuine = [
            (FIRST_LSN, sealed_record(FIRST_LSN, 5, 2)),
            (FIRST_LSN + 2, sealed_record(FIRST_LSN + 2, 5, 1)),
        ];
        assert!(genuine.contains(&(lsn, stored)), "record {lsn} was changed, and is accepted");
    }
}

fn records() -> Vec<Vec<u8>> {
    [1, 3].map(|blocks| sealed_record(FIRST_LSN, 5, blocks)).to_vec()
}

/// Sealed by the key's owner, whatever its header says: its data is opened whole, or it is refused.
fn read_record(bytes: &[u8]) {
    if bytes.len() < EXTENT_HEADER + TAG_BYTES {
        return;
    }
    let mut sealed = bytes.to_vec();
    record::seal(&mut sealed, FIRST_LSN, &journal_key(&SEED));
    let payload = [&record::payload_header(FIRST_LSN, &SEED)[..], &sealed].concat();
    let mut records = record::decode(&payload).expect("its front is sound").records;
    let Some(Ok(Record { of, change: Change::Sealed(write) })) = records.next() else { return };
    let whole = write.sealed.len() == sealed.len() - EXTENT_HEADER;
    // Two bytes of the header that mean nothing are not kept: with others than were sealed it does not open.
    let meant = sealed[1] == 0;
    let opened = write.open(of, FIRST_LSN, &journal_key(&SEED));
    assert_eq!(opened.is_some(), whole && meant, "{} of {} bytes", write.sealed.len(), sealed.len());
    assert!(write.open(of, FIRST_LSN + 1, &journal_key(&SEED)).is_none(), "under another number");
    assert_eq!(payload.len() - PAYLOAD_HEADER, sealed.len());
}

fn wrapping_key() -> WrappingKey {
    WrappingKey::new(&Secret::new(&[3; 32]), [4; 16])
}

fn wrapped() -> [u8; WRAPPED_BYTES] {
    wrapping_key().wrap(DOMAIN, &DataKey { version: VERSION, secret: data_key() }, [8; 12])
}

fn read_wrapped(bytes: &[u8]) {
    let Some(bytes) = bytes.first_chunk() else { return };
    let opened = wrapping_key().unwrap(DOMAIN, VERSION, bytes);
    assert_eq!(opened.is_some(), *bytes == wrapped(), "it was changed, and is accepted");
    assert!(wrapping_key().unwrap(DOMAIN, VERSION + 1, bytes).is_none(), "as another version");
}
