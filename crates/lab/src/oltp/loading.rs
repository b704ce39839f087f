//! Making the database that every step begins with, and restoring it.
//!
//! *Promises*: what is loaded is durable, vacuumed and analysed before it is copied for the first time, and each copy is byte for
//! byte that. *Method*: COPY by several connections into tables without indexes, unsynced, with the log at its least; then the
//! indexes; then a stop in good order, and a sync of the file system. A step gets a copy of the files of the stopped cluster:
//! `CREATE DATABASE … TEMPLATE` copies the same bytes, but leaves the log, the transaction numbers and the buffers where the step
//! before had got to, so that steps would not begin alike.

use super::populate::Population;
use super::schema::{KEYS, TABLES};
use super::server::{Host, Server};
use super::tools::{command, run};
use super::users::told;
use crate::measure::{Doing, Reins};
use postgres::Client;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use stonefold_types::{Error, Kind, Result};

/// Connections that load, at most: each holds the orders of a warehouse in memory, some 25 MB.
const LOADERS_MAX: usize = 8;
/// Sent at once.
const COPY_BYTES: usize = 64 << 10;
/// While it is loaded nothing needs to survive: a load that fails is begun anew.
const SETTINGS: [(&str, &str); 12] = [
    ("fsync", "off"),
    ("synchronous_commit", "off"),
    ("full_page_writes", "off"),
    ("wal_level", "minimal"),
    ("max_wal_senders", "0"),
    ("max_wal_size", "512MB"),
    ("checkpoint_timeout", "1h"),
    ("autovacuum", "off"),
    ("maintenance_work_mem", "128MB"),
    ("max_parallel_maintenance_workers", "1"),
    ("jit", "off"),
    ("max_connections", "40"),
];

/// Makes a cluster in `data`, with the database in it, stopped.
pub(super) fn load(
    host: &Host<'_>,
    data: &Path,
    population: &Population,
    warehouses: u32,
    reins: &Reins,
) -> Result<()> {
    host.init(data, reins)?;
    let settings: Vec<(String, String)> =
        SETTINGS.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let mut server = host.start(data, &settings)?;
    let loaded = fill(&server, population, warehouses, reins);
    if let Err(error) = loaded {
        // Its end says more than the connections that it broke.
        return Err(server
            .ended()
            .map_or(error, |status| server.died(status))
            .context("loading the database"));
    }
    server.stop()?;
    settle(data)
}

fn fill(server: &Server, population: &Population, warehouses: u32, reins: &Reins) -> Result<()> {
    let mut client = server.connect()?;
    client.batch_execute(TABLES).map_err(|e| failed("making the tables", &e))?;
    let doing = |what: &str| Doing { what: what.into(), ..Doing::default() };
    reins.begin(doing(&format!("loading {warehouses} warehouse{}", if warehouses == 1 { "" } else { "s" })));
    copy(&mut client, "item", |out| population.items(out))?;
    let loaders = crate::machine::cores().clamp(1, LOADERS_MAX).min(warehouses as usize);
    let next = AtomicU32::new(1);
    together(server, loaders, |client| {
        loop {
            let warehouse = next.fetch_add(1, Ordering::Relaxed);
            if warehouse > warehouses {
                return Ok(());
            }
            load_warehouse(client, population, warehouse, reins)?;
        }
    })?;
    reins.begin(doing("making the indexes"));
    let next = AtomicUsize::new(0);
    together(server, loaders, |client| {
        loop {
            let Some(key) = KEYS.get(next.fetch_add(1, Ordering::Relaxed)) else { return Ok(()) };
            check(reins)?;
            client.batch_execute(key).map_err(|e| failed("making an index", &e))?;
        }
    })?;
    reins.begin(doing("vacuuming and analysing"));
    check(reins)?;
    client.batch_execute("VACUUM (FREEZE, ANALYZE)").map_err(|e| failed("vacuuming", &e))?;
    client.batch_execute("CHECKPOINT").map_err(|e| failed("writing a checkpoint", &e))
}

fn load_warehouse(client: &mut Client, population: &Population, warehouse: u32, reins: &Reins) -> Result<()> {
    check(reins)?;
    copy(client, "warehouse", |out| population.warehouse(warehouse, out))?;
    copy(client, "district", |out| population.districts(warehouse, out))?;
    copy(client, "stock", |out| population.stock(warehouse, out))?;
    check(reins)?;
    copy(client, "customer", |out| population.customers(warehouse, out))?;
    copy(client, "history", |out| population.history(warehouse, out))?;
    check(reins)?;
    let orders = population.orders(warehouse).map_err(|e| Error::io("drawing orders", e))?;
    copy(client, "orders", |out| out.write_all(&orders.orders))?;
    copy(client, "new_order", |out| out.write_all(&orders.open))?;
    copy(client, "order_line", |out| out.write_all(&orders.lines))
}

/// Rows for one table; what the server has against them is told at the end of it.
fn copy(
    client: &mut Client,
    table: &str,
    write: impl FnOnce(&mut BufWriter<postgres::CopyInWriter<'_>>) -> io::Result<()>,
) -> Result<()> {
    let doing = format!("loading table {table}");
    let writer = client.copy_in(&format!("COPY {table} FROM STDIN")).map_err(|e| failed(&doing, &e))?;
    let mut out = BufWriter::with_capacity(COPY_BYTES, writer);
    let written = write(&mut out);
    let writer = match written.and_then(|()| out.into_inner().map_err(io::IntoInnerError::into_error)) {
        Ok(writer) => writer,
        Err(error) => return Err(of_server(&doing, error)),
    };
    writer.finish().map(drop).map_err(|e| failed(&doing, &e))
}

/// What a write to the server failed with: its own words are within the error.
fn of_server(doing: &str, error: io::Error) -> Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<postgres::Error>()) {
        Some(inner) => failed(doing, inner),
        None => Error::io(doing.to_owned(), error),
    }
}

/// Several threads, each with a connection; the first error is what is told.
fn together(server: &Server, many: usize, work: impl Fn(&mut Client) -> Result<()> + Sync) -> Result<()> {
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..many)
            .map(|number| {
                let run = move || work(&mut server.connect()?);
                std::thread::Builder::new().name(format!("loader-{number}")).spawn_scoped(scope, run)
            })
            .collect();
        let ended = threads.into_iter().map(|thread| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(error) => Err(Error::io("starting a thread that loads", error)),
        });
        // All are waited for, whatever the first of them says.
        let ended: Vec<Result<()>> = ended.collect();
        ended.into_iter().collect()
    })
}

/// Puts a copy of the loaded cluster in the place of the one that the last step has left.
pub(super) fn restore(host: &Host<'_>, loaded: &Path, data: &Path, reins: &Reins) -> Result<()> {
    if data.exists() {
        fs::remove_dir_all(data).map_err(|e| Error::io(format!("removing '{}'", data.display()), e))?;
    }
    // Copied in full: blocks that both shared would make the first write to each another than it is else.
    let mut cp = command("cp", host.user);
    cp.args(["-a", "--reflink=never", "--sparse=never"]).arg(loaded).arg(data);
    run(&mut cp, Some(reins)).map_err(|e| e.context("restoring the database"))?;
    settle(data)
}

/// Everything durable, and nothing of it in the page cache: each step begins cold.
fn settle(data: &Path) -> Result<()> {
    let failed = |e| Error::io(format!("syncing '{}'", data.display()), e);
    let folder = fs::File::open(data).map_err(failed)?;
    rustix::fs::syncfs(&folder).map_err(|e| failed(e.into()))?;
    let forget = |path: &Path| {
        let file = fs::File::open(path)?;
        Ok(rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?)
    };
    each_file(data, &mut |path, _| forget(path)).map_err(failed)
}

/// Bytes of a cluster's files, without its log.
pub(super) fn bytes(data: &Path) -> Result<u64> {
    let mut sum = 0;
    let log = data.join("pg_wal");
    let add = &mut |path: &Path, meta: &fs::Metadata| {
        sum += if path.starts_with(&log) { 0 } else { meta.len() };
        Ok(())
    };
    each_file(data, add).map_err(|e| Error::io(format!("looking through '{}'", data.display()), e))?;
    Ok(sum)
}

fn each_file(folder: &Path, act: &mut dyn FnMut(&Path, &fs::Metadata) -> io::Result<()>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        match meta.is_dir() {
            true => each_file(&entry.path(), act)?,
            false if meta.is_file() => act(&entry.path(), &meta)?,
            false => {}
        }
    }
    Ok(())
}

pub(super) fn check(reins: &Reins) -> Result<()> {
    match reins.is_stopped() {
        true => Err(Error::new(Kind::Closed, "interrupted")),
        false => Ok(()),
    }
}

pub(super) fn failed(doing: &str, error: &postgres::Error) -> Error {
    let no_space = error.code() == Some(&postgres::error::SqlState::DISK_FULL);
    let failed =
        Error::new(if no_space { Kind::NoSpace } else { Kind::Io }, format!("{doing}: {}", told(error)));
    match no_space {
        true => failed.remedy("name a larger target, or fewer warehouses"),
        false => failed,
    }
}
