//! Child processes: run one with a time-out, tie one's life to ours, stop one politely and then firmly.

use std::{
    ffi::OsStr,
    io::Read,
    os::unix::process::CommandExt,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    cancel::{self, LOOK_EVERY},
    time::Deadline,
};

/// What a finished command said.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// A command that the kernel ends when we end, however we end, and that a terminal's Ctrl-C does not reach (so that we
/// decide in which order things stop).
///
/// The kernel's promise is tied to the *thread* that starts it: start it from one that lives as long as it must.
#[must_use]
pub fn tied_to_us(program: impl AsRef<OsStr>, signal: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.arg("--pdeathsig").arg(signal).arg("--").arg(program).process_group(0);
    command
}

/// Runs a command to its end and collects what it says; kills it when it takes longer than `allowed`.
///
/// # Errors
/// When it cannot be started, takes too long, or the process was asked to stop. A non-zero exit status is no error here.
pub fn run(command: &mut Command, allowed: Duration) -> Result<Finished> {
    let shown = format!("{command:?}");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("could not start {shown}"))?;
    let stdout = read_in_background(child.stdout.take())?;
    let stderr = read_in_background(child.stderr.take())?;
    let status = match wait(&mut child, allowed) {
        Ok(status) => status,
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            return Err(error.context(format!("running {shown}")));
        }
    };
    Ok(Finished { status, stdout: collect(stdout), stderr: collect(stderr) })
}

type Collected = thread::JoinHandle<String>;

/// Both pipes are emptied while the command runs, else a talkative one would block on a full pipe for ever.
fn read_in_background(pipe: Option<impl Read + Send + 'static>) -> Result<Collected> {
    thread::Builder::new()
        .name("read-output".into())
        .spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut pipe) = pipe {
                // What could be read before an error is still worth showing.
                let _ = pipe.read_to_end(&mut bytes);
            }
            String::from_utf8_lossy(&bytes).into_owned()
        })
        .context("could not start a thread")
}

fn collect(reader: Collected) -> String {
    reader.join().unwrap_or_default()
}

/// Waits for a child to end by itself.
///
/// # Errors
/// When it has not ended in time, or the process was asked to stop; the child is then still running.
pub fn wait(child: &mut Child, allowed: Duration) -> Result<ExitStatus> {
    let deadline = Deadline::after(allowed);
    loop {
        if let Some(status) = child.try_wait().context("could not wait for a child process")? {
            return Ok(status);
        }
        cancel::check()?;
        if deadline.passed() {
            bail!("process {} was still running after {} s", child.id(), deadline.allowed().as_secs_f32());
        }
        // Commands are timed by this wait: looking each hundredth of the time so far keeps the error below one percent.
        let so_far = deadline.allowed() - deadline.remaining();
        thread::sleep((so_far / 100).clamp(Duration::from_micros(100), LOOK_EVERY));
    }
}

/// Asks a child to end (SIGTERM), and kills it when it has not ended in time. Tells whether it ended by itself.
///
/// It goes on through a request to stop, because it is how one is carried out.
pub fn stop(child: &mut Child, allowed: Duration) -> bool {
    if matches!(child.try_wait(), Ok(Some(_))) {
        return true;
    }
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::TERM);
    }
    let deadline = Deadline::after(allowed);
    while !deadline.passed() {
        if matches!(child.try_wait(), Ok(Some(_))) {
            return true;
        }
        thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    let _ = child.wait();
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_run_and_its_words_and_status_kept() {
        let finished =
            run(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"]), Duration::from_secs(10))
                .unwrap();
        assert_eq!(
            (finished.stdout.as_str(), finished.stderr.as_str(), finished.status.code()),
            ("out\n", "err\n", Some(3))
        );
    }

    #[test]
    fn a_command_that_says_more_than_a_pipe_holds_still_ends() {
        let finished =
            run(Command::new("sh").args(["-c", "head -c 1000000 /dev/zero"]), Duration::from_secs(10))
                .unwrap();
        assert_eq!(finished.stdout.len(), 1_000_000);
    }

    #[test]
    fn a_command_that_hangs_is_killed_and_named() {
        let error = run(Command::new("sleep").arg("60"), Duration::from_millis(100)).unwrap_err();
        assert!(format!("{error:#}").contains("sleep"), "{error:#}");
    }

    #[test]
    fn a_child_that_ignores_a_polite_request_is_killed() {
        let mut child = Command::new("sh")
            .args(["-c", "trap '' TERM; echo; while :; do sleep 1; done"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Its first output says that the trap is set.
        child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        assert!(!stop(&mut child, Duration::from_millis(200)));
        assert!(child.try_wait().unwrap().is_some());
    }
}
