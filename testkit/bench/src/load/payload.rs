//! Blocks of real binaries, none of them twice.
//!
//! A machine has some gigabytes of binaries, and a bench writes many times that. So each block that is handed out carries a stamp:
//! its first 12 bytes are a number that no other block of the run has. The rest is what a compiler made, in the order of the file,
//! so that neighbours compress together as they would in an image.

use anyhow::{Context, Result, ensure};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use stonefold_types::BLOCK_BYTES;
use xxhash_rust::xxh3::xxh3_128;

/// The first bytes of a binary.
const ELF: &[u8] = b"\x7fELF";
/// Bytes of a stamp: a seed, and a count.
const STAMP_BYTES: usize = 12;
/// An image is written in pieces of so many blocks.
const PIECE_BLOCKS: u64 = 256;
/// Folders below folders, at most: a link that leads back ends here.
const DEPTH_MAX: u32 = 16;

/// What was found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cut {
    pub(crate) files: u64,
    pub(crate) blocks: u64,
    /// Blocks that had been there before, or hold zeros.
    pub(crate) repeated: u64,
}

/// Cuts the binaries below folders, in the order of their names, into blocks, and writes those that are not there yet to `out`.
pub(crate) fn cut(folders: &[PathBuf], out: &Path, bytes_max: u64) -> Result<Cut> {
    let mut files = Vec::new();
    for folder in folders {
        find(folder, 0, &mut files).with_context(|| format!("looking through {}", folder.display()))?;
    }
    files.sort_unstable();
    let (mut seen, mut done) = (HashSet::from([xxh3_128(&[0; BLOCK_BYTES])]), Cut::default());
    let mut to = BufWriter::new(File::create(out).with_context(|| format!("making {}", out.display()))?);
    for file in files {
        // One that may not be read, or went away, is one less.
        let Ok(content) = fs::read(&file) else { continue };
        if !content.starts_with(ELF) {
            continue;
        }
        done.files += 1;
        for block in content.chunks_exact(BLOCK_BYTES) {
            if !seen.insert(xxh3_128(block)) {
                done.repeated += 1;
                continue;
            }
            to.write_all(block)?;
            done.blocks += 1;
            if (done.blocks + 1) * BLOCK_BYTES as u64 > bytes_max {
                to.flush()?;
                return Ok(done);
            }
        }
    }
    to.flush()?;
    ensure!(done.blocks > 0, "there are no binaries in these folders");
    Ok(done)
}

fn find(folder: &Path, depth: u32, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_file() {
            files.push(entry.path());
        } else if kind.is_dir() && depth < DEPTH_MAX {
            find(&entry.path(), depth + 1, files)?;
        }
    }
    Ok(())
}

/// Hands blocks out, one behind the other and round and round, each with a stamp.
pub(crate) struct Payload {
    blocks: Vec<u8>,
    seed: u32,
    handed_out: u64,
}

impl Payload {
    pub(crate) fn read(path: &Path, seed: u32) -> Result<Self> {
        let blocks = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        ensure!(blocks.len() >= BLOCK_BYTES && blocks.len() % BLOCK_BYTES == 0, "that is no payload");
        Ok(Payload { blocks, seed, handed_out: 0 })
    }

    /// Appends so many blocks to `out`.
    pub(crate) fn hand_out(&mut self, blocks: u64, out: &mut Vec<u8>) {
        for _ in 0..blocks {
            let at = (self.handed_out as usize % (self.blocks.len() / BLOCK_BYTES)) * BLOCK_BYTES;
            out.extend_from_slice(&self.seed.to_be_bytes());
            out.extend_from_slice(&self.handed_out.to_be_bytes());
            out.extend_from_slice(&self.blocks[at + STAMP_BYTES..at + BLOCK_BYTES]);
            self.handed_out += 1;
        }
    }

    pub(crate) fn write_image(mut self, path: &Path, bytes: u64) -> Result<()> {
        let mut to =
            BufWriter::new(File::create(path).with_context(|| format!("making {}", path.display()))?);
        let (mut left, mut piece) = (bytes / BLOCK_BYTES as u64, Vec::new());
        while left > 0 {
            let blocks = left.min(PIECE_BLOCKS);
            piece.clear();
            self.hand_out(blocks, &mut piece);
            to.write_all(&piece)?;
            left -= blocks;
        }
        to.into_inner().context("writing the image")?.sync_all()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binaries_are_cut_once_and_handed_out_unique() {
        let folder = std::env::temp_dir().join(format!("stonefold-payload-{}", std::process::id()));
        fs::create_dir_all(folder.join("deep")).unwrap();
        let block = |tag: u8| vec![tag; BLOCK_BYTES];
        let elf = |rest: &[Vec<u8>]| [&[ELF, &[7; BLOCK_BYTES - 4]].concat()[..], &rest.concat()].concat();
        fs::write(folder.join("a"), elf(&[block(1), block(0), block(2)])).unwrap();
        fs::write(folder.join("deep/b"), elf(&[block(2), block(3), vec![9; 100]])).unwrap();
        fs::write(folder.join("text"), block(4)).unwrap();
        let out = folder.join("out");
        let cut = cut(std::slice::from_ref(&folder), &out, 1 << 20).unwrap();
        assert_eq!((cut.files, cut.blocks, cut.repeated), (2, 4, 3));
        let mut payload = Payload::read(&out, 5).unwrap();
        let mut handed = Vec::new();
        payload.hand_out(9, &mut handed);
        let tails: Vec<u8> = handed.chunks(BLOCK_BYTES).map(|block| block[BLOCK_BYTES - 1]).collect();
        assert_eq!(tails, [7, 1, 2, 3, 7, 1, 2, 3, 7]);
        let unique: HashSet<&[u8]> = handed.chunks(BLOCK_BYTES).collect();
        assert_eq!(unique.len(), 9);
        Payload::read(&out, 6).unwrap().write_image(&folder.join("image"), 300 * BLOCK_BYTES as u64).unwrap();
        let image = fs::read(folder.join("image")).unwrap();
        assert_eq!(image.chunks(BLOCK_BYTES).filter(|block| !unique.contains(block)).count(), 300);
        fs::remove_dir_all(&folder).unwrap();
    }
}
