//! Disks.

use super::Shared;
use super::answer::{Answer, Asked, Body, DiskPath};
use crate::convert;
use axum::Json;
use axum::http::StatusCode;
use serde::Deserialize;
use stonefold_api::{Disk, DiskCreate, DiskResize, DiskSet, DiskUsage};
use stonefold_store::Store;
use stonefold_types::{DiskSettings, Name, Result};

pub(super) async fn list(app: Shared) -> Json<Vec<Disk>> {
    let store = app.gate.store();
    let mut disks: Vec<Disk> =
        store.disks().into_iter().map(|info| convert::disk(info, &app.doors)).collect();
    disks.extend(store.damaged_disks().into_iter().map(convert::damaged_disk));
    disks.sort_by(|a, b| a.name.cmp(&b.name));
    Json(disks)
}

pub(super) async fn show(app: Shared, disk: DiskPath) -> Answer<Json<Disk>> {
    let store = app.gate.store();
    if let Some(damaged) = store.damaged_disks().into_iter().find(|damaged| damaged.name == disk.0) {
        return Ok(Json(convert::damaged_disk(damaged)));
    }
    let info = app.hint(&disk.export(), store.disk(&disk.0))?;
    Ok(Json(convert::disk(info, &app.doors)))
}

pub(super) async fn create(app: Shared, Body(asked): Body<DiskCreate>) -> Answer<(StatusCode, Json<Disk>)> {
    let durability = asked.durability.unwrap_or(app.durability);
    let made = app.gate.run(move |store| async move {
        let domain = asked.domain.unwrap_or_else(|| "default".parse().expect("letters make a name"));
        let policy = store.domain(&domain)?.policy;
        let settings = DiskSettings {
            durability,
            compression: asked.compression.unwrap_or(policy.compression),
            dedupe: asked.dedupe.unwrap_or(policy.dedupe),
            qos: asked.qos.unwrap_or(DiskSettings::default().qos),
            reserve: asked.reserve.unwrap_or(false),
        };
        store.create_disk_in(&domain, &asked.name, asked.size_bytes, settings).await
    });
    Ok((StatusCode::CREATED, Json(convert::disk(made.await?, &app.doors))))
}

pub(super) async fn set(app: Shared, disk: DiskPath, Body(asked): Body<DiskSet>) -> Answer<Json<Disk>> {
    let export = disk.export();
    let set = app.gate.run(move |store| async move {
        let change = |now: DiskSettings| DiskSettings {
            durability: asked.durability.unwrap_or(now.durability),
            compression: asked.compression.unwrap_or(now.compression),
            dedupe: asked.dedupe.unwrap_or(now.dedupe),
            qos: asked.qos.unwrap_or(now.qos),
            reserve: asked.reserve.unwrap_or(now.reserve),
        };
        store.set_disk(&disk.0, change).await
    });
    let info = app.hint(&export, set.await)?;
    Ok(Json(convert::disk(info, &app.doors)))
}

pub(super) async fn resize(app: Shared, disk: DiskPath, Body(asked): Body<DiskResize>) -> Answer<Json<Disk>> {
    let export = disk.export();
    let resized = app
        .gate
        .run(move |store| async move { store.resize_disk(&disk.0, asked.size_bytes, asked.shrink).await });
    let info = app.hint(&export, resized.await)?;
    Ok(Json(convert::disk(info, &app.doors)))
}

pub(super) async fn usage(app: Shared, disk: DiskPath) -> Answer<Json<DiskUsage>> {
    let export = disk.export();
    let counted = app.gate.run(move |store| async move { store.usage(&disk.0).await });
    Ok(Json(convert::usage(app.hint(&export, counted.await)?)))
}

pub(super) async fn flush(app: Shared, disk: DiskPath) -> Answer<StatusCode> {
    let export = disk.export();
    let of_call = export.clone();
    let flushed = app.gate.run(move |store| async move { store.attach(&of_call)?.flush().await.map(|_| ()) });
    app.hint(&export, flushed.await)?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn give_up(app: Shared, disk: DiskPath) -> Answer<StatusCode> {
    let export = disk.export();
    let given_up = app.gate.run(move |store| async move { store.give_up_disk(&disk.0).await });
    app.hint(&export, given_up.await)?;
    Ok(StatusCode::NO_CONTENT)
}

/// A word of another version's must not be passed over: it may be one that asks for less.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Removal {
    #[serde(default)]
    snapshots: bool,
    #[serde(default)]
    needed: bool,
}

pub(super) async fn remove(
    app: Shared,
    disk: DiskPath,
    Asked(removal): Asked<Removal>,
) -> Answer<StatusCode> {
    let export = disk.export();
    let protection = app.protection.clone();
    let removed = app.gate.run(move |store| async move {
        let take = take(&store, &disk.0, removal.snapshots);
        if removal.needed { take.await } else { protection.where_unneeded(&disk.0, take).await }
    });
    app.hint(&export, removed.await)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Removes a disk, and its snapshots where that is asked.
async fn take(store: &Store, disk: &Name, with_snapshots: bool) -> Result<()> {
    if with_snapshots {
        // Before the first snapshot goes: the disk itself is refused only after the last.
        store.check_no_clients(disk)?;
        store.check_no_locks(disk)?;
        for snapshot in store.snapshots(Some(disk))? {
            store.remove_snapshot(&snapshot.name).await?;
        }
    }
    store.remove_disk(disk).await
}
