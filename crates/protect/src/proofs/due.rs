//! Proofs that policies want: of each of their sources the newest point, or every one, one after another, beside everything else.
//!
//! *Promises*: a point is proven once; one that could not be tried is tried again after [`AGAIN`], unless it is the newest that is wanted and a
//! newer one has come. A point that does not boot is told like a run that failed, and so is, once, one that could not be tried. *Never*: holds up a run: whatever takes minutes here is waited for by nobody.

use crate::domain::Reach;
use crate::policies::Verification;
use crate::proofs::Proof;
use crate::runs::key;
use crate::{PointStatus, Policy, Protection, VerifyRequest, catalog};
use std::collections::{HashMap, HashSet};
use std::sync::Weak;
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::{Kind, Name, PointName, Result};

/// How often it is looked whether there is a new point.
const LOOK_INTERVAL: Duration = Duration::from_secs(20);
/// How long after an attempt that could not be made the next one is: QEMU may be installed meanwhile.
const AGAIN: Duration = Duration::from_secs(3600);

/// Proves what is due as long as anybody else needs what protects, and its store is open.
pub async fn keep(env: Env, protection: Weak<Protection>, reach: Reach) {
    let mut untried: HashMap<PointName, Duration> = HashMap::new();
    loop {
        let Some(here) = protection.upgrade() else { return };
        match here.prove_due(&reach, &mut untried).await {
            Ok(()) => {}
            Err(error) if error.kind() == Kind::Closed => return,
            Err(error) => tracing::warn!("what is to be proven is looked at again later: {error}"),
        }
        // While it waits it keeps nobody from ending.
        drop(here);
        env.sleep(LOOK_INTERVAL).await;
    }
}

impl Protection {
    async fn prove_due(&self, reach: &Reach, untried: &mut HashMap<PointName, Duration>) -> Result<()> {
        let now = self.env.monotonic();
        // One that is tried again and again stays; one that is gone does not.
        untried.retain(|_, tried| now.saturating_sub(*tried) < 2 * AGAIN);
        for policy in self.policies_at_work().await? {
            let Some(verify) = policy.verify.clone() else { continue };
            for applied in &policy.sources {
                let point = match self.to_be_proven(&policy, &applied.source, untried).await {
                    Ok(Some(point)) => point,
                    Ok(None) => continue,
                    Err(error) if error.kind() == Kind::Closed => return Err(error),
                    // It keeps no other source's points from being proven.
                    Err(error) => {
                        tracing::warn!("source '{}': its points are not proven: {error}", applied.source);
                        continue;
                    }
                };
                if let Err(error) = self.prove(&policy, &point, &verify, reach).await {
                    if error.kind() == Kind::Closed {
                        return Err(error);
                    }
                    // Retention, or somebody, has removed it while it was booted.
                    if self.point(&point).await.is_err_and(|gone| gone.kind() == Kind::NotFound) {
                        continue;
                    }
                    let why = format!("point '{point}' could not be proven: {error}");
                    tracing::warn!("policy '{}': {why}", policy.name);
                    if untried.insert(point.clone(), now).is_none() {
                        self.tell(&policy, &applied.source, Some(point), Some(why));
                    }
                }
            }
        }
        Ok(())
    }

    /// The newest point that a policy made of a source, where it is whole and not proven yet; of a policy that wants every one proven the oldest
    /// such one.
    async fn to_be_proven(
        &self,
        policy: &Policy,
        source: &Name,
        untried: &HashMap<PointName, Duration>,
    ) -> Result<Option<PointName>> {
        let points = self.points(Some(source)).await?;
        let of_policy = |status: &&PointStatus| status.point.policy.as_ref() == Some(&policy.name);
        let now = self.env.monotonic();
        let waits =
            |point: &PointName| untried.get(point).is_some_and(|tried| now.saturating_sub(*tried) < AGAIN);
        let is_ready = |status: &&PointStatus| status.check_whole().is_ok() && !waits(&status.point.name);
        let mut made = points.iter().filter(of_policy);
        let Some(since) = policy.verify.as_ref().and_then(|verify| verify.every_since) else {
            let Some(newest) = made.next_back().filter(is_ready) else { return Ok(None) };
            let name = newest.point.name.clone();
            // One that is damaged is as good as none.
            return Ok(self.readable::<Proof>(&key(&name)).await?.is_none().then_some(name));
        };
        let proven = catalog::keys::<Proof>(&self.store, Some(source.as_str())).await?;
        let proven: HashSet<String> = proven.into_iter().collect();
        let is_wanted =
            |status: &&PointStatus| status.point.taken >= since && !proven.contains(&key(&status.point.name));
        Ok(made.filter(is_ready).find(is_wanted).map(|status| status.point.name.clone()))
    }

    async fn prove(
        &self,
        policy: &Policy,
        point: &PointName,
        verify: &Verification,
        reach: &Reach,
    ) -> Result<()> {
        let asked = VerifyRequest {
            point: point.clone(),
            reach: reach.clone(),
            sign: verify.sign.clone(),
            patience: Duration::from_secs(verify.timeout_seconds),
        };
        let record = self.verify_point(asked).await?.check()?;
        if !record.boots {
            let why = format!("point '{point}' does not boot: {}", record.said);
            tracing::warn!("policy '{}': {why}", policy.name);
            self.tell(policy, &point.source, Some(point.clone()), Some(why));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
