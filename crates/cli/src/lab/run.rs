//! `stonefold lab run`.

use super::catalogue::{Found, find, length};
use super::{oltp, picture, report};
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::on_stop;
use clap::Args;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use stonefold_env::{Env, SystemWorld};
use stonefold_lab::bundle::{self, Bundle, Run as Record};
use stonefold_lab::measure::{self, Plan, Reins};
use stonefold_lab::payload::Reduction;
use stonefold_lab::rig::RigOptions;
use stonefold_lab::stats::require;
use stonefold_lab::{TargetSpec, machine, verdict};
use stonefold_types::{BLOCK_BYTES, Error, Kind, Size};

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
    /// A profile's name ('stonefold lab ls' lists them), or a file that ends in .toml
    pub(super) profile: String,
    /// What to measure; once for all volumes of the profile, or once for each, in order
    #[arg(long, required = true, value_name = "TARGET")]
    pub(super) target: Vec<String>,
    /// Smaller and shorter; the report says so
    #[arg(long)]
    pub(super) quick: bool,
    /// What is needed, as in 'iops>=216,read.mean<=20ms': the verdict is about that
    #[arg(long, value_name = "NEEDS", default_value = "")]
    pub(super) require: String,
    /// Where the raw data go: a folder that is empty or does not exist yet [default: nothing is kept]
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// The size of each volume, in place of the profile's
    #[arg(long)]
    pub(super) size: Option<Size>,
    /// How far what is written reduces, in place of what the profile says: DEDUPE:COMPRESSION, as in 1.2:2
    #[arg(long, value_name = "D:C", value_parser = reduction)]
    pub(super) payload: Option<Reduction>,
    /// Threads of the load [default: half of the processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(super) threads: Option<u16>,
    /// Of everything that is drawn [default: drawn, and told]
    #[arg(long)]
    pub(super) seed: Option<u64>,
    /// Do not look at what is read: faster, and one warning
    #[arg(long)]
    pub(super) no_verify: bool,
    /// The target may hold data of others: it goes
    #[arg(long)]
    pub(super) destroy_data: bool,
    /// Of a database: how many warehouses, in place of what the profile says; some 100 MiB each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) warehouses: Option<u32>,
    /// Of a database: the folder of PostgreSQL's programs [default: the newest that is installed]
    #[arg(long, value_name = "DIR")]
    pub(super) postgres: Option<PathBuf>,
}

fn reduction(text: &str) -> Result<Reduction, String> {
    let wrong = || "write two ratios from 1 up, as in 1.2:2".to_owned();
    let (dedupe, compression) = text.split_once(':').ok_or_else(wrong)?;
    let ratio = |text: &str| text.parse::<f64>().ok().filter(|ratio| *ratio >= 1.0).ok_or_else(wrong);
    Ok(Reduction { dedupe: ratio(dedupe)?, compression: ratio(compression)? })
}

impl Run {
    pub(super) fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        require::parse(&self.require).map_err(Failure::Misuse)?;
        let (profile, shipped) = match find(&self.profile)? {
            (Found::Load(profile), shipped) => (*profile, shipped),
            (Found::Database(profile), shipped) => return oltp::run(&self, context, *profile, shipped),
        };
        if self.warehouses.is_some() || self.postgres.is_some() {
            let what = format!("the profile '{}' runs no database", profile.name);
            return Err(Failure::Misuse(
                Error::new(Kind::Invalid, what).remedy("leave --warehouses and --postgres out, or run oltp"),
            ));
        }
        let locked = shipped && self.size.is_none() && self.payload.is_none();
        let size = self.size.map(|size| size.0);
        if size.is_some_and(|size| size == 0 || size % BLOCK_BYTES as u64 != 0) {
            let error = Error::new(
                Kind::Invalid,
                format!("--size {} is no size of a volume", self.size.unwrap_or_default()),
            );
            return Err(Failure::Misuse(error.remedy("choose a multiple of 4K")));
        }
        let profile = profile.changed(size, self.payload)?;
        if let Some(dir) = &self.out {
            bundle::check_free(dir)?;
        }
        let (_runtime, env) = environment()?;
        let seed = self.seed.unwrap_or_else(|| u64::from_le_bytes(env.random()) >> 16);
        let threads = self.threads.map_or_else(|| machine::cores().div_ceil(2), usize::from);
        let options = RigOptions { threads, verify: !self.no_verify, seed, destroy_data: self.destroy_data };
        let plan = Plan { profile, quick: self.quick, targets: self.targets(context)?, options };
        tell_plan(&plan);
        let reins = Arc::new(Reins::new());
        let of_signal = reins.clone();
        on_stop(move || of_signal.stop())?;
        let began = env.wall() / 1_000_000_000;
        let points = picture::show(&env, &reins, || measure::run(&env, &plan, &reins))?;
        let record = Record {
            format: Record::FORMAT,
            version: stonefold_server::VERSION.into(),
            profile: plan.profile.name.clone(),
            locked,
            quick: self.quick,
            targets: plan.targets.iter().map(ToString::to_string).collect(),
            seed,
            threads,
            verified: plan.options.verify && !plan.targets.contains(&TargetSpec::Null),
            bytes: plan.profile.bytes(self.quick),
            require: self.require.clone(),
            began,
            reproduce: self.reproduce(seed, threads),
            machine: machine::describe(),
            cut_short: reins.is_stopped(),
        };
        let hash = match &self.out {
            Some(dir) => bundle::save(dir, &record, &plan.profile.text, &points)?,
            None => String::new(),
        };
        let bundle = Bundle { run: record, profile: plan.profile.text.clone(), points, hash };
        let summary = verdict::summarise_with(&bundle, &plan.profile)?;
        report::answer(context, &bundle, &summary, self.out.as_deref())
    }

    /// Disks of a server become the exports by which it serves them.
    pub(super) fn targets(&self, context: &Context) -> Result<Vec<TargetSpec>, Failure> {
        let mut targets = Vec::new();
        for text in &self.target {
            let spec = text.parse::<TargetSpec>().map_err(Failure::Misuse)?;
            let TargetSpec::Stonefold(name) = &spec else {
                targets.push(spec);
                continue;
            };
            let disk = context.client()?.disk(&name.parse().map_err(Failure::Misuse)?)?;
            let uri =
                disk.uris.iter().find(|uri| uri.starts_with("nbd://") || uri.starts_with("nbd+unix://"));
            let uri = uri.ok_or_else(|| {
                Error::new(
                    Kind::Unsupported,
                    format!("disk '{name}' has no door that can be reached in clear"),
                )
                .remedy("serve with --nbd unix:///PATH, too")
            })?;
            targets.push(uri.parse().map_err(Failure::Failed)?);
        }
        Ok(targets)
    }

    fn reproduce(&self, seed: u64, threads: usize) -> String {
        let mut words = vec!["stonefold lab run".to_owned(), quoted(&self.profile)];
        self.target.iter().for_each(|target| words.push(format!("--target {}", quoted(target))));
        let flag = |name: &str, set: bool| set.then(|| name.to_owned());
        words.extend(flag("--quick", self.quick));
        words.extend(self.size.map(|size| format!("--size {}", size.0)));
        words.extend(
            self.payload.map(|payload| format!("--payload {}:{}", payload.dedupe, payload.compression)),
        );
        words.extend(flag("--no-verify", self.no_verify));
        if !self.require.is_empty() {
            words.push(format!("--require {}", quoted(&self.require)));
        }
        words.push(format!("--threads {threads} --seed {seed}"));
        words.join(" ")
    }
}

/// The real one; it ends with its runtime.
pub(super) fn environment() -> Result<(tokio::runtime::Runtime, Env), Error> {
    let failed = |e| Error::io("starting the clock and the threads", e);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let world = SystemWorld::new(runtime.handle().clone(), 1).map_err(failed)?;
    Ok((runtime, Env::new(world)))
}

pub(super) fn quoted(text: &str) -> String {
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:@".contains(c));
    if plain { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
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
