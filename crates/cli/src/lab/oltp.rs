//! `stonefold lab run` of a profile that runs a database, and its tables.

use super::catalogue::length;
use super::load::{environment, quoted, target};
use super::run::Run;
use super::{picture, report};
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::on_stop;
use crate::table::Table;
use std::process::ExitCode;
use std::sync::Arc;
use stonefold_lab::bundle::{self, Bundle, Run as Record};
use stonefold_lab::measure::Reins;
use stonefold_lab::oltp::figures::{Step, Times};
use stonefold_lab::oltp::{self, Plan, Profile};
use stonefold_lab::stats::require::time;
use stonefold_lab::{machine, verdict};
use stonefold_types::{Error, Kind, Result, Size};

pub(super) fn run(
    run: &Run,
    context: &Context,
    profile: Profile,
    shipped: bool,
) -> std::result::Result<ExitCode, Failure> {
    refuse_words_of_others(run).map_err(Failure::Misuse)?;
    let system = run.declared.read()?;
    let (_runtime, env) = environment()?;
    let seed = run.load.seed.unwrap_or_else(|| u64::from_le_bytes(env.random()) >> 16);
    let target = target(context, one_of(&run.target).map_err(Failure::Misuse)?)?;
    let plan = Plan {
        profile: profile.with_warehouses(run.warehouses),
        quick: run.load.quick,
        target,
        seed,
        destroy_data: run.load.destroy_data,
        programs: run.postgres.clone(),
        to: run.to.as_deref().map(|to| self::target(context, to)).transpose()?,
    };
    tell_plan(&plan);
    let reins = Arc::new(Reins::new());
    let of_signal = reins.clone();
    on_stop(move || of_signal.stop())?;
    let began = env.wall() / 1_000_000_000;
    let outcome = picture::show(&env, &reins, || oltp::run(&env, &plan, &reins))?;
    let mut facts = machine::describe();
    facts.extend(outcome.facts);
    let record = Record {
        format: Record::FORMAT,
        version: stonefold_server::VERSION.into(),
        profile: plan.profile.name.clone(),
        locked: shipped && run.warehouses.is_none(),
        quick: run.load.quick,
        targets: vec![plan.target.to_string()],
        seed,
        threads: outcome
            .points
            .iter()
            .filter_map(|point| Some(point.database.as_ref()?.users as usize))
            .max()
            .unwrap_or(0),
        verified: true,
        bytes: outcome.bytes,
        require: run.require.clone(),
        began,
        reproduce: reproduce(run, seed),
        machine: facts,
        cut_short: reins.is_stopped() || outcome.failure.is_some(),
        migration: outcome.migration,
        system,
        ..Record::default()
    };
    let (text, points) = (plan.profile.text, outcome.points);
    let hash = match &run.load.out {
        Some(dir) => bundle::save(dir, &record, &text, &points)?,
        None => String::new(),
    };
    let bundle = Bundle { run: record, profile: text, points, hash };
    let summary = verdict::summarise(&bundle)?;
    let status = report::answer(context, &bundle, &summary, run.load.out.as_deref())?;
    if let Some(failure) = outcome.failure {
        eprintln!("ended before its time: {failure}");
    }
    Ok(status)
}

/// A database has no volumes with a size or a payload of their own.
fn refuse_words_of_others(run: &Run) -> Result<()> {
    let words = [
        ("--size", run.load.size.is_some()),
        ("--cache", run.load.cache.is_some()),
        ("--payload", run.load.payload.is_some()),
        ("--threads", run.load.threads.is_some()),
        ("--no-verify", run.load.no_verify),
        ("--worker", !run.worker.is_empty()),
    ];
    match words.iter().find(|(_, said)| *said) {
        Some((word, _)) => {
            Err(Error::new(Kind::Invalid, format!("{word} says nothing to a profile that runs a database"))
                .remedy("leave it out; --warehouses sets the size"))
        }
        None => Ok(()),
    }
}

fn one_of(targets: &[String]) -> Result<&str> {
    match targets {
        [target] => Ok(target),
        _ => Err(Error::new(Kind::Invalid, "a database lies on one target").remedy("say --target once")),
    }
}

fn reproduce(run: &Run, seed: u64) -> String {
    let mut words = vec!["stonefold lab run".to_owned(), run.load.named()];
    run.target.iter().for_each(|target| words.push(format!("--target {}", quoted(target))));
    words.extend(run.to.iter().map(|to| format!("--to {}", quoted(to))));
    words.extend(run.load.quick.then(|| "--quick".to_owned()));
    words.extend(run.warehouses.map(|warehouses| format!("--warehouses {warehouses}")));
    words.extend(run.postgres.as_ref().map(|dir| format!("--postgres {}", quoted(&dir.to_string_lossy()))));
    if !run.require.is_empty() {
        words.push(format!("--require {}", quoted(&run.require)));
    }
    words.extend(run.declared.words());
    words.push(format!("--seed {seed}"));
    words.join(" ")
}

fn tell_plan(plan: &Plan) {
    let scale = plan.profile.scale(plan.quick);
    eprintln!(
        "{}{} on {}: {} (some {}), {} {}, and loading and restoring beside; seed {}",
        plan.profile.name,
        if plan.quick { ", quick" } else { "" },
        plan.target,
        crate::table::count(scale.warehouses.into(), "warehouse"),
        Size(scale.bytes()),
        length(plan.profile.duration(plan.quick)),
        if plan.to.is_some() { "at least" } else { "at most" },
        plan.seed
    );
}

/// The steps of a ramp, and each transaction of the one it is about. Nothing where there is no ramp.
pub(super) fn tables(ramp: &[Step], grades: &[String]) -> String {
    if ramp.is_empty() {
        return String::new();
    }
    let took = |nanos: u64| time(nanos as f64);
    // While a disk is moved their number stays the same.
    let cycles = ramp.len() > 1 && ramp.iter().all(|step| step.users == ramp[0].users);
    let first = if cycles { "CYCLE" } else { "USERS>" };
    let mut steps =
        Table::new(&[first, "NOPM>", "TPM>", "NEW-ORDER P50>", "P90>", "P99>", "MAX>", "TRUST", ""]);
    for (step, grade) in ramp.iter().zip(grades) {
        let orders = &step.transactions[0];
        steps.row([
            if cycles { step.name.clone() } else { step.users.to_string() },
            format!("{:.0}", step.nopm),
            format!("{:.0}", step.tpm),
            took(orders.p50),
            took(orders.p90),
            took(orders.p99),
            took(orders.max),
            grade.clone(),
            if step.plateau && !cycles { "plateau".into() } else { String::new() },
        ]);
    }
    let mut text = steps.text();
    if let Some(plateau) = ramp.iter().find(|step| step.plateau) {
        let mut kinds =
            Table::new(&["TRANSACTION", "A MINUTE>", "MEAN>", "P50>", "P90>", "P99>", "P99.9>", "MAX>"]);
        for Times { name, per_minute, mean, p50, p90, p99, p99_9, max } in &plateau.transactions {
            let rare = p99_9.map_or_else(|| "-".into(), took);
            let rate = format!("{per_minute:.0}");
            kinds.row([
                name.clone(),
                rate,
                time(*mean),
                took(*p50),
                took(*p90),
                took(*p99),
                rare,
                took(*max),
            ]);
        }
        text.push_str(&format!(
            "\n{}\n{}",
            if cycles {
                plateau.name.clone()
            } else {
                format!("with {}", crate::table::count(plateau.users.into(), "user"))
            },
            kinds.text()
        ));
    }
    text
}
