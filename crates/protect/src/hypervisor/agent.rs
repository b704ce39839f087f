//! The QEMU guest agent: what runs in a guest and answers over a channel of its own.
//!
//! *Never*: believes an answer that an earlier question may have had: each conversation begins with a number of its own. *Never*: waits for
//! ever: a guest whose agent is not there yet, or hangs, answers nothing at all.
//!
//! The protocol: <https://www.qemu.org/docs/master/interop/qemu-ga-ref.html>.

use super::sign::shortened;
use crate::qmp::within;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

/// The longest answer that is taken, in bytes: a command's output is kept to 16 MiB by the agent itself, and nobody reads so much.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// How often it is asked whether a command has ended.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A conversation with a guest's agent.
pub(crate) struct Agent {
    env: Env,
    stream: BufReader<UnixStream>,
}

/// What a command in a guest came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) status: i64,
    pub(crate) output: String,
}

impl Ran {
    /// By what the agent tells of a command's state; nothing while it runs.
    pub(super) fn of(state: &Value) -> Option<Ran> {
        let text = |name: &str| {
            let bytes = state[name].as_str().and_then(|data| BASE64.decode(data).ok()).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        // Ended by a signal, it has no status.
        let status = state["exitcode"].as_i64().unwrap_or(-1);
        (state["exited"] == true).then(|| Ran { status, output: text("out-data") + &text("err-data") })
    }

    /// What it said, where it ended well.
    pub(super) fn said(self) -> Result<String> {
        match self.status {
            0 => Ok(self.output.trim().to_owned()),
            status => {
                Err(Error::new(Kind::Io, format!("it ended with {status}: {}", shortened(&self.output))))
            }
        }
    }
}

/// How the agent is told to run a shell's command.
pub(super) fn by_a_shell(command: &str) -> Value {
    json!({ "path": "/bin/sh", "arg": ["-c", command], "capture-output": true })
}

impl Agent {
    /// Begins a conversation, where the agent answers within `patience`.
    pub(crate) async fn greet(env: &Env, socket: &Path, patience: Duration) -> Result<Agent> {
        let silent = || {
            Error::new(Kind::NotFound, "no guest agent answers")
                .remedy("install qemu-guest-agent in the guest, and see that it runs there")
        };
        let stream = UnixStream::connect(socket).await.map_err(|e| {
            Error::io(format!("reaching the guest agent at '{}'", socket.display()), e)
                .remedy("look whether the guest runs, with QEMU's channel of its agent at that socket")
        })?;
        let mut agent = Agent { env: env.clone(), stream: BufReader::new(stream) };
        let number = u64::from(u32::from_le_bytes(env.random()));
        // The byte ends what an earlier conversation may have left half said.
        let hello = json!({ "execute": "guest-sync", "arguments": { "id": number } });
        let met = async {
            agent.say(b"\xff", &hello).await?;
            loop {
                // Answers to earlier questions come first, and are none of ours.
                if agent.line().await?["return"].as_u64() == Some(number) {
                    return Ok(());
                }
            }
        };
        let met: Result<()> = within(env, patience, met).await.unwrap_or_else(|| Err(silent()));
        met.map(|()| agent)
    }

    /// Has the agent do something, and returns what it answers.
    pub(crate) async fn execute(
        &mut self,
        command: &str,
        arguments: Value,
        patience: Duration,
    ) -> Result<Value> {
        let env = self.env.clone();
        let asked = async {
            self.say(b"", &json!({ "execute": command, "arguments": arguments })).await?;
            self.line().await
        };
        let answer: Option<Result<Value>> = within(&env, patience, asked).await;
        let mut answer = answer.unwrap_or_else(|| {
            let seconds = patience.as_secs_f64();
            let what = format!("the guest agent did not answer '{command}' within {seconds:.0} s");
            Err(Error::new(Kind::Io, what).remedy("look whether the guest stands still"))
        })?;
        match answer.get("error") {
            // A guest says what it likes, also what has no names in it.
            None => Ok(answer.get_mut("return").map(Value::take).unwrap_or_default()),
            Some(error) => {
                let says = error["desc"].as_str().unwrap_or("it does not say why");
                Err(Error::new(Kind::Io, format!("the guest agent refuses '{command}': {says}")))
            }
        }
    }

    /// Runs a shell's command in the guest.
    pub(crate) async fn run(&mut self, command: &str, patience: Duration) -> Result<Ran> {
        let until = self.env.monotonic() + patience;
        let pid = self.execute("guest-exec", by_a_shell(command), patience).await?["pid"].clone();
        loop {
            let state = self.execute("guest-exec-status", json!({ "pid": pid }), patience).await?;
            if let Some(ran) = Ran::of(&state) {
                return Ok(ran);
            }
            if self.env.monotonic() > until {
                return Err(Error::new(Kind::Io, format!("the guest's '{command}' did not end"))
                    .remedy("give it more time, with --timeout"));
            }
            self.env.sleep(LOOK_EVERY).await;
        }
    }

    async fn say(&mut self, before: &[u8], what: &Value) -> Result<()> {
        let mut text = before.to_vec();
        text.extend_from_slice(what.to_string().as_bytes());
        text.push(b'\n');
        self.stream.write_all(&text).await.map_err(|e| Error::io("asking the guest agent", e))
    }

    async fn line(&mut self) -> Result<Value> {
        let mut text = Vec::new();
        let mut bounded = (&mut self.stream).take(ANSWER_BYTES_MAX);
        let bytes = bounded
            .read_until(b'\n', &mut text)
            .await
            .map_err(|e| Error::io("hearing the guest agent", e))?;
        if bytes == 0 || text.last() != Some(&b'\n') {
            return Err(Error::new(Kind::Closed, "the guest agent's channel has ended"));
        }
        // A guest says what it likes.
        Ok(serde_json::from_slice(text.trim_ascii_start().strip_prefix(b"\xff").unwrap_or(&text))
            .unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stonefold_env::SystemWorld;
    use tokio::net::UnixListener;

    /// A guest that first says what it had to say to somebody else.
    async fn guest(listener: UnixListener) {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = BufReader::new(stream);
        stream.write_all(b"{\"return\": 7}\nnoise\n").await.unwrap();
        let mut polled = 0;
        loop {
            let mut line = Vec::new();
            if stream.read_until(b'\n', &mut line).await.unwrap() == 0 {
                return;
            }
            let asked: Value = serde_json::from_slice(line.strip_prefix(b"\xff").unwrap_or(&line)).unwrap();
            let answer = match asked["execute"].as_str().unwrap() {
                "guest-sync" => json!({ "return": asked["arguments"]["id"] }),
                "guest-exec" => json!({ "return": { "pid": 5 } }),
                "guest-exec-status" if polled == 0 => {
                    polled = 1;
                    json!({ "return": { "exited": false } })
                }
                "guest-exec-status" => {
                    json!({ "return": { "exited": true, "exitcode": 3, "out-data": BASE64.encode("well") } })
                }
                _ => json!({ "error": { "desc": "unknown" } }),
            };
            stream.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_guest_is_asked_and_answers() {
        let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap());
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("agent");
        let listener = UnixListener::bind(&socket).unwrap();
        env.spawn("guest", guest(listener));
        let second = Duration::from_secs(5);
        let mut agent = Agent::greet(&env, &socket, second).await.unwrap();
        let ran = agent.run("true", second).await.unwrap();
        assert_eq!((ran.status, ran.output.as_str()), (3, "well"));
        let refused = agent.execute("guest-freeze", json!({}), second).await.unwrap_err();
        assert!(refused.to_string().contains("unknown"), "{refused}");
    }

    #[tokio::test]
    async fn a_silent_guest_is_not_waited_for() {
        let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap());
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("agent");
        let _listener = UnixListener::bind(&socket).unwrap();
        let silent = Agent::greet(&env, &socket, Duration::from_millis(50)).await.err().unwrap();
        assert_eq!(silent.kind(), Kind::NotFound);
    }
}
