//! `stonefold point …`.

use crate::context::Context;
use crate::failure::Failure;
use crate::files::{PointFiles, PointMount};
use crate::machine::hardware_text;
use crate::snapshot::until;
use crate::table::{Table, facts};
use crate::waiting::wait_for;
use clap::Subcommand;
use serde_json::json;
use stonefold_api::{Consistency, Point as Shown, PointDiff, PointState, Proof, SnapshotLock, Time};
use stonefold_types::{Name, PointName, Size};

/// List, look at, lock, compare and remove points, and get at the files in them
///
/// A point is all disks of a machine at one instant, and its hardware description. Each is a full: none leans on another, whichever is
/// removed.
#[derive(Subcommand)]
pub(crate) enum Point {
    /// List all points, or those of one source
    Ls {
        /// Only this source's
        source: Option<Name>,
    },
    /// Show a point, and whether it has been proven to boot; with --json its hardware description, too
    Show {
        /// The point
        #[arg(value_name = "SOURCE@TIME")]
        point: PointName,
    },
    /// Remove a point
    Rm {
        /// The point
        #[arg(value_name = "SOURCE@TIME")]
        point: PointName,
    },
    /// Lock a point until a date: nobody can remove it before, not even an admin
    #[command(after_help = "Example:\n  stonefold point lock web-nightly@20261123T184005Z --until 30d")]
    Lock {
        /// The point
        #[arg(value_name = "SOURCE@TIME")]
        point: PointName,
        /// A date (its end, in UTC), an instant as 2027-01-31T08:15:30Z, or a time from now: 12h, 30d, 8w
        #[arg(long, value_name = "DATE", value_parser = until)]
        until: SnapshotLock,
    },
    /// Show which ranges of which disks differ between two points
    Diff {
        /// The point to compare from
        #[arg(value_name = "P")]
        from: PointName,
        /// The point to compare to
        #[arg(value_name = "Q")]
        to: PointName,
    },
    Files(PointFiles),
    Mount(PointMount),
}

impl Point {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        match self {
            Point::Files(files) => files.run(context),
            Point::Mount(mount) => mount.run(context),
            Point::Ls { source } => {
                let points = client.points(source.as_ref())?;
                if let (Some(source), []) = (&source, points.as_slice()) {
                    // One that was removed has left its points; of one that never was there is nothing to list.
                    client.source(source)?;
                }
                context.answer(&points, || table(&points))
            }
            Point::Show { point } => {
                let (point, proof) = (client.point(&point)?, client.proof(&point)?);
                context.answer(&point, || shown(&point, proof.as_ref()))
            }
            Point::Rm { point } => {
                client.remove_point(&point)?;
                context.answer(&json!({ "removed": [point] }), || format!("removed {point}\n"))
            }
            Point::Lock { point, until } => {
                let locked = client.lock_point(&point, &until)?;
                let until = locked_text(&locked);
                context.answer(&locked, || format!("{point} is locked until {until} UTC\n"))
            }
            Point::Diff { from, to } => {
                let diff = wait_for(&client, "diff", move |client| client.diff_points(&from, &to))?;
                context.answer(&diff, || diff_text(&diff))
            }
        }
    }
}

fn locked_text(point: &Shown) -> String {
    point.locked_until.map_or("-".to_owned(), Time::to_seconds_text)
}

fn state_text(state: PointState) -> &'static str {
    match state {
        PointState::Whole => "whole",
        PointState::Broken => "broken",
        PointState::Removing => "being removed",
    }
}

fn table(points: &[Shown]) -> String {
    let mut table =
        Table::new(&["POINT", "MACHINE", "DISKS>", "SIZE>", "TAKEN (UTC)", "STATE", "LOCKED UNTIL (UTC)"]);
    for point in points {
        table.row([
            point.name.to_string(),
            point.machine.to_string(),
            point.disks.len().to_string(),
            Size(point.disks.iter().map(|disk| disk.size_bytes).sum()).to_string(),
            point.taken.to_seconds_text(),
            state_text(point.state).to_owned(),
            locked_text(point),
        ]);
    }
    table.or("no points; 'stonefold backup run SOURCE' makes one")
}

fn shown(point: &Shown, proof: Option<&Proof>) -> String {
    let disk = |disk: &stonefold_api::PointDisk| {
        let missing = if disk.missing { " (that snapshot was removed)" } else { "" };
        format!("{} {}, {}{missing}", disk.target, disk.snapshot, Size(disk.size_bytes))
    };
    let consistency = match point.consistency {
        Consistency::Crash => "as after a loss of power",
        Consistency::App if point.database.is_some() => "all that was committed by then",
        Consistency::App => "all finished: it stood still",
    };
    let database = |of: &stonefold_api::PointDatabase| {
        let (since, until) = (of.since.to_seconds_text(), of.until.to_seconds_text());
        format!("PostgreSQL {}, any moment from {since} to {until} UTC by its clock", of.version / 10_000)
    };
    facts([
        ("point", point.name.to_string()),
        ("machine", point.machine.to_string()),
        ("taken", format!("{} UTC", point.taken.to_seconds_text())),
        ("policy", point.policy.as_ref().map(Name::to_string).unwrap_or_default()),
        ("state", state_text(point.state).to_owned()),
        ("a guest finds", consistency.to_owned()),
        (
            "locked until",
            point.locked_until.map(|at| format!("{} UTC", at.to_seconds_text())).unwrap_or_default(),
        ),
        ("disks", point.disks.iter().map(disk).collect::<Vec<_>>().join("\n")),
        ("database", point.database.as_ref().map(database).unwrap_or_default()),
        ("hardware", hardware_text(point.hardware.as_ref())),
        ("proof", proof_text(proof)),
    ])
}

fn proof_text(proof: Option<&Proof>) -> String {
    let Some(proof) = proof else { return "none: 'stonefold verify' makes one".to_owned() };
    let verdict = if proof.boots { "it boots" } else { "IT DID NOT BOOT" };
    format!("{verdict}, {} UTC ({}): {}", proof.begun.to_seconds_text(), proof.wait, proof.said)
}

fn diff_text(diff: &PointDiff) -> String {
    let mut table = Table::new(&["DISK", "OFFSET>", "BYTES>"]);
    for disk in &diff.disks {
        for range in &disk.ranges {
            table.row([disk.target.to_string(), range.offset.to_string(), range.bytes.to_string()]);
        }
    }
    let mut text = if diff.changed_bytes > 0 { table.text() } else { String::new() };
    for disk in diff.disks.iter().filter(|disk| disk.from_bytes != disk.to_bytes) {
        let (from, to) = (Size(disk.from_bytes), Size(disk.to_bytes));
        text += &format!("disk '{}' has {from} in {}, and {to} in {}\n", disk.target, diff.from, diff.to);
    }
    for (alone, of) in [(&diff.only_from, &diff.from), (&diff.only_to, &diff.to)] {
        alone.iter().for_each(|disk| text += &format!("disk '{disk}' is in {of} alone\n"));
    }
    if diff.hardware_differs {
        text += "the hardware descriptions differ\n";
    }
    let differs =
        if diff.changed_bytes > 0 { Size(diff.changed_bytes).to_string() } else { "nothing".to_owned() };
    text + &format!("{differs} of what both have differs between {} and {}\n", diff.from, diff.to)
}
