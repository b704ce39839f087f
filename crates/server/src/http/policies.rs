//! Policies: made, applied, planned, removed. What is due is run by a task of the data thread.

use super::answer::{Answer, Body, PolicyPath};
use super::recoveries::sign;
use super::{Shared, backups};
use crate::{convert, engines};
use axum::Json;
use axum::http::StatusCode;
use stonefold_api::{
    Archive, ArchiveSet, PlanVerdict, PlannedPoint, PlannedRun, Policy, PolicyApply, PolicyCreate,
    PolicyPlan, PolicySet, PolicySource, PolicyVerify, Replica, ReplicaSet, Run, Time, Webhook,
};
use stonefold_protect as protect;

pub(super) async fn list(app: Shared) -> Answer<Json<Vec<Policy>>> {
    let protection = app.protection.clone();
    let all = app.gate.run(move |_| async move {
        let mut all = Vec::new();
        for policy in protection.policies().await? {
            all.push(with_replicas(&protection, policy).await?);
        }
        Ok(all)
    });
    Ok(Json(all.await?.into_iter().map(shown).collect()))
}

pub(super) async fn show(app: Shared, PolicyPath(name): PolicyPath) -> Answer<Json<Policy>> {
    let protection = app.protection.clone();
    let found = app.gate.run(move |_| async move {
        let policy = protection.policy(&name).await?;
        with_replicas(&protection, policy).await
    });
    Ok(Json(shown(found.await?)))
}

pub(super) async fn create(
    app: Shared,
    Body(asked): Body<PolicyCreate>,
) -> Answer<(StatusCode, Json<Policy>)> {
    let protection = app.protection.clone();
    let PolicyCreate {
        name,
        every,
        at,
        zone,
        window,
        keep,
        lock_seconds,
        consistency,
        on_failure_webhook: webhook,
    } = asked;
    webhook.as_deref().map(Webhook::new).transpose()?;
    let consistency = consistency.map_or_else(Default::default, convert::asked_consistency);
    let new = protect::NewPolicy { every, at, zone, window, keep, lock_seconds, consistency, webhook };
    let made = app.gate.run(move |_| async move { protection.create_policy(name, new).await });
    Ok((StatusCode::CREATED, Json(shown((made.await?, Vec::new())))))
}

pub(super) async fn set(
    app: Shared,
    PolicyPath(name): PolicyPath,
    Body(asked): Body<PolicySet>,
) -> Answer<Json<Policy>> {
    let protection = app.protection.clone();
    let PolicySet {
        paused,
        every,
        at,
        zone,
        window,
        keep,
        lock_seconds,
        consistency,
        on_failure_webhook: webhook,
    } = asked;
    webhook.as_deref().filter(|url| !url.is_empty()).map(Webhook::new).transpose()?;
    let consistency = consistency.map(convert::asked_consistency);
    let change = protect::PolicyChange { every, at, zone, window, keep, lock_seconds, consistency, webhook };
    let changed = app.gate.run(move |_| async move {
        let mut policy = protection.change_policy(&name, &change).await?;
        if let Some(pause) = paused {
            policy = protection.pause_policy(&name, pause).await?;
        }
        with_replicas(&protection, policy).await
    });
    Ok(Json(shown(changed.await?)))
}

pub(super) async fn apply(
    app: Shared,
    PolicyPath(name): PolicyPath,
    Body(asked): Body<PolicyApply>,
) -> Answer<Json<Policy>> {
    let protection = app.protection.clone();
    let changed = app.gate.run(move |_| async move {
        let policy = match asked.remove {
            true => protection.withdraw_policy(&name, &asked.sources).await?,
            false => protection.apply_policy(&name, &asked.sources).await?,
        };
        with_replicas(&protection, policy).await
    });
    Ok(Json(shown(changed.await?)))
}

pub(super) async fn remove(app: Shared, PolicyPath(name): PolicyPath) -> Answer<StatusCode> {
    let protection = app.protection.clone();
    app.gate.run(move |_| async move { protection.remove_policy(&name).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn plan(app: Shared, PolicyPath(name): PolicyPath) -> Answer<Json<PolicyPlan>> {
    let protection = app.protection.clone();
    let plan = app.gate.run(move |_| async move { protection.plan(&name).await }).await?;
    let next = |(source, at)| PlannedRun { source, at: Time::from_nanos(at) };
    Ok(Json(PolicyPlan {
        paused: plan.policy.paused.map(Time::from_nanos),
        policy: plan.policy.name,
        points: plan.points.into_iter().map(shown_point).collect(),
        freed_bytes: plan.freed.map(|freed| freed.bytes),
        freed_unknown: plan.unknown,
        time_in_doubt: plan.in_doubt,
        next: plan.next.into_iter().map(next).collect(),
    }))
}

pub(super) async fn verify(
    app: Shared,
    PolicyPath(name): PolicyPath,
    Body(asked): Body<PolicyVerify>,
) -> Answer<Json<Policy>> {
    let PolicyVerify { wait, timeout_seconds, every, off } = asked;
    let sign = if off { None } else { Some(sign(&wait)?) };
    let protection = app.protection.clone();
    let verify = sign.map(|sign| protect::NewVerification { sign, timeout_seconds, every });
    let set = app.gate.run(move |_| async move {
        let policy = protection.verify_policy(&name, verify).await?;
        with_replicas(&protection, policy).await
    });
    Ok(Json(shown(set.await?)))
}

pub(super) async fn set_replica(
    app: Shared,
    PolicyPath(name): PolicyPath,
    Body(asked): Body<ReplicaSet>,
) -> Answer<Json<Policy>> {
    asked.url.as_deref().map(engines::check_other).transpose()?;
    let protection = app.protection.clone();
    let set = app.gate.run(move |_| async move {
        let policy = protection.replicate_policy(&name, asked.url).await?;
        with_replicas(&protection, policy).await
    });
    Ok(Json(shown(set.await?)))
}

pub(super) async fn set_archive(
    app: Shared,
    PolicyPath(name): PolicyPath,
    Body(asked): Body<ArchiveSet>,
) -> Answer<Json<Policy>> {
    let read = |asked: Archive| {
        engines::check_other(&asked.url)?;
        Ok::<_, stonefold_types::Error>(protect::Archive::new(asked.url, asked.keep.parse()?))
    };
    let archive = asked.archive.map(read).transpose()?;
    let protection = app.protection.clone();
    let set = app.gate.run(move |_| async move {
        let policy = protection.archive_policy(&name, archive).await?;
        with_replicas(&protection, policy).await
    });
    Ok(Json(shown(set.await?)))
}

pub(super) async fn replicate(app: Shared, PolicyPath(name): PolicyPath) -> Answer<Json<Vec<Run>>> {
    let protection = app.protection.clone();
    let runs = app.gate.run(move |_| async move { protection.replicate(&name).await }).await?;
    Ok(Json(runs.into_iter().map(backups::shown).collect()))
}

/// A policy, and how far its points are in another pool.
type WithReplicas = (protect::Policy, Vec<protect::ReplicaStatus>);

async fn with_replicas(
    protection: &protect::Protection,
    policy: protect::Policy,
) -> stonefold_types::Result<WithReplicas> {
    let replicas = protection.replicas(&policy).await?;
    Ok((policy, replicas))
}

fn shown_replica(status: protect::ReplicaStatus) -> Replica {
    Replica {
        source: status.source,
        archive: status.archive,
        newest: status.newest,
        taken: status.taken.map(Time::from_nanos),
        lag_seconds: status.lag_seconds,
        behind: status.behind,
        tried: status.tried.map(Time::from_nanos),
        failed: status.failed,
    }
}

fn shown((policy, replicas): WithReplicas) -> Policy {
    let protect::Policy { name, schedule, keep, lock_seconds, consistency, sources, created, .. } = policy;
    // One that this version does not read is shown as that.
    let place =
        |url: String| Webhook::new(&url).map_or_else(|_| "…".to_owned(), |hook| hook.place().to_owned());
    let source = |applied: protect::Applied| PolicySource {
        source: applied.source,
        since: Time::from_nanos(applied.since),
    };
    Policy {
        name,
        every: schedule.every().to_string(),
        at: schedule.at(),
        zone: schedule.zone().to_string(),
        window: schedule.window().map(ToString::to_string),
        keep: keep.map(|keep| keep.to_string()),
        lock_seconds,
        consistency: convert::consistency(consistency),
        sources: sources.into_iter().map(source).collect(),
        created: Time::from_nanos(created),
        paused: policy.paused.map(Time::from_nanos),
        on_failure_webhook: policy.webhook.map(place),
        verify: policy.verify.map(|verify| PolicyVerify {
            wait: verify.sign.to_string(),
            timeout_seconds: verify.timeout_seconds,
            every: verify.every_since.is_some(),
            off: false,
        }),
        replicate: policy.replicate,
        archive: policy.archive.map(|archive| Archive { url: archive.url, keep: archive.keep.to_string() }),
        replicas: replicas.into_iter().map(shown_replica).collect(),
    }
}

fn shown_point(planned: protect::Planned) -> PlannedPoint {
    use protect::Verdict;
    let (mut kept_as, mut locked_until) = (Vec::new(), None);
    let verdict = match planned.verdict {
        Verdict::Goes => PlanVerdict::Goes,
        Verdict::All => PlanVerdict::Stays,
        Verdict::Sent => {
            kept_as = vec!["sent".to_owned()];
            PlanVerdict::Stays
        }
        Verdict::Kept(periods) => {
            kept_as = periods.into_iter().map(|period| period.name().to_owned()).collect();
            PlanVerdict::Stays
        }
        Verdict::Locked(until) => {
            locked_until = Some(Time::from_nanos(until));
            PlanVerdict::Locked
        }
        Verdict::Broken => PlanVerdict::Broken,
        Verdict::InDoubt => PlanVerdict::Waits,
    };
    PlannedPoint {
        name: planned.point,
        taken: Time::from_nanos(planned.taken),
        verdict,
        kept_as,
        locked_until,
        freed_bytes: planned.freed.map(|freed| freed.bytes),
    }
}
