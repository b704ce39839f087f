//! The search for the I/Os in flight with which most is done while a requirement is kept.
//!
//! Depths are doubled until the requirement is not kept, or twice in a row nothing is gained; then what lies between the
//! last that kept it and the first that did not is halved, until an eighth is left. Latency rises with depth, so that what
//! lies beyond the first that fails is not looked at.

use super::{Point, Run};
use crate::profile::{Step, Tune};
use crate::record::StreamRecord;
use crate::workload::Load;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use stonefold_types::Result;
use utoipa::ToSchema;

/// A doubling that brings less than this share more is one that gained nothing.
const GAIN_MIN: f64 = 0.03;
/// Of depths that do as much but for this share, the smallest is taken.
const SAME: f64 = 0.01;

/// One step of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Probe {
    /// I/Os in flight of each stream that is tuned.
    pub outstanding: u32,
    /// I/Os a second of these streams.
    pub iops: f64,
    /// What was required, in words.
    pub requirement: String,
    /// What was measured of it, in words.
    pub told: String,
    /// Whether it was kept.
    pub kept: bool,
    /// The load of later steps.
    pub chosen: bool,
}

/// What a depth has shown.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Shown {
    iops: f64,
    kept: bool,
}

impl Run<'_> {
    pub(super) fn tune(&mut self, step: &Step, tune: &Tune, loads: &[(usize, Load)]) -> Result<()> {
        let time = self.plan.profile.times(self.plan.quick).point;
        let first = self.points.len();
        let mut shown: BTreeMap<u32, Shown> = BTreeMap::new();
        while let Some(outstanding) = next(&shown, tune.least, tune.most) {
            let with = |(number, load): &(usize, Load)| match tune.streams.contains(number) {
                true => (*number, Load::Closed { outstanding }),
                false => (*number, *load),
            };
            let before = self.points.len();
            let loads = loads.iter().map(with).collect();
            self.point(step, &format!("depth {outstanding}"), loads, 1.0, time / 4, time)?;
            let Some(point) = self.points.get_mut(before) else { return Ok(()) };
            let probe = probe(point, tune, outstanding)?;
            shown.insert(outstanding, Shown { iops: probe.iops, kept: probe.kept });
            point.probe = Some(probe);
            if self.reins.is_stopped() {
                return Ok(());
            }
        }
        let best = best(&shown).unwrap_or(tune.least);
        for point in &mut self.points[first..] {
            if let Some(probe) = point.probe.as_mut().filter(|probe| probe.outstanding == best) {
                probe.chosen = true;
            }
        }
        tune.streams.iter().for_each(|number| {
            self.tuned[*number] = Some(Load::Closed { outstanding: best });
        });
        Ok(())
    }
}

fn probe(point: &Point, tune: &Tune, outstanding: u32) -> Result<Probe> {
    let streams: Vec<(&str, &StreamRecord)> =
        point.loads.iter().map(|load| load.name.as_str()).zip(&point.streams).collect();
    let met = tune.within.judge(&streams, point.seconds)?;
    let of_tuned = point.loads.iter().zip(&point.streams);
    let ios: u64 = of_tuned
        .filter(|(load, _)| tune.streams.contains(&load.stream))
        .map(|(_, record)| record.ios())
        .sum();
    Ok(Probe {
        outstanding,
        iops: ios as f64 / point.seconds.max(1e-9),
        requirement: met.requirement,
        told: met.told,
        kept: met.met == Some(true),
        chosen: false,
    })
}

/// The next depth to look at; nothing when it is found.
fn next(shown: &BTreeMap<u32, Shown>, least: u32, most: u32) -> Option<u32> {
    let Some(last) = shown.keys().next_back() else { return Some(least) };
    let Some(bad) = shown.iter().find(|(_, shown)| !shown.kept).map(|(depth, _)| *depth) else {
        let done = *last >= most || has_ended_to_gain(shown);
        return (!done).then(|| last.saturating_mul(2).min(most));
    };
    let good = shown.range(..bad).next_back().map(|(depth, _)| *depth)?;
    (bad - good > (good / 8).max(1)).then_some(good + (bad - good) / 2)
}

/// Whether the last two have brought nothing beyond the best before them.
fn has_ended_to_gain(shown: &BTreeMap<u32, Shown>) -> bool {
    let iops: Vec<f64> = shown.values().map(|shown| shown.iops).collect();
    let [before @ .., a, b] = &iops[..] else { return false };
    let best = before.iter().copied().fold(0.0, f64::max);
    best > 0.0 && a.max(*b) < best * (1.0 + GAIN_MIN)
}

/// Of those that kept the requirement the one that did most.
fn best(shown: &BTreeMap<u32, Shown>) -> Option<u32> {
    let kept = || shown.iter().filter(|(_, shown)| shown.kept);
    let most = kept().map(|(_, shown)| shown.iops).fold(0.0, f64::max);
    kept().find(|(_, shown)| shown.iops >= most * (1.0 - SAME)).map(|(depth, _)| *depth)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A storage that serves `servers` I/Os at once, each in `millis`: the rest waits.
    fn search(servers: f64, millis: f64, bound: f64, least: u32, most: u32) -> (Option<u32>, Vec<u32>) {
        let mut shown = BTreeMap::new();
        let mut order = Vec::new();
        while let Some(depth) = next(&shown, least, most) {
            let iops = f64::from(depth).min(servers) * 1000.0 / millis;
            let latency = f64::from(depth) * 1000.0 / iops;
            assert!(shown.insert(depth, Shown { iops, kept: latency <= bound }).is_none(), "{depth} twice");
            order.push(depth);
        }
        (best(&shown), order)
    }

    #[test]
    fn the_deepest_that_keeps_the_requirement_is_found_by_doubling_and_halving() {
        // 4 servers of 5 ms: 20 ms are reached with 16 in flight, and nothing is gained beyond 4.
        let (found, order) = search(4.0, 5.0, 20.0, 1, 64);
        assert_eq!(found, Some(4), "as much, and less waiting");
        assert_eq!(order, [1, 2, 4, 8, 16]);
        // 64 servers, of which 20 ms allow 40 at once.
        let mut shown = BTreeMap::new();
        while let Some(depth) = next(&shown, 1, 256) {
            let iops = f64::from(depth) * 100.0;
            shown.insert(depth, Shown { iops, kept: depth <= 40 });
        }
        let found = best(&shown).unwrap();
        assert!((36..=40).contains(&found), "{found} of {:?}", shown.keys());
        assert!(shown.len() <= 10, "{:?}", shown.keys());
    }

    #[test]
    fn a_storage_that_never_keeps_it_ends_the_search_at_once() {
        assert_eq!(search(1.0, 50.0, 20.0, 1, 64), (None, vec![1]));
        assert_eq!(search(1e9, 1.0, 20.0, 1, 48).1, [1, 2, 4, 8, 16, 32, 48]);
    }
}
