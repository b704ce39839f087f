//! A database that is recovered from points of a chain, on a real PostgreSQL.
//!
//! *Promises*: each point that is asked for comes back with the orders that were acknowledged before it was kept, and no other; a keeper that
//! brings back another point, or none, is told by name; nothing is left behind. *Method*: the target is a file, and points are copies of
//! it that `cp` makes while the file system on it is mounted and PostgreSQL runs. *Past bug*: none yet.

mod database;

use database::{World, against, profile};
use std::fs;
use std::process::Command;
use std::sync::Arc;

use stonefold_lab::TargetSpec;
use stonefold_lab::measure::Reins;
use stonefold_lab::oltp::chain::{ChainFigures, Commands};
use stonefold_lab::oltp::{self, Plan, Profile};
use stonefold_lab::verdict::Verdict;
use stonefold_needs::{Need, there_is};
use stonefold_types::Kind;

/// Three points, of which the first and the last are recovered by `recover`.
fn recovering(world: &World, recover: &str) -> Plan {
    let chain = "[chain]\nchanges = 2\nusers = 2\nbetween = '1s'\nrecover = [0, 2]\n";
    let mut plan =
        world.plan(Profile::parse("test", &format!("{}{chain}", profile("[2]", "5s").text)).unwrap());
    plan.target = TargetSpec::File(world.folder.path().join("home"));
    fs::create_dir(world.folder.path().join("target")).unwrap();
    let commands = format!(
        "keep = 'cp --sparse=always home point-$STONEFOLD_LAB_POINT'\nrecover = '{recover}'\ndiscard = 'rm back'\n\
         forget = 'rm point-$STONEFOLD_LAB_POINT'\n"
    );
    let inside = format!("= 'cd {} && ", world.folder.path().display());
    plan.keeper =
        Some(Arc::new(Commands::of_file(&commands.replace("= '", &inside), |text| text.parse()).unwrap()));
    plan
}

fn is_clean(world: &World) {
    let names = fs::read_dir(world.folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.filter(|name| name != "bundle").collect();
    names.sort();
    assert_eq!(names, ["home", "target"], "points or what was recovered are left");
    for file in ["home", "back"] {
        let devices =
            Command::new("losetup").arg("--associated").arg(world.folder.path().join(file)).output();
        assert_eq!(String::from_utf8_lossy(&devices.unwrap().stdout), "", "a device is left on {file}");
    }
    world.is_clean();
}

const BACK: &str = "cp --sparse=always point-$STONEFOLD_LAB_POINT back && echo file:$PWD/back";

#[test]
fn each_point_comes_back_with_what_was_acknowledged_until_then() {
    if !there_is(Need::Loop, "a database of the lab that is recovered from points") {
        return;
    }
    let world = World::new();
    let plan = recovering(&world, BACK);
    let outcome = oltp::run(&world.env, &plan, &Reins::new()).unwrap();
    assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
    let steps: Vec<&str> = outcome.points.iter().map(|point| point.step.as_str()).collect();
    assert_eq!(steps, ["native", "full", "2nd"]);
    for point in &outcome.points {
        let checks = &point.database.as_ref().unwrap().checks;
        assert!(checks.len() == 7 && checks.iter().all(|check| check.violations == 0), "{checks:?}");
    }
    let record = outcome.chain.clone().expect("points were kept");
    assert!(record.complaints.is_empty(), "{record:?}");
    assert_eq!(record.points.len(), 3);
    assert!(
        record.points[0].transactions == 0 && record.points[1..].iter().all(|point| point.transactions > 0)
    );
    for one in &record.recoveries {
        let times = [one.recovered, one.mounted, one.started, one.first, one.began];
        assert!(times.is_sorted() && one.recovered > 0.0, "{one:?}");
    }
    let summary = world.judged(&plan, &outcome, "");
    assert_eq!(summary.required[0].met.met, Some(true), "{:?}", summary.required);
    let figures = ChainFigures::new(&record, &outcome.points);
    assert!(figures.points.iter().all(|point| point.share.is_some_and(|share| share > 0.0)), "{figures:?}");
    is_clean(&world);
}

/// Goal: a backup that brings back Monday's data for Tuesday's is found, though it mounts, starts and works.
#[test]
fn another_point_than_was_asked_for_is_found() {
    if !there_is(Need::Loop, "a database of the lab that is recovered from points") {
        return;
    }
    let world = World::new();
    let plan = recovering(&world, "cp --sparse=always point-0 back && echo file:$PWD/back");
    let outcome = oltp::run(&world.env, &plan, &Reins::new()).unwrap();
    assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
    let summary = world.judged(&plan, &outcome, "nopm>=1");
    let void: Vec<&str> = against(&summary).into_iter().filter(|name| *name != "steady state").collect();
    assert_eq!(void, ["acknowledged orders", "acknowledged payments"]);
    assert_eq!(summary.verdict, Verdict::Invalid, "though the requirement is met");
    is_clean(&world);
}

#[test]
fn a_point_that_does_not_come_back_is_told() {
    if !there_is(Need::Loop, "a database of the lab that is recovered from points") {
        return;
    }
    let world = World::new();
    let plan = recovering(&world, "echo tape is torn >&2; false");
    let outcome = oltp::run(&world.env, &plan, &Reins::new()).unwrap();
    let failure = outcome.failure.as_ref().expect("it is told").to_string();
    assert!(failure.contains("'recover' for point 0") && failure.contains("tape is torn"), "{failure}");
    assert_eq!(outcome.points.len(), 1, "what is native was measured");
    let summary = world.judged(&plan, &outcome, "");
    assert_eq!((summary.verdict, summary.required[0].met.met), (Verdict::Invalid, Some(false)));
    assert!(summary.required[0].met.told.contains("not 'full', '2nd'"), "{:?}", summary.required);
    is_clean(&world);
}

/// Goal: what could not be kept, because somebody's lies there, is left to him.
#[test]
fn what_is_anothers_stays() {
    if !there_is(Need::Loop, "a database of the lab that is recovered from points") {
        return;
    }
    let world = World::new();
    let mut plan = recovering(&world, BACK);
    let folder = world.folder.path().to_owned();
    let commands = format!(
        "keep = 'cd {0} && ! test -e point-$STONEFOLD_LAB_POINT'\nrecover = 'false'\nforget = 'rm {0}/point-$STONEFOLD_LAB_POINT'\n",
        folder.display()
    );
    plan.keeper = Some(Arc::new(Commands::of_file(&commands, |text| text.parse()).unwrap()));
    fs::write(folder.join("point-0"), "of somebody").unwrap();
    let outcome = oltp::run(&world.env, &plan, &Reins::new()).unwrap();
    assert!(outcome.failure.as_ref().is_some_and(|why| why.to_string().contains("'keep' for point 0")));
    assert_eq!(fs::read_to_string(folder.join("point-0")).unwrap(), "of somebody");
    fs::remove_file(folder.join("point-0")).unwrap();
    is_clean(&world);
}

/// Before anything is loaded.
#[test]
fn points_need_somebody_who_keeps_them() {
    let world = World::new();
    let mut plan = recovering(&world, BACK);
    let keeper = plan.keeper.take();
    let refused = |plan: &Plan| oltp::run(&world.env, plan, &Reins::new()).unwrap_err();
    let error = refused(&plan);
    assert!(error.kind() == Kind::Invalid && error.to_string().contains("--recovery"), "{error}");
    plan.keeper = keeper;
    plan.profile = profile("[1]", "5s");
    let error = refused(&plan);
    assert!(error.kind() == Kind::Invalid && error.to_string().contains("chain-recover"), "{error}");
    assert!(!world.folder.path().join("home").exists(), "nothing was begun");
}
