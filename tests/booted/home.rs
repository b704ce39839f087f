//! Machines on their way home: by a real QEMU's mirror, to files and to another's server.
//!
//! *Promise*: the machine goes on, with all that it has, whatever becomes of the server or of the move.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stonefold_e2e::gateway::{Place, in_a_place};
use stonefold_e2e::machines::{Machines, folder};
use stonefold_e2e::monitor::Monitor;
use stonefold_e2e::tools::{Beside, attempt, run, until};

use super::{console, machines, reset, serve, server};

/// What `migrate ls` says of the one migration there is.
fn migration(place: &Place) -> Result<serde_json::Value> {
    Ok(place.json("migrate ls")?[0].take())
}

#[test]
fn a_machine_is_moved_home_while_it_runs_and_the_server_dies() {
    in_a_place(|place| {
        let _ended = Machines(place);
        let (server, points) = server(place, &["the first"])?;
        let mut web = place.connect("web")?;
        let noise = stonefold_dice::noise(7, 8 << 20);
        for part in 0..4 {
            web.write((8 << 20) + (part << 23), &noise)?;
        }
        web.flush()?;
        drop(web);
        ensure!(points.len() == 1, "{points:?}");
        let point =
            place.json("backup run nightly")?["name"].as_str().context("a run has a name")?.to_owned();
        place.ok(&format!("recover {point} --as again --to qemu --wait console:the.first --timeout 60s"))?;
        let home = place.text("home.qcow2");

        // Cancelled, it leaves no file, and the machine where it is.
        place.ok(&format!("migrate again --to file:{home} --format qcow2 --no-wait"))?;
        let refused = place.fails(&format!("migrate again --to file:{home} --no-wait"), 1)?;
        ensure!(refused.contains("being moved already"), "{refused}");
        let refused = place.fails("recover stop again --discard", 1)?;
        ensure!(refused.contains("is being moved"), "{refused}");
        let refused = place.fails("migrate again --keep", 1)?;
        ensure!(refused.contains("is being moved"), "{refused}");
        place.ok("migrate pause again")?;
        until("it is being copied", || Ok(place.path("home.qcow2").exists()))?;
        ensure!(place.ok("migrate cancel again")?.contains("cancelled"), "it is not cancelled");
        ensure!(!place.path("home.qcow2").exists(), "the file is still there");
        ensure!(place.json("disk show again.vda")?["clients"] == 1, "the machine has lost its disk");

        // It stands still when told, over the death of the server, and goes on after.
        place.ok(&format!("migrate again --to file:{home} --format qcow2 --verify --no-wait"))?;
        place.ok("migrate pause again")?;
        until("it is being copied", || Ok(place.path("home.qcow2").exists()))?;
        server.kill();
        let server = serve(place)?;
        sleep(Duration::from_secs(5));
        ensure!(migration(place)?["state"] == "paused", "{}", migration(place)?);
        // And over its stops in good order, which leave QEMU at work.
        let mut server = server;
        for _ in 0..3 {
            server.stop()?;
            ensure!(place.path("home.qcow2").exists(), "a server that leaves takes the copy away");
            server = serve(place)?;
            until("it is looked after again", || Ok(migration(place)?["state"] == "paused"))?;
        }
        place.ok("migrate resume again")?;
        until("it is done", || Ok(migration(place)?["state"] != "copying"))?;
        let done = migration(place)?;
        ensure!(
            done["state"] == "done" && done["note"] == "both ends were alike while the guest stood still",
            "{done}"
        );
        ensure!(place.json("disk show again.vda")?["clients"] == 0, "the pool's disk is still in use");
        let (alike, said) = attempt(
            "qemu-img",
            &["compare", "-U", "-f", "raw", "-F", "qcow2", &place.uri("again.vda"), &home],
        )?;
        ensure!(alike == Some(0), "{said}");
        let shown = place.ok("recover show again")?;
        ensure!(shown.contains("home.qcow2"), "{shown}");

        // Its disks here are not what it runs on: nothing is kept, or backed up, of them.
        let refused = place.fails("migrate again --keep", 1)?;
        ensure!(refused.contains("has been moved to") && refused.contains("home.qcow2"), "{refused}");

        // What is left of the recovery goes, and the machine runs on.
        place.ok("recover stop again --discard")?;
        let disks = place.json("disk ls")?;
        ensure!(disks.as_array().is_some_and(|disks| disks.len() == 1), "{disks}");
        ensure!(machines(place) == 1, "the machine went with its old disks");
        server.stop()
    });
}

/// Another's server, started with these words, too, and the file that it exports as `web`.
fn export_of_another(place: &Place, name: &str, size: &str, with: &[&str]) -> Result<(Beside, String)> {
    let (socket, file) = (place.path(&format!("{name}.sock")), place.text(&format!("{name}.raw")));
    run("qemu-img", &["create", "-q", "-f", "raw", &file, size])?;
    let at = socket.to_string_lossy();
    let words = [&["-f", "raw", "-x", "web", "-k", &at], with, &[&file]].concat();
    let serving = Beside::start("qemu-nbd", &words, || socket.exists())?;
    Ok((serving, file))
}

/// Goal: another's export is a home, compared where its server lets somebody look beside the machine; where not, the guest is not kept standing still.
#[test]
fn a_machine_is_moved_to_another_s_export() {
    in_a_place(|place| {
        let _ended = Machines(place);
        let (server, points) = server(place, &["the first"])?;
        let point = &points[0];
        place.ok(&format!("recover {point} --as again --to qemu --wait console:the.first --timeout 60s"))?;
        let (alone, _) = export_of_another(place, "alone", "64M", &["-t"])?;
        let to = |name: &str| format!("nbd+unix:///web?socket={}", place.text(&format!("{name}.sock")));
        let moved = |name: &str| -> Result<serde_json::Value> {
            place.ok(&format!("migrate again --to {} --verify --no-wait", to(name)))?;
            until("it has ended", || Ok(migration(place)?["state"] != "copying"))?;
            migration(place)
        };
        let failed = moved("alone")?;
        let note = failed["note"].as_str().unwrap_or_default();
        ensure!(failed["state"] == "failed" && note.contains("two clients"), "{failed}");
        ensure!(place.json("disk show again.vda")?["clients"] == 1, "the machine has lost its disk");
        alone.kill();

        // These serve one client and end: nobody is one by looking.
        let (_small, _) = export_of_another(place, "small", "32M", &[])?;
        let (_kept, _) = export_of_another(place, "kept", "64M", &["-r"])?;
        for _ in 0..2 {
            for (name, says) in [("small", "has 32M, and disk 'vda' has 64M"), ("kept", "served read-only")] {
                let said = place.fails(&format!("migrate again --to {}", to(name)), 1)?;
                ensure!(said.contains(says), "{said}");
            }
        }
        ensure!(migration(place)? == failed, "one has begun");

        let (_shared, file) = export_of_another(place, "shared", "64M", &["-t", "--shared=2"])?;
        let done = moved("shared")?;
        ensure!(done["state"] == "done", "{done}");
        let old = place.uri("again.vda");
        run("qemu-img", &["compare", "-q", "-U", "-f", "raw", "-F", "raw", &old, &file])?;
        ensure!(place.ok("recover show again")?.contains("shared.sock"), "it is not told where it is");
        reset(place, "again")?;
        until("it boots from there", || {
            Ok(console(place, "again")?.matches("here is the first").count() == 2)
        })?;
        place.ok("recover stop again --power-off")?;
        server.stop()
    });
}

/// Goal: a guest that stands still while both ends are compared goes on though its server dies, once one is back; the comparison is made anew.
#[test]
fn a_guest_that_stands_for_a_comparison_outlives_the_server() {
    in_a_place(|place| {
        let _ended = Machines(place);
        let (mut server, _) = server(place, &["the first"])?;
        let mut web = place.connect("web")?;
        web.write(8 << 20, &stonefold_dice::noise(7, 32 << 20))?;
        web.flush()?;
        drop(web);
        let run = place.json("backup run nightly")?;
        let point = run["name"].as_str().context("a run has a name")?;
        place.ok(&format!("recover {point} --as again --to qemu --wait console:the.first --timeout 60s"))?;
        let monitor = folder(place, "again")?.join("qmp.sock");

        // What is read of it takes its time, and is told: only a comparison reads.
        let (socket, file, log) = (place.path("slow.sock"), place.text("slow.raw"), place.text("slow.log"));
        fs::File::create(&file)?.set_len(64 << 20)?;
        let (at, logfile) = (socket.to_string_lossy(), format!("logfile={log}"));
        let words =
            ["-f", "-U", &at, "--filter=log", "--filter=delay", "file", &file, "rdelay=500ms", &logfile];
        let _serving = Beside::start("nbdkit", &words, || socket.exists())?;
        place.ok(&format!("migrate again --to nbd+unix:///web?socket={at} --verify --no-wait"))?;
        until("both ends are compared", || {
            Ok(fs::read_to_string(&log).is_ok_and(|log| log.contains(" Read id=")))
        })?;
        server.kill();
        ensure!(!Monitor::connect(&monitor)?.is_running()?, "the guest does not stand still");

        server = serve(place)?;
        until("it has ended", || Ok(migration(place)?["state"] != "copying"))?;
        let done = migration(place)?;
        ensure!(
            done["state"] == "done" && done["note"] == "both ends were alike while the guest stood still",
            "{done}"
        );
        reset(place, "again")?;
        until("it boots from there", || {
            Ok(console(place, "again")?.matches("here is the first").count() == 2)
        })?;
        place.ok("recover stop again --power-off")?;
        server.stop()
    });
}

#[test]
fn what_has_no_room_or_is_in_the_way_is_known_before_a_move_begins() {
    in_a_place(|place| {
        let _ended = Machines(place);
        let (server, points) = server(place, &["the first"])?;
        place.ok(&format!(
            "recover {} --as again --to qemu --wait console:the.first --timeout 60s",
            points[0]
        ))?;
        fs::write(place.path("taken"), "somebody's")?;
        for (to, says) in [
            (format!("file:{}", place.text("taken")), "exists already"),
            (format!("file:{}", place.text("nowhere/x")), "no folder"),
            ("nbd://h/x --format qcow2".to_owned(), "written as it is"),
        ] {
            let said = place.fails(&format!("migrate again --to {to}"), 1)?;
            ensure!(said.contains(says), "{to}: {said}");
        }
        let said = place.fails("migrate again --to s3://bucket", 2)?;
        ensure!(said.contains("no place for disks"), "{said}");
        ensure!(fs::read(place.path("taken"))? == b"somebody's", "a file was written over");
        let said =
            place.fails(&format!("migrate again --to nbd+unix:///x?socket={}", place.text("none")), 1)?;
        ensure!(said.contains("connecting to the NBD server"), "{said}");
        ensure!(place.json("disk show again.vda")?["clients"] == 1, "the machine has lost its disk");

        // What is kept is a machine like any other.
        place.ok("migrate again --keep")?;
        place.ok("source add again --machine again")?;
        place.ok("backup run again")?;
        let refused = place.fails("recover stop again --discard", 1)?;
        ensure!(refused.contains("machine 'again'"), "{refused}");
        place.ok("recover stop again --power-off")?;
        let disks = place.json("disk ls")?;
        ensure!(disks.as_array().is_some_and(|disks| disks.len() == 2), "{disks}");
        server.stop()
    });
}
