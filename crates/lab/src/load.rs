//! The load engine: streams of I/Os on one clock, by a thread for each core that is given.
//!
//! *Promises*: open-loop I/Os have their moment before the storage is asked, and their response time counts from it,
//! so that a stall is seen by every I/O that it kept waiting. *Never*: lets one slow volume hold up another's stream.
//! *Owns*: the threads while a phase runs.

mod control;
mod effort;
mod part;
mod script;
mod source;

use crate::record::{Second, StreamRecord, add_series};
use crate::reduced::Reduced;
use crate::verify::Verification;
use crate::workload::Load;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result};

pub use control::{Control, Live};
pub use effort::Effort;
pub use script::Play;
pub(crate) use script::Script;

pub(crate) use part::{Behind, FILL_BYTES, FILL_OUTSTANDING, Part, slots_for};

/// What a phase does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Goal {
    /// The streams go on for so long.
    For(Duration),
    /// The traces of the streams are replayed for so long; what is late by then may go on for so much longer.
    Replay(Duration, Duration),
    /// Every volume is written once, in order and whole.
    Fill,
    /// Every volume is read once, in order and whole.
    Scan,
    /// Every volume is flushed once.
    Flush,
    /// Nothing is done; it is counted how far what the volumes hold reduces.
    Survey,
    /// Something that is timed as a whole.
    Task(Task),
}

/// What is done once, in order, and timed as a whole. Volumes by their numbers; `share` is how much of each, from 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Task {
    /// They are written.
    Fill {
        /// Which.
        volumes: Vec<usize>,
        /// How much.
        share: f64,
    },
    /// One is read, and what was read is written to the other.
    Copy {
        /// The one.
        from: usize,
        /// The other.
        to: usize,
        /// How much.
        share: f64,
    },
    /// They are read, and what was read is looked at.
    Check {
        /// Which.
        volumes: Vec<usize>,
        /// How much.
        share: f64,
    },
}

/// A time without any answer, from the last before it to the first after: since the phase began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The last answer before.
    pub from: Duration,
    /// The first after.
    pub to: Duration,
}

/// One phase.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Phase {
    /// When it ends.
    pub goal: Goal,
    /// The load of each stream of the workload; without one it rests.
    pub loads: Vec<Option<Load>>,
    /// How much of each volume is used, from 0 to 1.
    pub footprint: f64,
    /// How long I/Os in flight at its end are waited for.
    pub grace: Duration,
}

/// What a phase has shown.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// By stream, in the order of the workload; of a fill or a scan by volume.
    pub streams: Vec<StreamRecord>,
    /// Second by second from its beginning, whole seconds only.
    pub series: Vec<Second>,
    /// What reads were found to be.
    pub verification: Verification,
    /// How long it was, without the drain at its end.
    pub elapsed: Duration,
    /// CPU time of that of the load's own threads that used most.
    pub busiest: Duration,
    /// What all of them used, and what of it was work.
    #[serde(default)]
    pub effort: Effort,
    /// How many those were.
    pub threads: usize,
    /// With several generators what each did: its name, and its records as in `streams`.
    pub workers: Vec<(String, Vec<StreamRecord>)>,
    /// Silences of more than 250 ms, each thread's for itself; only of phases in which targets are struck.
    pub gaps: Vec<Gap>,
    /// How often connections broke that were made again.
    pub breaks: u64,
    /// Of a survey: what volumes hold, those of which it is known.
    #[serde(default)]
    pub reduced: Vec<Reduced>,
}

impl Outcome {
    /// Adds what another generator has shown of the same phase.
    pub(crate) fn add(&mut self, other: &Outcome) {
        self.threads += other.threads;
        for (number, record) in other.streams.iter().enumerate() {
            self.add_stream(number, record);
        }
        add_series(&mut self.series, &other.series);
        self.verification.add(&other.verification);
        self.elapsed = self.elapsed.max(other.elapsed);
        self.busiest = self.busiest.max(other.busiest);
        self.effort.add(&other.effort);
        self.gaps.extend(&other.gaps);
        self.breaks += other.breaks;
        other.reduced.iter().for_each(|one| self.add_reduced(one));
    }

    fn add_reduced(&mut self, of_one: &Reduced) {
        match self.reduced.iter_mut().find(|reduced| reduced.volume == of_one.volume) {
            Some(reduced) => reduced.add(of_one),
            None => self.reduced.push(of_one.clone()),
        }
    }

    /// Fails where not every I/O that was to fill volumes was answered without an error: whatever is measured on them would be of storage
    /// that holds nothing in places.
    ///
    /// # Errors
    /// What the target said first, with [`Kind::NoSpace`] where it was full.
    pub(crate) fn check_filled(&self) -> Result<()> {
        let failed: u64 = self.streams.iter().map(StreamRecord::failed).sum();
        let unanswered = self.unanswered();
        let first = self.streams.iter().find_map(|record| record.errors.keys().next());
        let error = match first {
            Some(errno) => {
                let what =
                    format!("writing every block once: {failed} I/Os failed, {unanswered} had no answer");
                Error::io(what, std::io::Error::from_raw_os_error(*errno))
            }
            None if unanswered == 0 => return Ok(()),
            None => {
                Error::new(Kind::Io, format!("writing every block once: {unanswered} I/Os had no answer"))
            }
        };
        Err(match error.kind() {
            Kind::NoSpace => error.remedy("choose a smaller --size, or make room"),
            _ => error
                .remedy("look at what serves the target: it must take every block before it can be measured"),
        })
    }

    /// Bytes of writes that were acknowledged.
    pub(crate) fn written(&self) -> u64 {
        self.streams.iter().map(|record| record.write.bytes).sum()
    }

    /// I/Os that were never answered.
    pub(crate) fn unanswered(&self) -> u64 {
        self.streams.iter().map(|record| record.unanswered).sum()
    }

    fn add_stream(&mut self, number: usize, record: &StreamRecord) {
        if self.streams.len() <= number {
            self.streams.resize_with(number + 1, StreamRecord::default);
        }
        self.streams[number].add(record);
    }
}

/// What one thread has shown of the streams that are its own.
pub(crate) struct Shown {
    /// By the numbers of streams in the workload, or of volumes.
    pub streams: Vec<(usize, StreamRecord)>,
    pub series: Vec<Second>,
    pub verification: Verification,
    pub elapsed: Duration,
    pub cpu: Duration,
    /// How long it waited awake.
    pub awake: Duration,
    pub gaps: Vec<Gap>,
    pub breaks: u64,
    pub reduced: Vec<Reduced>,
}

/// Runs a phase on all parts, each on a thread of its own, from one moment on.
///
/// # Errors
/// When a target can no longer be spoken to at all; the other parts are ended.
pub(crate) fn run(parts: &mut [Part], phase: &Phase, env: &Env, control: &Control) -> Result<Outcome> {
    // Soon enough for nobody to notice, late enough for every thread to be there.
    let start = env.monotonic() + Duration::from_millis(20);
    control.begin(start);
    let shown: Vec<Result<Shown>> = std::thread::scope(|scope| {
        let threads: Vec<_> = parts
            .iter_mut()
            .enumerate()
            .map(|(number, part)| {
                let name = format!("load-{number}");
                let run = move || {
                    let shown = part.run(phase, start, control);
                    if shown.is_err() {
                        control.stop();
                    }
                    shown
                };
                std::thread::Builder::new().name(name).spawn_scoped(scope, run)
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| match thread {
                Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                Err(error) => {
                    control.stop();
                    Err(Error::io("starting a thread of the load", error))
                }
            })
            .collect()
    });
    control.end();
    merge(shown)
}

fn merge(shown: Vec<Result<Shown>>) -> Result<Outcome> {
    let mut outcome = Outcome { threads: shown.len(), ..Outcome::default() };
    for part in shown {
        let part = part?;
        for (number, record) in &part.streams {
            outcome.add_stream(*number, record);
        }
        add_series(&mut outcome.series, &part.series);
        outcome.verification.add(&part.verification);
        outcome.elapsed = outcome.elapsed.max(part.elapsed);
        outcome.busiest = outcome.busiest.max(part.cpu);
        outcome.effort.add(&Effort::of_thread(part.cpu, part.awake));
        outcome.gaps.extend(part.gaps);
        outcome.breaks += part.breaks;
        part.reduced.iter().for_each(|one| outcome.add_reduced(one));
    }
    if outcome.threads == 0 {
        return Err(Error::new(Kind::Invalid, "a load without streams"));
    }
    Ok(outcome)
}
