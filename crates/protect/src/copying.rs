//! Runs that copy: of an export or an image on other people's storage, into a disk of ours, `SOURCE.vda`.
//!
//! *Order*: the run's document; the source's document names the number of the disk, the disk is made or gets its size; it is made to be what
//! the source holds ([`copy`](crate::copy)), and flushed; then the run goes on as one that has nothing to copy. Only the first and the last are changes that others
//! wait for. *Never*: makes a point of what is not all there; takes another's disk for its own; leaves a run under way of which nobody is
//! left: it has failed then, and the next one copies only what it lacks.
//!
//! Whatever else has written to the disk, the point is what the source held: every run compares everything, so what is not the source's is
//! overwritten, and told where the store knows of it. The disk is not set back to the last point first, which would be the same with one round of the fold
//! more, and could not be done while a client reads an old point. It will have to be, once a run believes a bitmap.

use crate::catalog;
use crate::clones::check_no_disk;
use crate::copy::{Copy, Figures, stopped};
use crate::machines::MachineDisk;
use crate::nbd::Client;
use crate::points::Point;
use crate::runs::{Copied, Run, RunState, Slot, key};
use crate::sources::{COPIED_AS, ImageFile, Source, SourceOf, copied_to};
use crate::{Policy, Protection, image};
use parking_lot::Mutex as Memory;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stonefold_store::{Attachment, OWN};
use stonefold_types::{
    BLOCK_BYTES, DISK_BYTES_MAX, DiskSettings, Error, ExportName, Kind, Name, PointName, Result, Size,
};
use tokio::sync::{Semaphore, watch};

/// Copies at once; more wait for their turn. Each takes some 16 MiB of memory.
const COPIES_MAX: usize = 4;
/// How long a server may say nothing that owes an answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// The class of the disks that are copied to: what takes what is left.
pub(crate) const CLASS: &str = "backup-target";

/// Runs that copy, now.
pub(crate) struct Copies {
    live: Memory<BTreeMap<PointName, Arc<Live>>>,
    /// Whether one was left in its midst.
    left: AtomicBool,
    places: Semaphore,
}

/// A run that copies, now.
pub(crate) struct Live {
    pub(crate) figures: Figures,
    notes: Memory<Vec<String>>,
    cancelled: AtomicBool,
    stop: watch::Sender<bool>,
    over: watch::Sender<bool>,
}

/// Such a run for whoever makes it. One that is dropped before it has ended was left in its midst.
pub(crate) struct Copying {
    copies: Arc<Copies>,
    live: Arc<Live>,
    source: Source,
    run: Run,
    ended: bool,
}

impl Default for Copies {
    fn default() -> Self {
        Copies { live: Memory::default(), left: AtomicBool::new(false), places: Semaphore::new(COPIES_MAX) }
    }
}

impl Copies {
    fn enter(self: &Arc<Self>, source: Source, run: Run) -> Copying {
        let live = Arc::new(Live {
            figures: Figures::default(),
            notes: Memory::default(),
            cancelled: AtomicBool::new(false),
            stop: watch::Sender::new(false),
            over: watch::Sender::new(false),
        });
        self.live.lock().insert(run.name.clone(), live.clone());
        Copying { copies: self.clone(), live, source, run, ended: false }
    }

    pub(crate) fn is_live(&self, run: &PointName) -> bool {
        self.live.lock().contains_key(run)
    }

    /// Whether one was left in its midst since this was asked last.
    pub(crate) fn was_left(&self) -> bool {
        self.left.swap(false, Ordering::SeqCst)
    }

    /// A run with how far it is.
    pub(crate) fn told(&self, mut run: Run) -> Run {
        let live = self.live.lock().get(&run.name).cloned();
        if let (Some(live), Some(copied)) = (live, &mut run.copied) {
            live.tell(copied);
        }
        run
    }
}

impl Live {
    /// Has what goes on end at its next step.
    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Fails once it is to end.
    pub(crate) fn check(&self) -> Result<()> {
        if *self.stop.borrow() { Err(stopped()) } else { Ok(()) }
    }

    /// Until it is to end.
    pub(crate) async fn stopped(&self) {
        // The sender is this one's own.
        let _ = self.stop.subscribe().wait_for(|stop| *stop).await;
    }

    /// What comes of something that may be dropped half done, unless it is to end meanwhile.
    async fn unless_stopped<T>(&self, what: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            () = self.stopped() => Err(stopped()),
            done = what => done,
        }
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
    }

    fn note(&self, text: String) {
        self.notes.lock().push(text);
    }

    fn tell(&self, copied: &mut Copied) {
        let of = |figure: &std::sync::atomic::AtomicU64| figure.load(Ordering::Relaxed);
        copied.read_bytes = of(&self.figures.read);
        copied.sent_bytes = of(&self.figures.sent);
        copied.written_bytes = of(&self.figures.written);
        copied.notes = self.notes.lock().clone();
        if of(&self.figures.mended) > 0 {
            let mended = Size(of(&self.figures.mended));
            copied.notes.push(format!("{mended} of its disk could not be read, and were written anew"));
        }
    }
}

impl Drop for Copying {
    fn drop(&mut self) {
        self.copies.live.lock().remove(&self.run.name);
        if !self.ended {
            self.copies.left.store(true, Ordering::SeqCst);
        }
        self.live.over.send_replace(true);
    }
}

impl Protection {
    /// The first step of a run that copies, within a change.
    pub(crate) async fn begin_copying(
        &self,
        source: Source,
        full: bool,
        of: Option<(&Policy, Slot)>,
    ) -> Result<Copying> {
        let disks = vec![MachineDisk { target: Name::new(COPIED_AS)?, disk: copied_to(&source.name)? }];
        let mut run = self.new_run(&source.name, source.name.clone(), disks, None, of).await?;
        run.copied = Some(Copied { full, ..Copied::default() });
        let copying = self.copies.enter(source, run);
        self.steps_begin();
        catalog::put_new(&self.store, &copying.run).await?;
        Ok(copying)
    }

    /// The others. Returns when the point is there, durably.
    pub(crate) async fn copy(&self, copying: Copying) -> Result<Run> {
        let since = self.env.monotonic();
        let done = self.copy_all(&copying).await;
        let took = self.env.monotonic().saturating_sub(since);
        let done = done.map_err(|e| e.context(format!("run '{}'", copying.run.name)));
        self.change(async move {
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
        })
        .await?
    }

    /// Makes the disk what the source holds, durably.
    async fn copy_all(&self, copying: &Copying) -> Result<Attachment> {
        let (live, disk) = (&copying.live, &copying.run.disks[0].disk);
        let place = async { self.copies.places.acquire().await.map_err(|_| stopped()) };
        let _place = live.unless_stopped(place).await?;
        let (from, _served) = live.unless_stopped(self.open(&copying.source.of)).await?;
        let bytes = from.export().bytes;
        if bytes == 0 || bytes > DISK_BYTES_MAX {
            let what = format!("the source has {bytes} bytes, and a disk 4K to {}", Size(DISK_BYTES_MAX));
            return Err(Error::new(Kind::Invalid, what).remedy("look whether it is the right one"));
        }
        self.note_strangers(copying).await?;
        self.change(self.prepare_disk(copying, bytes.next_multiple_of(BLOCK_BYTES as u64))).await?;
        let peer: Arc<str> = format!("backup run '{}'", copying.run.name).into();
        let to = self.store.attach_for(&ExportName::Disk(disk.clone()), peer.clone())?;
        let before = self.store.disk(disk)?.traffic[WRITTEN];
        let full = copying.run.copied.as_ref().is_some_and(|copied| copied.full);
        let copy = Copy { env: &self.env, from: &from, to: &to, live, full };
        copy.run(|| self.check_alone(disk, Some(&*peer))).await?;
        self.check_alone(disk, Some(&*peer))?;
        // One that came and went between two looks. What such a one only trimmed is not counted; the next run finds it.
        let written = self.store.disk(disk)?.traffic[WRITTEN].saturating_sub(before);
        if written != live.figures.written.load(Ordering::Relaxed) {
            let what = format!("something else wrote to disk '{disk}' while the source was copied to it");
            return Err(Error::new(Kind::Conflict, what).remedy("keep others away from it, and run it again"));
        }
        let _durable = to.flush().await?;
        Ok(to)
    }

    async fn open(&self, of: &SourceOf) -> Result<(Client, Option<image::Served>)> {
        match of {
            SourceOf::Nbd(uri) => Ok((Client::connect(&self.env, &uri.parse()?, PATIENCE).await?, None)),
            SourceOf::Image(ImageFile { path, format }) => {
                let format = format.as_deref().unwrap_or("raw");
                let (client, served) = image::connect(&self.env, path, format, PATIENCE).await?;
                Ok((client, Some(served)))
            }
            SourceOf::Machine(name) => {
                Err(Error::new(Kind::Invalid, format!("of machine '{name}' there is nothing to copy")))
            }
        }
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

    /// Has the source's disk be there, as long as the source; within a change.
    async fn prepare_disk(&self, copying: &Copying, size_bytes: u64) -> Result<()> {
        let disk = &copying.run.disks[0].disk;
        let source: Source = catalog::get(&self.store, copying.source.name.as_str()).await?;
        let is_there = match source.number {
            Some(number) => number.is_there(&self.store, disk)?,
            None => false,
        };
        if is_there {
            self.check_alone(disk, None)?;
            let before = self.store.disk(disk)?.size_bytes;
            if before != size_bytes {
                self.store.resize_disk(disk, size_bytes, true).await?;
                let what = if before < size_bytes { "grown" } else { "shrunk" };
                let (before, now) = (Size(before), Size(size_bytes));
                copying.live.note(format!("the source has {what} from {before} to {now}"));
            }
            return Ok(());
        }
        check_no_disk(&self.store, disk)
            .map_err(|e| e.context("the source is copied to a disk of its own"))?;
        // Before it is made: so it is known for ours whatever becomes of that.
        let number = self.draw_number();
        let name = |source: &mut Source| {
            source.number = Some(number);
            Ok(())
        };
        catalog::change(&self.store, source.name.as_str(), name).await?;
        let settings = DiskSettings { qos: Name::new(CLASS)?, ..DiskSettings::default() };
        self.store.create_disk_as(disk, size_bytes, settings, number.0).await.map(drop)
    }

    /// Fails while somebody else can write to a disk.
    fn check_alone(&self, disk: &Name, own: Option<&str>) -> Result<()> {
        let connections = self.store.disk(disk)?.connections;
        let is_other = |peer: &str| peer != OWN && Some(peer) != own;
        let writes = |export: &ExportName| matches!(export, ExportName::Disk(_));
        match connections.iter().find(|client| writes(&client.export) && is_other(&client.peer)) {
            None => Ok(()),
            Some(client) => {
                let what =
                    format!("disk '{disk}', which the source is copied to, is in use: {}", client.peer);
                Err(Error::new(Kind::Busy, what).remedy("disconnect it, and run it again"))
            }
        }
    }

    async fn complete(&self, copying: &Copying, copied: Copied) -> Result<Result<Run>> {
        let run = self.say(copying, Copied { complete: true, ..copied }).await?;
        self.take(run).await.map(Ok)
    }

    async fn failed(&self, copying: &Copying, copied: Copied, error: Error) -> Result<Result<Run>> {
        self.say(copying, copied).await?;
        self.end(&copying.run.name, RunState::Failed, Some(&error.to_string())).await?;
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

    /// Ends a run that copies, at its next step: it makes no point. Returns when it has ended.
    pub async fn cancel_run(&self, name: &PointName) -> Result<Run> {
        let live = self.copies.live.lock().get(name).cloned();
        if let Some(live) = &live {
            live.cancelled.store(true, Ordering::SeqCst);
            live.stop();
            // The sender is the run's own.
            let _ = live.over.subscribe().wait_for(|over| *over).await;
        }
        let run = self.run(name).await?;
        match (run.state, live.is_some()) {
            (RunState::Cancelled, true) => Ok(run),
            (RunState::Running, true) => {
                let what = format!("run '{name}' makes no point, and could not be ended yet");
                Err(Error::new(Kind::Busy, what).remedy("the log says why"))
            }
            (RunState::Running, false) => {
                let what = format!("run '{name}' copies nothing");
                Err(Error::new(Kind::Invalid, what).remedy("it ends by itself in a moment"))
            }
            _ => {
                let what = format!("run '{name}' has ended already");
                let remedy = format!("'stonefold backup show {name}' shows how");
                Err(Error::new(Kind::Invalid, what).remedy(remedy))
            }
        }
    }
}

/// Where the bytes written stand among a disk's counts.
const WRITTEN: usize = 3;
