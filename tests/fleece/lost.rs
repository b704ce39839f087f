//! What is not known of a guest any more: its bitmaps, its disks, itself.

use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde_json::json;
use stonefold_e2e::gateway::in_a_place;
use stonefold_e2e::tools::run;
use stonefold_guest::time::Deadline;

use super::guest::Guest;
use super::{BLOCK, MIB, PATIENCE, is_as_the_images, nothing_is_left, point, run_compare, server, stamp};

/// Goal: a bitmap that went with its QEMU, one that outlived it, one that QEMU had no time to keep, and one that somebody took away: what of a disk
/// is not known is compared, and told; all points are what the images held.
#[test]
fn bitmaps_that_are_lost_or_broken_are_told_and_everything_compared() {
    in_a_place(|place| {
        Guest::make_images(place)?;
        let (guest, mut monitor) = Guest::start(place)?;
        let server = server(place)?;
        monitor.write("root", 0, 8 * MIB, 3)?;
        monitor.write("data", 0, 8 * MIB, 3)?;
        place.json("backup run mail")?;

        monitor.write("data", MIB, BLOCK, 4)?;
        guest.quit(monitor)?;
        let (guest, mut monitor) = Guest::start(place)?;
        monitor.write("root", 2 * MIB, BLOCK, 4)?;
        let run = place.json("backup run mail")?;
        let notes = run["copied"]["notes"].to_string();
        ensure!(notes.contains("all of disk 'root' was compared") && !notes.contains("'data'"), "{run}");
        ensure!(run["copied"]["written_bytes"] == 2 * BLOCK, "{run}");
        is_as_the_images(place, &mut monitor, &run)?;

        // As the host's power fails: what was kept in the image is marked as in use until QEMU closes it.
        guest.quit(monitor)?;
        let (guest, mut monitor) = Guest::start(place)?;
        monitor.write("data", 3 * MIB, BLOCK, 5)?;
        drop((guest, monitor));
        let (_guest, mut monitor) = Guest::start(place)?;
        let run = place.json("backup run mail")?;
        let notes = run["copied"]["notes"].to_string();
        ensure!(notes.contains("'data' was compared") && notes.contains("ended before it was kept"), "{run}");
        is_as_the_images(place, &mut monitor, &run)?;

        let bitmap = monitor.bitmaps()?.pop().context("there are bitmaps")?;
        let told = monitor.ask("query-block", &json!({}))?;
        let node = told[0]["inserted"]["node-name"].clone();
        monitor.ask("block-dirty-bitmap-remove", &json!({ "node": node, "name": bitmap }))?;
        monitor.write("root", 5 * MIB, BLOCK, 6)?;
        let run = place.json("backup run mail")?;
        ensure!(run["copied"]["notes"].to_string().contains("'root' was compared"), "{run}");
        is_as_the_images(place, &mut monitor, &run)?;

        // The last point is gone, and with it what its bitmap is since.
        place.ok(&format!("point rm {}", point(&run)?))?;
        monitor.write("data", 6 * MIB, BLOCK, 7)?;
        let run = place.json("backup run mail")?;
        is_as_the_images(place, &mut monitor, &run)?;
        nothing_is_left(place, &mut monitor)?;
        server.stop()
    });
}

/// Goal: a disk that grows, one that comes, a guest that is started anew in the midst of its backup: each is told, and what is not known of a disk is
/// compared; all points are what the images held.
#[test]
fn what_becomes_of_a_guest_between_its_backups_and_in_one_is_told() {
    in_a_place(|place| {
        Guest::make_images_of(place, 256 * MIB)?;
        let extra = place.text("c.raw");
        run("qemu-img", &["create", "-q", "-f", "raw", &extra, "32M"])?;
        let (guest, mut monitor) = Guest::start(place)?;
        let server = server(place)?;
        for drive in ["root", "data"] {
            monitor.write(drive, 0, 8 * MIB, 3)?;
        }
        place.json("backup run mail")?;

        monitor.ask("block_resize", &json!({ "device": "root", "size": 300 * MIB }))?;
        monitor.write("root", 290 * MIB, BLOCK, 4)?;
        monitor.write("data", MIB, BLOCK, 4)?;
        let run = place.json("backup run mail")?;
        let notes = run["copied"]["notes"].to_string();
        ensure!(notes.contains("grown") && notes.contains("'root'") && !notes.contains("'data'"), "{run}");
        ensure!(run["copied"]["written_bytes"] == 2 * BLOCK, "{run}");
        is_as_the_images(place, &mut monitor, &run)?;

        let line = format!("drive_add 0 if=none,id=extra,file={extra},format=raw,cache=none");
        monitor.ask("human-monitor-command", &json!({ "command-line": line }))?;
        monitor.ask(
            "device_add",
            &json!({ "driver": "scsi-hd", "drive": "extra", "bus": "bus0.0", "id": "sd1" }),
        )?;
        monitor.write("extra", 5 * MIB, MIB, 6)?;
        monitor.write("data", 2 * MIB, BLOCK, 6)?;
        let run = place.json("backup run mail")?;
        ensure!(run["copied"]["written_bytes"] == MIB + BLOCK, "{run}");
        is_as_the_images(place, &mut monitor, &run)?;
        monitor.io("extra", "flush")?;
        run_compare(&extra, "raw", &place.uri(&format!("mail.extra@{}", stamp(&run)?)))?;

        monitor.write("root", 0, 200 * MIB, 7)?;
        let mut backup = Command::new(stonefold_e2e::binary::stonefold()?);
        backup.args(["--api", &place.api(), "backup", "run", "mail"]).stderr(Stdio::piped());
        let backup = backup.spawn()?;
        let patience = Deadline::after(PATIENCE);
        while !monitor.has_marks("ahead-0")? {
            ensure!(!patience.passed(), "no backup came to it");
        }
        guest.quit(monitor)?;
        let ended = backup.wait_with_output()?;
        let said = String::from_utf8_lossy(&ended.stderr);
        ensure!(!ended.status.success() && said.contains("QEMU"), "{said}");
        let points = place.json("point ls")?;
        ensure!(points.as_array().is_some_and(|points| points.len() == 3), "{points}");
        let (guest, mut monitor) = Guest::start(place)?;
        let run = place.json("backup run mail")?;
        ensure!(run["copied"]["notes"].to_string().contains("'root' was compared"), "{run}");
        is_as_the_images(place, &mut monitor, &run)?;
        guest.quit(monitor)?;
        server.stop()
    });
}
