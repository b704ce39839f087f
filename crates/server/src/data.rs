//! The data thread: the doors, the store's tasks and the engine's ring on one runtime; how they end.

use crate::access::Access;
use crate::doors::{Door, Doors, reach};
use crate::keys::KeySource;
use crate::{ApiAddress, Config, descriptors, durability, engines, hooks, memory};
use futures::future::BoxFuture;
use futures::future::select;
use std::sync::Arc;
use std::time::Duration;
use stonefold_engine::uring;
use stonefold_env::{Env, SystemWorld};
use stonefold_nbd::{Metrics, Server, Tls};
use stonefold_protect::proofs::due;
use stonefold_protect::{Pools, Protection, rounds};
use stonefold_store::{Keys, Options, Store};
use stonefold_tls::Acceptor;
use stonefold_types::{Error, Kind, Result};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{oneshot, watch};

/// How long a stop waits, with doors open, for everything to be folded: a full journal on a slow disk. What is left is replayed.
const LAST_FOLD_MAX: Duration = Duration::from_secs(20);

/// What the other threads get from it once everything is open.
pub(crate) struct Opened {
    pub(crate) env: Env,
    pub(crate) store: Arc<Store>,
    pub(crate) api_tls: Option<Acceptor>,
    pub(crate) access: Arc<Access>,
    pub(crate) protection: Arc<Protection>,
    pub(crate) doors: Vec<Door>,
    pub(crate) nbd: Arc<Metrics>,
}

/// Tasks that run at most before it is looked what sockets, the engine's ring and the clock have: while tasks wake each other nobody
/// else would look, and some tasks of the fold run for a millisecond.
const TASKS_IN_A_ROW: u32 = 8;

/// How long copies may take to give back what they read.
const LAST_COPIES_MAX: Duration = Duration::from_secs(15);

/// Runs a server's data side to its end: opens, tells `opened`, serves until `stop`, folds, closes the doors, leaves the store.
/// A failure to open is told through `opened`, one to close is returned.
pub(crate) fn run(
    config: &Config,
    opened: oneshot::Sender<Result<Opened>>,
    stop: watch::Receiver<bool>,
) -> Result<()> {
    let runtime = match Builder::new_current_thread().enable_all().event_interval(TASKS_IN_A_ROW).build() {
        Ok(runtime) => runtime,
        Err(e) => {
            let _ = opened.send(Err(Error::io("starting the data thread's runtime", e)));
            return Ok(());
        }
    };
    runtime.block_on(async {
        let (doors, server, all) = match open(config).await {
            Ok(all) => all,
            Err(error) => {
                let _ = opened.send(Err(error));
                return Ok(());
            }
        };
        let (env, store) = (all.env.clone(), all.store.clone());
        let protection = Arc::downgrade(&all.protection);
        // Whoever waits may have given up; then `stop` says so at once.
        let _ = opened.send(Ok(all));
        let (close, closing) = watch::channel(false);
        let told = async {
            let mut stop_copies = stop.clone();
            let copies = async {
                let _ = stop_copies.wait_for(|stop| *stop).await;
                if let Some(protection) = protection.upgrade() {
                    protection.end_copies(LAST_COPIES_MAX).await;
                }
            };
            futures::join!(fold_before_closing(&env, &store, stop), copies);
            // The doors may have ended by themselves.
            let _ = close.send(true);
        };
        futures::join!(doors.serve(&server, closing), told);
        tracing::info!("doors are closed");
        store.leave().await?;
        tracing::info!("stopped; what came while it folded for the last time is in the journal");
        Ok(())
    })
}

/// Once told to stop, has everything folded while clients go on: so they are kept waiting for the journal's last sync and for
/// nothing else, and the next start has little to replay.
async fn fold_before_closing(env: &Env, store: &Arc<Store>, mut stop: watch::Receiver<bool>) {
    // A sender that is gone means stop, too.
    let _ = stop.wait_for(|stop| *stop).await;
    tracing::info!("folding what the journal holds; doors close when that is done");
    let (tell, told) = oneshot::channel();
    let of_fold = store.clone();
    // A task of its own, because a round is not broken off by dropping it: leaving tells it to end.
    env.spawn("last fold", async move {
        if let Err(error) = of_fold.fold_everything().await {
            tracing::warn!("what the journal holds stays there for the next start: {error}");
        }
        let _ = tell.send(());
    });
    select(told, env.sleep(LAST_FOLD_MAX)).await;
}

async fn open(config: &Config) -> Result<(Doors, Server<Arc<Store>>, Opened)> {
    let world = SystemWorld::new(Handle::current(), workers())
        .map_err(|e| Error::io("starting the worker threads", e))?;
    let env = Env::new(world);
    // Before the engine, which reckons with what there is.
    let open_files_max = descriptors::raise();
    // Certificates and addresses first: a mistake is found before the pool is touched.
    let (tls, api_tls) = tls(config, &env)?;
    let doors = Doors::bind(&config.nbd, tls.as_ref()).await?;
    if let Err(error) = uring::install() {
        tracing::warn!("{error}");
    }
    tracing::info!("opening the pool {}", config.pool);
    let keys = config.keys.read()?;
    let networked = config.api.iter().any(ApiAddress::is_networked);
    if networked && !config.own && !engines::is_made(&config.pool, &env).await? {
        // A pool that is yet to be made has no token. Refused now, because afterwards it would be there.
        Access::new(stonefold_store::Tokens::default(), networked)?;
    }
    let engine = engines::open(&config.pool, config.degraded, config.own, &env).await?;
    tracing::info!("the pool is {}", engine.describe());
    let store = Store::open(env.clone(), engine, options(config, keys)).await?;
    memory::watch(&env, &store, config.journal_bytes_max);
    let access = match access(config, &store).await {
        Ok(access) => access,
        Err(error) => {
            store.close().await?;
            return Err(error);
        }
    };
    durability::warn_of_disks(&config.nbd, config.durability, &store.disks());
    let server = Server::new(env.clone(), store.clone())
        .with_connections_max(descriptors::for_clients(open_files_max));
    let (open, nbd) = (doors.opened(), server.metrics().clone());
    let protection = protection(config, &env, &store, &open);
    Ok((doors, server, Opened { env, store, api_tls, access, protection, doors: open, nbd }))
}

/// Memory of another pool's caches, and for what it has not folded: it is written once and read once.
const OTHER_POOL_BYTES: u64 = 64 << 20;

/// Opens the pools that points are sent to.
struct OtherPools {
    env: Env,
    /// The URL of the pool that this server serves, which is no other.
    own: String,
    keys: KeySource,
}

impl Pools for OtherPools {
    fn check(&self, url: String) -> BoxFuture<'static, Result<()>> {
        let (env, own) = (self.env.clone(), self.own.clone());
        // A place that hangs keeps no guest waiting.
        Box::pin(async move { env.offload(move || engines::check_not_own(&url, &own)).await })
    }

    fn open(&self, url: String, make: bool) -> BoxFuture<'static, Result<Arc<Store>>> {
        let (env, keys) = (self.env.clone(), self.keys.clone());
        Box::pin(async move {
            engines::check_other(&url)?;
            // A key service that is slow keeps no guest waiting.
            let keys = env.offload(move || keys.read()).await;
            if !make && !engines::is_made(&url, &env).await? {
                let what = "there is no pool, where points were sent before";
                let error = Error::new(Kind::NotFound, what);
                return Err(error.remedy("look whether its disk is there, and mounted"));
            }
            let engine = engines::open(&url, false, !make, &env).await?;
            let options = Options {
                cache_bytes: OTHER_POOL_BYTES,
                journal_bytes_max: OTHER_POOL_BYTES,
                keys: keys?,
                scrub_period: None,
                ..Options::default()
            };
            Store::open(env, engine, options).await
        })
    }
}

/// What an earlier server left in its midst is ended beside the doors, which need not wait for it; then what policies say is done, as long as
/// the server lives. One that only looks at a pool leaves it as it is.
fn protection(config: &Config, env: &Env, store: &Arc<Store>, open: &[Door]) -> Arc<Protection> {
    let protection = Protection::with_hypervisors(env.clone(), store.clone(), config.hypervisors.clone());
    if let Some(bandwidth) = config.copy_bandwidth {
        protection.copies_at_most(bandwidth);
    }
    if !config.own {
        hooks::listen(config, env, &protection);
        protection.opens_pools(Arc::new(OtherPools {
            env: env.clone(),
            own: config.pool.clone(),
            keys: config.keys.clone(),
        }));
        let at_start = protection.clone();
        env.spawn("what was left", async move { at_start.go_on_moving().await });
        if let Some(reach) = reach(open) {
            protection.is_reached(reach.clone());
            env.spawn("proofs", due::keep(env.clone(), Arc::downgrade(&protection), reach));
        }
        let (at_start, rounds) = (protection.clone(), rounds::keep(env.clone(), Arc::downgrade(&protection)));
        env.spawn("policies", async move {
            at_start.go_on_copying().await;
            rounds.await;
        });
    }
    protection
}

/// For NBD and for the API, whose clients have tokens and not certificates.
fn tls(config: &Config, env: &Env) -> Result<(Option<Tls>, Option<Acceptor>)> {
    let Some(tls) = &config.tls else { return Ok((None, None)) };
    let acceptor = Acceptor::new(&tls.files, tls.client_ca.as_deref(), env)?;
    let api = Acceptor::new(&tls.files, None, env)?;
    Ok((Some(Tls { acceptor, mode: tls.mode }), Some(api)))
}

async fn access(config: &Config, store: &Store) -> Result<Arc<Access>> {
    if config.forget_tokens {
        store.forget_tokens().await?;
        tracing::warn!("all tokens of the API were removed, as told");
    }
    if config.own {
        return Access::new(stonefold_store::Tokens::default(), false);
    }
    let unreadable = |e: Error| e.remedy("serve it with --forget-tokens, which removes them all");
    let tokens = store.tokens().await.map_err(unreadable)?;
    Access::new(tokens, config.api.iter().any(ApiAddress::is_networked))
}

fn options(config: &Config, keys: Keys) -> Options {
    let (cache_bytes, journal_bytes_max) = (config.cache_bytes, config.journal_bytes_max);
    let scrub_period =
        (config.scrub_days > 0).then(|| Duration::from_secs(u64::from(config.scrub_days) * 86_400));
    Options { cache_bytes, journal_bytes_max, keys, scrub_period, ..Options::default() }
}

/// One core is the data thread's; the fold's jobs get the others.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().saturating_sub(1).max(1))
}
