//! The scrub in the background: every copy of every segment is read once in [`Options::scrub_period`](crate::Options), verified frame by
//! frame, and healed where another copy is whole.
//!
//! *Promises*: it walks no map and holds up neither reclaim nor clients: a segment at a time, spread evenly over the period, in reclaim's
//! class. After a restart it goes on where it was, give or take [`SAVE_INTERVAL`]. What no copy has whole is told in the log and counted;
//! `pool check` tells which disks that affects. *Never*: takes a segment for damaged that reclaim has just deleted; keeps the pool from
//! being served: a record that cannot be read costs its progress.
//!
//! Heads, ledgers and accounts are read often enough by themselves; a scrub on command reads the lists of snapshots, too.

use crate::check;
use crate::segments::{self, form_of};
use crate::store::Store;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use stonefold_engine::{Engine, Key, Listed};
use stonefold_env::WallNanos;
use stonefold_format::scrub::{self, ScrubRecord};
use stonefold_types::{Kind, Result};

/// How often its progress is stored.
const SAVE_INTERVAL: Duration = Duration::from_secs(600);
/// Before it is tried again after an error, and between two passes of a pool with nothing in it.
const PAUSE: Duration = Duration::from_secs(3600);
/// A segment is not waited for longer than this, however little there is: what is young is looked at within a day.
const STEP_MAX: Duration = Duration::from_secs(86_400);
/// Forms listed at one time.
const LIST_LIMIT: usize = 64;

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubStatus {
    /// When the pass under way began, in nanoseconds since 1970; `None` before the first.
    pub begun: Option<WallNanos>,
    /// When the last one was finished.
    pub finished: Option<WallNanos>,
    /// Segments with something damaged that no copy has whole, as the pass under way has found, or the last.
    pub damaged_segments: u64,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Scrubber(Mutex<ScrubRecord>);

impl Scrubber {
    /// Where an earlier session was.
    pub(crate) async fn open(engine: &dyn Engine) -> Self {
        let record = match engine.get(&key()).await {
            Ok((bytes, _)) => scrub::decode(&bytes),
            Err(error) if error.kind() == Kind::NotFound => Ok(ScrubRecord::default()),
            Err(error) => Err(error),
        };
        let record = record.unwrap_or_else(|error| {
            tracing::warn!("the scrub begins anew: {error}");
            ScrubRecord::default()
        });
        Scrubber(Mutex::new(record))
    }

    pub(crate) fn status(&self) -> ScrubStatus {
        let record = *self.0.lock();
        let some = |time| Some(time).filter(|time| *time > 0);
        ScrubStatus {
            begun: some(record.begun),
            finished: some(record.finished),
            damaged_segments: record.damaged.max(record.left_damaged),
        }
    }
}

fn key() -> Key {
    Key::new("scrub")
}

impl Store {
    /// Scrubs until the store is closed.
    pub(crate) async fn scrub_slowly(self: Arc<Self>, period: Duration) {
        let mut saved = self.env.monotonic();
        loop {
            let pause = match self.scrub_some(period, &mut saved).await {
                Ok(true) => Duration::ZERO,
                Ok(false) => PAUSE.min(period),
                Err(error) if self.check_open().is_ok() => {
                    tracing::warn!("the scrub goes on in an hour: {error}");
                    PAUSE
                }
                Err(_) => return,
            };
            if !self.scrub_waits(pause).await {
                return;
            }
        }
    }

    /// Waits; `false` once the store is being closed.
    async fn scrub_waits(&self, pause: Duration) -> bool {
        let woken = self.scrub_wake.notified();
        if self.check_open().is_err() {
            return false;
        }
        futures::future::select(Box::pin(woken), self.env.sleep(pause)).await;
        self.check_open().is_ok()
    }

    /// Looks at the next segments; `false` when there are none in the pool.
    async fn scrub_some(&self, period: Duration, saved: &mut Duration) -> Result<bool> {
        let upto = self.scrubber.0.lock().upto;
        let after = segments::key(upto, 0);
        let mut listed = self.engine.list("segment/", Some(&after), LIST_LIMIT).await?;
        // Later forms of the last one are listed behind its first.
        listed.retain(|form| form_of(&form.key).is_some_and(|(segment, _)| segment > upto));
        if listed.is_empty() {
            if upto.0 == 0 {
                return Ok(false);
            }
            self.end_pass();
            self.save_progress(saved).await;
            return Ok(true);
        }
        for form in listed {
            if !self.scrub_waits(self.share_of(&form, period).await?).await {
                return Err(crate::closed());
            }
            self.pace_looking(form.bytes).await;
            self.scrub_form(&form).await?;
            if self.env.monotonic() - *saved >= SAVE_INTERVAL {
                self.save_progress(saved).await;
            }
        }
        Ok(true)
    }

    /// A form's part of the period: by its length, so that the medium has the same to do all the time.
    async fn share_of(&self, form: &Listed, period: Duration) -> Result<Duration> {
        let all = self.engine.room().await?.used_bytes.max(form.bytes).max(1);
        Ok(period.mul_f64(form.bytes as f64 / all as f64).min(STEP_MAX))
    }

    async fn scrub_form(&self, form: &Listed) -> Result<()> {
        let Some((segment, generation)) = form_of(&form.key) else { return Ok(()) };
        // Reclaim deletes nothing while this is held, and the store is not closed.
        let _open = self.scrubbing.lock().await;
        self.check_open()?;
        let _pin = self.segments.pins.pin();
        let is_newest = check::newest_generation(self, segment).await? == generation;
        let verified = match is_newest {
            true => check::verify_form(self, segment, &form.key).await,
            // Another has taken its place, and it is about to go.
            false => Ok(true),
        };
        let sound = match verified {
            Ok(sound) => sound,
            // Reclaim was quicker.
            Err(error) if error.kind() == Kind::NotFound => true,
            // It must not keep the others from being looked at.
            Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::Io) => {
                tracing::warn!("the scrub goes on behind segment {segment}: {error}");
                false
            }
            Err(error) => return Err(error),
        };
        let now = self.env.wall();
        let mut record = self.scrubber.0.lock();
        if record.upto.0 == 0 {
            record.begun = now;
        }
        record.upto = segment;
        if !sound {
            record.damaged += 1;
            tracing::error!(
                "segment {segment} has damage that no copy is free of; 'stonefold pool check' tells what it affects"
            );
        }
        Ok(())
    }

    fn end_pass(&self) {
        let now = self.env.wall();
        let mut record = self.scrubber.0.lock();
        let ScrubRecord { passes, damaged, .. } = *record;
        *record = ScrubRecord {
            passes: passes + 1,
            finished: now,
            left_damaged: damaged,
            ..ScrubRecord::default()
        };
        self.counters.scrubs.fetch_add(1, Ordering::Relaxed);
    }

    /// Stores how far it is; a failure costs a restart some of it.
    async fn save_progress(&self, saved: &mut Duration) {
        *saved = self.env.monotonic();
        let _open = self.scrubbing.lock().await;
        if self.check_open().is_err() {
            return;
        }
        if let Err(error) = self.put_progress().await {
            tracing::debug!("the progress of the scrub was not noted: {error}");
        }
    }

    pub(crate) async fn put_progress(&self) -> Result<()> {
        let bytes = scrub::encode(&self.scrubber.0.lock());
        match self.engine.get(&key()).await {
            Ok((_, version)) => self.engine.put_if(&key(), bytes.into(), &version).await.map(drop),
            Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Corrupt) => {
                self.engine.delete(&key()).await?;
                self.engine.put_new(&key(), bytes.into()).await.map(drop)
            }
            Err(error) => Err(error),
        }
    }
}
