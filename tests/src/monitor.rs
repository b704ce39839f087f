//! A client of QEMU's monitor (QMP), for what a test has a guest's machine do.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use stonefold_guest::time::Deadline;

/// Until a QEMU that was just started listens.
const LISTENS_MAX: Duration = Duration::from_secs(60);

/// A connection to a guest's monitor.
pub struct Monitor {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
}

impl Monitor {
    /// Waits until it listens and no other client has it.
    ///
    /// # Errors
    /// When it does not listen, or ends.
    pub fn connect(socket: &Path) -> Result<Monitor> {
        let patience = Deadline::after(LISTENS_MAX);
        let stream = loop {
            match UnixStream::connect(socket) {
                Ok(stream) => break stream,
                Err(error) if patience.passed() => return Err(error).context("QEMU does not listen"),
                Err(_) => sleep(Duration::from_millis(20)),
            }
        };
        // One whose other client stays greets nobody.
        stream.set_read_timeout(Some(LISTENS_MAX))?;
        let mut monitor = Monitor { reader: BufReader::new(stream.try_clone()?), writer: stream };
        monitor.reader.read_line(&mut String::new()).context("QEMU does not greet: another client has it")?;
        monitor.writer.set_read_timeout(None)?;
        monitor.ask("qmp_capabilities", &json!({}))?;
        Ok(monitor)
    }

    /// A command, and what it returned. Events in between are passed over.
    ///
    /// # Errors
    /// What QEMU says of the command; when it has gone.
    pub fn ask(&mut self, command: &str, arguments: &Value) -> Result<Value> {
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
    ///
    /// # Errors
    /// When QEMU refuses it.
    pub fn io(&mut self, drive: &str, what: &str) -> Result<()> {
        let line = format!("qemu-io {drive} \"{what}\"");
        let said = self.ask("human-monitor-command", &json!({ "command-line": line }))?;
        ensure!(
            said.as_str().is_some_and(|said| !said.contains("rror") && !said.contains("fail")),
            "{what}: {said}"
        );
        Ok(())
    }

    /// As [`Monitor::io`]: bytes of one value.
    ///
    /// # Errors
    /// When QEMU refuses it.
    pub fn write(&mut self, drive: &str, at: u64, bytes: u64, pattern: u8) -> Result<()> {
        self.io(drive, &format!("write -P {pattern} {at} {bytes}"))
    }

    /// Whether its processors run.
    ///
    /// # Errors
    /// When QEMU does not tell.
    pub fn is_running(&mut self) -> Result<bool> {
        Ok(self.ask("query-status", &json!({}))?["running"] == true)
    }

    /// What is ours in it.
    ///
    /// # Errors
    /// When QEMU does not tell.
    pub fn ours(&mut self) -> Result<Vec<String>> {
        let nodes = self.ask("query-named-block-nodes", &json!({ "flat": true }))?;
        let names = nodes.as_array().into_iter().flatten().filter_map(|node| node["node-name"].as_str());
        Ok(names.filter(|name| name.starts_with("stonefold-")).map(str::to_owned).collect())
    }

    /// Whether it serves any of its disks.
    ///
    /// # Errors
    /// When QEMU does not tell.
    pub fn has_exports(&mut self) -> Result<bool> {
        let exports = self.ask("query-block-exports", &json!({}))?;
        Ok(exports.as_array().is_some_and(|exports| !exports.is_empty()))
    }

    /// Whether a bitmap of such a name marks what it writes.
    ///
    /// # Errors
    /// When QEMU does not tell.
    pub fn has_marks(&mut self, name: &str) -> Result<bool> {
        Ok(self.bitmaps()?.iter().any(|bitmap| bitmap.ends_with(name)))
    }

    /// The dirty bitmaps of its disks.
    ///
    /// # Errors
    /// When QEMU does not tell.
    pub fn bitmaps(&mut self) -> Result<Vec<String>> {
        let told = self.ask("query-block", &json!({}))?;
        let bitmaps = told
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|disk| disk["inserted"]["dirty-bitmaps"].as_array());
        Ok(bitmaps.flatten().filter_map(|bitmap| bitmap["name"].as_str()).map(str::to_owned).collect())
    }

    /// Does something while the guest stands still, with all that it wrote in its images. An image that is looked at while its guest writes
    /// seems broken: its parts are read at different moments.
    ///
    /// # Errors
    /// When QEMU refuses, or as what was done.
    pub fn while_it_stands<T>(&mut self, what: impl FnOnce() -> Result<T>) -> Result<T> {
        self.ask("stop", &json!({}))?;
        let done = what();
        let went_on = self.ask("cont", &json!({}));
        let done = done?;
        went_on.map(|_| done)
    }
}
