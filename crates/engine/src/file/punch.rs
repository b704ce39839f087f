//! Giving back the room of parts of an object: holes in its file.

use super::durable::unsupported;
use super::header::{HEADER_BYTES, Header};
use super::member::{Member, Temporary, file_error, occupied_by};
use super::object::read_header;
use crate::Key;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use stonefold_types::{AlignedBuf, Error, Kind, Result};

const PAGE: u64 = AlignedBuf::ALIGN as u64;

impl Member {
    /// Punches the whole pages inside the ranges out of an object's file; returns the bytes given back.
    pub(super) async fn punch(self: &Arc<Self>, key: &Key, ranges: &[Range<u64>]) -> Result<u64> {
        let path = self.layout.place(key)?.file;
        // So that it is not a successor of the object whose parts nobody needs any more.
        let _held = self.lock_key(key).await;
        self.check_sound()?;
        let (member, ranges, at) = (self.clone(), ranges.to_vec(), path.clone());
        let punched = self.io.blocking(move || -> Result<u64> {
            forget_sum(&at)?;
            let failed = |e| file_error("giving back parts of", &at, e);
            let file = OpenOptions::new().write(true).open(&at).map_err(failed)?;
            let before = file.metadata().map_err(failed)?;
            for range in ranges {
                let end = range.end.min(before.len().saturating_sub(HEADER_BYTES as u64));
                dig(&file, &at, range.start.div_ceil(PAGE) * PAGE..end / PAGE * PAGE)?;
            }
            let (before, after) = (occupied_by(&before), occupied_by(&file.metadata().map_err(failed)?));
            member.count_bytes(before, after);
            Ok(before.saturating_sub(after))
        });
        punched.await.map_err(|e| self.named(e, key))
    }
}

impl Member {
    /// Where an object's file has holes, as ranges of the payload; none where that cannot be told.
    pub(super) async fn holes(&self, key: &Key) -> Vec<Range<u64>> {
        let Ok(place) = self.layout.place(key) else { return Vec::new() };
        self.io.blocking(move || holes(&place.file).unwrap_or_default()).await
    }

    /// Punches holes into a file that has no name yet, so that a copy takes no more room than what it is copied
    /// from. Where that fails the copy takes more room, and is right all the same.
    pub(super) async fn punch_temporary(&self, temporary: Temporary, holes: Vec<Range<u64>>) -> Temporary {
        if holes.is_empty() {
            return temporary;
        }
        let punch = move || {
            if let Ok(file) = OpenOptions::new().write(true).open(&temporary.path) {
                let _ = holes.into_iter().try_for_each(|hole| dig(&file, &temporary.path, hole));
                // The bytes are durable already; of the holes a crash may take what it likes.
            }
            temporary
        };
        self.io.blocking(punch).await
    }
}

fn holes(path: &Path) -> std::io::Result<Vec<Range<u64>>> {
    use rustix::fs::{SeekFrom, seek};
    let file = File::open(path)?;
    let (mut at, end) = (HEADER_BYTES as u64, file.metadata()?.len());
    let mut holes = Vec::new();
    while at < end {
        let hole = seek(&file, SeekFrom::Hole(at))?;
        if hole >= end {
            break;
        }
        at = match seek(&file, SeekFrom::Data(hole)) {
            Ok(data) => data,
            // No data behind the hole.
            Err(rustix::io::Errno::NXIO) => end,
            Err(error) => return Err(error.into()),
        };
        holes.push(hole - HEADER_BYTES as u64..at / PAGE * PAGE - HEADER_BYTES as u64);
    }
    Ok(holes)
}

/// Takes the sum out of the header of an object that has one over all its bytes, durably and before the first hole,
/// so that the holes are not taken for damage. The header's used bytes lie in one sector: the old or the new are there.
fn forget_sum(path: &Path) -> Result<()> {
    let header = read_header(path)?;
    if header.sum == 0 {
        return Ok(());
    }
    let rewrite = || {
        let file = OpenOptions::new().write(true).open(path)?;
        file.write_all_at(&Header { sum: 0, ..header.clone() }.encode(), 0)?;
        file.sync_data()
    };
    rewrite().map_err(|e| file_error("giving back parts of", path, e))
}

fn dig(file: &File, path: &Path, payload: Range<u64>) -> Result<()> {
    if payload.is_empty() {
        return Ok(());
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let dug = fallocate(file, flags, HEADER_BYTES as u64 + payload.start, payload.end - payload.start);
    dug.map_err(|e| match unsupported(e) {
        true => Error::new(
            Kind::Unsupported,
            format!("the file system of '{}' cannot give back parts of a file", path.display()),
        ),
        false => file_error("giving back parts of", path, e.into()),
    })
}
