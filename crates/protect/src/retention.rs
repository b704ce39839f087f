//! Which points stay.
//!
//! Of each of the newest so many hours that have points the last point stays, of so many days, weeks, months and years likewise; and the
//! newest so many of all. A point stays when any of these names it. Periods are counted where there are points, not by the calendar: of a
//! source that has gone silent the last points never go.
//!
//! That it is the *last* point of a period makes retention stable: the last of a month was the last of its day when that was judged, and
//! is the last of its month ever after, so that no later judgement wants what an earlier one gave up. The order of
//! judgements, and how many there are, changes nothing ([`tests`]).

use crate::Zone;
use jiff::civil::DateTime;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use stonefold_env::WallNanos;
use stonefold_types::{Error, Kind, Result};

/// How many periods of each kind have a point that stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Keep([u32; PERIODS.len()]);

/// A kind of period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// Each point is one.
    Point,
    /// From :00 to :59.
    Hour,
    /// From midnight to midnight.
    Day,
    /// From Monday to Sunday (ISO 8601).
    Week,
    /// Of the calendar.
    Month,
    /// Of the calendar.
    Year,
}

const PERIODS: [Period; 6] =
    [Period::Point, Period::Hour, Period::Day, Period::Week, Period::Month, Period::Year];
const NAMES: [&str; 6] = ["last", "hourly", "daily", "weekly", "monthly", "yearly"];
/// More than anybody will ever have; so that sums do not overflow.
const COUNT_MAX: u32 = 1_000_000;

impl Period {
    /// Its word in a policy: `hourly`.
    pub fn name(self) -> &'static str {
        NAMES[self as usize]
    }

    /// The same for two points exactly when one period has both: those that a clock shows so, the one that is number `at`.
    /// Of an hour that is shown twice both are one.
    fn of(self, at: usize, shown: DateTime) -> (i64, i64) {
        let date = shown.date();
        let day = (i64::from(date.year()), i64::from(date.day_of_year()));
        match self {
            Period::Point => (at as i64, 0),
            Period::Hour => (day.0, day.1 * 24 + i64::from(shown.hour())),
            Period::Day => day,
            Period::Week => {
                let week = date.iso_week_date();
                (i64::from(week.year()), i64::from(week.week()))
            }
            Period::Month => (day.0, i64::from(date.month())),
            Period::Year => (day.0, 0),
        }
    }
}

impl Keep {
    /// How many periods of a kind have a point that stays.
    pub fn count(&self, period: Period) -> u32 {
        self.0[period as usize]
    }

    /// Of points, by their times in any order, why each stays; those without a reason may go. The newest always stays.
    pub fn reasons(&self, points: &[WallNanos], zone: &Zone) -> Vec<Vec<Period>> {
        let mut newest_first: Vec<usize> = (0..points.len()).collect();
        newest_first.sort_by_key(|at| (std::cmp::Reverse(points[*at]), std::cmp::Reverse(*at)));
        let mut reasons = vec![Vec::new(); points.len()];
        for period in PERIODS {
            // Whatever is asked for, a source does not lose its last point.
            let count = self.count(period).max(u32::from(period == Period::Point));
            let (mut kept, mut last) = (0, None);
            for at in &newest_first {
                let of = period.of(*at, zone.local(points[*at]));
                if kept == count {
                    break;
                }
                if last != Some(of) {
                    reasons[*at].push(period);
                    (kept, last) = (kept + 1, Some(of));
                }
            }
        }
        reasons
    }

    /// Of points, by their times in any order, which stay as long as their period is counted: the last ones of the newest so many periods that are over, as a
    /// younger point shows. The last of a period that is not over may be that no more in a moment, and its period is not counted.
    pub fn settled(&self, points: &[WallNanos], zone: &Zone) -> Vec<bool> {
        let Some(newest) = points.iter().max().map(|at| zone.local(*at)) else { return Vec::new() };
        let mut with_running = *self;
        for period in PERIODS.into_iter().filter(|period| *period != Period::Point) {
            let count = &mut with_running.0[period as usize];
            *count += u32::from(*count > 0);
        }
        let is_over = |period: &Period, at: WallNanos| match period {
            // The newest of all stays whatever is asked for, and that is no reason by itself.
            Period::Point => self.count(Period::Point) > 0,
            period => period.of(0, zone.local(at)) != period.of(0, newest),
        };
        let reasons = with_running.reasons(points, zone).into_iter().zip(points);
        reasons.map(|(reasons, at)| reasons.iter().any(|period| is_over(period, *at))).collect()
    }
}

impl TryFrom<String> for Keep {
    type Error = Error;

    fn try_from(text: String) -> Result<Keep> {
        text.parse()
    }
}

impl From<Keep> for String {
    fn from(keep: Keep) -> String {
        keep.to_string()
    }
}

impl FromStr for Keep {
    type Err = Error;

    fn from_str(text: &str) -> Result<Keep> {
        let mut keep = Keep::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let wrong = || {
                Error::new(Kind::Invalid, format!("'{}' does not say which points stay", part.escape_debug()))
                    .remedy("write counts of last, hourly, daily, weekly, monthly and yearly, as in daily=30,weekly=8")
            };
            let (name, count) = part.split_once('=').ok_or_else(wrong)?;
            let at = NAMES.iter().position(|known| *known == name.trim()).ok_or_else(wrong)?;
            let count = count.trim().parse().ok().filter(|count| *count <= COUNT_MAX).ok_or_else(wrong)?;
            if std::mem::replace(&mut keep.0[at], count) != 0 {
                return Err(wrong());
            }
        }
        if keep == Keep::default() {
            return Err(Error::new(Kind::Invalid, "no points would stay but the newest")
                .remedy("write how many, as in daily=30,weekly=8; last=1, if that is meant"));
        }
        Ok(keep)
    }
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = NAMES.iter().zip(self.0).filter(|(_, count)| *count > 0);
        f.write_str(&parts.map(|(name, count)| format!("{name}={count}")).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests;
