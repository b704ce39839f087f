//! Domains of a real libvirt on foreign storage that are backed up, while they run and while they do not.
//!
//! *Promises*: a point is what all disks held at one instant; of a qcow2 image the next one reads what has changed, and says why where it cannot; a
//! guest goes on and loses nothing when the server dies in the midst of a backup, or when there is no more room for what it overwrites; nothing stays
//! in the domain but one checkpoint. *Method*: as with QEMU alone (`fleece`), what the guest's devices write is written by QEMU's own `qemu-io`.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stonefold_e2e::gateway::{Gateway, Place, in_a_place};
use stonefold_e2e::libvirt::{libvirt, virsh};
use stonefold_e2e::mounts::{Loop, Mount};
use stonefold_e2e::runs::until_made_again;
use stonefold_e2e::tools::{attempt, run};
use stonefold_guest::time::Deadline;
use stonefold_needs::{Need, there_is};

const PATIENCE: Duration = Duration::from_secs(60);
const BLOCK: u64 = 4096;
const MIB: u64 = 1 << 20;
const DISK_BYTES: u64 = 64 * MIB;
/// What a bitmap of libvirt's counts in: QEMU's choice for a qcow2 image.
const GRAIN: u64 = 64 << 10;
const WHAT: &str = "backups of a libvirt's domains, in a mount namespace of its own";

/// A domain of a libvirt: a qcow2 image and a raw one.
struct Shop<'a> {
    place: &'a Place,
    uri: &'a str,
}

impl<'a> Shop<'a> {
    fn define(place: &'a Place, uri: &'a str) -> Result<Self> {
        let disk = |format: &str, file: &str, target: &str| -> Result<String> {
            let file = place.text(file);
            run("qemu-img", &["create", "-q", "-f", format, &file, &DISK_BYTES.to_string()])?;
            Ok(format!(
                "<disk type='file' device='disk'><driver name='qemu' type='{format}' cache='none' discard='unmap'/>\
                <source file='{file}'/><target dev='{target}' bus='virtio'/></disk>"
            ))
        };
        let disks = disk("qcow2", "a.qcow2", "vda")? + &disk("raw", "b.raw", "vdb")?;
        let xml = format!(
            "<domain type='qemu'><name>shop</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>\
            <os><type arch='x86_64' machine='pc'>hvm</type></os><features><acpi/></features><devices>{disks}</devices></domain>"
        );
        fs::write(place.path("shop.xml"), xml)?;
        virsh(uri, &["define", &place.text("shop.xml")])?;
        let shop = Shop { place, uri };
        shop.ask(&["start"])?;
        Ok(shop)
    }

    /// Runs a command of virsh's on it.
    fn ask(&self, words: &[&str]) -> Result<String> {
        virsh(self.uri, &[&words[..1], &["shop"], &words[1..]].concat())
    }

    /// Has the guest's drive do something, as its device would. Whether that failed is seen in what the image holds.
    fn io(&self, disk: u32, what: &str) -> Result<()> {
        let line = format!("qemu-io -d /machine/peripheral/virtio-disk{disk}/virtio-backend \"{what}\"");
        self.ask(&["qemu-monitor-command", "--hmp", &line]).map(drop)
    }

    fn write(&self, disk: u32, at: u64, bytes: u64, pattern: u8) -> Result<()> {
        self.io(disk, &format!("write -P {pattern} {at} {bytes}"))
    }

    /// Whether it is in a backup.
    fn job(&self) -> Result<bool> {
        let (status, said) = attempt("virsh", &["-q", "-c", self.uri, "backup-dumpxml", "shop"])?;
        ensure!(status == Some(0) || said.contains("no domain backup job"), "{said}");
        Ok(status == Some(0))
    }

    fn checkpoints(&self) -> Result<Vec<String>> {
        Ok(self.ask(&["checkpoint-list", "--name"])?.split_whitespace().map(str::to_owned).collect())
    }

    /// Fails where a point's disks are not what the images hold.
    fn is_as_its_images(&self, run_of: &Value) -> Result<()> {
        if self.ask(&["domstate"])?.trim() == "running" {
            // Where a qcow2 image has its blocks may be known to its QEMU alone until then.
            [0, 1].into_iter().try_for_each(|disk| self.io(disk, "flush"))?;
        }
        for (disk, image, format) in [("shop.vda", "a.qcow2", "qcow2"), ("shop.vdb", "b.raw", "raw")] {
            let export = self.place.uri(&format!("{disk}@{}", stamp(run_of)?));
            let image = self.place.text(image);
            run("qemu-img", &["compare", "-q", "-U", "-f", format, "-F", "raw", &image, &export])?;
        }
        Ok(())
    }

    /// Fails where anything of a backup is left but one checkpoint.
    fn nothing_is_left(&self) -> Result<()> {
        ensure!(!self.job()?, "it is in a job");
        let checkpoints = self.checkpoints()?;
        ensure!(checkpoints.len() == 1 && checkpoints[0].starts_with("stonefold-"), "{checkpoints:?}");
        self.no_files_are_left()
    }

    fn no_files_are_left(&self) -> Result<()> {
        for folder in ["", "machines", "small"] {
            let Ok(entries) = fs::read_dir(self.place.path(folder)) else { continue };
            let names = entries.map(|entry| Ok(entry?.file_name()));
            let names: Vec<_> = names.collect::<Result<_>>()?;
            let left = |name: &&std::ffi::OsString| {
                let name = name.to_string_lossy();
                name.ends_with(".scratch") || name.starts_with("backup-")
            };
            ensure!(!names.iter().any(|name| left(&name)), "in '{folder}': {names:?}");
        }
        Ok(())
    }

    /// A backup that takes its time, begun: what it reads is written to its disks at 4 MiB a second.
    fn begin_slowly(&self) -> Result<Child> {
        self.place.ok("qos set backup-target --max-bytes 4M")?;
        let mut backup = Command::new(stonefold_e2e::binary::stonefold()?);
        backup.args(["--api", &self.place.api(), "backup", "run", "shop"]);
        let backup = backup.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let patience = Deadline::after(PATIENCE);
        while !self.job()? {
            ensure!(!patience.passed(), "no backup came to it");
            sleep(Duration::from_millis(20));
        }
        Ok(backup)
    }
}

fn server(place: &Place) -> Result<Gateway> {
    place.start(&["--machines", &place.text("machines"), "--accelerator", "tcg"])
}

fn stamp(run: &Value) -> Result<&str> {
    let name = run["name"].as_str().with_context(|| format!("a run has a name: {run}"))?;
    name.split_once('@').map(|(_, stamp)| stamp).context("a point has a stamp")
}

fn notes(run: &Value) -> String {
    run["copied"]["notes"].to_string()
}

/// Blocks of an export that hold anything, from the first one on.
fn prefix(place: &Place, export: &str) -> Result<u64> {
    let mut connection = place.connect(export)?;
    for at in 0..DISK_BYTES / BLOCK {
        if connection.read(at * BLOCK, BLOCK as usize)?.iter().all(|byte| *byte == 0) {
            return Ok(at);
        }
    }
    Ok(DISK_BYTES / BLOCK)
}

/// Goal: points of both disks at one instant while the guest writes to them in turn; then only what has changed; a bitmap that is lost is told; off,
/// its images are read; the point comes back as a domain.
#[test]
fn a_domain_is_backed_up_while_it_runs_and_while_it_does_not() {
    if !there_is(Need::Loop, WHAT) {
        return;
    }
    in_a_place(|place| {
        let (_libvirt, uri) = libvirt(place)?;
        let shop = Shop::define(place, &uri)?;
        let server = server(place)?;
        place.ok(&format!("source add shop --libvirt {uri} --domain shop"))?;
        let stop = AtomicBool::new(false);
        let runs = scope(|scope| {
            let (shop, stop) = (&shop, &stop);
            let writer = scope.spawn(move || -> Result<()> {
                let mut at = 0;
                while !stop.load(Ordering::SeqCst) {
                    for disk in [0, 1] {
                        shop.write(disk, at * BLOCK, BLOCK, 7)?;
                    }
                    at += 1;
                }
                Ok(())
            });
            let runs: Result<Vec<Value>> = (0..3)
                .map(|_| {
                    sleep(Duration::from_millis(500));
                    place.json("backup run shop")
                })
                .collect();
            stop.store(true, Ordering::SeqCst);
            writer.join().expect("the writer does not panic")?;
            runs
        })?;
        let mut before = 0;
        for (at, run) in runs.iter().enumerate() {
            let of = |disk: &str| prefix(place, &format!("shop.{disk}@{}", stamp(run)?));
            let (vda, vdb) = (of("vda")?, of("vdb")?);
            ensure!(vdb <= vda && vda <= vdb + 1, "two instants: {vda} and {vdb} blocks of {run}");
            ensure!(vda > before, "the guest did not write: {vda} blocks, {before} before");
            before = vda;
            // A raw image has no bitmaps.
            ensure!(
                !notes(run).contains("'vda'") && (at > 0) == notes(run).contains("'vdb' was compared"),
                "{run}"
            );
        }
        shop.nothing_is_left()?;

        for disk in [0, 1] {
            shop.write(disk, 32 * MIB, 8 * MIB, 4)?;
        }
        place.json("backup run shop")?;
        shop.write(0, 9 * MIB, MIB, 5)?;
        shop.io(0, &format!("discard 0 {GRAIN}"))?;
        shop.write(1, 11 * MIB, MIB, 5)?;
        let changed = place.json("backup run shop")?;
        shop.is_as_its_images(&changed)?;
        let read = changed["copied"]["read_bytes"].as_u64().context("a run tells what it read")?;
        // All that the raw image holds, and of the other what was written.
        let least = before * BLOCK + 8 * MIB + 2 * MIB;
        let most = least + 4 * GRAIN;
        ensure!((least..=most).contains(&read), "{least} to {most}: {changed}");

        // Somebody takes the bitmap away: told, and compared.
        let own = shop.checkpoints()?.pop().context("there is a checkpoint")?;
        let told: Value =
            serde_json::from_str(&shop.ask(&["qemu-monitor-command", r#"{"execute":"query-block"}"#])?)?;
        let node = told["return"][0]["inserted"]["node-name"].as_str().context("a disk has a node")?;
        let gone = format!(
            r#"{{"execute":"block-dirty-bitmap-remove","arguments":{{"node":"{node}","name":"{own}"}}}}"#
        );
        shop.ask(&["qemu-monitor-command", &gone])?;
        shop.write(0, 13 * MIB, BLOCK, 6)?;
        let mended = place.json("backup run shop")?;
        ensure!(
            notes(&mended).contains("'vda' was compared: its bitmap from then is lost or broken"),
            "{mended}"
        );
        shop.is_as_its_images(&mended)?;
        shop.nothing_is_left()?;

        let point = mended["name"].as_str().context("a run has a name")?;
        place.ok(&format!("recover {point} --as again --to libvirt:{uri} --network isolated"))?;
        ensure!(virsh(&uri, &["list", "--name"])?.contains("again"), "the point is no domain");
        place.ok("recover stop again --discard")?;

        shop.ask(&["destroy"])?;
        let still = place.json("backup run shop")?;
        ensure!(notes(&still).contains("its domain does not run"), "{still}");
        ensure!(still["copied"]["written_bytes"] == 0, "{still}");
        shop.is_as_its_images(&still)?;
        shop.ask(&["start"])?;
        shop.write(0, 15 * MIB, BLOCK, 8)?;
        let again = place.json("backup run shop")?;
        shop.is_as_its_images(&again)?;
        shop.nothing_is_left()?;
        place.ok("source rm shop")?;
        ensure!(shop.checkpoints()?.is_empty(), "{:?} is left", shop.checkpoints()?);
        server.stop()
    });
}

/// Goal: a guest whose backup dies with its server, or finds no more room, writes on without an error and is backed up again; nothing of the dead one stays.
#[test]
fn a_domain_outlives_what_happens_to_its_backup() {
    if !there_is(Need::Loop, WHAT) {
        return;
    }
    in_a_place(|place| {
        // Where libvirt keeps what is overwritten there are 3 GiB, and soon less.
        File::create(place.path("small.img"))?.set_len(3 << 30)?;
        run("mkfs.ext4", &["-q", "-m", "0", &place.text("small.img")])?;
        let small = Loop::over(&place.path("small.img"))?;
        let _small = Mount::of(&small.device, &place.path("small"), "defaults")?;
        let (_libvirt, uri) = libvirt(place)?;
        let shop = Shop::define(place, &uri)?;
        let mut running = server(place)?;
        place.ok(&format!(
            "source add shop --libvirt {uri} --domain shop --scratch {}",
            place.text("small")
        ))?;
        for disk in [0, 1] {
            shop.write(disk, 0, 48 * MIB, 3)?;
        }
        for round in 0..2u8 {
            let mut backup = shop.begin_slowly()?;
            running.kill();
            let _ = backup.wait()?;
            for at in 0..20 {
                shop.write(1, at * MIB, BLOCK, 100 + round)?;
            }
            for at in 0..20 {
                let mut held = [0; BLOCK as usize];
                File::open(place.path("b.raw"))?.read_exact_at(&mut held, at * MIB)?;
                ensure!(held == [100 + round; BLOCK as usize], "the guest's write at {at}M failed");
            }
            running = server(place)?;
            place.ok("qos set backup-target --max-bytes none")?;
            until_made_again(place, "shop", PATIENCE)?;
            let patience = Deadline::after(PATIENCE);
            while shop.job()? || shop.no_files_are_left().is_err() {
                ensure!(!patience.passed(), "a job or its files are left");
                sleep(Duration::from_millis(50));
            }
        }

        // One that stops in order leaves it at once.
        let mut backup = shop.begin_slowly()?;
        running.stop()?;
        let _ = backup.wait()?;
        ensure!(!shop.job()?, "a server that stopped left a job");
        shop.no_files_are_left()?;
        running = server(place)?;
        place.ok("qos set backup-target --max-bytes none")?;
        until_made_again(place, "shop", PATIENCE)?;

        let backup = shop.begin_slowly()?;
        let filler = File::create(place.path("small/filler"))?;
        let room = rustix::fs::statvfs(place.path("small"))?;
        let free = room.f_bavail * room.f_frsize;
        rustix::fs::fallocate(&filler, rustix::fs::FallocateFlags::empty(), 0, free - (512 << 20))?;
        let ended = backup.wait_with_output()?;
        let said = String::from_utf8_lossy(&ended.stderr);
        ensure!(
            ended.status.code() == Some(1) && said.contains("are left in") && said.contains("--scratch"),
            "{said}"
        );
        shop.write(1, 0, BLOCK, 9)?;
        let mut held = [0; BLOCK as usize];
        File::open(place.path("b.raw"))?.read_exact_at(&mut held, 0)?;
        ensure!(held == [9; BLOCK as usize], "the guest's write failed");
        let said = place.fails("backup run shop", 1)?;
        ensure!(said.contains("are left in"), "it is begun without room: {said}");
        ensure!(!shop.job()?, "it is in a job");

        drop(filler);
        fs::remove_file(place.path("small/filler"))?;
        place.ok("qos set backup-target --max-bytes none")?;
        let run = place.json("backup run shop")?;
        shop.is_as_its_images(&run)?;
        shop.nothing_is_left()?;
        running.stop()
    });
}

/// Goal: a disk that grows, one that comes, a domain that is ended and started anew in the midst of its backup: each is told, and what is not known
/// of a disk is compared; all points are what the images held.
#[test]
fn what_becomes_of_a_domain_between_its_backups_and_in_one_is_told() {
    if !there_is(Need::Loop, WHAT) {
        return;
    }
    in_a_place(|place| {
        let (_libvirt, uri) = libvirt(place)?;
        let shop = Shop::define(place, &uri)?;
        let server = server(place)?;
        place.ok(&format!("source add shop --libvirt {uri} --domain shop"))?;
        for disk in [0, 1] {
            shop.write(disk, 0, 8 * MIB, 3)?;
        }
        place.json("backup run shop")?;

        shop.ask(&["blockresize", "vda", "80M"])?;
        shop.write(0, 79 * MIB, BLOCK, 4)?;
        let run_of = place.json("backup run shop")?;
        let said = notes(&run_of);
        ensure!(said.contains("grown") && said.contains("'vda'"), "{run_of}");
        ensure!(run_of["copied"]["written_bytes"] == BLOCK, "{run_of}");
        shop.is_as_its_images(&run_of)?;

        let extra = place.text("c.raw");
        run("qemu-img", &["create", "-q", "-f", "raw", &extra, "32M"])?;
        let raw = ["--driver", "qemu", "--subdriver", "raw", "--cache", "none", "--live", "--config"];
        shop.ask(&[&["attach-disk", &extra, "vdc"], &raw[..]].concat())?;
        shop.write(2, 5 * MIB, MIB, 6)?;
        shop.write(0, 2 * MIB, BLOCK, 6)?;
        let run_of = place.json("backup run shop")?;
        ensure!(run_of["copied"]["written_bytes"] == MIB + BLOCK, "{run_of}");
        shop.is_as_its_images(&run_of)?;
        let export = place.uri(&format!("shop.vdc@{}", stamp(&run_of)?));
        run("qemu-img", &["compare", "-q", "-U", "-f", "raw", "-F", "raw", &extra, &export])?;

        shop.write(1, 0, 48 * MIB, 7)?;
        let backup = shop.begin_slowly()?;
        shop.ask(&["destroy"])?;
        shop.ask(&["start"])?;
        let ended = backup.wait_with_output()?;
        let said = String::from_utf8_lossy(&ended.stderr);
        ensure!(ended.status.code() == Some(1) && said.contains("was ended"), "{said}");
        ensure!(
            place.json("point ls")?.as_array().is_some_and(|points| points.len() == 3),
            "a point was made"
        );
        ensure!(!shop.job()?, "it is in a job");
        shop.no_files_are_left()?;
        place.ok("qos set backup-target --max-bytes none")?;
        shop.write(0, 3 * MIB, BLOCK, 8)?;
        let run_of = place.json("backup run shop")?;
        shop.is_as_its_images(&run_of)?;
        shop.nothing_is_left()?;
        server.stop()
    });
}

#[test]
fn what_cannot_be_backed_up_is_told() {
    if !there_is(Need::Loop, WHAT) {
        return;
    }
    in_a_place(|place| {
        let (libvirt, uri) = libvirt(place)?;
        let shop = Shop::define(place, &uri)?;
        let server = server(place)?;
        let said = place.fails("source add shop --libvirt qemu+ssh://host/system --domain shop", 1)?;
        ensure!(said.contains("no libvirt of this machine") && said.contains("qemu:///system"), "{said}");
        let said = place.fails(&format!("source add shop --libvirt {uri}"), 2)?;
        ensure!(said.contains("--domain"), "{said}");
        place.ok(&format!("source add other --libvirt {uri} --domain other"))?;
        let said = place.fails("backup run other", 1)?;
        ensure!(said.contains("has no domain 'other'") && said.contains("list --all"), "{said}");

        // Somebody else's backup goes on.
        let uuid = shop.ask(&["domuuid"])?;
        place.ok(&format!("source add shop --libvirt {uri} --domain {}", uuid.trim()))?;
        let socket = place.text("theirs.sock");
        let theirs =
            format!("<domainbackup mode='pull'><server transport='unix' socket='{socket}'/></domainbackup>");
        fs::write(place.path("theirs.xml"), theirs)?;
        shop.ask(&["backup-begin", "--backupxml", &place.text("theirs.xml")])?;
        let said = place.fails("backup run shop", 1)?;
        ensure!(said.contains("refuses 'backup-begin'"), "{said}");
        ensure!(shop.job()?, "the job of somebody else was ended");
        ensure!(shop.checkpoints()?.is_empty(), "{:?} is left", shop.checkpoints()?);
        shop.ask(&["domjobabort"])?;

        // Off, and somebody writes to an image: QEMU's locks keep nobody from a raw one.
        shop.ask(&["destroy"])?;
        let image = File::options().write(true).open(place.path("b.raw"))?;
        image.write_all_at(&vec![5; 32 << 20], 0)?;
        place.ok("qos set backup-target --max-bytes 4M")?;
        let mut backup = Command::new(stonefold_e2e::binary::stonefold()?);
        backup.args(["--api", &place.api(), "backup", "run", "shop"]);
        let backup = backup.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let patience = Deadline::after(PATIENCE);
        while place.json("disk ls")?.as_array().is_none_or(Vec::is_empty) {
            ensure!(!patience.passed(), "nothing is copied");
            sleep(Duration::from_millis(20));
        }
        image.write_all_at(&[6; 4096], 40 << 20)?;
        let ended = backup.wait_with_output()?;
        let said = String::from_utf8_lossy(&ended.stderr);
        ensure!(
            ended.status.code() == Some(1) && said.contains("b.raw' was written while it was read"),
            "{said}"
        );
        ensure!(place.json("point ls")?.as_array().is_some_and(Vec::is_empty), "a point was made of it");

        place.ok("qos set backup-target --max-bytes none")?;
        shop.ask(&["start"])?;
        let run = place.json("backup run shop")?;
        shop.is_as_its_images(&run)?;
        shop.ask(&["destroy"])?;
        libvirt.kill();
        let said = place.fails("backup run shop", 1)?;
        ensure!(said.contains("refuses") && said.contains("libvirtd"), "{said}");
        server.stop()
    });
}
