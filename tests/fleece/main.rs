//! Guests on foreign storage that are backed up while they write: a real QEMU with a raw and a qcow2 image, which knows nothing of us.
//!
//! *Promises*: a point is what all disks held at one instant; the next one reads what has changed and no more; a bitmap that is lost or broken is
//! told, and everything compared; a guest goes on and loses nothing when the server dies in the midst of a backup, and what that left
//! in its QEMU is taken out. *Method*: no operating system: what the guest's devices write, QEMU's own `qemu-io` writes through
//! the same devices' drives, over a monitor of its own.

mod guest;
mod lost;
mod outage;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{scope, sleep};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use stonefold_e2e::gateway::{Gateway, Place, in_a_place};
use stonefold_e2e::machines::Machines;
use stonefold_e2e::monitor::Monitor;
use stonefold_e2e::tools::run;
use stonefold_guest::time::Deadline;

use guest::Guest;

const PATIENCE: Duration = Duration::from_secs(60);
const BLOCK: u64 = 4096;
const MIB: u64 = 1 << 20;
const DISK_BYTES: u64 = 64 * MIB;

/// A server, and the guest as its source `mail`.
fn server(place: &Place) -> Result<Gateway> {
    let server = place.start(&["--machines", &place.text("machines"), "--accelerator", "tcg"])?;
    place.ok(&format!("source add mail --qmp {}", place.text("qmp.sock")))?;
    Ok(server)
}

fn point(run: &Value) -> Result<&str> {
    run["name"].as_str().with_context(|| format!("a run has a name: {run}"))
}

fn stamp(run: &Value) -> Result<&str> {
    point(run)?.split_once('@').map(|(_, stamp)| stamp).context("a point has a stamp")
}

/// Fails where a point's disks are not what the images hold.
fn is_as_the_images(place: &Place, monitor: &mut Monitor, run: &Value) -> Result<()> {
    // Where a qcow2 image has its blocks may be known to its QEMU alone until then.
    ["root", "data"].into_iter().try_for_each(|drive| monitor.io(drive, "flush"))?;
    for (disk, image, format) in [("mail.root", "a.raw", "raw"), ("mail.data", "b.qcow2", "qcow2")] {
        let export = place.uri(&format!("{disk}@{}", stamp(run)?));
        run_compare(&place.text(image), format, &export)?;
    }
    Ok(())
}

fn run_compare(image: &str, format: &str, export: &str) -> Result<()> {
    // The guest has it open.
    run("qemu-img", &["compare", "-q", "-U", "-f", format, "-F", "raw", image, export]).map(drop)
}

/// Nothing of a backup is left, but one bitmap of each disk.
fn nothing_is_left(place: &Place, monitor: &mut Monitor) -> Result<()> {
    ensure!(monitor.ours()?.is_empty(), "QEMU has {:?}", monitor.ours()?);
    let bitmaps = monitor.bitmaps()?;
    ensure!(bitmaps.len() == 2 && bitmaps[0] == bitmaps[1], "bitmaps {bitmaps:?}");
    ensure!(monitor.is_running()?, "the guest stands still");
    let disks = place.json("disk ls")?;
    ensure!(disks.as_array().is_some_and(|disks| disks.len() == 2), "{disks}");
    Ok(())
}

/// Waits until a guest's disks are read ahead of the cut, by the mark of that pass.
fn reads_ahead(monitor: &mut Monitor, mark: &str) -> Result<()> {
    let patience = Deadline::after(PATIENCE);
    while !monitor.has_marks(mark)? {
        ensure!(!patience.passed(), "{mark} never came");
        ensure!(!monitor.ours()?.iter().any(|node| node.contains("cbw")), "it was not read ahead");
        sleep(Duration::from_millis(5));
    }
    ensure!(!monitor.ours()?.iter().any(|node| node.contains("cbw")), "a filter is there");
    Ok(())
}

/// Blocks of a drive that hold anything, from the first one on.
fn prefix(place: &Place, export: &str) -> Result<u64> {
    let mut connection = place.connect(export)?;
    let mut filled = 0;
    let mut has_ended = false;
    for at in 0..DISK_BYTES / BLOCK {
        let is_zero = connection.read(at * BLOCK, BLOCK as usize)?.iter().all(|byte| *byte == 0);
        ensure!(is_zero || !has_ended, "{export}: block {at} is there, and one before it is not");
        has_ended |= is_zero;
        filled += u64::from(!is_zero);
    }
    Ok(filled)
}

/// Goal: points of all disks at one instant while the guest writes to both in turn, then only what has changed.
#[test]
fn a_guest_is_backed_up_while_it_writes() {
    in_a_place(|place| {
        Guest::make_images(place)?;
        let (guest, mut monitor) = Guest::start(place)?;
        let server = server(place)?;
        let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
        let runs = scope(|scope| {
            let monitor = &mut monitor;
            let (stop, written) = (&stop, &written);
            let writer = scope.spawn(move || -> Result<()> {
                let mut at = 0;
                while !stop.load(Ordering::SeqCst) {
                    ensure!(at < DISK_BYTES / BLOCK, "the disks are full");
                    for drive in ["root", "data"] {
                        monitor.write(drive, at * BLOCK, BLOCK, 7)?;
                    }
                    at += 1;
                    written.store(at, Ordering::SeqCst);
                }
                Ok(())
            });
            let runs: Result<Vec<Value>> = (0..4)
                .map(|_| {
                    sleep(Duration::from_millis(300));
                    place.json("backup run mail")
                })
                .collect();
            stop.store(true, Ordering::SeqCst);
            writer.join().expect("the writer does not panic")?;
            runs
        })?;
        let mut before = 0;
        for run in &runs {
            let (root, data) = (format!("mail.root@{}", stamp(run)?), format!("mail.data@{}", stamp(run)?));
            let (root, data) = (prefix(place, &root)?, prefix(place, &data)?);
            ensure!(data <= root && root <= data + 1, "two instants: {root} and {data} blocks of {run}");
            ensure!(root > before, "the guest did not write: {root} blocks, {before} before");
            before = root;
            ensure!(run["copied"].get("notes").is_none(), "{run}");
        }
        ensure!(before <= written.load(Ordering::SeqCst), "more than was written");
        // It holds still now: the next point is all of it, and the one after what has changed.
        let all = place.json("backup run mail")?;
        is_as_the_images(place, &mut monitor, &all)?;
        for at in [3, 700, 701, 9000, 16_000] {
            monitor.write("root", at * BLOCK, BLOCK, 9)?;
        }
        monitor.io("data", &format!("discard {} {}", 0, 4 * BLOCK))?;
        monitor.write("data", 9 * MIB, MIB, 5)?;
        let changed = place.json("backup run mail")?;
        is_as_the_images(place, &mut monitor, &changed)?;
        let (read, most) = (changed["copied"]["read_bytes"].as_u64(), 9 * BLOCK + MIB);
        ensure!(
            read.is_some_and(|read| read >= MIB + 5 * BLOCK && read <= most),
            "{most} at most: {changed}"
        );
        let same = place.json("backup run mail")?;
        ensure!(same["copied"]["read_bytes"] == 0 && same["copied"]["written_bytes"] == 0, "{same}");
        nothing_is_left(place, &mut monitor)?;

        // What somebody else does to the copy is found, although the guest has not touched it.
        place.connect("mail.root")?.write(20 * MIB, &[1; 4096])?;
        let mended = place.json("backup run mail")?;
        is_as_the_images(place, &mut monitor, &mended)?;
        ensure!(mended["copied"]["notes"].to_string().contains("something else had changed"), "{mended}");

        // The point comes back with what its QEMU was started with.
        let shown = place.json(&format!("point show {}", point(&mended)?))?;
        let arguments = shown["hardware"].to_string();
        ensure!(arguments.contains("q35") && arguments.contains("64M"), "{arguments}");
        let _ended = Machines(place);
        let again =
            place.json(&format!("recover {} --as again --to qemu --network isolated", point(&mended)?))?;
        ensure!(again["recovery"]["started"]["running"] == true, "{again}");
        ensure!(place.json("disk show again.data")?["clients"] == 1, "the other machine lacks a disk");
        place.ok("recover stop again --power-off --discard")?;
        place.ok("source rm mail")?;
        ensure!(monitor.bitmaps()?.is_empty(), "bitmaps are left: {:?}", monitor.bitmaps()?);
        guest.quit(monitor)?;
        server.stop()
    });
}

/// Goal: what is read ahead of a guest that writes much meanwhile is read again, ahead, and the little that is left after the cut; the point is what the disks
/// held then.
#[test]
fn what_a_guest_writes_while_it_is_read_ahead_is_read_again() {
    in_a_place(|place| {
        Guest::make_images_of(place, 512 * MIB)?;
        let (guest, mut monitor) = Guest::start(place)?;
        // Each pass is long enough to be seen, and to be written in.
        let server = place.start(&["--machines", &place.text("machines"), "--copy-bandwidth", "100M"])?;
        place.ok(&format!("source add mail --qmp {}", place.text("qmp.sock")))?;
        for drive in ["root", "data"] {
            monitor.write(drive, 0, 200 * MIB, 3)?;
        }
        let run = scope(|scope| -> Result<Value> {
            let run = scope.spawn(|| place.json("backup run mail"));
            reads_ahead(&mut monitor, "ahead-0")?;
            // What is there, what was zeros, and zeros where something was.
            for drive in ["root", "data"] {
                monitor.write(drive, 150 * MIB, 100 * MIB, 8)?;
                monitor.io(drive, &format!("discard {} {}", 20 * MIB, MIB))?;
            }
            reads_ahead(&mut monitor, "ahead-1")?;
            // Little, and still more than is left to the cut.
            monitor.write("data", 400 * MIB, 16 * MIB, 7)?;
            reads_ahead(&mut monitor, "ahead-2")?;
            for at in 0..50 {
                monitor.write("root", at * 3 * MIB, BLOCK, 9)?;
                monitor.write("data", at * 3 * MIB + 5 * BLOCK, BLOCK, 9)?;
            }
            run.join().expect("the command does not panic")
        })?;
        is_as_the_images(place, &mut monitor, &run)?;
        nothing_is_left(place, &mut monitor)?;
        let copied = &run["copied"];
        let read = copied["read_bytes"].as_u64().unwrap_or_default();
        ensure!((600 * MIB..1000 * MIB).contains(&read) && copied.get("notes").is_none(), "{run}");
        // The point is of the cut, and not of the run's beginning.
        let shown = place.json(&format!("point show {}", point(&run)?))?;
        ensure!(shown["taken"] == copied["cut"] && copied["cut"] != run["begun"], "{shown}");
        let same = place.json("backup run mail")?;
        ensure!(same["copied"]["read_bytes"] == 0, "{same}");
        // All of it anyhow: that a bitmap knows of little changes nothing.
        let all = scope(|scope| -> Result<Value> {
            let run = scope.spawn(|| place.json("backup run mail --full"));
            reads_ahead(&mut monitor, "ahead-0")?;
            monitor.write("data", 300 * MIB, BLOCK, 4)?;
            run.join().expect("the command does not panic")
        })?;
        is_as_the_images(place, &mut monitor, &all)?;
        ensure!(all["copied"]["read_bytes"].as_u64().is_some_and(|read| read >= 1024 * MIB), "{all}");
        guest.quit(monitor)?;
        server.stop()
    });
}

/// Goal: what cannot be backed up is refused with the reason, and the guest is left as it is.
#[test]
fn what_cannot_be_backed_up_is_told() {
    in_a_place(|place| {
        let server = server(place)?;
        let said = place.fails("backup run mail", 1)?;
        ensure!(said.contains("qmp.sock") && said.contains("-qmp unix:PATH"), "{said}");
        let said = place.fails("source add other --qmp /a --image /b", 2)?;
        ensure!(said.contains("--image") || said.contains("--qmp"), "{said}");
        Guest::make_images(place)?;
        let (_guest, mut monitor) = Guest::start(place)?;
        let address = json!({ "addr": { "type": "unix", "data": { "path": place.text("other.sock") } } });
        monitor.ask("nbd-server-start", &address)?;
        let node = monitor.ask("query-block", &json!({}))?[0]["inserted"]["node-name"].clone();
        monitor.ask("block-export-add", &json!({ "type": "nbd", "id": "theirs", "node-name": node }))?;
        let said = place.fails("backup run mail", 1)?;
        ensure!(said.contains("nbd-server-start") && said.contains("end the other export"), "{said}");
        let exports = monitor.ask("query-block-exports", &json!({}))?;
        ensure!(
            exports.as_array().is_some_and(|exports| exports.len() == 1),
            "another's export has gone: {exports}"
        );
        ensure!(monitor.ours()?.is_empty() && monitor.bitmaps()?.is_empty(), "{:?}", monitor.bitmaps()?);
        // Another client has the socket that is for backups.
        let other = Monitor::connect(&place.path("qmp.sock"))?;
        let said = place.fails("backup run mail", 1)?;
        ensure!(said.contains("does not answer"), "{said}");
        drop(other);
        server.stop()
    });
}
