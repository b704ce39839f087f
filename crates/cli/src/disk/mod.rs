//! `stonefold disk …`.

mod export;
mod import;

use crate::context::Context;
use crate::failure::Failure;
use crate::table::{Table, count, facts, micros};
use crate::waiting::wait_for;
use clap::{Args, Subcommand};
use serde_json::json;
use std::collections::HashSet;
use stonefold_api::{Client, Disk as Info, DiskCreate, DiskResize, DiskSet, DiskUsage, DomainState};
use stonefold_types::{Compression, Durability, Error, Kind, Name, Size};

/// Make, list, change, remove, import and export disks
#[derive(Subcommand)]
pub(crate) enum Disk {
    /// Make an empty disk
    #[command(after_help = "Examples:\n  \
        stonefold disk create web --size 20G\n  \
        stonefold disk create db --size 1T --durability ack --compression zstd:3")]
    Create {
        /// Its name: 1 to 128 letters, digits, '.', '_' or '-'
        name: Name,
        /// Its size as a guest sees it; it costs no space until written
        #[arg(long)]
        size: Size,
        #[command(flatten)]
        policy: Policy,
    },
    /// List all disks
    Ls,
    /// Show one disk: size, data, what it takes of the pool, settings, where clients reach it
    #[command(after_help = "Example:\n  stonefold disk show web --exact")]
    Show {
        /// The disk
        name: Name,
        /// Count what it takes of the pool now: walks its map, seconds for each ten gigabytes. Otherwise what was counted
        /// last is shown
        #[arg(long)]
        exact: bool,
    },
    /// Change a disk's settings; what is not named stays
    #[command(after_help = "Example:\n  stonefold disk set web --compression zstd:3")]
    Set {
        /// The disk
        name: Name,
        #[command(flatten)]
        change: Change,
    },
    /// Change a disk's size; clients see it when they connect again
    #[command(after_help = "Example:\n  stonefold disk resize web 40G")]
    Resize {
        /// The disk
        name: Name,
        /// The new size
        size: Size,
        /// Allow a smaller size, which throws away what lies beyond the new end
        #[arg(long)]
        shrink: bool,
    },
    /// Remove disks; clones made from them stay
    ///
    /// Refused while a client is connected, while a machine, a recovery or a source needs the disk, and while it has snapshots:
    /// --snapshots removes those, too.
    #[command(after_help = "Examples:\n  stonefold disk rm web-test\n  stonefold disk rm web --snapshots")]
    Rm {
        /// The disks
        #[arg(value_name = "NAME", required = true)]
        names: Vec<Name>,
        /// Remove their snapshots, too
        #[arg(long)]
        snapshots: bool,
        /// Also those that a machine, a recovery or a source needs, which is of no use without
        #[arg(long)]
        needed: bool,
        /// Give up disks whose heads cannot be read, with all they held: their snapshots too, locked or not, because nobody can
        /// tell. Clones of them live on. Their space comes back when the server has counted what all others refer to
        #[arg(long, conflicts_with_all = ["snapshots", "needed"])]
        damaged: bool,
    },
    Import(import::Import),
    Export(export::Export),
}

/// What a disk is made with
#[derive(Args)]
pub(crate) struct Policy {
    /// The domain it is made in, where it stays: 'stonefold domain ls' names them [default: default]
    #[arg(long, value_name = "NAME")]
    domain: Option<Name>,
    /// When writes are acknowledged: flush (at once; durable after a flush, like a disk with a volatile cache) or ack
    /// (only when durable) [default: as the server was started]
    #[arg(long, value_name = "WHEN")]
    durability: Option<Durability>,
    /// How data is compressed: lz4, zstd, zstd:1 to zstd:19, or none [default: as the domain says]
    #[arg(long, value_name = "HOW")]
    compression: Option<Compression>,
    /// Whether blocks that the domain has already are stored again: on (they are not) or off [default: as the domain says]
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    dedupe: Option<bool>,
    /// Its class of service, as 'stonefold qos ls' shows them [default: production]
    #[arg(long, value_name = "CLASS")]
    qos: Option<Name>,
    /// Keep room for its whole size, whatever it holds and the others do; refused when the pool has not enough
    #[arg(long)]
    reserve: bool,
}

/// What can be changed of a disk: at least one of it
#[derive(Args)]
#[group(required = true, multiple = true)]
pub(crate) struct Change {
    /// When writes are acknowledged: flush (at once; durable after a flush) or ack (only when durable)
    #[arg(long, value_name = "WHEN")]
    durability: Option<Durability>,
    /// How what is written from now on is compressed: lz4, zstd, zstd:1 to zstd:19, or none
    #[arg(long, value_name = "HOW")]
    compression: Option<Compression>,
    /// Whether blocks written from now on that its domain has already are stored again: on (they are not) or off
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    dedupe: Option<bool>,
    /// Its class of service, at once for whoever is connected
    #[arg(long, value_name = "CLASS")]
    qos: Option<Name>,
    /// Whether the pool keeps room for its whole size: on (refused when there is not enough) or off
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    reserve: Option<bool>,
}

impl Disk {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Disk::Create { name, size, policy } => create(context, name, size, &policy),
            Disk::Ls => list(context),
            Disk::Show { name, exact } => show(context, &name, exact),
            Disk::Set { name, change } => set(context, &name, &change),
            Disk::Resize { name, size, shrink } => resize(context, &name, size, shrink),
            Disk::Rm { names, damaged: true, .. } => give_up(context, &names),
            Disk::Rm { names, snapshots, needed, .. } => remove(context, &names, snapshots, needed),
            Disk::Import(import) => import.run(context),
            Disk::Export(export) => export.run(context),
        }
    }
}

pub(crate) fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("'{text}' is neither on nor off")),
    }
}

/// The request to make a disk.
fn wanted(name: Name, size_bytes: u64, policy: &Policy) -> DiskCreate {
    DiskCreate {
        name,
        size_bytes,
        domain: policy.domain.clone(),
        durability: policy.durability,
        compression: policy.compression,
        dedupe: policy.dedupe,
        qos: policy.qos.clone(),
        reserve: policy.reserve.then_some(true),
    }
}

fn create(context: &Context, name: Name, size: Size, policy: &Policy) -> Result<(), Failure> {
    let made = context.client()?.create_disk(&wanted(name, size.0, policy))?;
    context.answer(&made, || made_text(&made, "made"))
}

/// What is said of a new disk: how it came to be, and where it is.
pub(crate) fn made_text(disk: &Info, how: &str) -> String {
    let uris: String = disk.uris.iter().map(|uri| format!("  {uri}\n")).collect();
    format!("disk '{}', {}, {how}; clients reach it at\n{uris}", disk.name, Size(disk.size_bytes))
}

fn list(context: &Context) -> Result<(), Failure> {
    let disks = context.client()?.disks()?;
    context.answer(&disks, || {
        let mut table =
            Table::new(&["NAME", "SIZE>", "DATA>", "SNAPSHOTS>", "CLIENTS>", "MADE (UTC)", "CLONE OF"]);
        for disk in &disks {
            if disk.damaged.is_some() {
                let mut row = [const { String::new() }; 7];
                (row[0], row[1]) = (disk.name.to_string(), "damaged".into());
                table.row(row);
                continue;
            }
            table.row([
                disk.name.to_string(),
                Size(disk.size_bytes).to_string(),
                Size(disk.data_bytes()).to_string(),
                disk.snapshots.to_string(),
                disk.clients.to_string(),
                disk.created.to_seconds_text(),
                disk.origin.clone().unwrap_or_default(),
            ]);
        }
        table.or("no disks; 'stonefold disk create' or 'stonefold disk import' makes one")
    })
}

fn show(context: &Context, name: &Name, exact: bool) -> Result<(), Failure> {
    let client = context.client()?;
    if exact {
        let name = name.clone();
        wait_for(&client, "usage", move |client| client.disk_usage(&name))?;
    }
    let disk = client.disk(name)?;
    context.answer(&disk, || show_text(&disk))
}

fn show_text(disk: &Info) -> String {
    if let Some(damage) = &disk.damaged {
        return facts([
            ("name", disk.name.to_string()),
            ("damaged", damage.what.clone()),
            ("what to do", damage.remedy.clone()),
        ]);
    }
    facts([
        ("name", disk.name.to_string()),
        ("domain", format!("{}{}", disk.domain.as_ref().map_or("", Name::as_str), closed(disk).0)),
        ("size", Size(disk.size_bytes).to_string()),
        ("logical", data(disk)),
        ("unique", used(disk, |usage| usage.unique_bytes)),
        ("shared", used(disk, |usage| usage.shared_bytes)),
        ("reclaimable", used(disk, |usage| usage.reclaimable_bytes)),
        ("counted (UTC)", disk.usage.map_or_else(String::new, |usage| usage.as_of.to_seconds_text())),
        ("durability", disk.durability.to_string()),
        ("compression", disk.compression.to_string()),
        ("dedupe", if disk.dedupe { "on" } else { "off" }.to_owned()),
        ("reserved", if disk.reserve { "its whole size" } else { "" }.to_owned()),
        ("qos class", disk.qos.to_string()),
        ("qos waits", waits(disk)),
        ("latency", latency(disk)),
        ("made (UTC)", disk.created.to_seconds_text()),
        ("clone of", disk.origin.clone().unwrap_or_default()),
        ("snapshots", disk.snapshots.to_string()),
        ("clients", clients(disk)),
        ("reached at", format!("{}{}", closed(disk).1, disk.uris.join("\n"))),
    ])
}

/// How many can write, and who is connected to what.
fn clients(disk: &Info) -> String {
    let each = disk.connections.iter().map(|one| {
        let what = if one.export == disk.name.as_str() { String::new() } else { format!(", {}", one.export) };
        format!("\n{} since {}{what}", one.peer, one.since.to_seconds_text())
    });
    format!("{}{}", disk.clients, each.collect::<String>())
}

fn used(disk: &Info, of: fn(&DiskUsage) -> u64) -> String {
    disk.usage
        .as_ref()
        .map_or_else(|| "not counted; --exact counts".into(), |usage| Size(of(usage)).to_string())
}

/// What is said of a disk whose domain is not open: beside the domain, and before the URIs that do not work then.
fn closed(disk: &Info) -> (&'static str, &'static str) {
    match disk.domain_state {
        DomainState::Plain | DomainState::Open | DomainState::Unknown => ("", ""),
        DomainState::Locked => {
            (" (locked)", "nobody, until the server is started with the domain's key; then\n")
        }
        DomainState::Shredded => (" (shredded)", "nobody: its data is gone for good; it was\n"),
    }
}

/// How much data it holds, as far as that is known.
fn data(disk: &Info) -> String {
    match disk.unfolded_bytes {
        0 => Size(disk.mapped_bytes).to_string(),
        some => format!("{}, of which up to {} not yet folded", Size(disk.data_bytes()), Size(some)),
    }
}

/// How often and how long QoS let requests wait; nothing where it did not.
fn waits(disk: &Info) -> String {
    let io = disk.io.unwrap_or_default();
    if io.qos_waits == 0 {
        return String::new();
    }
    let mean_ms = io.qos_wait_us as f64 / io.qos_waits as f64 / 1000.0;
    format!("{} since the start, {mean_ms:.1} ms each", count(io.qos_waits, "request"))
}

/// What half of the requests and all but one in a hundred took at most, since the server's start.
fn latency(disk: &Info) -> String {
    let all = disk.latency.clone().unwrap_or_default();
    let kinds = [
        ("reads", &all.reads),
        ("writes", &all.writes),
        ("flushes", &all.flushes),
        ("qos waits", &all.qos_waits),
    ];
    let told = kinds.into_iter().filter(|(_, latency)| latency.count > 0);
    let told = told.map(|(what, latency)| {
        format!("{what}: p50 {}, p99 {}", micros(latency.p50_us), micros(latency.p99_us))
    });
    told.collect::<Vec<_>>().join("\n")
}

fn set(context: &Context, name: &Name, change: &Change) -> Result<(), Failure> {
    let change = DiskSet {
        durability: change.durability,
        compression: change.compression,
        dedupe: change.dedupe,
        qos: change.qos.clone(),
        reserve: change.reserve,
    };
    let disk = context.client()?.set_disk(name, &change)?;
    context.answer(&disk, || show_text(&disk))
}

fn resize(context: &Context, name: &Name, size: Size, shrink: bool) -> Result<(), Failure> {
    let disk = context.client()?.resize_disk(name, &DiskResize { size_bytes: size.0, shrink })?;
    context.answer(&disk, || {
        format!("disk '{name}' has {}; clients see it when they connect again\n", Size(disk.size_bytes))
    })
}

fn remove(context: &Context, names: &[Name], with_snapshots: bool, needed: bool) -> Result<(), Failure> {
    let client = context.client()?;
    let mut disks =
        names.iter().map(|name| client.disk(name)).collect::<stonefold_types::Result<Vec<_>>>()?;
    for disk in &disks {
        if let Some(damage) = &disk.damaged {
            return Err(Error::new(Kind::Corrupt, damage.what.clone()).remedy(damage.remedy.clone()).into());
        }
        if disk.snapshots > 0 && !with_snapshots {
            let what = format!("disk '{}' has {}", disk.name, count(disk.snapshots, "snapshot"));
            let error = Error::new(Kind::Busy, what);
            return Err(error.remedy("add --snapshots to remove them, too, as far as none is locked").into());
        }
        let connected = disk.clients.max(disk.connections.len() as u64);
        if connected > 0 {
            let peers: Vec<&str> = disk.connections.iter().map(|one| one.peer.as_str()).collect();
            let by = count(connected, "client");
            let what = format!("disk '{}' is in use by {by}: {}", disk.name, peers.join("; "));
            return Err(Error::new(Kind::Busy, what)
                .remedy("disconnect them first; nothing was removed")
                .into());
        }
    }
    if names.len() > 1 {
        let refused = refused(&client, with_snapshots, needed)?;
        // Refused, in the server's words, before any other is removed.
        disks.sort_by_key(|disk| !refused.contains(&disk.name));
    }
    remove_all(
        context,
        &disks,
        |disk| disk.name.to_string(),
        |disk| {
            let name = disk.name.clone();
            wait_for(&client, "remove", move |client| match needed {
                true => client.remove_needed_disk(&name, with_snapshots),
                false => client.remove_disk(&name, with_snapshots),
            })?;
            Ok(match disk.snapshots {
                0 => format!("removed disk '{}'\n", disk.name),
                some => format!("removed disk '{}' and its {}\n", disk.name, count(some, "snapshot")),
            })
        },
    )
}

/// The disks that the server will not remove: those with locked snapshots, where snapshots are to go, too, and those that somebody needs.
fn refused(client: &Client, with_snapshots: bool, needed: bool) -> Result<HashSet<Name>, Error> {
    let mut refused = HashSet::new();
    if with_snapshots {
        for snapshot in client.snapshots(None)? {
            refused.extend(snapshot.locked_until.map(|_| snapshot.disk));
        }
    }
    if !needed {
        let of_machines = client.machines()?.into_iter().flat_map(|machine| machine.disks);
        refused.extend(of_machines.map(|disk| disk.disk));
        let of_recoveries = client.recoveries()?.into_iter().flat_map(|recovery| recovery.disks);
        refused.extend(of_recoveries.map(|disk| disk.disk));
        refused.extend(client.sources()?.into_iter().flat_map(|source| source.disks));
    }
    Ok(refused)
}

/// Removes disks whose heads cannot be read.
fn give_up(context: &Context, names: &[Name]) -> Result<(), Failure> {
    let client = context.client()?;
    remove_all(context, names, Name::to_string, |name| {
        client.give_up_disk(name)?;
        Ok(format!("gave up disk '{name}'; its space comes back once all others are counted anew\n"))
    })
}

/// Removes one after the other, and answers with what is gone, also when one of them fails.
pub(crate) fn remove_all<T>(
    context: &Context,
    all: &[T],
    name: impl Fn(&T) -> String,
    mut remove: impl FnMut(&T) -> stonefold_types::Result<String>,
) -> Result<(), Failure> {
    let (mut removed, mut text) = (Vec::new(), String::new());
    let mut outcome = Ok(());
    for one in all {
        match remove(one) {
            Ok(line) => text.push_str(&line),
            Err(error) => {
                outcome = Err(error);
                break;
            }
        }
        removed.push(name(one));
    }
    if outcome.is_ok() || !removed.is_empty() {
        context.answer(&json!({ "removed": removed }), || text)?;
    }
    outcome.map_err(Failure::from)
}
