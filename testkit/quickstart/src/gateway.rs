//! `stonefold serve` on the run's pool, and the commands sent to it, as a user would send them.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use stonefold_guest::{NbdDisk, cancel, nbd, process, time::Deadline, time::Stopwatch};

use crate::folder::Folder;

const READY_WITHIN: Duration = Duration::from_secs(60);
const STOPPED_WITHIN: Duration = Duration::from_secs(30);
/// For commands that promise to take no time at all.
const COMMAND_WITHIN: Duration = Duration::from_secs(60);
const NBD_ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// An import of a large image from a slow disk takes its time; an endless one is found out some day.
const IMPORT_WITHIN: Duration = Duration::from_secs(2 * 3600);

pub(crate) struct Gateway {
    binary: PathBuf,
    server: Child,
    api: String,
    socket: PathBuf,
    pool: PathBuf,
    log: PathBuf,
}

impl Gateway {
    /// Starts the server and waits until its doors are open.
    pub(crate) fn start(binary: &Path, folder: &Folder) -> Result<Self> {
        fs::create_dir_all(folder.logs())?;
        let log = folder.logs().join("serve.log");
        let messages = File::create(&log).with_context(|| format!("could not create {}", log.display()))?;
        let api = format!("127.0.0.1:{}", free_port()?);
        let (socket, pool) = (folder.socket(), folder.pool());
        let mut server = process::tied_to_us(binary, "TERM")
            .args(["serve", "--pool", &format!("file://{}", pool.display())])
            .args(["--nbd", &format!("unix://{}", socket.display()), "--api", &api, "--cache", "256M"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(messages.try_clone()?)
            .spawn()
            .with_context(|| format!("could not start {}", binary.display()))?;
        let output = server.stdout.take();
        // From here on the server is stopped by going out of scope, whatever happens.
        let gateway = Self { binary: binary.into(), server, api: format!("http://{api}"), socket, pool, log };
        let lines = follow(output.context("the server was started without its output")?, messages)?;
        gateway.wait_until_ready(&lines)?;
        Ok(gateway)
    }

    fn wait_until_ready(&self, lines: &Receiver<String>) -> Result<()> {
        let deadline = Deadline::after(READY_WITHIN);
        loop {
            match lines.recv_timeout(Duration::from_millis(50)) {
                Ok(line) if line.starts_with("ready") => return Ok(()),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) if deadline.passed() => {
                    bail!(
                        "stonefold serve did not say `ready` within {} s\n{}",
                        READY_WITHIN.as_secs(),
                        self.log_tail()
                    )
                }
                Err(RecvTimeoutError::Timeout) => cancel::check()?,
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("stonefold serve ended before it was ready\n{}", self.log_tail())
                }
            }
        }
    }

    /// Runs `stonefold …` against the server; gives back how long the whole process took.
    pub(crate) fn command(&self, words: &[&str]) -> Result<Duration> {
        self.command_within(words, COMMAND_WITHIN)
    }

    /// Imports an image file; it is opened for reading only.
    pub(crate) fn import(&self, disk: &str, image: &Path) -> Result<Duration> {
        self.command_within(&["disk", "import", disk, &image.to_string_lossy()], IMPORT_WITHIN)
    }

    fn command_within(&self, words: &[&str], allowed: Duration) -> Result<Duration> {
        let watch = Stopwatch::start();
        let finished =
            process::run(Command::new(&self.binary).args(["--api", &self.api]).args(words), allowed)?;
        let took = watch.elapsed();
        if finished.status.success() {
            return Ok(took);
        }
        let said = format!("{}{}", finished.stdout, finished.stderr);
        Err(anyhow!(
            "`stonefold {}` failed ({}): {}\n{}",
            words.join(" "),
            finished.status,
            said.trim(),
            self.log_tail()
        ))
    }

    /// The export of a disk or snapshot, as a guest's disk.
    pub(crate) fn disk(&self, export: &str) -> NbdDisk {
        NbdDisk::new(&self.socket, export)
    }

    /// The export of a disk or snapshot, for a program that takes an NBD address.
    pub(crate) fn address(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.socket.display())
    }

    /// A connection to read the export of a disk or snapshot with.
    pub(crate) fn connect(&self, export: &str) -> Result<nbd::Client> {
        nbd::Client::connect(&self.socket, export, NBD_ANSWER_WITHIN)
    }

    /// Empties Stonefold's cache, and the kernel's cache of the pool's files, so that the next read comes from the disk.
    pub(crate) fn make_cold(&self) -> Result<()> {
        self.command(&["cache", "drop"])?;
        drop_from_kernel_cache(&self.pool)
    }

    /// Asks the server to stop, and waits until it has.
    pub(crate) fn stop(&mut self) -> Result<()> {
        if !process::stop(&mut self.server, STOPPED_WITHIN) {
            bail!(
                "stonefold serve did not stop within {} s and was killed\n{}",
                STOPPED_WITHIN.as_secs(),
                self.log_tail()
            );
        }
        match self.server.try_wait() {
            Ok(Some(status)) if status.success() => Ok(()),
            other => bail!("stonefold serve did not stop cleanly ({other:?})\n{}", self.log_tail()),
        }
    }

    fn log_tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(8)..].join("\n    ");
        format!("the server's last words ({}):\n    {last}", self.log.display())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        process::stop(&mut self.server, STOPPED_WITHIN);
    }
}

/// A port that is free now. Another program could take it before the server does; the server then says so and we fail.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port of 127.0.0.1 is free")?;
    Ok(listener.local_addr()?.port())
}

/// Passes on the server's lines and keeps them in the log; goes on reading for ever, so that the server never blocks on it.
fn follow(output: impl Read + Send + 'static, mut log: File) -> Result<Receiver<String>> {
    let (lines, receiver) = channel();
    thread::Builder::new()
        .name("serve-output".into())
        .spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = writeln!(log, "{line}");
                let _ = lines.send(line);
            }
        })
        .context("could not start a thread")?;
    Ok(receiver)
}

/// `dd … iflag=nocache count=0` is how coreutils spells posix_fadvise(DONTNEED) on a whole file; it needs no privilege.
fn drop_from_kernel_cache(folder: &Path) -> Result<()> {
    let mut find = Command::new("find");
    find.arg(folder).args([
        "-type",
        "f",
        "-exec",
        "dd",
        "if={}",
        "iflag=nocache",
        "count=0",
        "status=none",
        ";",
    ]);
    let finished = process::run(&mut find, COMMAND_WITHIN)?;
    if !finished.status.success() {
        bail!("could not drop the pool's files from the kernel's cache: {}", finished.stderr.trim());
    }
    Ok(())
}
