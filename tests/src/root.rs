//! A root file system to install things into: this machine's own, with all that is changed in it kept apart and forgotten at the end.
//!
//! *Promises*: what is done in it is not seen outside: files are an overlay's over memory, `/dev`, `/run`, `/tmp` and `/var/tmp` are new, the
//! network is one of its own. *Never*: downloads anything, which a system made for the purpose would have to; has what is mounted below
//! the machine's root, so `/etc`, `/usr` and `/var` must be parts of that. For root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stonefold_guest::process::{self, Finished};
use stonefold_guest::time::Deadline;

use crate::tools::{Beside, attempt, run};

/// A step in it, on a busy machine.
const STEP_MAX: Duration = Duration::from_secs(120);

/// What programs in it find.
const ENVIRONMENT: [&str; 4] = [
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/root",
    "LC_ALL=C.UTF-8",
    "DEBIAN_FRONTEND=noninteractive",
];

/// A root of its own; gone with all that was changed when it goes out of scope.
pub struct Root {
    /// Memory, which holds what is changed.
    changes: PathBuf,
    root: PathBuf,
    /// A process that does nothing but keep the network.
    network: Child,
}

impl Root {
    /// Makes one below a folder that there is.
    ///
    /// # Errors
    /// When something cannot be mounted.
    pub fn new(folder: &Path) -> Result<Self> {
        let (changes, root) = (folder.join("changes"), folder.join("root"));
        for path in [&changes, &root] {
            fs::create_dir_all(path)?;
        }
        let network = process::tied_to_us("unshare", "KILL")
            .args(["--net", "sleep", "infinity"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("making a network")?;
        let made = Root { changes, root, network };
        made.wait_for_the_network()?;
        made.mount()?;
        Ok(made)
    }

    /// Until then the process is in ours.
    fn wait_for_the_network(&self) -> Result<()> {
        let network = |process: &str| fs::read_link(format!("/proc/{process}/ns/net"));
        let (ours, deadline) = (network("self")?, Deadline::after(STEP_MAX));
        while network(&self.network.id().to_string())? == ours {
            ensure!(!deadline.passed(), "unshare --net makes no network");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn mount(&self) -> Result<()> {
        let (changes, root) = (text(&self.changes), text(&self.root));
        run("mount", &["-t", "tmpfs", "-o", "mode=755", "tmpfs", &changes])?;
        for part in ["upper", "work"] {
            fs::create_dir(self.changes.join(part))?;
        }
        let layers = format!("lowerdir=/,upperdir={changes}/upper,workdir={changes}/work");
        run("mount", &["-t", "overlay", "-o", &layers, "overlay", &root])?;
        run("mount", &["-t", "proc", "proc", &text(&self.path("proc"))])?;
        for memory in ["dev", "run", "tmp", "var/tmp"] {
            run("mount", &["-t", "tmpfs", "tmpfs", &text(&self.path(memory))])?;
        }
        // Copies, so that nothing of ours is below a folder that is removed at the end.
        let devices = ["null", "zero", "full", "random", "urandom"].map(|name| format!("/dev/{name}"));
        let mut copy = vec!["--archive"];
        copy.extend(devices.iter().map(String::as_str));
        let dev = text(&self.path("dev"));
        copy.push(&dev);
        run("cp", &copy)?;
        self.ok("ip", &["link", "set", "lo", "up"]).map(drop)
    }

    /// A path in it, seen from outside; `inside` does not begin with a slash.
    pub fn path(&self, inside: &str) -> PathBuf {
        self.root.join(inside)
    }

    /// What `nsenter` is to do, so that a program runs in it, with its network, as root, and with nothing of our environment.
    fn entering(&self, program: &str, arguments: &[&str]) -> Vec<String> {
        let network = format!("--net=/proc/{}/ns/net", self.network.id());
        let mut line = vec![network, "chroot".into(), text(&self.root), "env".into(), "-i".into()];
        line.extend(ENVIRONMENT.map(String::from));
        line.push(program.into());
        line.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        line
    }

    /// Runs a program in it, whatever comes of it.
    ///
    /// # Errors
    /// When it cannot be run, or takes too long.
    pub fn attempt(&self, program: &str, arguments: &[&str]) -> Result<Finished> {
        process::run(Command::new("nsenter").args(self.entering(program, arguments)), STEP_MAX)
    }

    /// Runs a program that must succeed; gives all that it said.
    ///
    /// # Errors
    /// When it fails, with all that it said.
    pub fn ok(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let done = self.attempt(program, arguments)?;
        let said = done.stdout + &done.stderr;
        ensure!(done.status.success(), "{program} {}: {}\n{said}", arguments.join(" "), done.status);
        Ok(said)
    }
}

impl Root {
    /// Runs a program in it beside the test.
    ///
    /// # Errors
    /// When it cannot be started, ends, or cannot be used in time.
    pub fn beside(&self, program: &str, arguments: &[&str], usable: impl FnMut() -> bool) -> Result<Beside> {
        let line = self.entering(program, arguments);
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        Beside::start("nsenter", &line, usable)
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = self.network.kill();
        let _ = self.network.wait();
        let _ = attempt("umount", &["--recursive", "--lazy", &text(&self.root)]);
        let _ = attempt("umount", &["--lazy", &text(&self.changes)]);
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
