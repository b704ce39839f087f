//! The words of a profile's file.

use super::{Profile, Step, StepKind, Times};
use crate::payload::Reduction;
use crate::workload::{Arrivals, Hotspots, Load, Stream, Volume, Workload};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;
use stonefold_types::{BLOCK_BYTES, Error, Kind, Result, Size};

/// Steps of a sweep at most.
const POINTS_MAX: usize = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProfileFile {
    title: String,
    about: String,
    #[serde(default)]
    source: String,
    #[serde(default)]
    payload: PayloadWords,
    volume: Vec<VolumeWords>,
    stream: Vec<StreamWords>,
    #[serde(default)]
    step: Vec<StepWords>,
    #[serde(default)]
    time: TimeWords,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PayloadWords {
    dedupe: f64,
    compression: f64,
}

impl Default for PayloadWords {
    fn default() -> Self {
        PayloadWords { dedupe: 1.0, compression: 1.0 }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VolumeWords {
    name: String,
    size: String,
    quick: String,
    #[serde(default = "one")]
    count: usize,
    payload: Option<PayloadWords>,
}

fn one() -> usize {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamWords {
    name: String,
    volume: String,
    read: f64,
    random: f64,
    sizes: BTreeMap<String, f64>,
    align: Option<String>,
    zone: Option<(f64, f64)>,
    hotspots: Option<HotspotWords>,
    outstanding: Option<u32>,
    rate: Option<RateWords>,
    follows: Option<FollowWords>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HotspotWords {
    count: u32,
    range: f64,
    share: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RateWords {
    iops: f64,
    to: Option<f64>,
    #[serde(default = "poisson")]
    arrivals: Arrivals,
}

fn poisson() -> Arrivals {
    Arrivals::Poisson
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FollowWords {
    stream: String,
    ios: f64,
    per: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepWords {
    name: String,
    streams: Option<Vec<String>>,
    outstanding: Option<Vec<u32>>,
    loads: Option<Vec<f64>>,
    footprints: Option<Vec<f64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TimeWords {
    precondition: String,
    sample: String,
    point: String,
    quick_precondition: String,
    quick_sample: String,
    quick_point: String,
}

impl Default for TimeWords {
    fn default() -> Self {
        TimeWords {
            precondition: "30m".into(),
            sample: "60m".into(),
            point: "10m".into(),
            quick_precondition: "1m".into(),
            quick_sample: "3m".into(),
            quick_point: "20s".into(),
        }
    }
}

impl ProfileFile {
    pub(super) fn check(self, name: &str, text: &str) -> Result<Profile> {
        let workload = |quick: bool| self.workload(quick);
        let (full, quick) = (workload(false)?, workload(true)?);
        let times = [
            times(&self.time.precondition, &self.time.sample, &self.time.point)?,
            times(&self.time.quick_precondition, &self.time.quick_sample, &self.time.quick_point)?,
        ];
        let steps = match self.step.is_empty() {
            true => vec![Step {
                name: "hold".into(),
                streams: (0..full.streams.len()).collect(),
                kind: StepKind::Hold,
            }],
            false => self.step.iter().map(|step| step.check(&full)).collect::<Result<_>>()?,
        };
        Ok(Profile {
            name: name.into(),
            title: self.title,
            about: self.about.trim().into(),
            source: self.source,
            full,
            quick,
            times,
            steps,
            text: text.into(),
            changes: (None, None),
        })
    }

    fn workload(&self, quick: bool) -> Result<Workload> {
        let mut volumes = Vec::new();
        // The first number of each volume's copies.
        let mut firsts = BTreeMap::new();
        for words in &self.volume {
            if firsts.insert(words.name.as_str(), (volumes.len(), words.count)).is_some() {
                return Err(invalid(format!("two volumes are called '{}'", words.name)));
            }
            if words.count == 0 || words.count > 1000 {
                return Err(invalid(format!("volume '{}': a count from 1 to 1000 can be", words.name)));
            }
            let payload = words.payload.unwrap_or(self.payload);
            let bytes = size(if quick { &words.quick } else { &words.size })?;
            if bytes == 0 || bytes % BLOCK_BYTES as u64 != 0 {
                return Err(invalid(format!("volume '{}': its size is no multiple of 4K", words.name)));
            }
            let reduction = Reduction { dedupe: payload.dedupe, compression: payload.compression };
            volumes.extend((1..=words.count).map(|number| Volume {
                name: numbered(&words.name, number, words.count),
                bytes,
                reduction,
            }));
        }
        let mut streams = Vec::new();
        for words in &self.stream {
            let (first, count) = *firsts.get(words.volume.as_str()).ok_or_else(|| {
                invalid(format!(
                    "stream '{}' goes to volume '{}', which is not there",
                    words.name, words.volume
                ))
            })?;
            for number in 0..count {
                let mut stream = words.check(&streams, number)?;
                stream.name = numbered(&words.name, number + 1, count);
                stream.volume = first + number;
                streams.push(stream);
            }
        }
        let workload = Workload { volumes, streams };
        workload.check()?;
        Ok(workload)
    }
}

impl StreamWords {
    /// `before` are the streams above it, of which a follower's leader is one.
    fn check(&self, before: &[Stream], number: usize) -> Result<Stream> {
        let wrong = |why: String| invalid(format!("stream '{}': {why}", self.name));
        let sizes =
            self.sizes.iter().map(|(bytes, share)| Ok((size(bytes)?, *share))).collect::<Result<Vec<_>>>()?;
        let load = match (self.outstanding, &self.rate, &self.follows) {
            (Some(outstanding), None, None) => Load::Closed { outstanding },
            (None, Some(rate), None) => {
                Load::Open { from: rate.iops, to: rate.to.unwrap_or(rate.iops), arrivals: rate.arrivals }
            }
            (None, None, Some(follow)) => {
                let leads = |stream: &Stream| {
                    stream.name == follow.stream || stream.name == numbered(&follow.stream, number + 1, 2)
                };
                let stream = before
                    .iter()
                    .position(leads)
                    .ok_or_else(|| wrong(format!("follows '{}', which is not above it", follow.stream)))?;
                Load::Follow { stream, ios: follow.ios, per: follow.per }
            }
            _ => return Err(wrong("it needs one of outstanding, rate and follows".into())),
        };
        let percent = |value: f64| value / 100.0;
        Ok(Stream {
            name: self.name.clone(),
            volume: 0,
            read: percent(self.read),
            random: percent(self.random),
            sizes,
            align: self.align.as_deref().map_or(Ok(0), size)?,
            zone: self.zone.map_or((0.0, 1.0), |(from, to)| (percent(from), percent(to))),
            hotspots: self.hotspots.as_ref().map(|spots| Hotspots {
                count: spots.count,
                range: percent(spots.range),
                share: percent(spots.share),
            }),
            load,
        })
    }
}

impl StepWords {
    fn check(&self, workload: &Workload) -> Result<Step> {
        let wrong = |why: &str| invalid(format!("step '{}': {why}", self.name));
        let streams = match &self.streams {
            None => (0..workload.streams.len()).collect(),
            Some(names) => self.find(names, workload)?,
        };
        let points = |points: &[f64]| -> Result<Vec<f64>> {
            let shares = points.iter().all(|point| *point > 0.0 && *point <= 100.0);
            if points.is_empty() || points.len() > POINTS_MAX || !shares {
                return Err(wrong("it needs from 1 to 64 shares, each above 0 and up to 100%"));
            }
            Ok(points.iter().map(|point| point / 100.0).collect())
        };
        let kind = match (&self.outstanding, &self.loads, &self.footprints) {
            (None, None, None) => StepKind::Hold,
            (Some(depths), None, None) => {
                if depths.is_empty()
                    || depths.len() > POINTS_MAX
                    || !depths.iter().all(|depth| (1..=4096).contains(depth))
                {
                    return Err(wrong("it needs from 1 to 64 depths, each from 1 to 4096"));
                }
                StepKind::Sweep(depths.clone())
            }
            (None, Some(loads), None) => StepKind::Loads(points(loads)?),
            (None, None, Some(footprints)) => StepKind::Footprints(points(footprints)?),
            _ => return Err(wrong("only one of outstanding, loads and footprints can be")),
        };
        Ok(Step { name: self.name.clone(), streams, kind })
    }

    /// The streams of these names; of a name that several volumes share, all.
    fn find(&self, names: &[String], workload: &Workload) -> Result<Vec<usize>> {
        let mut found = Vec::new();
        for name in names {
            let before = found.len();
            let is = |stream: &Stream| {
                stream.name == *name || stream.name.rsplit_once('-').is_some_and(|(base, _)| base == name)
            };
            found.extend(
                workload
                    .streams
                    .iter()
                    .enumerate()
                    .filter(|(_, stream)| is(stream))
                    .map(|(number, _)| number),
            );
            if found.len() == before {
                return Err(invalid(format!(
                    "step '{}' runs stream '{name}', which is not there",
                    self.name
                )));
            }
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }
}

fn numbered(name: &str, number: usize, of: usize) -> String {
    if of > 1 { format!("{name}-{number}") } else { name.to_owned() }
}

fn size(text: &str) -> Result<u64> {
    text.parse::<Size>().map(|size| size.0).map_err(|e| invalid(e.to_string()))
}

fn times(precondition: &str, sample: &str, point: &str) -> Result<Times> {
    Ok(Times { precondition: time(precondition)?, sample: time(sample)?, point: time(point)? })
}

/// `90s`, `30m`, `1h`.
///
/// # Errors
/// [`Kind::Invalid`].
pub fn time(text: &str) -> Result<Duration> {
    let units = [("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let read = units
        .iter()
        .find_map(|(unit, seconds)| text.strip_suffix(unit)?.parse::<f64>().ok().map(|n| n * seconds));
    read.filter(|seconds| (0.0..=1e7).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| invalid(format!("'{text}' is no time")).remedy("write it as 90s, 30m or 1h"))
}

fn invalid(what: String) -> Error {
    Error::new(Kind::Invalid, what)
}
