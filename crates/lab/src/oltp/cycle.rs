//! Users at work on a running server for a while: what is measured of them, of PostgreSQL and of the machine meanwhile.

use super::input::{Inputs, Kind};
use super::loading;
use super::record::DatabaseRecord;
use super::server::Server;
use super::step::Run;
use super::transactions::Session;
use super::users::{Acknowledged, Ledger, Step, Times, told};
use crate::machine::{self, Processors};
use crate::measure::{Doing, Point, PointLoad, Unsettled};
use crate::payload::mix;
use crate::record::Second;
use crate::verify::Verification;
use postgres::Client;
use std::thread::ScopedJoinHandle;
use std::time::Duration;
use stonefold_types::{Error, Kind as ErrorKind, Result};

/// How long transactions under way at the end are waited for, before the server is told to break them off.
const GRACE: Duration = Duration::from_secs(60);
/// How often users and server are looked after.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long a server that broke its connections may take to end, so that its log tells why.
const DEATH_MAX: Duration = Duration::from_secs(3);

/// PostgreSQL's own counters.
#[derive(Clone, Copy, Default)]
struct Counters {
    pages_read: i64,
    pages_found: i64,
    log_bytes: i64,
}

/// What is measured of the machine and of PostgreSQL at both ends of a sample.
pub(super) struct Marks {
    processors: Processors,
    own: Duration,
    /// Wall clock less steady clock, in seconds.
    clocks: f64,
    at: Duration,
    counters: Counters,
}

/// Which users work, and what that is called.
pub(super) struct Wanted {
    pub step: String,
    pub label: String,
    pub users: u32,
    /// Sets its draws apart from those of others with as many users.
    pub number: u32,
    /// How long it took to restore the database before.
    pub restore_seconds: f64,
}

/// What came of it.
pub(super) struct Cycle {
    /// Without what is checked of the database.
    pub record: DatabaseRecord,
    /// What each user was told to be committed.
    pub acknowledged: Vec<Acknowledged>,
    /// Why it is not whole.
    pub failure: Option<Error>,
    ledger: Ledger,
    marks: Vec<Marks>,
    cut_short: bool,
}

impl Cycle {
    /// That were committed within the sample.
    pub(super) fn transactions(&self) -> u64 {
        self.ledger.streams.iter().map(|record| record.ios()).sum()
    }
}

impl Run<'_> {
    /// Lets users work for a warm-up and a sample.
    pub(super) fn cycle(&self, wanted: &Wanted, server: &mut Server, watcher: &mut Client) -> Result<Cycle> {
        let env = self.host.env;
        let sessions = self.sessions(server, wanted)?;
        let (begin, warm_up) = (env.monotonic(), self.scale.warm_up);
        let sample = begin + warm_up;
        let times = Times { begin, sample, end: sample + self.scale.sample, think: self.scale.think };
        let control = self.reins.begin(Doing {
            what: wanted.label.clone(),
            length: Some(warm_up + self.scale.sample),
            since: begin,
            transactions: true,
            ..Doing::default()
        });
        let step = Step { env, times, control: &control, ledger: Ledger::default().into() };
        let (acknowledged, marks) = self.go(&step, sessions, server, watcher)?;
        let mut ledger = step.ledger.into_inner();
        let cut_short = control.is_stopped();
        let mut record = self.record(wanted, &mut ledger, &marks);
        let failure = record.failure.take().map(|first| {
            let why = self.why(server, &first);
            record.failure = Some(why.what());
            why.context(wanted.label.clone())
        });
        Ok(Cycle { record, acknowledged, failure, ledger, marks, cut_short })
    }

    fn sessions(&self, server: &Server, wanted: &Wanted) -> Result<Vec<(Session, Inputs)>> {
        let of_step = (u64::from(wanted.number) << 48) | (u64::from(wanted.users) << 32);
        (0..wanted.users)
            .map(|user| {
                loading::check(self.reins)?;
                let session = Session::new(server.connect()?)
                    .map_err(|e| loading::failed("preparing a user's statements", &e))?;
                let seed = mix(self.plan.seed ^ (of_step | (u64::from(user) + 1)));
                Ok((session, Inputs::new(seed, self.uneven, self.scale.warehouses)))
            })
            .collect()
    }

    /// Lets the users work until the end, and looks after them and the server meanwhile.
    fn go(
        &self,
        step: &Step<'_>,
        sessions: Vec<(Session, Inputs)>,
        server: &mut Server,
        watcher: &mut Client,
    ) -> Result<(Vec<Acknowledged>, Vec<Marks>)> {
        std::thread::scope(|scope| {
            let mut threads: Vec<ScopedJoinHandle<'_, Acknowledged>> = Vec::new();
            for (number, (session, inputs)) in sessions.into_iter().enumerate() {
                let named = std::thread::Builder::new().name(format!("user-{}", number + 1));
                match named.spawn_scoped(scope, move || step.work(session, inputs)) {
                    Ok(thread) => threads.push(thread),
                    Err(error) => {
                        step.control.stop();
                        return Err(Error::io("starting a user's thread", error));
                    }
                }
            }
            let marks = self.look_after(step, &threads, server, watcher);
            let join = |thread: ScopedJoinHandle<'_, Acknowledged>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            Ok((threads.into_iter().map(join).collect(), marks))
        })
    }

    /// Until every user has gone. Returns what was seen when the sample began and ended.
    fn look_after(
        &self,
        step: &Step<'_>,
        threads: &[ScopedJoinHandle<'_, Acknowledged>],
        server: &mut Server,
        watcher: &mut Client,
    ) -> Vec<Marks> {
        let env = self.host.env;
        let (mut marks, mut told, mut stopped_at, mut broken) = (Vec::new(), 0, None, false);
        while !threads.iter().all(ScopedJoinHandle::is_finished) {
            let now = env.monotonic();
            let due = if marks.is_empty() { step.times.sample } else { step.times.end };
            if now >= due && marks.len() < 2 {
                marks.push(self.mark(watcher));
            }
            if server.ended().is_some() {
                step.control.stop();
            }
            if now >= step.times.end || step.control.is_stopped() {
                let since = *stopped_at.get_or_insert(now);
                if !broken && now - since > GRACE {
                    step.ledger.lock().failure.get_or_insert_with(|| {
                        format!("transactions were not answered within {} s", GRACE.as_secs())
                    });
                    server.break_off();
                    broken = true;
                }
            }
            report(step, now, &mut told);
            std::thread::sleep(LOOK_EVERY);
        }
        if marks.len() == 1 {
            marks.push(self.mark(watcher));
        }
        marks
    }

    fn mark(&self, watcher: &mut Client) -> Marks {
        let env = self.host.env;
        Marks {
            processors: machine::processors(),
            own: machine::own_processor_time(),
            clocks: env.wall() as f64 / 1e9 - env.monotonic().as_secs_f64(),
            at: env.monotonic(),
            counters: counters(watcher).unwrap_or_default(),
        }
    }

    fn record(&self, wanted: &Wanted, ledger: &mut Ledger, marks: &[Marks]) -> DatabaseRecord {
        let mut record = DatabaseRecord {
            users: wanted.users,
            warehouses: self.scale.warehouses,
            think_seconds: self.scale.think.as_secs_f64(),
            rolled_back: ledger.rolled_back,
            lines: ledger.lines,
            remote_lines: ledger.remote_lines,
            remote_payments: ledger.remote_payments,
            retries: std::mem::take(&mut ledger.retries),
            database_bytes: self.database_bytes,
            buffer_bytes: self.scale.buffer_bytes,
            memory_bytes: machine::memory_bytes(),
            restore_seconds: wanted.restore_seconds,
            failure: ledger.failure.take(),
            ..DatabaseRecord::default()
        };
        if let [from, to] = marks {
            (record.processors_busy, record.processors_waiting) = to.processors.since(&from.processors);
            let more = |value: fn(&Counters) -> i64| {
                u64::try_from(value(&to.counters) - value(&from.counters)).unwrap_or(0)
            };
            record.pages_read = more(|counters| counters.pages_read);
            record.pages_found = more(|counters| counters.pages_found);
            record.log_bytes = more(|counters| counters.log_bytes);
        }
        record
    }

    /// What ended the step: the server's last words where it has gone, else what the first user was told.
    fn why(&self, server: &mut Server, first: &str) -> Error {
        let env = self.host.env;
        let patience = env.monotonic() + DEATH_MAX;
        while env.monotonic() < patience {
            if let Some(status) = server.ended() {
                return server.died(status).remedy("look into the target and the machine's log");
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let said = server.complaints();
        let no_space = first.contains("No space left on device") || said.contains("No space left on device");
        let kind = if no_space { ErrorKind::NoSpace } else { ErrorKind::Io };
        let told = if said.is_empty() { String::new() } else { format!("; PostgreSQL's log: {said}") };
        Error::new(kind, format!("a transaction failed: {first}{told}"))
    }

    /// Nothing where it ended before it had a sample to tell of.
    pub(super) fn point(&self, wanted: &Wanted, cycle: Cycle) -> Option<Point> {
        let Cycle { record, ledger, marks, cut_short, .. } = cycle;
        let [from, to] = &marks[..] else { return None };
        let sampled = if cut_short { to.at.saturating_sub(from.at) } else { self.scale.sample };
        let seconds = sampled.min(self.scale.sample).as_secs_f64();
        if seconds < 1.0 {
            return None;
        }
        let load = |(stream, (kind, _)): (usize, &(Kind, f64))| PointLoad {
            stream,
            name: kind.name().into(),
            outstanding: None,
            rate: None,
            arrivals: None,
        };
        let cores = machine::cores() as f64;
        let whole = seconds.ceil() as usize;
        let mut series = ledger.series;
        series.resize_with(whole, Second::new);
        Some(Point {
            step: wanted.step.clone(),
            label: wanted.label.clone(),
            loads: Kind::MIX.iter().enumerate().map(load).collect(),
            footprint: 1.0,
            seconds,
            streams: ledger.streams.into(),
            series,
            before: ledger.before,
            unsettled: Unsettled::default(),
            verification: Verification::default(),
            busy: (to.own.saturating_sub(from.own)).as_secs_f64() / (seconds * cores).max(1e-9),
            effort: None,
            ceiling: 0.0,
            clocks_apart: to.clocks - from.clocks,
            reduced: Vec::new(),
            reconciled: None,
            uncounted: None,
            written: None,
            cut_short,
            workers: Vec::new(),
            outage: None,
            task: None,
            probe: None,
            machine_cpu: None,
            database: Some(record),
        })
    }
}

/// Tells whoever watches of each second that has passed.
fn report(step: &Step<'_>, now: Duration, told: &mut usize) {
    let Some(passed) = now.checked_sub(step.times.begin) else { return };
    let before = (step.times.sample - step.times.begin).as_secs() as usize;
    while *told < passed.as_secs() as usize {
        let ledger = step.ledger.lock();
        let second = match told.checked_sub(before) {
            None => ledger.before.get(*told),
            Some(of_sample) => ledger.series.get(of_sample),
        };
        step.control.report(*told, &second.cloned().unwrap_or_default());
        *told += 1;
    }
}

fn counters(client: &mut Client) -> Result<Counters> {
    let asked = "SELECT blks_read::int8, blks_hit::int8, pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::int8 \
                 FROM pg_stat_database WHERE datname = current_database()";
    let row = client.query_one(asked, &[]).map_err(|e| Error::new(ErrorKind::Io, told(&e)))?;
    Ok(Counters { pages_read: row.get(0), pages_found: row.get(1), log_bytes: row.get(2) })
}
