//! The main job on a whole Debian: import, boot, write, snapshot while it runs, ruin from inside, recover, prove.

use std::{
    collections::BTreeMap,
    fs::File,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use stonefold_guest::Guest;

use crate::{
    figures::Figures,
    folder::Folder,
    gateway::Gateway,
    machines::Machines,
    progress::{Progress, shown},
    recovery::{MappedBlock, PlainCopy, Recovering, recover},
};

const PROMPT: &str = "root@stonefold-guest:~#";
const MEMORY_MIB: u32 = 512;
const FILES: usize = 8;
/// Random data, so that neither compression nor deduplication can be mistaken for a copy.
const WRITE_FILES: &str = "mkdir -p /srv/work && for i in 1 2 3 4 5 6 7 8; do \
    dd if=/dev/urandom of=/srv/work/file-$i bs=1M count=4 status=none || exit 1; done && sync";
const CHECKSUMS: &str = "sha256sum /srv/work/file-*";
/// Keeps the disk busy while the snapshot is taken.
const BUSY: &str =
    "(while dd if=/dev/urandom of=/srv/busy bs=64k count=16 conv=fsync; do :; done) >/dev/null 2>&1 &";
/// Boot sector, boot partition and the beginning of the root file system.
const RUIN: &str = "dd if=/dev/urandom of=/dev/vda bs=1M count=256 conv=fsync status=none";
const IN_GUEST_WITHIN: Duration = Duration::from_secs(180);
const POWER_OFF_WITHIN: Duration = Duration::from_secs(90);

type Checksums = BTreeMap<String, String>;

/// Shows it, and gives back the name of the recovered disk.
pub(crate) fn show(
    gateway: &Gateway,
    machines: &Machines,
    folder: &Folder,
    progress: &Progress,
    figures: &mut Figures,
) -> Result<&'static str> {
    progress.scene("A whole Debian: boot it from Stonefold and let it work");
    let mut guest = boot_imported(gateway, machines, progress, figures)?;
    let written = write_and_snapshot(gateway, &mut guest, progress, figures)?;
    let block = progress.step("choose a block to measure by, and compare it with the image's", || {
        let block = MappedBlock::find(&mut gateway.connect("debian@before")?)?;
        ensure!(
            is_in_image(&block, &machines.debian_image())?,
            "the snapshot holds other bytes than the image at {}",
            block.offset
        );
        Ok(block)
    })?;
    ruin(gateway, guest, &block, progress)?;

    progress.scene("Recover it");
    progress
        .step("drop Stonefold's cache and the kernel's cache of the pool's files", || gateway.make_cold())?;
    let machine = machines.machine("debian-recovered", gateway.disk("debian-recovered"), MEMORY_MIB);
    let mut recovering = progress
        .step("recover: clone debian@before, read a cold block, start the machine", || {
            recover(gateway, ("debian@before", "debian-recovered"), &block, machine)
        })?;
    prove(&mut recovering, machines, &written, progress, figures)?;
    drop(recovering);
    PlainCopy::make(gateway, "debian@before", folder, progress, figures)?.remove()?;
    Ok("debian-recovered")
}

fn boot_imported(
    gateway: &Gateway,
    machines: &Machines,
    progress: &Progress,
    figures: &mut Figures,
) -> Result<Guest> {
    let image = machines.debian_image();
    let took = progress.step("import the Debian image", || gateway.import("debian", &image))?;
    figures.add("import of the Debian image", took, &sizes(&image)?);
    let (guest, took) =
        progress.timed_step("boot it from its NBD export, waiting for the login prompt", || {
            let mut guest = machines.machine("debian", gateway.disk("debian"), MEMORY_MIB).start()?;
            wait_for_login(&mut guest, machines.boot_within())?;
            Ok(guest)
        })?;
    figures.add("boot from the export, to the login prompt", took, "");
    Ok(guest)
}

/// How large the image is, and how much of it is data: the file is sparse.
fn sizes(image: &Path) -> Result<String> {
    let about = image.metadata()?;
    Ok(format!("{} MiB, of which {} MiB are data", about.len() >> 20, (about.blocks() * 512) >> 20))
}

fn wait_for_login(guest: &mut Guest, allowed: Duration) -> Result<()> {
    guest.wait_for("login:", allowed).context("Debian did not come to its login prompt")?;
    Ok(())
}

/// The console logs root in by itself; what is typed before the shell is there would be lost.
fn wait_for_shell(guest: &mut Guest) -> Result<()> {
    guest.wait_for(PROMPT, IN_GUEST_WITHIN).context("the guest's shell did not come")?;
    Ok(())
}

fn write_and_snapshot(
    gateway: &Gateway,
    guest: &mut Guest,
    progress: &Progress,
    figures: &mut Figures,
) -> Result<Checksums> {
    let written =
        progress.step("the guest writes 8 files of random data, syncs, tells their checksums", || {
            wait_for_shell(guest)?;
            guest.run(WRITE_FILES, IN_GUEST_WITHIN)?.success()?;
            let written = checksums(&guest.run(CHECKSUMS, IN_GUEST_WITHIN)?.success()?);
            ensure!(written.len() == FILES, "the guest told {} checksums of {FILES} files", written.len());
            Ok(written)
        })?;
    guest.type_line(BUSY)?;
    let took = progress.step("snapshot debian@before, while the guest runs and goes on writing", || {
        gateway.command(&["snapshot", "create", "debian", "--name", "before"])
    })?;
    figures.add("snapshot of the running machine", took, "");
    Ok(written)
}

fn ruin(gateway: &Gateway, mut guest: Guest, block: &MappedBlock, progress: &Progress) -> Result<()> {
    progress.step("ruin it from inside: the guest overwrites its disk, file system and all", || {
        guest.run(RUIN, IN_GUEST_WITHIN)?.success()
    })?;
    progress.step("pull its plug, and make sure that the disk is lost", || {
        guest.quit(Duration::from_secs(60))?;
        let mut disk = gateway.connect("debian")?;
        ensure!(
            !block.is_in(&mut disk)?,
            "the guest overwrote its disk, and yet the disk holds what it held"
        );
        let boot_sector = disk.read(0, 512)?;
        ensure!(!boot_sector.ends_with(&[0x55, 0xaa]), "the disk still has a boot sector");
        Ok(())
    })
}

fn prove(
    recovering: &mut Recovering,
    machines: &Machines,
    written: &Checksums,
    progress: &Progress,
    figures: &mut Figures,
) -> Result<()> {
    progress.note(&format!("first cold block served after {}", shown(recovering.first_block_took)));
    let login_took = progress.step("the recovered machine boots, waiting for its login prompt", || {
        wait_for_login(&mut recovering.guest, machines.boot_within())?;
        Ok(recovering.since_command.elapsed())
    })?;
    figures.add("recover: the clone command", recovering.clone_took, "");
    figures.add(
        "recover: command to first cold block served",
        recovering.first_block_took,
        "4 KiB, mapped, caches dropped, compared",
    );
    figures.add("recover: command to login prompt", login_took, "caches dropped");
    let guest = &mut recovering.guest;
    let found = progress.step("the recovered machine tells the checksums of its files", || {
        wait_for_shell(guest)?;
        Ok(checksums(&guest.run(CHECKSUMS, IN_GUEST_WITHIN)?.success()?))
    })?;
    compare(written, &found)?;
    progress.note(&format!("all {} checksums are those from before the ruin:", written.len()));
    for (file, sum) in &found {
        progress.note(&format!("  {}…  {file}", &sum[..16]));
    }
    progress.step("shut the recovered machine down", || guest.shut_down(POWER_OFF_WITHIN))?;
    Ok(())
}

/// File → checksum, of the lines that `sha256sum` prints; other lines (a kernel's message, say) are passed over.
fn checksums(output: &str) -> Checksums {
    let line = |line: &str| {
        let (sum, file) = line.split_once("  ")?;
        let is_sum = sum.len() == 64 && sum.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_sum.then(|| (file.trim_end().to_owned(), sum.to_owned()))
    };
    output.lines().filter_map(line).collect()
}

fn compare(written: &Checksums, found: &Checksums) -> Result<()> {
    for (file, sum) in written {
        let now = found.get(file).with_context(|| format!("{file} is missing on the recovered machine"))?;
        ensure!(now == sum, "{file} was written with sha256 {sum} but has {now} on the recovered machine");
    }
    Ok(())
}

fn is_in_image(block: &MappedBlock, image: &Path) -> Result<bool> {
    let mut bytes = vec![0; block.bytes.len()];
    File::open(image)?.read_exact_at(&mut bytes, block.offset)?;
    Ok(bytes == block.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(text: &str) -> Checksums {
        checksums(text)
    }

    #[test]
    fn checksums_are_told_from_other_lines_and_compared_file_by_file() {
        let (a, b) = ("a".repeat(64), "b".repeat(64));
        let written = sums(&format!("[ 1.0] a message\n{a}  /srv/1\n{b}  /srv/2\n"));
        assert_eq!(written.len(), 2);
        assert!(compare(&written, &written).is_ok());
        let other = compare(&written, &sums(&format!("{a}  /srv/1\n{a}  /srv/2\n"))).unwrap_err().to_string();
        assert!(other.contains("/srv/2"), "{other}");
        let missing = compare(&written, &sums(&format!("{a}  /srv/1\n"))).unwrap_err().to_string();
        assert!(missing.contains("/srv/2 is missing"), "{missing}");
    }
}
