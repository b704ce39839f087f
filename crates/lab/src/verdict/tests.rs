//! What a run says, of points made by hand.

use super::*;
use crate::bundle::tests::bundle;
use crate::measure::tests::point;
use stonefold_types::Error;

/// A held point of 1,000 I/Os a second, each of 8 ms, and one of a sweep that does 500.
fn points() -> Vec<Point> {
    let swept = Point { label: "depth 1".into(), step: "sweep".into(), ..point(500) };
    vec![point(1000), swept]
}

fn summary_of(points: Vec<Point>, require: &str, cut_short: bool) -> Result<Summary> {
    let mut bundle = bundle(points);
    bundle.run.require = require.into();
    bundle.run.cut_short = cut_short;
    summarise(&bundle)
}

fn verdict(points: Vec<Point>, require: &str) -> Verdict {
    summary_of(points, require, false).unwrap().verdict
}

#[test]
fn each_word_has_its_reason_and_its_status() {
    assert_eq!(verdict(points(), ""), Verdict::Pass);
    assert_eq!(verdict(points(), "iops>=900,read.mean<=9ms,errors<=0"), Verdict::Pass);
    assert_eq!(verdict(points(), "iops>=1100"), Verdict::Fail);
    assert_eq!(verdict(points(), "read.p99.99<=9ms"), Verdict::Inconclusive, "of 12,000 I/Os");
    assert_eq!(verdict(Vec::new(), ""), Verdict::Invalid, "nothing was measured");
    let words = [Verdict::Pass, Verdict::Fail, Verdict::Invalid, Verdict::Inconclusive];
    assert_eq!(words.map(Verdict::status), [0, 1, 3, 4]);
}

/// Goal: the point that is held decides; without one, the worst of those that are swept.
#[test]
fn sweeps_decide_where_nothing_is_held() {
    assert_eq!(verdict(points(), "iops>=900"), Verdict::Pass);
    let swept = |iops| Point { label: format!("at {iops}"), ..point(iops) };
    let summary = summary_of(vec![swept(1000), swept(400), swept(800)], "iops>=600", false).unwrap();
    assert_eq!((summary.verdict, summary.required[0].point), (Verdict::Fail, 1));
}

/// Goal: how long users wait is what an open loop says, at the load that they bring.
#[test]
fn times_are_those_of_the_open_loop_that_was_asked_for() {
    let at_rate = |iops: u64| {
        let mut open = Point { step: "latency".into(), label: format!("{iops}/s"), ..point(iops) };
        (open.loads[0].outstanding, open.loads[0].rate) = (None, Some(iops as f64));
        open
    };
    // Each takes 8 s ÷ its rate.
    let points = || [points(), vec![at_rate(500), at_rate(800), at_rate(900)]].concat();
    let about = |require: &str| {
        let summary = summary_of(points(), require, false).unwrap();
        let of_time = summary.required.last().unwrap();
        (summary.points[of_time.point].name.clone(), summary.verdict)
    };
    assert_eq!(about("iops>=700,read.mean<=11ms"), ("latency, 800/s".into(), Verdict::Pass));
    assert_eq!(about("iops>=700,read.mean<=9ms"), ("latency, 800/s".into(), Verdict::Fail));
    assert_eq!(about("read.mean<=11ms"), ("latency, 500/s".into(), Verdict::Fail), "the worst");
    assert_eq!(
        about("iops>=950,read.mean<=20ms"),
        ("latency, 500/s".into(), Verdict::Pass),
        "none brings it"
    );
    assert_eq!(about("iops>=950"), ("hold".into(), Verdict::Pass), "what it can do");
}

/// Goal: what is not met is not hidden by what cannot be said, nor by a requirement of nothing at all, which has no headroom.
#[test]
fn the_worst_point_decides() {
    let held = |unanswered, reads: u64| {
        let mut held = point(reads);
        held.streams[0].unanswered = unanswered;
        held
    };
    let summary = summary_of(vec![held(0, 1000), held(2, 1000)], "errors<=0", false).unwrap();
    assert_eq!((summary.required[0].point, summary.required[0].met.met), (1, Some(false)));
    let mut silent = point(1000);
    silent.streams[0].read = Default::default();
    let summary = summary_of(vec![silent, point(1000)], "read.mean<=7ms", false).unwrap();
    assert_eq!((summary.required[0].point, summary.required[0].met.met), (1, Some(false)));
}

/// Goal: nothing is recommended of a target that lost or failed anything, at whatever load that came to light.
#[test]
fn what_is_wrong_anywhere_leaves_nothing_to_conclude() {
    let changes: [fn(&mut Point); 4] = [
        |point| point.verification.stale = 1,
        |point| point.verification.corrupt = 1,
        |point| point.verification.unwritten = 1,
        |point| point.streams[0].unanswered = 1,
    ];
    for change in changes {
        let mut points = points();
        change(&mut points[1]);
        assert_eq!(verdict(points.clone(), "iops>=900"), Verdict::Invalid);
        assert_eq!(verdict(points, "iops>=1100"), Verdict::Invalid);
    }
    // A sweep that was not steady says nothing of what was held.
    let mut unsteady = points();
    unsteady[1].series[11].reads = 10;
    assert_eq!(verdict(unsteady.clone(), "iops>=900"), Verdict::Pass);
    assert_eq!(verdict(unsteady, ""), Verdict::Invalid);
}

/// Goal: what is missing of a run that was ended might have failed; what has failed has.
#[test]
fn a_run_that_was_ended_early_passes_nothing() {
    let ended = |require: &str| summary_of(points(), require, true).unwrap().verdict;
    assert_eq!(ended("iops>=900"), Verdict::Inconclusive);
    assert_eq!(ended("iops>=1100"), Verdict::Fail);
    assert_eq!(ended(""), Verdict::Invalid);
    assert_eq!(summary_of(Vec::new(), "iops>=900", true).unwrap().verdict, Verdict::Invalid);
}

#[test]
fn what_is_of_no_stream_is_an_error() {
    let error: Error = summary_of(points(), "t:iops>=1", false).unwrap_err();
    assert!(error.to_string().contains("t:iops>=1"), "{error}");
    let does = [require::Does { name: "s", reads: true, writes: false }];
    for (require, fits) in [
        ("s:iops>=1", true),
        ("iops>=1", true),
        ("t:iops>=1", false),
        ("nopm>=1", false),
        ("read.mean<=1ms", true),
        ("write.mean<=1ms", false),
        ("s:write.iops>=1", false),
        ("write.errors<=0", true),
    ] {
        assert_eq!(require::check(require, &does).is_ok(), fits, "{require}");
    }
}

/// Goal: a requirement on reads is held against points that read, and not failed by one that only writes. What failed or stood still is no
/// such point.
#[test]
fn what_only_writes_says_nothing_of_reads() {
    let writes = |unanswered| {
        let mut point = point(1000);
        let record = &mut point.streams[0];
        record.write = std::mem::take(&mut record.read);
        record.unanswered = unanswered;
        point
    };
    assert_eq!(verdict(vec![writes(0), point(1000)], "iops>=900,read.mean<=9ms"), Verdict::Pass);
    assert_eq!(verdict(vec![writes(0), point(1000)], "read.iops>=900,read.bytes>=1K"), Verdict::Pass);
    assert_eq!(verdict(vec![writes(0), point(1000)], "read.mean<=7ms"), Verdict::Fail);
    let summary = summary_of(vec![writes(1), point(1000)], "read.iops>=900", false).unwrap();
    assert_eq!((summary.required[0].point, summary.required[0].met.met), (0, Some(false)));
    assert_eq!(verdict(vec![writes(0)], "read.mean<=9ms"), Verdict::Inconclusive, "there is no other");
}

/// Goal: the contract's own example can be kept by profiles with steps that only write.
#[test]
fn shipped_profiles_read_somewhere() {
    for name in ["ab", "corners", "sqlio"] {
        let profile = crate::profile::shipped::find(name).unwrap();
        require::check("iops>=216,read.mean<=20ms", &profile.does(true)).unwrap();
    }
}

/// Goal: an even rate is held to the allowance alone; one that scatters by itself has that beside.
#[test]
fn rates_are_held_to_what_their_arrivals_scatter() {
    let with = |arrivals| {
        let mut open = point(1000);
        open.loads[0].outstanding = None;
        (open.loads[0].rate, open.loads[0].arrivals) = (Some(1010.0), Some(arrivals));
        summary_of(vec![open], "", false).unwrap().points[0].fidelity.iter().all(|one| one.kept)
    };
    assert!(with(Arrivals::Poisson) && !with(Arrivals::Constant));
}
