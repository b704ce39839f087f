//! QEMU's machine protocol (QMP): commands over a socket, answers, and events as they come.
//!
//! *Promises*: an answer is its command's, whatever order they come in; an event that came after a subscription is seen by it, or the
//! subscriber is told that it missed some; when QEMU goes, whoever waits is told. *Never*: waits for ever: a QEMU that stands still
//! is given up after the time that a call names. *Owns*: the socket, a process that keeps it open while [several things](Qmp::execute_all) are done, and a task that reads from it for as long as this lives.
//!
//! The protocol: <https://www.qemu.org/docs/master/interop/qmp-spec.html>. One client at a time has a socket; the next one waits
//! for its greeting in vain.

#[cfg(test)]
mod tests;

use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::future::Future;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{broadcast, oneshot};

/// The longest line that is taken from a QEMU, in bytes: lists of a thousand nodes are a tenth of it.
const LINE_BYTES_MAX: u64 = 16 << 20;
/// Events that a subscriber may be behind.
const EVENTS_MAX: usize = 4096;
/// How long a connection is kept open for what was asked of a QEMU, in seconds, after this process was killed.
const KEPT_S: u32 = 3;
/// How long a QEMU that is starting may have its socket before it listens on it.
const START: Duration = Duration::from_secs(1);

/// A connection to a QEMU. Clones share it; it ends with the last of them.
#[derive(Clone)]
pub struct Qmp(Arc<Inner>);

struct Inner {
    env: Env,
    socket: PathBuf,
    peer: Option<Peer>,
    /// The same connection, for whoever keeps it open.
    kept: OwnedFd,
    writer: tokio::sync::Mutex<OwnedWriteHalf>,
    shared: Arc<Shared>,
    /// Ends the task that reads.
    _end: oneshot::Sender<()>,
}

/// What the task that reads has in common with those who wait.
type Shared = Mutex<Waiting>;

struct Waiting {
    next: u64,
    answers: HashMap<u64, oneshot::Sender<Value>>,
    /// To whoever subscribes; nothing once QEMU is not spoken to any more.
    events: Option<broadcast::Sender<Event>>,
}

impl Waiting {
    /// Nobody is answered or told anything from here on, and whoever waits is told that.
    fn end(&mut self) {
        self.answers.clear();
        self.events = None;
    }
}

/// Something that happened in a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// As QEMU calls it: `BLOCK_JOB_COMPLETED`.
    pub name: String,
    /// What it tells of it.
    pub data: Value,
}

/// Who listens on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its process.
    pub process: u32,
    /// Its user.
    pub user: u32,
}

/// Events from a moment on.
pub struct Events {
    qmp: Qmp,
    receiver: broadcast::Receiver<Event>,
}

impl Qmp {
    /// Connects to a socket that a QEMU listens on, and waits for its greeting as long as `patience`.
    ///
    /// # Errors
    /// [`Kind::NotFound`] where there is no socket, [`Kind::Io`] where nobody listens on it, [`Kind::Busy`] where nobody greets.
    pub async fn connect(env: &Env, socket: &Path, patience: Duration) -> Result<Qmp> {
        let at = socket.display();
        let stream = reach(env, socket, patience.min(START)).await.map_err(|e| {
            Error::io(format!("connecting to QEMU at '{at}'"), e)
                .remedy("name the socket of a running QEMU, as -qmp unix:PATH,server=on,wait=off gave it")
        })?;
        let peer = stream
            .peer_cred()
            .ok()
            .and_then(|peer| Some(Peer { process: u32::try_from(peer.pid()?).ok()?, user: peer.uid() }));
        let kept = stream.as_fd().try_clone_to_owned();
        let kept = kept.map_err(|e| Error::io(format!("connecting to QEMU at '{at}'"), e))?;
        let (reader, writer) = stream.into_split();
        let mut reader = BufReader::new(reader);
        let greeting = within(env, patience, line(&mut reader)).await.ok_or_else(|| {
            Error::new(Kind::Busy, format!("QEMU does not answer at '{at}'")).remedy(
                "end the other client of this socket, or give the machine a socket of its own for backups",
            )
        })?;
        if !matches!(greeting, Ok(Some(ref greeting)) if greeting.get("QMP").is_some()) {
            let what = format!("what listens at '{at}' is no QEMU");
            return Err(Error::new(Kind::Invalid, what).remedy("name the QMP socket of a machine"));
        }
        let (end, ended) = oneshot::channel();
        let events = Some(broadcast::channel(EVENTS_MAX).0);
        let shared = Arc::new(Mutex::new(Waiting { next: 0, answers: HashMap::new(), events }));
        env.spawn("qmp", read(reader, shared.clone(), ended));
        let (env, socket, writer) = (env.clone(), socket.to_owned(), tokio::sync::Mutex::new(writer));
        let qmp = Qmp(Arc::new(Inner { env, socket, peer, kept, writer, shared, _end: end }));
        qmp.execute("qmp_capabilities", json!({}), patience).await?;
        Ok(qmp)
    }

    /// Has QEMU do something, and returns what it answers.
    ///
    /// # Errors
    /// What QEMU says, in its words; [`Kind::Unsupported`] where it does not know the command, [`Kind::NotFound`] where it does not
    /// know the device or node, [`Kind::Closed`] when it went, [`Kind::Io`] when it did not answer for as long as `patience`: then nobody
    /// knows whether it was done.
    pub async fn execute(&self, command: &str, arguments: Value, patience: Duration) -> Result<Value> {
        self.exchange(&[(command, arguments)], patience).await?.pop().expect("an answer to each")
    }

    /// Has QEMU do several things in a row, all of them even if this process is killed meanwhile: what it answers to each. QEMU forgets what it was
    /// told when its client hangs up, so a process of its own keeps the connection until all is done.
    ///
    /// # Errors
    /// Those of [`execute`](Self::execute) of all of them; [`Kind::Io`] where nobody can be had to keep the connection: then nothing was asked.
    pub async fn execute_all(
        &self,
        commands: &[(&str, Value)],
        patience: Duration,
    ) -> Result<Vec<Result<Value>>> {
        let failed = |e| Error::io("keeping QEMU's socket open", e);
        let socket = self.0.kept.try_clone().map_err(failed)?;
        let mut keeper = Command::new("sleep");
        keeper
            .arg(KEPT_S.to_string())
            .process_group(0)
            .stdin(socket)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut keeper = keeper.spawn().map_err(failed)?;
        let done = self.exchange(commands, patience).await;
        // It ends by itself otherwise.
        let _ = keeper.kill();
        let _ = keeper.wait();
        done
    }

    async fn exchange(&self, commands: &[(&str, Value)], patience: Duration) -> Result<Vec<Result<Value>>> {
        let inner = &*self.0;
        let mut text = String::new();
        let mut asked = Vec::new();
        {
            let mut waiting = inner.shared.lock();
            if waiting.events.is_none() {
                return Err(self.gone());
            }
            for (command, arguments) in commands {
                let (tell, told) = oneshot::channel();
                let id = waiting.next;
                waiting.next += 1;
                waiting.answers.insert(id, tell);
                asked.push((id, told));
                let line = json!({ "execute": command, "arguments": arguments, "id": id });
                text.push_str(&format!("{line}\n"));
            }
        }
        let ids: Vec<u64> = asked.iter().map(|(id, _)| *id).collect();
        let mut half_written = false;
        let exchanged = async {
            let mut writer = inner.writer.lock().await;
            half_written = true;
            writer.write_all(text.as_bytes()).await.map_err(|_| self.gone())?;
            half_written = false;
            drop(writer);
            let mut answers = Vec::new();
            for ((_, told), (command, _)) in asked.into_iter().zip(commands) {
                answers.push(judge(command, told.await.map_err(|_| self.gone())?));
            }
            Ok(answers)
        };
        let answers = within(&inner.env, patience, exchanged).await;
        {
            let mut waiting = inner.shared.lock();
            ids.iter().for_each(|id| drop(waiting.answers.remove(id)));
            if half_written {
                // The next command would be taken for the rest of this one.
                waiting.end();
            }
        }
        answers.unwrap_or_else(|| {
            let seconds = patience.as_secs_f64();
            let names: Vec<&str> = commands.iter().map(|(command, _)| *command).collect();
            let what = format!(
                "QEMU did not answer '{}' within {seconds:.0} s: it may have done it",
                names.join("', '")
            );
            Err(Error::new(Kind::Io, what).remedy("look whether the machine stands still"))
        })
    }

    /// Who it is, where the kernel says so.
    pub fn peer(&self) -> Option<Peer> {
        self.0.peer
    }

    /// Events from now on.
    pub fn events(&self) -> Events {
        let subscribed = self.0.shared.lock().events.as_ref().map(broadcast::Sender::subscribe);
        // Without a QEMU they are over.
        let receiver = subscribed.unwrap_or_else(|| broadcast::channel(1).1);
        Events { qmp: self.clone(), receiver }
    }

    fn gone(&self) -> Error {
        Error::new(Kind::Closed, format!("QEMU at '{}' has gone", self.0.socket.display()))
            .remedy("look whether the machine was stopped")
    }
}

impl Events {
    /// Waits for an event of which `is_it` makes something.
    ///
    /// # Errors
    /// [`Kind::Closed`] when QEMU went, [`Kind::Io`] when none came for as long as `patience`, or when there were more than can be kept.
    pub async fn wait_for<T>(
        &mut self,
        patience: Duration,
        is_it: impl Fn(&Event) -> Option<T>,
    ) -> Result<T> {
        let env = self.qmp.0.env.clone();
        let found = async {
            loop {
                match self.receiver.recv().await {
                    Ok(event) => {
                        if let Some(found) = is_it(&event) {
                            return Ok(found);
                        }
                    }
                    Err(broadcast::error::RecvError::Closed) => return Err(self.qmp.gone()),
                    Err(broadcast::error::RecvError::Lagged(many)) => {
                        let what = format!("{many} events of QEMU were missed");
                        return Err(Error::new(Kind::Io, what).remedy("ask it for the state instead"));
                    }
                }
            }
        };
        within(&env, patience, found).await.unwrap_or_else(|| {
            let what = format!("QEMU told nothing of it within {:.0} s", patience.as_secs_f64());
            Err(Error::new(Kind::Io, what).remedy("look whether the machine stands still"))
        })
    }
}

fn judge(command: &str, mut answer: Value) -> Result<Value> {
    let Some(error) = answer.get("error") else { return Ok(answer["return"].take()) };
    let says = error["desc"].as_str().unwrap_or("it does not say why");
    let kind = match error["class"].as_str() {
        Some("CommandNotFound") => Kind::Unsupported,
        Some("DeviceNotFound") => Kind::NotFound,
        _ => Kind::Io,
    };
    Err(Error::new(kind, format!("QEMU refuses '{command}': {says}")))
}

/// Takes lines from QEMU until it goes or nobody wants them any more, and gives each to whom it belongs.
async fn read(mut reader: BufReader<OwnedReadHalf>, shared: Arc<Shared>, mut ended: oneshot::Receiver<()>) {
    loop {
        let line = tokio::select! {
            line = line(&mut reader) => line,
            _ = &mut ended => break,
        };
        let mut told = match line {
            Ok(Some(told)) => told,
            Ok(None) => break,
            Err(error) => {
                tracing::warn!("QEMU is not listened to any more: {error}");
                break;
            }
        };
        if let Some(name) = told["event"].as_str() {
            let event = Event { name: name.to_owned(), data: told["data"].take() };
            // Without subscribers nobody asks.
            let _ = shared.lock().events.as_ref().map(|events| events.send(event));
        } else if let Some(tell) = told["id"].as_u64().and_then(|id| shared.lock().answers.remove(&id)) {
            // Whoever asked may have given up.
            let _ = tell.send(told);
        }
    }
    shared.lock().end();
}

/// The next line, as JSON; nothing at the end.
async fn line(reader: &mut BufReader<OwnedReadHalf>) -> std::io::Result<Option<Value>> {
    let mut text = Vec::new();
    let bytes = reader.take(LINE_BYTES_MAX).read_until(b'\n', &mut text).await?;
    if bytes == 0 {
        return Ok(None);
    }
    let wrong = |why: String| std::io::Error::new(ErrorKind::InvalidData, why);
    if text.last() != Some(&b'\n') {
        return Err(wrong("a line has no end".into()));
    }
    serde_json::from_slice(&text).map(Some).map_err(|error| wrong(error.to_string()))
}

/// Whether nobody listens at a socket: QEMU takes it away when it ends, and where it was killed what is left of it refuses. Anything else, a queue that is
/// full say, may be a QEMU that lives.
pub(crate) async fn is_left(env: &Env, socket: &Path, patience: Duration) -> bool {
    let reached = within(env, patience, UnixStream::connect(socket)).await;
    let gone = [ErrorKind::NotFound, ErrorKind::ConnectionRefused];
    matches!(reached, Some(Err(error)) if gone.contains(&error.kind()))
}

/// Connects; a socket that nobody listens on yet is tried again for as long as `patience`, since a QEMU that is starting makes it first.
async fn reach(env: &Env, socket: &Path, patience: Duration) -> std::io::Result<UnixStream> {
    let until = env.monotonic() + patience;
    loop {
        match UnixStream::connect(socket).await {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused && env.monotonic() < until => {
                env.sleep(Duration::from_millis(5)).await;
            }
            reached => return reached,
        }
    }
}

/// What comes of something, unless it takes longer.
pub(crate) async fn within<T>(env: &Env, patience: Duration, what: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = what => Some(done),
        () = env.sleep(patience) => None,
    }
}
