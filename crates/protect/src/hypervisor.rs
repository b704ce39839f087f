//! Where machines run that are started from what is recovered: QEMU itself, or libvirt.
//!
//! *Promises*: a machine that could not be started is not left half started; one is known by its folder or its UUID, which are chance.
//! *Never*: is asked within a change of the catalog, since a hypervisor may take its time; but by a start, which ends what a proof before it left.

mod accelerator;
mod agent;
mod described;
mod disk_devices;
mod guest;
mod host_ends;
mod limits;
mod qemu;
mod sign;
mod sockets;
mod virsh;
mod words;

pub use accelerator::Accelerator;
pub(crate) use described::{
    check as check_arguments, passed_on, recovered as recovered_arguments, running as running_arguments,
};
pub(crate) use disk_devices::{called, node as disk_node};
pub use guest::AgentPlace;
pub(crate) use guest::Guest;
pub use limits::Limits;
pub(crate) use qemu::{ANSWER_MAX, Folder, nbd_server};
pub use sign::Sign;
pub(crate) use sign::Watched;
pub(crate) use sockets::socket_folder;
pub(crate) use virsh::{Virsh, is_of_this_host};

use crate::Hardware;
use crate::domain::{self, Domain, Machine, Reach};
use crate::machines::MachineDisk;
use crate::qmp::Qmp;
use limits::Groups;
use qemu::Attached;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::{Error, ExportName, Kind, Name, Result};
use words::Words;

/// What the server may start machines with.
#[derive(Clone, Debug)]
pub struct Hypervisors {
    /// Folders of running machines are made here.
    pub folder: PathBuf,
    /// What runs processors.
    pub accelerator: Accelerator,
}

impl Default for Hypervisors {
    /// A folder that a restart of the host empties, as it ends the machines: the service manager's, root's, or the user's.
    fn default() -> Self {
        let named =
            |variable: &str| std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from);
        let folder = match (named("RUNTIME_DIRECTORY"), named("XDG_RUNTIME_DIR")) {
            (Some(of_service), _) => of_service,
            _ if rustix::process::getuid().is_root() => PathBuf::from("/run/stonefold"),
            (None, Some(of_user)) => of_user.join("stonefold"),
            (None, None) => {
                std::env::temp_dir().join(format!("stonefold-{}", rustix::process::getuid().as_raw()))
            }
        };
        Hypervisors { folder: folder.join("machines"), accelerator: Accelerator::Auto }
    }
}

/// Where a machine is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where {
    /// In a QEMU of its own, on the server's host.
    Qemu,
    /// In the libvirt of this URI.
    Libvirt(String),
}

impl FromStr for Where {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.split_once(':') {
            None if text == "qemu" => Ok(Where::Qemu),
            Some(("libvirt", uri)) if uri.contains(':') => Ok(Where::Libvirt(uri.to_owned())),
            _ => Err(format!(
                "'{text}' is no place for a machine: write qemu, or libvirt:URI as in libvirt:qemu:///system"
            )),
        }
    }
}

impl fmt::Display for Where {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Where::Qemu => f.write_str("qemu"),
            Where::Libvirt(uri) => write!(f, "libvirt:{uri}"),
        }
    }
}

/// Where a machine runs, or did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Host {
    /// In a QEMU of its own.
    Qemu {
        /// Its sockets and its console.
        folder: PathBuf,
    },
    /// In a libvirt.
    Libvirt {
        /// Which.
        uri: String,
        /// Its UUID, or its name where it has none of its own.
        domain: String,
    },
}

/// A machine that is to be started.
pub(crate) struct Start<'a> {
    pub(crate) name: &'a Name,
    pub(crate) disks: &'a [MachineDisk],
    pub(crate) hardware: Option<&'a Hardware>,
    pub(crate) reach: &'a Reach,
    /// A port of the guest's that is to be reached from this host.
    pub(crate) forward: Option<Forward>,
    /// What it may take of its host.
    pub(crate) limits: Limits,
}

/// A port of a guest's that its host reaches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forward {
    /// The host's own, on loopback, that leads to it.
    pub(crate) host: u16,
    pub(crate) guest: u16,
    /// Whether the guest has no other network, whatever is said of it.
    pub(crate) alone: bool,
}

impl Start<'_> {
    /// What QEMU is started with, and what there is to say of it.
    fn arguments(&self, folder: &Folder, kvm: bool) -> Result<(Vec<String>, Vec<String>)> {
        let (mut words, notes) = match self.hardware {
            Some(Hardware::QemuArgs(text)) => (Words::parse(text)?, Vec::new()),
            Some(Hardware::Libvirt(xml)) => described::of_domain(xml)?,
            None => described::made_up(self.name.as_str()),
        };
        if let Some(forward) = &self.forward {
            described::forward(&mut words, forward)?;
        }
        Ok((qemu::command_line(words, &self.attached()?, self.reach, (folder, kvm))?, notes))
    }

    fn attached(&self) -> Result<Vec<Attached>> {
        let buses = match self.hardware {
            Some(Hardware::Libvirt(xml)) => Machine::parse(xml)?.buses,
            _ => Vec::new(),
        };
        let of = |disk: &MachineDisk| {
            let said = buses.iter().find(|(target, _)| target == disk.target.as_str());
            let bus = said.map_or("virtio", |(_, bus)| bus);
            Attached { export: ExportName::Disk(disk.disk.clone()), bus: bus.to_owned() }
        };
        Ok(self.disks.iter().map(of).collect())
    }
}

/// What the guest of a machine is given, in bytes, where that is plain.
pub(crate) fn memory_bytes(name: &Name, hardware: Option<&Hardware>) -> Result<Option<u64>> {
    match hardware {
        Some(Hardware::QemuArgs(text)) => Ok(Words::parse(text)?.memory_bytes()),
        // What libvirt takes is more than what is understood here.
        Some(Hardware::Libvirt(xml)) => Ok(Machine::parse(xml).ok().map(|machine| machine.memory_mib << 20)),
        None => Ok(described::made_up(name.as_str()).0.memory_bytes()),
    }
}

/// A machine that has been started.
pub(crate) struct Started {
    /// To speak to it; nothing of libvirt's.
    pub(crate) qmp: Option<Qmp>,
    /// What there is to say of it.
    pub(crate) notes: Vec<String>,
}

impl Host {
    /// Where a machine will be that is started there: known before it is, so that it is found again whatever happens.
    ///
    /// # Errors
    /// [`Kind::Invalid`] where libvirt has no description of it.
    pub(crate) fn draw(
        to: &Where,
        env: &Env,
        (name, hardware): (&Name, Option<&Hardware>),
        own: &Hypervisors,
    ) -> Result<Host> {
        match (to, hardware) {
            (Where::Qemu, _) => {
                Ok(Host::Qemu { folder: qemu::folder_of(&own.folder, name.as_str(), env.random()).0 })
            }
            (Where::Libvirt(uri), Some(Hardware::Libvirt(xml))) => {
                Ok(Host::Libvirt { uri: uri.clone(), domain: Domain::parse(xml)?.known_as() })
            }
            (Where::Libvirt(_), other) => {
                let has = if other.is_some() { "QEMU's arguments are kept" } else { "nothing is kept" };
                let what = format!("libvirt needs a domain's description, and {has} of '{name}''s hardware");
                Err(Error::new(Kind::Invalid, what)
                    .remedy("start it by QEMU itself (qemu), or add the machine with --xml"))
            }
        }
    }

    /// Starts it; it runs on return, or it is not there.
    pub(crate) async fn start(&self, env: &Env, start: &Start<'_>, kvm: bool) -> Result<Started> {
        start.limits.check(memory_bytes(start.name, start.hardware)?)?;
        match self {
            Host::Qemu { folder } => {
                let folder = Folder(folder.clone());
                let (arguments, notes) = start.arguments(&folder, kvm)?;
                tracing::info!("starting '{}' by QEMU in '{}'", start.name, folder.0.display());
                let groups = match start.limits.is_none() {
                    true => None,
                    false => Some(Groups::of(&folder, &start.limits)?),
                };
                let qmp = qemu::start(env, &folder, &arguments, groups.as_ref()).await?;
                Ok(Started { qmp: Some(qmp), notes })
            }
            Host::Libvirt { uri, domain } => {
                let xml = start.hardware.map(Hardware::text).unwrap_or_default();
                let xml = domain::limited(xml, &start.limits)?;
                Virsh { env, uri }.start(&xml, domain).await?;
                Ok(Started { qmp: None, notes: Vec::new() })
            }
        }
    }

    /// Whether it runs.
    pub(crate) async fn is_running(&self, env: &Env) -> Result<bool> {
        match self {
            Host::Qemu { folder } => Ok(qemu::is_running(&Folder(folder.clone()))),
            Host::Libvirt { uri, domain } => Ok(Virsh { env, uri }.state(domain).await? == Some(true)),
        }
    }

    /// Asks the guest to shut down, and waits until it has; then nothing of the machine is left.
    pub(crate) async fn shut_down(&self, env: &Env, patience: Duration) -> Result<()> {
        match self {
            Host::Qemu { folder } => qemu::shut_down(env, &Folder(folder.clone()), patience).await,
            Host::Libvirt { uri, domain } => Virsh { env, uri }.shut_down(domain, patience).await,
        }
    }

    /// Pulls its plug; then nothing of it is left.
    pub(crate) async fn end(&self, env: &Env) -> Result<()> {
        match self {
            Host::Qemu { folder } => qemu::end(env, &Folder(folder.clone())).await,
            Host::Libvirt { uri, domain } => Virsh { env, uri }.end(domain).await,
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Qemu { .. } => f.write_str("qemu"),
            Host::Libvirt { uri, .. } => write!(f, "libvirt:{uri}"),
        }
    }
}

/// Of what a program complained of, in bytes.
const WORDS_BYTES_MAX: usize = 500;

/// What a program of QEMU's or libvirt's complained of last, without its own name in front.
pub(crate) fn last_words(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(&said[said.len().saturating_sub(WORDS_BYTES_MAX)..]);
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it did not say why").trim();
    let own = [qemu::PROGRAM, "qemu-img", "qemu-nbd", "error"];
    let bare = own.iter().find_map(|name| line.strip_prefix(name)?.strip_prefix(": "));
    bare.unwrap_or(line).to_owned()
}

#[cfg(test)]
mod tests;
