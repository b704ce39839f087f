//! What a step shows of its transactions, beside what any point shows: counts for the audit, what was checked, and where
//! time may have gone.

use super::input::Kind;
use crate::measure::Point;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Of one step of a user ramp. Counts are of what ended within the sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DatabaseRecord {
    /// Connections, each with one transaction at a time.
    pub users: u32,
    /// The database's size.
    pub warehouses: u32,
    /// Mean time between a user's transactions, in seconds.
    pub think_seconds: f64,
    /// New-Orders that rolled back by rule; they are in no other count.
    pub rolled_back: u64,
    /// Lines of the New-Orders that committed.
    pub lines: u64,
    /// Of those, lines that another warehouse supplies.
    pub remote_lines: u64,
    /// Payments by customers of another warehouse.
    pub remote_payments: u64,
    /// Attempts that PostgreSQL gave up, by SQLSTATE; each was begun again.
    pub retries: BTreeMap<String, u64>,
    /// What was checked when the users had gone.
    pub checks: Vec<Check>,
    /// Of the machine's processor time, the share that was used, from 0 to 1.
    pub processors_busy: f64,
    /// And the share in which it waited for storage and had nothing else to do.
    pub processors_waiting: f64,
    /// Pages that PostgreSQL asked the kernel for.
    pub pages_read: u64,
    /// Pages that it had in its own buffers.
    pub pages_found: u64,
    /// Bytes of its log.
    pub log_bytes: u64,
    /// Bytes of the loaded database.
    pub database_bytes: u64,
    /// Bytes of PostgreSQL's own buffers.
    pub buffer_bytes: u64,
    /// Bytes of the machine's memory.
    pub memory_bytes: u64,
    /// How long it took to restore the database before the step.
    pub restore_seconds: f64,
    /// What ended the step, where something went wrong.
    pub failure: Option<String>,
}

/// Something that must hold of the database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What.
    pub name: String,
    /// How often it does not.
    pub violations: u64,
    /// What was held against what, or the first violation.
    pub why: String,
}

/// What of a kind ended within the sample.
fn count(point: &Point, kind: Kind) -> u64 {
    let of_kind = point.loads.iter().zip(&point.streams).filter(|(load, _)| load.name == kind.name());
    of_kind.map(|(_, record)| record.ios()).sum()
}

/// New-Orders that committed, a minute.
pub fn nopm(point: &Point) -> f64 {
    count(point, Kind::NewOrder) as f64 * 60.0 / point.seconds.max(1e-9)
}

/// Transactions of all kinds that committed, a minute.
pub fn tpm(point: &Point) -> f64 {
    point.iops() * 60.0
}
