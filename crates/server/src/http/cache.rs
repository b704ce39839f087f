//! The cache.

use super::Shared;
use super::answer::{Answer, Body};
use crate::convert;
use axum::Json;
use stonefold_api::{Cache, CacheResize, CacheWarm, CacheWarmed};
use stonefold_store::{Attachment, PoolStatus, Store};
use stonefold_types::{ExportName, Result};

/// The most that one call warms, in bytes: it bounds what a call that nobody waits for any more still does.
const WARM_BYTES_MAX: u64 = 256 << 20;
/// Bytes asked of the store at once, so that foreground reads come in between.
const WARM_STEP_BYTES: u64 = 1 << 20;

pub(super) async fn status(app: Shared) -> Answer<Json<Cache>> {
    cache_after(&app, |_| ()).await
}

pub(super) async fn resize(app: Shared, Body(asked): Body<CacheResize>) -> Answer<Json<Cache>> {
    crate::bounds::check_cache(asked.max_bytes)?;
    cache_after(&app, move |store| store.resize_cache(asked.max_bytes)).await
}

pub(super) async fn empty(app: Shared) -> Answer<Json<Cache>> {
    cache_after(&app, |store| store.drop_cache()).await
}

async fn cache_after(app: &super::App, change: impl FnOnce(&Store) + Send + 'static) -> Answer<Json<Cache>> {
    let status: PoolStatus = app
        .gate
        .run(move |store| async move {
            change(&store);
            store.status().await
        })
        .await?;
    Ok(Json(convert::cache(&status)))
}

pub(super) async fn warm(app: Shared, Body(asked): Body<CacheWarm>) -> Answer<Json<CacheWarmed>> {
    let export: ExportName = asked.export.parse()?;
    let of_call = export.clone();
    let warmed = app.gate.run(move |store| async move {
        let attachment = store.attach(&of_call)?;
        warm_range(&attachment, asked.offset, asked.bytes.min(WARM_BYTES_MAX)).await
    });
    Ok(Json(app.hint(&export, warmed.await)?))
}

async fn warm_range(attachment: &Attachment, offset: u64, bytes: u64) -> Result<CacheWarmed> {
    let size_bytes = attachment.size_bytes();
    let bytes = bytes.min(size_bytes.saturating_sub(offset));
    let (mut at, mut warmed_bytes) = (offset, 0);
    if bytes > 0 {
        for extent in attachment.extents(offset, bytes).await? {
            let end = at + extent.bytes;
            while !extent.hole && at < end {
                let step = WARM_STEP_BYTES.min(end - at);
                attachment.prefetch(at, step).await?;
                (at, warmed_bytes) = (at + step, warmed_bytes + step);
            }
            at = end;
        }
    }
    Ok(CacheWarmed { warmed_bytes, next_offset: at, size_bytes })
}
