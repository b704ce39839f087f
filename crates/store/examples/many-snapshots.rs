//! Takes many snapshots of one disk, opens the pool again, removes some, and tells what it took. Run by `bench/snapshots/run`.

use std::sync::Arc;
use std::time::Duration;
use stonefold_engine::{Engine, FileEngine, FileOptions};
use stonefold_env::{Env, SystemWorld};
use stonefold_store::{Options, Store};
use stonefold_types::{DiskSettings, Error, Kind, Name, Result, SnapshotName};

/// Snapshots told of together.
const LAP: usize = 10_000;
/// Snapshots removed in the end, one by one, evenly over all.
const REMOVED: usize = 1000;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, count] = &arguments[..] else {
        return Err(Error::new(Kind::Invalid, "give a directory and a count"));
    };
    let count = count.parse().map_err(|_| Error::new(Kind::Invalid, "the count is no number"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime is made").block_on(measure(dir, count))
}

async fn open(env: &Env, dir: &str) -> Result<Arc<Store>> {
    let engine: Arc<dyn Engine> = loop {
        match FileEngine::open(env.clone(), FileOptions::new(dir)).await {
            // The tasks of a store that was closed let go of it a moment later.
            Err(error) if error.kind() == Kind::Busy => env.sleep(Duration::from_millis(1)).await,
            opened => break Arc::new(opened?),
        }
    };
    let options = Options { cache_bytes: 64 << 20, ..Options::default() };
    Store::open(env.clone(), engine, options).await
}

async fn measure(dir: &str, count: usize) -> Result<()> {
    let world = SystemWorld::new(tokio::runtime::Handle::current(), 1);
    let env = Env::new(world.map_err(|e| Error::io("starting the workers", e))?);
    let name = Name::new("web")?;
    let store = open(&env, dir).await?;
    store.create_disk(&name, 1 << 30, DiskSettings::default()).await?;
    println!("  after    p50 us  p99 us  max us   memory MiB     rounds of the fold");
    take(&env, &store, &name, count).await?;
    store.close().await?;
    drop(store);
    let since = env.monotonic();
    let store = open(&env, dir).await?;
    println!("opened again in {} ms, {} MiB of memory", (env.monotonic() - since).as_millis(), memory());
    remove(&env, &store, &name, count).await?;
    store.close().await
}

async fn take(env: &Env, store: &Arc<Store>, name: &Name, count: usize) -> Result<()> {
    let disk = store.attach(&name.as_str().parse()?)?;
    let mut took = Vec::new();
    for at in 0..count {
        if at % 10 == 0 {
            disk.write((at % 4096 * 4096) as u64, &at.to_le_bytes().repeat(512), false).await?;
        }
        let since = env.monotonic();
        store.snapshot(std::slice::from_ref(name), Some(Name::new(&format!("s{at}"))?)).await?;
        took.push(env.monotonic() - since);
        if (at + 1) % LAP == 0 {
            tell(store, at + 1, &mut took).await?;
        }
    }
    Ok(())
}

async fn tell(store: &Store, at: usize, took: &mut Vec<Duration>) -> Result<()> {
    took.sort_unstable();
    let part = |percent: usize| took[(took.len() - 1) * percent / 100].as_micros();
    let status = store.status().await?;
    let rounds =
        status.counters.iter().find(|(name, _, _)| *name == "fold_rounds").map_or(0, |found| found.2);
    println!(
        "{at:7} {:9} {:7} {:7} {:12} {rounds:10}, {} MiB in the pool",
        part(50),
        part(99),
        part(100),
        memory(),
        status.used_bytes >> 20
    );
    took.clear();
    Ok(())
}

async fn remove(env: &Env, store: &Store, name: &Name, count: usize) -> Result<()> {
    let mut took = Vec::new();
    for at in (0..count).step_by((count / REMOVED).max(1)) {
        let snapshot = SnapshotName { disk: name.clone(), snapshot: Name::new(&format!("s{at}"))? };
        let since = env.monotonic();
        store.remove_snapshot(&snapshot).await?;
        took.push(env.monotonic() - since);
    }
    took.sort_unstable();
    let part = |percent: usize| took[(took.len() - 1) * percent / 100].as_micros();
    println!("removed {}: p50 {} us, p99 {} us", took.len(), part(50), part(99));
    let since = env.monotonic();
    store.reclaim().await?;
    println!("given back in {} ms, {} MiB of memory", (env.monotonic() - since).as_millis(), memory());
    Ok(())
}

/// What the process holds in memory, in MiB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}
