//! Places that get more than their share: `random_distribution`.
//!
//! | fio | here |
//! |---|---|
//! | `zipf:θ` | hotspots: the share that the most wanted tenth of the blocks gets by Zipf's law, Σ k^-θ |
//! | `pareto:h` | hotspots of a part h of the range that get 1 - h of the I/Os, as fio's `n·u^(ln h / ln (1-h))` says |
//! | `zoned:50/5:…` | a stream for each zone; they follow the one that gets most, so that the shares are kept |
//! | `normal:d` | evenly |

use super::super::draft::SpotsDraft;
use super::super::{Mapped, Notes};
use super::ini::Opt;
use super::values::percent;

/// Spots of a distribution that fio scatters over the range.
const SPOTS: u32 = 64;
/// Part of the blocks that stand for the most wanted ones of Zipf's law.
const ZIPF_RANGE: f64 = 0.10;

/// What a distribution is here.
#[derive(Debug, PartialEq)]
pub(super) enum Spread {
    Even,
    Spots(SpotsDraft),
    /// Share of I/Os and of the range, in percent, one after another.
    Zones(Vec<(f64, f64)>),
}

/// Of an option's value; `blocks` are the places there are.
pub(super) fn of(option: &Opt, blocks: u64, notes: &mut Notes) -> Spread {
    let (name, parameters) = option.value.split_once(':').unwrap_or((&option.value, ""));
    let first = || parameters.split([':', '/', ',']).next().and_then(|text| text.parse::<f64>().ok());
    let mut nearly = |why: String| {
        notes.tell(&option.place, format!("random_distribution={}", option.value), Mapped::Nearly, why);
    };
    let spots = |range: f64, share: f64| {
        let round = |value: f64| (value * 1e4).round() / 100.0;
        Spread::Spots(SpotsDraft { count: SPOTS, range: round(range), share: round(share) })
    };
    match (name, first()) {
        ("random", _) => Spread::Even,
        ("zipf", Some(theta)) if theta > 0.0 => {
            let reached = zipf(theta, blocks as f64, ZIPF_RANGE);
            let share = ((reached - ZIPF_RANGE) / (1.0 - ZIPF_RANGE)).clamp(0.0, 1.0);
            nearly(format!(
                "two steps in place of a curve: the most wanted tenth of the blocks gets {:.1}% of the I/Os",
                reached * 100.0
            ));
            spots(ZIPF_RANGE, share)
        }
        ("pareto", Some(h)) if h > 0.0 && h < 1.0 => {
            let range = h.min(1.0 - h);
            nearly(format!(
                "two steps in place of a curve: {:.0}% of the blocks get {:.0}% of the I/Os",
                range * 100.0,
                (1.0 - range) * 100.0
            ));
            // What is drawn evenly hits the spots, too.
            spots(range, ((1.0 - 2.0 * range) / (1.0 - range)).clamp(0.0, 1.0))
        }
        ("zoned", _) if zones(parameters).is_some() => Spread::Zones(zones(parameters).unwrap_or_default()),
        _ => {
            notes.tell(
                &option.place,
                format!("random_distribution={}", option.value),
                Mapped::Not,
                "all places come evenly: profiles have hotspots and zones",
            );
            Spread::Even
        }
    }
}

/// The share of the first part of `blocks` by Zipf's law: sums of k^-θ, the first hundred exactly, the others as an
/// integral from one half below each.
fn zipf(theta: f64, blocks: f64, part: f64) -> f64 {
    let sum = |to: f64| {
        let exact = to.min(100.0).floor();
        let head: f64 = (1..=exact as u64).map(|k| (k as f64).powf(-theta)).sum();
        let integral = |x: f64| match (theta - 1.0).abs() < 1e-9 {
            true => x.ln(),
            false => x.powf(1.0 - theta) / (1.0 - theta),
        };
        head + (integral(to + 0.5) - integral(exact + 0.5)).max(0.0)
    };
    let blocks = blocks.max(10.0);
    sum((blocks * part).max(1.0)) / sum(blocks)
}

/// `50/5:30/15:20/` – of reads where reads and writes differ; the last may leave out its range.
fn zones(text: &str) -> Option<Vec<(f64, f64)>> {
    let text = text.split(',').next()?;
    let mut zones = Vec::new();
    for part in text.split(':').filter(|part| !part.is_empty()) {
        let (share, range) = part.split_once('/')?;
        let left = 100.0 - zones.iter().map(|(_, range)| range).sum::<f64>();
        let range = if range.trim().is_empty() { left } else { percent(range)? };
        zones.push((percent(share)?, range));
    }
    let within = |sum: f64| (sum - 100.0).abs() < 0.5;
    let sums = (zones.iter().map(|(share, _)| share).sum(), zones.iter().map(|(_, range)| range).sum());
    (within(sums.0) && within(sums.1) && zones.iter().all(|(_, range)| *range > 0.0)).then_some(zones)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sums by the integral are those that are added up.
    #[test]
    fn shares_by_zipf_are_those_of_the_sums() {
        for theta in [0.5, 1.0, 1.2] {
            let sum = |to: u64| (1..=to).map(|k| (k as f64).powf(-theta)).sum::<f64>();
            let exact = sum(10_000) / sum(100_000);
            assert!((zipf(theta, 100_000.0, 0.1) - exact).abs() < 1e-4, "{theta}: {exact}");
        }
    }

    #[test]
    fn zones_add_up_or_are_none() {
        assert_eq!(zones("50/5:30/15:20/"), Some(vec![(50.0, 5.0), (30.0, 15.0), (20.0, 80.0)]));
        assert_eq!(zones("50/5:30/15"), None);
        assert_eq!(zones("x"), None);
    }
}
