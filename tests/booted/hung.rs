//! How a disk hangs on its machine.
//!
//! *Promise*: a disk comes back on the bus that it was on, by its serial number, and boots from there; also where the copy is backed up and recovered itself.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use stonefold_e2e::gateway::{Place, in_a_place};
use stonefold_e2e::machines::Machines;

use super::{serve, write};

const ARGUMENTS: &str = "-M q35 -m 64M -nic none -drive file=/gone,if=none,id=root -device ide-hd,drive=root,serial=WEB-1,bus=ide.2";

fn back_up(place: &Place, source: &str) -> Result<String> {
    let run = place.json(&format!("backup run {source}"))?;
    Ok(run["name"].as_str().context("a run has a name")?.to_owned())
}

#[test]
fn a_disk_hangs_where_it_hung() {
    in_a_place(|place| {
        let _ended = Machines(place);
        let server = serve(place)?;
        place.ok("disk create web --size 64M")?;
        write(place, "the first")?;
        fs::write(place.path("args"), ARGUMENTS)?;
        place.ok(&format!("machine add web --disk web --qemu-args {}", place.text("args")))?;
        place.ok("source add web --machine web")?;
        let mut point = back_up(place, "web")?;
        for name in ["again", "once-more"] {
            let proof = place.ok(&format!("verify {point} --wait console:here.is.the.first"))?;
            ensure!(proof.contains("the first"), "{proof}");
            let made = place.json(&format!("recover {point} --as {name} --to qemu"))?;
            ensure!(!made.to_string().contains("left out"), "{made}");
            let folder = made["recovery"]["started"]["folder"].as_str().context("a machine has a folder")?;
            let process = fs::read_to_string(Path::new(folder).join("pid"))?;
            let words = fs::read_to_string(format!("/proc/{}/cmdline", process.trim()))?;
            ensure!(words.contains("ide-hd,drive=stonefold-disk0,serial=WEB-1,bus=ide.2"), "{words}");
            ensure!(!words.contains("virtio-blk") && !words.contains("/gone"), "{words}");
            place.ok(&format!("migrate {name} --keep"))?;
            place.ok(&format!("source add {name} --machine {name}"))?;
            point = back_up(place, name)?;
        }
        server.stop()
    });
}
