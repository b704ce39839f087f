//! A machine in a QEMU of its own: its command line, its start and its end.
//!
//! It is a process of its own that outlives the server: its disks are away while the server is, and it waits for them
//! ([`RECONNECT_DELAY_S`]). Whoever has its folder has the machine: the QMP socket, the console, the guest agent's socket.

use super::disk_devices;
use super::host_ends::AGENT;
use super::last_words;
use super::limits::{Groups, NOT_ENTERED};
use super::words::Words;
use crate::domain::{RECONNECT_DELAY_S, Reach};
use crate::qmp::{Qmp, within};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::{Error, ExportName, Kind, Result};
use tokio::process::Command;

/// How long a QEMU may take until it has its devices: memory of hundreds of gigabytes is not touched by that.
const START_MAX: Duration = Duration::from_secs(60);
/// How long it may take to answer.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(10);
/// The longest path a Unix socket can have, the end's zero left out.
const SOCKET_PATH_MAX: usize = 107;

/// A disk as a machine is to have it.
#[derive(Clone, Debug)]
pub(crate) struct Attached {
    pub(crate) export: ExportName,
    /// What it hangs on: `virtio`, `scsi`, `sata`, `ide`.
    pub(crate) bus: String,
}

/// Where a machine's sockets and its console are.
#[derive(Clone, Debug)]
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn qmp(&self) -> PathBuf {
        self.0.join("qmp.sock")
    }

    pub(crate) fn agent(&self) -> PathBuf {
        self.0.join("agent.sock")
    }

    /// What the machine says on its first serial port.
    pub(crate) fn console(&self) -> PathBuf {
        self.0.join("console.log")
    }

    pub(crate) fn screen(&self) -> PathBuf {
        self.0.join("screen.png")
    }

    /// Where the machine's control groups are listed, where it has any.
    pub(super) fn groups(&self) -> PathBuf {
        self.0.join("groups")
    }

    fn pid(&self) -> PathBuf {
        self.0.join("pid")
    }

    fn make(&self) -> Result<()> {
        let at = self.0.display();
        if self.qmp().as_os_str().len().max(self.agent().as_os_str().len()) > SOCKET_PATH_MAX {
            let what = format!("'{at}' is too long a path for a machine's sockets");
            return Err(Error::new(Kind::Invalid, what).remedy("name a shorter folder with --machines"));
        }
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0);
        made.map_err(|e| {
            Error::io(format!("making the machine's folder '{at}'"), e)
                .remedy("name a folder that the server may write to with --machines")
        })
    }

    /// Takes it away, and the machine's control groups. Nothing of it is needed once the machine has gone.
    async fn remove(&self, env: &Env) {
        Groups::remove(env, self).await;
        if let Err(error) = fs::remove_dir_all(&self.0) {
            if error.kind() != std::io::ErrorKind::NotFound {
                tracing::warn!("the folder '{}' of a machine that has gone stays: {error}", self.0.display());
            }
        }
    }
}

/// The whole command line, the program left out.
pub(super) fn command_line(
    mut words: Words,
    disks: &[Attached],
    reach: &Reach,
    (folder, kvm): (&Folder, bool),
) -> Result<Vec<String>> {
    let path = |path: PathBuf| path.to_string_lossy().replace(',', ",,");
    words.push("no-user-config", "");
    accelerate(&mut words, kvm);
    for (number, disk) in disks.iter().enumerate() {
        words.push("blockdev", blockdev(number, disk, reach)?.to_string());
        if !disk_devices::has(&words, number) {
            attach(&mut words, number, disk);
        }
    }
    words.push("qmp", format!("unix:{},server=on,wait=off", path(folder.qmp())));
    words.push("chardev", format!("file,id=stonefold-console,path={}", path(folder.console())));
    words.push("serial", "chardev:stonefold-console");
    words.push(
        "chardev",
        format!("socket,id=stonefold-agent,server=on,wait=off,path={}", path(folder.agent())),
    );
    words.push("device", "virtio-serial-pci,id=stonefold-serial");
    words.push(
        "device",
        format!("virtserialport,bus=stonefold-serial.0,chardev=stonefold-agent,name={AGENT}"),
    );
    words.push("display", "none");
    words.push("pidfile", folder.pid().to_string_lossy());
    words.push("daemonize", "");
    Ok(words.arguments())
}

fn accelerate(words: &mut Words, kvm: bool) {
    words.push("accel", if kvm { "kvm" } else { "tcg,thread=multi" });
    match kvm {
        true if !words.has(&["cpu"]) => words.push("cpu", "host"),
        true => {}
        // The host's own, or a model with what emulation lacks, does not start.
        false => {
            words.take_all(&["cpu"]);
            words.push("cpu", "max");
        }
    }
}

/// Where a QEMU of this host finds the exports, as it is told.
pub(crate) fn nbd_server(reach: &Reach) -> Result<Value> {
    match reach {
        Reach::Socket(path) => Ok(json!({ "type": "unix", "path": path })),
        Reach::Tcp { host, port, secret: false } => {
            Ok(json!({ "type": "inet", "host": host, "port": port.to_string() }))
        }
        Reach::Tcp { secret: true, .. } => {
            let what = "the only door to the disks is TLS, for which a QEMU of this host has no certificate";
            Err(Error::new(Kind::Invalid, what)
                .remedy("serve a Unix socket, too: --nbd unix:///run/stonefold/nbd.sock"))
        }
    }
}

fn blockdev(number: usize, disk: &Attached, reach: &Reach) -> Result<Value> {
    Ok(json!({
        "driver": "nbd",
        "node-name": disk_devices::node(number),
        "server": nbd_server(reach)?,
        "export": disk.export.to_string(),
        "reconnect-delay": RECONNECT_DELAY_S,
        "discard": "unmap",
    }))
}

/// Puts a disk where the guest looks for it; the first is what it boots from.
fn attach(words: &mut Words, number: usize, disk: &Attached) {
    let boots = disk_devices::free_boot(words, number as u64 + 1);
    let what = format!("drive={},bootindex={boots}", disk_devices::node(number));
    let device = match disk.bus.as_str() {
        "scsi" => {
            words.push("device", format!("virtio-scsi-pci,id=stonefold-scsi{number}"));
            format!("scsi-hd,bus=stonefold-scsi{number}.0,{what}")
        }
        "sata" | "ide" => format!("ide-hd,{what}"),
        "usb" => {
            words.push("device", format!("qemu-xhci,id=stonefold-usb{number}"));
            format!("usb-storage,bus=stonefold-usb{number}.0,{what}")
        }
        _ => format!("virtio-blk-pci,id=stonefold-vd{number},{what}"),
    };
    words.push("device", device);
}

/// Starts a machine; it runs on return.
///
/// # Errors
/// [`Kind::NotFound`] where QEMU is not installed; what QEMU says, where it refuses: then nothing runs.
pub(super) async fn start(
    env: &Env,
    folder: &Folder,
    arguments: &[String],
    groups: Option<&Groups>,
) -> Result<Qmp> {
    folder.make()?;
    let begun = match groups.map_or(Ok(()), |groups| groups.make(folder)) {
        Ok(()) => run(env, arguments, groups).await,
        Err(error) => Err(error),
    };
    let qmp = match begun {
        Ok(()) => Qmp::connect(env, &folder.qmp(), START_MAX).await,
        Err(error) => Err(error),
    };
    if qmp.is_err() {
        kill(folder);
        folder.remove(env).await;
    }
    qmp
}

/// QEMU goes into the background once it has everything; until then it says here what it lacks.
async fn run(env: &Env, arguments: &[String], groups: Option<&Groups>) -> Result<()> {
    let words = groups.map_or_else(|| vec![PROGRAM.to_owned()], |groups| groups.entered(PROGRAM));
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let output = within(env, START_MAX, command.output()).await.ok_or_else(|| {
        let what = format!("QEMU was not ready within {} s", START_MAX.as_secs());
        Error::new(Kind::Io, what).remedy("look whether the host has memory and time for it")
    })?;
    let output = output.map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => not_installed(),
        _ => Error::io("starting QEMU", e),
    })?;
    let said = last_words(&output.stderr);
    match output.status.code() {
        Some(0) => Ok(()),
        // Of the shell that enters its groups first.
        Some(127) if groups.is_some() => Err(not_installed()),
        Some(NOT_ENTERED) if groups.is_some() => {
            Err(Error::new(Kind::Io, format!("QEMU cannot enter its control group: {said}"))
                .remedy("start it without limits"))
        }
        _ => Err(Error::new(Kind::Io, format!("QEMU refuses the machine: {said}"))
            .remedy("correct the machine's description; 'stonefold machine show NAME --json' has it")),
    }
}

fn not_installed() -> Error {
    Error::new(Kind::NotFound, format!("{PROGRAM} is not installed where the server runs")).remedy(
        "install it: apt install qemu-system-x86 (Debian, Ubuntu) or dnf install qemu-kvm (Fedora, RHEL)",
    )
}

pub(super) const PROGRAM: &str = "qemu-system-x86_64";

/// Whether the machine that has this folder is still there. Its socket is not asked: it takes one client at a time, and who knocks meanwhile
/// waits.
pub(crate) fn is_running(folder: &Folder) -> bool {
    process_of(folder).is_some()
}

/// Pulls the plug, and waits until it is out. A machine that has gone already is out.
pub(crate) async fn end(env: &Env, folder: &Folder) -> Result<()> {
    if is_running(folder) {
        let asked = async {
            let qmp = Qmp::connect(env, &folder.qmp(), ANSWER_MAX).await?;
            qmp.execute("quit", json!({}), ANSWER_MAX).await
        };
        // Going is its answer; one that does not answer is killed.
        if asked.await.is_err_and(|error| error.kind() != Kind::Closed) {
            kill(folder);
        }
        let until = env.monotonic() + ANSWER_MAX;
        while is_running(folder) {
            if env.monotonic() > until {
                let what = format!("the QEMU of '{}' does not end", folder.0.display());
                return Err(Error::new(Kind::Io, what).remedy("look at that process, and end it by hand"));
            }
            env.sleep(Duration::from_millis(20)).await;
        }
    }
    folder.remove(env).await;
    Ok(())
}

/// Asks the guest to shut down, as by its power button, and waits until it has.
///
/// # Errors
/// [`Kind::Busy`] where it has not within `patience`: it runs on.
pub(crate) async fn shut_down(env: &Env, folder: &Folder, patience: Duration) -> Result<()> {
    if is_running(folder) {
        let qmp = Qmp::connect(env, &folder.qmp(), ANSWER_MAX).await?;
        qmp.execute("system_powerdown", json!({}), ANSWER_MAX).await?;
        drop(qmp);
        let until = env.monotonic() + patience;
        while is_running(folder) {
            if env.monotonic() > until {
                let what = format!("the guest did not shut down within {} s", patience.as_secs());
                return Err(Error::new(Kind::Busy, what).remedy(
                    "shut it down from within, or pull its plug: recover stop NAME --discard, or --power-off to keep the disks",
                ));
            }
            env.sleep(Duration::from_millis(100)).await;
        }
    }
    folder.remove(env).await;
    Ok(())
}

fn kill(folder: &Folder) {
    if let Some(process) = process_of(folder) {
        // One that has gone meanwhile is gone.
        let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
    }
}

/// The process that has this folder: by the number there, which may be another process's by now, and then names another folder, or none.
fn process_of(folder: &Folder) -> Option<rustix::process::Pid> {
    let number: i32 = fs::read_to_string(folder.pid()).ok()?.trim().parse().ok()?;
    let line = fs::read(format!("/proc/{number}/cmdline")).ok()?;
    let is_it = String::from_utf8_lossy(&line).contains(&*folder.pid().to_string_lossy());
    rustix::process::Pid::from_raw(number).filter(|_| is_it)
}

/// Where the machine's folder is named, for the tests and for whoever looks.
pub(crate) fn folder_of(base: &Path, name: &str, chance: [u8; 4]) -> Folder {
    Folder(base.join(format!("{name}-{}", crate::clones::hexadecimal(&chance))))
}
