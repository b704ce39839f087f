//! Migrations: begun, listed, paused, gone on with, cancelled; and machines kept where they are.

use super::answer::{Answer, Body, RecoveryPath};
use super::{App, Shared, machines};
use axum::Json;
use axum::http::StatusCode;
use stonefold_api::{Machine, Migration, MigrationCreate, MigrationDisk, MigrationState, Time};
use stonefold_protect as protect;
use stonefold_types::{Error, Kind, Name, Result};

pub(super) async fn list(app: Shared) -> Answer<Json<Vec<Migration>>> {
    let protection = app.protection.clone();
    let all = app.gate.run(move |_| async move { protection.migrations().await }).await?;
    Ok(Json(all.into_iter().map(|(migration, headway)| shown(migration, headway)).collect()))
}

pub(super) async fn show(app: Shared, RecoveryPath(name): RecoveryPath) -> Answer<Json<Migration>> {
    Ok(Json(found(&app, name).await?))
}

async fn found(app: &App, name: Name) -> Result<Migration> {
    let protection = app.protection.clone();
    let all = app.gate.run(move |_| async move {
        // With a word of it where there is none.
        protection.migration(&name).await?;
        Ok((name, protection.migrations().await?))
    });
    let (name, all) = all.await?;
    let of_name = all.into_iter().find(|(migration, _)| migration.name == name);
    let gone = || Error::new(Kind::NotFound, format!("migration '{name}' is gone"));
    of_name.map(|(migration, headway)| shown(migration, headway)).ok_or_else(gone)
}

pub(super) async fn create(
    app: Shared,
    Body(asked): Body<MigrationCreate>,
) -> Answer<(StatusCode, Json<Migration>)> {
    let wrong = |why: String| Error::new(Kind::Invalid, why);
    if !(1..=99).contains(&asked.floor_percent) {
        let what = format!("a guest cannot be kept at {}% of its speed", asked.floor_percent);
        return Err(wrong(what).remedy("name 1 to 99, as in --floor 75%").into());
    }
    let request = protect::MigrateRequest {
        name: asked.name,
        to: asked.to.parse().map_err(wrong)?,
        format: asked.format.parse().map_err(wrong)?,
        floor_percent: asked.floor_percent,
        verify: asked.verify,
    };
    let protection = app.protection.clone();
    let begun = app.gate.run(move |_| async move { protection.migrate(request).await }).await?;
    Ok((StatusCode::CREATED, Json(shown(begun, protect::Headway::default()))))
}

pub(super) async fn pause(app: Shared, RecoveryPath(name): RecoveryPath) -> Answer<Json<Migration>> {
    set(app, name, protect::MigrationState::Paused).await
}

pub(super) async fn resume(app: Shared, RecoveryPath(name): RecoveryPath) -> Answer<Json<Migration>> {
    set(app, name, protect::MigrationState::Copying).await
}

pub(super) async fn cancel(app: Shared, RecoveryPath(name): RecoveryPath) -> Answer<Json<Migration>> {
    set(app, name, protect::MigrationState::Cancelling).await
}

async fn set(app: Shared, name: Name, to: protect::MigrationState) -> Answer<Json<Migration>> {
    let protection = app.protection.clone();
    let of = name.clone();
    app.gate.run(move |_| async move { protection.set_migration(&of, to).await }).await?;
    Ok(Json(found(&app, name).await?))
}

/// A recovered machine stays where it is.
pub(super) async fn keep(
    app: Shared,
    RecoveryPath(name): RecoveryPath,
) -> Answer<(StatusCode, Json<Machine>)> {
    let protection = app.protection.clone();
    let kept = app.gate.run(move |_| async move { protection.keep_recovery(&name).await }).await?;
    Ok((StatusCode::CREATED, Json(machines::shown(kept, &app))))
}

fn shown(migration: protect::Migration, headway: protect::Headway) -> Migration {
    let disk = |disk: protect::MovedDisk| MigrationDisk {
        target: disk.target,
        home: disk.home.to_string(),
        total_bytes: disk.total_bytes,
        done_bytes: disk.done_bytes,
        moved: disk.moved,
    };
    Migration {
        name: migration.name,
        state: match migration.state {
            protect::MigrationState::Copying => MigrationState::Copying,
            protect::MigrationState::Paused => MigrationState::Paused,
            protect::MigrationState::Cancelling => MigrationState::Cancelling,
            protect::MigrationState::Done => MigrationState::Done,
            protect::MigrationState::Failed => MigrationState::Failed,
            protect::MigrationState::Cancelled => MigrationState::Cancelled,
        },
        total_bytes: migration.disks.iter().map(|disk| disk.total_bytes).sum(),
        done_bytes: migration.disks.iter().map(|disk| disk.done_bytes).sum(),
        disks: migration.disks.into_iter().map(disk).collect(),
        format: migration.format.name().to_owned(),
        floor_percent: migration.floor_percent,
        verify: migration.verify,
        speed_bytes: headway.rate.speed_bytes,
        guest_percent: headway.rate.guest_percent,
        left_seconds: headway.left_seconds.filter(|_| migration.state == protect::MigrationState::Copying),
        begun: Time::from_nanos(migration.begun),
        ended: migration.ended.map(Time::from_nanos),
        note: migration.note,
    }
}
