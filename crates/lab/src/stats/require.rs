//! What somebody needs of a storage, and whether a run has shown it: `iops>=216,read.mean<=20ms`.
//!
//! | a requirement | |
//! |---|---|
//! | what | `nopm` (New-Orders a minute), `tpm` (transactions a minute), of a database; `iops`, `read.iops`, `write.iops`; `bytes` (a second), `read.bytes`, `write.bytes`; `mean`, `p50`, `p90`, `p95`, `p99`, `p99.9`, `max` of the response time, of all I/Os or after `read.` or `write.`; `errors` |
//! | of which stream | before it and a colon, as in `db:read.mean`, which is also of `db-1` and `db-2` together; or of a transaction a point, as in `new-order.p90`; else of all |
//! | how | `>=` or `<=` |
//! | how much | a number; of bytes a size, as in `100M`; of times with `us`, `ms` or `s` |

use crate::oltp::Transaction;
use crate::record::{Direction, Latencies, StreamRecord, is_told};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use stonefold_types::{Error, Kind, Result, Size};
use utoipa::ToSchema;

/// One requirement.
#[derive(Clone, Debug, PartialEq)]
pub struct Requirement {
    stream: Option<String>,
    side: Side,
    figure: Figure,
    at_least: bool,
    bound: f64,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Both,
    Read,
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Figure {
    Nopm,
    Tpm,
    Iops,
    Bytes,
    Mean,
    Percentile(f64),
    Max,
    Errors,
}

/// What came of a requirement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Met {
    /// As it was asked.
    pub requirement: String,
    /// What was measured: a second, bytes a second, nanoseconds, or a count. Nothing where too little was.
    pub measured: Option<f64>,
    /// In words, with its unit.
    pub told: String,
    /// How much better than asked, as a share of what was asked; negative where it is worse.
    pub headroom: Option<f64>,
    /// Whether it is met; nothing where too little was measured to say.
    pub met: Option<bool>,
}

impl Met {
    /// Of several results of one requirement the worst comes first: what is not met, then what cannot be said, then what is met; among
    /// those the one with the least headroom.
    pub(crate) fn worst_first(&self, other: &Met) -> Ordering {
        let place = |met: &Met| match met.met {
            Some(false) => 0,
            None => 1,
            Some(true) => 2,
        };
        let headroom = |met: &Met| met.headroom.unwrap_or(f64::NEG_INFINITY);
        place(self).cmp(&place(other)).then(headroom(self).total_cmp(&headroom(other)))
    }
}

/// A stream, and what the steps of its profile ask of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Does<'a> {
    /// Its name.
    pub name: &'a str,
    /// Whether any step has it read.
    pub reads: bool,
    /// And write.
    pub writes: bool,
}

/// Fails where a requirement is of a stream that does not run, or of reads or writes that nothing does, before anything is measured in
/// vain.
///
/// # Errors
/// [`Kind::Invalid`] where one cannot be read or is of a direction without I/Os, [`Kind::NotFound`] where it is of no stream with these
/// names.
pub fn check(text: &str, streams: &[Does<'_>]) -> Result<()> {
    let nothing = StreamRecord::default();
    let running = streams.iter().filter(|stream| stream.reads || stream.writes);
    let named: Vec<(&str, &StreamRecord)> = running.map(|stream| (stream.name, &nothing)).collect();
    parse(text)?.iter().try_for_each(|one| one.judge(&named, 1.0).and_then(|_| one.check_side(streams)))
}

/// Several of them, separated by commas.
///
/// # Errors
/// [`Kind::Invalid`], with the one that cannot be read.
pub fn parse(text: &str) -> Result<Vec<Requirement>> {
    text.split(',').map(str::trim).filter(|one| !one.is_empty()).map(str::parse).collect()
}

impl FromStr for Requirement {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |why: &str| {
            Error::new(Kind::Invalid, format!("'{text}' is no requirement: {why}"))
                .remedy("write it as in iops>=216, read.mean<=20ms, db:write.p99<=5ms or read.bytes>=200M")
        };
        let (at_least, (what, bound)) = match (text.split_once(">="), text.split_once("<=")) {
            (Some(parts), None) => (true, parts),
            (None, Some(parts)) => (false, parts),
            _ => return Err(wrong("it has no >= or <=")),
        };
        let (stream, what) = match what.trim().rsplit_once(':') {
            Some((stream, what)) => (Some(stream.to_owned()), what),
            None => (None, what.trim()),
        };
        let (side, what) = match what.split_once('.') {
            Some(("read", rest)) => (Side::Read, rest),
            Some(("write", rest)) => (Side::Write, rest),
            _ => (Side::Both, what),
        };
        // Transactions are streams without sides, and their names have no point.
        let (stream, what) = match (stream, what.split_once('.')) {
            (None, Some((name, rest))) if is_transaction(name) => (Some(name.to_owned()), rest),
            (stream, _) => (stream, what),
        };
        let figure = figure(what).ok_or_else(|| wrong(&format!("'{what}' is not measured")))?;
        let bound = figure
            .bound(bound.trim())
            .ok_or_else(|| wrong(&format!("'{}' is no bound for {what}", bound.trim())))?;
        Ok(Requirement { stream, side, figure, at_least, bound, text: text.to_owned() })
    }
}

/// Whether a stream has this name, or is one of several that share it, each with a number.
fn is_of(stream: &str, name: &str) -> bool {
    let number = stream.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
    stream == name || number.is_some_and(|number| number.parse::<u32>().is_ok())
}

fn is_transaction(name: &str) -> bool {
    Transaction::MIX.iter().any(|(kind, _)| kind.name() == name)
}

fn figure(what: &str) -> Option<Figure> {
    Some(match what {
        "nopm" => Figure::Nopm,
        "tpm" => Figure::Tpm,
        "iops" => Figure::Iops,
        "bytes" => Figure::Bytes,
        "mean" => Figure::Mean,
        "max" => Figure::Max,
        "errors" => Figure::Errors,
        _ => {
            let percent: f64 = what.strip_prefix('p')?.parse().ok()?;
            (percent > 0.0 && percent < 100.0).then_some(Figure::Percentile(percent))?
        }
    })
}

impl Figure {
    fn bound(self, text: &str) -> Option<f64> {
        let number = |text: &str| {
            text.trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0)
        };
        match self {
            Figure::Nopm | Figure::Tpm | Figure::Iops | Figure::Errors => number(text),
            Figure::Bytes => text.parse::<Size>().ok().map(|size| size.0 as f64),
            Figure::Mean | Figure::Percentile(_) | Figure::Max => {
                let units = [("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
                units
                    .iter()
                    .find_map(|(unit, nanos)| number(text.strip_suffix(unit)?).map(|number| number * nanos))
            }
        }
    }

    fn told(self, value: f64) -> String {
        match self {
            Figure::Nopm | Figure::Tpm => format!("{value:.0} a minute"),
            Figure::Iops => format!("{value:.1}/s"),
            Figure::Errors => format!("{value}"),
            Figure::Bytes => format!("{}/s", Size(value as u64)),
            Figure::Mean | Figure::Percentile(_) | Figure::Max => time(value),
        }
    }
}

/// A time in nanoseconds, for people.
pub fn time(nanos: f64) -> String {
    match nanos {
        nanos if nanos < 1e3 => format!("{nanos:.0} ns"),
        nanos if nanos < 1e6 => format!("{:.1} µs", nanos / 1e3),
        nanos if nanos < 1e9 => format!("{:.2} ms", nanos / 1e6),
        nanos => format!("{:.2} s", nanos / 1e9),
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Requirement {
    /// Whether it is about how long I/Os take.
    pub(crate) fn is_time(&self) -> bool {
        matches!(self.figure, Figure::Mean | Figure::Percentile(_) | Figure::Max)
    }

    /// I/Os a second of all streams that it asks for, where it does.
    pub(crate) fn rate(&self) -> Option<f64> {
        let of_all = self.figure == Figure::Iops && self.stream.is_none() && self.side == Side::Both;
        (of_all && self.at_least).then_some(self.bound)
    }

    /// Whether streams that it is about had nothing to do in its direction: the other was answered, this one was not asked for. What failed or
    /// was never answered may have been of either.
    pub(crate) fn is_beside(&self, streams: &[(&str, &StreamRecord)]) -> bool {
        if self.figure == Figure::Errors {
            return false;
        }
        let mut chosen =
            streams.iter().filter(|(name, _)| self.is_about(name)).map(|(_, record)| *record).peekable();
        let has_none = |record: &StreamRecord| {
            let (own, other) = match self.side {
                Side::Both => return false,
                Side::Read => (&record.read, &record.write),
                Side::Write => (&record.write, &record.read),
            };
            own.ios == 0 && other.ios > 0 && record.failed() + record.unanswered == 0
        };
        chosen.peek().is_some() && chosen.all(has_none)
    }

    fn is_about(&self, name: &str) -> bool {
        self.stream.as_deref().is_none_or(|stream| is_of(name, stream))
    }

    fn check_side(&self, streams: &[Does<'_>]) -> Result<()> {
        let (side, other) = match self.side {
            Side::Both => return Ok(()),
            Side::Read => ("read", "write"),
            Side::Write => ("write", "read"),
        };
        let does = |stream: &Does<'_>| if self.side == Side::Read { stream.reads } else { stream.writes };
        let mut about = streams.iter().filter(|stream| self.is_about(stream.name));
        if self.figure == Figure::Errors || about.any(does) {
            return Ok(());
        }
        let what = format!("'{self}' is of {side}s, and no stream of the profile that it is about {side}s");
        Err(Error::new(Kind::Invalid, what)
            .remedy(format!("ask for {other}s, or for all I/Os: leave '{side}.' out")))
    }

    /// Holds it against what was recorded of each stream, by name, in `seconds`.
    ///
    /// # Errors
    /// [`Kind::NotFound`] when no stream has the name that it asks for.
    pub fn judge(&self, streams: &[(&str, &StreamRecord)], seconds: f64) -> Result<Met> {
        let database = streams.iter().any(|(name, _)| is_transaction(name));
        if !database && matches!(self.figure, Figure::Nopm | Figure::Tpm) {
            let what = format!("'{self}' is of a database's transactions, and the profile runs none");
            return Err(Error::new(Kind::NotFound, what).remedy("ask for iops, or run the profile oltp"));
        }
        let of_figure = (self.figure == Figure::Nopm).then(|| Transaction::NewOrder.name());
        let stream = self.stream.as_deref().or(of_figure);
        let wanted = |name: &str| stream.is_none_or(|stream| is_of(name, stream));
        let chosen: Vec<&StreamRecord> =
            streams.iter().filter(|(name, _)| wanted(name)).map(|(_, record)| *record).collect();
        if chosen.is_empty() {
            let names: Vec<&str> = streams.iter().map(|(name, _)| *name).collect();
            let what = format!("'{self}' is of a stream that the profile does not run");
            return Err(Error::new(Kind::NotFound, what).remedy(match names[..] {
                [] => "nothing of it can be required: leave it out, or choose other steps".to_owned(),
                _ => format!("name one of {}", names.join(", ")),
            }));
        }
        let measured = self.measure(&chosen, seconds);
        let met = measured.map(|value| if self.at_least { value >= self.bound } else { value <= self.bound });
        let headroom = measured.filter(|_| self.bound > 0.0).map(|value| {
            let more = value / self.bound - 1.0;
            if self.at_least { more } else { -more }
        });
        let told = measured.map_or_else(|| "too few I/Os to say".into(), |value| self.figure.told(value));
        Ok(Met { requirement: self.text.clone(), measured, told, headroom, met })
    }

    fn measure(&self, streams: &[&StreamRecord], seconds: f64) -> Option<f64> {
        if self.figure == Figure::Errors {
            return Some(streams.iter().map(|record| (record.failed() + record.unanswered) as f64).sum());
        }
        let sides: Vec<&Direction> = streams
            .iter()
            .flat_map(|record| match self.side {
                Side::Both => vec![&record.read, &record.write],
                Side::Read => vec![&record.read],
                Side::Write => vec![&record.write],
            })
            .collect();
        match self.figure {
            Figure::Nopm | Figure::Tpm => {
                return Some(sides.iter().map(|side| side.ios as f64).sum::<f64>() * 60.0 / seconds);
            }
            Figure::Iops => return Some(sides.iter().map(|side| side.ios as f64).sum::<f64>() / seconds),
            Figure::Bytes => return Some(sides.iter().map(|side| side.bytes as f64).sum::<f64>() / seconds),
            _ => {}
        }
        let mut response = Latencies::new();
        sides.iter().for_each(|side| response.add(&side.response));
        let count = response.count() as f64;
        match self.figure {
            _ if count == 0.0 => None,
            Figure::Mean => Some(response.mean()),
            Figure::Max => Some(response.max() as f64),
            Figure::Percentile(percent) if !is_told(count, percent / 100.0) => None,
            Figure::Percentile(percent) => Some(response.quantile(percent / 100.0) as f64),
            Figure::Nopm | Figure::Tpm | Figure::Iops | Figure::Bytes | Figure::Errors => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(ios: u64, nanos: u64) -> StreamRecord {
        let mut record = StreamRecord::default();
        record.read.ios = ios;
        record.read.bytes = ios * 4096;
        (0..ios).for_each(|_| record.read.response.record(nanos));
        record
    }

    #[test]
    fn a_requirement_is_met_with_its_headroom() {
        let (db, log) = (record(2160, 10_000_000), record(1000, 1_000_000));
        let streams = [("db", &db), ("log", &log)];
        let judge = |text: &str| parse(text).unwrap()[0].judge(&streams, 10.0).unwrap();
        let met = judge("iops>=216");
        assert_eq!((met.met, met.told.as_str()), (Some(true), "316.0/s"));
        let slow = judge("db:read.mean<=5ms");
        assert_eq!(slow.met, Some(false));
        assert!((slow.headroom.unwrap() + 1.0).abs() < 0.01, "{slow:?}");
        assert!((judge("db:read.mean<=20ms").headroom.unwrap() - 0.5).abs() < 0.01);
        assert_eq!(judge("log:p99<=2ms").met, Some(true));
        assert_eq!(judge("p99.9<=2ms").met, None, "3,160 I/Os say nothing of one in a thousand");
        assert_eq!(judge("write.mean<=1s").met, None);
        assert_eq!(judge("errors<=0").met, Some(true));
        assert_eq!(judge("read.bytes>=1M").met, Some(true));
        assert!(parse("web:iops>=1").unwrap()[0].judge(&streams, 1.0).is_err());
    }

    #[test]
    fn streams_that_share_a_name_are_asked_together() {
        let (one, two, log) = (record(1000, 10_000_000), record(500, 1_000_000), record(9, 1));
        let streams = [("db-1", &one), ("db-2", &two), ("dbx", &log)];
        let judge = |text: &str| parse(text).unwrap()[0].judge(&streams, 10.0).unwrap();
        assert_eq!(judge("db:iops>=150").measured, Some(150.0));
        assert_eq!(judge("db-2:iops>=150").met, Some(false));
        assert!((judge("db:read.mean<=8ms").measured.unwrap() / 7e6 - 1.0).abs() < 0.01);
    }

    #[test]
    fn a_database_is_asked_for_its_own_words() {
        let (orders, payments) = (record(1_000, 5_000_000), record(900, 1_000_000));
        let streams = [("new-order", &orders), ("payment", &payments)];
        let judge = |text: &str| parse(text).unwrap()[0].judge(&streams, 10.0).unwrap();
        assert_eq!(judge("nopm>=6000").measured, Some(6_000.0));
        assert_eq!(judge("tpm>=11401").met, Some(false));
        assert_eq!(judge("new-order.p90<=4ms").met, Some(false));
        assert_eq!(judge("payment.mean<=2ms").met, Some(true));
        assert_eq!(judge("payment:p90<=2ms").met, Some(true));
        let none = [("db", &orders)];
        assert!(parse("nopm>=1").unwrap()[0].judge(&none, 1.0).is_err());
        assert!(parse("db.p90<=1ms").is_err(), "only transactions are named with a point");
    }

    #[test]
    fn what_is_no_requirement_is_refused() {
        for bad in [
            "iops",
            "iops>216",
            "speed>=3",
            "read.mean<=20",
            "p0<=1ms",
            "p100<=1ms",
            "iops>=fast",
            "iops>=-1",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert_eq!(parse("iops>=1, p99<=2ms,").unwrap().len(), 2);
    }
}
