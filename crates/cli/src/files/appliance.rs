//! The small machine of libguestfs in which the file systems of a point are read.
//!
//! *Why*: what is on a guest's disk was written by whoever owns the guest. Its file systems are read by the kernel of a machine that has
//! nothing but these disks, read-only, and is gone with the command; and that kernel reads ext4, XFS, Btrfs, NTFS, FAT, LVM and RAID as
//! its own. *Method*: guestfish(1) is given one command after another; after each it is made to say a word that no disk can know, which
//! ends the answer.

use crate::environment::environment;
use crate::interrupt::{Interrupt, Watched};
use crate::qemu::Served;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use stonefold_server::Accelerator;
use stonefold_types::{Error, Kind, Result};
use tempfile::TempDir;

/// libguestfs's own switches; what the user has set himself stands.
const BACKEND: &str = "LIBGUESTFS_BACKEND";
const BACKEND_SETTINGS: &str = "LIBGUESTFS_BACKEND_SETTINGS";
const EMULATED: &str = "force_tcg";
/// How long it may take to leave by itself.
const LEAVE_MAX: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long its machine may take under KVM, where it takes some seconds, before it is emulated.
const KVM_MAX: Duration = Duration::from_secs(60);

/// A machine that runs, with the disks of a point in it.
pub(super) struct Appliance<'a> {
    // In the order in which they end: the machine, then what serves its disks, then their folder.
    shell: Shell,
    _told: Watched<'a>,
    interrupt: &'a Interrupt,
    _disks: Vec<Served>,
    folder: TempDir,
}

/// The guestfish and the pipes to it; it ends with this.
struct Shell {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl<'a> Appliance<'a> {
    /// Starts it; takes seconds, and half a minute where processors are emulated.
    ///
    /// # Errors
    /// When libguestfs is not installed or cannot start its machine.
    pub(super) fn start(disks: Vec<Served>, folder: TempDir, interrupt: &'a Interrupt) -> Result<Self> {
        let emulated = match std::env::var_os(BACKEND_SETTINGS) {
            // Somebody knows better.
            Some(_) => None,
            None => Some(!is_kvm()?),
        };
        let settings = emulated.filter(|emulated| *emulated).map(|_| EMULATED);
        let shell = Shell::start(&disks, &folder, settings)?;
        let told = interrupt.watch(shell.child.id());
        let mut appliance = Appliance { shell, _told: told, interrupt, _disks: disks, folder };
        let ran = if emulated == Some(false) { appliance.run_within(KVM_MAX) } else { appliance.run() };
        match ran {
            // Firmware may run where a kernel does not: inside some virtual machines it hangs, or QEMU dies.
            Err(error)
                if emulated == Some(false) && interrupt.check().is_ok() && error.kind() == Kind::Io =>
            {
                appliance.shell = Shell::start(&appliance._disks, &appliance.folder, Some(EMULATED))?;
                appliance._told = interrupt.watch(appliance.shell.child.id());
                appliance.run()?;
            }
            ran => ran?,
        }
        Ok(appliance)
    }

    fn run(&mut self) -> Result<()> {
        self.ask(b"run", &[]).map(drop).map_err(|e| e.context("starting libguestfs"))
    }

    /// The same, ended where it takes longer.
    fn run_within(&mut self, limit: Duration) -> Result<()> {
        let (_in_time, late) = mpsc::channel::<()>();
        let process = self.shell.child.id();
        let wait = move || {
            if late.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                end(process);
            }
        };
        let thread = std::thread::Builder::new().name("libguestfs".to_owned());
        thread.spawn(wait).map_err(|e| Error::io("starting a thread that watches libguestfs", e))?;
        self.run()
    }

    /// Gives a command and waits for what it answers.
    ///
    /// # Errors
    /// When it fails, in libguestfs's words; nothing can be asked then any more.
    pub(super) fn ask(&mut self, command: &[u8], words: &[&[u8]]) -> Result<Vec<u8>> {
        self.give(command, words, true)?;
        let mark = self.mark();
        let mut answer = Vec::new();
        while !answer.ends_with(&mark) {
            let read = self.shell.output.read_until(b'\n', &mut answer);
            if read.map_err(|e| Error::io("reading what guestfish says", e))? == 0 {
                return Err(self.gave_up());
            }
        }
        answer.truncate(answer.len() - mark.len());
        Ok(answer)
    }

    /// The same of a command that may fail: nothing then.
    pub(super) fn ask_for(&mut self, command: &[u8], words: &[&[u8]]) -> Result<Vec<u8>> {
        self.ask(&[b"-".as_slice(), command].concat(), words)
    }

    /// Where a path leads within the guest, its last name left as it is unless a slash follows: what takes whole folders out follows no symlink
    /// of the guest's.
    pub(super) fn real(&mut self, path: &[u8]) -> Result<Vec<u8>> {
        let end = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        let (folder, name) = (&path[..end], &path[(end + 1).min(path.len())..]);
        let folder = if folder.is_empty() { b"/" } else { folder };
        let mut real = self.ask(b"realpath", &[folder])?;
        if real.last() == Some(&b'\n') {
            real.pop();
        }
        if !name.is_empty() {
            if !real.ends_with(b"/") {
                real.push(b'/');
            }
            real.extend(name);
        }
        Ok(real)
    }

    /// What a command answers, in lines.
    pub(super) fn lines(&mut self, command: &[u8], words: &[&[u8]]) -> Result<Vec<String>> {
        let answer = self.ask(command, words)?;
        let lines = String::from_utf8_lossy(&answer).lines().map(str::to_owned).collect::<Vec<_>>();
        Ok(lines.into_iter().filter(|line| !line.is_empty()).collect())
    }

    /// Gives the last command, whose answer is `take`n as it comes.
    ///
    /// # Errors
    /// When the command fails, or else when taking it does.
    pub(super) fn stream<T>(
        mut self,
        command: &[u8],
        words: &[&[u8]],
        take: impl FnOnce(&mut dyn Read) -> Result<T>,
    ) -> Result<T> {
        self.give(command, words, false)?;
        self.shell.input = None;
        let taken = take(&mut self.shell.output);
        if taken.is_ok() {
            // Behind what was wanted is at most some padding.
            std::io::copy(&mut self.shell.output, &mut std::io::sink())
                .map_err(|e| Error::io("reading what guestfish says", e))?;
            let status = self.shell.child.wait().map_err(|e| Error::io("waiting for guestfish", e))?;
            return if status.success() { taken } else { Err(self.gave_up()) };
        }
        // What was read is short because it was told to stop, or because it failed itself; else whoever took it has.
        self.interrupt.check()?;
        match self.shell.child.try_wait() {
            Ok(Some(status)) if !status.success() => Err(self.gave_up()),
            _ => taken,
        }
    }

    /// Gives the last command, which goes on until it is ended from elsewhere.
    pub(super) fn go_on(&mut self, command: &[u8]) -> Result<()> {
        self.give(command, &[], false)?;
        self.shell.input = None;
        Ok(())
    }

    /// Whether it has ended by itself.
    ///
    /// # Errors
    /// When it did with an error.
    pub(super) fn has_ended(&mut self) -> Result<bool> {
        match self.shell.child.try_wait().map_err(|e| Error::io("waiting for guestfish", e))? {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(_) => Err(self.gave_up()),
        }
    }

    /// From now on it is not told when this program is: whoever holds it ends it in its own way.
    pub(super) fn let_be(&mut self) {
        self._told = self.interrupt.watch(0);
    }

    fn give(&mut self, command: &[u8], words: &[&[u8]], marked: bool) -> Result<()> {
        let mut line = command.to_vec();
        words.iter().for_each(|word| line.extend(quoted(word)));
        line.push(b'\n');
        if marked {
            line.extend([b"echo ".as_slice(), &self.mark()].concat());
        }
        let Some(input) = &mut self.shell.input else {
            return Err(Error::new(Kind::Closed, "the last command was given"));
        };
        let given = input.write_all(&line).and_then(|()| input.flush());
        given.map_err(|_| self.gave_up())
    }

    /// The folder's name is by chance, and of this moment.
    fn mark(&self) -> Vec<u8> {
        let name = self.folder.path().file_name().unwrap_or_default();
        [b"stonefold-".as_slice(), name.as_bytes(), b"\n"].concat()
    }

    fn gave_up(&mut self) -> Error {
        if let Err(interrupted) = self.interrupt.check() {
            return interrupted;
        }
        // One whose pipe broke has ended, or is about to.
        let _ = self.shell.child.wait();
        let said = std::fs::read(complaints(&self.folder)).unwrap_or_default();
        told(&String::from_utf8_lossy(&said))
    }
}

impl Shell {
    fn start(disks: &[Served], folder: &TempDir, settings: Option<&str>) -> Result<Self> {
        // Whatever this program dies of, the kernel ends that one.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "--", "guestfish"]);
        command.args(["--ro", "--no-progress-bars", "--format=raw"]);
        for disk in disks {
            command.arg("-a").arg(format!("nbd://?socket={}", escaped(disk.socket())));
        }
        let words = complaints(folder);
        let log = File::create(&words).map_err(|e| Error::io(format!("making '{}'", words.display()), e))?;
        // By itself: no libvirt is needed for it.
        if std::env::var_os(BACKEND).is_none() {
            command.env(BACKEND, "direct");
        }
        // What it has not taken away when it is killed goes with the folder.
        command.env("LIBGUESTFS_TMPDIR", folder.path()).env("XDG_RUNTIME_DIR", folder.path());
        command.env("LC_ALL", "C").envs(settings.map(|settings| (BACKEND_SETTINGS, settings)));
        // Out of the terminal's group, as what serves the disks is.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let failed = |e| Error::io("running setpriv, of util-linux, which starts guestfish", e);
        let mut child = command.spawn().map_err(failed)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::new(Kind::Io, "guestfish has no pipes"));
        };
        Ok(Shell { child, input: Some(input), output: BufReader::new(output) })
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Nothing more is asked, so that it ends its machine, and takes away what it has made.
        self.input = None;
        for _ in 0..LEAVE_MAX.as_millis() / LOOK_EVERY.as_millis() {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        end(self.child.id());
        let _ = self.child.wait();
    }
}

fn end(process: u32) {
    if let Some(pid) = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw) {
        // One that has ended needs no telling.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

/// Whether the processor's own virtualisation may do: libguestfs tries it whatever comes of it.
fn is_kvm() -> Result<bool> {
    let (runtime, env) = environment()?;
    Ok(runtime.block_on(Accelerator::Auto.is_kvm(&env)))
}

fn complaints(folder: &TempDir) -> PathBuf {
    folder.path().join("guestfish.log")
}

/// A path in a URI.
fn escaped(path: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    let bytes = path.as_os_str().as_bytes().iter();
    bytes
        .map(|&byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// A word as guestfish reads it, whatever is in it, with a blank before it.
fn quoted(word: &[u8]) -> Vec<u8> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._:-".contains(&byte);
    let mut text = b" \"".to_vec();
    for &byte in word {
        match plain(byte) {
            true => text.push(byte),
            false => text.extend(format!("\\x{byte:02x}").bytes()),
        }
    }
    text.push(b'"');
    text
}

fn not_there() -> Error {
    Error::new(Kind::NotFound, "guestfish, by which file systems are read, is not installed").remedy(
        "install it: apt install guestfish libguestfs-xfs (Debian, Ubuntu) or dnf install guestfs-tools (Fedora, RHEL)",
    )
}

/// What libguestfs complained of.
fn told(said: &str) -> Error {
    if said.contains("failed to execute guestfish") {
        return not_there();
    }
    let kernel = said.lines().find(|line| line.starts_with("supermin: "));
    if let Some(line) = kernel {
        return Error::new(Kind::Io, format!("libguestfs cannot make its machine: {line}")).remedy(
            "it takes a kernel of this machine's from /boot, which must be there and readable: apt install linux-image-amd64, or on Ubuntu \
             run this with sudo",
        );
    }
    const SAYS: &str = "libguestfs: error: ";
    let line = said.lines().rev().find(|line| line.contains(SAYS)).or_else(|| said.lines().last());
    let what = line.map_or("it did not say why", |line| line.split_once(SAYS).map_or(line, |(_, what)| what));
    // A command's name comes first, then what it was asked of.
    let what =
        what.split_once(": ").filter(|(name, _)| !name.contains([' ', '/'])).map_or(what, |(_, what)| what);
    match what.ends_with("No such file or directory") {
        true => Error::new(Kind::NotFound, what.to_owned())
            .remedy("'stonefold point files POINT ls PATH' shows what is in a folder"),
        false => Error::new(Kind::Io, what.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_one_word_whatever_is_in_it() {
        assert_eq!(quoted(b"/etc/a-b_c.d"), b" \"/etc/a-b_c.d\"");
        assert_eq!(quoted(b"a b\"\\\n\xff"), b" \"a\\x20b\\x22\\x5c\\x0a\\xff\"");
        assert_eq!(escaped(Path::new("/tmp/a b/0.sock")), "/tmp/a%20b/0.sock");
    }

    #[test]
    fn libguestfs_is_heard() {
        let missing = told("*stdin*:18: libguestfs: error: lstatns: /nothere: No such file or directory\n");
        assert_eq!(
            (missing.kind(), missing.what()),
            (Kind::NotFound, "/nothere: No such file or directory".into())
        );
        let kernel = told(
            "supermin: failed to find a suitable kernel\nlibguestfs: error: /usr/bin/supermin exited with error status 1.\n",
        );
        assert!(kernel.to_string().contains("suitable kernel"), "{kernel}");
        assert_eq!(told("").what(), "it did not say why");
        let missing = told("setpriv: failed to execute guestfish: No such file or directory\n");
        assert!(missing.to_string().contains("apt install guestfish"), "{missing}");
    }
}
