//! Recoveries: points brought back.

use crate::{Hardware, MachineDisk, Time};
use serde::{Deserialize, Serialize};
use stonefold_types::{Name, PointName};
use utoipa::ToSchema;

/// A point that is brought back: clones of its disks, served like any other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Recovery {
    /// Its name.
    #[schema(value_type = String, examples("web-again"))]
    pub name: Name,
    /// The point; it may be gone.
    #[schema(value_type = String, examples("web-nightly@20261123T184005Z"))]
    pub point: PointName,
    /// Its disks.
    pub disks: Vec<MachineDisk>,
    /// What else the machine is made of, by its new identity; absent where nobody had said, and in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<Hardware>,
    /// When it was asked for.
    pub begun: Time,
    /// How long it took from then until all its disks were there and served, in microseconds.
    pub ready_us: u64,
    /// Whether it is being discarded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub discarding: bool,
}

/// A point to be brought back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecoveryCreate {
    /// The point.
    #[schema(value_type = String, examples("web-nightly@20261123T184005Z"))]
    pub point: PointName,
    /// What it is called then; its disks are called `NAME.TARGET`.
    #[schema(value_type = String, pattern = "^[A-Za-z0-9._-]{1,128}$", examples("web-again"))]
    pub name: Name,
    /// A class of service for its disks. Left out: that of the originals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, examples("critical"))]
    pub qos: Option<Name>,
    /// Only look whether it can be done, and tell what would be there.
    #[serde(default)]
    pub dry_run: bool,
}

/// A point that was brought back, or would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Recovered {
    /// Whether nothing was done.
    pub dry_run: bool,
    /// The recovery.
    pub recovery: Recovery,
    /// What of the original it lacks, or has in common with it, in words.
    pub notes: Vec<String>,
}
