//! `stonefold lab run`.

use super::catalogue::length;
use super::load::{Load, counters, quoted, record, target, tell_others, tell_unkept, with_server};
use super::system::Declared;
use super::worker::Workers;
use super::{asked, cost, oltp, picture, report, tiles, worker};
use crate::context::Context;
use crate::environment::environment;
use crate::failure::Failure;
use crate::interrupt::on_stop;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use stonefold_lab::bundle::{Bundle, ENDED_BY, Run as Record};
use stonefold_lab::chaos::{Outages, Promise};
use stonefold_lab::machine;
use stonefold_lab::measure::{self, Measured, Plan, Reins};
use stonefold_lab::rig::RigOptions;
use stonefold_lab::stats::require;
use stonefold_lab::tiles::check_scale;
use stonefold_lab::verdict::{self, Summary};
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
    stonefold lab run chaos --target nbd://host/test --outages outages.toml --quick\n  \
    stonefold lab run oltp --target dir:/srv/test --quick --require 'nopm>=5000,new-order.p90<=50ms'\n  \
    stonefold lab run migrate-live --target nbd://host/test --to file:/srv/home.img --quick\n  \
    stonefold lab run chain-recover --target stonefold:test --quick\n  \
    stonefold lab run vm-tile --target nbd://host/test --quick --tiles 2..6 --price price.toml")]
pub(crate) struct Run {
    #[command(flatten)]
    pub(super) load: Load,
    #[command(flatten)]
    pub(super) declared: Declared,
    /// What to measure; once for all volumes of the profile, or once for each, in order
    #[arg(long, required = true, value_name = "TARGET")]
    pub(super) target: Vec<String>,
    #[command(flatten)]
    pub(super) workers: Workers,
    /// What is needed, as in 'iops>=216,read.mean<=20ms': the verdict is about that. At a terminal it is asked for where it is left out
    #[arg(long, value_name = "NEEDS", default_value = "")]
    pub(super) require: String,
    /// How the target is struck in mid-run, and what it promises to have kept: the profile chaos
    #[arg(long, value_name = "FILE", conflicts_with_all = ["worker", "no_verify"])]
    pub(super) outages: Option<PathBuf>,
    /// Of a database: how many warehouses, in place of what the profile says; some 100 MiB each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) warehouses: Option<u32>,
    /// Of a database: the folder of PostgreSQL's programs [default: the newest that is installed]
    #[arg(long, value_name = "DIR")]
    pub(super) postgres: Option<PathBuf>,
    /// Of a database: where its disk is moved to while users work: the profile migrate-live
    #[arg(long, value_name = "TARGET")]
    pub(super) to: Option<String>,
    /// Of a database: a TOML file of the commands that keep points of the target and bring them back, for what is no disk of a server: the
    /// profile chain-recover
    #[arg(long, value_name = "FILE")]
    pub(super) recovery: Option<PathBuf>,
    /// Of a database that is recovered: where its neighbours are, once for each that the profile has [default: it has no neighbours]
    #[arg(long, value_name = "TARGET")]
    pub(super) beside: Vec<String>,
    /// Of tiles: how many to begin with, or from how many to how many, as in 4 or 4..8 [default: 1, until some fail]
    #[arg(long, value_name = "N[..M]", value_parser = tiles::tile_range)]
    pub(super) tiles: Option<(usize, Option<usize>)>,
    /// Of tiles: how large volumes are, as a share of what is published, in place of what the profile says
    #[arg(long, value_name = "SHARE", value_parser = scale)]
    pub(super) scale: Option<f64>,
    /// Of tiles: a TOML file of the commands that clone, start, upgrade, remove and move machines beside them: the profile vm-ops
    #[arg(long, value_name = "FILE")]
    pub(super) ops: Option<PathBuf>,
    /// Of tiles: a TOML file of price lines, to say what a virtual machine costs
    #[arg(long, value_name = "FILE")]
    pub(super) price: Option<PathBuf>,
}

pub(super) fn scale(text: &str) -> Result<f64, String> {
    let wrong = || format!("'{text}' is no share; write it as in 0.01");
    let scale = text.parse::<f64>().map_err(|_| wrong())?;
    check_scale(scale).map(|()| scale).map_err(|_| wrong())
}

impl Run {
    /// A load on targets, with nothing required.
    pub(super) fn plain(load: Load, target: Vec<String>) -> Run {
        Run {
            load,
            declared: Declared::default(),
            target,
            workers: Workers::default(),
            require: String::new(),
            warehouses: None,
            postgres: None,
            to: None,
            recovery: None,
            beside: Vec::new(),
            outages: None,
            tiles: None,
            scale: None,
            ops: None,
            price: None,
        }
    }

    pub(super) fn run(mut self, context: &Context) -> Result<ExitCode, Failure> {
        if self.require.is_empty() && !context.json && asked::is_anybody_there() && self.may_need()? {
            self.require = asked::needs(self.load.database()?.is_some())?;
        }
        let (bundle, summary) = self.measure(context)?;
        let status = report::answer(context, &bundle, &summary, self.load.kept_in())?;
        self.load.check_kept()?;
        Ok(status)
    }

    /// Whether it requires nothing by itself, of a load or a database: tiles, and what moves or recovers a disk, have rules of their own, and of
    /// what answers at once nobody needs anything.
    fn may_need(&self) -> Result<bool, Failure> {
        let is_null = self.target.iter().any(|target| target == "null:");
        if is_null || self.load.tiles()?.is_some() {
            return Ok(false);
        }
        match self.load.database()? {
            Some((database, _)) => Ok(database.migration.is_none() && database.chain.is_none()),
            None => Ok(self.load.profile(self.workers.machines())?.0.require.is_empty()),
        }
    }

    /// Runs it, and keeps it where it was told to.
    pub(super) fn measure(&self, context: &Context) -> Result<(Bundle, Summary), Failure> {
        require::parse(&self.require).map_err(Failure::Misuse)?;
        if let Some((profile, shipped)) = self.load.tiles()? {
            return tiles::measure(self, context, profile, shipped);
        }
        let of_tiles = self.tiles.is_some() || self.scale.is_some() || self.price.is_some();
        if of_tiles || self.ops.is_some() {
            let what = format!("the profile {} has no tiles", self.load.named());
            return Err(Failure::Misuse(
                Error::new(Kind::Invalid, what)
                    .remedy("leave --tiles, --scale, --ops and --price out, or run vm-tile or vm-ops"),
            ));
        }
        if let Some((profile, shipped)) = self.load.database()? {
            if self.outages.is_some() {
                let what = "a database is not struck: nobody would know which of its writes were flushed";
                let error = Error::new(Kind::Unsupported, what).remedy("leave --outages out, or run chaos");
                return Err(Failure::Misuse(error));
            }
            return oltp::measure(self, context, profile, shipped);
        }
        let of_databases = self.warehouses.is_some() || self.postgres.is_some();
        if of_databases || self.to.is_some() || self.recovery.is_some() || !self.beside.is_empty() {
            let what = format!("the profile {} runs no database", self.load.named());
            let remedy = "leave --warehouses, --postgres, --to, --recovery and --beside out, or run oltp, migrate-live or chain-recover";
            return Err(Failure::Misuse(Error::new(Kind::Invalid, what).remedy(remedy)));
        }
        self.measure_load(context)
    }

    /// Of a load on volumes.
    fn measure_load(&self, context: &Context) -> Result<(Bundle, Summary), Failure> {
        let (profile, locked) = self.load.profile(self.workers.machines())?;
        let outages = self.outages()?;
        let system = self.declared.read()?;
        if profile.has_outages() && outages.is_none() {
            let what =
                format!("the profile {} strikes the target, and nobody has said how", self.load.named());
            return Err(Failure::Misuse(
                Error::new(Kind::Invalid, what).remedy("say --outages FILE; docs/use/lab.md has one"),
            ));
        }
        let (_runtime, env) = environment()?;
        let options = RigOptions { lasting: outages.is_some(), ..self.load.options(&env) };
        let fleet = self.workers.fleet(&self.target)?;
        let targets = match fleet.token {
            Some(_) => Vec::new(),
            None => self.target.iter().map(|text| target(context, text)).collect::<Result<_, _>>()?,
        };
        let profile = match profile.scales && self.load.size.is_none() {
            true => measure::fit(profile, self.load.quick, &targets)?,
            false => profile,
        };
        let require = if self.require.is_empty() { profile.require.clone() } else { self.require.clone() };
        require::check(&require, &profile.does(self.load.quick)).map_err(Failure::Misuse)?;
        // What workers name is on their machines; and what is struck may not answer, and counts from nothing again.
        let counters = match fleet.token.is_some() || outages.is_some() {
            true => Vec::new(),
            false => counters(context, &self.target)?,
        };
        let (quick, capacities) = (self.load.quick, Vec::new());
        let plan = Plan { profile, quick, targets, options, fleet, outages, counters, capacities };
        tell_plan(&plan);
        tell_unkept(self.load.out.as_deref(), plan.profile.duration(plan.quick));
        // Who else is busy where workers are is not seen from here.
        let others = plan.fleet.token.is_none().then(tell_others).flatten();
        let reins = Arc::new(Reins::new());
        let of_signal = reins.clone();
        on_stop(move || of_signal.stop())?;
        let mut record = record_of(&plan, locked, env.wall() / 1_000_000_000);
        record.require = require;
        record.system = system;
        record.reproduce = with_server(context, self.reproduce(&plan.options), &self.target);
        self.load.keep_each(&reins, record.clone(), plan.profile.text.clone());
        let Measured { points, machines, failure } =
            picture::show(&env, &reins, || measure::run(&env, &plan, &reins))?;
        // What workers wrote to is not seen from here.
        if plan.fleet.token.is_none() {
            record.occupied = cost::occupied(context, &self.target);
        }
        record.cut_short = reins.is_stopped() || failure.is_some();
        record.machine.extend(failure.iter().map(|failure| (ENDED_BY.to_owned(), failure.what())));
        let told = machines.iter().map(|(name, machine)| (format!("worker {name}"), machine::words(machine)));
        record.machine.extend(told);
        record.machine.extend(others);
        let bundle = self.load.keep(record, plan.profile.text.clone(), points);
        let summary = verdict::summarise_with(&bundle, &plan.profile)?;
        if let Some(failure) = failure {
            eprintln!("ended before its time: {failure}");
        }
        Ok((bundle, summary))
    }

    fn outages(&self) -> Result<Option<Outages>, Failure> {
        let Some(path) = &self.outages else { return Ok(None) };
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|e| {
            Error::io(format!("reading the outages '{name}'"), e).remedy("name a readable file")
        })?;
        Outages::parse(&name, &text).map(Some).map_err(Failure::Misuse)
    }

    fn reproduce(&self, options: &RigOptions) -> String {
        let mut words = vec!["stonefold lab run".to_owned(), self.load.named()];
        self.target.iter().for_each(|target| words.push(format!("--target {}", quoted(target))));
        words.extend(self.workers.words());
        let outages = self.outages.as_ref().map(|path| path.display().to_string());
        words.extend(outages.map(|path| format!("--outages {}", quoted(&path))));
        if !self.require.is_empty() {
            words.push(format!("--require {}", quoted(&self.require)));
        }
        words.extend(self.declared.words());
        words.push(self.load.words(options));
        words.join(" ")
    }
}

fn record_of(plan: &Plan, locked: bool, began: u64) -> Record {
    let mut record = record(&plan.profile, &plan.targets, &plan.options);
    let fleet = &plan.fleet;
    worker::tell_of(&mut record, fleet);
    Record {
        locked,
        quick: plan.quick,
        bytes: plan.profile.bytes(plan.quick) * fleet.workers.len().max(1) as u64,
        began,
        outages: plan.outages.clone(),
        ..record
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
    if let Some(scale) = plan.profile.scale {
        eprintln!("its volumes take the target's size: {scale:.4} times the profile's");
    }
    if let Some(outages) = &plan.outages {
        eprintln!(
            "struck {}, of a target that promises what it has {}",
            crate::table::count(outages.outages.len() as u64, "time"),
            match outages.promise {
                Promise::Ack => "acknowledged",
                Promise::Flush => "flushed",
            }
        );
    }
}
