//! A database whose disk is moved elsewhere while users work: cycles on one server, and a mirror below it.
//!
//! After the storage migration of DeepStorage's report on instant recovery (2018): users work in cycles of a warm-up and a
//! sample; with the warm-up of one of them the move begins, and cycles go on until it has ended, and after it.
//!
//! *Promises*: the database is checked on its new home, with everything that was acknowledged before the move, during it and
//! after it. *Never*: leaves a move behind that nobody watches.

mod figures;
mod mover;
mod record;
mod rules;

pub use figures::{Figures, Window, figures};
pub use record::{Copied, MigrationRecord};
pub(super) use rules::summarise;

use super::consistency;
use super::cycle::{Cycle, Wanted};
use super::profile::Migration;
use super::step::Run;
use crate::front::Front;
use crate::measure::{Doing, Point};
use crate::target::TargetSpec;
use mover::Mover;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use stonefold_types::{Error, Kind, Result};

/// Cycles after which a move that has not ended is given up: more than a day of the published ones.
const CYCLES_MAX: u32 = 120;
/// The step that its points are of.
const STEP: &str = "cycle";

/// What came of it.
pub(super) struct Moved {
    pub points: Vec<Point>,
    pub record: MigrationRecord,
    pub failure: Option<Error>,
}

/// Where in a migration a cycle begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Before,
    During,
    After,
}

/// Ends the mover when the cycles end, however they do.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Run<'_> {
    /// Cycles before, during and after a move of what `front` serves.
    pub(super) fn move_under_load(
        &self,
        front: &mut Front,
        migration: Migration,
        to: &TargetSpec,
    ) -> Result<Moved> {
        let env = self.host.env;
        let users = self.scale.users[0];
        let restore_seconds = self.restore(STEP)?;
        let (mut server, mut watcher) = self.start()?;
        let zero = env.monotonic();
        let record = Mutex::new(MigrationRecord::new(to, front.version(), self.scale.warm_up));
        let stopped = AtomicBool::new(false);
        let mut mover = Some(Mover { env, front, zero, record: &record, stopped: &stopped });
        let mut cycles: Vec<(Wanted, Cycle)> = Vec::new();
        std::thread::scope(|scope| -> Result<()> {
            let _stop = Stop(&stopped);
            let mut after = 0;
            for number in 0..CYCLES_MAX {
                let phase = match (number < migration.before, record.lock().has_ended()) {
                    (true, _) => Phase::Before,
                    (false, false) => Phase::During,
                    (false, true) => Phase::After,
                };
                if let Some(mover) = mover.take_if(|_| phase == Phase::During) {
                    let named = std::thread::Builder::new().name("mover".into());
                    named
                        .spawn_scoped(scope, move || mover.work())
                        .map_err(|e| Error::io("starting the thread that moves", e))?;
                }
                record.lock().cycles.push((env.monotonic() - zero).as_secs_f64());
                let label = format!("{} {}", number + 1, phase.words());
                let wanted = Wanted { step: STEP.into(), label, users, number, restore_seconds };
                let cycle = self.cycle(&wanted, &mut server, &mut watcher)?;
                let over =
                    cycle.failure.is_some() || self.reins.is_stopped() || record.lock().failure.is_some();
                cycles.push((wanted, cycle));
                after += u32::from(phase == Phase::After);
                if over || after == migration.after {
                    return Ok(());
                }
            }
            Ok(())
        })?;
        let record = record.into_inner();
        let mut failure = cycles.iter_mut().find_map(|(_, cycle)| cycle.failure.take());
        if failure.is_none() {
            self.check(&mut watcher, &mut cycles)?;
            drop(watcher);
            server.stop()?;
            failure = record.failure.as_ref().map(|why| Error::new(Kind::Io, why.clone()));
        }
        let points = cycles.into_iter().filter_map(|(wanted, cycle)| self.point(&wanted, cycle)).collect();
        Ok(Moved { points, record, failure })
    }

    /// What holds of the database in the end holds of every cycle: nothing was restored between them.
    fn check(&self, watcher: &mut postgres::Client, cycles: &mut [(Wanted, Cycle)]) -> Result<()> {
        self.reins.begin(Doing { what: "checking the database".into(), ..Doing::default() });
        let acknowledged: Vec<_> =
            cycles.iter_mut().flat_map(|(_, cycle)| std::mem::take(&mut cycle.acknowledged)).collect();
        let checks = consistency::check(watcher, self.scale.warehouses, &acknowledged)?;
        cycles.iter_mut().for_each(|(_, cycle)| cycle.record.checks.clone_from(&checks));
        Ok(())
    }
}

impl Phase {
    fn words(self) -> &'static str {
        match self {
            Phase::Before => "before the move",
            Phase::During => "while it moves",
            Phase::After => "after the move",
        }
    }
}
