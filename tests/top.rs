//! `stonefold top` under load.
//!
//! *Goal*: the figures of each disk are those of what its clients did in that time: neither more than they counted themselves, nor a
//! fraction of it; sizes, percentiles, clients and what QoS holds back are of that disk and no other. *Method*: one client writes, reads
//! and flushes at a steady pace, in requests of known sizes; one presses against a limit; one disk is idle. *Past bug*: none yet; only the
//! number of rows was looked at.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;
use stonefold_e2e::gateway::{Place, in_a_place};

/// Bytes of the busy client's requests.
const WRITE_BYTES: usize = 4096;
const READ_BYTES: usize = 16384;
/// Between its rounds of a write, two reads and, with each fourth, a flush.
const PAUSE: Duration = Duration::from_millis(4);
/// What the held client is allowed, and never near what it asks for.
const HELD_IOPS: u64 = 20;
/// What a busy machine may take away from the part of the load that falls between the two looks of `top`: it looks for one second, and
/// starting and ending it take less.
const SHARE_MIN: f64 = 0.2;

/// What the clients did.
#[derive(Default)]
struct Done {
    ending: AtomicBool,
    rounds: AtomicU64,
}

#[test]
fn top_tells_what_each_disk_does() {
    in_a_place(|place| {
        let gateway = place.start(&[])?;
        place.ok(&format!("qos create slow --max-iops {HELD_IOPS}"))?;
        place.ok("disk create busy --size 8M")?;
        place.ok("disk create held --size 8M --qos slow")?;
        place.ok("disk create idle --size 8M")?;
        let done = Done::default();
        std::thread::scope(|scope| {
            let start = |name: &str, client: fn(&Place, &Done) -> Result<()>| {
                let done = &done;
                std::thread::Builder::new()
                    .name(name.to_owned())
                    .spawn_scoped(scope, move || client(place, done))
            };
            let clients = [start("busy", busy)?, start("held", held)?];
            let looked = look(place, &done);
            done.ending.store(true, SeqCst);
            for client in clients {
                client.join().map_err(|_| anyhow!("a client panicked"))??;
            }
            looked
        })?;
        gateway.stop()
    });
}

fn busy(place: &Place, done: &Done) -> Result<()> {
    let mut connection = place.connect("busy")?;
    while !done.ending.load(SeqCst) {
        let round = done.rounds.load(SeqCst);
        connection.write(round % 64 * WRITE_BYTES as u64, &[round as u8; WRITE_BYTES])?;
        connection.read(0, READ_BYTES)?;
        connection.read(READ_BYTES as u64, READ_BYTES)?;
        if round % 4 == 3 {
            connection.flush()?;
        }
        done.rounds.fetch_add(1, SeqCst);
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

fn held(place: &Place, done: &Done) -> Result<()> {
    let mut connection = place.connect("held")?;
    while !done.ending.load(SeqCst) {
        connection.write(0, &[1; WRITE_BYTES])?;
    }
    Ok(())
}

fn look(place: &Place, done: &Done) -> Result<()> {
    // Until the held client has used up what it may do at once.
    std::thread::sleep(Duration::from_secs(2));
    let before = done.rounds.load(SeqCst);
    let loads = place.json("top --interval 1")?;
    let rounds = (done.rounds.load(SeqCst) - before) as f64;
    let of = |disk: &str| {
        let mut all = loads.as_array().into_iter().flatten();
        all.find(|load| load["disk"] == disk).with_context(|| format!("{disk} is missing: {loads}"))
    };
    let (busy, held, idle) = (of("busy")?, of("held")?, of("idle")?);
    of_a_busy_disk(busy, rounds)?;

    let (rate, waiting) = (number(held, "writes_per_second")?, number(held, "qos_waiting")?);
    ensure!(rate > 0.0 && rate <= 1.5 * HELD_IOPS as f64, "{HELD_IOPS} are allowed: {held}");
    ensure!(waiting > 0.3 && waiting < 1.5, "its one request is nearly always held: {held}");
    ensure!(number(busy, "qos_waiting")? < waiting, "the busy disk is not held: {busy}");

    let figures = idle.as_object().context("a load is an object")?.iter().filter(|(name, _)| *name != "disk");
    for (name, figure) in figures {
        ensure!(figure.as_f64() == Some(0.0), "nobody uses it, and {name} is {figure}");
    }
    let order: Vec<&str> =
        loads.as_array().into_iter().flatten().filter_map(|l| l["disk"].as_str()).collect();
    ensure!(order == ["busy", "held", "idle"], "the busiest first: {order:?}");
    let text = place.ok("top --interval 0.5 --rounds 1")?;
    let row = text.lines().find(|line| line.starts_with("busy")).context(text.clone())?;
    ensure!(row.split_whitespace().nth(1) == Some("1") && row.contains("us"), "{text}");
    Ok(())
}

/// `rounds` were done from before the command was started until after it had ended.
fn of_a_busy_disk(load: &Value, rounds: f64) -> Result<()> {
    ensure!(load["clients"] == 1, "{load}");
    // One that was under way when the count began, and one that was not yet counted when it ended.
    let most = rounds + 2.0;
    for (figure, each_round) in
        [("writes_per_second", 1.0), ("reads_per_second", 2.0), ("flushes_per_second", 0.25)]
    {
        let (rate, done) = (number(load, figure)?, most * each_round + 1.0);
        let expected = SHARE_MIN * done..=done;
        ensure!(expected.contains(&rate), "{figure}: {rate}, of {done} done: {load}");
    }
    for (requests, bytes, of_each) in [
        ("writes_per_second", "written_bytes_per_second", WRITE_BYTES),
        ("reads_per_second", "read_bytes_per_second", READ_BYTES),
    ] {
        let size = number(load, bytes)? / number(load, requests)?;
        ensure!((size - of_each as f64).abs() < 1.0, "{bytes} are {size} for each request: {load}");
    }
    for kind in ["read", "write"] {
        let (half, most) =
            (number(load, &format!("{kind}_p50_us"))?, number(load, &format!("{kind}_p99_us"))?);
        ensure!(half > 0.0 && half <= most && most < 1e6, "{kind}s: {load}");
    }
    Ok(())
}

fn number(load: &Value, figure: &str) -> Result<f64> {
    load[figure].as_f64().with_context(|| format!("{figure} is a number: {load}"))
}
