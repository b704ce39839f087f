//! The paths of the API. In a pattern `{disk}` and `{snapshot}` stand for names, which need no escaping: their
//! letters are all allowed in a URL.

use stonefold_types::{Name, PointName, SnapshotName};

/// Everything but health, metrics and the document lies under this.
pub const V1: &str = "/v1";
/// "ok" while the server lives.
pub const HEALTH: &str = "/healthz";
/// Counters for Prometheus.
pub const METRICS: &str = "/metrics";
/// The OpenAPI document.
pub const OPENAPI: &str = "/openapi.json";
/// The server: version, doors.
pub const SERVER: &str = "/v1/server";
/// The pool's state.
pub const POOL: &str = "/v1/pool";
/// Gives back what nothing refers to.
pub const POOL_RECLAIM: &str = "/v1/pool/reclaim";
/// Reads everything in use and verifies it.
pub const POOL_CHECK: &str = "/v1/pool/check";
/// The same, and salvage what is damaged.
pub const POOL_SALVAGE: &str = "/v1/pool/salvage";
/// The same of every copy, and heals.
pub const POOL_SCRUB: &str = "/v1/pool/scrub";
/// Takes the server's clock for right.
pub const POOL_CONFIRM_TIME: &str = "/v1/pool/confirm-time";
/// Begins to use a directory.
pub const POOL_DIRECTORIES: &str = "/v1/pool/directories";
/// Begins to bring elsewhere what lies in one.
pub const POOL_DIRECTORIES_DRAIN: &str = "/v1/pool/directories/drain";
/// Both at once.
pub const POOL_DIRECTORIES_REPLACE: &str = "/v1/pool/directories/replace";
/// Takes the change under way back.
pub const POOL_DIRECTORIES_CANCEL: &str = "/v1/pool/directories/cancel";
/// The cache: state, size.
pub const CACHE: &str = "/v1/cache";
/// Empties the cache.
pub const CACHE_DROP: &str = "/v1/cache/drop";
/// Brings a range of an export into the cache.
pub const CACHE_WARM: &str = "/v1/cache/warm";
/// All disks.
pub const DISKS: &str = "/v1/disks";
/// One disk.
pub const DISK: &str = "/v1/disks/{disk}";
/// Changes a disk's size.
pub const DISK_RESIZE: &str = "/v1/disks/{disk}/resize";
/// Counts what a disk takes of the pool.
pub const DISK_USAGE: &str = "/v1/disks/{disk}/usage";
/// Makes everything written to a disk so far durable.
pub const DISK_FLUSH: &str = "/v1/disks/{disk}/flush";
/// Gives up a disk whose head cannot be read, locked snapshots and all.
pub const DISK_GIVE_UP: &str = "/v1/disks/{disk}/give-up";
/// Records what clients ask of a disk, and ends that.
pub const DISK_TRACE: &str = "/v1/disks/{disk}/trace";
/// All traces that are being recorded.
pub const TRACES: &str = "/v1/traces";
/// All snapshots.
pub const SNAPSHOTS: &str = "/v1/snapshots";
/// One snapshot.
pub const SNAPSHOT: &str = "/v1/disks/{disk}/snapshots/{snapshot}";
/// What changed since a snapshot.
pub const SNAPSHOT_DIFF: &str = "/v1/disks/{disk}/snapshots/{snapshot}/diff";
/// Makes a disk from a snapshot.
pub const SNAPSHOT_CLONE: &str = "/v1/disks/{disk}/snapshots/{snapshot}/clone";
/// Locks a snapshot until a date.
pub const SNAPSHOT_LOCK: &str = "/v1/disks/{disk}/snapshots/{snapshot}/lock";
/// Brings a disk back to a snapshot.
pub const SNAPSHOT_ROLLBACK: &str = "/v1/disks/{disk}/snapshots/{snapshot}/rollback";
/// All domains.
pub const DOMAINS: &str = "/v1/domains";
/// One domain.
pub const DOMAIN: &str = "/v1/domains/{domain}";
/// Gives a domain a new key.
pub const DOMAIN_ROTATE: &str = "/v1/domains/{domain}/rotate";
/// Forgets a domain's keys.
pub const DOMAIN_SHRED: &str = "/v1/domains/{domain}/shred";
/// Tells a domain's keys.
pub const DOMAIN_EXPORT_KEY: &str = "/v1/domains/{domain}/export-key";
/// What the domains' keys are wrapped with.
pub const MASTER_KEY: &str = "/v1/master-key";
/// All tokens.
pub const TOKENS: &str = "/v1/tokens";
/// One token.
pub const TOKEN: &str = "/v1/tokens/{token}";

/// All classes of service.
pub const QOS: &str = "/v1/qos";
/// One class of service.
pub const QOS_CLASS: &str = "/v1/qos/{class}";

/// All machines.
pub const MACHINES: &str = "/v1/machines";
/// One machine.
pub const MACHINE: &str = "/v1/machines/{machine}";
/// Takes a snapshot of all disks of a machine.
pub const MACHINE_SNAPSHOT: &str = "/v1/machines/{machine}/snapshot";
/// Makes machines from one.
pub const MACHINE_CLONE: &str = "/v1/machines/{machine}/clone";
/// Brings a machine up to its master.
pub const MACHINE_SYNC: &str = "/v1/machines/{machine}/sync";
/// How a machine's disks are, and what clients did with them.
pub const MACHINE_STATS: &str = "/v1/machines/{machine}/stats";
/// Counts what a machine's disks take of the pool.
pub const MACHINE_USAGE: &str = "/v1/machines/{machine}/usage";

/// All sources.
pub const SOURCES: &str = "/v1/sources";
/// One source.
pub const SOURCE: &str = "/v1/sources/{source}";
/// All runs that are remembered.
pub const RUNS: &str = "/v1/runs";
/// One run.
pub const RUN: &str = "/v1/runs/{source}/{stamp}";
/// Has a run that copies stand still.
pub const RUN_PAUSE: &str = "/v1/runs/{source}/{stamp}/pause";
/// Has it go on.
pub const RUN_RESUME: &str = "/v1/runs/{source}/{stamp}/resume";
/// Ends a run that copies.
pub const RUN_CANCEL: &str = "/v1/runs/{source}/{stamp}/cancel";
/// All points.
pub const POINTS: &str = "/v1/points";
/// One point.
pub const POINT: &str = "/v1/points/{source}/{stamp}";
/// Locks a point until a date.
pub const POINT_LOCK: &str = "/v1/points/{source}/{stamp}/lock";
/// The proof that a point boots.
pub const POINT_PROOF: &str = "/v1/points/{source}/{stamp}/proof";
/// What differs between two points.
pub const POINT_DIFF: &str = "/v1/points/{source}/{stamp}/diff";

/// All policies.
pub const POLICIES: &str = "/v1/policies";
/// One policy.
pub const POLICY: &str = "/v1/policies/{policy}";
/// What a policy is applied to.
pub const POLICY_SOURCES: &str = "/v1/policies/{policy}/sources";
/// What a policy would do now.
pub const POLICY_PLAN: &str = "/v1/policies/{policy}/plan";

/// The pool that keeps some of a policy's points for longer.
pub const POLICY_ARCHIVE: &str = "/v1/policies/{policy}/archive";
/// The other pool that a policy's points are sent to.
pub const POLICY_REPLICA: &str = "/v1/policies/{policy}/replica";
/// Sending them now.
pub const POLICY_REPLICATE: &str = "/v1/policies/{policy}/replicate";
/// How its points are proven to boot.
pub const POLICY_VERIFY: &str = "/v1/policies/{policy}/verify";

/// All recoveries.
pub const RECOVERIES: &str = "/v1/recoveries";
/// One recovery.
pub const RECOVERY: &str = "/v1/recoveries/{recovery}";

/// Starting a machine with its disks.
pub const RECOVERY_START: &str = "/v1/recoveries/{recovery}/start";

/// Keeping its machine where it is.
pub const RECOVERY_KEEP: &str = "/v1/recoveries/{recovery}/keep";
/// All migrations.
pub const MIGRATIONS: &str = "/v1/migrations";
/// One migration, by its recovery.
pub const MIGRATION: &str = "/v1/migrations/{recovery}";
/// Having it stand still.
pub const MIGRATION_PAUSE: &str = "/v1/migrations/{recovery}/pause";
/// Having it go on.
pub const MIGRATION_RESUME: &str = "/v1/migrations/{recovery}/resume";
/// Ending it.
pub const MIGRATION_CANCEL: &str = "/v1/migrations/{recovery}/cancel";

/// A pattern with its recovery filled in.
pub fn of_recovery(pattern: &str, recovery: &Name) -> String {
    pattern.replace("{recovery}", recovery.as_str())
}

/// A pattern with its policy filled in.
pub fn of_policy(pattern: &str, policy: &Name) -> String {
    pattern.replace("{policy}", policy.as_str())
}

/// A pattern with its source filled in.
pub fn of_source(pattern: &str, source: &Name) -> String {
    pattern.replace("{source}", source.as_str())
}

/// A pattern with its point, or the run of that name, filled in.
pub fn of_point(pattern: &str, point: &PointName) -> String {
    of_source(pattern, &point.source).replace("{stamp}", point.stamp.as_str())
}

/// A pattern with its machine filled in.
pub fn of_machine(pattern: &str, machine: &Name) -> String {
    pattern.replace("{machine}", machine.as_str())
}

/// A pattern with its class of service filled in.
pub fn of_class(pattern: &str, class: &Name) -> String {
    pattern.replace("{class}", class.as_str())
}

/// A pattern with its domain filled in.
pub fn of_domain(pattern: &str, domain: &Name) -> String {
    pattern.replace("{domain}", domain.as_str())
}

/// A pattern with its token filled in.
pub fn of_token(pattern: &str, token: &Name) -> String {
    pattern.replace("{token}", token.as_str())
}

/// A pattern with its disk filled in.
pub fn of_disk(pattern: &str, disk: &Name) -> String {
    pattern.replace("{disk}", disk.as_str())
}

/// A pattern with its disk and snapshot filled in.
pub fn of_snapshot(pattern: &str, name: &SnapshotName) -> String {
    of_disk(pattern, &name.disk).replace("{snapshot}", name.snapshot.as_str())
}
