//! What an outage says: whether it happened, whether the target came back, and whether it kept what it had promised.

use super::{OutageRecord, Promise, Strike};
use crate::measure::Point;
use crate::stats::gates::{Gate, STEADY, State};
use crate::stats::require::{Met, time};
use crate::verdict::Required;
use crate::verify::Verification;

/// Turns the gates of a load that runs through into those of one that is struck.
pub(crate) fn judge(gates: &mut Vec<Gate>, record: &OutageRecord) {
    // A load that is struck is not steady; what is lost is the answer, and not what voids it.
    gates.retain(|gate| ![STEADY, "Little's law", "verification"].contains(&gate.name.as_str()));
    // What was never answered is told as that.
    gates.retain(|gate| record.came_back || gate.name != "errors");
    // And errors of one that came back are what is wrong with it.
    let errors = gates.iter_mut().filter(|gate| gate.name == "errors" && gate.state == State::Void);
    errors.for_each(|gate| gate.state = State::Fail);
    gates.extend([struck(record), came_back(record), kept(record)]);
}

fn gate(name: &str, state: State, why: String) -> Gate {
    Gate { name: name.into(), state, why }
}

/// Whether anything happened at all: an outage that nobody notices says nothing of what survives one.
fn struck(record: &OutageRecord) -> Gate {
    let (state, why) = match record.kind {
        Strike::Freeze if record.last_answer.is_some() => (State::Pass, "answers stood still".into()),
        Strike::Freeze => (State::Void, "no answer was late: the command struck nothing".into()),
        Strike::Kill | Strike::Power if record.breaks > 0 => {
            (State::Pass, format!("connections broke {} times", record.breaks))
        }
        Strike::Kill | Strike::Power => {
            let why = "no connection broke: the command struck nothing, or something before the target outlived it, \
                       which then stands still and may lose nothing: call that a freeze";
            (State::Void, why.into())
        }
    };
    gate("outage", state, why)
}

fn came_back(record: &OutageRecord) -> Gate {
    match (record.resume_seconds(), record.silent_seconds()) {
        (Some(resume), Some(silent)) => {
            let why = format!(
                "answered {resume:.2} s after it was brought back, {silent:.2} s after the last answer"
            );
            gate("came back", State::Pass, why)
        }
        _ => {
            let why = format!("nothing was answered within {:.0} s", record.patience);
            gate("came back", State::Fail, why)
        }
    }
}

fn kept(record: &OutageRecord) -> Gate {
    let Some(seen) = &record.verification else {
        return gate("promise", State::Fail, "nothing could be read afterwards".into());
    };
    let unread = match record.unread {
        0 => String::new(),
        many => format!(", and {many} reads failed or had no answer"),
    };
    let why = format!("{} sectors were read{unread}: {}", seen.checked(), in_words(seen));
    gate("promise", if seen.faults() + record.unread == 0 { State::Pass } else { State::Fail }, why)
}

fn in_words(seen: &Verification) -> String {
    format!(
        "{} lost, {} stale, {} misplaced, {} corrupt; {} behind what was acknowledged, {} behind what was flushed; \
         {} blocks torn",
        seen.lost,
        seen.stale,
        seen.misplaced,
        seen.corrupt,
        seen.gone_acknowledged,
        seen.gone_flushed,
        seen.torn
    )
}

/// What is required of each outage among the points, and what is told beside and decides nothing.
pub(crate) fn required(points: &[Point]) -> (Vec<Required>, Vec<Required>) {
    let (mut required, mut beside) = (Vec::new(), Vec::new());
    for (point, record) in
        points.iter().enumerate().filter_map(|(n, point)| Some((n, point.outage.as_ref()?)))
    {
        let of = |requirement: String, measured: Option<f64>, told: String, met: Option<bool>| Required {
            point,
            met: Met {
                requirement: format!("{}: {requirement}", record.name),
                measured,
                told,
                headroom: None,
                met,
            },
        };
        let nanos = record.resume_seconds().map(|seconds| seconds * 1e9);
        let told = nanos.map_or_else(|| "it did not come back".into(), time);
        let within = format!("answers again within {:.0} s", record.patience);
        required.push(of(within, nanos, told, Some(record.came_back)));
        let Some(seen) = &record.verification else { continue };
        let failed: u64 =
            points[point].streams.iter().map(|stream| stream.failed() + stream.unanswered).sum();
        let told = format!("{failed} failed or had no answer");
        let answered = "every I/O is answered, without an error".into();
        required.push(of(answered, Some(failed as f64), told, Some(failed == 0)));
        let (unread, told) =
            (record.unread as f64, format!("{} reads failed or had no answer", record.unread));
        required.push(of(
            "every block can be read afterwards".into(),
            Some(unread),
            told,
            Some(unread == 0.0),
        ));
        let none = |what: &str, many: u64| {
            let told = format!("{many} of {} sectors", seen.checked());
            of(format!("no {what}"), Some(many as f64), told, Some(many == 0))
        };
        required.push(none("flushed write is lost", seen.gone_flushed));
        let acknowledged = none("acknowledged write is lost", seen.gone_acknowledged);
        // Without a death nothing excuses a loss.
        match (record.promise, record.kind) {
            (Promise::Flush, Strike::Kill | Strike::Power) => beside.push(acknowledged),
            _ => required.push(acknowledged),
        }
        let other = seen.faults().saturating_sub(seen.lost + seen.stale);
        required.push(none("sector is misplaced or corrupt", other));
    }
    (required, beside)
}
