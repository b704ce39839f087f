//! A running QEMU, as a backup of its disks asks it for things.
//!
//! | | the guest's device reads and writes |
//! |---|---|
//! | otherwise, and while it is read ahead | its node |
//! | after the cut | `cbw` → its node; before a write `cbw` copies what is overwritten to `scratch`, a disk of ours |
//!
//! QEMU's NBD server exports the node while it is read ahead, and after the cut `look` → `cbw`, which reads the disk as it was when `cbw` came between;
//! with a bitmap of the node that says what has changed since the last point, or since it was read ahead. A scratch that fails, or takes longer than [`COPY_MAX_S`], breaks what is looked at, and the
//! guest goes on. (<https://www.qemu.org/docs/master/interop/qemu-qmp-ref.html>: `BlockdevOptionsCbw`; since QEMU 7.1.)

use super::{Fleece, FleecedDisk};
use crate::hypervisor::{ANSWER_MAX, called};
use crate::qmp::Qmp;
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::Path;
use stonefold_types::{Error, Kind, Name, Result};

/// What is ours in a QEMU is named so.
pub(super) const OURS: &str = "stonefold-";
/// How long a guest's write waits for what it overwrites to be copied. QEMU 7.2 counts this in nanoseconds of 32 bits: five seconds were 0.7.
const COPY_MAX_S: u32 = 4;
/// What a bitmap counts in, in bytes: a block of ours, so that no more is read than has changed.
const GRAIN_BYTES: u64 = 4096;
/// The most that a bitmap counts: 32 MiB of QEMU's memory for one.
const GRAINS_MAX: u64 = 1 << 28;
/// What marks what is written while a run reads ahead is named so, behind its source's name.
pub(super) const AHEAD: &str = "-ahead-";
/// The bitmap that is exported.
pub(super) const LOOKED_UP: &str = "stonefold-look";

/// A disk that a guest has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GuestDisk {
    /// As points call it.
    pub(super) target: Name,
    /// The guest's device, as an object of QEMU's.
    pub(super) device: String,
    /// What the device reads and writes.
    pub(super) node: String,
    pub(super) bytes: u64,
    pub(super) bitmaps: Vec<Bitmap>,
    /// A bitmap of it can outlive its QEMU.
    keeps: bool,
}

/// What marks changes of a node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Bitmap {
    #[serde(default)]
    pub(super) name: String,
    /// It marks what is written now.
    recording: bool,
    /// Its QEMU ended without having kept it.
    #[serde(default)]
    inconsistent: bool,
    /// What it has marked, in bytes.
    #[serde(rename = "count")]
    pub(super) bytes: u64,
}

#[derive(Deserialize)]
struct Told {
    device: String,
    qdev: Option<String>,
    removable: bool,
    inserted: Option<Inserted>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Inserted {
    node_name: Option<String>,
    ro: bool,
    drv: String,
    image: Image,
    #[serde(default)]
    dirty_bitmaps: Vec<Bitmap>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Image {
    virtual_size: u64,
    #[serde(default)]
    format_specific: Value,
}

impl Bitmap {
    /// Why it does not tell what has changed.
    pub(super) fn wrong(&self) -> Option<&'static str> {
        match (self.inconsistent, self.recording) {
            (true, _) => Some("its QEMU ended before it was kept"),
            (_, false) => Some("somebody has stopped it"),
            _ => None,
        }
    }
}

/// Runs a command with the patience that all of them have.
async fn ask(qmp: &Qmp, command: &str, arguments: Value) -> Result<Value> {
    qmp.execute(command, arguments, ANSWER_MAX).await
}

/// The same of what may be done already: by a release that was cut off, or because it never came to be.
async fn undo(qmp: &Qmp, command: &str, arguments: Value) -> Result<()> {
    match ask(qmp, command, arguments).await {
        Err(error) if matches!(error.kind(), Kind::Closed) => Err(error),
        // Whether all is as it was is looked at in the end.
        _ => Ok(()),
    }
}

/// Fails where a QEMU is too old.
pub(super) async fn check_version(qmp: &Qmp) -> Result<()> {
    let told = ask(qmp, "query-version", json!({})).await?;
    let number = |name: &str| told["qemu"][name].as_u64().unwrap_or_default();
    let (major, minor) = (number("major"), number("minor"));
    if (major, minor) >= (7, 1) {
        return Ok(());
    }
    let what = format!("this is QEMU {major}.{minor}, and a guest goes on when its backup fails from 7.1 on");
    Err(Error::new(Kind::Unsupported, what)
        .remedy("use a newer QEMU, or back its image up while it does not run (source add --image)"))
}

/// Whether the guest's processors run.
pub(super) async fn is_running(qmp: &Qmp) -> Result<bool> {
    Ok(ask(qmp, "query-status", json!({})).await?["running"] == true)
}

/// The disks of a guest that hold data, in QEMU's order: none that can be taken out, are only read, or hold firmware.
pub(super) async fn disks(qmp: &Qmp) -> Result<Vec<GuestDisk>> {
    let told = ask(qmp, "query-block", json!({})).await?;
    let told: Vec<Told> = serde_json::from_value(told)
        .map_err(|e| Error::new(Kind::Io, format!("QEMU tells something strange of its disks: {e}")))?;
    let mut found: Vec<GuestDisk> = Vec::new();
    for told in told.into_iter().filter(|told| !told.removable) {
        let (Some(qdev), Some(inserted)) = (told.qdev, told.inserted) else { continue };
        let is_firmware = told.device.starts_with("pflash") || qdev.contains("flash");
        let Some(node) = inserted.node_name.filter(|_| !inserted.ro && !is_firmware) else { continue };
        let compat = inserted.image.format_specific["data"]["compat"].as_str();
        let target = name_of(&told.device, &qdev, &|name| found.iter().any(|disk| disk.target == *name))?;
        found.push(GuestDisk {
            target,
            device: if qdev.starts_with('/') { qdev } else { format!("/machine/peripheral/{qdev}") },
            node,
            bytes: inserted.image.virtual_size,
            bitmaps: inserted.dirty_bitmaps,
            keeps: inserted.drv == "qcow2" && compat != Some("0.10"),
        });
    }
    Ok(found)
}

/// What points call a disk: what its drive is called, or else its device.
fn name_of(drive: &str, qdev: &str, is_taken: &dyn Fn(&Name) -> bool) -> Result<Name> {
    let device = qdev.strip_suffix("/virtio-backend").unwrap_or(qdev).rsplit('/').next().unwrap_or_default();
    let whole = if drive.is_empty() { device } else { drive };
    let mut text = called(whole);
    if text.is_empty() {
        text = "disk".to_owned();
    }
    let numbered = (2..).map(|number| format!("{text}-{number}"));
    let mut names = std::iter::once(text.clone()).chain(numbered).map(|text| Name::new(&text));
    names.find(|name| name.as_ref().map_or(true, |name| !is_taken(name))).expect("numbers go on")
}

/// Has what is written from now on marked in a bitmap: for the next point, which may come to another QEMU, or for this run alone.
pub(super) async fn mark(qmp: &Qmp, disk: &GuestDisk, bitmap: &str, for_next: bool) -> Result<()> {
    let wanted = json!({
        "node": disk.node, "name": bitmap, "granularity": grain_of(disk.bytes),
        "persistent": disk.keeps && for_next,
    });
    ask(qmp, "block-dirty-bitmap-add", wanted).await.map(drop)
}

/// Fails where a guest has not the disks any more that it had, or a bitmap has not marked all that was written: what was read ahead took its time, and others
/// may move disks. Returns what the bitmap has marked of all of them, in bytes.
pub(super) async fn check_same(qmp: &Qmp, guest: &[GuestDisk], bitmap: Option<&str>) -> Result<u64> {
    let now = disks(qmp).await?;
    let mut bytes = 0;
    for disk in guest {
        let changed = |what: &str| {
            let what = format!("disk '{}' of the guest {what} while it was read", disk.target);
            Error::new(Kind::Conflict, what).remedy("run it again, while nobody changes its disks")
        };
        let same = now.iter().find(|now| now.device == disk.device && now.node == disk.node);
        let same = same.ok_or_else(|| changed("was moved or taken away"))?;
        if same.bytes != disk.bytes {
            return Err(changed("got another size"));
        }
        if let Some(bitmap) = bitmap {
            let found = same.bitmaps.iter().find(|is| is.name == bitmap && is.wrong().is_none());
            bytes += found.ok_or_else(|| changed("lost the bitmap of what is written"))?.bytes;
        }
    }
    Ok(bytes)
}

fn grain_of(disk_bytes: u64) -> u64 {
    disk_bytes.div_ceil(GRAINS_MAX).next_power_of_two().max(GRAIN_BYTES)
}

/// Takes bitmaps away that have our name in front, but one.
pub(super) async fn unmark(qmp: &Qmp, ours: &str, but: Option<&str>) -> Result<()> {
    for disk in disks(qmp).await? {
        let gone =
            disk.bitmaps.iter().filter(|is| is.name.starts_with(ours) && Some(is.name.as_str()) != but);
        for bitmap in gone {
            undo(qmp, "block-dirty-bitmap-remove", json!({ "node": disk.node, "name": bitmap.name })).await?;
        }
    }
    Ok(())
}

/// Puts a filter beside each disk, which does nothing yet.
pub(super) async fn prepare(qmp: &Qmp, fleece: &Fleece, server: &Value) -> Result<()> {
    for (at, disk) in fleece.disks.iter().enumerate() {
        let scratch = json!({
            "driver": "raw", "node-name": scratch_of(at), "size": disk.bytes,
            "file": { "driver": "nbd", "server": server, "export": disk.scratch, "reconnect-delay": 0 },
        });
        ask(qmp, "blockdev-add", scratch).await?;
        let filter = json!({
            "driver": "copy-before-write", "node-name": cbw(at), "file": disk.node, "target": scratch_of(at),
            "on-cbw-error": "break-snapshot", "cbw-timeout": COPY_MAX_S,
        });
        ask(qmp, "blockdev-add", filter).await?;
    }
    Ok(())
}

/// Has all filters come between at one instant: where there are several the guest stands still for some milliseconds, and goes on whatever
/// becomes of this process.
pub(super) async fn cut(qmp: &Qmp, fleece: &Fleece) -> Result<()> {
    let turn = |(at, disk): (usize, &FleecedDisk)| ("qom-set", turned(disk, &cbw(at)));
    let mut commands: Vec<(&str, Value)> = fleece.disks.iter().enumerate().map(turn).collect();
    if fleece.halts {
        commands.insert(0, ("stop", json!({})));
        commands.push(("cont", json!({})));
    }
    qmp.execute_all(&commands, ANSWER_MAX).await?.into_iter().collect::<Result<Vec<_>>>().map(drop)
}

/// Has a guest go on.
async fn go_on(qmp: &Qmp) -> Result<()> {
    ask(qmp, "cont", json!({})).await.map(drop).map_err(|e| e.context("the guest was not seen to go on"))
}

/// Has a guest's device read and write another node.
async fn turn(qmp: &Qmp, disk: &FleecedDisk, node: &str) -> Result<()> {
    let to = turned(disk, node);
    let named = |e: Error| e.context(format!("disk '{}'", disk.target));
    ask(qmp, "qom-set", to).await.map(drop).map_err(named)
}

fn turned(disk: &FleecedDisk, node: &str) -> Value {
    json!({ "path": disk.device, "property": "drive", "value": node })
}

/// Has QEMU's NBD server listen.
pub(super) async fn serve(qmp: &Qmp, socket: &Path) -> Result<()> {
    let address = json!({ "addr": { "type": "unix", "data": { "path": socket } } });
    ask(qmp, "nbd-server-start", address).await.map(drop).map_err(|e| {
        e.remedy("end the other export or backup of this QEMU, which has one NBD server, and run it again")
    })
}

/// Puts what reads a disk as it was at the cut above its filter.
pub(super) async fn look_at(qmp: &Qmp, at: usize) -> Result<()> {
    let look = json!({ "driver": "snapshot-access", "node-name": look(at), "file": cbw(at) });
    ask(qmp, "blockdev-add", look).await.map(drop)
}

/// Exports a disk, as its guest has it or as it was at the cut; what `since` has marked is to be looked up, where it is named.
pub(super) async fn export(
    qmp: &Qmp,
    (at, disk): (usize, &FleecedDisk),
    is_cut: bool,
    since: Option<&str>,
) -> Result<()> {
    let mut bitmaps = Vec::new();
    if let Some(since) = since {
        // One that goes on marking cannot be exported. What it marks meanwhile is looked at and found to be alike.
        let still = json!({
            "node": disk.node, "name": LOOKED_UP, "granularity": grain_of(disk.bytes), "disabled": true,
        });
        ask(qmp, "block-dirty-bitmap-add", still).await?;
        let merge = json!({ "node": disk.node, "target": LOOKED_UP, "bitmaps": [since] });
        ask(qmp, "block-dirty-bitmap-merge", merge).await?;
        bitmaps.push(json!({ "node": disk.node, "name": LOOKED_UP }));
    }
    let node = if is_cut { look(at) } else { disk.node.clone() };
    let export = json!({
        "type": "nbd", "id": exported(at), "node-name": node, "name": disk.target, "bitmaps": bitmaps,
    });
    ask(qmp, "block-export-add", export).await.map(drop)
}

/// Ends the exports, with what they looked up.
///
/// # Errors
/// [`Kind::Conflict`] where one is still there: what was asked of it is answered first.
pub(super) async fn end_exports(qmp: &Qmp, fleece: &Fleece) -> Result<()> {
    for at in 0..fleece.disks.len() {
        undo(qmp, "block-export-del", json!({ "id": exported(at), "mode": "hard" })).await?;
    }
    let exports = ask(qmp, "query-block-exports", json!({})).await?;
    let mut ids = exports.as_array().into_iter().flatten().filter_map(|export| export["id"].as_str());
    if let Some(left) = ids.find(|id| id.starts_with(OURS)) {
        return Err(Error::new(Kind::Conflict, format!("QEMU still has '{left}' of a backup")));
    }
    for disk in &fleece.disks {
        let bitmap = json!({ "node": disk.node, "name": LOOKED_UP });
        undo(qmp, "block-dirty-bitmap-remove", bitmap).await?;
    }
    Ok(())
}

/// Takes all of it out again, as far as it is there, and has a guest go on that was stopped for it.
///
/// # Errors
/// [`Kind::Conflict`] where something of it is still there.
pub(super) async fn release(qmp: &Qmp, fleece: &Fleece) -> Result<()> {
    if fleece.halts && ask(qmp, "query-status", json!({})).await?["status"] == "paused" {
        go_on(qmp).await?;
    }
    // One that still answers somebody keeps no filter in.
    let ended = match end_exports(qmp, fleece).await {
        Err(error) if error.kind() == Kind::Closed => return Err(error),
        ended => ended,
    };
    // Somebody else's exports are on a server that is not ours.
    let exports = ask(qmp, "query-block-exports", json!({})).await?;
    if exports.as_array().is_some_and(Vec::is_empty) {
        undo(qmp, "nbd-server-stop", json!({})).await?;
    }
    for (at, disk) in fleece.disks.iter().enumerate() {
        undo(qmp, "blockdev-del", json!({ "node-name": look(at) })).await?;
        let now = disks(qmp).await?.into_iter().find(|now| now.device == disk.device);
        if now.is_some_and(|now| now.node == cbw(at)) {
            turn(qmp, disk, &disk.node).await?;
        }
        undo(qmp, "blockdev-del", json!({ "node-name": cbw(at) })).await?;
        undo(qmp, "blockdev-del", json!({ "node-name": scratch_of(at) })).await?;
    }
    for disk in disks(qmp).await? {
        for bitmap in disk.bitmaps.iter().filter(|is| is.name.starts_with(OURS) && is.name.contains(AHEAD)) {
            undo(qmp, "block-dirty-bitmap-remove", json!({ "node": disk.node, "name": bitmap.name })).await?;
        }
    }
    ended.and(check_released(qmp, fleece).await)
}

async fn check_released(qmp: &Qmp, fleece: &Fleece) -> Result<()> {
    let nodes = ask(qmp, "query-named-block-nodes", json!({ "flat": true })).await?;
    let of_ours = |at| [look(at), cbw(at), scratch_of(at)];
    let ours: Vec<String> = (0..fleece.disks.len()).flat_map(of_ours).collect();
    let mut nodes = nodes.as_array().into_iter().flatten().filter_map(|node| node["node-name"].as_str());
    let node = nodes.find(|node| ours.iter().any(|ours| ours == node)).map(str::to_owned);
    let marks = disks(qmp).await?.into_iter().flat_map(|disk| disk.bitmaps);
    let bitmap = marks.map(|bitmap| bitmap.name).find(|name| name == LOOKED_UP);
    match node.or(bitmap) {
        None => Ok(()),
        Some(left) => Err(Error::new(Kind::Conflict, format!("QEMU still has '{left}' of a backup"))
            .remedy("it is tried again; restart the guest if that does not help")),
    }
}

fn scratch_of(at: usize) -> String {
    format!("{OURS}scratch-{at}")
}

fn cbw(at: usize) -> String {
    format!("{OURS}cbw-{at}")
}

fn look(at: usize) -> String {
    format!("{OURS}look-{at}")
}

fn exported(at: usize) -> String {
    format!("{OURS}export-{at}")
}
