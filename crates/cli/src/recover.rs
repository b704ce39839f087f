//! `stonefold recover …`.

mod asked;
mod how;
mod limits;
mod plan;
mod together;

use asked::Asked;
use how::{How, To};
use limits::limits_text;

use crate::context::Context;
use crate::failure::{Beside, Failure};
use crate::machine::disks_text;
use crate::table::{Table, facts, micros};
use crate::waiting::wait_for;
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::PathBuf;
use stonefold_api::{Client, Recovered, Recovery, StartedMachine};
use stonefold_types::{Error, Kind, Name, PointName};

/// Bring a point back, at once whatever its size and age
///
/// Its disks are clones, called NAME.TARGET, all of them or none, and served when the command ends; with --to a machine has been started with
/// them, too. It has a name, a UUID and MAC addresses of its own.
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:\n  \
        stonefold recover web-nightly@20261123T184005Z --as web-again\n  \
        stonefold recover web-nightly@20261123T184005Z --as web-again --to libvirt:qemu:///system\n  \
        stonefold recover web-nightly@20261123T184005Z --as web-look --to qemu --network isolated --wait agent\n  \
        stonefold recover --plan site.toml --dry-run\n  \
        stonefold recover --plan site.toml --to qemu --network isolated\n  \
        stonefold recover ls\n  \
        stonefold recover stop web-again --discard"
)]
pub(crate) struct Recover {
    /// The point
    #[arg(value_name = "SOURCE@TIME", required_unless_present = "plan", conflicts_with = "plan")]
    point: Option<PointName>,
    /// What it is called then
    #[arg(long = "as", value_name = "NAME", required_unless_present = "plan", conflicts_with = "plan")]
    name: Option<Name>,
    /// Bring back all machines of this plan, in the order of their priorities; where and how they run, as the other options say, is for those of
    /// which the plan says nothing
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    #[command(flatten)]
    how: How,
    /// Only look whether it can be done, and show what would be there
    #[arg(long)]
    dry_run: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

/// A sign of life, as it is waited for.
pub(crate) fn sign_of_life(text: &str) -> Result<String, String> {
    text.parse::<stonefold_protect::Sign>().map(|_| text.to_owned())
}

/// How long a sign of life is waited for unless told otherwise.
pub(crate) const TIMEOUT_SECONDS: u64 = 300;

/// A time to wait, in seconds: `90s`, `5m`, `1h`.
pub(crate) fn patience(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is no time to wait; write 90s, 5m or 1h");
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(wrong()),
    };
    let count: u64 = digits.parse().map_err(|_| wrong())?;
    count.checked_mul(seconds).filter(|seconds| (1..=86_400).contains(seconds)).ok_or_else(wrong)
}

/// What is done with recoveries
#[derive(Subcommand)]
enum Command {
    /// List all recoveries
    Ls,
    /// Show a recovery, and the machine that was started with it
    Show {
        /// The recovery
        name: Name,
    },
    /// End a recovery: its machine is shut down; its disks stay, as disks like any other
    Stop {
        /// The recovery
        name: Name,
        /// Remove its disks, and pull its machine's plug; refused while another client, a snapshot or a machine needs one
        #[arg(long)]
        discard: bool,
        /// Pull its machine's plug instead of shutting it down
        #[arg(long)]
        power_off: bool,
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
            Some(Command::Show { name }) => {
                let recovery = client.recovery(&name)?;
                context.answer(&recovery, || shown(&recovery))
            }
            Some(Command::Stop { name, discard, power_off }) => {
                let before = client.recovery(&name)?;
                let of_thread = name.clone();
                wait_for(&client, "stop", move |client| {
                    client.stop_recovery(&of_thread, discard, power_off)
                })?;
                let disks = if discard { "and its disks are gone" } else { "its disks stay as they are" };
                let answer = json!({ "stopped": [name], "discarded": discard });
                let runs_on = if power_off { None } else { before.started.and_then(runs_on) };
                context.answer(&answer, || {
                    format!("recovery '{name}' is over, {disks}\n{}", runs_on.unwrap_or_default())
                })
            }
            None => self.recover(context, &client),
        }
    }

    fn recover(self, context: &Context, client: &Client) -> Result<(), Failure> {
        let Recover { point, name, plan, how, dry_run, .. } = self;
        if let Some(file) = &plan {
            return plan::run(context, client, file, &how, dry_run);
        }
        let (Some(point), Some(name)) = (point, name) else {
            let error = Error::new(Kind::Invalid, "a recovery needs a point and a name");
            return Err(Failure::Misuse(error.remedy("write SOURCE@TIME --as NAME")));
        };
        how.check(&name).map_err(Failure::Misuse)?;
        let asked = Asked::new(point, name, how);
        let of_thread = asked.clone();
        let made = wait_for(client, "recover", move |client| match dry_run {
            true => of_thread.look(client),
            false => of_thread.carry_out(client),
        })?;
        let silent = (!dry_run && !asked.is_alive(&made))
            .then(|| asked.silent().remedy("look at its console; it goes by 'stonefold recover stop'"));
        context.answer(&Beside::new(&made, silent.as_ref()), || made_text(&made))?;
        silent.map_or(Ok(()), |error| Err(error.into()))
    }
}

fn made_text(made: &Recovered) -> String {
    let Recovery { name, point, ready_us, .. } = &made.recovery;
    let first = match made.dry_run {
        true => format!("recovery '{name}' of {point} can be made; nothing was done\n"),
        false => format!("recovery '{name}' of {point}, ready after {}\n", micros(*ready_us)),
    };
    let mut text = first + &lines(&made.recovery);
    made.notes.iter().for_each(|note| text += &format!("note: {note}\n"));
    text
}

fn uris(recovery: &Recovery) -> String {
    let uris: Vec<String> = recovery.disks.iter().flat_map(|disk| disk.uris.clone()).collect();
    uris.join("\n")
}

/// Its disks, and the machine that was started with them.
fn lines(recovery: &Recovery) -> String {
    let started = recovery.started.as_ref();
    let after = |time: Option<u64>| time.map(|time| format!("after {}", micros(time))).unwrap_or_default();
    facts([
        ("disks", disks_text(&recovery.disks)),
        ("reached at", uris(recovery)),
        ("runs on", started.map(on_text).unwrap_or_default()),
        ("takes at most", started.map(|started| limits_text(&started.limits)).unwrap_or_default()),
        ("first block", after(started.and_then(|started| started.first_block_us))),
        ("sign of life", after(started.and_then(|started| started.alive_us))),
        ("moved to", started.map(|started| started.home.join("\n")).unwrap_or_default()),
        ("domain", started.and_then(|started| started.domain.clone()).unwrap_or_default()),
        ("folder", started.and_then(|started| started.folder.clone()).unwrap_or_default()),
    ])
}

fn on_text(started: &StartedMachine) -> String {
    match started.running {
        Some(false) => format!("{} (it has ended)", started.on),
        _ => started.on.clone(),
    }
}

fn shown(recovery: &Recovery) -> String {
    let Recovery { name, point, begun, ready_us, .. } = recovery;
    let begun = begun.to_seconds_text();
    format!("recovery '{name}' of {point}, {begun} UTC, ready after {}\n", micros(*ready_us))
        + &lines(recovery)
}

/// Of a machine that was moved, and goes on without its recovery: where, and what ends it.
fn runs_on(started: StartedMachine) -> Option<String> {
    let home = (!started.home.is_empty()).then(|| started.home.join(", "))?;
    let ends = match (started.folder, started.domain) {
        (Some(folder), _) => {
            format!("'kill $(cat {folder}/pid)' on the server's host ends it, and then its folder may go")
        }
        (_, Some(domain)) => format!("'virsh shutdown {domain}' ends it"),
        _ => return None,
    };
    Some(format!("its machine, which was moved to {home}, runs on: {ends}\n"))
}

fn table(recoveries: &[Recovery]) -> String {
    let mut table = Table::new(&["NAME", "POINT", "DISKS", "BEGUN (UTC)", "READY AFTER>", "RUNS ON"]);
    for recovery in recoveries {
        let disks: Vec<&str> = recovery.disks.iter().map(|disk| disk.disk.as_str()).collect();
        let discarding = if recovery.discarding { " (being discarded)" } else { "" };
        table.row([
            format!("{}{discarding}", recovery.name),
            recovery.point.to_string(),
            disks.join(","),
            recovery.begun.to_seconds_text(),
            micros(recovery.ready_us),
            recovery.started.as_ref().map_or("-".to_owned(), on_text),
        ]);
    }
    table.or("no recoveries; 'stonefold recover SOURCE@TIME --as NAME' makes one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_wait_read() {
        for (text, seconds) in [("90s", 90), ("5m", 300), ("1h", 3600)] {
            assert_eq!(patience(text), Ok(seconds));
        }
        for wrong in ["", "5", "m", "0s", "25h", "5 m", "99999999999999999999s"] {
            assert!(patience(wrong).is_err(), "{wrong}");
        }
    }
}
