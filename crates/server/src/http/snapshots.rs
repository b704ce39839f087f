//! Snapshots, and what is made from them.

use super::Shared;
use super::answer::{Answer, Asked, Body, SnapshotPath};
use crate::convert;
use axum::Json;
use axum::http::StatusCode;
use serde::Deserialize;
use stonefold_api::{CloneCreate, Diff, DiffRange, Disk, Rollback, Snapshot, SnapshotCreate};
use stonefold_types::{Error, ExportName, Kind, Name};

#[derive(Deserialize)]
pub(super) struct OfDisk {
    disk: Option<Name>,
}

#[derive(Deserialize)]
pub(super) struct UpTo {
    to: Option<Name>,
}

pub(super) async fn list(app: Shared, Asked(asked): Asked<OfDisk>) -> Answer<Json<Vec<Snapshot>>> {
    let listed = app.gate.store().snapshots(asked.disk.as_ref());
    let mut snapshots = match &asked.disk {
        Some(disk) => app.hint(&ExportName::Disk(disk.clone()), listed)?,
        None => listed?,
    };
    snapshots.sort_by(|a, b| (&a.name.disk, a.created).cmp(&(&b.name.disk, b.created)));
    Ok(Json(snapshots.into_iter().map(|info| convert::snapshot(info, &app.doors)).collect()))
}

pub(super) async fn show(app: Shared, asked: SnapshotPath) -> Answer<Json<Snapshot>> {
    let found = app.gate.store().snapshots(Some(&asked.0.disk)).and_then(|all| {
        all.into_iter()
            .find(|info| info.name == asked.0)
            .ok_or_else(|| Error::new(Kind::NotFound, format!("snapshot '{}' does not exist", asked.0)))
    });
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

pub(super) async fn diff(app: Shared, asked: SnapshotPath, Asked(up_to): Asked<UpTo>) -> Answer<Json<Diff>> {
    let (export, from, to) = (asked.export(), asked.0.clone(), up_to.to.clone());
    let compared = app.gate.run(move |store| async move { store.diff(&asked.0, up_to.to.as_ref()).await });
    let ranges: Vec<DiffRange> = app
        .hint(&export, compared.await)?
        .into_iter()
        .map(|(offset, bytes)| DiffRange { offset, bytes })
        .collect();
    let changed_bytes = ranges.iter().map(|range| range.bytes).sum();
    Ok(Json(Diff { disk: from.disk, from: from.snapshot, to, changed_bytes, ranges }))
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
