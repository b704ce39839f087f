//! `stonefold lab run`.

use super::catalogue::length;
use super::load::{Load, environment, quoted, record, target};
use super::{oltp, picture, report, worker};
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::on_stop;
use clap::Args;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use stonefold_lab::bundle::{self, Bundle};
use stonefold_lab::measure::{self, FleetPlan, Measured, Plan, Reins};
use stonefold_lab::rig::RigOptions;
use stonefold_lab::stats::require;
use stonefold_lab::verdict;
use stonefold_lab::worker::WorkerAddress;
use stonefold_types::{Error, Kind, Size};

/// Run a profile on a target and say what came of it
///
/// Every block of the volumes is written first. Then each step of the profile is measured, with the load settling before it. What
/// is read is held against what was written. Exit status: 0 pass, 1 fail, 3 invalid, 4 inconclusive; 2 misuse.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    stonefold lab run poltp --target file:/srv/test.img --quick\n  \
    stonefold lab run fileserver --target nbd://host/test --require 'iops>=600,read.mean<=20ms' --out runs/first\n  \
    stonefold lab run mine.toml --target stonefold:test --quick\n  \
    stonefold lab run oltp --target dir:/srv/test --quick --require 'nopm>=5000,new-order.p90<=50ms'")]
pub(crate) struct Run {
    #[command(flatten)]
    pub(super) load: Load,
    /// What to measure; once for all volumes of the profile, or once for each, in order
    #[arg(long, required = true, value_name = "TARGET")]
    pub(super) target: Vec<String>,
    /// Let 'stonefold lab worker' of that machine make the load, on targets as they are named there; as often as there are
    /// machines. In --target {n} is a worker's number, from 1 on
    #[arg(long, value_name = "HOST[:PORT]", requires = "token_file")]
    pub(super) worker: Vec<WorkerAddress>,
    /// What the workers know, too
    #[arg(long, value_name = "FILE", requires = "worker")]
    token_file: Option<PathBuf>,
    /// What is needed, as in 'iops>=216,read.mean<=20ms': the verdict is about that
    #[arg(long, value_name = "NEEDS", default_value = "")]
    pub(super) require: String,
    /// Of a database: how many warehouses, in place of what the profile says; some 100 MiB each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) warehouses: Option<u32>,
    /// Of a database: the folder of PostgreSQL's programs [default: the newest that is installed]
    #[arg(long, value_name = "DIR")]
    pub(super) postgres: Option<PathBuf>,
}

impl Run {
    pub(super) fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        require::parse(&self.require).map_err(Failure::Misuse)?;
        if let Some((profile, shipped)) = self.load.database()? {
            return oltp::run(&self, context, profile, shipped);
        }
        if self.warehouses.is_some() || self.postgres.is_some() {
            let what = format!("the profile {} runs no database", self.load.named());
            return Err(Failure::Misuse(
                Error::new(Kind::Invalid, what).remedy("leave --warehouses and --postgres out, or run oltp"),
            ));
        }
        let (profile, locked) = self.load.profile()?;
        let (_runtime, env) = environment()?;
        let options = self.load.options(&env);
        let fleet = self.fleet()?;
        let targets = match fleet.token {
            Some(_) => Vec::new(),
            None => self.target.iter().map(|text| target(context, text)).collect::<Result<_, _>>()?,
        };
        let plan = Plan { profile, quick: self.load.quick, targets, options, fleet };
        tell_plan(&plan);
        let reins = Arc::new(Reins::new());
        let of_signal = reins.clone();
        on_stop(move || of_signal.stop())?;
        let mut record = record(&plan, locked, env.wall() / 1_000_000_000);
        let Measured { points, machines } =
            picture::show(&env, &reins, || measure::run(&env, &plan, &reins))?;
        record.require.clone_from(&self.require);
        record.reproduce = self.reproduce(&plan.options);
        record.cut_short = reins.is_stopped();
        let told =
            machines.iter().map(|(name, machine)| (format!("worker {name}"), report::machine_words(machine)));
        record.machine.extend(told);
        let hash = match &self.load.out {
            Some(dir) => bundle::save(dir, &record, &plan.profile.text, &points)?,
            None => String::new(),
        };
        let bundle = Bundle { run: record, profile: plan.profile.text.clone(), points, hash };
        let summary = verdict::summarise_with(&bundle, &plan.profile)?;
        report::answer(context, &bundle, &summary, self.load.out.as_deref())
    }

    fn fleet(&self) -> Result<FleetPlan, Failure> {
        let Some(path) = &self.token_file else { return Ok(FleetPlan::default()) };
        let token = worker::token(path)?;
        Ok(FleetPlan { workers: self.worker.clone(), token: Some(token), targets: self.target.clone() })
    }

    fn reproduce(&self, options: &RigOptions) -> String {
        let mut words = vec!["stonefold lab run".to_owned(), self.load.named()];
        self.target.iter().for_each(|target| words.push(format!("--target {}", quoted(target))));
        self.worker.iter().for_each(|worker| words.push(format!("--worker {}", quoted(&worker.to_string()))));
        words.extend(
            self.token_file
                .as_ref()
                .map(|path| format!("--token-file {}", quoted(&path.display().to_string()))),
        );
        if !self.require.is_empty() {
            words.push(format!("--require {}", quoted(&self.require)));
        }
        words.push(self.load.words(options));
        words.join(" ")
    }
}

fn tell_plan(plan: &Plan) {
    let mut targets: Vec<String> = plan.targets.iter().map(ToString::to_string).collect();
    if !plan.fleet.workers.is_empty() {
        targets = plan.fleet.targets.clone();
        targets.push(crate::table::count(plan.fleet.workers.len() as u64, "worker"));
    }
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
