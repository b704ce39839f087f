//! `stonefold lab …`: measuring any storage.

mod asked;
mod by_worker;
mod catalogue;
mod certify;
mod compare;
mod cost;
mod folders;
mod import;
mod kept;
mod lint;
mod load;
mod oltp;
mod picture;
mod recovery;
mod replay;
mod report;
mod run;
mod study;
mod system;
mod tiles;
mod timed;
mod trace;
mod trial;
mod worker;

use crate::context::Context;
use crate::failure::Failure;
use clap::Subcommand;
use std::path::PathBuf;
use std::process::ExitCode;

/// What a bundle says it was made by: a version and the commit that it was built from, which tells more than a version of one that is being worked on.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("STONEFOLD_COMMIT"), ")");

/// Measure any storage, so that the number can be trusted
#[derive(Subcommand)]
pub(crate) enum Lab {
    /// List the profiles, and the kinds of targets
    Ls,
    /// Show what a profile does, as its file says it
    #[command(
        after_help = "Example:\n  stonefold lab show poltp > mine.toml     # to change it, and run it as mine.toml"
    )]
    Show {
        /// A profile's name, or a file that ends in .toml
        profile: String,
    },
    Run(Box<run::Run>),
    Compare(Box<compare::Compare>),
    Study(Box<study::Study>),
    Worker(worker::Worker),
    #[command(subcommand)]
    Trace(trace::Trace),
    Replay(Box<replay::Replay>),
    /// Make a report of runs: one HTML file that needs no network, or the figures
    #[command(
        after_help = "Examples:\n  stonefold lab report runs/poltp-1 --html report.html\n  stonefold lab report runs/poltp-1 --json report.json\n\n\
            With --json a name that ends in .json is where the figures go, by the schema in docs/reference/lab-report.schema.json; \
            without one they are printed."
    )]
    Report {
        /// Folders of runs, of comparisons, or of studies
        #[arg(required = true)]
        dirs: Vec<PathBuf>,
        /// Where the page goes; without it the figures are printed
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
    },
    /// Compute a report again from the raw data, which are held against their hashes
    #[command(after_help = "Example:\n  stonefold lab verify runs/poltp-1")]
    Verify {
        /// Folders of runs, of comparisons, or of studies
        #[arg(required = true)]
        dirs: Vec<PathBuf>,
    },
    Lint(lint::Lint),
    Import(import::Import),
    Certify(Box<certify::Certify>),
}

impl Lab {
    /// The status is that of the verdict: 0 pass, 1 fail, 3 invalid, 4 inconclusive.
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        match self {
            Lab::Ls => catalogue::ls(context).map(|()| ExitCode::SUCCESS),
            Lab::Show { profile } => catalogue::show(context, &profile).map(|()| ExitCode::SUCCESS),
            Lab::Run(run) => run.run(context),
            Lab::Compare(compare) => compare.run(context),
            Lab::Study(study) => study.run(context),
            Lab::Worker(worker) => worker.run(context).map(|()| ExitCode::SUCCESS),
            Lab::Trace(trace) => trace.run(context).map(|()| ExitCode::SUCCESS),
            Lab::Replay(replay) => replay.run(context),
            Lab::Report { dirs, html } => folders::write(context, dirs, html.as_deref()),
            Lab::Verify { dirs } => folders::verify(context, &dirs),
            Lab::Lint(lint) => lint.run(context),
            Lab::Import(import) => import.run(context).map(|()| ExitCode::SUCCESS),
            Lab::Certify(certify) => certify.run(context).map(|()| ExitCode::SUCCESS),
        }
    }
}
