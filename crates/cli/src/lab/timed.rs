//! What was timed as a whole, outages, and disks that were moved or recovered, on a terminal.

use super::catalogue::length;
use crate::table::{Table, facts};
use std::time::Duration;
use stonefold_lab::measure::TaskKind;
use stonefold_lab::oltp::{chain, migration};
use stonefold_lab::report::{OutageFigures, OutageFound, TaskFigures};
use stonefold_lab::stats::require::time;
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

/// Empty where nothing was moved. Rates are transactions a minute.
pub(super) fn of_migration(moved: Option<&migration::Figures>) -> String {
    let Some(moved) = moved else { return String::new() };
    let share = |rate: Option<f64>| {
        rate.map_or_else(|| "-".into(), |rate| format!("{rate:.0} ({:.0}%)", moved.share(rate) * 100.0))
    };
    let took = match (moved.seconds, &moved.failure) {
        (Some(seconds), _) => format!("{seconds:.1} s"),
        (None, Some(why)) => format!("did not end: {why}"),
        (None, None) => "had not ended".into(),
    };
    let rate = moved.bytes_per_second.map(|rate| format!(", {:.1} MB/s", rate / 1e6)).unwrap_or_default();
    let text = facts([
        ("the move took", took),
        ("gone over, with holes", format!("{}{rate}", Size(moved.bytes))),
        ("TPM before it", format!("{:.0}", moved.baseline)),
        ("while it moved", share(moved.during)),
        ("in the worst ten seconds", share(moved.least)),
        ("under half", format!("{} s", moved.low_seconds)),
        ("after it", share(moved.after)),
    ]);
    format!("\n{text}")
}

/// Empty where nothing was recovered. Times are since a point was asked for; rates are transactions a minute.
pub(super) fn of_chain(found: Option<&chain::ChainFigures>) -> String {
    let Some(found) = found else { return String::new() };
    let mut table = Table::new(&[
        "RECOVERED",
        "DISK>",
        "MOUNTED>",
        "STARTED>",
        "FIRST ORDER>",
        "90% OF NATIVE>",
        "USERS>",
        "TPM>",
        "OF NATIVE>",
    ]);
    let seconds = |value: f64| format!("{value:.2} s");
    let or_none = |value: Option<String>| value.unwrap_or_else(|| "-".into());
    if let Some(native) = found.native {
        let row =
            ["native", "", "", "", "", "", &native.users.to_string(), &format!("{:.0}", native.tpm), ""];
        table.row(row.map(str::to_owned));
    }
    for point in &found.points {
        table.row([
            point.name.clone(),
            seconds(point.recovered),
            seconds(point.mounted),
            seconds(point.started),
            seconds(point.first),
            or_none(point.native_again.map(seconds)),
            or_none(point.plateau.map(|plateau| plateau.users.to_string())),
            or_none(point.plateau.map(|plateau| format!("{:.0}", plateau.tpm))),
            or_none(point.share.map(|share| format!("{:.0}%", share * 100.0))),
        ]);
    }
    let kept = format!(
        "{}, each in {} ({} at most), with some {:.0} transactions between two",
        crate::table::count(found.kept as u64, "point"),
        seconds(found.keep_seconds),
        seconds(found.keep_seconds_max),
        found.change
    );
    let beside = found.neighbours.iter().map(|one| {
        let failed = one.failure.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
        let (mean, p99) = (time(one.mean), one.p99.map_or_else(|| "-".into(), |p99| time(p99 as f64)));
        format!(
            "{} on {}: {:.0} I/Os a second, of {:.0}; mean {mean}, p99 {p99}{failed}",
            one.profile, one.target, one.iops, one.asked
        )
    });
    let beside = beside.collect::<Vec<_>>().join("\n");
    format!(
        "\n{}{}",
        table.text(),
        facts([("kept", kept), ("by", found.keeper.clone()), ("beside it", beside)])
    )
}
