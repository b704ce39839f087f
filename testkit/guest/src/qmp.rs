//! QEMU's control socket (QMP), as much of it as is needed to stop a machine and to look at its screen.
//!
//! One JSON document a line. The greeting comes first, then replies in the order of the commands; events may come
//! between them at any time and are skipped.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::Path,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Value, json};

use crate::time::Deadline;

/// QEMU answers within milliseconds; a second or two may pass on a machine that emulates two processors on two cores.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

pub(crate) struct Qmp {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
}

impl Qmp {
    /// Connects, waiting until QEMU has opened its socket.
    pub(crate) fn connect(path: &Path) -> Result<Self> {
        let deadline = Deadline::after(ANSWER_WITHIN);
        let stream = loop {
            match UnixStream::connect(path) {
                Ok(stream) => break stream,
                Err(error) if deadline.passed() => {
                    return Err(error)
                        .with_context(|| format!("QEMU did not open its control socket {}", path.display()));
                }
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        };
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        stream.set_write_timeout(Some(ANSWER_WITHIN))?;
        let mut qmp = Self { writer: stream.try_clone()?, reader: BufReader::new(stream) };
        if qmp.next_line()?.get("QMP").is_none() {
            bail!("QEMU's control socket {} did not greet as QMP does", path.display());
        }
        qmp.execute("qmp_capabilities", &json!({}))?;
        Ok(qmp)
    }

    /// Sends a command and waits for its reply.
    pub(crate) fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value> {
        let request = json!({ "execute": command, "arguments": arguments });
        self.writer
            .write_all(format!("{request}\n").as_bytes())
            .with_context(|| format!("could not send {command} to QEMU"))?;
        loop {
            let line = self.next_line().with_context(|| format!("QEMU did not answer {command}"))?;
            match Reply::of(&line)? {
                Reply::Done(value) => return Ok(value),
                Reply::Refused(why) => bail!("QEMU refused {command}: {why}"),
                Reply::Event => {}
            }
        }
    }

    fn next_line(&mut self) -> Result<Value> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            bail!("QEMU closed its control socket");
        }
        serde_json::from_str(&line)
            .with_context(|| format!("QEMU's control socket said something that is no JSON: {line}"))
    }
}

#[derive(Debug, PartialEq)]
enum Reply {
    Done(Value),
    Refused(String),
    Event,
}

impl Reply {
    fn of(line: &Value) -> Result<Self> {
        if let Some(value) = line.get("return") {
            Ok(Self::Done(value.clone()))
        } else if let Some(error) = line.get("error") {
            Ok(Self::Refused(error["desc"].as_str().unwrap_or("no reason given").to_owned()))
        } else if line.get("event").is_some() {
            Ok(Self::Event)
        } else {
            Err(anyhow!("QEMU's control socket said neither return, error nor event: {line}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_errors_and_events_are_told_apart() {
        assert_eq!(Reply::of(&json!({"return": {"a": 1}})).unwrap(), Reply::Done(json!({"a": 1})));
        assert_eq!(
            Reply::of(&json!({"error": {"class": "GenericError", "desc": "no such device"}})).unwrap(),
            Reply::Refused("no such device".into())
        );
        assert_eq!(Reply::of(&json!({"event": "POWERDOWN", "timestamp": {}})).unwrap(), Reply::Event);
        assert!(Reply::of(&json!({"hello": 1})).is_err());
    }

    #[test]
    fn a_command_is_answered_past_the_events_before_it() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs
            .write_all(b"{\"event\":\"RESUME\"}\n{\"return\":{}}\n{\"error\":{\"desc\":\"no\"}}\n")
            .unwrap();
        let mut qmp = Qmp { writer: ours.try_clone().unwrap(), reader: BufReader::new(ours) };
        assert_eq!(qmp.execute("quit", &json!({})).unwrap(), json!({}));
        assert!(
            qmp.execute("screendump", &json!({})).unwrap_err().to_string().contains("refused screendump: no")
        );
    }
}
