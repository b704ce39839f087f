//! A real Debian, from the distribution's packages: proven to boot by its own agent, brought back, and moved home while it runs.
//!
//! And a load that several guests make together.
//!
//! Run by `./test`, which has the guest's image made (`setup/guest-image`), with its folder in STONEFOLD_GUEST; minutes where there is no KVM.

mod workers;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use stonefold_e2e::gateway::in_a_place;
use stonefold_e2e::machines::Machines;
use stonefold_e2e::tools::attempt;

/// Longer than a Debian takes to boot under emulation on a busy machine.
const BOOT_MAX: &str = "15m";

/// Where the guest's image lies.
fn guest() -> Result<PathBuf> {
    Ok(env::var("STONEFOLD_GUEST").context("STONEFOLD_GUEST names no folder of a guest")?.into())
}

#[test]
fn a_debian_is_proven_brought_back_and_moved_home() {
    in_a_place(|place| {
        let _ended = Machines(place);
        let guest = guest()?;
        // What runs under KVM here is not known; emulation runs everywhere.
        let server = place.start(&["--machines", &place.text("machines"), "--accelerator", "tcg"])?;
        place.ok(&format!("disk import deb {}", guest.join("disk.raw").display()))?;
        fs::write(place.path("args"), "-m 512M -smp 2 -nic user,mac=52:54:00:01:02:03")?;
        place.ok(&format!("machine add deb --disk deb --qemu-args {}", place.text("args")))?;
        place.ok("source add nightly --machine deb")?;
        let run = place.json("backup run nightly")?;
        let point = run["name"].as_str().context("a run has a name")?;

        // By a command that its agent runs: so the agent is there, and Debian is up.
        let mut verify = Command::new(stonefold_e2e::binary::stonefold()?);
        verify.args([
            "verify",
            point,
            "--timeout",
            BOOT_MAX,
            "--wait",
            "cmd:. /etc/os-release && echo this is $ID",
        ]);
        let proven = verify.env("STONEFOLD_API", place.api()).stderr(Stdio::inherit()).output()?;
        let said = String::from_utf8_lossy(&proven.stdout);
        println!("{said}");
        let is_up = said.contains("this is debian") || said.contains("this is ubuntu");
        ensure!(proven.status.success() && is_up, "{said}");

        // Moved while it runs, and it goes on.
        let made = place.json(&format!(
            "recover {point} --as again --to qemu --network isolated --wait agent --timeout {BOOT_MAX}"
        ))?;
        ensure!(made["recovery"]["started"]["alive_us"].is_u64(), "{made}");

        // It stands still for a point, which holds what it was just told to write, and goes on.
        let folder = made["recovery"]["started"]["folder"].as_str().context("a machine has a folder")?;
        let disks = made["recovery"]["disks"].as_array().context("a recovery has disks")?;
        let disk = disks.first().and_then(|disk| disk["disk"].as_str()).context("a disk has a name")?;
        place.ok(&format!("machine add live --disk {disk}"))?;
        place.ok(&format!("machine set live --agent unix:{folder}/agent.sock"))?;
        place.ok("source add live --machine live")?;
        let run = place.json("backup run live --consistent app")?;
        ensure!(run["state"] == "done" && run["note"].is_null(), "{run}");
        let still = run["name"].as_str().context("a run has a name")?;
        let shown = place.json(&format!("point show {still}"))?;
        ensure!(shown["consistency"] == "app", "{shown}");
        place.ok(&format!("point rm {still}"))?;
        place.ok("source rm live")?;
        place.ok("machine rm live")?;

        let home = place.text("home.qcow2");
        let moved = place.json(&format!("migrate again --to file:{home} --format qcow2"))?;
        ensure!(moved["state"] == "done", "{moved}");
        let (sound, said) = attempt("qemu-img", &["check", "-U", &home])?;
        ensure!(sound == Some(0), "{said}");
        place.ok("recover stop again --discard")?;
        let disks = place.json("disk ls")?;
        ensure!(disks.as_array().is_some_and(|disks| disks.len() == 1), "{disks}");
        let running = fs::read_dir(place.path("machines"))?.count();
        ensure!(running == 1, "the machine went with its old disks");
        server.stop()
    });
}
