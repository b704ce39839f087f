//! Whose data a target holds.
//!
//! *Promises*: where there are up to [`WHOLE_MAX`] of data every sector of them is looked at, and holes of files are none. Of more: the first and the
//! last MiB, where file systems, volume managers, arrays and partition tables have their marks, the beginning of each stretch of a file's
//! data, and [`LOOKS`] places evenly over all of it. *Never*: changes anything.

use super::open::Opened;
use super::{Backend, Buffers, Completion, Op, Request};
use crate::payload::{SECTOR_BYTES, is_ours};
use rustix::fs::{Advice, SeekFrom, fadvise, seek};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::Duration;
use stonefold_types::{Error, Kind, Result};

/// As much data is looked at whole, in bytes.
const WHOLE_MAX: u64 = 256 << 20;
/// Of more, as much at either end.
const EDGE: u64 = 1 << 20;
/// And so many places.
const LOOKS: u64 = 1024;
/// Stretches of a file's data of which the beginning is looked at.
const STRETCHES_MAX: usize = 4096;
/// Bytes of one look.
const LOOK: u64 = 64 << 10;
/// What places are multiples of, for targets that take no less.
const ALIGN: u64 = 4096;

/// Whatever is read to look at a target.
pub(super) enum Source<'a> {
    /// A file or a device, through the page cache: neither has to be as large as the load needs it, nor to end with a sector.
    File(&'a File),
    /// An export.
    Export(Box<dyn Backend + Send>, Buffers),
}

impl Source<'_> {
    /// Room for one look at an export.
    pub(super) fn buffers() -> io::Result<Buffers> {
        Buffers::new(1, LOOK as usize)
    }

    /// Reads what there is of so many bytes, [`LOOK`] at most; what is beyond the end reads as zeros.
    pub(super) fn read(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        match self {
            Source::File(file) => {
                let mut done = 0;
                while done < into.len() {
                    match file.read_at(&mut into[done..], offset + done as u64)? {
                        0 => break,
                        some => done += some,
                    }
                }
                into[done..].fill(0);
                Ok(())
            }
            Source::Export(backend, buffers) => read(&mut **backend, buffers, offset, into),
        }
    }
}

/// Waits for one read.
fn read(backend: &mut dyn Backend, buffers: &Buffers, offset: u64, into: &mut [u8]) -> io::Result<()> {
    backend.submit(Request {
        slot: 0,
        volume: 0,
        op: Op::Read,
        fua: false,
        offset,
        bytes: into.len() as u32,
    });
    let mut done: Vec<Completion> = Vec::new();
    while done.is_empty() {
        backend.push()?;
        backend.wait(Duration::from_millis(100))?;
        backend.reap(&mut done)?;
    }
    match done[0].error {
        0 => {
            // SAFETY: the request is over, and the next is made only when the slice is gone.
            into.copy_from_slice(unsafe { buffers.slice(0, into.len()) });
            Ok(())
        }
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

impl Opened {
    /// Fails unless it holds nothing, or what the lab has written.
    pub(crate) fn check_own(&self) -> Result<()> {
        let failed = |e| Error::io(format!("looking at {}", self.name()), e);
        let Some(mut source) = self.source()? else { return Ok(()) };
        let held = self.held_bytes();
        let data = match &source {
            Source::File(file) => stretches(file, held),
            Source::Export(..) => all(held - held % self.io_bytes_min.max(SECTOR_BYTES as u64)),
        };
        let look = LOOK.min(self.io_bytes_max / ALIGN * ALIGN).max(self.io_bytes_min);
        let mut buffer = vec![0; look as usize];
        for place in places(held, &data) {
            for offset in (place.start..place.end).step_by(look as usize) {
                let whole = (place.end - offset).min(look).next_multiple_of(SECTOR_BYTES as u64);
                let bytes = &mut buffer[..whole as usize];
                source.read(offset, bytes).map_err(failed)?;
                let foreign = |sector: &[u8]| !is_ours(sector) && sector.iter().any(|byte| *byte != 0);
                if let Some(at) = bytes.chunks_exact(SECTOR_BYTES).position(foreign) {
                    return Err(refused(self, offset + (at * SECTOR_BYTES) as u64));
                }
            }
        }
        if let Source::File(file) = source {
            // The load goes around the page cache; it would only be in the way.
            let _ = fadvise(file, 0, None, Advice::DontNeed);
        }
        Ok(())
    }
}

fn refused(target: &Opened, offset: u64) -> Error {
    let what = format!("{} holds data that the lab has not written, at byte {offset}", target.name());
    Error::new(Kind::AlreadyExists, what)
        .remedy("name another target, or say --destroy-data if what it holds may go")
}

fn all(bytes: u64) -> Vec<Range<u64>> {
    std::iter::once(0..bytes).collect()
}

/// Where a file has data; all of it where the file system does not tell.
fn stretches(file: &File, bytes: u64) -> Vec<Range<u64>> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes {
        let start = match seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => return found,
            Err(_) => return all(bytes),
        };
        let Ok(end) = seek(file, SeekFrom::Hole(start)) else { return all(bytes) };
        found.push(start..end.min(bytes));
        at = end;
    }
    found
}

/// What is looked at of a target with these stretches of data.
fn places(bytes: u64, data: &[Range<u64>]) -> Vec<Range<u64>> {
    let total: u64 = data.iter().map(|stretch| stretch.end - stretch.start).sum();
    if total <= WHOLE_MAX {
        return data.to_vec();
    }
    let align = |place: Range<u64>| place.start / ALIGN * ALIGN..place.end;
    let mut places = vec![0..EDGE.min(bytes), align(bytes.saturating_sub(EDGE)..bytes / ALIGN * ALIGN)];
    let beginning = |stretch: &Range<u64>| stretch.start..stretch.end.min(stretch.start + LOOK);
    places.extend(data.iter().take(STRETCHES_MAX).map(|stretch| align(beginning(stretch))));
    let (mut before, mut look) = (0, 0);
    for stretch in data {
        let len = stretch.end - stretch.start;
        while look < LOOKS && total / LOOKS * look < before + len {
            let start = stretch.start + (total / LOOKS * look - before);
            places.push(align(start..stretch.end.min(start + LOOK)));
            look += 1;
        }
        before += len;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_is_looked_at_whole_and_of_much_all_that_has_marks() {
        let little = [4096..8192, (1 << 40)..(1 << 40) + WHOLE_MAX - 4096];
        assert_eq!(places(2 << 40, &little), little);
        let much = [0..(1 << 30), (3 << 30)..(4 << 30)];
        let found = places(5 << 30, &much);
        let is_seen = |byte: u64| found.iter().any(|place| place.contains(&byte));
        for mark in [0, 4096, 65536 + 64, (1 << 20) - 1, 3 << 30, (5 << 30) - 512] {
            assert!(is_seen(mark), "{mark}");
        }
        let looked: u64 = found.iter().map(|place| place.end - place.start).sum();
        assert!(looked < 80 << 20 && found.len() > 1000, "{looked} in {}", found.len());
        // As often in the second stretch as in the first, and nowhere else but at the ends.
        let within =
            |stretch: &Range<u64>| found.iter().filter(|place| stretch.contains(&place.start)).count();
        assert!(within(&much[0]).abs_diff(within(&much[1])) < 4);
        assert_eq!(within(&((1 << 30) + LOOK..(3 << 30) - LOOK)), 0);
    }
}
