//! The figures of a user ramp, for terminals and pages.

use super::ramp::Plateau;
use super::record::{nopm, tpm};
use crate::measure::Point;
use crate::record::Latencies;
use serde::Serialize;
use utoipa::ToSchema;

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = UsersStep)]
pub struct Step {
    /// What it is called.
    pub name: String,
    /// How many.
    pub users: u32,
    /// New-Orders that committed, a minute.
    pub nopm: f64,
    /// Transactions of all kinds that committed, a minute.
    pub tpm: f64,
    /// It is the last that gained something: what a run is about.
    pub plateau: bool,
    /// Each kind of transaction.
    pub transactions: Vec<Times>,
}

/// Response times of one kind, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = TransactionTimes)]
pub struct Times {
    /// The kind.
    pub name: String,
    /// How many, a minute.
    pub per_minute: f64,
    /// See [`Times`].
    pub mean: f64,
    /// As every percentile nothing where fewer than ten are above it.
    pub p50: Option<u64>,
    /// From 100 on.
    pub p90: Option<u64>,
    /// From 1,000 on.
    pub p99: Option<u64>,
    /// From 10,000 on.
    pub p99_9: Option<u64>,
    /// See [`Times`].
    pub max: u64,
}

/// Of every step that was measured; none where the points are of another load.
pub fn ramp(points: &[Point]) -> Vec<Step> {
    points.chunk_by(|one, next| one.step == next.step).flat_map(steps).collect()
}

/// Of one ramp.
fn steps(points: &[Point]) -> Vec<Step> {
    let plateau = Plateau::of(points).map(|plateau| plateau.step);
    let step = |(number, point): (usize, &Point)| {
        let users = point.database.as_ref()?.users;
        let transactions = point.loads.iter().zip(&point.streams);
        let times = transactions.map(|(load, record)| {
            let mut response = Latencies::new();
            response.add(&record.read.response);
            response.add(&record.write.response);
            Times::of(&load.name, record.ios() as f64 * 60.0 / point.seconds, &response)
        });
        Some(Step {
            name: point.label.clone(),
            users,
            nopm: nopm(point),
            tpm: tpm(point),
            plateau: plateau == Some(number),
            transactions: times.collect(),
        })
    };
    points.iter().enumerate().filter_map(step).collect()
}

impl Times {
    fn of(name: &str, per_minute: f64, response: &Latencies) -> Self {
        Times {
            name: name.into(),
            per_minute,
            mean: response.mean(),
            p50: response.percentile(0.5),
            p90: response.percentile(0.9),
            p99: response.percentile(0.99),
            p99_9: response.percentile(0.999),
            max: response.max(),
        }
    }
}
