//! A guest's agent, over the socket that its machine has for it: commands that run in the guest.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use stonefold_guest::time::Deadline;

/// How long an answer may take: where it is emulated everything does.
const ANSWER_MAX: Duration = Duration::from_secs(60);
static NEXT: AtomicU64 = AtomicU64::new(1_000_000);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The agent at a socket. Each command has a connection of its own: the machine takes one at a time, and others want to ask, too.
pub struct Agent {
    socket: PathBuf,
}

impl Agent {
    /// Waits until the guest's agent answers.
    ///
    /// # Errors
    /// When it does not within `allowed`.
    pub fn greet(socket: &Path, allowed: Duration) -> Result<Agent> {
        let (agent, deadline) = (Agent { socket: socket.to_owned() }, Deadline::after(allowed));
        loop {
            match agent.connect(Duration::from_secs(5)) {
                Ok(_) => return Ok(agent),
                Err(error) if deadline.passed() => {
                    return Err(error).with_context(|| format!("no agent answers at {}", socket.display()));
                }
                Err(_) => sleep(LOOK_EVERY),
            }
        }
    }

    /// What a shell's command in the guest says.
    ///
    /// # Errors
    /// When it ends with another status than 0, or not within `allowed`.
    pub fn run(&self, command: &str, allowed: Duration) -> Result<String> {
        let deadline = Deadline::after(allowed);
        let mut talk = self.connect(ANSWER_MAX)?;
        let how = json!({ "path": "/bin/sh", "arg": ["-c", command], "capture-output": true });
        let begun = talk.ask("guest-exec", &how)?;
        loop {
            let state = talk.ask("guest-exec-status", &json!({ "pid": begun["pid"] }))?;
            if state["exited"] == true {
                let said = |name: &str| -> Result<String> {
                    let bytes = BASE64.decode(state[name].as_str().unwrap_or_default())?;
                    Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
                };
                ensure!(
                    state["exitcode"] == 0,
                    "in the guest, `{command}` ended with {}: {}",
                    state["exitcode"],
                    said("err-data")?
                );
                return said("out-data");
            }
            ensure!(!deadline.passed(), "in the guest, `{command}` did not end");
            sleep(LOOK_EVERY);
        }
    }

    fn connect(&self, patience: Duration) -> Result<Talk> {
        let stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(patience))?;
        let mut talk = Talk(BufReader::new(stream));
        // The byte ends what an earlier one may have left half said, and what was answered to that comes first.
        talk.0.get_mut().write_all(b"\xff")?;
        // Another for each: what was answered to an earlier one is none of this one's.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        talk.say("guest-sync", &json!({ "id": number }))?;
        while talk.hear()?["return"] != number {}
        Ok(talk)
    }
}

/// A conversation.
struct Talk(BufReader<UnixStream>);

impl Talk {
    fn say(&mut self, command: &str, arguments: &Value) -> Result<()> {
        let text = json!({ "execute": command, "arguments": arguments });
        Ok(self.0.get_mut().write_all(format!("{text}\n").as_bytes())?)
    }

    fn hear(&mut self) -> Result<Value> {
        let mut text = Vec::new();
        ensure!(self.0.read_until(b'\n', &mut text)? > 0, "the agent's channel has ended");
        Ok(serde_json::from_slice(&text).unwrap_or_default())
    }

    fn ask(&mut self, command: &str, arguments: &Value) -> Result<Value> {
        self.say(command, arguments)?;
        let mut answer = self.hear()?;
        match answer.get("error") {
            None => Ok(answer.get_mut("return").map(Value::take).unwrap_or_default()),
            Some(error) => bail!("the agent refuses '{command}': {error}"),
        }
    }
}
