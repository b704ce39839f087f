//! Policies: when points of which sources are made, which of them stay, and how long nobody removes them.
//!
//! A policy judges the points that it has made, which say so, and no others. *Promise*: what is written of a policy is what its parts read
//! again ([`schedule`](crate::schedule), [`retention`](crate::retention)); one that this version does not understand runs nothing and removes nothing.

mod changed;

pub use changed::PolicyChange;

use crate::catalog::{self, Entry, Unknown};
use crate::retention::Keep;
use crate::schedule::{Every, Schedule, Window};
use crate::{Consistency, Protection, Sign, Source, Zone};
use serde::{Deserialize, Serialize};
use stonefold_env::WallNanos;
use stonefold_types::{Error, Kind, Name, Result};

/// Points of a policy cannot be locked for longer, in seconds, ten years: the store's locks end a hundred years from now at most, and what was
/// mistyped here would be locked run after run.
pub const LOCK_SECONDS_MAX: u64 = 3653 * 86_400;
/// The longest URL, in bytes: none of those that are in use has as many.
pub const WEBHOOK_BYTES_MAX: usize = 2048;
const SECOND: WallNanos = 1_000_000_000;

/// The document of a policy, `policies/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Policy {
    /// Unique in the pool.
    pub name: Name,
    /// When its runs begin.
    pub schedule: Schedule,
    /// Which of its points stay; all of them, where it does not say.
    pub keep: Option<Keep>,
    /// How long nobody can remove a point of it, in seconds from when it was taken.
    pub lock_seconds: Option<u64>,
    /// What a guest is to find on its points.
    pub consistency: Consistency,
    /// What it is applied to, by name.
    pub sources: Vec<Applied>,
    /// Trusted time, nanoseconds since 1970.
    pub created: WallNanos,
    /// Since when it makes no runs and removes nothing, until somebody resumes it: trusted time, nanoseconds since 1970.
    pub paused: Option<WallNanos>,
    /// A URL that is told when a run fails, and when the next one makes a point again.
    pub webhook: Option<String>,
    /// How its points are proven to boot, the newest of each source; nothing where they are not.
    pub verify: Option<Verification>,
    /// The pool that its points are sent to, by its URL.
    pub replicate: Option<String>,
    /// The pool that keeps some of them for longer.
    pub archive: Option<Archive>,
    unknown: Unknown,
}

/// A pool that gets those of a policy's points which it is to keep: the last of each period, once that is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Archive {
    /// The pool.
    pub url: String,
    /// Which points are kept there.
    pub keep: Keep,
    #[serde(flatten)]
    unknown: Unknown,
}

impl Archive {
    /// An archive that keeps these.
    pub fn new(url: String, keep: Keep) -> Archive {
        Archive { url, keep, unknown: Unknown::default() }
    }
}

/// How a policy's points are proven to boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verification {
    /// The sign of life.
    pub sign: Sign,
    /// How long it is waited for.
    pub timeout_seconds: u64,
    /// Not the newest alone, but every one that was made from then on: trusted time, nanoseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_since: Option<WallNanos>,
}

/// How points are to be proven from now on.
#[derive(Clone, Debug)]
pub struct NewVerification {
    /// The sign of life.
    pub sign: Sign,
    /// How long it is waited for.
    pub timeout_seconds: u64,
    /// Every point that is made from now on; else the newest.
    pub every: bool,
}

/// A source that a policy is applied to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// The source.
    pub source: Name,
    /// Since when: no run is due for earlier. Trusted time, nanoseconds since 1970.
    pub since: WallNanos,
    #[serde(flatten)]
    unknown: Unknown,
}

/// What is asked of a new policy, each part as people write it.
#[derive(Clone, Debug, Default)]
pub struct NewPolicy {
    /// How often: `2h`.
    pub every: String,
    /// When, within that: `02:00`.
    pub at: Option<String>,
    /// A time zone; the machine's where none is named.
    pub zone: Option<String>,
    /// When runs may begin: `22:00-06:00`.
    pub window: Option<String>,
    /// Which points stay: `daily=30,weekly=8`.
    pub keep: Option<String>,
    /// See [`Policy::lock_seconds`].
    pub lock_seconds: Option<u64>,
    /// See [`Policy::consistency`].
    pub consistency: Consistency,
    /// See [`Policy::webhook`]; whether it is a URL is not looked at here.
    pub webhook: Option<String>,
}

/// As it is stored.
#[derive(Serialize, Deserialize)]
struct Written {
    name: Name,
    every: String,
    at: String,
    zone: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    window: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keep: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lock_seconds: Option<u64>,
    consistency: Consistency,
    sources: Vec<Applied>,
    created: WallNanos,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    paused: Option<WallNanos>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    webhook: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    verify: Option<Verification>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replicate: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    archive: Option<Archive>,
    #[serde(flatten)]
    unknown: Unknown,
}

impl TryFrom<Written> for Policy {
    type Error = Error;

    fn try_from(written: Written) -> Result<Policy> {
        let window = written.window.as_deref().map(str::parse::<Window>).transpose()?;
        Ok(Policy {
            name: written.name,
            schedule: Schedule::new(
                written.every.parse::<Every>()?,
                Some(&written.at),
                written.zone.parse()?,
                window,
            )?,
            keep: written.keep.as_deref().map(str::parse).transpose()?,
            lock_seconds: written.lock_seconds,
            consistency: written.consistency,
            sources: written.sources,
            created: written.created,
            paused: written.paused,
            webhook: written.webhook,
            verify: written.verify,
            replicate: written.replicate,
            archive: written.archive,
            unknown: written.unknown,
        })
    }
}

impl From<Policy> for Written {
    fn from(policy: Policy) -> Written {
        Written {
            name: policy.name,
            every: policy.schedule.every().to_string(),
            at: policy.schedule.at(),
            zone: policy.schedule.zone().to_string(),
            window: policy.schedule.window().map(Window::to_string),
            keep: policy.keep.map(|keep| keep.to_string()),
            lock_seconds: policy.lock_seconds,
            consistency: policy.consistency,
            sources: policy.sources,
            created: policy.created,
            paused: policy.paused,
            webhook: policy.webhook,
            verify: policy.verify,
            replicate: policy.replicate,
            archive: policy.archive,
            unknown: policy.unknown,
        }
    }
}

impl Entry for Policy {
    const FAMILY: &'static str = "policies";
    const NOUN: &'static str = "policy";
    const LISTED_BY: &'static str = "stonefold policy ls";

    fn key(&self) -> String {
        self.name.to_string()
    }
}

impl Policy {
    /// Until when a point of it that is taken now is locked, by trusted time, nanoseconds since 1970.
    pub(crate) fn lock_of(&self, taken: WallNanos) -> Option<WallNanos> {
        self.lock_seconds.map(|seconds| taken.saturating_add(seconds.saturating_mul(SECOND)))
    }

    /// Since when runs of a source are due, where it is applied to that.
    pub fn since(&self, source: &Name) -> Option<WallNanos> {
        self.sources.iter().find(|applied| applied.source == *source).map(|applied| applied.since)
    }
}

/// Refuses what no policy can have.
fn check_bounds(name: &Name, lock_seconds: Option<u64>, webhook: Option<&str>) -> Result<()> {
    if let Some(seconds) = lock_seconds.filter(|seconds| !(1..=LOCK_SECONDS_MAX).contains(seconds)) {
        let what = format!("points of policy '{name}' cannot be locked for {seconds} seconds");
        return Err(Error::new(Kind::Invalid, what).remedy("lock them for ten years at most"));
    }
    if let Some(url) = webhook.filter(|url| url.len() > WEBHOOK_BYTES_MAX) {
        let what = format!("the URL of policy '{name}' has {} bytes", url.len());
        return Err(
            Error::new(Kind::Invalid, what).remedy(format!("name one of {WEBHOOK_BYTES_MAX} bytes at most"))
        );
    }
    Ok(())
}

impl NewPolicy {
    fn read(self, name: Name, created: WallNanos) -> Result<Policy> {
        check_bounds(&name, self.lock_seconds, self.webhook.as_deref())?;
        let zone = self.zone.as_deref().map_or_else(|| Ok(Zone::of_machine()), str::parse)?;
        let window = self.window.as_deref().map(str::parse).transpose()?;
        Ok(Policy {
            schedule: Schedule::new(self.every.parse()?, self.at.as_deref(), zone, window)?,
            keep: self.keep.as_deref().map(str::parse).transpose()?,
            lock_seconds: self.lock_seconds,
            consistency: self.consistency,
            sources: Vec::new(),
            created,
            paused: None,
            webhook: self.webhook,
            verify: None,
            replicate: None,
            archive: None,
            unknown: Unknown::new(),
            name,
        })
    }
}

impl Protection {
    /// All policies, by name.
    pub async fn policies(&self) -> Result<Vec<Policy>> {
        self.settle().await;
        catalog::all(&self.store, None).await
    }

    /// One policy.
    pub async fn policy(&self, name: &Name) -> Result<Policy> {
        self.settle().await;
        catalog::get(&self.store, name.as_str()).await
    }

    /// Makes a policy, which is applied to nothing yet.
    pub async fn create_policy(&self, name: Name, asked: NewPolicy) -> Result<Policy> {
        let policy = asked.read(name, self.store.time().trusted)?;
        self.change(async {
            catalog::put_new(&self.store, &policy).await?;
            Ok(policy.clone())
        })
        .await
    }

    /// Applies a policy to sources, all or none; to those that it is applied to already nothing changes. What it has missed until now is
    /// not caught up.
    pub async fn apply_policy(&self, name: &Name, sources: &[Name]) -> Result<Policy> {
        let changed = self.change(async {
            let is_app =
                catalog::get::<Policy>(&self.store, name.as_str()).await?.consistency == Consistency::App;
            for source in sources {
                catalog::get::<Source>(&self.store, source.as_str()).await?.check_is_no_replica()?;
                if is_app {
                    self.check_guest_of(source).await?;
                }
            }
            let since = self.store.time().trusted;
            let apply = |policy: &mut Policy| {
                for source in sources {
                    if policy.since(source).is_none() {
                        policy.sources.push(Applied {
                            source: source.clone(),
                            since,
                            unknown: Unknown::new(),
                        });
                    }
                }
                policy.sources.sort_by(|one, other| one.source.cmp(&other.source));
                Ok(())
            };
            let mut applied = catalog::get::<Policy>(&self.store, name.as_str()).await?;
            apply(&mut applied)?;
            self.check_archives(&applied).await?;
            catalog::change(&self.store, name.as_str(), apply).await
        });
        let policy = changed.await?;
        self.policies_changed.notify_one();
        Ok(policy)
    }

    /// Takes sources out of a policy, all or none; the points that it has made of them stay.
    pub async fn withdraw_policy(&self, name: &Name, sources: &[Name]) -> Result<Policy> {
        self.change(async {
            let withdraw = |policy: &mut Policy| {
                if let Some(other) = sources.iter().find(|source| policy.since(source).is_none()) {
                    let what = format!("policy '{name}' is not applied to source '{other}'");
                    let remedy = format!("'stonefold policy show {name}' shows what it is applied to");
                    return Err(Error::new(Kind::NotFound, what).remedy(remedy));
                }
                policy.sources.retain(|applied| !sources.contains(&applied.source));
                Ok(())
            };
            let policy = catalog::change(&self.store, name.as_str(), withdraw).await?;
            self.forget_replicas(name, Some(sources), None).await?;
            Ok(policy)
        })
        .await
    }

    /// Pauses a policy, or resumes it. Paused, it makes no runs and removes nothing, from when this returns, over restarts, too. Resumed, it
    /// catches up by one run of each source what it has missed. Where that is so already nothing changes.
    pub async fn pause_policy(&self, name: &Name, pause: bool) -> Result<Policy> {
        let now = self.store.time().trusted;
        let set = |policy: &mut Policy| {
            policy.paused = pause.then(|| policy.paused.unwrap_or(now));
            Ok(())
        };
        // Not in the midst of a run, which ends before.
        let policy = self.change(catalog::change(&self.store, name.as_str(), set)).await?;
        self.policies_changed.notify_one();
        Ok(policy)
    }

    /// Says how a policy's points are proven to boot, or that they are not any more.
    pub async fn verify_policy(&self, name: &Name, verify: Option<NewVerification>) -> Result<Policy> {
        let now = self.store.time().trusted;
        let set = |policy: &mut Policy| {
            // What is to be proven yet stays so, however it is proven from now on.
            let since = policy.verify.as_ref().and_then(|verify| verify.every_since).unwrap_or(now);
            policy.verify = verify.clone().map(|NewVerification { sign, timeout_seconds, every }| {
                Verification { sign, timeout_seconds, every_since: every.then_some(since) }
            });
            Ok(())
        };
        self.change(catalog::change(&self.store, name.as_str(), set)).await
    }

    /// Removes a policy; the points that it has made stay.
    pub async fn remove_policy(&self, name: &Name) -> Result<()> {
        self.change(async {
            // One that cannot be read can be removed, too.
            if !catalog::keys::<Policy>(&self.store, None).await?.iter().any(|key| key == name.as_str()) {
                catalog::get::<Policy>(&self.store, name.as_str()).await?;
            }
            catalog::remove::<Policy>(&self.store, name.as_str()).await?;
            self.forget_replicas(name, None, None).await
        })
        .await
    }

    /// Whether a policy is still to make runs of a source: it may have been removed, changed or paused since it was read.
    pub(crate) async fn still_wants(&self, policy: &Policy, source: &Name) -> Result<bool> {
        let now = catalog::find::<Policy>(&self.store, policy.name.as_str()).await?;
        let is_same = |now: &Policy| now.created == policy.created && now.since(source).is_some();
        Ok(now.is_some_and(|now| is_same(&now) && now.paused.is_none()))
    }

    /// Fails while a policy is applied to a source.
    pub(crate) async fn check_no_policy(&self, source: &Name) -> Result<()> {
        // One that cannot be read may be applied to it; it can be removed.
        let policies = catalog::every::<Policy>(&self.store).await?;
        let Some(policy) = policies.iter().find(|policy| policy.since(source).is_some()) else {
            return Ok(());
        };
        let what = format!("policy '{}' is applied to source '{source}'", policy.name);
        let remedy =
            format!("take it out of that first: stonefold policy apply {} {source} --remove", policy.name);
        Err(Error::new(Kind::Busy, what).remedy(remedy))
    }
}
