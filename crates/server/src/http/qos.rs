//! Classes of service: listed, made, changed, removed.

use super::Shared;
use super::answer::{Answer, Body, ClassPath};
use axum::Json;
use axum::http::StatusCode;
use stonefold_api::{QosClass, QosCreate, QosSet};
use stonefold_store::QosInfo;
use stonefold_types::QosFigures;

pub(super) async fn list(app: Shared) -> Json<Vec<QosClass>> {
    Json(app.gate.store().qos_classes().into_iter().map(shown).collect())
}

pub(super) async fn show(app: Shared, ClassPath(name): ClassPath) -> Answer<Json<QosClass>> {
    Ok(Json(shown(app.gate.store().qos_class(&name)?)))
}

pub(super) async fn create(
    app: Shared,
    Body(asked): Body<QosCreate>,
) -> Answer<(StatusCode, Json<QosClass>)> {
    let figures = QosFigures {
        min_iops: asked.min_iops,
        min_bytes: asked.min_bytes,
        max_iops: asked.max_iops,
        max_bytes: asked.max_bytes,
        share: asked.share.unwrap_or(QosFigures::default().share),
    };
    let made = app.gate.run(move |store| async move { store.create_qos(&asked.name, figures).await });
    Ok((StatusCode::CREATED, Json(shown(made.await?))))
}

pub(super) async fn set(
    app: Shared,
    ClassPath(name): ClassPath,
    Body(asked): Body<QosSet>,
) -> Answer<Json<QosClass>> {
    let change = move |figures: &mut QosFigures| {
        figures.min_iops = asked.min_iops.unwrap_or(figures.min_iops);
        figures.min_bytes = asked.min_bytes.unwrap_or(figures.min_bytes);
        figures.max_iops = asked.max_iops.unwrap_or(figures.max_iops);
        figures.max_bytes = asked.max_bytes.unwrap_or(figures.max_bytes);
        figures.share = asked.share.unwrap_or(figures.share);
    };
    let set = app.gate.run(move |store| async move { store.set_qos(&name, change).await });
    Ok(Json(shown(set.await?)))
}

pub(super) async fn remove(app: Shared, ClassPath(name): ClassPath) -> Answer<StatusCode> {
    app.gate.run(move |store| async move { store.remove_qos(&name).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn shown(info: QosInfo) -> QosClass {
    let QosInfo { name, figures, predefined, background, disks } = info;
    let QosFigures { min_iops, min_bytes, max_iops, max_bytes, share } = figures;
    QosClass { name, min_iops, min_bytes, max_iops, max_bytes, share, predefined, background, disks }
}
