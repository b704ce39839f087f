//! fio's I/O logs, versions 2 and 3 ("Trace File Format" in fio's HOWTO).
//!
//! | version | a line |
//! |---|---|
//! | 2 | `file action`, `file action offset length`; `file wait µs 0`: the next I/O is that much later than the wait before |
//! | 3 | `µs file action`, `µs file action offset length` |
//!
//! The unit of version 3's times is not in the HOWTO; fio 3.33 writes microseconds since the job began. A wait below 100 µs is passed over, as
//! fio does. Actions on files (`add`, `open`, `close`) ask nothing of a device and are not counted as left out.

use super::Found;
use crate::trace::{Op, PLACE_MAX, Record, TIME_MAX};
use std::collections::BTreeSet;
use stonefold_types::{Error, Kind, Result};

/// Waits below this are none, in microseconds.
const WAIT_MIN: u64 = 100;

/// One line, taken apart.
struct Line<'a> {
    micros: Option<u64>,
    file: &'a str,
    action: &'a str,
    numbers: Option<(u64, u64)>,
}

pub(super) fn read(bytes: &[u8], device: Option<&str>) -> Result<(&'static str, Found)> {
    let text = std::str::from_utf8(bytes).map_err(|_| wrong(1, "it is not UTF-8"))?;
    let mut lines = text.lines().enumerate();
    let (stamped, format) = match lines.next().map(|(_, line)| line.trim_end()) {
        Some("fio version 2 iolog") => (false, "fio's I/O log, version 2"),
        Some("fio version 3 iolog") => (true, "fio's I/O log, version 3"),
        other => {
            let what = format!("begins with '{}'", other.unwrap_or_default().escape_debug());
            return Err(
                Error::new(Kind::Unsupported, what).remedy("versions 2 and 3 of fio's I/O log can be read")
            );
        }
    };
    let (mut found, mut now, mut files) = (Found::default(), 0u64, BTreeSet::new());
    for (number, text) in lines.filter(|(_, text)| !text.trim().is_empty()) {
        let line = Line::parse(text, stamped).map_err(|why| wrong(number + 1, &why))?;
        now = line
            .now(now)
            .filter(|now| *now <= TIME_MAX / 1_000)
            .ok_or_else(|| wrong(number + 1, "its time"))?;
        line.take(now, device, &mut files, &mut found).map_err(|why| wrong(number + 1, &why))?;
    }
    if let (None, 2..) = (device, files.len()) {
        let names: Vec<&str> = files.into_iter().collect();
        return Err(Error::new(Kind::Invalid, format!("is of several files: {}", names.join(", ")))
            .remedy("name one with --device"));
    }
    found.name = device.or(files.pop_first()).unwrap_or_default().to_owned();
    Ok((format, found))
}

fn wrong(line: usize, why: &str) -> Error {
    Error::new(Kind::Corrupt, format!("line {line} cannot be read: {why}"))
        .remedy("name what 'fio --write_iolog=FILE' wrote, whole")
}

impl<'a> Line<'a> {
    fn parse(text: &'a str, stamped: bool) -> std::result::Result<Self, String> {
        let mut words = text.split_ascii_whitespace();
        let number =
            |word: &str| word.parse::<u64>().map_err(|_| format!("'{}' is no number", word.escape_debug()));
        let micros = if stamped { Some(number(words.next().unwrap_or_default())?) } else { None };
        let rest: Vec<&str> = words.collect();
        match rest[..] {
            [file, action] => Ok(Line { micros, file, action, numbers: None }),
            [file, action, offset, length] => {
                Ok(Line { micros, file, action, numbers: Some((number(offset)?, number(length)?)) })
            }
            _ => Err(format!("{} words", rest.len())),
        }
    }

    /// The time after this line, in microseconds.
    fn now(&self, before: u64) -> Option<u64> {
        match (self.micros, self.action, self.numbers) {
            (Some(micros), _, _) => Some(micros),
            (None, "wait", Some((wait, _))) if wait >= WAIT_MIN => before.checked_add(wait),
            _ => Some(before),
        }
    }

    fn take(
        &self,
        now: u64,
        device: Option<&str>,
        files: &mut BTreeSet<&'a str>,
        found: &mut Found,
    ) -> std::result::Result<(), String> {
        let op = match self.action {
            "add" | "open" | "close" => return Ok(()),
            "wait" if self.micros.is_none() => return Ok(()),
            "read" => Op::Read,
            "write" => Op::Write,
            "trim" => Op::Trim,
            "sync" | "datasync" => Op::Flush,
            other => {
                found.leave_out(format!("with the action '{}'", other.escape_debug()));
                return Ok(());
            }
        };
        if device.is_some_and(|device| device != self.file) {
            found.leave_out("of other files");
            return Ok(());
        }
        files.insert(self.file);
        let (offset, bytes) = match (op, self.numbers) {
            (Op::Flush, _) => (0, 0),
            (_, None) => return Err(format!("a {} without offset and length", self.action)),
            (_, Some((_, 0))) => {
                found.leave_out("of no bytes");
                return Ok(());
            }
            (_, Some((offset, bytes))) if offset < PLACE_MAX && bytes < PLACE_MAX => (offset, bytes),
            _ => return Err("a place beyond every device".into()),
        };
        found.records.push(Record { at: now * 1_000, op, fua: false, queue: 0, offset, bytes, took: None });
        Ok(())
    }
}
