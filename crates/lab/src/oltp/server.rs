//! A PostgreSQL of the lab's own: found, made, started, stopped.
//!
//! *Owns*: a cluster's folder and the server that runs on it; dropping it stops the server, also when this process panics,
//! and the kernel stops it when this process is killed. *Never*: listens but on a socket in a private folder; touches any other
//! PostgreSQL of the machine.

use super::tools::{User, command, run};
use crate::measure::Reins;
use postgres::{Client, Config, NoTls};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result};

/// Where Debian and Ubuntu have it, below a version.
const HOME: &str = "/usr/lib/postgresql";
/// The programs that are needed.
const PROGRAMS: [&str; 2] = ["initdb", "postgres"];
/// The database user, whoever the system's is.
const ROLE: &str = "postgres";
const DATABASE: &str = "postgres";
/// For crash recovery, should there be one.
const START_MAX: Duration = Duration::from_secs(120);
/// For the last checkpoint, on a slow target.
const STOP_MAX: Duration = Duration::from_secs(600);
/// When a run is given up there is nothing to be kept.
const GIVE_UP_MAX: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// PostgreSQL's programs.
#[derive(Clone, Debug)]
pub struct Programs {
    folder: PathBuf,
    version: String,
}

impl Programs {
    /// Those in a folder; without one the newest of the distribution's packages, else those of the path.
    ///
    /// # Errors
    /// [`Kind::NotFound`], with what to install.
    pub fn find(folder: Option<&Path>) -> Result<Self> {
        let has_all = |folder: &PathBuf| PROGRAMS.iter().all(|program| folder.join(program).is_file());
        let found = match folder {
            Some(folder) => Some(folder.to_owned()).filter(has_all),
            None => packaged().filter(has_all).or_else(|| {
                let path = std::env::var_os("PATH").unwrap_or_default();
                std::env::split_paths(&path).find(has_all)
            }),
        };
        let Some(folder) = found else {
            let place = folder.map_or_else(
                || format!("below '{HOME}' or on the path"),
                |folder| format!("in '{}'", folder.display()),
            );
            let what =
                format!("there is no PostgreSQL {place}: its programs initdb and postgres are missing");
            return Err(Error::new(Kind::NotFound, what).remedy(
                "install the package postgresql, or name the folder of its programs with --postgres",
            ));
        };
        let said = run(command(folder.join("postgres"), None).arg("--version"), None)?;
        let version = said.trim().trim_start_matches("postgres (PostgreSQL)").trim().to_owned();
        Ok(Programs { folder, version })
    }

    /// As PostgreSQL tells it.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Where they are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn path(&self, program: &str) -> PathBuf {
        self.folder.join(program)
    }
}

/// The newest of the distribution's.
fn packaged() -> Option<PathBuf> {
    let versions = fs::read_dir(HOME).into_iter().flatten().flatten();
    let numbered = versions.filter_map(|entry| {
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some((number, entry.path().join("bin")))
    });
    numbered.max_by_key(|(number, _)| *number).map(|(_, folder)| folder)
}

/// Everything that a server needs but its data.
pub(super) struct Host<'a> {
    pub env: &'a Env,
    pub programs: Programs,
    pub user: Option<User>,
    /// Private to the server's user; holds the socket and the log.
    pub folder: PathBuf,
}

impl Host<'_> {
    /// Makes a cluster in a folder that is not there yet.
    pub(super) fn init(&self, data: &Path, reins: &Reins) -> Result<()> {
        let mut initdb = command(self.programs.path("initdb"), self.user);
        initdb.arg("--pgdata").arg(data).args(["--username", ROLE, "--data-checksums", "--auth=trust"]);
        initdb.args(["--encoding=UTF8", "--locale=C"]);
        run(&mut initdb, Some(reins)).map(drop).map_err(|e| e.context("making a PostgreSQL cluster"))
    }

    /// Starts a server with these settings, and waits until it answers.
    pub(super) fn start(&self, data: &Path, settings: &[(String, String)]) -> Result<Server> {
        let log = self.folder.join("log");
        let failed = |e| Error::io(format!("starting PostgreSQL with its log '{}'", log.display()), e);
        let file = File::options().create(true).append(true).open(&log).map_err(failed)?;
        let logged_before = file.metadata().map_err(failed)?.len();
        // Should this process die without a word, the kernel tells the server to stop.
        let mut postgres = command("setpriv", self.user);
        postgres.args(["--pdeathsig", "INT", "--"]).arg(self.programs.path("postgres")).arg("-D").arg(data);
        postgres.arg("-k").arg(&self.folder).args(["-c", "listen_addresses="]);
        for (name, value) in settings {
            postgres.arg("-c").arg(format!("{name}={value}"));
        }
        postgres.stdout(file.try_clone().map_err(failed)?).stderr(file);
        let child = postgres.spawn().map_err(failed)?;
        let folder = self.folder.clone();
        let mut server = Server { env: self.env.clone(), child, folder, log, logged_before };
        let patience = self.env.monotonic() + START_MAX;
        loop {
            if let Some(status) = server.ended() {
                return Err(server.died(status).context("PostgreSQL does not start"));
            }
            match server.connect() {
                Ok(_) => return Ok(server),
                Err(e) if self.env.monotonic() > patience => {
                    return Err(
                        e.context(format!("PostgreSQL does not answer within {} s", START_MAX.as_secs()))
                    );
                }
                Err(_) => std::thread::sleep(LOOK_EVERY),
            }
        }
    }
}

/// A running server.
pub(super) struct Server {
    env: Env,
    child: Child,
    folder: PathBuf,
    log: PathBuf,
    logged_before: u64,
}

impl Server {
    /// A connection of its own.
    pub(super) fn connect(&self) -> Result<Client> {
        let mut config = Config::new();
        config.host_path(&self.folder).user(ROLE).dbname(DATABASE).application_name("stonefold lab");
        config.connect(NoTls).map_err(|e| {
            Error::new(Kind::Io, format!("connecting to PostgreSQL: {}", super::users::told(&e)))
        })
    }

    /// How it ended, if it did.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Why it ended, from the last words of its log.
    pub(super) fn died(&self, status: ExitStatus) -> Error {
        let said = self.complaints();
        let kind = if said.contains("No space left on device") { Kind::NoSpace } else { Kind::Io };
        let told = if said.is_empty() { String::new() } else { format!(": {said}") };
        Error::new(kind, format!("PostgreSQL ended by itself ({status}){told}"))
    }

    /// Errors in its log since it was started: the last of them.
    pub(super) fn complaints(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let since = text.get(self.logged_before as usize..).unwrap_or_default();
        let text = String::from_utf8_lossy(since);
        let bad = |line: &&str| ["FATAL:", "PANIC:", "ERROR:"].iter().any(|word| line.contains(word));
        // What users are told when the server goes says nothing about why.
        let tells = |line: &&str| {
            !line.contains("the database system is") && !line.contains("terminating connection")
        };
        let lines: Vec<&str> = text.lines().filter(bad).filter(tells).collect();
        lines[lines.len().saturating_sub(2)..].join("; ")
    }

    /// In good order, with a checkpoint.
    pub(super) fn stop(mut self) -> Result<()> {
        let status = self.stop_by(Signal::INT, STOP_MAX);
        match status {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(self.died(status).context("stopping PostgreSQL")),
            None => {
                let what = format!("PostgreSQL does not stop within {} s", STOP_MAX.as_secs());
                Err(Error::new(Kind::Io, what).remedy("look whether the target still answers"))
            }
        }
    }

    /// Every backend at once, without a checkpoint: connections that hang are broken.
    pub(super) fn break_off(&mut self) {
        self.stop_by(Signal::QUIT, GIVE_UP_MAX);
    }

    fn stop_by(&mut self, signal: Signal, at_most: Duration) -> Option<ExitStatus> {
        if let Some(status) = self.ended() {
            return Some(status);
        }
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // It may have ended meanwhile.
            let _ = kill_process(pid, signal);
        }
        let patience = self.env.monotonic() + at_most;
        while self.env.monotonic() < patience {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            std::thread::sleep(LOOK_EVERY);
        }
        None
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.stop_by(Signal::QUIT, GIVE_UP_MAX).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
