//! What a run keeps of its points and their recoveries.

use super::neighbours::NeighbourRecord;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Points of a chain, and what was recovered of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChainRecord {
    /// Who kept them.
    pub keeper: String,
    /// In their order.
    pub points: Vec<KeptPoint>,
    /// In the order in which they were made.
    pub recoveries: Vec<Recovery>,
    /// Other machines' loads meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub neighbours: Vec<NeighbourRecord>,
    /// What went wrong with what was recovered after it had been measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub complaints: Vec<String>,
}

/// A point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct KeptPoint {
    /// From 0.
    pub number: u32,
    /// Seconds that it took to keep it.
    pub seconds: f64,
    /// Transactions committed since the point before.
    pub transactions: u64,
}

/// A point that was brought back, for one step of its ramp. Times are seconds since it was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Recovery {
    /// The point's number.
    pub point: u32,
    /// Users of the step.
    pub users: u32,
    /// Until its disk was there.
    pub recovered: f64,
    /// Until the file system on it was mounted.
    pub mounted: f64,
    /// Until PostgreSQL answered.
    pub started: f64,
    /// Until an order was committed.
    pub first: f64,
    /// Until all users began.
    pub began: f64,
}
