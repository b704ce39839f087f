//! A job of fio, cut into streams.
//!
//! A stream has one mix of sizes and of alignments, which both of its directions draw from, one share of places by chance and one zone. Where a job has several it becomes several
//! streams, of which the one with most of the I/Os leads: so many of each other for so many of it. With a rate each has its
//! share of that.

use super::super::draft::{Draft, LoadDraft, StreamDraft};
use super::super::{Mapped, Notes};
use super::distribution::Spread;
use super::files::Files;
use super::ini::Job;
use super::job::{Pace, Work};
use super::sizes::Mix;

/// Jobs on one file that become streams of their own, at most; more become one.
const JOBS_MAX: u64 = 32;

/// A part of a job that is a stream of its own.
#[derive(Clone)]
struct Part {
    suffix: String,
    /// Of all I/Os, from 0 to 1.
    share: f64,
    read: f64,
    random: f64,
    sizes: Mix,
    align: u64,
    /// Percent of the job's own zone.
    zone: (f64, f64),
}

/// Adds them; returns their names.
pub(super) fn add(
    job: &Job,
    work: &Work,
    files: &Files,
    draft: &mut Draft,
    notes: &mut Notes,
) -> Vec<String> {
    let mut parts = zoned(directed(work), &work.spread);
    parts.sort_by(|a, b| b.share.total_cmp(&a.share));
    if parts.len() > 1 && matches!(work.pace, Pace::Closed(_)) {
        let why = format!(
            "{} streams that keep their shares: iodepth is that of the first, the I/Os of the others come on top",
            parts.len()
        );
        notes.tell(&work.place, format!("[{}]", job.name), Mapped::Nearly, why);
    }
    let (pace, jobs) = shared(job, work, files, notes);
    let mut names = Vec::new();
    for volume in &files.volumes {
        for number in 0..jobs {
            let from = (files.zone.0 + files.step * number as f64).min(100.0);
            let zone = (from, (files.zone.1 + files.step * number as f64).min(100.0));
            let leader = draft.free_name(&format!("{}{}", job.name, parts[0].suffix));
            for (place, part) in parts.iter().enumerate() {
                let name = match place {
                    0 => leader.clone(),
                    _ => draft.free_name(&format!("{}{}", job.name, part.suffix)),
                };
                let load = match (pace, place) {
                    (Pace::Open { iops, even }, _) => LoadDraft::Rate { iops: iops * part.share, even },
                    (Pace::Closed(depth), 0) => LoadDraft::Outstanding(depth.clamp(1, 4096) as u32),
                    (Pace::Closed(_), _) => LoadDraft::Follows {
                        stream: leader.clone(),
                        ios: round(part.share * 100.0),
                        per: round(parts[0].share * 100.0),
                    },
                };
                let stream = part.stream(&name, volume, work, zone, load);
                draft.streams.push(stream);
                names.push(name);
            }
        }
    }
    names
}

impl Part {
    fn stream(
        &self,
        name: &str,
        volume: &str,
        work: &Work,
        zone: (f64, f64),
        load: LoadDraft,
    ) -> StreamDraft {
        let random = self.random > 0.0;
        let hotspots = match &work.spread {
            Spread::Spots(spots) if random => Some(*spots),
            _ => None,
        };
        StreamDraft {
            read: round(self.read),
            random: round(self.random),
            sizes: self.sizes.iter().map(|(bytes, share)| (*bytes, round(*share))).collect(),
            align: if random { self.align } else { 0 },
            zone: within(zone, self.zone),
            hotspots,
            load,
            ..StreamDraft::new(name.to_owned(), volume.to_owned())
        }
    }
}

/// Reads and writes apart, where one stream cannot be both: of other sizes, aligned otherwise, or each after the one before of its kind.
fn directed(work: &Work) -> Vec<Part> {
    let mixed = work.read > 0.0 && work.read < 100.0;
    let same = work.sizes.0 == work.sizes.1 && work.align.0 == work.align.1;
    let alike = same && work.random == (100.0, 100.0);
    let whole = (0.0, 100.0);
    let reads = (work.random.0, &work.sizes.0, work.align.0);
    let writes = (work.random.1, &work.sizes.1, work.align.1);
    let part = |suffix: &str, share: f64, read: f64, (random, sizes, align): (f64, &Mix, u64)| Part {
        suffix: suffix.into(),
        share,
        read,
        random,
        sizes: sizes.clone(),
        align,
        zone: whole,
    };
    match (mixed, alike) {
        (true, false) => vec![
            part(".reads", work.read / 100.0, 100.0, reads),
            part(".writes", 1.0 - work.read / 100.0, 0.0, writes),
        ],
        (true, true) => vec![part("", 1.0, work.read, reads)],
        (false, _) if work.read > 0.0 => vec![part("", 1.0, 100.0, reads)],
        (false, _) => vec![part("", 1.0, 0.0, writes)],
    }
}

/// Each of them in each zone.
fn zoned(parts: Vec<Part>, spread: &Spread) -> Vec<Part> {
    let Spread::Zones(zones) = spread else { return parts };
    let mut from = 0.0;
    let mut cut = Vec::new();
    for (number, (share, range)) in zones.iter().enumerate() {
        let zone = (from, (from + range).min(100.0));
        from = zone.1;
        cut.extend(parts.iter().filter(|_| *share > 0.0).map(|part| Part {
            suffix: format!("{}.zone{}", part.suffix, number + 1),
            share: part.share * share / 100.0,
            zone,
            ..part.clone()
        }));
    }
    cut
}

/// The pace of each stream, and how many jobs on one file become streams of their own.
fn shared(job: &Job, work: &Work, files: &Files, notes: &mut Notes) -> (Pace, u64) {
    let in_a_row = work.random.0.min(work.random.1) < 100.0;
    let apart = files.sharing > 1 && (in_a_row || files.step > 0.0) && files.sharing <= JOBS_MAX;
    let (times, jobs) = if apart { (1, files.sharing) } else { (files.sharing, 1) };
    let pace = match work.pace {
        Pace::Open { iops, even } => Pace::Open { iops: iops * times as f64 / files.of_each as f64, even },
        Pace::Closed(depth) => Pace::Closed((depth * times).div_ceil(files.of_each)),
    };
    if files.of_each > 1 {
        let why = format!("{} files: each has its even part of a job's I/Os", files.of_each);
        notes.tell(&work.place, format!("[{}]", job.name), Mapped::Nearly, why);
    }
    if times > 1 && in_a_row {
        let why =
            format!("{times} jobs on one file are one stream: there is one sequence of I/Os, not {times}");
        notes.tell(&work.place, format!("[{}]", job.name), Mapped::Nearly, why);
    }
    (pace, jobs)
}

fn within(whole: (f64, f64), part: (f64, f64)) -> (f64, f64) {
    let at = |share: f64| whole.0 + (whole.1 - whole.0) * share / 100.0;
    (at(part.0), at(part.1))
}

/// To a millionth: no tail of digits that nobody wrote.
fn round(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}
