//! Time zones: from instants to what clocks on walls show, and back.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use std::fmt;
use std::str::FromStr;
use stonefold_env::WallNanos;
use stonefold_types::{Error, Kind, Result};

/// A time zone of the IANA database, by its name: `Europe/Berlin`. From the machine's own tables, or else from those that are built in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    name: String,
    zone: TimeZone,
}

impl Zone {
    /// The machine's, by name; UTC where it has none, or one without a name.
    pub fn of_machine() -> Zone {
        let named = TimeZone::try_system().ok().and_then(|zone| zone.iana_name()?.parse().ok());
        named.unwrap_or_else(Zone::utc)
    }

    /// Coordinated universal time.
    pub fn utc() -> Zone {
        Zone { name: "UTC".to_owned(), zone: TimeZone::UTC }
    }

    /// As the IANA database has it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What a clock shows at an instant. Instants are nanoseconds since 1970 and end in 2554, long before the calendar does.
    pub(crate) fn local(&self, at: WallNanos) -> DateTime {
        let instant = Timestamp::from_nanosecond(i128::from(at)).expect("the calendar goes on until 9999");
        self.zone.to_datetime(instant)
    }

    /// When a clock shows that. What it shows twice, the first time; what it leaps over, as much later as it leaps.
    pub(crate) fn instant(&self, shown: DateTime) -> WallNanos {
        nanos(self.zone.to_timestamp(shown).ok())
    }

    /// The first instant of a day. Of one that a zone has left out, the next one's.
    pub(crate) fn start_of(&self, day: Date) -> WallNanos {
        let noon = self.zone.to_zoned_datetime(day.at(12, 0, 0, 0));
        nanos(noon.and_then(|noon| noon.start_of_day()).map(|start| start.timestamp()).ok())
    }
}

/// Before 1970 is 1970, and past the calendar its end.
fn nanos(instant: Option<Timestamp>) -> WallNanos {
    let instant = instant.map_or(i128::from(u64::MAX), Timestamp::as_nanosecond);
    instant.clamp(0, i128::from(u64::MAX)) as u64
}

impl FromStr for Zone {
    type Err = Error;

    fn from_str(name: &str) -> Result<Zone> {
        let unknown = || {
            Error::new(Kind::Invalid, format!("there is no time zone '{}'", name.escape_debug()))
                .remedy("name one of the IANA database, as in Europe/Berlin, America/New_York or UTC")
        };
        let zone = TimeZone::get(name).map_err(|_| unknown())?;
        let name = zone.iana_name().ok_or_else(unknown)?.to_owned();
        Ok(Zone { name, zone })
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_have_names_and_unknown_ones_are_refused() {
        assert_eq!("europe/berlin".parse::<Zone>().unwrap().name(), "Europe/Berlin");
        assert_eq!("UTC".parse::<Zone>().unwrap(), Zone::utc());
        for bad in ["", "Berlin", "Europe/Nowhere", "../../etc/passwd", "UTC\n"] {
            let error = bad.parse::<Zone>().unwrap_err();
            assert!(error.kind() == Kind::Invalid && error.remedy_text().is_some(), "{bad}");
        }
    }

    /// Goal: hours that a clock leaps over or shows twice have an instant each; so has every day's start.
    #[test]
    fn clocks_that_are_changed() {
        let berlin: Zone = "Europe/Berlin".parse().unwrap();
        let shown = |text: &str| text.parse::<DateTime>().unwrap();
        let utc = |text: &str| Zone::utc().instant(shown(text));
        assert_eq!(berlin.instant(shown("2026-03-29T02:30")), utc("2026-03-29T01:30"), "leapt over: 03:30");
        assert_eq!(berlin.instant(shown("2026-10-25T02:30")), utc("2026-10-25T00:30"), "the first of two");
        assert_eq!(berlin.local(utc("2026-10-25T01:30")), shown("2026-10-25T02:30"), "the second");
        // Beirut's clocks are put forward at midnight.
        let beirut: Zone = "Asia/Beirut".parse().unwrap();
        let start = beirut.start_of("2021-03-28".parse().unwrap());
        assert_eq!(beirut.local(start), shown("2021-03-28T01:00"));
        // Samoa left a day out.
        let apia: Zone = "Pacific/Apia".parse().unwrap();
        let (none, next) = ("2011-12-30".parse().unwrap(), "2011-12-31".parse().unwrap());
        assert_eq!(apia.start_of(none), apia.start_of(next));
    }
}
