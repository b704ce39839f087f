//! `stonefold source …` and `stonefold backup …`.

use crate::context::Context;
use crate::failure::Failure;
use crate::policy::consistency;
use crate::table::{Table, facts, micros};
use crate::waiting::wait_for;
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::{Path, PathBuf};
use stonefold_api::{Consistency, Run, RunCopied, RunStart, RunState, Source as Shown, SourceCreate, Time};
use stonefold_types::{Error, Kind, Name, PointName, Result, Size};

/// Of what there is to know of a run, in a table.
const NOTE_LETTERS_MAX: usize = 80;

/// Say what is protected
#[derive(Subcommand)]
pub(crate) enum Source {
    Add(Box<Add>),
    /// List all sources
    Ls,
    /// Show a source
    Show {
        /// The source
        name: Name,
    },
    /// Remove a source; its points stay
    Rm {
        /// The source
        name: Name,
    },
}

/// Protect a machine, or what lies on other storage
#[derive(Args)]
#[command(after_help = "Examples:\n  stonefold source add web-nightly --machine web\n  \
    stonefold source add db --nbd nbd://storage/db --bitmap since-last\n  stonefold source add golden --image /srv/images/golden.qcow2\n  \
    stonefold source add mail --qmp /run/mail/qmp.sock --agent unix:/run/mail/agent.sock\n  \
    stonefold source add shop --libvirt qemu:///system --domain shop\n  \
    stonefold source add files --dir /srv/files\n  \
    stonefold source add orders --postgres postgresql://keeper@db.example --scratch /srv/scratch\n  \
    stonefold source add old-web --ssh root@web.example --device /dev/sda\n  \
    stonefold source add share --ssh root@nas.example --device /srv/share")]
pub(crate) struct Add {
    /// The source's name: 1 to 128 letters, digits, '.', '_' or '-'
    name: Name,
    #[command(flatten)]
    of: Of,
    /// The image's format, where its content does not tell it
    #[arg(long, value_name = "FORMAT", requires = "image", conflicts_with_all = ["machine", "nbd", "qmp", "libvirt", "dir", "postgres", "ssh"])]
    format: Option<String>,
    /// A dirty bitmap that the server of --nbd offers, by which only what has changed is read: it must have marked all that has since the last
    /// point, which its keeper sees to. Some places that it has not marked are looked at all the same
    #[arg(long, value_name = "NAME", requires = "nbd", conflicts_with_all = ["machine", "image", "qmp", "libvirt", "dir", "postgres", "ssh"])]
    bitmap: Option<String>,
    /// Where the guest agent of --qmp is reached, by which it stands still for application-consistent points: unix:/PATH, the socket of
    /// QEMU's channel org.qemu.guest_agent.0
    #[arg(long, value_name = "PLACE", requires = "qmp", conflicts_with_all = ["machine", "nbd", "image", "libvirt", "dir", "postgres", "ssh"])]
    agent: Option<String>,
    /// The domain, by its name or UUID
    #[arg(long, value_name = "D", requires = "libvirt", conflicts_with_all = ["machine", "nbd", "qmp", "image", "dir", "postgres", "ssh"])]
    domain: Option<String>,
    /// Where libvirt keeps what the guest overwrites while it is read [default: beside each image]; or where the image of a folder is made,
    /// which takes as much room as what is in it, or those of a cluster, of which a new base takes twice its size, and WAL is kept between
    /// runs [default: /var/tmp; of a cluster, where the server is a service, its own folder]
    #[arg(long, value_name = "DIR", conflicts_with_all = ["machine", "nbd", "qmp", "image", "ssh"])]
    scratch: Option<PathBuf>,
    #[command(flatten)]
    remote: Remote,
}

/// What goes with --ssh
#[derive(Args)]
pub(crate) struct Remote {
    /// A device of the machine of --ssh, which becomes a disk of its points; again for each: a disk with its partitions and volumes, one volume, a file, or a folder,
    /// of which a file system (ext4) is made there as --dir makes one here [default: the disks that its file systems lie on]
    #[arg(long = "device", value_name = "PATH", requires = "ssh", conflicts_with_all = ["machine", "nbd", "image", "qmp", "libvirt", "dir", "postgres"])]
    devices: Vec<String>,
    /// The private key by which the machine of --ssh lets the server in, a file of the server's machine [default: what ssh takes]
    #[arg(long, value_name = "FILE", requires = "ssh", conflicts_with_all = ["machine", "nbd", "image", "qmp", "libvirt", "dir", "postgres"])]
    identity: Option<PathBuf>,
    /// How much of each volume of --ssh may be overwritten while it is read; its volume group needs that room [default: a tenth of the volume,
    /// at least 128M]
    #[arg(long, value_name = "SIZE", requires = "ssh", conflicts_with_all = ["machine", "nbd", "image", "qmp", "libvirt", "dir", "postgres"])]
    snapshot_size: Option<Size>,
}

/// What is protected
#[derive(Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Of {
    /// A machine whose disks are Stonefold's: a point of it is free of copying
    #[arg(long, value_name = "M")]
    machine: Option<Name>,
    /// An export of an NBD server: nbd://HOST[:PORT]/EXPORT, nbd+unix:///EXPORT?socket=PATH, or by TLS nbds://HOST[:PORT]/EXPORT?tls-certificates=DIR,
    /// which takes an admin: a folder of the server's machine with ca-cert.pem, and client-cert.pem and client-key.pem where they are asked for
    #[arg(long, value_name = "URI")]
    nbd: Option<String>,
    /// An image file of any format that qemu-img reads, on the server's machine; takes an admin
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// The guest of a QEMU that runs on the server's machine, by a QMP socket of its own; takes an admin. From the second point on only what
    /// its dirty bitmaps say has changed is read
    #[arg(long, value_name = "SOCKET")]
    qmp: Option<PathBuf>,
    /// A domain (--domain) of a libvirt on the server's machine, running or not, by libvirt's own backups and checkpoints; takes an admin. From
    /// the second point on only what its bitmaps say has changed is read of its qcow2 images
    #[arg(long, value_name = "URI", requires = "domain")]
    libvirt: Option<String>,
    /// A folder on the server's machine, with owners, modes, times, extended attributes, hard links and holes; takes an admin. Each point is a disk
    /// with a file system (ext4) that has them
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,
    /// A PostgreSQL cluster, 13 or newer, by a connection URI as psql takes it, without a password; takes an admin. Its points are base backups with all WAL since:
    /// each brings back any moment between the end of its base and itself
    #[arg(long, value_name = "URL")]
    postgres: Option<String>,
    /// A Linux machine of any hardware, [ssh://][USER@]HOST[:PORT], by the server user's own ssh and keys; takes an admin. Its disks are read as snapshots of its
    /// volumes (LVM) hold them, and come back as a machine; from the second point on only what differs is sent
    #[arg(long, value_name = "HOST")]
    ssh: Option<String>,
}

/// Make points of sources
#[derive(Subcommand)]
pub(crate) enum Backup {
    /// Make a point of a source; ends when it is there
    Run {
        /// The source
        source: Name,
        /// Read everything, also what the source says is empty; of a machine whose disks are Stonefold's nothing is copied, and every point is full
        #[arg(long)]
        full: bool,
        /// What a guest finds on the point: crash, what it would find after a loss of power; app, what its file systems and programs had
        /// finished, for which its agent is asked ('machine set --agent', 'source add --agent', or by libvirt)
        #[arg(long, value_name = "HOW", default_value = "crash", value_parser = consistency)]
        consistent: Consistency,
    },
    /// List the runs of all sources, or of one: the last thousand of each
    Ls {
        /// The source
        source: Option<Name>,
    },
    /// Show a run
    Show {
        /// The run, which has its point's name
        #[arg(value_name = "RUN")]
        run: PointName,
    },
    /// Have a run that copies stand still until it is resumed; its source stays open, and where a guest's disks are read as they were at an instant, what the
    /// guest overwrites meanwhile is copied
    Pause {
        /// The run
        #[arg(value_name = "RUN")]
        run: PointName,
    },
    /// Have it go on
    Resume {
        /// The run
        #[arg(value_name = "RUN")]
        run: PointName,
    },
    /// End a run that copies; it makes no point, and the next one copies only what is lacking
    Cancel {
        /// The run
        #[arg(value_name = "RUN")]
        run: PointName,
    },
}

impl Source {
    pub(crate) fn run(self, context: &Context) -> std::result::Result<(), Failure> {
        let client = context.client()?;
        match self {
            Source::Add(add) => {
                let Add { name, of, format, bitmap, agent, domain, scratch, remote } = *add;
                let image = of.image.map(|path| in_full(&path)).transpose()?;
                let qmp = of.qmp.map(|path| in_full(&path)).transpose()?;
                let dir = of.dir.map(|path| in_full(&path)).transpose()?;
                let scratch = scratch.map(|path| in_full(&path)).transpose()?;
                let identity = remote.identity.map(|path| in_full(&path)).transpose()?;
                let Of { machine, nbd, libvirt, postgres, ssh, .. } = of;
                let asked = SourceCreate {
                    name,
                    machine,
                    nbd,
                    bitmap,
                    image,
                    format,
                    qmp,
                    agent,
                    libvirt,
                    domain,
                    dir,
                    postgres,
                    ssh: ssh.map(|at| if at.contains("://") { at } else { format!("ssh://{at}") }),
                    devices: remote.devices,
                    identity,
                    snapshot_bytes: remote.snapshot_size.map(|size| size.0),
                    scratch,
                };
                let added = client.create_source(&asked)?;
                let text = || format!("source '{}' of {} added\n", added.name, of_text(&added));
                context.answer(&added, text)
            }
            Source::Ls => {
                let sources = client.sources()?;
                context.answer(&sources, || table(&sources))
            }
            Source::Show { name } => {
                let source = client.source(&name)?;
                let of_it = client.points(Some(&name))?.len();
                context.answer(&source, || {
                    facts([
                        ("source", source.name.to_string()),
                        ("machine", source.machine.as_ref().map(Name::to_string).unwrap_or_default()),
                        ("nbd", source.nbd.clone().unwrap_or_default()),
                        ("bitmap", source.bitmap.clone().unwrap_or_default()),
                        ("image", source.image.clone().unwrap_or_default()),
                        ("format", source.format.clone().unwrap_or_default()),
                        ("qmp", source.qmp.clone().unwrap_or_default()),
                        ("agent", source.agent.clone().unwrap_or_default()),
                        ("libvirt", source.libvirt.clone().unwrap_or_default()),
                        ("domain", source.domain.clone().unwrap_or_default()),
                        ("folder", source.dir.clone().unwrap_or_default()),
                        ("cluster", source.postgres.clone().unwrap_or_default()),
                        ("ssh", source.ssh.clone().unwrap_or_default()),
                        ("devices", source.devices.join("\n")),
                        ("key", source.identity.clone().unwrap_or_default()),
                        (
                            "room",
                            source.snapshot_bytes.map(|bytes| Size(bytes).to_string()).unwrap_or_default(),
                        ),
                        (
                            "sent by",
                            source.replica_of.clone().map(|pool| format!("pool {pool}")).unwrap_or_default(),
                        ),
                        ("scratch", source.scratch.clone().unwrap_or_default()),
                        ("disks", listed(&source.disks)),
                        ("added", format!("{} UTC", source.added.to_seconds_text())),
                        ("points", of_it.to_string()),
                    ])
                })
            }
            Source::Rm { name } => {
                client.remove_source(&name)?;
                let text = || format!("removed source '{name}'; its points stay as they are\n");
                context.answer(&json!({ "removed": [name] }), text)
            }
        }
    }
}

impl Backup {
    pub(crate) fn run(self, context: &Context) -> std::result::Result<(), Failure> {
        let client = context.client()?;
        match self {
            Backup::Run { source, full, consistent } => {
                let start = RunStart { source, full, consistency: Some(consistent) };
                let done = wait_for(&client, "backup", move |client| client.start_run(&start))?;
                let note = done.note.iter().map(|note| format!("note: {note}\n"));
                context.answer(&done, || format!("{}\n{}", done.name, note.collect::<String>()))
            }
            Backup::Ls { source } => {
                let runs = client.runs(source.as_ref())?;
                if let (Some(source), []) = (&source, runs.as_slice()) {
                    // One that was removed has left its runs; of one that never was there is nothing to list.
                    client.source(source)?;
                }
                context.answer(&runs, || runs_table(&runs))
            }
            Backup::Show { run } => {
                let run = client.run(&run)?;
                context.answer(&run, || run_text(&run))
            }
            Backup::Pause { run } => {
                let paused = client.pause_run(&run)?;
                context.answer(&paused, || {
                    format!("run '{run}' stands still; 'stonefold backup resume {run}' has it go on\n")
                })
            }
            Backup::Resume { run } => {
                let resumed = client.resume_run(&run)?;
                context.answer(&resumed, || format!("run '{run}' goes on\n"))
            }
            Backup::Cancel { run } => {
                let ended = client.cancel_run(&run)?;
                context.answer(&ended, || format!("run '{run}' was cancelled, and made no point\n"))
            }
        }
    }
}

fn table(sources: &[Shown]) -> String {
    let mut table = Table::new(&["SOURCE", "OF", "ADDED (UTC)"]);
    for source in sources {
        table.row([source.name.to_string(), of_text(source), source.added.to_seconds_text()]);
    }
    table.or("no sources; 'stonefold source add NAME --machine M' adds one")
}

fn of_text(source: &Shown) -> String {
    if let Some(pool) = &source.replica_of {
        return format!("a replica of pool {pool}'s");
    }
    if let Some(folder) = &source.dir {
        return format!("folder '{folder}'");
    }
    if let Some(url) = &source.postgres {
        return format!("the PostgreSQL cluster at '{url}'");
    }
    if let Some(url) = &source.ssh {
        return format!("the machine at '{url}'");
    }
    match (&source.machine, &source.image, &source.nbd, &source.qmp, &source.domain) {
        (Some(machine), ..) => format!("machine '{machine}'"),
        (_, Some(image), ..) => format!("image '{image}'"),
        (_, _, Some(uri), ..) => format!("export '{uri}'"),
        (_, _, _, Some(socket), _) => format!("the guest of QEMU at '{socket}'"),
        (.., Some(domain)) => format!("domain '{domain}' of libvirt"),
        _ => "what this version does not know".to_owned(),
    }
}

fn listed(names: &[Name]) -> String {
    names.iter().map(Name::to_string).collect::<Vec<_>>().join(", ")
}

/// A path from the root on: the server stands in another folder.
fn in_full(path: &Path) -> Result<String> {
    let full = std::path::absolute(path)
        .map_err(|e| Error::io(format!("the folder that '{}' is in", path.display()), e))?;
    full.into_os_string().into_string().map_err(|path| {
        let what = format!("'{}' is not UTF-8", path.to_string_lossy());
        Error::new(Kind::Invalid, what).remedy("rename it")
    })
}

fn state_text(run: &Run) -> &'static str {
    match run.state {
        RunState::Running if run.paused => "paused",
        RunState::Running => "under way",
        RunState::Done => "done",
        RunState::Failed => "failed",
        RunState::Cancelled => "cancelled",
    }
}

fn ended_text(run: &Run) -> String {
    run.ended.map_or_else(|| "-".to_owned(), Time::to_seconds_text)
}

/// From its beginning to its end.
fn took_text(run: &Run) -> String {
    run.ended.map_or_else(|| "-".to_owned(), |ended| micros(ended.0.saturating_sub(run.begun.0) * 1000))
}

/// A figure of what was copied.
fn copied_text(run: &Run, of: impl Fn(&RunCopied) -> u64) -> String {
    run.copied.as_ref().map_or_else(|| "-".to_owned(), |copied| Size(of(copied)).to_string())
}

/// All that there is to know of a run, in words.
fn notes(run: &Run, between: &str) -> Option<String> {
    let of_copy = run.copied.iter().flat_map(|copied| &copied.notes);
    let all: Vec<&str> = run.note.iter().chain(of_copy).map(String::as_str).collect();
    if all.is_empty() { None } else { Some(all.join(between)) }
}

/// As much of it as a line has room for; 'backup show' has all.
fn shortened(text: String) -> String {
    match text.char_indices().nth(NOTE_LETTERS_MAX) {
        Some((end, _)) => format!("{}…", text[..end].trim_end()),
        None => text,
    }
}

fn runs_table(runs: &[Run]) -> String {
    let mut table = Table::new(&[
        "RUN",
        "STATE",
        "POLICY",
        "BEGUN (UTC)",
        "ENDED (UTC)",
        "TOOK>",
        "READ>",
        "SENT>",
        "WRITTEN>",
        "STORED>",
        "NOTE",
    ]);
    for run in runs {
        table.row([
            run.name.to_string(),
            state_text(run).to_owned(),
            run.policy.as_ref().map_or_else(|| "-".to_owned(), Name::to_string),
            run.begun.to_seconds_text(),
            ended_text(run),
            took_text(run),
            copied_text(run, |copied| copied.read_bytes),
            copied_text(run, |copied| copied.sent_bytes),
            copied_text(run, |copied| copied.written_bytes),
            stored_text(run).unwrap_or_else(|| "-".to_owned()),
            notes(run, "; ").map_or_else(|| "-".to_owned(), shortened),
        ]);
    }
    table.or("no runs; 'stonefold backup run SOURCE' makes one")
}

/// What the pool did not have yet, as it is stored.
fn stored_text(run: &Run) -> Option<String> {
    run.copied.as_ref()?.stored_bytes.map(|bytes| Size(bytes).to_string())
}

fn run_text(run: &Run) -> String {
    let copied =
        |of: fn(&RunCopied) -> u64| run.copied.as_ref().map(|_| copied_text(run, of)).unwrap_or_default();
    let took = run.copied.as_ref().filter(|copied| copied.took_ms > 0);
    let cut = run.copied.as_ref().and_then(|copied| copied.cut);
    facts([
        ("run", run.name.to_string()),
        ("machine", run.machine.to_string()),
        ("policy", run.policy.as_ref().map(Name::to_string).unwrap_or_default()),
        ("state", state_text(run).to_owned()),
        ("begun", format!("{} UTC", run.begun.to_seconds_text())),
        ("instant", cut.map(|at| format!("{} UTC", at.to_seconds_text())).unwrap_or_default()),
        ("ended", run.ended.map(|at| format!("{} UTC", at.to_seconds_text())).unwrap_or_default()),
        ("copied to", run.copied.as_ref().map(|copied| listed(&copied.disks)).unwrap_or_default()),
        ("read", copied(|copied| copied.read_bytes)),
        ("sent", copied(|copied| copied.sent_bytes)),
        ("written", copied(|copied| copied.written_bytes)),
        ("stored", stored_text(run).unwrap_or_default()),
        ("copying took", took.map(|copied| micros(copied.took_ms * 1000)).unwrap_or_default()),
        ("note", notes(run, "\n").unwrap_or_default()),
    ])
}
