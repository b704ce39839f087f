//! The data thread: the doors, the store's tasks and the engine's ring on one runtime.

use crate::doors::{Door, Doors};
use crate::{Config, engines};
use std::sync::Arc;
use stonefold_engine::uring;
use stonefold_env::{Env, SystemWorld};
use stonefold_nbd::{Metrics, Server};
use stonefold_store::{Options, Store};
use stonefold_types::{Error, Result};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{oneshot, watch};

/// What the other threads get from it once everything is open.
pub(crate) struct Opened {
    pub(crate) env: Env,
    pub(crate) store: Arc<Store>,
    pub(crate) doors: Vec<Door>,
    pub(crate) nbd: Arc<Metrics>,
}

/// Runs a server's data side to its end: opens, tells `opened`, serves until `stop`, closes the store.
/// A failure to open is told through `opened`, one to close is returned.
pub(crate) fn run(
    config: &Config,
    opened: oneshot::Sender<Result<Opened>>,
    stop: watch::Receiver<bool>,
) -> Result<()> {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => {
            let _ = opened.send(Err(Error::io("starting the data thread's runtime", e)));
            return Ok(());
        }
    };
    runtime.block_on(async {
        let (doors, env, store) = match open(config).await {
            Ok(all) => all,
            Err(error) => {
                let _ = opened.send(Err(error));
                return Ok(());
            }
        };
        let server = Server::new(env.clone(), store.clone());
        let (addresses, nbd) = (doors.addresses(), server.metrics().clone());
        // Whoever waits may have given up; then `stop` says so at once.
        let _ = opened.send(Ok(Opened { env, store: store.clone(), doors: addresses, nbd }));
        doors.serve(&server, stop).await;
        tracing::info!("doors are closed; folding what the journal holds");
        store.close().await?;
        tracing::info!("stopped; everything is folded");
        Ok(())
    })
}

async fn open(config: &Config) -> Result<(Doors, Env, Arc<Store>)> {
    let world = SystemWorld::new(Handle::current(), workers())
        .map_err(|e| Error::io("starting the worker threads", e))?;
    let env = Env::new(world);
    // Addresses first: a port in use is found before the pool is touched.
    let doors = Doors::bind(&config.nbd).await?;
    if let Err(error) = uring::install() {
        tracing::warn!("{error}");
    }
    tracing::info!("opening the pool {}", config.pool);
    let engine = engines::open(&config.pool, config.degraded, &env).await?;
    tracing::info!("the pool is {}", engine.describe());
    let store = Store::open(env.clone(), engine, options(config)).await?;
    Ok((doors, env, store))
}

fn options(config: &Config) -> Options {
    Options { cache_bytes: config.cache_bytes, journal_bytes_max: config.journal_bytes_max }
}

/// One core is the data thread's; the fold's jobs get the others.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().saturating_sub(1).max(1))
}
