//! `stonefold lab run`.

use super::catalogue::length;
use super::load::{Load, environment, quoted, record, target};
use super::{picture, report};
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::on_stop;
use clap::Args;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use stonefold_lab::bundle::{self, Bundle};
use stonefold_lab::measure::{self, Plan, Reins};
use stonefold_lab::rig::RigOptions;
use stonefold_lab::stats::require;
use stonefold_lab::verdict;
use stonefold_types::Size;

/// Run a profile on a target and say what came of it
///
/// Every block of the volumes is written first. Then each step of the profile is measured, with the load settling before it. What
/// is read is held against what was written. Exit status: 0 pass, 1 fail, 3 invalid, 4 inconclusive; 2 misuse.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    stonefold lab run poltp --target file:/srv/test.img --quick\n  \
    stonefold lab run fileserver --target nbd://host/test --require 'iops>=600,read.mean<=20ms' --out runs/first\n  \
    stonefold lab run mine.toml --target stonefold:test --quick")]
pub(crate) struct Run {
    #[command(flatten)]
    load: Load,
    /// What to measure; once for all volumes of the profile, or once for each, in order
    #[arg(long, required = true, value_name = "TARGET")]
    target: Vec<String>,
    /// What is needed, as in 'iops>=216,read.mean<=20ms': the verdict is about that
    #[arg(long, value_name = "NEEDS", default_value = "")]
    require: String,
}

impl Run {
    pub(super) fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        require::parse(&self.require).map_err(Failure::Misuse)?;
        let (profile, locked) = self.load.profile()?;
        let (_runtime, env) = environment()?;
        let options = self.load.options(&env);
        let targets = self.target.iter().map(|text| target(context, text)).collect::<Result<_, _>>()?;
        let plan = Plan { profile, quick: self.load.quick, targets, options };
        tell_plan(&plan);
        let reins = Arc::new(Reins::new());
        let of_signal = reins.clone();
        on_stop(move || of_signal.stop())?;
        let mut record = record(&plan, locked, env.wall() / 1_000_000_000);
        let points = picture::show(&env, &reins, || measure::run(&env, &plan, &reins))?;
        record.require.clone_from(&self.require);
        record.reproduce = self.reproduce(&plan.options);
        record.cut_short = reins.is_stopped();
        let hash = match &self.load.out {
            Some(dir) => bundle::save(dir, &record, &plan.profile.text, &points)?,
            None => String::new(),
        };
        let bundle = Bundle { run: record, profile: plan.profile.text.clone(), points, hash };
        let summary = verdict::summarise_with(&bundle, &plan.profile)?;
        report::answer(context, &bundle, &summary, self.load.out.as_deref())
    }

    fn reproduce(&self, options: &RigOptions) -> String {
        let mut words = vec!["stonefold lab run".to_owned(), self.load.named()];
        self.target.iter().for_each(|target| words.push(format!("--target {}", quoted(target))));
        if !self.require.is_empty() {
            words.push(format!("--require {}", quoted(&self.require)));
        }
        words.push(self.load.words(options));
        words.join(" ")
    }
}

fn tell_plan(plan: &Plan) {
    let targets: Vec<String> = plan.targets.iter().map(ToString::to_string).collect();
    let quick = if plan.quick { ", quick" } else { "" };
    eprintln!(
        "{}{quick} on {}: {} in {}, about {} after they are written; seed {}",
        plan.profile.name,
        targets.join(" and "),
        Size(plan.profile.bytes(plan.quick)),
        crate::table::count(plan.profile.workload(plan.quick).volumes.len() as u64, "volume"),
        length(plan.profile.duration(plan.quick)),
        plan.options.seed
    );
}

/// What can be told of this machine, by names.
pub(super) type Machine = BTreeMap<String, String>;
