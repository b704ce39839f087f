//! All workers of a run, in the hands of whoever leads.

use super::wire::{Receiver, Sender, Side, Token, WorkerAddress, join};
use super::{Answer, Command, Task, unexpected};
use crate::load::{Control, Live, Outcome, Phase};
use crate::measure::Plan;
use crate::workload::Load;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::{Error, Result};

/// How often it is looked whether the phase is to end.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// See the module above.
pub struct Fleet {
    workers: Vec<Worker>,
}

struct Worker {
    name: String,
    sender: Mutex<Sender>,
    receiver: Receiver,
    threads: usize,
    machine: BTreeMap<String, String>,
}

impl Fleet {
    /// Connects to all of them, and has each open its targets.
    ///
    /// # Errors
    /// What is wrong with a worker or with one of its targets, with the worker's name.
    pub fn open(env: &Env, plan: &Plan, addresses: &[WorkerAddress], token: &Token) -> Result<Self> {
        let mut workers = Vec::new();
        for address in addresses {
            let failed = |e| {
                Error::io(format!("worker {address}"), e)
                    .remedy("start 'stonefold lab worker' there, with the same token")
            };
            let (sender, receiver) = address
                .connect()
                .and_then(|stream| join(stream, Side::Leader, token, env.random()))
                .map_err(failed)?;
            let (name, sender) = (address.to_string(), Mutex::new(sender));
            workers.push(Worker { name, sender, receiver, threads: 0, machine: BTreeMap::new() });
        }
        let mut fleet = Fleet { workers };
        let tasks: Vec<Command> =
            (1..=fleet.workers.len()).map(|number| Command::Open(Box::new(Task::of(plan, number)))).collect();
        let opened = fleet.ask(&tasks, &Control::new(), |name, answer| match answer {
            Answer::Opened(machine, threads) => Ok((machine, threads)),
            _ => unexpected(name),
        })?;
        for (worker, (machine, threads)) in fleet.workers.iter_mut().zip(opened) {
            (worker.machine, worker.threads) = (machine, threads);
        }
        Ok(fleet)
    }

    /// Threads of all their loads.
    pub fn threads(&self) -> usize {
        self.workers.iter().map(|worker| worker.threads).sum()
    }

    /// How many workers.
    pub fn size(&self) -> usize {
        self.workers.len()
    }

    /// Each worker's name, and what its machine tells of itself.
    pub fn machines(&self) -> impl Iterator<Item = (&str, &BTreeMap<String, String>)> {
        self.workers.iter().map(|worker| (&*worker.name, &worker.machine))
    }

    /// Runs a phase on all, and waits for the last.
    ///
    /// # Errors
    /// When a worker or its target is lost; the others are ended.
    pub fn run(&mut self, phase: &Phase, control: &Control) -> Result<Outcome> {
        let commands = vec![Command::Run(Box::new(phase.clone())); self.workers.len()];
        let outcomes = self.ask(&commands, control, |name, answer| match answer {
            Answer::Ran(outcome) => Ok(*outcome),
            _ => unexpected(name),
        })?;
        let names: Vec<String> = self.workers.iter().map(|worker| worker.name.clone()).collect();
        Ok(merge(names.into_iter().zip(outcomes)))
    }

    /// I/Os a second that all generators together do with nothing behind them.
    ///
    /// # Errors
    /// When a worker is lost.
    pub fn ceiling(&mut self, loads: &[Option<Load>], footprint: f64) -> Result<f64> {
        let commands = vec![Command::Ceiling(loads.to_vec(), footprint); self.workers.len()];
        let each = self.ask(&commands, &Control::new(), |name, answer| match answer {
            Answer::Ceiling(rate) => Ok(rate),
            _ => unexpected(name),
        })?;
        Ok(each.iter().sum())
    }

    /// Tells each worker its command and waits for all answers. The first that fails ends the others.
    fn ask<T: Send>(
        &mut self,
        commands: &[Command],
        control: &Control,
        take: impl Fn(&str, Answer) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let lives = Mutex::new(vec![Live::default(); self.workers.len()]);
        for (worker, command) in self.workers.iter().zip(commands) {
            worker.sender.lock().send(command).map_err(|e| worker.lost(e))?;
        }
        let (senders, mut waiting): (Vec<_>, Vec<_>) = self
            .workers
            .iter_mut()
            .map(|worker| (&worker.sender, (&*worker.name, &mut worker.receiver)))
            .unzip();
        let (lives, take) = (&lives, &take);
        let answers = std::thread::scope(|scope| {
            let threads: Vec<_> = waiting
                .iter_mut()
                .enumerate()
                .map(|(number, (name, receiver))| {
                    scope.spawn(move || {
                        let answer = answer(name, receiver, |live| {
                            let mut lives = lives.lock();
                            lives[number] = live;
                            control.show(together(&lives));
                        });
                        let answer = answer.and_then(|answer| take(name, answer));
                        if answer.is_err() {
                            control.stop();
                        }
                        answer
                    })
                })
                .collect();
            let mut told = false;
            while threads.iter().any(|thread| !thread.is_finished()) {
                if control.is_stopped() && !told {
                    told = true;
                    // Who cannot be told is found lost by who waits for it.
                    senders.iter().for_each(|sender| drop(sender.lock().send(&Command::Stop)));
                }
                std::thread::sleep(LOOK_EVERY);
            }
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect::<Vec<Result<T>>>()
        });
        answers.into_iter().collect()
    }
}

impl Worker {
    fn lost(&self, error: std::io::Error) -> Error {
        lost(&self.name, error)
    }
}

fn lost(name: &str, error: std::io::Error) -> Error {
    Error::io(format!("worker {name} is lost"), error)
        .remedy("look at what it said where it runs, and whether both have the same token")
}

/// The answer to a command, with what is told before it.
fn answer(name: &str, receiver: &mut Receiver, mut under: impl FnMut(Live)) -> Result<Answer> {
    loop {
        match receiver.receive::<Answer>().map_err(|e| lost(name, e))? {
            Some(Answer::Under(live)) => under(*live),
            Some(Answer::Failed(what, remedy)) => return Err(Answer::error(name, &what, remedy)),
            Some(answer) => return Ok(answer),
            None => return Err(lost(name, std::io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

/// What all of them show: their seconds are not quite the same ones.
fn together(lives: &[Live]) -> Live {
    let mut all = Live::default();
    for live in lives {
        all.second = all.second.max(live.second);
        all.ios += live.ios;
        all.bytes += live.bytes;
        all.last.add(&live.last);
    }
    all
}

/// Records added up exactly; what each worker did is kept beside.
fn merge(outcomes: impl Iterator<Item = (String, Outcome)>) -> Outcome {
    let mut all = Outcome::default();
    for (name, outcome) in outcomes {
        all.add(&outcome);
        all.workers.push((name, outcome.streams));
    }
    all
}
