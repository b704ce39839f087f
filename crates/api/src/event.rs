//! What is told of policies' runs to whoever wants to hear of it.

use crate::Time;
use serde::{Deserialize, Serialize};
use stonefold_types::{Name, PointName};
use utoipa::ToSchema;

/// A run of a policy failed, or made a point again after one that failed; or its points could not be sent to another pool, or can again. It is posted to webhooks, and written to the stdin of the server's command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyEvent {
    /// What has happened.
    pub event: PolicyEventKind,
    /// The same and all below in one line for people; chats that take webhooks show it.
    #[schema(examples("policy 'nightly', source 'web' failed: disk 'web-root' does not exist"))]
    pub text: String,
    /// The policy.
    #[schema(value_type = String, examples("nightly"))]
    pub policy: Name,
    /// The source.
    #[schema(value_type = String, examples("web"))]
    pub source: Name,
    /// The run, which has its point's name; absent where it failed before it had one. Of sending: the newest point that the other pool has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, examples("web@20261123T184005Z"))]
    pub run: Option<PointName>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// When.
    pub at: Time,
    /// The pool, by its URL.
    #[schema(examples("file:///srv/pool"))]
    pub pool: String,
}

/// What has happened to a policy's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PolicyEventKind {
    /// It made no point.
    Failed,
    /// It made a point, and the one before it failed.
    WorksAgain,
    /// Points could not be sent to another pool; of failures one after another the first.
    NotSent,
    /// They can again.
    SentAgain,
}

impl PolicyEventKind {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            PolicyEventKind::Failed => "failed",
            PolicyEventKind::WorksAgain => "works_again",
            PolicyEventKind::NotSent => "not_sent",
            PolicyEventKind::SentAgain => "sent_again",
        }
    }
}
