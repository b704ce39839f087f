//! The API over HTTP. Handlers only translate; what they ask of the store that does I/O goes through the gate.

mod answer;
mod backups;
mod cache;
mod directories;
mod disks;
mod domains;
mod guard;
mod listen;
mod machines;
mod migrations;
mod points;
mod policies;
mod pool;
mod proofs;
mod qos;
mod recoveries;
mod secret;
mod snapshots;
mod tokens;
mod traces;

pub(crate) use listen::{ApiListener, run};

use crate::access::Access;
use crate::data::Opened;
use crate::doors::Door;
use crate::gate::Gate;
use crate::{Config, Ready, VERSION, suggest};
use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::{delete, get, post};
use std::sync::Arc;
use stonefold_api::{Server, Time, document, paths};
use stonefold_env::Env;
use stonefold_nbd::Metrics;
use stonefold_protect::Protection;
use stonefold_types::{Durability, Error, ExportName, Kind, Name, Result};
use tokio::sync::watch;

/// What every handler sees.
pub(crate) struct App {
    gate: Gate,
    access: Arc<Access>,
    protection: Arc<Protection>,
    doors: Vec<Door>,
    nbd: Arc<Metrics>,
    durability: Durability,
    server: Server,
}

impl App {
    pub(crate) fn new(config: &Config, ready: &Ready, opened: &Opened) -> Arc<Self> {
        let server = Server {
            version: VERSION.to_owned(),
            pool: ready.pool.clone(),
            nbd: ready.nbd.clone(),
            api: ready.api.clone(),
            started: Time::from_nanos(opened.env.wall()),
        };
        Arc::new(App {
            gate: Gate::new(opened.env.clone(), opened.store.clone()),
            access: opened.access.clone(),
            protection: opened.protection.clone(),
            doors: opened.doors.clone(),
            nbd: opened.nbd.clone(),
            durability: config.durability,
            server,
        })
    }

    /// To an error about a name that does not exist, adds the one that was probably meant.
    fn hint<T>(&self, export: &ExportName, result: Result<T>) -> Result<T> {
        result.map_err(|error| match error.kind() {
            Kind::NotFound => match self.meant(export) {
                Some(meant) => error.remedy(format!("write '{meant}', if that was meant")),
                None => error,
            },
            _ => error,
        })
    }

    fn meant(&self, export: &ExportName) -> Option<String> {
        let store = self.gate.store();
        let disks = store.disks();
        let near = suggest::nearest(export.disk().as_str(), disks.iter().map(|disk| disk.name.as_str()));
        let disk: &Name = match near {
            Some(near) if !disks.iter().any(|disk| disk.name == *export.disk()) => {
                &disks.iter().find(|disk| disk.name.as_str() == near)?.name
            }
            _ => export.disk(),
        };
        let ExportName::Snapshot(asked) = export else {
            return (disk != export.disk()).then(|| disk.to_string());
        };
        let snapshots = store.snapshots(Some(disk)).ok()?;
        let names: Vec<&str> = snapshots.iter().map(|snapshot| snapshot.name.snapshot.as_str()).collect();
        let asked = asked.snapshot.as_str();
        let near = if names.contains(&asked) { Some(asked) } else { suggest::nearest(asked, names) };
        near.map(|near| format!("{disk}@{near}")).filter(|meant| *meant != export.to_string())
    }
}

type Shared = axum::extract::State<Arc<App>>;

/// What an answer needs that goes on for as long as the server does.
#[derive(Clone)]
struct Life {
    env: Env,
    /// Turns true when the server stops.
    stop: watch::Receiver<bool>,
}

/// All the paths of the API.
fn router(app: Arc<App>, life: Life) -> Router {
    Router::new()
        .route(paths::HEALTH, get(|| async { "ok\n" }))
        .route(paths::METRICS, get(pool::metrics))
        .route(paths::OPENAPI, get(|| async { axum::Json(document()) }))
        .route(paths::SERVER, get(pool::server))
        .route(paths::POOL, get(pool::status))
        .route(paths::POOL_RECLAIM, post(pool::reclaim))
        .route(paths::POOL_CHECK, post(pool::check))
        .route(paths::POOL_SALVAGE, post(pool::salvage))
        .route(paths::POOL_SCRUB, post(pool::scrub))
        .route(paths::POOL_CONFIRM_TIME, post(pool::confirm_time))
        .route(paths::POOL_DIRECTORIES, post(directories::add))
        .route(paths::POOL_DIRECTORIES_DRAIN, post(directories::drain))
        .route(paths::POOL_DIRECTORIES_REPLACE, post(directories::replace))
        .route(paths::POOL_DIRECTORIES_CANCEL, post(directories::cancel))
        .route(paths::CACHE, get(cache::status).patch(cache::resize))
        .route(paths::CACHE_DROP, post(cache::empty))
        .route(paths::CACHE_WARM, post(cache::warm))
        .route(paths::DISKS, get(disks::list).post(disks::create))
        .route(paths::DISK, get(disks::show).patch(disks::set).delete(disks::remove))
        .route(paths::DISK_RESIZE, post(disks::resize))
        .route(paths::DISK_USAGE, post(disks::usage))
        .route(paths::DISK_FLUSH, post(disks::flush))
        .route(paths::DISK_GIVE_UP, post(disks::give_up))
        .route(paths::DISK_TRACE, post(traces::start).delete(traces::stop))
        .route(paths::TRACES, get(traces::list))
        .route(paths::SNAPSHOTS, get(snapshots::list).post(snapshots::create))
        .route(paths::SNAPSHOT, get(snapshots::show).delete(snapshots::remove))
        .route(paths::SNAPSHOT_DIFF, get(snapshots::diff))
        .route(paths::SNAPSHOT_CLONE, post(snapshots::clone))
        .route(paths::SNAPSHOT_ROLLBACK, post(snapshots::rollback))
        .route(paths::SNAPSHOT_LOCK, post(snapshots::lock))
        .route(paths::DOMAINS, get(domains::list).post(domains::create))
        .route(paths::DOMAIN, get(domains::show).patch(domains::set).delete(domains::remove))
        .route(paths::DOMAIN_ROTATE, post(domains::rotate))
        .route(paths::DOMAIN_SHRED, post(domains::shred))
        .route(paths::DOMAIN_EXPORT_KEY, post(domains::export))
        .route(paths::MASTER_KEY, post(domains::rewrap))
        .route(paths::TOKENS, get(tokens::list).post(tokens::create))
        .route(paths::TOKEN, delete(tokens::remove))
        .route(paths::QOS, get(qos::list).post(qos::create))
        .route(paths::QOS_CLASS, get(qos::show).patch(qos::set).delete(qos::remove))
        .route(paths::MACHINES, get(machines::list).post(machines::create))
        .route(paths::MACHINE, get(machines::show).patch(machines::set).delete(machines::remove))
        .route(paths::MACHINE_SNAPSHOT, post(machines::snapshot))
        .route(paths::MACHINE_CLONE, post(machines::clone))
        .route(paths::MACHINE_SYNC, post(machines::sync))
        .route(paths::MACHINE_STATS, get(machines::stats))
        .route(paths::MACHINE_USAGE, post(machines::usage))
        .route(paths::SOURCES, get(backups::list_sources).post(backups::create_source))
        .route(paths::SOURCE, get(backups::show_source).delete(backups::remove_source))
        .route(paths::RUNS, get(backups::list).post(backups::start))
        .route(paths::RUN, get(backups::show))
        .route(paths::RUN_PAUSE, post(backups::pause))
        .route(paths::RUN_RESUME, post(backups::resume))
        .route(paths::RUN_CANCEL, post(backups::cancel))
        .route(paths::POINTS, get(points::list))
        .route(paths::POINT, get(points::show).delete(points::remove))
        .route(paths::POINT_LOCK, post(points::lock))
        .route(paths::POINT_DIFF, get(points::diff))
        .route(paths::POINT_PROOF, get(proofs::show).post(proofs::create))
        .route(paths::POLICIES, get(policies::list).post(policies::create))
        .route(paths::POLICY, get(policies::show).patch(policies::set).delete(policies::remove))
        .route(paths::POLICY_SOURCES, post(policies::apply))
        .route(paths::POLICY_VERIFY, post(policies::verify))
        .route(paths::POLICY_PLAN, get(policies::plan))
        .route(paths::POLICY_ARCHIVE, post(policies::set_archive))
        .route(paths::POLICY_REPLICA, post(policies::set_replica))
        .route(paths::POLICY_REPLICATE, post(policies::replicate))
        .route(paths::RECOVERIES, get(recoveries::list).post(recoveries::create))
        .route(paths::RECOVERY_KEEP, post(migrations::keep))
        .route(paths::MIGRATIONS, get(migrations::list).post(migrations::create))
        .route(paths::MIGRATION, get(migrations::show))
        .route(paths::MIGRATION_PAUSE, post(migrations::pause))
        .route(paths::MIGRATION_RESUME, post(migrations::resume))
        .route(paths::MIGRATION_CANCEL, post(migrations::cancel))
        .route(paths::RECOVERY_START, post(recoveries::start))
        .route(paths::RECOVERY, get(recoveries::show).delete(recoveries::stop))
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .layer(axum::middleware::from_fn_with_state(app.clone(), guard::known))
        .layer(axum::middleware::from_fn(guard::same_origin))
        .layer(axum::Extension(life))
        .with_state(app)
}

async fn no_such_path(request: Request) -> Response {
    let what = format!("the API has no path '{}'", request.uri().path());
    let error = Error::new(Kind::NotFound, what).remedy(format!("GET {} lists what it has", paths::OPENAPI));
    guard::refuse(request, error).await
}

async fn no_such_method(request: Request) -> Response {
    let what = format!("the API has no {} for '{}'", request.method(), request.uri().path());
    let error = Error::new(Kind::Invalid, what).remedy(format!("GET {} lists what it has", paths::OPENAPI));
    guard::refuse(request, error).await
}
