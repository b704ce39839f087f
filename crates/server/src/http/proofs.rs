//! Proofs that points boot: made, shown.

use super::Shared;
use super::answer::{Answer, Body, PointPath};
use super::machines::reach;
use super::recoveries::sign;
use axum::Json;
use axum::http::StatusCode;
use std::time::Duration;
use stonefold_api::{Proof, ProofStage, Time, VerifyCreate};
use stonefold_protect as protect;
use stonefold_types::{Error, Kind, Result};

pub(super) async fn show(app: Shared, PointPath(name): PointPath) -> Answer<Json<Proof>> {
    let protection = app.protection.clone();
    let point = name.clone();
    let found = app.gate.run(move |_| async move { protection.proof(&point).await }).await?;
    let proof = found.ok_or_else(|| {
        Error::new(Kind::NotFound, format!("nobody has proven yet that point '{name}' boots"))
            .remedy(format!("prove it: stonefold verify {name}"))
    })?;
    Ok(Json(shown(proof)?))
}

pub(super) async fn create(
    app: Shared,
    PointPath(point): PointPath,
    Body(asked): Body<VerifyCreate>,
) -> Answer<(StatusCode, Json<Proof>)> {
    let (sign, patience) = (sign(&asked.wait)?, Duration::from_secs(asked.timeout_seconds));
    let request = protect::VerifyRequest { point, reach: reach(&app)?, sign, patience };
    let protection = app.protection.clone();
    let made = app.gate.run(move |_| async move { protection.verify_point(request).await }).await?;
    Ok((StatusCode::CREATED, Json(shown(made)?)))
}

/// Only what was signed is shown.
fn shown(proof: protect::Proof) -> Result<Proof> {
    let record = proof.check()?;
    let stage = |stage: protect::Stage| ProofStage { what: stage.what, after_us: stage.after_us };
    Ok(Proof {
        point: record.point,
        boots: record.boots,
        wait: record.sign.to_string(),
        said: record.said,
        begun: Time::from_nanos(record.begun),
        stages: record.stages.into_iter().map(stage).collect(),
        record: proof.record,
        public_key: proof.public_key,
        signature: proof.signature,
        screenshot: proof.screenshot,
    })
}
