//! What a replay says: whether it was what the traces ask for, and whether the target was good enough.
//!
//! The rules of a pass are those of IOmark-VM 3.8: 70% of all I/Os within 20 ms, each stream's mean within 20 ms, the end within the length
//! and 15 s. Told beside is what a user would rather ask: 99% within 20 ms. A replay is as busy as its trace is, so that there is no steady state to
//! ask for.

use super::{Replayed, title};
use crate::bundle::Bundle;
use crate::measure::Point;
use crate::record::{Direction, StreamRecord};
use crate::stats::fidelity::Fidelity;
use crate::stats::gates::{self, Evidence, Gate, Grade, State};
use crate::stats::require;
use crate::verdict::{Judged, Summary, Verdict, conclude, on_its_point};
use crate::workload::Load;
use std::time::Duration;
use stonefold_types::Result;

/// How far the time in which requests were issued may be from the traces', as a share (15 s of an hour).
pub const DRIFT_MAX: f64 = 0.0042;
/// How much longer than its length a replay may take.
pub const OVERRUN: Duration = Duration::from_secs(15);
/// How far counts of what was issued may be from the traces'.
const COUNT_MAX: f64 = 0.0042;
/// What is told beside [`TILE_RULES`].
pub(crate) const STRICT: &str = "p99<=20ms";

/// The rule for all I/Os, and the one for each stream's.
pub const TILE_RULES: (&str, &str) = ("p70<=20ms", "mean<=20ms");

/// All rules for some streams, as requirements.
pub fn requirements(replayed: &Replayed) -> String {
    let (all, each) = TILE_RULES;
    let of_streams = replayed.streams.iter().map(|stream| format!("{}:{each}", stream.name));
    std::iter::once(all.to_owned()).chain(of_streams).collect::<Vec<_>>().join(",")
}

/// Computes all that a bundle of a replay says.
///
/// # Errors
/// When a requirement cannot be read, or is of a stream that never ran.
pub fn summarise(bundle: &Bundle, replayed: &Replayed) -> Result<Summary> {
    let points: Vec<Judged> =
        bundle.points.iter().map(|point| judge(point, replayed, bundle.run.verified)).collect();
    let text = match bundle.run.require.as_str() {
        "" => requirements(replayed),
        asked => asked.to_owned(),
    };
    let on_point = |text: &str| {
        require::parse(text)?
            .iter()
            .map(|one| on_its_point(one, &bundle.points, None))
            .collect::<Result<Vec<_>>>()
    };
    // Of nothing that was measured nothing can be required.
    let (required, beside) = match points.is_empty() {
        true => (Vec::new(), Vec::new()),
        false => (on_point(&text)?, on_point(STRICT)?),
    };
    let mut verdict = conclude(&points, &required, bundle.run.cut_short);
    let late =
        |judged: &Judged| judged.gates.iter().any(|gate| gate.name == END && gate.state == State::Fail);
    if verdict == Verdict::Pass && points.iter().any(late) {
        verdict = Verdict::Fail;
    }
    Ok(Summary { verdict, points, required, beside })
}

/// Judges a point.
pub fn judge(point: &Point, replayed: &Replayed, verified: bool) -> Judged {
    let plans = replayed.streams.iter().zip(&point.streams);
    let fidelity: Vec<Fidelity> =
        plans.flat_map(|(plan, record)| kept(&plan.name, plan.requests, record)).collect();
    // To the other rules a replay is an open loop: each I/O has its moment.
    let rate =
        |record: &StreamRecord| (record.issued() + record.unissued) as f64 / replayed.seconds.max(1e-9);
    let streams = point.loads.iter().zip(&point.streams).map(|(load, record)| {
        let (rate, arrivals) = (rate(record), crate::workload::Arrivals::Constant);
        (load.name.as_str(), Load::Open { from: rate, to: rate, arrivals }, record)
    });
    let mut gates = gates::judge(&Evidence {
        streams: streams.collect(),
        before: point.unsettled,
        seconds: point.seconds,
        steadiness: None,
        fidelity: &fidelity,
        verification: &point.verification,
        verified,
        ceiling: Some(point.ceiling),
        busy: point.busy,
        effort: point.effort,
        machine: point.machine_of_load(),
        reduced: &point.reduced,
        reconciled: point.reconciled,
        uncounted: point.uncounted.as_deref(),
        clocks_apart: point.clocks_apart,
        cut_short: point.cut_short,
    });
    gates.retain(|gate| gate.name != gates::STEADY && gate.name != "Little's law");
    gates.extend([drift(point), end(point, replayed), whole(replayed), asked(point, replayed)]);
    let grade: Grade = gates::grade(&gates);
    Judged {
        name: format!("replay of {}", title(replayed)),
        iops: point.iops(),
        steadiness: None,
        fidelity,
        gates,
        grade,
    }
}

/// The gate that asks for the end in time.
pub(crate) const END: &str = "replay's end";

fn gate(name: &str, state: State, why: String) -> Gate {
    Gate { name: name.into(), state, why }
}

/// Of each kind, how many were asked for and issued.
fn kept(name: &str, asked: [u64; 5], record: &StreamRecord) -> Vec<Fidelity> {
    let words = ["reads", "writes", "flushes", "trims", "zeroings"];
    let kinds = words.iter().zip(asked).zip(record.requests).filter(|((_, asked), got)| *asked + got > 0);
    kinds
        .map(|((what, asked), got)| Fidelity {
            stream: name.to_owned(),
            what: (*what).to_owned(),
            asked: asked.to_string(),
            delivered: got.to_string(),
            kept: (got as f64 - asked as f64).abs() <= asked as f64 * COUNT_MAX,
        })
        .collect()
}

fn drift(point: &Point) -> Gate {
    let timings = || point.streams.iter().map(|record| record.timing);
    let worst = timings().filter_map(|timing| timing.drift()).max_by(|a, b| a.abs().total_cmp(&b.abs()));
    let lag = timings().filter_map(|timing| timing.lag()).max_by(f64::total_cmp).unwrap_or(0.0);
    let count: u64 = timings().map(|timing| timing.count).sum();
    let late: u64 = timings().map(|timing| timing.late_sum).sum();
    let most = timings().map(|timing| timing.late_max).max().unwrap_or(0);
    let late = format!(
        "{} late on average, {} at most",
        require::time(late as f64 / count.max(1) as f64),
        require::time(most as f64)
    );
    match worst {
        None => gate("timing drift", State::Void, "fewer than two requests were issued".into()),
        Some(drift) => {
            let state = if drift.abs().max(lag) <= DRIFT_MAX { State::Pass } else { State::Fail };
            let why = format!(
                "{:+.4}% (0.42) of the time that requests were to be issued in, and {:.4}% (0.42) behind on average; {late}",
                drift * 100.0,
                lag * 100.0
            );
            gate("timing drift", state, why)
        }
    }
}

/// Requests that were answered when the time was over: their response is told, and they are not counted.
fn late(record: &StreamRecord) -> u64 {
    let of = |direction: &Direction| direction.response.count().saturating_sub(direction.ios);
    of(&record.read) + of(&record.write) + of(&record.control)
}

fn end(point: &Point, replayed: &Replayed) -> Gate {
    let over = point.seconds - replayed.seconds;
    let unissued: u64 = point.streams.iter().map(|record| record.unissued).sum();
    let unanswered: u64 = point.streams.iter().map(|record| record.unanswered).sum();
    let late: u64 = point.streams.iter().map(late).sum();
    let on_time = over <= OVERRUN.as_secs_f64() && unissued + unanswered + late == 0;
    let state = if on_time { State::Pass } else { State::Fail };
    let why = format!(
        "{:.3} s after its length of {:.1} s (15 may be); {unissued} requests not issued by then, {late} answered later, {unanswered} not at all",
        over.max(0.0),
        replayed.seconds
    );
    gate(END, state, why)
}

/// Whether the traces were whole.
fn whole(replayed: &Replayed) -> Gate {
    let missing: Vec<String> = replayed
        .traces
        .iter()
        .filter(|trace| trace.cut || trace.dropped > 0)
        .map(|trace| match trace.cut {
            true => format!("'{}' was cut short", trace.name),
            false => {
                format!(
                    "'{}' lacks {} of {} requests",
                    trace.name,
                    trace.dropped,
                    trace.dropped + trace.requests
                )
            }
        })
        .collect();
    match missing.is_empty() {
        true => gate("whole trace", State::Pass, "nothing is missing in what was captured".into()),
        false => gate("whole trace", State::Warn, missing.join("; ")),
    }
}

/// Whether the target was asked for what was captured.
fn asked(point: &Point, replayed: &Replayed) -> Gate {
    let sum = |of: fn(&StreamRecord) -> u64| point.streams.iter().map(of).sum::<u64>();
    let (skipped, weakened) = (sum(|record| record.skipped), sum(|record| record.weakened));
    let altered: u64 = replayed.streams.iter().map(|stream| stream.altered).sum();
    let moved = replayed.streams.iter().filter(|stream| !stream.as_it_was).count();
    let mut told = Vec::new();
    if moved > 0 {
        told.push(format!("{moved} volumes are smaller than the device was, and places moved"));
    }
    if altered > 0 {
        told.push(format!(
            "{altered} requests have another length, for alignment or because they were too long"
        ));
    }
    if skipped > 0 {
        told.push(format!("{skipped} requests were passed over: the target takes none of their kind"));
    }
    if weakened > 0 {
        told.push(format!(
            "{weakened} writes were to be durable at once: the target cannot be asked for that"
        ));
    }
    let state = if altered + skipped + weakened + moved as u64 > 0 { State::Warn } else { State::Pass };
    let why = if told.is_empty() {
        "every request went where it had gone, as long as it was".into()
    } else {
        told.join("; ")
    };
    gate("as captured", state, why)
}
