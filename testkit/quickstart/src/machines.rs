//! The two guests that the set-up made, and what they run with on this machine.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use stonefold_guest::{Accelerator, Guest, Launch, NbdDisk, probe_accelerator};

use crate::{folder::Folder, progress::Progress};

/// A guest that runs under KVM speaks within a second.
const KVM_PROBE_WITHIN: Duration = Duration::from_secs(8);
const TINY_WITHIN: Duration = Duration::from_secs(120);
/// mitigations=off: an emulated processor pays dearly for defences against neighbours it has not got. panic=-1: a kernel
/// that crashes ends its machine at once, and nobody waits for it.
const TINY_KERNEL_LINE: &str = "console=ttyS0 loglevel=4 mitigations=off panic=-1";
const TINY_SAYS: &str = "stonefold-guest: ";

pub(crate) struct Machines {
    guest: PathBuf,
    logs: PathBuf,
    accelerator: Accelerator,
    boot_within: Duration,
}

impl Machines {
    pub(crate) fn find_out(
        guest: &Path,
        folder: &Folder,
        boot_within: Duration,
        progress: &Progress,
    ) -> Result<Self> {
        for file in ["disk.raw", "vmlinuz", "tiny.img"] {
            let path = guest.join(file);
            ensure!(path.exists(), "there is no {}: make the guest with setup/guest-image", path.display());
        }
        progress.scene("Which machines can run here");
        let (kernel, initramfs) = (guest.join("vmlinuz"), guest.join("tiny.img"));
        let line = format!("{TINY_KERNEL_LINE} stonefold.task=hello");
        let probe = progress.step("try a small guest under KVM, for a few seconds", || {
            probe_accelerator(&folder.logs(), (&kernel, &initramfs, &line), TINY_SAYS, KVM_PROBE_WITHIN)
        })?;
        progress.note(&format!("guests run under {}: {}", probe.accelerator, probe.reason));
        Ok(Self { guest: guest.into(), logs: folder.logs(), accelerator: probe.accelerator, boot_within })
    }

    pub(crate) fn accelerator(&self) -> Accelerator {
        self.accelerator
    }

    pub(crate) fn boot_within(&self) -> Duration {
        self.boot_within
    }

    pub(crate) fn debian_image(&self) -> PathBuf {
        self.guest.join("disk.raw")
    }

    /// A whole machine that boots from its disk.
    pub(crate) fn machine(&self, name: &str, disk: NbdDisk, memory_mib: u32) -> Launch {
        Launch::new(name, &self.logs).accelerator(self.accelerator).memory_mib(memory_mib).disk(disk)
    }

    /// Runs one task of the tiny guest on a disk, to its end; gives back what it said of it.
    pub(crate) fn tiny(&self, name: &str, task: &str, disk: NbdDisk) -> Result<String> {
        let line = format!("{TINY_KERNEL_LINE} stonefold.task={task}");
        let mut guest = Launch::new(name, &self.logs)
            .accelerator(self.accelerator)
            .memory_mib(256)
            .direct_kernel(&self.guest.join("vmlinuz"), &self.guest.join("tiny.img"), &line)
            .disk(disk)
            .start()?;
        let said = tiny_result(&mut guest)?;
        guest.wait_for_end(TINY_WITHIN)?;
        Ok(said)
    }
}

/// After its hello the tiny guest says what it found, then done or failed.
fn tiny_result(guest: &mut Guest) -> Result<String> {
    guest.wait_for("stonefold-guest: hello", TINY_WITHIN).context("the tiny guest did not boot")?;
    let (which, said) =
        guest.wait_for_any(&["stonefold-guest: done\n", "stonefold-guest: failed: "], TINY_WITHIN)?;
    if which == 1 {
        let why = guest.wait_for("\n", TINY_WITHIN)?;
        bail!("the tiny guest failed: {why}");
    }
    Ok(said)
}

/// The checksum in what the tiny guest said.
pub(crate) fn tiny_checksum(said: &str) -> Result<String> {
    said.lines()
        .find_map(|line| line.strip_prefix("stonefold-guest: sha256 "))
        .map(|sum| sum.trim().to_owned())
        .filter(|sum| sum.len() == 64 && sum.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .with_context(|| format!("the tiny guest told no checksum but: {said}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_found_among_other_lines() {
        let sum = "0123456789abcdef".repeat(4);
        let said = format!(", this is Linux 6.1\nstonefold-guest: sha256 {sum}\n");
        assert_eq!(tiny_checksum(&said).unwrap(), sum);
        assert!(tiny_checksum("stonefold-guest: sha256 12\n").is_err());
    }
}
