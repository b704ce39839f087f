//! A guest without a system: a QEMU that knows nothing of us, whose devices write what its monitor is told.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use stonefold_e2e::gateway::Place;
use stonefold_e2e::tools::run;
use stonefold_guest::time::Deadline;

use super::{DISK_BYTES, PATIENCE};

/// A QEMU with a raw and a qcow2 image. It ends with this.
pub(crate) struct Guest {
    process: Child,
}

/// A monitor of a guest's.
pub(crate) struct Monitor {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
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
        let monitor = Monitor::connect(place, "test.sock")?;
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

impl Monitor {
    pub(crate) fn connect(place: &Place, socket: &str) -> Result<Monitor> {
        let patience = Deadline::after(PATIENCE);
        let stream = loop {
            match UnixStream::connect(place.path(socket)) {
                Ok(stream) => break stream,
                Err(error) if patience.passed() => return Err(error).context("QEMU does not listen"),
                Err(_) => sleep(Duration::from_millis(20)),
            }
        };
        let mut monitor = Monitor { reader: BufReader::new(stream.try_clone()?), writer: stream };
        monitor.reader.read_line(&mut String::new())?;
        monitor.ask("qmp_capabilities", &json!({}))?;
        Ok(monitor)
    }

    pub(crate) fn ask(&mut self, command: &str, arguments: &Value) -> Result<Value> {
        let asked = json!({ "execute": command, "arguments": arguments });
        self.writer.write_all(asked.to_string().as_bytes())?;
        loop {
            let mut line = String::new();
            ensure!(self.reader.read_line(&mut line)? > 0, "QEMU has gone");
            let told: Value = serde_json::from_str(&line)?;
            if let Some(error) = told.get("error") {
                bail!("{command}: {error}");
            }
            if let Some(answer) = told.get("return") {
                return Ok(answer.clone());
            }
        }
    }

    /// Has the guest's drive do something, as its device would. Whether that failed is seen in what the image holds afterwards.
    pub(crate) fn io(&mut self, drive: &str, what: &str) -> Result<()> {
        let line = format!("qemu-io {drive} \"{what}\"");
        let said = self.ask("human-monitor-command", &json!({ "command-line": line }))?;
        ensure!(
            said.as_str().is_some_and(|said| !said.contains("rror") && !said.contains("fail")),
            "{what}: {said}"
        );
        Ok(())
    }

    pub(crate) fn write(&mut self, drive: &str, at: u64, bytes: u64, pattern: u8) -> Result<()> {
        self.io(drive, &format!("write -P {pattern} {at} {bytes}"))
    }

    pub(crate) fn is_running(&mut self) -> Result<bool> {
        Ok(self.ask("query-status", &json!({}))?["running"] == true)
    }

    /// What is ours in it.
    pub(crate) fn ours(&mut self) -> Result<Vec<String>> {
        let nodes = self.ask("query-named-block-nodes", &json!({ "flat": true }))?;
        let names = nodes.as_array().into_iter().flatten().filter_map(|node| node["node-name"].as_str());
        Ok(names.filter(|name| name.starts_with("stonefold-")).map(str::to_owned).collect())
    }

    pub(crate) fn has_exports(&mut self) -> Result<bool> {
        let exports = self.ask("query-block-exports", &json!({}))?;
        Ok(exports.as_array().is_some_and(|exports| !exports.is_empty()))
    }

    /// Whether a bitmap of such a name marks what it writes.
    pub(crate) fn has_marks(&mut self, name: &str) -> Result<bool> {
        Ok(self.bitmaps()?.iter().any(|bitmap| bitmap.ends_with(name)))
    }

    pub(crate) fn bitmaps(&mut self) -> Result<Vec<String>> {
        let told = self.ask("query-block", &json!({}))?;
        let bitmaps = told
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|disk| disk["inserted"]["dirty-bitmaps"].as_array());
        Ok(bitmaps.flatten().filter_map(|bitmap| bitmap["name"].as_str()).map(str::to_owned).collect())
    }
}
