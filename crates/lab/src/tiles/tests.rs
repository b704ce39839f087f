//! Tiles that are made up, and what is said of them.

use super::figures::figures;
use super::rules::{summarise, vms_of};
use super::*;
use crate::bundle::{Bundle, Run};
use crate::record::StreamRecord;
use crate::replay::StreamPlan;
use crate::verdict::Verdict;

const SECONDS: f64 = 100.0;
const PRICE: &str = r#"
currency = "USD"
date = "2026-11-23"
[[line]]
item = "a server"
quantity = 1
unit = "1000.00"
source = "a list"
"#;

/// A machine of an application that answered so many I/Os in so many milliseconds each.
fn machine(ios: u64, millis: f64) -> StreamRecord {
    let mut record = StreamRecord::default();
    (0..ios).for_each(|number| {
        record.read.response.record((millis * 1e6) as u64);
        record.read.service.record((millis * 1e6) as u64);
        record.timing.note(number * 1_000_000, number * 1_000_000);
    });
    record.read.ios = ios;
    record.requests[0] = ios;
    record.sizes = [(4096, ios)].into();
    record.random = ios;
    record
}

fn vm(name: &str, application: &str) -> VmPlan {
    VmPlan {
        name: name.into(),
        application: application.into(),
        trace: application.into(),
        published_bytes: 1 << 30,
        bytes: 1 << 30,
    }
}

/// A tile has a mail store and two shops. Of each number of tiles: milliseconds of each application, and by how much it came late.
fn bundle(steps: &[(usize, [f64; 2], f64)], ended: Ended) -> Bundle {
    let vms = vec![vm("mail", "mail"), vm("shop.1", "shop"), vm("shop.2", "shop")];
    let mut tiled = Tiled {
        scale: 1.0,
        seconds: SECONDS,
        vms,
        steps: Vec::new(),
        ended,
        price: Some(PRICE.into()),
        operations: Vec::new(),
        commands: std::collections::BTreeMap::new(),
    };
    let mut points = Vec::new();
    for (tiles, [mail, shop], late) in steps {
        let records: Vec<StreamRecord> = (0..*tiles)
            .flat_map(|_| [machine(1000, *mail), machine(1000, *shop), machine(1000, *shop)])
            .collect();
        let plan = |number: usize| StreamPlan {
            name: format!("{number}"),
            trace: 0,
            tile: number / 3 + 1,
            bytes: 1 << 30,
            phase: 0.0,
            requests: [1000, 0, 0, 0, 0],
            altered: 0,
            as_it_was: true,
            footprint_bytes: 1 << 20,
        };
        tiled.steps.push(Replayed {
            tiles: *tiles,
            speed: 1.0,
            seconds: SECONDS,
            mode: Mode::Scale,
            traces: Vec::new(),
            streams: (0..records.len()).map(plan).collect(),
        });
        let one = crate::measure::tests::point(100);
        let loads = (0..records.len()).map(|stream| crate::measure::PointLoad {
            stream,
            name: format!("{stream}"),
            outstanding: None,
            rate: None,
            arrivals: None,
        });
        points.push(Point {
            step: figures::of_tiles(*tiles),
            loads: loads.collect(),
            streams: records,
            seconds: SECONDS + late,
            ..one
        });
    }
    let run = Run {
        format: Run::FORMAT,
        version: "0".into(),
        profile: "vm-tile".into(),
        locked: true,
        quick: false,
        targets: vec!["null:".into()],
        seed: 1,
        threads: 1,
        verified: true,
        bytes: 1 << 30,
        require: String::new(),
        began: 0,
        reproduce: String::new(),
        machine: std::collections::BTreeMap::new(),
        cut_short: false,
        tiles: Some(tiled),
        ..Run::default()
    };
    Bundle { run, profile: String::new(), points, hash: String::new() }
}

fn said(bundle: &Bundle) -> crate::verdict::Summary {
    summarise(bundle, bundle.run.tiles.as_ref().unwrap()).unwrap()
}

#[test]
fn the_most_tiles_that_pass_are_the_result() {
    let bundle = bundle(&[(1, [1.0, 2.0], 0.0), (2, [3.0, 4.0], 1.0), (3, [21.0, 4.0], 0.0)], Ended::Rules);
    let summary = said(&bundle);
    assert_eq!(summary.verdict, Verdict::Pass);
    assert!(
        summary.required.iter().all(|one| one.point == 1 && one.met.met == Some(true)),
        "{:?}",
        summary.required
    );
    let rules: Vec<&str> = summary.required.iter().map(|one| one.met.requirement.as_str()).collect();
    assert_eq!(rules, ["p70<=20ms", "mail:mean<=20ms", "shop:mean<=20ms", "end<=15s late"]);
    // What ended it is told beside: a third of three tiles' I/Os are slow, where 30% may be.
    let beside: Vec<(usize, &str)> =
        summary.beside.iter().map(|one| (one.point, one.met.requirement.as_str())).collect();
    assert_eq!(beside, [(1, "p99<=20ms"), (2, "p70<=20ms"), (2, "mail:mean<=20ms")]);
    let figures = figures(&bundle).unwrap();
    assert_eq!((figures.tiles, figures.vms, figures.strict_tiles, figures.at_least), (2, 6, 2, false));
    assert_eq!(vms_of(&bundle).unwrap(), Some(6));
    assert_eq!(figures.price[0], "166.67 USD per VM, of 6, at the prices of 2026-11-23");
    let shop = &figures.steps[1].applications[1];
    assert_eq!((shop.name.as_str(), shop.vms, shop.ios), ("shop", 4, 4000));
    assert_eq!(figures.steps[2].machines.len(), 9);
    // Of the first tile all, of the third only the shop's: two machines of three.
    let told: Vec<f64> = figures.steps.iter().map(|step| step.all.within_5ms.unwrap()).collect();
    assert!(told[0] == 1.0 && told[1] == 1.0 && (told[2] - 2.0 / 3.0).abs() < 1e-9, "{told:?}");
}

#[test]
fn the_verdict_is_about_the_tiles_that_were_begun_with() {
    let fails = bundle(&[(4, [25.0, 1.0], 0.0)], Ended::Rules);
    let summary = said(&fails);
    assert_eq!(summary.verdict, Verdict::Fail);
    let missed: Vec<&str> = summary
        .required
        .iter()
        .filter(|one| one.met.met == Some(false))
        .map(|one| one.met.requirement.as_str())
        .collect();
    assert_eq!(missed, ["p70<=20ms", "mail:mean<=20ms"]);
    let of = figures(&fails).unwrap();
    assert_eq!((of.tiles, of.vms, of.at_least), (0, 0, false));
    assert_eq!((vms_of(&fails).unwrap(), of.price), (None, Vec::new()));
    let late = said(&bundle(&[(1, [1.0, 1.0], 15.5)], Ended::Rules));
    let why = &late.required.last().unwrap().met;
    assert_eq!(
        (late.verdict, why.requirement.as_str(), why.met),
        (Verdict::Fail, "end<=15s late", Some(false))
    );
    // Answered when the 15 s were over: its response is told, and it is not counted.
    let mut answered_late = bundle(&[(1, [1.0, 1.0], 15.0)], Ended::Rules);
    answered_late.points[0].streams[0].read.response.record(16_000_000);
    let late = said(&answered_late);
    let why = &late.required.last().unwrap().met;
    assert_eq!((late.verdict, why.met), (Verdict::Fail, Some(false)));
    assert!(why.told.contains("1 answered later"), "{}", why.told);
    let some = bundle(&[(1, [1.0, 1.0], 14.5)], Ended::Most);
    assert_eq!(said(&some).verdict, Verdict::Pass);
    assert!(figures(&some).unwrap().at_least);
}

/// 2% of the I/Os are slow: nobody's mean, and not 30%.
#[test]
fn the_strict_count_asks_for_more() {
    let mut bundle = bundle(&[(1, [1.0, 1.0], 0.0), (2, [1.0, 1.0], 0.0)], Ended::Most);
    for record in &mut bundle.points[1].streams {
        (0..20).for_each(|_| record.read.response.record(50_000_000));
        record.read.ios += 20;
    }
    let figures = figures(&bundle).unwrap();
    assert_eq!((figures.tiles, figures.strict_tiles), (2, 1));
    assert_eq!(figures.steps[1].strict, Some(false));
    assert_eq!(said(&bundle).beside[0].met.met, Some(false));
}

#[test]
fn what_was_lost_at_any_number_of_tiles_makes_it_invalid() {
    let mut bundle = bundle(&[(1, [1.0, 1.0], 0.0), (2, [1.0, 1.0], 0.0)], Ended::Rules);
    bundle.points[1].verification.lost = 1;
    assert_eq!(said(&bundle).verdict, Verdict::Invalid);
    bundle.points[1].verification.lost = 0;
    assert_eq!(said(&bundle).verdict, Verdict::Pass);
    bundle.points[1].cut_short = true;
    assert_eq!((said(&bundle).verdict, figures(&bundle).unwrap().tiles), (Verdict::Pass, 1));
    bundle.points[0].cut_short = true;
    assert_eq!(said(&bundle).verdict, Verdict::Invalid);
}

/// An application of which nothing was asked is under no rule; a price file of another number of machines is told.
#[test]
fn who_is_idle_is_under_no_rule() {
    let mut bundle = bundle(&[(1, [1.0, 1.0], 0.0)], Ended::Most);
    bundle.points[0].streams[0] = StreamRecord::default();
    bundle.run.tiles.as_mut().unwrap().steps[0].streams[0].requests = [0; 5];
    let summary = said(&bundle);
    assert_eq!(summary.verdict, Verdict::Pass);
    assert!(
        !summary.required.iter().any(|one| one.met.requirement.starts_with("mail")),
        "{:?}",
        summary.required
    );
    bundle.run.tiles.as_mut().unwrap().price = Some(format!("vms = 40\n{PRICE}"));
    let price = figures(&bundle).unwrap().price;
    assert!(price[0].contains("of 40 virtual machines, and the run has shown 3"), "{price:?}");
}

/// Goal: what is done beside the tiles counts from the number of tiles on from which it is required; the score is the smaller of the ratios, and their
/// mean is the geometric one.
#[test]
fn operations_are_required_and_scored() {
    let mut bundle = bundle(&[(1, [1.0, 1.0], 0.0), (2, [1.0, 1.0], 0.0)], Ended::Most);
    let seconds = bundle.run.tiles.as_ref().unwrap().steps[0].seconds;
    let record = |name: &str, from: usize, done: usize| OperationRecord {
        name: name.into(),
        steps: vec!["move".into()],
        // Two are required in the time that is replayed.
        least: 2.0 * 3600.0 / seconds,
        from,
        rounds: vec![vec![1.5]; done],
        failure: None,
    };
    let tiled = bundle.run.tiles.as_mut().unwrap();
    tiled.operations = vec![vec![record("deploy", 2, 1), record("migrate", 2, 8)]; 2];
    let figures = figures(&bundle).unwrap();
    assert_eq!(figures.tiles, 1, "of one tile nothing is required, of two it was not done");
    assert!(
        (figures.score.unwrap() - 0.5).abs() < 1e-9
            && (figures.score_mean.unwrap() - 2f64.sqrt()).abs() < 1e-9
    );
    assert_eq!(figures.steps[0].operations[1].steps, [("move".to_owned(), Some(1.5))]);
    let missed = said(&bundle).beside;
    let missed: Vec<&str> = missed.iter().map(|one| one.met.requirement.as_str()).collect();
    assert!(missed.iter().any(|one| one.starts_with("deploy>=")), "{missed:?}");
    assert!(missed.iter().all(|one| !one.starts_with("migrate")), "{missed:?}");
}
