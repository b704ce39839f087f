//! Figures of a run by their names, where they are of no single point: of recovered databases, moved disks, tiles and phases.
//!
//! ```text
//! chain.native.FIGURE     users, tpm, nopm of the database as it was
//! chain.POINT.FIGURE      of a point that was recovered (full, 1st, 24th …): users, tpm, nopm, share, recovered, first, native-again
//! chain.keep.FIGURE       how long a point took to be kept: full, the first; later, the median of the others
//! move.FIGURE             of a disk that was moved: seconds, rate, baseline, during, least, after, kept, least-kept, low-seconds
//! tiles.FIGURE            machines, tiles, strict-machines, and of the most tiles that passed within, within-5ms, mean, deployed, moved, price-each
//! phase.STEP.FIGURE       of what a step was timed for as a whole, all of its pieces: seconds, rate
//! cpu.POINT.FIGURE        of the processors of the machine that made the load how many were busy: min, mean, max of its seconds
//! ```
//!
//! Shares are of 1, times seconds but for `tiles.mean`, which like every response time is told in nanoseconds.

use crate::bundle::Bundle;
use crate::machine::Busy;
use crate::oltp::chain::{self, ChainRecord, Native, OfPoint};
use crate::oltp::migration;
use crate::report::{TaskFigures, tasks};
use crate::stats::median;
use crate::tiles::figures::{self as tiles, Step, Tiles};

type Of<T> = fn(&T) -> Option<f64>;

const NATIVE: [(&str, Of<Native>); 3] = [
    ("users", |native| Some(f64::from(native.users))),
    ("tpm", |native| Some(native.tpm)),
    ("nopm", |native| Some(native.nopm)),
];
const POINT: [(&str, Of<OfPoint>); 4] = [
    ("share", |point| point.share),
    ("recovered", |point| Some(point.recovered)),
    ("first", |point| Some(point.first)),
    ("native-again", |point| point.native_again),
];
const MOVE: [(&str, Of<migration::Figures>); 9] = [
    ("seconds", |moved| moved.seconds),
    ("rate", |moved| moved.bytes_per_second),
    ("baseline", |moved| Some(moved.baseline)),
    ("during", |moved| moved.during),
    ("least", |moved| moved.least),
    ("after", |moved| moved.after),
    ("kept", |moved| moved.during.map(|rate| moved.share(rate))),
    ("least-kept", |moved| moved.least.map(|rate| moved.share(rate))),
    ("low-seconds", |moved| Some(moved.low_seconds as f64)),
];
const KEEP: [(&str, Of<ChainRecord>); 2] = [
    ("full", |record| record.points.first().map(|point| point.seconds)),
    ("later", |record| median(record.points.iter().skip(1).map(|point| point.seconds).collect())),
];
const CPU: [(&str, Of<Busy>); 3] = [
    ("min", |busy| Some(busy.min / f64::from(busy.of?))),
    ("mean", |busy| Some(busy.mean / f64::from(busy.of?))),
    ("max", |busy| Some(busy.max / f64::from(busy.of?))),
];
const TILES: [(&str, Of<Tiles>); 9] = [
    ("machines", |tiles| Some(tiles.vms as f64)),
    ("tiles", |tiles| Some(tiles.tiles as f64)),
    ("strict-machines", |tiles| Some(tiles.strict_vms as f64)),
    ("within", |tiles| passed(tiles)?.all.within),
    ("within-5ms", |tiles| passed(tiles)?.all.within_5ms),
    ("mean", |tiles| passed(tiles)?.all.mean.map(|millis| millis * 1e6)),
    ("deployed", |tiles| done(tiles, "deploy")),
    ("moved", |tiles| done(tiles, "migrate")),
    ("price-each", |tiles| tiles.price_each),
];
const PHASE: [(&str, Of<TaskFigures>); 2] =
    [("seconds", |task| Some(task.seconds)), ("rate", |task| Some(task.rate))];

/// The most tiles that passed.
fn passed(found: &Tiles) -> Option<&Step> {
    found.steps.iter().find(|step| step.tiles == found.tiles)
}

/// How often something was done beside them.
fn done(found: &Tiles, operation: &str) -> Option<f64> {
    passed(found)?.operations.iter().find(|one| one.name == operation).map(|one| one.done as f64)
}

/// A name that is known.
#[derive(Clone)]
enum Named<'a> {
    Native(Of<Native>),
    Plateau(&'a str, Of<Native>),
    Point(&'a str, Of<OfPoint>),
    Move(Of<migration::Figures>),
    Tiles(Of<Tiles>),
    Phase(&'a str, Of<TaskFigures>),
    Keep(Of<ChainRecord>),
    Cpu(&'a str, Of<Busy>),
}

fn parse(name: &str) -> Option<Named<'_>> {
    fn find<T>(figures: &[(&str, Of<T>)], name: &str) -> Option<Of<T>> {
        figures.iter().find(|(known, _)| *known == name).map(|(_, of)| *of)
    }
    let (family, rest) = name.split_once('.')?;
    match (family, rest.rsplit_once('.')) {
        ("chain", Some(("native", figure))) => find(&NATIVE, figure).map(Named::Native),
        ("chain", Some(("keep", figure))) => find(&KEEP, figure).map(Named::Keep),
        ("cpu", Some((point, figure))) => find(&CPU, figure).map(|of| Named::Cpu(point, of)),
        ("chain", Some((point, figure))) => find(&POINT, figure)
            .map(|of| Named::Point(point, of))
            .or_else(|| find(&NATIVE, figure).map(|of| Named::Plateau(point, of))),
        ("phase", Some((step, figure))) => find(&PHASE, figure).map(|of| Named::Phase(step, of)),
        ("move", None) => find(&MOVE, rest).map(Named::Move),
        ("tiles", None) => find(&TILES, rest).map(Named::Tiles),
        _ => None,
    }
}

/// Whether there are figures of this name.
pub(super) fn is_known(name: &str) -> bool {
    parse(name).is_some()
}

/// What a run has under a name; nothing where it is of another load, or did not come so far.
pub(super) fn of(bundle: &Bundle, name: &str) -> Option<f64> {
    match parse(name)? {
        Named::Native(of) => of(&chain::figures(bundle)?.native?),
        Named::Plateau(point, of) => of(&point_of(bundle, point)?.plateau?),
        Named::Point(point, of) => of(&point_of(bundle, point)?),
        Named::Move(of) => of(&migration::figures(bundle)?),
        Named::Tiles(of) => of(&tiles::figures(bundle)?),
        Named::Keep(of) => of(bundle.run.chain.as_ref()?),
        Named::Cpu(point, of) => {
            let point = bundle.points.iter().find(|one| one.name() == point)?;
            of(&point.machine_of_load()?)
        }
        Named::Phase(step, of) => of(&phase_of(bundle, step)?),
    }
}

/// What a step took with all that it did one after another, as a copy to each of several volumes.
fn phase_of(bundle: &Bundle, step: &str) -> Option<TaskFigures> {
    let of_step = bundle.points.iter().filter(|point| point.step == step);
    let mut pieces = of_step.flat_map(|point| tasks(std::slice::from_ref(point)));
    let mut whole = pieces.next()?;
    for piece in pieces {
        whole.seconds += piece.seconds;
        whole.bytes += piece.bytes;
    }
    whole.rate = whole.bytes as f64 / whole.seconds.max(1e-9);
    Some(whole)
}

fn point_of(bundle: &Bundle, name: &str) -> Option<OfPoint> {
    chain::figures(bundle)?.points.into_iter().find(|point| point.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_or_not() {
        for name in [
            "chain.native.tpm",
            "chain.24th.tpm",
            "chain.full.native-again",
            "move.least-kept",
            "tiles.mean",
            "phase.create logs.seconds",
            "chain.keep.full",
            "cpu.mixed.max",
        ] {
            assert!(is_known(name), "{name}");
        }
        for name in [
            "chain.native.share",
            "chain.keep.tpm",
            "cpu.mean",
            "chain.tpm",
            "move.tpm",
            "tiles.12.mean",
            "phase.seconds",
            "iops",
            "move",
            "",
        ] {
            assert!(!is_known(name), "{name}");
        }
    }
}
