//! The OpenAPI document, made from the types. The functions below are never called: they are where the attribute
//! that describes an operation can sit without this crate knowing a server.
#![expect(dead_code, reason = "only their descriptions are used")]

mod protect;

use crate::{
    Cache, CacheResize, CacheWarm, CacheWarmed, Checked, CloneCreate, Connection, Damage, DamagedReads, Diff,
    DiffRange, Directory, DirectoryChange, DirectoryReplace, DirectoryState, Disk, DiskCreate, DiskIo,
    DiskResize, DiskSet, DiskUsage, Domain, DomainCreate, DomainKey, DomainSet, DomainShred, DomainState,
    ErrorBody, ErrorKind, LastCheck, Latencies, Latency, MasterKeyChange, Pool, PoolTime, QosClass,
    QosCreate, QosSet, Reclaimed, Rollback, Salvage, Salvaged, SalvagedFrom, SalvagedRange, Scrub, Server,
    Snapshot, SnapshotCreate, SnapshotLock, Time, Token, TokenCreate, TokenCreated, Trace, TraceStart, Work,
};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

/// The document, as served at [`paths::OPENAPI`](crate::paths::OPENAPI).
pub fn document() -> serde_json::Value {
    let whole = Document::openapi().merge_from(protect::Protection::openapi());
    serde_json::to_value(whole).expect("the document is plain JSON")
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Stonefold",
        description = "Storage for virtual machines that remembers everything and gives it back at once. \
            Sizes are whole bytes; times are RFC 3339 in UTC; every failure has the body ErrorBody. \
            Once a token has been made, every request but that for health needs one.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    paths(
        server,
        health,
        metrics,
        pool,
        pool_reclaim,
        pool_check,
        pool_salvage,
        pool_scrub,
        pool_confirm_time,
        pool_directory_add,
        pool_directory_drain,
        pool_directory_replace,
        pool_directories_cancel,
        cache,
        cache_resize,
        cache_drop,
        cache_warm,
        disks,
        disk_create,
        disk,
        disk_set,
        disk_remove,
        disk_resize,
        disk_usage,
        disk_flush,
        disk_give_up,
        disk_trace_start,
        disk_trace_stop,
        traces,
        snapshots,
        snapshot_create,
        snapshot,
        snapshot_remove,
        snapshot_diff,
        snapshot_clone,
        snapshot_rollback,
        snapshot_lock,
        domains,
        domain_create,
        domain,
        domain_set,
        domain_remove,
        domain_rotate,
        domain_shred,
        domain_export_key,
        master_key,
        tokens,
        token_create,
        token_remove,
        qos_classes,
        qos_create,
        qos_class,
        qos_set,
        qos_remove
    ),
    modifiers(&Bearer),
    security(("token" = []), ()),
    components(schemas(
        Cache,
        CacheResize,
        CacheWarm,
        CacheWarmed,
        Checked,
        CloneCreate,
        Connection,
        Diff,
        DiffRange,
        Damage,
        Directory,
        DirectoryChange,
        DirectoryReplace,
        DirectoryState,
        Disk,
        DiskCreate,
        DiskIo,
        DiskResize,
        DiskSet,
        DiskUsage,
        Domain,
        DomainCreate,
        DomainKey,
        DomainSet,
        DomainShred,
        DomainState,
        ErrorBody,
        ErrorKind,
        Latencies,
        Latency,
        MasterKeyChange,
        Pool,
        Reclaimed,
        Scrub,
        LastCheck,
        DamagedReads,
        QosClass,
        QosCreate,
        QosSet,
        Rollback,
        Salvage,
        Salvaged,
        SalvagedFrom,
        SalvagedRange,
        Server,
        Snapshot,
        SnapshotCreate,
        Time,
        Token,
        TokenCreate,
        TokenCreated,
        Trace,
        TraceStart,
        Work
    ))
)]
struct Document;

/// How a token is shown.
struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("'stonefold token create' makes one. While there is none, none is needed."))
            .build();
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

/// One operation: method, path, what it is called, its answer, and what it takes.
macro_rules! operation {
    ($(#[$doc:meta])* $name:ident: $($attribute:tt)*) => {
        $(#[$doc])*
        #[utoipa::path($($attribute)*)]
        fn $name() {}
    };
}
use operation;

operation! {
    /// The server that answers: version, doors
    server: get, path = "/v1/server", tag = "server", responses((status = 200, body = Server), (status = "default", body = ErrorBody))
}
operation! {
    /// "ok" while the server lives
    health: get, path = "/healthz", tag = "server", responses((status = 200, content_type = "text/plain", body = String))
}
operation! {
    /// Counters for Prometheus
    metrics: get, path = "/metrics", tag = "server", responses((status = 200, content_type = "application/openmetrics-text", body = String))
}
operation! {
    /// The pool's state
    pool: get, path = "/v1/pool", tag = "pool", responses((status = 200, body = Pool), (status = "default", body = ErrorBody))
}
operation! {
    /// Give back all space that nothing refers to; answers when that is done
    pool_reclaim: post, path = "/v1/pool/reclaim", tag = "pool", responses((status = 200, body = Reclaimed), (status = "default", body = ErrorBody))
}
operation! {
    /// Read everything in use and verify it; changes nothing. Answers when that is done
    pool_check: post, path = "/v1/pool/check", tag = "pool", responses((status = 200, body = Checked), (status = "default", body = ErrorBody))
}
operation! {
    /// Check the pool, and make a new disk of each disk and snapshot whose map is damaged in every copy; what is damaged stays as it is.
    /// Answers when that is done
    pool_salvage: post, path = "/v1/pool/salvage", tag = "pool", responses((status = 200, body = Checked), (status = "default", body = ErrorBody))
}
operation! {
    /// Read every copy of everything in use, verify it, and heal what is damaged from a sound copy. Answers when that is done
    pool_scrub: post, path = "/v1/pool/scrub", tag = "pool", responses((status = 200, body = Checked), (status = "default", body = ErrorBody))
}
operation! {
    /// Take the server's clock for right after it jumped; takes an admin
    pool_confirm_time: post, path = "/v1/pool/confirm-time", tag = "pool", responses((status = 200, body = PoolTime), (status = "default", body = ErrorBody))
}
operation! {
    /// Begin to use an empty directory, or keep one that is being drained; takes an admin. Answers when that is recorded, with the pool's state; the data is brought there in the background
    pool_directory_add: post, path = "/v1/pool/directories", tag = "pool", request_body = DirectoryChange, responses((status = 200, body = Pool), (status = "default", body = ErrorBody))
}
operation! {
    /// Begin to bring elsewhere what lies in a directory, which then leaves the pool; takes an admin. Answers when that is recorded
    pool_directory_drain: post, path = "/v1/pool/directories/drain", tag = "pool", request_body = DirectoryChange, responses((status = 200, body = Pool), (status = "default", body = ErrorBody))
}
operation! {
    /// Begin to use an empty directory in the place of another, which then leaves the pool; takes an admin. Answers when that is recorded
    pool_directory_replace: post, path = "/v1/pool/directories/replace", tag = "pool", request_body = DirectoryReplace, responses((status = 200, body = Pool), (status = "default", body = ErrorBody))
}
operation! {
    /// Take the change of directories under way back; takes an admin. Answers when that is recorded; what was moved comes home in the background
    pool_directories_cancel: post, path = "/v1/pool/directories/cancel", tag = "pool", responses((status = 200, body = Pool), (status = "default", body = ErrorBody))
}
operation! {
    /// The cache's state
    cache: get, path = "/v1/cache", tag = "cache", responses((status = 200, body = Cache), (status = "default", body = ErrorBody))
}
operation! {
    /// Change the cache's size, until the server stops
    cache_resize: patch, path = "/v1/cache", tag = "cache", request_body = CacheResize,
    responses((status = 200, body = Cache), (status = "default", body = ErrorBody))
}
operation! {
    /// Empty the cache; nothing but speed is lost
    cache_drop: post, path = "/v1/cache/drop", tag = "cache", responses((status = 200, body = Cache), (status = "default", body = ErrorBody))
}
operation! {
    /// Bring one range of a disk or a snapshot into the cache
    cache_warm: post, path = "/v1/cache/warm", tag = "cache", request_body = CacheWarm,
    responses((status = 200, body = CacheWarmed), (status = "default", body = ErrorBody))
}
operation! {
    /// All disks, by name
    disks: get, path = "/v1/disks", tag = "disks", responses((status = 200, body = [Disk]), (status = "default", body = ErrorBody))
}
operation! {
    /// Make a disk
    disk_create: post, path = "/v1/disks", tag = "disks", request_body = DiskCreate,
    responses((status = 201, body = Disk), (status = "default", body = ErrorBody))
}
operation! {
    /// One disk
    disk: get, path = "/v1/disks/{disk}", tag = "disks", params(("disk" = String, Path)),
    responses((status = 200, body = Disk), (status = "default", body = ErrorBody))
}
operation! {
    /// Change a disk's settings; what is left out stays
    disk_set: patch, path = "/v1/disks/{disk}", tag = "disks", params(("disk" = String, Path)), request_body = DiskSet,
    responses((status = 200, body = Disk), (status = "default", body = ErrorBody))
}
operation! {
    /// Remove a disk; refused while clients are connected, while a machine, a recovery or a source needs it unless it shall go nevertheless, and while it has snapshots unless they shall go, too
    disk_remove: delete, path = "/v1/disks/{disk}", tag = "disks", params(("disk" = String, Path), ("snapshots" = Option<bool>, Query, description = "Remove its snapshots, too"), ("needed" = Option<bool>, Query, description = "Also where a machine, a recovery or a source needs it")),
    responses((status = 204), (status = "default", body = ErrorBody))
}
operation! {
    /// Change a disk's size
    disk_resize: post, path = "/v1/disks/{disk}/resize", tag = "disks", params(("disk" = String, Path)), request_body = DiskResize,
    responses((status = 200, body = Disk), (status = "default", body = ErrorBody))
}
operation! {
    /// Count what a disk takes of the pool, alone and with others, exactly. Walks its map, and answers when that is done
    disk_usage: post, path = "/v1/disks/{disk}/usage", tag = "disks", params(("disk" = String, Path)),
    responses((status = 200, body = DiskUsage), (status = "default", body = ErrorBody))
}
operation! {
    /// Make everything written to a disk so far durable
    disk_flush: post, path = "/v1/disks/{disk}/flush", tag = "disks", params(("disk" = String, Path)),
    responses((status = 204), (status = "default", body = ErrorBody))
}
operation! {
    /// Give up a disk whose head cannot be read, with all it held, locked snapshots among it; takes an admin
    disk_give_up: post, path = "/v1/disks/{disk}/give-up", tag = "disks", params(("disk" = String, Path)),
    responses((status = 204), (status = "default", body = ErrorBody))
}
operation! {
    /// Record what clients ask of a disk: when, where and how much, never the data. The answer is a trace that goes on until the recording is
    /// stopped; whoever stops reading ends it, too
    disk_trace_start: post, path = "/v1/disks/{disk}/trace", tag = "traces", params(("disk" = String, Path)), request_body = TraceStart,
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>), (status = "default", body = ErrorBody))
}
operation! {
    /// End the recording of a disk; its reader gets what is left and an end
    disk_trace_stop: delete, path = "/v1/disks/{disk}/trace", tag = "traces", params(("disk" = String, Path)),
    responses((status = 200, body = Trace), (status = "default", body = ErrorBody))
}
operation! {
    /// All traces that are being recorded, by their disks' names
    traces: get, path = "/v1/traces", tag = "traces", responses((status = 200, body = [Trace]), (status = "default", body = ErrorBody))
}
operation! {
    /// All snapshots by their disks' names, or those of one disk, oldest first
    snapshots: get, path = "/v1/snapshots", tag = "snapshots", params(("disk" = Option<String>, Query), ("limit" = Option<u64>, Query, description = "No more than so many"), ("after" = Option<String>, Query, description = "DISK@NUMBER: only what follows that snapshot, whether it is still there or not")),
    responses((status = 200, body = [Snapshot]), (status = "default", body = ErrorBody))
}
operation! {
    /// Take a snapshot of one disk or of several at one instant
    snapshot_create: post, path = "/v1/snapshots", tag = "snapshots", request_body = SnapshotCreate,
    responses((status = 201, body = [Snapshot]), (status = "default", body = ErrorBody))
}
operation! {
    /// One snapshot
    snapshot: get, path = "/v1/disks/{disk}/snapshots/{snapshot}", tag = "snapshots",
    params(("disk" = String, Path), ("snapshot" = String, Path)),
    responses((status = 200, body = Snapshot), (status = "default", body = ErrorBody))
}
operation! {
    /// Remove a snapshot; clones made from it stay
    snapshot_remove: delete, path = "/v1/disks/{disk}/snapshots/{snapshot}", tag = "snapshots",
    params(("disk" = String, Path), ("snapshot" = String, Path)),
    responses((status = 204), (status = "default", body = ErrorBody))
}
operation! {
    /// The ranges that differ between a snapshot and another, or a disk as it is now: `to` is a name like web@tuesday or web, and the
    /// snapshot's own disk if it is left out
    snapshot_diff: get, path = "/v1/disks/{disk}/snapshots/{snapshot}/diff", tag = "snapshots",
    params(("disk" = String, Path), ("snapshot" = String, Path), ("to" = Option<String>, Query)),
    responses((status = 200, body = Diff), (status = "default", body = ErrorBody))
}
operation! {
    /// Make a disk from a snapshot, at once whatever its size
    snapshot_clone: post, path = "/v1/disks/{disk}/snapshots/{snapshot}/clone", tag = "snapshots",
    params(("disk" = String, Path), ("snapshot" = String, Path)), request_body = CloneCreate,
    responses((status = 201, body = Disk), (status = "default", body = ErrorBody))
}
operation! {
    /// Bring a disk back to a snapshot; the present is kept as another snapshot
    snapshot_rollback: post, path = "/v1/disks/{disk}/snapshots/{snapshot}/rollback", tag = "snapshots",
    params(("disk" = String, Path), ("snapshot" = String, Path)),
    responses((status = 200, body = Rollback), (status = "default", body = ErrorBody))
}
operation! {
    /// Lock a snapshot until a date: nobody can remove it before; a lock can be extended, and never shortened
    snapshot_lock: post, path = "/v1/disks/{disk}/snapshots/{snapshot}/lock", tag = "snapshots",
    params(("disk" = String, Path), ("snapshot" = String, Path)), request_body = SnapshotLock,
    responses((status = 200, body = Snapshot), (status = "default", body = ErrorBody))
}
operation! {
    /// All domains, the predefined one first
    domains: get, path = "/v1/domains", tag = "domains", responses((status = 200, body = [Domain]), (status = "default", body = ErrorBody))
}
operation! {
    /// Make a domain; takes an admin
    domain_create: post, path = "/v1/domains", tag = "domains", request_body = DomainCreate,
    responses((status = 201, body = Domain), (status = "default", body = ErrorBody))
}
operation! {
    /// One domain
    domain: get, path = "/v1/domains/{domain}", tag = "domains", params(("domain" = String, Path)),
    responses((status = 200, body = Domain), (status = "default", body = ErrorBody))
}
operation! {
    /// Change what new disks of a domain get; what is left out stays
    domain_set: patch, path = "/v1/domains/{domain}", tag = "domains", params(("domain" = String, Path)), request_body = DomainSet,
    responses((status = 200, body = Domain), (status = "default", body = ErrorBody))
}
operation! {
    /// Remove a domain that no disk is made in, with the keys that it may have; takes an admin. Refused while disks of it are there, or were and have not been given back
    domain_remove: delete, path = "/v1/domains/{domain}", tag = "domains", params(("domain" = String, Path)),
    responses((status = 204), (status = "default", body = ErrorBody))
}
operation! {
    /// Give an encrypted domain a new key for what is written from now on; takes an admin
    domain_rotate: post, path = "/v1/domains/{domain}/rotate", tag = "domains", params(("domain" = String, Path)),
    responses((status = 200, body = Domain), (status = "default", body = ErrorBody))
}
operation! {
    /// Forget an encrypted domain's keys, for good; refused while clients are connected; takes an admin
    domain_shred: post, path = "/v1/domains/{domain}/shred", tag = "domains", params(("domain" = String, Path)), request_body = DomainShred,
    responses((status = 200, body = Domain), (status = "default", body = ErrorBody))
}
operation! {
    /// Tell an encrypted domain's keys; takes an admin
    domain_export_key: post, path = "/v1/domains/{domain}/export-key", tag = "domains", params(("domain" = String, Path)),
    responses((status = 200, body = DomainKey), (status = "default", body = ErrorBody))
}
operation! {
    /// Wrap all domains' keys under another master key; takes an admin
    master_key: post, path = "/v1/master-key", tag = "domains", request_body = MasterKeyChange,
    responses((status = 204), (status = "default", body = ErrorBody))
}
operation! {
    /// All tokens, without their secrets; for admins
    tokens: get, path = "/v1/tokens", tag = "tokens", responses((status = 200, body = [Token]), (status = "default", body = ErrorBody))
}
operation! {
    /// Make a token; its secret is told this once; for admins. From the first on, every request needs one
    token_create: post, path = "/v1/tokens", tag = "tokens", request_body = TokenCreate,
    responses((status = 201, body = TokenCreated), (status = "default", body = ErrorBody))
}
operation! {
    /// Remove a token, which then counts no more; for admins
    token_remove: delete, path = "/v1/tokens/{token}", tag = "tokens", params(("token" = String, Path)),
    responses((status = 204), (status = "default", body = ErrorBody))
}
operation! {
    /// All classes of service
    qos_classes: get, path = "/v1/qos", tag = "qos", responses((status = 200, body = [QosClass]), (status = "default", body = ErrorBody))
}
operation! {
    /// Make a class of service
    qos_create: post, path = "/v1/qos", tag = "qos", request_body = QosCreate,
    responses((status = 201, body = QosClass), (status = "default", body = ErrorBody))
}
operation! {
    /// One class of service
    qos_class: get, path = "/v1/qos/{class}", tag = "qos", params(("class" = String, Path)),
    responses((status = 200, body = QosClass), (status = "default", body = ErrorBody))
}
operation! {
    /// Change a class of service, at once for every disk in it; what is left out stays
    qos_set: patch, path = "/v1/qos/{class}", tag = "qos", params(("class" = String, Path)), request_body = QosSet,
    responses((status = 200, body = QosClass), (status = "default", body = ErrorBody))
}
operation! {
    /// Remove a class of service; refused while a disk has it, and for those that every pool has
    qos_remove: delete, path = "/v1/qos/{class}", tag = "qos", params(("class" = String, Path)),
    responses((status = 204), (status = "default", body = ErrorBody))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths;

    const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");

    /// The document is part of the contract: a change of it shows in a review, as a change of the file kept.
    #[test]
    fn the_document_is_the_one_kept() {
        let now = serde_json::to_string_pretty(&document()).unwrap() + "\n";
        if std::env::var_os("STONEFOLD_UPDATE").is_some() {
            std::fs::write(KEPT, &now).unwrap();
        }
        let kept = std::fs::read_to_string(KEPT).unwrap_or_default();
        assert!(
            kept == now,
            "the API changed; if that is meant: STONEFOLD_UPDATE=1 cargo test -p stonefold-api, and commit openapi.json"
        );
    }

    #[test]
    fn every_path_of_the_code_is_described() {
        let document = document();
        for path in [
            paths::HEALTH,
            paths::METRICS,
            paths::SERVER,
            paths::POOL,
            paths::POOL_RECLAIM,
            paths::POOL_CHECK,
            paths::POOL_SALVAGE,
            paths::POOL_SCRUB,
            paths::POOL_CONFIRM_TIME,
            paths::POOL_DIRECTORIES,
            paths::POOL_DIRECTORIES_DRAIN,
            paths::POOL_DIRECTORIES_REPLACE,
            paths::POOL_DIRECTORIES_CANCEL,
            paths::CACHE,
            paths::CACHE_DROP,
            paths::CACHE_WARM,
            paths::DISKS,
            paths::DISK,
            paths::DISK_RESIZE,
            paths::DISK_FLUSH,
            paths::DISK_GIVE_UP,
            paths::DISK_TRACE,
            paths::TRACES,
            paths::SNAPSHOTS,
            paths::SNAPSHOT,
            paths::SNAPSHOT_DIFF,
            paths::SNAPSHOT_CLONE,
            paths::SNAPSHOT_ROLLBACK,
            paths::SNAPSHOT_LOCK,
            paths::TOKENS,
            paths::TOKEN,
            paths::QOS,
            paths::QOS_CLASS,
            paths::MACHINES,
            paths::MACHINE,
            paths::MACHINE_SNAPSHOT,
            paths::MACHINE_CLONE,
            paths::SOURCES,
            paths::SOURCE,
            paths::RUNS,
            paths::RUN,
            paths::RUN_CANCEL,
            paths::POINTS,
            paths::POINT,
            paths::POINT_LOCK,
            paths::POINT_DIFF,
            paths::RECOVERIES,
            paths::RECOVERY,
            paths::RECOVERY_START,
            paths::RECOVERY_KEEP,
            paths::MIGRATIONS,
            paths::MIGRATION,
            paths::MIGRATION_PAUSE,
            paths::MIGRATION_RESUME,
            paths::MIGRATION_CANCEL,
            paths::POINT_PROOF,
            paths::POLICY_VERIFY,
            paths::POLICY_ARCHIVE,
            paths::POLICY_REPLICA,
            paths::POLICY_REPLICATE,
        ] {
            assert!(document["paths"][path].is_object(), "{path}");
        }
    }
}
