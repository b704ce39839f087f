//! Tiles replayed on targets of which it is known what they can do.
//!
//! Goal: tiles are added until a rule fails, and the rule that failed is the one that the target breaks.

mod nbdkit;

use nbdkit::Nbdkit;
use std::path::Path;
use stonefold_env::{Env, SystemWorld};
use stonefold_lab::bundle::{self, Bundle, Run};
use stonefold_lab::measure::Reins;
use stonefold_lab::rig::RigOptions;
use stonefold_lab::tiles::figures::figures;
use stonefold_lab::tiles::{self, Ended, Outcome, Plan, Profile};
use stonefold_lab::trace::{End, Header, Op, Reason, Record, Totals, write};
use stonefold_lab::verdict::{self, Summary, Verdict};

const DEVICE_BYTES: u64 = 1 << 30;

/// A trace of half a second: reads and writes here and there, `rate` a second.
fn trace(path: &Path, rate: u64) {
    let one = |number: u64| {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32;
        let op = if number % 3 == 0 { Op::Write } else { Op::Read };
        let offset = place % (DEVICE_BYTES / 4096) * 4096;
        Record {
            at: number * 1_000_000_000 / rate,
            op,
            fua: false,
            queue: 0,
            offset,
            bytes: 4096,
            took: None,
        }
    };
    let records: Vec<Record> = (0..rate / 2).map(one).collect();
    let header = Header {
        started: 0,
        device_bytes: DEVICE_BYTES,
        tick_nanos: 1_000,
        has_took: false,
        name: "made".into(),
        source: "a test".into(),
    };
    let end = End {
        reason: Reason::Stopped,
        length: 500_000_000,
        dropped: 0,
        left_out: 0,
        totals: Totals::default(),
    };
    std::fs::write(path, write(header, &records, end)).unwrap();
}

/// A tile of a mail store and two shops, in all 24 MiB, replayed for `seconds`.
fn plan(dir: &Path, seconds: f64, targets: &[String]) -> Plan {
    let (mail, shop) = (dir.join("mail.sftrace"), dir.join("shop.sftrace"));
    trace(&mail, 400);
    trace(&shop, 200);
    let text = format!(
        "title = \"a test\"\nabout = \"a test\"\n[tiles]\nsample = \"{seconds}s\"\nquick_sample = \"{seconds}s\"\nscale = 0.5\n\
         [[vm]]\nname = \"mail\"\ntrace = \"{}\"\ngigabytes = 0.016777216\n\
         [[vm]]\nname = \"shop\"\ntrace = \"{}\"\ngigabytes = 0.016777216\ncount = 2\n",
        mail.display(),
        shop.display()
    );
    Plan {
        profile: Profile::parse("test", &text).unwrap(),
        quick: false,
        scale: None,
        first: 1,
        most: Some(2),
        targets: targets.iter().map(|target| target.parse().unwrap()).collect(),
        require: String::new(),
        options: RigOptions { threads: 1, verify: true, seed: 5, destroy_data: false, lasting: false },
        commands: None,
        counters: Vec::new(),
    }
}

fn outcome(plan: &Plan) -> stonefold_types::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let env = Env::new(SystemWorld::new(runtime.handle().clone(), 1).unwrap());
    tiles::run(&env, plan, &Reins::new())
}

/// Replays, keeps it, and computes it again from what was kept.
fn run(plan: &Plan) -> (Bundle, Summary) {
    let Outcome { points, tiled, bytes } = outcome(plan).unwrap();
    let kept = Run {
        format: Run::FORMAT,
        version: "0".into(),
        profile: "test".into(),
        locked: false,
        quick: false,
        targets: plan.targets.iter().map(ToString::to_string).collect(),
        seed: 5,
        threads: 1,
        verified: plan.is_verified(),
        bytes,
        require: plan.require.clone(),
        began: 0,
        reproduce: String::new(),
        machine: std::collections::BTreeMap::new(),
        cut_short: false,
        tiles: Some(tiled),
        ..Run::default()
    };
    let dir = tempfile::tempdir().unwrap();
    bundle::save(dir.path(), &kept, &plan.profile.text, &points).unwrap();
    let bundle = bundle::load(dir.path()).unwrap();
    let summary = verdict::summarise(&bundle).unwrap();
    (bundle, summary)
}

fn ended(bundle: &Bundle) -> &Ended {
    &bundle.run.tiles.as_ref().unwrap().ended
}

#[test]
fn tiles_on_a_fast_target_pass_until_no_more_are_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let (bundle, summary) = run(&plan(dir.path(), 2.0, &["null:".into()]));
    assert_eq!(summary.verdict, Verdict::Pass, "{:?}", summary.required);
    assert_eq!(ended(&bundle), &Ended::Most);
    let figures = figures(&bundle).unwrap();
    assert_eq!((figures.tiles, figures.vms, figures.at_least), (2, 6, true));
    // Traces of half a second begin again, each machine at a moment of its own.
    let steps = &bundle.run.tiles.as_ref().unwrap().steps;
    for (step, tiles) in steps.iter().zip([1u64, 2]) {
        let requests: u64 = step.streams.iter().map(|stream| stream.requests.iter().sum::<u64>()).sum();
        assert_eq!(requests, tiles * (800 + 400 + 400));
    }
    let phases: Vec<f64> = steps[1].streams.iter().map(|stream| stream.phase).collect();
    assert_eq!(phases, [0.0, 0.0, 0.125, 0.25, 0.25, 0.375]);
    let issued: Vec<u64> =
        bundle.points[1].streams.iter().map(|record| record.requests.iter().sum()).collect();
    assert_eq!(issued, [800, 400, 400, 800, 400, 400]);
}

#[test]
fn every_number_of_tiles_is_written_anew_and_read_as_it_was_written() {
    let (dir, on) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
    let file = on.path().join("disk");
    // No bound that a busy machine's disk might not keep.
    let plan =
        Plan { require: "p90<=60s".into(), ..plan(dir.path(), 1.0, &[format!("file:{}", file.display())]) };
    let (bundle, summary) = run(&plan);
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 48 << 20);
    assert_eq!(bundle.points.len(), 2);
    for point in &bundle.points {
        assert!(point.verification.right > 0, "{:?}", point.verification);
        assert_eq!(point.verification.faults() + point.verification.unwritten, 0, "{:?}", point.verification);
    }
    assert_eq!(summary.verdict, Verdict::Pass, "{:?}", summary.required);
    let told: Vec<&str> = summary.required.iter().map(|one| one.met.requirement.as_str()).collect();
    assert_eq!(
        told,
        ["p90<=60s", "end<=15s late"],
        "what is asked for is in place of the rules, but for the end"
    );
}

/// 30 ms each are more than the rules allow to anybody: the first tile fails by all rules but the end, and no second is tried.
#[test]
fn a_target_that_is_slow_fails_by_the_rules_that_name_it() {
    let (dir, slow) = (
        tempfile::tempdir().unwrap(),
        Nbdkit::start(
            tempfile::tempdir().unwrap(),
            &["--filter=delay", "memory", "48M", "rdelay=30ms", "wdelay=30ms"],
        ),
    );
    let (bundle, summary) = run(&plan(dir.path(), 2.0, &[slow.target()]));
    assert_eq!(summary.verdict, Verdict::Fail);
    assert_eq!((ended(&bundle), bundle.points.len()), (&Ended::Rules, 1));
    let missed: Vec<&str> = summary
        .required
        .iter()
        .filter(|one| one.met.met == Some(false))
        .map(|one| one.met.requirement.as_str())
        .collect();
    assert_eq!(missed, ["p70<=20ms", "mail:mean<=20ms", "shop:mean<=20ms"]);
    let figures = figures(&bundle).unwrap();
    assert_eq!((figures.vms, figures.at_least), (0, false));
    assert!(figures.steps[0].all.mean.unwrap() >= 30.0);
}

#[test]
fn a_target_without_room_for_another_tile_says_at_least() {
    let (dir, one) =
        (tempfile::tempdir().unwrap(), Nbdkit::start(tempfile::tempdir().unwrap(), &["memory", "40M"]));
    let plan = Plan { require: "p90<=60s".into(), ..plan(dir.path(), 1.0, &[one.target()]) };
    let (bundle, summary) = run(&plan);
    assert_eq!(summary.verdict, Verdict::Pass, "{:?}", summary.required);
    let Ended::Room(why) = ended(&bundle) else { panic!("{:?}", ended(&bundle)) };
    assert!(why.contains("has room for 40M, and 2 tiles on it would need 48M"), "{why}");
    assert!(figures(&bundle).unwrap().at_least);
    // Begun with two there is nothing to be measured.
    let error = outcome(&Plan { first: 2, ..plan.clone() }).unwrap_err();
    assert!(error.to_string().contains("40M") && error.remedy_text().unwrap().contains("--scale"), "{error}");
    let error = outcome(&Plan { targets: vec!["null:".parse().unwrap(); 2], ..plan }).unwrap_err();
    assert!(error.to_string().contains("2 targets for tiles of 3 machines"), "{error}");
}
