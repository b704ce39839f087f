//! Where a run keeps its things: `run-N` in the state folder, with the pool, the logs and the socket.
//!
//! A run begins by removing the pools of earlier runs, unless a server still answers at their socket: each holds the better
//! part of a gigabyte, and only the newest is of interest.

use std::{
    env, fs,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use stonefold_guest::Accelerator;

use crate::progress::say;

/// The longest path a Unix socket can have.
const SOCKET_PATH_BYTES_MAX: usize = 107;

pub(crate) struct Folder(PathBuf);

/// `stonefold/quickstart` in the user's data folder.
pub(crate) fn state_folder() -> Result<PathBuf> {
    let data = env::var_os("XDG_DATA_HOME").filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share"));
    let data =
        data.or_else(home).context("neither XDG_DATA_HOME nor HOME is set: name a folder with --state")?;
    Ok(data.join("stonefold/quickstart"))
}

impl Folder {
    /// Makes the folder of a new run, and removes those of earlier runs.
    pub(crate) fn new(state: &Path) -> Result<Self> {
        fs::create_dir_all(state)
            .with_context(|| format!("could not make the folder {}", state.display()))?;
        let state = state.canonicalize()?;
        let earlier = runs(&state)?;
        for (_, run) in &earlier {
            remove_unless_served(run)?;
        }
        let number = earlier.iter().map(|(number, _)| number + 1).max().unwrap_or(1);
        let folder = Self(state.join(format!("run-{number}")));
        let socket = folder.socket();
        ensure!(
            socket.as_os_str().len() <= SOCKET_PATH_BYTES_MAX,
            "{} is too long for a Unix socket: name a shorter folder with --state",
            socket.display()
        );
        fs::create_dir_all(folder.pool())
            .with_context(|| format!("could not make {}", folder.pool().display()))?;
        Ok(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn pool(&self) -> PathBuf {
        self.0.join("pool")
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.0.join("logs")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.0.join("nbd.sock")
    }

    pub(crate) fn say_how_to_look_further(
        &self,
        stonefold: &Path,
        recovered: &str,
        accelerator: Accelerator,
    ) {
        let accelerate = if accelerator == Accelerator::Kvm { " -accel kvm -cpu host" } else { "" };
        let binary = stonefold.display();
        let (pool, socket) = (self.pool(), self.socket());
        let (pool, socket) = (pool.display(), socket.display());
        say(&format!(
            "\nThe pool is kept until ./quickstart runs again. To look further:
  {binary} serve --pool file://{pool} --nbd unix://{socket}
      (then, in another terminal; Ctrl-C ends it)
  {binary} disk ls
  {binary} snapshot ls
  {binary} pool status
  nbdinfo 'nbd+unix:///{recovered}?socket={socket}'
  qemu-system-x86_64{accelerate} -m 512 -nographic -drive 'file=nbd+unix:///{recovered}?socket={socket},format=raw,if=virtio'
      (boots the recovered machine on this terminal; Ctrl-A X ends it)
Consoles and logs of the run: {}",
            self.logs().display()
        ));
    }
}

fn runs(state: &Path) -> Result<Vec<(u32, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(state)? {
        let path = entry?.path();
        let number = path.file_name().and_then(|name| name.to_str()?.strip_prefix("run-")?.parse().ok());
        found.extend(number.map(|number| (number, path)));
    }
    Ok(found)
}

fn remove_unless_served(run: &Path) -> Result<()> {
    if UnixStream::connect(run.join("nbd.sock")).is_ok() {
        say(&format!("An earlier run's pool is being served and stays: {}", run.display()));
        return Ok(());
    }
    say(&format!("The earlier run's pool goes: {}", run.display()));
    fs::remove_dir_all(run).with_context(|| format!("could not remove the earlier run {}", run.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_new_run_replaces_the_earlier_one_unless_that_is_being_served() {
        let state = tempfile::tempdir().unwrap();
        let first = Folder::new(state.path()).unwrap();
        let _server = UnixListener::bind(first.socket()).unwrap();
        let second = Folder::new(state.path()).unwrap();
        assert!(first.pool().exists());
        let third = Folder::new(state.path()).unwrap();
        assert!(!second.path().exists() && third.path().ends_with("run-3"));
    }

    #[test]
    fn a_folder_too_deep_for_a_socket_is_refused_with_advice() {
        let state = tempfile::tempdir().unwrap();
        let error = Folder::new(&state.path().join("x".repeat(100))).err().unwrap().to_string();
        assert!(error.contains("--state"), "{error}");
    }
}
