//! The clock on a recovery, and on an ordinary full restore of the same image beside it.
//!
//! What would make the figures untrue, and what is done about it: a block that was never written costs no read, so a block
//! full of data is chosen; a warm cache costs no read either, so Stonefold's cache and the kernel's cache of the pool's
//! files are dropped before each of the two; and bytes that come fast but wrong are worth nothing, so they are compared.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use stonefold_guest::{Guest, Launch, nbd, process, time::Stopwatch};

use crate::{figures::Figures, folder::Folder, gateway::Gateway, progress::Progress};

pub(crate) const BLOCK_BYTES: u32 = 4096;
const SEARCH_STEP_BYTES: u32 = 1 << 20;
/// Boot loaders and kernels lie at the beginning of a disk; who finds no data here looks at a disk that boots nothing.
const SEARCH_BYTES_MAX: u64 = 4 << 30;
const RESTORE_WITHIN: Duration = Duration::from_secs(2 * 3600);

/// A block of a snapshot that certainly holds data, and what it holds.
pub(crate) struct MappedBlock {
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<u8>,
}

impl MappedBlock {
    /// The first block behind the first MiB (where partitions begin) of which no more than half is zeros.
    pub(crate) fn find(export: &mut nbd::Client) -> Result<Self> {
        let end = export.size_bytes().min(SEARCH_BYTES_MAX);
        let mut start = u64::from(SEARCH_STEP_BYTES);
        while start + u64::from(SEARCH_STEP_BYTES) <= end {
            let piece = export.read(start, SEARCH_STEP_BYTES)?;
            if let Some((index, bytes)) = first_full_block(&piece) {
                return Ok(Self {
                    offset: start + (index * BLOCK_BYTES as usize) as u64,
                    bytes: bytes.to_owned(),
                });
            }
            start += u64::from(SEARCH_STEP_BYTES);
        }
        bail!("no block with data was found on the disk's first {} MiB", end >> 20)
    }

    /// Whether an export holds the same there.
    pub(crate) fn is_in(&self, export: &mut nbd::Client) -> Result<bool> {
        Ok(export.read(self.offset, BLOCK_BYTES)? == self.bytes)
    }
}

fn first_full_block(piece: &[u8]) -> Option<(usize, &[u8])> {
    let zeros = |block: &[u8]| block.iter().filter(|byte| **byte == 0).count();
    piece.chunks_exact(BLOCK_BYTES as usize).enumerate().find(|(_, block)| zeros(block) <= block.len() / 2)
}

/// A recovered machine that is booting, and the times so far.
pub(crate) struct Recovering {
    pub(crate) guest: Guest,
    /// Runs since the moment the recovery was commanded.
    pub(crate) since_command: Stopwatch,
    pub(crate) clone_took: Duration,
    pub(crate) first_block_took: Duration,
}

/// Clones the snapshot, reads one cold block of the clone, starts a machine on it.
pub(crate) fn recover(
    gateway: &Gateway,
    (snapshot, clone): (&str, &str),
    block: &MappedBlock,
    machine: Launch,
) -> Result<Recovering> {
    let since_command = Stopwatch::start();
    let clone_took = gateway.command(&["clone", snapshot, clone])?;
    let mut export = gateway.connect(clone)?;
    let same = block.is_in(&mut export)?;
    let first_block_took = since_command.elapsed();
    ensure!(
        same,
        "the clone {clone} of {snapshot} holds other bytes than the snapshot at offset {}",
        block.offset
    );
    export.disconnect();
    Ok(Recovering { guest: machine.start()?, since_command, clone_took, first_block_took })
}

/// The whole snapshot in a raw file, synced: what an ordinary restore, which must come before the boot, takes.
pub(crate) struct PlainCopy {
    file: PathBuf,
}

impl PlainCopy {
    /// Makes it with cold caches and notes how long that took.
    pub(crate) fn make(
        gateway: &Gateway,
        snapshot: &str,
        folder: &Folder,
        progress: &Progress,
        figures: &mut Figures,
    ) -> Result<Self> {
        let file = folder.path().join("full-restore.raw");
        progress.step("drop the caches, so that this and the recovery are both measured cold", || {
            gateway.make_cold()
        })?;
        let ((), took) = progress
            .timed_step("for comparison, an ordinary restore: copy the whole image to a file", || {
                copy_in_full(&gateway.address(snapshot), &file)
            })?;
        figures.add(
            "an ordinary full restore of it",
            took,
            "qemu-img convert to a raw file, synced; grows with the image",
        );
        Ok(Self { file })
    }

    /// An error if the export holds a single other byte.
    pub(crate) fn compare(&self, export: &str) -> Result<()> {
        let compared = process::run(
            Command::new("qemu-img").args(["compare", "-f", "raw", "-F", "raw"]).arg(&self.file).arg(export),
            RESTORE_WITHIN,
        )?;
        let said = format!("{}{}", compared.stdout, compared.stderr);
        ensure!(
            compared.status.success(),
            "{export} is not what {} is: {}",
            self.file.display(),
            said.trim()
        );
        Ok(())
    }

    /// Gives its space back.
    pub(crate) fn remove(self) -> Result<()> {
        std::fs::remove_file(&self.file).with_context(|| format!("could not remove {}", self.file.display()))
    }
}

fn copy_in_full(source: &str, file: &Path) -> Result<()> {
    let copy = process::run(
        Command::new("qemu-img").args(["convert", "-f", "raw", "-O", "raw", source]).arg(file),
        RESTORE_WITHIN,
    )?;
    ensure!(copy.status.success(), "qemu-img convert {source} failed: {}", copy.stderr.trim());
    let sync = process::run(Command::new("sync").arg(file), RESTORE_WITHIN)?;
    ensure!(sync.status.success(), "sync {} failed: {}", file.display(), sync.stderr.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_with_little_in_it_is_passed_over() {
        let mut piece = vec![0; 4 * BLOCK_BYTES as usize];
        piece[BLOCK_BYTES as usize] = 1;
        assert!(first_full_block(&piece).is_none());
        piece[2 * BLOCK_BYTES as usize..3 * BLOCK_BYTES as usize].fill(7);
        assert_eq!(first_full_block(&piece).unwrap().0, 2);
    }
}
