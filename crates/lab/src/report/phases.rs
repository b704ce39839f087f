//! What a report shows of phases that are timed as a whole, and of outages.

use crate::chaos::{Promise, Strike};
use crate::measure::{Point, TaskKind};
use serde::Serialize;
use utoipa::ToSchema;

/// What was timed as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct TaskFigures {
    /// The step.
    pub name: String,
    /// What was done.
    pub kind: TaskKind,
    /// To what.
    pub what: String,
    /// How long it took.
    pub seconds: f64,
    /// Bytes that were written; of a check, read.
    pub bytes: u64,
    /// Bytes a second.
    pub rate: f64,
}

/// What came of an outage. Times are seconds since its load began; sectors have 512 bytes.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct OutageFigures {
    /// The point.
    pub point: String,
    /// Its name.
    pub name: String,
    /// What was done.
    pub kind: Strike,
    /// What the target promises.
    pub promise: Promise,
    /// When the target was struck.
    pub struck: f64,
    /// When it was brought back.
    pub restored: f64,
    /// When it answered again; nothing where no answer was late by more than 250 ms, or where it did not.
    pub answered: Option<f64>,
    /// Seconds from being brought back to the first answer; nothing where it did not come back.
    pub resume: Option<f64>,
    /// Seconds without an answer.
    pub silent: Option<f64>,
    /// How often connections broke.
    pub breaks: u64,
    /// What was found of every sector; nothing where it did not come back.
    pub found: Option<OutageFound>,
}

/// Sectors that were read after an outage, and in its load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct OutageFound {
    /// All of them.
    pub checked: u64,
    /// Zeros in place of what must be there.
    pub lost: u64,
    /// Older than what must be there.
    pub stale: u64,
    /// Content of another place.
    pub misplaced: u64,
    /// Content of nobody.
    pub corrupt: u64,
    /// Older than what had been acknowledged, promised or not.
    pub gone_acknowledged: u64,
    /// Older than what had been flushed.
    pub gone_flushed: u64,
    /// Blocks of 4 KiB with old and new sectors, each of which may be what it is.
    pub torn: u64,
}

/// Computes what is shown of them.
pub fn outages(points: &[Point]) -> Vec<OutageFigures> {
    let of = |point: &Point| {
        let record = point.outage.as_ref()?;
        Some(OutageFigures {
            point: point.name(),
            name: record.name.clone(),
            kind: record.kind,
            promise: record.promise,
            struck: record.struck,
            restored: record.restored,
            answered: record.answered.filter(|_| record.came_back),
            resume: record.resume_seconds(),
            silent: record.silent_seconds(),
            breaks: record.breaks,
            found: record.verification.as_ref().map(|seen| OutageFound {
                checked: seen.checked(),
                lost: seen.lost,
                stale: seen.stale,
                misplaced: seen.misplaced,
                corrupt: seen.corrupt,
                gone_acknowledged: seen.gone_acknowledged,
                gone_flushed: seen.gone_flushed,
                torn: seen.torn,
            }),
        })
    };
    points.iter().filter_map(of).collect()
}

/// Computes what is shown of what was timed as a whole.
pub fn tasks(points: &[Point]) -> Vec<TaskFigures> {
    let of = |point: &Point| {
        let task = point.task.as_ref()?;
        Some(TaskFigures {
            name: point.name(),
            kind: task.kind,
            what: task.what.clone(),
            seconds: point.seconds,
            bytes: task.bytes,
            rate: task.bytes as f64 / point.seconds.max(1e-9),
        })
    };
    points.iter().filter_map(of).collect()
}
