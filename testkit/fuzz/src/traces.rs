//! Traces of block I/O, each part behind a checksum that is made right again.

use crate::Target;
use stonefold_format::trace::parts::{HEAD_BYTES, Next, Parts, Writer};
use stonefold_format::trace::{End, Header, Op, Reason, Record, Totals};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The readers.
pub fn targets() -> Vec<Target> {
    // One block's columns and records, and the decompressor's tables.
    vec![Target { name: "trace", seeds, read, bytes_max: 8 << 20 }]
}

fn seeds() -> Vec<Vec<u8>> {
    let record = |number: u64| Record {
        at: number * 7_000,
        op: Op::ALL[number as usize % 5],
        fua: number % 3 == 0,
        queue: number as u32 % 2,
        offset: (number * number) << 12,
        bytes: 4096,
        took: Some(number * 1_000),
    };
    let records: Vec<Record> = (0..200).map(record).collect();
    let trace = |tick_nanos, has_took| {
        let (name, source) = ("web".to_owned(), "a test".to_owned());
        let header = Header { started: 1, device_bytes: 1 << 30, tick_nanos, has_took, name, source };
        let (mut writer, mut bytes) = Writer::new(header);
        records.chunks(90).for_each(|block| bytes.extend(writer.block(block)));
        let (reason, totals) = (Reason::Stopped, Totals::default());
        bytes.extend(writer.end(End { reason, length: 1 << 30, dropped: 3, left_out: 0, totals }));
        bytes
    };
    vec![trace(1, true), trace(1_000, false)]
}

fn read(bytes: &[u8]) {
    follow(bytes);
    let mut sealed = bytes.to_vec();
    let (mut at, mut number) = (0, 0);
    while let Some(head) = sealed.get(at..at + HEAD_BYTES) {
        let length = u32::from_le_bytes(head[16..20].try_into().expect("4 bytes")) as usize;
        let end = (at + HEAD_BYTES).saturating_add(length).min(sealed.len());
        let check = xxh3_64_with_seed(&sealed[at + 8..end], number);
        sealed[at..at + 8].copy_from_slice(&check.to_le_bytes());
        (at, number) = (end, number + 1);
    }
    follow(&sealed);
}

fn follow(bytes: &[u8]) {
    let Ok(mut parts) = Parts::new(bytes) else { return };
    let header = parts.header().clone();
    let mut records = Vec::new();
    while let Ok(Next::Block(block)) = parts.next() {
        records.clear();
        if block.records(bytes, &header, &mut records).is_ok() {
            assert_eq!(records.len(), block.count);
            again(&header, &records);
        }
    }
}

/// What was accepted is written again, and comes back.
fn again(header: &Header, records: &[Record]) {
    let (mut writer, mut bytes) = Writer::new(header.clone());
    bytes.extend(writer.block(records));
    let mut parts = Parts::new(&bytes).expect("a header that was just written");
    let Ok(Next::Block(block)) = parts.next() else { panic!("a block that was just written") };
    let mut back = Vec::new();
    block.records(&bytes, header, &mut back).expect("a block that was just written");
    assert_eq!(back, records);
}
