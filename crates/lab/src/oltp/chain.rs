//! A database that is recovered from points of a chain: kept while users change it, brought back, and worked on at once.
//!
//! After the recoveries of DeepStorage's report on instant recovery (2018): a full backup and 24 incremental ones, of which the
//! full, the 1st, the 12th and the 24th are recovered, and more and more users work on what came back.
//!
//! *Promises*: what is recovered is checked to hold what was acknowledged before its point was kept, and nothing that came after it; what was
//! recovered is discarded, and points are removed, however the run ends. *Never*: lets two servers run at one time. *Owns*: the
//! disk of one recovered point at a time, and its mount.

mod figures;
mod keeper;
mod neighbours;
mod record;
mod rules;

pub use figures::{ChainFigures, Native, OfPoint, figures};
pub use keeper::{Commands, Keeper};
pub use neighbours::{Neighbour, NeighbourRecord};
pub use record::{ChainRecord, KeptPoint, Recovery};
pub(super) use rules::summarise;

use super::climb;
use super::consistency;
use super::cycle::Wanted;
use super::input::Inputs;
use super::loading;
use super::place::Place;
use super::profile::{Chain, Scale};
use super::server::Server;
use super::step::Run;
use super::transactions::{Done, Session};
use super::users::{Acknowledged, told};
use crate::measure::{Doing, Point};
use crate::payload::mix;
use neighbours::Beside;
use std::path::Path;
use std::time::Duration;
use stonefold_types::{Error, Kind, Result};

/// The step that points of the database as it is are of.
const NATIVE: &str = "native";
/// Transactions until one is an order: the mix has nearly half of them.
const TRIES_MAX: u32 = 1_000;

/// What came of it.
pub(super) struct Chained {
    pub points: Vec<Point>,
    pub record: ChainRecord,
    pub failure: Option<Error>,
}

/// What a point is called.
pub(crate) fn name_of(number: u32) -> String {
    let ending = match (number % 10, number % 100) {
        (1, ..) if number % 100 != 11 => "st",
        (2, ..) if number % 100 != 12 => "nd",
        (3, ..) if number % 100 != 13 => "rd",
        _ => "th",
    };
    if number == 0 { "full".into() } else { format!("{number}{ending}") }
}

/// What was acknowledged until each point was kept.
#[derive(Default)]
struct History {
    acknowledged: Vec<Acknowledged>,
    /// How many of these each point has.
    until: Vec<usize>,
}

impl History {
    fn of(&self, point: u32) -> &[Acknowledged] {
        &self.acknowledged[..self.until[point as usize]]
    }
}

/// Removes the points, however a run ends.
struct Forget<'a> {
    keeper: &'a dyn Keeper,
    points: u32,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        for point in 0..self.points {
            // One that stays behind is the keeper's, who can list it.
            let _ = self.keeper.forget(point);
        }
    }
}

/// Discards what was recovered, however a step ends.
struct Recovered<'a> {
    keeper: &'a dyn Keeper,
    point: u32,
    there: bool,
}

impl Recovered<'_> {
    fn discard(mut self) -> Result<()> {
        self.there = false;
        self.keeper.discard(self.point)
    }
}

impl Drop for Recovered<'_> {
    fn drop(&mut self) {
        if self.there {
            let _ = self.keeper.discard(self.point);
        }
    }
}

impl Run<'_> {
    /// Everything, beside the neighbours.
    pub(super) fn recover_beside(
        &self,
        chain: &Chain,
        keeper: &dyn Keeper,
        private: &Path,
    ) -> Result<Chained> {
        let beside = Beside {
            env: self.host.env,
            neighbours: &chain.beside,
            targets: &self.plan.beside,
            quick: self.plan.quick,
            seed: self.plan.seed,
            destroy_data: self.plan.destroy_data,
        };
        let work = || self.recover_under_load(chain, keeper, private);
        let (mut chained, neighbours) = beside.run(self.reins, work)?;
        chained.record.neighbours = neighbours;
        Ok(chained)
    }

    /// The ramp on the database as it is, then points while it changes, then the ramp on each that is asked for.
    fn recover_under_load(&self, chain: &Chain, keeper: &dyn Keeper, private: &Path) -> Chained {
        let record = ChainRecord { keeper: keeper.told(), ..ChainRecord::default() };
        let (points, failure) = climb(self, |users| self.step(NATIVE, users));
        let mut all = Chained { points, record, failure };
        if all.failure.is_some() || self.reins.is_stopped() {
            return all;
        }
        let mut forget = Forget { keeper, points: 0 };
        let history = match self.keep_points(chain, &mut forget, &mut all.record) {
            Ok(history) => history,
            Err(error) => {
                all.failure = (error.kind() != Kind::Closed).then_some(error);
                return all;
            }
        };
        for number in &chain.recover {
            let (points, failure) = climb(self, |users| {
                self.recovered(keeper, *number, users, &history, private, &mut all.record)
            });
            all.points.extend(points);
            self.reins.goes_on_behind(&all.points);
            all.failure = failure;
            if all.failure.is_some() || self.reins.is_stopped() {
                break;
            }
        }
        all
    }

    /// Users change the database, and points are kept between them.
    fn keep_points(
        &self,
        chain: &Chain,
        forget: &mut Forget<'_>,
        record: &mut ChainRecord,
    ) -> Result<History> {
        self.restore("points")?;
        let (mut server, mut watcher) = self.start()?;
        let mut history = History::default();
        self.keep(0, 0, forget, record)?;
        history.until.push(0);
        let between = chain.between[usize::from(self.plan.quick)];
        let scale = Scale { warm_up: Duration::ZERO, sample: between, ..self.scale.clone() };
        let run = Run { scale: &scale, ..*self };
        for number in 1..=chain.changes {
            let label = format!("change {number} of {}", chain.changes);
            let wanted =
                Wanted { step: "change".into(), label, users: chain.users, number, restore_seconds: 0.0 };
            let mut cycle = run.cycle(&wanted, &mut server, &mut watcher)?;
            if let Some(failure) = cycle.failure.take() {
                return Err(failure);
            }
            loading::check(self.reins)?;
            let transactions = cycle.transactions();
            history.acknowledged.append(&mut cycle.acknowledged);
            self.keep(number, transactions, forget, record)?;
            history.until.push(history.acknowledged.len());
        }
        drop(watcher);
        server.stop()?;
        Ok(history)
    }

    /// Nobody works, and nothing is written to the disk beforehand that a committed transaction has not written.
    fn keep(
        &self,
        number: u32,
        transactions: u64,
        forget: &mut Forget<'_>,
        record: &mut ChainRecord,
    ) -> Result<()> {
        let env = self.host.env;
        self.reins
            .begin(Doing { what: format!("keeping the point '{}'", name_of(number)), ..Doing::default() });
        let began = env.monotonic();
        forget.keeper.keep(number)?;
        // What was not kept is not ours to remove.
        forget.points = number + 1;
        let seconds = (env.monotonic() - began).as_secs_f64();
        record.points.push(KeptPoint { number, seconds, transactions });
        Ok(())
    }

    /// One step on a point that is brought back for it.
    fn recovered(
        &self,
        keeper: &dyn Keeper,
        point: u32,
        users: u32,
        history: &History,
        private: &Path,
        record: &mut ChainRecord,
    ) -> Result<(Option<Point>, Option<Error>)> {
        let env = self.host.env;
        let label = format!("{}, {users} {}", name_of(point), if users == 1 { "user" } else { "users" });
        self.reins.begin(Doing { what: format!("{label}: recovering"), ..Doing::default() });
        let zero = env.monotonic();
        let since = || (env.monotonic() - zero).as_secs_f64();
        let target = keeper.recover(point)?;
        let disk = Recovered { keeper, point, there: true };
        let recovered = since();
        let place = Place::of_recovered(env, &target, self.host.user, &private.join("recovered"))?;
        let mounted = since();
        let data = place.folder.join(super::DATA);
        let run = Run { data: &data, ..*self };
        let mut server = self.host.start(&data, self.settings)?;
        let started = since();
        // Numbers of changes come first.
        let number = point + history.until.len() as u32;
        let ordered = run.order(&server, (u64::from(number) << 32) | u64::from(users))?;
        let first = since();
        let mut watcher = server.connect()?;
        let wanted =
            Wanted { step: name_of(point), label: label.clone(), users, number, restore_seconds: mounted };
        let began = since();
        record.recoveries.push(Recovery { point, users, recovered, mounted, started, first, began });
        let mut cycle = run.cycle(&wanted, &mut server, &mut watcher)?;
        if cycle.failure.is_none() {
            self.reins.begin(Doing { what: format!("{label}: checking the database"), ..Doing::default() });
            let mut acknowledged = history.of(point).to_vec();
            acknowledged.push(ordered);
            acknowledged.append(&mut cycle.acknowledged);
            cycle.record.checks = consistency::check(&mut watcher, self.scale.warehouses, &acknowledged)?;
            drop(watcher);
            // What was measured counts, whatever becomes of a disk that nobody needs any more; but it is told.
            let put_away = server.stop().and_then(|()| place.close(env)).and_then(|()| disk.discard());
            record.complaints.extend(put_away.err().map(|error| format!("{label}: {error}")));
        }
        let failure = cycle.failure.take();
        Ok((run.point(&wanted, cycle), failure))
    }

    /// Transactions of one user until an order is committed.
    fn order(&self, server: &Server, seed: u64) -> Result<Acknowledged> {
        let failed = |e| loading::failed("the first transaction", &e);
        let mut session = Session::new(server.connect()?).map_err(failed)?;
        let mut inputs = Inputs::new(mix(self.plan.seed ^ seed), self.uneven, self.scale.warehouses);
        let mut acknowledged = Acknowledged::default();
        for _ in 0..TRIES_MAX {
            let (kind, input) = inputs.draw();
            match session.run(&input) {
                Ok(Done::Ordered(key)) => {
                    acknowledged.orders.push(key);
                    return Ok(acknowledged);
                }
                Ok(Done::Paid(cents)) => acknowledged.paid_cents += i64::from(cents),
                Ok(Done::Regretted | Done::Other) => {}
                Err(error) => {
                    let what = format!("the first transactions: {}: {}", kind.name(), told(&error));
                    return Err(Error::new(Kind::Io, what));
                }
            }
        }
        Err(Error::new(Kind::Io, format!("none of {TRIES_MAX} transactions was an order that was committed")))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) use super::figures::tests::chain;

    #[test]
    fn points_have_names() {
        let names: Vec<String> = [0, 1, 2, 3, 4, 11, 12, 13, 21, 22, 24, 101, 111].map(name_of).into();
        let expected = [
            "full", "1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "24th", "101st",
            "111th",
        ];
        assert_eq!(names, expected);
    }
}
