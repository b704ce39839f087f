//! `stonefold migrate …`.

use crate::context::Context;
use crate::failure::Failure;
use crate::table::Table;
use clap::{Args, Subcommand};
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use std::time::Duration;
use stonefold_api::{Client, Migration, MigrationCreate, MigrationState};
use stonefold_protect::Home;
use stonefold_types::{Error, Kind, Name, Size};

/// How often the server is asked how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Move a recovered machine to other storage while it runs, or keep it
///
/// QEMU copies its disks, and writes both ends meanwhile; when they are alike it goes on with the new ones. It is paced so that the guest keeps
/// its share of its speed. The recovered disks stay until 'recover stop NAME --discard'. Ctrl-C ends only the waiting.
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:\n  \
        stonefold migrate web-again --to file:/srv/images/web.qcow2 --format qcow2\n  \
        stonefold migrate web-again --to nbd://nas/web --floor 90% --no-wait\n  \
        stonefold migrate ls\n  \
        stonefold migrate web-again --keep"
)]
pub(crate) struct Migrate {
    /// The recovery whose machine is to be moved
    #[arg(required = true)]
    name: Option<Name>,
    /// Where to: file:/PATH on the server's host (of several disks, a folder), nbd://HOST/EXPORT or nbd+unix:///EXPORT?socket=PATH
    #[arg(long, value_name = "PLACE", required_unless_present = "keep", conflicts_with = "keep", value_parser = place)]
    to: Option<String>,
    /// What the new files are: raw or qcow2
    #[arg(long, value_name = "FORMAT", default_value = "raw", value_parser = ["raw", "qcow2"])]
    format: String,
    /// The share of its speed that the guest keeps
    #[arg(long, value_name = "PERCENT", default_value = "75%", value_parser = percent)]
    floor: u8,
    /// Compare both ends before it goes over to the new ones: the guest stands still for as long as both are read
    #[arg(long)]
    verify: bool,
    /// Return at once; 'migrate ls' tells how far it is
    #[arg(long)]
    no_wait: bool,
    /// It stays where it is: its disks are a machine's from now on
    #[arg(long)]
    keep: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

/// What is done with migrations
#[derive(Subcommand)]
enum Command {
    /// List all migrations
    Ls,
    /// Have a migration stand still
    Pause {
        /// The recovery
        name: Name,
    },
    /// Have it go on
    Resume {
        /// The recovery
        name: Name,
    },
    /// End it: the machine stays on its old disks
    Cancel {
        /// The recovery
        name: Name,
    },
}

/// Looked at here so that a slip is known before any call; the server reads it again.
fn place(text: &str) -> Result<String, String> {
    text.parse::<Home>().map(|_| text.to_owned())
}

/// A share: `75%`, or `75`.
fn percent(text: &str) -> Result<u8, String> {
    let digits = text.strip_suffix('%').unwrap_or(text);
    let found = digits.parse().ok().filter(|percent| (1..=99).contains(percent));
    found.ok_or_else(|| format!("'{text}' is no share; write 1% to 99%"))
}

impl Migrate {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        let changed = match &self.command {
            Some(Command::Ls) => {
                let all = client.migrations()?;
                return context.answer(&all, || table(&all));
            }
            Some(Command::Pause { name }) => client.pause_migration(name)?,
            Some(Command::Resume { name }) => client.resume_migration(name)?,
            Some(Command::Cancel { name }) => {
                client.cancel_migration(name)?;
                wait_for_end(&client, name)?
            }
            None => return self.migrate(context, &client),
        };
        context.answer(&changed, || line(&changed))
    }

    fn migrate(self, context: &Context, client: &Client) -> Result<(), Failure> {
        let Some(name) = self.name else {
            let error = Error::new(Kind::Invalid, "a migration needs a recovery");
            return Err(Failure::Misuse(error.remedy("write NAME --to file:/PATH")));
        };
        let Some(to) = self.to else {
            let kept = client.keep_recovery(&name)?;
            return context.answer(&kept, || {
                format!("'{name}' stays: it is a machine with its disks, and they outlive the recovery\n")
            });
        };
        let Migrate { format, floor, verify, .. } = self;
        let asked = MigrationCreate { name: name.clone(), to, format, floor_percent: floor, verify };
        let mut migration = client.create_migration(&asked)?;
        if !self.no_wait {
            migration = wait_for_end(client, &name)?;
        }
        if !matches!(migration.state, MigrationState::Failed | MigrationState::Cancelled) {
            return context.answer(&migration, || line(&migration));
        }
        if context.json {
            context.answer(&migration, String::new)?;
        }
        let why = migration.note.unwrap_or_else(|| "it was cancelled".to_owned());
        let what = format!("'{name}' was not moved: {why}");
        Err(Error::new(Kind::Io, what).remedy("it runs on as it did; begin again").into())
    }
}

fn is_under_way(migration: &Migration) -> bool {
    matches!(migration.state, MigrationState::Copying | MigrationState::Paused | MigrationState::Cancelling)
}

/// Shows how far it is until it has ended.
fn wait_for_end(client: &Client, name: &Name) -> Result<Migration, Error> {
    let template = "{msg} [{wide_bar}] {binary_bytes}/{binary_total_bytes}, {eta} left";
    let style =
        ProgressStyle::with_template(template).map_err(|e| Error::new(Kind::Invalid, e.to_string()))?;
    let bar = ProgressBar::new(0).with_style(style.progress_chars("=> "));
    loop {
        let migration = client.migration(name)?;
        if !is_under_way(&migration) {
            bar.finish_and_clear();
            return Ok(migration);
        }
        bar.set_length(migration.total_bytes);
        bar.set_position(migration.done_bytes);
        bar.set_message(state_text(&migration));
        std::thread::sleep(LOOK_EVERY);
    }
}

fn state_text(migration: &Migration) -> String {
    let state = match migration.state {
        MigrationState::Copying => "copying",
        MigrationState::Paused => "paused",
        MigrationState::Cancelling => "being cancelled",
        MigrationState::Done => "done",
        MigrationState::Failed => "failed",
        MigrationState::Cancelled => "cancelled",
    };
    match migration.guest_percent.filter(|_| is_under_way(migration)) {
        Some(percent) => format!("{state}, the guest at {percent}%"),
        None => state.to_owned(),
    }
}

fn line(migration: &Migration) -> String {
    let homes: Vec<&str> = migration.disks.iter().map(|disk| disk.home.as_str()).collect();
    let note = migration.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
    format!("'{}' to {}: {}{note}\n", migration.name, homes.join(", "), state_text(migration))
}

fn table(migrations: &[Migration]) -> String {
    let mut table =
        Table::new(&["NAME", "TO", "STATE", "DONE>", "OF>", "SPEED>", "LEFT>", "BEGUN (UTC)", "NOTE"]);
    for migration in migrations {
        let homes: Vec<&str> = migration.disks.iter().map(|disk| disk.home.as_str()).collect();
        table.row([
            migration.name.to_string(),
            homes.join(","),
            state_text(migration),
            Size(migration.done_bytes).to_string(),
            Size(migration.total_bytes).to_string(),
            if migration.speed_bytes > 0 {
                format!("≤{}/s", Size(migration.speed_bytes))
            } else {
                "-".to_owned()
            },
            migration
                .left_seconds
                .map_or("-".to_owned(), |seconds| HumanDuration(Duration::from_secs(seconds)).to_string()),
            migration.begun.to_seconds_text(),
            migration.note.clone().unwrap_or_default(),
        ]);
    }
    table.or("no migrations; 'stonefold migrate NAME --to file:/PATH' begins one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_read() {
        assert_eq!((percent("75%"), percent("9")), (Ok(75), Ok(9)));
        for wrong in ["", "0", "100%", "75.5%", "x"] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn places_read() {
        for right in
            ["file:/srv/web.img", "file:///srv/web.img", "nbd://nas/web", "nbd+unix:///web?socket=/s"]
        {
            assert_eq!(place(right).as_deref(), Ok(right));
        }
        for wrong in ["", "file:web.img", "/srv/web.img", "s3://bucket", "qcow2"] {
            assert!(place(wrong).unwrap_err().contains("file:/PATH"), "{wrong}");
        }
    }
}
