//! Holes stay holes, through the real command line and the real qemu-img: a large image that holds little comes in and goes out as little.
//!
//! *Promise*: an import maps and stores what the image holds and nothing of its holes, and what it takes goes with the data, not with the
//! size; an export is a file whose blocks are near the data, also in place of another file; over a block device holes are zeros,
//! whatever it held. *Method*: a disk of a terabyte with data at its beginning, in its midst and in its very last sector, which is none of
//! a whole block; qemu-img compares what went out with what came in, nbdinfo and the file system tell the holes.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stonefold_dice::noise;
use stonefold_e2e::gateway::{Place, in_a_place};
use stonefold_e2e::mounts::Loop;
use stonefold_e2e::tools::run;
use stonefold_guest::time::Stopwatch;
use stonefold_needs::{Need, there_is};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const BLOCK: u64 = 4 * KIB;
/// A terabyte, and a sector that makes the last block one of which the image has an eighth.
const LARGE_BYTES: u64 = (1 << 40) + 512;
/// Where the large image holds something: offsets and lengths.
const LARGE: [(u64, u64); 3] = [(0, 64 * KIB), (300 * GIB + BLOCK, MIB), (LARGE_BYTES - 512, 512)];
/// One way, on a busy machine. To look at every byte of a terabyte takes minutes, in memory too.
const ONE_WAY_MAX: Duration = Duration::from_secs(10);
/// What a file may take beyond its data: the tables of a qcow2 with clusters of 64 KiB, and what rounds to them.
const TABLES_MAX: u64 = MIB;

/// What a pool may take beyond what its disks hold: the journal through which it came with a spare file for the next, and its small objects.
const POOL_MAX: u64 = 32 * MIB;

/// A file of holes, and noise where it holds something.
fn image(path: &Path, bytes: u64, held: &[(u64, u64)]) -> Result<()> {
    let file = File::create(path)?;
    file.set_len(bytes)?;
    for (offset, length) in held {
        file.write_all_at(&noise(*offset, *length as usize), *offset)?;
    }
    Ok(file.sync_all()?)
}

/// Whole blocks in which something is held, as first and last byte but one.
fn blocks_of(held: &[(u64, u64)]) -> Vec<(u64, u64)> {
    held.iter().map(|(at, length)| (at / BLOCK * BLOCK, (at + length).next_multiple_of(BLOCK))).collect()
}

fn bytes_of(ranges: &[(u64, u64)]) -> u64 {
    ranges.iter().map(|(start, end)| end - start).sum()
}

/// The allocated ranges of an export, neighbours as one.
fn mapped(place: &Place, export: &str) -> Result<Vec<(u64, u64)>> {
    let told: serde_json::Value =
        serde_json::from_str(&run("nbdinfo", &["--map", "--json", &place.uri(export)])?)?;
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for extent in told.as_array().context("a list")? {
        let number = |name: &str| extent[name].as_u64().with_context(|| format!("{name} in {extent}"));
        let (start, length) = (number("offset")?, number("length")?);
        if number("type")? != 0 {
            ensure!(number("type")? == 3, "neither data nor a hole of zeros: {extent}");
            continue;
        }
        match ranges.last_mut().filter(|last| last.1 == start) {
            Some(last) => last.1 += length,
            None => ranges.push((start, start + length)),
        }
    }
    Ok(ranges)
}

/// Bytes that a file takes of its file system.
fn allocated(file: &Path) -> Result<u64> {
    Ok(fs::metadata(file)?.blocks() * 512)
}

/// Runs a command that must not take long.
fn soon(place: &Place, line: &str) -> Result<serde_json::Value> {
    let since = Stopwatch::start();
    let told = place.json(line)?;
    let took = since.elapsed();
    println!("{line}: {} ms", took.as_millis());
    ensure!(took < ONE_WAY_MAX, "stonefold {line} took {} s", took.as_secs());
    Ok(told)
}

#[test]
fn of_a_large_image_only_what_it_holds_comes_in() {
    in_a_place(|place| {
        let gateway = place.start(&[])?;
        let raw = place.path("web.raw");
        image(&raw, LARGE_BYTES, &LARGE)?;
        let qcow2 = place.text("web.qcow2");
        run("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &place.text("web.raw"), &qcow2])?;
        let held = blocks_of(&LARGE);
        for (disk, source) in [("from-raw", "web.raw"), ("from-qcow2", "web.qcow2")] {
            // Without deduplication, so that each is seen to store its own.
            soon(place, &format!("disk import {disk} {} --dedupe off", place.text(source)))?;
            let shown = place.json(&format!("disk show {disk} --exact"))?;
            ensure!(shown["size_bytes"] == LARGE_BYTES.next_multiple_of(BLOCK), "{shown}");
            ensure!(shown["usage"]["logical_bytes"] == bytes_of(&held), "{shown}");
            // It is noise, so nothing is saved; each place has map nodes of its own.
            let unique = shown["usage"]["unique_bytes"].as_u64().context("a number")?;
            ensure!((bytes_of(&held)..bytes_of(&held) + 128 * KIB).contains(&unique), "{shown}");
            ensure!(mapped(place, disk)? == held, "{disk} is mapped as {:?}", mapped(place, disk)?);
        }
        let status = place.json("pool status")?;
        ensure!(status["logical_bytes"] == 2 * bytes_of(&held), "{status}");
        let used = status["used_bytes"].as_u64().context("a number")?;
        println!("the pool takes {used} bytes");
        ensure!((2 * bytes_of(&held)..2 * bytes_of(&held) + POOL_MAX).contains(&used), "{status}");
        gateway.stop()
    });
}

#[test]
fn of_a_large_disk_only_what_it_holds_goes_out() {
    in_a_place(|place| {
        let gateway = place.start(&[])?;
        let raw = place.path("web.raw");
        image(&raw, LARGE_BYTES, &LARGE)?;
        place.ok(&format!("disk import web {}", place.text("web.raw")))?;
        let held = bytes_of(&blocks_of(&LARGE));
        for format in ["raw", "qcow2"] {
            let (file, shown) = (place.path(&format!("out.{format}")), place.text(&format!("out.{format}")));
            soon(place, &format!("disk export web {shown}"))?;
            is_the_same(place, &shown, format)?;
            let taken = allocated(&file)?;
            ensure!((held..held + TABLES_MAX).contains(&taken), "{format} takes {taken} of {held} bytes");

            // In place of one that is larger, and holds more.
            image(&file, 2 << 40, &[(GIB, 16 * MIB), ((2 << 40) - BLOCK, BLOCK)])?;
            place.fails(&format!("disk export web {shown}"), 1)?;
            soon(place, &format!("disk export web {shown} --force"))?;
            is_the_same(place, &shown, format)?;
            let taken = allocated(&file)?;
            ensure!(
                (held..held + TABLES_MAX).contains(&taken),
                "{format} takes {taken} of {held} bytes, by force"
            );
        }
        let length = fs::metadata(place.path("out.raw"))?.len();
        ensure!(length == LARGE_BYTES.next_multiple_of(BLOCK), "the file has {length} bytes");
        gateway.stop()
    });
}

/// By qemu-img, to which zeros behind the end of the shorter one are no difference.
fn is_the_same(place: &Place, file: &str, format: &str) -> Result<()> {
    let said = run("qemu-img", &["compare", "-f", "raw", "-F", format, &place.text("web.raw"), file])?;
    ensure!(said.contains("Images are identical"), "{said}");
    Ok(())
}

#[test]
fn over_a_device_that_held_something_holes_are_zeros() {
    const DISK_BYTES: u64 = 6 * GIB;
    const HELD: [(u64, u64); 3] = [(0, 64 * KIB), (3 * GIB + BLOCK, MIB), (DISK_BYTES - BLOCK, BLOCK)];
    /// What the device holds before: in holes of the disk, across their edges, and beyond its end.
    const BEFORE: [(u64, u64); 4] =
        [(32 * KIB, 8 * MIB), (3 * GIB, 4 * MIB), (5 * GIB + 1, 3 * MIB), (DISK_BYTES - MIB, 2 * MIB)];
    if !there_is(Need::Loop, "an export of a sparse disk over a block device") {
        return;
    }
    in_a_place(|place| {
        let gateway = place.start(&[])?;
        image(&place.path("web.raw"), DISK_BYTES, &HELD)?;
        place.ok(&format!("disk import web {}", place.text("web.raw")))?;
        let under = place.path("device");
        let file = OpenOptions::new().create_new(true).read(true).write(true).open(&under)?;
        file.set_len(DISK_BYTES + GIB)?;
        for (offset, length) in BEFORE {
            file.write_all_at(&vec![0xaa; length as usize], offset)?;
        }
        let device = Loop::over(&under)?;
        soon(place, &format!("disk export web {} --force", device.device))?;
        let (held, beyond) = (bytes_of(&blocks_of(&HELD)), MIB);
        let taken = allocated(&under)?;
        ensure!(taken < held + beyond + TABLES_MAX, "below the device {taken} bytes are taken, of {held}");
        let read = |at: u64, length: u64| -> Result<Vec<u8>> {
            let mut bytes = vec![0; length as usize];
            File::open(&device.device)?.read_exact_at(&mut bytes, at)?;
            Ok(bytes)
        };
        for (at, length) in HELD {
            ensure!(
                read(at, length)? == noise(at, length as usize),
                "the device holds something else at {at}"
            );
        }
        for (at, length) in BEFORE {
            let (end, past) = ((at + length).min(DISK_BYTES), (at + length).saturating_sub(DISK_BYTES));
            let mut expected = vec![0; (end - at) as usize];
            for (held, bytes) in HELD {
                let (from, to) = (held.max(at), (held + bytes).min(end));
                if from < to {
                    let all = noise(held, bytes as usize);
                    expected[(from - at) as usize..(to - at) as usize]
                        .copy_from_slice(&all[(from - held) as usize..(to - held) as usize]);
                }
            }
            ensure!(read(at, end - at)? == expected, "what the device held shows through near {at}");
            ensure!(
                read(end, past)?.iter().all(|byte| *byte == 0xaa),
                "it was written beyond the disk's end"
            );
        }
        drop(device);
        gateway.stop()
    });
}
