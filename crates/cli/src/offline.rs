//! A pool that no server serves, opened for one command.
//!
//! The server runs inside this process, its doors are sockets in a folder that only this user can enter, and it closes the pool
//! when the command is done.

use crate::context::Context;
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
    pub(crate) fn open(url: &str, keys: KeyFlags) -> Result<Offline> {
        let folder = std::env::temp_dir().join(format!("stonefold-{}", std::process::id()));
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .map_err(|e| Error::io(format!("making the folder '{}'", folder.display()), e))?;
        let mut offline = Offline { running: None, folder };
        let address = |name: &str| format!("unix://{}", offline.folder.join(name).display());
        let wrong = |why: String| Error::new(Kind::Invalid, why);
        let keys = keys.source();
        let settings = Settings {
            pool: Some(url.to_owned()),
            own: true,
            nbd: vec![address("nbd").parse()?],
            api: vec![address("api").parse().map_err(wrong)?],
            key_file: keys.key_file,
            passphrase_file: keys.passphrase_file,
            key_command: keys.key_command,
            recovery_keys: keys.recovery_keys,
            ..Settings::default()
        };
        stonefold_server::start_log(Some("warn"))?;
        offline.running = Some(stonefold_server::start(settings.resolve()?)?);
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

impl Drop for Offline {
    fn drop(&mut self) {
        // Leftovers are two sockets in the system's folder for such things.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
