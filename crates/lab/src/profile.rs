//! Profiles: what is run, written in a file that people can read and write.
//!
//! A profile says which volumes there are, which streams of I/Os go to them, and in which steps they are measured. Those
//! of the lab are compiled in and locked: a change of one is another profile, and a report says so. The words of the file
//! are in `docs/reference/lab-profiles.md`; every one that is not known is refused.

mod file;
mod mix;
pub mod shipped;
mod steps;

pub use file::time as read_time;

use crate::payload::Reduction;
use crate::stats::require::{Does, Requirement};
use crate::workload::Workload;
pub(crate) use file::time;

use file::ProfileFile;
use std::time::Duration;
use stonefold_types::{BLOCK_BYTES, Error, Kind, Result};

/// A profile, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// By which it is run.
    pub name: String,
    /// One line.
    pub title: String,
    /// What it is for, and what it is not.
    pub about: String,
    /// The published report or method it is after.
    pub source: String,
    /// Volumes and streams at full size, and with `--quick`.
    pub full: Workload,
    /// See `full`.
    pub quick: Workload,
    /// Times of a full run, and of a quick one.
    pub times: [Times; 2],
    /// What is measured, in order.
    pub steps: Vec<Step>,
    /// What is needed where nothing else is asked for; empty: nothing.
    pub require: String,
    /// Its volumes take the size of the target, in proportion.
    pub scales: bool,
    /// How many times the cache that is measured all volumes are together, of a profile that is about one.
    pub of_cache: Option<f64>,
    /// The size of that cache, in bytes, where it was said.
    pub cache: Option<u64>,
    /// The text it was read from.
    pub text: String,
    /// What was changed since: the size of each volume, and how far its content reduces.
    pub changes: (Option<u64>, Option<Reduction>),
    /// How long each load is measured at least, where that is longer than its file says.
    pub least: Option<Duration>,
    /// The steps that were chosen, where not all of its file's are to be run; else empty.
    pub only: Vec<String>,
    /// Where it was scaled: how many times its file's sizes the volumes have.
    pub scale: Option<f64>,
}

/// How long things take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Before a step that is held: the same load, not counted.
    pub precondition: Duration,
    /// A step that is held.
    pub sample: Duration,
    /// Each point of a sweep; a quarter of it goes before, not counted.
    pub point: Duration,
}

/// One thing that is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// For people.
    pub name: String,
    /// The streams that run, by their numbers; all others rest.
    pub streams: Vec<usize>,
    /// How.
    pub kind: StepKind,
}

/// How a step is measured.
#[derive(Clone, Debug, PartialEq)]
pub enum StepKind {
    /// As the streams say.
    Hold,
    /// Closed loop, with so many I/Os of each stream in flight, one after the other: finds capacity.
    Sweep(Vec<u32>),
    /// Open loop, at these shares (from 0 to 1) of the most that the steps before have shown of these streams: finds
    /// latency.
    Loads(Vec<f64>),
    /// Open loop, with so many I/Os of each stream a second, one after the other: what is asked of a storage, and not what it can do.
    Rates(Vec<f64>),
    /// As the streams say, on these shares (from 0 to 1) of each volume: a working set that fits a cache, and others that
    /// do not.
    Footprints(Vec<f64>),
    /// These volumes are written, in order, so much of each (from 0 to 1); timed as a whole.
    Fill(Vec<usize>, f64),
    /// One is copied to others, one after the other, so much of it; each copy is timed as a whole.
    Copy(usize, Vec<usize>, f64),
    /// These are read, in order, so much of each, and every block is looked at; timed as a whole.
    Check(Vec<usize>, f64),
    /// Looks for the I/Os in flight with which most is done while a requirement is kept; later steps run with these.
    Tune(Tune),
    /// As the streams say, while the target is struck, once for each outage that the user names; then every block is read.
    Outages,
}

/// What is looked for, and between what.
#[derive(Clone, Debug, PartialEq)]
pub struct Tune {
    /// The streams whose I/Os in flight are varied, and counted; among those of the step.
    pub streams: Vec<usize>,
    /// I/Os in flight of each, at least.
    pub least: u32,
    /// And at most.
    pub most: u32,
    /// What must be kept.
    pub within: Requirement,
}

impl Profile {
    /// Reads a profile's file.
    ///
    /// # Errors
    /// [`Kind::Invalid`], with the line where the file is no TOML or has a word that is not known, else with what cannot be
    /// run and why.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let file: ProfileFile = toml::from_str(text).map_err(|e| {
            Error::new(Kind::Invalid, format!("profile '{name}': {}", e.to_string().trim_end()))
                .remedy("'stonefold lab show NAME' prints profiles that are right")
        })?;
        file.check(name, text).map_err(|e| e.context(format!("profile '{name}'")))
    }

    /// Volumes and streams, full or quick.
    pub fn workload(&self, quick: bool) -> &Workload {
        if quick { &self.quick } else { &self.full }
    }

    /// Times, full or quick.
    pub fn times(&self, quick: bool) -> Times {
        self.times[usize::from(quick)]
    }

    /// How long a load on a part of the volumes settles and is then measured: as long as one that is held, since it is as much of a result; in
    /// a quick run as a point of a sweep.
    pub fn footprint_times(&self, quick: bool) -> (Duration, Duration) {
        let Times { precondition, sample, point } = self.times(quick);
        if quick { (point / 4, point) } else { (precondition, sample) }
    }

    /// How long a run takes at least, without writing the volumes first.
    pub fn duration(&self, quick: bool) -> Duration {
        let times = self.times(quick);
        let of = |step: &Step| match &step.kind {
            StepKind::Hold => times.precondition + times.sample,
            StepKind::Sweep(points) => times.point * points.len() as u32 * 5 / 4,
            StepKind::Loads(points) | StepKind::Rates(points) => times.point * points.len() as u32 * 5 / 4,
            StepKind::Footprints(parts) => {
                let (before, sample) = self.footprint_times(quick);
                (before + sample) * parts.len() as u32
            }
            // As many as doubling and halving need.
            StepKind::Tune(tune) => times.point * (2 * (tune.most / tune.least).max(2).ilog2() + 1) * 5 / 4,
            StepKind::Outages => times.precondition + times.sample,
            // As long as it takes.
            StepKind::Fill(..) | StepKind::Copy(..) | StepKind::Check(..) => Duration::ZERO,
        };
        self.steps.iter().map(of).sum()
    }

    /// Bytes of all its volumes.
    pub fn bytes(&self, quick: bool) -> u64 {
        self.workload(quick).volumes.iter().map(|volume| volume.bytes).sum()
    }

    /// With another size of each volume, and another payload; what is not named stays.
    pub fn changed(mut self, size: Option<u64>, reduction: Option<Reduction>) -> Result<Self> {
        for workload in [&mut self.full, &mut self.quick] {
            for volume in &mut workload.volumes {
                volume.bytes = size.unwrap_or(volume.bytes);
                volume.reduction = reduction.unwrap_or(volume.reduction);
            }
            workload.check()?;
            steps::check_footprints(&self.steps, workload)?;
        }
        self.changes = (size, reduction);
        Ok(self)
    }

    /// With each load measured for so long at least, after a quarter of that uncounted at least; what lasts longer stays as it is.
    ///
    /// It is the profile all the same, and not a modified one: no load is measured for less than it says, so that nothing is asked that would be easier
    /// to keep. What a cache takes in for a while is in a longer sample a smaller part of it. So it is told, beside the profile.
    ///
    /// # Errors
    /// [`Kind::Invalid`] where all loads last as long already.
    pub fn with_points(mut self, least: Duration, quick: bool) -> Result<Self> {
        let times = &mut self.times[usize::from(quick)];
        let longer = Times {
            precondition: times.precondition.max(least / 4),
            sample: times.sample.max(least),
            point: times.point.max(least),
        };
        if (longer.sample, longer.point) == (times.sample, times.point) {
            let (least, times) = (least.as_secs_f64(), times.sample.min(times.point).as_secs_f64());
            let what =
                format!("loads of the profile '{}' are measured for {times} s and more already", self.name);
            return Err(Error::new(Kind::Invalid, what).remedy(format!(
                "name a time that is longer than that, or leave --point out: {least} s changes nothing"
            )));
        }
        *times = longer;
        self.least = Some(least);
        Ok(self)
    }

    /// With the steps of these names alone, in its own order. What is measured of them is what it says, but it is no longer the whole of what it
    /// asks, and so a modified profile without requirements of its own. Of none, and of all, it stays as it is.
    ///
    /// # Errors
    /// [`Kind::Invalid`] where it has no such step, or where one needs another before it that is left out.
    pub fn with_steps(mut self, names: &[String], quick: bool) -> Result<Self> {
        if names.is_empty() {
            return Ok(self);
        }
        let known = |name: &String| self.steps.iter().any(|step| step.name == *name);
        if let Some(other) = names.iter().find(|name| !known(name)) {
            let all: Vec<&str> = self.steps.iter().map(|step| step.name.as_str()).collect();
            let what = format!("the profile '{}' has no step '{other}'", self.name);
            return Err(Error::new(Kind::Invalid, what)
                .remedy(format!("choose among its steps: '{}'", all.join("', '"))));
        }
        let all = std::mem::take(&mut self.steps);
        let found_by = |search: &Step, step: &Step| match &search.kind {
            StepKind::Tune(tune) => step.streams.iter().any(|stream| tune.streams.contains(stream)),
            _ => false,
        };
        for (number, step) in all.iter().enumerate().filter(|(_, step)| names.contains(&step.name)) {
            let left_out = |search: &&Step| !names.contains(&search.name) && found_by(search, step);
            if let Some(search) = all[..number].iter().find(left_out) {
                let what = format!("step '{}' runs with what '{}' finds", step.name, search.name);
                return Err(
                    Error::new(Kind::Invalid, what).remedy("choose the steps that must come before it, too")
                );
            }
        }
        let many = all.len();
        self.steps = all.into_iter().filter(|step| names.contains(&step.name)).collect();
        if self.steps.len() == many {
            return Ok(self);
        }
        // What it requires is of the whole of it.
        self.require.clear();
        let workload = self.workload(quick);
        steps::check_order(&self.steps, workload)
            .and_then(|()| steps::check_loads(&self.steps, workload))
            .map_err(|e| {
                Error::new(Kind::Invalid, e.what()).remedy("choose the steps that must come before it, too")
            })?;
        self.only = self.steps.iter().map(|step| step.name.clone()).collect();
        Ok(self)
    }

    /// The size of each volume for a target with a cache of so many bytes.
    ///
    /// # Errors
    /// [`Kind::Invalid`] where the profile is not about a cache, or the cache is smaller than its I/Os can use.
    pub fn volume_for_cache(&self, cache: u64) -> Result<u64> {
        let Some(times) = self.of_cache else {
            let what = format!("the profile '{}' says nothing of a cache", self.name);
            return Err(
                Error::new(Kind::Invalid, what).remedy("leave --cache out; --size sets the size of a volume")
            );
        };
        let each = cache as f64 * times / self.full.volumes.len() as f64;
        match each as u64 / BLOCK_BYTES as u64 {
            0 => Err(Error::new(Kind::Invalid, format!("a cache of {cache} bytes is none"))
                .remedy("write its size, as in --cache 16G")),
            blocks => Ok(blocks * BLOCK_BYTES as u64),
        }
    }

    /// With each volume so many times its size, in whole blocks.
    ///
    /// # Errors
    /// [`Kind::Invalid`] where a volume becomes too small for its I/Os.
    pub fn scaled(mut self, scale: f64) -> Result<Self> {
        for workload in [&mut self.full, &mut self.quick] {
            for volume in &mut workload.volumes {
                let blocks = (volume.bytes as f64 * scale) as u64 / BLOCK_BYTES as u64;
                volume.bytes = blocks.max(1) * BLOCK_BYTES as u64;
            }
            workload
                .check()
                .and_then(|()| steps::check_footprints(&self.steps, workload))
                .map_err(|e| e.context("scaled to the target's size").remedy("name a larger target"))?;
        }
        self.scale = Some(scale);
        Ok(self)
    }

    /// Each stream, and whether any step that is judged has it read and write.
    pub fn does(&self, quick: bool) -> Vec<Does<'_>> {
        // Steps of a search are judged by what it looks for.
        let judged = || self.steps.iter().filter(|step| !matches!(step.kind, StepKind::Tune(_)));
        let runs = |number: usize| judged().any(|step| step.streams.contains(&number));
        let streams = self.workload(quick).streams.iter().enumerate();
        streams
            .map(|(number, stream)| Does {
                name: &stream.name,
                reads: stream.read > 0.0 && runs(number),
                writes: stream.read < 1.0 && runs(number),
            })
            .collect()
    }

    /// Whether its own steps write its volumes, so that nothing is written before them.
    pub fn fills_itself(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.kind, StepKind::Fill(..)))
    }

    /// Whether it strikes the target.
    pub fn has_outages(&self) -> bool {
        self.steps.iter().any(|step| step.kind == StepKind::Outages)
    }
}
