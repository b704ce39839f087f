//! What each arm did by itself, before anything is held against anything.

use super::{FIGURES, Figure, PLATEAU, Run};
use crate::oltp::Plateau;
use crate::stats::median;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One figure of one point, of every arm. It says what was measured, and not whether arms differ: of a few runs, or of some that did not
/// become steady, there is a median, too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Level {
    /// Step and label.
    pub point: String,
    /// Of what.
    pub figure: Figure,
    /// Of each arm the median over its runs; nothing where none of them has it.
    pub medians: Vec<Option<f64>>,
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
    let levels = FIGURES.into_iter().map(|figure| Level {
        point: name.to_owned(),
        figure,
        medians: medians(arms, runs, |run| figure.of(run.point(name)?)),
    });
    levels.filter(|level| level.medians.iter().any(Option::is_some)).collect()
}

/// What each run of a database came to at its best.
pub(super) fn of_plateaus(arms: usize, runs: &[Run<'_>]) -> Level {
    let best = |run: &Run<'_>| Figure::Orders.of(&run.bundle.points[Plateau::of(&run.bundle.points)?.step]);
    Level { point: PLATEAU.into(), figure: Figure::Orders, medians: medians(arms, runs, best) }
}

fn medians(arms: usize, runs: &[Run<'_>], value: impl Fn(&Run<'_>) -> Option<f64>) -> Vec<Option<f64>> {
    let of_arm =
        |arm: usize| median(runs.iter().filter(|run| run.turn.arm == arm).filter_map(&value).collect());
    (0..arms).map(of_arm).collect()
}
