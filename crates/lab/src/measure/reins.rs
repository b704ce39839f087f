//! A run that goes on: what it does now, and how it is ended.

use crate::load::Control;
use crate::measure::Point;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// What goes on, for whoever shows it.
#[derive(Clone, Debug, Default)]
pub struct Doing {
    /// In words.
    pub what: String,
    /// How long it takes, where that is known.
    pub length: Option<Duration>,
    /// Bytes that it moves, where that is known.
    pub bytes: Option<u64>,
    /// When it began, by the steady clock.
    pub since: Duration,
    /// What is counted are transactions of a database, and not I/Os.
    pub transactions: bool,
}

/// The reins of a run, in the hands of whoever shows it.
pub struct Reins {
    doing: Mutex<(Doing, Arc<Control>)>,
    /// Said before everything that goes on.
    within: Mutex<String>,
    stopped: std::sync::atomic::AtomicBool,
    keeper: Mutex<Option<Keeper>>,
    /// What was measured before that which goes on.
    before: Mutex<Vec<Point>>,
}

/// Whoever keeps what was measured so far.
type Keeper = Box<dyn FnMut(&[Point]) + Send>;

impl Reins {
    /// Of a run that has not begun.
    pub fn new() -> Self {
        let doing = Mutex::new((Doing::default(), Arc::new(Control::new())));
        Reins {
            doing,
            within: Mutex::default(),
            stopped: false.into(),
            keeper: Mutex::default(),
            before: Mutex::default(),
        }
    }

    /// After each point all that were measured until then are shown to this one.
    pub fn kept_by(&self, keeper: impl FnMut(&[Point]) + Send + 'static) {
        *self.keeper.lock() = Some(Box::new(keeper));
    }

    /// These were measured so far, of what goes on.
    pub(crate) fn measured(&self, points: &[Point]) {
        if let Some(keeper) = &mut *self.keeper.lock() {
            keeper(&[&self.before.lock()[..], points].concat());
        }
    }

    /// What goes on from now on comes behind these.
    pub(crate) fn goes_on_behind(&self, points: &[Point]) {
        *self.before.lock() = points.to_vec();
    }

    /// What goes on from now on is a part of this.
    pub(crate) fn within(&self, what: &str) {
        what.clone_into(&mut self.within.lock());
    }

    /// Ends the run early.
    pub fn stop(&self) {
        self.stopped.store(true, std::sync::atomic::Ordering::SeqCst);
        self.doing.lock().1.stop();
    }

    /// Whether somebody did.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(std::sync::atomic::Ordering::SeqCst)
    }

    /// What goes on now.
    pub fn doing(&self) -> (Doing, Arc<Control>) {
        self.doing.lock().clone()
    }

    pub(crate) fn begin(&self, mut doing: Doing) -> Arc<Control> {
        doing.what.insert_str(0, &self.within.lock());
        let control = Arc::new(Control::new());
        *self.doing.lock() = (doing, control.clone());
        // A stop that came between two phases holds for the next.
        if self.is_stopped() {
            control.stop();
        }
        control
    }
}

impl Default for Reins {
    fn default() -> Self {
        Self::new()
    }
}
