//! The server.

use crate::Time;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The server that answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Server {
    /// Its version.
    #[schema(examples("0.1.0"))]
    pub version: String,
    /// The pool's URL.
    #[schema(examples("file:///srv/pool"))]
    pub pool: String,
    /// Its NBD doors: URIs to which a name is added, `nbd://127.0.0.1:10809` or
    /// `nbd+unix:///?socket=/run/stonefold.sock`.
    #[schema(examples(json!(["nbd://127.0.0.1:10809"])))]
    pub nbd: Vec<String>,
    /// The URLs of this API.
    #[schema(examples(json!(["http://127.0.0.1:7770"])))]
    pub api: Vec<String>,
    /// When it began to serve.
    pub started: Time,
}
