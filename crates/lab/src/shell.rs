//! Commands of the user's, run by the shell: a file system that is made, a point that is taken by somebody else's program.

use std::process::{Command, Stdio};
use stonefold_types::{Error, Kind, Result};

/// Lines of a failed command's output that are told.
const TOLD_LINES: usize = 5;

/// Runs it to its end with a variable of its environment set, and returns what it said on its standard output. `told` names it.
///
/// # Errors
/// With the last of what it said, where it fails.
pub(crate) fn run(told: impl Fn() -> String, command: &str, (name, value): (&str, &str)) -> Result<String> {
    let output = Command::new("sh")
        .args(["-c", command])
        .env(name, value)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| Error::io(format!("{} could not be started", told()), e))?;
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.success() {
        return Ok(said.into_owned());
    }
    let all = String::from_utf8_lossy(&output.stderr).into_owned() + &said;
    let lines: Vec<&str> = all.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines[lines.len().saturating_sub(TOLD_LINES)..].join("; ");
    let what = format!("{} failed ({}): {last}", told(), output.status);
    Err(Error::new(Kind::Io, what).remedy("try it by itself in a shell"))
}
