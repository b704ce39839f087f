//! Runs that copy: of what lies on other people's storage, each disk into one of ours, `SOURCE.DISK`.
//!
//! *Order*: the run's document; the source is opened ([`opened`]); its document names the numbers of the [disks](target), these are made or get their size;
//! each is made to be what the source holds ([`copy`](crate::copy)), once or, of a guest that writes on, until that is of one instant, and flushed; the
//! source is given back; then the run goes on as one that has nothing to copy. Only the first and the last are changes that others wait for. *Never*: makes a point of what is not all there; takes another's disk for its own; leaves a run
//! under way of which nobody is left: it has failed then, and the next one copies only what it lacks.
//!
//! Whatever else has written to a disk, the point is what the source held: a run compares everything, or, where a bitmap says what has changed since the last point,
//! that and what of the disk has changed since. What is not the source's is overwritten, and told where the store knows of it.

mod asked;
mod bandwidth;
mod beside;
mod live;
mod opened;
mod received;
mod spot;
mod stored;
mod target;

pub(crate) use bandwidth::Bandwidth;
pub(crate) use beside::Guest;
pub(crate) use live::{Copies, Copying, Live};
pub(crate) use opened::Reading;
pub(crate) use received::Sent;

use crate::catalog;
use crate::copy::stopped;
use crate::machines::MachineDisk;
use crate::points::Point;
use crate::runs::{Copied, Run, RunRequest, RunState, Slot, key};
use crate::sources::{Source, copied_to};
use crate::{Policy, Protection};
use futures::FutureExt;
use opened::{Marks, Opened};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;
use stonefold_store::Attachment;
use stonefold_types::{Error, Kind, Name, Result, Size};

/// How long a server may say nothing that owes an answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// The class of the disks that are copied to: what takes what is left.
pub(crate) const CLASS: &str = "backup-target";

impl Protection {
    /// The first step of a run that copies, within a change.
    pub(crate) async fn begin_copying(
        &self,
        source: Source,
        asked: RunRequest,
        of: Option<(&Policy, Slot)>,
    ) -> Result<Copying> {
        // Those of a guest are known once it is asked.
        let disk = |disk: Name| {
            let target =
                disk.as_str().strip_prefix(source.name.as_str()).and_then(|rest| rest.strip_prefix('.'));
            Ok(MachineDisk { target: Name::new(target.unwrap_or_default())?, disk })
        };
        let disks = source.disks().into_iter().map(disk).collect::<Result<_>>()?;
        let mut run = self.new_run(&source.name, source.name.clone(), disks, None, of).await?;
        run.copied = Some(Copied { full: asked.full, ..Copied::default() });
        run.asked = run.slot.is_none().then_some(asked);
        let copying = self.copies.enter(source, run, asked);
        self.steps_begin();
        catalog::put_new(&self.store, &copying.run).await?;
        Ok(copying)
    }

    /// The others. Returns when the point is there, durably.
    pub(crate) async fn copy(&self, copying: Copying) -> Result<Run> {
        let (since, live) = (self.env.monotonic(), copying.live.clone());
        let mut marks = None;
        let done = self.copy_all(&copying, &mut marks).await;
        let took = self.env.monotonic().saturating_sub(since);
        let done = done.map_err(|e| e.context(format!("run '{}'", copying.run.name)));
        let ended = self.change(async move {
            self.steps_begin();
            // Dropped before anybody looks what is left: where this fails it is to be found.
            let mut copying = copying;
            let mut copied = copying.run.copied.clone().unwrap_or_default();
            copying.live.tell(&mut copied);
            copied.took_ms = took.as_millis() as u64;
            let ended = match done {
                _ if copying.live.is_cancelled() => self.cancelled(&copying, copied).await,
                // Attached until the snapshot is there, so that nobody takes the disk away.
                Ok(_attached) => self.complete(&copying, copied).await,
                Err(error) => self.failed(&copying, copied, error).await,
            };
            copying.ended = ended.is_ok();
            ended
        });
        let ended = ended.await.and_then(|ended| ended);
        if let Some(marks) = marks {
            marks.settle(ended.is_ok()).await;
        }
        let run = match (ended?, live.take_stood()) {
            (run, Some(stood)) => self.said_stood(run, stood).await,
            (run, None) => run,
        };
        self.say_stored_later(&run);
        Ok(run)
    }

    /// Makes the disks what the source holds, durably. What is left to do with a guest's bitmaps is put into `marks`.
    async fn copy_all(&self, copying: &Copying, marks: &mut Option<Marks>) -> Result<Vec<Attachment>> {
        let live = &copying.live;
        let place = async { self.copies.places.acquire().await.map_err(|_| stopped()) };
        let _place = live.unless_stopped(place).await?;
        live.until_resumed().await?;
        let last = self.last_point(&copying.source.name).await?;
        let mut opened = self.open(copying, last.as_ref()).await?;
        let readings = std::mem::take(&mut opened.disks);
        let done = {
            live.beside.store(opened.guest.is_some(), Ordering::Relaxed);
            let _evenly = opened.guest.as_ref().map(|_| self.store.goes_evenly());
            let pace = match &opened.guest {
                Some(guest) => guest.keep_pace(&self.env, live).boxed(),
                None => std::future::pending().boxed(),
            };
            let mut copied = pin!(self.copy_opened(copying, &opened, readings, last.as_ref()));
            tokio::select! {
                biased;
                // First: nothing is read before the guest was looked at.
                never = pace => match never {},
                done = &mut copied => match done {
                    Ok(attached) => Ok(attached),
                    Err(error) => Err(opened.blamed(&self.env, error).await),
                },
                danger = opened.in_danger(&self.env) => {
                    live.stop();
                    let (done, ()) = futures::join!(copied, self.end_danger(&opened));
                    done.map_err(|_| danger)
                }
            }
        };
        let done = match done {
            Ok(attached) => opened.check_still(&self.env).await.map(|()| attached),
            failed => failed,
        };
        *marks = self.close(copying, opened).await;
        done
    }

    /// The newest point of a source that can be recovered.
    pub(crate) async fn last_point(&self, source: &Name) -> Result<Option<Point>> {
        for key in catalog::keys::<Point>(&self.store, Some(source.as_str())).await?.iter().rev() {
            let Some(point) = self.readable::<Point>(key).await? else { continue };
            if self.status_of(point.clone()).is_whole() {
                return Ok(Some(point));
            }
        }
        Ok(None)
    }

    async fn copy_opened(
        &self,
        copying: &Copying,
        opened: &Opened,
        mut readings: Vec<Reading>,
        last: Option<&Point>,
    ) -> Result<Vec<Attachment>> {
        self.note_strangers(copying).await?;
        let of = |disk: &Reading| {
            let target = disk.target.clone();
            Ok(MachineDisk { disk: copied_to(&copying.source.name, &target)?, target })
        };
        let disks: Vec<MachineDisk> = readings.iter().map(of).collect::<Result<_>>()?;
        let say = |run: &mut Run| {
            (run.disks, run.hardware) = (disks.clone(), opened.hardware.clone());
            // Of what is sent it is known already.
            run.database = opened.database.clone().or(run.database.take());
            Ok(())
        };
        self.change(catalog::change(&self.store, &key(&copying.run.name), say)).await?;
        let several = |disk: &MachineDisk| {
            let named = (disks.len() > 1).then(|| disk.target.clone());
            move |e: Error| named.iter().fold(e, |e, target| e.context(format!("disk '{target}'")))
        };
        let mut targets = Vec::new();
        for (reading, disk) in readings.iter().zip(&disks) {
            let begun = self.begin_target(copying, reading, disk, last);
            let mut target = begun.await.map_err(several(disk))?;
            self.copy_to(copying, reading, &mut target).await.map_err(several(disk))?;
            targets.push(target);
        }
        loop {
            // A guest is not cut while nothing would be read of it.
            copying.live.until_resumed().await?;
            let Some(next) = self.next_reading(opened, &copying.live).await? else { break };
            readings = next;
            for ((reading, target), disk) in readings.iter().zip(&mut targets).zip(&disks) {
                target.is_what_was_read();
                self.copy_to(copying, reading, target).await.map_err(several(disk))?;
            }
        }
        let mut attached = Vec::new();
        for ((reading, target), disk) in readings.iter().zip(targets).zip(&disks) {
            attached.push(self.end_target(copying, reading, target).await.map_err(several(disk))?);
        }
        Ok(attached)
    }

    /// Notes what something else has changed since the last point, where the last run made one: what a run that was cut off left is its own.
    async fn note_strangers(&self, copying: &Copying) -> Result<()> {
        let keys = catalog::keys::<Run>(&self.store, Some(copying.source.name.as_str())).await?;
        let own = key(&copying.run.name);
        let Some(last) = keys.iter().rev().find(|key| **key != own) else { return Ok(()) };
        let is_done = self.readable::<Run>(last).await?.is_some_and(|run| run.state == RunState::Done);
        let Some(point) = self.readable::<Point>(last).await?.filter(|_| is_done) else { return Ok(()) };
        let snapshots: Vec<_> = point.disks.iter().map(|disk| point.snapshot_of(disk)).collect();
        if !self.status_of(point).is_whole() {
            return Ok(());
        }
        for snapshot in snapshots {
            // What is only to be told keeps nothing from being done.
            let Ok(ranges) = self.store.diff(&snapshot, None).await else { continue };
            let changed: u64 = ranges.iter().map(|(_, bytes)| bytes).sum();
            if changed > 0 {
                let (changed, disk) = (Size(changed), &snapshot.disk);
                copying.live.note(format!(
                    "something else had changed {changed} of disk '{disk}' since the last point: it is as the source again"
                ));
            }
        }
        Ok(())
    }

    async fn complete(&self, copying: &Copying, copied: Copied) -> Result<Result<Run>> {
        let run = self.say(copying, Copied { complete: true, ..copied }).await?;
        self.take(run).await.map(Ok)
    }

    async fn failed(&self, copying: &Copying, copied: Copied, error: Error) -> Result<Result<Run>> {
        self.say(copying, copied).await?;
        match self.ending.load(Ordering::SeqCst) {
            true => self.end_cut_off(&copying.run).await?,
            false => self.end(&copying.run.name, RunState::Failed, Some(&error.to_string())).await?,
        };
        self.forget_old_runs(&copying.source.name).await;
        Ok(Err(error))
    }

    async fn cancelled(&self, copying: &Copying, copied: Copied) -> Result<Result<Run>> {
        self.say(copying, copied).await?;
        let name = &copying.run.name;
        self.end(name, RunState::Cancelled, Some("somebody ended it")).await?;
        self.forget_old_runs(&copying.source.name).await;
        let error = Error::new(Kind::Conflict, format!("run '{name}' was cancelled"));
        Ok(Err(error.remedy("run it again: only what differs is copied")))
    }

    /// Says in the run's document what was copied.
    async fn say(&self, copying: &Copying, copied: Copied) -> Result<Run> {
        let say = |run: &mut Run| {
            run.copied = Some(copied.clone());
            Ok(())
        };
        catalog::change(&self.store, &key(&copying.run.name), say).await
    }
}
