//! PostgreSQL, run as its own user, with its data wherever the test wants it; killed as hard as the rest.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use stonefold_guest::process;
use stonefold_guest::time::Deadline;

use crate::tools::{Beside, attempt, run};

/// Where Debian and Ubuntu have it, below a version.
const HOME: &str = "/usr/lib/postgresql";
/// The user that its package makes; it refuses to be run by root.
const USER: &str = "postgres";
/// Where it listens, where nothing else is said.
const PORT: &str = "5432";
/// For crash recovery, and for backends of a dead server to go.
const START_MAX: Duration = Duration::from_secs(60);
/// Small enough that pages are written and read again, and that checkpoints come during a test.
const SETTINGS: [&str; 8] = [
    "listen_addresses=",
    "shared_buffers=16MB",
    "max_wal_size=64MB",
    "min_wal_size=32MB",
    "checkpoint_timeout=30s",
    "autovacuum_naptime=5s",
    "log_min_messages=warning",
    "fsync=on",
];

/// The newest version's programs.
fn programs() -> Result<PathBuf> {
    let versions = fs::read_dir(HOME).into_iter().flatten().flatten().map(|entry| entry.path().join("bin"));
    let version = |path: &PathBuf| {
        let name = path.parent()?.file_name()?.to_str()?.parse::<u32>().ok()?;
        path.join("pg_amcheck").exists().then_some(name)
    };
    let newest = versions.filter(|path| version(path).is_some()).max_by_key(version);
    newest.context("there is no PostgreSQL 14 or newer; install the package postgresql")
}

/// A running server.
pub struct Postgres {
    server: Beside,
    programs: PathBuf,
    socket_folder: PathBuf,
    port: String,
}

impl Postgres {
    /// Makes a cluster, with checksums of its own, in a new folder.
    ///
    /// # Errors
    /// When initdb fails.
    pub fn init(data: &Path) -> Result<()> {
        fs::create_dir(data)?;
        run("chown", &[&format!("{USER}:"), &data.to_string_lossy()])?;
        let initdb = programs()?.join("initdb");
        as_user(
            &initdb,
            &["--pgdata", &data.to_string_lossy(), "--data-checksums", "--auth=trust", "-E", "UTF8"],
        )
        .map(drop)
    }

    /// Starts it and waits until it has recovered. `log` is added to.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start(data: &Path, socket_folder: &Path, log: &Path) -> Result<Self> {
        Postgres::start_told(data, socket_folder, log, &[])
    }

    /// The same, with settings more, each as `NAME=VALUE`; `port=` is that of its socket, too.
    ///
    /// # Errors
    /// See [`start`](Self::start).
    pub fn start_told(data: &Path, socket_folder: &Path, log: &Path, told: &[&str]) -> Result<Self> {
        let programs = programs()?;
        let port = told.iter().find_map(|setting| setting.strip_prefix("port=")).unwrap_or(PORT).to_owned();
        fs::create_dir_all(socket_folder)?;
        fs::set_permissions(socket_folder, fs::Permissions::from_mode(0o777))?;
        let mut settings = SETTINGS.map(|setting| format!(" -c {setting}")).concat();
        settings.extend(told.iter().map(|setting| format!(" -c '{setting}'")));
        let line = format!(
            "exec {} -D {} -k {}{settings} >>{} 2>&1",
            programs.join("postgres").display(),
            data.display(),
            socket_folder.display(),
            log.display()
        );
        let patience = Deadline::after(START_MAX);
        loop {
            let ready = || is_ready(&programs, socket_folder, &port);
            match Beside::start("setpriv", &as_user_arguments(Path::new("sh"), &["-c", &line]), ready) {
                Ok(server) => {
                    return Ok(Postgres { server, programs, socket_folder: socket_folder.to_owned(), port });
                }
                // Backends of the dead one may still be going.
                Err(_) if !patience.passed() => std::thread::sleep(Duration::from_millis(500)),
                Err(error) => {
                    let said = fs::read_to_string(log).unwrap_or_default();
                    let tail: Vec<&str> = said.lines().rev().take(25).collect();
                    bail!("PostgreSQL does not start: {error:#}\n{}", tail.join("\n"));
                }
            }
        }
    }

    /// One answer of one statement, without ornament.
    ///
    /// # Errors
    /// When it fails.
    pub fn ask(&self, statement: &str) -> Result<String> {
        let said =
            self.tool("psql", &["-qAt", "-v", "ON_ERROR_STOP=1", "-d", "postgres", "-c", statement])?;
        Ok(said.trim().to_owned())
    }

    /// Runs one of its programs against it.
    ///
    /// # Errors
    /// When it fails.
    pub fn tool(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let socket = self.socket_folder.to_string_lossy();
        let all = [&["-h", &*socket, "-p", &*self.port, "-U", USER], arguments].concat();
        as_user(&self.programs.join(program), &all)
    }

    /// A program of its own that runs beside the test.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn beside(&self, program: &str, arguments: &[&str]) -> Result<Beside> {
        let socket = self.socket_folder.to_string_lossy();
        let all = [&["-h", &*socket, "-p", &*self.port, "-U", USER], arguments].concat();
        Beside::start("setpriv", &as_user_arguments(&self.programs.join(program), &all), || true)
    }

    /// A session, for statements one after another.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn session(&self) -> Result<Session> {
        let psql = self.programs.join("psql");
        let socket = self.socket_folder.to_string_lossy();
        let arguments = [
            "-h",
            &*socket,
            "-p",
            &*self.port,
            "-U",
            USER,
            "-qAt",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            "postgres",
        ];
        let mut child = process::tied_to_us("setpriv", "KILL")
            .args(as_user_arguments(&psql, &arguments))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (asks, answers) = (child.stdin.take().context("a pipe")?, child.stdout.take().context("a pipe")?);
        Ok(Session { child, asks, answers: BufReader::new(answers) })
    }

    /// SIGKILL to all of it.
    pub fn kill(self) {}

    /// In good order, with a checkpoint.
    ///
    /// # Errors
    /// When it does not end.
    pub fn stop(self) -> Result<()> {
        self.server.interrupt()?;
        self.server.ended()
    }
}

/// A session whose statements are answered by a line each.
pub struct Session {
    child: Child,
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Session {
    /// Says something that is answered by one line; the answer means that it was committed.
    ///
    /// # Errors
    /// When the session has ended.
    pub fn ask(&mut self, statement: &str) -> Result<String> {
        writeln!(self.asks, "{statement}")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        ensure!(answer.ends_with('\n'), "the session ended");
        Ok(answer.trim().to_owned())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_ready(programs: &Path, socket_folder: &Path, port: &str) -> bool {
    let ready = programs.join("pg_isready");
    attempt(&ready.to_string_lossy(), &["-q", "-h", &socket_folder.to_string_lossy(), "-p", port])
        .is_ok_and(|(status, _)| status == Some(0))
}

/// What `setpriv` is to be told.
fn as_user_arguments<'a>(program: &'a Path, arguments: &[&'a str]) -> Vec<&'a str> {
    let program = program.to_str().unwrap_or_default();
    // Root's own folders are closed to it: from one of these it would complain before it does anything.
    let place = ["env", "--chdir=/", program];
    [&["--reuid", USER, "--regid", USER, "--init-groups", "--"], &place[..], arguments].concat()
}

fn as_user(program: &Path, arguments: &[&str]) -> Result<String> {
    run("setpriv", &as_user_arguments(program, arguments))
}
