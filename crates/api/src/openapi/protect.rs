//! The part of the document that is about protection.

use super::operation;
use crate::{
    Archive, ArchiveSet, Consistency, ErrorBody, Hardware, HardwareKind, Machine, MachineClone,
    MachineCloned, MachineCreate, MachineDisk, MachineDiskStats, MachineLimits, MachineSet, MachineSnapshot,
    MachineSnapshotTaken, MachineStats, MachineSync, MachineSynced, Migration, MigrationCreate,
    MigrationDisk, MigrationState, PlanVerdict, PlannedPoint, PlannedRun, Point, PointDatabase, PointDiff,
    PointDisk, PointDiskDiff, PointState, Policy, PolicyApply, PolicyCreate, PolicyEvent, PolicyEventKind,
    PolicyPlan, PolicySet, PolicySource, PolicyVerify, Proof, ProofStage, Recovered, Recovery,
    RecoveryCreate, RecoveryStart, RecoveryStarted, Replica, ReplicaSet, Run, RunCopied, RunStart, RunState,
    SnapshotLock, Source, SourceCreate, StartedMachine, VerifyCreate,
};
use utoipa::OpenApi;

#[derive(OpenApi)]
#[openapi(
    paths(
        machines,
        machine_create,
        machine,
        machine_set,
        machine_remove,
        machine_snapshot,
        machine_clone,
        machine_sync,
        machine_stats,
        machine_usage,
        sources,
        source_create,
        source,
        source_remove,
        runs,
        run_start,
        run,
        run_pause,
        run_resume,
        run_cancel,
        points,
        point,
        point_remove,
        point_lock,
        point_diff,
        proof,
        verify,
        policies,
        policy_create,
        policy,
        policy_set,
        policy_apply,
        policy_plan,
        policy_verify,
        policy_archive,
        policy_replica,
        policy_replicate,
        policy_remove,
        recoveries,
        recovery_create,
        recovery,
        recovery_start,
        recovery_keep,
        migrations,
        migration,
        migration_create,
        migration_pause,
        migration_resume,
        migration_cancel,
        recovery_stop
    ),
    components(schemas(
        Hardware,
        HardwareKind,
        Machine,
        MachineClone,
        MachineCloned,
        MachineCreate,
        MachineDisk,
        MachineDiskStats,
        MachineLimits,
        MachineSet,
        MachineSnapshot,
        MachineSnapshotTaken,
        MachineStats,
        MachineSync,
        MachineSynced,
        Consistency,
        Point,
        PointDiff,
        PointDatabase,
        PointDisk,
        PointDiskDiff,
        PointState,
        PlanVerdict,
        PlannedPoint,
        PlannedRun,
        Policy,
        PolicyApply,
        PolicyCreate,
        PolicyEvent,
        PolicyEventKind,
        PolicyPlan,
        PolicySet,
        PolicySource,
        PolicyVerify,
        Replica,
        ReplicaSet,
        Archive,
        ArchiveSet,
        Recovered,
        Recovery,
        RecoveryCreate,
        RecoveryStart,
        RecoveryStarted,
        StartedMachine,
        Migration,
        MigrationCreate,
        MigrationDisk,
        MigrationState,
        Proof,
        ProofStage,
        VerifyCreate,
        Run,
        RunCopied,
        RunStart,
        RunState,
        Source,
        SourceCreate
    ))
)]
pub(super) struct Protection;

operation! {
    /// All machines, by name, without their hardware descriptions
    machines: get, path = "/v1/machines", tag = "machines", responses((status = 200, body = [Machine]), (status = "default", body = ErrorBody))
}
operation! {
    /// Add a machine: disks that belong together, and its hardware description. The disks stay as they are
    machine_create: post, path = "/v1/machines", tag = "machines", request_body = MachineCreate,
    responses((status = 201, body = Machine), (status = "default", body = ErrorBody))
}
operation! {
    /// One machine
    machine: get, path = "/v1/machines/{machine}", tag = "machines", params(("machine" = String, Path)),
    responses((status = 200, body = Machine), (status = "default", body = ErrorBody))
}
operation! {
    /// Change a machine; what is left out stays. The class of service is given to all its disks; every disk and the class are looked at before the first
    /// is changed
    machine_set: patch, path = "/v1/machines/{machine}", tag = "machines", params(("machine" = String, Path)), request_body = MachineSet,
    responses((status = 200, body = Machine), (status = "default", body = ErrorBody))
}
operation! {
    /// Bring a machine up to a snapshot of its master, all or none: each disk that the master has, too, begins anew as a clone under its old name, and what it held
    /// is gone; disks to be kept, and those that the master has not, stay. Refused while a client is connected to a disk that is replaced, and while that has
    /// snapshots
    machine_sync: post, path = "/v1/machines/{machine}/sync", tag = "machines", params(("machine" = String, Path)), request_body = MachineSync,
    responses((status = 200, body = MachineSynced), (status = "default", body = ErrorBody))
}
operation! {
    /// How a machine's disks are, and what clients did with them since the server started
    machine_stats: get, path = "/v1/machines/{machine}/stats", tag = "machines", params(("machine" = String, Path)),
    responses((status = 200, body = MachineStats), (status = "default", body = ErrorBody))
}
operation! {
    /// Count what each disk of a machine takes of the pool, exactly; answers when that is done, with how the machine is
    machine_usage: post, path = "/v1/machines/{machine}/usage", tag = "machines", params(("machine" = String, Path)),
    responses((status = 200, body = MachineStats), (status = "default", body = ErrorBody))
}
operation! {
    /// Remove a machine; its disks stay. Refused while a source names it
    machine_remove: delete, path = "/v1/machines/{machine}", tag = "machines", params(("machine" = String, Path)),
    responses((status = 204), (status = "default", body = ErrorBody))
}
operation! {
    /// Take a snapshot of all disks of a machine at one instant
    machine_snapshot: post, path = "/v1/machines/{machine}/snapshot", tag = "machines", params(("machine" = String, Path)), request_body = MachineSnapshot,
    responses((status = 201, body = MachineSnapshotTaken), (status = "default", body = ErrorBody))
}
operation! {
    /// Make machines from one, all or none: their disks are clones, and a domain of libvirt's gets a new name, UUID and MAC addresses
    machine_clone: post, path = "/v1/machines/{machine}/clone", tag = "machines", params(("machine" = String, Path)), request_body = MachineClone,
    responses((status = 201, body = MachineCloned), (status = "default", body = ErrorBody))
}
operation! {
    /// All sources, by name
    sources: get, path = "/v1/sources", tag = "backups", responses((status = 200, body = [Source]), (status = "default", body = ErrorBody))
}
operation! {
    /// Add a source: a machine whose disks are ours, an export of an NBD server, or an image file of the server's machine, which takes an admin
    source_create: post, path = "/v1/sources", tag = "backups", request_body = SourceCreate,
    responses((status = 201, body = Source), (status = "default", body = ErrorBody))
}
operation! {
    /// One source
    source: get, path = "/v1/sources/{source}", tag = "backups", params(("source" = String, Path)),
    responses((status = 200, body = Source), (status = "default", body = ErrorBody))
}
operation! {
    /// Remove a source; its points stay, and the disk that it was copied to. Refused while a run of it is under way, or a policy is applied to it
    source_remove: delete, path = "/v1/sources/{source}", tag = "backups", params(("source" = String, Path)),
    responses((status = 204), (status = "default", body = ErrorBody))
}
operation! {
    /// All runs that are remembered (a thousand of each source), or those of one source, by source and time
    runs: get, path = "/v1/runs", tag = "backups", params(("source" = Option<String>, Query)),
    responses((status = 200, body = [Run]), (status = "default", body = ErrorBody))
}
operation! {
    /// Back a source up; answers when its point is there, durably. Of a machine of ours nothing is copied; of others only what differs from the last point is written
    run_start: post, path = "/v1/runs", tag = "backups", request_body = RunStart,
    responses((status = 201, body = Run), (status = "default", body = ErrorBody))
}
operation! {
    /// One run
    run: get, path = "/v1/runs/{source}/{stamp}", tag = "backups", params(("source" = String, Path), ("stamp" = String, Path)),
    responses((status = 200, body = Run), (status = "default", body = ErrorBody))
}
operation! {
    /// Have a run that copies stand still at its next step, until it is resumed or its server ends. Its source stays as it was opened: what a guest overwrites
    /// of what is read as it was at an instant is copied meanwhile
    run_pause: post, path = "/v1/runs/{source}/{stamp}/pause", tag = "backups", params(("source" = String, Path), ("stamp" = String, Path)),
    responses((status = 200, body = Run), (status = "default", body = ErrorBody))
}
operation! {
    /// Have it go on
    run_resume: post, path = "/v1/runs/{source}/{stamp}/resume", tag = "backups", params(("source" = String, Path), ("stamp" = String, Path)),
    responses((status = 200, body = Run), (status = "default", body = ErrorBody))
}
operation! {
    /// End a run that copies, at its next step; it makes no point, and the next one copies only what is lacking. Answers when it has ended
    run_cancel: post, path = "/v1/runs/{source}/{stamp}/cancel", tag = "backups", params(("source" = String, Path), ("stamp" = String, Path)),
    responses((status = 200, body = Run), (status = "default", body = ErrorBody))
}
operation! {
    /// All points, or those of one source, by source and time, without their hardware descriptions
    points: get, path = "/v1/points", tag = "points", params(("source" = Option<String>, Query)),
    responses((status = 200, body = [Point]), (status = "default", body = ErrorBody))
}
operation! {
    /// One point
    point: get, path = "/v1/points/{source}/{stamp}", tag = "points", params(("source" = String, Path), ("stamp" = String, Path)),
    responses((status = 200, body = Point), (status = "default", body = ErrorBody))
}
operation! {
    /// Remove a point, whichever it is: none leans on another. Refused while it is locked, and while a client reads it
    point_remove: delete, path = "/v1/points/{source}/{stamp}", tag = "points", params(("source" = String, Path), ("stamp" = String, Path)),
    responses((status = 204), (status = "default", body = ErrorBody))
}
operation! {
    /// Lock a point until a date: nobody can remove it, or any of its snapshots, before; a lock can be extended, and never shortened
    point_lock: post, path = "/v1/points/{source}/{stamp}/lock", tag = "points", params(("source" = String, Path), ("stamp" = String, Path)), request_body = SnapshotLock,
    responses((status = 200, body = Point), (status = "default", body = ErrorBody))
}
operation! {
    /// What differs between two points, disk by disk: `to` is the other point's name
    point_diff: get, path = "/v1/points/{source}/{stamp}/diff", tag = "points",
    params(("source" = String, Path), ("stamp" = String, Path), ("to" = String, Query)),
    responses((status = 200, body = PointDiff), (status = "default", body = ErrorBody))
}
operation! {
    /// The newest proof that a point boots
    proof: get, path = "/v1/points/{source}/{stamp}/proof", tag = "points", params(("source" = String, Path), ("stamp" = String, Path)),
    responses((status = 200, body = Proof), (status = "default", body = ErrorBody))
}
operation! {
    /// Boot a point where it reaches nothing and nobody reaches it, wait for a sign of life, take everything down again, and keep what came of it, signed, with
    /// the point. Answers when that is done; a point that does not boot is no error. Takes an admin
    verify: post, path = "/v1/points/{source}/{stamp}/proof", tag = "points", params(("source" = String, Path), ("stamp" = String, Path)), request_body = VerifyCreate,
    responses((status = 201, body = Proof), (status = "default", body = ErrorBody))
}
operation! {
    /// All policies, by name
    policies: get, path = "/v1/policies", tag = "policies", responses((status = 200, body = [Policy]), (status = "default", body = ErrorBody))
}
operation! {
    /// Make a policy, which is applied to nothing yet
    policy_create: post, path = "/v1/policies", tag = "policies", request_body = PolicyCreate,
    responses((status = 201, body = Policy), (status = "default", body = ErrorBody))
}
operation! {
    /// One policy
    policy: get, path = "/v1/policies/{policy}", tag = "policies", params(("policy" = String, Path)),
    responses((status = 200, body = Policy), (status = "default", body = ErrorBody))
}
operation! {
    /// Change a policy, or pause it, or resume it: paused it makes no runs and removes nothing, resumed it catches up by one run of each source. What is
    /// left out stays
    policy_set: patch, path = "/v1/policies/{policy}", tag = "policies", params(("policy" = String, Path)), request_body = PolicySet,
    responses((status = 200, body = Policy), (status = "default", body = ErrorBody))
}
operation! {
    /// Apply a policy to sources, or take them out of it, all or none. What was due before is not caught up
    policy_apply: post, path = "/v1/policies/{policy}/sources", tag = "policies", params(("policy" = String, Path)), request_body = PolicyApply,
    responses((status = 200, body = Policy), (status = "default", body = ErrorBody))
}
operation! {
    /// What a policy would do now: each of its points with why it stays, or with the bytes that come back when it goes. Nothing is changed
    policy_plan: get, path = "/v1/policies/{policy}/plan", tag = "policies", params(("policy" = String, Path)),
    responses((status = 200, body = PolicyPlan), (status = "default", body = ErrorBody))
}
operation! {
    /// Name the pool that keeps some of a policy's points for longer, or none any more; what is there stays. Takes an admin
    policy_archive: post, path = "/v1/policies/{policy}/archive", tag = "policies", params(("policy" = String, Path)), request_body = ArchiveSet,
    responses((status = 200, body = Policy), (status = "default", body = ErrorBody))
}
operation! {
    /// Name the other pool that a policy's points are sent to, or none any more; what is there stays. Takes an admin
    policy_replica: post, path = "/v1/policies/{policy}/replica", tag = "policies", params(("policy" = String, Path)), request_body = ReplicaSet,
    responses((status = 200, body = Policy), (status = "default", body = ErrorBody))
}
operation! {
    /// Send what the other pool lacks of a policy's points. Answers when that is there, durably, and was compared: with the runs that received it
    policy_replicate: post, path = "/v1/policies/{policy}/replicate", tag = "policies", params(("policy" = String, Path)),
    responses((status = 200, body = [Run]), (status = "default", body = ErrorBody))
}
operation! {
    /// Remove a policy; the points that it has made stay
    policy_remove: delete, path = "/v1/policies/{policy}", tag = "policies", params(("policy" = String, Path)),
    responses((status = 204), (status = "default", body = ErrorBody))
}
operation! {
    /// All recoveries, by name, without their hardware descriptions
    recoveries: get, path = "/v1/recoveries", tag = "recoveries", responses((status = 200, body = [Recovery]), (status = "default", body = ErrorBody))
}
operation! {
    /// Bring a point back: clones of all its disks, or none, served when this answers
    recovery_create: post, path = "/v1/recoveries", tag = "recoveries", request_body = RecoveryCreate,
    responses((status = 200, body = Recovered, description = "A dry run: nothing was done"), (status = 201, body = Recovered), (status = "default", body = ErrorBody))
}
operation! {
    /// One recovery
    recovery: get, path = "/v1/recoveries/{recovery}", tag = "recoveries", params(("recovery" = String, Path)),
    responses((status = 200, body = Recovery), (status = "default", body = ErrorBody))
}
operation! {
    /// Start a machine with a recovery's disks, on the server's host or in a libvirt. Answers when it runs, and has given the sign of life that is
    /// asked for; a machine that does not start is not there, and the recovery stays as it was. Takes an admin
    recovery_start: post, path = "/v1/recoveries/{recovery}/start", tag = "recoveries", params(("recovery" = String, Path)), request_body = RecoveryStart,
    responses((status = 200, body = RecoveryStarted), (status = "default", body = ErrorBody))
}
operation! {
    /// End a recovery. Its machine is asked to shut down. Its disks stay as disks like any other, unless they are to be discarded; that is refused while
    /// another client, a snapshot or a machine needs one, and pulls the machine's plug
    recovery_stop: delete, path = "/v1/recoveries/{recovery}", tag = "recoveries",
    params(
        ("recovery" = String, Path),
        ("discard" = Option<bool>, Query, description = "Remove its disks, too"),
        ("power_off" = Option<bool>, Query, description = "Pull the machine's plug")
    ),
    responses((status = 204), (status = "default", body = ErrorBody))
}
operation! {
    /// Keep a recovered machine where it is: its disks are a machine's from now on, of the recovery's name, and outlive the recovery
    recovery_keep: post, path = "/v1/recoveries/{recovery}/keep", tag = "recoveries", params(("recovery" = String, Path)),
    responses((status = 201, body = Machine), (status = "default", body = ErrorBody))
}
operation! {
    /// All migrations, by name: the newest of each recovery
    migrations: get, path = "/v1/migrations", tag = "recoveries", responses((status = 200, body = [Migration]), (status = "default", body = ErrorBody))
}
operation! {
    /// One migration
    migration: get, path = "/v1/migrations/{recovery}", tag = "recoveries", params(("recovery" = String, Path)),
    responses((status = 200, body = Migration), (status = "default", body = ErrorBody))
}
operation! {
    /// Begin to move a recovered machine, which QEMU itself runs, to other storage while it runs. Answers when it is known that there is room and nothing in the way;
    /// it goes on in the background, and over a restart of the server. Takes an admin
    migration_create: post, path = "/v1/migrations", tag = "recoveries", request_body = MigrationCreate,
    responses((status = 201, body = Migration), (status = "default", body = ErrorBody))
}
operation! {
    /// Have a migration stand still
    migration_pause: post, path = "/v1/migrations/{recovery}/pause", tag = "recoveries", params(("recovery" = String, Path)),
    responses((status = 200, body = Migration), (status = "default", body = ErrorBody))
}
operation! {
    /// Have it go on
    migration_resume: post, path = "/v1/migrations/{recovery}/resume", tag = "recoveries", params(("recovery" = String, Path)),
    responses((status = 200, body = Migration), (status = "default", body = ErrorBody))
}
operation! {
    /// End it: the machine stays on its old disks, and the new ones go
    migration_cancel: post, path = "/v1/migrations/{recovery}/cancel", tag = "recoveries", params(("recovery" = String, Path)),
    responses((status = 200, body = Migration), (status = "default", body = ErrorBody))
}
operation! {
    /// Have a policy prove that its points boot, the newest of each source, every one, or none any more: one that does not is told like a run that failed. Takes an admin
    policy_verify: post, path = "/v1/policies/{policy}/verify", tag = "policies", params(("policy" = String, Path)), request_body = PolicyVerify,
    responses((status = 200, body = Policy), (status = "default", body = ErrorBody))
}
