//! The words of a policy, looked at before any call: a slip is misuse then, and changes nothing. They go to the server as they are written,
//! which reads them again. What only it knows, as its time zones, is left to it.

use crate::snapshot::until;
use std::fmt::Display;
use std::str::FromStr;
use stonefold_api::{Consistency, Webhook};
use stonefold_protect::retention::Keep;
use stonefold_protect::schedule::{Every, Schedule, Window};
use stonefold_protect::{LOCK_SECONDS_MAX, Zone};
use stonefold_types::Error;

fn read<T: FromStr<Err: Display>>(text: &str) -> Result<String, String> {
    text.parse::<T>().map(|_| text.to_owned()).map_err(|error| error.to_string())
}

pub(super) fn every(text: &str) -> Result<String, String> {
    read::<Every>(text)
}

pub(super) fn hours(text: &str) -> Result<String, String> {
    read::<Window>(text)
}

pub(super) fn hours_or_none(text: &str) -> Result<String, String> {
    if text == "none" { Ok(text.to_owned()) } else { hours(text) }
}

pub(super) fn keep(text: &str) -> Result<String, String> {
    read::<Keep>(text)
}

pub(super) fn keep_or_all(text: &str) -> Result<String, String> {
    if text == "all" { Ok(text.to_owned()) } else { keep(text) }
}

/// Not by clap, whose words for a wrong value repeat it: its path may be a secret.
pub(super) fn check_webhook(url: Option<&str>) -> Result<(), Error> {
    url.filter(|url| *url != "none").map_or(Ok(()), |url| Webhook::new(url).map(drop))
}

/// Whether it can be said so of runs that begin so often that they begin then.
pub(super) fn check_times(every: &str, at: &str) -> Result<(), Error> {
    Schedule::new(every.parse()?, Some(at), Zone::utc(), None).map(drop)
}

pub(super) fn lock_or_none(text: &str) -> Result<u64, String> {
    if text == "none" { Ok(0) } else { lock_seconds(text) }
}

pub(super) fn lock_seconds(text: &str) -> Result<u64, String> {
    let seconds = until(text).ok().and_then(|lock| lock.for_seconds).ok_or_else(|| {
        format!("'{}' is no time: write hours, days or weeks, as in 14d", text.escape_debug())
    })?;
    match seconds <= LOCK_SECONDS_MAX {
        true => Ok(seconds),
        false => Err("points cannot be locked for longer than ten years".to_owned()),
    }
}

pub(crate) fn consistency(text: &str) -> Result<Consistency, String> {
    match text {
        "crash" => Ok(Consistency::Crash),
        "app" => Ok(Consistency::App),
        _ => Err(format!("'{}' is no consistency; write crash or app", text.escape_debug())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_and_consistency_are_read_or_refused_plainly() {
        assert_eq!(lock_seconds("14d"), Ok(14 * 86_400));
        assert!(lock_seconds("2027-01-31").unwrap_err().contains("14d") && lock_seconds("14").is_err());
        assert!(lock_seconds("4000d").unwrap_err().contains("ten years"));
        assert_eq!((lock_or_none("none"), lock_or_none("1d")), (Ok(0), Ok(86_400)));
        assert!(consistency("app").is_ok() && consistency("crash").is_ok());
        assert!(consistency("cash").unwrap_err().contains("write crash or app"));
    }

    #[test]
    fn what_a_policy_says_is_read_or_refused_plainly() {
        assert!(every("2h").is_ok() && every("7h").unwrap_err().contains("how often"));
        assert!(hours_or_none("none").is_ok() && hours("none").is_err() && hours("22:00-06:00").is_ok());
        assert!(keep_or_all("all").is_ok() && keep("all").is_err() && keep("daily=30").is_ok());
        assert!(keep("bogus=1").unwrap_err().contains("daily=30"));
        assert!(check_webhook(Some("none")).is_ok() && check_webhook(Some("https://h/x")).is_ok());
        assert!(!check_webhook(Some("ftp://h/x")).unwrap_err().to_string().contains("h/x"));
        assert!(check_times("1w", "sun 02:00").is_ok() && check_times("1d", "sun 02:00").is_err());
    }
}
