//! Schedules as people write them.

use super::{Day, Every, MINUTES_OF_A_DAY, Schedule, Window, invalid};
use crate::Zone;
use jiff::civil::{Date, Weekday};
use std::fmt;
use std::str::FromStr;
use stonefold_types::{Error, Result};

const EVERY: &str = "write minutes or hours that divide a day (15m, 2h), days (1d, 2d), 1w, months that divide a year (1month, 3month) or 1y";
const WEEKDAYS: [(&str, Weekday); 7] = [
    ("monday", Weekday::Monday),
    ("tuesday", Weekday::Tuesday),
    ("wednesday", Weekday::Wednesday),
    ("thursday", Weekday::Thursday),
    ("friday", Weekday::Friday),
    ("saturday", Weekday::Saturday),
    ("sunday", Weekday::Sunday),
];

impl Schedule {
    /// From what was asked for: how often; on which day and at what time, midnight of the first day when left out; in which zone; in which
    /// windows only. Fails with `Invalid` where a part is no such thing, or does not go with how often.
    pub fn new(every: Every, at: Option<&str>, zone: Zone, window: Option<Window>) -> Result<Schedule> {
        let (day, minute) = match at {
            None => (first_day(every), 0),
            Some(at) => parse_at(every, at)?,
        };
        Ok(Schedule { every, day, minute, zone, window })
    }

    /// How often.
    pub fn every(&self) -> Every {
        self.every
    }

    /// Day and time, as [`Schedule::new`] takes them.
    pub fn at(&self) -> String {
        let time = clock(self.minute);
        match self.day {
            Day::Any => time,
            Day::Of(weekday) => format!("{} {time}", weekday_name(weekday)),
            Day::Number(number) => format!("{number} {time}"),
            Day::Last => format!("last {time}"),
            Day::Date(month, day) => format!("{month:02}-{day:02} {time}"),
        }
    }

    /// When runs may begin and go on; `None`: always.
    pub fn window(&self) -> Option<&Window> {
        self.window.as_ref()
    }
}

fn first_day(every: Every) -> Day {
    match every {
        Every::Minutes(_) | Every::Days(_) => Day::Any,
        Every::Week => Day::Of(Weekday::Monday),
        Every::Months(_) => Day::Number(1),
        Every::Year => Day::Date(1, 1),
    }
}

fn parse_at(every: Every, text: &str) -> Result<(Day, u32)> {
    let remedy = match every {
        Every::Minutes(_) => {
            "write how long after midnight the first is, less than from one to the next, as in 00:10"
        }
        Every::Days(_) => "write the time of day, as in 02:00",
        Every::Week => "write a day and a time, as in 'sun 02:00'",
        Every::Months(_) => "write a day of the month and a time, as in '1 02:00' or 'last 02:00'",
        Every::Year => "write a date and a time, as in '12-31 02:00'",
    };
    let wrong = || invalid(format!("'{}' does not say when, every {every}", text.escape_debug()), remedy);
    let text = text.trim();
    let (day, time) = match text.rsplit_once(' ') {
        Some((day, time)) => (Some(day.trim()), time),
        None => (None, text),
    };
    let minute = parse_clock(time).filter(|minute| *minute < MINUTES_OF_A_DAY).ok_or_else(wrong)?;
    let day = match (every, day) {
        (Every::Minutes(step), None) if minute < step => Some(Day::Any),
        (Every::Days(_), None) => Some(Day::Any),
        (Every::Week, Some(day)) => parse_weekday(day).map(Day::Of),
        (Every::Months(_), Some("last")) => Some(Day::Last),
        (Every::Months(_), Some(day)) => {
            day.parse().ok().filter(|number| (1..=31).contains(number)).map(Day::Number)
        }
        // Any leap year has all dates there are.
        (Every::Year, Some(day)) => {
            format!("2000-{day}").parse::<Date>().ok().map(|date| Day::Date(date.month(), date.day()))
        }
        _ => None,
    };
    Ok((day.ok_or_else(wrong)?, minute))
}

/// Minutes since midnight of `HH:MM`, `24:00` at most.
pub(super) fn parse_clock(text: &str) -> Option<u32> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |digits: &str| {
        let all = (1..=2).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_digit());
        digits.parse::<u32>().ok().filter(|_| all)
    };
    let (hours, minutes) = (number(hours)?, number(minutes).filter(|_| minutes.len() == 2)?);
    let minute = hours * 60 + minutes;
    (minutes < 60 && minute <= MINUTES_OF_A_DAY).then_some(minute)
}

/// `HH:MM`.
pub(super) fn clock(minute: u32) -> String {
    format!("{:02}:{:02}", minute / 60, minute % 60)
}

/// `mon` or `Monday`.
pub(super) fn parse_weekday(text: &str) -> Option<Weekday> {
    let lower = text.to_ascii_lowercase();
    WEEKDAYS.iter().find(|(name, _)| lower == *name || lower == name[..3]).map(|(_, day)| *day)
}

/// `mon`.
pub(super) fn weekday_name(weekday: Weekday) -> &'static str {
    &WEEKDAYS[weekday.to_monday_zero_offset() as usize].0[..3]
}

impl FromStr for Every {
    type Err = Error;

    fn from_str(text: &str) -> Result<Every> {
        let wrong = || invalid(format!("'{}' does not say how often", text.escape_debug()), EVERY);
        let trimmed = text.trim().to_ascii_lowercase();
        let unit_at = trimmed.find(|letter: char| !letter.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, unit) = trimmed.split_at(unit_at);
        let number: u32 = number.parse().map_err(|_| wrong())?;
        let minutes = |per: u32| number.checked_mul(per).map(Every::Minutes);
        let every = match unit.trim() {
            "m" | "min" => minutes(1),
            "h" => minutes(60),
            "d" => Some(Every::Days(number)),
            "w" if number == 1 => Some(Every::Week),
            "mo" | "month" | "months" => Some(Every::Months(number)),
            "y" if number == 1 => Some(Every::Year),
            _ => None,
        };
        // A day is a day, however it is written, and a year a year.
        match every.ok_or_else(wrong)? {
            Every::Minutes(MINUTES_OF_A_DAY) => Ok(Every::Days(1)),
            Every::Months(12) => Ok(Every::Year),
            Every::Minutes(step) if step == 0 || MINUTES_OF_A_DAY % step != 0 => Err(wrong()),
            Every::Days(days) if !(1..=366).contains(&days) => Err(wrong()),
            Every::Months(months) if months == 0 || 12 % months != 0 => Err(wrong()),
            every => Ok(every),
        }
    }
}

impl fmt::Display for Every {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Every::Minutes(minutes) if minutes % 60 == 0 => write!(f, "{}h", minutes / 60),
            Every::Minutes(minutes) => write!(f, "{minutes}m"),
            Every::Days(days) => write!(f, "{days}d"),
            Every::Week => f.write_str("1w"),
            Every::Months(months) => write!(f, "{months}month"),
            Every::Year => f.write_str("1y"),
        }
    }
}
