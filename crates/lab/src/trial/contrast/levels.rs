//! What each arm did by itself, before anything is held against anything.

use super::{FIGURES, Figure, PLATEAU, Run};
use crate::machine::Busy;
use crate::measure::Point;
use crate::oltp::Plateau;
use crate::stats::gates::{Gate, Grade, State};
use crate::stats::median;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One figure of one point, of every arm. It says what was measured, and not whether arms differ: of a few runs, or of some that did not
/// become steady, there is a median, too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Level {
    /// Step and label.
    pub point: String,
    /// The load: a closed loop, whose times go with how much is in flight, or an open one; empty where it is of several points.
    #[serde(default)]
    pub load: String,
    /// Of what.
    pub figure: Figure,
    /// Of each arm the median over its runs; nothing where none of them has it.
    pub medians: Vec<Option<f64>>,
    /// Of each arm the worst grade of its runs at this point; nothing where none of them has it.
    #[serde(default)]
    pub grades: Vec<Option<Grade>>,
}

/// What there is to know of a point beside its figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Beside {
    /// Step and label.
    pub point: String,
    /// Of each arm how busy the processors were of the machine that made the load: least and most of all its runs, and the mean of their
    /// means; nothing where that cannot be told.
    pub busy: Vec<Option<Busy>>,
    /// The rules that some run did not keep, and those of which some run has something to know; not what makes it void.
    pub against: Vec<String>,
}

impl Beside {
    pub(super) fn of(name: &str, arms: usize, runs: &[Run<'_>]) -> Self {
        let of_arm = |arm: usize| {
            let own = runs.iter().filter(|run| run.turn.arm == arm);
            together(own.filter_map(|run| run.point(name)?.machine_of_load()).collect())
        };
        let judged = runs.iter().filter_map(|run| run.summary.points.get(run.place(name)?));
        let is_against = |gate: &&Gate| matches!(gate.state, State::Fail | State::Warn);
        let mut against: Vec<String> = Vec::new();
        for gate in judged.flat_map(|judged| &judged.gates).filter(is_against) {
            if !against.contains(&gate.name) {
                against.push(gate.name.clone());
            }
        }
        Beside { point: name.to_owned(), busy: (0..arms).map(of_arm).collect(), against }
    }
}

fn together(all: Vec<Busy>) -> Option<Busy> {
    let first = *all.first()?;
    let mean = |of: fn(&Busy) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
    Some(Busy {
        min: all.iter().map(|busy| busy.min).fold(f64::INFINITY, f64::min),
        mean: mean(|busy| busy.mean),
        max: all.iter().map(|busy| busy.max).fold(0.0, f64::max),
        stolen: mean(|busy| busy.stolen),
        ..first
    })
}

impl Level {
    /// The highest against the lowest; nothing where an arm has none.
    pub(super) fn spread(&self) -> Option<f64> {
        let all: Vec<f64> = self.medians.iter().copied().collect::<Option<_>>()?;
        let least = all.iter().copied().min_by(f64::total_cmp)?;
        Some(all.iter().copied().max_by(f64::total_cmp)? / least)
    }
}

/// All figures that any run has of a point.
pub(super) fn of_point(name: &str, arms: usize, runs: &[Run<'_>]) -> Vec<Level> {
    let load = runs.iter().find_map(|run| run.point(name)).map(Point::load_words).unwrap_or_default();
    let levels = FIGURES.into_iter().map(|figure| Level {
        point: name.to_owned(),
        load: load.clone(),
        figure,
        medians: medians(arms, runs, |run| figure.of(run.point(name)?)),
        grades: grades(arms, runs, |run| run.place(name)),
    });
    levels.filter(|level| level.medians.iter().any(Option::is_some)).collect()
}

/// What each run of a database came to at its best.
pub(super) fn of_plateaus(arms: usize, runs: &[Run<'_>]) -> Level {
    let best = |run: &Run<'_>| Figure::Orders.of(&run.bundle.points[Plateau::of(&run.bundle.points)?.step]);
    Level {
        point: PLATEAU.into(),
        load: String::new(),
        figure: Figure::Orders,
        medians: medians(arms, runs, best),
        grades: grades(arms, runs, |run| Some(Plateau::of(&run.bundle.points)?.step)),
    }
}

fn grades(arms: usize, runs: &[Run<'_>], place: impl Fn(&Run<'_>) -> Option<usize>) -> Vec<Option<Grade>> {
    let grade = |run: &Run<'_>| Some(run.summary.points.get(place(run)?)?.grade);
    let worst = |arm: usize| runs.iter().filter(|run| run.turn.arm == arm).filter_map(grade).max();
    (0..arms).map(worst).collect()
}

fn medians(arms: usize, runs: &[Run<'_>], value: impl Fn(&Run<'_>) -> Option<f64>) -> Vec<Option<f64>> {
    let of_arm =
        |arm: usize| median(runs.iter().filter(|run| run.turn.arm == arm).filter_map(&value).collect());
    (0..arms).map(of_arm).collect()
}
