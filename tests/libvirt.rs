//! Points brought back as domains of a real libvirt, which boots them by a real QEMU from the server's door.
//!
//! *Promise*: a domain has a name, a UUID and a MAC address of its own, runs beside its original, and goes with its recovery; what libvirt refuses
//! leaves neither a domain nor a disk; on its way home it is on a whole disk at every moment, and what it writes meanwhile is on the new one. *Method*: a
//! libvirt of the test's own ([`stonefold_e2e::libvirt`]); emulation; what the guest's devices write is written by QEMU's own `qemu-io`.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stonefold_e2e::gateway::{Gateway, Place, in_a_place};
use stonefold_e2e::libvirt::{libvirt, virsh};
use stonefold_e2e::tools::{run, until};
use stonefold_needs::{Need, there_is};

const BLOCK: u64 = 4096;
const MIB: u64 = 1 << 20;

const XML: &str = "<domain type='qemu'><name>web</name><uuid>11111111-1111-4111-8111-111111111111</uuid><memory unit='MiB'>64</memory>\
    <vcpu>1</vcpu><os><type arch='x86_64' machine='pc'>hvm</type></os><devices>\
    <disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='/srv/web.qcow2'/><target dev='vda' bus='virtio'/></disk>\
    <serial type='pty'/></devices></domain>";

#[test]
fn a_point_comes_back_as_a_domain_and_goes_again() {
    if !there_is(Need::Loop, "points as domains of a libvirt in a mount namespace of its own") {
        return;
    }
    in_a_place(|place| {
        let (libvirt, uri) = libvirt(place)?;
        let server = place.start(&[])?;
        place.ok("disk create web --size 64M")?;
        fs::write(place.path("web.xml"), XML)?;
        place.ok(&format!("machine add web --disk web --xml {}", place.text("web.xml")))?;
        place.ok("source add nightly --machine web")?;
        let run = place.json("backup run nightly")?;
        let point = run["name"].as_str().context("a run has a name")?;

        let made = place.json(&format!("recover {point} --as again --to libvirt:{uri}"))?;
        let started = &made["recovery"]["started"];
        ensure!(started["running"] == true && started["first_block_us"].is_u64(), "{made}");
        let listed = virsh(&uri, &["list", "--name"])?;
        ensure!(listed.trim() == "again", "{listed}");
        let xml = virsh(&uri, &["dumpxml", "again"])?;
        let own = started["domain"].as_str().context("a domain is named")?;
        ensure!(xml.contains(own) && !xml.contains("11111111-1111") && xml.contains("again.vda"), "{xml}");

        // Another of the same point beside it; and a name that libvirt has already.
        place.ok(&format!("recover {point} --as other --to libvirt:{uri} --network isolated"))?;
        virsh(&uri, &["list", "--name"])?;
        place.ok("recover stop other --discard")?;
        place.ok("recover stop again --power-off")?;
        ensure!(virsh(&uri, &["list", "--all", "--name"])?.trim().is_empty(), "a domain is left");
        place.ok("disk rm again.vda")?;

        // What cannot be is refused before anything is made: a sign that libvirt does not tell, a network and limits that are not to be had.
        let recover = |options: &str| format!("recover {point} --as other --to libvirt:{uri} {options}");
        for (options, status, says) in [
            ("--wait port:22", 2, "can be waited for"),
            ("--network nowhere", 1, "nowhere"),
            ("--network nowhere --dry-run", 1, "nowhere"),
            ("--memory-max 32M --dry-run", 1, "less than the 64M"),
            // This libvirt was told to do without the kernel's groups.
            ("--processors 0.5", 1, "refuses 'start'"),
        ] {
            let said = place.fails(&recover(options), status)?;
            ensure!(said.contains(says), "{options}: {said}");
            ensure!(
                virsh(&uri, &["list", "--all", "--name"])?.trim().is_empty(),
                "{options}: a domain is left"
            );
            let disks = place.json("disk ls")?;
            ensure!(disks.as_array().is_some_and(|disks| disks.len() == 1), "{options}: {disks}");
        }
        // One that has no agent runs, and has given no sign.
        let silent =
            place.run(&format!("{} --json", recover("--network isolated --wait agent --timeout 2s")))?;
        ensure!(
            silent.status.code() == Some(1) && silent.stderr.contains("no sign of life"),
            "{}",
            silent.stderr
        );
        let silent: serde_json::Value = serde_json::from_str(&silent.stdout)?;
        ensure!(silent["notes"].to_string().contains("no sign of life (agent): not within 2 s"), "{silent}");
        ensure!(silent["recovery"]["started"].get("alive_us").is_none(), "{silent}");
        ensure!(silent["error"]["what"].to_string().contains("no sign of life"), "{silent}");
        place.ok("recover stop other --discard")?;

        // What libvirt refuses leaves nothing.
        fs::write(place.path("bad.xml"), XML.replace("machine='pc'", "machine='no-such'"))?;
        place.ok("source rm nightly")?;
        place.ok("machine rm web")?;
        place.ok(&format!("machine add web --disk web --xml {}", place.text("bad.xml")))?;
        place.ok("source add weekly --machine web")?;
        let run = place.json("backup run weekly")?;
        let bad = run["name"].as_str().context("a run has a name")?;
        let said = place.fails(&format!("recover {bad} --as again --to libvirt:{uri}"), 1)?;
        ensure!(said.contains("libvirt") && said.contains("refuses 'define'"), "{said}");
        ensure!(virsh(&uri, &["list", "--all", "--name"])?.trim().is_empty(), "a domain is left");
        let disks = place.json("disk ls")?;
        ensure!(disks.as_array().is_some_and(|disks| disks.len() == 1), "{disks}");
        libvirt.kill();
        let said = place.fails(&format!("recover {point} --as again --to libvirt:{uri}"), 1)?;
        ensure!(said.contains("refuses") && said.contains("libvirtd"), "{said}");
        server.stop()
    });
}

/// A `virsh` in front of the real one: what it says of a start never arrives.
const DEAF: &str = "#!/bin/sh
PATH=${PATH#*:} virsh \"$@\" || exit
for word; do
    [ \"$word\" != start ] || { touch \"$0.started\"; echo 'error: no answer' >&2; exit 1; }
done
";

/// Goal: a domain that libvirt started, and whose start nobody heard of, is not left running on disks that are gone.
#[test]
fn a_domain_whose_start_was_not_heard_of_goes() {
    if !there_is(Need::Loop, "points as domains of a libvirt in a mount namespace of its own") {
        return;
    }
    in_a_place(|place| {
        let (_libvirt, uri) = libvirt(place)?;
        let programs = place.path("bin");
        fs::create_dir(&programs)?;
        let server = place.start(&[])?;
        let point = point_of_web(place)?;
        let virsh_of_ours = programs.join("virsh");
        fs::write(&virsh_of_ours, DEAF)?;
        fs::set_permissions(&virsh_of_ours, fs::Permissions::from_mode(0o755))?;
        let said = place.fails(&format!("recover {point} --as again --to libvirt:{uri}"), 1)?;
        ensure!(said.contains("no answer"), "{said}");
        ensure!(programs.join("virsh.started").exists(), "it was not started");
        ensure!(virsh(&uri, &["list", "--all", "--name"])?.trim().is_empty(), "a domain is left");
        let disks = place.json("disk ls")?;
        ensure!(disks.as_array().is_some_and(|disks| disks.len() == 1), "{disks}");
        fs::remove_file(&virsh_of_ours)?;
        place.ok(&format!("recover {point} --as again --to libvirt:{uri}"))?;
        ensure!(virsh(&uri, &["list", "--name"])?.trim() == "again", "it does not run");
        place.ok("recover stop again --discard")?;
        server.stop()
    });
}

/// A machine `web` with 32 MiB of noise in the midst of its disk, and a point of it.
fn point_of_web(place: &Place) -> Result<String> {
    place.ok("disk create web --size 64M")?;
    let noise = stonefold_dice::noise(7, 8 << 20);
    let mut web = place.connect("web")?;
    for part in 1..5 {
        web.write(part * 8 * MIB, &noise)?;
    }
    web.flush()?;
    drop(web);
    fs::write(place.path("web.xml"), XML)?;
    place.ok(&format!("machine add web --disk web --xml {}", place.text("web.xml")))?;
    place.ok("source add nightly --machine web")?;
    let run = place.json("backup run nightly")?;
    Ok(run["name"].as_str().context("a run has a name")?.to_owned())
}

/// Has the drive of a domain's guest do something, as its device would.
fn io(uri: &str, domain: &str, what: &str) -> Result<()> {
    let line = format!("qemu-io -d /machine/peripheral/virtio-disk0/virtio-backend \"{what}\"");
    virsh(uri, &["qemu-monitor-command", domain, "--hmp", &line]).map(drop)
}

fn migration(place: &Place, name: &str) -> Result<Value> {
    let all = place.json("migrate ls")?;
    let found = all.as_array().and_then(|all| all.iter().find(|one| one["name"] == name).cloned());
    found.with_context(|| format!("no migration of '{name}' in {all}"))
}

/// Waits until a migration has ended, and fails where the machine was not moved to that file.
fn is_home(place: &Place, uri: &str, (name, file): (&str, &str)) -> Result<Value> {
    until("it is done", || {
        Ok(!["copying", "paused"]
            .iter()
            .any(|state| migration(place, name).is_ok_and(|one| one["state"] == *state)))
    })?;
    let done = migration(place, name)?;
    ensure!(done["state"] == "done", "{done}: {}", place.last_words());
    // Now, and when it is started the next time.
    for words in [&["dumpxml", name][..], &["dumpxml", name, "--inactive"]] {
        let xml = virsh(uri, words)?;
        ensure!(xml.contains(file) && !xml.contains("protocol='nbd'"), "{words:?}: {xml}");
    }
    until("the old disk is let go", || Ok(place.json(&format!("disk show {name}.vda"))?["clients"] == 0))?;
    Ok(done)
}

/// Goal: what a guest writes while it is moved is on the new disk, and only there after; what is cancelled or fails leaves the machine and no file.
#[test]
fn a_domain_is_moved_home_while_it_writes() {
    if !there_is(Need::Loop, "domains of a libvirt in a mount namespace of its own, moved") {
        return;
    }
    in_a_place(|place| {
        let (_libvirt, uri) = libvirt(place)?;
        let server = place.start(&[])?;
        let point = point_of_web(place)?;
        place.ok(&format!("recover {point} --as again --to libvirt:{uri} --network isolated"))?;
        let home = place.text("home.raw");

        place.ok(&format!("migrate again --to file:{home} --no-wait"))?;
        let refused = place.fails("recover stop again --discard", 1)?;
        ensure!(refused.contains("is being moved"), "{refused}");
        place.ok("migrate pause again")?;
        until("libvirt copies", || Ok(virsh(&uri, &["dumpxml", "again"])?.contains("<mirror")))?;
        ensure!(place.ok("migrate cancel again")?.contains("cancelled"), "it is not cancelled");
        ensure!(!place.path("home.raw").exists(), "the file is still there");
        let nowhere = place.text("none");
        let said = place.fails(&format!("migrate again --to nbd+unix:///x?socket={nowhere}"), 1)?;
        ensure!(said.contains("connecting to the NBD server"), "{said}");
        let xml = virsh(&uri, &["dumpxml", "again"])?;
        ensure!(xml.contains("again.vda") && !xml.contains("<mirror"), "{xml}");
        ensure!(place.json("disk show again.vda")?["clients"] == 1, "the machine has lost its disk");

        // What it is to hold at the end.
        run("qemu-img", &["convert", "-O", "raw", &place.uri("again.vda"), &place.text("expected.raw")])?;
        let expected = File::options().write(true).open(place.path("expected.raw"))?;
        let stop = AtomicBool::new(false);
        scope(|scope| {
            let writer = scope.spawn(|| -> Result<u64> {
                let mut written = 0;
                while !stop.load(Ordering::SeqCst) {
                    // All over the disk: where it has been copied, and where it has not.
                    let at = (written * 37) % (64 * MIB / BLOCK) * BLOCK;
                    let pattern = (written % 250) as u8 + 1;
                    io(&uri, "again", &format!("write -P {pattern} {at} {BLOCK}"))?;
                    expected.write_all_at(&[pattern; BLOCK as usize], at)?;
                    written += 1;
                }
                Ok(written)
            });
            let moved = place
                .ok(&format!("migrate again --to file:{home} --no-wait"))
                .and_then(|_| is_home(place, &uri, ("again", &home)));
            sleep(Duration::from_millis(500));
            stop.store(true, Ordering::SeqCst);
            let written = writer.join().expect("the writer does not panic")?;
            ensure!(written > 10, "the guest wrote {written} blocks");
            moved
        })?;
        io(&uri, "again", "flush")?;
        let ends = [place.text("expected.raw"), home.clone()];
        run("qemu-img", &["compare", "-q", "-U", "-f", "raw", "-F", "raw", &ends[0], &ends[1]])?;

        // What is left of the recovery goes, and the domain runs on, and starts again.
        place.ok("recover stop again --discard")?;
        let disks = place.json("disk ls")?;
        ensure!(disks.as_array().is_some_and(|disks| disks.len() == 1), "{disks}");
        ensure!(virsh(&uri, &["domstate", "again"])?.trim() == "running", "it went with its old disk");
        virsh(&uri, &["destroy", "again"])?;
        virsh(&uri, &["start", "again"])?;
        server.stop()
    });
}

/// Goal: a server that is killed, or leaves, ends no move; both ends are compared while the guest stands still, and it goes on after.
#[test]
fn a_move_of_a_domain_outlives_the_server() {
    if !there_is(Need::Loop, "domains of a libvirt in a mount namespace of its own, moved") {
        return;
    }
    in_a_place(|place| {
        let (_libvirt, uri) = libvirt(place)?;
        let mut server = place.start(&[])?;
        let point = point_of_web(place)?;
        place.ok(&format!("recover {point} --as again --to libvirt:{uri} --network isolated"))?;
        let home = place.text("home.qcow2");
        place.ok(&format!("migrate again --to file:{home} --format qcow2 --verify --no-wait"))?;
        place.ok("migrate pause again")?;
        until("libvirt copies", || Ok(virsh(&uri, &["dumpxml", "again"])?.contains("<mirror")))?;
        // The pause is in force with the next look at the job: a copy that reads when its server is killed ends with an error, as disks do not wait here.
        sleep(Duration::from_secs(3));
        for killed in [true, false] {
            if killed {
                server.kill();
            } else {
                server.stop()?;
            }
            ensure!(place.path("home.qcow2").exists(), "the copy went with the server");
            server = back(place, &uri)?;
            sleep(Duration::from_secs(5));
            ensure!(migration(place, "again")?["state"] == "paused", "{}", migration(place, "again")?);
            ensure!(virsh(&uri, &["dumpxml", "again"])?.contains("<mirror"), "{}", place.last_words());
        }
        place.ok("migrate resume again")?;
        let done = is_home(place, &uri, ("again", &home))?;
        ensure!(done["note"] == "both ends were alike while the guest stood still", "{done}");
        ensure!(virsh(&uri, &["domstate", "again"])?.trim() == "running", "the guest stands still");
        let old = place.uri("again.vda");
        run("qemu-img", &["compare", "-q", "-U", "-f", "raw", "-F", "qcow2", &old, &home])?;
        place.ok("recover stop again --power-off")?;
        ensure!(virsh(&uri, &["list", "--all", "--name"])?.trim().is_empty(), "a domain is left");
        server.stop()
    });
}

/// A server again. A libvirt older than 9.1 has its machines not wait for it: they connect anew when they are refused something, as this
/// guest, which does nothing, is here.
fn back(place: &Place, uri: &str) -> Result<Gateway> {
    let server = place.start(&[])?;
    for _ in 0..5 {
        io(uri, "again", &format!("read 0 {BLOCK}"))?;
        sleep(Duration::from_millis(100));
    }
    Ok(server)
}
