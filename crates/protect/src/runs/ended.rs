//! Runs that were cut off, ended later; and old ones, forgotten.

use super::{RUNS_MAX, Run, RunState};
use crate::catalog;
use crate::machines::MachineDisk;
use crate::{Policy, Protection};
use stonefold_store::SnapshotInfo;
use stonefold_types::{Error, Kind, Name, Result, SnapshotName};

impl Protection {
    /// Those beyond [`RUNS_MAX`]. What cannot be forgotten now is with the next run.
    pub(crate) async fn forget_old_runs(&self, source: &Name) {
        let forget = async {
            let keys = catalog::keys::<Run>(&self.store, Some(source.as_str())).await?;
            for key in &keys[..keys.len().saturating_sub(RUNS_MAX)] {
                if self.is_last_of_a_policy(key, source).await? {
                    continue;
                }
                catalog::remove::<Run>(&self.store, key).await?;
            }
            Result::Ok(())
        };
        if let Err(error) = forget.await {
            tracing::warn!("old runs of source '{source}' stay for now: {error}");
        }
    }

    /// Whether a run tells up to which slot a policy has been followed: that is remembered, however many others there were since.
    async fn is_last_of_a_policy(&self, key: &str, source: &Name) -> Result<bool> {
        let Some(slot) = self.readable::<Run>(key).await?.and_then(|run| run.slot) else { return Ok(false) };
        match self.readable::<Policy>(slot.policy.as_str()).await? {
            Some(policy) if policy.since(source).is_some() => {
                Ok(self.last_slot(&policy, source).await? <= slot.at)
            }
            _ => Ok(false),
        }
    }

    /// Ends the runs that were cut off: of each source that could only be the newest.
    pub(crate) async fn end_runs(&self) -> Result<()> {
        let mut ended = Ok(());
        let keys = catalog::keys::<Run>(&self.store, None).await?;
        let source_of = |key: &str| key.split('/').next().unwrap_or_default().to_owned();
        for (at, key) in keys.iter().enumerate() {
            let is_newest = keys.get(at + 1).is_none_or(|next| source_of(next) != source_of(key));
            if !is_newest {
                continue;
            }
            let is_left = |run: &Run| run.is_under_way() && !self.copies.is_live(&run.name);
            let Some(run) = self.readable::<Run>(key).await?.filter(is_left) else { continue };
            let named = |e: Error| e.context(format!("run '{}'", run.name));
            ended = ended.and(self.end_run(run.clone()).await.map_err(named));
        }
        ended
    }

    async fn end_run(&self, run: Run) -> Result<()> {
        let copied = run.copied.as_ref();
        let taken = match copied.is_some_and(|copied| !copied.complete) {
            true => None,
            false => self.snapshots_of(&run).await?,
        };
        let ended = match taken {
            Some(taken) => {
                let note = "it was cut off when its snapshots had been taken, and ended later";
                self.finish(run, &taken, Some(note)).await?
            }
            None if copied.is_some() => self.end_cut_off(&run).await?,
            None => {
                let note = "it was cut off before its snapshots were taken";
                self.end(&run.name, RunState::Failed, Some(note)).await?
            }
        };
        // Of those that fail while the server lives the round tells.
        if !self.is_made_again(&ended).await? && self.is_starting() {
            self.tell_ended(&ended).await;
        }
        Ok(())
    }

    /// Whether what a run was begun for is due again.
    async fn is_made_again(&self, run: &Run) -> Result<bool> {
        let Some(slot) = run.slot.as_ref().filter(|_| run.cut_off) else { return Ok(false) };
        let source = &run.name.source;
        // Read again, now that it says so.
        self.slots.lock().remove(&(slot.policy.clone(), source.clone()));
        match self.readable::<Policy>(slot.policy.as_str()).await? {
            Some(policy) if policy.since(source).is_some() => {
                Ok(self.last_slot(&policy, source).await? < slot.at)
            }
            _ => Ok(false),
        }
    }

    /// The snapshots of a run, durable; nothing where one mark has not taken them all.
    async fn snapshots_of(&self, run: &Run) -> Result<Option<Vec<SnapshotInfo>>> {
        let name =
            |disk: &MachineDisk| SnapshotName { disk: disk.disk.clone(), snapshot: run.name.stamp.clone() };
        let mut taken = Vec::new();
        for disk in &run.disks {
            match self.store.snapshot_info(&name(disk)) {
                Ok(info) => taken.push(info),
                Err(error) if error.kind() == Kind::NotFound => return Ok(None),
                // What cannot be read now may be there.
                Err(error) => return Err(error),
            }
        }
        if taken.iter().any(|info| info.created != taken[0].created) {
            return Ok(None);
        }
        // The error that cut it off may have been that of the marks.
        self.store.settle_marks().await?;
        Ok(Some(taken))
    }
}
