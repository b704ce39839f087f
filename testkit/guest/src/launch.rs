//! How a machine is described and started: the QEMU command line, in one place.

use std::{
    ffi::OsString,
    fs::File,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result};
use serde_json::json;

use crate::{Accelerator, Guest, console::Console, process::tied_to_us};

/// How long QEMU keeps a guest's requests while its NBD server is away: a server that is restarted or taken over in that
/// time is never noticed by the guest.
const RECONNECT_DELAY_S: u32 = 60;

/// A disk behind an NBD server's Unix socket.
#[derive(Clone, Debug)]
pub struct NbdDisk {
    socket: PathBuf,
    export: String,
}

impl NbdDisk {
    /// The export of this name at this socket, writable.
    pub fn new(socket: impl Into<PathBuf>, export: impl Into<String>) -> Self {
        Self { socket: socket.into(), export: export.into() }
    }
}

#[derive(Clone, Debug)]
struct DirectKernel {
    kernel: PathBuf,
    initramfs: PathBuf,
    command_line: String,
}

/// A machine that is not running yet.
#[derive(Clone, Debug)]
pub struct Launch {
    name: String,
    logs: PathBuf,
    accelerator: Accelerator,
    memory_mib: u32,
    processors: u32,
    kernel: Option<DirectKernel>,
    disks: Vec<NbdDisk>,
    /// A port of this machine, and the guest's port that it leads to.
    forward: Option<(u16, u16)>,
}

impl Launch {
    /// A machine of this name, which keeps its console and QEMU's own messages as files in `logs`.
    pub fn new(name: impl Into<String>, logs: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            logs: logs.into(),
            accelerator: Accelerator::Tcg,
            memory_mib: 512,
            processors: 2,
            kernel: None,
            disks: Vec::new(),
            forward: None,
        }
    }

    /// What runs the guest's processors; emulation unless told.
    #[must_use]
    pub fn accelerator(mut self, accelerator: Accelerator) -> Self {
        self.accelerator = accelerator;
        self
    }

    /// The guest's memory; 512 MiB unless told.
    #[must_use]
    pub fn memory_mib(mut self, memory_mib: u32) -> Self {
        self.memory_mib = memory_mib;
        self
    }

    /// Boots this kernel and initramfs at once instead of the disk's boot loader.
    #[must_use]
    pub fn direct_kernel(mut self, kernel: &Path, initramfs: &Path, command_line: &str) -> Self {
        let command_line = command_line.to_owned();
        self.kernel = Some(DirectKernel { kernel: kernel.into(), initramfs: initramfs.into(), command_line });
        self
    }

    /// One more disk of the guest: `/dev/vda`, from which it boots, then `/dev/vdb`, and so on.
    #[must_use]
    pub fn disk(mut self, disk: NbdDisk) -> Self {
        self.disks.push(disk);
        self
    }

    /// Gives the guest a network of its own, 10.0.2.0/24, of which it is to be 10.0.2.15, and leads connections to `port` of this machine's
    /// loopback to its port `inside`. It has no network unless told.
    #[must_use]
    pub fn forward(mut self, port: u16, inside: u16) -> Self {
        self.forward = Some((port, inside));
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// When QEMU is missing or ends at once; its own words are in the error.
    pub fn start(self) -> Result<Guest> {
        std::fs::create_dir_all(&self.logs)
            .with_context(|| format!("could not make the folder {}", self.logs.display()))?;
        // A folder of our own under the temporary folder keeps the socket's path below the 108 bytes a socket may have.
        let run = tempfile::Builder::new()
            .prefix("stonefold-guest-")
            .tempdir()
            .context("could not make a temporary folder")?;
        let control = run.path().join("qmp.sock");
        let qemu_log = self.logs.join(format!("{}.qemu.log", self.name));
        let messages =
            File::create(&qemu_log).with_context(|| format!("could not create {}", qemu_log.display()))?;
        let mut child = self
            .command(&control)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(messages)
            .spawn()
            .context("could not start QEMU (qemu-system-x86_64, from the package qemu-system-x86)")?;
        let streams =
            child.stdout.take().zip(child.stdin.take()).context("QEMU was started without a console");
        let console = streams.and_then(|(output, input)| {
            Console::open(output, input, &self.logs.join(format!("{}.console.log", self.name)))
        });
        match console {
            Ok(console) => Ok(Guest::new(self.name, child, console, control, qemu_log, run)),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    fn command(&self, control: &Path) -> Command {
        let mut command = tied_to_us("qemu-system-x86_64", "KILL");
        command.args(self.arguments(control));
        command
    }

    fn arguments(&self, control: &Path) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = Vec::new();
        let mut add = |words: &[&str]| arguments.extend(words.iter().map(OsString::from));
        add(&[
            "-name",
            &self.name,
            "-M",
            "q35",
            "-m",
            &self.memory_mib.to_string(),
            "-smp",
            &self.processors.to_string(),
        ]);
        add(self.accelerator.arguments());
        add(&["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio"]);
        let forwarded = self.forward.map(|(port, inside)| {
            format!("user,model=virtio-net-pci,hostfwd=tcp:127.0.0.1:{port}-:{inside}")
        });
        add(&["-nic", forwarded.as_deref().unwrap_or("none")]);
        add(&[
            "-device",
            "virtio-rng-pci",
            "-qmp",
            &format!("unix:{},server=on,wait=off", comma_doubled(control)),
        ]);
        match &self.kernel {
            Some(direct) => {
                add(&[
                    "-kernel",
                    &direct.kernel.to_string_lossy(),
                    "-initrd",
                    &direct.initramfs.to_string_lossy(),
                ]);
                add(&["-append", &direct.command_line]);
            }
            // Boot loaders and unknown guests expect a screen, and a screenshot tells what they say when the console is mute.
            None => add(&["-vga", "std"]),
        }
        for (number, disk) in self.disks.iter().enumerate() {
            let device = format!("virtio-blk-pci,drive=disk{number},bootindex={}", number + 1);
            add(&["-blockdev", &disk.blockdev(number), "-device", &device]);
        }
        arguments
    }
}

impl NbdDisk {
    fn blockdev(&self, number: usize) -> String {
        json!({
            "driver": "nbd",
            "node-name": format!("disk{number}"),
            "server": { "type": "unix", "path": self.socket.to_string_lossy() },
            "export": self.export,
            "reconnect-delay": RECONNECT_DELAY_S,
            "discard": "unmap",
        })
        .to_string()
    }
}

/// In QEMU's `key=value,…` options a comma in a value is written twice.
fn comma_doubled(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(launch: &Launch) -> String {
        let arguments = launch.arguments(Path::new("/run/a,b/qmp.sock"));
        arguments.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_disk_outlives_its_servers_restart_and_gives_space_back() {
        let words = words(&Launch::new("debian", "/logs").disk(NbdDisk::new("/run/nbd.sock", "debian")));
        assert!(
            words.contains(r#""reconnect-delay":60"#) && words.contains(r#""discard":"unmap""#),
            "{words}"
        );
        assert!(
            words.contains(r#""export":"debian""#) && words.contains(r#""path":"/run/nbd.sock""#),
            "{words}"
        );
    }

    #[test]
    fn disks_come_in_their_order_and_a_port_leads_inside() {
        let disk = |export: &str| NbdDisk::new("/run/nbd.sock", export);
        let launch = Launch::new("debian", "/logs").disk(disk("root")).disk(disk("data")).forward(7000, 7771);
        let words = words(&launch);
        let at = |text: &str| words.find(text).unwrap_or_else(|| panic!("no {text} in {words}"));
        assert!(at(r#""export":"root""#) < at("drive=disk0,bootindex=1"));
        assert!(at("drive=disk0,bootindex=1") < at("drive=disk1,bootindex=2"));
        assert!(
            words.contains("hostfwd=tcp:127.0.0.1:7000-:7771") && !words.contains("-nic none"),
            "{words}"
        );
    }

    #[test]
    fn a_guest_has_no_network_and_no_window() {
        let words = words(&Launch::new("debian", "/logs"));
        assert!(
            words.contains("-nic none") && words.contains("-display none") && words.contains("-nodefaults"),
            "{words}"
        );
        assert!(words.contains("unix:/run/a,,b/qmp.sock"), "{words}");
    }

    #[test]
    fn a_direct_kernel_needs_no_screen() {
        let launch = Launch::new("tiny", "/logs").direct_kernel(
            Path::new("/k"),
            Path::new("/i"),
            "stonefold.task=write",
        );
        let words = words(&launch);
        assert!(
            words.contains("-kernel /k -initrd /i -append stonefold.task=write") && !words.contains("-vga"),
            "{words}"
        );
    }
}
