//! Traces: what was recorded comes back; what was cut, changed or mixed up is told.
//!
//! Goal: a replay never takes other I/Os for those that were captured. `fixtures/trace-1/web.sftrace` is what version 1 wrote: today's code
//! must read it as what was meant. `STONEFOLD_UPDATE=1` writes it where it is missing.

use proptest::prelude::*;
use std::path::Path;
use stonefold_format::trace::parts::{Next, Parts, Writer};
use stonefold_format::trace::{End, Header, Op, RECORDS_MAX, Reason, Record, Totals};
use stonefold_types::{Kind, Result};

fn header(tick_nanos: u32, has_took: bool) -> Header {
    Header {
        started: 1_790_000_000_000_000_000,
        device_bytes: 20 << 30,
        tick_nanos,
        has_took,
        name: "web".into(),
        source: "a test".into(),
    }
}

fn record(at: u64, op: Op, offset: u64, bytes: u64) -> Record {
    Record { at, op, fua: false, queue: 0, offset, bytes, took: None }
}

fn end() -> End {
    End { reason: Reason::Stopped, length: 0, dropped: 0, left_out: 0, totals: Totals::default() }
}

fn written(header: Header, blocks: &[Vec<Record>], end: End) -> Vec<Vec<u8>> {
    let (mut writer, first) = Writer::new(header);
    let mut parts = vec![first];
    parts.extend(blocks.iter().map(|block| writer.block(block)));
    parts.push(writer.end(end));
    parts
}

fn read(bytes: &[u8]) -> Result<(Header, Vec<Record>, Option<End>)> {
    let mut parts = Parts::new(bytes)?;
    let (header, mut records) = (parts.header().clone(), Vec::new());
    loop {
        match parts.next()? {
            Next::Block(block) => block.records(bytes, &header, &mut records)?,
            Next::End(end) => return Ok((header, records, Some(end))),
            Next::Cut(_) => return Ok((header, records, None)),
        }
    }
}

fn blocks() -> Vec<Vec<Record>> {
    let of_guest = Record { fua: true, queue: 3, ..record(2_000, Op::Write, 8 << 20, 4096) };
    vec![
        vec![record(1_000, Op::Read, 4096, 65536), of_guest, record(2_000, Op::Flush, 0, 0)],
        vec![record(5_000, Op::Trim, 1 << 34, 1 << 30), record(9_000, Op::Zero, 512, 512)],
    ]
}

#[test]
fn a_cut_is_told_from_an_end_and_what_is_before_it_can_be_read() {
    let parts = written(header(1_000, false), &blocks(), End { length: 10_000, dropped: 7, ..end() });
    let bytes = parts.concat();
    let (told, records, last) = read(&bytes).unwrap();
    assert_eq!((told, &records), (header(1_000, false), &blocks().concat()));
    let last = last.unwrap();
    assert_eq!((last.dropped, last.length, last.totals.count), (7, 10_000, [1, 1, 1, 1, 1]));
    let lengths: Vec<usize> = parts.iter().map(Vec::len).collect();
    for cut in lengths[0]..bytes.len() {
        let (_, some, last) = read(&bytes[..cut]).unwrap();
        let whole = match cut - lengths[0] {
            cut if cut < lengths[1] => 0,
            cut if cut < lengths[1] + lengths[2] => 3,
            _ => 5,
        };
        assert_eq!((some.len(), last), (whole, None), "cut at {cut}");
    }
    assert!((0..lengths[0]).all(|cut| read(&bytes[..cut]).is_err()));
}

#[test]
fn what_was_cut_can_be_given_an_end() {
    let parts = written(header(1_000, false), &blocks(), end());
    let cut = [&parts[..2].concat(), &parts[2][..30]].concat();
    let mut whole = parts[..2].concat();
    whole.extend(Writer::resume(&cut).unwrap().end(End { reason: Reason::Lost, ..end() }));
    let (_, records, last) = read(&whole).unwrap();
    assert_eq!((records.len(), last.unwrap().reason), (3, Reason::Lost));
}

#[test]
fn no_byte_can_be_changed_and_no_part_taken_out_doubled_or_moved() {
    let parts = written(header(1, true), &blocks(), end());
    let bytes = parts.concat();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 4;
        // A length that grew looks as a cut does.
        assert!(read(&damaged).map_or(true, |(_, _, end)| end.is_none()), "byte {at}");
    }
    let without = |skip: usize| [&parts[..skip], &parts[skip + 1..]].concat().concat();
    assert_eq!(read(&without(1)).unwrap_err().kind(), Kind::Corrupt);
    assert_eq!(read(&without(2)).unwrap_err().kind(), Kind::Corrupt);
    assert!(read(&[bytes.clone(), parts[3].clone()].concat()).is_err());
    let swapped = [&parts[0][..], &parts[2], &parts[1], &parts[3]].concat();
    assert_eq!(read(&swapped).unwrap_err().kind(), Kind::Corrupt);
}

#[test]
fn a_later_version_is_refused_by_name() {
    let mut bytes = written(header(1, false), &[], end()).concat();
    bytes[24] = 2;
    let length = 24 + u32::from_le_bytes(bytes[16..20].try_into().unwrap()) as usize;
    let check = xxhash_rust::xxh3::xxh3_64_with_seed(&bytes[8..length], 0);
    bytes[..8].copy_from_slice(&check.to_le_bytes());
    assert_eq!(read(&bytes).unwrap_err().kind(), Kind::Unsupported);
}

#[test]
fn a_sequential_stream_takes_a_byte_or_two_for_each_record() {
    let records: Vec<Record> = (0..RECORDS_MAX as u64)
        .map(|number| record(number * 250_000, Op::Write, number << 16, 1 << 16))
        .collect();
    let bytes = written(header(1_000, false), &[records], end()).concat();
    assert!(bytes.len() < RECORDS_MAX, "{} bytes for {RECORDS_MAX} records", bytes.len());
}

fn some() -> impl Strategy<Value = (u64, u8, bool, u32, u64, u64, Option<u64>)> {
    let place = prop_oneof![0u64..1 << 40, (0u64..1 << 28).prop_map(|block| block << 12)];
    let bytes = prop_oneof![Just(4096u64), 0u64..1 << 32];
    (0u64..1 << 30, 0u8..5, any::<bool>(), 0u32..9, place, bytes, prop::option::of(0u64..1 << 34))
}

proptest! {
    /// Whatever the units: all but the part of a tick that a time has too much.
    #[test]
    fn everything_comes_back(some in prop::collection::vec(some(), 1..300), tick in prop::sample::select(vec![1u32, 1_000, 1_000_000]),
                             has_took in any::<bool>()) {
        let mut at = 0;
        let tick_nanos = u64::from(tick);
        let records: Vec<Record> = some.into_iter().map(|(gap, op, fua, queue, offset, bytes, took)| {
            at += gap / tick_nanos * tick_nanos;
            let took = took.filter(|_| has_took).map(|took| took / tick_nanos * tick_nanos);
            Record { at, op: Op::ALL[usize::from(op)], fua, queue, offset, bytes, took }
        }).collect();
        let bytes = written(header(tick, has_took), std::slice::from_ref(&records), End { left_out: 3, ..end() }).concat();
        let (_, back, end) = read(&bytes).unwrap();
        prop_assert_eq!(back, records);
        prop_assert_eq!(end.unwrap().left_out, 3);
    }
}

#[test]
fn what_version_1_wrote_is_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/trace-1/web.sftrace");
    if std::env::var_os("STONEFOLD_UPDATE").is_some() && !path.exists() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, written(header(1_000, true), &fixture(), End { dropped: 2, ..end() }).concat())
            .unwrap();
    }
    let bytes = std::fs::read(&path).expect("STONEFOLD_UPDATE=1 writes what is missing");
    let (told, records, last) = read(&bytes).unwrap();
    assert_eq!((told, records), (header(1_000, true), fixture().concat()));
    assert_eq!(last.unwrap().dropped, 2);
}

fn fixture() -> Vec<Vec<Record>> {
    let mut blocks = blocks();
    blocks[0][0].took = Some(80_000);
    blocks
}
