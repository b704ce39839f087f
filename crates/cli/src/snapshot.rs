//! `stonefold snapshot …`.

use crate::context::Context;
use crate::disk::remove_all;
use crate::failure::Failure;
use crate::table::{Table, count};
use crate::waiting::wait_for;
use clap::Subcommand;
use stonefold_api::{Diff, SnapshotCreate, SnapshotLock};
use stonefold_types::{ExportName, Name, Size, SnapshotName};

/// Take, list, remove and compare snapshots
#[derive(Subcommand)]
pub(crate) enum Snapshot {
    /// Take a snapshot of one disk, or of several at one instant
    ///
    /// It takes no time and no space whatever the disk's size, and clients need not be stopped. A running guest
    /// should be told to write what it still holds in memory first (sync, or the guest agent's freeze).
    #[command(after_help = "Examples:\n  \
        stonefold snapshot create web\n  \
        stonefold snapshot create web,web-data --name before-upgrade")]
    Create {
        /// The disks, separated by commas
        #[arg(value_name = "DISK[,DISK…]", value_delimiter = ',', required = true)]
        disks: Vec<Name>,
        /// The snapshot's name on each of them [default: made from the time]
        #[arg(long)]
        name: Option<Name>,
    },
    /// List all snapshots, or those of one disk
    Ls {
        /// Only this disk's
        disk: Option<Name>,
    },
    /// Remove snapshots; clones made from them stay
    #[command(after_help = "Example:\n  stonefold snapshot rm web@before-upgrade")]
    Rm {
        /// The snapshots
        #[arg(value_name = "DISK@NAME", required = true)]
        snapshots: Vec<SnapshotName>,
    },
    /// Lock a snapshot until a date: nobody can remove it before, not even an admin
    ///
    /// A lock is never taken off or shortened, only extended; while it holds, neither the snapshot nor its disk nor
    /// its domain's key can be removed. It is judged by a time of the pool's own, which a clock that jumps does not
    /// move ('stonefold pool status').
    #[command(after_help = "Examples:\n  \
        stonefold snapshot lock web@monday --until 2027-01-31\n  \
        stonefold snapshot lock web@monday --until 30d")]
    Lock {
        /// The snapshot
        #[arg(value_name = "DISK@NAME")]
        snapshot: SnapshotName,
        /// A date (its end, in UTC), an instant as 2027-01-31T08:15:30Z, or a time from now: 12h, 30d, 8w
        #[arg(long, value_name = "DATE", value_parser = until)]
        until: SnapshotLock,
    },
    /// Show which ranges differ between a snapshot and another, or a disk as it is now
    #[command(after_help = "Examples:\n  \
        stonefold snapshot diff web@monday web@tuesday\n  \
        stonefold snapshot diff web@monday            (compared with the disk as it is now)\n  \
        stonefold snapshot diff web@monday web-test   (with a clone of it)")]
    Diff {
        /// The snapshot to compare from
        #[arg(value_name = "DISK@A")]
        from: SnapshotName,
        /// What to compare to, a snapshot or a disk as it is now [default: the snapshot's own disk]
        #[arg(value_name = "DISK@B|DISK")]
        to: Option<ExportName>,
    },
}

impl Snapshot {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Snapshot::Create { disks, name } => create(context, disks, name),
            Snapshot::Ls { disk } => list(context, disk.as_ref()),
            Snapshot::Rm { snapshots } => remove(context, &snapshots),
            Snapshot::Lock { snapshot, until } => lock(context, &snapshot, &until),
            Snapshot::Diff { from, to } => diff(context, from, to),
        }
    }
}

fn create(context: &Context, disks: Vec<Name>, name: Option<Name>) -> Result<(), Failure> {
    let taken = context.client()?.create_snapshot(&SnapshotCreate { disks, name })?;
    context.answer(&taken, || taken.iter().map(|s| format!("{}@{}\n", s.disk, s.name)).collect())
}

fn list(context: &Context, disk: Option<&Name>) -> Result<(), Failure> {
    let snapshots = context.client()?.snapshots(disk)?;
    context.answer(&snapshots, || {
        let mut table = Table::new(&["NAME", "SIZE>", "TAKEN (UTC)", "LOCKED UNTIL (UTC)"]);
        for s in &snapshots {
            table.row([
                format!("{}@{}", s.disk, s.name),
                Size(s.size_bytes).to_string(),
                s.created.to_seconds_text(),
                s.locked_until.map_or("-".to_owned(), stonefold_api::Time::to_seconds_text),
            ]);
        }
        table.or("no snapshots; 'stonefold snapshot create DISK' takes one")
    })
}

/// A date is its end, so that a lock holds on the day that was named.
pub(crate) fn until(text: &str) -> Result<SnapshotLock, String> {
    let wrong = || {
        let text = text.escape_debug();
        format!(
            "'{text}' is neither a date (2027-01-31), an instant (2027-01-31T08:15:30Z) nor a time from now (30d)"
        )
    };
    let seconds_of = |unit: char| match unit {
        'h' => Some(3600),
        'd' => Some(86_400),
        'w' => Some(7 * 86_400),
        _ => None,
    };
    if let Some(seconds) = text.chars().last().and_then(seconds_of) {
        let count: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
        let for_seconds = Some(count.checked_mul(seconds).filter(|seconds| *seconds > 0).ok_or_else(wrong)?);
        return Ok(SnapshotLock { until: None, for_seconds });
    }
    let text = if text.contains('T') { text.to_owned() } else { format!("{text}T23:59:59.999Z") };
    Ok(SnapshotLock { until: Some(text.parse().map_err(|_| wrong())?), for_seconds: None })
}

fn lock(context: &Context, name: &SnapshotName, lock: &SnapshotLock) -> Result<(), Failure> {
    let locked = context.client()?.lock_snapshot(name, lock)?;
    let until = locked.locked_until.map_or("-".to_owned(), stonefold_api::Time::to_seconds_text);
    context.answer(&locked, || format!("{name} is locked until {until} UTC\n"))
}

fn remove(context: &Context, snapshots: &[SnapshotName]) -> Result<(), Failure> {
    let client = context.client()?;
    // All of them are looked for first: one wrong name, and none is removed.
    let found = snapshots.iter().map(|name| Ok((client.snapshot(name)?.locked_until, name)));
    let mut in_order = found.collect::<stonefold_types::Result<Vec<_>>>()?;
    // What is locked first: it is refused, in the server's words, before any other is removed.
    in_order.sort_by_key(|(locked_until, _)| locked_until.is_none());
    remove_all(
        context,
        &in_order,
        |(_, name)| name.to_string(),
        |(_, name)| {
            client.remove_snapshot(name)?;
            Ok(format!("removed {name}\n"))
        },
    )
}

fn diff(context: &Context, from: SnapshotName, to: Option<ExportName>) -> Result<(), Failure> {
    let diff = wait_for(&context.client()?, "diff", move |client| client.diff(&from, to.as_ref()))?;
    context.answer(&diff, || diff_text(&diff))
}

fn diff_text(diff: &Diff) -> String {
    let now = if diff.to.contains('@') { "" } else { " as it is now" };
    let between = format!("between {} and {}{now}", diff.from, diff.to);
    if diff.ranges.is_empty() {
        return format!("nothing differs {between}\n");
    }
    let mut table = Table::new(&["OFFSET>", "BYTES>"]);
    for range in &diff.ranges {
        table.row([range.offset.to_string(), range.bytes.to_string()]);
    }
    let ranges = count(diff.ranges.len() as u64, "range");
    format!("{}{} in {ranges} differ {between}\n", table.text(), Size(diff.changed_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_read_as_dates_instants_and_times_from_now() {
        let instant = |text: &str| until(text).unwrap().until.unwrap().to_string();
        assert_eq!(instant("2027-01-31"), "2027-01-31T23:59:59.999Z");
        assert_eq!(instant("2027-01-31T08:15:30Z"), "2027-01-31T08:15:30.000Z");
        assert_eq!(until("30d").unwrap().for_seconds, Some(30 * 86_400));
        assert_eq!(until("2w").unwrap().for_seconds, Some(14 * 86_400));
        for bad in ["", "d", "0d", "30", "-3d", "30m", "99999999999999999d", "tomorrow", "2027-13-01", "é"] {
            assert!(until(bad).is_err(), "{bad}");
        }
    }
}
