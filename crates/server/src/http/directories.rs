//! Directories that come and go. Each call answers when what it begins is recorded.

use super::Shared;
use super::answer::{Answer, Body};
use crate::convert;
use axum::Json;
use std::path::PathBuf;
use stonefold_api::{DirectoryChange, DirectoryReplace, Pool};

pub(super) async fn add(app: Shared, Body(change): Body<DirectoryChange>) -> Answer<Json<Pool>> {
    let dir = PathBuf::from(change.dir);
    let status = app.gate.run(|store| async move {
        store.add_directory(&dir).await?;
        store.status().await
    });
    Ok(Json(convert::pool(&status.await?)))
}

pub(super) async fn drain(app: Shared, Body(change): Body<DirectoryChange>) -> Answer<Json<Pool>> {
    let dir = PathBuf::from(change.dir);
    let status = app.gate.run(|store| async move {
        store.drain_directory(&dir).await?;
        store.status().await
    });
    Ok(Json(convert::pool(&status.await?)))
}

pub(super) async fn replace(app: Shared, Body(change): Body<DirectoryReplace>) -> Answer<Json<Pool>> {
    let (old, new) = (PathBuf::from(change.old), PathBuf::from(change.new));
    let status = app.gate.run(|store| async move {
        store.replace_directory(&old, &new).await?;
        store.status().await
    });
    Ok(Json(convert::pool(&status.await?)))
}

pub(super) async fn cancel(app: Shared) -> Answer<Json<Pool>> {
    let status = app.gate.run(|store| async move {
        store.cancel_directories().await?;
        store.status().await
    });
    Ok(Json(convert::pool(&status.await?)))
}
