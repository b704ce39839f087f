//! Makes a pool with a large disk that is mapped and not written: see `stonefold_bench::terabyte`. Prints one JSON document.

use anyhow::{Context, Result};
use clap::Parser;
use serde_json::json;
use std::sync::Arc;
use stonefold_bench::terabyte::{self, Plan};
use stonefold_engine::{Engine, FileEngine, FileOptions};
use stonefold_env::{Env, SystemWorld};
use stonefold_store::{Options, Store};
use stonefold_types::Size;

/// Makes a pool with a large disk that is mapped and not written, and snapshots between rounds of changes.
#[derive(Parser)]
struct Arguments {
    /// An empty directory, or one that is to be made.
    pool: String,
    /// The disk's size.
    #[arg(long, default_value = "1T")]
    size: Size,
    /// Unique bytes that are really stored.
    #[arg(long, default_value = "4G")]
    stock: Size,
    /// Bytes of these in one segment.
    #[arg(long, default_value = "2M")]
    segment: Size,
    /// Snapshots taken.
    #[arg(long, default_value_t = 100)]
    snapshots: u64,
    /// Blocks changed at random before each.
    #[arg(long, default_value_t = 4096)]
    changes: u64,
    /// The same pool for the same seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(make(&arguments))
}

async fn make(arguments: &Arguments) -> Result<()> {
    let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1)?);
    let since = env.monotonic();
    let engine: Arc<dyn Engine> =
        Arc::new(FileEngine::open(env.clone(), FileOptions::new(&arguments.pool)).await?);
    let store = Store::open(env.clone(), engine, Options::default()).await?;
    let plan = Plan {
        size_bytes: arguments.size.0,
        stock_bytes: arguments.stock.0,
        segment_bytes: arguments.segment.0,
        snapshots: arguments.snapshots,
        changed_blocks: arguments.changes,
        seed: arguments.seed,
    };
    let elapsed = || (env.monotonic() - since).as_secs_f64();
    let made = terabyte::make(&env, &store, &plan, |what| eprintln!("[{:6.1} s] {what}", elapsed())).await?;
    let status = store.status().await?;
    store.close().await.context("closing the pool")?;
    let slots = made.stock_blocks / made.stock_segments;
    let told = json!({
        "size_bytes": plan.size_bytes,
        "snapshots": plan.snapshots,
        "stock_blocks": made.stock_blocks,
        "stock_segments": made.stock_segments,
        "map_nodes": made.map_nodes,
        "used_bytes": status.used_bytes,
        "leaf_bytes": terabyte::leaf_bytes(made.stock_segments, slots, plan.seed),
        "real_leaf_bytes": terabyte::real_leaf_bytes(plan.seed),
        "seconds": elapsed(),
    });
    println!("{told}");
    Ok(())
}
