//! `stonefold machine stats`.

use crate::context::Context;
use crate::failure::Failure;
use crate::table::{Table, facts, micros};
use crate::waiting::wait_for;
use stonefold_api::{DiskUsage, Latency, MachineDiskStats, MachineStats};
use stonefold_types::{Name, Size};

pub(super) fn run(context: &Context, name: Name, exact: bool) -> Result<(), Failure> {
    let client = context.client()?;
    let stats = match exact {
        true => wait_for(&client, "usage", move |client| client.machine_usage(&name))?,
        false => client.machine_stats(&name)?,
    };
    context.answer(&stats, || text(&stats))
}

fn text(stats: &MachineStats) -> String {
    let (io, latency) = (&stats.io, &stats.latency);
    let class = stats.qos.as_ref().map_or_else(|| "differs from disk to disk".to_owned(), Name::to_string);
    let counted = stats.usage.map_or_else(String::new, |usage| usage.as_of.to_seconds_text());
    let all = facts([
        ("machine", stats.name.to_string()),
        ("qos class", class),
        ("size", Size(stats.size_bytes).to_string()),
        ("logical", Size(stats.data_bytes).to_string()),
        ("unique", used(stats, |usage| usage.unique_bytes)),
        ("shared", used(stats, |usage| usage.shared_bytes)),
        ("counted (UTC)", counted),
        ("snapshots", stats.snapshots.to_string()),
        ("clients", stats.clients.to_string()),
        ("reads", did(io.reads, Some(io.read_bytes), &latency.reads)),
        ("writes", did(io.writes, Some(io.written_bytes), &latency.writes)),
        ("flushes", did(io.flushes, None, &latency.flushes)),
    ]);
    format!("{all}\n{}", table(&stats.disks))
}

fn used(stats: &MachineStats, of: fn(&DiskUsage) -> u64) -> String {
    let told = stats.usage.as_ref().map(|usage| Size(of(usage)).to_string());
    told.unwrap_or_else(|| "not counted; --exact counts".to_owned())
}

/// Since the server started.
fn did(count: u64, bytes: Option<u64>, took: &Latency) -> String {
    let bytes = bytes.map_or_else(String::new, |bytes| format!(", {}", Size(bytes)));
    match took.count {
        0 => format!("{count}{bytes}"),
        _ => format!("{count}{bytes}: p50 {}, p99 {}", micros(took.p50_us), micros(took.p99_us)),
    }
}

fn table(disks: &[MachineDiskStats]) -> String {
    let heads = [
        "TARGET",
        "DISK",
        "SIZE>",
        "LOGICAL>",
        "CLASS",
        "SNAPSHOTS>",
        "READS>",
        "R P50>",
        "R P99>",
        "WRITES>",
        "W P50>",
        "W P99>",
    ];
    let took = |latency: &Latency, us: u64| if latency.count == 0 { String::new() } else { micros(us) };
    let mut table = Table::new(&heads);
    for one in disks {
        let mut cells = vec![one.target.to_string(), one.name.to_string()];
        match one.disk.as_ref().filter(|disk| disk.damaged.is_none()) {
            Some(disk) => {
                let (io, latency) = (disk.io.unwrap_or_default(), disk.latency.clone().unwrap_or_default());
                let (reads, writes) = (&latency.reads, &latency.writes);
                cells.extend([
                    Size(disk.size_bytes).to_string(),
                    Size(disk.data_bytes()).to_string(),
                    disk.qos.to_string(),
                    disk.snapshots.to_string(),
                    io.reads.to_string(),
                    took(reads, reads.p50_us),
                    took(reads, reads.p99_us),
                    io.writes.to_string(),
                    took(writes, writes.p50_us),
                    took(writes, writes.p99_us),
                ]);
            }
            None => {
                let why = if one.disk.is_some() { "damaged" } else { "missing" };
                cells.push(why.to_owned());
                cells.resize(heads.len(), String::new());
            }
        }
        table.row(cells);
    }
    table.text()
}
