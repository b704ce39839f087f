//! Runs: each makes one point of a source.
//!
//! *Order*: the run's document, which names the snapshots that are to be taken; what is to be copied is ([`copying`](crate::copying)), and the
//! document says so; one mark that takes them all; the point's document; its lock, where a
//! policy wants one; then the run's says that it is done. A run that is found under way tells which: its snapshots are there, then the point is put; they are not, then it
//! has failed, as has one that had not said that all was copied: that is [made again](again). *Never*: leaves snapshots that no point has; puts a point before
//! its snapshots are durable.

mod again;
mod document;
mod ended;
mod standing;

pub(crate) use again::CUT_OFF_MAX;
pub use document::{Copied, Run, RunRequest, RunState, Slot};
pub(crate) use document::{Received, key};

use crate::catalog::{self, Entry, Unknown};
use crate::copying::Copying;
use crate::machines::MachineDisk;
use crate::points::{Consistency, Point, PointDisk};
use crate::{Hardware, Policy, Protection, stamp};
use std::sync::atomic::Ordering;
use stonefold_env::WallNanos;
use stonefold_store::SnapshotInfo;
use stonefold_types::{Error, Kind, Name, PointName, Result, SnapshotName};

/// Runs of one source that are remembered: ten days of one each quarter of an hour. Older ones are forgotten when the next one is done, but for the
/// last of each policy.
pub const RUNS_MAX: usize = 1000;

/// How a run has begun.
enum Begun {
    /// There was nothing to copy, and its point is there.
    Done(Box<Run>),
    Copying(Box<Copying>),
}

impl Protection {
    /// All runs that are remembered, or those of one source, by source and time.
    pub async fn runs(&self, source: Option<&Name>) -> Result<Vec<Run>> {
        self.settle().await;
        let runs = catalog::all(&self.store, source.map(Name::as_str)).await?;
        Ok(runs.into_iter().map(|run| self.copies.told(run)).collect())
    }

    /// One run.
    pub async fn run(&self, name: &PointName) -> Result<Run> {
        self.settle().await;
        Ok(self.copies.told(catalog::get(&self.store, &key(name)).await?))
    }

    /// Backs a source up, and returns when its point is there, durably. While a run of before is made again that is waited for first.
    pub async fn back_up(&self, source: &Name, asked: RunRequest) -> Result<Run> {
        self.wait_for_made_again(source).await;
        let made = self.make_run(source, asked, None).await?;
        Ok(made.expect("a run that is no policy's is wanted"))
    }

    /// The same for a slot of a policy; nothing, where that is not to make runs of the source any more.
    pub(crate) async fn back_up_for(
        &self,
        source: &Name,
        policy: &Policy,
        slot: Slot,
    ) -> Result<Option<Run>> {
        let asked = RunRequest { full: false, consistency: policy.consistency };
        self.make_run(source, asked, Some((policy, slot))).await
    }

    async fn make_run(
        &self,
        source: &Name,
        asked: RunRequest,
        of: Option<(&Policy, Slot)>,
    ) -> Result<Option<Run>> {
        let still = match (asked.consistency, &of) {
            (Consistency::Crash, _) => None,
            (Consistency::App, None) => self.standstill_for(source).await?,
            // The history says why there is no point for a slot.
            (Consistency::App, Some(_)) => match self.standstill_for(source).await {
                Ok(still) => still,
                Err(error) => return Err(self.keep_failed(source, of.clone(), error).await),
            },
        };
        let made = async {
            let begun = self.change(async {
                match &of {
                    Some((policy, _)) if !self.still_wants(policy, source).await? => Ok(None),
                    _ => self.begin(source, asked, of.clone()).await.map(Some),
                }
            });
            match begun.await? {
                Some(begun) => self.go_on(begun).await.map(Some),
                None => Ok(None),
            }
        };
        let Some(still) = still else { return made.await };
        match self.while_still(&still, made).await {
            Ok((Ok(made), stood)) => match made {
                Some(run) => Ok(Some(self.said_stood(run, stood).await)),
                None => Ok(None),
            },
            Ok((Err(error), stood)) => Err(stood.blamed_for(error)),
            // Another run has it, or the server leaves, which is none of this one's history.
            Err(error) if error.kind() == Kind::Busy || self.ending.load(Ordering::SeqCst) => Err(error),
            Err(error) => Err(self.keep_failed(source, of.clone(), error).await),
        }
    }

    /// Keeps in the history that no point could be made because a guest could not be had to stand still. Returns why.
    async fn keep_failed(&self, source: &Name, of: Option<(&Policy, Slot)>, error: Error) -> Error {
        let kept = self.change(async {
            self.check_no_run(source).await?;
            let (machine, disks) = match self.source(source).await?.of.machine() {
                Some(machine) => self.machine(machine).await.map(|machine| (machine.name, machine.disks))?,
                None => (source.clone(), Vec::new()),
            };
            let mut run = self.new_run(source, machine, disks, None, of).await?;
            (run.state, run.ended, run.note) = (RunState::Failed, Some(run.begun), Some(error.to_string()));
            catalog::put_new(&self.store, &run).await?;
            Ok(run.name)
        });
        match kept.await {
            Ok(run) => {
                self.forget_old_runs(source).await;
                error.context(format!("run '{run}'"))
            }
            Err(lost) => {
                tracing::warn!("source '{source}': a run that failed is not in the history: {lost}");
                error
            }
        }
    }

    /// Begins a run, and makes the point where nothing is to be copied; within a change.
    async fn begin(&self, source: &Name, asked: RunRequest, of: Option<(&Policy, Slot)>) -> Result<Begun> {
        let source = self.source(source).await?;
        source.check_is_no_replica()?;
        self.check_no_run(&source.name).await?;
        let Some(machine) = source.of.machine() else {
            let copying = self.begin_copying(source, asked, of).await?;
            return Ok(Begun::Copying(Box::new(copying)));
        };
        let machine = self.machine(machine).await?;
        self.check_no_sync(&machine.name).await?;
        let run = self.new_run(&source.name, machine.name, machine.disks, machine.hardware, of).await?;
        self.steps_begin();
        catalog::put_new(&self.store, &run).await?;
        Ok(Begun::Done(Box::new(self.take(run).await?)))
    }

    /// Others change what they want meanwhile: it may take hours.
    async fn go_on(&self, begun: Begun) -> Result<Run> {
        match begun {
            Begun::Done(run) => Ok(*run),
            Begun::Copying(copying) => {
                let copied = self.copy(*copying).await;
                // A policy may have waited for that.
                self.policies_changed.notify_one();
                copied
            }
        }
    }

    /// Takes a run's snapshots, and puts its point.
    pub(crate) async fn take(&self, run: Run) -> Result<Run> {
        let disks: Vec<Name> = run.disks.iter().map(|disk| disk.disk.clone()).collect();
        let taken = self.store.snapshot(&disks, Some(run.name.stamp.clone())).await;
        let taken = taken.map_err(|e| e.context(format!("run '{}'", run.name)));
        match taken {
            Ok(taken) => self.finish(run, &taken, None).await,
            // Somebody gave one of its snapshots' names meanwhile: that one is not this run's.
            Err(error) if error.kind() == Kind::AlreadyExists => {
                self.end(&run.name, RunState::Failed, Some(&error.to_string())).await?;
                Err(error)
            }
            // Whether it is there all the same is looked at when the run is ended, which tells of this.
            Err(error) => {
                let note = error.to_string();
                let said = |run: &mut Run| {
                    run.note = Some(note.clone());
                    Ok(())
                };
                // The first error is the one to tell.
                let _ = catalog::change(&self.store, &run.key(), said).await;
                Err(error)
            }
        }
    }

    /// A run that is to be.
    pub(crate) async fn new_run(
        &self,
        source: &Name,
        machine: Name,
        disks: Vec<MachineDisk>,
        hardware: Option<Hardware>,
        of: Option<(&Policy, Slot)>,
    ) -> Result<Run> {
        let begun = self.store.time().trusted;
        let mut known = catalog::keys::<Run>(&self.store, Some(source.as_str())).await?;
        known.extend(catalog::keys::<Point>(&self.store, Some(source.as_str())).await?);
        // After all others, so that the newest is the last by name, too.
        let last = known.iter().filter_map(|key| Name::new(key.split_once('/')?.1).ok()).max();
        let is_taken = |stamp: &Name| {
            let of = |disk: &MachineDisk| SnapshotName { disk: disk.disk.clone(), snapshot: stamp.clone() };
            disks.iter().any(|disk| self.store.snapshot_info(&of(disk)).is_ok())
        };
        Ok(Run {
            name: PointName { source: source.clone(), stamp: stamp::free(begun, last.as_ref(), is_taken) },
            machine,
            disks,
            hardware,
            database: None,
            copied: None,
            state: RunState::Running,
            paused: false,
            begun,
            ended: None,
            note: None,
            lock_until: of.as_ref().and_then(|(policy, _)| policy.lock_of(begun)),
            slot: of.map(|(_, slot)| slot),
            cut_off: false,
            asked: None,
            received: None,
            unknown: Unknown::new(),
        })
    }

    /// Puts the point of snapshots that are durable, and says that the run is done.
    async fn finish(&self, run: Run, taken: &[SnapshotInfo], note: Option<&str>) -> Result<Run> {
        let of = |disk: &MachineDisk| {
            let found = taken.iter().find(|info| info.name.disk == disk.disk);
            let removed =
                || Error::new(Kind::Conflict, format!("the snapshot of '{}' was removed", disk.disk));
            found.map(|info| PointDisk::of(disk, info)).ok_or_else(removed)
        };
        let point = Point {
            name: run.name.clone(),
            machine: run.machine.clone(),
            disks: run.disks.iter().map(of).collect::<Result<_>>()?,
            hardware: run.hardware.clone(),
            database: run.database.clone(),
            taken: match (&run.received, run.copied.as_ref().and_then(|copied| copied.cut)) {
                (Some(received), _) => received.taken,
                (None, cut) => cut.unwrap_or(run.begun),
            },
            // Of one that is made here it is said once the guest is seen to have stood still.
            consistency: match (&run.received, &run.database) {
                (Some(received), _) => received.consistency,
                (None, Some(_)) => Consistency::App,
                (None, None) => Consistency::Crash,
            },
            policy: run.slot.as_ref().map(|slot| slot.policy.clone()),
            removing: false,
            unknown: Unknown::new(),
        };
        match catalog::put_new(&self.store, &point).await {
            // Put by this run before it was cut off.
            Err(error) if error.kind() == Kind::AlreadyExists => {}
            put => put?,
        }
        let unlocked = self.lock_as_told(&run, point.taken, taken).await?;
        let note = unlocked.as_deref().or(note);
        let done = self.end(&run.name, RunState::Done, note).await?;
        self.forget_old_runs(&run.name.source).await;
        Ok(done)
    }

    /// Locks the snapshots of a run, whose point is of the instant `at`, for as long as it says. Why that cannot be, where it never could.
    async fn lock_as_told(&self, run: &Run, at: WallNanos, taken: &[SnapshotInfo]) -> Result<Option<String>> {
        let Some(until) = run.lock_of_point(at) else { return Ok(None) };
        if until <= self.store.time().trusted {
            // Of one that was sent it is over there, too.
            let over = "its point is not locked: the time of its lock was over before it was made";
            return Ok(run.received.is_none().then(|| over.to_owned()));
        }
        for info in taken.iter().filter(|info| info.locked_until.is_none_or(|is| is < until)) {
            match self.store.lock_snapshot(&info.name, until).await {
                Ok(_) => {}
                // It may pass: the run is ended later, and the point locked then.
                Err(error)
                    if matches!(error.kind(), Kind::Io | Kind::NoSpace | Kind::Closed | Kind::Busy) =>
                {
                    return Err(error.context(format!("run '{}'", run.name)));
                }
                Err(error) => return Ok(Some(format!("its point is not locked: {error}"))),
            }
        }
        Ok(None)
    }

    /// Ends a run that copied, and that its server has not brought to an end.
    pub(crate) async fn end_cut_off(&self, run: &Run) -> Result<Run> {
        self.end_as(&run.name, (RunState::Failed, true), Some(run.cut_off_note())).await
    }

    pub(crate) async fn end(&self, run: &PointName, state: RunState, note: Option<&str>) -> Result<Run> {
        self.end_as(run, (state, false), note).await
    }

    async fn end_as(
        &self,
        run: &PointName,
        (state, cut_off): (RunState, bool),
        note: Option<&str>,
    ) -> Result<Run> {
        let ended = self.store.time().trusted;
        let end = |run: &mut Run| {
            (run.state, run.cut_off) = (state, cut_off);
            run.ended = Some(ended);
            (run.hardware, run.database) = (None, None);
            if run.note.is_none() {
                run.note = note.map(str::to_owned);
            }
            Ok(())
        };
        catalog::change(&self.store, &key(run), end).await
    }

    /// A document; nothing where there is none that can be read: one that is damaged keeps no other from being ended.
    pub(crate) async fn readable<E: Entry>(&self, key: &str) -> Result<Option<E>> {
        match catalog::find(&self.store, key).await {
            Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::Unsupported) => {
                tracing::warn!("left out: {error}");
                Ok(None)
            }
            found => found,
        }
    }
}
