//! A server of the lab's own between a load and its target: QEMU's storage daemon, which serves what lies behind it as an
//! export, and moves it elsewhere meanwhile.
//!
//! A machine's disk is moved home by its hypervisor's mirror while it runs. QEMU's storage daemon has the same mirror, and no
//! machine: so the lab can move a disk under any load of its own, whatever serves it.
//!
//! *Promises*: what was written before the move or during it is read after it, or the load is told of an error; when the front
//! goes, the daemon goes. *Never*: moves to what holds data that is not the lab's own, unless that was asked for; follows a
//! target that was not named. *Owns*: a daemon, and two sockets in a folder of its caller's.

mod node;
mod qmp;

use crate::target::{Opened, TargetSpec};
use node::node;
use qmp::Qmp;
use serde_json::{Value, json};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result};

const PROGRAM: &str = "qemu-storage-daemon";
/// What lies behind the export at first, and where it is moved to.
const HOME: &str = "home";
const NEW_HOME: &str = "new-home";
/// The mirror's name.
const JOB: &str = "move";
/// Until the daemon answers.
const START_MAX: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Lines of what the daemon said that are told when it ends.
const LINES_TOLD: usize = 3;

/// See the module.
pub(crate) struct Front {
    daemon: Child,
    qmp: Qmp,
    socket: PathBuf,
    log: PathBuf,
    version: String,
    /// Held while it lies there.
    home: Opened,
    /// Where it is moved to; held, too.
    new_home: Option<Opened>,
}

/// How far a move is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Bytes that were copied, those that had been written anew meanwhile counted again.
    pub done: u64,
    /// Bytes that there are to copy, as far as is known.
    pub of: u64,
    /// Both homes are alike, and every write goes to both.
    pub alike: bool,
    /// It has ended, and the load is on its new home.
    pub moved: bool,
}

impl Front {
    /// Serves a target of at least `bytes`, with its sockets in `folder`. What it holds may go with `destroy_data`, or where `is_ours` says so of
    /// its beginning.
    ///
    /// # Errors
    /// [`Kind::NotFound`] where QEMU's storage daemon is missing; [`Kind::Unsupported`] for a target that it does not serve; else
    /// why the target does not open.
    pub(crate) fn new(
        env: &Env,
        (target, bytes): (&TargetSpec, u64),
        folder: &Path,
        destroy_data: bool,
        is_ours: fn(&[u8]) -> bool,
    ) -> Result<Self> {
        let mut home = Opened::new(target, bytes)?;
        if !destroy_data && !is_ours(&home.beginning()?) {
            home.check_own()?;
        }
        home.grow()?;
        let (socket, control, log) = (folder.join("front"), folder.join("qmp"), folder.join("front-log"));
        let failed = |e| Error::io(format!("starting {PROGRAM}"), e);
        let file = File::create(&log).map_err(failed)?;
        let mut command = Command::new(PROGRAM);
        command
            .args(["--chardev", &format!("socket,id=control,path={},server=on,wait=off", control.display())])
            .args(["--monitor", "chardev=control"])
            .args(["--blockdev", &node(HOME, target)?.to_string()])
            .args([
                "--nbd-server",
                &format!("addr.type=unix,addr.path={},max-connections=0", socket.display()),
            ])
            .args(["--export", &format!("type=nbd,id=front,node-name={HOME},name=disk,writable=on")]);
        // In a group of its own: a terminal's Ctrl-C does not reach it, so that things stop in their order.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let mut daemon = command.spawn().map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                Error::new(Kind::NotFound, format!("the program {PROGRAM} is not there"))
                    .remedy("install the package qemu-system-common")
            }
            _ => failed(e),
        })?;
        match connected(env, &mut daemon, &control, &socket, &log) {
            Ok(qmp) => {
                let version = qmp.version().to_owned();
                Ok(Front { daemon, qmp, socket, log, version, home, new_home: None })
            }
            Err(error) => {
                let _ = daemon.kill();
                let _ = daemon.wait();
                Err(error.context(format!("serving {target}")))
            }
        }
    }

    /// The export, for whatever load.
    pub(crate) fn target(&self) -> TargetSpec {
        let text = format!("nbd+unix:///disk?socket={}", self.socket.display());
        text.parse().expect("a path in a folder of the lab's own is plain")
    }

    /// The daemon's, as it tells it.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Names where everything is to be moved: a target of the same size, which a file becomes. Held from then on.
    ///
    /// # Errors
    /// Why it does not open, is of another size, is where everything lies already, or holds data of others. `is_ours` tells of its
    /// beginning whether what it holds may go; so may all with `destroy_data`.
    pub(crate) fn choose(
        &mut self,
        to: &TargetSpec,
        destroy_data: bool,
        is_ours: fn(&[u8]) -> bool,
    ) -> Result<()> {
        let home = self.home.name();
        if to == home {
            return Err(Error::new(Kind::Invalid, format!("everything lies on {to} already"))
                .remedy("name another target with --to"));
        }
        node(NEW_HOME, to)?;
        let mut new_home = Opened::new(to, self.home.bytes)?;
        if new_home.bytes != self.home.bytes {
            let what = format!("{to} has {} bytes, and {home} has {}", new_home.bytes, self.home.bytes);
            return Err(Error::new(Kind::Invalid, what)
                .remedy("name one of the same size, or a file that is not there"));
        }
        if !destroy_data && !is_ours(&new_home.beginning()?) {
            new_home.check_own()?;
        }
        new_home.grow()?;
        self.new_home = Some(new_home);
        Ok(())
    }

    /// Begins to move everything to what was [chosen](Front::choose). Writes go to both from the time on when a block was copied, and
    /// are acknowledged when both have them.
    ///
    /// # Errors
    /// What the daemon says.
    pub(crate) fn begin_move(&mut self) -> Result<()> {
        let chosen = self.new_home.as_ref().map(|new_home| node(NEW_HOME, new_home.name()));
        let chosen =
            chosen.unwrap_or_else(|| Err(Error::new(Kind::Invalid, "nobody has said where to move")))?;
        self.ask("blockdev-add", chosen)?;
        self.ask(
            "blockdev-mirror",
            json!({
                "job-id": JOB, "device": HOME, "target": NEW_HOME, "sync": "full",
                "copy-mode": "write-blocking", "auto-dismiss": false,
            }),
        )
        .map(drop)
    }

    /// How far the move is.
    ///
    /// # Errors
    /// What ended it before its time.
    pub(crate) fn progress(&mut self) -> Result<Progress> {
        let jobs = self.ask("query-jobs", json!({}))?;
        let job = jobs.as_array().and_then(|jobs| jobs.iter().find(|job| job["id"] == JOB)).cloned();
        let Some(job) = job else {
            return Err(Error::new(Kind::Io, "the move has ended, and nobody says how"));
        };
        if let Some(error) = job["error"].as_str() {
            return Err(Error::new(Kind::Io, format!("the move failed: {error}"))
                .remedy("look whether the new home answers and has room"));
        }
        let bytes = |name: &str| job[name].as_u64().unwrap_or(0);
        let status = job["status"].as_str().unwrap_or_default();
        Ok(Progress {
            done: bytes("current-progress"),
            of: bytes("total-progress"),
            alike: status == "ready",
            moved: status == "concluded",
        })
    }

    /// Ends a move whose homes are alike: from then on the load is on its new home alone.
    ///
    /// # Errors
    /// What the daemon says.
    pub(crate) fn finish_move(&mut self) -> Result<()> {
        self.ask("job-complete", json!({ "id": JOB })).map(drop)
    }

    /// Gives up a move: the load stays where it is.
    ///
    /// # Errors
    /// What the daemon says.
    pub(crate) fn give_up_move(&mut self) -> Result<()> {
        self.ask("job-cancel", json!({ "id": JOB })).map(drop)
    }

    fn ask(&mut self, what: &str, arguments: Value) -> Result<Value> {
        self.qmp.ask(what, arguments).map_err(|error| match self.daemon.try_wait() {
            Ok(Some(status)) => Error::new(
                Kind::Io,
                format!("{PROGRAM} ended by itself ({status}): {}", last_words(&self.log)),
            ),
            _ => error,
        })
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        // In good order, so that nothing stays in a cache of its own; by force where it does not listen.
        let told = self.qmp.ask("quit", json!({}));
        for _ in 0..if told.is_ok() { 500 } else { 0 } {
            if matches!(self.daemon.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// Waits until both sockets answer.
fn connected(env: &Env, daemon: &mut Child, control: &Path, socket: &Path, log: &Path) -> Result<Qmp> {
    let patience = env.monotonic() + START_MAX;
    loop {
        if let Ok(Some(status)) = daemon.try_wait() {
            let what = format!("{PROGRAM} ended by itself ({status}): {}", last_words(log));
            return Err(Error::new(Kind::Io, what));
        }
        let qmp =
            if socket.exists() { Qmp::connect(control) } else { Err(Error::new(Kind::Io, "no socket yet")) };
        match qmp {
            Ok(qmp) => return Ok(qmp),
            Err(error) if env.monotonic() > patience => return Err(error),
            Err(_) => std::thread::sleep(LOOK_EVERY),
        }
    }
}

fn last_words(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LINES_TOLD)..].join("; ")
}
