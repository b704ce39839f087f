//! What speaks for and against a number, and the grade that it gets.
//!
//! Each gate passes, warns or fails. Some failures make the number void: then nothing can be concluded from it, and it is
//! shown all the same. The grade is A with nothing against it, B with one warning, C with more, D with one failure, E
//! with more, F where it is void.

mod generator;

pub(crate) use generator::processors;
pub use generator::{CEILING_SHARE_MAX, WORK_SHARE_MAX};

use super::fidelity::Fidelity;
use super::steady::Steadiness;
use crate::counters::Reconciled;
use crate::load::Effort;
use crate::machine::Busy;
use crate::measure::Unsettled;
use crate::record::StreamRecord;
use crate::reduced::{APART_MAX, Reduced};
use crate::verify::Verification;
use crate::workload::Load;
use serde::{Deserialize, Serialize};
use stonefold_types::Size;
use utoipa::ToSchema;

/// The gate that asks for a steady state.
pub const STEADY: &str = "steady state";
/// How far mean I/Os in flight may be from throughput times response time (Little 1961), as a share.
pub const LITTLE_MAX: f64 = 0.05;
/// Share of I/Os of an open loop that may begin late.
pub const LATE_SHARE_MAX: f64 = 0.01;
/// How far wall clock and steady clock may come apart, in seconds.
const CLOCKS_APART_MAX: f64 = 1.0;

/// What a gate says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Nothing against the number.
    Pass,
    /// Something to know.
    Warn,
    /// Something against it.
    Fail,
    /// Nothing can be concluded from it.
    Void,
}

/// One rule and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Gate {
    /// Its name.
    pub name: String,
    /// What it says.
    pub state: State,
    /// Why, in words, with the figures.
    pub why: String,
}

/// Trust in a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum Grade {
    /// Nothing against it.
    A,
    /// One warning.
    B,
    /// More warnings.
    C,
    /// One failure.
    D,
    /// More failures.
    E,
    /// Void.
    F,
}

/// What the gates look at.
pub struct Evidence<'a> {
    /// Each stream with its load.
    pub streams: Vec<(&'a str, Load, &'a StreamRecord)>,
    /// What went wrong before the sample, while the load settled.
    pub before: Unsettled,
    /// Seconds of the sample.
    pub seconds: f64,
    /// Nothing where the sample was too short to say.
    pub steadiness: Option<&'a Steadiness>,
    /// What was asked for and delivered.
    pub fidelity: &'a [Fidelity],
    /// What reads were found to be.
    pub verification: &'a Verification,
    /// Whether they were looked at.
    pub verified: bool,
    /// I/Os a second that the generator does against a target that answers at once.
    pub ceiling: Option<f64>,
    /// CPU seconds that the busiest thread of the generator used, of each second.
    pub busy: f64,
    /// What its threads used, and what of it was work; nothing of a bundle that does not tell.
    pub effort: Option<Effort>,
    /// How busy the machine was that the load ran on, where that is known.
    pub machine: Option<Busy>,
    /// How far what the volumes hold reduces.
    pub reduced: &'a [Reduced],
    /// What the target has counted, where it can say that.
    pub reconciled: Option<Reconciled>,
    /// Why it could not in the end.
    pub uncounted: Option<&'a str>,
    /// How far the wall clock and the steady clock were apart at the end, in seconds.
    pub clocks_apart: f64,
    /// Somebody ended it early.
    pub cut_short: bool,
}

/// Looks at everything.
pub fn judge(evidence: &Evidence<'_>) -> Vec<Gate> {
    let mut gates = vec![steady(evidence), verification(evidence)];
    // Where nobody has looked, nobody knows.
    gates.extend(evidence.verified.then(|| unwritten(evidence)));
    gates.extend([
        errors(evidence),
        fidelity(evidence),
        little(evidence),
        generator::ceiling(evidence),
        punctual(evidence),
        clock(evidence.clocks_apart),
    ]);
    gates.extend(evidence.machine.as_ref().and_then(generator::machine));
    gates.extend(payload(evidence));
    gates.extend(evidence.reconciled.map(counted));
    gates.extend(evidence.uncounted.map(|why| {
        gate("target's counters", State::Warn, format!("what the target counted is not known: {why}"))
    }));
    if evidence.cut_short {
        gates.push(gate("whole", State::Void, "it was ended before its time".into()));
    }
    gates
}

/// The grade that goes with what the gates say.
pub fn grade(gates: &[Gate]) -> Grade {
    let count = |state: State| gates.iter().filter(|gate| gate.state == state).count();
    match (count(State::Void), count(State::Fail), count(State::Warn)) {
        (1.., _, _) => Grade::F,
        (_, 2.., _) => Grade::E,
        (_, 1, _) => Grade::D,
        (_, _, 2..) => Grade::C,
        (_, _, 1) => Grade::B,
        _ => Grade::A,
    }
}

fn gate(name: &str, state: State, why: String) -> Gate {
    Gate { name: name.into(), state, why }
}

fn steady(evidence: &Evidence<'_>) -> Gate {
    let Some(steady) = evidence.steadiness else {
        return gate(STEADY, State::Void, "fewer than five seconds were measured".into());
    };
    let told = |what: &str, window: &super::steady::Window| {
        format!(
            "{what}: range {:.1}% (20% at most), slope {:+.1}% (10% at most)",
            window.range * 100.0,
            window.slope * 100.0
        )
    };
    let why = format!("{}; {}", told("IOPS", &steady.iops), told("p99", &steady.p99));
    gate(STEADY, if steady.is_steady() { State::Pass } else { State::Void }, why)
}

fn verification(evidence: &Evidence<'_>) -> Gate {
    let seen = evidence.verification;
    if !evidence.verified {
        return gate("verification", State::Warn, "what was read was not looked at".into());
    }
    let faults = seen.faults();
    let why = match faults {
        0 => format!("{} sectors were what they had to be", seen.right),
        _ => format!(
            "{faults} sectors were not: {} lost, {} stale, {} misplaced, {} corrupt",
            seen.lost, seen.stale, seen.misplaced, seen.corrupt
        ),
    };
    gate("verification", if faults == 0 { State::Pass } else { State::Void }, why)
}

fn unwritten(evidence: &Evidence<'_>) -> Gate {
    match evidence.verification.unwritten {
        0 => gate("written before read", State::Pass, "every block that was read had been written".into()),
        many => {
            let why = format!(
                "{many} sectors were read that had never been written: storage answers those without looking"
            );
            gate("written before read", State::Void, why)
        }
    }
}

fn errors(evidence: &Evidence<'_>) -> Gate {
    let failed: u64 = evidence.streams.iter().map(|(_, _, record)| record.failed()).sum();
    let unanswered: u64 = evidence.streams.iter().map(|(_, _, record)| record.unanswered).sum();
    let Unsettled { failed: failed_before, unanswered: unanswered_before } = evidence.before;
    let told = |failed, unanswered| format!("{failed} I/Os failed, {unanswered} were never answered");
    match (failed + unanswered, failed_before + unanswered_before) {
        (0, 0) => gate("errors", State::Pass, "every I/O was answered without one".into()),
        (_, 0) => gate("errors", State::Void, told(failed, unanswered)),
        (0, _) => {
            let before = told(failed_before, unanswered_before);
            gate("errors", State::Void, format!("while it settled, {before}"))
        }
        _ => {
            let before = told(failed_before, unanswered_before);
            gate("errors", State::Void, format!("{}; while it settled, {before}", told(failed, unanswered)))
        }
    }
}

fn fidelity(evidence: &Evidence<'_>) -> Gate {
    let missed: Vec<String> = evidence
        .fidelity
        .iter()
        .filter(|one| !one.kept)
        .map(|one| {
            format!("{} of '{}': {} asked, {} delivered", one.what, one.stream, one.asked, one.delivered)
        })
        .collect();
    match missed.is_empty() {
        true => gate(
            "fidelity",
            State::Pass,
            format!("{} properties of the load were as asked", evidence.fidelity.len()),
        ),
        false => gate("fidelity", State::Fail, missed.join("; ")),
    }
}

/// Little's law for each closed stream: what was in flight is known, and follows from what was measured, too.
fn little(evidence: &Evidence<'_>) -> Gate {
    let mut worst: Option<(f64, String)> = None;
    for (name, load, record) in &evidence.streams {
        let Load::Closed { outstanding } = load else { continue };
        let side =
            |side: &crate::record::Direction| side.ios as f64 / evidence.seconds * side.response.mean() / 1e9;
        let measured = side(&record.read) + side(&record.write) + side(&record.control);
        let apart = (measured / f64::from(*outstanding) - 1.0).abs();
        if worst.as_ref().is_none_or(|(most, _)| apart > *most) {
            worst = Some((
                apart,
                format!("'{name}': {outstanding} in flight, {measured:.2} by throughput × response time"),
            ));
        }
    }
    match worst {
        None => gate("Little's law", State::Pass, "no closed loop to hold it against".into()),
        Some((apart, why)) => {
            gate("Little's law", if apart <= LITTLE_MAX { State::Pass } else { State::Fail }, why)
        }
    }
}

fn punctual(evidence: &Evidence<'_>) -> Gate {
    let open = evidence.streams.iter().filter(|(_, load, _)| matches!(load, Load::Open { .. }));
    let (mut late, mut unissued, mut meant) = (0, 0, 0);
    for (_, _, record) in open {
        late += record.late;
        unissued += record.unissued;
        meant += record.issued() + record.unissued;
    }
    if meant == 0 {
        return gate("punctual", State::Pass, "no open loop: nothing had its moment".into());
    }
    let share = (late + unissued) as f64 / meant as f64;
    let why = format!(
        "of {meant} I/Os {late} began more than 1 ms late, {unissued} not at all; their waiting counts"
    );
    gate("punctual", if share <= LATE_SHARE_MAX { State::Pass } else { State::Warn }, why)
}

/// Whether the target says the same as the lab.
fn counted(both: Reconciled) -> Gate {
    let Reconciled { said, answered, .. } = both;
    let why = format!(
        "the target counts {} read and {} written, the lab was answered {} and {}",
        Size(said.read_bytes),
        Size(said.written_bytes),
        Size(answered.read_bytes),
        Size(answered.written_bytes)
    );
    gate("target's counters", if both.agree() { State::Pass } else { State::Fail }, why)
}

/// Whether the volumes reduce as far as was declared; nothing where that is not known.
fn payload(evidence: &Evidence<'_>) -> Option<Gate> {
    let worst = evidence.reduced.iter().max_by(|a, b| a.apart().total_cmp(&b.apart()))?;
    let why = format!(
        "'{}': dedupe {:.2}, compression {:.2} of what it held at the end; {:.2} and {:.2} were declared",
        worst.name,
        worst.dedupe(),
        worst.compression(),
        worst.dedupe_declared,
        worst.compression_declared
    );
    Some(gate("payload", if worst.apart() <= APART_MAX { State::Pass } else { State::Warn }, why))
}

/// Of wall clock and steady clock, in seconds.
pub(crate) fn clock(apart: f64) -> Gate {
    if apart <= -CLOCKS_APART_MAX {
        let why =
            format!("the wall clock was set back by {:.3} s meanwhile: nothing says when this was", -apart);
        return gate("clock", State::Void, why);
    }
    let why = format!("wall clock and steady clock were {apart:.3} s apart at the end");
    gate("clock", if apart < CLOCKS_APART_MAX { State::Pass } else { State::Fail }, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Counts;
    use crate::stats::steady::Window;

    fn steady() -> Steadiness {
        let level = Window { mean: 1000.0, range: 0.01, slope: 0.0 };
        Steadiness { round_seconds: 1, iops: level, p99: level }
    }

    fn record() -> StreamRecord {
        let mut record = StreamRecord::default();
        record.read.ios = 10_000;
        (0..10_000).for_each(|_| record.read.response.record(1_000_000));
        record
    }

    fn judged(change: impl FnOnce(&mut Evidence<'_>, &mut StreamRecord)) -> (Grade, Vec<String>) {
        let (steady, seen) = (steady(), Verification { right: 9, ..Verification::default() });
        let mut record = record();
        let mut evidence = Evidence {
            streams: Vec::new(),
            before: Unsettled::default(),
            seconds: 10.0,
            steadiness: Some(&steady),
            fidelity: &[],
            verification: &seen,
            verified: true,
            ceiling: Some(1e6),
            busy: 0.1,
            effort: None,
            machine: None,
            reduced: &[],
            reconciled: None,
            uncounted: None,
            clocks_apart: 0.0,
            cut_short: false,
        };
        change(&mut evidence, &mut record);
        let load = if record.sizes.is_empty() {
            Load::Closed { outstanding: 1 }
        } else {
            Load::Open { from: 1.0, to: 1.0, arrivals: crate::workload::Arrivals::Constant }
        };
        evidence.streams = vec![("s", load, &record)];
        let gates = judge(&evidence);
        let against = gates.iter().filter(|gate| gate.state > State::Pass).map(|gate| gate.name.clone());
        (grade(&gates), against.collect())
    }

    /// Every gate can close, and by itself.
    #[test]
    fn each_rule_speaks_against_a_number_by_itself() {
        assert_eq!(judged(|_, _| {}), (Grade::A, vec![]));
        assert_eq!(judged(|e, _| e.steadiness = None), (Grade::F, vec!["steady state".into()]));
        assert_eq!(judged(|e, _| e.verified = false), (Grade::B, vec!["verification".into()]));
        assert_eq!(judged(|e, _| e.cut_short = true), (Grade::F, vec!["whole".into()]));
        assert_eq!(judged(|e, _| e.clocks_apart = -3.0), (Grade::F, vec!["clock".into()]));
        assert_eq!(judged(|e, _| e.clocks_apart = 3.0), (Grade::D, vec!["clock".into()]));
        assert_eq!(judged(|e, _| e.ceiling = Some(1200.0)), (Grade::D, vec!["generator".into()]));
        assert_eq!(judged(|e, _| e.ceiling = None), (Grade::B, vec!["generator".into()]));
        let of_generator = |grade| (grade, vec!["generator".to_owned()]);
        assert_eq!(judged(|e, _| e.busy = 0.96), of_generator(Grade::B), "of a bundle that tells no more");
        let effort = |most: f64| Some(Effort { work: most, most, awake: 9.0 });
        // Of ten seconds. However long it waited awake.
        assert_eq!(judged(|e, _| (e.busy, e.effort) = (1.0, effort(6.9))), (Grade::A, vec![]));
        assert_eq!(judged(|e, _| e.effort = effort(7.1)), of_generator(Grade::B));
        let machine = |mean: f64, stolen: f64| Some(Busy { min: 1.0, mean, max: 4.0, of: Some(4), stolen });
        assert_eq!(judged(|e, _| e.machine = machine(3.7, 0.0)), (Grade::A, vec![]));
        assert_eq!(judged(|e, _| e.machine = machine(3.9, 0.0)), (Grade::B, vec!["processors".into()]));
        assert_eq!(judged(|e, _| e.machine = machine(2.0, 1.9)), (Grade::B, vec!["processors".into()]));
        let worn = Reduced { dedupe_declared: 1.2, counted: 110, different: 100, ..Reduced::default() };
        let worn = vec![worn].leak();
        assert_eq!(judged(|e, _| e.reduced = worn), (Grade::B, vec!["payload".into()]));
        let said = Counts { read_bytes: 1 << 30, written_bytes: 0 };
        let others = Reconciled { said, answered: Counts::default(), in_flight: 0 };
        assert_eq!(judged(|e, _| e.reconciled = Some(others)), (Grade::D, vec!["target's counters".into()]));
        assert_eq!(judged(|_, r| r.read.ios = 12_000), (Grade::D, vec!["Little's law".into()]));
        assert_eq!(judged(|_, r| r.unanswered = 1), (Grade::F, vec!["errors".into()]));
        let before = Unsettled { failed: 1, unanswered: 0 };
        assert_eq!(judged(|e, _| e.before = before), (Grade::F, vec!["errors".into()]), "while it settled");
        let gone = Some("gone");
        assert_eq!(judged(|e, _| e.uncounted = gone), (Grade::B, vec!["target's counters".into()]));
        let late = |_: &mut Evidence<'_>, r: &mut StreamRecord| {
            r.sizes = [(4096, 1000)].into();
            r.late = 500;
        };
        assert_eq!(judged(late), (Grade::B, vec!["punctual".into()]));
        let stale = Verification { stale: 1, ..Verification::default() };
        let voided = |seen: &Verification| {
            let gates = [
                verification(&Evidence { verification: seen, ..blank() }),
                unwritten(&Evidence { verification: seen, ..blank() }),
            ];
            gates.map(|gate| gate.state)
        };
        assert_eq!(voided(&stale), [State::Void, State::Pass]);
        assert_eq!(
            voided(&Verification { unwritten: 1, ..Verification::default() }),
            [State::Pass, State::Void]
        );
    }

    fn blank() -> Evidence<'static> {
        static NOTHING: std::sync::LazyLock<Verification> = std::sync::LazyLock::new(Verification::default);
        Evidence {
            streams: Vec::new(),
            before: Unsettled::default(),
            seconds: 1.0,
            steadiness: None,
            fidelity: &[],
            verification: &NOTHING,
            verified: true,
            ceiling: None,
            busy: 0.0,
            effort: None,
            machine: None,
            reduced: &[],
            reconciled: None,
            uncounted: None,
            clocks_apart: 0.0,
            cut_short: false,
        }
    }
}
