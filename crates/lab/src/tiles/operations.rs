//! What administrators do beside the tiles: machines cloned, started, brought up to date and removed; machines moved. Each again and again
//! for as long as the tiles are replayed.
//!
//! After IOmark-VM 3.8: in the hour of the replay a loop clones, deploys, boots, upgrades and deletes a machine, and another moves one; from 21 tiles on six of
//! the former and three of the latter are required.
//!
//! What each step does is a command of the user's, as there is no other way to say it for any storage. *Promises*: a round that was begun is
//! finished, so that nothing of it stays behind; what was not finished when the replay ended is not counted. *Never*: goes on after
//! a step has failed.

use crate::load::Control;
use crate::measure::Reins;
use crate::shell;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result};
use utoipa::ToSchema;

/// Tells a command which round it is of, from 1.
const VARIABLE: &str = "STONEFOLD_LAB_ROUND";
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Seconds of an hour.
const HOUR: f64 = 3600.0;

/// A loop of steps, as a profile has it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    /// Its name.
    pub name: String,
    /// Its steps, in order.
    pub steps: Vec<String>,
    /// How often an hour it is required.
    pub least: f64,
    /// Of so many tiles and more.
    pub from: usize,
}

impl Operation {
    pub(super) fn check(&self) -> Result<()> {
        let wrong = |what: &str| Err(Error::new(Kind::Invalid, format!("operation '{}': {what}", self.name)));
        match () {
            () if self.steps.is_empty() => wrong("it has no steps"),
            () if !(self.least.is_finite() && self.least > 0.0) => {
                wrong("it is required more than 0 times an hour")
            }
            () if self.from == 0 => wrong("it is required from 1 tile on, or more"),
            () => Ok(()),
        }
    }
}

/// The commands of each operation's steps, by their names.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Commands(BTreeMap<String, BTreeMap<String, String>>);

impl Commands {
    /// Those of a file: TOML, a table for each operation of `operations`, with a command for each of its steps.
    ///
    /// # Errors
    /// [`Kind::Invalid`] with the line where it is no TOML, and with the step that has no command, or the command that is of no step.
    pub fn parse(text: &str, operations: &[Operation]) -> Result<Self> {
        let wrong = |what: String| {
            let names: Vec<String> =
                operations.iter().map(|one| format!("[{}] {}", one.name, one.steps.join(", "))).collect();
            Error::new(Kind::Invalid, format!("the commands: {what}"))
                .remedy(format!("give a command for each step: {}", names.join("; ")))
        };
        let commands: Commands =
            toml::from_str(text).map_err(|e| wrong(e.to_string().trim_end().to_owned()))?;
        for (name, steps) in &commands.0 {
            let known = operations.iter().find(|one| one.name == *name);
            let known = known.ok_or_else(|| wrong(format!("there is no operation '{name}'")))?;
            if let Some(step) = steps.keys().find(|step| !known.steps.contains(step)) {
                return Err(wrong(format!("'{name}' has no step '{step}'")));
            }
        }
        for (operation, step) in
            operations.iter().flat_map(|one| one.steps.iter().map(move |step| (one, step)))
        {
            if !commands.0.get(&operation.name).is_some_and(|steps| steps.contains_key(step)) {
                return Err(wrong(format!("'{}' has no command for '{step}'", operation.name)));
            }
        }
        Ok(commands)
    }

    /// Each in one line, by operation and step.
    pub(super) fn told(&self) -> BTreeMap<String, String> {
        let of = |(name, steps): (&String, &BTreeMap<String, String>)| -> Vec<(String, String)> {
            steps.iter().map(|(step, command)| (format!("{name}, {step}"), command.clone())).collect()
        };
        self.0.iter().flat_map(of).collect()
    }
}

/// What came of an operation beside a number of tiles.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OperationRecord {
    /// Its name.
    pub name: String,
    /// Its steps.
    pub steps: Vec<String>,
    /// How often an hour it is required, of so many tiles and more.
    pub least: f64,
    /// See `least`.
    pub from: usize,
    /// Rounds that were finished while the tiles were replayed: seconds that each of their steps took.
    pub rounds: Vec<Vec<f64>>,
    /// What ended it before its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl OperationRecord {
    /// Rounds that are required in so many seconds.
    pub fn required(&self, seconds: f64) -> f64 {
        self.least * seconds / HOUR
    }

    /// Rounds that were finished, by those that are required.
    pub fn ratio(&self, seconds: f64) -> f64 {
        self.rounds.len() as f64 / self.required(seconds).max(1e-9)
    }
}

/// Does `work` with the operations beside it, from the moment on when a phase with a length has begun in it. Returns what came of both.
pub(super) fn beside<T>(
    env: &Env,
    operations: &[Operation],
    commands: Option<&Commands>,
    reins: &Reins,
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, Vec<OperationRecord>)> {
    let Some(commands) = commands else { return Ok((work()?, Vec::new())) };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for operation in operations {
            let work = Loop { env, operation, commands: &commands.0[&operation.name], reins, over: &over };
            let named = std::thread::Builder::new().name(operation.name.clone());
            match named.spawn_scoped(scope, move || work.run()) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    over.store(true, Ordering::SeqCst);
                    return Err(Error::io("starting the thread of an operation", error));
                }
            }
        }
        let done = work();
        over.store(true, Ordering::SeqCst);
        let records = threads.into_iter();
        let records =
            records.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        let records = records.collect();
        Ok((done?, records))
    })
}

struct Loop<'a> {
    env: &'a Env,
    operation: &'a Operation,
    commands: &'a BTreeMap<String, String>,
    reins: &'a Reins,
    over: &'a AtomicBool,
}

impl Loop<'_> {
    fn run(&self) -> OperationRecord {
        let Operation { name, steps, least, from } = self.operation.clone();
        let mut record = OperationRecord { name, steps, least, from, ..OperationRecord::default() };
        let Some(control) = self.wait() else { return record };
        for number in 1.. {
            match self.round(number) {
                Ok(took) if !control.is_over() && !self.is_over() => record.rounds.push(took),
                Ok(_) => return record,
                Err(error) => {
                    record.failure = Some(error.what());
                    return record;
                }
            }
        }
        record
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst) || self.reins.is_stopped()
    }

    /// Until the replay has begun; nothing where it never did.
    fn wait(&self) -> Option<Arc<Control>> {
        while !self.is_over() {
            let (doing, control) = self.reins.doing();
            if doing.length.is_some() && control.start().is_some() {
                return Some(control);
            }
            std::thread::sleep(LOOK_EVERY);
        }
        None
    }

    /// Every step of a round, so that nothing stays behind; seconds that each took.
    fn round(&self, number: u32) -> Result<Vec<f64>> {
        let mut took = Vec::new();
        for step in &self.operation.steps {
            let command = &self.commands[step];
            let told = || {
                format!("the command '{step}' of '{}', round {number}, \"{command}\",", self.operation.name)
            };
            let began = self.env.monotonic();
            shell::run(told, command, (VARIABLE, &number.to_string()))?;
            took.push((self.env.monotonic() - began).as_secs_f64());
        }
        Ok(took)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Doing;
    use stonefold_env::SystemWorld;

    fn operations() -> Vec<Operation> {
        let steps = |steps: &[&str]| steps.iter().map(|step| (*step).to_owned()).collect();
        vec![
            Operation { name: "deploy".into(), steps: steps(&["clone", "delete"]), least: 6.0, from: 21 },
            Operation { name: "migrate".into(), steps: steps(&["move"]), least: 3.0, from: 21 },
        ]
    }

    #[test]
    fn each_step_has_its_command() {
        let good = "[deploy]\nclone = 'true'\ndelete = 'true'\n[migrate]\nmove = 'true'\n";
        assert!(Commands::parse(good, &operations()).is_ok());
        for (from, to, says) in [
            ("[migrate]\nmove = 'true'\n", "", "'migrate' has no command for 'move'"),
            ("delete = 'true'\n", "", "no command for 'delete'"),
            ("move =", "mvoe =", "no step 'mvoe'"),
            ("[migrate]", "[migration]", "no operation 'migration'"),
            ("clone = 'true'", "clone = 7", "line 2"),
        ] {
            let error = Commands::parse(&good.replace(from, to), &operations()).unwrap_err().to_string();
            assert!(error.contains(says), "{from} → {to}: {error}");
        }
    }

    /// Runs loops beside a phase of a second and a half.
    fn rounds(text: &str) -> Vec<OperationRecord> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let env = Env::new(SystemWorld::new(runtime.handle().clone(), 1).unwrap());
        let (reins, commands) = (Reins::new(), Commands::parse(text, &operations()).unwrap());
        let work = || {
            // Nothing is done while volumes are written.
            reins.begin(Doing { what: "writing".into(), ..Doing::default() });
            std::thread::sleep(Duration::from_millis(300));
            let length = Some(Duration::from_millis(1500));
            let control = reins.begin(Doing { what: "replaying".into(), length, ..Doing::default() });
            control.begin(env.monotonic());
            std::thread::sleep(Duration::from_millis(1500));
            Ok(())
        };
        beside(&env, &operations(), Some(&commands), &reins, work).unwrap().1
    }

    #[test]
    fn rounds_are_counted_while_the_work_goes_on_and_finished_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display();
        let found = rounds(&format!(
            "[deploy]\nclone = 'sleep 0.4; touch {path}/$STONEFOLD_LAB_ROUND'\ndelete = 'rm {path}/$STONEFOLD_LAB_ROUND'\n\
             [migrate]\nmove = 'sleep 0.1; echo no such host >&2; false'\n"
        ));
        // Some three fit, and on a busy machine fewer.
        assert!((1..=3).contains(&found[0].rounds.len()), "{found:?}");
        assert!(found[0].rounds.iter().all(|took| took.len() == 2 && took[0] >= 0.4), "{found:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the last round was finished");
        assert!(found[1].rounds.is_empty());
        assert!(found[1].failure.as_ref().is_some_and(|why| why.contains("no such host")), "{found:?}");
    }

    #[test]
    fn what_is_required_goes_with_the_time() {
        let record =
            OperationRecord { least: 6.0, rounds: vec![Vec::new(); 4], ..OperationRecord::default() };
        assert_eq!((record.required(3600.0), record.required(1800.0)), (6.0, 3.0));
        assert!((record.ratio(1800.0) - 4.0 / 3.0).abs() < 1e-9);
    }
}
