//! What of a phase is seen, and done to it, from outside while it runs.

use crate::chaos::Allowance;
use crate::record::Second;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// One phase, in the hands of whoever began it.
#[derive(Default)]
pub struct Control {
    stopped: AtomicBool,
    live: Mutex<Live>,
    /// Nanoseconds of the steady clock at its beginning; 0 before.
    start: AtomicU64,
    over: AtomicBool,
    /// Answers are looked at one by one: somebody strikes the target.
    watched: AtomicBool,
    /// The last answer: nanoseconds since the beginning.
    answered: AtomicU64,
    /// Targets may hang up, and what may be gone then.
    allowance: Mutex<Option<Allowance>>,
    abandoned: AtomicBool,
}

/// The last whole second, added up over the threads that have reported it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Live {
    /// Which second of the phase.
    pub second: usize,
    /// All streams.
    pub last: Second,
    /// I/Os since the phase began.
    pub ios: u64,
    /// Bytes since then.
    pub bytes: u64,
}

impl Control {
    /// For one phase.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the phase early; what it has shown until then is kept.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Whether somebody asked for the end.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// What is going on.
    pub fn live(&self) -> Live {
        self.live.lock().clone()
    }

    /// What goes on elsewhere, in place of what was known.
    pub(crate) fn show(&self, live: Live) {
        *self.live.lock() = live;
    }

    pub(crate) fn report(&self, number: usize, second: &Second) {
        let mut live = self.live.lock();
        live.ios += second.ios();
        live.bytes += second.read_bytes + second.write_bytes;
        if number > live.second {
            live.second = number;
            live.last = Second::new();
        }
        if number == live.second {
            live.last.add(second);
        }
    }

    /// The phase begins at this moment of the steady clock.
    pub(crate) fn begin(&self, start: Duration) {
        self.start.store(start.as_nanos() as u64, Ordering::SeqCst);
    }

    /// When it began, once it has.
    pub(crate) fn start(&self) -> Option<Duration> {
        Some(self.start.load(Ordering::SeqCst)).filter(|start| *start > 0).map(Duration::from_nanos)
    }

    /// No thread loads any more.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// See [`Control::end`].
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Each answer is noted from now on; before the phase begins.
    pub(crate) fn watch(&self) {
        self.watched.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.watched.load(Ordering::SeqCst)
    }

    /// Something was answered, so many nanoseconds after the beginning.
    pub(crate) fn answered(&self, nanos: u64) {
        self.answered.fetch_max(nanos, Ordering::SeqCst);
    }

    /// The last answer, since the phase began.
    pub(crate) fn last_answer(&self) -> Duration {
        Duration::from_nanos(self.answered.load(Ordering::SeqCst))
    }

    /// From now on targets may hang up.
    pub(crate) fn allow(&self, allowance: Allowance) {
        *self.allowance.lock() = Some(allowance);
    }

    /// What may be gone when a target hangs up; nothing where none may.
    pub(crate) fn allowance(&self) -> Option<Allowance> {
        *self.allowance.lock()
    }

    /// Ends the phase without waiting for what is in flight: nobody is there to answer.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::SeqCst);
        self.stop();
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::SeqCst)
    }
}
