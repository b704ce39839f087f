//! Points that are booted: by a real QEMU, from the server's own door.
//!
//! *Promise*: a recovered machine runs on what its point held, outlives the server, and goes when it is told to; a proof says of a point whether it
//! boots, and leaves nothing but its record; what does not start leaves nothing. *Method*: a disk whose boot sector reads the next sector and says
//! it on the serial port: so what is said is what was read, through firmware, QEMU and NBD. It boots in a second, also under emulation.

mod home;
mod hung;

use std::fs;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use stonefold_e2e::binary::stonefold;
use stonefold_e2e::gateway::{Gateway, Place, in_a_place};
use stonefold_e2e::machines::{Machines, folder};
use stonefold_e2e::monitor::Monitor;
use stonefold_e2e::tools::until;
use stonefold_guest::time::Deadline;

const SECTOR: usize = 512;

/// A PC's boot sector: it reads the second sector to 0x7e00 and sends it to the first serial port, up to a zero.
fn boot_sector() -> Vec<u8> {
    let code: &[u8] = &[
        0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xc0, 0x8e, 0xd0, // xor ax,ax; mov ds,ax; mov es,ax; mov ss,ax
        0xbc, 0x00, 0x7c, 0xfc, // mov sp,0x7c00; cld
        0xb8, 0x01, 0x02, 0xbb, 0x00, 0x7e, // mov ax,0x0201 (read, one sector); mov bx,0x7e00
        0xb9, 0x02, 0x00, 0xb6, 0x00, 0xcd, 0x13, // mov cx,2 (the second); mov dh,0; int 0x13
        0xbe, 0x00, 0x7e, // mov si,0x7e00
        0xac, 0x84, 0xc0, 0x74, 0x06, // say: lodsb; test al,al; jz end
        0xba, 0xf8, 0x03, 0xee, 0xeb, 0xf5, // mov dx,0x3f8; out dx,al; jmp say
        0xf4, 0xeb, 0xfd, // end: hlt; jmp end
    ];
    let mut sector = code.to_vec();
    sector.resize(SECTOR - 2, 0);
    sector.extend([0x55, 0xaa]);
    sector
}

/// A bootable disk, and what it says.
fn write(place: &Place, says: &str) -> Result<()> {
    let mut text = format!("\r\nhere is {says}.\r\n").into_bytes();
    text.resize(SECTOR, 0);
    let mut web = place.connect("web")?;
    web.write(0, &boot_sector())?;
    web.write(SECTOR as u64, &text)?;
    web.flush()
}

/// A server with a machine `web`, and a point of each generation.
fn server(place: &Place, generations: &[&str]) -> Result<(Gateway, Vec<String>)> {
    let server = serve(place)?;
    place.ok("disk create web --size 64M")?;
    fs::write(place.path("args"), "-m 64M -vga std -nic user,mac=52:54:00:01:02:03")?;
    place.ok(&format!("machine add web --disk web --qemu-args {}", place.text("args")))?;
    place.ok("source add nightly --machine web")?;
    let mut points = Vec::new();
    for generation in generations {
        write(place, generation)?;
        let run = place.json("backup run nightly")?;
        points.push(run["name"].as_str().context("a run has a name")?.to_owned());
    }
    Ok((server, points))
}

fn serve(place: &Place) -> Result<Gateway> {
    // What runs under KVM here is not known; emulation runs everywhere.
    place.start(&["--machines", &place.text("machines"), "--accelerator", "tcg"])
}

/// Machines that still have a folder, which goes with them.
fn machines(place: &Place) -> usize {
    fs::read_dir(place.path("machines")).map_or(0, Iterator::count)
}

fn nothing_is_left(place: &Place) -> Result<()> {
    let recoveries = place.json("recover ls")?;
    ensure!(recoveries.as_array().is_some_and(Vec::is_empty), "{recoveries}");
    let disks = place.json("disk ls")?;
    ensure!(disks.as_array().is_some_and(|disks| disks.len() == 1), "{disks}");
    ensure!(machines(place) == 0, "{} machines have a folder still", machines(place));
    Ok(())
}

#[test]
fn a_point_is_proven_to_boot_and_one_that_does_not_is_told() {
    in_a_place(|place| {
        let _ended = Machines(place);
        let (server, points) = server(place, &["the first", "the second"])?;
        let (picture, first) = (place.text("screen.png"), &points[0]);
        let shown = place.ok(&format!(
            "verify {first} --wait console:here.is.the.first --timeout 60s --screenshot {picture}"
        ))?;
        for word in [
            "boots",
            "here is the first",
            "first block after",
            "sign of life after",
            "torn down after",
            "signed by",
        ] {
            ensure!(shown.contains(word), "no {word:?} in {shown}");
        }
        ensure!(fs::read(&picture)?.starts_with(b"\x89PNG\r\n"), "the screen is no PNG");
        nothing_is_left(place)?;
        let shown = place.ok(&format!("point show {first}"))?;
        ensure!(shown.contains("it boots"), "{shown}");

        // The other says something else: its console is told, and nothing is left of it either.
        let second = &points[1];
        let said = place.run(&format!("verify {second} --wait console:the.first --timeout 4s"))?;
        ensure!(said.status.code() == Some(1), "{}{}", said.stdout, said.stderr);
        ensure!(
            said.stderr.contains("does not boot") && said.stderr.contains("here is the second"),
            "{}",
            said.stderr
        );
        ensure!(place.ok(&format!("point show {second}"))?.contains("IT DID NOT BOOT"), "it is not told");
        nothing_is_left(place)?;

        // A proof goes with its point, and is there again after a restart until then.
        server.stop()?;
        let server = serve(place)?;
        let proof = place.json(&format!("verify {first} --wait console:here.is.the.first --timeout 60s"))?;
        ensure!(proof["boots"] == true && proof["record"].is_string(), "{proof}");
        place.ok(&format!("point rm {first}"))?;
        let gone = place.fails(&format!("point show {first}"), 1)?;
        ensure!(gone.contains("does not exist"), "{gone}");
        server.stop()
    });
}

#[test]
fn a_recovered_machine_outlives_the_server_and_goes_when_it_is_told_to() {
    in_a_place(|place| {
        let _ended = Machines(place);
        let (server, points) = server(place, &["the first", "the second"])?;
        let line = format!(
            "recover {} --as again --to qemu --network isolated --wait console:the.first --timeout 60s",
            points[0]
        );
        let made = place.json(&line)?;
        let started = &made["recovery"]["started"];
        ensure!(
            started["running"] == true && started["first_block_us"].is_u64() && started["alive_us"].is_u64(),
            "{made}"
        );
        // Another of the other point beside it.
        let other = place.json(&format!(
            "recover {} --as other --to qemu --wait console:the.second --timeout 60s",
            points[1]
        ))?;
        let notes = other["notes"].to_string();
        ensure!(notes.contains("that its last boot read are fetched ahead"), "{other}");
        ensure!(machines(place) == 2, "{}", machines(place));
        let refused = place.fails("disk rm again.vda", 1)?;
        ensure!(refused.contains("again.vda"), "{refused}");
        let refused = place.fails(&format!("recover {} --as again --to qemu", points[0]), 1)?;
        ensure!(refused.contains("exists already"), "{refused}");

        server.kill();
        let server = serve(place)?;
        let listed = place.ok("recover ls")?;
        ensure!(listed.contains("again") && !listed.contains("has ended"), "{listed}");
        // It asks for its disk when it needs it: at its next boot, say.
        reset(place, "again")?;
        until("it boots again", || Ok(console(place, "again")?.matches("here is the first").count() == 2))?;
        ensure!(place.json("disk show again.vda")?["clients"] == 1, "the machine does not have its disk");

        // This guest has no power button: it is asked in vain by whoever does not pull the plug.
        place.ok("recover stop again --power-off")?;
        let disks = place.json("disk ls")?;
        ensure!(disks.as_array().is_some_and(|disks| disks.len() == 3), "{disks}");
        place.ok("disk rm again.vda")?;
        place.ok("recover stop other --discard")?;
        nothing_is_left(place)?;
        server.stop()
    });
}

#[test]
fn what_does_not_start_leaves_nothing() {
    in_a_place(|place| {
        let _ended = Machines(place);
        let (server, points) = server(place, &["the first"])?;
        let said = place.fails(&format!("recover {} --as again --to qemu --network lab", points[0]), 1)?;
        ensure!(said.contains("'lab' is a network of libvirt's") && said.contains("isolated"), "{said}");
        nothing_is_left(place)?;
        fs::write(place.path("bad"), "-m 64M -device no-such-device")?;
        place.ok("source rm nightly")?;
        place.ok("machine rm web")?;
        place.ok(&format!("machine add web --disk web --qemu-args {}", place.text("bad")))?;
        place.ok("source add weekly --machine web")?;
        let bad = place.json("backup run weekly")?["name"].as_str().context("a run has a name")?.to_owned();
        let said = place.fails(&format!("recover {bad} --as again --to qemu"), 1)?;
        ensure!(said.contains("no-such-device") && said.contains("again"), "{said}");
        nothing_is_left(place)?;
        // What could not be tried proves nothing, and is an error.
        let said = place.fails(&format!("verify {bad}"), 1)?;
        ensure!(said.contains("no-such-device"), "{said}");
        ensure!(place.ok(&format!("point show {bad}"))?.contains("none: "), "there is a proof");
        nothing_is_left(place)?;
        let said =
            place.fails(&format!("recover {} --as again --to libvirt:test:///default", points[0]), 1)?;
        ensure!(said.contains("libvirt needs a domain's description"), "{said}");
        nothing_is_left(place)?;
        let said = place.fails(&format!("verify {} --wait console:(", points[0]), 2)?;
        ensure!(said.contains("no regular expression"), "{said}");
        server.stop()
    });
}

#[test]
fn a_proof_that_is_cut_off_goes_with_its_machine() {
    in_a_place(|place| {
        let _ended = Machines(place);
        let (server, points) = server(place, &["the first"])?;
        let mut waiting = Command::new(stonefold()?)
            .args(["verify", &points[0], "--wait", "console:never", "--timeout", "10m"])
            .env("STONEFOLD_API", place.api())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        until("a machine is booted", || Ok(machines(place) == 1))?;
        until("it reads", || {
            let disks = place.json("disk ls")?;
            let reads =
                |disk: &serde_json::Value| disk["io"]["reads"].as_u64() > Some(0) && disk["name"] != "web";
            Ok(disks.as_array().is_some_and(|disks| disks.iter().any(reads)))
        })?;
        server.kill();
        waiting.wait()?;
        ensure!(machines(place) == 1, "the machine went with the server");
        let server = serve(place)?;
        nothing_is_left(place)?;
        ensure!(place.ok(&format!("point show {}", points[0]))?.contains("none: "), "there is a proof");
        server.stop()
    });
}

fn console(place: &Place, name: &str) -> Result<String> {
    Ok(fs::read_to_string(folder(place, name)?.join("console.log"))?)
}

/// Presses a machine's reset button.
fn reset(place: &Place, name: &str) -> Result<()> {
    Monitor::connect(&folder(place, name)?.join("qmp.sock"))?.ask("system_reset", &json!({}))?;
    Ok(())
}

#[test]
fn a_group_comes_back_in_order_or_not_at_all() {
    in_a_place(|place| {
        let _ended = Machines(place);
        let (server, points) = server(place, &["the first"])?;
        let plan = |second: &str| {
            let text = format!(
                "suffix = '-dr'\n[all]\nto = 'qemu'\nnetwork = 'isolated'\ntimeout = '60s'\n\
                [[machine]]\nsource = 'nightly'\nas = 'web'\npriority = 2\nwait = 'console:the.first'\n\
                [[machine]]\npoint = '{}'\nas = 'db'\npriority = 1\nqos = '{second}'\nwait = 'console:the.first'\n",
                points[0]
            );
            fs::write(place.path("site.toml"), text)
        };
        plan("no-such-class")?;
        let line = format!("recover --plan {}", place.text("site.toml"));
        let said = place.fails(&line, 1)?;
        ensure!(said.contains("no-such-class"), "{said}");
        nothing_is_left(place)?;
        plan("test")?;
        let looked = place.ok(&format!("{line} --dry-run"))?;
        ensure!(looked.find("db-dr") < looked.find("web-dr") && looked.contains("can be made"), "{looked}");
        nothing_is_left(place)?;
        let made = place.json(&line)?;
        ensure!(
            made[0]["recovery"]["name"] == "db-dr" && made[1]["recovery"]["started"]["running"] == true,
            "{made}"
        );
        place.ok("recover stop db-dr --discard")?;
        place.ok("recover stop web-dr --discard")?;
        nothing_is_left(place)?;

        // Two of one name, and limits that no guest could live with, are found out before anything is made.
        let written = fs::read_to_string(place.path("site.toml"))?;
        fs::write(place.path("site.toml"), written.replace("as = 'db'", "as = 'web'"))?;
        let said = place.fails(&line, 2)?;
        ensure!(said.contains("two machines are to be 'web-dr'"), "{said}");
        fs::write(place.path("site.toml"), written.replace("as = 'db'", "as = 'db'\nmemory-max = '64K'"))?;
        let said = place.fails(&format!("{line} --dry-run"), 1)?;
        ensure!(said.contains("64K of memory is less"), "{said}");
        nothing_is_left(place)?;
        // One that gives no sign of life is there; who may need it is not begun.
        let silent = written.replace("60s", "3s").replacen("wait = 'console:the.first'\n[[", "[[", 1);
        let silent = silent.replace("console:the.first", "console:never");
        fs::write(place.path("site.toml"), silent)?;
        let ran = place.run(&format!("{line} --json"))?;
        let told: serde_json::Value = serde_json::from_str(&ran.stdout)?;
        ensure!(ran.status.code() == Some(1) && told[0]["recovery"]["name"] == "db-dr", "{told}");
        ensure!(told[0]["error"]["what"].to_string().contains("no sign of life"), "{told}");
        ensure!(ran.stderr.contains("'db-dr'") && ran.stderr.contains("no sign of life"), "{}", ran.stderr);
        place.ok("recover stop db-dr --discard")?;
        nothing_is_left(place)?;
        server.stop()
    });
}

#[test]
fn a_policy_proves_what_it_makes() {
    in_a_place(|place| {
        let _ended = Machines(place);
        let (server, _) = server(place, &["the first"])?;
        place.ok("policy create often --every 1m --verify every --wait console:the.first --timeout 60s")?;
        place.ok("policy apply often nightly")?;
        let newest = || -> Result<Option<String>> {
            let points = place.json("point ls nightly")?;
            let made = points
                .as_array()
                .and_then(|points| points.iter().rev().find(|point| point["policy"] == "often").cloned());
            Ok(made.and_then(|point| point["name"].as_str().map(str::to_owned)))
        };
        // The next minute may be a minute away, and the look for what is to be proven is not made all the time.
        let patience = Deadline::after(Duration::from_secs(180));
        loop {
            if let Some(point) = newest()? {
                if place.ok(&format!("point show {point}"))?.contains("it boots") {
                    break;
                }
            }
            ensure!(!patience.passed(), "nothing is proven: {}", place.last_words());
            sleep(Duration::from_millis(500));
        }
        server.stop()
    });
}
