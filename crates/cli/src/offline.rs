//! A pool that no server serves, opened for one command.
//!
//! The server runs inside this process, its doors are sockets in a folder that only this user can enter, and it closes the pool
//! when the command is done.

use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::on_stop;
use crate::keys::KeyFlags;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use stonefold_server::{Running, Settings};
use stonefold_types::{Error, Kind, Result};

/// A pool opened for one command.
pub(crate) struct Offline {
    running: Option<Running>,
    folder: PathBuf,
}

impl Offline {
    /// Opens the pool at `url`, which must exist already.
    pub(crate) fn open(url: &str, keys: KeyFlags) -> std::result::Result<Offline, Failure> {
        let mut offline = Offline { running: None, folder: make_folder()? };
        let folder = offline.folder.clone();
        // Whatever is durable stays; what is in the journal is replayed when the pool is opened next.
        on_stop(move || {
            let _ = std::fs::remove_dir_all(&folder);
            eprintln!("stopped; nothing of the pool is lost");
            std::process::exit(1);
        })?;
        let address = |name: &str| format!("unix://{}", offline.folder.join(name).display());
        let wrong = |why: String| Failure::from(Error::new(Kind::Invalid, why));
        let keys = keys.source();
        let settings = Settings {
            pool: Some(url.to_owned()),
            own: true,
            nbd: vec![address("nbd").parse().map_err(Failure::Failed)?],
            api: vec![address("api").parse().map_err(wrong)?],
            key_file: keys.key_file,
            passphrase_file: keys.passphrase_file,
            key_command: keys.key_command,
            recovery_keys: keys.recovery_keys,
            ..Settings::default()
        };
        stonefold_server::start_log(Some("warn"))?;
        let config = settings.resolve().map_err(Failure::Misuse)?;
        offline.running = Some(stonefold_server::start(config)?);
        Ok(offline)
    }

    /// A context that asks this pool.
    pub(crate) fn context(&self, context: &Context) -> Context {
        context.asking(format!("unix://{}", self.folder.join("api").display()))
    }

    /// Closes the pool.
    pub(crate) fn close(mut self) -> Result<()> {
        self.running.take().map_or(Ok(()), Running::stop)
    }
}

/// A folder that only this user can enter. One that an earlier process of this number left behind is none of ours.
fn make_folder() -> Result<PathBuf> {
    const TRIES: u32 = 100;
    let mut tries = 0;
    loop {
        let folder = std::env::temp_dir().join(format!("stonefold-{}-{tries}", std::process::id()));
        match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => return Ok(folder),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && tries < TRIES => tries += 1,
            Err(e) => {
                return Err(Error::io(format!("making the folder '{}'", folder.display()), e)
                    .remedy("set TMPDIR to a folder that you may write to"));
            }
        }
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        // Leftovers are two sockets in the system's folder for such things.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
