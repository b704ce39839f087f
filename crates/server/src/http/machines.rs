//! Machines: added, listed, removed, snapshotted, cloned.

use super::answer::{Answer, Body, MachinePath};
use super::{App, Shared, guard};
use crate::{convert, doors};
use axum::Json;
use axum::http::{HeaderMap, StatusCode};
use stonefold_api::{
    Hardware, HardwareKind, Machine, MachineClone, MachineCloned, MachineCreate, MachineDisk,
    MachineDiskStats, MachineSet, MachineSnapshot, MachineSnapshotTaken, MachineStats, MachineSync,
    MachineSynced, Time,
};
use stonefold_protect as protect;
use stonefold_protect::AgentPlace;
use stonefold_protect::domain::Reach;
use stonefold_types::{Error, ExportName, Kind, Result, Role};

/// Instead of a place, for a machine whose guest has no agent any more.
const NO_AGENT: &str = "none";

pub(super) async fn list(app: Shared) -> Answer<Json<Vec<Machine>>> {
    let protection = app.protection.clone();
    let machines = app.gate.run(move |_| async move { protection.machines().await }).await?;
    let without_hardware = |machine| Machine { hardware: None, ..shown(machine, &app) };
    Ok(Json(machines.into_iter().map(without_hardware).collect()))
}

pub(super) async fn show(app: Shared, MachinePath(name): MachinePath) -> Answer<Json<Machine>> {
    let protection = app.protection.clone();
    let found = app.gate.run(move |_| async move { protection.machine(&name).await });
    Ok(Json(shown(found.await?, &app)))
}

pub(super) async fn create(
    app: Shared,
    Body(asked): Body<MachineCreate>,
) -> Answer<(StatusCode, Json<Machine>)> {
    let MachineCreate { name, disks, hardware } = asked;
    let hardware = hardware.map(|Hardware { kind, text }| match kind {
        HardwareKind::LibvirtXml => protect::Hardware::Libvirt(text),
        HardwareKind::QemuArgs => protect::Hardware::QemuArgs(text),
    });
    let (protection, named) = (app.protection.clone(), disks.clone());
    let new = protect::NewMachine { name, disks, hardware };
    let added = app.gate.run(move |_| async move { protection.add_machine(new).await }).await;
    let missing = named.into_iter().find(|disk| app.gate.store().disk(disk).is_err());
    let added = match missing {
        Some(disk) => app.hint(&ExportName::Disk(disk), added)?,
        None => added?,
    };
    Ok((StatusCode::CREATED, Json(shown(added, &app))))
}

pub(super) async fn set(
    app: Shared,
    MachinePath(name): MachinePath,
    headers: HeaderMap,
    Body(asked): Body<MachineSet>,
) -> Answer<Json<Machine>> {
    let MachineSet { qos, template, agent } = asked;
    if agent.is_some() {
        // The server speaks to whatever is there.
        app.access.check_role(Role::Admin, guard::secret(&headers))?;
    }
    let agent = agent.map(|place| (place != NO_AGENT).then(|| place.parse::<AgentPlace>()).transpose());
    let agent = agent.transpose()?;
    let protection = app.protection.clone();
    let set = app.gate.run(move |_| async move {
        if let Some(class) = qos {
            protection.set_machine_class(&name, &class).await?;
        }
        if let Some(agent) = agent {
            protection.set_machine_agent(&name, agent).await?;
        }
        match template {
            Some(template) => protection.set_template(&name, template).await,
            None => protection.machine(&name).await,
        }
    });
    Ok(Json(shown(set.await?, &app)))
}

pub(super) async fn sync(
    app: Shared,
    MachinePath(machine): MachinePath,
    Body(asked): Body<MachineSync>,
) -> Answer<Json<MachineSynced>> {
    let MachineSync { master, snapshot, keep } = asked;
    let protection = app.protection.clone();
    let request = protect::SyncRequest { machine, master, snapshot, keep };
    let synced = app.gate.run(move |_| async move { protection.sync_machine(request).await }).await?;
    let protect::Synced { machine, snapshot, replaced, kept, notes } = synced;
    Ok(Json(MachineSynced { machine: shown(machine, &app), snapshot, replaced, kept, notes }))
}

pub(super) async fn stats(app: Shared, MachinePath(name): MachinePath) -> Answer<Json<MachineStats>> {
    let protection = app.protection.clone();
    let machine = app.gate.run(move |_| async move { protection.machine(&name).await }).await?;
    Ok(Json(counted(machine, &app)))
}

pub(super) async fn usage(app: Shared, MachinePath(name): MachinePath) -> Answer<Json<MachineStats>> {
    let protection = app.protection.clone();
    let machine = app.gate.run(move |store| async move {
        let machine = protection.machine(&name).await?;
        for disk in &machine.disks {
            match store.usage(&disk.disk).await {
                // It is told as missing.
                Err(error) if error.kind() == Kind::NotFound => {}
                used => {
                    used?;
                }
            }
        }
        Ok(machine)
    });
    Ok(Json(counted(machine.await?, &app)))
}

fn counted(machine: protect::Machine, app: &App) -> MachineStats {
    let store = app.gate.store();
    let damaged = store.damaged_disks();
    let one = |disk: protect::MachineDisk| {
        let found = store.disk(&disk.disk).ok().map(|info| convert::disk(info, &app.doors));
        let broken = || damaged.iter().find(|one| one.name == disk.disk).cloned().map(convert::damaged_disk);
        MachineDiskStats { disk: found.or_else(broken), target: disk.target, name: disk.disk }
    };
    MachineStats::of(machine.name, machine.disks.into_iter().map(one).collect())
}

pub(super) async fn remove(app: Shared, MachinePath(name): MachinePath) -> Answer<StatusCode> {
    let protection = app.protection.clone();
    app.gate.run(move |_| async move { protection.remove_machine(&name).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn snapshot(
    app: Shared,
    MachinePath(machine): MachinePath,
    Body(asked): Body<MachineSnapshot>,
) -> Answer<(StatusCode, Json<MachineSnapshotTaken>)> {
    let (protection, of) = (app.protection.clone(), machine.clone());
    let taken =
        app.gate.run(move |_| async move { protection.snapshot_machine(&of, asked.name).await }).await?;
    let disks: Vec<_> = taken.into_iter().map(|info| convert::snapshot(info, &app.doors)).collect();
    let name = disks.first().map(|first| first.name.clone());
    let name = name.ok_or_else(|| Error::new(Kind::Conflict, "the snapshot was removed meanwhile"))?;
    Ok((StatusCode::CREATED, Json(MachineSnapshotTaken { machine, name, disks })))
}

pub(super) async fn clone(
    app: Shared,
    MachinePath(machine): MachinePath,
    Body(asked): Body<MachineClone>,
) -> Answer<(StatusCode, Json<MachineCloned>)> {
    let MachineClone { name, snapshot, count } = asked;
    let request = protect::CloneRequest { machine, snapshot, new: name, count, reach: reach(&app)? };
    let protection = app.protection.clone();
    let made = app.gate.run(move |_| async move { protection.clone_machine(request).await }).await?;
    let machines = made.machines.into_iter().map(|machine| shown(machine, &app)).collect();
    let cloned = MachineCloned { machines, snapshot: made.snapshot, notes: made.notes };
    Ok((StatusCode::CREATED, Json(cloned)))
}

/// Where hypervisors find disks.
pub(super) fn reach(app: &App) -> Result<Reach> {
    doors::reach(&app.doors).ok_or_else(|| {
        Error::new(Kind::Invalid, "nobody could reach the disks: this server has no NBD door")
            .remedy("serve with --nbd")
    })
}

pub(super) fn shown(machine: protect::Machine, app: &App) -> Machine {
    Machine {
        name: machine.name,
        disks: machine.disks.into_iter().map(|disk| shown_disk(disk, app)).collect(),
        hardware: machine.hardware.map(hardware),
        origin: machine.origin,
        added: Time::from_nanos(machine.added),
        template: machine.template,
        kept: machine.kept,
        agent: machine.agent.map(String::from),
    }
}

/// A machine's disk, and whether it is still there.
pub(super) fn shown_disk(disk: protect::MachineDisk, app: &App) -> MachineDisk {
    let missing = app.gate.store().disk(&disk.disk).is_err();
    let uris = convert::uris(&app.doors, &ExportName::Disk(disk.disk.clone()));
    MachineDisk {
        target: disk.target,
        disk: disk.disk,
        missing,
        uris: if missing { Vec::new() } else { uris },
    }
}

/// A description, as the API has it.
pub(super) fn hardware(hardware: protect::Hardware) -> Hardware {
    match hardware {
        protect::Hardware::Libvirt(text) => Hardware { kind: HardwareKind::LibvirtXml, text },
        protect::Hardware::QemuArgs(text) => Hardware { kind: HardwareKind::QemuArgs, text },
    }
}
