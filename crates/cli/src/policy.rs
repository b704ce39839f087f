//! `stonefold policy …`.

mod set;
mod words;

pub(crate) use words::consistency;

use set::Set;
use words::{check_times, check_webhook, every, hours, keep, lock_seconds};

use crate::context::Context;
use crate::failure::Failure;
use crate::recover::{patience, sign_of_life};
use crate::table::{Table, count, facts};
use crate::waiting::wait_for;
use clap::{Args, Subcommand};
use serde_json::json;
use stonefold_api::{
    Archive, ArchiveSet, Client, Consistency, PlanVerdict, PlannedPoint, Policy as Shown, PolicyApply,
    PolicyCreate, PolicyPlan, PolicySet, PolicyVerify, Replica, ReplicaSet, Run, Time,
};
use stonefold_types::{Error, Name, Size};

/// Say when points are made, which of them stay, and for how long nobody removes them
///
/// A policy judges the points that it has made, and no others: what 'backup run' makes stays until somebody removes it.
#[derive(Subcommand)]
pub(crate) enum Policy {
    Create(Box<Create>),
    /// Apply a policy to sources; what was due before is not caught up
    #[command(
        after_help = "Examples:\n  stonefold policy apply nightly web db\n  stonefold policy apply nightly db --remove"
    )]
    Apply {
        /// The policy
        name: Name,
        /// The sources: all or none
        #[arg(value_name = "SOURCE", required = true)]
        sources: Vec<Name>,
        /// Take them out of it; the points that it has made of them stay
        #[arg(long)]
        remove: bool,
    },
    /// Show what a policy would do now: which points go and what that gives back, and why the others stay
    Plan {
        /// The policy
        name: Name,
        /// Change nothing, as this command never does: the server removes what a policy does not keep after the policy's runs
        #[arg(long)]
        dry_run: bool,
    },
    /// Pause a policy: until it is resumed it makes no runs and removes nothing, over restarts of the server, too
    Pause {
        /// The policy
        name: Name,
    },
    /// Resume a policy; what it has missed is caught up by one run of each source
    Resume {
        /// The policy
        name: Name,
    },
    Set(Box<Set>),
    /// Send what the other pool lacks of a policy's points now, and wait until it is there; the server does so by itself after each run
    Replicate {
        /// The policy
        name: Name,
    },
    /// List all policies
    Ls,
    /// Show a policy
    Show {
        /// The policy
        name: Name,
    },
    /// Remove a policy; the points that it has made stay, and no policy removes them
    Rm {
        /// The policy
        name: Name,
    },
}

/// Make a policy; 'policy apply' applies it to sources
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    stonefold policy create hourly --every 1h --keep hourly=24,daily=30\n  \
    stonefold policy create nightly --every 1d --at 02:00 --zone Europe/Berlin --keep daily=30,monthly=12 --lock 14d\n  \
    stonefold policy create nightly --every 1d --replicate file:///mnt/other/pool\n  \
    stonefold policy create weekly --every 1w --at 'sun 03:00' --window 'sat,sun 00:00-24:00'")]
pub(crate) struct Create {
    /// The policy's name: 1 to 128 letters, digits, '.', '_' or '-'
    name: Name,
    /// How often: minutes or hours that divide a day (15m, 2h), days (1d), 1w, months that divide a year (1month), 1y
    #[arg(long, value_name = "TIME", value_parser = every)]
    every: String,
    /// When, within that: 00:10, 'sun 02:00', '15 02:00', 'last 02:00', '12-31 02:00' [default: midnight of the first day]
    #[arg(long, value_name = "WHEN")]
    at: Option<String>,
    /// The time zone whose days and hours these are, as Europe/Berlin [default: the server's]
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,
    /// Hours in which runs may begin, maybe with the days on which they begin: 22:00-06:00, 'mon-fri 20:00-05:00'
    #[arg(long, value_name = "HOURS", value_parser = hours)]
    window: Option<String>,
    /// Of how many hours, days, weeks, months and years with points the last one stays, and how many of all: hourly=24,daily=30,last=3
    /// [default: all stay]
    #[arg(long, value_name = "COUNTS", value_parser = keep)]
    keep: Option<String>,
    /// Lock each point for so long: nobody can remove it before, not even an admin; 12h, 14d, 8w
    #[arg(long, value_name = "TIME", value_parser = lock_seconds)]
    lock: Option<u64>,
    /// What a guest finds on its points: crash, what it would find after a loss of power; app, what its file systems and programs had finished,
    /// for which its agent is asked ('machine set --agent')
    #[arg(long, value_name = "HOW", default_value = "crash", value_parser = consistency)]
    consistent: Consistency,
    /// A URL to which JSON is posted when a run fails, and when the next one makes a point again: http:// or https://. A program is told
    /// where the server is started with --notify-command
    #[arg(long, value_name = "URL")]
    on_failure_webhook: Option<String>,
    /// Prove that points boot, as 'stonefold verify' does: boot, the newest of each source; every, each that is made
    #[arg(long, value_name = "HOW", value_parser = ["boot", "every"])]
    verify: Option<String>,
    /// What is waited for then: agent, port:N, console:REGEX or cmd:COMMAND
    #[arg(long, value_name = "SIGN", default_value = "agent", value_parser = sign_of_life, requires = "verify")]
    wait: String,
    /// How long
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = patience, requires = "verify")]
    timeout: u64,
    /// Send its points to another pool, by its URL: file:///mnt/other/pool. The server makes it, and has it to itself while it sends
    #[arg(long, value_name = "URL")]
    replicate: Option<String>,
    /// Keep some of its points for longer in another pool, by its URL: s3://bucket/prefix?endpoint=URL, or a file:// one. They go there
    /// once their period is over: the last of a month when the next month has a point
    #[arg(long, value_name = "URL")]
    archive: Option<String>,
    /// Which points the archive keeps
    #[arg(long, value_name = "COUNTS", default_value = ARCHIVE_KEEP, value_parser = keep, requires = "archive")]
    archive_keep: String,
}

/// What an archive keeps where nothing else is said.
const ARCHIVE_KEEP: &str = "monthly=12,yearly=7";

impl Policy {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        match self {
            Policy::Create(create) => {
                if let Some(at) = &create.at {
                    check_times(&create.every, at).map_err(Failure::Misuse)?;
                }
                check_webhook(create.on_failure_webhook.as_deref()).map_err(Failure::Misuse)?;
                let verify = create.verification();
                let replica = create.replicate.clone().map(|url| ReplicaSet { url: Some(url) });
                let archive = create.archive.clone().map(|url| archive_set(url, create.archive_keep.clone()));
                let mut made = client.create_policy(&create.asked())?;
                if let Some(archive) = archive {
                    made = client
                        .set_archive(&made.name, &archive)
                        .map_err(|error| undone(&client, &made.name, error))?;
                }
                if let Some(replica) = replica {
                    made = client
                        .set_replica(&made.name, &replica)
                        .map_err(|error| undone(&client, &made.name, error))?;
                }
                if let Some(verify) = verify {
                    made = client
                        .verify_policy(&made.name, &verify)
                        .map_err(|error| undone(&client, &made.name, error))?;
                }
                let text = || {
                    let name = &made.name;
                    format!("policy '{name}' made; 'stonefold policy apply {name} SOURCE' applies it\n")
                };
                context.answer(&made, text)
            }
            Policy::Apply { name, sources, remove } => {
                let applied = client.apply_policy(&name, &PolicyApply { sources, remove })?;
                let text = || format!("policy '{name}' is applied to {}\n", sources_text(&applied));
                context.answer(&applied, text)
            }
            Policy::Plan { name, dry_run: _ } => {
                let plan = wait_for(&client, "plan", move |client| client.plan_policy(&name))?;
                context.answer(&plan, || plan_text(&plan))
            }
            Policy::Pause { name } => {
                let paused =
                    client.set_policy(&name, &PolicySet { paused: Some(true), ..PolicySet::default() })?;
                let text =
                    || format!("policy '{name}' is paused; 'stonefold policy resume {name}' ends that\n");
                context.answer(&paused, text)
            }
            Policy::Resume { name } => {
                let resumed =
                    client.set_policy(&name, &PolicySet { paused: Some(false), ..PolicySet::default() })?;
                context.answer(&resumed, || format!("policy '{name}' is at work\n"))
            }
            Policy::Set(set) => {
                let changed = set.change(&client)?;
                context.answer(&changed, || policy_text(&changed))
            }
            Policy::Replicate { name } => {
                let of = name.clone();
                let runs = wait_for(&client, "replication", move |client| client.replicate_policy(&of))?;
                context.answer(&runs, || sent_text(&name, &runs))
            }
            Policy::Ls => {
                let policies = client.policies()?;
                context.answer(&policies, || table(&policies))
            }
            Policy::Show { name } => {
                let policy = client.policy(&name)?;
                context.answer(&policy, || policy_text(&policy))
            }
            Policy::Rm { name } => {
                // One that cannot be read can be removed, too.
                let of = client.policy(&name).map(|policy| policy.sources).unwrap_or_default();
                client.remove_policy(&name)?;
                let of: Vec<String> = of.iter().map(|applied| applied.source.to_string()).collect();
                let no_more = match of.is_empty() {
                    true => String::new(),
                    false => format!(", and no more are made of {} by it", of.join(", ")),
                };
                let text = || format!("removed policy '{name}'; its points stay as they are{no_more}\n");
                context.answer(&json!({ "removed": [name], "sources": of }), text)
            }
        }
    }
}

fn archive_set(url: String, keep: String) -> ArchiveSet {
    ArchiveSet { archive: (url != "none").then_some(Archive { url, keep }) }
}

/// A policy that does not do all that was asked is none.
fn undone(client: &Client, name: &Name, error: Error) -> Error {
    match client.remove_policy(name) {
        Ok(()) => error.context(format!("policy '{name}' was not made")),
        Err(left) => error.context(format!("policy '{name}' was made, and verifies nothing ({left})")),
    }
}

/// `how`: boot, every or none.
fn verification(how: &str, wait: &str, timeout_seconds: u64) -> PolicyVerify {
    PolicyVerify { wait: wait.to_owned(), timeout_seconds, every: how == "every", off: how == "none" }
}

impl Create {
    fn verification(&self) -> Option<PolicyVerify> {
        self.verify.as_ref().map(|how| verification(how, &self.wait, self.timeout))
    }

    fn asked(self) -> PolicyCreate {
        PolicyCreate {
            name: self.name,
            every: self.every,
            at: self.at,
            zone: self.zone,
            window: self.window,
            keep: self.keep,
            lock_seconds: self.lock,
            consistency: Some(self.consistent),
            on_failure_webhook: self.on_failure_webhook,
        }
    }
}

fn sources_text(policy: &Shown) -> String {
    let names: Vec<&str> = policy.sources.iter().map(|applied| applied.source.as_str()).collect();
    if names.is_empty() { "nothing".to_owned() } else { names.join(",") }
}

fn keep_text(policy: &Shown) -> String {
    policy.keep.clone().unwrap_or_else(|| "all".to_owned())
}

/// Of whole hours, as locks are given here; of others, which a program may have asked for, in seconds.
fn lock_text(policy: &Shown) -> Option<String> {
    let seconds = policy.lock_seconds?;
    let in_units = [(86_400, "d"), (3600, "h")].into_iter().find(|(unit, _)| seconds % unit == 0);
    let (unit, letter) = in_units.unwrap_or((1, "s"));
    Some(format!("{}{letter}", seconds / unit))
}

fn table(policies: &[Shown]) -> String {
    let mut table = Table::new(&["POLICY", "EVERY", "AT", "KEEP", "LOCK", "SOURCES", "STATE"]);
    for policy in policies {
        table.row([
            policy.name.to_string(),
            policy.every.clone(),
            format!("{} {}", policy.at, policy.zone),
            keep_text(policy),
            lock_text(policy).unwrap_or_else(|| "-".to_owned()),
            sources_text(policy),
            if policy.paused.is_some() { "paused" } else { "at work" }.to_owned(),
        ]);
    }
    table.or("no policies; 'stonefold policy create NAME --every 1d' makes one")
}

fn policy_text(policy: &Shown) -> String {
    let source = |applied: &stonefold_api::PolicySource| {
        format!("{} since {} UTC", applied.source, applied.since.to_seconds_text())
    };
    let guest = match policy.consistency {
        Consistency::Crash => "as after a loss of power",
        Consistency::App => "all finished: it stands still meanwhile",
    };
    facts([
        ("policy", policy.name.to_string()),
        ("every", policy.every.clone()),
        ("at", format!("{} {}", policy.at, policy.zone)),
        ("window", policy.window.clone().unwrap_or_default()),
        ("keep", keep_text(policy)),
        ("lock", lock_text(policy).unwrap_or_default()),
        ("a guest finds", guest.to_owned()),
        (
            "verifies",
            policy
                .verify
                .as_ref()
                .map(|verify| {
                    let which = if verify.every { "every point" } else { "the newest point" };
                    format!("{which} boots ({})", verify.wait)
                })
                .unwrap_or_default(),
        ),
        ("sends to", policy.replicate.clone().unwrap_or_default()),
        ("archives to", policy.archive.as_ref().map(archive_text).unwrap_or_default()),
        ("there", policy.replicas.iter().map(replica_text).collect::<Vec<_>>().join("\n")),
        ("tells", policy.on_failure_webhook.clone().unwrap_or_default()),
        ("made", format!("{} UTC", policy.created.to_seconds_text())),
        (
            "paused",
            policy.paused.map_or_else(String::new, |at| format!("since {} UTC", at.to_seconds_text())),
        ),
        ("sources", policy.sources.iter().map(source).collect::<Vec<_>>().join("\n")),
    ])
}

fn archive_text(archive: &Archive) -> String {
    format!("{}, which keeps {}", archive.url, archive.keep)
}

/// How far a policy's points of a source are in the other pool.
fn replica_text(replica: &Replica) -> String {
    let there = match (&replica.newest, replica.taken) {
        (Some(newest), Some(taken)) => {
            format!("{newest} of {} UTC is there", taken.to_seconds_text())
        }
        _ => format!("nothing of {} is there", replica.source),
    };
    let there = if replica.archive { format!("archive: {there}") } else { there };
    let behind = match replica.behind {
        // An archive has some points only, and how old its newest is says nothing.
        0 if replica.archive || replica.newest.is_none() => String::new(),
        0 => format!(": all sent; that is {} old", age_text(replica.lag_seconds)),
        behind => format!(", {} to come", count(behind, "point")),
    };
    let failed = replica.failed.as_ref().map(|why| format!("; the last attempt failed: {why}"));
    format!("{there}{behind}{}", failed.unwrap_or_default())
}

/// As much of an age as people want to know.
fn age_text(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

fn sent_text(policy: &Name, runs: &[Run]) -> String {
    if runs.is_empty() {
        return format!("there is nothing to send: the other pool lacks no point of policy '{policy}'\n");
    }
    let of = |run: &Run| {
        let (read, written) =
            run.copied.as_ref().map_or((0, 0), |copied| (copied.read_bytes, copied.written_bytes));
        format!("sent {}: {} read, {} written, compared\n", run.name, Size(read), Size(written))
    };
    runs.iter().map(of).collect()
}

fn plan_text(plan: &PolicyPlan) -> String {
    let mut table = Table::new(&["POINT", "TAKEN (UTC)", "WHAT", "WHY", "GIVES BACK>"]);
    for point in &plan.points {
        let (what, why) = verdict_text(point);
        let bytes = point.freed_bytes.map_or_else(|| "-".to_owned(), |bytes| Size(bytes).to_string());
        table.row([point.name.to_string(), point.taken.to_seconds_text(), what.to_owned(), why, bytes]);
    }
    let mut text = table.or("no points of this policy yet");
    let going = plan.points.iter().filter(|point| point.verdict == PlanVerdict::Goes).count() as u64;
    let going = match going {
        1 => "1 point goes".to_owned(),
        many => format!("{} go", count(many, "point")),
    };
    text += &match (plan.freed_bytes, &plan.freed_unknown) {
        (Some(bytes), _) => format!("{going}, which gives back {} (stored, compressed)\n", Size(bytes)),
        (None, why) => {
            let why = why.as_deref().unwrap_or("the server does not say");
            format!("{going}; what that gives back is not known exactly, and so not told: {why}\n")
        }
    };
    if plan.time_in_doubt {
        text += "the server's clock is doubted: nothing goes until 'stonefold pool confirm-time'\n";
    }
    if let Some(since) = plan.paused {
        let (since, name) = (since.to_seconds_text(), &plan.policy);
        text += &format!(
            "paused since {since} UTC: nothing is made and nothing goes until 'stonefold policy resume {name}'\n"
        );
    }
    for next in &plan.next {
        text += &format!("the next run of {} is due at {} UTC\n", next.source, next.at.to_seconds_text());
    }
    text
}

fn verdict_text(point: &PlannedPoint) -> (&'static str, String) {
    match point.verdict {
        PlanVerdict::Goes => ("goes", "not kept".to_owned()),
        PlanVerdict::Stays if point.kept_as.is_empty() => ("stays", "all stay".to_owned()),
        PlanVerdict::Stays => ("stays", point.kept_as.join(",")),
        PlanVerdict::Locked => {
            let until = point.locked_until.map_or_else(|| "-".to_owned(), Time::to_seconds_text);
            ("stays", format!("locked until {until} UTC"))
        }
        PlanVerdict::Broken => ("stays", "broken: a snapshot was removed".to_owned()),
        PlanVerdict::Waits => ("stays", "the server's clock is doubted".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_a_replica_is_is_told_in_words() {
        let name: Name = "web".parse().unwrap();
        let newest: stonefold_types::PointName = "web@20261123T184005Z".parse().unwrap();
        let replica = |behind, archive| Replica {
            source: name.clone(),
            archive,
            newest: Some(newest.clone()),
            taken: Some(Time(0)),
            lag_seconds: 200,
            behind,
            tried: None,
            failed: None,
        };
        assert!(replica_text(&replica(0, false)).ends_with(" UTC is there: all sent; that is 3 min old"));
        assert!(replica_text(&replica(2, false)).ends_with(" UTC is there, 2 points to come"));
        assert!(replica_text(&replica(0, true)).ends_with(" UTC is there"));
        assert_eq!(
            (age_text(5), age_text(7200), age_text(172_800)),
            ("5 s".into(), "2 h".into(), "2 days".into())
        );
    }
}
