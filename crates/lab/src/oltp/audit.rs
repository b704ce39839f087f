//! What speaks for and against a step, and what a whole run says.
//!
//! The audit's bounds are those of the TPC-C specification, clause 9.2.2.5.1. They are made for runs of hours: where so few
//! transactions were counted that chance alone may leave them, they are widened to 3.29 standard deviations of the binomial
//! (or, for the mean of lines, of the uniform) distribution, which an honest run leaves once in a thousand times.

use super::chain;
use super::input::Kind;
use super::migration;
use super::ramp::Plateau;
use super::record::DatabaseRecord;
use crate::bundle::{Bundle, ENDED_BY};
use crate::measure::Point;
use crate::stats::gates::{self, Gate, LITTLE_MAX, STEADY, State};
use crate::stats::require::{self, Requirement};
use crate::stats::steady::Steadiness;
use crate::verdict::{Judged, Required, Summary, Verdict};
use statrs::distribution::{ChiSquared, ContinuousCDF};
use stonefold_types::{Result, Size};

/// Standard deviations that chance leaves once in a thousand times.
const DEVIATIONS: f64 = 3.29;
/// How likely a mix deviates by chance at least, before it is held against it.
const CHANCE_MIN: f64 = 0.001;
/// Of a uniform draw from 5 to 15.
const LINES_DEVIATION: f64 = 3.1623;
/// Share of attempts that were given up and begun again, above which it is told.
const RETRIES_MAX: f64 = 0.01;
/// Share of processor time above which processors may be what was measured.
const PROCESSORS_MAX: f64 = 0.90;
/// A database must be so many times as large as memory before reads say something about storage.
const FOOTPRINT_MIN: f64 = 1.0;
/// Gates of which a failure in any step voids all of a run: the storage has lost or changed something.
const OF_ALL_STEPS: [&str; 4] = ["consistency", "acknowledged", "page checksums", "errors"];

/// Computes all that a run says.
pub(crate) fn summarise(bundle: &Bundle) -> Result<Summary> {
    if let Some(record) = &bundle.run.migration {
        return migration::summarise(bundle, record);
    }
    if let Some(record) = &bundle.run.chain {
        return chain::summarise(bundle, record);
    }
    let points: Vec<Judged> = bundle.points.iter().map(judge).collect();
    let asked = require::parse(&bundle.run.require)?;
    let plateau = Plateau::of(&bundle.points).map(|plateau| plateau.step);
    let required = match plateau {
        Some(point) => asked.iter().map(|one| at(one, bundle, point)).collect::<Result<Vec<_>>>()?,
        None => Vec::new(),
    };
    let beside = Vec::new();
    let rests_on: Vec<usize> = plateau.into_iter().collect();
    Ok(Summary { verdict: conclude(bundle, &points, &rests_on, &required), points, required, beside })
}

/// The word on a run whose verdict rests on these points.
pub(super) fn conclude(
    bundle: &Bundle,
    points: &[Judged],
    rests_on: &[usize],
    required: &[Required],
) -> Verdict {
    let void = |judged: &Judged| judged.gates.iter().any(|gate| gate.state == State::Void);
    let lost = |judged: &Judged| {
        let of_all = |gate: &Gate| OF_ALL_STEPS.iter().any(|name| gate.name.starts_with(name));
        judged.gates.iter().any(|gate| gate.state == State::Void && of_all(gate))
    };
    // A step that failed in its warm-up has no point that could tell.
    let failed = bundle.run.machine.contains_key(ENDED_BY);
    let nothing = rests_on.is_empty() || rests_on.iter().any(|point| void(&points[*point]));
    let untrue = failed || nothing || points.iter().any(lost);
    match required.iter().map(|one| &one.met).min_by(|a, b| a.worst_first(b)).map(|met| met.met) {
        _ if untrue || (bundle.run.cut_short && required.is_empty()) => Verdict::Invalid,
        Some(Some(false)) => Verdict::Fail,
        Some(None) => Verdict::Inconclusive,
        // What was not measured any more might have shown the opposite.
        Some(Some(true)) if bundle.run.cut_short => Verdict::Inconclusive,
        _ => Verdict::Pass,
    }
}

/// A requirement, held against a point.
pub(super) fn at(requirement: &Requirement, bundle: &Bundle, point: usize) -> Result<Required> {
    let of = &bundle.points[point];
    let streams: Vec<_> = of.loads.iter().map(|load| load.name.as_str()).zip(&of.streams).collect();
    Ok(Required { point, met: requirement.judge(&streams, of.seconds)? })
}

pub(super) fn judge(point: &Point) -> Judged {
    let nothing = DatabaseRecord::default();
    let database = point.database.as_ref().unwrap_or(&nothing);
    let steadiness = Steadiness::of(&point.series);
    let mut gates = vec![steady(steadiness.as_ref())];
    gates.extend(database.checks.iter().map(|check| {
        let state = if check.violations == 0 { State::Pass } else { State::Void };
        gate(&check.name, state, check.why.clone())
    }));
    gates.extend(errors(point, database));
    gates.extend(audit(point, database));
    gates.extend([retries(point, database), little(point, database), processors(point, database)]);
    gates.extend([cache(database), gates::clock(point.clocks_apart)]);
    if point.cut_short {
        gates.push(gate("whole", State::Void, "it was ended before its time".into()));
    }
    Judged {
        name: point.label.clone(),
        iops: point.iops(),
        steadiness,
        fidelity: Vec::new(),
        grade: gates::grade(&gates),
        gates,
    }
}

fn gate(name: &str, state: State, why: String) -> Gate {
    Gate { name: name.into(), state, why }
}

fn steady(steady: Option<&Steadiness>) -> Gate {
    let Some(steady) = steady else {
        return gate(STEADY, State::Void, "fewer than five seconds were measured".into());
    };
    let (rate, p99) = (&steady.iops, &steady.p99);
    let why = format!(
        "transactions: range {:.1}% (20% at most), slope {:+.1}% (10% at most); p99: range {:.1}% (20% at most), slope {:+.1}% (10% at most)",
        rate.range * 100.0,
        rate.slope * 100.0,
        p99.range * 100.0,
        p99.slope * 100.0
    );
    gate(STEADY, if steady.is_steady() { State::Pass } else { State::Void }, why)
}

fn errors(point: &Point, database: &DatabaseRecord) -> Vec<Gate> {
    let failed: u64 = point.streams.iter().map(|record| record.failed()).sum();
    match &database.failure {
        Some(why) => vec![gate("errors", State::Void, why.clone())],
        None if failed > 0 => vec![gate("errors", State::Void, format!("{failed} transactions failed"))],
        None if database.checks.is_empty() => {
            vec![gate("errors", State::Void, "the database was not checked".into())]
        }
        None => vec![gate("errors", State::Pass, "every transaction was answered".into())],
    }
}

/// A share that chance draws: its bounds, and whether it may be called kept.
struct Bounds {
    low: f64,
    high: f64,
    prescribed: f64,
    deviation: f64,
}

impl Bounds {
    /// Of a share of so many.
    fn of_share(low: f64, prescribed: f64, high: f64, of: u64) -> Self {
        let deviation = (prescribed * (1.0 - prescribed) / of.max(1) as f64).sqrt();
        Bounds { low, high, prescribed, deviation }
    }

    /// Wide enough for chance.
    fn widened(&self) -> (f64, f64) {
        let by_chance = DEVIATIONS * self.deviation;
        (self.low.min(self.prescribed - by_chance), self.high.max(self.prescribed + by_chance))
    }
}

fn audit(point: &Point, database: &DatabaseRecord) -> Vec<Gate> {
    let count = |kind: Kind| point.streams[place(kind)].ios();
    let (orders, payments) = (count(Kind::NewOrder), count(Kind::Payment));
    let begun = orders + database.rolled_back;
    let rollbacks = share(
        "rollbacks of New-Orders",
        (database.rolled_back, begun),
        &Bounds::of_share(0.009, 0.01, 0.011, begun),
    );
    let mut audit = vec![mix(point, database), rollbacks, lines(orders, database.lines)];
    if database.warehouses > 1 {
        let of_payments = Bounds::of_share(0.14, 0.15, 0.16, payments);
        audit.push(share("remote payments", (database.remote_payments, payments), &of_payments));
        let of_lines = Bounds::of_share(0.0095, 0.01, 0.0105, database.lines);
        audit.push(share("remote order lines", (database.remote_lines, database.lines), &of_lines));
    }
    audit
}

fn place(kind: Kind) -> usize {
    Kind::MIX.iter().position(|(one, _)| *one == kind).expect("the mix has every kind")
}

fn share(name: &str, (part, of): (u64, u64), bounds: &Bounds) -> Gate {
    let got = part as f64 / of.max(1) as f64;
    let (low, high) = bounds.widened();
    let percent = |share: f64| (share * 100.0).max(0.0);
    let widened = if low < bounds.low { ", widened for so few" } else { "" };
    let why =
        format!("{:.2}% of {of}; {:.2} to {:.2}% may be{widened}", percent(got), percent(low), percent(high));
    let kept = of > 0 && (low..=high).contains(&got);
    gate(name, if kept { State::Pass } else { State::Void }, why)
}

fn lines(orders: u64, lines: u64) -> Gate {
    let bounds = Bounds {
        low: 9.5,
        high: 10.5,
        prescribed: 10.0,
        deviation: LINES_DEVIATION / (orders.max(1) as f64).sqrt(),
    };
    let mean = lines as f64 / orders.max(1) as f64;
    let (low, high) = bounds.widened();
    let kept = orders > 0 && (low..=high).contains(&mean);
    let why = format!("{mean:.2} an order on average; {low:.2} to {high:.2} may be");
    gate("order lines", if kept { State::Pass } else { State::Void }, why)
}

/// Of everything that was begun, by χ². What retries and the sample's edges take is within chance.
fn mix(point: &Point, database: &DatabaseRecord) -> Gate {
    let counts: Vec<f64> = Kind::MIX
        .iter()
        .map(|(kind, _)| {
            let more = if *kind == Kind::NewOrder { database.rolled_back } else { 0 };
            (point.streams[place(*kind)].ios() + more) as f64
        })
        .collect();
    let all: f64 = counts.iter().sum();
    if all == 0.0 {
        return gate("mix", State::Void, "no transaction ended".into());
    }
    let deviation: f64 = counts
        .iter()
        .zip(Kind::MIX)
        .map(|(got, (_, share))| (got - all * share / 100.0).powi(2) / (all * share / 100.0))
        .sum();
    let likely = ChiSquared::new(4.0).map_or(1.0, |chi| 1.0 - chi.cdf(deviation));
    let told: Vec<String> = counts
        .iter()
        .zip(Kind::MIX)
        .map(|(got, (kind, share))| format!("{} {:.1}% ({share})", kind.name(), got / all * 100.0))
        .collect();
    gate("mix", if likely >= CHANCE_MIN { State::Pass } else { State::Void }, told.join(", "))
}

fn retries(point: &Point, database: &DatabaseRecord) -> Gate {
    let again: u64 = database.retries.values().sum();
    let ended: u64 = point.streams.iter().map(|record| record.ios()).sum();
    let codes: Vec<String> =
        database.retries.iter().map(|(code, many)| format!("{many} by {code}")).collect();
    let why = match again {
        0 => "no transaction was given up by PostgreSQL".into(),
        _ => format!("{again} attempts were given up and begun again: {}", codes.join(", ")),
    };
    let many = again as f64 > RETRIES_MAX * ended as f64;
    gate("retries", if many { State::Warn } else { State::Pass }, why)
}

/// Users who do not think are throughput times response time (Little 1961).
fn little(point: &Point, database: &DatabaseRecord) -> Gate {
    let seconds_in: f64 = point
        .streams
        .iter()
        .flat_map(|record| [&record.read, &record.write])
        .map(|side| side.ios as f64 * (side.response.mean() / 1e9 + database.think_seconds))
        .sum();
    let measured = seconds_in / point.seconds.max(1e-9);
    let apart = (measured / f64::from(database.users.max(1)) - 1.0).abs();
    let why = format!("{} users, {measured:.2} by throughput × response time", database.users);
    gate("Little's law", if apart <= LITTLE_MAX { State::Pass } else { State::Fail }, why)
}

/// Whether it may have been processors that were measured.
fn processors(point: &Point, database: &DatabaseRecord) -> Gate {
    let why = format!(
        "{:.0}% busy, {:.0}% waiting for storage; the users themselves took {:.0}%",
        database.processors_busy * 100.0,
        database.processors_waiting * 100.0,
        point.busy * 100.0
    );
    gates::processors(database.processors_busy, PROCESSORS_MAX, why)
}

/// Whether reads may have reached the storage.
fn cache(database: &DatabaseRecord) -> Gate {
    let of = |cache: u64| database.database_bytes as f64 / cache.max(1) as f64;
    let pages = (database.pages_read + database.pages_found).max(1) as f64;
    let why = format!(
        "footprint ÷ cache: {:.2} of PostgreSQL's buffers ({}), {:.2} of the machine's memory ({}); {:.1}% of pages were in the buffers",
        of(database.buffer_bytes),
        Size(database.buffer_bytes),
        of(database.memory_bytes),
        Size(database.memory_bytes),
        database.pages_found as f64 / pages * 100.0
    );
    match of(database.memory_bytes) < FOOTPRINT_MIN {
        true => {
            let why = format!(
                "{why}: the page cache takes it all, and the storage sees each page read once at most"
            );
            gate("cache", State::Warn, why)
        }
        false => gate("cache", State::Pass, why),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::measure::PointLoad;
    use crate::oltp::record::{Check, nopm};
    use crate::record::{Second, StreamRecord};

    /// A step of 100 s in which everything is as it has to be: 100 transactions a second of 10 users, 100 ms each.
    pub(crate) fn point() -> Point {
        let mut point = Point {
            step: "ramp".into(),
            label: "10 users".into(),
            loads: Vec::new(),
            footprint: 1.0,
            seconds: 100.0,
            streams: Vec::new(),
            series: Vec::new(),
            before: Vec::new(),
            verification: crate::verify::Verification::default(),
            busy: 0.1,
            effort: None,
            ceiling: 0.0,
            clocks_apart: 0.0,
            reduced: Vec::new(),
            reconciled: None,
            uncounted: None,
            unsettled: crate::measure::Unsettled::default(),
            written: None,
            cut_short: false,
            workers: Vec::new(),
            outage: None,
            task: None,
            probe: None,
            machine_cpu: None,
            database: None,
        };
        for (stream, (kind, share)) in Kind::MIX.iter().enumerate() {
            let mut record = StreamRecord::default();
            let side = if kind.is_read() { &mut record.read } else { &mut record.write };
            side.ios = (share * 100.0) as u64 - if *kind == Kind::NewOrder { 45 } else { 0 };
            (0..side.ios).for_each(|_| side.response.record(100_000_000));
            point.streams.push(record);
            point.loads.push(PointLoad {
                stream,
                name: kind.name().into(),
                outstanding: None,
                rate: None,
                arrivals: None,
            });
        }
        point.series = (0..100)
            .map(|_| {
                let mut second = Second { writes: 100, ..Second::new() };
                (0..100).for_each(|_| second.response.record(100_000_000));
                second
            })
            .collect();
        let check = |name: &str| Check { name: name.into(), violations: 0, why: "holds".into() };
        point.database = Some(DatabaseRecord {
            users: 10,
            warehouses: 10,
            rolled_back: 45,
            lines: 44_550,
            remote_lines: 445,
            remote_payments: 645,
            checks: vec![check("consistency 1: of a test"), check("acknowledged orders")],
            database_bytes: 4 << 30,
            buffer_bytes: 1 << 30,
            memory_bytes: 2 << 30,
            ..DatabaseRecord::default()
        });
        point
    }

    /// The states of the gates that are not passed when the point was changed so.
    fn against(change: impl FnOnce(&mut Point, &mut DatabaseRecord)) -> Vec<(String, State)> {
        let mut point = point();
        let mut database = point.database.take().unwrap();
        change(&mut point, &mut database);
        point.database = Some(database);
        let judged = judge(&point);
        judged
            .gates
            .into_iter()
            .filter(|gate| gate.state != State::Pass)
            .map(|gate| (gate.name, gate.state))
            .collect()
    }

    fn only(name: &str, state: State) -> Vec<(String, State)> {
        vec![(name.to_owned(), state)]
    }

    #[test]
    fn each_gate_closes_by_itself() {
        assert_eq!(against(|_, _| {}), []);
        assert_eq!(against(|_, d| d.rolled_back = 120).last().unwrap().0, "rollbacks of New-Orders");
        assert_eq!(against(|_, d| d.lines = 40_000)[0], only("order lines", State::Void)[0]);
        assert_eq!(against(|_, d| d.remote_payments = 400), only("remote payments", State::Void));
        assert_eq!(against(|_, d| d.remote_lines = 700), only("remote order lines", State::Void));
        assert_eq!(against(|p, _| p.streams[2].read.ios = 250)[0].0, "mix");
        assert_eq!(against(|_, d| d.checks[0].violations = 1), only("consistency 1: of a test", State::Void));
        assert_eq!(against(|_, d| d.failure = Some("gone".into())), only("errors", State::Void));
        assert_eq!(against(|_, d| d.checks.clear()), only("errors", State::Void));
        assert_eq!(
            against(|_, d| d.retries = [("40P01".to_owned(), 500)].into()),
            only("retries", State::Warn)
        );
        assert_eq!(against(|_, d| d.users = 12), only("Little's law", State::Fail));
        assert_eq!(against(|_, d| d.processors_busy = 0.95), only("processors", State::Warn));
        assert_eq!(against(|_, d| d.memory_bytes = 8 << 30), only("cache", State::Warn));
        assert_eq!(against(|p, _| p.clocks_apart = 3.0)[0].0, "clock");
        assert_eq!(against(|p, _| p.cut_short = true), only("whole", State::Void));
        assert_eq!(against(|p, _| p.series.truncate(3)), only(STEADY, State::Void));
    }

    /// The bounds are the specification's where there are enough transactions, and chance's where there are not.
    #[test]
    fn bounds_are_widened_for_few() {
        let (low, high) = Bounds::of_share(0.009, 0.01, 0.011, 10_000_000).widened();
        assert_eq!((low, high), (0.009, 0.011));
        let (low, high) = Bounds::of_share(0.009, 0.01, 0.011, 1_000).widened();
        assert!((0.0201..0.0205).contains(&high) && low < 0.0, "{low} {high}");
    }

    #[test]
    fn an_only_warehouse_has_no_others() {
        let gates = against(|_, d| {
            d.warehouses = 1;
            d.remote_payments = 0;
            d.remote_lines = 0;
        });
        assert_eq!(gates, []);
    }

    #[test]
    fn a_rate_is_of_what_committed() {
        assert!((nopm(&point()) - 4_455.0 / 100.0 * 60.0).abs() < 1e-6);
    }
}
