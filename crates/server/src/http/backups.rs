//! Sources, and their runs.

use super::Shared;
use super::answer::{Answer, Asked, Body, PointPath, SourcePath};
use super::guard;
use crate::convert;
use axum::Json;
use axum::http::{HeaderMap, StatusCode};
use serde::Deserialize;
use stonefold_api::{Run, RunCopied, RunStart, RunState, Source, SourceCreate, Time};
use stonefold_protect as protect;
use stonefold_types::{Error, Kind, Name, PointName, Result, Role};

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
    headers: HeaderMap,
    Body(asked): Body<SourceCreate>,
) -> Answer<(StatusCode, Json<Source>)> {
    let by_its_rights = [&asked.image, &asked.qmp, &asked.libvirt, &asked.dir, &asked.postgres, &asked.ssh];
    // Whose URI names a folder of the server's.
    let is_secret = asked.nbd.as_ref().is_some_and(|uri| uri.starts_with("nbds"));
    if is_secret || by_its_rights.iter().any(|named| named.is_some()) {
        // Whoever may have the server read any file could read all that it may; a QEMU and a libvirt do what they are told, and a cluster and
        // another machine let the server's user in.
        app.access.check_role(Role::Admin, guard::secret(&headers))?;
    }
    let protection = app.protection.clone();
    let name = asked.name.clone();
    let of = source_of(asked)?;
    let added = app.gate.run(move |_| async move { protection.add_source(name, of).await });
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
    let consistency = asked.consistency.map_or_else(Default::default, convert::asked_consistency);
    let request = protect::RunRequest { full: asked.full, consistency };
    let done = app.gate.run(move |_| async move { protection.back_up(&asked.source, request).await });
    Ok((StatusCode::CREATED, Json(shown(done.await?))))
}

pub(super) async fn pause(app: Shared, PointPath(name): PointPath) -> Answer<Json<Run>> {
    set_paused(app, name, true).await
}

pub(super) async fn resume(app: Shared, PointPath(name): PointPath) -> Answer<Json<Run>> {
    set_paused(app, name, false).await
}

async fn set_paused(app: Shared, name: PointName, pauses: bool) -> Answer<Json<Run>> {
    let protection = app.protection.clone();
    let set = app.gate.run(move |_| async move { protection.pause_run(&name, pauses).await });
    Ok(Json(shown(set.await?)))
}

pub(super) async fn cancel(app: Shared, PointPath(name): PointPath) -> Answer<Json<Run>> {
    let protection = app.protection.clone();
    let ended = app.gate.run(move |_| async move { protection.cancel_run(&name).await });
    Ok(Json(shown(ended.await?)))
}

fn source_of(asked: SourceCreate) -> Result<protect::SourceOf> {
    let of_image = asked.format.is_some() && asked.image.is_none();
    let of_domain = asked.domain.is_some() != asked.libvirt.is_some();
    let takes_scratch = asked.libvirt.is_some() || asked.dir.is_some() || asked.postgres.is_some();
    let has_scratch = asked.scratch.is_some() && !takes_scratch;
    let of_qemu = asked.agent.is_some() && asked.qmp.is_none();
    let of_nbd = asked.bitmap.is_some() && asked.nbd.is_none();
    let has_of_ssh = !asked.devices.is_empty() || asked.identity.is_some() || asked.snapshot_bytes.is_some();
    let of_ssh = has_of_ssh && asked.ssh.is_none();
    let SourceCreate {
        machine,
        nbd,
        image,
        format,
        qmp,
        agent,
        libvirt,
        domain,
        dir,
        postgres,
        scratch,
        bitmap,
        ssh,
        devices,
        identity,
        snapshot_bytes,
        ..
    } = asked;
    let agent = agent.map(|place| place.parse::<protect::AgentPlace>()).transpose()?;
    let mut named: Vec<protect::SourceOf> = Vec::new();
    named.extend(machine.map(protect::SourceOf::Machine));
    named.extend(nbd.map(|uri| protect::SourceOf::Nbd(protect::NbdExport { uri, bitmap })));
    named.extend(
        qmp.map(|socket| protect::SourceOf::Qmp(protect::QemuGuest { socket: socket.into(), agent })),
    );
    named.extend(image.map(|path| protect::SourceOf::Image(protect::ImageFile { path, format })));
    let scratch: Option<std::path::PathBuf> = scratch.map(Into::into);
    named.extend(
        dir.map(|path| {
            protect::SourceOf::Dir(protect::Folder { path: path.into(), scratch: scratch.clone() })
        }),
    );
    named
        .extend(postgres.map(|url| protect::SourceOf::Postgres(protect::Cluster::new(url, scratch.clone()))));
    let machine = |url| {
        let mut machine = protect::SshMachine::new(url);
        (machine.devices, machine.identity) = (devices, identity.map(Into::into));
        machine.snapshot_bytes = snapshot_bytes;
        protect::SourceOf::Ssh(machine)
    };
    named.extend(ssh.map(machine));
    named.extend(
        libvirt
            .zip(domain)
            .map(|(uri, domain)| protect::SourceOf::Libvirt(protect::LibvirtDomain { uri, domain, scratch })),
    );
    match named.pop() {
        Some(of) if named.is_empty() && !of_image && !of_domain && !has_scratch && !of_qemu && !of_nbd && !of_ssh => Ok(of),
        _ => Err(Error::new(
            Kind::Invalid,
            "a source is exactly one of machine, nbd, image, qmp, libvirt, dir, postgres and ssh",
        )
        .remedy(
            "name one of them; a format goes with an image, a bitmap with nbd, an agent with qmp, a domain with libvirt, a scratch folder with libvirt, dir or postgres, and devices, an identity and snapshot_bytes with ssh",
        )),
    }
}

fn shown_source(source: protect::Source) -> Source {
    let disks = source.disks();
    let mut shown = Source {
        name: source.name,
        machine: None,
        nbd: None,
        bitmap: None,
        image: None,
        format: None,
        qmp: None,
        agent: None,
        libvirt: None,
        domain: None,
        dir: None,
        postgres: None,
        ssh: None,
        devices: Vec::new(),
        identity: None,
        snapshot_bytes: None,
        replica_of: None,
        scratch: None,
        disks,
        added: Time::from_nanos(source.added),
    };
    match source.of {
        protect::SourceOf::Machine(machine) => shown.machine = Some(machine),
        protect::SourceOf::Nbd(export) => (shown.nbd, shown.bitmap) = (Some(export.uri), export.bitmap),
        protect::SourceOf::Image(image) => (shown.image, shown.format) = (Some(image.path), image.format),
        protect::SourceOf::Qmp(guest) => {
            shown.qmp = Some(guest.socket.display().to_string());
            shown.agent = guest.agent.map(String::from);
        }
        protect::SourceOf::Libvirt(of) => {
            (shown.libvirt, shown.domain) = (Some(of.uri), Some(of.domain));
            shown.scratch = of.scratch.map(|folder| folder.display().to_string());
        }
        protect::SourceOf::Dir(folder) => {
            shown.dir = Some(folder.path.display().to_string());
            shown.scratch = folder.scratch.map(|folder| folder.display().to_string());
        }
        protect::SourceOf::Postgres(of) => {
            shown.postgres = Some(of.url);
            shown.scratch = of.scratch.map(|folder| folder.display().to_string());
        }
        protect::SourceOf::Ssh(of) => {
            (shown.ssh, shown.devices, shown.snapshot_bytes) = (Some(of.url), of.devices, of.snapshot_bytes);
            shown.identity = of.identity.map(|file| file.display().to_string());
        }
        protect::SourceOf::Replica(of) => shown.replica_of = Some(of.pool),
    }
    shown
}

pub(super) fn shown(run: protect::Run) -> Run {
    let disks: Vec<Name> = run.disks.iter().map(|disk| disk.disk.clone()).collect();
    let copied = |copied: protect::Copied| RunCopied {
        disks,
        full: copied.full,
        read_bytes: copied.read_bytes,
        sent_bytes: copied.sent_bytes,
        written_bytes: copied.written_bytes,
        stored_bytes: copied.stored_bytes,
        cut: copied.cut.map(Time::from_nanos),
        took_ms: copied.took_ms,
        notes: copied.notes,
    };
    Run {
        name: run.name,
        machine: run.machine,
        state: match run.state {
            protect::RunState::Running => RunState::Running,
            protect::RunState::Done => RunState::Done,
            protect::RunState::Failed => RunState::Failed,
            protect::RunState::Cancelled => RunState::Cancelled,
        },
        paused: run.paused,
        copied: run.copied.map(copied),
        begun: Time::from_nanos(run.begun),
        ended: run.ended.map(Time::from_nanos),
        note: run.note,
        policy: run.slot.map(|slot| slot.policy),
    }
}
