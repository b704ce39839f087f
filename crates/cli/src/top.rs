//! `stonefold top`.

use crate::context::{Context, print};
use crate::failure::Failure;
use crate::table::{Table, micros};
use clap::Args;
use serde::Serialize;
use std::collections::HashMap;
use std::io::IsTerminal;
use std::time::Duration;
use stonefold_api::{Disk, DiskIo, Latencies};
use stonefold_types::{Name, Size};

/// Watch what clients do with their disks, live
///
/// Shows operations and bytes a second for each disk, the busiest first, how long the half and 99 in 100 of them took at most, and how many requests QoS holds back at one time. On a terminal the picture is drawn anew;
/// elsewhere, and with --json, one follows the other.
#[derive(Args)]
#[command(after_help = "Examples:\n  stonefold top\n  stonefold top --interval 5 --rounds 12 > load.txt")]
pub(crate) struct Top {
    /// Seconds between two pictures
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    interval: f64,
    /// Stop after so many pictures [default: go on; with --json 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    rounds: Option<u64>,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("write seconds from 0.1 to 3600".to_owned()),
    }
}

/// What one disk did, per second.
#[derive(Debug, PartialEq, Serialize)]
struct Load {
    disk: Name,
    clients: u64,
    reads_per_second: f64,
    read_bytes_per_second: f64,
    writes_per_second: f64,
    written_bytes_per_second: f64,
    flushes_per_second: f64,
    /// Requests under QoS's hand at one time, on average.
    qos_waiting: f64,
    /// Of the reads since the last picture 99 in 100 took no longer, in microseconds; 0 where there were none.
    read_p99_us: u64,
    /// The same of writes.
    write_p99_us: u64,
    /// The half of reads.
    read_p50_us: u64,
    /// The half of writes.
    write_p50_us: u64,
}

impl Top {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        // One JSON document, unless more are asked for.
        let rounds = self.rounds.unwrap_or(if context.json { 1 } else { u64::MAX });
        let redraw = std::io::stdout().is_terminal() && !context.json;
        let mut before = counters(&client.disks()?);
        let mut since = monotonic();
        for _ in 0..rounds {
            std::thread::sleep(Duration::from_secs_f64(self.interval));
            let disks = client.disks()?;
            let now = monotonic();
            let loads = loads(&before, &disks, (now - since).as_secs_f64());
            (before, since) = (counters(&disks), now);
            if redraw {
                // Home, draw, clear what the last picture had below.
                print(&format!("\x1b[H\x1b[2J{}\nCtrl-C ends\n", picture(&loads)))?;
            } else {
                context.answer(&loads, || format!("{}\n", picture(&loads)))?;
            }
        }
        Ok(())
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "what is drawn for people has the real clock, and no simulation"
)]
fn monotonic() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec as u32)
}

type Counters = HashMap<Name, (DiskIo, Latencies)>;

fn counters(disks: &[Disk]) -> Counters {
    let counted = |disk: &Disk| (disk.io.unwrap_or_default(), disk.latency.clone().unwrap_or_default());
    disks.iter().map(|disk| (disk.name.clone(), counted(disk))).collect()
}

fn loads(before: &Counters, disks: &[Disk], seconds: f64) -> Vec<Load> {
    let mut loads: Vec<Load> = disks.iter().map(|disk| load(disk, before, seconds)).collect();
    let weight = |load: &Load| load.reads_per_second + load.writes_per_second;
    loads.sort_by(|a, b| weight(b).total_cmp(&weight(a)).then_with(|| a.disk.cmp(&b.disk)));
    loads
}

fn load(disk: &Disk, before: &Counters, seconds: f64) -> Load {
    let now = disk.io.unwrap_or_default();
    let (before, latencies) = before.get(&disk.name).cloned().unwrap_or_default();
    let took = disk.latency.clone().unwrap_or_default();
    let (reads, writes) = (took.reads.since(&latencies.reads), took.writes.since(&latencies.writes));
    // A server that was started anew counts from zero.
    let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
    Load {
        disk: disk.name.clone(),
        clients: disk.clients,
        reads_per_second: rate(now.reads, before.reads),
        read_bytes_per_second: rate(now.read_bytes, before.read_bytes),
        writes_per_second: rate(now.writes, before.writes),
        written_bytes_per_second: rate(now.written_bytes, before.written_bytes),
        flushes_per_second: rate(now.flushes, before.flushes),
        // Microseconds of waiting in a second of time: by Little's law, so many million waited at once.
        qos_waiting: rate(now.qos_wait_us, before.qos_wait_us) / 1e6,
        read_p99_us: reads.p99_us,
        write_p99_us: writes.p99_us,
        read_p50_us: reads.p50_us,
        write_p50_us: writes.p50_us,
    }
}

fn picture(loads: &[Load]) -> String {
    let heads = [
        "DISK",
        "CLIENTS>",
        "READS/S>",
        "READ/S>",
        "R P50>",
        "R P99>",
        "WRITES/S>",
        "WRITTEN/S>",
        "W P50>",
        "W P99>",
        "FLUSHES/S>",
        "HELD>",
    ];
    let mut table = Table::new(&heads);
    let bytes = |rate: f64| Size(rate as u64).to_string();
    let took = |us: u64| if us == 0 { String::new() } else { micros(us) };
    for load in loads {
        table.row([
            load.disk.to_string(),
            load.clients.to_string(),
            format!("{:.0}", load.reads_per_second),
            bytes(load.read_bytes_per_second),
            took(load.read_p50_us),
            took(load.read_p99_us),
            format!("{:.0}", load.writes_per_second),
            bytes(load.written_bytes_per_second),
            took(load.write_p50_us),
            took(load.write_p99_us),
            format!("{:.0}", load.flushes_per_second),
            format!("{:.1}", load.qos_waiting),
        ]);
    }
    table.or("no disks")
}
