//! Sources, and their runs.

use super::Shared;
use super::answer::{Answer, Asked, Body, PointPath, SourcePath};
use axum::Json;
use axum::http::StatusCode;
use serde::Deserialize;
use stonefold_api::{Run, RunStart, RunState, Source, SourceCreate, Time};
use stonefold_protect as protect;
use stonefold_types::Name;

/// Of one source, or of all.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Of {
    pub(super) source: Option<Name>,
}

pub(super) async fn list_sources(app: Shared) -> Answer<Json<Vec<Source>>> {
    let protection = app.protection.clone();
    let sources = app.gate.run(move |_| async move { protection.sources().await }).await?;
    Ok(Json(sources.into_iter().map(shown_source).collect()))
}

pub(super) async fn show_source(app: Shared, SourcePath(name): SourcePath) -> Answer<Json<Source>> {
    let protection = app.protection.clone();
    let found = app.gate.run(move |_| async move { protection.source(&name).await });
    Ok(Json(shown_source(found.await?)))
}

pub(super) async fn create_source(
    app: Shared,
    Body(asked): Body<SourceCreate>,
) -> Answer<(StatusCode, Json<Source>)> {
    let protection = app.protection.clone();
    let of = protect::SourceOf::Machine(asked.machine);
    let added = app.gate.run(move |_| async move { protection.add_source(asked.name, of).await });
    Ok((StatusCode::CREATED, Json(shown_source(added.await?))))
}

pub(super) async fn remove_source(app: Shared, SourcePath(name): SourcePath) -> Answer<StatusCode> {
    let protection = app.protection.clone();
    app.gate.run(move |_| async move { protection.remove_source(&name).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn list(app: Shared, Asked(of): Asked<Of>) -> Answer<Json<Vec<Run>>> {
    let protection = app.protection.clone();
    let runs = app.gate.run(move |_| async move { protection.runs(of.source.as_ref()).await }).await?;
    Ok(Json(runs.into_iter().map(shown).collect()))
}

pub(super) async fn show(app: Shared, PointPath(name): PointPath) -> Answer<Json<Run>> {
    let protection = app.protection.clone();
    let found = app.gate.run(move |_| async move { protection.run(&name).await });
    Ok(Json(shown(found.await?)))
}

pub(super) async fn start(app: Shared, Body(asked): Body<RunStart>) -> Answer<(StatusCode, Json<Run>)> {
    let protection = app.protection.clone();
    let done = app.gate.run(move |_| async move { protection.back_up(&asked.source).await });
    Ok((StatusCode::CREATED, Json(shown(done.await?))))
}

fn shown_source(source: protect::Source) -> Source {
    let machine = source.of.machine().clone();
    Source { name: source.name, machine, added: Time::from_nanos(source.added) }
}

fn shown(run: protect::Run) -> Run {
    Run {
        name: run.name,
        machine: run.machine,
        state: match run.state {
            protect::RunState::Running => RunState::Running,
            protect::RunState::Done => RunState::Done,
            protect::RunState::Failed => RunState::Failed,
        },
        begun: Time::from_nanos(run.begun),
        ended: run.ended.map(Time::from_nanos),
        note: run.note,
        policy: run.slot.map(|slot| slot.policy),
    }
}
