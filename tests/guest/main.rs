//! A real Debian, from the distribution's packages: proven to boot by its own agent, brought back, and moved home while it runs; and a database in it
//! that comes back from any of its points.
//!
//! And a load that several guests make together, the package under a systemd that runs, and a guest that is read over SSH.
//!
//! Run by `./test`, which has the guest's image made (`setup/guest-image`), with its folder in STONEFOLD_GUEST; minutes where there is no KVM.

mod database;
mod reached;
mod still;
mod unit;
mod workers;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use stonefold_e2e::gateway::{Place, in_a_place};
use stonefold_e2e::machines::Machines;
use stonefold_e2e::monitor::Monitor;
use stonefold_e2e::tools::{attempt, run};
use stonefold_guest::{Guest, Launch, NbdDisk};

/// Longer than a Debian takes to boot under emulation on a busy machine; a minute shorter than what waits for the answer.
const BOOT_MAX: &str = "14m";

/// Of whoever waits at its console, or for that answer.
const LOGIN_MAX: Duration = Duration::from_secs(900);
const SHELL_MAX: Duration = Duration::from_secs(180);
const QUIT_MAX: Duration = Duration::from_secs(60);
const PROMPT: &str = "root@stonefold-guest:~#";

/// Where the guest's image lies.
fn guest() -> Result<PathBuf> {
    Ok(env::var("STONEFOLD_GUEST").context("STONEFOLD_GUEST names no folder of a guest")?.into())
}

/// A guest with these disks, the first of which it boots from; with a port of this machine that leads to one of its own.
fn boot(place: &Place, name: &str, disks: &[impl ToString], forward: Option<(u16, u16)>) -> Result<Guest> {
    let mut launch = Launch::new(name, place.path("logs"));
    for disk in disks {
        launch = launch.disk(NbdDisk::new(place.nbd(), disk.to_string()));
    }
    if let Some((here, inside)) = forward {
        launch = launch.forward(here, inside);
    }
    launch.start()
}

fn log_in(guest: &mut Guest) -> Result<()> {
    guest.wait_for("login:", LOGIN_MAX)?;
    guest.wait_for(PROMPT, SHELL_MAX).map(drop)
}

/// An image with a file system that has what a folder of the place has.
fn image_of(place: &Place, folder: &str) -> Result<String> {
    let (image, folder) = (place.text(&format!("{folder}.raw")), place.path(folder));
    let mut bytes = 16 << 20;
    for entry in fs::read_dir(&folder)? {
        bytes += entry?.metadata()?.len();
    }
    fs::File::create(&image)?.set_len(bytes.next_multiple_of(4096))?;
    run("mkfs.ext4", &["-q", "-F", "-d", &folder.to_string_lossy(), &image])?;
    Ok(image)
}

/// The guest's disk, of a guest that asks for an address and listens for SSH: nobody is at its console.
fn answers_at_ssh(place: &Place, guest: &Path) -> Result<String> {
    let (disk, network, commands) = (place.text("deb.raw"), place.text("network"), place.text("commands"));
    run("cp", &["--sparse=always", &guest.join("disk.raw").to_string_lossy(), &disk])?;
    let table: serde_json::Value = serde_json::from_str(&run("sfdisk", &["-J", &disk])?)?;
    let root = table["partitiontable"]["partitions"][1]["start"].as_u64().context("it has two partitions")?;
    fs::write(&network, "[Match]\nType=ether\n[Network]\nDHCP=yes\n")?;
    let mut text = format!("write {network} /etc/systemd/network/80-network.network\n");
    for unit in ["ssh", "systemd-networkd"] {
        text += &format!(
            "symlink /etc/systemd/system/multi-user.target.wants/{unit}.service /lib/systemd/system/{unit}.service\n"
        );
    }
    fs::write(&commands, text)?;
    run("debugfs", &["-w", "-f", &commands, &format!("{disk}?offset={}", root * 512)])?;
    Ok(disk)
}

/// The image of a machine that runs on it, by QEMU's own check.
fn is_sound(folder: &Path, image: &str) -> Result<()> {
    Monitor::connect(&folder.join("qmp.sock"))?.while_it_stands(|| {
        let (sound, said) = attempt("qemu-img", &["check", "-U", image])?;
        ensure!(sound == Some(0), "{said}");
        Ok(())
    })
}

#[test]
fn a_debian_is_proven_brought_back_and_moved_home() {
    in_a_place(|place| {
        let _ended = Machines(place);
        let guest = guest()?;
        // What runs under KVM here is not known; emulation runs everywhere.
        let serve = || place.start(&["--machines", &place.text("machines"), "--accelerator", "tcg"]);
        let server = serve()?;
        place.ok(&format!("disk import deb {}", answers_at_ssh(place, &guest)?))?;
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

        // Moved while it runs, and it goes on. It is up when its port answers, though it reaches nothing.
        let recover = format!(
            "recover {point} --as again --to qemu --network isolated --wait port:22 --timeout {BOOT_MAX}"
        );
        let made = place.json_within(&recover, LOGIN_MAX)?;
        ensure!(made["recovery"]["started"]["alive_us"].is_u64(), "{made}");
        ensure!(made["notes"].to_string().contains("port 22 answers"), "{made}");

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
        let moved =
            place.json_within(&format!("migrate again --to file:{home} --format qcow2"), LOGIN_MAX)?;
        ensure!(moved["state"] == "done", "{moved}");
        is_sound(Path::new(folder), &home)?;
        place.ok("recover stop again --discard")?;
        let disks = place.json("disk ls")?;
        ensure!(disks.as_array().is_some_and(|disks| disks.len() == 1), "{disks}");
        still::on_other_storage(place, folder)?;
        let running = fs::read_dir(place.path("machines"))?.count();
        ensure!(running == 1, "the machine went with its old disks");
        place.ok("source rm still")?;
        let server = database::comes_back_from_any_point(place, folder, server, serve)?;
        server.stop()
    });
}
