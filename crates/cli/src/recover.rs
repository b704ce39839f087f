//! `stonefold recover …`.

use crate::context::Context;
use crate::failure::Failure;
use crate::machine::disks_text;
use crate::table::{Table, facts, micros};
use crate::waiting::wait_for;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use stonefold_api::{Recovered, Recovery, RecoveryCreate};
use stonefold_types::{Error, Kind, Name, PointName};

/// Bring a point back, at once whatever its size and age
///
/// Its disks are clones, called NAME.TARGET, all of them or none, and served when the command ends. A domain of libvirt's gets a name, a
/// UUID and MAC addresses of its own; --json has it.
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:\n  \
        stonefold recover web-nightly@20261123T184005Z --as web-again\n  \
        stonefold recover ls\n  \
        stonefold recover stop web-again --discard"
)]
pub(crate) struct Recover {
    /// The point
    #[arg(value_name = "SOURCE@TIME", required = true)]
    point: Option<PointName>,
    /// What it is called then
    #[arg(long = "as", value_name = "NAME", required = true)]
    name: Option<Name>,
    /// Where it runs
    #[arg(long, value_name = "WHERE", default_value = "export")]
    to: To,
    /// A class of service for its disks [default: that of the originals]
    #[arg(long, value_name = "CLASS")]
    qos: Option<Name>,
    /// Only look whether it can be done, and show what would be there
    #[arg(long)]
    dry_run: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

/// Where a recovered machine runs.
#[derive(Clone, Copy, ValueEnum)]
enum To {
    /// Its disks are served; whoever wants starts a machine with them
    Export,
}

/// What is done with recoveries
#[derive(Subcommand)]
enum Command {
    /// List all recoveries
    Ls,
    /// End a recovery; its disks stay, as disks like any other
    Stop {
        /// The recovery
        name: Name,
        /// Remove its disks; refused while a client, a snapshot or a machine needs one
        #[arg(long)]
        discard: bool,
    },
}

impl Recover {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        match self.command {
            Some(Command::Ls) => {
                let all = client.recoveries()?;
                context.answer(&all, || table(&all))
            }
            Some(Command::Stop { name, discard }) => {
                client.stop_recovery(&name, discard)?;
                let disks = if discard { "and its disks are gone" } else { "its disks are still there" };
                let answer = json!({ "stopped": [name], "discarded": discard });
                context.answer(&answer, || format!("recovery '{name}' is over, {disks}\n"))
            }
            None => {
                let To::Export = self.to;
                let (Some(point), Some(name)) = (self.point, self.name) else {
                    let error = Error::new(Kind::Invalid, "a recovery needs a point and a name");
                    return Err(Failure::Misuse(error.remedy("write SOURCE@TIME --as NAME")));
                };
                let asked = RecoveryCreate { point, name, qos: self.qos, dry_run: self.dry_run };
                let made = wait_for(&client, "recover", move |client| client.recover(&asked))?;
                context.answer(&made, || made_text(&made))
            }
        }
    }
}

fn made_text(made: &Recovered) -> String {
    let Recovery { name, point, disks, ready_us, .. } = &made.recovery;
    let first = match made.dry_run {
        true => format!("recovery '{name}' of {point} can be made; nothing was done\n"),
        false => format!("recovery '{name}' of {point}, ready after {}\n", micros(*ready_us)),
    };
    let uris: Vec<String> = disks.iter().flat_map(|disk| disk.uris.clone()).collect();
    let mut text = first + &facts([("disks", disks_text(disks)), ("reached at", uris.join("\n"))]);
    made.notes.iter().for_each(|note| text += &format!("note: {note}\n"));
    text
}

fn table(recoveries: &[Recovery]) -> String {
    let mut table = Table::new(&["NAME", "POINT", "DISKS", "BEGUN (UTC)", "READY AFTER>"]);
    for recovery in recoveries {
        let disks: Vec<&str> = recovery.disks.iter().map(|disk| disk.disk.as_str()).collect();
        let discarding = if recovery.discarding { " (being discarded)" } else { "" };
        table.row([
            format!("{}{discarding}", recovery.name),
            recovery.point.to_string(),
            disks.join(","),
            recovery.begun.to_seconds_text(),
            micros(recovery.ready_us),
        ]);
    }
    table.or("no recoveries; 'stonefold recover SOURCE@TIME --as NAME' makes one")
}
