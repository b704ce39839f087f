//! Guests on other people's storage that stand still for their points: file systems that have finished, in a real Debian's own words.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stonefold_e2e::gateway::{Place, in_a_place};
use stonefold_e2e::libvirt::{libvirt, virsh};
use stonefold_e2e::tools::{attempt, run};
use stonefold_guest::time::Deadline;
use stonefold_needs::{Need, there_is};

use crate::{BOOT_MAX, LOGIN_MAX, guest};

/// Of the superblock of ext4 (Documentation/filesystems/ext4): where it is, its magic number, the features that must be understood, and among
/// them that its journal has to be replayed.
const SUPERBLOCK: u64 = 1024;
const MAGIC: (usize, u16) = (0x38, 0xEF53);
const INCOMPATIBLE: usize = 0x60;
const NEEDS_RECOVERY: u32 = 4;
/// Where the first sector of a partition stands in a disk's table of them (MBR), of the second.
const SECOND_PARTITION: usize = 446 + 16 + 8;

/// A run's point, and whether the journal of its guest's root has to be replayed.
fn point(place: &Place, line: &str, disk: &str) -> Result<(Value, bool)> {
    let made = place.json(line)?;
    ensure!(made["state"] == "done", "{made}");
    let name = made["name"].as_str().context("a run has a name")?;
    let (_, stamp) = name.split_once('@').context("a point has a time")?;
    let mut snapshot = place.connect(&format!("{disk}@{stamp}"))?;
    let table = snapshot.read(SECOND_PARTITION as u64 / 512 * 512, 512)?;
    let sector = u32::from_le_bytes(table[SECOND_PARTITION..SECOND_PARTITION + 4].try_into()?);
    let superblock = snapshot.read(u64::from(sector) * 512 + SUPERBLOCK, 1024)?;
    let magic = u16::from_le_bytes(superblock[MAGIC.0..MAGIC.0 + 2].try_into()?);
    ensure!(magic == MAGIC.1, "no ext4 is there");
    let features = u32::from_le_bytes(superblock[INCOMPATIBLE..INCOMPATIBLE + 4].try_into()?);
    Ok((place.json(&format!("point show {name}"))?, features & NEEDS_RECOVERY != 0))
}

/// What a crash would leave, and what stood still, of a guest that runs.
fn both_ways(place: &Place, source: &str, disk: &str) -> Result<String> {
    let (crash, replays) = point(place, &format!("backup run {source}"), disk)?;
    ensure!(
        crash["consistency"] == "crash" && replays,
        "a file system in use has nothing to replay: {crash}"
    );
    let (app, replays) = point(place, &format!("backup run {source} --consistent app"), disk)?;
    ensure!(app["consistency"] == "app" && !replays, "it did not stand still: {app}");
    // It goes on: nothing of it waits to be woken, and it is in use again.
    let (crash, replays) = point(place, &format!("backup run {source}"), disk)?;
    ensure!(crash["consistency"] == "crash" && replays, "it stands still yet: {crash}");
    Ok(app["name"].as_str().context("a point has a name")?.to_owned())
}

/// *Promise*: by QMP and the agent's own socket, of a machine in this folder that reads and writes a qcow2 image.
pub(crate) fn on_other_storage(place: &Place, folder: &str) -> Result<()> {
    place.ok(&format!("source add deaf --qmp {folder}/qmp.sock"))?;
    let said = place.fails("backup run deaf --consistent app", 1)?;
    ensure!(said.contains("--agent unix:PATH"), "{said}");
    place.ok("source rm deaf")?;

    place.ok(&format!("source add still --qmp {folder}/qmp.sock --agent unix:{folder}/agent.sock"))?;
    let disks = place.json("backup run still")?;
    let disk = disks["copied"]["disks"][0].as_str().context("a run has disks")?.to_owned();
    let app = both_ways(place, "still", &disk)?;

    // And what its own package has put there is found in it.
    let found = place.json_within(&format!("point files {app} ls /etc/debian_version"), LOGIN_MAX)?;
    ensure!(found[0]["kind"] == "file", "{found}");
    Ok(())
}

/// *Promise*: the same by libvirt, which has the way to the agent itself; a domain without one makes no point, and nothing is left standing.
#[test]
fn a_debian_of_libvirts_stands_still_for_its_points() {
    if !there_is(Need::Loop, "a Debian of libvirt's that stands still") {
        return;
    }
    in_a_place(|place| {
        let (libvirt, uri) = libvirt(place)?;
        let image = place.text("deb.qcow2");
        run("qemu-img", &["convert", "-O", "qcow2", &guest()?.join("disk.raw").to_string_lossy(), &image])?;
        let xml = format!(
            "<domain type='qemu'><name>deb</name><memory unit='MiB'>512</memory><vcpu>2</vcpu>\
            <os><type arch='x86_64' machine='pc'>hvm</type></os><devices>\
            <disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='{image}'/><target dev='vda' bus='virtio'/></disk>\
            <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>\
            </devices></domain>"
        );
        fs::write(place.path("deb.xml"), xml)?;
        virsh(&uri, &["define", &place.text("deb.xml")])?;
        let server = place.start(&[])?;
        place.ok(&format!("source add shop --libvirt {uri} --domain deb"))?;

        let said = place.fails("backup run shop --consistent app", 1)?;
        ensure!(said.contains("does not run"), "{said}");
        virsh(&uri, &["start", "deb"])?;
        // No agent yet: it boots.
        let said = place.fails("backup run shop --consistent app", 1)?;
        ensure!(said.contains("agent"), "{said}");
        let points = place.json("point ls")?;
        ensure!(points.as_array().is_some_and(Vec::is_empty), "{points}");

        let patience = Deadline::after(LOGIN_MAX);
        while attempt("virsh", &["-q", "-c", &uri, "domtime", "deb"])?.0 != Some(0) {
            ensure!(!patience.passed(), "its agent does not answer");
            sleep(Duration::from_secs(1));
        }
        place.json("backup run shop")?;
        let app = both_ways(place, "shop", "shop.vda")?;
        virsh(&uri, &["destroy", "deb"])?;

        // The point comes back as a domain beside it, and its agent says when it is up.
        let recover = format!(
            "recover {app} --as again --to libvirt:{uri} --network isolated --wait cmd:hostname --timeout {BOOT_MAX}"
        );
        let made = place.json_within(&recover, LOGIN_MAX)?;
        let alive = made["recovery"]["started"]["alive_us"].is_u64();
        ensure!(alive && made["notes"].to_string().contains("stonefold-guest"), "{made}");
        place.ok("recover stop again --discard")?;
        libvirt.kill();
        server.stop()
    });
}
