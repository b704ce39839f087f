//! Snapshots, and what is made from them.

use super::Shared;
use super::answer::{Answer, Asked, Body, SnapshotPath};
use crate::convert;
use axum::Json;
use axum::http::StatusCode;
use serde::Deserialize;
use stonefold_api::{CloneCreate, Diff, DiffRange, Disk, Rollback, Snapshot, SnapshotCreate, SnapshotLock};
use stonefold_env::WallNanos;
use stonefold_store::TimeStatus;
use stonefold_types::{Error, ExportName, Kind, Name, Result};

/// Snapshots listed at one time, so that the store's threads are not kept from their work for long.
const LIST_ABREAST: usize = 1000;

#[derive(Deserialize)]
pub(super) struct Part {
    disk: Option<Name>,
    limit: Option<usize>,
    after: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct UpTo {
    to: Option<String>,
}

pub(super) async fn list(app: Shared, Asked(asked): Asked<Part>) -> Answer<Json<Vec<Snapshot>>> {
    let limit = asked.limit.unwrap_or(usize::MAX);
    let mut after = asked.after.as_deref().map(cursor).transpose()?;
    let mut snapshots = Vec::new();
    while snapshots.len() < limit {
        let wanted = LIST_ABREAST.min(limit - snapshots.len());
        let from = after.as_ref().map(|(disk, number)| (disk, *number));
        let listed = app.gate.store().snapshots_after(asked.disk.as_ref(), from, wanted);
        let listed = match &asked.disk {
            Some(disk) => app.hint(&ExportName::Disk(disk.clone()), listed)?,
            None => listed?,
        };
        after = listed.last().map(|last| (last.name.disk.clone(), last.number));
        let is_last = listed.len() < wanted;
        snapshots.extend(listed.into_iter().map(|info| convert::snapshot(info, &app.doors)));
        if is_last {
            break;
        }
    }
    Ok(Json(snapshots))
}

/// A place in the list: `DISK@NUMBER`.
fn cursor(text: &str) -> Result<(Name, u64)> {
    let parsed = text.split_once('@').and_then(|(disk, number)| {
        Some((Name::new(disk).ok()?, number.parse().ok().filter(|number| *number < u64::MAX)?))
    });
    parsed.ok_or_else(|| {
        Error::new(Kind::Invalid, format!("'{}' is no place in a list of snapshots", text.escape_debug()))
            .remedy("give the last snapshot's disk and number, as in after=web@17")
    })
}

pub(super) async fn show(app: Shared, asked: SnapshotPath) -> Answer<Json<Snapshot>> {
    let found = app.gate.store().snapshot_info(&asked.0);
    let info = app.hint(&asked.export(), found)?;
    Ok(Json(convert::snapshot(info, &app.doors)))
}

pub(super) async fn create(
    app: Shared,
    Body(asked): Body<SnapshotCreate>,
) -> Answer<(StatusCode, Json<Vec<Snapshot>>)> {
    let disks = asked.disks.clone();
    let mut taken =
        app.gate.run(move |store| async move { store.snapshot(&asked.disks, asked.name).await }).await;
    let exists = |disk: &Name| app.gate.store().disk(disk).is_ok();
    if let Some(missing) = disks.into_iter().find(|disk| !exists(disk)) {
        taken = app.hint(&ExportName::Disk(missing), taken);
    }
    let snapshots = taken?.into_iter().map(|info| convert::snapshot(info, &app.doors)).collect();
    Ok((StatusCode::CREATED, Json(snapshots)))
}

pub(super) async fn remove(app: Shared, asked: SnapshotPath) -> Answer<StatusCode> {
    let export = asked.export();
    let removed = app.gate.run(move |store| async move { store.remove_snapshot(&asked.0).await });
    app.hint(&export, removed.await)?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn lock(
    app: Shared,
    asked: SnapshotPath,
    Body(lock): Body<SnapshotLock>,
) -> Answer<Json<Snapshot>> {
    let export = asked.export();
    let until = lock_end(&lock, app.gate.store().time())?;
    let locked = app.gate.run(move |store| async move { store.lock_snapshot(&asked.0, until).await });
    let info = app.hint(&export, locked.await)?;
    Ok(Json(convert::snapshot(info, &app.doors)))
}

/// When a lock ends that is asked for, in nanoseconds since 1970.
pub(super) fn lock_end(lock: &SnapshotLock, time: TimeStatus) -> Result<WallNanos> {
    match (lock.until, lock.for_seconds) {
        (Some(until), None) => Ok(until.0.saturating_mul(1_000_000)),
        // Whichever clock is right, it holds at least so long.
        (None, Some(seconds)) => {
            Ok(time.trusted.max(time.wall).saturating_add(seconds.saturating_mul(1_000_000_000)))
        }
        _ => Err(Error::new(Kind::Invalid, "a lock ends at an instant or after a time")
            .remedy("give one of 'until' and 'for_seconds'")),
    }
}

pub(super) async fn diff(app: Shared, asked: SnapshotPath, Asked(up_to): Asked<UpTo>) -> Answer<Json<Diff>> {
    let from = asked.0;
    let to = match &up_to.to {
        None => ExportName::Disk(from.disk.clone()),
        Some(to) => to.parse()?,
    };
    let between = (from.clone(), to.clone());
    let compared =
        app.gate.run(move |store| async move { store.diff(&between.0, Some(&between.1)).await }).await;
    let from_is_there = app.gate.store().snapshot_info(&from).is_ok();
    let missing = if from_is_there { to.clone() } else { ExportName::Snapshot(from.clone()) };
    let ranges: Vec<DiffRange> = app
        .hint(&missing, compared)?
        .into_iter()
        .map(|(offset, bytes)| DiffRange { offset, bytes })
        .collect();
    let changed_bytes = ranges.iter().map(|range| range.bytes).sum();
    Ok(Json(Diff { from: from.to_string(), to: to.to_string(), changed_bytes, ranges }))
}

pub(super) async fn clone(
    app: Shared,
    asked: SnapshotPath,
    Body(new): Body<CloneCreate>,
) -> Answer<(StatusCode, Json<Disk>)> {
    let export = asked.export();
    let made = app.gate.run(move |store| async move { store.clone_snapshot(&asked.0, &new.name).await });
    let info = app.hint(&export, made.await)?;
    Ok((StatusCode::CREATED, Json(convert::disk(info, &app.doors))))
}

pub(super) async fn rollback(app: Shared, asked: SnapshotPath) -> Answer<Json<Rollback>> {
    let export = asked.export();
    let done = app.gate.run(move |store| async move { store.rollback(&asked.0).await });
    let kept = app.hint(&export, done.await)?;
    Ok(Json(Rollback { kept: convert::snapshot(kept, &app.doors) }))
}
