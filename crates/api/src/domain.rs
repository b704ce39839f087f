//! Domains and their keys.

use crate::Time;
use serde::{Deserialize, Serialize};
use stonefold_types::{Compression, Name};
use utoipa::ToSchema;

/// A domain: the scope within which disks share equal blocks, one policy for new disks, one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Domain {
    /// Its name.
    #[schema(value_type = String, examples("bank"))]
    pub name: Name,
    /// Whether its data is encrypted and can be read.
    pub state: DomainState,
    /// What new disks in it get where nothing else is said.
    #[schema(value_type = String, examples("lz4"))]
    pub compression: Compression,
    /// The same.
    pub dedupe: bool,
    /// When it was made; absent for the predefined one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Time>,
    /// The newest version of its key, which encrypts what is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_version: Option<u32>,
    /// When that was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_created: Option<Time>,
    /// Disks made in it.
    pub disks: u64,
}

/// Whether a domain's data is encrypted and can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DomainState {
    /// It is not encrypted.
    Plain,
    /// It is encrypted, and the server has its keys.
    Open,
    /// It is encrypted, and the server does not have them: its disks are refused.
    Locked,
    /// Its keys are gone for good, and so is its data.
    Shredded,
    /// Of a disk whose head cannot be read: nobody can tell.
    Unknown,
}

/// A domain to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DomainCreate {
    /// Its name: 1 to 128 letters, digits, `.`, `_` or `-`.
    #[schema(value_type = String, pattern = "^[A-Za-z0-9._-]{1,128}$", examples("bank"))]
    pub name: Name,
    /// Whether its data is encrypted, which cannot be changed later.
    #[serde(default)]
    pub encrypt: bool,
    /// What new disks in it get where nothing else is said. Left out: `lz4`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, examples("zstd:3"))]
    pub compression: Option<Compression>,
    /// The same. Left out: yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedupe: Option<bool>,
}

/// What new disks of a domain get; what is left out stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DomainSet {
    /// How they are compressed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, examples("zstd:3"))]
    pub compression: Option<Compression>,
    /// Whether they are deduplicated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedupe: Option<bool>,
}

/// The end of a domain's data, meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DomainShred {
    /// The domain's name once more.
    #[schema(value_type = String, examples("bank"))]
    pub confirm: Name,
}

/// A domain's keys: whoever has them reads its data without the master key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DomainKey {
    /// The domain.
    #[schema(value_type = String, examples("bank"))]
    pub domain: Name,
    /// A text of one line for each version of the key, for `serve --recovery-key`.
    pub recovery_key: String,
}

/// Another master key: one of both.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MasterKeyChange {
    /// A key of 32 bytes in hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// A passphrase, from which one is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passphrase: Option<String>,
}
