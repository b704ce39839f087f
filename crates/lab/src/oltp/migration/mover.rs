//! Moves what a front serves, and writes down how that goes.

use super::record::MigrationRecord;
use crate::front::Front;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::Result;

/// How often the mirror is asked.
const LOOK_EVERY: Duration = Duration::from_millis(250);

pub(super) struct Mover<'a> {
    pub env: &'a Env,
    pub front: &'a mut Front,
    /// From when times are counted, by the steady clock.
    pub zero: Duration,
    pub record: &'a Mutex<MigrationRecord>,
    pub stopped: &'a AtomicBool,
}

impl Mover<'_> {
    /// Until everything is moved, the move fails, or nobody waits for it any more.
    pub(super) fn work(mut self) {
        if let Err(error) = self.move_it() {
            self.record.lock().failure = Some(error.what());
        }
    }

    fn move_it(&mut self) -> Result<()> {
        self.record.lock().began = Some(self.now());
        self.front.begin_move()?;
        let mut finishing = false;
        loop {
            let progress = self.front.progress()?;
            let now = self.now();
            let mut record = self.record.lock();
            record.note(now, progress.done, progress.of);
            if progress.moved {
                record.moved = Some(now);
                return Ok(());
            }
            if progress.alike && !finishing {
                record.alike = Some(now);
            }
            drop(record);
            if self.stopped.load(Ordering::SeqCst) {
                return self.front.give_up_move();
            }
            if progress.alike && !finishing {
                finishing = true;
                self.front.finish_move()?;
            } else {
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }

    fn now(&self) -> f64 {
        (self.env.monotonic() - self.zero).as_secs_f64()
    }
}
