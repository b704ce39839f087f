//! `stonefold lab worker`.

use super::load::quoted;
use crate::context::Context;
use crate::environment::environment;
use crate::failure::Failure;
use clap::Args;
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use stonefold_lab::bundle::Run as Record;
use stonefold_lab::measure::FleetPlan;
use stonefold_lab::worker::{Token, WorkerAddress, serve};
use stonefold_types::{Error, Kind};

/// Make load here for a run that is led from another machine
///
/// Whoever knows the token can have this machine write to any device that this user may write to. What is said between the two
/// cannot be changed by others, but read: it is loads and figures.
#[derive(Args)]
#[command(after_help = "Example, on two machines and then on a third:\n  \
    stonefold lab worker --listen 0.0.0.0:7771 --token-file token\n  \
    stonefold lab run poltp --worker vm-1 --worker vm-2 --token-file token --target dev:/dev/vdb --quick")]
pub(crate) struct Worker {
    /// Where it listens
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7771")]
    listen: SocketAddr,
    /// What whoever leads must know; made where it is not there
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
}

impl Worker {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        let (_runtime, env) = environment()?;
        if make_token(&self.token_file, env.random())? {
            eprintln!("a new token is in '{}': give it to whoever leads", self.token_file.display());
        }
        let token = token(&self.token_file)?;
        let failed = |e| {
            Error::io(format!("listening on {}", self.listen), e)
                .remedy("choose another address or port with --listen")
        };
        let listener = TcpListener::bind(self.listen).map_err(failed)?;
        let at = listener.local_addr().map_err(failed)?;
        context
            .answer(&serde_json::json!({ "listening": at.to_string() }), || format!("listening on {at}\n"))?;
        serve(&env, &listener, &token, |line| eprintln!("{line}")).map_err(Failure::Failed)
    }
}

/// Other machines that make the load.
#[derive(Args, Default)]
pub(super) struct Workers {
    /// Let 'stonefold lab worker' of that machine make the load, on targets as they are named there; as often as there are
    /// machines. In a target a worker's number, from 1 on, takes the place of an n in braces
    #[arg(long, value_name = "HOST[:PORT]", requires = "token_file")]
    worker: Vec<WorkerAddress>,
    /// What the workers know, too
    #[arg(long, value_name = "FILE", requires = "worker")]
    token_file: Option<PathBuf>,
}

impl Workers {
    /// How many machines make the load.
    pub(super) fn machines(&self) -> usize {
        self.worker.len().max(1)
    }

    pub(super) fn are_given(&self) -> bool {
        !self.worker.is_empty()
    }

    /// Them, on targets as they are named there; of none nobody.
    pub(super) fn fleet(&self, targets: &[String]) -> Result<FleetPlan, Failure> {
        let Some(path) = &self.token_file else { return Ok(FleetPlan::default()) };
        let token = Some(token(path)?);
        Ok(FleetPlan { workers: self.worker.clone(), token, targets: targets.to_vec() })
    }

    /// The flags that name them.
    pub(super) fn words(&self) -> Vec<String> {
        let workers = self.worker.iter().map(|worker| format!("--worker {}", quoted(&worker.to_string())));
        let token = self
            .token_file
            .iter()
            .map(|path| format!("--token-file {}", quoted(&path.display().to_string())));
        workers.chain(token).collect()
    }
}

/// What a run by workers keeps of its targets.
pub(super) fn tell_of(record: &mut Record, fleet: &FleetPlan) {
    if fleet.workers.is_empty() {
        return;
    }
    let on = |worker: &WorkerAddress| format!("{} by worker {worker}", fleet.targets.join(" and "));
    record.targets = fleet.workers.iter().map(on).collect();
    record.verified &= !fleet.targets.iter().any(|target| target == "null:");
}

/// Of a file that only its owner may read.
fn token(path: &Path) -> Result<Token, Failure> {
    let failed = |e| {
        Error::io(format!("reading the token '{}'", path.display()), e)
            .remedy("name the file that 'stonefold lab worker' has made, copied to here")
    };
    let mode = std::fs::metadata(path).map_err(failed)?.permissions().mode();
    if mode & 0o077 != 0 {
        let error = Error::new(Kind::Invalid, format!("others may read the token '{}'", path.display()));
        return Err(error.remedy(format!("chmod 600 '{}'", path.display())).into());
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    Ok(Token::new(&text).map_err(|e| e.context(format!("'{}'", path.display())))?)
}

/// Whether there was none.
fn make_token(path: &Path, random: [u8; 32]) -> Result<bool, Error> {
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = match file {
        Ok(mut file) => writeln!(file, "{}", Token::of_random(random)).map(|()| true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    };
    written.map_err(|e| Error::io(format!("making the token '{}'", path.display()), e))
}
