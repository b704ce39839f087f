//! The words of a profile's file.

use super::mix::{AlignWords, mix};
use super::steps::{StepWords, check_footprints, check_loads, check_order};
use super::{Profile, Step, StepKind, Times};
use crate::payload::Reduction;
use crate::stats::require;
use crate::workload::{Arrivals, Hotspots, Load, Original, Stream, Volume, Workload};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;
use stonefold_types::{BLOCK_BYTES, Error, Kind, Result, Size};

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
    #[serde(default)]
    require: String,
    #[serde(default)]
    scales: bool,
    of_cache: Option<f64>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PayloadWords {
    dedupe: f64,
    compression: f64,
    copies: Copies,
}

/// What a copied volume holds.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Copies {
    /// The bytes of its original.
    Equal,
    /// Contents of its own.
    Own,
}

impl Default for PayloadWords {
    fn default() -> Self {
        PayloadWords { dedupe: 1.0, compression: 1.0, copies: Copies::Own }
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
    align: Option<AlignWords>,
    zone: Option<(f64, f64)>,
    hotspots: Option<HotspotWords>,
    #[serde(default)]
    flush: u32,
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
        require::parse(&self.require)?;
        if self.of_cache.is_some_and(|times| !(times > 0.0 && times <= 1000.0)) {
            return Err(invalid("'of_cache' above 0 and up to 1000 can be".into()));
        }
        let steps: Vec<Step> = match self.step.is_empty() {
            true => vec![Step {
                name: "hold".into(),
                streams: (0..full.streams.len()).collect(),
                kind: StepKind::Hold,
            }],
            false => self.step.iter().map(|step| step.check(&full)).collect::<Result<_>>()?,
        };
        check_order(&steps, &full)?;
        check_loads(&steps, &full)?;
        [&full, &quick].into_iter().try_for_each(|workload| check_footprints(&steps, workload))?;
        Ok(Profile {
            name: name.into(),
            title: self.title,
            about: self.about.trim().into(),
            source: self.source,
            full,
            quick,
            times,
            steps,
            require: self.require,
            scales: self.scales,
            of_cache: self.of_cache,
            cache: None,
            text: text.into(),
            changes: (None, None),
            least: None,
            only: Vec::new(),
            scale: None,
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
                original: None,
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
        let mut workload = Workload { volumes, streams };
        let equal = self.payload.copies == Copies::Equal;
        for (from, to) in self.step.iter().filter_map(|step| step.copies(&workload)).collect::<Vec<_>>() {
            to.iter().for_each(|to| {
                workload.volumes[*to].original = Some(Original { volume: from, equal });
            });
        }
        workload.check()?;
        Ok(workload)
    }
}

impl StreamWords {
    /// `before` are the streams above it, of which a follower's leader is one.
    fn check(&self, before: &[Stream], number: usize) -> Result<Stream> {
        let wrong = |why: String| invalid(format!("stream '{}': {why}", self.name));
        let sizes = mix(&self.sizes, "sizes").map_err(wrong)?;
        let alignments = self.align.as_ref().map_or(Ok(Vec::new()), AlignWords::check).map_err(wrong)?;
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
            alignments,
            zone: self.zone.map_or((0.0, 1.0), |(from, to)| (percent(from), percent(to))),
            hotspots: self.hotspots.as_ref().map(|spots| Hotspots {
                count: spots.count,
                range: percent(spots.range),
                share: percent(spots.share),
            }),
            flush: self.flush,
            load,
        })
    }
}

fn numbered(name: &str, number: usize, of: usize) -> String {
    if of > 1 { format!("{name}-{number}") } else { name.to_owned() }
}

fn size(text: &str) -> Result<u64> {
    text.parse::<Size>().map(|size| size.0).map_err(|e| invalid(e.to_string()))
}

fn times(precondition: &str, sample: &str, point: &str) -> Result<Times> {
    let sampled = |text: &str| {
        let read = time(text)?;
        if read.is_zero() {
            return Err(invalid(format!("a sample of {text} measures nothing")));
        }
        Ok(read)
    };
    Ok(Times { precondition: time(precondition)?, sample: sampled(sample)?, point: sampled(point)? })
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

pub(super) fn invalid(what: String) -> Error {
    Error::new(Kind::Invalid, what)
}
