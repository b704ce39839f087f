//! `stonefold lab …`: measuring any storage.

mod catalogue;
mod oltp;
mod picture;
mod report;
mod run;

use crate::context::Context;
use crate::failure::Failure;
use clap::Subcommand;
use std::path::PathBuf;
use std::process::ExitCode;

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
    /// Make a report of runs: one HTML file that needs no network, or the figures
    #[command(after_help = "Example:\n  stonefold lab report runs/poltp-1 --html report.html")]
    Report {
        /// Folders of runs
        #[arg(required = true)]
        dirs: Vec<PathBuf>,
        /// Where the page goes; without it the figures are printed
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
    },
    /// Compute a report again from the raw data, which are held against their hashes
    #[command(after_help = "Example:\n  stonefold lab verify runs/poltp-1")]
    Verify {
        /// Folders of runs
        #[arg(required = true)]
        dirs: Vec<PathBuf>,
    },
}

impl Lab {
    /// The status is that of the verdict: 0 pass, 1 fail, 3 invalid, 4 inconclusive.
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        match self {
            Lab::Ls => catalogue::ls(context).map(|()| ExitCode::SUCCESS),
            Lab::Show { profile } => catalogue::show(context, &profile).map(|()| ExitCode::SUCCESS),
            Lab::Run(run) => run.run(context),
            Lab::Report { dirs, html: Some(html) } => {
                report::page(context, &dirs, &html).map(|()| ExitCode::SUCCESS)
            }
            Lab::Report { dirs, html: None } | Lab::Verify { dirs } => report::verify(context, &dirs),
        }
    }
}
