//! `stonefold recover --plan`: a group of machines brought back, in the order that they need each other.
//!
//! *Promises*: all of them are looked at before the first is made; one that cannot be made then leaves nothing made. Those of one priority come before those of the
//! next, and where one of them fails, or gives no sign of life, the next do not begin: they may need it.

use super::{Asked, Processors, TIMEOUT_SECONDS, To, limits, made_text, patience};
use crate::context::Context;
use crate::failure::Failure;
use crate::waiting::wait_for;
use serde::Deserialize;
use std::path::Path;
use stonefold_api::{Client, Recovered};
use stonefold_types::{Error, Kind, Name, ParseSizeError, PointName, Result, Size};

/// A plan, as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plan {
    /// Behind each machine's name.
    #[serde(default)]
    suffix: String,
    /// What machines have that say nothing else.
    #[serde(default)]
    all: Usual,
    machine: Vec<Machine>,
}

/// Where and how a machine runs.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Usual {
    to: Option<String>,
    network: Option<String>,
    qos: Option<Name>,
    wait: Option<String>,
    timeout: Option<String>,
    #[serde(rename = "memory-max")]
    memory_max: Option<String>,
    processors: Option<f64>,
}

/// A machine of a plan.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Machine {
    /// Its newest point, or the one that is named.
    source: Option<Name>,
    point: Option<PointName>,
    #[serde(rename = "as")]
    name: Option<Name>,
    /// The lowest first.
    #[serde(default)]
    priority: u32,
    to: Option<String>,
    network: Option<String>,
    qos: Option<Name>,
    wait: Option<String>,
    timeout: Option<String>,
    #[serde(rename = "memory-max")]
    memory_max: Option<String>,
    processors: Option<f64>,
}

/// Carries a plan out, or looks whether it can be.
pub(super) fn run(
    context: &Context,
    client: &Client,
    file: &Path,
    dry_run: bool,
) -> std::result::Result<(), Failure> {
    let plan = read(file).map_err(Failure::Misuse)?;
    let mut wanted = Vec::new();
    for machine in &plan.machine {
        let asked =
            plan.asked(client, machine).map_err(|e| e.context(format!("plan '{}'", file.display())))?;
        wanted.push((machine.priority, asked));
    }
    wanted.sort_by_key(|(priority, _)| *priority);
    check_names(&wanted).map_err(|e| Failure::Misuse(e.context(format!("plan '{}'", file.display()))))?;
    let mut made: Vec<Recovered> = Vec::new();
    for (_, asked) in &wanted {
        made.push(asked.look(client)?);
    }
    if !dry_run {
        made.clear();
        let mut failed: Option<(u32, Error)> = None;
        for (priority, asked) in wanted {
            if failed.as_ref().is_some_and(|(of, _)| *of < priority) {
                break;
            }
            let of_thread = asked.clone();
            match wait_for(client, "recover", move |client| of_thread.carry_out(client)) {
                Ok(done) if asked.is_alive(&done) => made.push(done),
                Ok(silent) => {
                    let error = asked.silent().remedy(
                        "look at its console; nothing of a later priority was begun, for it may need this one",
                    );
                    eprintln!("error: {error}");
                    made.push(silent);
                    failed = failed.or(Some((priority, error)));
                }
                Err(error) => {
                    let error = error.context(format!("recovering '{}'", asked.name));
                    eprintln!("error: {error}");
                    failed = failed.or(Some((priority, error)));
                }
            }
        }
        if let Some((_, error)) = failed {
            context.answer(&made, || texts(&made))?;
            return Err(error.into());
        }
    }
    context.answer(&made, || texts(&made))
}

/// Two of one name would be found out when the first is there.
fn check_names(wanted: &[(u32, Asked)]) -> Result<()> {
    for (at, (_, asked)) in wanted.iter().enumerate() {
        if wanted[..at].iter().any(|(_, other)| other.name == asked.name) {
            let what = format!("two machines are to be '{}'", asked.name);
            return Err(Error::new(Kind::Invalid, what).remedy("give each a name of its own: as = \"NAME\""));
        }
    }
    Ok(())
}

fn texts(made: &[Recovered]) -> String {
    made.iter().map(made_text).collect::<Vec<_>>().join("\n")
}

fn read(file: &Path) -> Result<Plan> {
    let at = file.display();
    let text = std::fs::read_to_string(file).map_err(|e| {
        Error::io(format!("reading the plan '{at}'"), e)
            .remedy("name a readable file; docs/use/protect.md has one")
    })?;
    parse(&text).map_err(|e| e.context(format!("plan '{at}'")))
}

fn parse(text: &str) -> Result<Plan> {
    let plan: Plan = toml::from_str(text).map_err(|e| {
        let line = 1 + e.span().map_or(0, |span| text[..span.start.min(text.len())].matches('\n').count());
        Error::new(Kind::Invalid, format!("line {line}: {}", e.message().trim())).remedy(
            "a plan has a [[machine]] for each, with source = or point =; docs/use/protect.md has one",
        )
    })?;
    for machine in &plan.machine {
        if machine.source.is_some() == machine.point.is_some() {
            return Err(Error::new(Kind::Invalid, "a machine has a source or a point, one of them")
                .remedy("write source = \"web-nightly\" for its newest point"));
        }
    }
    Ok(plan)
}

impl Plan {
    /// What is asked for a machine, with its newest point where none is named.
    fn asked(&self, client: &Client, machine: &Machine) -> Result<Asked> {
        let point = match (&machine.point, &machine.source) {
            (Some(point), _) => point.clone(),
            (None, Some(source)) => newest(client, source)?,
            (None, None) => return Err(Error::new(Kind::Invalid, "a machine has no point")),
        };
        let bare = machine.name.clone().unwrap_or_else(|| point.source.clone());
        let timeout = machine.timeout.as_ref().or(self.all.timeout.as_ref());
        let timeout = timeout.map(|text| patience(text).map_err(|why| Error::new(Kind::Invalid, why)));
        let memory_max = machine.memory_max.as_ref().or(self.all.memory_max.as_ref());
        let memory_max: Option<Size> = memory_max
            .map(|text| text.parse().map_err(|e: ParseSizeError| Error::new(Kind::Invalid, e.to_string())))
            .transpose()?;
        let processors = machine.processors.or(self.all.processors);
        let processors: Option<Processors> = processors
            .map(|count| count.to_string().parse().map_err(|why: String| Error::new(Kind::Invalid, why)))
            .transpose()?;
        let to = machine.to.as_ref().or(self.all.to.as_ref());
        let to = to.map(|text| text.parse().map_err(|why: String| Error::new(Kind::Invalid, why)));
        let asked = Asked {
            point,
            name: Name::new(&format!("{bare}{}", self.suffix))?,
            to: to.transpose()?.unwrap_or(To::Export),
            network: machine.network.clone().or(self.all.network.clone()),
            wait: machine.wait.clone().or(self.all.wait.clone()),
            timeout_seconds: timeout.transpose()?.unwrap_or(TIMEOUT_SECONDS),
            qos: machine.qos.clone().or(self.all.qos.clone()),
            limits: limits(memory_max, processors),
        };
        asked.check().map(|()| asked)
    }
}

/// The newest point of a source that is whole.
fn newest(client: &Client, source: &Name) -> Result<PointName> {
    let points = client.points(Some(source))?;
    let whole = points.into_iter().rev().find(|point| point.state == stonefold_api::PointState::Whole);
    whole.map(|point| point.name).ok_or_else(|| {
        Error::new(Kind::NotFound, format!("source '{source}' has no point that is whole"))
            .remedy(format!("'stonefold point ls {source}' shows what it has"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_read_and_mistakes_told_with_their_line() {
        let text = "suffix = '-dr'\n[all]\nto = 'qemu'\n[[machine]]\nsource = 'db'\nas = 'db'\npriority = 1\n[[machine]]\npoint = 'web@20261123T184005Z'\n";
        let plan = parse(text).unwrap();
        assert_eq!(
            (plan.machine.len(), plan.machine[0].priority, plan.all.to.as_deref()),
            (2, 1, Some("qemu"))
        );
        for (wrong, says) in [
            ("[[machine]]\nsource = 'a'\nprio = 1", "prio"),
            ("[[machine]]\nas = 'a'", "a source or a point"),
            ("[[machine]]\nsource = 'a'\npoint = 'a@20261123T184005Z'", "one of them"),
            ("suffix = 1\n", "line 1"),
        ] {
            let error = parse(wrong).err().unwrap().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
