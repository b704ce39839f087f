//! Traces: what was asked of a device, as it was captured or imported.
//!
//! *Promises*: a trace that is here is whole and was verified to its last record, or says that it was cut short. *Never*: holds data; replays by
//! itself ([`crate::replay`] does). The bytes are drawn in [`stonefold_format::trace`]. *Owns*: the trace's bytes in memory, some five for each
//! record.

pub mod fit;
pub mod import;
pub mod shipped;
mod summary;

pub use stonefold_format::trace::{
    End, Header, Op, PLACE_MAX, RECORDS_MAX, Reason, Record, TIME_MAX, Totals,
};
pub use summary::{PIECE_BYTES, Spot, Summary};

use std::io::Write;
use std::path::Path;
use stonefold_format::trace::block::Block;
use stonefold_format::trace::parts::{Next, Parts, Writer};
use stonefold_types::{Error, Kind, Result};

/// A trace in memory.
#[derive(Clone, Debug)]
pub struct Trace {
    bytes: Vec<u8>,
    header: Header,
    blocks: Vec<Block>,
    end: End,
    cut_at: Option<usize>,
}

impl Trace {
    /// Reads a trace and looks at all of it.
    ///
    /// # Errors
    /// What the file system says; [`Kind::Corrupt`] for what is damaged, and for a trace without an end unless `partial` allows it: then
    /// it ends with its last whole block.
    pub fn open(path: &Path, partial: bool) -> Result<Self> {
        let name = path.display();
        let bytes = std::fs::read(path).map_err(|e| {
            Error::io(format!("reading the trace '{name}'"), e).remedy("name a readable file")
        })?;
        Self::of(bytes, partial).map_err(|e| {
            let importable = e.kind() == Kind::Corrupt && e.remedy_text().is_none();
            let e = e.context(format!("the trace '{name}'"));
            if importable {
                e.remedy("capture it anew; a file of blktrace or fio goes through 'lab trace import' first")
            } else {
                e
            }
        })
    }

    /// The same of bytes.
    ///
    /// # Errors
    /// See [`Trace::open`].
    pub fn of(bytes: Vec<u8>, partial: bool) -> Result<Self> {
        let mut parts = Parts::new(&bytes)?;
        let header = parts.header().clone();
        let (mut blocks, mut records, mut totals) = (Vec::new(), Vec::new(), Totals::default());
        let (end, cut_at) = loop {
            match parts.next()? {
                Next::Block(block) => {
                    records.clear();
                    block.records(&bytes, &header, &mut records)?;
                    records.iter().for_each(|record| totals.add(record));
                    blocks.push(block);
                }
                Next::End(end) => break (end, None),
                Next::Cut(at) => {
                    let length = blocks.last().map_or(0, |block: &Block| block.last);
                    break (End { reason: Reason::Lost, length, dropped: 0, left_out: 0, totals }, Some(at));
                }
            }
        };
        if cut_at.is_some() && !partial {
            let what =
                format!("was cut short: {} requests can be read, and there is no end", totals.records());
            return Err(Error::new(Kind::Corrupt, what).remedy("use what there is with --partial"));
        }
        if end.totals != totals {
            return Err(Error::new(Kind::Corrupt, "its end counts other requests than it has"));
        }
        Ok(Trace { bytes, header, blocks, end, cut_at })
    }

    /// What is known of it before its first record.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What its end says, or what follows from its records when it has none.
    pub fn end(&self) -> &End {
        &self.end
    }

    /// After how many bytes it was cut, if it was.
    pub fn cut_at(&self) -> Option<usize> {
        self.cut_at
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// BLAKE3 of the file, in hex.
    pub fn hash(&self) -> String {
        blake3::hash(&self.bytes).to_hex().to_string()
    }

    /// How long it was captured, in nanoseconds.
    pub fn length(&self) -> u64 {
        self.end.length
    }

    /// The device's size: what the header says, or where the last request ends, whichever is more; whole blocks of 4 KiB.
    pub fn device_bytes(&self) -> u64 {
        let reach = self.records().map(|record| record.offset + record.bytes).max().unwrap_or(0);
        self.header.device_bytes.max(reach).max(1).next_multiple_of(4096)
    }

    /// Blocks of records, for whoever decodes them one by one.
    pub(crate) fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Decodes a block behind what `records` holds.
    pub(crate) fn decode(&self, block: usize, records: &mut Vec<Record>) {
        let decoded = self.blocks[block].records(&self.bytes, &self.header, records);
        decoded.expect("it was decoded when the trace was opened");
    }

    /// All records, in order.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        (0..self.blocks.len()).flat_map(|block| {
            let mut records = Vec::with_capacity(self.blocks[block].count);
            self.decode(block, &mut records);
            records
        })
    }
}

/// Writes a trace of records that are at hand, in the order of their times. Returns its bytes.
pub fn write(header: Header, records: &[Record], end: End) -> Vec<u8> {
    let (mut writer, mut bytes) = Writer::new(header);
    records.chunks(RECORDS_MAX).for_each(|block| bytes.extend(writer.block(block)));
    bytes.extend(writer.end(end));
    bytes
}

/// Gives a trace that was cut short an end that says so; `path` is a file that its own writer has closed. Returns whether it had none.
///
/// # Errors
/// What the file system says; [`Kind::Corrupt`] when not even its header is whole.
pub fn close(path: &Path) -> Result<bool> {
    let trace = Trace::open(path, true)?;
    let Some(at) = trace.cut_at else { return Ok(false) };
    let failed = |e| Error::io(format!("ending the trace '{}'", path.display()), e);
    let mut file = std::fs::OpenOptions::new().write(true).open(path).map_err(failed)?;
    file.set_len(at as u64).map_err(failed)?;
    std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0)).map_err(failed)?;
    file.write_all(&Writer::resume(&trace.bytes[..at])?.end(trace.end)).map_err(failed)?;
    Ok(true)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Records of a device of 64 MiB; `made` gives each its time in microseconds, its kind, place and length.
    pub(crate) fn trace(made: impl IntoIterator<Item = (u64, Op, u64, u64)>, length_us: u64) -> Trace {
        let records: Vec<Record> = made
            .into_iter()
            .map(|(at, op, offset, bytes)| Record {
                at: at * 1_000,
                op,
                fua: false,
                queue: 0,
                offset,
                bytes,
                took: None,
            })
            .collect();
        let header = Header {
            started: 0,
            device_bytes: 64 << 20,
            tick_nanos: 1_000,
            has_took: false,
            name: "web".into(),
            source: "a test".into(),
        };
        let (reason, totals) = (Reason::Stopped, Totals::default());
        let end = End { reason, length: length_us * 1_000, dropped: 0, left_out: 0, totals };
        Trace::of(write(header, &records, end), false).unwrap()
    }

    #[test]
    fn a_trace_cut_short_is_refused_or_ended_as_asked() {
        // Places that do not compress to nothing: the cut is in the second block.
        let place = |number: u64| crate::payload::mix(number) >> 50 << 12;
        let whole = trace((0..9_000u64).map(|number| (number * 10, Op::Read, place(number), 4096)), 90_000);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("web.sftrace");
        std::fs::write(&path, &whole.bytes[..whole.bytes.len() - 400]).unwrap();
        let error = Trace::open(&path, false).unwrap_err();
        assert!(error.to_string().contains("was cut short: 8192 requests"), "{error}");
        assert_eq!(error.remedy_text(), Some("use what there is with --partial"));
        let some = Trace::open(&path, true).unwrap();
        assert_eq!((some.records().count(), some.length()), (8192, 81_910_000));
        assert!(close(&path).unwrap() && !close(&path).unwrap());
        let closed = Trace::open(&path, false).unwrap();
        assert_eq!((closed.end().reason, closed.end().totals.records()), (Reason::Lost, 8192));
        std::fs::write(&path, "fio version 3 iolog\n").unwrap();
        let error = Trace::open(&path, true).unwrap_err();
        assert!(error.remedy_text().unwrap().contains("import"), "{error}");
    }
}
