//! First scene: a guest of a few megabytes writes, is ruined, and is brought back. It shows the point within half a minute
//! even where processors are emulated.

use anyhow::{Result, ensure};

use crate::{
    gateway::Gateway,
    machines::{Machines, tiny_checksum},
    progress::Progress,
};

pub(crate) fn show(gateway: &Gateway, machines: &Machines, progress: &Progress) -> Result<()> {
    progress.scene("A tiny guest first: write, snapshot, ruin, recover, prove");
    gateway.command(&["disk", "create", "tiny", "--size", "64M"])?;
    let written = progress.step("the guest makes a file system and writes 16 MiB of random data", || {
        tiny_checksum(&machines.tiny("tiny-write", "write stonefold.mib=16", gateway.disk("tiny"))?)
    })?;
    progress.step("snapshot tiny@before", || {
        gateway.command(&["snapshot", "create", "tiny", "--name", "before"])
    })?;
    progress.step("the guest overwrites its file system with noise", || {
        machines.tiny("tiny-ruin", "ruin stonefold.mib=64", gateway.disk("tiny"))
    })?;
    progress.step("recover: clone tiny@before", || {
        gateway.command(&["clone", "tiny@before", "tiny-recovered"])
    })?;
    let found = progress.step("the guest checks the recovered file system and reads its file", || {
        tiny_checksum(&machines.tiny("tiny-verify", "verify", gateway.disk("tiny-recovered"))?)
    })?;
    ensure!(
        found == written,
        "the tiny guest wrote data with sha256 {written} but found {found} after the recovery"
    );
    progress.note(&format!("written and found again: sha256 {}…", &found[..16]));
    Ok(())
}
