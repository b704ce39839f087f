//! The one line that says that every door is open.

use serde::Serialize;
use std::fmt;

/// Where a server is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ready {
    /// The pool's URL.
    pub pool: String,
    /// The NBD doors' URIs.
    pub nbd: Vec<String>,
    /// The API's URLs.
    pub api: Vec<String>,
}

/// `ready pool=URL nbd=URI … api=URL …`: scripts split it at spaces, so what is inside has none.
impl fmt::Display for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ready pool={}", self.pool.replace(' ', "%20"))?;
        self.nbd.iter().try_for_each(|uri| write!(f, " nbd={}", uri.replace(' ', "%20")))?;
        self.api.iter().try_for_each(|url| write!(f, " api={}", url.replace(' ', "%20")))
    }
}
