//! A block of a trace: records as columns, compressed.
//!
//! ```text
//! count 4 · first 8 · last 8 · Zstandard frame of `plain` bytes            first, last: ticks since the start
//! columns = grain 1, then of each record, one column after another:
//!           what      1        bits 0..3 the operation, bit 3 durable when answered
//!           queue     varint
//!           time      varint   ticks since the record before; of the first, since `first`
//!           place     varint   from the end of the record before, zigzag, in grains; of the first, from 0
//!           length    varint   in grains
//!           took      varint   ticks and one more, 0 unknown; only where the header's flag says so
//! ```
//! *Grain*: the largest power of two that all places and lengths divide by, as its logarithm. Columns, because numbers of one kind compress
//! together; places from the last end, because what follows on then takes one byte that is always the same.

use super::{Header, Op, PLACE_MAX, RECORDS_MAX, Record, TIME_MAX};
use crate::wire::{Reader, Writer};
use std::ops::Range;
use stonefold_types::{Error, Kind, Result};

/// Bytes of a block's columns at most: every number at its longest.
pub const PLAIN_BYTES_MAX: usize = 1 + RECORDS_MAX * (1 + 5 + 4 * 10);
/// Bytes of a block before its columns.
const HEAD_BYTES: usize = 20;
/// Fast, and within some percent of what higher levels make of such columns.
const LEVEL: i32 = 3;
const FUA: u8 = 1 << 3;

/// A block, not decompressed yet: where it lies in the trace's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Records in it.
    pub count: usize,
    /// When the first was made, in nanoseconds since the start.
    pub first: u64,
    /// When the last was.
    pub last: u64,
    plain: usize,
    packed: Range<usize>,
}

/// The body of a block, and the bytes of its columns.
///
/// # Panics
/// When there are none or more than [`RECORDS_MAX`], they go back in time, or one lies beyond [`PLACE_MAX`] or [`TIME_MAX`].
pub(super) fn encode(records: &[Record], header: &Header) -> (Vec<u8>, usize) {
    assert!((1..=RECORDS_MAX).contains(&records.len()), "{} records for a block", records.len());
    let tick = u64::from(header.tick_nanos);
    let ends = |record: Option<&Record>| record.map_or(0, |record| record.at / tick);
    let (first, last) = (ends(records.first()), ends(records.last()));
    let all = records.iter().fold(0, |all, record| all | record.offset | record.bytes);
    let grain = if all == 0 { 0 } else { all.trailing_zeros() };
    let mut columns = vec![grain as u8];
    records.iter().for_each(|record| columns.u8(record.op as u8 | if record.fua { FUA } else { 0 }));
    records.iter().for_each(|record| columns.varint(record.queue.into()));
    let mut before = first;
    for record in records {
        assert!(record.at <= TIME_MAX && record.at / tick >= before, "records go forward in time");
        columns.varint(record.at / tick - before);
        before = record.at / tick;
    }
    let mut end = 0u64;
    for record in records {
        assert!(record.offset < PLACE_MAX && record.bytes < PLACE_MAX, "{record:?} lies beyond every device");
        columns.varint(zigzag((record.offset >> grain) as i64 - end as i64));
        end = (record.offset + record.bytes) >> grain;
    }
    records.iter().for_each(|record| columns.varint(record.bytes >> grain));
    if header.has_took {
        records
            .iter()
            .for_each(|record| columns.varint(record.took.map_or(0, |took| took.min(TIME_MAX) / tick + 1)));
    }
    let mut body = Vec::new();
    body.u32(records.len() as u32);
    body.u64(first);
    body.u64(last);
    body.extend(zstd::bulk::compress(&columns, LEVEL).expect("memory is never full for the compressor"));
    (body, columns.len())
}

impl Block {
    /// `at`: where the body begins in the trace.
    pub(super) fn read(body: &[u8], at: usize, plain: usize, header: &Header) -> Result<Self> {
        let mut reader = Reader::new(body, "a trace's block");
        let (count, first, last) = (reader.u32()? as usize, reader.u64()?, reader.u64()?);
        if !(1..=RECORDS_MAX).contains(&count) || plain > PLAIN_BYTES_MAX {
            return Err(reader.malformed(&format!("{count} records in {plain} bytes")));
        }
        let nanos = |ticks: u64| ticks.checked_mul(header.tick_nanos.into()).filter(|at| *at <= TIME_MAX);
        match (nanos(first), nanos(last)) {
            (Some(first), Some(last)) if first <= last => {
                Ok(Block { count, first, last, plain, packed: at + HEAD_BYTES..at + body.len() })
            }
            _ => Err(reader.malformed("its times")),
        }
    }

    /// Decompresses it behind what `records` holds; `trace` are the bytes it was found in.
    ///
    /// # Errors
    /// [`Kind::Corrupt`]; `records` is then as it was.
    ///
    /// # Panics
    /// When the bytes are others, and fewer.
    pub fn records(&self, trace: &[u8], header: &Header, records: &mut Vec<Record>) -> Result<()> {
        let before = records.len();
        let done = self.decode(&trace[self.packed.clone()], header, records);
        if done.is_err() {
            records.truncate(before);
        }
        done
    }

    fn decode(&self, packed: &[u8], header: &Header, records: &mut Vec<Record>) -> Result<()> {
        let broken = || Error::new(Kind::Corrupt, "a trace's block does not decompress");
        let columns = zstd::bulk::decompress(packed, self.plain).map_err(|_| broken())?;
        if columns.len() != self.plain {
            return Err(broken());
        }
        let mut reader = Reader::new(&columns, "a trace's block");
        let (from, tick) = (records.len(), u64::from(header.tick_nanos));
        let grain = u32::from(reader.u8()?);
        if grain >= 62 {
            return Err(reader.malformed(&format!("grains of 2^{grain} bytes")));
        }
        for _ in 0..self.count {
            let (op, fua) = what(&mut reader)?;
            records.push(Record { at: 0, op, fua, queue: 0, offset: 0, bytes: 0, took: None });
        }
        let records = &mut records[from..];
        for record in records.iter_mut() {
            let queue = reader.varint()?;
            record.queue = u32::try_from(queue).map_err(|_| reader.malformed(&format!("queue {queue}")))?;
        }
        let mut at = self.first / tick;
        for record in records.iter_mut() {
            let next = reader.varint()?.checked_add(at).filter(|next| *next <= self.last / tick);
            at = next.ok_or_else(|| reader.malformed("a time beyond its last"))?;
            record.at = at * tick;
        }
        if at != self.last / tick {
            return Err(reader.malformed("a last time that is none of its records'"));
        }
        places(&mut reader, records, grain)?;
        if header.has_took {
            for record in records.iter_mut() {
                record.took = took(&mut reader, tick)?;
            }
        }
        reader.end()
    }
}

fn what(reader: &mut Reader<'_>) -> Result<(Op, bool)> {
    let what = reader.u8()?;
    match Op::ALL.get(usize::from(what & !FUA)) {
        Some(op) => Ok((*op, what & FUA != 0)),
        None => Err(reader.malformed(&format!("operation {what}"))),
    }
}

/// Places and lengths: places are from the end of the record before, so both columns are read side by side.
fn places(reader: &mut Reader<'_>, records: &mut [Record], grain: u32) -> Result<()> {
    let in_bytes = |grains: u64, reader: &Reader<'_>| match grains.checked_shl(grain) {
        Some(bytes) if bytes >> grain == grains && bytes < PLACE_MAX => Ok(bytes),
        _ => Err(reader.malformed("a place beyond every device")),
    };
    for record in records.iter_mut() {
        // Until the lengths are known.
        record.offset = reader.varint()?;
    }
    let mut end = 0u64;
    for record in records.iter_mut() {
        let length = reader.varint()?;
        let offset = end.checked_add_signed(unzigzag(record.offset));
        let offset = offset.ok_or_else(|| reader.malformed("a place before the first"))?;
        (record.offset, record.bytes) = (in_bytes(offset, reader)?, in_bytes(length, reader)?);
        end = offset + length;
    }
    Ok(())
}

fn took(reader: &mut Reader<'_>, tick: u64) -> Result<Option<u64>> {
    let Some(ticks) = reader.varint()?.checked_sub(1) else { return Ok(None) };
    let took = ticks.checked_mul(tick).filter(|took| *took <= TIME_MAX);
    took.map(Some).ok_or_else(|| reader.malformed("a time that nobody waits for"))
}

fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}
