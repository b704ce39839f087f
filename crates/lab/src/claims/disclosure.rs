//! `steady-state`, `hardware` and `cache`: what a text with figures has to tell.

use super::Claims;
use super::loads::{first_rate, measured};
use super::quantity::{Unit, quantities};
use super::text::{Block, Text};
use super::tokens::has;
use std::ops::Range;

const SETTLED: &[&str] = &[
    "steady",
    "precondition…",
    "warm up",
    "warmup",
    "warmed",
    "settled",
    "settling",
    "ramp…",
    "rounds",
    "minutes",
    "hour",
    "hours",
    "for 60 s",
    "ran for",
    "seconds each",
    "runs of",
    "sustained for",
    "uncounted",
];
const HARDWARE: &[&str] = &[
    "core",
    "cores",
    "cpu",
    "cpus",
    "processor",
    "processors",
    "ghz",
    "xeon",
    "epyc",
    "ryzen",
    "ram",
    "ssd",
    "ssds",
    "nvme",
    "hdd",
    "hdds",
    "disks",
    "sata",
    "sas",
    "flash",
    "vcpus",
];
const CACHE: &[&str] = &[
    "cache",
    "caches",
    "cached",
    "caching",
    "working set",
    "footprint",
    "footprints",
    "cold",
    "warm",
    "direct i o",
    "o direct",
    "data set larger",
];

pub(super) fn look(claims: &mut Claims<'_>) {
    let Some(at) = first_figure(&claims.text) else { return };
    let all = claims.text.all();
    for (rule, words, why) in [
        (
            "steady-state",
            SETTLED,
            "there are figures, and nothing says how long the load ran, or that it had settled",
        ),
        ("hardware", HARDWARE, "there are figures, and nothing says on what they were measured"),
        ("cache", CACHE, "there are figures, and nothing says whether they are those of a cache"),
    ] {
        if !has(&all, words) {
            claims.find(rule, at.clone(), why);
        }
    }
}

/// The first rate or throughput.
fn first_figure(text: &Text) -> Option<Range<usize>> {
    text.blocks.iter().find_map(|(_, block)| first_rate(block).or_else(|| first_throughput(block)))
}

fn first_throughput(block: &Block) -> Option<Range<usize>> {
    let of = |unit: &Unit| matches!(unit, Unit::Throughput(_) | Unit::Rate(_));
    measured(block)
        .find_map(|piece| quantities(&piece.tokens).into_iter().find(|one| of(&one.unit)).map(|one| one.at))
}
