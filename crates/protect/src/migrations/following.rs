//! A move that is looked after until it ends.

use super::jobs::{Jobs, Progress};
use super::left::Left;
use super::{Ended, Headway, LOOK_EVERY, Migration, MigrationState, SAVE_EVERY};
use crate::hypervisor::Host;
use crate::pace::{Pace, Paced};
use crate::{Protection, catalog};
use stonefold_types::{Kind, Name, Result};

impl Protection {
    pub(super) async fn look_after(&self, name: &Name, host: &Host, again: bool) -> Result<Ended> {
        let migration: Migration = catalog::get(&self.store, name.as_str()).await?;
        let jobs = self.find_jobs(host, &migration, again).await?;
        let moved = async {
            if migration.stands {
                self.have_go_on(name, &jobs).await?;
            }
            let mut pace = Pace::begin(&self.env, &jobs, migration.floor_percent).await?;
            jobs.begin(&migration).await?;
            self.follow(&jobs, &migration, &mut pace).await
        };
        let moved = moved.await;
        if !matches!(moved, Ok((MigrationState::Done, _)))
            && !self.leaves(&moved)
            && !self.is_closed(name).await
        {
            // The machine goes on with what it has.
            let abandoned = jobs.abandon(&migration).await.map_err(|left| {
                let why =
                    moved.as_ref().err().map_or_else(|| "it was cancelled".to_owned(), ToString::to_string);
                left.context(format!("{why}; what was copied may still be there"))
            });
            let left = self.left_half(name, &jobs, moved).await;
            return abandoned.and(left);
        }
        let (state, to_know) = moved?;
        let alike = (state == MigrationState::Done && migration.verify)
            .then(|| "both ends were alike while the guest stood still".to_owned());
        let notes: Vec<String> = alike.into_iter().chain(to_know).collect();
        Ok((state, (!notes.is_empty()).then(|| notes.join("; "))))
    }

    /// Keeps which disks have gone over all the same, of a move that did not come to its end, and has it told.
    async fn left_half(&self, name: &Name, jobs: &Jobs, ended: Result<Ended>) -> Result<Ended> {
        let migration: Migration = catalog::get(&self.store, name.as_str()).await?;
        let moved = match jobs.moved(&migration).await {
            Ok(moved) => moved,
            Err(error) => {
                tracing::warn!("which disks of '{name}' have gone over is not known: {error}");
                return ended;
            }
        };
        let say = |migration: &mut Migration| {
            migration.disks.iter_mut().zip(&moved).for_each(|(disk, moved)| disk.moved = *moved);
            // It is known now.
            migration.goes_over = false;
            Ok(())
        };
        let at_home = catalog::change::<Migration>(&self.store, name.as_str(), say).await?.disks;
        let at_home: Vec<&str> =
            at_home.iter().filter(|disk| disk.moved).map(|disk| disk.target.as_str()).collect();
        if at_home.is_empty() {
            return ended;
        }
        let told = format!(
            "the machine has '{}' at the new place already, and the others where they were",
            at_home.join("', '")
        );
        match ended {
            Ok((state, to_know)) => {
                Ok((state, Some(to_know.into_iter().chain([told]).collect::<Vec<_>>().join("; "))))
            }
            Err(error) => {
                Err(error.context(told).remedy("see to that, and begin again: what is left is moved"))
            }
        }
    }

    /// Whether the server is leaving: then nothing that fails says anything of a migration.
    pub(super) async fn is_closed(&self, name: &Name) -> bool {
        let found = catalog::find::<Migration>(&self.store, name.as_str()).await;
        found.is_err_and(|error| error.kind() == Kind::Closed)
    }

    /// Looks after the jobs until they have ended, or are to: how, and what somebody is to know of it.
    async fn follow(&self, jobs: &Jobs, migration: &Migration, pace: &mut Pace) -> Result<Ended> {
        let mut saved = self.env.monotonic();
        let (mut paused, mut wish, mut left) = (false, migration.state, Left::default());
        loop {
            match catalog::get::<Migration>(&self.store, migration.name.as_str()).await {
                Ok(found) => wish = found.state,
                Err(error) if error.kind() == Kind::Closed => return Err(error),
                // It may pass, and is no reason to copy anew.
                Err(error) => tracing::warn!("the migration of '{}' goes on: {error}", migration.name),
            }
            match wish {
                MigrationState::Cancelling => return Ok((MigrationState::Cancelled, None)),
                MigrationState::Paused if !paused => jobs.pause().await?,
                MigrationState::Copying if paused => jobs.resume().await?,
                _ => {}
            }
            paused = wish == MigrationState::Paused;
            if paused {
                // How fast it was says nothing of after that.
                left = Left::default();
            }
            let progress = jobs.progress().await?;
            if self.env.monotonic().saturating_sub(saved) > SAVE_EVERY {
                self.save_progress(&migration.name, &progress).await;
                saved = self.env.monotonic();
            }
            if progress.is_ready && !paused {
                self.save_progress(&migration.name, &progress).await;
                match self.go_over(jobs, migration).await {
                    Err(error) => tracing::warn!("'{}' does not go over yet: {error}", migration.name),
                    Ok(ended) => return ended,
                }
            }
            if !paused {
                let left_seconds = left.seconds(self.env.monotonic(), progress.sums());
                match pace.set(&self.env, jobs).await {
                    Ok(rate) => {
                        self.moving.lock().insert(migration.name.clone(), Headway { rate, left_seconds });
                    }
                    // Whether it goes on at all is looked at the next time.
                    Err(error) => {
                        tracing::warn!("the pace of the migration of '{}' stays: {error}", migration.name)
                    }
                }
            }
            tokio::select! {
                () = self.env.sleep(LOOK_EVERY) => {}
                () = self.moving_changed.notified() => {}
            }
        }
    }

    /// Goes over to the new disks, and how that ended; fails, with nothing done, where it cannot be kept that it is about to, or whether the guest runs
    /// is not known.
    async fn go_over(&self, jobs: &Jobs, migration: &Migration) -> Result<Result<Ended>> {
        let name = &migration.name;
        let runs = !migration.verify || jobs.runs().await?;
        self.say_goes_over(name, migration.verify && runs).await?;
        let _still = self.compares(migration);
        let moved = jobs.pivot(&self.env, migration, runs, self.given_up(name)).await;
        if migration.verify && runs {
            self.seen_awake(name, jobs).await;
        }
        Ok(match moved {
            Err(_) if self.is_cancelled(name).await => Ok((MigrationState::Cancelled, None)),
            moved => moved.map(|to_know| (MigrationState::Done, to_know)),
        })
    }

    /// For whoever looks; where it cannot be kept now, it is later.
    async fn save_progress(&self, name: &Name, progress: &Progress) {
        let save = |migration: &mut Migration| {
            for (disk, (done, total)) in migration.disks.iter_mut().zip(&progress.bytes) {
                (disk.done_bytes, disk.total_bytes) = (*done, *total);
            }
            Ok(())
        };
        if let Err(error) = catalog::change::<Migration>(&self.store, name.as_str(), save).await {
            tracing::warn!("how far the migration of '{name}' is, is not kept: {error}");
        }
    }
}
