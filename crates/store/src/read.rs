//! The read path: layers, then map, then cache or engine.

use crate::disk::{Disk, View, blocks_of};
use crate::map;
use crate::overlay::{Blocks, Part};
use crate::segments::Segments;
use std::ops::Range;
use stonefold_format::entry::Entry;
use stonefold_types::{BLOCK_BYTES, Error, Kind, Result};

/// The bytes of `buf` that hold the part of `blocks` inside the request, and how many bytes of the first block lie
/// before it.
fn place(blocks: &Blocks, offset: u64, len: usize) -> (Range<usize>, usize) {
    let start = blocks.start * BLOCK_BYTES as u64;
    let end = blocks.end * BLOCK_BYTES as u64;
    let from = start.max(offset);
    let to = end.min(offset + len as u64);
    ((from - offset) as usize..(to - offset) as usize, (from - start) as usize)
}

/// Copies what lies in layers; returns the map's root and what it must be asked for.
fn read_layers(disk: &Disk, view: View, offset: u64, buf: &mut [u8]) -> Result<(Entry, Vec<Blocks>)> {
    let len = buf.len();
    let blocks = blocks_of(offset, len as u64);
    disk.state.lock().overlay(view, blocks, |blocks, _, part| {
        let (to, skip) = place(&blocks, offset, len);
        match part {
            Part::Zero => buf[to].fill(0),
            Part::Data { data, skip_bytes } => {
                let from = skip_bytes + skip;
                let count = to.len();
                buf[to].copy_from_slice(&data[from..from + count]);
            }
        }
    })
}

/// Copies a part of a block, or zeros, to where it belongs.
fn copy_block(block: u64, content: Option<&[u8]>, offset: u64, buf: &mut [u8]) {
    let (to, skip) = place(&(block..block + 1), offset, buf.len());
    match content {
        None => buf[to].fill(0),
        Some(content) => {
            let count = to.len();
            buf[to].copy_from_slice(&content[skip..skip + count]);
        }
    }
}

/// Fills `buf` when everything is in memory; otherwise `None`, and `buf` is undefined.
pub(crate) fn read_cached(
    segments: &Segments,
    disk: &Disk,
    view: View,
    offset: u64,
    buf: &mut [u8],
) -> Option<Result<()>> {
    let (root, rest) = match read_layers(disk, view, offset, buf) {
        Ok(found) => found,
        Err(error) => return Some(Err(error)),
    };
    for blocks in rest {
        let mut entries = Vec::with_capacity((blocks.end - blocks.start) as usize);
        map::lookup_cached(segments, &root, &blocks, &mut entries)?;
        for (block, entry) in blocks.zip(&entries) {
            if entry.is_lost() {
                return None;
            }
            if entry.is_hole() {
                copy_block(block, None, offset, buf);
            } else {
                let content = segments.cached_block(entry)?;
                copy_block(block, Some(&content), offset, buf);
            }
        }
    }
    Some(Ok(()))
}

/// P6: neither zeros nor anything else is read where nobody knows what was there.
fn lost(disk: &Disk, block: u64) -> Error {
    let at = block * BLOCK_BYTES as u64;
    let what =
        format!("disk '{}' at {at}: nothing was found of this block when the disk was salvaged", disk.name);
    Error::new(Kind::Corrupt, what).remedy("write or trim the whole block of 4K to use it again")
}

/// Fills `buf`.
pub(crate) async fn read(
    segments: &Segments,
    disk: &Disk,
    view: View,
    offset: u64,
    buf: &mut [u8],
) -> Result<()> {
    if buf.is_empty() {
        return Ok(());
    }
    let _pin = segments.pins.pin();
    let (root, rest) = read_layers(disk, view, offset, buf)?;
    for blocks in rest {
        let entries = map::lookup(segments, &root, &blocks).await?;
        if let Some(at) = entries.iter().position(Entry::is_lost) {
            return Err(lost(disk, blocks.start + at as u64));
        }
        let stored: Vec<Entry> = entries.iter().filter(|entry| !entry.is_hole()).copied().collect();
        let contents = segments.blocks(&stored).await?;
        let mut contents = contents.iter();
        for (block, entry) in blocks.zip(&entries) {
            let content = if entry.is_hole() { None } else { contents.next() };
            copy_block(block, content.map(|content| &content[..]), offset, buf);
        }
    }
    Ok(())
}

/// Runs of `blocks` that are stored (`true`) or zeros that cost nothing, in order.
pub(crate) async fn stored(
    segments: &Segments,
    disk: &Disk,
    view: View,
    blocks: Blocks,
) -> Result<Vec<(Blocks, bool)>> {
    let _pin = segments.pins.pin();
    let mut found = Vec::new();
    let overlay =
        |blocks: Blocks, _: u64, part: Part<'_>| found.push((blocks, matches!(part, Part::Data { .. })));
    let (root, rest) = disk.state.lock().overlay(view, blocks, overlay)?;
    for blocks in rest {
        found.extend(map::extents(segments, &root, blocks).await?);
    }
    found.sort_unstable_by_key(|(blocks, _)| blocks.start);
    found.dedup_by(|next, last| {
        let joins = last.1 == next.1;
        if joins {
            last.0.end = next.0.end;
        }
        joins
    });
    Ok(found)
}
