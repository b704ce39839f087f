//! Image files and devices of the host, through the real command line and the real qemu-img.
//!
//! *Promise*: an export replaces nothing but a regular file, and writes over a block device only when told to and when
//! the disk fits; what comes out in one format comes in again as the same bytes; of a damaged disk everything that can
//! be read is saved, and what cannot is named. *Past bugs*: an export with `--force` replaced a device node by a file;
//! one to `d.vhdx` wrote raw bytes under that name; the footer of a VHD of fixed size became disk data.

use std::fs;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use rustix::fs::{CWD, FileType, makedev, mknodat};
use stonefold_dice::noise;
use stonefold_e2e::gateway::{Place, in_a_place};
use stonefold_e2e::mounts::{Loop, Mount};
use stonefold_e2e::rot::ruin_middle;
use stonefold_e2e::tools::run;
use stonefold_needs::{Need, there_is};

const MIB: usize = 1 << 20;

/// A disk of 5 MiB whose last byte counts: what rounds sizes or drops the end is found.
fn web(place: &Place) -> Result<Vec<u8>> {
    let data = [noise(3, MIB), vec![0; 3 * MIB], noise(4, MIB)].concat();
    fs::write(place.path("web.raw"), &data)?;
    place.ok(&format!("disk import web {}", place.text("web.raw")))?;
    Ok(data)
}

#[test]
fn every_format_goes_out_and_comes_in_as_the_same_bytes() {
    in_a_place(|place| {
        let gateway = place.start(&[])?;
        let data = web(place)?;
        for (ending, qemus) in [
            ("raw", "raw"),
            ("qcow2", "qcow2"),
            ("vmdk", "vmdk"),
            ("vhdx", "vhdx"),
            ("vdi", "vdi"),
            ("vhd", "vpc"),
        ] {
            let file = place.text(&format!("out.{ending}"));
            let told = place.json(&format!("disk export web {file}"))?;
            ensure!(told["format"] == ending, "{told}");
            let known: serde_json::Value =
                serde_json::from_str(&run("qemu-img", &["info", "--output=json", &file])?)?;
            ensure!(known["format"] == qemus, "{ending}: {known}");
            let back = format!("back-{ending}");
            place.ok(&format!("disk import {back} {file}"))?;
            ensure!(contents(place, &back)? == data, "{ending} came back as something else");
        }
        let error = place.fails(&format!("disk export web {}", place.text("web.ova")), 1)?;
        ensure!(error.contains(".ova") && error.contains("--format"), "{error}");
        ensure!(!place.path("web.ova").exists());
        gateway.stop()
    });
}

#[test]
fn a_vhd_of_fixed_size_comes_in_without_its_footer() {
    in_a_place(|place| {
        let gateway = place.start(&[])?;
        let data = noise(5, 5 * MIB);
        fs::write(place.path("web.raw"), &data)?;
        let (raw, fixed) = (place.text("web.raw"), place.text("web.vhd"));
        let options = "subformat=fixed,force_size=on";
        run("qemu-img", &["convert", "-f", "raw", "-O", "vpc", "-o", options, &raw, &fixed])?;
        ensure!(fs::metadata(&fixed)?.len() == data.len() as u64 + 512, "this is no VHD of fixed size");
        // As other makers' footers do, it names a geometry that is smaller than the disk.
        let file = fs::OpenOptions::new().read(true).write(true).open(&fixed)?;
        give_another_maker(&file, data.len() as u64)?;
        place.ok(&format!("disk import web {fixed}"))?;
        ensure!(contents(place, "web")? == data, "it came in as something else");
        gateway.stop()
    });
}

/// Writes `vbox` for the maker into a footer, and its checksum: the complement of the sum of its other bytes.
fn give_another_maker(file: &fs::File, at: u64) -> Result<()> {
    let mut footer = [0; 512];
    file.read_exact_at(&mut footer, at)?;
    footer[28..32].copy_from_slice(b"vbox");
    footer[64..68].fill(0);
    let sum: u32 = footer.iter().map(|byte| u32::from(*byte)).sum();
    footer[64..68].copy_from_slice(&(!sum).to_be_bytes());
    Ok(file.write_all_at(&footer, at)?)
}

/// All bytes of a disk.
fn contents(place: &Place, disk: &str) -> Result<Vec<u8>> {
    let size = place.json(&format!("disk show {disk}"))?["size_bytes"].as_u64().context("a size")?;
    place.connect(disk)?.read(0, size as usize)
}

#[test]
fn what_is_no_file_is_refused_and_stays_what_it_is() {
    in_a_place(|place| {
        let gateway = place.start(&[])?;
        web(place)?;
        let mut strange = vec![place.path("pipe")];
        mknodat(CWD, &strange[0], FileType::Fifo, 0o600.into(), 0)?;
        let full = place.path("full");
        // A copy of /dev/full, where making one is allowed.
        if mknodat(CWD, &full, FileType::CharacterDevice, 0o600.into(), makedev(1, 7)).is_ok() {
            strange.push(full);
        }
        for path in &strange {
            let before = fs::symlink_metadata(path)?.file_type();
            for force in ["", "--force"] {
                let error = place.fails(&format!("disk export web {} {force}", path.display()), 1)?;
                ensure!(error.contains("not a file") && error.contains("what to do"), "{error}");
            }
            ensure!(fs::symlink_metadata(path)?.file_type() == before, "{} was replaced", path.display());
        }
        let error = place.fails(&format!("disk import more {}", strange[0].display()), 1)?;
        ensure!(error.contains("neither a file nor a block device"), "{error}");
        gateway.stop()
    });
}

#[test]
fn a_block_device_is_written_over_only_when_told_and_when_the_disk_fits() {
    if !there_is(Need::Loop, "an export over a block device") {
        return;
    }
    in_a_place(|place| {
        let gateway = place.start(&[])?;
        let data = web(place)?;
        let (small, large) = (device(place, "small", 4 * MIB)?, device(place, "large", 8 * MIB)?);
        let link = place.path("link");
        std::os::unix::fs::symlink(&large.device, &link)?;
        let to = |device: &str, more: &str| format!("disk export web {device} {more}");
        let link = link.to_string_lossy();
        for (line, words) in [
            (to(&large.device, ""), ["block device", "--force"]),
            (to(&link, ""), ["block device", "--force"]),
            (to(&small.device, "--force"), ["4M", "nothing was written"]),
            (to(&large.device, "--force --format qcow2"), ["block device", "--format raw"]),
        ] {
            let error = place.fails(&line, 1)?;
            ensure!(words.iter().all(|word| error.contains(word)), "{line}: {error}");
        }
        for (name, bytes) in [("small", 4 * MIB), ("large", 8 * MIB)] {
            ensure!(fs::read(place.path(name))? == vec![0xaa; bytes], "a refused export wrote to {name}");
        }
        place.ok(&to(&link, "--force"))?;
        ensure!(fs::metadata(&large.device)?.file_type().is_block_device(), "the device is one no more");
        let written = fs::read(place.path("large"))?;
        ensure!(written[..data.len()] == data[..], "the device holds something else");
        ensure!(
            written[data.len()..].iter().all(|byte| *byte == 0xaa),
            "it was written beyond the disk's end"
        );

        run("mkfs.ext4", &["-q", "-F", &large.device])?;
        let mount = Mount::of(&large.device, &place.path("mounted"), "noatime")?;
        let error = place.fails(&to(&large.device, "--force"), 1)?;
        ensure!(error.contains("unmount it"), "{error}");
        drop(mount);
        gateway.stop()
    });
}

/// A loop device over a file full of 0xaa.
fn device(place: &Place, name: &str, bytes: usize) -> Result<Loop> {
    fs::write(place.path(name), vec![0xaa; bytes])?;
    Loop::over(&place.path(name))
}

#[test]
fn of_a_damaged_disk_what_can_be_read_is_saved_and_the_rest_named() {
    in_a_place(|place| {
        let gateway = place.start(&[])?;
        let data = noise(9, 5 * MIB);
        fs::write(place.path("web.raw"), &data)?;
        place.ok(&format!("disk import web {}", place.text("web.raw")))?;
        gateway.stop()?;
        damage(place)?;

        let gateway = place.start(&[])?;
        let file = place.path("out.img");
        let shown = file.display();
        let error = place.fails(&format!("disk export web {shown}"), 1)?;
        ensure!(error.contains("--salvage") && error.contains("pool check"), "{error}");
        ensure!(!file.exists(), "a failed export left a file");

        let done = place.run(&format!("disk export web {shown} --salvage --json"))?;
        ensure!(done.status.code() == Some(1), "{}{}", done.stdout, done.stderr);
        ensure!(done.stderr.contains("cannot be read"), "{}", done.stderr);
        let told: serde_json::Value = serde_json::from_str(&done.stdout)?;
        let holes = told["unreadable"].as_array().context("a list")?;
        ensure!(!holes.is_empty(), "{told}");
        let mut expected = data;
        for hole in holes {
            let at = hole["offset"].as_u64().context("where")? as usize;
            let bytes = hole["bytes"].as_u64().context("how much")? as usize;
            ensure!(bytes <= 64 << 10, "one bit cost {bytes} bytes");
            expected[at..at + bytes].fill(0);
        }
        ensure!(fs::read(&file)? == expected, "what could be read was not saved");
        gateway.stop()
    });
}

/// Damages the middle of the largest segment, which is the data's.
fn damage(place: &Place) -> Result<()> {
    let mut files = Vec::new();
    for bucket in fs::read_dir(place.pool().join("objects/segment"))? {
        files.extend(
            fs::read_dir(bucket?.path())?
                .map(|entry| entry.map(|e| e.path()))
                .collect::<Result<Vec<PathBuf>, _>>()?,
        );
    }
    let length = |path: &PathBuf| fs::metadata(path).map_or(0, |meta| meta.len());
    let largest = files.iter().max_by_key(|path| length(path)).context("a segment")?;
    ruin_middle(largest)
}
