//! Points: listed, locked, compared, removed.

use super::Shared;
use super::answer::{Answer, Asked, Body, PointPath};
use super::backups::Of;
use super::machines::hardware;
use super::snapshots::lock_end;
use crate::convert;
use axum::Json;
use axum::http::StatusCode;
use serde::Deserialize;
use stonefold_api::{
    DiffRange, Point, PointDatabase, PointDiff, PointDisk, PointDiskDiff, PointState, SnapshotLock, Time,
};
use stonefold_protect as protect;
use stonefold_types::PointName;

#[derive(Deserialize)]
pub(super) struct To {
    to: PointName,
}

pub(super) async fn list(app: Shared, Asked(of): Asked<Of>) -> Answer<Json<Vec<Point>>> {
    let protection = app.protection.clone();
    let points = app.gate.run(move |_| async move { protection.points(of.source.as_ref()).await }).await?;
    let without_hardware = |status| Point { hardware: None, ..shown(status) };
    Ok(Json(points.into_iter().map(without_hardware).collect()))
}

pub(super) async fn show(app: Shared, PointPath(name): PointPath) -> Answer<Json<Point>> {
    let protection = app.protection.clone();
    let found = app.gate.run(move |_| async move { protection.point(&name).await });
    Ok(Json(shown(found.await?)))
}

pub(super) async fn remove(app: Shared, PointPath(name): PointPath) -> Answer<StatusCode> {
    let protection = app.protection.clone();
    app.gate.run(move |_| async move { protection.remove_point(&name).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn lock(
    app: Shared,
    PointPath(name): PointPath,
    Body(lock): Body<SnapshotLock>,
) -> Answer<Json<Point>> {
    let until = lock_end(&lock, app.gate.store().time())?;
    let protection = app.protection.clone();
    let locked = app.gate.run(move |_| async move { protection.lock_point(&name, until).await });
    Ok(Json(shown(locked.await?)))
}

pub(super) async fn diff(
    app: Shared,
    PointPath(from): PointPath,
    Asked(To { to }): Asked<To>,
) -> Answer<Json<PointDiff>> {
    let protection = app.protection.clone();
    let between = (from.clone(), to.clone());
    let diff =
        app.gate.run(move |_| async move { protection.diff_points(&between.0, &between.1).await }).await?;
    let disks: Vec<PointDiskDiff> = diff.disks.into_iter().map(shown_diff).collect();
    Ok(Json(PointDiff {
        from,
        to,
        changed_bytes: disks.iter().map(|disk| disk.changed_bytes).sum(),
        disks,
        only_from: diff.only_first,
        only_to: diff.only_second,
        hardware_differs: diff.hardware_differs,
    }))
}

fn shown_diff(diff: protect::DiskDiff) -> PointDiskDiff {
    let ranges: Vec<DiffRange> =
        diff.ranges.into_iter().map(|(offset, bytes)| DiffRange { offset, bytes }).collect();
    let changed_bytes = ranges.iter().map(|range| range.bytes).sum();
    let (from_bytes, to_bytes) = diff.bytes;
    PointDiskDiff { target: diff.target, from_bytes, to_bytes, changed_bytes, ranges }
}

fn shown(status: protect::PointStatus) -> Point {
    let protect::PointStatus { point, missing, locked_until, unread, .. } = status;
    let disk = |disk: &protect::PointDisk| PointDisk {
        target: disk.target.clone(),
        snapshot: point.snapshot_of(disk).to_string(),
        size_bytes: disk.size_bytes,
        missing: missing.contains(&disk.target),
    };
    Point {
        disks: point.disks.iter().map(disk).collect(),
        state: match (point.removing, missing.is_empty() && unread.is_none()) {
            (true, _) => PointState::Removing,
            (false, true) => PointState::Whole,
            (false, false) => PointState::Broken,
        },
        consistency: convert::consistency(point.consistency),
        name: point.name,
        policy: point.policy,
        machine: point.machine,
        taken: Time::from_nanos(point.taken),
        locked_until: locked_until.map(Time::from_nanos),
        hardware: point.hardware.map(hardware),
        database: point.database.map(|of| PointDatabase {
            system: of.system,
            version: of.version,
            since: Time::from_nanos(of.since),
            until: Time::from_nanos(of.until),
        }),
    }
}
