//! Recoveries: begun, listed, ended.

use super::answer::{Answer, Asked, Body, RecoveryPath};
use super::guard;
use super::machines::{hardware, reach, shown_disk};
use super::{App, Shared};
use axum::Json;
use axum::http::{HeaderMap, StatusCode};
use serde::Deserialize;
use std::time::Duration;
use stonefold_api::{
    MachineLimits, Recovered, Recovery, RecoveryCreate, RecoveryStart, RecoveryStarted, StartedMachine, Time,
};
use stonefold_protect as protect;
use stonefold_protect::domain::Network;
use stonefold_protect::{Host, Limits, Sign, Where};
use stonefold_types::{Error, Kind, Result, Role};

/// A word of another version's must not be passed over: it may be one that asks for less.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stop {
    #[serde(default)]
    discard: bool,
    #[serde(default)]
    power_off: bool,
}

pub(super) async fn list(app: Shared) -> Answer<Json<Vec<Recovery>>> {
    let protection = app.protection.clone();
    let all = app.gate.run(move |_| async move {
        let mut all = Vec::new();
        for recovery in protection.recoveries().await? {
            // A libvirt that does not answer would keep the list from those who ask.
            let of_qemu =
                recovery.started.as_ref().is_some_and(|started| matches!(started.host, Host::Qemu { .. }));
            let running = if of_qemu { protection.is_recovery_running(&recovery).await } else { None };
            all.push((running, recovery));
        }
        Ok(all)
    });
    let without_hardware =
        |(running, recovery)| Recovery { hardware: None, ..with_running(shown(recovery, &app), running) };
    Ok(Json(all.await?.into_iter().map(without_hardware).collect()))
}

pub(super) async fn show(app: Shared, RecoveryPath(name): RecoveryPath) -> Answer<Json<Recovery>> {
    let protection = app.protection.clone();
    let found = app.gate.run(move |_| async move {
        let recovery = protection.recovery(&name).await?;
        Ok((protection.is_recovery_running(&recovery).await, recovery))
    });
    let (running, recovery) = found.await?;
    Ok(Json(with_running(shown(recovery, &app), running)))
}

pub(super) async fn create(
    app: Shared,
    headers: HeaderMap,
    Body(asked): Body<RecoveryCreate>,
) -> Answer<(StatusCode, Json<Recovered>)> {
    let RecoveryCreate { point, name, qos, network, on, limits, dry_run } = asked;
    if on.is_some() {
        // A libvirt's URI may name a program that is run to reach it.
        app.access.check_role(Role::Admin, guard::secret(&headers))?;
    } else if !limits.is_none() {
        let what = "limits are a machine's, and none is to be started";
        return Err(Error::new(Kind::Invalid, what).remedy("say where it runs, too ('on')").into());
    }
    let on = on.map(|on| on.parse::<Where>()).transpose().map_err(|why| Error::new(Kind::Invalid, why))?;
    let limits = machine_limits(limits);
    let network = match network.as_deref() {
        None => Network::Same,
        Some("isolated") => Network::Isolated,
        Some(named) => Network::Named(named.to_owned()),
    };
    let request = protect::RecoverRequest { point, name, qos, reach: reach(&app)?, network, dry_run };
    let protection = app.protection.clone();
    let made = app.gate.run(move |_| async move {
        if let Some(on) = on {
            let look = protect::RecoverRequest { dry_run: true, ..request.clone() };
            let would = protection.recover(look).await?;
            protection.check_start(&would.recovery, &on, &limits, &request.network).await?;
        }
        protection.recover(request).await
    });
    let made = made.await?;
    let mut recovery = shown(made.recovery, &app);
    if dry_run {
        // They are not there yet, and are not missed.
        recovery.disks.iter_mut().for_each(|disk| disk.missing = false);
    }
    let status = if dry_run { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(Recovered { dry_run, recovery, notes: made.notes })))
}

pub(super) async fn start(
    app: Shared,
    RecoveryPath(name): RecoveryPath,
    Body(asked): Body<RecoveryStart>,
) -> Answer<Json<RecoveryStarted>> {
    let wait = asked.wait.as_deref().map(sign).transpose()?;
    let wait = wait.map(|sign| (sign, Duration::from_secs(asked.timeout_seconds)));
    let on: Where = asked.on.parse().map_err(|why: String| Error::new(Kind::Invalid, why))?;
    let limits = machine_limits(asked.limits);
    let request = protect::StartRequest { name, to: on, reach: reach(&app)?, wait, limits };
    let protection = app.protection.clone();
    let started = app.gate.run(move |_| async move {
        let (recovery, notes) = protection.start_recovery(request).await?;
        Ok((protection.is_recovery_running(&recovery).await, recovery, notes))
    });
    let (running, recovery, notes) = started.await?;
    Ok(Json(RecoveryStarted { recovery: with_running(shown(recovery, &app), running), notes }))
}

fn machine_limits(limits: MachineLimits) -> Limits {
    let MachineLimits { memory_bytes, processors_percent } = limits;
    Limits { memory_bytes, processors_percent }
}

/// A sign of life as it is written.
pub(super) fn sign(text: &str) -> Result<Sign> {
    text.parse().map_err(|why: String| Error::new(Kind::Invalid, why))
}

fn with_running(mut recovery: Recovery, running: Option<bool>) -> Recovery {
    recovery.started.iter_mut().for_each(|started| started.running = running);
    recovery
}

pub(super) async fn stop(
    app: Shared,
    RecoveryPath(name): RecoveryPath,
    Asked(stop): Asked<Stop>,
) -> Answer<StatusCode> {
    let stop = protect::StopRequest { discard: stop.discard, power_off: stop.power_off };
    let protection = app.protection.clone();
    app.gate.run(move |_| async move { protection.stop_recovery(&name, stop).await }).await?;
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
        started: recovery.started.map(started),
        discarding: recovery.discarding,
    }
}

fn started(started: protect::StartedMachine) -> StartedMachine {
    let (folder, domain) = match &started.host {
        Host::Qemu { folder } => (Some(folder.display().to_string()), None),
        Host::Libvirt { domain, .. } => (None, Some(domain.clone())),
    };
    StartedMachine {
        on: started.host.to_string(),
        folder,
        domain,
        running: None,
        first_block_us: started.first_block_us,
        alive_us: started.alive_us,
        home: started.home,
        limits: MachineLimits {
            memory_bytes: started.limits.memory_bytes,
            processors_percent: started.limits.processors_percent,
        },
    }
}
