//! blktrace's binary files, one for each processor (`struct blk_io_trace` of the kernel's `include/uapi/linux/blktrace_api.h`, version 7).
//!
//! An event, in the order of bytes of the machine that wrote it, which its magic tells:
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | magic: 0x656174 in the upper three bytes, version 7 in the lowest |
//! | 4..8 | number of the event |
//! | 8..16 | time in nanoseconds, on one clock for all processors |
//! | 16..24 | first sector, of 512 bytes |
//! | 24..28 | bytes |
//! | 28..32 | what happened in the lower half (bit 8: a control group's id follows), of what kind of I/O in the upper |
//! | 32..36 | process |
//! | 36..40 | device: major number in the upper 12 bits, minor in the others |
//! | 40..44 | processor |
//! | 44..46 | error of a completion |
//! | 46..48 | bytes that follow this event |
//!
//! A write that flushes first (`F` before `W` in blkparse) becomes a flush and a write. Zeroings are writes to blktrace, and so here. A completion
//! (`C`) of the same device, place, length and direction tells how long an I/O took. What blktrace itself has dropped is told by blktrace when it ends, and
//! not in its files.

use super::{Found, in_file};
use crate::trace::{Op, PLACE_MAX, Record, TIME_MAX};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use stonefold_types::{Error, Kind, Result};

const EVENT_BYTES: usize = 48;
const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;
const SECTOR_BYTES: u64 = 512;

const COMPLETE: u16 = 8;
const OF_READS: u16 = 1 << 0;
const OF_WRITES: u16 = 1 << 1;
const OF_FLUSHES: u16 = 1 << 2;
const OF_COMMANDS: u16 = 1 << 9;
const NOTES: u16 = 1 << 10;
const OF_DISCARDS: u16 = 1 << 13;
const OF_FUA: u16 = 1 << 15;
/// The note that tells the wall clock: seconds and nanoseconds.
const NOTE_TIME: u16 = 1;

/// Which of an I/O's events is taken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// `Q`: it was asked for, before it was merged with others.
    Queue,
    /// `D`: it was handed to the device.
    Issue,
}

/// Whether bytes begin as such a file does.
pub(super) fn is(bytes: &[u8]) -> bool {
    bytes.first_chunk().is_some_and(|magic| is_big(*magic).is_some())
}

/// Whether the upper byte of numbers comes first; nothing if it is no event.
fn is_big(magic: [u8; 4]) -> Option<bool> {
    match (u32::from_le_bytes(magic) & !0xff == MAGIC, u32::from_be_bytes(magic) & !0xff == MAGIC) {
        (true, _) => Some(false),
        (_, true) => Some(true),
        _ => None,
    }
}

struct Told {
    time: u64,
    sector: u64,
    bytes: u32,
    what: u16,
    kind: u16,
    device: u32,
    processor: u32,
}

/// All events of all files that matter, by time.
pub(super) fn read(files: &[(&Path, Vec<u8>)], event: Event, device: Option<&str>) -> Result<Found> {
    let (mut found, mut events) = (Found::default(), Vec::new());
    for (path, bytes) in files {
        events_of(bytes, event, &mut events, &mut found).map_err(|e| in_file(path, e))?;
    }
    events.sort_by_key(|told| told.time);
    let devices: BTreeSet<u32> = events.iter().map(|told| told.device).collect();
    let named = device.map(number_of).transpose()?;
    if let (None, 2..) = (named, devices.len()) {
        let names: Vec<String> = devices.iter().map(|device| name_of(*device)).collect();
        let what = format!("the blktrace is of several devices: {}", names.join(", "));
        return Err(Error::new(Kind::Invalid, what).remedy("name one with --device MAJOR:MINOR"));
    }
    found.name = named.or(devices.first().copied()).map(name_of).unwrap_or_default();
    let mut open = BTreeMap::new();
    for told in events {
        if named.is_some_and(|named| named != told.device) {
            found.leave_out("events of other devices");
        } else if told.what == COMPLETE {
            complete(&told, &mut open, &mut found);
        } else {
            begin(&told, &mut open, &mut found);
        }
    }
    Ok(found)
}

/// I/Os that no completion was found for yet, by device, sector, bytes and whether they write: their numbers among the records.
type Open = BTreeMap<(u32, u64, u32, bool), VecDeque<usize>>;

fn key(told: &Told) -> (u32, u64, u32, bool) {
    (told.device, told.sector, told.bytes, told.kind & OF_WRITES != 0)
}

fn begin(told: &Told, open: &mut Open, found: &mut Found) {
    let (fua, offset) = (told.kind & OF_FUA != 0, told.sector.saturating_mul(SECTOR_BYTES));
    let record = |op, fua, offset, bytes| Record {
        at: told.time,
        op,
        fua,
        queue: told.processor,
        offset,
        bytes,
        took: None,
    };
    let op = match told.kind {
        kind if kind & OF_COMMANDS != 0 => return found.leave_out("commands that are no I/O"),
        kind if kind & OF_DISCARDS != 0 => Op::Trim,
        kind if kind & OF_WRITES != 0 => Op::Write,
        kind if kind & OF_READS != 0 => Op::Read,
        kind if kind & OF_FLUSHES != 0 => Op::Flush,
        _ => return found.leave_out("events of an unknown kind"),
    };
    if told.kind & OF_FLUSHES != 0 {
        found.records.push(record(Op::Flush, false, 0, 0));
    }
    if op == Op::Flush || (told.bytes == 0 && told.kind & OF_FLUSHES != 0) {
        return;
    }
    if told.bytes == 0 || offset >= PLACE_MAX {
        return found.leave_out("I/Os of no bytes, or beyond every device");
    }
    open.entry(key(told)).or_default().push_back(found.records.len());
    found.records.push(record(op, fua, offset, told.bytes.into()));
}

fn complete(told: &Told, open: &mut Open, found: &mut Found) {
    let Some(number) = open.get_mut(&key(told)).and_then(VecDeque::pop_front) else { return };
    found.records[number].took = Some(told.time - found.records[number].at);
    found.has_took = true;
}

fn events_of(bytes: &[u8], wanted: Event, events: &mut Vec<Told>, found: &mut Found) -> Result<()> {
    let wanted = match wanted {
        Event::Queue => 1,
        Event::Issue => 7,
    };
    let mut at = 0;
    while at < bytes.len() {
        let whole = bytes.get(at..at + EVENT_BYTES).and_then(|event| event.first_chunk::<EVENT_BYTES>());
        let event = whole.ok_or_else(|| cut(at))?;
        let (told, behind) = event_of(event, at)?;
        let note = bytes.get(at + EVENT_BYTES..at + EVENT_BYTES + behind).ok_or_else(|| cut(at))?;
        at += EVENT_BYTES + behind;
        if told.kind & NOTES != 0 {
            if let (NOTE_TIME, Some(clock)) = (told.what, note.last_chunk::<8>()) {
                let big = is_big(*event.first_chunk().expect("48 bytes")) == Some(true);
                found.started = seconds(*clock, big);
            }
        } else if told.what == wanted || told.what == COMPLETE {
            if told.time > TIME_MAX {
                return Err(Error::new(Kind::Corrupt, format!("the event at byte {at} has no time")));
            }
            events.push(told);
        }
    }
    Ok(())
}

fn event_of(event: &[u8; EVENT_BYTES], at: usize) -> Result<(Told, usize)> {
    let magic = *event.first_chunk::<4>().expect("48 bytes");
    let big = is_big(magic)
        .ok_or_else(|| Error::new(Kind::Corrupt, format!("there is no event of blktrace at byte {at}")))?;
    let four = |at: usize| number(event[at..at + 4].try_into().expect("4 bytes"), big);
    let eight = |at: usize| match big {
        true => u64::from(four(at)) << 32 | u64::from(four(at + 4)),
        false => u64::from(four(at + 4)) << 32 | u64::from(four(at)),
    };
    if four(0) & 0xff != VERSION {
        let what = format!("is of version {} of blktrace", four(0) & 0xff);
        return Err(Error::new(Kind::Unsupported, what)
            .remedy("version 7, which kernels since 2.6.17 write, can be read"));
    }
    let action = four(28);
    let told = Told {
        time: eight(8),
        sector: eight(16),
        bytes: four(24),
        // Bit 8: the id of a control group is among the bytes that follow.
        what: (action & 0xffff) as u16 & !(1 << 8),
        kind: (action >> 16) as u16,
        device: four(36),
        processor: four(40),
    };
    // The last two bytes of the four, which of a machine that puts the upper byte first are the lower half.
    let behind = if big { four(44) & 0xffff } else { four(44) >> 16 };
    Ok((told, behind as usize))
}

fn number(bytes: [u8; 4], big: bool) -> u32 {
    if big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
}

fn seconds(clock: [u8; 8], big: bool) -> u64 {
    let half = |at: usize| u64::from(number(clock[at..at + 4].try_into().expect("4 bytes"), big));
    half(0) * 1_000_000_000 + half(4)
}

fn cut(at: usize) -> Error {
    Error::new(Kind::Corrupt, format!("was cut short: it ends within the event at byte {at}"))
        .remedy("copy it again, whole; blktrace writes whole events only")
}

fn name_of(device: u32) -> String {
    format!("{}:{}", device >> 20, device & 0xf_ffff)
}

fn number_of(name: &str) -> Result<u32> {
    let number = |text: &str| text.parse::<u32>().ok();
    let numbers = name.split_once(':').and_then(|(major, minor)| Some((number(major)?, number(minor)?)));
    match numbers {
        Some((major, minor)) if major < 1 << 12 && minor < 1 << 20 => Ok(major << 20 | minor),
        _ => Err(Error::new(Kind::Invalid, format!("'{name}' is no device of a blktrace"))
            .remedy("write it as MAJOR:MINOR, as 'lsblk' shows it")),
    }
}
