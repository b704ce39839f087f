//! Tokens: who may do what.

use crate::Time;
use serde::{Deserialize, Serialize};
use stonefold_types::{Name, Role};
use utoipa::ToSchema;

/// A token, without its secret, which nobody has but its holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// Its name.
    #[schema(value_type = String, examples("backup-host"))]
    pub name: Name,
    /// What its holder may do: `viewer` looks, `operator` also changes disks, snapshots and the cache, `admin` also tokens.
    #[schema(value_type = String, examples("operator"))]
    pub role: Role,
    /// When it was made.
    pub created: Time,
}

/// What a new token is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenCreate {
    /// What its holder may do: `viewer`, `operator` or `admin`.
    #[schema(value_type = String, examples("operator"))]
    pub role: Role,
    /// Its name; one is made up where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, examples("backup-host"))]
    pub name: Option<Name>,
}

/// A new token and its secret, which is told this once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenCreated {
    /// The token.
    pub token: Token,
    /// What its holder shows: `Authorization: Bearer SECRET`.
    pub secret: String,
}
