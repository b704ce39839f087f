//! The clients that people use, on a real server and a real pool.
//!
//! *Promise*: what any of them writes is what any other reads, through restarts and kills too. *Method*: each client writes, the
//! server is stopped or killed, another client reads. *Past bug*: none yet.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use stonefold_dice::Dice;
use stonefold_e2e::gateway::{Place, in_a_place};
use stonefold_e2e::tools::{Beside, run};

/// Small caches and journals, so that folding and cold reads happen within a test.
const SMALL: [&str; 4] = ["--cache", "8M", "--journal", "16M"];

/// A file of runs: noise, zeros, and text that compresses.
fn image(path: &Path, seed: u64, bytes: usize) -> Result<()> {
    let mut chance = Dice::new(seed);
    let mut contents = Vec::with_capacity(bytes);
    while contents.len() < bytes {
        let run = chance.between(1, 100_000) as usize;
        match chance.below(3) {
            0 => contents.resize(contents.len() + run, 0),
            1 => contents.extend(std::iter::repeat_with(|| chance.number() as u8).take(run)),
            _ => contents.extend(b"the same again and ".iter().cycle().take(run)),
        }
    }
    contents.truncate(bytes);
    Ok(fs::write(path, contents)?)
}

fn same(a: &Path, b: &Path) -> Result<()> {
    run("cmp", &[&a.to_string_lossy(), &b.to_string_lossy()]).map(drop)
}

#[test]
fn qemu_io_finds_its_patterns_after_a_kill() {
    in_a_place(|place| {
        let gateway = place.start(&SMALL)?;
        place.ok("disk create web --size 64M")?;
        let writes = [
            "write -P 1 0 32M",
            "write -P 2 100 1000",
            "write -f -P 3 1M 4k",
            "write -z 2M 1M",
            "write -z -u 4M 1M",
            "discard 8M 8M",
            "aio_write -P 9 20M 1M",
            "aio_write -P 10 40M 12345",
            "aio_flush",
            "flush",
        ];
        let reads = [
            "read -P 1 0 100",
            "read -P 2 100 1000",
            "read -P 1 1100 1M",
            "read -P 3 1M 4k",
            "read -P 0 2M 1M",
            "read -P 0 4M 1M",
            "read -P 0 8M 8M",
            "read -P 9 20M 1M",
            "read -P 10 40M 12345",
            "read -P 0 41955385 20M",
        ];
        // The first kilobyte after 1 MiB was written over: the read stops before it.
        let reads = reads.map(|read| if read.ends_with("1100 1M") { "read -P 1 1100 1000000" } else { read });
        qemu_io(place, &writes)?;
        qemu_io(place, &reads)?;
        gateway.kill();
        let gateway = place.start(&SMALL)?;
        qemu_io(place, &reads).context("after a kill")?;
        gateway.stop()?;
        let gateway = place.start(&SMALL)?;
        qemu_io(place, &reads).context("folded, with a cold cache")?;
        gateway.stop()
    });
}

fn qemu_io(place: &Place, commands: &[&str]) -> Result<()> {
    let uri = place.uri("web");
    let mut arguments = vec!["-f", "raw"];
    commands.iter().for_each(|command| arguments.extend(["-c", command]));
    arguments.push(&uri);
    let said = run("qemu-io", &arguments)?;
    // Some versions end with status 0 all the same.
    ensure!(!said.contains("failed") && !said.contains("Pattern"), "qemu-io: {said}");
    Ok(())
}

#[test]
fn images_go_in_and_come_out_as_they_were() {
    in_a_place(|place| {
        let gateway = place.start(&SMALL)?;
        let (raw, qcow2) = (place.text("in.raw"), place.text("in.qcow2"));
        image(&place.path("in.raw"), 11, 96 << 20)?;
        run("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", "-c", &raw, &qcow2])?;

        place.ok("disk create web --size 96M")?;
        let web = place.uri("web");
        run("qemu-img", &["convert", "-n", "-f", "qcow2", "-O", "raw", &qcow2, &web])?;
        run("qemu-img", &["compare", "-f", "raw", "-F", "raw", &raw, &web])?;
        place.ok(&format!("disk import imported {qcow2}"))?;
        gateway.stop()?;
        let gateway = place.start(&SMALL)?;
        let imported = place.uri("imported");
        run("qemu-img", &["compare", "-f", "qcow2", "-F", "raw", &qcow2, &imported])?;

        let out = place.text("out.qcow2");
        run("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &web, &out])?;
        run("qemu-img", &["compare", "-f", "qcow2", "-F", "raw", &out, &raw])?;
        for format in ["raw", "qcow2", "vmdk"] {
            let out = place.text(&format!("exported.{format}"));
            place.ok(&format!("disk export imported {out} --format {format}"))?;
            run("qemu-img", &["compare", "-f", format, "-F", "raw", &out, &raw]).context(format)?;
        }
        gateway.stop()
    });
}

#[test]
fn nbdcopy_there_and_back_through_a_kill_a_snapshot_and_a_clone() {
    in_a_place(|place| {
        let gateway = place.start(&SMALL)?;
        place.ok("disk create web --size 64M")?;
        image(&place.path("in"), 12, 64 << 20)?;
        image(&place.path("other"), 13, 64 << 20)?;
        run("nbdcopy", &["--flush", &place.text("in"), &place.uri("web")])?;
        place.ok("snapshot create web --name first")?;
        place.ok("clone web@first copy")?;
        run("nbdcopy", &["--flush", &place.text("other"), &place.uri("web")])?;
        gateway.kill();
        let gateway = place.start(&SMALL)?;
        for (export, expected) in [("web", "other"), ("web@first", "in"), ("copy", "in")] {
            run("nbdcopy", &[&place.uri(export), &place.text("out")])?;
            same(&place.path("out"), &place.path(expected)).context(export)?;
        }
        gateway.stop()
    });
}

#[test]
fn fio_verifies_what_it_wrote_and_after_a_kill_again() {
    in_a_place(|place| {
        let gateway = place.start(&SMALL)?;
        place.ok("disk create web --size 64M")?;
        let uri = format!("--uri={}", place.uri("web"));
        let fio = |more: &[&str]| {
            let job =
                ["--name=verify", "--ioengine=nbd", &uri, "--rw=randwrite", "--size=64M", "--iodepth=32"];
            let verify = ["--verify=crc32c", "--verify_state_save=0", "--randseed=7"];
            let said = run("fio", &[&job[..], &verify, more].concat())?;
            ensure!(said.contains("err= 0"), "fio: {said}");
            Ok(())
        };
        fio(&["--bsrange=512-300k", "--bs_unaligned", "--verify_backlog=128", "--fsync=64"])?;
        fio(&["--bs=4k", "--fsync=256", "--end_fsync=1", "--do_verify=0"])?;
        gateway.kill();
        let gateway = place.start(&SMALL)?;
        fio(&["--bs=4k", "--verify_only=1"]).context("after a kill")?;
        gateway.stop()
    });
}

#[test]
fn nbdinfo_maps_what_is_there_before_and_after_it_is_folded() {
    in_a_place(|place| {
        let gateway = place.start(&SMALL)?;
        place.ok("disk create web --size 32M")?;
        qemu_io(place, &["write -P 1 1M 1M", "write -P 2 4M 8k", "write -z -u 4M 4k"])?;
        let map = |export: &str, context: &str| -> Result<Vec<String>> {
            let said = run("nbdinfo", &[&format!("--map={context}"), &place.uri(export)])?;
            Ok(said.lines().map(|l| l.split_whitespace().take(3).collect::<Vec<_>>().join(" ")).collect())
        };
        let expected =
            ["0 1048576 3", "1048576 1048576 0", "2097152 2101248 3", "4198400 4096 0", "4202496 29351936 3"];
        ensure!(map("web", "base:allocation")? == expected, "{:?}", map("web", "base:allocation"));
        gateway.stop()?;
        let gateway = place.start(&SMALL)?;
        ensure!(map("web", "base:allocation")? == expected, "folded: {:?}", map("web", "base:allocation"));
        place.ok("snapshot create web --name s")?;
        qemu_io(place, &["write -P 3 8M 64k"])?;
        let changed = ["0 8388608 0", "8388608 65536 1", "8454144 25100288 0"];
        let context = "stonefold:changed-since/s";
        ensure!(map("web", context)? == changed, "{:?}", map("web", context));
        ensure!(map("web@s", "base:allocation")? == expected, "{:?}", map("web@s", "base:allocation"));
        gateway.stop()
    });
}

#[test]
fn nbdkit_passes_it_on() {
    in_a_place(|place| {
        let gateway = place.start(&SMALL)?;
        place.ok("disk create web --size 32M")?;
        image(&place.path("in"), 14, 32 << 20)?;
        let socket = place.path("kit.sock");
        let upstream = format!("uri={}", place.uri("web"));
        let kit =
            Beside::start("nbdkit", &["-f", "-U", &socket.to_string_lossy(), "nbd", &upstream], || {
                UnixStream::connect(&socket).is_ok()
            })?;
        let through = format!("nbd+unix:///?socket={}", socket.display());
        run("nbdcopy", &["--flush", &place.text("in"), &through])?;
        run("nbdcopy", &[&place.uri("web"), &place.text("direct")])?;
        same(&place.path("direct"), &place.path("in"))?;
        run("nbdcopy", &[&through, &place.text("through")])?;
        same(&place.path("through"), &place.path("in"))?;
        kit.kill();
        gateway.stop()
    });
}
