//! The pool, the server itself, and what Prometheus reads.

use super::Shared;
use super::answer::Answer;
use crate::{convert, metrics};
use axum::Json;
use axum::http::header::{CONTENT_TYPE, HeaderName};
use stonefold_api::{Checked, Pool, PoolTime, Reclaimed, Server};

pub(super) async fn status(app: Shared) -> Answer<Json<Pool>> {
    let status = app.gate.run(|store| async move { store.status().await }).await?;
    Ok(Json(convert::pool(&status)))
}

pub(super) async fn reclaim(app: Shared) -> Answer<Json<Reclaimed>> {
    let done = app.gate.run(|store| async move { store.reclaim().await }).await?;
    Ok(Json(convert::reclaimed(&done)))
}

pub(super) async fn check(app: Shared) -> Answer<Json<Checked>> {
    let found = app.gate.run(|store| async move { store.check().await }).await?;
    Ok(Json(convert::checked(found)))
}

pub(super) async fn salvage(app: Shared) -> Answer<Json<Checked>> {
    let found = app.gate.run(|store| async move { store.salvage().await }).await?;
    Ok(Json(convert::salvage(found)))
}

pub(super) async fn scrub(app: Shared) -> Answer<Json<Checked>> {
    let found = app.gate.run(|store| async move { store.scrub().await }).await?;
    Ok(Json(convert::checked(found)))
}

pub(super) async fn confirm_time(app: Shared) -> Answer<Json<PoolTime>> {
    let protection = app.protection.clone();
    let time = app.gate.run(|_| async move { protection.confirm_time().await }).await?;
    Ok(Json(convert::time(&time)))
}

pub(super) async fn server(app: Shared) -> Json<Server> {
    Json(app.server.clone())
}

pub(super) async fn metrics(app: Shared) -> Answer<([(HeaderName, &'static str); 1], String)> {
    let protection = app.protection.clone();
    let (status, replicas) = app
        .gate
        .run(|store| async move {
            // What cannot be told of policies keeps nothing else from being told.
            let mut replicas = Vec::new();
            for policy in protection.policies().await.unwrap_or_default() {
                replicas.extend(protection.replicas(&policy).await.unwrap_or_default());
            }
            Ok((store.status().await?, replicas))
        })
        .await?;
    let (disks, doors) = (app.gate.store().disks(), app.nbd.read());
    let text = metrics::encode(&app.server.version, status, &disks, &doors, &replicas)?;
    Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text))
}
