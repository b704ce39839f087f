//! `stonefold domain …`.

use crate::context::{Context, print};
use crate::disk::on_or_off;
use crate::failure::Failure;
use crate::keys::NewKey;
use crate::table::Table;
use clap::{Args, Subcommand};
use serde_json::json;
use stonefold_api::{Domain as Info, DomainCreate, DomainSet, DomainState};
use stonefold_types::{Compression, Error, Kind, Name};

/// Keep tenants apart: a domain is one scope of dedupe, one policy, one key
#[derive(Subcommand)]
pub(crate) enum Domain {
    /// Make a domain; disks are made in it with 'disk create --domain'
    #[command(after_help = "Examples:\n  \
        stonefold domain create archive --compression zstd:9\n  \
        stonefold domain create bank --encrypt        (the server has a master key: serve --key-file)")]
    Create {
        /// Its name: 1 to 128 letters, digits, '.', '_' or '-'
        name: Name,
        /// Encrypt its data with a key of its own; this cannot be changed later
        #[arg(long)]
        encrypt: bool,
        #[command(flatten)]
        policy: Policy,
    },
    /// List all domains
    Ls,
    /// Change what new disks in a domain get; those that are there stay as they are
    Set {
        /// The domain
        name: Name,
        #[command(flatten)]
        change: Change,
    },
    /// Remove a domain that no disk is made in, with the keys that it may have
    ///
    /// Refused while disks of it are there, or were and have not been given back ('pool reclaim' does that now).
    Rm {
        /// The domain
        name: Name,
    },
    /// Give an encrypted domain a new key for what is written from now on; what is there stays readable
    Rotate {
        /// The domain
        name: Name,
    },
    /// Forget the keys of an encrypted domain: nobody ever reads its disks and snapshots again
    ///
    /// Refused while clients are connected, or a snapshot in it is locked. The disks remain, unreadable, until they are removed.
    #[command(after_help = "Example:\n  stonefold domain shred bank --yes bank")]
    Shred {
        /// The domain
        name: Name,
        /// The domain's name once more: there is no way back
        #[arg(long, value_name = "NAME")]
        yes: Name,
    },
    /// Wrap all domains' keys under another master key; no data is touched
    ///
    /// From then on the server is to be started with the new one.
    #[command(after_help = "Example:\n  stonefold domain rewrap --new-key-file /etc/stonefold/new.key")]
    Rewrap {
        #[command(flatten)]
        new: NewKey,
    },
    /// Print an encrypted domain's keys, to be locked away: they open its data without the master key
    #[command(after_help = "Example:\n  stonefold domain export-key bank > /media/safe/bank.keys")]
    ExportKey {
        /// The domain
        name: Name,
    },
}

/// What new disks in a domain get
#[derive(Args)]
pub(crate) struct Policy {
    /// How new disks in it are compressed: lz4, zstd, zstd:1 to zstd:19, or none [default: lz4]
    #[arg(long, value_name = "HOW")]
    compression: Option<Compression>,
    /// Whether new disks in it share equal blocks: on or off [default: on]
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    dedupe: Option<bool>,
}

/// What can be changed of a domain: at least one of it
#[derive(Args)]
#[group(required = true, multiple = true)]
pub(crate) struct Change {
    /// How new disks in it are compressed: lz4, zstd, zstd:1 to zstd:19, or none
    #[arg(long, value_name = "HOW")]
    compression: Option<Compression>,
    /// Whether new disks in it share equal blocks: on or off
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    dedupe: Option<bool>,
}

impl Domain {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        match self {
            Domain::Create { name, encrypt, policy } => {
                let Policy { compression, dedupe } = policy;
                let made = client.create_domain(&DomainCreate { name, encrypt, compression, dedupe })?;
                context.answer(&made, || made_text(&made))
            }
            Domain::Ls => {
                let domains = client.domains()?;
                context.answer(&domains, || table_of(&domains))
            }
            Domain::Set { name, change } => {
                let set = DomainSet { compression: change.compression, dedupe: change.dedupe };
                let domain = client.set_domain(&name, &set)?;
                context.answer(&domain, || table_of(std::slice::from_ref(&domain)))
            }
            Domain::Rm { name } => {
                client.remove_domain(&name)?;
                context.answer(&json!({ "removed": [name] }), || format!("removed domain '{name}'\n"))
            }
            Domain::Rotate { name } => {
                let rotated = client.rotate_domain(&name)?;
                let version = rotated.key_version.unwrap_or_default();
                context.answer(&rotated, || {
                    format!("domain '{name}' encrypts with key {version} from now on; export its keys anew\n")
                })
            }
            Domain::Shred { name, yes } if yes != name => {
                let error = Error::new(Kind::Invalid, format!("'{yes}' is not the domain's name, '{name}'"));
                Err(Failure::Misuse(error.remedy(format!("if that is meant: --yes {name}"))))
            }
            Domain::Shred { name, .. } => {
                let shredded = client.shred_domain(&name)?;
                context.answer(&shredded, || {
                    format!(
                        "domain '{name}' is shredded; remove its {} disks to get their space back\n",
                        shredded.disks
                    )
                })
            }
            Domain::Rewrap { new } => {
                client.change_master_key(&new.read()?)?;
                let text =
                    "all keys are wrapped anew; start the server with the new master key from now on\n";
                context.answer(&json!({ "rewrapped": true }), || text.to_owned())
            }
            Domain::ExportKey { name } => {
                let exported = client.export_domain_key(&name)?;
                if context.json {
                    return context.answer(&exported, String::new);
                }
                print(&format!(
                    "# the keys of domain '{name}'; 'serve --recovery-key FILE' opens it with them\n"
                ))?;
                print(&exported.recovery_key)
            }
        }
    }
}

fn made_text(domain: &Info) -> String {
    match domain.state {
        DomainState::Plain => format!("domain '{}' is made\n", domain.name),
        _ => format!(
            "domain '{}' is made, encrypted; lock its key away with 'stonefold domain export-key {0}'\n",
            domain.name
        ),
    }
}

fn table_of(domains: &[Info]) -> String {
    let mut table =
        Table::new(&["NAME", "DISKS>", "COMPRESSION", "DEDUPE", "ENCRYPTED", "KEY>", "KEY MADE (UTC)"]);
    for domain in domains {
        let encrypted = match domain.state {
            DomainState::Plain => "no",
            DomainState::Open => "yes",
            DomainState::Locked => "yes, locked",
            DomainState::Shredded => "shredded",
            DomainState::Unknown => "unknown",
        };
        table.row([
            domain.name.to_string(),
            domain.disks.to_string(),
            domain.compression.to_string(),
            if domain.dedupe { "on" } else { "off" }.to_owned(),
            encrypted.to_owned(),
            domain.key_version.map(|version| version.to_string()).unwrap_or_default(),
            domain.key_created.map(|time| time.to_seconds_text()).unwrap_or_default(),
        ]);
    }
    table.text()
}
