//! The QEMU Machine Protocol (QEMU, docs/interop/qmp-spec.rst): a line of JSON for each command, a line for each answer, and
//! lines about events between them, which nobody here asks for.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use stonefold_types::{Error, Kind, Result};

/// For an answer: a command waits for what is in flight.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// A connection that may give commands.
pub(super) struct Qmp {
    lines: BufReader<UnixStream>,
    version: String,
}

impl Qmp {
    /// Greets and is greeted.
    pub(super) fn connect(socket: &Path) -> Result<Self> {
        let failed = |e| Error::io("connecting to QEMU's control socket", e);
        let stream = UnixStream::connect(socket).map_err(failed)?;
        stream.set_read_timeout(Some(ANSWER_MAX)).map_err(failed)?;
        stream.set_write_timeout(Some(ANSWER_MAX)).map_err(failed)?;
        let mut qmp = Qmp { lines: BufReader::new(stream), version: String::new() };
        let greeting = qmp.line()?;
        let version = &greeting["QMP"]["version"]["qemu"];
        let number = |part: &str| version[part].as_u64().unwrap_or(0);
        qmp.version = format!("{}.{}.{}", number("major"), number("minor"), number("micro"));
        qmp.ask("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// QEMU's.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Gives a command and waits for its answer.
    ///
    /// # Errors
    /// What QEMU has against it, or that it does not answer.
    pub(super) fn ask(&mut self, what: &str, arguments: Value) -> Result<Value> {
        let mut line = json!({ "execute": what, "arguments": arguments }).to_string();
        line.push('\n');
        let sent = self.lines.get_mut().write_all(line.as_bytes());
        sent.map_err(|e| Error::io(format!("asking QEMU for {what}"), e))?;
        loop {
            let mut answer = self.line().map_err(|e| e.context(format!("asking QEMU for {what}")))?;
            if let Some(why) = answer["error"]["desc"].as_str() {
                return Err(Error::new(Kind::Io, format!("QEMU refuses {what}: {why}")));
            }
            if answer.get("return").is_some() {
                return Ok(answer["return"].take());
            }
        }
    }

    fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        match self.lines.read_line(&mut line) {
            Ok(0) => Err(Error::new(Kind::Closed, "QEMU has hung up")),
            Ok(_) => serde_json::from_str(&line)
                .map_err(|e| Error::new(Kind::Invalid, format!("QEMU says what is no JSON: {e}"))),
            Err(error) => Err(Error::io("waiting for QEMU", error)),
        }
    }
}
