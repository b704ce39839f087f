//! A running `stonefold serve`, in a folder of its own: started, killed, started again, asked by the command line.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use stonefold_guest::process::{self, Finished};
use stonefold_guest::time::Stopwatch;
use tempfile::TempDir;

use crate::binary::stonefold;
use crate::clocks;
use crate::nbd::Connection;

/// From start to `ready`. The goal is 2 s; here other tests run beside.
const READY_MAX: Duration = Duration::from_secs(30);
/// A command of the command line.
const COMMAND_MAX: Duration = Duration::from_secs(60);
/// An orderly stop, which folds everything.
const STOP_MAX: Duration = Duration::from_secs(60);
/// Lines of the log that a failure shows.
const TAIL_LINES: usize = 25;

/// Runs a test in a new place; when it fails, the place is kept and the error says where.
///
/// # Panics
/// When the test fails.
pub fn in_a_place(test: impl FnOnce(&Place) -> Result<()>) {
    let place = Place::new().expect("a folder for the test");
    if let Err(error) = test(&place) {
        panic!("{error:#}");
    }
}

/// Where a server lives: its pool, its sockets, its log. Programs in its folder `bin` are found before all others.
pub struct Place {
    folder: Option<TempDir>,
    root: PathBuf,
    pool: PathBuf,
    /// The pool's URL, where it is in no directory.
    url: Option<String>,
}

impl Place {
    /// A new folder; it stays when the test fails.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("stonefold-e2e-").tempdir()?;
        let root = folder.path().to_owned();
        Ok(Place { pool: root.join("pool"), url: None, folder: Some(folder), root })
    }

    /// The same with the pool elsewhere.
    #[must_use]
    pub fn with_pool(mut self, pool: &Path) -> Self {
        self.pool = pool.to_owned();
        self
    }

    /// The same with the pool at a URL.
    #[must_use]
    pub fn with_url(mut self, url: &str) -> Self {
        self.url = Some(url.to_owned());
        self
    }

    /// The pool's directory.
    pub fn pool(&self) -> &Path {
        &self.pool
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The same as text.
    pub fn text(&self, name: &str) -> String {
        self.path(name).to_string_lossy().into_owned()
    }

    /// The NBD socket.
    pub fn nbd(&self) -> PathBuf {
        self.path("nbd.sock")
    }

    /// What NBD clients are told.
    pub fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.text("nbd.sock"))
    }

    /// The API's address.
    pub fn api(&self) -> String {
        format!("unix://{}", self.text("api.sock"))
    }

    /// A command that serves this place.
    ///
    /// # Errors
    /// When there is no binary.
    pub fn serve(&self, arguments: &[&str]) -> Result<Command> {
        Ok(self.serve_by(stonefold()?, arguments))
    }

    fn serve_by(&self, binary: &Path, arguments: &[&str]) -> Command {
        let mut command = process::tied_to_us(binary, "KILL");
        command
            .arg("serve")
            .arg("--pool")
            .arg(self.url.clone().unwrap_or_else(|| format!("file://{}", self.pool.display())))
            .arg("--nbd")
            .arg(format!("unix://{}", self.text("nbd.sock")))
            .arg("--api")
            .arg(self.api())
            .args(arguments)
            .env_remove("RUST_LOG")
            .env_remove("STONEFOLD_API");
        let programs = self.path("bin");
        if programs.is_dir() {
            let others = std::env::var("PATH").unwrap_or_default();
            command.env("PATH", format!("{}:{others}", programs.display()));
        }
        clocks::set(&mut command, &self.path(clocks::FILE));
        command
    }

    /// Starts a server that is not ready yet.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn begin(&self, arguments: &[&str]) -> Result<Starting> {
        self.begin_by(stonefold()?, arguments)
    }

    fn begin_by(&self, binary: &Path, arguments: &[&str]) -> Result<Starting> {
        let log = OpenOptions::new().create(true).append(true).open(self.path("server.log"))?;
        let since = Stopwatch::start();
        let mut command = self.serve_by(binary, arguments);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn()?;
        let said = listen(child.stdout.take().context("its output is a pipe")?)?;
        Ok(Starting { child: Some(child), said, since, log: self.path("server.log") })
    }

    /// Starts a server and waits until it is ready.
    ///
    /// # Errors
    /// When it does not get ready in time.
    pub fn start(&self, arguments: &[&str]) -> Result<Gateway> {
        self.begin(arguments)?.ready()
    }

    /// The same, with another binary than the one that is tested.
    ///
    /// # Errors
    /// When it does not get ready in time.
    pub fn start_by(&self, binary: &Path, arguments: &[&str]) -> Result<Gateway> {
        self.begin_by(binary, arguments)?.ready()
    }

    /// Serves, and gives up at once as it must: what it said, and its exit status.
    ///
    /// # Errors
    /// When it gets ready, or takes too long.
    pub fn refused(&self, arguments: &[&str]) -> Result<(String, i32)> {
        let finished = process::run(&mut self.serve(arguments)?, READY_MAX)?;
        ensure!(!finished.stdout.contains("ready"), "it got ready: {}", finished.stdout);
        Ok((finished.stderr, finished.status.code().context("it was killed")?))
    }

    /// Runs the command line against this place's server.
    ///
    /// # Errors
    /// When it cannot be run or takes too long; a failure of the command is no error here.
    pub fn run(&self, line: &str) -> Result<Finished> {
        self.run_within(line, COMMAND_MAX)
    }

    fn run_within(&self, line: &str, allowed: Duration) -> Result<Finished> {
        let mut command = Command::new(stonefold()?);
        command.args(line.split_whitespace()).env("STONEFOLD_API", self.api());
        process::run(&mut command, allowed)
    }

    /// Runs what must succeed; gives what it printed.
    ///
    /// # Errors
    /// When it fails, with what it said and the server's last words.
    pub fn ok(&self, line: &str) -> Result<String> {
        self.succeeds(line, COMMAND_MAX)
    }

    fn succeeds(&self, line: &str, allowed: Duration) -> Result<String> {
        let done = self.run_within(line, allowed)?;
        ensure!(done.status.success(), "stonefold {line}: {}\n{}", done.stderr, self.last_words());
        Ok(done.stdout)
    }

    /// Runs what must succeed and print JSON.
    ///
    /// # Errors
    /// As [`Place::ok`].
    pub fn json(&self, line: &str) -> Result<serde_json::Value> {
        self.json_within(line, COMMAND_MAX)
    }

    /// The same of what may take longer than other commands: a machine that boots, say.
    ///
    /// # Errors
    /// As [`Place::ok`].
    pub fn json_within(&self, line: &str, allowed: Duration) -> Result<serde_json::Value> {
        Ok(serde_json::from_str(&self.succeeds(&format!("{line} --json"), allowed)?)?)
    }

    /// What the server's API answers to a request without a body, with its head.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn asked(&self, method: &str, path: &str) -> Result<String> {
        let mut stream = UnixStream::connect(self.path("api.sock"))?;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// A number of the server's metrics that has no labels, by its whole name.
    ///
    /// # Errors
    /// When the server does not answer, or has no such number.
    pub fn metric(&self, name: &str) -> Result<u64> {
        let answer = self.asked("GET", "/metrics")?;
        let line = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(line.with_context(|| format!("no {name} in {answer}"))?.parse()?)
    }

    /// Runs what must fail with this status and print nothing; gives what it complained of.
    ///
    /// # Errors
    /// When it does otherwise.
    pub fn fails(&self, line: &str, status: i32) -> Result<String> {
        let done = self.run(line)?;
        let code = done.status.code();
        ensure!(
            code == Some(status),
            "stonefold {line} ended with {code:?}, not {status}: {}{}",
            done.stdout,
            done.stderr
        );
        ensure!(done.stdout.is_empty(), "stonefold {line} failed, and yet printed: {}", done.stdout);
        Ok(done.stderr)
    }

    /// Opens an export.
    ///
    /// # Errors
    /// When that fails, with the server's last words.
    pub fn connect(&self, export: &str) -> Result<Connection> {
        Connection::open(&self.nbd(), export).map_err(|error| self.explain(error))
    }

    /// Adds the server's last words to an error.
    pub fn explain(&self, error: impl Into<anyhow::Error>) -> anyhow::Error {
        anyhow!("{:#}\n{}", error.into(), self.last_words())
    }

    /// The end of the server's log.
    pub fn last_words(&self) -> String {
        last_words(&self.path("server.log"))
    }

    /// All that servers here have logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("server.log")).unwrap_or_default()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(folder) = self.folder.take().filter(|_| std::thread::panicking()) {
            eprintln!("the pool and the log are kept in {}", folder.keep().display());
        }
    }
}

/// A server that was started and has not said `ready`.
pub struct Starting {
    /// Taken when it becomes a gateway.
    child: Option<Child>,
    said: Receiver<String>,
    since: Stopwatch,
    log: PathBuf,
}

impl Starting {
    /// Waits until it is ready.
    ///
    /// # Errors
    /// When it ends or takes too long; it is then killed.
    pub fn ready(self) -> Result<Gateway> {
        self.ready_within(READY_MAX)
    }

    /// The same of one that has a reason to take longer.
    ///
    /// # Errors
    /// Likewise.
    pub fn ready_within(mut self, allowed: Duration) -> Result<Gateway> {
        let line = self.said.recv_timeout(allowed);
        let ready_after = self.since.elapsed();
        match line {
            Ok(line) if line.starts_with("ready ") => {}
            Ok(line) => bail!("the server said {line:?}, not that it is ready\n{}", last_words(&self.log)),
            Err(RecvTimeoutError::Timeout) => {
                bail!("the server was not ready in {} s\n{}", allowed.as_secs(), last_words(&self.log))
            }
            Err(RecvTimeoutError::Disconnected) => {
                bail!("the server ended before it was ready\n{}", last_words(&self.log))
            }
        }
        let child = self.child.take().context("it was started")?;
        Ok(Gateway { child, ready_after, log: self.log.clone() })
    }

    /// SIGKILL, though it may be in the middle of its recovery.
    pub fn kill(self) {}

    /// Asks it to stop.
    ///
    /// # Errors
    /// When it does not in time, not well, or after it said anything.
    pub fn stop(mut self) -> Result<()> {
        stop(self.child.as_mut().context("it was started")?, &self.log)?;
        let said: Vec<String> = self.said.iter().collect();
        ensure!(said.is_empty(), "a server that was stopped said {said:?}");
        Ok(())
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A running server; killed when it goes out of scope.
pub struct Gateway {
    child: Child,
    /// From start to `ready`.
    pub ready_after: Duration,
    log: PathBuf,
}

impl Gateway {
    /// SIGKILL, and waits until it is gone: its lock is, and the kernel has what it handed over.
    pub fn kill(self) {}

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it runs still.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks it to stop.
    ///
    /// # Errors
    /// When it does not in time, or not well.
    pub fn stop(mut self) -> Result<()> {
        stop(&mut self.child, &self.log)
    }
}

fn stop(child: &mut Child, log: &Path) -> Result<()> {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), rustix::process::Signal::TERM)?;
    let status = process::wait(child, STOP_MAX)
        .with_context(|| format!("the server does not stop\n{}", last_words(log)))?;
    ensure!(status.success(), "the server ended with {status}\n{}", last_words(log));
    Ok(())
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lines of its output, as they come; the pipe is emptied until it closes.
fn listen(output: std::process::ChildStdout) -> Result<Receiver<String>> {
    let (tell, told) = mpsc::channel();
    std::thread::Builder::new().name("server-output".into()).spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // Nobody listens after `ready`.
            let _ = tell.send(line);
        }
    })?;
    Ok(told)
}

fn last_words(log: &Path) -> String {
    let text = File::open(log).and_then(std::io::read_to_string).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let tail = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n    ");
    format!("the server's last words:\n    {tail}\nits whole log: {}", log.display())
}
