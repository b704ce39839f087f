//! An object's whole file: read as far as it can be, mended by its own parity, and what was mended written back.
//!
//! *Promises*: nothing is written but pages that were found damaged, and only with what was put there; they are durable on return. A
//! crash in between leaves pages that are mended the next time. *Called* under the key's lock, on a thread that may block.

use super::durable::sync_file;
use super::header::{Header, front_bytes, header_bytes, payload_len};
use super::member::{file_error, opening_error};
use super::parity::{Guarded, PAGE};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use stonefold_types::{Error, Kind, Result};

/// What an object's file holds.
pub(super) struct Whole {
    /// As it was put, but for pages that are lost.
    pub(super) payload: Vec<u8>,
    /// Pages of the file that were damaged and are sound again.
    pub(super) mended: usize,
}

/// The payload's length, as the file's tells it.
pub(super) fn length(path: &Path, file: &File) -> Result<u64> {
    let metadata = file.metadata().map_err(|e| file_error("reading", path, e))?;
    payload_len(metadata.len())
        .ok_or_else(|| Error::new(Kind::Corrupt, "its length is none that an object's file has"))
}

/// Reads all of an object's file, and mends what its parity can.
pub(super) fn read_and_mend(path: &Path) -> Result<Whole> {
    let file = File::open(path).map_err(|e| opening_error("reading", path, e))?;
    let len = length(path, &file)?;
    let (header_len, front_len) = (header_bytes(len), front_bytes(len));
    let lost_max = (front_len + header_len) / PAGE;
    let read = |page: &mut [u8], at| file.read_exact_at(page, at);
    let (mut bytes, unreadable) =
        read_pages(read, front_len + len as usize, lost_max).map_err(|e| file_error("reading", path, e))?;
    let first = Header::decode(&bytes[..header_len], len);
    let second = Header::decode(&bytes[front_len - header_len..front_len], len);
    let (sums, sound_at) = match (first, second) {
        (Ok((_, sums)), _) => (sums, 0),
        (_, Ok((_, sums))) => (sums, front_len - header_len),
        (Err(damage), Err(_)) => return Err(damage),
    };
    let mut payload = bytes.split_off(front_len);
    let mut damaged = headers_damaged(&mut bytes, sound_at, header_len, &unreadable);
    // Pages are counted through payload and parity there, and through the file here.
    let (pages, parity_at) = (payload.len().div_ceil(PAGE), header_len / PAGE);
    let in_file = |page: usize| if page < pages { front_len / PAGE + page } else { parity_at + page - pages };
    let unread: Vec<usize> = (0..sums.len()).filter(|page| unreadable.contains(&in_file(*page))).collect();
    let parity = &mut bytes[header_len..front_len - header_len];
    let found = Guarded { payload: &mut payload, parity, sums: &sums }.mend(&unread);
    damaged.extend(found.mended.into_iter().map(in_file));
    write_back(path, &damaged, |page| match (page * PAGE).checked_sub(front_len) {
        None => &bytes[page * PAGE..][..PAGE],
        Some(at) => &payload[at..payload.len().min(at + PAGE)],
    })?;
    Ok(Whole { payload, mended: damaged.len() })
}

/// The pages of the header that is not as the sound one; in memory it is from now on.
fn headers_damaged(front: &mut [u8], sound_at: usize, header_len: usize, unreadable: &[usize]) -> Vec<usize> {
    let other_at = if sound_at == 0 { front.len() - header_len } else { 0 };
    let mut damaged = Vec::new();
    for at in (0..header_len).step_by(PAGE) {
        let (sound, other) = (sound_at + at, other_at + at);
        for page in [sound, other] {
            // What cannot be read was taken for zeros, and the rest of a header may be just that.
            if unreadable.contains(&(page / PAGE)) {
                damaged.push(page / PAGE);
            }
        }
        if front[sound..sound + PAGE] != front[other..other + PAGE] {
            front.copy_within(sound..sound + PAGE, other);
            damaged.push(other / PAGE);
        }
    }
    damaged.sort_unstable();
    damaged.dedup();
    damaged
}

/// The first `len` bytes of a file with zeros for pages that cannot be read, and which these are. Fails when they are more than could be
/// mended: a medium that is gone as a whole is not asked for every page.
fn read_pages(
    read: impl Fn(&mut [u8], u64) -> std::io::Result<()>,
    len: usize,
    lost_max: usize,
) -> std::io::Result<(Vec<u8>, Vec<usize>)> {
    let mut bytes = vec![0; len];
    let mut unreadable = Vec::new();
    if read(&mut bytes, 0).is_err() {
        for (at, page) in bytes.chunks_mut(PAGE).enumerate() {
            if let Err(error) = read(page, (at * PAGE) as u64) {
                page.fill(0);
                unreadable.push(at);
                if unreadable.len() > lost_max {
                    return Err(error);
                }
            }
        }
    }
    Ok((bytes, unreadable))
}

fn write_back<'a>(path: &Path, pages: &[usize], page: impl Fn(usize) -> &'a [u8]) -> Result<()> {
    if pages.is_empty() {
        return Ok(());
    }
    let file = OpenOptions::new().write(true).open(path).map_err(|e| opening_error("mending", path, e))?;
    let write = || {
        pages.iter().try_for_each(|at| file.write_all_at(page(*at), (at * PAGE) as u64))?;
        sync_file(&file)
    };
    write().map_err(|e| file_error("mending", path, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_told_by_the_page_and_a_dead_medium_is_given_up() {
        let asked = std::cell::Cell::new(0);
        let dead = |pages: std::ops::Range<usize>| {
            let asked = &asked;
            move |buffer: &mut [u8], at: u64| {
                asked.set(asked.get() + 1);
                let range = at as usize / PAGE..(at as usize + buffer.len()).div_ceil(PAGE);
                buffer.fill(7);
                match range.start < pages.end && pages.start < range.end {
                    true => Err(std::io::Error::from_raw_os_error(5)),
                    false => Ok(()),
                }
            }
        };
        let (bytes, unreadable) = read_pages(dead(3..5), 20 * PAGE + 9, 4).unwrap();
        assert_eq!(unreadable, [3, 4]);
        for (at, page) in bytes.chunks(PAGE).enumerate() {
            let expected = if (3..5).contains(&at) { 0 } else { 7 };
            assert!(page.iter().all(|b| *b == expected), "page {at}");
        }
        asked.set(0);
        read_pages(dead(0..5000), 5000 * PAGE, 4).unwrap_err();
        assert_eq!(asked.get(), 1 + 5, "of the whole, then of as many pages as tell that it is in vain");
    }
}
