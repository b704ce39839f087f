//! Programs that the lab runs beside itself: to their end, or until the run is stopped.

use crate::measure::Reins;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use stonefold_types::{Error, Kind, Result};

/// How often a program is looked after.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Lines of what a program said that are told when it fails.
const LINES_TOLD: usize = 5;

/// The user that PostgreSQL runs as: its package makes one, and it refuses to be run by root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct User {
    pub uid: u32,
    pub gid: u32,
}

impl User {
    /// Nobody else where this process is not root.
    pub(super) fn of_postgres() -> Result<Option<Self>> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let users =
            std::fs::read_to_string("/etc/passwd").map_err(|e| Error::io("reading '/etc/passwd'", e))?;
        let fields = users.lines().find_map(|line| line.strip_prefix("postgres:"));
        let user = fields.and_then(|fields| {
            let mut numbers = fields.split(':').skip(1).map(str::parse);
            Some(User { uid: numbers.next()?.ok()?, gid: numbers.next()?.ok()? })
        });
        let missing = || {
            Error::new(
                Kind::NotFound,
                "there is no user 'postgres', and PostgreSQL refuses to be run by root",
            )
            .remedy("install the package postgresql, or run as another user than root")
        };
        user.map(Some).ok_or_else(missing)
    }
}

/// A program as that user, in a group of its own: a terminal's Ctrl-C does not reach it, so that things stop in their order.
pub(super) fn command(program: impl AsRef<OsStr>, user: Option<User>) -> Command {
    let mut command = Command::new(program);
    // The user may not see where this process is.
    command.current_dir("/").process_group(0).stdin(Stdio::null()).env("LC_ALL", "C");
    if let Some(user) = user {
        command.gid(user.gid).uid(user.uid);
    }
    command
}

/// Runs it to its end, and returns what it said on its standard output.
///
/// # Errors
/// With what it said, when it fails; [`Kind::Closed`] when the run was stopped meanwhile, and it with it.
pub(super) fn run(command: &mut Command, reins: Option<&Reins>) -> Result<String> {
    let name =
        Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let failed = |e| Error::io(format!("running {name}"), e);
    let (mut said, mut complained) = (nameless().map_err(failed)?, nameless().map_err(failed)?);
    command.stdout(said.try_clone().map_err(failed)?).stderr(complained.try_clone().map_err(failed)?);
    let mut child = command.spawn().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => {
            Error::new(Kind::NotFound, format!("the program '{name}' is not there")).remedy(package_of(&name))
        }
        _ => failed(e),
    })?;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        if reins.is_some_and(Reins::is_stopped) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(Error::new(Kind::Closed, format!("{name} was interrupted")));
        }
        std::thread::sleep(LOOK_EVERY);
    };
    let said = contents(&mut said).map_err(failed)?;
    if status.success() {
        return Ok(said);
    }
    let complaint = contents(&mut complained).map_err(failed)?;
    let lines: Vec<&str> = complaint.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines[lines.len().saturating_sub(LINES_TOLD)..].join("; ");
    let kind = if last.contains("No space left on device") { Kind::NoSpace } else { Kind::Io };
    Err(Error::new(kind, format!("{name} failed ({status}): {last}")))
}

/// A file in memory: a pipe that nobody reads would stop who writes.
fn nameless() -> std::io::Result<File> {
    Ok(rustix::fs::memfd_create("said", rustix::fs::MemfdFlags::CLOEXEC)?.into())
}

fn contents(file: &mut File) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn package_of(program: &str) -> String {
    let package = match program {
        "initdb" | "postgres" => "postgresql",
        "mkfs.ext4" => "e2fsprogs",
        "nbdfuse" => "libnbd-bin",
        "fusermount3" => "fuse3",
        "losetup" | "mount" | "umount" | "setpriv" => "util-linux and mount",
        _ => "that has it",
    };
    format!("install the package {package}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_says_is_told() {
        assert_eq!(run(command("echo", None).arg("word"), None).unwrap(), "word\n");
        let error =
            run(command("cp", None).args(["/nowhere/a", "/nowhere/b"]), None).unwrap_err().to_string();
        assert!(error.contains("cp failed") && error.contains("/nowhere"), "{error}");
        let error = run(&mut command("nbdfuse-of-nobody", None), None).unwrap_err();
        assert_eq!(error.kind(), Kind::NotFound);
    }

    #[test]
    fn a_stopped_run_stops_it() {
        let reins = Reins::new();
        reins.stop();
        assert_eq!(run(command("sleep", None).arg("60"), Some(&reins)).unwrap_err().kind(), Kind::Closed);
    }
}
