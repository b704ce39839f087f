//! Policies: when points are made, which of them stay, and what a policy would do.

use crate::{Consistency, Time};
use serde::{Deserialize, Serialize};
use stonefold_types::{Name, PointName};
use utoipa::ToSchema;

/// How a policy's points are proven to boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyVerify {
    /// The sign of life, as when one point is verified.
    #[serde(default = "agent")]
    #[schema(examples("agent", "port:22", "console:login:"))]
    pub wait: String,
    /// How long it is waited for, in seconds.
    #[serde(default = "five_minutes")]
    #[schema(examples(300))]
    pub timeout_seconds: u64,
    /// Every point that is made from now on, each once; left out, the newest of each source.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub every: bool,
    /// None any more, whatever the rest says; never so of a policy that is shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub off: bool,
}

fn agent() -> String {
    "agent".to_owned()
}

fn five_minutes() -> u64 {
    300
}

/// When points of which sources are made, which of them stay, and how long nobody removes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Policy {
    /// Its name.
    #[schema(value_type = String, examples("nightly"))]
    pub name: Name,
    /// How often.
    #[schema(examples("1d"))]
    pub every: String,
    /// When, within that.
    #[schema(examples("02:00"))]
    pub at: String,
    /// The time zone whose days and hours these are.
    #[schema(examples("Europe/Berlin"))]
    pub zone: String,
    /// When runs may begin; absent: always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("22:00-06:00"))]
    pub window: Option<String>,
    /// Of how many hours, days, weeks, months and years the last point stays; absent: all points stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("daily=30,weekly=8"))]
    pub keep: Option<String>,
    /// How long nobody can remove a point of it, in seconds from when it was taken; absent: it is not locked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_seconds: Option<u64>,
    /// What a guest finds on its points.
    pub consistency: Consistency,
    /// What it is applied to.
    pub sources: Vec<PolicySource>,
    /// When it was made.
    pub created: Time,
    /// Since when it makes no runs and removes nothing; absent where it is not paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Time>,
    /// Who is told when a run fails, and when the next one makes a point again; of the URL only what is no secret. Absent: nobody, but for the
    /// server's command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("https://hooks.example/…"))]
    pub on_failure_webhook: Option<String>,
    /// How its points are proven to boot; absent where they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<PolicyVerify>,
    /// The pool that its points are sent to, by its URL; absent where they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("file:///mnt/other/pool"))]
    pub replicate: Option<String>,
    /// The pool that keeps some of its points for longer; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<Archive>,
    /// How far its points are in other pools, by source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<Replica>,
}

/// A pool that gets those of a policy's points which it is to keep: the last of each period, once that is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Archive {
    /// Its URL.
    #[schema(examples("s3://archive/lab?endpoint=https://s3.example"))]
    pub url: String,
    /// Of how many hours, days, weeks, months and years the last point stays there.
    #[schema(examples("monthly=12,yearly=7"))]
    pub keep: String,
}

/// How far a policy's points of a source are in another pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Replica {
    /// The source.
    #[schema(value_type = String, examples("web-nightly"))]
    pub source: Name,
    /// Whether that pool is the policy's archive, which has some points only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub archive: bool,
    /// The newest point that is there; absent: none yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, examples("web-nightly@20261123T184005Z"))]
    pub newest: Option<PointName>,
    /// When that was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken: Option<Time>,
    /// How old what would come back from there is, in seconds: the age of that point, or the time since the policy has been applied.
    pub lag_seconds: u64,
    /// Points that are not there yet.
    pub behind: u64,
    /// When it was last tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tried: Option<Time>,
    /// Why that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// Where a policy's points are to be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplicaSet {
    /// The URL of another pool, which the server opens; left out, nowhere. What is there stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("file:///mnt/other/pool"))]
    pub url: Option<String>,
}

/// Which pool is to keep some of a policy's points for longer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ArchiveSet {
    /// It; left out, none any more. What is there stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<Archive>,
}

/// What to change of a policy; what is left out stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicySet {
    /// Paused it makes no runs and removes nothing; resumed it catches up by one run of each source what it has missed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// How often, as for a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("1d"))]
    pub every: Option<String>,
    /// When, within that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("02:00"))]
    pub at: Option<String>,
    /// The time zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("Europe/Berlin"))]
    pub zone: Option<String>,
    /// When runs may begin; `none` for always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("22:00-06:00"))]
    pub window: Option<String>,
    /// Which points stay; `all` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("daily=30,weekly=8"))]
    pub keep: Option<String>,
    /// How long nobody can remove a point that is made from now on, in seconds; 0: it is not locked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_seconds: Option<u64>,
    /// What a guest is to find on its points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consistency: Option<Consistency>,
    /// Who is told when a run fails; empty: nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure_webhook: Option<String>,
}

/// A source that a policy is applied to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicySource {
    /// The source.
    #[schema(value_type = String, examples("web-nightly"))]
    pub source: Name,
    /// Since when.
    pub since: Time,
}

/// A policy to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyCreate {
    /// Its name: 1 to 128 letters, digits, `.`, `_` or `-`.
    #[schema(value_type = String, pattern = "^[A-Za-z0-9._-]{1,128}$", examples("nightly"))]
    pub name: Name,
    /// How often: minutes or hours that divide a day (`15m`, `2h`), days (`1d`), `1w`, months that divide a year (`1month`) or `1y`.
    #[schema(examples("1d"))]
    pub every: String,
    /// When, within that: `02:00`, `sun 02:00`, `last 02:00`, `12-31 02:00`; midnight of the first day where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("02:00"))]
    pub at: Option<String>,
    /// A time zone of the IANA database; the server's where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("Europe/Berlin"))]
    pub zone: Option<String>,
    /// When runs may begin: hours, maybe with the days on which they begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("mon-fri 20:00-06:00"))]
    pub window: Option<String>,
    /// Counts of `last`, `hourly`, `daily`, `weekly`, `monthly` and `yearly`; left out, all points stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("daily=30,weekly=8"))]
    pub keep: Option<String>,
    /// How long nobody can remove a point of it, in seconds; ten years at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_seconds: Option<u64>,
    /// What a guest is to find on its points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consistency: Option<Consistency>,
    /// A URL to which a PolicyEvent is posted when a run fails, and when the next one makes a point again: `http://` or `https://`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("https://hooks.example/T0/B1"))]
    pub on_failure_webhook: Option<String>,
}

/// Sources that a policy is to be applied to, or taken out of it: all or none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyApply {
    /// The sources.
    #[schema(value_type = Vec<String>)]
    pub sources: Vec<Name>,
    /// Take them out of it; the points that it has made of them stay.
    #[serde(default)]
    pub remove: bool,
}

/// What a policy would do now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyPlan {
    /// The policy.
    #[schema(value_type = String, examples("nightly"))]
    pub policy: Name,
    /// The points that it has made of its sources: by source, oldest first.
    pub points: Vec<PlannedPoint>,
    /// Bytes stored, compressed, that come back when all points that go are gone. Exact as of one instant; absent where that
    /// could not be had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freed_bytes: Option<u64>,
    /// Why the bytes are not told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freed_unknown: Option<String>,
    /// The server's clock is doubted: until that is settled nothing goes.
    pub time_in_doubt: bool,
    /// When its sources will next be backed up; none while it is paused.
    pub next: Vec<PlannedRun>,
    /// Since when it is paused: until it is resumed nothing goes, and what is told is what would go then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Time>,
}

/// What becomes of a point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedPoint {
    /// The point.
    #[schema(value_type = String, examples("web-nightly@20261123T184005Z"))]
    pub name: PointName,
    /// When it was taken.
    pub taken: Time,
    /// Whether it stays.
    pub verdict: PlanVerdict,
    /// Of which counts it is one: `daily`, `weekly`; or `sent`: the next one that is sent to another pool is told from it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_as: Vec<String>,
    /// Nobody can remove it before, where that is why it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked_until: Option<Time>,
    /// Bytes stored that come back when it goes after those above it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freed_bytes: Option<u64>,
}

/// Whether a point stays, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlanVerdict {
    /// It goes.
    Goes,
    /// It stays: a count of the policy's has it, or the policy has no counts.
    Stays,
    /// It stays because it is locked.
    Locked,
    /// It stays because a snapshot of it is gone: it is not counted, and not removed by a policy.
    Broken,
    /// It stays until the server's clock is confirmed.
    Waits,
}

/// When a source will next be backed up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedRun {
    /// The source.
    #[schema(value_type = String, examples("web-nightly"))]
    pub source: Name,
    /// When; now, where it is due.
    pub at: Time,
}
