//! Traces of a real server's disks.
//!
//! *Promise*: what clients ask of a disk is what its trace has, to the last request; what has no place in it is counted; whoever goes away leaves
//! a trace that says so. *Method*: our own client keeps a list of what it asks, fio writes one; both are held against the trace.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stonefold_dice::Dice;
use stonefold_e2e::gateway::{Place, in_a_place};
use stonefold_e2e::tools::run;
use stonefold_format::trace::parts::{Next, Parts};
use stonefold_format::trace::{End, Op, Reason, Record};
use stonefold_nbd::wire::request::{Command, flag};

const DISK_BYTES: u64 = 64 << 20;

/// All records of a trace, and its end if it has one.
fn read(path: &Path) -> Result<(Vec<Record>, Option<End>)> {
    let bytes = std::fs::read(path)?;
    let (mut parts, mut records) = (Parts::new(&bytes)?, Vec::new());
    let header = parts.header().clone();
    ensure!(header.name == "web" && header.device_bytes == DISK_BYTES, "{header:?}");
    loop {
        match parts.next()? {
            Next::Block(block) => block.records(&bytes, &header, &mut records)?,
            Next::End(end) => return Ok((records, Some(end))),
            Next::Cut(_) => return Ok((records, None)),
        }
    }
}

/// Records `web` into `web.sftrace` while `work` goes on; returns what the command said when it was stopped.
fn while_recorded(place: &Place, more: &str, work: impl FnOnce() -> Result<()>) -> Result<String> {
    let line = format!("lab trace start web --out {} {more}", place.text("web.sftrace"));
    std::thread::scope(|scope| {
        let recorder = scope.spawn(|| place.run(&line));
        wait_for(place, 1)?;
        let worked = work();
        place.ok("lab trace stop web")?;
        let done = recorder.join().expect("running a command does not panic")?;
        worked?;
        ensure!(done.status.success(), "{}", done.stderr);
        Ok(done.stdout + &done.stderr)
    })
}

/// Until so many disks are recorded.
fn wait_for(place: &Place, many: usize) -> Result<()> {
    for _ in 0..400 {
        if place.json("lab trace ls")?.as_array().is_some_and(|all| all.len() == many) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    anyhow::bail!("not {many} recordings: {}", place.ok("lab trace ls")?)
}

/// What a client asks: kind, place, length, and whether it must be durable at once.
type Asked = (Op, u64, u64, bool);

fn some_requests(dice: &mut Dice, many: usize) -> Vec<Asked> {
    let one = |dice: &mut Dice| {
        // Also unaligned, and longer than the server carries out in one piece.
        let bytes = [512, 4096, 4097, 65536, 65537, 300_000, 2 << 20][dice.index(7)];
        let offset = dice.below(DISK_BYTES - bytes);
        match dice.below(10) {
            0 => (Op::Flush, 0, 0, false),
            1 => (Op::Trim, offset, bytes, dice.below(2) == 0),
            2 => (Op::Zero, offset, bytes, false),
            3..6 => (Op::Write, offset, bytes, dice.below(4) == 0),
            _ => (Op::Read, offset, bytes, false),
        }
    };
    (0..many).map(|_| one(dice)).collect()
}

fn ask(place: &Place, requests: &[Asked]) -> Result<()> {
    let mut connection = place.connect("web")?;
    let data = vec![7; 2 << 20];
    for (op, offset, bytes, fua) in requests {
        let (command, payload) = match op {
            Op::Read => (Command::Read, 0),
            Op::Write => (Command::Write, *bytes as usize),
            Op::Flush => (Command::Flush, 0),
            Op::Trim => (Command::Trim, 0),
            Op::Zero => (Command::WriteZeroes, 0),
        };
        let flags = if *fua { flag::FUA } else { 0 };
        connection.request(command, flags, *offset, *bytes, &data[..payload])?;
    }
    Ok(())
}

#[test]
fn a_trace_has_what_was_asked_to_the_last_request() {
    in_a_place(|place| {
        let gateway = place.start(&[])?;
        place.ok("disk create web --size 64M")?;
        let asked = some_requests(&mut Dice::new(Dice::seed("STONEFOLD_TRACE_SEED")), 3_000);
        let told = while_recorded(place, "", || ask(place, &asked))?;
        ensure!(told.contains("3000 requests") && told.contains("0 dropped"), "{told}");
        let (records, end) = read(&place.path("web.sftrace"))?;
        let recorded: Vec<Asked> =
            records.iter().map(|record| (record.op, record.offset, record.bytes, record.fua)).collect();
        ensure!(recorded == asked, "what was recorded is not what was asked");
        let end = end.context("an end")?;
        ensure!(end.reason == Reason::Stopped && end.dropped == 0, "{end:?}");
        // The file is there: it is not written over.
        place.fails(&format!("lab trace start web --out {}", place.text("web.sftrace")), 1)?;
        place.fails("lab trace stop web", 1)?;
        gateway.stop()
    });
}

#[test]
fn what_has_no_room_is_counted_and_told() {
    in_a_place(|place| {
        let gateway = place.start(&[])?;
        place.ok("disk create web --size 64M")?;
        let asked = some_requests(&mut Dice::new(Dice::seed("STONEFOLD_TRACE_SEED")), 2_000);
        let told = while_recorded(place, "--room 4", || ask(place, &asked))?;
        let (records, end) = read(&place.path("web.sftrace"))?;
        let dropped = end.context("an end")?.dropped;
        ensure!(dropped > 0 && records.len() as u64 + dropped == 2_000, "{} and {dropped}", records.len());
        ensure!(
            told.contains(&format!("warning: {dropped} of 2000")) && told.contains("dropped, "),
            "{told}"
        );
        ensure!(place.log().contains("the trace is not whole"), "the server's log says nothing of it");
        gateway.stop()
    });
}

#[test]
fn fio_and_the_trace_tell_the_same() {
    in_a_place(|place| {
        let gateway = place.start(&[])?;
        place.ok("disk create web --size 64M")?;
        let (uri, log) =
            (format!("--uri={}", place.uri("web")), format!("--write_iolog={}", place.text("fio.log")));
        while_recorded(place, "", || {
            let job =
                ["--name=a", "--ioengine=nbd", &uri, &log, "--size=64M", "--rw=randrw", "--bsrange=4k-128k"];
            let more = ["--io_size=32M", "--iodepth=8", "--fsync=16", "--randseed=3"];
            run("fio", &[&job[..], &more].concat()).map(drop)
        })?;
        let counted = |asked: &mut dyn Iterator<Item = (Op, u64, u64)>| {
            let mut count: BTreeMap<(Op, u64, u64), u64> = BTreeMap::new();
            asked.for_each(|one| *count.entry(one).or_default() += 1);
            count
        };
        let (records, _) = read(&place.path("web.sftrace"))?;
        let of_fio = std::fs::read_to_string(place.path("fio.log"))?;
        let line = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
            match words.get(2) {
                Some(&"read") => Some((Op::Read, number(3)?, number(4)?)),
                Some(&"write") => Some((Op::Write, number(3)?, number(4)?)),
                Some(&"sync") => Some((Op::Flush, 0, 0)),
                _ => None,
            }
        };
        let (ours, fios) = (
            counted(&mut records.iter().map(|record| (record.op, record.offset, record.bytes))),
            counted(&mut of_fio.lines().filter_map(line)),
        );
        ensure!(
            fios.len() > 100 && ours == fios,
            "{} kinds of requests of ours, {} of fio's",
            ours.len(),
            fios.len()
        );
        gateway.stop()
    });
}

#[test]
fn whoever_goes_away_leaves_a_trace_that_says_so() {
    in_a_place(|place| {
        let gateway = place.start(&[])?;
        place.ok("disk create web --size 64M")?;
        let asked = some_requests(&mut Dice::new(1), 100);
        // The server stops in order: the trace ends in order.
        let out = place.path("web.sftrace");
        let line = format!("lab trace start web --out {}", out.display());
        let (done, gateway) = std::thread::scope(|scope| {
            let recorder = scope.spawn(|| place.run(&line));
            wait_for(place, 1)?;
            ask(place, &asked)?;
            gateway.stop()?;
            let done = recorder.join().expect("running a command does not panic")?;
            anyhow::Ok((done, place.start(&[])?))
        })?;
        ensure!(done.status.success(), "{}", done.stderr);
        let (records, end) = read(&out)?;
        ensure!(
            records.len() == 100 && end.is_some_and(|end| end.reason == Reason::ServerStopped),
            "{end:?}"
        );
        // The server is killed: the command says so, and ends the trace itself.
        std::fs::remove_file(&out)?;
        let done = std::thread::scope(|scope| {
            let recorder = scope.spawn(|| place.run(&line));
            wait_for(place, 1)?;
            ask(place, &asked)?;
            // What waits longer than a second has been sent.
            std::thread::sleep(Duration::from_millis(2500));
            gateway.kill();
            recorder.join().expect("running a command does not panic")
        })?;
        ensure!(done.status.code() == Some(1) && done.stderr.contains("fell silent"), "{}", done.stderr);
        let (records, end) = read(&out)?;
        ensure!(
            records.len() == 100 && end.is_some_and(|end| end.reason == Reason::Lost),
            "{} {end:?}",
            records.len()
        );
        // The command is killed: the server records no more.
        std::fs::remove_file(&out)?;
        let gateway = place.start(&[])?;
        let mut command = std::process::Command::new(stonefold_e2e::binary::stonefold()?);
        let api = format!("unix://{}", place.text("api.sock"));
        let mut recorder = command.args(line.split(' ')).env("STONEFOLD_API", api).spawn()?;
        wait_for(place, 1)?;
        recorder.kill()?;
        recorder.wait()?;
        wait_for(place, 0)?;
        gateway.stop()
    });
}

/// What is replayed on a disk of ours is held against what the server says that it has done, and against what its payload is to be.
#[test]
fn a_replay_agrees_with_what_the_server_has_counted() {
    in_a_place(|place| {
        let server = place.start(&[])?;
        place.ok(&format!("disk create web --size {DISK_BYTES}"))?;
        let done = place.run("lab replay mail --target stonefold:web --duration 6s --json")?;
        let answer: serde_json::Value = serde_json::from_str(&done.stdout).context(done.stderr)?;
        let gates = answer["summary"]["points"][0]["gates"].as_array().context("no gates")?;
        let state = |name: &str| gates.iter().find(|gate| gate["name"] == name).map(|gate| &gate["state"]);
        ensure!(state("target's counters").is_some_and(|state| state == "pass"), "{gates:?}");
        ensure!(state("payload").is_some(), "{gates:?}");
        server.stop()
    });
}
