//! What a run of tiles says: how many of them passed, and by which rule the next did not.
//!
//! A number of tiles passes when 70% of all I/Os took 20 ms at most, each application's mean (of its machines on all tiles together) is no more than
//! that, and the replay ended no later than 15 s after its time: the rules of IOmark-VM 3.8. *Strict* is what passes these and has 99% of its I/Os
//! within 20 ms. An application of which nothing was asked in the sample is under no rule. The verdict is about the tiles that were begun with.

use super::{Ended, OperationRecord, Tiled, VmPlan};
use crate::bundle::Bundle;
use crate::certificate::Price;
use crate::measure::Point;
use crate::record::StreamRecord;
use crate::replay::{self, END, OVERRUN, Replayed, STRICT, TILE_RULES};
use crate::stats::gates::State;
use crate::stats::require::{self, Met};
use crate::verdict::{Judged, Required, Summary, Verdict};
use stonefold_types::Result;

/// Some number of tiles, judged.
pub(super) struct Held {
    /// By the rules of every replay.
    pub judged: Judged,
    /// The rules of tiles, or what was asked for in their place; the end is the last.
    pub rules: Vec<Met>,
    /// Whether 99% were within 20 ms.
    pub strict: Met,
    /// It was replayed to its end.
    pub whole: bool,
}

impl Held {
    /// Of a point and what was replayed at it.
    pub(super) fn of(
        point: &Point,
        step: &Replayed,
        tiled: &Tiled,
        beside: &[OperationRecord],
        require: &str,
        verified: bool,
    ) -> Result<Self> {
        let mut judged = replay::judge(point, step, verified);
        judged.name.clone_from(&point.step);
        let applications = applications(point, &tiled.vms);
        let named: Vec<(&str, &StreamRecord)> =
            applications.iter().map(|(name, record)| (*name, record)).collect();
        let hold = |text: &str| {
            require::parse(text)?
                .iter()
                .map(|one| one.judge(&named, point.seconds))
                .collect::<Result<Vec<_>>>()
        };
        let text = if require.is_empty() { words(&named) } else { require.to_owned() };
        let mut rules = hold(&text)?;
        rules.extend(beside.iter().filter(|one| step.tiles >= one.from).map(|one| done(one, step.seconds)));
        rules.push(end(point, step, &judged));
        let strict = hold(STRICT)?.remove(0);
        Ok(Held { judged, rules, strict, whole: !point.cut_short })
    }

    /// Whether every rule was kept; nothing where too little was measured to say.
    pub(super) fn passes(&self) -> Option<bool> {
        let kept: Vec<Option<bool>> = self.rules.iter().map(|met| met.met).collect();
        match self.is_void() || !self.whole || kept.contains(&Some(false)) {
            true => Some(false),
            false => (!kept.contains(&None)).then_some(true),
        }
    }

    /// Whether nothing can be concluded from it.
    pub(super) fn is_void(&self) -> bool {
        self.judged.gates.iter().any(|gate| gate.state == State::Void)
    }
}

/// What each application did, its machines on all tiles together; in the order of the tile.
pub(crate) fn applications<'a>(point: &Point, vms: &'a [VmPlan]) -> Vec<(&'a str, StreamRecord)> {
    let mut all: Vec<(&str, StreamRecord)> = Vec::new();
    for (record, vm) in point.streams.iter().zip(vms.iter().cycle()) {
        let at = all.iter().position(|(name, _)| *name == vm.application).unwrap_or_else(|| {
            all.push((&vm.application, StreamRecord::default()));
            all.len() - 1
        });
        all[at].1.add(record);
    }
    all
}

/// The rules, of the applications of which anything was asked.
fn words(applications: &[(&str, &StreamRecord)]) -> String {
    let (all, each) = TILE_RULES;
    let asked = applications.iter().filter(|(_, record)| record.issued() + record.unissued > 0);
    let of_each = asked.map(|(name, _)| format!("{name}:{each}"));
    std::iter::once(all.to_owned()).chain(of_each).collect::<Vec<_>>().join(",")
}

/// An operation, as a rule.
fn done(one: &OperationRecord, seconds: f64) -> Met {
    let (done, required) = (one.rounds.len() as f64, one.required(seconds));
    let failed = one.failure.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
    Met {
        requirement: format!("{}>={} an hour", one.name, one.least),
        measured: Some(done),
        told: format!("{done} in {seconds:.0} s, of {required:.2}{failed}"),
        headroom: Some(done / required - 1.0),
        // A part of one cannot be asked for.
        met: Some(done >= required.ceil()),
    }
}

/// The end, as a rule: measured is how much later than its time it came.
fn end(point: &Point, step: &Replayed, judged: &Judged) -> Met {
    let (late, bound) = ((point.seconds - step.seconds).max(0.0), OVERRUN.as_secs_f64());
    let gate = judged.gates.iter().find(|gate| gate.name == END);
    Met {
        requirement: format!("end<={bound}s late"),
        measured: Some(late * 1e9),
        told: gate.map_or_else(String::new, |gate| gate.why.clone()),
        headroom: Some(1.0 - late / bound),
        met: gate.map(|gate| gate.state == State::Pass),
    }
}

/// Every number of tiles of a run.
pub(super) fn all_held(points: &[Point], tiled: &Tiled, require: &str, verified: bool) -> Result<Vec<Held>> {
    let of = |(number, (point, step))| Held::of(point, step, tiled, tiled.beside(number), require, verified);
    points.iter().zip(&tiled.steps).enumerate().map(of).collect()
}

/// Whether the last of some points passes, so that another tile may be tried.
pub(super) fn passes(points: &[Point], tiled: &Tiled, require: &str, verified: bool) -> Result<bool> {
    let last = points.last().zip(tiled.steps.last());
    let beside = tiled.operations.last().map_or(&[][..], Vec::as_slice);
    let held =
        last.map(|(point, step)| Held::of(point, step, tiled, beside, require, verified)).transpose()?;
    Ok(held.is_some_and(|held| held.passes() == Some(true)))
}

/// The number, from 0 on, of the last of those that passed one after another from the first on.
pub(super) fn best(held: &[Held], passes: impl Fn(&Held) -> bool) -> Option<usize> {
    held.iter().take_while(|one| passes(one)).count().checked_sub(1)
}

/// Computes all that a bundle of tiles says.
///
/// # Errors
/// When a requirement cannot be read, or is of an application that there is not.
pub(crate) fn summarise(bundle: &Bundle, tiled: &Tiled) -> Result<Summary> {
    let held = all_held(&bundle.points, tiled, &bundle.run.require, bundle.run.verified)?;
    let best = best(&held, |one| one.passes() == Some(true));
    let lost = bundle.points.iter().any(|point| point.verification.faults() > 0);
    let verdict = match held.first() {
        None => Verdict::Invalid,
        Some(first) if lost || first.is_void() || !first.whole => Verdict::Invalid,
        Some(_) if best.is_some() => Verdict::Pass,
        Some(first) if first.passes() == Some(false) => Verdict::Fail,
        Some(_) => Verdict::Inconclusive,
    };
    // Of the most that passed all rules are told, or of the first where none did; of what failed after it those not kept.
    let at = best.unwrap_or(0);
    let on = |point: usize, met: &Met| Required { point, met: met.clone() };
    let required = held.get(at).into_iter().flat_map(|one| one.rules.iter().map(|met| on(at, met)));
    let strict = held.get(at).into_iter().map(|one| on(at, &one.strict));
    let next = held.iter().enumerate().skip(at + 1);
    let missed = next.flat_map(|(number, one)| {
        let missed = one.rules.iter().filter(|met| met.met != Some(true));
        missed.map(move |met| on(number, met)).collect::<Vec<_>>()
    });
    let (required, beside) = (required.collect(), strict.chain(missed).collect());
    Ok(Summary { verdict, points: held.into_iter().map(|one| one.judged).collect(), required, beside })
}

/// Machines of the most tiles that passed, in a bundle of tiles; nothing where it is of another load, or none passed.
///
/// # Errors
/// When a requirement cannot be read.
pub(crate) fn vms_of(bundle: &Bundle) -> Result<Option<u64>> {
    let Some(tiled) = &bundle.run.tiles else { return Ok(None) };
    let held = all_held(&bundle.points, tiled, &bundle.run.require, bundle.run.verified)?;
    let best = best(&held, |one| one.passes() == Some(true));
    Ok(best.map(|at| (tiled.steps[at].tiles * tiled.vms.len()) as u64))
}

/// What the price file of a run of tiles gives, with the machines that passed; nothing where there is none, or none passed.
///
/// # Errors
/// What is wrong with the price file.
pub(super) fn price(bundle: &Bundle) -> Result<Option<Price>> {
    let text = bundle.run.tiles.as_ref().and_then(|tiled| tiled.price.as_ref());
    text.zip(vms_of(bundle)?).map(|(text, vms)| Price::of_vms(text, vms)).transpose()
}

impl Ended {
    /// In words, after a number of tiles.
    pub fn told(&self) -> String {
        match self {
            Ended::Rules => "one more did not pass".into(),
            Ended::Most => "no more were asked for".into(),
            Ended::Room(why) => why.clone(),
            Ended::Stopped => "ended before its time".into(),
            Ended::Broken(what) => format!("broken off: {what}"),
        }
    }
}
