//! When runs begin.
//!
//! A schedule names *slots*: every two hours, every day at 02:00, the last day of each month. A run is due when there is a slot that is
//! over and later than the one for which the last run began; so runs that were missed are caught up by one. Between windows slots
//! wait, and make one run when the next window opens.
//!
//! Slots of less than a day are counted from the start of each local day, in time that passes: on a day of 25 hours there is one more of
//! those of an hour, and never is it longer from one to the next than was asked for. Slots of days and more follow the clock on the wall.

mod text;
mod window;

pub use window::Window;

use crate::Zone;
use jiff::ToSpan;
use jiff::civil::{Date, Weekday};
use stonefold_env::WallNanos;
use stonefold_types::{Error, Kind};

const MINUTE: u64 = 60_000_000_000;
const MINUTES_OF_A_DAY: u32 = 24 * 60;
/// A slot comes at least once a year; a year has at most 366 days, and a zone may leave one out.
const DAYS_BETWEEN_SLOTS_MAX: usize = 2 * 366;

/// How often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    /// So many minutes, which divide a day and are less than one.
    Minutes(u32),
    /// So many days, 1 to 366, counted from 1970 on.
    Days(u32),
    /// A week.
    Week,
    /// So many months, which divide a year and are less than one.
    Months(u32),
    /// A year.
    Year,
}

/// On which days, within what [`Every`] names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Day {
    /// All that are counted.
    Any,
    /// Of a week.
    Of(Weekday),
    /// Of a month, 1 to 31; in a shorter month its last.
    Number(i8),
    /// A month's last.
    Last,
    /// Of a year: month and day; the 29th of February is the 28th in other years.
    Date(i8, i8),
}

/// When runs begin: see the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    every: Every,
    day: Day,
    /// Since midnight, or since the last multiple of less than a day.
    minute: u32,
    zone: Zone,
    window: Option<Window>,
}

impl Schedule {
    /// The zone whose days and hours these are.
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// The slot for which a run is due now: the newest one that is over, if it is later than `since`, the slot of the last run (or the
    /// instant when there began to be a schedule), and a window is open.
    pub fn due(&self, since: WallNanos, now: WallNanos) -> Option<WallNanos> {
        // A clock that was set back leaves slots that are still to come; they would stop all runs until then.
        let since = since.min(now);
        let newest = self.newest(now).filter(|slot| *slot > since)?;
        self.is_open(now).then_some(newest)
    }

    /// When a run will next be due, `now` if one is.
    pub fn next(&self, since: WallNanos, now: WallNanos) -> WallNanos {
        let slot = self.following(since.min(now)).max(now);
        self.window.as_ref().map_or(slot, |window| window.opening(&self.zone, slot))
    }

    /// Whether runs may go on now.
    pub fn is_open(&self, now: WallNanos) -> bool {
        self.window.as_ref().is_none_or(|window| window.opening(&self.zone, now) == now)
    }

    /// The first slot after an instant.
    pub fn following(&self, after: WallNanos) -> WallNanos {
        // A day earlier: what a clock leaps over may be found on the day before.
        let first = self.zone.local(after).date().saturating_sub(1.day());
        let days = first.series(1.day()).take(DAYS_BETWEEN_SLOTS_MAX);
        let slots = days.flat_map(|day| self.slots(day));
        slots.into_iter().find(|slot| *slot > after).unwrap_or(WallNanos::MAX)
    }

    /// The last slot until an instant, that instant with it.
    fn newest(&self, until: WallNanos) -> Option<WallNanos> {
        let last = self.zone.local(until).date().saturating_add(1.day());
        let days = last.series(-1.day()).take(DAYS_BETWEEN_SLOTS_MAX);
        days.flat_map(|day| self.slots(day).into_iter().rev()).find(|slot| *slot <= until)
    }

    /// The slots of one local day, in order.
    fn slots(&self, day: Date) -> Vec<WallNanos> {
        if let Every::Minutes(step) = self.every {
            let start = self.zone.start_of(day);
            let end = day.tomorrow().map_or(start, |next| self.zone.start_of(next));
            let first = start.saturating_add(u64::from(self.minute) * MINUTE);
            return (first..end).step_by((u64::from(step) * MINUTE) as usize).collect();
        }
        if !self.is_on(day) {
            return Vec::new();
        }
        let (hour, minute) = ((self.minute / 60) as i8, (self.minute % 60) as i8);
        vec![self.zone.instant(day.at(hour, minute, 0, 0))]
    }

    fn is_on(&self, day: Date) -> bool {
        let counted = match self.every {
            Every::Days(days) => days_since_1970(day).rem_euclid(i64::from(days)) == 0,
            Every::Months(months) => (day.month() as u32 - 1) % months == 0,
            Every::Minutes(_) | Every::Week | Every::Year => true,
        };
        counted
            && match self.day {
                Day::Any => true,
                Day::Of(weekday) => day.weekday() == weekday,
                Day::Number(number) => day.day() == number.min(day.days_in_month()),
                Day::Last => day.day() == day.days_in_month(),
                Day::Date(month, number) => {
                    day.month() == month && day.day() == number.min(day.days_in_month())
                }
            }
    }
}

fn days_since_1970(day: Date) -> i64 {
    let since = day.since(Date::constant(1970, 1, 1));
    since.map_or(0, |span| i64::from(span.get_days()))
}

/// What was written is no schedule.
fn invalid(what: impl Into<String>, remedy: &str) -> Error {
    Error::new(Kind::Invalid, what).remedy(remedy)
}

#[cfg(test)]
mod tests;
