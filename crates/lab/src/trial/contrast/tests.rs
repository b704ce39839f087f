use super::*;
use crate::measure::{PointLoad, tests::point};

/// A trial of two arms, the second `factor` times as fast, with noise that goes over both arms of a round alike.
fn trial(rounds: usize, factor: f64, change: impl Fn(&Turn, &mut Point)) -> Findings {
    let mut chance = crate::chance::Chance::new(9);
    let (mut turns, mut bundles, mut summaries) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let drift = 1.0 + round as f64 / 2.0;
        for arm in 0..2 {
            let turn = Turn { round, arm, seed: 1, began: 0, cut_short: false };
            let speed = if arm == 1 { factor } else { 1.0 };
            let rate = 10_000.0 * drift * speed * (1.0 + 0.01 * chance.fraction());
            let mut one = point(rate as u64);
            change(&turn, &mut one);
            let bundle = crate::bundle::tests::bundle(vec![one]);
            summaries.push(crate::verdict::summarise(&bundle).unwrap());
            turns.push(turn);
            bundles.push(bundle);
        }
    }
    findings(2, &turns, &bundles, &summaries, 1)
}

fn of(found: &Findings, figure: Figure) -> &Contrast {
    found.contrasts.iter().find(|one| one.figure == figure).unwrap()
}

#[test]
fn a_faster_arm_is_found_whatever_drifts_between_rounds() {
    let found = trial(6, 1.2, |_, _| {});
    assert_eq!(found.verdict, Verdict::Pass);
    let rate = &of(&found, Figure::Rate).comparison;
    assert_eq!(rate.finding, Finding::Higher);
    assert!((rate.ratio - 1.2).abs() < 0.02 && rate.low > 1.15, "{rate:?}");
    assert!((found.spread[0].1 - 1.2).abs() < 0.03);
    assert_eq!(trial(6, 1.0, |_, _| {}).contrasts[0].comparison.finding, Finding::NoDifference);
    assert_eq!(trial(3, 1.2, |_, _| {}).verdict, Verdict::Inconclusive);
}

#[test]
fn intervals_are_narrow_or_not() {
    let found = trial(6, 1.2, |_, _| {});
    let rate = &of(&found, Figure::Rate).comparison;
    let reach = (rate.high / rate.ratio - 1.0).max(1.0 - rate.low / rate.ratio);
    assert!(reach > 0.0 && found.are_within(0.2) && !found.are_within(reach / 2.0), "{reach}");
    assert!(!trial(3, 1.2, |_, _| {}).are_within(0.2), "three pairs say nothing");
    let mut void = found.clone();
    void.contrasts.iter_mut().for_each(|one| one.void = Some("errors".into()));
    assert!(!void.are_within(0.2));
}

#[test]
fn rounds_that_did_not_become_steady_are_in_no_pair() {
    let unsteady = |turn: &Turn, point: &mut Point| {
        if (turn.round, turn.arm) == (2, 0) {
            point.series.truncate(3);
        }
    };
    let found = trial(6, 1.2, unsteady);
    assert_eq!((found.verdict, found.contrasts[0].comparison.pairs.len()), (Verdict::Pass, 5));
    assert_eq!(found.contrasts[0].unsteady, 1);
    assert_eq!(trial(5, 1.2, unsteady).verdict, Verdict::Inconclusive);
    let never = trial(5, 1.2, |_, point| point.series.truncate(3));
    let rate = never.levels.iter().find(|level| level.figure == Figure::Rate).expect("it was measured");
    let [Some(first), Some(second)] = rate.medians[..] else { panic!("{rate:?}") };
    assert!((second / first - 1.2).abs() < 0.03, "what was measured is told, though nothing follows from it");
    assert_eq!((never.verdict, never.contrasts[0].unsteady), (Verdict::Inconclusive, 5));
}

#[test]
fn what_is_void_or_unlike_is_not_concluded_from() {
    let void = trial(5, 1.2, |turn, point| {
        if (turn.round, turn.arm) == (3, 1) {
            point.verification.stale = 1;
        }
    });
    assert_eq!(void.verdict, Verdict::Invalid);
    assert!(void.contrasts[0].void.as_deref().is_some_and(|why| why.contains("round 4")));
    let unlike = trial(5, 1.2, |turn, point| {
        let rate = if turn.arm == 1 { 100.0 } else { 120.0 };
        point.loads[0] = PointLoad { outstanding: None, rate: Some(rate), ..point.loads[0].clone() };
    });
    assert!(unlike.contrasts.is_empty() && unlike.left_out.len() == 1);
    assert!(unlike.levels.iter().any(|level| level.figure == Figure::Mean), "{:?}", unlike.levels);
}

/// A step of so many users, `speed` times as fast as a hundred transactions a second.
fn step(users: u32, speed: f64) -> Point {
    let mut one = crate::oltp::audit::tests::point();
    (one.label, one.database.as_mut().unwrap().users) = (format!("{users} users"), users);
    for record in &mut one.streams {
        record.read.ios = (record.read.ios as f64 * speed) as u64;
        record.write.ios = (record.write.ios as f64 * speed) as u64;
    }
    one
}

#[test]
fn databases_are_compared_step_by_step_and_at_their_plateaus() {
    let mut chance = crate::chance::Chance::new(9);
    let (mut turns, mut bundles, mut summaries) = (Vec::new(), Vec::new(), Vec::new());
    // The first comes to its plateau with three users, the second with five: 1.2 times as fast.
    let ramps: [&[f64]; 2] = [&[1.0, 2.0, 2.0, 2.0], &[1.0, 2.0, 2.4, 2.4, 2.4]];
    for round in 0..6 {
        for (arm, ramp) in ramps.iter().enumerate() {
            let noise = 1.0 + 0.005 * chance.fraction();
            let steps = ramp.iter().zip([1, 3, 5, 8, 13]);
            let points = steps.map(|(speed, users)| step(users, speed * noise)).collect();
            let bundle = crate::bundle::tests::bundle(points);
            summaries.push(crate::oltp::summarise(&bundle).unwrap());
            turns.push(Turn { round, arm, seed: 1, began: 0, cut_short: false });
            bundles.push(bundle);
        }
    }
    let found = findings(2, &turns, &bundles, &summaries, 1);
    let at = |point: &str| {
        let is_it = |one: &&Contrast| one.point.ends_with(point) && one.figure == Figure::Orders;
        found.contrasts.iter().find(is_it).unwrap_or_else(|| panic!("{point}: {found:?}"))
    };
    assert_eq!(at("3 users").comparison.finding, Finding::NoDifference);
    assert!(found.left_out.len() == 1 && found.left_out[0].contains("13 users"), "{:?}", found.left_out);
    let level = found.levels.iter().find(|level| level.point == PLATEAU).and_then(Level::spread);
    assert!(level.is_some_and(|spread| (spread - 1.2).abs() < 0.01), "{level:?}");
    let plateau = &at(PLATEAU).comparison;
    assert_eq!((plateau.finding, plateau.pairs.len()), (Finding::Higher, 6));
    assert!((plateau.ratio - 1.2).abs() < 0.01, "{plateau:?}");
    assert!(found.contrasts.iter().all(|one| one.figure != Figure::Rate), "of transactions, not of I/Os");
}

/// Goal: how long a phase took is compared, and a load that was tuned for each arm is, too, and said so; steps of the search are not.
#[test]
fn phases_and_tuned_loads_are_compared() {
    use crate::measure::{Probe, TaskKind, TaskRecord};
    let (mut turns, mut bundles, mut summaries) = (Vec::new(), Vec::new(), Vec::new());
    let mut chance = crate::chance::Chance::new(3);
    for round in 0..6 {
        for arm in 0..2 {
            let (speed, in_flight) = if arm == 1 { (1.5, 16) } else { (1.0, 8) };
            let noise = 1.0 + 0.01 * chance.fraction();
            let mut fill = point(1);
            (fill.step, fill.label, fill.seconds) = ("create".into(), String::new(), 60.0 / speed * noise);
            fill.loads.iter_mut().for_each(|load| load.outstanding = None);
            fill.task = Some(TaskRecord { kind: TaskKind::Fill, what: "db-1".into(), bytes: 1 << 30 });
            let mut probe = point(1000);
            (probe.step, probe.label) = ("tune".into(), format!("{in_flight} in flight"));
            probe.probe = Some(Probe {
                outstanding: in_flight,
                iops: 1000.0,
                requirement: "read.mean<=20ms".into(),
                told: "12 ms".into(),
                kept: true,
                chosen: true,
            });
            let mut mixed = point((1000.0 * speed * noise) as u64);
            (mixed.step, mixed.label) = ("mixed".into(), String::new());
            mixed.loads.iter_mut().for_each(|load| load.outstanding = Some(in_flight));
            let bundle = crate::bundle::tests::bundle(vec![fill, probe, mixed]);
            let judged = crate::verdict::summarise(&bundle).unwrap();
            summaries.push(judged);
            turns.push(Turn { round, arm, seed: 1, began: 0, cut_short: false });
            bundles.push(bundle);
        }
    }
    let found = findings(2, &turns, &bundles, &summaries, 1);
    let took = of(&found, Figure::Took);
    assert_eq!((took.point.as_str(), took.comparison.finding), ("create", Finding::Lower));
    assert!((took.comparison.ratio - 1.0 / 1.5).abs() < 0.02, "{took:?}");
    let rate = of(&found, Figure::Rate);
    assert_eq!((rate.point.as_str(), rate.comparison.finding), ("mixed", Finding::Higher));
    assert!(found.unlike.len() == 1 && found.unlike[0].starts_with("mixed: each run"), "{:?}", found.unlike);
    assert!(found.contrasts.iter().all(|one| !one.point.starts_with("tune")), "{found:?}");
}

/// Goal: numbers come with how far they can be trusted, and a comparison tells how busy processors were, as its model does.
#[test]
fn grades_rules_and_processors_stand_beside_the_figures() {
    use crate::machine::Busy;
    let found = trial(5, 1.2, |turn, point| {
        let min = turn.round as f64;
        point.machine_cpu = Some(Busy { min, mean: min + 1.0, max: min + 2.0, of: Some(64), stolen: 0.0 });
        if (turn.round, turn.arm) == (3, 1) {
            point.machine_cpu = point.machine_cpu.map(|busy| Busy { of: Some(4), ..busy });
        }
    });
    let level = &found.levels[0];
    let [Some(first), Some(second)] = level.grades[..] else { panic!("{level:?}") };
    assert!(first < second, "the worst of an arm's runs: {first:?}, {second:?}");
    let [beside] = &found.beside[..] else { panic!("{:?}", found.beside) };
    let busy = beside.busy[0].unwrap();
    assert_eq!((busy.min, busy.mean, busy.max, busy.of), (0.0, 3.0, 6.0, Some(64)));
    assert!(beside.against.iter().any(|rule| rule == "processors"), "{:?}", beside.against);
}

/// Goal: where some runs had too few I/Os for a p99, rates and means are told all the same.
#[test]
fn a_percentile_that_is_not_told_leaves_the_others_as_they_are() {
    let few = trial(6, 1.2, |turn, point| {
        if turn.arm == 1 {
            let record = &mut point.streams[0];
            let some = |latencies: &mut Latencies| {
                latencies.clear();
                (0..400).for_each(|_| latencies.record(1_000_000));
            };
            some(&mut record.read.response);
            some(&mut record.write.response);
        }
    });
    assert!(of(&few, Figure::P99).comparison.pairs.is_empty(), "{few:?}");
    assert_ne!(of(&few, Figure::Rate).comparison.finding, Finding::Inconclusive);
    assert!(!few.are_too_few());
}

/// Goal: that no difference was seen is no answer where one of a tenth would not have been seen either.
#[test]
fn what_is_too_wide_to_tell_is_told_as_that() {
    let apart = |turn: &Turn, one: &mut Point| {
        if turn.arm == 1 {
            let factor = if turn.round % 2 == 0 { 0.6 } else { 1.6 };
            *one = point((one.iops() * factor) as u64);
        }
    };
    let wide = trial(6, 1.0, apart);
    let rate = of(&wide, Figure::Rate);
    assert_eq!((rate.comparison.finding, rate.is_wide), (Finding::NoDifference, true), "{rate:?}");
    assert!(!wide.are_too_few());
    assert_eq!(wide.verdict, Verdict::Inconclusive);
    let narrow = trial(6, 1.0, |_, _| {});
    assert!(!of(&narrow, Figure::Rate).is_wide);
    assert_eq!(narrow.verdict, Verdict::Pass);
}

/// Goal: a comparison that was to become narrow and did not concludes nothing, and one of which nothing was asked what it found.
#[test]
fn intervals_that_stay_wider_than_asked_conclude_nothing() {
    let asked = |within, narrow| crate::trial::Trial { within, narrow, ..Default::default() };
    assert_eq!(asked(Some(0.03), false).may_conclude(Verdict::Pass), Verdict::Inconclusive);
    assert_eq!(asked(Some(0.03), true).may_conclude(Verdict::Pass), Verdict::Pass);
    assert_eq!(asked(None, false).may_conclude(Verdict::Pass), Verdict::Pass);
    assert_eq!(asked(Some(0.03), false).may_conclude(Verdict::Invalid), Verdict::Invalid);
}
