//! `stonefold source …` and `stonefold backup …`.

use crate::context::Context;
use crate::failure::Failure;
use crate::table::{Table, facts};
use crate::waiting::wait_for;
use clap::Subcommand;
use serde_json::json;
use stonefold_api::{Run, RunStart, RunState, Source as Shown, SourceCreate, Time};
use stonefold_types::{Name, PointName};

/// Say what is protected
#[derive(Subcommand)]
pub(crate) enum Source {
    /// Protect a machine
    #[command(after_help = "Example:\n  stonefold source add web-nightly --machine web")]
    Add {
        /// The source's name: 1 to 128 letters, digits, '.', '_' or '-'
        name: Name,
        /// A machine whose disks are Stonefold's: a point of it is free of copying
        #[arg(long, value_name = "M")]
        machine: Name,
    },
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

/// Make points of sources
#[derive(Subcommand)]
pub(crate) enum Backup {
    /// Make a point of a source; ends when it is there
    Run {
        /// The source
        source: Name,
        /// Copy everything; of a machine whose disks are Stonefold's nothing is copied, and every point is full
        #[arg(long)]
        full: bool,
    },
    /// List the runs of all sources, the last thousand of each
    Ls,
    /// Show a run
    Show {
        /// The run, which has its point's name
        #[arg(value_name = "RUN")]
        run: PointName,
    },
}

impl Source {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        match self {
            Source::Add { name, machine } => {
                let added = client.create_source(&SourceCreate { name, machine })?;
                let text = || format!("source '{}' of machine '{}' added\n", added.name, added.machine);
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
                        ("machine", source.machine.to_string()),
                        ("added", format!("{} UTC", source.added.to_seconds_text())),
                        ("points", of_it.to_string()),
                    ])
                })
            }
            Source::Rm { name } => {
                client.remove_source(&name)?;
                let text = || format!("removed source '{name}'; its points are still there\n");
                context.answer(&json!({ "removed": [name] }), text)
            }
        }
    }
}

impl Backup {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        match self {
            Backup::Run { source, full: _ } => {
                let start = RunStart { source };
                let done = wait_for(&client, "backup", move |client| client.start_run(&start))?;
                context.answer(&done, || format!("{}\n", done.name))
            }
            Backup::Ls => {
                let runs = client.runs(None)?;
                context.answer(&runs, || runs_table(&runs))
            }
            Backup::Show { run } => {
                let run = client.run(&run)?;
                context.answer(&run, || run_text(&run))
            }
        }
    }
}

fn table(sources: &[Shown]) -> String {
    let mut table = Table::new(&["SOURCE", "MACHINE", "ADDED (UTC)"]);
    for source in sources {
        table.row([source.name.to_string(), source.machine.to_string(), source.added.to_seconds_text()]);
    }
    table.or("no sources; 'stonefold source add NAME --machine M' adds one")
}

fn state_text(state: RunState) -> &'static str {
    match state {
        RunState::Running => "under way",
        RunState::Done => "done",
        RunState::Failed => "failed",
    }
}

fn ended_text(run: &Run) -> String {
    run.ended.map_or_else(|| "-".to_owned(), Time::to_seconds_text)
}

fn runs_table(runs: &[Run]) -> String {
    let mut table = Table::new(&["RUN", "STATE", "POLICY", "BEGUN (UTC)", "ENDED (UTC)", "NOTE"]);
    for run in runs {
        table.row([
            run.name.to_string(),
            state_text(run.state).to_owned(),
            run.policy.as_ref().map_or_else(|| "-".to_owned(), Name::to_string),
            run.begun.to_seconds_text(),
            ended_text(run),
            run.note.clone().unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    table.or("no runs; 'stonefold backup run SOURCE' makes one")
}

fn run_text(run: &Run) -> String {
    facts([
        ("run", run.name.to_string()),
        ("machine", run.machine.to_string()),
        ("policy", run.policy.as_ref().map(Name::to_string).unwrap_or_default()),
        ("state", state_text(run.state).to_owned()),
        ("begun", format!("{} UTC", run.begun.to_seconds_text())),
        ("ended", run.ended.map(|at| format!("{} UTC", at.to_seconds_text())).unwrap_or_default()),
        ("note", run.note.clone().unwrap_or_default()),
    ])
}
