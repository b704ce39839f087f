//! Load from several machines at once: workers that wait for one another before each phase, and one merged result.
//!
//! Whoever measures connects to each worker, tells it what is to be loaded and on which of *its* targets, and then each phase, to all at
//! once; a phase begins when every worker has ended the one before. Records are merged exactly, as those of threads are, and
//! kept by worker, too. *Promises*: every worker has contents of its own, so that storage that deduplicates finds nothing in common; one
//! that is lost ends the run, and the others with it. *Never*: does anything for somebody who does not know the token: a worker
//! overwrites devices. *May be used by*: [`crate::measure`] and the command line.

mod fleet;
mod serve;
mod wire;

pub use fleet::Fleet;
pub use serve::serve;
pub use wire::{Token, WorkerAddress};

use crate::load::{Live, Outcome, Phase};
use crate::measure::Plan;
use crate::payload::Reduction;
use crate::workload::Load;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use stonefold_types::{Error, Kind, Result};

/// The words between the two, as they are now. Another number is another language.
const LANGUAGE: u32 = 3;

/// What a worker is told to load.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Task {
    language: u32,
    profile: String,
    /// The profile's text, as it was read where the run was begun.
    text: String,
    /// The size of every volume in bytes and how far it reduces, where they are not the profile's.
    size: Option<u64>,
    reduction: Option<(f64, f64)>,
    quick: bool,
    targets: Vec<String>,
    threads: usize,
    verify: bool,
    seed: u64,
    destroy_data: bool,
}

/// To a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Command {
    /// Opens the targets.
    Open(Box<Task>),
    /// Runs a phase.
    Run(Box<Phase>),
    /// Runs this load for a second against a target that answers at once.
    Ceiling(Vec<Option<Load>>, f64),
    /// Ends the phase that runs.
    Stop,
}

/// From a worker.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// The targets are open; what can be told of the machine, and the load's threads.
    Opened(BTreeMap<String, String>, usize),
    /// It is at it.
    Under(Box<Live>),
    /// A phase is over.
    Ran(Box<Outcome>),
    /// I/Os a second.
    Ceiling(f64),
    /// It cannot, and why.
    Failed(String, Option<String>),
}

impl Task {
    /// The part of a plan that is the `number`th worker's, counted from 1.
    fn of(plan: &Plan, number: usize) -> Task {
        let own = |target: &String| target.replace("{n}", &number.to_string());
        let (size, reduction) = plan.profile.changes;
        Task {
            language: LANGUAGE,
            profile: plan.profile.name.clone(),
            text: plan.profile.text.clone(),
            size,
            reduction: reduction.map(|reduction| (reduction.dedupe, reduction.compression)),
            quick: plan.quick,
            targets: plan.fleet.targets.iter().map(own).collect(),
            threads: plan.options.threads,
            verify: plan.options.verify,
            seed: crate::payload::mix(plan.options.seed ^ crate::payload::mix(number as u64)),
            destroy_data: plan.options.destroy_data,
        }
    }

    fn reduction(&self) -> Option<Reduction> {
        self.reduction.map(|(dedupe, compression)| Reduction { dedupe, compression })
    }
}

impl Answer {
    fn failed(error: &Error) -> Answer {
        Answer::Failed(error.what(), error.remedy_text().map(ToOwned::to_owned))
    }

    /// The error that a worker told, with the worker's name.
    fn error(worker: &str, what: &str, remedy: Option<String>) -> Error {
        let error = Error::new(Kind::Io, format!("worker {worker}: {what}"));
        match remedy {
            Some(remedy) => error.remedy(remedy),
            None => error,
        }
    }
}

fn unexpected<T>(worker: &str) -> Result<T> {
    Err(Error::new(Kind::Io, format!("worker {worker} answers something else than what it was asked"))
        .remedy("run the same version on all machines"))
}
