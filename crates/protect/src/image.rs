//! Image files: looked at by `qemu-img`, and served by `qemu-nbd` to ourselves, on a socket in a folder that nobody else may enter.
//!
//! *Promises*: an image is never written to; a qcow2 image that a running machine has open is refused, by QEMU's own locks; the program ends with what
//! it is read by, also when we are killed: the kernel sees to that, and it goes when its one client goes. *Never*: guesses an image's format anew: a guest that writes the
//! header of another format onto its raw disk would have us read what that names. What is told when a source is added is kept.

mod whole;

pub(crate) use whole::check_chain;
pub use whole::check_whole;

use crate::hypervisor::last_words;
use crate::nbd::{Client, Wire, connect_unix};
use serde::Deserialize;
use std::fs::{File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result};
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::sync::oneshot;

const INSTALL: &str =
    "install it: apt install qemu-utils (Debian, Ubuntu) or dnf install qemu-img (Fedora, RHEL)";
/// Until qemu-nbd listens: it opens all files that an image is built on first.
const START_MAX: Duration = Duration::from_secs(30);
/// How often it is started before that is given up, and how long after the last time.
const TRIES_MAX: u32 = 4;
const AGAIN: Duration = Duration::from_millis(300);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A raw image is whole sectors; other files seldom are.
const SECTOR_BYTES: u64 = 512;

#[derive(Deserialize)]
struct Info {
    format: String,
    #[serde(default)]
    encrypted: bool,
}

/// The format of an image that can be read; `format` is what somebody says it has.
pub(crate) async fn inspect(path: &str, format: Option<&str>) -> Result<String> {
    let (path, format) = (PathBuf::from(path), format.map(str::to_owned));
    aside(move || look(&path, format.as_deref())).await?
}

fn look(path: &Path, format: Option<&str>) -> Result<String> {
    let shown = path.display();
    let invalid = |what: String, remedy: &str| Err(Error::new(Kind::Invalid, what).remedy(remedy));
    // What begins with a slash is never taken for one of QEMU's protocols, either.
    if !path.is_absolute() {
        return invalid(format!("'{shown}' is no path from the root on"), "name the file from the root on");
    }
    let is_format = |text: &str| {
        text.len() <= 16 && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    if let Some(format) = format.filter(|format| !is_format(format)) {
        let what = format!("'{}' is no format of an image", format.escape_debug());
        return invalid(what, "name one that qemu-img knows: raw, qcow2, vmdk, vhdx, vdi or vpc");
    }
    let meta = std::fs::metadata(path).map_err(|e| {
        Error::io(format!("image '{shown}' cannot be read"), e)
            .remedy("name a file that the server can read, on the server's machine")
    })?;
    // Reading a pipe would wait for a writer, and reading a character device might never end.
    if !meta.is_file() && !meta.file_type().is_block_device() {
        return invalid(format!("'{shown}' is neither a file nor a block device"), "name an image file");
    }
    let mut command = Command::new("qemu-img");
    command.args(["info", "--output=json"]);
    if let Some(format) = format {
        command.args(["-f", format]);
    }
    let output = command.arg(path).stdin(Stdio::null()).output().map_err(|e| missing("qemu-img", e))?;
    if !output.status.success() {
        let why = last_words(&output.stderr);
        let remedy = "check that it is whole, and of that format: raw, qcow2, vmdk, vhdx, vdi, vpc or another of qemu-img's";
        return invalid(format!("'{shown}' cannot be read as a disk image: {why}"), remedy);
    }
    let info: Info = serde_json::from_slice(&output.stdout).map_err(|e| {
        Error::new(Kind::Unsupported, format!("qemu-img told something strange of '{shown}': {e}"))
    })?;
    if info.encrypted {
        let what = format!("'{shown}' is encrypted");
        return Err(Error::new(Kind::Unsupported, what).remedy("decrypt it first, with qemu-img convert"));
    }
    // To QEMU every file is a raw image. One that is no whole number of sectors was hardly meant.
    if format.is_none() && info.format == "raw" && meta.is_file() && meta.len() % SECTOR_BYTES != 0 {
        let what = format!("'{shown}' is no disk image that qemu-img knows");
        return invalid(what, "if it holds a disk's bytes as they are, add --format raw");
    }
    Ok(info.format)
}

/// An image file as it was once: QEMU's locks keep nobody from writing a raw one that is read.
pub(crate) struct Seen {
    path: PathBuf,
    changed: Option<[i64; 4]>,
}

impl Seen {
    /// As it is now.
    pub(crate) async fn now(path: &str) -> Result<Seen> {
        let path = PathBuf::from(path);
        aside(move || Seen { changed: changed(&path), path }).await
    }

    /// Fails where it was written since. Of a block device nothing is known.
    pub(crate) async fn check(&self) -> Result<()> {
        let path = self.path.clone();
        if aside(move || changed(&path)).await? == self.changed {
            return Ok(());
        }
        let what = format!("image '{}' was written while it was read", self.path.display());
        let remedy = "stop who writes it, or back its guest up (--qmp, --libvirt), and run it again";
        Err(Error::new(Kind::Conflict, what).remedy(remedy))
    }
}

/// When a file was changed last: seconds and nanoseconds of its content, and of what is said of it.
fn changed(path: &Path) -> Option<[i64; 4]> {
    let told = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    Some([told.mtime(), told.mtime_nsec(), told.ctime(), told.ctime_nsec()])
}

/// A qemu-nbd that serves one image to one client. It ends with this.
pub(crate) struct Served {
    socket: PathBuf,
    log: PathBuf,
    process: u32,
    has_gone: Arc<AtomicBool>,
    /// Ends the thread that keeps it.
    _end: mpsc::Sender<()>,
}

/// Serves an image, and connects to it.
pub(crate) async fn connect(
    env: &Env,
    path: &str,
    format: &str,
    patience: Duration,
) -> Result<(Client, Served)> {
    let named = |e: Error| e.context(format!("image '{path}'"));
    let mut tries = 1;
    loop {
        let served = Served::start(Path::new(path), format).await.map_err(named)?;
        let stream = served.reach(env).await.map_err(named)?;
        match Client::over(env, Wire::unix(stream), ("", None), patience).await {
            Ok(client) => return Ok((client, served)),
            // It listens before it has all it needs, and may go again: another holds a lock for a moment, say.
            Err(error) if tries < TRIES_MAX && error.kind() == Kind::Io => {
                tracing::info!("image '{path}' is tried again: {error}{}", served.said());
            }
            Err(error) => {
                env.sleep(AGAIN).await;
                // Why it has gone is what there is to tell then, and nothing of a handshake.
                let failed = match served.has_gone.load(Ordering::SeqCst) {
                    true => served.failure("it cannot be served"),
                    false => error.context(format!("qemu-nbd{}", served.said())),
                };
                return Err(named(failed));
            }
        }
        tries += 1;
        env.sleep(AGAIN).await;
    }
}

impl Served {
    /// Starts it on a thread that keeps it: the kernel ends it with that thread, however we end.
    async fn start(path: &Path, format: &str) -> Result<Served> {
        let failed = |e| Error::io("starting qemu-nbd", e);
        let (tell, told) = oneshot::channel();
        let (end, ended) = mpsc::channel();
        let has_gone = Arc::new(AtomicBool::new(false));
        let (path, format, gone) = (path.to_owned(), format.to_owned(), has_gone.clone());
        let work = move || match spawn(&path, &format) {
            Err(error) => drop(tell.send(Err(error))),
            // The folder goes after what is in it.
            Ok((child, folder)) => {
                let told = (folder.path().join("socket"), folder.path().join("log"), child.id());
                // Whoever asked may have gone; then so has the other end.
                let _ = tell.send(Ok(told));
                keep(child, &ended, &gone);
            }
        };
        std::thread::Builder::new().name("image".into()).spawn(work).map_err(failed)?;
        let lost = || Error::new(Kind::Io, "the thread that starts qemu-nbd has gone");
        let (socket, log, process) = told.await.map_err(|_| lost())??;
        Ok(Served { socket, log, process, has_gone, _end: end })
    }

    /// Connects once it listens. There is one attempt that succeeds: with its first client it goes.
    async fn reach(&self, env: &Env) -> Result<UnixStream> {
        let until = env.monotonic() + START_MAX;
        loop {
            // Before it is tried: what it says when it goes is there then.
            let has_gone = self.has_gone.load(Ordering::SeqCst);
            match connect_unix(&self.socket).await {
                Ok(stream) => return Ok(stream),
                // Not there yet, or not any more; reset, where it goes with the connection not yet accepted.
                Err(e)
                    if [ErrorKind::NotFound, ErrorKind::ConnectionRefused, ErrorKind::ConnectionReset]
                        .contains(&e.kind()) => {}
                Err(e) => return Err(Error::io("connecting to qemu-nbd", e)),
            }
            if has_gone {
                return Err(self.failure("it cannot be served"));
            }
            if env.monotonic() > until {
                let what = format!("qemu-nbd (process {}) does not serve it in time", self.process);
                return Err(self.failure(&what));
            }
            env.sleep(LOOK_EVERY).await;
        }
    }

    /// What it complained of, in brackets; nothing where it has not.
    fn said(&self) -> String {
        let said = std::fs::read(&self.log).unwrap_or_default();
        if said.is_empty() { String::new() } else { format!(" ({})", last_words(&said)) }
    }

    fn failure(&self, what: &str) -> Error {
        let said = std::fs::read(&self.log).unwrap_or_default();
        Error::new(Kind::Io, format!("{what}: {}", last_words(&said)))
            .remedy("look whether the file is there, whole, and in no machine's use")
    }
}

/// A program, and the folder with its socket and with what it says, which only its owner may enter.
fn spawn(path: &Path, format: &str) -> Result<(Child, TempDir)> {
    let failed = |e| Error::io("starting qemu-nbd", e);
    let mut made = tempfile::Builder::new();
    // Without that it would be anybody's to enter.
    made.prefix("stonefold-image-").permissions(Permissions::from_mode(0o700));
    let folder = made.tempdir().map_err(failed)?;
    let start = |program: &str, before: &[&str]| {
        let log = File::create(folder.path().join("log"))?;
        let mut command = Command::new(program);
        command.args(before).args(["--read-only", "--shared=1", "--format", format, "--socket"]);
        command.arg(folder.path().join("socket")).arg(path);
        // In a group of its own: a terminal's Ctrl-C does not reach it, so that things stop in their order.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()
    };
    let child = match start("setpriv", &["--pdeathsig", "KILL", "--", "qemu-nbd"]) {
        // Without setpriv, of util-linux, it goes with its client; only what is killed before that has connected leaves it.
        Err(e) if e.kind() == ErrorKind::NotFound => start("qemu-nbd", &[]),
        started => started,
    };
    Ok((child.map_err(|e| missing("qemu-nbd", e))?, folder))
}

/// Waits until it goes by itself or is to go.
fn keep(mut child: Child, ended: &mpsc::Receiver<()>, has_gone: &AtomicBool) {
    while ended.recv_timeout(LOOK_EVERY * 10) == Err(RecvTimeoutError::Timeout) {
        if !has_gone.load(Ordering::SeqCst) {
            has_gone.store(matches!(child.try_wait(), Ok(Some(_))), Ordering::SeqCst);
        }
    }
    // It may have gone by itself.
    let _ = child.kill();
    let _ = child.wait();
}

/// Runs what may take its time, as a file on a network that does not answer does, on a thread of its own: the workers are the fold's.
pub(crate) async fn aside<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let (tell, told) = oneshot::channel();
    let work = move || {
        // Whoever asked may have gone.
        let _ = tell.send(job());
    };
    let failed = |e| Error::io("starting a thread that looks at an image", e);
    std::thread::Builder::new().name("image".into()).spawn(work).map_err(failed)?;
    told.await.map_err(|_| Error::new(Kind::Io, "the thread that looked at an image has gone"))
}

fn missing(program: &str, error: std::io::Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound => {
            let what = format!("{program}, which reads image files, is not installed");
            Error::new(Kind::NotFound, what).remedy(INSTALL)
        }
        _ => Error::io(format!("{program} does not run"), error).remedy("install it again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stonefold_env::SystemWorld;

    /// Goal: the program that serves an image ends with what it is read by, whichever of both goes first.
    #[tokio::test]
    async fn nothing_goes_on_serving() {
        let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap());
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("a,b image");
        std::fs::write(&image, vec![7; 1 << 20]).unwrap();
        let path = image.to_str().unwrap();
        assert_eq!(inspect(path, None).await.unwrap(), "raw");
        for served_first in [true, false] {
            let patience = Duration::from_secs(20);
            let (client, served) = connect(&env, path, "raw", patience).await.unwrap();
            assert_eq!(client.export().bytes, 1 << 20);
            assert!(client.read(0, 4096).await.unwrap().bytes.iter().all(|byte| *byte == 7));
            let (process, folder) = (served.process, served.socket.parent().unwrap().to_owned());
            let is_there = || Path::new(&format!("/proc/{process}/exe")).read_link().is_ok();
            assert!(is_there() && folder.exists());
            let mode = std::fs::metadata(&folder).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "nobody else may enter");
            if served_first {
                drop(served);
                while is_there() || folder.exists() {
                    env.sleep(LOOK_EVERY).await;
                }
                continue;
            }
            // As when we are killed: nothing but the connection ends.
            drop(client);
            while is_there() {
                env.sleep(LOOK_EVERY).await;
            }
            assert!(folder.exists());
            drop(served);
            while folder.exists() {
                env.sleep(LOOK_EVERY).await;
            }
        }
    }

    #[tokio::test]
    async fn an_image_that_was_written_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        std::fs::write(&image, [1; 4096]).unwrap();
        let seen = Seen::now(image.to_str().unwrap()).await.unwrap();
        seen.check().await.unwrap();
        // A tick of the kernel's clock, by which it notes changes.
        std::thread::sleep(Duration::from_millis(20));
        std::fs::write(&image, [1; 4096]).unwrap();
        let error = seen.check().await.unwrap_err();
        assert!(error.to_string().contains("was written while it was read"), "{error}");
    }

    #[tokio::test]
    async fn what_is_no_image_is_refused_with_the_reason() {
        let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap());
        let folder = tempfile::tempdir().unwrap();
        let broken = folder.path().join("broken.qcow2");
        std::fs::write(&broken, b"QFI\xfb\0\0\0\x09nonsense").unwrap();
        for (path, format, why) in [
            ("image", None, "from the root on"),
            ("/nowhere/image", None, "'/nowhere/image' cannot be read"),
            ("/dev/zero", None, "neither a file nor a block device"),
            (broken.to_str().unwrap(), None, "cannot be read as a disk image"),
            (broken.to_str().unwrap(), Some("-x raw"), "no format"),
        ] {
            let error = inspect(path, format).await.unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        }
        let patience = Duration::from_secs(20);
        let gone = connect(&env, "/nowhere/image", "raw", patience).await.err().unwrap();
        assert!(gone.to_string().contains("image '/nowhere/image': it cannot be served"), "{gone}");
        assert!(gone.to_string().contains("No such file"), "{gone}");
    }
}
