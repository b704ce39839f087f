//! Traces of what clients ask of disks, while they are recorded.

use crate::Time;
use serde::{Deserialize, Serialize};
use stonefold_types::Name;
use utoipa::ToSchema;

/// What a trace is to be recorded with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TraceStart {
    /// Requests that may wait to be fetched; those for which there is no room are counted as dropped. 262144 if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<u64>,
}

/// A trace that is being recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Trace {
    /// The disk.
    #[schema(value_type = String)]
    pub disk: Name,
    /// Since when.
    pub since: Time,
    /// Requests recorded.
    pub recorded: u64,
    /// Requests for which there was no room.
    pub dropped: u64,
    /// Requests recorded and not fetched yet.
    pub waiting: u64,
    /// How many of those there may be.
    pub room: u64,
}
