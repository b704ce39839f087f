//! A worker: waits for whoever leads, and loads what it is told.

use super::wire::{Receiver, Sender, Side, Token, join};
use super::{Answer, Command, LANGUAGE, Task};
use crate::load::{Control, Outcome, Phase};
use crate::machine;
use crate::measure::{ceiling, depths};
use crate::profile::Profile;
use crate::rig::{Rig, RigOptions};
use crate::target::TargetSpec;
use crate::workload::Workload;
use parking_lot::Mutex;
use std::io;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result};

/// How often a worker says that it is at it.
const TELL_EVERY: Duration = Duration::from_millis(500);

/// Serves one leader after another, for ever. `tell` is given a line for each thing that happens.
///
/// # Errors
/// When nothing can be accepted any more.
pub fn serve(env: &Env, listener: &TcpListener, token: &Token, tell: impl Fn(&str)) -> Result<()> {
    loop {
        let (stream, peer) = listener.accept().map_err(|e| Error::io("waiting for a leader", e))?;
        tell(&format!("{peer}: connected"));
        let ended = join(stream, Side::Worker, token, env.random()).and_then(|(sender, receiver)| {
            let (read, commands) = mpsc::channel();
            let lead = Lead { env, sender: Mutex::new(sender), commands, tell: &tell };
            std::thread::scope(|scope| {
                let reader = scope.spawn(|| read_commands(receiver, read));
                let ended = lead.follow();
                lead.sender.lock().hang_up();
                reader.join().unwrap_or(Ok(())).and(ended)
            })
        });
        match ended {
            Ok(()) => tell(&format!("{peer}: left")),
            Err(error) => tell(&format!("{peer}: {error}")),
        }
    }
}

/// Until the leader leaves. Who has not proved that it knows the token is waited for no longer than [`join`] says.
fn read_commands(mut receiver: Receiver, read: mpsc::Sender<Command>) -> io::Result<()> {
    while let Some(command) = receiver.receive::<Command>()? {
        receiver.patience(None)?;
        if read.send(command).is_err() {
            break;
        }
    }
    Ok(())
}

/// One leader's connection.
struct Lead<'a, T: Fn(&str)> {
    env: &'a Env,
    sender: Mutex<Sender>,
    commands: mpsc::Receiver<Command>,
    tell: &'a T,
}

/// What was opened.
struct Opened {
    rig: Rig,
    workload: Workload,
    options: RigOptions,
    targets: Vec<TargetSpec>,
}

impl<T: Fn(&str)> Lead<'_, T> {
    fn follow(&self) -> io::Result<()> {
        let mut opened: Option<Opened> = None;
        while let Ok(command) = self.commands.recv() {
            let answer = match (command, &mut opened) {
                (Command::Open(task), _) => {
                    // Before the new one: it may be the same target.
                    drop(opened.take());
                    (self.tell)(&format!("'{}' on {}", task.profile, task.targets.join(" and ")));
                    self.open(&task).map(|(rig, answer)| {
                        opened = Some(rig);
                        answer
                    })
                }
                (Command::Run(phase), Some(opened)) => {
                    self.run(&mut opened.rig, &phase).map(|outcome| Answer::Ran(Box::new(outcome)))
                }
                (Command::Ceiling(loads, footprint), Some(opened)) => {
                    let Opened { workload, options, targets, .. } = opened;
                    ceiling(self.env, workload, targets, options, &loads, footprint).map(Answer::Ceiling)
                }
                (Command::Run(_) | Command::Ceiling(..), None) => {
                    Err(Error::new(Kind::Invalid, "nothing was opened"))
                }
                // It came too late: the phase is over.
                (Command::Stop, _) => continue,
            };
            let answer = answer.unwrap_or_else(|error| {
                (self.tell)(&error.to_string());
                Answer::failed(&error)
            });
            self.sender.lock().send(&answer)?;
        }
        Ok(())
    }

    fn open(&self, task: &Task) -> Result<(Opened, Answer)> {
        if task.language != LANGUAGE {
            return Err(Error::new(Kind::Unsupported, "the worker is of another version")
                .remedy("run the same version on all machines"));
        }
        let profile = Profile::parse(&task.profile, &task.text)?.changed(task.size, task.reduction())?;
        let targets = task.targets.iter().map(|text| text.parse()).collect::<Result<Vec<TargetSpec>>>()?;
        let options = RigOptions {
            threads: task.threads,
            verify: task.verify,
            seed: task.seed,
            destroy_data: task.destroy_data,
            lasting: false,
        };
        let workload = profile.workload(task.quick).clone();
        let rig = Rig::open(self.env, &workload, &targets, &depths(&workload, &profile.steps), &options)?;
        let threads = rig.threads();
        Ok((Opened { rig, workload, options, targets }, Answer::Opened(machine::describe(), threads)))
    }

    /// Runs a phase, tells how it goes, and ends it when the leader says so or is gone.
    fn run(&self, rig: &mut Rig, phase: &Phase) -> Result<Outcome> {
        let control = Control::new();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let phase = scope.spawn(|| {
                let outcome = rig.run(phase, &control);
                over.store(true, SeqCst);
                outcome
            });
            while !over.load(SeqCst) {
                match self.commands.recv_timeout(TELL_EVERY) {
                    Err(RecvTimeoutError::Timeout) => {
                        let live = Answer::Under(Box::new(control.live()));
                        if self.sender.lock().send(&live).is_err() {
                            control.stop();
                        }
                    }
                    Ok(Command::Stop) => control.stop(),
                    // Whoever leads is gone, or does not keep to the order of things.
                    Ok(_) | Err(RecvTimeoutError::Disconnected) => {
                        control.stop();
                        break;
                    }
                }
            }
            phase.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}
