//! What a run says, from what it recorded: the gates of each point, the requirements, one verdict.

use crate::bundle::Bundle;
use crate::chaos;
use crate::measure::Point;
use crate::oltp;
use crate::profile::Profile;
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
    let points: Vec<Judged> =
        bundle.points.iter().map(|point| judge(point, workload, bundle.run.verified)).collect();
    let (mut required, beside) = chaos::required(&bundle.points);
    let asked = require::parse(&bundle.run.require)?;
    // Of a run that was ended before anything was measured nothing can be asked.
    let nothing = bundle.run.cut_short && !bundle.points.iter().any(Point::is_judged);
    required.extend(
        asked
            .iter()
            .filter(|_| !nothing)
            .map(|requirement| on_its_point(requirement, &bundle.points))
            .collect::<Result<Vec<_>>>()?,
    );
    let mut verdict = conclude(&points, &required, bundle.run.cut_short);
    // What was copied or read wrong is wrong whatever was required of a load.
    let void = |judged: &Judged| judged.gates.iter().any(|gate| gate.state == State::Void);
    let tasks = bundle.points.iter().zip(&points).filter(|(point, _)| point.task.is_some());
    if tasks.into_iter().any(|(_, judged)| void(judged)) {
        verdict = Verdict::Invalid;
    }
    Ok(Summary { verdict, points, required, beside })
}

/// The rules that hold of something that is timed as a whole: it has no rate to be steady, and nothing was asked of it but
/// that it be right.
const OF_TASKS: [&str; 5] = ["verification", "written before read", "errors", "clock", "whole"];

fn judge(point: &Point, workload: &Workload, verified: bool) -> Judged {
    let steadiness = Steadiness::of(&point.series).filter(|_| point.is_load());
    let loads: Vec<Load> = point.loads.iter().map(|load| load_of(load, workload)).collect();
    let fidelity: Vec<Fidelity> = point
        .loads
        .iter()
        .zip(&loads)
        .zip(&point.streams)
        .filter(|_| point.task.is_none())
        .flat_map(|((told, load), record)| {
            fidelity::of(&workload.streams[told.stream], *load, record, point.seconds)
        })
        .collect();
    let streams = point.loads.iter().zip(&loads).zip(&point.streams);
    let mut gates = gates::judge(&Evidence {
        streams: streams.map(|((told, load), record)| (told.name.as_str(), *load, record)).collect(),
        seconds: point.seconds,
        steadiness: steadiness.as_ref(),
        fidelity: &fidelity,
        verification: &point.verification,
        verified,
        ceiling: Some(point.ceiling),
        busy: point.busy,
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

fn load_of(told: &crate::measure::PointLoad, workload: &Workload) -> Load {
    match (told.outstanding, told.rate) {
        (Some(outstanding), _) => Load::Closed { outstanding },
        (None, Some(rate)) => Load::Open { from: rate, to: rate, arrivals: Arrivals::Poisson },
        (None, None) => workload.streams[told.stream].load,
    }
}

/// Points that are held count before those of sweeps, which are there to find something out.
pub(crate) fn on_its_point(requirement: &Requirement, points: &[Point]) -> Result<Required> {
    let judged: Vec<(usize, bool, Result<Met>)> = points
        .iter()
        .enumerate()
        .filter(|(_, point)| point.is_judged())
        .map(|(number, point)| {
            let streams: Vec<_> =
                point.loads.iter().map(|load| load.name.as_str()).zip(&point.streams).collect();
            (number, point.label.is_empty(), requirement.judge(&streams, point.seconds))
        })
        .collect();
    let any_held = judged.iter().any(|(_, held, met)| *held && met.is_ok());
    let about = judged.iter().filter(|(_, held, met)| met.is_ok() && (*held || !any_held));
    let headroom =
        |met: &Result<Met>| met.as_ref().ok().and_then(|met| met.headroom).unwrap_or(f64::NEG_INFINITY);
    let least = about.min_by(|a, b| headroom(&a.2).total_cmp(&headroom(&b.2))).map(|(number, _, _)| *number);
    match least {
        Some(point) => {
            let met =
                judged.into_iter().find(|(number, _, _)| *number == point).expect("it is one of them").2?;
            Ok(Required { point, met })
        }
        None => Err(judged.into_iter().find_map(|(_, _, met)| met.err()).unwrap_or_else(|| {
            stonefold_types::Error::new(
                stonefold_types::Kind::NotFound,
                format!("nothing was measured to hold '{requirement}' against"),
            )
        })),
    }
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
    match required.iter().map(|one| one.met.met).min_by_key(|met| match met {
        Some(false) => 0,
        None => 1,
        Some(true) => 2,
    }) {
        Some(Some(false)) => Verdict::Fail,
        Some(None) => Verdict::Inconclusive,
        _ => Verdict::Pass,
    }
}
