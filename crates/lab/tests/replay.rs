//! Traces replayed on targets that tell what they were asked.
//!
//! Goal: a target is asked for what was captured, where and when it was captured, at any speed, on any number of tiles.

mod nbdkit;

use nbdkit::Nbdkit;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use stonefold_env::{Env, SystemWorld};
use stonefold_lab::bundle::{self, Run};
use stonefold_lab::counters::{Counters, Counts};
use stonefold_lab::measure::{Point, Reins};
use stonefold_lab::replay::{self, DRIFT_MAX, Layout, Plan};
use stonefold_lab::rig::RigOptions;
use stonefold_lab::stats::gates::State;
use stonefold_lab::trace::fit::Mode;
use stonefold_lab::trace::{End, Header, Op, Reason, Record, Totals, Trace, write};
use stonefold_lab::verdict::{self, Summary, Verdict};

const DEVICE_BYTES: u64 = 64 << 20;

/// Reads and writes only, for a second.
fn without_zeroings() -> Arc<Trace> {
    requests(1.0, 400, |number| number % 20 < 7)
}

/// `rate` requests a second for `seconds`: reads and writes of several sizes here and there, and now and then the others.
fn trace(seconds: f64, rate: u64) -> Arc<Trace> {
    requests(seconds, rate, |_| true)
}

/// Those of them that are wanted.
fn requests(seconds: f64, rate: u64, wanted: impl Fn(u64) -> bool) -> Arc<Trace> {
    let one = |number: u64| {
        // Multiples alone would be spread so evenly that nothing is asked for twice.
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32;
        let (op, bytes) = match number % 20 {
            7 => (Op::Flush, 0),
            11 => (Op::Trim, 64 << 10),
            13 => (Op::Zero, 32 << 10),
            even if even % 2 == 0 => (Op::Read, 4096 << (number / 20 % 3)),
            _ => (Op::Write, 4096 << (number / 20 % 3)),
        };
        let offset = if op == Op::Flush { 0 } else { place % ((DEVICE_BYTES - (64 << 10)) / 4096) * 4096 };
        let fua = op == Op::Write && number % 20 == 1;
        Record { at: number * 1_000_000_000 / rate, op, fua, queue: 0, offset, bytes, took: None }
    };
    let records: Vec<Record> =
        (0..(seconds * rate as f64) as u64).filter(|number| wanted(*number)).map(one).collect();
    let header = Header {
        started: 0,
        device_bytes: DEVICE_BYTES,
        tick_nanos: 1_000,
        has_took: false,
        name: "web".into(),
        source: "a test".into(),
    };
    let (reason, length) = (Reason::Stopped, (seconds * 1e9) as u64);
    let end = End { reason, length, dropped: 0, left_out: 0, totals: Totals::default() };
    Arc::new(Trace::of(write(header, &records, end), false).unwrap())
}

fn plan(trace: Arc<Trace>, target: &str) -> Plan {
    Plan {
        traces: vec![("web".into(), trace)],
        tiles: 1,
        speed: 1.0,
        length: None,
        size: None,
        mode: Mode::Scale,
        targets: vec![target.parse().unwrap()],
        options: RigOptions { threads: 1, verify: true, seed: 5, destroy_data: false, lasting: false },
        counters: Vec::new(),
    }
}

fn run(plan: &Plan) -> (Point, Summary, Layout) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let env = Env::new(SystemWorld::new(runtime.handle().clone(), 1).unwrap());
    let layout = Layout::new(plan).unwrap();
    let mut points = replay::run(&env, plan, &layout, &Reins::new()).unwrap();
    let verified = plan.targets[0].to_string() != "null:";
    let dir = tempfile::tempdir().unwrap();
    let kept = Run { verified, ..record(&layout) };
    bundle::save(dir.path(), &kept, "# none\n", &points).unwrap();
    let summary = verdict::summarise(&bundle::load(dir.path()).unwrap()).unwrap();
    (points.remove(0), summary, layout)
}

fn record(layout: &Layout) -> Run {
    Run {
        format: Run::FORMAT,
        version: "0".into(),
        profile: "replay".into(),
        locked: true,
        quick: false,
        targets: vec!["null:".into()],
        seed: 5,
        threads: 1,
        verified: true,
        bytes: DEVICE_BYTES,
        require: String::new(),
        began: 0,
        reproduce: String::new(),
        machine: std::collections::BTreeMap::new(),
        cut_short: false,
        replay: Some(layout.replayed.clone()),
        ..Run::default()
    }
}

/// The gates that say something against it, but for what a busy machine does to any load.
fn against(summary: &Summary) -> Vec<String> {
    let gates = summary.points[0].gates.iter();
    let told = gates.filter(|gate| {
        let of_machine = ["punctual", "generator", "processors", "timing drift"];
        gate.state > State::Pass && !of_machine.contains(&gate.name.as_str())
    });
    told.map(|gate| format!("{}: {}", gate.name, gate.why)).collect()
}

fn drift(point: &Point) -> f64 {
    point
        .streams
        .iter()
        .filter_map(|record| record.timing.drift())
        .fold(0.0, |most, drift| drift.abs().max(most))
}

/// The lab's acceptance.
#[test]
fn a_replay_keeps_the_time_of_its_trace_at_any_speed() {
    let trace = trace(4.0, 2000);
    for (speed, seconds) in [(1.0, 4.0), (2.0, 2.0), (0.5, 8.0)] {
        // A busy machine may hold up the last request of one replay; one that drifts does so every time.
        let mut drifts = Vec::new();
        let (point, summary, _) = loop {
            let replayed = run(&Plan { speed, ..plan(trace.clone(), "null:") });
            drifts.push(drift(&replayed.0));
            if drift(&replayed.0) <= DRIFT_MAX {
                break replayed;
            }
            assert!(drifts.len() < 3, "speed {speed}: drifts {drifts:?}");
        };
        let timing = point.streams[0].timing;
        let (first, last) = (timing.first_meant as f64 / 1e9, timing.last_meant as f64 / 1e9);
        assert!(first < 0.001 && (last - (seconds - 0.0005 / speed)).abs() < 0.001, "{first} to {last}");
        assert_eq!(timing.count, 8000);
        assert!((point.seconds - seconds).abs() < 0.1, "{}", point.seconds);
        // What null: answers nobody can look at.
        assert_eq!(against(&summary), ["verification: what was read was not looked at"]);
    }
}

#[test]
fn a_file_is_asked_for_all_of_it_and_holds_what_it_must() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let target = format!("file:{}", dir.path().join("disk").display());
    let (point, summary, layout) = run(&Plan { tiles: 3, ..plan(trace(3.0, 400), &target) });
    assert_eq!(layout.replayed.streams.len(), 3);
    assert_eq!(layout.replayed.streams[1].phase, 1.0);
    for (record, plan) in point.streams.iter().zip(&layout.replayed.streams) {
        assert_eq!(record.requests, [600, 420, 60, 60, 60]);
        assert_eq!((record.requests, record.unissued, record.skipped), (plan.requests, 0, 0));
        assert_eq!(record.control.ios, 180);
    }
    assert!(drift(&point) <= 2.0 * DRIFT_MAX, "{}", drift(&point));
    assert!(point.verification.right > 0 && point.verification.free > 0);
    assert_eq!(
        point.verification.faults() + point.verification.unwritten,
        0,
        "{:?}",
        point.verification.findings
    );
    assert_eq!(against(&summary), Vec::<String>::new());
    assert_eq!(summary.required.len(), 4, "one for all, one for each stream");
    assert_eq!(summary.beside.len(), 1);
}

/// An nbdkit that writes down what it is asked.
fn nbdkit(arguments: &[&str]) -> Nbdkit {
    let dir = tempfile::tempdir().unwrap();
    let log = format!("logfile={}", dir.path().join("log").display());
    Nbdkit::start(dir, &[&["--filter=log"], arguments, &[&log]].concat())
}

/// What it was asked since there were so many lines, one line each: kind, offset, count, FUA.
fn asked(nbdkit: &Nbdkit, since: usize) -> Vec<(String, u64, u64, bool)> {
    let parse = |line: &str| {
        // `… connection=1 Write id=5 offset=0x1000 count=0x200 fua=0 …`; its answer begins with `...`.
        let words: Vec<&str> = line.split_whitespace().collect();
        let value = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)).map(str::to_owned);
        let hex = |name: &str| {
            let value = value(name)?;
            u64::from_str_radix(value.trim_start_matches("0x"), 16).ok()
        };
        let kind = words.iter().find(|word| ["Read", "Write", "Flush", "Trim", "Zero"].contains(word))?;
        value("id=")?;
        let (offset, count) = (hex("offset=").unwrap_or(0), hex("count=").unwrap_or(0));
        Some(((*kind).to_owned(), offset, count, value("fua=").as_deref() == Some("1")))
    };
    lines(nbdkit.dir.path()).iter().skip(since).filter_map(|line| parse(line)).collect()
}

fn lines(dir: &Path) -> Vec<String> {
    std::fs::read_to_string(dir.join("log")).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn the_target_itself_counts_what_the_trace_has() {
    let nbdkit = nbdkit(&["memory", "64M"]);
    let trace = trace(3.0, 300);
    let (point, summary, _) = run(&plan(trace.clone(), &nbdkit.target()));
    assert_eq!(point.verification.faults(), 0, "{:?}", point.verification.findings);
    assert_eq!(against(&summary), Vec::<String>::new());
    // It was filled by 512 writes of 128 KiB, and all of it was looked at before, in pieces of 64 KiB.
    let fill: usize =
        asked(&nbdkit, 0).iter().filter(|(kind, _, bytes, _)| kind == "Write" && *bytes == 128 << 10).count();
    assert_eq!(fill, 512);
    let mut asked: Vec<_> = asked(&nbdkit, 0)
        .into_iter()
        .filter(|(kind, _, bytes, _)| !(kind == "Write" && *bytes == 128 << 10))
        .collect();
    asked.drain(..1024);
    let word = |record: &Record| match record.op {
        Op::Read => "Read",
        Op::Write => "Write",
        Op::Flush => "Flush",
        Op::Trim => "Trim",
        Op::Zero => "Zero",
    };
    let mut meant: Vec<_> = trace
        .records()
        .map(|record| (word(&record).to_owned(), record.offset, record.bytes, record.fua))
        .collect();
    // Several connections bring them in whatever order.
    asked.sort();
    meant.sort();
    assert_eq!(asked.len(), 900);
    assert!(asked == meant, "{:?}", asked.iter().zip(&meant).find(|(a, b)| a != b));
}

#[test]
fn a_target_that_is_slow_fails_by_the_rules_and_one_that_is_small_is_told_of() {
    let slow = nbdkit(&["--filter=delay", "memory", "64M", "rdelay=25ms", "wdelay=25ms"]);
    let (_, summary, _) =
        run(&Plan { length: Some(Duration::from_secs(2)), ..plan(trace(1.0, 100), &slow.target()) });
    assert_eq!(summary.verdict, Verdict::Fail);
    assert!(summary.required.iter().all(|one| one.met.met == Some(false)), "{:?}", summary.required);
    let small = nbdkit(&["memory", "16M"]);
    for mode in [Mode::Scale, Mode::Wrap] {
        let (point, summary, layout) = run(&Plan { mode, ..plan(trace(1.0, 200), &small.target()) });
        assert_eq!(layout.workload.volumes[0].bytes, 16 << 20);
        assert!(
            against(&summary)[0].starts_with("as captured: 1 volumes are smaller"),
            "{:?}",
            against(&summary)
        );
        assert_eq!((point.streams[0].requests.iter().sum::<u64>(), point.verification.faults()), (200, 0));
    }
}

/// A target that takes no zeroings is not asked for them, and that is told.
#[test]
fn what_a_target_cannot_be_asked_for_is_counted() {
    let nbdkit = nbdkit(&["--filter=nozero", "memory", "64M", "zeromode=none"]);
    let (point, summary, _) = run(&plan(trace(1.0, 200), &nbdkit.target()));
    assert_eq!(point.streams[0].skipped, 10);
    assert_eq!(point.verification.faults(), 0, "{:?}", point.verification.findings);
    assert!(against(&summary)[0].contains("10 requests were passed over"), "{:?}", against(&summary));
    assert!(!asked(&nbdkit, 0).iter().any(|(kind, ..)| kind == "Zero"));
}

/// A target that says it was asked for nothing.
#[derive(Debug)]
struct Silent;

impl Counters for Silent {
    fn counts(&self) -> stonefold_types::Result<Counts> {
        Ok(Counts::default())
    }
}

#[test]
fn a_target_that_counts_something_else_is_told() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let target = format!("file:{}", dir.path().join("disk").display());
    let silent = Plan { counters: vec![Arc::new(Silent)], ..plan(trace(1.0, 400), &target) };
    // Devices count what is zeroed as written, and others do not: with such nothing is said.
    let (point, ..) = run(&silent);
    assert_eq!(point.reconciled, None);
    let (point, summary, _) = run(&Plan { traces: vec![("web".into(), without_zeroings())], ..silent });
    assert!(point.reconciled.is_some_and(|both| both.answered.read_bytes > 0));
    let gate = summary.points[0].gates.iter().find(|gate| gate.name == "target's counters").unwrap();
    assert_eq!(gate.state, State::Fail, "{}", gate.why);
    assert_eq!(point.reduced.len(), 1);
}
