//! What a target says that it has done, beside what the lab has asked of it.
//!
//! Bytes, because those are counted alike everywhere: a device counts requests after the kernel has merged and split them. Where the two
//! differ the lab has measured something else than the target, or the target was not alone.

use crate::record::StreamRecord;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stonefold_types::{Error, Kind, Result};

/// The unit of a block device's counters, whatever its sectors are, in bytes.
const SECTOR: u64 = 512;
/// How far both may be apart, as a share, beside what was in flight at the ends.
pub const APART_MAX: f64 = 0.001;

/// Bytes, since some moment of the target's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Read from it.
    pub read_bytes: u64,
    /// Written to it.
    pub written_bytes: u64,
}

impl Counts {
    pub(crate) fn since(self, before: Counts) -> Counts {
        Counts {
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
        }
    }
}

impl std::iter::Sum for Counts {
    fn sum<I: Iterator<Item = Counts>>(all: I) -> Counts {
        all.fold(Counts::default(), |sum, one| Counts {
            read_bytes: sum.read_bytes + one.read_bytes,
            written_bytes: sum.written_bytes + one.written_bytes,
        })
    }
}

/// Whoever can say what a target has done.
pub trait Counters: fmt::Debug + Send + Sync {
    /// What it says now.
    ///
    /// # Errors
    /// Why it cannot.
    fn counts(&self) -> Result<Counts>;
}

/// What all of them say now; nothing where nobody can say it.
///
/// # Errors
/// Why one cannot.
pub(crate) fn sum(all: &[Arc<dyn Counters>]) -> Result<Option<Counts>> {
    if all.is_empty() {
        return Ok(None);
    }
    all.iter().map(|one| one.counts()).sum::<Result<Counts>>().map(Some)
}

/// What all of them say to have done since `before`, or why they cannot: what was measured meanwhile stands without it.
pub(crate) fn since(all: &[Arc<dyn Counters>], before: Option<Counts>) -> (Option<Counts>, Option<String>) {
    match sum(all) {
        Ok(now) => (now.zip(before).map(|(now, before)| now.since(before)), None),
        Err(error) => (None, Some(error.to_string())),
    }
}

/// A block device, as the kernel counts it.
#[derive(Debug)]
struct OfDevice {
    stat: PathBuf,
}

/// The counters of a block device: `/sys/dev/block/MAJOR:MINOR/stat`, fields 3 and 7
/// (<https://www.kernel.org/doc/html/latest/block/stat.html>).
///
/// # Errors
/// [`Kind::Invalid`] where it is none, and what the file system says.
pub fn of_device(path: &Path) -> Result<impl Counters + use<>> {
    let failed = |e| Error::io(format!("looking at the device '{}'", path.display()), e);
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if !metadata.file_type().is_block_device() {
        return Err(Error::new(Kind::Invalid, format!("'{}' is no block device", path.display())));
    }
    let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
    Ok(OfDevice { stat: format!("/sys/dev/block/{major}:{minor}/stat").into() })
}

impl Counters for OfDevice {
    fn counts(&self) -> Result<Counts> {
        let name = self.stat.display();
        let text =
            std::fs::read_to_string(&self.stat).map_err(|e| Error::io(format!("reading '{name}'"), e))?;
        parse(&text)
            .ok_or_else(|| Error::new(Kind::Invalid, format!("'{name}' says nothing that is known: {text}")))
    }
}

fn parse(text: &str) -> Option<Counts> {
    let mut fields = text.split_whitespace().map(str::parse::<u64>);
    let read = fields.nth(2)?.ok()?;
    let written = fields.nth(3)?.ok()?;
    Some(Counts { read_bytes: read * SECTOR, written_bytes: written * SECTOR })
}

/// What both say of one load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reconciled {
    /// What the target has counted.
    pub said: Counts,
    /// What it has answered the lab.
    pub answered: Counts,
    /// Bytes of the largest I/Os that may have been in flight at the end, and were answered after it.
    pub in_flight: u64,
}

impl Reconciled {
    /// Beside what streams have recorded; nothing where the target does not say it, or where blocks were zeroed, which devices count as written and others do not.
    pub(crate) fn of(said: Option<Counts>, streams: &[StreamRecord]) -> Option<Self> {
        let (said, mut answered, mut in_flight) = (said?, Counts::default(), 0);
        for record in streams {
            let [.., zeroings] = record.requests;
            if zeroings > 0 {
                return None;
            }
            answered.read_bytes += record.read.bytes;
            answered.written_bytes += record.write.bytes;
            let largest = record.sizes.keys().max().copied().unwrap_or(0);
            in_flight += record.issued().saturating_sub(record.ios()) * largest;
        }
        Some(Reconciled { said, answered, in_flight })
    }

    /// Whether they say the same.
    pub fn agree(&self) -> bool {
        let same = |said: u64, answered: u64| {
            let room = (answered as f64 * APART_MAX) as u64;
            (answered.saturating_sub(room)..=answered + room + self.in_flight).contains(&said)
        };
        same(self.said.read_bytes, self.answered.read_bytes)
            && same(self.said.written_bytes, self.answered.written_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_counters_are_read() {
        let text = "  123 4 1000 9 50 6 2000 7 0 8 9 0 0 0 0 1 2\n";
        assert_eq!(parse(text), Some(Counts { read_bytes: 512_000, written_bytes: 1_024_000 }));
        assert_eq!(parse("1 2"), None);
        assert_eq!(of_device(Path::new("/dev/null")).map(drop).unwrap_err().kind(), Kind::Invalid);
    }

    /// Goal: as much as was in flight at the end may be missing in what the lab has counted, and nothing else.
    #[test]
    fn what_differs_is_seen() {
        let answered = Counts { read_bytes: 1 << 30, written_bytes: 0 };
        let agree = |read_bytes: u64, written_bytes: u64| {
            Reconciled { said: Counts { read_bytes, written_bytes }, answered, in_flight: 1 << 20 }.agree()
        };
        assert!(agree(1 << 30, 0) && agree((1 << 30) + (2 << 20), 0) && agree(1 << 30, 1 << 20));
        assert!(!agree((1 << 30) + (4 << 20), 0) && !agree((1 << 30) - (4 << 20), 0));
        assert!(!agree(1 << 30, 2 << 20) && !agree(0, 0));
    }
}
