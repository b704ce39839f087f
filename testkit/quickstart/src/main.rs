//! The main job of Stonefold on a real machine, as a program to watch: import a disk, boot from it, write, snapshot while
//! it runs, ruin it from inside, bring it back, prove it; then say what took how long.
//!
//! *Promises*: everything it shows happens to real machines and is checked, not assumed; it says what it waits for, and no
//! wait is endless; whatever it started it stops, also on Ctrl-C and on failure; it never modifies the user's image.
//! *Owns*: one folder per run under its state folder, with the pool, the logs and the socket; the pool is kept.
//! *Knows* of Stonefold only the command line and the NBD exports, as any user does.
//!
//! | module | scene |
//! |---|---|
//! | `tiny` | a guest of a few megabytes first: the point of it in half a minute |
//! | `debian` | the main job on a whole Debian |
//! | `unknown` | the same on the user's own image, as far as a stranger can |
//! | `recovery` | the clock on a recovery, and on an ordinary full restore beside it |
//! | `gateway` | `stonefold serve` and the commands sent to it |
//! | `machines`, `folder`, `progress`, `figures` | how guests are started; where things are kept; what is said |

mod debian;
mod figures;
mod folder;
mod gateway;
mod machines;
mod progress;
mod recovery;
mod tiny;
mod unknown;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use stonefold_guest::cancel;

use crate::{
    figures::Figures,
    folder::{Folder, state_folder},
    gateway::Gateway,
    machines::Machines,
    progress::{Progress, say},
};

/// Shows Stonefold's main job on a real machine: boot, snapshot, ruin, recover, prove.
#[derive(Debug, Parser)]
#[command(name = "stonefold-quickstart")]
pub(crate) struct Arguments {
    /// A disk image of your own (any format that qemu-img reads) to use in place of the Debian guest; it is only read
    image: Option<PathBuf>,
    /// The stonefold binary
    #[arg(long, default_value = "target/release/stonefold")]
    stonefold: PathBuf,
    /// The folder that setup/guest-image printed
    #[arg(long)]
    guest: PathBuf,
    /// Where pools and logs are kept [default: stonefold/quickstart in your data folder]
    #[arg(long)]
    state: Option<PathBuf>,
    /// How long a machine may take to its login prompt, in seconds
    #[arg(long, default_value_t = 300)]
    boot_timeout: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match listen_for_signals().and_then(|()| run(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) if cancel::requested() => {
            say("\nStopped on request: every process that was started is gone.");
            ExitCode::from(130)
        }
        Err(error) => {
            eprintln!("\nerror: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn listen_for_signals() -> Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, cancel::flag()).context("could not listen for signals")?;
    }
    Ok(())
}

fn run(arguments: &Arguments) -> Result<()> {
    ensure!(
        arguments.stonefold.exists(),
        "there is no {}: build it with cargo build --release, or name another with --stonefold",
        arguments.stonefold.display()
    );
    let image = arguments.image.as_deref().map(unknown::Image::inspect).transpose()?;
    let folder = Folder::new(&arguments.state.clone().map_or_else(state_folder, Ok)?)?;
    let progress = Progress::new();
    say(&format!("Everything of this run is kept in {}", folder.path().display()));
    show(arguments, image.as_ref(), &folder, &progress).with_context(|| {
        format!("the quickstart did not get to its end; its pool and logs are in {}", folder.path().display())
    })
}

fn show(
    arguments: &Arguments,
    image: Option<&unknown::Image>,
    folder: &Folder,
    progress: &Progress,
) -> Result<()> {
    let boot_within = Duration::from_secs(arguments.boot_timeout);
    let machines = Machines::find_out(&arguments.guest, folder, boot_within, progress)?;
    let mut gateway = progress
        .step("start stonefold serve on a new pool", || Gateway::start(&arguments.stonefold, folder))?;
    let mut figures = Figures::default();
    tiny::show(&gateway, &machines, progress)?;
    let recovered = match image {
        None => debian::show(&gateway, &machines, folder, progress, &mut figures)?,
        Some(image) => unknown::show(image, &gateway, &machines, folder, progress, &mut figures)?,
    };
    progress.scene("The end");
    progress.step("stop stonefold serve", || gateway.stop())?;
    figures.print(machines.accelerator());
    folder.say_how_to_look_further(&arguments.stonefold, recovered, machines.accelerator());
    Ok(())
}
