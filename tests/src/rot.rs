//! Damage to the files of a pool, as media do it.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::Result;

/// Bytes of a page of an object's file.
const PAGE: u64 = 4096;

/// Flips a bit of a file.
///
/// # Errors
/// When the file cannot be read or written there.
pub fn flip(path: &Path, at: u64) -> Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at)?;
    Ok(file.write_all_at(&[byte[0] ^ 4], at)?)
}

/// The same in the middle of an object's payload, and in the next page of the same stripe: more than the file's own parity mends.
///
/// # Errors
/// When the file cannot be read or written there.
pub fn ruin_middle(path: &Path) -> Result<()> {
    let bytes = path.metadata()?.len();
    let middle = bytes / 2;
    flip(path, middle)?;
    flip(path, middle + stripes(bytes.div_ceil(PAGE)) * PAGE)
}

/// The stripes of an object by the pages of its file (`engine/src/file/parity.rs`, `engine/src/file/header.rs`).
#[must_use]
pub fn stripes(file_pages: u64) -> u64 {
    let stripes = |pages: u64| pages.min(16).max(pages.div_ceil(64));
    let header = |pages: u64| (56 + 4 * (pages + stripes(pages))).div_ceil(PAGE);
    let payload = (1..file_pages).find(|pages| pages + stripes(*pages) + 2 * header(*pages) >= file_pages);
    payload.map_or(1, stripes)
}
