//! `stonefold lab compare`.

use super::catalogue::length;
use super::load::{
    CACHES, Load, caches, counters, quoted, record, target, tell_before, tell_unkept, with_server,
};
use super::worker::{self, Workers};
use super::{picture, system, trial};
use crate::context::Context;
use crate::environment::environment;
use crate::failure::Failure;
use crate::interrupt::on_stop;
use clap::Args;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use stonefold_lab::bundle::{self, Bundle, ENDED_BY};
use stonefold_lab::measure::Reins;
use stonefold_lab::stats::compare::{PAIRS_MIN, detectable};
use stonefold_lab::trial::{
    ARMS_FILE, Arm, Ran, Subject, Trial, TrialPlan, Turn, arms_of_file, file_of_arms, finding_takes,
    hash_of_arms, run, run_folder, save, save_arms, share,
};
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
    stonefold lab compare oltp --a dir:/srv/ext4 --b dir:/srv/xfs --quick --warehouses 5 --out runs/db\n  \
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
    #[command(flatten)]
    pub(super) workers: Workers,
    /// Of a database: how many warehouses, in place of what the profile says; some 100 MiB each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) warehouses: Option<u32>,
    /// Of a database: the folder of PostgreSQL's programs [default: the newest that is installed]
    #[arg(long, value_name = "DIR")]
    pub(super) postgres: Option<PathBuf>,
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
    /// Go on with rounds, after those of --pairs, until the interval of each rate and each mean reaches so far either way at most, as in 3%
    #[arg(long, value_name = "SHARE", value_parser = reach)]
    within: Option<f64>,
    /// With --within: rounds at most
    #[arg(long, value_name = "N", default_value_t = 20, requires = "within", value_parser = clap::value_parser!(u16).range(1..=1000))]
    most: u16,
}

fn reach(text: &str) -> Result<f64, String> {
    let wrong = || format!("'{text}' is no share; write it as in 3%");
    let percent: f64 = text.strip_suffix('%').ok_or_else(wrong)?.trim().parse().map_err(|_| wrong())?;
    if percent > 0.0 && percent < 100.0 { Ok(percent / 100.0) } else { Err(wrong()) }
}

/// A share as it was written.
fn percent(share: f64) -> f64 {
    (share * 1e4).round() / 1e2
}

impl Compare {
    /// What is run, and whether it is one of the lab's own, unchanged.
    fn subject(&self) -> Result<(Subject, bool), Failure> {
        if let Some((profile, shipped)) = self.load.database()? {
            super::oltp::refuse_words_of_loads(&self.load).map_err(Failure::Misuse)?;
            super::oltp::refuse_workers(&self.workers).map_err(Failure::Misuse)?;
            let locked = shipped && self.warehouses.is_none();
            let profile = profile.with_warehouses(self.warehouses);
            return Ok((Subject::Database(profile, self.postgres.clone()), locked));
        }
        if self.warehouses.is_some() || self.postgres.is_some() {
            let what = format!("the profile {} runs no database", self.load.named());
            return Err(Failure::Misuse(
                Error::new(Kind::Invalid, what).remedy("leave --warehouses and --postgres out, or take oltp"),
            ));
        }
        let (profile, locked) = self.load.profile(self.workers.machines())?;
        Ok((Subject::Load(profile), locked))
    }

    pub(super) fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let (trial, bundles) = self.measure(context)?;
        trial::answer(context, &trial, &bundles, self.load.out.as_deref())
    }

    /// Runs it, and keeps it where it was told to.
    pub(super) fn measure(&self, context: &Context) -> Result<(Trial, Vec<Bundle>), Failure> {
        let (subject, locked) = self.subject()?;
        let (_runtime, env) = environment()?;
        let options = self.load.options(&env);
        let fleet = self.workers.fleet(&[])?;
        let (arms, list) = self.arms.resolve(context, self.workers.are_given())?;
        let least = usize::from(self.arms.pairs);
        let rounds = self.arms.within.map_or(least, |_| least.max(usize::from(self.arms.most)));
        // A database's are not looked at, and a device that a command makes first says nothing yet.
        let of = |arm: &Arm| {
            counters(context, &arm.words).unwrap_or_else(|failure| {
                if arm.before.is_none() {
                    eprintln!("what arm '{}' counts is not compared: {}", arm.name, failure.into_error());
                }
                Vec::new()
            })
        };
        let told = match &subject {
            // What workers name is on their machines.
            Subject::Load(_) if !self.workers.are_given() => arms.iter().map(of).collect(),
            _ => Vec::new(),
        };
        let mut plan = TrialPlan {
            subject,
            quick: self.load.quick,
            arms,
            rounds,
            options,
            fleet,
            counters: told,
            capacities: Vec::new(),
        };
        plan.check().map_err(Failure::Misuse)?;
        tell_plan(&plan, self.arms.within.map(|within| (least, within)));
        let runs = (plan.arms.len() * plan.rounds) as u32;
        let length = plan.subject.duration(plan.quick) * runs;
        let others = match self.workers.are_given() {
            // Who else is busy where workers are is not seen from here.
            true => {
                tell_unkept(self.load.out.as_deref(), length);
                None
            }
            false => tell_before(self.load.out.as_deref(), length),
        };
        let reins = Arc::new(Reins::new());
        let of_signal = reins.clone();
        on_stop(move || of_signal.stop())?;
        let mut trial = self.trial(&plan, locked, env.wall() / 1_000_000_000);
        let words = plan.arms.iter().flat_map(|arm| &arm.words);
        trial.reproduce = with_server(context, trial.reproduce, words);
        trial.machine.extend(others);
        let out = self.load.out.as_deref();
        trial.arms_hash = out.map(|_| hash_of_arms(&list));
        let shared = picture::show(&env, &reins, || share(&env, &plan, &reins))?;
        (plan.capacities, trial.shared) = shared.into_iter().unzip();
        let mut made = Made { trial, list, bundles: Vec::new(), plan: &plan, locked, out, least };
        let ended =
            picture::show(&env, &reins, || run(&env, &plan, &reins, |turn, ran| made.keep(turn, ran)));
        match ended {
            Err(error) if made.bundles.is_empty() => return Err(error.into()),
            // What was measured until then is told.
            Err(error) => {
                eprintln!("it was ended before its time: {error}");
                made.trial.machine.insert(ENDED_BY.to_owned(), error.to_string());
            }
            Ok(()) => {}
        }
        Ok((made.trial, made.bundles))
    }
}

impl Arms {
    pub(super) fn are_given(&self) -> bool {
        !self.a.is_empty() || self.arms.is_some()
    }

    /// The targets of two that were named without a file, and the files of what is behind them.
    pub(super) fn two(&self) -> Option<[(&[String], Option<&Path>); 2]> {
        let both = [(&self.a[..], self.system_a.as_deref()), (&self.b[..], self.system_b.as_deref())];
        (!self.a.is_empty()).then_some(both)
    }

    /// The arms, and the file that lists them: the one that was given, or one that says what was given.
    fn resolve(&self, context: &Context, by_workers: bool) -> Result<(Vec<Arm>, String), Failure> {
        let target = |text: &str| match by_workers {
            // As they name it: of the first of them, to see what is wrong with it.
            true => text.replace("{n}", "1").parse::<TargetSpec>().map_err(Failure::Misuse),
            false => target(context, text),
        };
        if !self.are_given() {
            let error = Error::new(Kind::Invalid, "there is nothing to compare");
            return Err(Failure::Misuse(
                error.remedy("name two targets with --a and --b, or a file of arms with --arms"),
            ));
        }
        if let Some(path) = &self.arms {
            let failed = |e| Error::io(format!("reading the arms '{}'", path.display()), e);
            let text = std::fs::read_to_string(path).map_err(failed)?;
            let resolve = |text: &str| target(text).map_err(Failure::into_error);
            let arms = arms_of_file(&text, resolve).map_err(Failure::Misuse)?;
            return Ok((arms, text));
        }
        let arm = |name: &str, texts: &[String], told: Option<&Path>| -> Result<Arm, Failure> {
            let targets: Vec<TargetSpec> = texts.iter().map(|text| target(text)).collect::<Result<_, _>>()?;
            let system = told.map(system::read).transpose()?;
            Ok(Arm { name: name.into(), targets, words: texts.to_vec(), before: None, after: None, system })
        };
        let arms =
            vec![arm("A", &self.a, self.system_a.as_deref())?, arm("B", &self.b, self.system_b.as_deref())?];
        let list = file_of_arms(&arms, by_workers);
        Ok((arms, list))
    }

    /// Where the list of the arms is kept with the rest, it says all that the other flags do, and what is kept can be carried elsewhere.
    fn words(&self, kept: bool, words: &mut Vec<String>) {
        if kept {
            words.push(format!("--arms {ARMS_FILE}"));
        } else {
            self.a.iter().for_each(|target| words.push(format!("--a {}", quoted(target))));
            self.b.iter().for_each(|target| words.push(format!("--b {}", quoted(target))));
            let path = self.arms.as_ref().map(|path| quoted(&path.display().to_string()));
            words.extend(path.map(|path| format!("--arms {path}")));
            for (flag, path) in [("--system-a", &self.system_a), ("--system-b", &self.system_b)] {
                words.extend(system::words(flag, path.as_deref()));
            }
        }
        words.push(format!("--pairs {}", self.pairs));
        words.extend(self.within.map(|within| format!("--within {}% --most {}", percent(within), self.most)));
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
        let mut described = machine::describe();
        if let Subject::Load(profile) = &plan.subject {
            described.insert(CACHES.into(), caches(profile));
        }
        Trial {
            format: Trial::FORMAT,
            version: super::VERSION.into(),
            profile: plan.subject.name().to_owned(),
            locked,
            quick: plan.quick,
            least_seconds: match &plan.subject {
                Subject::Load(profile) => profile.least.map(|least| least.as_secs_f64()),
                Subject::Database(..) => None,
            },
            only: match &plan.subject {
                Subject::Load(profile) => profile.only.clone(),
                Subject::Database(..) => Vec::new(),
            },
            arms: plan.arms.iter().map(|arm| arm.name.clone()).collect(),
            commands,
            arms_hash: None,
            systems: plan.arms.iter().map(|arm| arm.system.clone()).collect(),
            rounds: plan.rounds,
            within: self.arms.within,
            narrow: false,
            shared: Vec::new(),
            seed: plan.options.seed,
            began,
            reproduce: self.reproduce(plan),
            machine: described,
            runs: Vec::new(),
        }
    }

    fn reproduce(&self, plan: &TrialPlan) -> String {
        let mut words = vec!["stonefold lab compare".to_owned(), self.load.named()];
        self.arms.words(self.load.out.is_some(), &mut words);
        words.extend(self.workers.words());
        words.extend(self.warehouses.map(|warehouses| format!("--warehouses {warehouses}")));
        words.extend(
            self.postgres.as_ref().map(|dir| format!("--postgres {}", quoted(&dir.to_string_lossy()))),
        );
        words.push(match &plan.subject {
            Subject::Load(_) => self.load.words(&plan.options),
            Subject::Database(..) => self.load.words_of_database(plan.options.seed),
        });
        words.join(" ")
    }
}

/// The runs so far.
struct Made<'a> {
    trial: Trial,
    /// The file that lists the arms.
    list: String,
    bundles: Vec<Bundle>,
    plan: &'a TrialPlan,
    locked: bool,
    out: Option<&'a Path>,
    /// Rounds that are made in any case.
    least: usize,
}

impl Made<'_> {
    fn keep(&mut self, turn: Turn, ran: Ran) -> stonefold_types::Result<ControlFlow<()>> {
        let (plan, text) = (self.plan, self.plan.subject.text().to_owned());
        let (targets, options) = (&plan.arms[turn.arm].targets, plan.options_of(&turn));
        let mut run = match &plan.subject {
            Subject::Load(profile) => record(profile, targets, &options),
            Subject::Database(profile, _) => {
                super::oltp::record(profile.name.clone(), &targets[0], options.seed, &ran.points)
            }
        };
        worker::tell_of(&mut run, &plan.generators(&plan.arms[turn.arm]).0);
        let Ran { points, facts, bytes, .. } = ran;
        run.machine.extend(facts);
        (run.locked, run.quick, run.bytes) = (self.locked, plan.quick, bytes);
        (run.began, run.cut_short) = (turn.began, turn.cut_short);
        // A run's folder lies in the trial's.
        run.reproduce = trial::again(&self.trial, Some(Path::new("..")));
        let saved = match self.out {
            Some(dir) => bundle::save(&dir.join(run_folder(&turn)), &run, &text, &points),
            None => Ok(String::new()),
        };
        // Also where it could not be kept: it is told.
        let hash = saved.clone().unwrap_or_default();
        self.trial.runs.push((turn, hash.clone()));
        self.bundles.push(Bundle { run, profile: text, points, hash });
        saved?;
        self.trial.narrow = self.is_narrow()?;
        if let Some(dir) = self.out {
            save_arms(dir, &self.list)?;
            save(dir, &self.trial)?;
        }
        trial::tell_progress(&self.trial, &self.bundles);
        Ok(if self.trial.narrow { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    /// Whether the rounds so far are enough, where that is asked for.
    fn is_narrow(&self) -> stonefold_types::Result<bool> {
        let arms = self.trial.arms.len();
        let (rounds, whole) = (self.trial.runs.len() / arms, self.trial.runs.len() % arms == 0);
        match self.trial.within {
            Some(within) if whole && rounds >= self.least => {
                Ok(trial::compute(&self.trial, &self.bundles)?.1.are_within(within))
            }
            _ => Ok(false),
        }
    }
}

/// `until`: rounds that are made in any case, and how narrow intervals have to be for no more.
fn tell_plan(plan: &TrialPlan, until: Option<(usize, f64)>) {
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
        "{}{}: {}; {} of each, about {} at most after volumes are written; seed {}",
        plan.subject.name(),
        if plan.quick { ", quick" } else { "" },
        arms.join(", "),
        match until {
            Some((least, within)) => format!(
                "{least} to {} runs, until intervals reach {}% either way",
                plan.rounds,
                percent(within)
            ),
            None => crate::table::count(plan.rounds as u64, "run"),
        },
        length(plan.subject.duration(plan.quick) * runs as u32),
        plan.options.seed
    );
    if matches!(plan.subject, Subject::Database(..)) {
        plan.arms.iter().flat_map(|arm| &arm.targets).for_each(super::oltp::tell_folder);
    }
    if let Some(takes) = finding_takes(plan) {
        eprintln!(
            "before that each arm is run once for what it can do, {} each: open loops of all are given shares of the least",
            length(takes)
        );
    }
    let contrasts = plan.subject.figures(plan.quick) * (plan.arms.len() - 1);
    eprintln!("{}", beforehand(plan.rounds, contrasts));
}

/// What so many rounds can show at all, before there is one: nobody knows yet how far rounds will differ.
/// Intervals are the wider the more there are of them, so that all together hold as often as is told.
fn beforehand(rounds: usize, contrasts: usize) -> String {
    if rounds < PAIRS_MIN {
        return format!(
            "nothing can be concluded from fewer than {PAIRS_MIN} runs of each: this is a sketch"
        );
    }
    let shown = |scatter: f64| detectable(scatter, rounds, contrasts.max(1)) * 100.0;
    format!(
        "{rounds} runs of each show, among {}, a difference of {:.1}% where rounds scatter by 1%, of {:.0}% where by 5%",
        crate::table::count(contrasts as u64, "comparison"),
        shown(0.01),
        shown(0.05)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_shown_is_told_before_anything_is_measured() {
        assert!(beforehand(2, 1).contains("fewer than 5 runs"));
        assert_eq!(
            beforehand(5, 1),
            "5 runs of each show, among 1 comparison, a difference of 2.1% where rounds scatter by 1%, of 11% where by 5%"
        );
        let told = beforehand(5, 16);
        let least = detectable(0.01, 5, 16) * 100.0;
        assert!(
            least > 3.0 && told.contains(&format!("among 16 comparisons, a difference of {least:.1}%")),
            "{told}"
        );
    }
}
