//! Objects that never change, and the journal: their parts, each behind a checksum that is made right again.

use std::sync::OnceLock;

use crate::Target;
use stonefold_format::account::{self, Account, Shard, Slot};
use stonefold_format::chunk::{self, CHUNK_HEADER, ChunkHeader};
use stonefold_format::entry::SegmentId;
use stonefold_format::fingerprint::Fingerprint;
use stonefold_format::frame::{self, FRAME_HEADER};
use stonefold_format::ledger::{Changes, LedgerBuilder, decode_deaths};
use stonefold_format::node::Node;
use stonefold_format::record::{self, Change, Leased, Record};
use stonefold_format::segment::{
    FirstUse, Footer, Header, SEGMENT_FOOTER, SEGMENT_HEADER, Scope, SegmentBuilder, SegmentKind,
};
use stonefold_types::{BLOCK_BYTES, Compression, Name};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// The object in question.
const ID: u64 = 0x10_0005;
const SEGMENT: SegmentId = SegmentId(ID);
/// The frame in question.
const ADDRESS: u64 = ID << 20 | 3;
/// Offsets in a footer: of the index, and of the sum over it.
const INDEX_OFFSET: usize = 24;
const INDEX_CHECK: usize = 48;

/// The readers.
pub fn targets() -> Vec<Target> {
    let target = |name, seeds, read, bytes_max| Target { name, seeds, read, bytes_max };
    // A frame gives eight blocks at most, and its decompressor has tables of its own.
    vec![
        target("frame", frames, read_frame, 8 << 20),
        target("chunk", chunks, read_chunk, 1 << 20),
        target("journal records", payloads, read_payload, 64 << 10),
        target("segment header", || vec![segment()[..SEGMENT_HEADER].to_vec()], read_header, 64 << 10),
        target("segment footer", footers, read_footer, 64 << 10),
        target("segment index", indexes, read_index, 64 << 10),
        target("map node", || vec![Node::default().encode(), vec![0xff; BLOCK_BYTES]], read_node, 64 << 10),
        // A run of addresses takes a few bytes; how many a section may have is bounded by itself.
        target("ledger changes", changes, read_changes, 32 << 20),
        target("ledger deaths", deaths, read_deaths, 64 << 20),
        target("account", contents, read_account, 8 << 20),
    ]
}

fn frames() -> Vec<Vec<u8>> {
    let content: Vec<u8> = (0..2 * BLOCK_BYTES).map(|at| (at / 100) as u8).collect();
    let encode = |compression| {
        let mut out = Vec::new();
        frame::encode(&content, compression, &mut out);
        out
    };
    [Compression::None, Compression::Lz4, Compression::Zstd(3)].into_iter().map(encode).collect()
}

fn read_frame(bytes: &[u8]) {
    let _ = frame::decode(bytes, ADDRESS, None);
    if bytes.len() < FRAME_HEADER {
        return;
    }
    for length in [bytes.len() as u32, u32::from_le_bytes(bytes[8..12].try_into().expect("4 bytes"))] {
        let mut placed = bytes.to_vec();
        placed[8..12].copy_from_slice(&length.to_le_bytes());
        frame::place(&mut placed, ADDRESS);
        if let Ok(content) = frame::decode(&placed, ADDRESS, None) {
            assert!(content.len() % BLOCK_BYTES == 0 && content.len() <= 8 * BLOCK_BYTES);
            assert!(!content.is_empty() && frame::decode(&placed, ADDRESS + 1, None).is_err());
        }
    }
}

const OF: Leased = Leased { disk: 77, epoch: 6 };

fn payloads() -> Vec<Vec<u8>> {
    let data = vec![5; BLOCK_BYTES];
    let name = Name::new("monday").expect("letters make a name");
    let records = [
        Change::Write { block: 3, data: &data },
        Change::Zero { block: 4, blocks: 1 << 20 },
        Change::Mark { snapshot: 1, created: 2, size_bytes: 1 << 30, name },
        Change::Unmark { snapshot: 1 },
        Change::Lock { snapshot: 1, until: 1 << 60 },
        Change::Resize { size_bytes: 8192 },
    ];
    let mut payload = record::payload_header(41, &[6; 32]).to_vec();
    records.into_iter().for_each(|change| Record { of: OF, change }.encode(&mut payload));
    payload.extend(record::sealed_header(OF, 5, 1, (3, 4)));
    payload.extend(vec![9; BLOCK_BYTES + 16]);
    // Short ones, in which a change is likely to hit a header.
    let mut short = record::payload_header(41, &[6; 32]).to_vec();
    for change in [Change::Zero { block: 4, blocks: 9 }, Change::Resize { size_bytes: 8192 }] {
        Record { of: OF, change }.encode(&mut short);
    }
    vec![payload, short]
}

/// What is accepted can be counted with: nothing overflows, nothing is empty.
fn read_payload(bytes: &[u8]) {
    let Ok(payload) = record::decode(bytes) else { return };
    for (at, record) in payload.records.enumerate() {
        let Ok(record) = record else { return };
        assert!(payload.first_lsn.checked_add(at as u64 + 1).is_some());
        let (block, blocks) = match &record.change {
            Change::Write { block, data } => (*block, (data.len() / BLOCK_BYTES) as u64),
            Change::Zero { block, blocks } => (*block, *blocks),
            Change::Sealed(write) => (write.block, write.blocks),
            Change::Mark { snapshot, .. } | Change::Unmark { snapshot } | Change::Lock { snapshot, .. } => {
                (*snapshot, 1)
            }
            Change::Resize { size_bytes } => (*size_bytes, 1),
        };
        assert!(blocks > 0 && block.checked_add(blocks).is_some(), "{block}+{blocks}");
        let mut again = Vec::new();
        record.encode(&mut again);
    }
}

fn chunks() -> Vec<Vec<u8>> {
    payloads()
        .into_iter()
        .map(|payload| [&chunk::seal(&payload, [1; 16], 4, 6, 3)[..], &payload].concat())
        .collect()
}

fn read_chunk(bytes: &[u8]) {
    if let Ok(header) = ChunkHeader::verify(bytes) {
        read_payload(&bytes[CHUNK_HEADER..header.len]);
    }
    if let Some(header) = ChunkHeader::peek(bytes) {
        assert!(header.padded_len() >= header.len);
    }
    let Some(payload) = bytes.get(CHUNK_HEADER..) else { return };
    let sealed = [&chunk::seal(payload, [1; 16], u64::MAX, u32::MAX, u64::MAX)[..], payload].concat();
    let header = ChunkHeader::verify(&sealed).expect("it was sealed");
    read_payload(&sealed[CHUNK_HEADER..header.len]);
}

/// A whole segment of three frames.
fn segment() -> &'static [u8] {
    static SEGMENT: OnceLock<Vec<u8>> = OnceLock::new();
    SEGMENT.get_or_init(build_segment)
}

fn build_segment() -> Vec<u8> {
    let mut builder = SegmentBuilder::new(SEGMENT, SegmentKind::Data, Scope::default(), [7; 32], 1 << 18);
    for blocks in [1, 8, 3] {
        let mut encoded = Vec::new();
        frame::encode(&vec![blocks as u8; blocks * BLOCK_BYTES], Compression::Lz4, &mut encoded);
        let fingerprint = |block: usize| Fingerprint { low: 64 * block as u64, high: blocks as u64 };
        let fingerprints: Vec<Fingerprint> = (0..blocks).map(fingerprint).collect();
        builder.push(&encoded, blocks, &fingerprints, FirstUse { owner: 42, epoch: 6, place: 100 });
    }
    builder.finish().freeze().to_vec()
}

/// With the sum over everything behind it, in front.
fn summed(bytes: &[u8]) -> Vec<u8> {
    let mut summed = bytes.to_vec();
    let check = xxh3_64(&summed[8..]);
    summed[..8].copy_from_slice(&check.to_le_bytes());
    summed
}

fn read_header(bytes: &[u8]) {
    let _ = Header::decode(bytes, SEGMENT);
    if bytes.len() >= SEGMENT_HEADER {
        let _ = Header::decode(&summed(&bytes[..SEGMENT_HEADER]), SEGMENT);
    }
}

fn footers() -> Vec<Vec<u8>> {
    let segment = segment();
    let footer = Footer::decode(segment, SEGMENT).expect("it was built");
    let tail = &segment[segment.len() - footer.tail_bytes()..];
    vec![tail.to_vec(), tail[tail.len() - SEGMENT_FOOTER..].to_vec()]
}

fn read_footer(bytes: &[u8]) {
    let _ = Footer::decode(bytes, SEGMENT);
    let Some(at) = bytes.len().checked_sub(SEGMENT_FOOTER) else { return };
    let tail = [&bytes[..at], &summed(&bytes[at..])[..]].concat();
    if let Ok(footer) = Footer::decode(&tail, SEGMENT) {
        assert!(footer.index_offset.checked_add(footer.index_bytes() as u64).is_some());
        let _ = footer.decode_samples(&tail);
        let _ = footer.decode_index(bytes);
    }
}

fn indexes() -> Vec<Vec<u8>> {
    let segment = segment();
    let footer = Footer::decode(segment, SEGMENT).expect("it was built");
    let at = footer.index_offset as usize;
    vec![segment[at..at + footer.index_bytes()].to_vec()]
}

/// An index behind a footer that vouches for it: whoever reads frames by it stays within the segment.
fn read_index(bytes: &[u8]) {
    let segment = segment();
    let mut footer = segment[segment.len() - SEGMENT_FOOTER..].to_vec();
    footer[INDEX_CHECK..INDEX_CHECK + 8].copy_from_slice(&xxh3_64(bytes).to_le_bytes());
    let Ok(decoded) = Footer::decode(&summed(&footer), SEGMENT) else { return };
    let offset = u64::from_le_bytes(footer[INDEX_OFFSET..INDEX_OFFSET + 8].try_into().expect("8 bytes"));
    let Ok((records, fingerprints)) = decoded.decode_index(bytes) else { return };
    let mut next = 0;
    for record in &records {
        assert!(record.first_slot >= next && record.blocks > 0, "{record:?}");
        next = record.first_slot + u32::from(record.blocks);
        assert!(u64::from(record.offset) + u64::from(record.length) <= offset, "{record:?}");
    }
    assert_eq!(fingerprints.len(), records.iter().map(|record| usize::from(record.blocks)).sum::<usize>());
}

/// Any bits are an entry, and can be asked.
fn read_node(bytes: &[u8]) {
    let Ok(node) = Node::decode(bytes) else { return };
    assert_eq!(node.encode(), bytes);
    for entry in node.entries.iter() {
        let _ = (entry.segment(), entry.slot(), entry.birth(), entry.frame_address(), entry.is_hole());
        let _ = (entry.hint.offset(), entry.hint.length(), format!("{entry:?}"));
    }
}

fn changes() -> Vec<Vec<u8>> {
    let mut builder = LedgerBuilder::new(ID);
    let born = (0..300).chain([5000, 5001, 1 << 62]).collect();
    builder.changes(Changes { born, shared: vec![7, 7, 9], freed: vec![1 << 40] });
    vec![builder.finish()]
}

fn deaths() -> Vec<Vec<u8>> {
    let mut builder = LedgerBuilder::new(ID);
    builder.deaths((0..200).map(|at| (at % 3, at * 5)).collect());
    vec![builder.finish()]
}

/// A section whose sum and kind are right.
fn section(bytes: &[u8], kind: u8) -> Vec<u8> {
    let mut rest = bytes.get(8..).unwrap_or_default().to_vec();
    rest.resize(rest.len().max(1), 0);
    rest[0] = kind;
    [&xxh3_64_with_seed(&rest, ID).to_le_bytes()[..], &rest].concat()
}

fn read_changes(bytes: &[u8]) {
    let _ = Changes::decode(bytes, ID);
    let Ok(found) = Changes::decode(&section(bytes, 1), ID) else { return };
    for list in [&found.born, &found.shared, &found.freed] {
        assert!(list.is_sorted());
    }
}

fn read_deaths(bytes: &[u8]) {
    let _ = decode_deaths(bytes, ID);
    if let Ok(found) = decode_deaths(&section(bytes, 2), ID) {
        assert!(found.is_sorted());
    }
}

/// What is compressed in an account.
fn contents() -> Vec<Vec<u8>> {
    let slots = vec![Slot::Dead, Slot::Live(0), Slot::Live(1), Slot::Live(100_000)];
    let account = Account { generation: 1, present: 3, slots };
    let shard: Shard = [(SegmentId(0x10_0001), account.clone()), (SegmentId(0x10_0002), account)].into();
    let object = account::encode(&shard, ID);
    vec![zstd::bulk::decompress(&object[12..], 1 << 20).expect("it was compressed")]
}

fn read_account(bytes: &[u8]) {
    let _ = account::decode(bytes, ID);
    let packed = zstd::bulk::compress(bytes, 1).expect("there is memory");
    let lengths = [bytes.len() as u32, bytes.len() as u32 / 2];
    for length in lengths {
        let rest = [&length.to_le_bytes()[..], &packed].concat();
        let object = [&xxh3_64_with_seed(&rest, ID).to_le_bytes()[..], &rest].concat();
        if let Ok(shard) = account::decode(&object, ID) {
            assert_eq!(account::decode(&account::encode(&shard, ID), ID).expect("again"), shard);
        }
    }
}
