//! What a recovered machine may take of its host.
//!
//! *Promise*: a QEMU that would take a whole processor takes what it was given, is in a group of its own that bounds its memory, and the group goes
//! with it; where that cannot be, or no guest could live with it, nothing is started. *Method*: a disk whose boot sector does nothing, for ever.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stonefold_e2e::gateway::{Place, in_a_place};
use stonefold_e2e::machines::Machines;
use stonefold_guest::time::Stopwatch;
use stonefold_needs::{Need, is_there};

/// cli; jmp to itself.
const SPIN: [u8; 3] = [0xfa, 0xeb, 0xfe];
const WATCHED: Duration = Duration::from_secs(3);
/// The kernel's ticks in a second, as it tells them to programs.
const TICKS: f64 = 100.0;

/// Of a process and all of its threads, in seconds of a processor.
fn worked(pid: &str) -> Result<f64> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = line.rsplit_once(')').context("a process has a name")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
    Ok(ticks.sum::<Result<f64, _>>()? / TICKS)
}

/// The folders of the groups that a process is in and that are ours.
fn groups(pid: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for line in fs::read_to_string(format!("/proc/{pid}/cgroup"))?.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        if path.contains("/stonefold/") {
            let controller = controllers.split(',').next().unwrap_or_default();
            found.push(Path::new("/sys/fs/cgroup").join(controller).join(path.trim_start_matches('/')));
        }
    }
    Ok(found)
}

fn nothing_is_left(place: &Place) -> Result<()> {
    let recoveries = place.json("recover ls")?;
    ensure!(recoveries.as_array().is_some_and(Vec::is_empty), "{recoveries}");
    let left = fs::read_dir(place.path("machines")).map_or(0, Iterator::count);
    ensure!(left == 0, "{left} machines have a folder still");
    Ok(())
}

#[test]
fn a_machine_takes_no_more_than_it_was_given() {
    in_a_place(|place| {
        let _ended = Machines(place);
        let server = place.start(&["--machines", &place.text("machines"), "--accelerator", "tcg"])?;
        place.ok("disk create busy --size 64M")?;
        let mut sector = SPIN.to_vec();
        sector.resize(510, 0);
        sector.extend([0x55, 0xaa]);
        let mut busy = place.connect("busy")?;
        busy.write(0, &sector)?;
        busy.flush()?;
        drop(busy);
        fs::write(place.path("args"), "-m 64M -nic none")?;
        place.ok(&format!("machine add busy --disk busy --qemu-args {}", place.text("args")))?;
        place.ok("source add busy --machine busy")?;
        let run = place.json("backup run busy")?;
        let point = run["name"].as_str().context("a run has a name")?;
        let recover = |limits: &str| format!("recover {point} --as again --to qemu {limits}");

        // With less than its guest has it could not live.
        let said = place.fails(&recover("--memory-max 32M"), 1)?;
        ensure!(said.contains("less than the 64M that the guest is given"), "{said}");
        nothing_is_left(place)?;
        let limited = place.run(&recover("--memory-max 700M --processors 0.3 --json"))?;
        if limited.status.code() != Some(0) {
            // Where it cannot be limited it is not started, and that is told.
            let said = limited.stdout + &limited.stderr;
            ensure!(said.contains("control group"), "{said}");
            nothing_is_left(place)?;
            ensure!(
                !is_there(Need::Groups, "a machine that takes no more than it was given", Some(said)),
                "it is"
            );
            return server.stop();
        }
        let made: Value = serde_json::from_str(&limited.stdout)?;
        let started = &made["recovery"]["started"];
        ensure!(started["limits"]["memory_bytes"] == 700 << 20, "{made}");
        let folder = started["folder"].as_str().context("a machine has a folder")?;
        let pid = fs::read_to_string(Path::new(folder).join("pid"))?;
        let (groups, before, begun) = (groups(pid.trim())?, worked(pid.trim())?, Stopwatch::start());
        ensure!(
            !groups.is_empty() && groups.iter().all(|group| group.is_dir()),
            "it is in no group: {groups:?}"
        );
        let bounds = ["memory.max", "memory.limit_in_bytes"];
        let bound = groups
            .iter()
            .find_map(|group| bounds.iter().find_map(|name| fs::read_to_string(group.join(name)).ok()));
        ensure!(bound.as_deref().map(str::trim) == Some("734003200"), "its memory is bounded by {bound:?}");
        sleep(WATCHED);
        let share = (worked(pid.trim())? - before) / begun.elapsed().as_secs_f64();
        ensure!((0.02..0.4).contains(&share), "it takes {share:.2} of a processor, and was given 0.3");
        let shown = place.ok("recover show again")?;
        ensure!(shown.contains("700M of memory, 0.3 processors"), "{shown}");

        place.ok("recover stop again --discard")?;
        ensure!(groups.iter().all(|group| !group.exists()), "a group outlives its machine: {groups:?}");
        nothing_is_left(place)?;
        server.stop()
    });
}
