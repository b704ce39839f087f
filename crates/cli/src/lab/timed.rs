//! What was timed as a whole, and outages, on a terminal.

use super::catalogue::length;
use crate::table::Table;
use std::time::Duration;
use stonefold_lab::measure::TaskKind;
use stonefold_lab::report::{OutageFigures, OutageFound, TaskFigures};
use stonefold_types::Size;

/// Empty without any.
pub(super) fn of_tasks(tasks: &[TaskFigures]) -> String {
    if tasks.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["PHASE", "DID", "TOOK>", "BYTES>", "MB/S>"]);
    for task in tasks {
        let verb = match task.kind {
            TaskKind::Fill => "write",
            TaskKind::Copy => "copy",
            TaskKind::Check => "read and look at",
        };
        table.row([
            task.name.clone(),
            format!("{verb} {}", task.what),
            match task.seconds < 120.0 {
                true => format!("{:.2} s", task.seconds),
                false => length(Duration::from_secs_f64(task.seconds)),
            },
            Size(task.bytes).to_string(),
            format!("{:.1}", task.rate / 1e6),
        ]);
    }
    format!("\n{}", table.text())
}

/// Empty without any. Sectors are of 512 bytes.
pub(super) fn of_outages(outages: &[OutageFigures]) -> String {
    if outages.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[
        "OUTAGE",
        "AT>",
        "RESUME>",
        "SILENT>",
        "SECTORS>",
        "LOST>",
        "STALE>",
        "WRONG>",
        "BEHIND ACK>",
        "BEHIND FLUSH>",
        "TORN>",
    ]);
    let seconds = |value: Option<f64>| value.map_or_else(|| "never".into(), |value| format!("{value:.2} s"));
    for one in outages {
        let found = |which: fn(&OutageFound) -> u64| {
            one.found.as_ref().map_or_else(|| "-".into(), |found| which(found).to_string())
        };
        table.row([
            one.name.clone(),
            format!("{:.1} s", one.struck),
            seconds(one.resume),
            seconds(one.silent),
            found(|found| found.checked),
            found(|found| found.lost),
            found(|found| found.stale),
            found(|found| found.misplaced + found.corrupt),
            found(|found| found.gone_acknowledged),
            found(|found| found.gone_flushed),
            found(|found| found.torn),
        ]);
    }
    format!("\n{}", table.text())
}
