//! Recoveries: begun, listed, ended.

use super::answer::{Answer, Asked, Body, RecoveryPath};
use super::machines::{hardware, reach, shown_disk};
use super::{App, Shared};
use axum::Json;
use axum::http::StatusCode;
use serde::Deserialize;
use stonefold_api::{Recovered, Recovery, RecoveryCreate, Time};
use stonefold_protect as protect;

/// A word of another version's must not be passed over: it may be one that asks for less.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stop {
    #[serde(default)]
    discard: bool,
}

pub(super) async fn list(app: Shared) -> Answer<Json<Vec<Recovery>>> {
    let protection = app.protection.clone();
    let all = app.gate.run(move |_| async move { protection.recoveries().await }).await?;
    let without_hardware = |recovery| Recovery { hardware: None, ..shown(recovery, &app) };
    Ok(Json(all.into_iter().map(without_hardware).collect()))
}

pub(super) async fn show(app: Shared, RecoveryPath(name): RecoveryPath) -> Answer<Json<Recovery>> {
    let protection = app.protection.clone();
    let found = app.gate.run(move |_| async move { protection.recovery(&name).await });
    Ok(Json(shown(found.await?, &app)))
}

pub(super) async fn create(
    app: Shared,
    Body(asked): Body<RecoveryCreate>,
) -> Answer<(StatusCode, Json<Recovered>)> {
    let RecoveryCreate { point, name, qos, dry_run } = asked;
    let request = protect::RecoverRequest { point, name, qos, reach: reach(&app)?, dry_run };
    let protection = app.protection.clone();
    let made = app.gate.run(move |_| async move { protection.recover(request).await }).await?;
    let mut recovery = shown(made.recovery, &app);
    if dry_run {
        // They are not there yet, and are not missed.
        recovery.disks.iter_mut().for_each(|disk| disk.missing = false);
    }
    let status = if dry_run { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(Recovered { dry_run, recovery, notes: made.notes })))
}

pub(super) async fn stop(
    app: Shared,
    RecoveryPath(name): RecoveryPath,
    Asked(stop): Asked<Stop>,
) -> Answer<StatusCode> {
    let protection = app.protection.clone();
    app.gate.run(move |_| async move { protection.stop_recovery(&name, stop.discard).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn shown(recovery: protect::Recovery, app: &App) -> Recovery {
    Recovery {
        name: recovery.name,
        point: recovery.point,
        disks: recovery.disks.into_iter().map(|disk| shown_disk(disk, app)).collect(),
        hardware: recovery.hardware.map(hardware),
        begun: Time::from_nanos(recovery.begun),
        ready_us: recovery.ready_us,
        discarding: recovery.discarding,
    }
}
