//! `stonefold recover --plan`: a group of machines brought back, in the order that they need each other.
//!
//! *Promises*: all of them are looked at before the first is made; one that cannot be made then leaves nothing made. Those of one priority come before those of the
//! next, and [together](super::together).

use super::how::{How, To, as_number, as_patience, as_text};
use super::limits::Processors;
use super::together::carry_out;
use super::{Asked, made_text};
use crate::context::Context;
use crate::failure::Failure;
use serde::Deserialize;
use std::path::Path;
use stonefold_api::{Client, Recovered};
use stonefold_types::{Error, Kind, Name, PointName, Result, Size};

/// A plan, as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plan {
    /// Behind each machine's name.
    #[serde(default)]
    suffix: String,
    /// What machines have that say nothing else.
    #[serde(default)]
    all: How,
    machine: Vec<Machine>,
}

/// A machine of a plan.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Machine {
    /// Its newest point, or the one that is named.
    source: Option<Name>,
    point: Option<PointName>,
    #[serde(rename = "as")]
    name: Option<Name>,
    /// The lowest first.
    #[serde(default)]
    priority: u32,
    // As `How` has them: serde knows no unknown fields where a struct is flattened into another.
    #[serde(default, deserialize_with = "as_text")]
    to: Option<To>,
    network: Option<String>,
    qos: Option<Name>,
    wait: Option<String>,
    #[serde(default, deserialize_with = "as_patience")]
    timeout: Option<u64>,
    #[serde(default, deserialize_with = "as_text")]
    memory_max: Option<Size>,
    #[serde(default, deserialize_with = "as_number")]
    processors: Option<Processors>,
}

/// A machine that is to be back, of a point that is not looked up yet.
struct Wanted {
    of: Of,
    name: Name,
    priority: u32,
    how: How,
}

enum Of {
    Point(PointName),
    Newest(Name),
}

/// Carries a plan out, or looks whether it can be; `beside` is what the command line says.
pub(super) fn run(
    context: &Context,
    client: &Client,
    file: &Path,
    beside: &How,
    dry_run: bool,
) -> std::result::Result<(), Failure> {
    let of_plan = |error: Error| error.context(format!("plan '{}'", file.display()));
    let read_of = |text: String| parse(&text).and_then(|plan| plan.wanted(beside)).map_err(of_plan);
    let wanted = read(file).and_then(read_of);
    let mut all = Vec::new();
    for Wanted { of, name, priority, how } in wanted.map_err(Failure::Misuse)? {
        let point = match of {
            Of::Point(point) => point,
            Of::Newest(source) => newest(client, &source).map_err(of_plan)?,
        };
        all.push((priority, Asked::new(point, name, how)));
    }
    let looked = all.iter().map(|(_, asked)| asked.look(client)).collect::<Result<Vec<_>>>()?;
    if dry_run {
        return context.answer(&looked, || texts(looked.iter()));
    }
    let outcomes = carry_out(client, &all);
    let told: Vec<_> = outcomes.iter().map(|outcome| outcome.told()).collect();
    context.answer(&told, || texts(outcomes.iter().filter_map(|outcome| outcome.made.as_ref())))?;
    let mut errors: Vec<Error> = outcomes.into_iter().filter_map(|outcome| outcome.error).collect();
    // The last is told where the command ends.
    let last = errors.pop();
    errors.iter().for_each(|error| eprintln!("error: {error}"));
    last.map_or(Ok(()), |error| Err(error.into()))
}

fn texts<'a>(made: impl Iterator<Item = &'a Recovered>) -> String {
    made.map(made_text).collect::<Vec<_>>().join("\n")
}

fn read(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).map_err(|e| {
        Error::io(format!("reading the plan '{}'", file.display()), e)
            .remedy("name a readable file; docs/use/protect.md has one")
    })
}

fn parse(text: &str) -> Result<Plan> {
    toml::from_str(text).map_err(|e| {
        let line = 1 + e.span().map_or(0, |span| text[..span.start.min(text.len())].matches('\n').count());
        Error::new(Kind::Invalid, format!("line {line}: {}", e.message().trim())).remedy(
            "a plan has a [[machine]] for each, with source = or point =; docs/use/protect.md has one",
        )
    })
}

impl Plan {
    /// All machines, in the order of their priorities. Fails where one makes no sense, whatever the server has, or two have one name.
    fn wanted(self, beside: &How) -> Result<Vec<Wanted>> {
        let mut wanted: Vec<Wanted> = Vec::new();
        for machine in self.machine {
            let one = machine.wanted(&self.suffix, &self.all, beside)?;
            if wanted.iter().any(|other| other.name == one.name) {
                let what = format!("two machines are to be '{}'", one.name);
                let error = Error::new(Kind::Invalid, what);
                return Err(error.remedy("give each a name of its own: as = \"NAME\""));
            }
            wanted.push(one);
        }
        wanted.sort_by_key(|one| one.priority);
        Ok(wanted)
    }
}

impl Machine {
    fn wanted(self, suffix: &str, all: &How, beside: &How) -> Result<Wanted> {
        let Machine {
            source,
            point,
            name,
            priority,
            to,
            network,
            qos,
            wait,
            timeout,
            memory_max,
            processors,
        } = self;
        let (of, source) = match (point, source) {
            (Some(point), None) => (Of::Point(point.clone()), point.source),
            (None, Some(source)) => (Of::Newest(source.clone()), source),
            _ => {
                return Err(Error::new(Kind::Invalid, "a machine has a source or a point, one of them")
                    .remedy("write source = \"web-nightly\" for its newest point"));
            }
        };
        let name = Name::new(&format!("{}{suffix}", name.unwrap_or(source)))?;
        let how = How { to, network, wait, timeout, qos, memory_max, processors }.or(all).or(beside);
        how.check(&name)?;
        Ok(Wanted { of, name, priority, how })
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

    fn error(text: &str) -> String {
        parse(text).and_then(|plan| plan.wanted(&How::default())).err().unwrap().to_string()
    }

    #[test]
    fn plans_are_read_and_mistakes_told_with_their_line() {
        let text = "suffix = '-dr'\n[all]\nto = 'qemu'\n[[machine]]\nsource = 'db'\npriority = 2\nprocessors = 2\n[[machine]]\npoint = 'web@20261123T184005Z'\nas = 'www'\n";
        let wanted = parse(text).unwrap().wanted(&How::default()).unwrap();
        let told: Vec<_> = wanted.iter().map(|one| (one.name.as_str(), one.priority)).collect();
        assert_eq!(told, [("www-dr", 0), ("db-dr", 2)]);
        assert_eq!(wanted[1].how.processors, "2".parse().ok());
        for (wrong, says) in [
            ("[[machine]]\nsource = 'a'\nprio = 1", "prio"),
            ("[[machine]]\nas = 'a'", "a source or a point"),
            ("[[machine]]\nsource = 'a'\npoint = 'a@20261123T184005Z'", "one of them"),
            ("suffix = 1\n", "line 1"),
            ("[[machine]]\nsource = 'a'\ntimeout = 'soon'", "line 3: 'soon' is no time to wait"),
            ("[all]\nto = 'libvirt:x'\n[[machine]]\nsource = 'a'", "line 2: 'libvirt:x' is no place"),
            ("[all]\nmemory-max = 'much'\n[[machine]]\nsource = 'a'", "line 2: "),
            ("[[machine]]\nsource = 'a'\nprocessors = 0", "line 3: '0' processors"),
            ("[[machine]]\nsource = 'a'\nwait = 'agent'", "no machine 'a' to wait for"),
            ("[[machine]]\nsource = 'a'\n[[machine]]\nsource = 'b'\nas = 'a'", "two machines are to be 'a'"),
        ] {
            let error = error(wrong);
            assert!(error.contains(says), "{wrong}: {error}");
        }
    }

    /// Goal: what the command line says is for machines of which the plan says nothing: a machine's own words come first, then those of `[all]`.
    #[test]
    fn the_plans_own_words_come_before_the_command_lines() {
        let text = "[all]\nnetwork = 'lab'\n[[machine]]\nsource = 'db'\nqos = 'critical'\n[[machine]]\nsource = 'web'\nto = 'export'\nnetwork = 'dmz'\n";
        let beside = How {
            to: "qemu".parse().ok(),
            network: Some("isolated".to_owned()),
            qos: "test".parse().ok(),
            timeout: Some(600),
            ..How::default()
        };
        let wanted = parse(text).unwrap().wanted(&beside).unwrap();
        let (db, web) = (&wanted[0].how, &wanted[1].how);
        assert_eq!((&db.to, &web.to), (&Some(To::On("qemu".to_owned())), &Some(To::Export)));
        assert_eq!((db.network.as_deref(), web.network.as_deref()), (Some("lab"), Some("dmz")));
        let qos = |how: &How| how.qos.as_ref().map(Name::to_string);
        assert_eq!((qos(db), qos(web)), (Some("critical".to_owned()), Some("test".to_owned())));
        assert_eq!((db.timeout, web.timeout), (Some(600), Some(600)));
    }
}
