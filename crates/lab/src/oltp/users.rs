//! Users: each a thread with a connection, who begins the next transaction when the one before has ended.
//!
//! *Promises*: a transaction counts in the second in which its commit was acknowledged; what was acknowledged at any time
//! is remembered, so that it can be looked for. *Never*: leaves a transaction without an end, but for a server that gives none.

use super::input::{Inputs, Kind};
use super::transactions::{Done, OrderKey, Session};
use crate::load::Control;
use crate::record::{Second, StreamRecord};
use parking_lot::Mutex;
use postgres::error::SqlState;
use std::collections::BTreeMap;
use std::time::Duration;
use stonefold_env::Env;

/// How often a user who thinks looks whether to end.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The times of a step, by the steady clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub begin: Duration,
    pub sample: Duration,
    pub end: Duration,
    /// Mean time between a user's transactions.
    pub think: Duration,
}

/// What all users of a step write down.
#[derive(Default)]
pub(super) struct Ledger {
    /// By kind, in the order of [`Kind::MIX`]; within the sample.
    pub streams: [StreamRecord; 5],
    pub before: Vec<Second>,
    pub series: Vec<Second>,
    pub rolled_back: u64,
    pub lines: u64,
    pub remote_lines: u64,
    pub remote_payments: u64,
    pub retries: BTreeMap<String, u64>,
    /// What ended it, where something went wrong.
    pub failure: Option<String>,
}

/// What one user has been told to be committed, at any time of the step.
#[derive(Clone, Debug, Default)]
pub(super) struct Acknowledged {
    pub orders: Vec<OrderKey>,
    pub paid_cents: i64,
}

/// What the users of a step share.
pub(super) struct Step<'a> {
    pub env: &'a Env,
    pub times: Times,
    pub control: &'a Control,
    pub ledger: Mutex<Ledger>,
}

/// One transaction that has ended.
struct Ended {
    kind: Kind,
    done: Done,
    /// When it was meant to begin, when its last attempt did, and when it ended.
    meant: Duration,
    began: Duration,
    ended: Duration,
    lines: u64,
    remote: u64,
}

impl Step<'_> {
    /// Goes on until the step ends.
    pub(super) fn work(&self, mut session: Session, mut inputs: Inputs) -> Acknowledged {
        let mut acknowledged = Acknowledged::default();
        loop {
            self.think(&mut inputs);
            let meant = self.env.monotonic();
            if meant >= self.times.end || self.control.is_stopped() {
                return acknowledged;
            }
            let (kind, input) = inputs.draw();
            let (began, done) = loop {
                let began = self.env.monotonic();
                match session.run(&input) {
                    Ok(done) => break (began, done),
                    Err(error) => match worth_a_retry(&error) {
                        Some(state) if !self.control.is_stopped() => self.retry(state),
                        Some(_) => return acknowledged,
                        None => {
                            self.fail(kind, &error);
                            return acknowledged;
                        }
                    },
                }
            };
            let ended = self.env.monotonic();
            match done {
                Done::Ordered(key) => acknowledged.orders.push(key),
                Done::Paid(cents) => acknowledged.paid_cents += i64::from(cents),
                Done::Regretted | Done::Other => {}
            }
            let (lines, remote) = input.remote();
            self.ended(&Ended { kind, done, meant, began, ended, lines, remote });
        }
    }

    fn think(&self, inputs: &mut Inputs) {
        if self.times.think.is_zero() {
            return;
        }
        let until = self.env.monotonic() + self.times.think.mul_f64(inputs.thought());
        let until = until.min(self.times.end);
        while let Some(left) = until.checked_sub(self.env.monotonic()).filter(|left| !left.is_zero()) {
            if self.control.is_stopped() {
                return;
            }
            std::thread::sleep(left.min(LOOK_EVERY));
        }
    }

    fn ended(&self, one: &Ended) {
        let Times { begin, sample, end, .. } = self.times;
        let response = nanos(one.ended - one.meant);
        let mut ledger = self.ledger.lock();
        let committed = one.done != Done::Regretted;
        if one.ended < sample {
            if committed {
                second(&mut ledger.before, one.ended - begin, one.kind, response);
            }
            return;
        }
        if one.ended >= end {
            return;
        }
        if !committed {
            ledger.rolled_back += 1;
            return;
        }
        second(&mut ledger.series, one.ended - sample, one.kind, response);
        let place = Kind::MIX.iter().position(|(kind, _)| *kind == one.kind).expect("the mix has every kind");
        let record = &mut ledger.streams[place];
        let side = if one.kind.is_read() { &mut record.read } else { &mut record.write };
        side.ios += 1;
        side.response.record(response);
        side.service.record(nanos(one.ended - one.began));
        match one.kind {
            Kind::NewOrder => {
                ledger.lines += one.lines;
                ledger.remote_lines += one.remote;
            }
            Kind::Payment => ledger.remote_payments += one.remote,
            _ => {}
        }
    }

    fn retry(&self, state: &str) {
        *self.ledger.lock().retries.entry(state.to_owned()).or_default() += 1;
    }

    fn fail(&self, kind: Kind, error: &postgres::Error) {
        let mut ledger = self.ledger.lock();
        let place = Kind::MIX.iter().position(|(one, _)| *one == kind).expect("the mix has every kind");
        *ledger.streams[place].errors.entry(0).or_default() += 1;
        // The first one tells why; those of other users follow from it.
        ledger.failure.get_or_insert_with(|| format!("{}: {}", kind.name(), told(error)));
        drop(ledger);
        self.control.stop();
    }
}

/// What PostgreSQL says of an error, with its code; else what the connection says.
pub(super) fn told(error: &postgres::Error) -> String {
    match error.as_db_error() {
        Some(said) => format!("{} ({})", said.message(), said.code().code()),
        None => {
            let cause =
                std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
            format!("{error}{cause}")
        }
    }
}

/// The code of an error after which the same transaction may well succeed.
fn worth_a_retry(error: &postgres::Error) -> Option<&str> {
    let code = error.code()?;
    [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED].contains(code).then(|| code.code())
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn second(series: &mut Vec<Second>, since: Duration, kind: Kind, response: u64) {
    let place = since.as_secs() as usize;
    if series.len() <= place {
        series.resize_with(place + 1, Second::new);
    }
    let second = &mut series[place];
    *(if kind.is_read() { &mut second.reads } else { &mut second.writes }) += 1;
    second.response.record(response);
}
