//! The user's own image: import, boot, snapshot while it runs, ruin, recover, boot again, prove. A stranger has no password
//! for it, so another machine ruins its disk, and what is proved is the whole disk, byte for byte, against a plain copy of
//! the snapshot that was made before the ruin.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stonefold_guest::{Guest, cancel, process};

use crate::{
    figures::Figures,
    folder::Folder,
    gateway::Gateway,
    machines::Machines,
    progress::{Progress, shown},
    recovery::{MappedBlock, PlainCopy, recover},
};

/// What a stranger's system may be used to.
const MEMORY_MIB: u32 = 2048;
const DISK: &str = "yours";
const SNAPSHOT: &str = "yours@running";
const CLONE: &str = "yours-recovered";
/// Compared and removed again: the recovered disk itself changes as soon as its machine runs.
const PROOF: &str = "yours-proof";
/// Partition table, boot loader, and the beginning of the first file systems.
const RUIN_MIB: u64 = 256;
const BOOT_SECTOR_BYTES: u32 = 512;
/// A guest that sits at its prompt is pulled the plug; nobody logged in.
const END_WITHIN: Duration = Duration::from_secs(60);

/// An image that qemu-img could read.
pub(crate) struct Image {
    path: PathBuf,
    format: String,
    size_bytes: u64,
}

impl Image {
    /// Looks at the image before anything is started, so that a wrong file is refused at once.
    pub(crate) fn inspect(path: &Path) -> Result<Self> {
        ensure!(path.exists(), "there is no image {}", path.display());
        let path = path.canonicalize()?;
        let info =
            process::run(Command::new("qemu-img").args(["info", "--output=json"]).arg(&path), END_WITHIN)?;
        ensure!(info.status.success(), "qemu-img cannot read {}: {}", path.display(), info.stderr.trim());
        let (format, size_bytes) = format_and_size(&info.stdout)
            .with_context(|| format!("qemu-img told nothing of use about {}", path.display()))?;
        Ok(Self { path, format, size_bytes })
    }
}

fn format_and_size(json: &str) -> Option<(String, u64)> {
    let info: Value = serde_json::from_str(json).ok()?;
    Some((info["format"].as_str()?.to_owned(), info["virtual-size"].as_u64()?))
}

/// Shows it, and gives back the name of the recovered disk.
pub(crate) fn show(
    image: &Image,
    gateway: &Gateway,
    machines: &Machines,
    folder: &Folder,
    progress: &Progress,
    figures: &mut Figures,
) -> Result<&'static str> {
    progress.scene("Your image");
    let size_gib = image.size_bytes as f64 / f64::from(1 << 30);
    progress.note(&format!(
        "{} ({}, {size_gib:.1} GiB) is only read, never changed.",
        image.path.display(),
        image.format
    ));
    progress.note("I have no password for it: I boot it, snapshot it while it runs, have another machine overwrite its disk,");
    progress.note(
        "recover the snapshot and boot that. It boots by BIOS from a virtio disk, with no network card.",
    );
    let took = progress.step("import it", || gateway.import(DISK, &image.path))?;
    figures.add("import of your image", took, &format!("{size_gib:.1} GiB virtual"));
    let mut guest = machines.machine(DISK, gateway.disk(DISK), MEMORY_MIB).start()?;
    let (prompted, took) =
        wait_for_prompt(&mut guest, "boot it, waiting for a login prompt", machines, folder, progress)?;
    if prompted {
        figures.add("boot from the export, to the login prompt", took, "");
    }
    let took = progress.step("snapshot it while it runs", || {
        gateway.command(&["snapshot", "create", DISK, "--name", "running"])
    })?;
    figures.add("snapshot of the running machine", took, "");
    let block = MappedBlock::find(&mut gateway.connect(SNAPSHOT)?)?;
    progress.step("pull its plug", || guest.quit(END_WITHIN))?;
    let copy = PlainCopy::make(gateway, SNAPSHOT, folder, progress, figures)?;
    ruin(image, gateway, machines, &block, progress)?;
    recover_and_boot(gateway, machines, folder, &block, progress, figures)?;
    prove(gateway, &copy, progress)?;
    copy.remove()?;
    Ok(CLONE)
}

/// The tiny guest overwrites the disk from inside a machine, as a guest of an intruder's would.
fn ruin(
    image: &Image,
    gateway: &Gateway,
    machines: &Machines,
    block: &MappedBlock,
    progress: &Progress,
) -> Result<()> {
    let mib = ruined_mib(image.size_bytes, block.offset);
    let what = format!("ruin it: another machine overwrites the first {mib} MiB of the disk");
    progress.step(&what, || {
        machines.tiny("yours-ruin", &format!("ruin stonefold.mib={mib}"), gateway.disk(DISK))
    })?;
    progress.step("make sure that the disk is lost", || {
        let (mut disk, mut snapshot) = (gateway.connect(DISK)?, gateway.connect(SNAPSHOT)?);
        ensure!(
            !block.is_in(&mut disk)?,
            "the disk was overwritten, and yet it holds what it held at {}",
            block.offset
        );
        ensure!(
            disk.read(0, BOOT_SECTOR_BYTES)? != snapshot.read(0, BOOT_SECTOR_BYTES)?,
            "the disk was overwritten, and yet it has its boot sector"
        );
        Ok(())
    })
}

/// So many that the block is among them by which the recovery is measured.
fn ruined_mib(size_bytes: u64, block_offset: u64) -> u64 {
    (block_offset >> 20).saturating_add(1).max(RUIN_MIB).min(size_bytes >> 20)
}

/// A second clone of the snapshot is what the snapshot was before the ruin: every byte of it.
fn prove(gateway: &Gateway, copy: &PlainCopy, progress: &Progress) -> Result<()> {
    progress.step("compare a second clone with the copy from before the ruin, byte for byte", || {
        gateway.command(&["clone", SNAPSHOT, PROOF])?;
        copy.compare(&gateway.address(PROOF))?;
        gateway.command(&["disk", "rm", PROOF])
    })?;
    progress.note("all of the disk is what it was when the snapshot was taken.");
    Ok(())
}

fn recover_and_boot(
    gateway: &Gateway,
    machines: &Machines,
    folder: &Folder,
    block: &MappedBlock,
    progress: &Progress,
    figures: &mut Figures,
) -> Result<()> {
    progress.scene("Recover it");
    progress
        .step("drop Stonefold's cache and the kernel's cache of the pool's files", || gateway.make_cold())?;
    let machine = machines.machine(CLONE, gateway.disk(CLONE), MEMORY_MIB);
    let mut recovering = progress
        .step("recover: clone the snapshot, read a cold block, start the machine", || {
            recover(gateway, (SNAPSHOT, CLONE), block, machine)
        })?;
    progress.note(&format!("first cold block served after {}", shown(recovering.first_block_took)));
    figures.add("recover: the clone command", recovering.clone_took, "");
    figures.add(
        "recover: command to first cold block served",
        recovering.first_block_took,
        "4 KiB, mapped, caches dropped, compared",
    );
    let what = "the recovered machine boots, waiting for a login prompt";
    let (prompted, _) = wait_for_prompt(&mut recovering.guest, what, machines, folder, progress)?;
    if prompted {
        figures.add("recover: command to login prompt", recovering.since_command.elapsed(), "caches dropped");
    }
    progress.step("pull its plug", || recovering.guest.quit(END_WITHIN))?;
    Ok(())
}

/// A guest that says nothing on its serial console may still run well: that is told, with a picture of its screen.
fn wait_for_prompt(
    guest: &mut Guest,
    what: &str,
    machines: &Machines,
    folder: &Folder,
    progress: &Progress,
) -> Result<(bool, Duration)> {
    let (answer, took) = progress.attempt(what, || guest.wait_for("login:", machines.boot_within()));
    cancel::check()?;
    let Err(error) = answer else { return Ok((true, took)) };
    progress.note(&format!("no login prompt on its serial console (ttyS0): {error:#}"));
    let picture = folder.logs().join(format!("{DISK}-screen-{}", guest.pid()));
    let picture = guest.screenshot(&picture).context("the machine is no longer running")?;
    progress.note(&format!("it still runs, so I go on; its screen: {}", picture.display()));
    Ok((false, took))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_image_is_refused_at_once() {
        let error = Image::inspect(Path::new("/nowhere/disk.qcow2")).err().unwrap().to_string();
        assert!(error.contains("/nowhere/disk.qcow2"), "{error}");
    }

    #[test]
    fn what_is_ruined_has_the_block_that_is_measured_by_and_ends_with_the_disk() {
        assert_eq!(ruined_mib(10 << 30, 1 << 20), 256);
        assert_eq!(ruined_mib(10 << 30, (900 << 20) + 4096), 901);
        assert_eq!(ruined_mib(64 << 20, 1 << 20), 64);
    }

    #[test]
    fn format_and_size_are_read_from_qemu_imgs_answer() {
        let json = r#"{"virtual-size": 2147483648, "format": "qcow2", "actual-size": 1}"#;
        assert_eq!(format_and_size(json), Some(("qcow2".into(), 2 << 30)));
        assert_eq!(format_and_size("{}"), None);
    }
}
