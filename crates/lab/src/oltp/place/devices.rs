//! Loop devices, mounts and exports as files, which are taken down whatever happens. For root.

use crate::oltp::tools::{command, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result};

/// How long a device may be busy before it is let go lazily.
const BUSY_MAX: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What a file system is made on.
pub(super) enum Device {
    Loop(Loop),
    Whole(PathBuf),
}

impl Device {
    pub(super) fn path(&self) -> &Path {
        match self {
            Device::Loop(device) => &device.path,
            Device::Whole(path) => path,
        }
    }

    pub(super) fn told(&self, by_fuse: bool) -> String {
        match self {
            Device::Whole(_) => "the device itself".into(),
            Device::Loop(device) => {
                let cache = if device.direct {
                    "around the page cache below it"
                } else {
                    "with a page cache below it"
                };
                let over = if by_fuse { "nbdfuse" } else { "the file" };
                format!("a loop device over {over}, {cache}")
            }
        }
    }
}

/// A loop device over a file.
pub(super) struct Loop {
    path: PathBuf,
    direct: bool,
}

impl Loop {
    pub(super) fn over(file: &Path) -> Result<Self> {
        let file =
            fs::canonicalize(file).map_err(|e| Error::io(format!("looking at '{}'", file.display()), e))?;
        let attach =
            |direct| run(command("losetup", None).args(["--find", "--show", direct]).arg(&file), None);
        if let Ok(said) = attach("--direct-io=on") {
            return Ok(Loop { path: said.trim().into(), direct: true });
        }
        let said = attach("--direct-io=off").map_err(|e| {
            e.context(format!("putting a loop device over '{}'", file.display()))
                .remedy("allow loop devices, or name a folder as dir:PATH")
        })?;
        Ok(Loop { path: said.trim().into(), direct: false })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = run(command("losetup", None).arg("--detach").arg(&self.path), None);
    }
}

/// A mounted file system.
pub(super) struct Mount {
    pub(super) folder: PathBuf,
    mounted: bool,
}

impl Mount {
    pub(super) fn of(device: &Path, folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).map_err(|e| Error::io(format!("making '{}'", folder.display()), e))?;
        run(command("mount", None).args(["-t", "ext4", "-o", "noatime"]).arg(device).arg(folder), None)?;
        Ok(Mount { folder: folder.to_owned(), mounted: true })
    }

    pub(super) fn unmount(mut self, env: &Env) -> Result<()> {
        let folder = self.folder.clone();
        until(env, || run(command("umount", None).arg(&folder), None).map(drop))?;
        self.mounted = false;
        Ok(())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.mounted {
            let _ = run(command("umount", None).arg("--lazy").arg(&self.folder), None);
        }
    }
}

/// An export as a file, by nbdfuse.
pub(super) struct Fuse {
    folder: PathBuf,
    program: Child,
    mounted: bool,
}

impl Fuse {
    pub(super) fn of(env: &Env, uri: &str, folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).map_err(|e| Error::io(format!("making '{}'", folder.display()), e))?;
        let started = command("nbdfuse", None).arg(folder).arg(uri).spawn();
        let program =
            started.map_err(|e| Error::io("running nbdfuse", e).remedy("install the package libnbd-bin"))?;
        let mut fuse = Fuse { folder: folder.to_owned(), program, mounted: true };
        let patience = env.monotonic() + BUSY_MAX;
        while !fuse.file().exists() {
            let ended = fuse.program.try_wait().ok().flatten();
            if ended.is_some() || env.monotonic() > patience {
                fuse.mounted = ended.is_none();
                return Err(Error::new(Kind::Io, format!("nbdfuse does not mount {uri}"))
                    .remedy("allow FUSE (/dev/fuse), or name a folder as dir:PATH"));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(fuse)
    }

    pub(super) fn file(&self) -> PathBuf {
        self.folder.join("nbd")
    }

    pub(super) fn unmount(mut self, env: &Env) -> Result<()> {
        let folder = self.folder.clone();
        // A loop device is let go a little after losetup says so.
        until(env, || run(command("fusermount3", None).arg("-u").arg(&folder), None).map(drop))?;
        self.mounted = false;
        let ended = self.program.wait().map_err(|e| Error::io("waiting for nbdfuse", e))?;
        match ended.success() {
            true => Ok(()),
            false => Err(Error::new(Kind::Io, format!("nbdfuse ended with {ended}"))),
        }
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        if self.mounted {
            let _ = run(command("fusermount3", None).args(["-u", "-z"]).arg(&self.folder), None);
            let _ = self.program.kill();
            let _ = self.program.wait();
        }
    }
}

/// Again and again while something is busy.
fn until(env: &Env, mut act: impl FnMut() -> Result<()>) -> Result<()> {
    let patience = env.monotonic() + BUSY_MAX;
    loop {
        match act() {
            Err(_) if env.monotonic() < patience => std::thread::sleep(LOOK_EVERY),
            other => return other,
        }
    }
}
