//! A map whose nodes are damaged beyond what parity mends, through the real command line.
//!
//! *Promise*: `pool check` fails and says where; `--salvage` makes a disk that holds what the damaged one held, with a server and without
//! one, and leaves the damaged one as it is; once that is removed the pool is sound.

use super::objects;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use stonefold_dice::noise;
use stonefold_e2e::gateway::{Place, in_a_place};
use stonefold_e2e::rot::{flip, stripes};

const PAGE: u64 = 4096;
const BYTES: usize = 5 << 20;

#[test]
fn a_map_that_is_damaged_for_good_is_salvaged() {
    in_a_place(|place| {
        let gateway = place.start(&[])?;
        let data = noise(11, BYTES);
        fs::write(place.path("web.raw"), &data)?;
        place.ok(&format!("disk import web {}", place.text("web.raw")))?;
        gateway.stop()?;
        for segment in objects(place, "segment")? {
            // The map's are short.
            if fs::metadata(&segment)?.len() < 1 << 16 {
                ruin_first_node(&segment)?;
            }
        }

        let gateway = place.start(&[])?;
        let done = place.run("pool check")?;
        let is_told = done.status.code() == Some(1) && done.stderr.contains("--salvage");
        ensure!(is_told, "{}{}", done.stdout, done.stderr);
        ensure!(!export(place, "web", "lost.raw")?, "the damaged disk was exported");
        let done = place.run("pool check --salvage --json")?;
        ensure!(
            done.status.code() == Some(1) && done.stderr.contains("remove the damaged"),
            "{}",
            done.stderr
        );
        let told: serde_json::Value = serde_json::from_str(&done.stdout)?;
        ensure!(!told["problems"].as_array().context("a list")?.is_empty(), "{told}");
        let disks = told["salvage"]["disks"].as_array().context("a list")?;
        ensure!(disks.len() == 1 && disks[0]["of"] == "web" && disks[0]["disk"] == "web.salvaged", "{told}");
        ensure!(disks[0]["lost_bytes"] == 0 && !disks[0]["ranges"][0]["from"].is_null(), "{told}");
        ensure!(export(place, "web.salvaged", "one.raw")?, "the salvaged disk was not exported");
        ensure!(fs::read(place.path("one.raw"))? == data, "the salvaged disk holds something else");
        ensure!(!export(place, "web", "lost.raw")?, "the damaged disk is another one now");
        gateway.stop()?;

        let url = format!("file://{}", place.pool().display());
        let done = place.run(&format!("pool check --salvage --pool {url}"))?;
        ensure!(done.status.code() == Some(1), "{}{}", done.stdout, done.stderr);
        ensure!(done.stdout.contains("'web' as disk 'web.salvaged.2'"), "{}", done.stdout);
        ensure!(done.stdout.contains("not what is certain"), "{}", done.stdout);

        let gateway = place.start(&[])?;
        place.ok("disk rm web")?;
        place.ok("pool reclaim")?;
        place.ok("pool check --salvage")?;
        for disk in ["web.salvaged", "web.salvaged.2"] {
            ensure!(export(place, disk, "again.raw")?, "'{disk}' was not exported");
            ensure!(fs::read(place.path("again.raw"))? == data, "'{disk}' holds something else");
            fs::remove_file(place.path("again.raw"))?;
        }
        gateway.stop()
    });
}

/// Whether a disk could be exported.
fn export(place: &Place, disk: &str, file: &str) -> Result<bool> {
    Ok(place.run(&format!("disk export {disk} {}", place.text(file)))?.status.success())
}

/// The first frame of a short segment, of a leaf where it holds a map: its page, and that page's parity, which lies between the file's
/// two headers of a page each.
fn ruin_first_node(segment: &Path) -> Result<()> {
    let pages = fs::metadata(segment)?.len().div_ceil(PAGE);
    // Behind the segment's own header of 80 bytes.
    let inside = 80 + 100;
    flip(segment, PAGE + inside)?;
    flip(segment, (2 + stripes(pages)) * PAGE + inside)
}
