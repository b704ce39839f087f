//! Domains and their keys.

use super::Shared;
use super::answer::{Answer, Body, DomainPath, Failure};
use crate::keys::key_of;
use axum::Json;
use axum::http::StatusCode;
use std::sync::Arc;
use stonefold_api::{Domain, DomainCreate, DomainKey, DomainSet, DomainShred, MasterKeyChange, Time};
use stonefold_store::{DomainInfo, DomainPolicy, MasterKey};
use stonefold_types::{Error, Kind, Result};
use zeroize::Zeroizing;

pub(super) async fn list(app: Shared) -> Json<Vec<Domain>> {
    Json(app.gate.store().domains().into_iter().map(shown).collect())
}

pub(super) async fn show(app: Shared, DomainPath(name): DomainPath) -> Answer<Json<Domain>> {
    Ok(Json(shown(app.gate.store().domain(&name)?)))
}

pub(super) async fn create(
    app: Shared,
    Body(asked): Body<DomainCreate>,
) -> Answer<(StatusCode, Json<Domain>)> {
    let default = DomainPolicy::default();
    let policy = DomainPolicy {
        compression: asked.compression.unwrap_or(default.compression),
        dedupe: asked.dedupe.unwrap_or(default.dedupe),
    };
    let made = app
        .gate
        .run(move |store| async move { store.create_domain(&asked.name, policy, asked.encrypt).await })
        .await?;
    tracing::info!(domain = %made.name, "a domain was made");
    Ok((StatusCode::CREATED, Json(shown(made))))
}

pub(super) async fn set(
    app: Shared,
    DomainPath(name): DomainPath,
    Body(asked): Body<DomainSet>,
) -> Answer<Json<Domain>> {
    let set = app.gate.run(move |store| async move {
        let change = |now: DomainPolicy| DomainPolicy {
            compression: asked.compression.unwrap_or(now.compression),
            dedupe: asked.dedupe.unwrap_or(now.dedupe),
        };
        store.set_domain(&name, change).await
    });
    Ok(Json(shown(set.await?)))
}

pub(super) async fn remove(app: Shared, DomainPath(name): DomainPath) -> Answer<StatusCode> {
    app.gate.run(move |store| async move { store.remove_domain(&name).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn rotate(app: Shared, DomainPath(name): DomainPath) -> Answer<Json<Domain>> {
    let rotated = app.gate.run(move |store| async move { store.rotate_domain(&name).await }).await?;
    tracing::info!(domain = %rotated.name, version = ?rotated.key.map(|key| key.0), "a domain's key was rotated");
    Ok(Json(shown(rotated)))
}

pub(super) async fn shred(
    app: Shared,
    DomainPath(name): DomainPath,
    Body(asked): Body<DomainShred>,
) -> Answer<Json<Domain>> {
    if asked.confirm != name {
        let what = format!("shredding domain '{name}' is not confirmed: '{}' is repeated", asked.confirm);
        return Err(Failure(Error::new(Kind::Invalid, what).remedy("repeat the domain's name")));
    }
    let shredded = app.gate.run(move |store| async move { store.shred_domain(&name).await }).await?;
    tracing::warn!(domain = %shredded.name, "a domain was shredded: nothing opens its data any more");
    Ok(Json(shown(shredded)))
}

pub(super) async fn export(app: Shared, DomainPath(name): DomainPath) -> Answer<Json<DomainKey>> {
    let text = app.gate.store().export_domain_key(&name)?;
    tracing::warn!(domain = %name, "a domain's keys were exported");
    Ok(Json(DomainKey { domain: name, recovery_key: text.to_string() }))
}

pub(super) async fn rewrap(app: Shared, Body(asked): Body<MasterKeyChange>) -> Answer<StatusCode> {
    let new = new_master(asked)?;
    app.gate.run(move |store| async move { store.rewrap_domains(new).await }).await?;
    tracing::warn!("the domains' keys were wrapped under another master key");
    Ok(StatusCode::NO_CONTENT)
}

fn new_master(asked: MasterKeyChange) -> Result<MasterKey> {
    let wrong =
        |why: &str| Error::new(Kind::Invalid, why).remedy("send a key of 64 hex digits, or a passphrase");
    match (asked.key.map(Zeroizing::new), asked.passphrase) {
        (Some(key), None) => {
            key_of(key.as_bytes()).map(MasterKey::Key).ok_or_else(|| wrong("what is to be the key is none"))
        }
        (None, Some(text)) if !text.is_empty() => {
            Ok(MasterKey::Passphrase(Arc::new(Zeroizing::new(text.into_bytes()))))
        }
        _ => Err(wrong("the new master key is not one key or one passphrase")),
    }
}

fn shown(info: DomainInfo) -> Domain {
    Domain {
        name: info.name,
        state: crate::convert::domain_state(info.state),
        compression: info.policy.compression,
        dedupe: info.policy.dedupe,
        created: (info.created > 0).then(|| Time::from_nanos(info.created)),
        key_version: info.key.map(|(version, _)| version),
        key_created: info.key.map(|(_, created)| Time::from_nanos(created)),
        disks: info.disks as u64,
    }
}
