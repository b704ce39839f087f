//! Policies that are changed: what is named is another from now on, and the rest stays.

use super::{Policy, check_bounds};
use crate::schedule::Schedule;
use crate::{Consistency, Protection, catalog};
use stonefold_types::{Name, Result};

/// What to change of a policy, each part as people write it; what is not named stays.
#[derive(Clone, Debug, Default)]
pub struct PolicyChange {
    /// See [`NewPolicy`](super::NewPolicy).
    pub every: Option<String>,
    /// Likewise.
    pub at: Option<String>,
    /// Likewise.
    pub zone: Option<String>,
    /// Likewise; `none` for always.
    pub window: Option<String>,
    /// Likewise; `all` for all.
    pub keep: Option<String>,
    /// Likewise; 0 for no locks. Points that are locked stay so.
    pub lock_seconds: Option<u64>,
    /// Likewise.
    pub consistency: Option<Consistency>,
    /// Likewise; empty for nobody.
    pub webhook: Option<String>,
}

impl PolicyChange {
    /// Says for itself what is wrong with it.
    fn make(&self, policy: &mut Policy) -> Result<()> {
        let now = &policy.schedule;
        let (every, at) =
            (self.every.clone().unwrap_or(now.every().to_string()), self.at.clone().unwrap_or(now.at()));
        let window = match self.window.as_deref() {
            None => now.window().map(ToString::to_string),
            Some("none") => None,
            Some(window) => Some(window.to_owned()),
        };
        let zone = self.zone.as_deref().map_or_else(|| Ok(now.zone().clone()), str::parse)?;
        let window = window.as_deref().map(str::parse).transpose()?;
        policy.schedule =
            Schedule::new(every.parse()?, Some(&at), zone, window).map_err(|e| match self.at {
                // What does not go with another 'every' was said of the one before.
                None if self.every.is_some() => e.context(format!(
                    "of the runs of policy '{}' it is said that they begin at '{at}'",
                    policy.name
                )),
                _ => e,
            })?;
        match self.keep.as_deref() {
            None => {}
            Some("all") => policy.keep = None,
            Some(keep) => policy.keep = Some(keep.parse()?),
        }
        if let Some(seconds) = self.lock_seconds {
            policy.lock_seconds = Some(seconds).filter(|seconds| *seconds > 0);
        }
        if let Some(consistency) = self.consistency {
            policy.consistency = consistency;
        }
        if let Some(url) = &self.webhook {
            policy.webhook = Some(url.clone()).filter(|url| !url.is_empty());
        }
        check_bounds(&policy.name, policy.lock_seconds, policy.webhook.as_deref())
    }
}

impl Protection {
    /// Changes a policy, all that is named or nothing. Its points are judged by it as it is now after its next run; a run that is due by it now is
    /// made at once.
    pub async fn change_policy(&self, name: &Name, change: &PolicyChange) -> Result<Policy> {
        let changed = self.change(async {
            let mut policy = catalog::get::<Policy>(&self.store, name.as_str()).await?;
            change.make(&mut policy)?;
            if change.consistency == Some(Consistency::App) {
                for applied in &policy.sources {
                    self.check_guest_of(&applied.source).await?;
                }
            }
            let make = |policy: &mut Policy| change.make(policy);
            catalog::change(&self.store, name.as_str(), make).await
        });
        let policy: Policy = changed.await?;
        self.policies_changed.notify_one();
        Ok(policy)
    }
}
