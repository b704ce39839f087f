//! A guest without a system: a QEMU that knows nothing of us, whose devices write what its monitor is told.

use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use stonefold_e2e::gateway::Place;
use stonefold_e2e::monitor::Monitor;
use stonefold_e2e::tools::run;

use super::DISK_BYTES;

/// A QEMU with a raw and a qcow2 image. It ends with this.
pub(crate) struct Guest {
    process: Child,
}

impl Guest {
    pub(crate) fn make_images(place: &Place) -> Result<()> {
        Guest::make_images_of(place, DISK_BYTES)
    }

    pub(crate) fn make_images_of(place: &Place, bytes: u64) -> Result<()> {
        for (format, name) in [("raw", "a.raw"), ("qcow2", "b.qcow2")] {
            run("qemu-img", &["create", "-q", "-f", format, &place.text(name), &bytes.to_string()])?;
        }
        Ok(())
    }

    /// Starts it: the first socket is for backups, the second for the test.
    pub(crate) fn start(place: &Place) -> Result<(Guest, Monitor)> {
        let (raw, qcow2) = (place.text("a.raw"), place.text("b.qcow2"));
        let socket = |name: &str| format!("unix:{},server=on,wait=off", place.text(name));
        let mut command = Command::new("qemu-system-x86_64");
        command.args([
            "-machine",
            "q35,accel=tcg",
            "-m",
            "64M",
            "-display",
            "none",
            "-nodefaults",
            "-name",
            "mail",
        ]);
        command.args(["-qmp", &socket("qmp.sock"), "-qmp", &socket("test.sock")]);
        command.args(["-drive", &format!("file={raw},format=raw,if=none,id=root,cache=none,discard=unmap")]);
        command.args(["-device", "virtio-blk-pci,drive=root,id=vd0"]);
        command
            .args(["-drive", &format!("file={qcow2},format=qcow2,if=none,id=data,cache=none,discard=unmap")]);
        command.args([
            "-device",
            "virtio-scsi-pci,id=bus0",
            "-device",
            "scsi-hd,drive=data,bus=bus0.0,id=sd0",
        ]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let guest = Guest { process: command.spawn().context("starting QEMU")? };
        let monitor = Monitor::connect(&place.path("test.sock"))?;
        Ok((guest, monitor))
    }

    /// As a guest ends that shuts down: its images are closed in order.
    pub(crate) fn quit(mut self, mut monitor: Monitor) -> Result<()> {
        monitor.ask("quit", &json!({}))?;
        let ended = self.process.wait()?;
        ensure!(ended.success(), "QEMU ended with {ended}");
        Ok(())
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
