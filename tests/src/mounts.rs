//! Loop devices and mounted file systems, which are taken down in their order whatever happens. For root.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stonefold_guest::time::Deadline;

use crate::tools::{Beside, attempt, run};

/// How long a device or a mount may be busy before it is let go lazily.
const BUSY_MAX: Duration = Duration::from_secs(10);

/// A loop device over a file.
pub struct Loop {
    /// `/dev/loopN`
    pub device: String,
}

impl Loop {
    /// Puts a device over a file.
    ///
    /// # Errors
    /// When losetup fails.
    pub fn over(file: &Path) -> Result<Self> {
        let said = run("losetup", &["--find", "--show", &file.to_string_lossy()])?;
        Ok(Loop { device: said.trim().to_owned() })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = attempt("losetup", &["--detach", &self.device]);
    }
}

/// A mounted file system.
pub struct Mount {
    /// Where.
    pub folder: PathBuf,
}

impl Mount {
    /// Mounts a device.
    ///
    /// # Errors
    /// When mount fails.
    pub fn of(device: &str, folder: &Path, options: &str) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        run("mount", &["-o", options, device, &folder.to_string_lossy()])?;
        Ok(Mount { folder: folder.to_owned() })
    }

    /// Lets go even though its device is dead.
    pub fn let_go(self) {
        let _ = attempt("umount", &["--lazy", &self.folder.to_string_lossy()]);
    }

    /// Unmounts in good order.
    ///
    /// # Errors
    /// When it stays busy.
    pub fn unmount(self) -> Result<()> {
        run("umount", &[&self.folder.to_string_lossy()]).map(drop)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = attempt("umount", &["--lazy", "--quiet", &self.folder.to_string_lossy()]);
    }
}

/// An export as a file, by nbdfuse.
pub struct Fuse {
    folder: PathBuf,
    program: Option<Beside>,
}

impl Fuse {
    /// Mounts an export.
    ///
    /// # Errors
    /// When nbdfuse fails.
    pub fn of(uri: &str, folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let file = folder.join("nbd");
        let program = Beside::start("nbdfuse", &[&folder.to_string_lossy(), uri], || file.exists())?;
        Ok(Fuse { folder: folder.to_owned(), program: Some(program) })
    }

    /// The file.
    pub fn file(&self) -> PathBuf {
        self.folder.join("nbd")
    }

    /// Unmounts in good order, which ends nbdfuse.
    ///
    /// # Errors
    /// When it stays busy.
    pub fn unmount(mut self) -> Result<()> {
        let deadline = Deadline::after(BUSY_MAX);
        loop {
            let (status, said) = attempt("fusermount3", &["-u", &self.folder.to_string_lossy()])?;
            if status == Some(0) {
                return self.program.take().context("nbdfuse runs")?.ended();
            }
            // A loop device is let go a little after losetup says so.
            ensure!(!deadline.passed(), "fusermount3: {said}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        if let Some(program) = self.program.take() {
            let _ = attempt("fusermount3", &["-u", "-z", &self.folder.to_string_lossy()]);
            program.kill();
        }
    }
}
