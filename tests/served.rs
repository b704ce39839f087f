//! What a server says of itself when it starts, and what people see of its work.
//!
//! *Promise*: the log says how the pool's files are reached, by the ring or without, around the page cache or through it; a client that
//! comes after a resize sees the new size, and one that came before reads on; an import on a terminal has a bar, and elsewhere no
//! character of one.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stonefold_dice::noise;
use stonefold_e2e::binary::stonefold;
use stonefold_e2e::gateway::{Place, in_a_place};
use stonefold_e2e::tools::run;
use stonefold_guest::process;
use stonefold_guest::time::Deadline;

const MIB: usize = 1 << 20;
const GONE_MAX: Duration = Duration::from_secs(20);
const IMPORT_MAX: Duration = Duration::from_secs(120);

#[test]
fn the_log_says_how_files_are_reached() {
    in_a_place(|place| {
        let told = |place: &Place| -> Result<String> {
            let log = place.log();
            Ok(log.lines().rfind(|line| line.contains("the pool is file:")).context("it says so")?.to_owned())
        };
        place.start(&[])?.stop()?;
        let line = told(place)?;
        ensure!(line.contains("by io_uring") || line.contains("by threads"), "{line}");
        ensure!(line.contains("direct I/O") || line.contains("page cache"), "{line}");
        let through = format!("{}?direct=never", place.text("cached"));
        let place = Place::new()?.with_pool(Path::new(&through));
        place.start(&[])?.stop()?;
        let line = told(&place)?;
        ensure!(line.contains("page cache"), "{line}");
        Ok(())
    });
}

/// A directory whose disk is gone is told by name, at once and by everybody who is asked, whatever was written since.
#[test]
fn a_directory_that_is_gone_is_told() {
    in_a_place(|place| {
        let three = ["one", "two", "three"].map(|name| place.text(name));
        let url = format!("{}?also={}&also={}&copies=2", three[0], three[1], three[2]);
        let place = Place::new()?.with_pool(Path::new(&url));
        let gateway = place.start(&[])?;
        place.ok("disk create web --size 8M")?;
        ensure!(place.json("pool status")?["missing"] == serde_json::json!([]));
        fs::rename(&three[1], format!("{}-gone", three[1]))?;
        let status = place.json("pool status")?;
        ensure!(status["missing"] == serde_json::json!([three[1]]), "{status}");
        ensure!(place.ok("pool status")?.contains(&format!("DEGRADED: without '{}'", three[1])));
        ensure!(status["free_bytes"].as_u64() > Some(0), "the others' room is told: {status}");
        // It may be replaced where it was, while the pool is served.
        let mut web = place.connect("web")?;
        let deadline = Deadline::after(GONE_MAX);
        for round in 0.. {
            web.write(0, &noise(round, MIB))?;
            web.write(MIB as u64, &noise(4, MIB))?;
            web.flush()?;
            // Which folds, and fails as soon as the directory is known to be missing.
            place.run("pool check")?;
            if place.log().contains("is dropped") {
                break;
            }
            ensure!(!deadline.passed(), "it is not dropped: {}", place.log());
        }
        drop(web);
        fs::create_dir(&three[1])?;
        place.ok(&format!("pool replace {0} {0}", three[1]))?;
        let status = place.json("pool status")?;
        ensure!(status["missing"] == serde_json::json!([]), "{status}");
        ensure!(place.connect("web")?.read_all(MIB as u64, MIB as u64)? == noise(4, MIB));
        place.ok("pool check")?;
        gateway.stop()
    });
}

fn size(place: &Place, export: &str) -> Result<usize> {
    Ok(run("nbdinfo", &["--size", &place.uri(export)])?.trim().parse()?)
}

#[test]
fn a_new_client_sees_the_new_size() {
    in_a_place(|place| {
        let gateway = place.start(&[])?;
        place.ok("disk create web --size 8M")?;
        let mut early = place.connect("web")?;
        early.write(0, &noise(1, MIB))?;
        ensure!(size(place, "web")? == 8 * MIB);
        place.ok("disk resize web 12M")?;
        ensure!(size(place, "web")? == 12 * MIB, "a new client sees the new size");
        let mut late = place.connect("web")?;
        late.write(11 * MIB as u64, &noise(2, MIB))?;
        ensure!(late.read_all(11 * MIB as u64, MIB as u64)? == noise(2, MIB));
        ensure!(early.read_all(0, MIB as u64)? == noise(1, MIB), "one that was there reads on");
        let refused = place.fails("disk resize web 4M --shrink", 1)?;
        ensure!(refused.contains("is in use by 2 clients") && refused.contains("what to do"), "{refused}");
        drop((early, late));
        // The server sees within a moment that they have hung up.
        let deadline = Deadline::after(GONE_MAX);
        while place.run("disk resize web 4M --shrink")?.status.code() != Some(0) {
            ensure!(!deadline.passed(), "{}", place.fails("disk resize web 4M --shrink", 1)?);
            std::thread::sleep(Duration::from_millis(50));
        }
        ensure!(size(place, "web")? == 4 * MIB);
        ensure!(place.connect("web")?.read(6 * MIB as u64, 4096).is_err(), "beyond the end is an error");
        gateway.stop()
    });
}

#[test]
fn an_import_has_a_bar_on_a_terminal_alone() {
    in_a_place(|place| {
        let gateway = place.start(&[])?;
        let image = place.path("image.raw");
        fs::write(&image, noise(3, 64 * MIB))?;
        let image = image.to_string_lossy();
        let plain = place.run(&format!("disk import plain {image}"))?;
        ensure!(plain.status.success(), "{}", plain.stderr);
        let drawn = |text: &str| text.contains('\u{1b}') || text.contains("left");
        ensure!(!drawn(&plain.stdout) && !drawn(&plain.stderr), "{}{}", plain.stdout, plain.stderr);

        // A terminal of its own, by util-linux.
        let line = format!("{} disk import shown {image}", stonefold()?.display());
        let mut script = Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).env("STONEFOLD_API", place.api()).env("TERM", "xterm");
        let shown = process::run(&mut script, IMPORT_MAX)?;
        ensure!(shown.status.success(), "{}", shown.stdout);
        let bars = shown.stdout.split('\r').filter(|piece| piece.contains('[') && piece.contains("% "));
        ensure!(bars.count() > 0, "no bar in {:?}", shown.stdout);
        gateway.stop()
    });
}
