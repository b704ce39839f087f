//! Tiles of virtual machines, replayed from traces: one more tile after each sample, until one fails.
//!
//! A *tile* is a fixed set of machines that belong together, each with a trace, a volume and an application. *Promises*: every number of tiles is
//! replayed on volumes that are written anew, for the same time; the machines of all tiles begin at moments of their own, evenly spread over their
//! trace; what was measured before something broke is kept. *Never*: makes a volume smaller in order to have room for another tile. *May be used
//! by*: the command line.

pub mod figures;
mod operations;
mod profile;
mod room;
mod rules;

pub use operations::{Commands, Operation, OperationRecord};
pub use profile::{Profile, Vm, check_scale};
pub(crate) use rules::{applications, summarise, vms_of};

use crate::counters::Counters;
use crate::measure::{Point, Reins};
use crate::replay::{self, Layout, Lot, Replayed};
use crate::rig::RigOptions;
use crate::stats::require::{self, Does};
use crate::target::{TargetSpec, look};
use crate::trace::Trace;
use crate::trace::fit::Mode;
use crate::workload::STREAMS_MAX;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result};
use utoipa::ToSchema;

/// What is run, and on what.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What.
    pub profile: Profile,
    /// At its quick scale and time.
    pub quick: bool,
    /// By how much volumes are smaller, in place of what the profile says.
    pub scale: Option<f64>,
    /// Tiles to begin with.
    pub first: usize,
    /// Tiles to end with, should none fail before.
    pub most: Option<usize>,
    /// One for all volumes, or one for each machine of each tile, tile by tile.
    pub targets: Vec<TargetSpec>,
    /// What is asked of each number of tiles, in place of the rules.
    pub require: String,
    /// Threads, seed, what is verified and what may go.
    pub options: RigOptions,
    /// What the profile's operations do; nothing where it has none.
    pub commands: Option<Commands>,
    /// Who says what the targets have done; nobody where one of them cannot say it, or the operations use them, too.
    pub counters: Vec<Arc<dyn Counters>>,
}

/// What was replayed, as it is kept in a bundle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Tiled {
    /// By how much volumes were smaller than they are published.
    pub scale: f64,
    /// How long each number of tiles was meant to take, in seconds.
    pub seconds: f64,
    /// The machines of a tile.
    pub vms: Vec<VmPlan>,
    /// What was replayed at each number of tiles, in the order of the points.
    pub steps: Vec<Replayed>,
    /// Why there was no further tile.
    pub ended: Ended,
    /// The text of a price file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<String>,
    /// What was done beside each number of tiles, in their order; empty where nothing was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<Vec<OperationRecord>>,
    /// The commands of the steps.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub commands: BTreeMap<String, String>,
}

impl Tiled {
    /// What was done beside a number of tiles.
    pub(crate) fn beside(&self, step: usize) -> &[OperationRecord] {
        self.operations.get(step).map_or(&[], Vec::as_slice)
    }
}

/// A machine of a tile, as it was replayed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VmPlan {
    /// Its name.
    pub name: String,
    /// What runs on it.
    pub application: String,
    /// Its trace.
    pub trace: String,
    /// Bytes of its volume as it is published.
    pub published_bytes: u64,
    /// Bytes of its volume here.
    pub bytes: u64,
}

/// Why there was no further tile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", tag = "by", content = "why")]
pub enum Ended {
    /// The last number of tiles did not pass.
    Rules,
    /// No more were asked for.
    Most,
    /// There was room for no more: why.
    Room(String),
    /// Somebody wished so.
    Stopped,
    /// Something broke: what.
    Broken(String),
}

/// What a run has shown.
#[derive(Debug)]
pub struct Outcome {
    /// A point for each number of tiles.
    pub points: Vec<Point>,
    /// What was replayed.
    pub tiled: Tiled,
    /// Bytes of all volumes of the most tiles.
    pub bytes: u64,
}

impl Plan {
    /// By how much volumes are smaller than they are published.
    pub fn scale(&self) -> f64 {
        self.scale.unwrap_or_else(|| self.profile.scale(self.quick))
    }

    /// Tiles that can be at most: streams are bounded, and so may be what was asked for.
    pub fn tiles_max(&self) -> usize {
        let bound = STREAMS_MAX / self.profile.vms.len();
        self.most.map_or(bound, |most| most.min(bound))
    }
}

/// Runs all of a plan.
///
/// # Errors
/// What is wrong with a plan, a trace or a target before the first tiles have been replayed. What breaks later is in the outcome.
pub fn run(env: &Env, plan: &Plan, reins: &Reins) -> Result<Outcome> {
    plan.check()?;
    let traces: Vec<(String, Arc<Trace>)> =
        plan.profile.traces()?.into_iter().map(|(name, trace)| (name, Arc::new(trace))).collect();
    let (mut points, mut tiled) = (Vec::new(), empty(plan));
    for tiles in plan.first..=plan.tiles_max() {
        if let Some(why) = room::lacking(plan, tiles)? {
            if points.is_empty() {
                return Err(Error::new(Kind::Invalid, why).remedy(
                    "name a larger target, begin with fewer --tiles, or make them smaller by --scale",
                ));
            }
            tiled.ended = Ended::Room(why);
            break;
        }
        reins.within(&format!("{}: ", figures::of_tiles(tiles)));
        let layout = layout(plan, &traces, tiles)?;
        let work = || replay::run(env, &replay_plan(plan, &traces, tiles), &layout, reins);
        let commands = plan.commands.as_ref();
        let step = operations::beside(env, &plan.profile.operations, commands, reins, work);
        let (point, beside) = match step {
            Ok((mut points, beside)) => (points.pop(), beside),
            Err(error) if points.is_empty() => return Err(error),
            Err(error) => {
                tiled.ended = Ended::Broken(error.what());
                break;
            }
        };
        if let Some(point) = point {
            tiled.steps.push(layout.replayed);
            tiled.operations.extend(commands.map(|_| beside));
            points.push(Point { step: figures::of_tiles(tiles), ..point });
        }
        if reins.is_stopped() {
            tiled.ended = Ended::Stopped;
            break;
        }
        if !rules::passes(&points, &tiled, &plan.require, plan.is_verified())? {
            tiled.ended = Ended::Rules;
            break;
        }
    }
    let most = tiled.steps.last().map_or(plan.first, |step| step.tiles) as u64;
    Ok(Outcome { points, bytes: plan.profile.tile_bytes(plan.scale()) * most, tiled })
}

impl Plan {
    /// Whether what is read is looked at.
    pub fn is_verified(&self) -> bool {
        self.options.verify && !self.targets.contains(&TargetSpec::Null)
    }

    /// Whether it can be run at all, as far as that can be told without a look at a target.
    ///
    /// # Errors
    /// [`Kind::Invalid`]: what is missing in it, or too much.
    pub fn check(&self) -> Result<()> {
        check(self)
    }
}

fn check(plan: &Plan) -> Result<()> {
    if let Some(scale) = plan.scale {
        check_scale(scale)?;
    }
    let has_operations = !plan.profile.operations.is_empty();
    if has_operations != plan.commands.is_some() {
        let (what, remedy) = match has_operations {
            true => (
                "does something beside its tiles, and nobody has said how",
                "say --ops FILE; docs/use/lab.md has one",
            ),
            false => ("does nothing beside its tiles", "leave --ops out, or run vm-ops"),
        };
        return Err(
            Error::new(Kind::Invalid, format!("the profile '{}' {what}", plan.profile.name)).remedy(remedy)
        );
    }
    let mut applications: Vec<&str> = plan.profile.vms.iter().map(|vm| vm.application.as_str()).collect();
    applications.dedup();
    // What a trace holds is looked at when it is replayed.
    let all: Vec<Does<'_>> =
        applications.into_iter().map(|name| Does { name, reads: true, writes: true }).collect();
    require::check(&plan.require, &all)?;
    let vms = plan.profile.vms.len();
    if plan.first == 0 || plan.first > plan.tiles_max() {
        let what = format!("no number of tiles from {} to {}", plan.first, plan.tiles_max());
        let bound = STREAMS_MAX / vms;
        return Err(Error::new(Kind::Invalid, what)
            .remedy(format!("choose from 1 to {bound}, of {vms} machines each, the fewer first")));
    }
    let targets = plan.targets.len();
    if targets != 1 && targets % vms != 0 {
        let what = format!("{targets} targets for tiles of {vms} machines");
        return Err(Error::new(Kind::Invalid, what).remedy(
            "name one for each machine of each tile, or one that takes them all, one behind the other",
        ));
    }
    Ok(())
}

fn empty(plan: &Plan) -> Tiled {
    let scale = plan.scale();
    let vm = |vm: &Vm| VmPlan {
        name: vm.name.clone(),
        application: vm.application.clone(),
        trace: vm.trace.clone(),
        published_bytes: vm.published_bytes,
        bytes: vm.bytes(scale),
    };
    Tiled {
        scale,
        seconds: plan.profile.sample(plan.quick).as_secs_f64(),
        vms: plan.profile.vms.iter().map(vm).collect(),
        steps: Vec::new(),
        ended: Ended::Most,
        price: None,
        operations: Vec::new(),
        commands: plan.commands.as_ref().map(Commands::told).unwrap_or_default(),
    }
}

fn replay_plan(plan: &Plan, traces: &[(String, Arc<Trace>)], tiles: usize) -> replay::Plan {
    let volumes = tiles * plan.profile.vms.len();
    replay::Plan {
        traces: traces.to_vec(),
        tiles,
        speed: 1.0,
        length: Some(plan.profile.sample(plan.quick)),
        size: None,
        mode: Mode::Scale,
        targets: plan.targets[..plan.targets.len().min(volumes)].to_vec(),
        options: plan.options.clone(),
        counters: plan.counters.clone(),
    }
}

/// Every machine of so many tiles, each at a moment of its own.
fn layout(plan: &Plan, traces: &[(String, Arc<Trace>)], tiles: usize) -> Result<Layout> {
    let (plain, scale) = (replay_plan(plan, traces, tiles), plan.scale());
    let looks = plain.targets.iter().map(look).collect::<Result<Vec<_>>>()?;
    let mut lots = Vec::new();
    for tile in 0..tiles {
        for vm in &plan.profile.vms {
            let trace = traces.iter().position(|(name, _)| *name == vm.trace);
            lots.push(Lot {
                name: if tiles > 1 { format!("{}-{}", vm.name, tile + 1) } else { vm.name.clone() },
                trace: trace.expect("every machine's trace was found"),
                tile,
                bytes: vm.bytes(scale),
                phase: (tile as f64 + vm.turn) / tiles as f64,
            });
        }
    }
    Layout::of(&plain, &lots, &looks)
}

#[cfg(test)]
mod tests;
