//! Runs that copy, now: how far they are, and how they are ended.

use super::Sent;
use super::bandwidth::Bandwidth;
use crate::copy::{Figures, stopped};
use crate::pace::SPEED_BEGINNING;
use crate::points::Consistency;
use crate::runs::{Copied, Run, RunRequest};
use crate::sources::Source;
use crate::standstills::Stood;
use parking_lot::Mutex as Memory;
use std::collections::BTreeMap;
use std::future::Future;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use stonefold_env::{Env, WallNanos};
use stonefold_types::{Name, PointName, Result, Size};
use tokio::sync::{Semaphore, watch};

/// Copies at once; more wait for their turn. Each takes some 16 MiB of memory.
const COPIES_MAX: usize = 4;
/// A pace that nobody has set yet.
pub(super) const SPEED_UNKNOWN: u64 = u64::MAX;

/// Runs that copy, now.
pub(crate) struct Copies {
    pub(super) live: Memory<BTreeMap<PointName, Arc<Live>>>,
    /// Whether one was left in its midst.
    left: AtomicBool,
    pub(super) places: Semaphore,
    /// What all of them may move together; nothing: all they can.
    pub(crate) bandwidth: OnceLock<Arc<Bandwidth>>,
}

/// A run that copies, now.
pub(crate) struct Live {
    pub(crate) figures: Figures,
    /// Whose slot it is for; nothing where somebody asked for it.
    policy: Option<Name>,
    /// Whether all is read, also what reads as zeros or is told not to have changed.
    pub(crate) full: bool,
    /// Whether its guest is to stand still at the instant that is copied; and how it did.
    pub(crate) has_it_stand: bool,
    stood: Memory<Option<Stood>>,
    /// The instant that its point is of, by trusted time, where that is not its beginning.
    cut: Memory<Option<WallNanos>>,
    notes: Memory<Vec<String>>,
    pub(super) cancelled: AtomicBool,
    paused: watch::Sender<bool>,
    stop: watch::Sender<bool>,
    pub(super) over: watch::Sender<bool>,
    bandwidth: Option<Arc<Bandwidth>>,
    /// How fast its source is read: as fast as it can be, where no guest is held up by that.
    pub(super) pace: Bandwidth,
    /// That in bytes a second, or [`SPEED_UNKNOWN`]; and the slowest that it was when it had given way.
    pub(super) speed: AtomicU64,
    pub(super) slowest: AtomicU64,
    /// A guest uses what is read; and it asks for something, now.
    pub(super) beside: AtomicBool,
    pub(super) busy: AtomicBool,
}

/// Such a run for whoever makes it. One that is dropped before it has ended was left in its midst.
pub(crate) struct Copying {
    copies: Arc<Copies>,
    pub(crate) live: Arc<Live>,
    pub(crate) source: Source,
    pub(crate) run: Run,
    /// What is sent, of a replica.
    pub(super) sent: Option<Box<Sent>>,
    pub(super) ended: bool,
}

impl Default for Copies {
    fn default() -> Self {
        Copies {
            live: Memory::default(),
            left: AtomicBool::new(false),
            places: Semaphore::new(COPIES_MAX),
            bandwidth: OnceLock::new(),
        }
    }
}

impl Copies {
    pub(super) fn enter(self: &Arc<Self>, source: Source, run: Run, asked: RunRequest) -> Copying {
        let bandwidth = self.bandwidth.get().cloned();
        let policy = run.slot.as_ref().map(|slot| slot.policy.clone());
        let live = Arc::new(Live::new(asked, bandwidth, policy));
        self.live.lock().insert(run.name.clone(), live.clone());
        Copying { copies: self.clone(), live, source, run, sent: None, ended: false }
    }

    /// Has all end at their next steps.
    pub(crate) fn stop_all(&self) {
        self.live.lock().values().for_each(|live| live.stop());
    }

    pub(crate) fn is_live(&self, run: &PointName) -> bool {
        self.live.lock().contains_key(run)
    }

    /// Whether one of a source's is.
    pub(crate) fn is_copied(&self, source: &Name) -> bool {
        self.live.lock().keys().any(|run| run.source == *source)
    }

    /// Whether one of a source's is, for another than this policy.
    pub(crate) fn is_copied_for_another(&self, source: &Name, policy: &Name) -> bool {
        let live = self.live.lock();
        let mut others = live.iter().filter(|(run, _)| run.source == *source);
        others.any(|(_, live)| live.policy.as_ref() != Some(policy))
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
            run.paused = live.is_paused();
        }
        run
    }
}

impl Live {
    pub(super) fn new(asked: RunRequest, bandwidth: Option<Arc<Bandwidth>>, policy: Option<Name>) -> Self {
        Live {
            figures: Figures::default(),
            policy,
            full: asked.full,
            has_it_stand: asked.consistency == Consistency::App,
            stood: Memory::default(),
            cut: Memory::default(),
            notes: Memory::default(),
            cancelled: AtomicBool::new(false),
            paused: watch::Sender::new(false),
            stop: watch::Sender::new(false),
            over: watch::Sender::new(false),
            bandwidth,
            pace: Bandwidth::new(NonZeroU64::MAX),
            speed: AtomicU64::new(SPEED_UNKNOWN),
            slowest: AtomicU64::new(u64::MAX),
            beside: AtomicBool::new(false),
            busy: AtomicBool::new(false),
        }
    }

    /// Until so many bytes may be moved, or it is to end.
    pub(crate) async fn may_move(&self, env: &Env, bytes: u64) -> Result<()> {
        let turn = async {
            if let Some(bandwidth) = &self.bandwidth {
                bandwidth.take(env, bytes).await;
            }
            // Behind that, so that nothing begins while it stands still for a look.
            self.pace.take(env, bytes).await;
            Ok(())
        };
        self.unless_stopped(turn).await?;
        self.until_resumed().await
    }

    /// Has what goes on stand still at its next step, or go on.
    pub(super) fn pause(&self, pauses: bool) {
        self.paused.send_replace(pauses);
    }

    pub(super) fn is_paused(&self) -> bool {
        *self.paused.borrow()
    }

    /// Until it is not paused, or is to end.
    pub(crate) async fn until_resumed(&self) -> Result<()> {
        let mut paused = self.paused.subscribe();
        self.unless_stopped(async {
            // The sender is this one's own.
            let _ = paused.wait_for(|paused| !paused).await;
            Ok(())
        })
        .await
    }

    pub(crate) fn is_beside_a_guest(&self) -> bool {
        self.beside.load(Ordering::Relaxed)
    }

    pub(crate) fn guest_is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed)
    }

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
    pub(crate) async fn unless_stopped<T>(&self, what: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            () = self.stopped() => Err(stopped()),
            done = what => done,
        }
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
    }

    /// How its guest stood.
    pub(crate) fn stood(&self, stood: Stood) {
        self.stood.lock().replace(stood);
    }

    pub(super) fn take_stood(&self) -> Option<Stood> {
        self.stood.lock().take()
    }

    /// What is read from now on is of this instant, by trusted time.
    pub(crate) fn was_cut(&self, at: WallNanos) {
        self.cut.lock().replace(at);
    }

    pub(crate) fn note(&self, text: String) {
        self.notes.lock().push(text);
    }

    pub(super) fn tell(&self, copied: &mut Copied) {
        let of = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        copied.read_bytes = of(&self.figures.read);
        copied.sent_bytes = of(&self.figures.sent);
        copied.written_bytes = of(&self.figures.written);
        copied.cut = *self.cut.lock();
        copied.notes = self.notes.lock().clone();
        if of(&self.slowest) < SPEED_BEGINNING {
            let slowest = Size(of(&self.slowest));
            copied.notes.push(format!("it gave way to its guest, down to {slowest} a second"));
        }
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
