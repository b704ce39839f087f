//! What each worker did of a load that several made.

use crate::table::Table;
use serde::Serialize;
use stonefold_lab::measure::Point;
use stonefold_lab::report::{WorkerFigures, workers};
use stonefold_lab::stats::require::time;
use stonefold_types::Size;

/// A worker's part of a point.
#[derive(Serialize)]
pub(super) struct Part {
    point: String,
    /// Milliseconds, I/Os and bytes a second, as in the report.
    #[serde(flatten)]
    figures: WorkerFigures,
}

/// Of every point that workers made.
pub(super) fn parts(points: &[Point]) -> Vec<Part> {
    let of_point = |point: &Point| {
        workers(point).into_iter().map(|figures| Part { point: point.name(), figures }).collect::<Vec<_>>()
    };
    points.iter().filter(|point| point.is_load()).flat_map(of_point).collect()
}

/// Empty without any.
pub(super) fn table(parts: &[Part]) -> String {
    if parts.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["POINT", "WORKER", "STREAM", "IOPS>", "BYTES/S>", "MEAN>", "P99>", "MAX>"]);
    let took = |millis: f64| time(millis * 1e6);
    for part in parts {
        for one in &part.figures.streams {
            table.row([
                part.point.clone(),
                part.figures.worker.clone(),
                format!("{}, {}", one.stream, one.side),
                format!("{:.0}", one.iops),
                Size(one.bytes as u64).to_string(),
                took(one.mean),
                one.p99.map_or_else(|| "-".into(), took),
                took(one.max),
            ]);
        }
    }
    table.or("")
}
