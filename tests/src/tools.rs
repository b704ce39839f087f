//! Foreign programs, with a time-out, and their packages' names for whoever lacks one.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use stonefold_guest::process;
use stonefold_guest::time::Deadline;

/// The longest that any of them may take on a busy machine.
const TOOL_MAX: Duration = Duration::from_secs(120);
/// Until a program that runs beside the test can be used.
const BESIDE_MAX: Duration = Duration::from_secs(30);

/// Until a machine has done what it was asked for.
const UNTIL_MAX: Duration = Duration::from_secs(60);

/// Waits until something is so.
///
/// # Errors
/// When that cannot be told, or it is not so in time.
pub fn until(what: &str, is_so: impl Fn() -> Result<bool>) -> Result<()> {
    let deadline = Deadline::after(UNTIL_MAX);
    while !is_so()? {
        ensure!(!deadline.passed(), "not within {} s: {what}", UNTIL_MAX.as_secs());
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Which package has a program.
fn package(program: &str) -> &'static str {
    match program {
        "qemu-img" | "qemu-io" | "qemu-nbd" => "qemu-utils",
        "nbdinfo" | "nbdcopy" | "nbdfuse" => "libnbd-bin",
        "qemu-storage-daemon" => "qemu-system-common",
        "nbdkit" => "nbdkit",
        "fio" => "fio",
        "mkfs.ext4" | "e2fsck" => "e2fsprogs",
        "mkfs.xfs" | "xfs_repair" => "xfsprogs",
        "fusermount3" => "fuse3",
        _ => "that has it",
    }
}

fn called(program: &str, arguments: &[&str]) -> String {
    format!("{program} {}", arguments.join(" "))
}

/// Runs a program, whatever comes of it: its exit status and all that it said.
///
/// # Errors
/// When it cannot be run or takes too long.
pub fn attempt(program: &str, arguments: &[&str]) -> Result<(Option<i32>, String)> {
    let done = process::run(Command::new(program).args(arguments), TOOL_MAX).with_context(|| {
        format!("{program} does not run through; if it is missing, install the package {}", package(program))
    })?;
    Ok((done.status.code(), done.stdout + &done.stderr))
}

/// Runs a program that must succeed; gives all that it said.
///
/// # Errors
/// When it fails, with all that it said.
pub fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let (status, said) = attempt(program, arguments)?;
    ensure!(status == Some(0), "{} ended with {status:?}:\n{said}", called(program, arguments));
    Ok(said)
}

/// All processes that a process has started, and those that they have.
fn started_by(process: i32) -> Vec<i32> {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    let mut all: Vec<i32> =
        children.unwrap_or_default().split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
    for at in 0..all.len() {
        all.extend(started_by(all[at]));
    }
    all
}

/// A program that runs beside the test and ends with it.
pub struct Beside {
    child: Child,
    called: String,
}

impl Beside {
    /// Starts it and waits until it can be used.
    ///
    /// # Errors
    /// When it cannot be started, ends, or takes too long.
    pub fn start(program: &str, arguments: &[&str], mut usable: impl FnMut() -> bool) -> Result<Self> {
        let child = process::tied_to_us(program, "KILL")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            // What it says of a server that is killed under it is no news; run it by hand to hear more.
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("starting {program}; is the package {} there?", package(program)))?;
        let mut beside = Beside { child, called: called(program, arguments) };
        let deadline = Deadline::after(BESIDE_MAX);
        while !usable() {
            if let Some(status) = beside.child.try_wait()? {
                bail!("{} ended with {status} before it could be used", beside.called);
            }
            ensure!(!deadline.passed(), "{} could not be used in time", beside.called);
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(beside)
    }

    /// Waits until it has ended by itself.
    ///
    /// # Errors
    /// When it has not in time.
    pub fn ended(mut self) -> Result<()> {
        process::wait(&mut self.child, BESIDE_MAX).map(drop).with_context(|| self.called.clone())
    }

    /// SIGINT, for a program that ends in good order by it.
    ///
    /// # Errors
    /// When it is gone.
    pub fn interrupt(&self) -> Result<()> {
        Ok(rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.child),
            rustix::process::Signal::INT,
        )?)
    }

    /// Whether it runs still.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// SIGKILL, to it and to all that it has started: a backend of a database waits for ever for a lock that another took with it,
    /// and the jobs of fio are sessions of their own.
    pub fn kill(self) {}

    /// The same, of what is still needed: for its own end.
    pub(crate) fn end(&mut self) {
        // So that it starts nothing more while we look.
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.child),
            rustix::process::Signal::STOP,
        );
        let ours = rustix::process::Pid::from_child(&self.child).as_raw_nonzero().get();
        for started in started_by(ours) {
            if let Some(pid) = rustix::process::Pid::from_raw(started) {
                // It may have ended by itself.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.end();
    }
}
