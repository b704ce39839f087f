//! `stonefold lab compare`.

use super::catalogue::length;
use super::load::{Load, environment, quoted, record, target};
use super::{picture, system, trial};
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::on_stop;
use clap::Args;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use stonefold_lab::bundle::{self, Bundle};
use stonefold_lab::measure::{Point, Reins};
use stonefold_lab::trial::{Arm, Trial, TrialPlan, Turn, arms_of_file, run, run_folder, save};
use stonefold_lab::{TargetSpec, machine};
use stonefold_types::{Error, Kind};

/// Compare two or more targets, or configurations of one, by runs in turn
///
/// Each round runs every arm once, in an order that is drawn and then mirrored, on volumes that are written anew. Of each figure
/// the ratio within a round is taken, and an interval for it: nothing is called faster unless the interval says so. Exit status:
/// 0 something could be concluded, 3 invalid, 4 inconclusive (too few rounds); 2 misuse.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    stonefold lab compare ab --a file:/srv/ext4/t.img --b file:/srv/xfs/t.img --quick --out runs/ab\n  \
    stonefold lab compare ladder --arms tuning.toml --out runs/ladder\n\n\
    A file of arms:\n  \
    [[arm]]\n  \
    name = \"as it comes\"\n  \
    target = \"stonefold:test\"\n  \
    before = \"stonefold disk set test --compression none\"   # and 'after', each run by the shell")]
pub(crate) struct Compare {
    #[command(flatten)]
    pub(super) load: Load,
    #[command(flatten)]
    pub(super) arms: Arms,
}

/// What is compared.
#[derive(Args)]
pub(super) struct Arms {
    /// The first arm's target; once for all volumes, or once for each
    #[arg(long, value_name = "TARGET", requires = "b")]
    a: Vec<String>,
    /// The second arm's
    #[arg(long, value_name = "TARGET", requires = "a")]
    b: Vec<String>,
    /// What is behind the first arm's target, as 'lab run' takes it
    #[arg(long, value_name = "FILE", requires = "a")]
    system_a: Option<PathBuf>,
    /// What is behind the second arm's
    #[arg(long, value_name = "FILE", requires = "b")]
    system_b: Option<PathBuf>,
    /// A file that lists two arms or more, each with its target and with commands before and after its runs
    #[arg(long, value_name = "FILE", conflicts_with_all = ["a", "b"])]
    arms: Option<PathBuf>,
    /// Runs of each arm; from 5 on something can be concluded
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pairs: u16,
}

impl Compare {
    pub(super) fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let (trial, bundles) = self.measure(context)?;
        trial::answer(context, &trial, &bundles, self.load.out.as_deref())
    }

    /// Runs it, and keeps it where it was told to.
    pub(super) fn measure(&self, context: &Context) -> Result<(Trial, Vec<Bundle>), Failure> {
        let (profile, locked) = self.load.profile()?;
        let (_runtime, env) = environment()?;
        let options = self.load.options(&env);
        let arms = self.arms.resolve(context)?;
        let rounds = usize::from(self.arms.pairs);
        let plan = TrialPlan { profile, quick: self.load.quick, arms, rounds, options };
        plan.check().map_err(Failure::Misuse)?;
        tell_plan(&plan);
        let reins = Arc::new(Reins::new());
        let of_signal = reins.clone();
        on_stop(move || of_signal.stop())?;
        let mut made = Made {
            trial: self.trial(&plan, locked, env.wall() / 1_000_000_000),
            bundles: Vec::new(),
            plan: &plan,
            locked,
            out: self.load.out.as_deref(),
        };
        picture::show(&env, &reins, || run(&env, &plan, &reins, |turn, points| made.keep(turn, points)))?;
        Ok((made.trial, made.bundles))
    }
}

impl Arms {
    pub(super) fn are_given(&self) -> bool {
        !self.a.is_empty() || self.arms.is_some()
    }

    fn resolve(&self, context: &Context) -> Result<Vec<Arm>, Failure> {
        if !self.are_given() {
            let error = Error::new(Kind::Invalid, "there is nothing to compare");
            return Err(Failure::Misuse(
                error.remedy("name two targets with --a and --b, or a file of arms with --arms"),
            ));
        }
        if let Some(path) = &self.arms {
            let failed = |e| Error::io(format!("reading the arms '{}'", path.display()), e);
            let text = std::fs::read_to_string(path).map_err(failed)?;
            let resolve = |text: &str| {
                target(context, text).map_err(|failure| match failure {
                    Failure::Misuse(error) | Failure::Failed(error) => error,
                    Failure::Unread => Error::new(Kind::Io, "nobody reads what is printed"),
                })
            };
            return arms_of_file(&text, resolve).map_err(Failure::Misuse);
        }
        let arm = |name: &str, texts: &[String], told: Option<&Path>| -> Result<Arm, Failure> {
            let targets: Vec<TargetSpec> =
                texts.iter().map(|text| target(context, text)).collect::<Result<_, _>>()?;
            let system = told.map(system::read).transpose()?;
            Ok(Arm { name: name.into(), targets, before: None, after: None, system })
        };
        Ok(vec![arm("A", &self.a, self.system_a.as_deref())?, arm("B", &self.b, self.system_b.as_deref())?])
    }

    fn words(&self, words: &mut Vec<String>) {
        self.a.iter().for_each(|target| words.push(format!("--a {}", quoted(target))));
        self.b.iter().for_each(|target| words.push(format!("--b {}", quoted(target))));
        words
            .extend(self.arms.as_ref().map(|path| format!("--arms {}", quoted(&path.display().to_string()))));
        for (flag, path) in [("--system-a", &self.system_a), ("--system-b", &self.system_b)] {
            words.extend(system::words(flag, path.as_deref()));
        }
        words.push(format!("--pairs {}", self.pairs));
    }
}

impl Compare {
    fn trial(&self, plan: &TrialPlan, locked: bool, began: u64) -> Trial {
        let mut commands = BTreeMap::new();
        for arm in &plan.arms {
            for (when, command) in [("before", &arm.before), ("after", &arm.after)] {
                commands.extend(command.clone().map(|command| (format!("{}, {when}", arm.name), command)));
            }
        }
        Trial {
            format: Trial::FORMAT,
            version: stonefold_server::VERSION.into(),
            profile: plan.profile.name.clone(),
            locked,
            quick: plan.quick,
            arms: plan.arms.iter().map(|arm| arm.name.clone()).collect(),
            commands,
            systems: plan.arms.iter().map(|arm| arm.system.clone()).collect(),
            rounds: plan.rounds,
            seed: plan.options.seed,
            began,
            reproduce: self.reproduce(plan),
            machine: machine::describe(),
            runs: Vec::new(),
        }
    }

    fn reproduce(&self, plan: &TrialPlan) -> String {
        let mut words = vec!["stonefold lab compare".to_owned(), self.load.named()];
        self.arms.words(&mut words);
        words.push(self.load.words(&plan.options));
        words.join(" ")
    }
}

/// The runs so far.
struct Made<'a> {
    trial: Trial,
    bundles: Vec<Bundle>,
    plan: &'a TrialPlan,
    locked: bool,
    out: Option<&'a Path>,
}

impl Made<'_> {
    fn keep(&mut self, turn: Turn, points: Vec<Point>) -> stonefold_types::Result<()> {
        let plan = self.plan.of(&turn);
        let mut run = record(&plan, self.locked, turn.began);
        run.cut_short = turn.cut_short;
        run.reproduce.clone_from(&self.trial.reproduce);
        let hash = match self.out {
            Some(dir) => bundle::save(&dir.join(run_folder(&turn)), &run, &plan.profile.text, &points)?,
            None => String::new(),
        };
        self.trial.runs.push((turn, hash.clone()));
        self.bundles.push(Bundle { run, profile: plan.profile.text, points, hash });
        if let Some(dir) = self.out {
            save(dir, &self.trial)?;
        }
        trial::tell_progress(&self.trial, &self.bundles);
        Ok(())
    }
}

fn tell_plan(plan: &TrialPlan) {
    let arms: Vec<String> = plan
        .arms
        .iter()
        .map(|arm| {
            let targets: Vec<String> = arm.targets.iter().map(ToString::to_string).collect();
            format!("'{}' on {}", arm.name, targets.join(" and "))
        })
        .collect();
    let runs = plan.arms.len() * plan.rounds;
    eprintln!(
        "{}{}: {}; {} of each, about {} after volumes are written; seed {}",
        plan.profile.name,
        if plan.quick { ", quick" } else { "" },
        arms.join(", "),
        crate::table::count(plan.rounds as u64, "run"),
        length(plan.profile.duration(plan.quick) * runs as u32),
        plan.options.seed
    );
}
