//! Traces from files that others wrote: fio's I/O logs and blktrace's binary files.
//!
//! *Promises*: what cannot be mapped is counted by its reason, and told; I/Os lie in the order of their times. Whoever imports needs memory for
//! all I/Os, 56 bytes each.

mod blktrace;
mod fio;

pub use blktrace::Event;

use super::{End, Header, Reason, Record, Totals, write};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use stonefold_types::{Error, Kind, Result};

/// What was read of foreign files.
#[derive(Debug, Default)]
pub(crate) struct Found {
    records: Vec<Record>,
    /// Whether any says how long it took.
    has_took: bool,
    /// Where the device is said to be of some name.
    name: String,
    /// Nanoseconds since 1970; 0 unknown.
    started: u64,
    left_out: BTreeMap<String, u64>,
}

impl Found {
    fn leave_out(&mut self, why: impl Into<String>) {
        *self.left_out.entry(why.into()).or_default() += 1;
    }
}

/// What came of an import.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The trace's bytes.
    pub bytes: Vec<u8>,
    /// In words, what it was read from.
    pub format: &'static str,
    /// How many of each kind.
    pub totals: Totals,
    /// What was not mapped: why, and how many.
    pub left_out: BTreeMap<String, u64>,
}

/// Reads files of one trace: one I/O log of fio, or the files that blktrace wrote for each processor. Which it is, the first file's beginning
/// says. Of a blktrace those events are taken that `event` names; `device` is that of which several are in it, as `MAJOR:MINOR` or, in an I/O
/// log, the file's name.
///
/// # Errors
/// What the file system says; [`Kind::Corrupt`] for a file that ends within an event, [`Kind::Invalid`] for what is none of these or holds
/// several devices of which none is named.
pub fn import(paths: &[PathBuf], event: Event, device: Option<&str>) -> Result<Imported> {
    let first = paths.first().ok_or_else(|| Error::new(Kind::Invalid, "no file to import"))?;
    let files = paths.iter().map(|path| Ok((path.as_path(), read(path)?))).collect::<Result<Vec<_>>>()?;
    let (format, mut found) = match files[0].1.as_slice() {
        bytes if bytes.starts_with(b"fio version ") => {
            if files.len() > 1 {
                let what = "several I/O logs of fio have no clock in common";
                return Err(Error::new(Kind::Invalid, what).remedy("import each into a trace of its own"));
            }
            fio::read(bytes, device).map_err(|e| in_file(first, e))?
        }
        bytes if blktrace::is(bytes) => ("blktrace", blktrace::read(&files, event, device)?),
        _ => {
            let what =
                format!("'{}' is neither an I/O log of fio nor a binary file of blktrace", first.display());
            return Err(Error::new(Kind::Unsupported, what).remedy(
                "name what 'fio --write_iolog=FILE' or 'blktrace -o NAME' wrote (NAME.blktrace.0 and so on)",
            ));
        }
    };
    if found.records.is_empty() {
        let what =
            format!("'{}' holds no I/O that can be replayed{}", first.display(), told(&found.left_out));
        return Err(Error::new(Kind::Invalid, what).remedy("of a blktrace, try the other --event"));
    }
    // Stable: I/Os of one time stay in the order in which they were told.
    found.records.sort_by_key(|record| record.at);
    // A capture begins with its first I/O; what went before is not known.
    let begin = found.records[0].at;
    found.records.iter_mut().for_each(|record| record.at -= begin);
    let length = found.records.last().map_or(0, |record| record.at);
    let header = Header {
        started: found.started,
        device_bytes: 0,
        tick_nanos: if format == "blktrace" { 1 } else { 1_000 },
        has_took: found.has_took,
        name: found.name,
        source: format!("{format}, imported by stonefold {}", env!("CARGO_PKG_VERSION")),
    };
    let mut totals = Totals::default();
    found.records.iter().for_each(|record| totals.add(record));
    let end =
        End { reason: Reason::Imported, length, dropped: 0, left_out: found.left_out.values().sum(), totals };
    Ok(Imported { bytes: write(header, &found.records, end), format, totals, left_out: found.left_out })
}

/// In brackets, what was left out.
fn told(left_out: &BTreeMap<String, u64>) -> String {
    let told: Vec<String> = left_out.iter().map(|(why, count)| format!("{count} {why}")).collect();
    if told.is_empty() { String::new() } else { format!(" ({})", told.join("; ")) }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path)
        .map_err(|e| Error::io(format!("reading '{}'", path.display()), e).remedy("name a readable file"))
}

fn in_file(path: &Path, error: Error) -> Error {
    error.context(format!("'{}'", path.display()))
}
