//! Proofs that points boot.

use crate::Time;
use serde::{Deserialize, Serialize};
use stonefold_types::PointName;
use utoipa::ToSchema;

/// A point to be proven: booted where it reaches nothing and nobody reaches it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VerifyCreate {
    /// The sign of life: `agent` (the guest agent answers), `port:N` (what listens on TCP port N of the guest answers), `console:REGEX` (a text
    /// on the first serial port) or `cmd:COMMAND` (a command that the agent runs in the guest ends with 0).
    #[schema(examples("agent", "port:22", "console:login:"))]
    pub wait: String,
    /// How long it is waited for, in seconds.
    #[schema(examples(300))]
    pub timeout_seconds: u64,
}

/// What came of booting a point, signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Proof {
    /// The point.
    #[schema(value_type = String, examples("web-nightly@20261123T184005Z"))]
    pub point: PointName,
    /// Whether the sign of life was seen.
    pub boots: bool,
    /// What was waited for.
    pub wait: String,
    /// What there was of it, or why not.
    pub said: String,
    /// When it was begun.
    pub begun: Time,
    /// How long it took to each stage.
    pub stages: Vec<ProofStage>,
    /// What is signed: JSON, to the byte. It says all of the above, names the snapshots, and has the picture's hash (BLAKE3).
    pub record: String,
    /// Who signed: an Ed25519 key (RFC 8032), in hex.
    pub public_key: String,
    /// Over the bytes of `record`, in hex.
    pub signature: String,
    /// The screen at the end: a PNG, in base64; absent where there was none to be had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub screenshot: Option<String>,
}

/// A stage of a proof.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProofStage {
    /// Which.
    #[schema(examples("first block"))]
    pub what: String,
    /// From the beginning, in microseconds.
    pub after_us: u64,
}
