//! `stonefold policy set`.
//!
//! *Promise*: all that is named is changed, or nothing. What can be known of the words alone is refused before any call; a step that the server
//! refuses has those before it taken back.

use super::words::{self, check_times, check_webhook, consistency, hours_or_none, keep_or_all, lock_or_none};
use super::{ARCHIVE_KEEP, archive_set, verification};
use crate::failure::Failure;
use crate::recover::{TIMEOUT_SECONDS, patience, sign_of_life};
use clap::Args;
use stonefold_api::{
    Archive, ArchiveSet, Client, Consistency, Policy as Shown, PolicySet, PolicyVerify, ReplicaSet,
};
use stonefold_types::{Error, Kind, Name};

/// Change a policy; what is not named stays
///
/// Points that it has made are judged by it as it is now, after its next run: 'policy plan' shows which would go. What is locked stays so.
#[derive(Args)]
#[command(group(clap::ArgGroup::new("changes").required(true).multiple(true)), after_help = "Examples:\n  \
    stonefold policy set nightly --keep daily=14 --lock none\n  \
    stonefold policy set nightly --every 1h --at 00:00\n  \
    stonefold policy set nightly --replicate file:///mnt/other/pool")]
pub(crate) struct Set {
    /// The policy
    name: Name,
    /// How often, as for a new one
    #[arg(long, value_name = "TIME", value_parser = words::every, group = "changes")]
    every: Option<String>,
    /// When, within that
    #[arg(long, value_name = "WHEN", group = "changes")]
    at: Option<String>,
    /// The time zone whose days and hours these are
    #[arg(long, value_name = "ZONE", group = "changes")]
    zone: Option<String>,
    /// Hours in which runs may begin; 'none' for always
    #[arg(long, value_name = "HOURS", value_parser = hours_or_none, group = "changes")]
    window: Option<String>,
    /// Which points stay; 'all' for all
    #[arg(long, value_name = "COUNTS", value_parser = keep_or_all, group = "changes")]
    keep: Option<String>,
    /// Lock each point that is made from now on for so long; 'none' for not at all
    #[arg(long, value_name = "TIME", value_parser = lock_or_none, group = "changes")]
    lock: Option<u64>,
    /// What a guest finds on its points: crash or app
    #[arg(long, value_name = "HOW", value_parser = consistency, group = "changes")]
    consistent: Option<Consistency>,
    /// Who is told when a run fails; 'none' for nobody
    #[arg(long, value_name = "URL", group = "changes")]
    on_failure_webhook: Option<String>,
    /// Prove that points boot: boot, the newest of each source; every, each that is made from now on; none
    #[arg(long, value_name = "HOW", value_parser = ["boot", "every", "none"], group = "changes")]
    verify: Option<String>,
    /// What is waited for then: agent, port:N, console:REGEX or cmd:COMMAND
    #[arg(long, value_name = "SIGN", value_parser = sign_of_life, group = "changes")]
    wait: Option<String>,
    /// How long
    #[arg(long, value_name = "TIME", value_parser = patience, group = "changes")]
    timeout: Option<u64>,
    /// The URL of another pool that its points are sent to, which the server opens; 'none' for nowhere: what is there stays
    #[arg(long, value_name = "URL", group = "changes")]
    replicate: Option<String>,
    /// The URL of a pool that keeps some of its points for longer; 'none' for none any more: what is there stays
    #[arg(long, value_name = "URL", group = "changes")]
    archive: Option<String>,
    /// Which points that keeps
    #[arg(long, value_name = "COUNTS", value_parser = words::keep, group = "changes")]
    archive_keep: Option<String>,
}

/// A call of its own beside the one that changes the schedule and what points are like. These take an admin, so they come first: whoever is
/// none has then changed nothing.
enum Step {
    Replica(ReplicaSet),
    Archive(ArchiveSet),
    Verify(PolicyVerify),
}

impl Step {
    fn take(&self, client: &Client, policy: &Name) -> Result<Shown, Error> {
        match self {
            Step::Replica(set) => client.set_replica(policy, set),
            Step::Archive(set) => client.set_archive(policy, set),
            Step::Verify(verify) => client.verify_policy(policy, verify),
        }
    }
}

impl Set {
    pub(super) fn change(self, client: &Client) -> Result<Shown, Failure> {
        if let (Some(every), Some(at)) = (&self.every, &self.at) {
            check_times(every, at).map_err(Failure::Misuse)?;
        }
        check_webhook(self.on_failure_webhook.as_deref()).map_err(Failure::Misuse)?;
        let name = self.name.clone();
        let now = client.policy(&name)?;
        if self.every.is_some() || self.at.is_some() {
            self.check_beside(&now)?;
        }
        let (steps, rest) = self.steps(&now)?;
        let mut taken: Vec<Step> = Vec::new();
        for (step, back) in steps {
            step.take(client, &name).map_err(|error| undone(client, &name, &taken, error))?;
            taken.push(back);
        }
        Ok(client.set_policy(&name, &rest).map_err(|error| undone(client, &name, &taken, error))?)
    }

    /// What is named has to go with what is not, as the server will find, too, but only after the steps.
    fn check_beside(&self, now: &Shown) -> Result<(), Error> {
        let (every, at) = (self.every.as_ref().unwrap_or(&now.every), self.at.as_ref().unwrap_or(&now.at));
        check_times(every, at).map_err(|error| match self.at {
            None => error.context(format!(
                "of the runs of policy '{}' it is said that they begin at '{at}'",
                self.name
            )),
            Some(_) => error,
        })
    }

    /// Each with the one that takes it back, and what comes after them.
    fn steps(self, now: &Shown) -> Result<(Vec<(Step, Step)>, PolicySet), Error> {
        let mut steps = Vec::new();
        if let Some(url) = self.replicate {
            let url = Some(url).filter(|url| url != "none");
            let back = ReplicaSet { url: now.replicate.clone() };
            steps.push((Step::Replica(ReplicaSet { url }), Step::Replica(back)));
        }
        if self.archive.is_some() || self.archive_keep.is_some() {
            let set = changed_archive(&self.name, now.archive.clone(), self.archive, self.archive_keep)?;
            steps.push((Step::Archive(set), Step::Archive(ArchiveSet { archive: now.archive.clone() })));
        }
        if self.verify.is_some() || self.wait.is_some() || self.timeout.is_some() {
            let verify =
                changed_verification(&self.name, now.verify.clone(), self.verify, self.wait, self.timeout)?;
            let off = || verification("none", "agent", TIMEOUT_SECONDS);
            steps.push((Step::Verify(verify), Step::Verify(now.verify.clone().unwrap_or_else(off))));
        }
        let of = |text: String| if text == "none" { String::new() } else { text };
        let rest = PolicySet {
            paused: None,
            every: self.every,
            at: self.at,
            zone: self.zone,
            window: self.window,
            keep: self.keep,
            lock_seconds: self.lock,
            consistency: self.consistent,
            on_failure_webhook: self.on_failure_webhook.map(of),
        };
        Ok((steps, rest))
    }
}

/// Why a policy was not changed, after what was changed of it is as it was.
fn undone(client: &Client, name: &Name, taken: &[Step], error: Error) -> Error {
    let back = taken.iter().rev().try_for_each(|back| back.take(client, name).map(drop));
    match back {
        Ok(()) => error,
        Err(left) => error.context(format!("policy '{name}' was changed in part ({left})")),
    }
}

/// What is not named of how points are proven stays as it is now.
fn changed_verification(
    policy: &Name,
    now: Option<PolicyVerify>,
    how: Option<String>,
    wait: Option<String>,
    timeout: Option<u64>,
) -> Result<PolicyVerify, Error> {
    if now.is_none() && how.is_none() {
        return Err(Error::new(Kind::Invalid, format!("policy '{policy}' has no point proven"))
            .remedy("say which: --verify boot or --verify every"));
    }
    let now = now.unwrap_or_else(|| verification("boot", "agent", TIMEOUT_SECONDS));
    let how = how.unwrap_or_else(|| if now.every { "every" } else { "boot" }.to_owned());
    let (wait, timeout) = (wait.unwrap_or(now.wait), timeout.unwrap_or(now.timeout_seconds));
    Ok(verification(&how, &wait, timeout))
}

/// What is not named of an archive stays as it is now.
fn changed_archive(
    policy: &Name,
    now: Option<Archive>,
    url: Option<String>,
    keep: Option<String>,
) -> Result<ArchiveSet, Error> {
    let (its_url, its_keep) = now.map(|archive| (archive.url, archive.keep)).unzip();
    let url = url.or(its_url).ok_or_else(|| {
        Error::new(Kind::Invalid, format!("policy '{policy}' has no archive"))
            .remedy("name one: --archive URL")
    })?;
    Ok(archive_set(url, keep.or(its_keep).unwrap_or_else(|| ARCHIVE_KEEP.to_owned())))
}
