//! `stonefold machine …`.

mod stats;

use crate::context::Context;
use crate::failure::Failure;
use crate::table::{Table, count, facts};
use crate::waiting::wait_for;
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::PathBuf;
use std::str::FromStr;
use stonefold_api::{
    Hardware, HardwareKind, Machine as Shown, MachineClone, MachineCloned, MachineCreate, MachineSet,
    MachineSnapshot, MachineSync, MachineSynced,
};
use stonefold_types::{Error, Kind, Name, Result};

/// Keep disks that belong to one machine together, with its hardware description
///
/// A machine's disks are snapshotted, backed up, cloned and recovered together, at one instant.
#[derive(Subcommand)]
pub(crate) enum Machine {
    /// Say which disks belong to a machine; they stay as they are
    #[command(after_help = "Examples:\n  \
        virsh dumpxml --inactive web > web.xml\n  \
        stonefold machine add web --disk web-root,web-data --xml web.xml\n  \
        stonefold machine add db --disk db --qemu-args db.args")]
    Add {
        /// The machine's name: 1 to 128 letters, digits, '.', '_' or '-'
        name: Name,
        /// Its disks, separated by commas, in the order in which its description has them
        #[arg(long = "disk", value_name = "D[,D…]", value_delimiter = ',', required = true)]
        disks: Vec<Name>,
        #[command(flatten)]
        hardware: Description,
    },
    /// List all machines
    Ls,
    /// Show a machine; with --json its hardware description, too
    Show {
        /// The machine
        name: Name,
    },
    /// Remove a machine; its disks stay
    Rm {
        /// The machine
        name: Name,
    },
    /// Take a snapshot of all disks of a machine at one instant
    #[command(after_help = "Example:\n  stonefold machine snapshot web --name before-upgrade")]
    Snapshot {
        /// The machine
        #[arg(value_name = "NAME")]
        machine: Name,
        /// The snapshot's name on each disk [default: made from the time]
        #[arg(long)]
        name: Option<Name>,
    },
    /// Make a machine from another, or many at once, whatever their size
    ///
    /// Each has clones of all disks, called NEW.TARGET (web-test.vda); a domain of libvirt's gets a name, a UUID and MAC addresses of its
    /// own. All of them are made, or none.
    #[command(after_help = "Examples:\n  \
        stonefold machine clone web web-test                  (as it is now)\n  \
        stonefold machine clone golden@v3 desk --count 100    (desk-1 to desk-100)")]
    Clone {
        /// The machine, or a snapshot that all its disks have
        #[arg(value_name = "NAME[@SNAP]")]
        from: From,
        /// The new machine's name
        new: Name,
        /// So many, called NEW-1, NEW-2 and so on
        #[arg(long, value_name = "N")]
        count: Option<u32>,
    },
    /// Bring a machine up to its master's newest snapshot, while it keeps some disks of its own
    ///
    /// Each disk that the master has, too, begins anew as a clone, under its old name and with its old settings; WHAT IT HELD IS GONE. Disks that are kept, and
    /// those that the master has not, stay as they are. Which are kept is remembered (machine show tells it): the next sync need not name them. All are replaced or none. Refused while a client is connected to one of them, and while one
    /// has snapshots.
    #[command(after_help = "Examples:\n  \
        stonefold machine sync desk-1 --from golden --keep vdb\n  \
        stonefold machine sync desk-1 --from golden@v4      (keeps vdb, too)\n  \
        stonefold machine sync desk-1 --from golden --keep none")]
    Sync {
        /// The machine
        name: Name,
        /// Its master, or a snapshot that all the master's disks have
        #[arg(long, value_name = "MASTER[@SNAP]")]
        from: From,
        /// Disks that stay, by what the machine calls them, separated by commas, now and with each sync to come; "none" for none any more
        #[arg(long, value_name = "TARGET[,TARGET…]", value_delimiter = ',')]
        keep: Option<Vec<Name>>,
    },
    /// Make a template of a machine: it cannot be removed, and clones begin as its newest snapshot
    #[command(
        after_help = "Examples:\n  stonefold machine template golden\n  stonefold machine template golden --off"
    )]
    Template {
        /// The machine
        name: Name,
        /// It is none any more
        #[arg(long)]
        off: bool,
    },
    /// Give all disks of a machine a class of service, at once; say where its guest agent is reached
    #[command(after_help = "Examples:\n  \
        stonefold machine set web --qos critical\n  \
        stonefold machine set web --agent libvirt:qemu:///system\n  \
        stonefold machine set db --agent unix:/run/vms/db/agent.sock")]
    Set {
        /// The machine
        name: Name,
        /// The class; 'qos ls' shows those there are
        #[arg(long, value_name = "CLASS", required_unless_present = "agent")]
        qos: Option<Name>,
        /// Where its guest agent is reached, by which it stands still for application-consistent points: unix:/PATH, the socket of QEMU's channel
        /// org.qemu.guest_agent.0, or libvirt:URI; none forgets it. Takes an admin
        #[arg(long, value_name = "PLACE")]
        agent: Option<String>,
    },
    /// Show how a machine's disks are, together and one by one, and what clients did with them since the server started
    #[command(after_help = "Example:\n  stonefold machine stats web --exact")]
    Stats {
        /// The machine
        name: Name,
        /// Count what its disks take of the pool, alone and with others: exact as of now, and takes time for large disks
        #[arg(long)]
        exact: bool,
    },
}

/// What a machine is made of, besides its disks
#[derive(Args)]
#[group(multiple = false)]
pub(crate) struct Description {
    /// Its domain, as 'virsh dumpxml --inactive' prints it
    #[arg(long, value_name = "FILE")]
    xml: Option<PathBuf>,
    /// What QEMU is started with; of a disk only the device, where it is not to hang on virtio: -device ide-hd,drive=vda
    #[arg(long, value_name = "FILE")]
    qemu_args: Option<PathBuf>,
}

/// A machine, or one of its snapshots.
#[derive(Clone, Debug)]
pub(crate) struct From {
    machine: Name,
    snapshot: Option<Name>,
}

impl FromStr for From {
    type Err = Error;

    fn from_str(text: &str) -> Result<From> {
        match text.split_once('@') {
            None => Ok(From { machine: Name::new(text)?, snapshot: None }),
            Some((machine, snapshot)) => {
                Ok(From { machine: Name::new(machine)?, snapshot: Some(Name::new(snapshot)?) })
            }
        }
    }
}

impl Description {
    fn read(self) -> Result<Option<Hardware>> {
        let (path, kind) = match (self.xml, self.qemu_args) {
            (Some(path), _) => (path, HardwareKind::LibvirtXml),
            (None, Some(path)) => (path, HardwareKind::QemuArgs),
            (None, None) => return Ok(None),
        };
        let what = format!("the hardware description '{}'", path.display());
        let bytes = std::fs::read(&path)
            .map_err(|e| Error::io(format!("{what} cannot be read"), e).remedy("name a readable file"))?;
        let text = String::from_utf8(bytes).map_err(|_| {
            Error::new(Kind::Invalid, format!("{what} is no text in UTF-8")).remedy("save it in UTF-8")
        })?;
        Ok(Some(Hardware { kind, text }))
    }
}

impl Machine {
    pub(crate) fn run(self, context: &Context) -> std::result::Result<(), Failure> {
        let client = context.client()?;
        match self {
            Machine::Add { name, disks, hardware } => {
                let new = MachineCreate { name, disks, hardware: hardware.read()? };
                let added = client.create_machine(&new)?;
                let disks = count(added.disks.len() as u64, "disk");
                context.answer(&added, || format!("machine '{}' of {disks} added\n", added.name))
            }
            Machine::Ls => {
                let machines = client.machines()?;
                context.answer(&machines, || table(&machines))
            }
            Machine::Show { name } => {
                let machine = client.machine(&name)?;
                context.answer(&machine, || shown(&machine))
            }
            Machine::Rm { name } => {
                client.remove_machine(&name)?;
                let text = || format!("removed machine '{name}'; its disks stay as they are\n");
                context.answer(&json!({ "removed": [name] }), text)
            }
            Machine::Snapshot { machine, name } => {
                let taken = client.snapshot_machine(&machine, &MachineSnapshot { name })?;
                let disks = count(taken.disks.len() as u64, "disk");
                context.answer(&taken, || format!("{}@{} of {disks}\n", taken.machine, taken.name))
            }
            Machine::Clone { from, new, count } => {
                let From { machine, snapshot } = from;
                let asked = MachineClone { name: new, snapshot, count };
                let of = machine.clone();
                let made = wait_for(&client, "clone", move |client| client.clone_machine(&of, &asked))?;
                context.answer(&made, || cloned_text(&machine, &made))
            }
            Machine::Sync { name, from, keep } => {
                let From { machine: master, snapshot } = from;
                let is_none = |keep: &[Name]| matches!(keep, [one] if one.as_str() == "none");
                let keep = keep.map(|keep| if is_none(&keep) { Vec::new() } else { keep });
                let asked = MachineSync { master: master.clone(), snapshot, keep };
                let synced = wait_for(&client, "sync", move |client| client.sync_machine(&name, &asked))?;
                context.answer(&synced, || synced_text(&master, &synced))
            }
            Machine::Template { name, off } => {
                let set = MachineSet { template: Some(!off), ..MachineSet::default() };
                let set = client.set_machine(&name, &set)?;
                let is = if off { "no template any more" } else { "a template" };
                context.answer(&set, || format!("machine '{name}' is {is}\n"))
            }
            Machine::Set { name, qos, agent } => {
                let set = MachineSet { qos: qos.clone(), agent: agent.clone(), ..MachineSet::default() };
                let set = client.set_machine(&name, &set)?;
                context.answer(&set, || set_text(&set, qos.as_ref(), agent.is_some()))
            }
            Machine::Stats { name, exact } => stats::run(context, name, exact),
        }
    }
}

fn set_text(machine: &Shown, class: Option<&Name>, agent: bool) -> String {
    let (name, disks) = (&machine.name, count(machine.disks.len() as u64, "disk"));
    let of_class = class.map(|class| format!("machine '{name}': {disks} in class '{class}'\n"));
    let of_agent = agent.then(|| match &machine.agent {
        Some(place) => format!("machine '{name}': its guest agent is reached at {place}\n"),
        None => format!("machine '{name}': nothing is known of a guest agent any more\n"),
    });
    of_class.into_iter().chain(of_agent).collect()
}

fn cloned_text(machine: &Name, made: &MachineCloned) -> String {
    let line = |new: &Shown| format!("machine '{}' made from {machine}@{}\n", new.name, made.snapshot);
    let mut text: String = made.machines.iter().map(line).collect();
    made.notes.iter().for_each(|note| text += &format!("note: {note}\n"));
    text
}

fn synced_text(master: &Name, synced: &MachineSynced) -> String {
    let kept = if synced.kept.is_empty() { "nothing".to_owned() } else { targets(&synced.kept) };
    let (name, replaced) = (&synced.machine.name, targets(&synced.replaced));
    let snapshot = &synced.snapshot;
    let mut text = format!("machine '{name}' is at {master}@{snapshot}: {replaced} anew, {kept} kept\n");
    synced.notes.iter().for_each(|note| text += &format!("note: {note}\n"));
    text
}

fn targets(disks: &[Name]) -> String {
    disks.iter().map(Name::as_str).collect::<Vec<_>>().join(",")
}

/// The disks of a machine, in words.
pub(crate) fn disks_text(disks: &[stonefold_api::MachineDisk]) -> String {
    let line = |disk: &stonefold_api::MachineDisk| {
        let missing = if disk.missing { " (there is no such disk any more)" } else { "" };
        format!("{} {}{missing}", disk.target, disk.disk)
    };
    disks.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// What a machine's description is, in words.
pub(crate) fn hardware_text(hardware: Option<&Hardware>) -> String {
    hardware.map_or_else(
        || "not told".to_owned(),
        |hardware| {
            let kind = match hardware.kind {
                HardwareKind::LibvirtXml => "libvirt's XML",
                HardwareKind::QemuArgs => "QEMU's arguments",
            };
            format!("{kind}, {} bytes", hardware.text.len())
        },
    )
}

fn shown(machine: &Shown) -> String {
    facts([
        ("machine", machine.name.to_string()),
        ("disks", disks_text(&machine.disks)),
        (
            "reached at",
            machine.disks.iter().flat_map(|disk| disk.uris.clone()).collect::<Vec<_>>().join("\n"),
        ),
        ("hardware", hardware_text(machine.hardware.as_ref())),
        ("cloned from", machine.origin.clone().unwrap_or_default()),
        ("guest agent", machine.agent.clone().unwrap_or_default()),
        ("template", if machine.template { "yes" } else { "" }.to_owned()),
        ("sync keeps", targets(&machine.kept)),
        ("added", format!("{} UTC", machine.added.to_seconds_text())),
    ])
}

fn table(machines: &[Shown]) -> String {
    let mut table = Table::new(&["NAME", "DISKS", "CLONED FROM", "ADDED (UTC)", "TEMPLATE"]);
    for machine in machines {
        let disks: Vec<&str> = machine.disks.iter().map(|disk| disk.disk.as_str()).collect();
        table.row([
            machine.name.to_string(),
            disks.join(","),
            machine.origin.clone().unwrap_or_else(|| "-".to_owned()),
            machine.added.to_seconds_text(),
            if machine.template { "yes" } else { "" }.to_owned(),
        ]);
    }
    table.or("no machines; 'stonefold machine add NAME --disk D' adds one")
}
