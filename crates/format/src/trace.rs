//! A trace of block I/O: what was asked of a device, when and where; never what it read or wrote. A file `NAME.sftrace`, or a stream of the
//! same bytes.
//!
//! A trace is *parts* behind one another: a header, blocks of records, an end. A part:
//! ```text
//!  0        8        12       16      20      24
//!  +--------+--------+--------+-------+-------+--------+
//!  | check  | SFT1   | kind   | bytes | plain | body … |
//!  +--------+--------+--------+-------+-------+--------+
//! ```
//! *Check*: of everything behind it, seeded with the part's number from 0 on, so that a part that is missing, doubled or in another's place
//! fails as one that is damaged. *Kind*: 1 header, 2 block, 3 end. *Bytes*: of the body. *Plain*: bytes of a block's columns before they were
//! compressed; else 0. A part needs nothing of the one before, so that a stream can be written out and looked into while it grows.
//!
//! Header, version 1:
//! ```text
//! version 2 · flags 2 · tick 4 · started 8 · device bytes 8 · name: length 2 and text · source: length 2 and text
//! ```
//! *Flags*: bit 0: records tell how long they took. *Tick*: nanoseconds of one unit of time of all records. *Started*: nanoseconds since 1970,
//! 0 unknown. *Device bytes*: its size at the start, 0 unknown. *Source*: in words, what captured it. How many records there are is not known
//! when the header is written: the end tells.
//!
//! A [block](block) has up to [`RECORDS_MAX`] records. End:
//! ```text
//! reason 1 · ticks 8 · records 8 · dropped 8 · left out 8 · of each kind: count 8 · bytes 8      reads, writes, flushes, trims, zeroings
//! ```
//! *Ticks*: how long it was captured. *Dropped*: requests that were made meanwhile and have no record, because there was no room. *Left out*:
//! what an importer met and could not map. A file without an end was cut short: whole blocks before the cut can be read ([`parts::Next::Cut`]).

pub mod block;
pub mod parts;

use crate::wire::{Reader, Writer};
use stonefold_types::{Error, Kind, Result};

const VERSION: u16 = 1;
/// Names and sources are cut to so many bytes.
const TEXT_BYTES_MAX: usize = 1000;
/// Records of one block at most: what a replay decodes between two I/Os without being late.
pub const RECORDS_MAX: usize = 4096;
/// Offset and length of a record stay below this, in bytes: beyond every device, and sums of two do not overflow.
pub const PLACE_MAX: u64 = 1 << 62;
/// Times stay below this, in nanoseconds: 146 years.
pub const TIME_MAX: u64 = 1 << 62;

/// What was asked of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Op {
    /// A read.
    Read = 0,
    /// A write.
    Write = 1,
    /// A flush of the whole device.
    Flush = 2,
    /// A range is needed no more.
    Trim = 3,
    /// A range shall read as zeros.
    Zero = 4,
}

impl Op {
    /// All of them, in the order of their numbers.
    pub const ALL: [Op; 5] = [Op::Read, Op::Write, Op::Flush, Op::Trim, Op::Zero];

    /// In words.
    pub fn word(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "flush",
            Op::Trim => "trim",
            Op::Zero => "zero",
        }
    }
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it was made: nanoseconds since the start.
    pub at: u64,
    /// What was asked.
    pub op: Op,
    /// It had to be durable when it was answered.
    pub fua: bool,
    /// By which of the device's queues or clients.
    pub queue: u32,
    /// First byte; 0 of a flush.
    pub offset: u64,
    /// How many; 0 of a flush.
    pub bytes: u64,
    /// How long it took, in nanoseconds, where that is known.
    pub took: Option<u64>,
}

/// What is known before the first record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Nanoseconds since 1970; 0 where unknown.
    pub started: u64,
    /// The device's size; 0 where unknown.
    pub device_bytes: u64,
    /// Nanoseconds of a unit of time, from 1 to a second's.
    pub tick_nanos: u32,
    /// Whether records tell how long they took.
    pub has_took: bool,
    /// The device's name.
    pub name: String,
    /// What captured it, in words.
    pub source: String,
}

/// Why a trace ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// It was told to.
    Stopped = 1,
    /// The server stopped.
    ServerStopped = 2,
    /// The disk was removed.
    DiskGone = 3,
    /// What captured it fell silent; whoever was writing it down wrote this end. What came after the last record is not known.
    Lost = 4,
    /// It was made from a file of another kind.
    Imported = 5,
}

/// What is known after the last record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Why.
    pub reason: Reason,
    /// How long it was captured, in nanoseconds.
    pub length: u64,
    /// Requests without a record: there was no room.
    pub dropped: u64,
    /// What an importer could not map.
    pub left_out: u64,
    /// What the records add up to.
    pub totals: Totals,
}

/// How many of each kind, and their bytes; by the number of the [`Op`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// How many.
    pub count: [u64; 5],
    /// Their bytes.
    pub bytes: [u64; 5],
}

impl Totals {
    /// One more.
    pub fn add(&mut self, record: &Record) {
        self.count[record.op as usize] += 1;
        let bytes = &mut self.bytes[record.op as usize];
        *bytes = bytes.saturating_add(record.bytes);
    }

    /// All records.
    pub fn records(&self) -> u64 {
        self.count.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

impl Header {
    fn body(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.u16(VERSION);
        body.u16(self.has_took.into());
        body.u32(self.tick_nanos);
        body.u64(self.started);
        body.u64(self.device_bytes);
        body.text(cut(&self.name));
        body.text(cut(&self.source));
        body
    }

    fn read(body: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(body, "a trace's header");
        let version = reader.u16()?;
        if version > VERSION {
            return Err(Error::new(Kind::Unsupported, format!("the trace has version {version}"))
                .remedy(format!("this build reads up to version {VERSION}: use a newer stonefold")));
        }
        let flags = reader.u16()?;
        let tick_nanos = reader.u32()?;
        if version == 0 || flags > 1 || !(1..=1_000_000_000).contains(&tick_nanos) {
            return Err(reader.malformed(&format!("version {version}, flags {flags}, tick {tick_nanos}")));
        }
        let header = Header {
            started: reader.u64()?,
            device_bytes: reader.u64()?,
            tick_nanos,
            has_took: flags == 1,
            name: reader.text()?.to_owned(),
            source: reader.text()?.to_owned(),
        };
        if header.device_bytes >= PLACE_MAX || header.name.len().max(header.source.len()) > TEXT_BYTES_MAX {
            return Err(reader.malformed("a device of that size, or a text of that length, is none"));
        }
        reader.end()?;
        Ok(header)
    }
}

impl End {
    fn body(&self, tick_nanos: u32) -> Vec<u8> {
        let mut body = Vec::new();
        body.u8(self.reason as u8);
        // Not before the last record's tick.
        body.u64(self.length / u64::from(tick_nanos));
        for number in [self.totals.records(), self.dropped, self.left_out] {
            body.u64(number);
        }
        for (count, bytes) in self.totals.count.iter().zip(self.totals.bytes) {
            body.u64(*count);
            body.u64(bytes);
        }
        body
    }

    fn read(body: &[u8], tick_nanos: u32) -> Result<Self> {
        let mut reader = Reader::new(body, "a trace's end");
        let reason = match reader.u8()? {
            1 => Reason::Stopped,
            2 => Reason::ServerStopped,
            3 => Reason::DiskGone,
            4 => Reason::Lost,
            5 => Reason::Imported,
            other => return Err(reader.malformed(&format!("reason {other}"))),
        };
        let length = reader.u64()?.checked_mul(tick_nanos.into()).filter(|length| *length <= TIME_MAX);
        let length = length.ok_or_else(|| reader.malformed("its length"))?;
        let (records, dropped, left_out) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let mut totals = Totals::default();
        for (count, bytes) in totals.count.iter_mut().zip(&mut totals.bytes) {
            (*count, *bytes) = (reader.u64()?, reader.u64()?);
        }
        if totals.records() != records {
            return Err(reader.malformed("its counts do not add up"));
        }
        reader.end()?;
        Ok(End { reason, length, dropped, left_out, totals })
    }
}

/// So much of a text as is kept, in whole letters.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
