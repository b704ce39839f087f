//! `stonefold lab run` of a profile that runs a database, and its tables.

use super::catalogue::length;
use super::load::{Load, quoted, target, tell_before, with_server};
use super::picture;
use super::recovery::keeper;
use super::run::Run;
use super::worker::Workers;
use crate::context::Context;
use crate::environment::environment;
use crate::failure::Failure;
use crate::interrupt::on_stop;
use crate::table::Table;
use std::sync::Arc;
use stonefold_lab::TargetSpec;
use stonefold_lab::bundle::{Bundle, Run as Record};
use stonefold_lab::machine;
use stonefold_lab::measure::{Point, Reins};
use stonefold_lab::oltp::figures::{Step, Times};
use stonefold_lab::oltp::{self, Plan, Profile};
use stonefold_lab::stats::require::time;
use stonefold_lab::verdict::{self, Summary};
use stonefold_types::{Error, Kind, Result, Size};

pub(super) fn measure(
    run: &Run,
    context: &Context,
    profile: Profile,
    shipped: bool,
) -> std::result::Result<(Bundle, Summary), Failure> {
    refuse_words_of_loads(&run.load).map_err(Failure::Misuse)?;
    refuse_workers(&run.workers).map_err(Failure::Misuse)?;
    let system = run.declared.read()?;
    let (_runtime, env) = environment()?;
    let seed = run.load.seed.unwrap_or_else(|| u64::from_le_bytes(env.random()) >> 16);
    let target = target(context, one_of(&run.target).map_err(Failure::Misuse)?)?;
    let (recovers, began) = (profile.chain.is_some(), env.wall() / 1_000_000_000);
    let plan = Plan {
        profile: profile.with_warehouses(run.warehouses),
        quick: run.load.quick,
        target,
        seed,
        destroy_data: run.load.destroy_data,
        programs: run.postgres.clone(),
        to: run.to.as_deref().map(|to| self::target(context, to)).transpose()?,
        keeper: keeper(run, context, recovers, began)?,
        beside: run
            .beside
            .iter()
            .map(|text| self::target(context, text))
            .collect::<std::result::Result<_, _>>()?,
    };
    plan.check().map_err(Failure::Misuse)?;
    tell_plan(&plan);
    let others = tell_before(run.load.out.as_deref(), plan.profile.duration(plan.quick));
    let reins = Arc::new(Reins::new());
    let of_signal = reins.clone();
    on_stop(move || of_signal.stop())?;
    let so_far = Record {
        locked: shipped && run.warehouses.is_none(),
        quick: run.load.quick,
        require: run.require.clone(),
        began,
        reproduce: with_server(
            context,
            reproduce(run, seed),
            run.target.iter().chain(&run.to).chain(&run.beside),
        ),
        system,
        ..record(plan.profile.name.clone(), &plan.target, seed, &[])
    };
    run.load.keep_each(&reins, so_far.clone(), plan.profile.text.clone());
    let outcome = picture::show(&env, &reins, || oltp::run(&env, &plan, &reins))?;
    let mut record = Record {
        threads: most_users(&outcome.points),
        bytes: outcome.bytes,
        cut_short: reins.is_stopped() || outcome.failure.is_some(),
        migration: outcome.migration,
        chain: outcome.chain,
        ..so_far
    };
    record.machine.extend(outcome.facts);
    record.machine.extend(others);
    let bundle = run.load.keep(record, plan.profile.text, outcome.points);
    let summary = verdict::summarise(&bundle)?;
    if let Some(failure) = outcome.failure {
        eprintln!("ended before its time: {failure}");
    }
    Ok((bundle, summary))
}

/// What is told of any run of a database.
pub(super) fn record(profile: String, target: &TargetSpec, seed: u64, points: &[Point]) -> Record {
    Record {
        format: Record::FORMAT,
        version: super::VERSION.into(),
        profile,
        targets: vec![target.to_string()],
        seed,
        threads: most_users(points),
        verified: true,
        machine: machine::describe(),
        ..Record::default()
    }
}

fn most_users(points: &[Point]) -> usize {
    let users = points.iter().filter_map(|point| Some(point.database.as_ref()?.users as usize));
    users.max().unwrap_or(0)
}

/// A database has no volumes with a size or a payload of their own.
pub(super) fn refuse_words_of_loads(load: &Load) -> Result<()> {
    let words = [
        ("--size", load.size.is_some()),
        ("--cache", load.cache.is_some()),
        ("--payload", load.payload.is_some()),
        ("--point", load.point.is_some()),
        ("--step", !load.only.is_empty()),
        ("--threads", load.threads.is_some()),
        ("--no-verify", load.no_verify),
    ];
    words.iter().find(|(_, said)| *said).map_or(Ok(()), |(word, _)| Err(says_nothing(word)))
}

/// A database is loaded by this machine.
pub(super) fn refuse_workers(workers: &Workers) -> Result<()> {
    if workers.are_given() { Err(says_nothing("--worker")) } else { Ok(()) }
}

fn says_nothing(word: &str) -> Error {
    Error::new(Kind::Invalid, format!("{word} says nothing to a profile that runs a database"))
        .remedy("leave it out; --warehouses sets the size")
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
    run.beside.iter().for_each(|target| words.push(format!("--beside {}", quoted(target))));
    words.extend(run.recovery.as_ref().map(|file| format!("--recovery {}", quoted(&file.to_string_lossy()))));
    words.extend(run.warehouses.map(|warehouses| format!("--warehouses {warehouses}")));
    words.extend(run.postgres.as_ref().map(|dir| format!("--postgres {}", quoted(&dir.to_string_lossy()))));
    if !run.require.is_empty() {
        words.push(format!("--require {}", quoted(&run.require)));
    }
    words.extend(run.declared.words());
    words.push(run.load.words_of_database(seed));
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
    tell_folder(&plan.target);
}

/// A folder that is not there is made, and a name that was mistyped should not pass for one.
pub(super) fn tell_folder(target: &TargetSpec) {
    if let Some(words) = folder_words(target) {
        eprintln!("{words}");
    }
}

fn folder_words(target: &TargetSpec) -> Option<String> {
    let TargetSpec::Directory(path) = target else { return None };
    (!path.exists()).then(|| format!("there is no folder '{}': it is made", path.display()))
}

/// The steps of a ramp, and each transaction of the one it is about. Nothing where there is no ramp.
pub(super) fn tables(ramp: &[Step], grades: &[String]) -> String {
    if ramp.is_empty() {
        return String::new();
    }
    let took = |nanos: Option<u64>| nanos.map_or_else(|| "-".into(), |nanos| time(nanos as f64));
    // While a disk is moved their number stays the same; where it is recovered there is a ramp for each.
    let cycles = ramp.windows(2).any(|pair| pair[1].users <= pair[0].users);
    let first = if cycles { "STEP" } else { "USERS>" };
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
            took(Some(orders.max)),
            grade.clone(),
            if step.plateau && !cycles { "plateau".into() } else { String::new() },
        ]);
    }
    let mut text = steps.text();
    if let Some(plateau) = ramp.iter().find(|step| step.plateau) {
        let mut kinds =
            Table::new(&["TRANSACTION", "A MINUTE>", "MEAN>", "P50>", "P90>", "P99>", "P99.9>", "MAX>"]);
        for Times { name, per_minute, mean, p50, p90, p99, p99_9, max } in &plateau.transactions {
            let rate = format!("{per_minute:.0}");
            kinds.row([
                name.clone(),
                rate,
                time(*mean),
                took(*p50),
                took(*p90),
                took(*p99),
                took(*p99_9),
                took(Some(*max)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_not_there_is_told() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(folder_words(&TargetSpec::Directory(dir.path().to_owned())), None);
        let words = folder_words(&TargetSpec::Directory(dir.path().join("typo"))).unwrap();
        assert!(words.contains("typo"), "{words}");
        assert_eq!(folder_words(&TargetSpec::Null), None);
    }
}
