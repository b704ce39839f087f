//! Numbers, sizes and times as vdbench writes them, and what options are that no profile has.

use super::super::{Mapped, Place, wrong};
use stonefold_types::Result;

/// A size in bytes: `4k`, `10g`, `512`.
pub(super) fn bytes(text: &str) -> Option<u64> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &lower[digits.len()..] {
        "" => 0,
        "k" | "kb" => 10,
        "m" | "mb" => 20,
        "g" | "gb" => 30,
        "t" | "tb" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Seconds: `60`, `5m`, `2h`.
pub(super) fn seconds(text: &str) -> Option<f64> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match lower[digits.len()..].chars().next() {
        None | Some('s') => 1.0,
        Some('m') => 60.0,
        Some('h') => 3600.0,
        _ => return None,
    };
    digits.parse::<f64>().ok().filter(|number| *number >= 0.0).map(|number| number * factor)
}

/// A number, with what it is of in an error.
pub(super) fn number(text: &str, what: &str, place: &Place) -> Result<f64> {
    let number =
        text.trim_end_matches('%').parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| wrong(place, format!("{what} '{text}' is no number")))
}

/// A list in which `100-500,100` stands for 100, 200 … 500, and `1-64,d` for doubling.
pub(super) fn numbers(values: &[String], what: &str, place: &Place) -> Result<Vec<f64>> {
    let range = values.first().and_then(|value| value.split_once('-'));
    let Some((from, to)) = range else {
        return values.iter().map(|value| number(value, what, place)).collect();
    };
    let (from, to) = (number(from, what, place)?, number(to, what, place)?);
    let step = values.get(1).map_or("1", String::as_str);
    let next = |value: f64| -> Result<f64> {
        Ok(if step == "d" { value * 2.0 } else { value + number(step, what, place)? })
    };
    let (mut all, mut value) = (Vec::new(), from);
    while value <= to && all.len() < 64 {
        all.push(value);
        let after = next(value)?;
        if after <= value {
            break;
        }
        value = after;
    }
    Ok(all)
}

/// Whether a name is meant by one of these: `sd1`, `sd*`, `sd1-sd4`, `*`.
pub(super) fn is_meant(name: &str, by: &[String]) -> bool {
    by.iter().any(|one| match (one.strip_suffix('*'), one.split_once('-')) {
        (Some(beginning), _) => name.starts_with(beginning),
        (None, Some((first, last))) => in_row(name, first, last).unwrap_or(one == name),
        (None, None) => one == name,
    })
}

fn in_row(name: &str, first: &str, last: &str) -> Option<bool> {
    let split = |name: &str| -> Option<(String, u64)> {
        let base = name.trim_end_matches(|c: char| c.is_ascii_digit());
        Some((base.to_owned(), name[base.len()..].parse().ok()?))
    };
    let (Some((base, from)), Some((other, to))) = (split(first), split(last)) else { return None };
    (base == other)
        .then(|| split(name).is_some_and(|(own, number)| own == base && (from..=to).contains(&number)))
}

/// What an option is that nobody has taken.
pub(super) fn left(name: &str) -> (Mapped, &'static str) {
    match name {
        "lun" | "host" | "hosts" | "hd" => {
            (Mapped::Beside, "where it runs is '--target' of the run, one for each volume")
        }
        "interval" | "pause" | "monitor" | "messagescan" | "report" | "report_run_totals" | "histogram"
        | "data_errors" | "debug" | "swat" | "startcmd" | "endcmd" | "fwdrate_report" | "create_anchors"
        | "concatenate" | "jvms" | "patterns" | "pattern" | "loginterval" | "showlba" => {
            (Mapped::Beside, "it says nothing of the load")
        }
        "validate" | "journal" | "data_validation" => {
            (Mapped::Beside, "the lab verifies what it reads by marks of its own")
        }
        "rhpct" | "whpct" | "hitarea" | "forrhpct" | "forwhpct" | "forhitarea" => (
            Mapped::Not,
            "no share of cache hits: choose 'zone' or a step's 'footprints' for a working set that fits a cache",
        ),
        "stride" => (Mapped::Not, "no strides: what does not go by chance follows on the one before"),
        "maxdata" => (Mapped::Not, "a step ends by its time, not by what it has done"),
        "dedupsets" | "dedupflipflop" => (Mapped::Not, "duplicates are drawn evenly, to the ratio"),
        "streams" | "replay" => (Mapped::Not, "no profile has the like of it"),
        "offset" => (Mapped::Not, "a volume begins at its first byte; 'zone' leaves out a part"),
        "priority" => (Mapped::Nearly, "each stream keeps its own rate; none waits for another"),
        _ => (Mapped::Not, "no profile has the like of it"),
    }
}
