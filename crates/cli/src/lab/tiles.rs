//! `stonefold lab run` of tiles of virtual machines.

use super::catalogue::length;
use super::load::{counters, quoted, target, tell_before, with_server};
use super::picture;
use super::run::Run;
use crate::context::Context;
use crate::environment::environment;
use crate::failure::Failure;
use crate::interrupt::on_stop;
use crate::table::Table;
use std::path::Path;
use std::sync::Arc;
use stonefold_lab::bundle::{Bundle, Run as Record};
use stonefold_lab::certificate::Price;
use stonefold_lab::machine;
use stonefold_lab::measure::Reins;
use stonefold_lab::stats::require::time;
use stonefold_lab::tiles::figures::{Step, Tiles, Times, of_tiles};
use stonefold_lab::tiles::{self, Commands, Outcome, Plan, Profile};
use stonefold_lab::verdict::{self, Summary};
use stonefold_types::{Error, Kind, Result, Size};

pub(super) fn measure(
    run: &Run,
    context: &Context,
    profile: Profile,
    shipped: bool,
) -> std::result::Result<(Bundle, Summary), Failure> {
    refuse_words_of_others(run).map_err(Failure::Misuse)?;
    let commands = run.ops.as_deref().map(|path| commands(path, &profile)).transpose()?;
    let price = run.price.as_deref().map(price_file).transpose()?;
    let system = run.declared.read()?;
    let (_runtime, env) = environment()?;
    let (first, most) = run.tiles.unwrap_or((1, None));
    let counters = if commands.is_some() { Vec::new() } else { counters(context, &run.target)? };
    let plan = Plan {
        profile,
        quick: run.load.quick,
        scale: run.scale,
        first,
        most,
        targets: run
            .target
            .iter()
            .map(|text| target(context, text))
            .collect::<std::result::Result<_, _>>()?,
        require: run.require.clone(),
        options: run.load.options(&env),
        commands,
        counters,
    };
    plan.check().map_err(Failure::Misuse)?;
    tell_plan(&plan);
    let others = tell_before(run.load.out.as_deref(), plan.profile.sample(plan.quick));
    let reins = Arc::new(Reins::new());
    let of_signal = reins.clone();
    on_stop(move || of_signal.stop())?;
    let began = env.wall() / 1_000_000_000;
    let Outcome { points, mut tiled, bytes } =
        picture::show(&env, &reins, || tiles::run(&env, &plan, &reins))?;
    tiled.price = price;
    let broken = matches!(tiled.ended, tiles::Ended::Broken(_));
    let record = Record {
        format: Record::FORMAT,
        version: super::VERSION.into(),
        profile: plan.profile.name.clone(),
        locked: shipped && run.scale.is_none() && run.require.is_empty(),
        quick: run.load.quick,
        targets: plan.targets.iter().map(ToString::to_string).collect(),
        seed: plan.options.seed,
        threads: plan.options.threads,
        verified: plan.is_verified(),
        bytes,
        require: run.require.clone(),
        began,
        reproduce: with_server(context, reproduce(run, &plan), &run.target),
        machine: machine::describe().into_iter().chain(others).collect(),
        cut_short: reins.is_stopped() || broken,
        tiles: Some(tiled),
        occupied: super::cost::occupied(context, &run.target),
        system,
        ..Record::default()
    };
    let bundle = run.load.keep(record, plan.profile.text, points);
    let summary = verdict::summarise(&bundle)?;
    Ok((bundle, summary))
}

/// Reads the commands of what is done beside the tiles.
fn commands(path: &Path, profile: &Profile) -> Result<Commands> {
    let text = std::fs::read_to_string(path).map_err(|e| {
        Error::io(format!("reading the commands '{}'", path.display()), e).remedy("name a readable file")
    })?;
    Commands::parse(&text, &profile.operations)
}

/// Reads a price file, and refuses one that cannot be used before anything is measured.
fn price_file(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path).map_err(|e| {
        Error::io(format!("reading the price file '{}'", path.display()), e).remedy("name a readable file")
    })?;
    Price::check(&text).map(|()| text)
}

/// Volumes have the sizes that are published, by a scale, and what is written to them is the lab's usual mix.
fn refuse_words_of_others(run: &Run) -> Result<()> {
    let words = [
        ("--size", run.load.size.is_some(), "; --scale makes volumes smaller"),
        ("--cache", run.load.cache.is_some(), ""),
        ("--payload", run.load.payload.is_some(), ""),
        ("--point", run.load.point.is_some(), ""),
        ("--step", !run.load.only.is_empty(), ""),
        ("--worker", run.workers.are_given(), ""),
        ("--warehouses", run.warehouses.is_some(), ""),
        ("--postgres", run.postgres.is_some(), ""),
    ];
    match words.iter().find(|(_, said, _)| *said) {
        Some((word, _, instead)) => {
            Err(Error::new(Kind::Invalid, format!("{word} says nothing to a profile of tiles"))
                .remedy(format!("leave it out{instead}")))
        }
        None => Ok(()),
    }
}

fn reproduce(run: &Run, plan: &Plan) -> String {
    let mut words = vec!["stonefold lab run".to_owned(), run.load.named()];
    run.target.iter().for_each(|target| words.push(format!("--target {}", quoted(target))));
    words.extend(run.tiles.map(|range| format!("--tiles {}", range_text(range))));
    words.extend(run.scale.map(|scale| format!("--scale {scale}")));
    words.extend(run.ops.as_ref().map(|path| format!("--ops {}", quoted(&path.to_string_lossy()))));
    words.extend(run.price.as_ref().map(|path| format!("--price {}", quoted(&path.to_string_lossy()))));
    if !run.require.is_empty() {
        words.push(format!("--require {}", quoted(&run.require)));
    }
    words.extend(run.declared.words());
    words.push(run.load.words(&plan.options));
    words.join(" ")
}

/// `4` is from four on, `4..8` from four to eight.
pub(super) fn tile_range(text: &str) -> std::result::Result<(usize, Option<usize>), String> {
    let number = |text: &str| {
        let number = text.trim().parse::<usize>().ok().filter(|number| *number > 0);
        number.ok_or_else(|| format!("'{text}' is no number of tiles; write it as in 4, or 4..8"))
    };
    match text.split_once("..") {
        None => Ok((number(text)?, None)),
        Some((first, most)) => {
            let (first, most) = (number(first)?, number(most)?);
            if most < first {
                return Err(format!("from {first} to {most} there is none; name the fewer first"));
            }
            Ok((first, Some(most)))
        }
    }
}

fn range_text((first, most): (usize, Option<usize>)) -> String {
    most.map_or_else(|| first.to_string(), |most| format!("{first}..{most}"))
}

fn tell_plan(plan: &Plan) {
    let targets: Vec<String> = plan.targets.iter().map(ToString::to_string).collect();
    let scale = match plan.scale() {
        1.0 => String::new(),
        scale => format!(", {scale} of the published size"),
    };
    eprintln!(
        "{}{} on {}: from {} on, each {} after its volumes are written; a tile has {} in {}{scale}; seed {}",
        plan.profile.name,
        if plan.quick { ", quick" } else { "" },
        targets.join(" and "),
        of_tiles(plan.first),
        length(plan.profile.sample(plan.quick)),
        Size(plan.profile.tile_bytes(plan.scale())),
        crate::table::count(plan.profile.vms.len() as u64, "volume"),
        plan.options.seed
    );
}

/// Each number of tiles, and each application of the most that passed. Nothing of another load.
pub(super) fn tables(tiles: Option<&Tiles>) -> String {
    let Some(tiles) = tiles else { return String::new() };
    let mut steps =
        Table::new(&["TILES>", "VMS>", "IOPS>", "<=20 MS>", "MEAN>", "P99>", "MAX>", "PASSED", "P99<=20 MS"]);
    for step in &tiles.steps {
        let [iops, within, mean, p99, max] = cells(&step.all);
        let (passed, strict) = (word(step.passed), word(step.strict));
        steps.row([
            step.tiles.to_string(),
            step.vms.to_string(),
            iops,
            within,
            mean,
            p99,
            max,
            passed,
            strict,
        ]);
    }
    let mut text = steps.or("nothing was replayed");
    let shown = tiles.steps.iter().find(|step| step.tiles == tiles.tiles).or(tiles.steps.first());
    if let Some(step) = shown {
        text.push_str(&format!("\nwith {}\n{}", of_tiles(step.tiles), applications(step)));
        text.push_str(&operations(step));
    }
    text.push_str(&format!("\n{}\n", result(tiles)));
    if let (Some(score), Some(mean)) = (tiles.score, tiles.score_mean) {
        text.push_str(&format!(
            "score: {score:.2}, the smaller ratio to what is required; their geometric mean: {mean:.2}\n"
        ));
    }
    tiles.price.iter().for_each(|line| text.push_str(&format!("price: {line}\n")));
    text
}

fn applications(step: &Step) -> String {
    let mut table = Table::new(&["APPLICATION", "VMS>", "IOPS>", "<=20 MS>", "MEAN>", "P99>", "MAX>"]);
    for one in &step.applications {
        let [iops, within, mean, p99, max] = cells(one);
        table.row([one.name.clone(), one.vms.to_string(), iops, within, mean, p99, max]);
    }
    table.text()
}

/// What was done beside them; empty where nothing was.
fn operations(step: &Step) -> String {
    if step.operations.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["BESIDE", "DONE>", "REQUIRED>", "RATIO>", "MEAN OF EACH STEP", ""]);
    for one in &step.operations {
        let steps: Vec<String> = one
            .steps
            .iter()
            .map(|(step, took)| match took {
                Some(took) => format!("{step} {took:.1} s"),
                None => format!("{step} -"),
            })
            .collect();
        table.row([
            one.name.clone(),
            one.done.to_string(),
            format!("{:.2}", one.required),
            format!("{:.2}", one.ratio),
            steps.join(", "),
            one.failure.clone().unwrap_or_default(),
        ]);
    }
    format!("\n{}", table.text())
}

fn cells(times: &Times) -> [String; 5] {
    let took = |millis: Option<f64>| millis.map_or_else(|| "-".into(), |millis| time(millis * 1e6));
    let within = times.within.map_or_else(|| "-".into(), |share| format!("{:.2}%", share * 100.0));
    [format!("{:.1}", times.iops), within, took(times.mean), took(times.p99), took(times.max)]
}

fn word(passed: Option<bool>) -> String {
    match passed {
        Some(true) => "yes",
        Some(false) => "no",
        None => "too few I/Os",
    }
    .into()
}

fn result(tiles: &Tiles) -> String {
    let of = |tiles: usize, vms: usize| format!("{vms} virtual machines ({})", of_tiles(tiles));
    let least = if tiles.at_least { "at least " } else { "" };
    format!(
        "result: {least}{}; with 99% within 20 ms: {}; {}",
        of(tiles.tiles, tiles.vms),
        of(tiles.strict_tiles, tiles.strict_vms),
        tiles.ended
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_tiles_are_read_and_written() {
        for (text, range) in [("4", (4, None)), ("1..1", (1, Some(1))), ("4..8", (4, Some(8)))] {
            assert_eq!(tile_range(text), Ok(range));
            assert_eq!(range_text(range), text);
        }
        for wrong in ["", "0", "-1", "4..", "8..4", "four"] {
            assert!(tile_range(wrong).is_err(), "{wrong}");
        }
    }
}
