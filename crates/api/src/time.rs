//! Instants as the API writes them: RFC 3339 in UTC, to the millisecond.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use utoipa::ToSchema;

/// An instant in milliseconds since the Unix epoch; crosses the API as `2026-01-31T08:15:30.250Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, format = DateTime, examples("2026-01-31T08:15:30.250Z"))]
pub struct Time(pub u64);

const DAY_MS: u64 = 86_400_000;

impl Time {
    /// From nanoseconds since the Unix epoch; what is finer than a millisecond is dropped.
    pub fn from_nanos(nanos: u64) -> Self {
        Time(nanos / 1_000_000)
    }

    /// For tables: `2026-01-31 08:15:30`, in UTC.
    pub fn to_seconds_text(self) -> String {
        let text = self.to_string();
        text[..19].replace('T', " ")
    }
}

/// Year, month and day of a day counted from 1970-01-01. Years here begin in March, so that the leap day is the
/// last of its year and every run of five months has the same lengths; 400 years have 146,097 days.
fn civil_of_day(day: u64) -> (u64, u64, u64) {
    // From 0000-03-01 to 1970-01-01.
    let day = day + 719_468;
    let (era, day_of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day_of_month)
}

/// The reverse of [`civil_of_day`]; `None` before 1970.
fn day_of_civil(year: u64, month: u64, day: u64) -> Option<u64> {
    let year = if month <= 2 { year.checked_sub(1)? } else { year };
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    (era * 146_097 + day_of_era).checked_sub(719_468)
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil_of_day(self.0 / DAY_MS);
        let ms = self.0 % DAY_MS;
        let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1000)
    }
}

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text).ok_or_else(|| {
            format!("'{}' is not a time; write it as 2026-01-31T08:15:30Z", text.escape_debug())
        })
    }
}

fn parse(text: &str) -> Option<Time> {
    let (date, clock) = text.strip_suffix('Z')?.split_once('T')?;
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(clock, ':')?;
    let sound =
        (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second < 60;
    if !sound || year > 9999 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let ms: u64 = format!("{fraction:0<3}")[..3].parse().ok()?;
    let day = day_of_civil(year, month, day)?;
    Some(Time(day * DAY_MS + ((hour * 60 + minute) * 60 + second) * 1000 + ms))
}

fn numbers(text: &str, separator: char) -> Option<[u64; 3]> {
    let parts: Vec<u64> = text.split(separator).map(|part| part.parse().ok()).collect::<Option<_>>()?;
    parts.try_into().ok()
}

impl TryFrom<String> for Time {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Time> for String {
    fn from(time: Time) -> String {
        time.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_instants_print_and_read_back() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(Time(ms).to_string(), text);
            assert_eq!(text.parse(), Ok(Time(ms)));
        }
        assert_eq!("2024-02-29T23:59:59Z".parse(), Ok(Time(1_709_251_199_000)));
    }

    #[test]
    fn every_day_of_five_centuries_reads_back() {
        for day in 0..500 * 365 {
            let time = Time(day * DAY_MS);
            assert_eq!(time.to_string().parse(), Ok(time));
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for bad in
            ["", "2024-02-29", "2024-13-01T00:00:00Z", "2024-01-01T24:00:00Z", "1969-12-31T23:59:59Z", "x"]
        {
            assert!(bad.parse::<Time>().is_err(), "{bad}");
        }
    }
}
