//! What a run says, from what it recorded: the gates of each point, the requirements, one verdict.

mod caches;

use crate::bundle::Bundle;
use crate::chaos;
use crate::measure::{Point, PointLoad};
use crate::oltp;
use crate::profile::Profile;
use crate::record::StreamRecord;
use crate::stats::fidelity::{self, Fidelity};
use crate::stats::gates::{self, Evidence, Gate, Grade, State};
use crate::stats::require::{self, Met, Requirement};
use crate::stats::steady::Steadiness;
use crate::workload::{Arrivals, Load, Workload};
use serde::{Deserialize, Serialize};
use stonefold_types::Result;
use utoipa::ToSchema;

/// The verdict on a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// Every requirement is met; without any, every point is valid.
    Pass,
    /// A requirement is not met.
    Fail,
    /// A point on which something rests is void.
    Invalid,
    /// Too little was measured to say.
    Inconclusive,
}

impl Verdict {
    /// The exit status that goes with it.
    pub fn status(self) -> u8 {
        match self {
            Verdict::Pass => 0,
            Verdict::Fail => 1,
            Verdict::Invalid => 3,
            Verdict::Inconclusive => 4,
        }
    }
}

/// One point, judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Judged {
    /// Step and label.
    pub name: String,
    /// I/Os a second.
    pub iops: f64,
    /// How steady it was.
    pub steadiness: Option<Steadiness>,
    /// What was asked for and delivered.
    pub fidelity: Vec<Fidelity>,
    /// Each rule and what it says.
    pub gates: Vec<Gate>,
    /// Trust.
    pub grade: Grade,
}

/// A requirement, and the point on which it was judged: of those it is about, the one with the least headroom.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Required {
    /// Number of the point.
    pub point: usize,
    /// What came of it.
    pub met: Met,
}

/// All that a run says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Summary {
    /// The one word.
    pub verdict: Verdict,
    /// Each point.
    pub points: Vec<Judged>,
    /// Each requirement.
    pub required: Vec<Required>,
    /// What is told beside them, and decides nothing.
    #[serde(default)]
    pub beside: Vec<Required>,
}

/// Computes all of it from a bundle.
///
/// # Errors
/// When the bundle's profile or a requirement cannot be read, or a requirement is of a stream that never ran.
pub fn summarise(bundle: &Bundle) -> Result<Summary> {
    if oltp::Profile::is_one(&bundle.profile) {
        return oltp::summarise(bundle);
    }
    if let Some(tiled) = &bundle.run.tiles {
        return crate::tiles::summarise(bundle, tiled);
    }
    if let Some(replayed) = &bundle.run.replay {
        return crate::replay::summarise(bundle, replayed);
    }
    summarise_with(bundle, &Profile::parse(&bundle.run.profile, &bundle.profile)?)
}

/// The same, by the profile as it was run: with another size or payload than its file says.
///
/// # Errors
/// See [`summarise`].
pub fn summarise_with(bundle: &Bundle, profile: &Profile) -> Result<Summary> {
    let workload = profile.workload(bundle.run.quick);
    let mut points: Vec<Judged> =
        bundle.points.iter().map(|point| judge(point, workload, bundle.run.verified)).collect();
    if let Some(gate) = caches::gate(profile, &bundle.run) {
        let loads = bundle.points.iter().zip(&mut points).filter(|(point, _)| point.is_load());
        loads.for_each(|(_, judged)| judged.hold_against(gate.clone()));
    }
    let (mut required, beside) = chaos::required(&bundle.points);
    let asked = require::parse(&bundle.run.require)?;
    let rate = asked.iter().find_map(Requirement::rate);
    // Of a run that was ended before anything was measured nothing can be asked.
    let nothing = bundle.run.cut_short && !bundle.points.iter().any(Point::is_judged);
    required.extend(
        asked
            .iter()
            .filter(|_| !nothing)
            .map(|requirement| on_its_point(requirement, &bundle.points, rate))
            .collect::<Result<Vec<_>>>()?,
    );
    let mut verdict = conclude(&points, &required, bundle.run.cut_short);
    if bundle.points.iter().zip(&points).any(|(point, judged)| is_wrong(point, judged)) {
        verdict = Verdict::Invalid;
    }
    Ok(Summary { verdict, points, required, beside })
}

impl Judged {
    /// One rule more.
    fn hold_against(&mut self, gate: Gate) {
        self.gates.push(gate);
        self.grade = gates::grade(&self.gates);
    }
}

/// The rules that hold of something that is timed as a whole: it has no rate to be steady, and nothing was asked of it but
/// that it be right.
const OF_TASKS: [&str; 6] = ["verification", "written before read", "errors", "clock", "processors", "whole"];

/// The rules without which a target is no storage, at whatever load that shows.
const OF_DATA: [&str; 3] = ["verification", "written before read", "errors"];

/// Whether what a point has shown leaves nothing to conclude, whatever was required of the others: data that was copied or read wrong, and
/// I/Os that failed. An outage is there to find that out, and says so itself.
fn is_wrong(point: &Point, judged: &Judged) -> bool {
    let about_it = |gate: &&Gate| point.task.is_some() || OF_DATA.contains(&gate.name.as_str());
    point.outage.is_none() && judged.gates.iter().filter(about_it).any(|gate| gate.state == State::Void)
}

fn judge(point: &Point, workload: &Workload, verified: bool) -> Judged {
    let steadiness = Steadiness::of(&point.series).filter(|_| point.is_load());
    let loads: Vec<Load> = point.loads.iter().map(|load| load_of(load, workload)).collect();
    let mut fidelity: Vec<Fidelity> = point
        .loads
        .iter()
        .zip(&loads)
        .zip(&point.streams)
        .filter(|_| point.task.is_none())
        .flat_map(|((told, load), record)| {
            fidelity::of(&workload.streams[told.stream], *load, record, point.seconds)
        })
        .collect();
    fidelity.extend(ratios(point, &loads));
    let streams = point.loads.iter().zip(&loads).zip(&point.streams);
    let mut gates = gates::judge(&Evidence {
        streams: streams.map(|((told, load), record)| (told.name.as_str(), *load, record)).collect(),
        before: point.unsettled,
        seconds: point.seconds,
        steadiness: steadiness.as_ref(),
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
    if point.task.is_some() {
        gates.retain(|gate| OF_TASKS.contains(&gate.name.as_str()));
    }
    if let Some(outage) = &point.outage {
        chaos::judge(&mut gates, outage);
    }
    let name = point.name();
    Judged { name, iops: point.iops(), steadiness, fidelity, grade: gates::grade(&gates), gates }
}

/// Of streams that follow others which ran beside them.
fn ratios(point: &Point, loads: &[Load]) -> Vec<Fidelity> {
    let streams = || point.loads.iter().zip(&point.streams).filter(|_| point.task.is_none());
    let of = |((told, record), load): ((&PointLoad, &StreamRecord), &Load)| {
        let Load::Follow { stream, ios, per } = load else { return None };
        let (leader, led) = streams().find(|(told, _)| told.stream == *stream)?;
        Some(fidelity::of_ratio(
            (&told.name, record),
            (&leader.name, led),
            (*ios, *per),
            point.workers.len().max(1),
        ))
    };
    streams().zip(loads).filter_map(of).collect()
}

fn load_of(told: &PointLoad, workload: &Workload) -> Load {
    match (told.outstanding, told.rate) {
        (Some(outstanding), _) => Load::Closed { outstanding },
        // A bundle of before this was kept does not tell; those of the lab's own loads scatter.
        (None, Some(rate)) => {
            Load::Open { from: rate, to: rate, arrivals: told.arrivals.unwrap_or(Arrivals::Poisson) }
        }
        (None, None) => workload.streams[told.stream].load,
    }
}

/// Of a lightest load, how much less than what was asked for it may bring: its arrivals scatter.
const RATE_SHORT_MAX: f64 = 0.01;

/// Points that are held count before those of sweeps, which are there to find something out. Of those that count the worst decides.
///
/// Times are another matter. A closed loop asks for less when answers take longer, and so shows what a storage can do and not how long its
/// users wait. Where open loops ran one of them decides: the lightest that brings the `rate` that is required, I/Os a second; without
/// one, the worst.
///
/// A point whose streams only write says nothing of reads, and the other way round: it is left out, unless there is no other.
pub(crate) fn on_its_point(
    requirement: &Requirement,
    points: &[Point],
    rate: Option<f64>,
) -> Result<Required> {
    let hold = |point: &Point| requirement.judge(&named(point), point.seconds);
    let may = || points.iter().enumerate().filter(|(_, point)| point.is_judged());
    let mut about: Vec<(usize, &Point)> =
        may().filter(|(_, point)| !requirement.is_beside(&named(point))).collect();
    if about.is_empty() {
        about = may().collect();
    }
    let judged: Vec<(usize, Result<Met>)> = about.into_iter().map(|(n, point)| (n, hold(point))).collect();
    let said: Vec<(usize, &Met)> =
        judged.iter().filter_map(|(number, met)| Some((*number, met.as_ref().ok()?))).collect();
    let those = |which: &dyn Fn(&Point) -> bool| -> Vec<(usize, &Met)> {
        said.iter().filter(|(number, _)| which(&points[*number])).copied().collect()
    };
    let is_held = |point: &Point| point.label.is_empty();
    let is_open = |point: &Point| requirement.is_time() && point.loads.iter().any(|load| load.rate.is_some());
    let by_choice = [
        those(&|point| is_open(point) && is_held(point)),
        lightest(those(&is_open), points, rate),
        those(&is_held),
        said.clone(),
    ];
    let about = by_choice.into_iter().find(|about| !about.is_empty()).unwrap_or_default();
    match about.into_iter().min_by(|(_, a), (_, b)| a.worst_first(b)) {
        Some((point, met)) => Ok(Required { point, met: met.clone() }),
        None => Err(judged.into_iter().find_map(|(_, met)| met.err()).unwrap_or_else(|| {
            stonefold_types::Error::new(
                stonefold_types::Kind::NotFound,
                format!("nothing was measured to hold '{requirement}' against"),
            )
        })),
    }
}

/// What each stream of a point did, by its name.
fn named(point: &Point) -> Vec<(&str, &StreamRecord)> {
    point.loads.iter().map(|load| load.name.as_str()).zip(&point.streams).collect()
}

/// The lightest of these that brings a rate, alone; all of them where none does, or none is asked for.
fn lightest<'a>(open: Vec<(usize, &'a Met)>, points: &[Point], rate: Option<f64>) -> Vec<(usize, &'a Met)> {
    let brings =
        |number: usize| rate.is_some_and(|rate| points[number].iops() >= rate * (1.0 - RATE_SHORT_MAX));
    let enough = open.iter().filter(|(number, _)| brings(*number)).copied();
    let lightest = enough.min_by(|(a, _), (b, _)| points[*a].iops().total_cmp(&points[*b].iops()));
    lightest.map_or(open, |one| vec![one])
}

pub(crate) fn conclude(points: &[Judged], required: &[Required], cut_short: bool) -> Verdict {
    let void = |number: usize| points[number].gates.iter().any(|gate| gate.state == State::Void);
    let rests_on: Vec<usize> = match required.is_empty() {
        true => (0..points.len()).collect(),
        false => required.iter().map(|one| one.point).collect(),
    };
    if points.is_empty() || rests_on.iter().any(|number| void(*number)) || (cut_short && required.is_empty())
    {
        return Verdict::Invalid;
    }
    match required.iter().map(|one| &one.met).min_by(|a, b| a.worst_first(b)).map(|met| met.met) {
        Some(Some(false)) => Verdict::Fail,
        // What is missing might have failed.
        Some(Some(true)) if cut_short => Verdict::Inconclusive,
        Some(None) => Verdict::Inconclusive,
        _ => Verdict::Pass,
    }
}

#[cfg(test)]
mod tests;
