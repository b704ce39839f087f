//! What protects: machines, sources, policies, runs, points and recoveries.

use super::Client;
use crate::{
    ArchiveSet, Machine, MachineClone, MachineCloned, MachineCreate, MachineSet, MachineSnapshot,
    MachineSnapshotTaken, MachineStats, MachineSync, MachineSynced, Migration, MigrationCreate, Point,
    PointDiff, Policy, PolicyApply, PolicyCreate, PolicyPlan, PolicySet, PolicyVerify, Proof, Recovered,
    Recovery, RecoveryCreate, RecoveryStart, RecoveryStarted, ReplicaSet, Run, RunStart, SnapshotLock,
    Source, SourceCreate, VerifyCreate, paths,
};
use stonefold_types::{Kind, Name, PointName, Result};

impl Client {
    /// All machines, without their hardware descriptions.
    pub fn machines(&self) -> Result<Vec<Machine>> {
        self.get(paths::MACHINES)
    }

    /// One machine.
    pub fn machine(&self, name: &Name) -> Result<Machine> {
        self.get(&paths::of_machine(paths::MACHINE, name))
    }

    /// Adds a machine.
    pub fn create_machine(&self, machine: &MachineCreate) -> Result<Machine> {
        self.post(paths::MACHINES, machine)
    }

    /// Removes a machine; its disks stay.
    pub fn remove_machine(&self, name: &Name) -> Result<()> {
        self.delete(&paths::of_machine(paths::MACHINE, name))
    }

    /// Takes a snapshot of all disks of a machine.
    pub fn snapshot_machine(&self, name: &Name, snapshot: &MachineSnapshot) -> Result<MachineSnapshotTaken> {
        self.post(&paths::of_machine(paths::MACHINE_SNAPSHOT, name), snapshot)
    }

    /// Changes a machine.
    pub fn set_machine(&self, name: &Name, set: &MachineSet) -> Result<Machine> {
        self.patch(&paths::of_machine(paths::MACHINE, name), set)
    }

    /// How a machine's disks are, and what clients did with them since the server started.
    pub fn machine_stats(&self, name: &Name) -> Result<MachineStats> {
        self.get(&paths::of_machine(paths::MACHINE_STATS, name))
    }

    /// The same, after it was counted what its disks take of the pool.
    pub fn machine_usage(&self, name: &Name) -> Result<MachineStats> {
        self.command(&paths::of_machine(paths::MACHINE_USAGE, name))
    }

    /// Makes machines from one.
    pub fn clone_machine(&self, name: &Name, clone: &MachineClone) -> Result<MachineCloned> {
        self.post(&paths::of_machine(paths::MACHINE_CLONE, name), clone)
    }

    /// Brings a machine up to its master.
    pub fn sync_machine(&self, name: &Name, sync: &MachineSync) -> Result<MachineSynced> {
        self.post(&paths::of_machine(paths::MACHINE_SYNC, name), sync)
    }

    /// All sources.
    pub fn sources(&self) -> Result<Vec<Source>> {
        self.get(paths::SOURCES)
    }

    /// One source.
    pub fn source(&self, name: &Name) -> Result<Source> {
        self.get(&paths::of_source(paths::SOURCE, name))
    }

    /// Adds a source.
    pub fn create_source(&self, source: &SourceCreate) -> Result<Source> {
        self.post(paths::SOURCES, source)
    }

    /// Removes a source; its points stay.
    pub fn remove_source(&self, name: &Name) -> Result<()> {
        self.delete(&paths::of_source(paths::SOURCE, name))
    }

    /// All runs that are remembered, or those of one source.
    pub fn runs(&self, source: Option<&Name>) -> Result<Vec<Run>> {
        self.get(&of_one(paths::RUNS, source))
    }

    /// One run.
    pub fn run(&self, name: &PointName) -> Result<Run> {
        self.get(&paths::of_point(paths::RUN, name))
    }

    /// Backs a source up; returns when its point is there.
    pub fn start_run(&self, start: &RunStart) -> Result<Run> {
        self.post(paths::RUNS, start)
    }

    /// Has a run that copies stand still.
    pub fn pause_run(&self, name: &PointName) -> Result<Run> {
        self.command(&paths::of_point(paths::RUN_PAUSE, name))
    }

    /// Has it go on.
    pub fn resume_run(&self, name: &PointName) -> Result<Run> {
        self.command(&paths::of_point(paths::RUN_RESUME, name))
    }

    /// Ends a run that copies; returns when it has ended.
    pub fn cancel_run(&self, name: &PointName) -> Result<Run> {
        self.command(&paths::of_point(paths::RUN_CANCEL, name))
    }

    /// All points, or those of one source, without their hardware descriptions.
    pub fn points(&self, source: Option<&Name>) -> Result<Vec<Point>> {
        self.get(&of_one(paths::POINTS, source))
    }

    /// One point.
    pub fn point(&self, name: &PointName) -> Result<Point> {
        self.get(&paths::of_point(paths::POINT, name))
    }

    /// Removes a point.
    pub fn remove_point(&self, name: &PointName) -> Result<()> {
        self.delete(&paths::of_point(paths::POINT, name))
    }

    /// Locks a point until a date.
    pub fn lock_point(&self, name: &PointName, lock: &SnapshotLock) -> Result<Point> {
        self.post(&paths::of_point(paths::POINT_LOCK, name), lock)
    }

    /// What differs between two points.
    pub fn diff_points(&self, from: &PointName, to: &PointName) -> Result<PointDiff> {
        self.get(&format!("{}?to={to}", paths::of_point(paths::POINT_DIFF, from)))
    }

    /// All policies.
    pub fn policies(&self) -> Result<Vec<Policy>> {
        self.get(paths::POLICIES)
    }

    /// One policy.
    pub fn policy(&self, name: &Name) -> Result<Policy> {
        self.get(&paths::of_policy(paths::POLICY, name))
    }

    /// Makes a policy, which is applied to nothing yet.
    pub fn create_policy(&self, policy: &PolicyCreate) -> Result<Policy> {
        self.post(paths::POLICIES, policy)
    }

    /// Applies a policy to sources, or takes them out of it.
    pub fn apply_policy(&self, name: &Name, apply: &PolicyApply) -> Result<Policy> {
        self.post(&paths::of_policy(paths::POLICY_SOURCES, name), apply)
    }

    /// Changes a policy.
    pub fn set_policy(&self, name: &Name, set: &PolicySet) -> Result<Policy> {
        self.patch(&paths::of_policy(paths::POLICY, name), set)
    }

    /// Has a policy prove that its points boot.
    pub fn verify_policy(&self, name: &Name, verify: &PolicyVerify) -> Result<Policy> {
        self.post(&paths::of_policy(paths::POLICY_VERIFY, name), verify)
    }

    /// Names the pool that keeps some of a policy's points for longer, or none.
    pub fn set_archive(&self, name: &Name, archive: &ArchiveSet) -> Result<Policy> {
        self.post(&paths::of_policy(paths::POLICY_ARCHIVE, name), archive)
    }

    /// Names the pool that a policy's points are sent to, or none.
    pub fn set_replica(&self, name: &Name, replica: &ReplicaSet) -> Result<Policy> {
        self.post(&paths::of_policy(paths::POLICY_REPLICA, name), replica)
    }

    /// Sends what the other pool lacks of a policy's points.
    pub fn replicate_policy(&self, name: &Name) -> Result<Vec<Run>> {
        self.command(&paths::of_policy(paths::POLICY_REPLICATE, name))
    }

    /// What a policy would do now.
    pub fn plan_policy(&self, name: &Name) -> Result<PolicyPlan> {
        self.get(&paths::of_policy(paths::POLICY_PLAN, name))
    }

    /// Removes a policy; the points that it has made stay.
    pub fn remove_policy(&self, name: &Name) -> Result<()> {
        self.delete(&paths::of_policy(paths::POLICY, name))
    }

    /// All recoveries, without their hardware descriptions.
    pub fn recoveries(&self) -> Result<Vec<Recovery>> {
        self.get(paths::RECOVERIES)
    }

    /// One recovery.
    pub fn recovery(&self, name: &Name) -> Result<Recovery> {
        self.get(&paths::of_recovery(paths::RECOVERY, name))
    }

    /// Brings a point back.
    pub fn recover(&self, recovery: &RecoveryCreate) -> Result<Recovered> {
        self.post(paths::RECOVERIES, recovery)
    }

    /// Starts a machine with a recovery's disks; returns when it runs, and has given the sign of life that was asked for.
    pub fn start_recovery(&self, name: &Name, start: &RecoveryStart) -> Result<RecoveryStarted> {
        self.post(&paths::of_recovery(paths::RECOVERY_START, name), start)
    }

    /// All migrations.
    pub fn migrations(&self) -> Result<Vec<Migration>> {
        self.get(paths::MIGRATIONS)
    }

    /// One migration.
    pub fn migration(&self, name: &Name) -> Result<Migration> {
        self.get(&paths::of_recovery(paths::MIGRATION, name))
    }

    /// Begins to move a machine.
    pub fn create_migration(&self, migration: &MigrationCreate) -> Result<Migration> {
        self.post(paths::MIGRATIONS, migration)
    }

    /// Has a migration stand still.
    pub fn pause_migration(&self, name: &Name) -> Result<Migration> {
        self.command(&paths::of_recovery(paths::MIGRATION_PAUSE, name))
    }

    /// Has it go on.
    pub fn resume_migration(&self, name: &Name) -> Result<Migration> {
        self.command(&paths::of_recovery(paths::MIGRATION_RESUME, name))
    }

    /// Ends it: the machine stays on its old disks.
    pub fn cancel_migration(&self, name: &Name) -> Result<Migration> {
        self.command(&paths::of_recovery(paths::MIGRATION_CANCEL, name))
    }

    /// Keeps a recovered machine where it is.
    pub fn keep_recovery(&self, name: &Name) -> Result<Machine> {
        self.command(&paths::of_recovery(paths::RECOVERY_KEEP, name))
    }

    /// Boots a point in isolation; returns what came of it.
    pub fn verify_point(&self, name: &PointName, verify: &VerifyCreate) -> Result<Proof> {
        self.post(&paths::of_point(paths::POINT_PROOF, name), verify)
    }

    /// The newest proof of a point; nothing where there is none.
    pub fn proof(&self, name: &PointName) -> Result<Option<Proof>> {
        match self.get(&paths::of_point(paths::POINT_PROOF, name)) {
            Err(error) if error.kind() == Kind::NotFound => Ok(None),
            found => found.map(Some),
        }
    }

    /// Ends a recovery and its machine, by pulling its plug where that is said; its disks stay, unless they are to be discarded.
    pub fn stop_recovery(&self, name: &Name, discard: bool, power_off: bool) -> Result<()> {
        let path = paths::of_recovery(paths::RECOVERY, name);
        self.delete(&format!("{path}?discard={discard}&power_off={power_off}"))
    }
}

fn of_one(path: &str, source: Option<&Name>) -> String {
    source.map_or_else(|| path.to_owned(), |source| format!("{path}?source={source}"))
}
