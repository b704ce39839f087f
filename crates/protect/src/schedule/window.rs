//! Windows: hours in which runs may begin.

use super::text::{clock, parse_clock, parse_weekday, weekday_name};
use super::{MINUTES_OF_A_DAY, invalid};
use crate::Zone;
use jiff::ToSpan;
use jiff::civil::{Date, Weekday};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use stonefold_env::WallNanos;
use stonefold_types::{Error, Result};

/// Hours of the day, maybe over midnight, beginning on some days of the week: `22:00-06:00`, `sat,sun 00:00-24:00`,
/// `mon-fri 20:00-05:00`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Those on which it opens, from Monday on.
    days: [bool; 7],
    /// In minutes since midnight; `from` is less than a day.
    from: u32,
    /// At most a day after `from`, in minutes since the same midnight.
    to: u32,
}

impl Window {
    /// The first instant from `at` on at which it is open.
    pub(super) fn opening(&self, zone: &Zone, at: WallNanos) -> WallNanos {
        // It may have opened yesterday; and one that a zone's leap leaves out opens a week later.
        let first = zone.local(at).date().saturating_sub(1.day());
        let open = first.series(1.day()).take(16).filter_map(|day| self.on(zone, day));
        open.map(|hours| hours.start.max(at)..hours.end)
            .find(|hours| !hours.is_empty())
            .map_or(WallNanos::MAX, |hours| hours.start)
    }

    /// The hours that begin on a day.
    fn on(&self, zone: &Zone, day: Date) -> Option<Range<WallNanos>> {
        let opens = self.days[usize::from(day.weekday().to_monday_zero_offset() as u8)];
        let instant = |minute: u32| {
            let day = day.saturating_add(i64::from(minute / MINUTES_OF_A_DAY).days());
            let minute = minute % MINUTES_OF_A_DAY;
            zone.instant(day.at((minute / 60) as i8, (minute % 60) as i8, 0, 0))
        };
        opens.then(|| instant(self.from)..instant(self.to))
    }
}

impl FromStr for Window {
    type Err = Error;

    fn from_str(text: &str) -> Result<Window> {
        let wrong = || {
            let what = format!("'{}' is no window", text.escape_debug());
            invalid(
                what,
                "write hours, maybe with the days on which they begin, as in 22:00-06:00 or 'sat,sun 00:00-24:00'",
            )
        };
        let (days, hours) = match text.trim().rsplit_once(' ') {
            Some((days, hours)) => (parse_days(days).ok_or_else(wrong)?, hours),
            None => ([true; 7], text.trim()),
        };
        let (from, to) = hours.split_once('-').ok_or_else(wrong)?;
        let (from, to) = (parse_clock(from).ok_or_else(wrong)?, parse_clock(to).ok_or_else(wrong)?);
        if from == MINUTES_OF_A_DAY {
            return Err(wrong());
        }
        let over_midnight = if to <= from { MINUTES_OF_A_DAY } else { 0 };
        Ok(Window { days, from, to: to + over_midnight })
    }
}

/// `mon-fri`, `sat,sun`, `fri-mon`.
fn parse_days(text: &str) -> Option<[bool; 7]> {
    let index = |day: Weekday| usize::from(day.to_monday_zero_offset() as u8);
    let mut days = [false; 7];
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (index(parse_weekday(first.trim())?), index(parse_weekday(last.trim())?));
        let count = (last + 7 - first) % 7;
        for day in first..=first + count {
            days[day % 7] = true;
        }
    }
    Some(days)
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.days.iter().all(|opens| *opens) {
            let day = |at: usize| Weekday::from_monday_zero_offset(at as i8).expect("a week has seven days");
            let names: Vec<_> = (0..7).filter(|at| self.days[*at]).map(|at| weekday_name(day(at))).collect();
            write!(f, "{} ", names.join(","))?;
        }
        let to = match self.to {
            MINUTES_OF_A_DAY => MINUTES_OF_A_DAY,
            to => to % MINUTES_OF_A_DAY,
        };
        write!(f, "{}-{}", clock(self.from), clock(to))
    }
}
