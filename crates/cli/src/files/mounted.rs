//! The files of a point in a folder of this machine.

use super::appliance::Appliance;
use crate::interrupt::Interrupt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use stonefold_types::{Error, Kind, Result};

const LOOK_EVERY: Duration = Duration::from_millis(100);
/// What takes a file system out, the first that can. What is still in use goes when it is not any more.
const UNMOUNT: [(&str, &[&str]); 3] =
    [("fusermount3", &["-u", "-z"]), ("fusermount", &["-u", "-z"]), ("umount", &["-l"])];

/// A folder to mount at, which is there.
///
/// # Errors
/// When it is no folder, or has something in it.
pub(super) fn folder(path: &Path) -> Result<PathBuf> {
    let refused = |what: &str| {
        let what = format!("'{}' {what}", path.display());
        Error::new(Kind::Invalid, what).remedy("make an empty folder, and name that")
    };
    let mut inside = path.read_dir().map_err(|_| refused("is no folder that can be read"))?;
    if inside.next().is_some() {
        return Err(refused("is not empty"));
    }
    path.canonicalize().map_err(|e| Error::io(format!("looking for '{}'", path.display()), e))
}

/// Shows the files, and returns when somebody unmounts them or this program is told to end.
pub(super) fn show(
    mut appliance: Appliance<'_>,
    folder: &Path,
    interrupt: &Interrupt,
    tell: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let words: [&[u8]; 2] = [folder.as_os_str().as_bytes(), b"readonly:true"];
    appliance.ask(b"mount-local", &words)?;
    let mount = Mount { folder, is_there: true };
    // Told to end, guestfish would leave a folder that nobody answers for.
    appliance.let_be();
    appliance.go_on(b"mount-local-run")?;
    tell()?;
    watch(&mut appliance, interrupt, mount)
}

fn watch(appliance: &mut Appliance<'_>, interrupt: &Interrupt, mut mount: Mount<'_>) -> Result<()> {
    while interrupt.check().is_ok() {
        if appliance.has_ended()? {
            mount.is_there = false;
            return Ok(());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Goes with this.
struct Mount<'a> {
    folder: &'a Path,
    is_there: bool,
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let unmounts = |(program, arguments): &(&str, &[&str])| {
            let mut command = Command::new(program);
            command
                .args(*arguments)
                .arg(self.folder)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        if self.is_there && !UNMOUNT.iter().any(unmounts) {
            eprintln!("warning: '{}' could not be unmounted: do it by 'umount -l'", self.folder.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_folder_is_mounted_at() {
        let place = tempfile::tempdir().unwrap();
        assert!(folder(place.path()).is_ok());
        std::fs::write(place.path().join("x"), "").unwrap();
        assert!(folder(place.path()).unwrap_err().to_string().contains("not empty"));
        assert!(folder(&place.path().join("x")).unwrap_err().to_string().contains("no folder"));
    }
}
