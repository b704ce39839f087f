//! Where the streams of a replay go: volumes, phases, and what each is going to ask for.

use super::{Plan, Replayed, Source};
use crate::load::{Play, Script};
use crate::payload::Reduction;
use crate::target::{Look, look};
use crate::trace::fit::Fit;
use crate::trace::{Op, PIECE_BYTES, Totals, Trace};
use crate::workload::{IO_BYTES_MAX, Load, Stream, Volume, Workload};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use stonefold_types::{Error, Kind, Result, Size};

/// How what is written reduces: most of what machines write, by the published mix of the lab's database profile.
const REDUCTION: Reduction = Reduction { dedupe: 1.2, compression: 2.0 };

/// A stream, before it runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct StreamPlan {
    /// Its name.
    pub name: String,
    /// Number of its trace.
    pub trace: usize,
    /// Which tile, from 1 on.
    pub tile: usize,
    /// Bytes of its volume.
    pub bytes: u64,
    /// Where in the trace it begins, in seconds of the trace's time.
    pub phase: f64,
    /// Requests that it is going to make: reads, writes, flushes, trims, zeroings.
    pub requests: [u64; 5],
    /// Of these, those whose length is another than was captured: for alignment, or because they were too long.
    pub altered: u64,
    /// Places stay where they were.
    pub as_it_was: bool,
    /// Bytes of the volume that its reads and writes touch, in pieces of 64 KiB.
    #[serde(default)]
    pub footprint_bytes: u64,
}

/// What a stream is made of.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lot {
    /// Its name.
    pub name: String,
    /// Number of its trace.
    pub trace: usize,
    /// Which tile, from 0 on.
    pub tile: usize,
    /// Bytes of its volume.
    pub bytes: u64,
    /// Where in the trace it begins, as a share of its length.
    pub phase: f64,
}

/// A replay, laid out.
#[derive(Clone)]
pub struct Layout {
    /// Volumes and streams.
    pub workload: Workload,
    /// What the streams replay, by number.
    pub plays: Vec<Play>,
    /// What is kept of it.
    pub replayed: Replayed,
}

/// What is to be known of a stream's requests.
#[derive(Default)]
struct Count {
    totals: Totals,
    sizes: BTreeMap<u64, u64>,
    pieces: BTreeSet<u64>,
    altered: u64,
}

impl Layout {
    /// Lays out a plan, and goes through all that it will ask for.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for a plan that cannot be, and what is wrong with a target.
    pub fn new(plan: &Plan) -> Result<Self> {
        check(plan)?;
        let looks = plan.targets.iter().map(look).collect::<Result<Vec<_>>>()?;
        let sizes = sizes(plan, &looks)?;
        let number_of = |tile: usize, trace: usize| tile * plan.traces.len() + trace;
        let lots: Vec<Lot> = (0..plan.tiles)
            .flat_map(|tile| {
                plan.traces.iter().enumerate().map(move |(trace, (name, _))| (tile, trace, name))
            })
            .map(|(tile, trace, name)| Lot {
                name: if plan.tiles > 1 { format!("{name}-{}", tile + 1) } else { name.clone() },
                trace,
                tile,
                bytes: sizes[number_of(tile, trace)],
                // Tiles are spread evenly over the trace.
                phase: tile as f64 / plan.tiles as f64,
            })
            .collect();
        let layout = Layout::of(plan, &lots, &looks)?;
        match layout.replayed.streams.iter().find(|stream| stream.requests.iter().sum::<u64>() == 0) {
            Some(StreamPlan { name, .. }) => {
                let what = format!("stream '{name}' would make no request in {} s", layout.replayed.seconds);
                Err(Error::new(Kind::Invalid, what).remedy("choose a longer --duration"))
            }
            None => Ok(layout),
        }
    }

    /// Lays out these streams of a plan, whatever number and size of volumes it says. A stream may have nothing to ask for.
    pub(crate) fn of(plan: &Plan, lots: &[Lot], looks: &[Look]) -> Result<Self> {
        let longest = plan.traces.iter().map(|(_, trace)| trace.length()).max().unwrap_or(0) as f64 / 1e9;
        let seconds = plan.length.map_or(longest / plan.speed, |length| length.as_secs_f64());
        let mut layout = Layout {
            workload: Workload { volumes: Vec::new(), streams: Vec::new() },
            plays: Vec::new(),
            replayed: Replayed {
                tiles: plan.tiles,
                speed: plan.speed,
                seconds,
                mode: plan.mode,
                traces: plan.traces.iter().map(|(name, trace)| source(name, trace)).collect(),
                streams: Vec::new(),
            },
        };
        for (at, lot) in lots.iter().enumerate() {
            layout.add(plan, lot, looks[at.min(looks.len() - 1)])?;
        }
        Ok(layout)
    }

    fn add(&mut self, plan: &Plan, lot: &Lot, on: Look) -> Result<()> {
        let trace = &plan.traces[lot.trace].1;
        let most = IO_BYTES_MAX.min(on.io_bytes_max);
        let fit = Fit::new(trace.device_bytes(), lot.bytes, on.io_bytes_min, most, plan.mode)
            .map_err(|e| e.context(format!("stream '{}'", lot.name)))?;
        let phase = (trace.length() as f64 * lot.phase) as u64;
        let as_it_was = fit.is_as_it_was();
        let play = Play { trace: trace.clone(), fit, speed: plan.speed, phase };
        let count = count(&play, self.replayed.seconds);
        let volume = self.workload.volumes.len();
        let (name, bytes) = (lot.name.clone(), lot.bytes);
        self.workload.volumes.push(Volume {
            name: name.clone(),
            bytes,
            reduction: REDUCTION,
            original: None,
        });
        self.workload.streams.push(stream(&name, volume, &count));
        self.replayed.streams.push(StreamPlan {
            name,
            trace: lot.trace,
            tile: lot.tile + 1,
            bytes,
            phase: phase as f64 / 1e9,
            requests: count.totals.count,
            altered: count.altered,
            as_it_was,
            footprint_bytes: count.pieces.len() as u64 * PIECE_BYTES,
        });
        self.plays.push(play);
        Ok(())
    }
}

fn check(plan: &Plan) -> Result<()> {
    let wrong = |what: String, remedy: &str| Err(Error::new(Kind::Invalid, what).remedy(remedy.to_owned()));
    if !(plan.speed.is_finite() && (0.001..=1000.0).contains(&plan.speed)) {
        return wrong(format!("a speed of {} is none", plan.speed), "choose from 0.001 to 1000");
    }
    if plan.targets.is_empty() || plan.traces.is_empty() || plan.tiles == 0 {
        return wrong("a replay needs a trace, a tile and a target".into(), "name them");
    }
    let volumes = plan.tiles * plan.traces.len();
    if plan.targets.len() > 1 && plan.targets.len() != volumes {
        return wrong(
            format!("{} targets for {volumes} volumes", plan.targets.len()),
            "name one for each trace of each tile, or one that takes them all, one behind the other",
        );
    }
    match plan.traces.iter().find(|(_, trace)| trace.end().totals.records() == 0) {
        Some((name, _)) => {
            wrong(format!("the trace '{name}' holds no request"), "capture it while the disk is used")
        }
        None => Ok(()),
    }
}

/// Bytes of each volume, tile by tile.
fn sizes(plan: &Plan, looks: &[Look]) -> Result<Vec<u64>> {
    let wanted: Vec<u64> = (0..plan.tiles)
        .flat_map(|_| plan.traces.iter().map(|(_, trace)| plan.size.unwrap_or(trace.device_bytes())))
        .collect();
    // Whole blocks, which every target's alignment divides into or is divided by.
    let unit = looks.iter().map(|look| look.io_bytes_min).max().unwrap_or(1).max(4096);
    let shrunk = |bytes: u64, share: f64| (bytes as f64 * share) as u64 / unit * unit;
    let up = |bytes: u64| bytes.next_multiple_of(unit);
    if looks.len() > 1 {
        let of = |(bytes, look): (&u64, &Look)| up(*bytes).min(look.bytes.unwrap_or(u64::MAX) / unit * unit);
        return Ok(wanted.iter().zip(looks).map(of).collect());
    }
    let all: u64 = wanted.iter().map(|bytes| up(*bytes)).sum();
    match looks[0].bytes {
        Some(have) if have < all && plan.size.is_some() => {
            let what = format!("{} has {}, and all volumes need {}", plan.targets[0], Size(have), Size(all));
            Err(Error::new(Kind::Invalid, what).remedy("choose a smaller --size, or leave it out"))
        }
        Some(have) if have < all => {
            Ok(wanted.iter().map(|bytes| shrunk(up(*bytes), have as f64 / all as f64)).collect())
        }
        _ => Ok(wanted.iter().map(|bytes| up(*bytes)).collect()),
    }
}

fn count(play: &Play, seconds: f64) -> Count {
    let (mut count, mut script) = (Count::default(), Script::new(play, (seconds * 1e9) as u64));
    while let Some((_, record)) = script.next_record() {
        count.totals.add(&record);
        count.altered += u64::from(play.fit.alters(&record));
        if matches!(record.op, Op::Read | Op::Write) {
            let (start, bytes) = play.fit.place(&record);
            *count.sizes.entry(bytes).or_default() += 1;
            count.pieces.extend(start / PIECE_BYTES..(start + bytes).div_ceil(PIECE_BYTES));
        }
    }
    count
}

/// What the engine must know of a stream whose I/Os it does not draw: their sizes, for its buffers, and their mix, for its ceiling.
fn stream(name: &str, volume: usize, count: &Count) -> Stream {
    let [reads, writes, ..] = count.totals.count;
    let mut sizes: Vec<(u64, f64)> =
        count.sizes.iter().map(|(bytes, count)| (*bytes, *count as f64)).collect();
    if sizes.is_empty() {
        sizes.push((4096, 1.0));
    }
    Stream {
        name: name.to_owned(),
        volume,
        read: if reads + writes > 0 { reads as f64 / (reads + writes) as f64 } else { 0.0 },
        random: 1.0,
        sizes,
        alignments: Vec::new(),
        zone: (0.0, 1.0),
        hotspots: None,
        flush: 0,
        load: Load::Replay { play: volume },
    }
}

fn source(name: &str, trace: &Trace) -> Source {
    Source {
        name: name.to_owned(),
        hash: trace.hash(),
        requests: trace.end().totals.records(),
        dropped: trace.end().dropped,
        cut: trace.cut_at().is_some() || trace.end().reason == crate::trace::Reason::Lost,
        seconds: trace.length() as f64 / 1e9,
        device_bytes: trace.device_bytes(),
    }
}
