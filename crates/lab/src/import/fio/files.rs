//! Where a job of fio goes: files, how large they are, and what part of each it uses.

use super::super::draft::Draft;
use super::super::{Mapped, Notes, wrong};
use super::ini::{Job, Opt};
use super::values::{bytes, percent};
use super::{VOLUME_BYTES, volume};
use crate::payload::{COMPRESSION_MAX, DEDUPE_MAX};
use stonefold_types::Result;

/// Where it goes.
pub(super) struct Files {
    /// A volume for each, or one with a count.
    pub volumes: Vec<String>,
    /// The files that one job divides its I/O among.
    pub of_each: u64,
    /// Jobs that share each.
    pub sharing: u64,
    /// Percent of the volume, of the first job, and how much further on the next begins.
    pub zone: (f64, f64),
    /// See `zone`.
    pub step: f64,
}

/// A number of bytes, or a share of a file in percent.
enum Extent {
    Bytes(u64),
    Percent(f64),
}

impl Extent {
    fn bytes(&self) -> Option<u64> {
        match self {
            Extent::Bytes(bytes) => Some(*bytes),
            Extent::Percent(_) => None,
        }
    }
}

pub(super) fn of(job: &mut Job, draft: &mut Draft, notes: &mut Notes, base_1000: bool) -> Result<Files> {
    let jobs = count(job, "numjobs")?;
    let each = count(job, "nrfiles")?;
    let names = job.take("filename");
    let own = names.is_none();
    let many = names.as_ref().map_or(each, |option| option.value.split(':').count() as u64);
    let increment = extent(job, "offset_increment", base_1000)?;
    let offset = extent(job, "offset", base_1000)?;
    let size = extent(job, "size", base_1000)?;
    let whole = whole(job, notes, size.as_ref(), many, base_1000)?;
    let part = |extent: Option<&Extent>, of: u64| match extent {
        Some(Extent::Bytes(bytes)) => *bytes as f64 / of as f64 * 100.0,
        Some(Extent::Percent(share)) => *share,
        None => 0.0,
    };
    // What is used of each file; where nothing says how large that is, it ends where its last job does.
    let used = size.as_ref().and_then(Extent::bytes).map(|bytes| bytes / many);
    let before = offset.as_ref().and_then(Extent::bytes).unwrap_or(0);
    let further = increment.as_ref().and_then(Extent::bytes).unwrap_or(0) * if own { 0 } else { jobs - 1 };
    let bytes = whole.unwrap_or_else(|| before + further + used.unwrap_or(VOLUME_BYTES)).max(4096);
    let from = part(offset.as_ref(), bytes).min(100.0);
    let step = part(increment.as_ref(), bytes);
    let length = match (&size, used) {
        (_, Some(used)) => used as f64 / bytes as f64 * 100.0,
        (Some(Extent::Percent(share)), None) => *share,
        (_, None) => 100.0,
    };
    let zone = (from, (from + length).min(100.0));
    let payload = payload(job, notes)?;
    let named = |name: &str| name.rsplit('/').next().unwrap_or(name).to_owned();
    let volumes = match names {
        Some(option) => {
            let why = "where it runs is '--target' of the run, one for each volume";
            notes.tell(&option.place, format!("filename={}", option.value), Mapped::Beside, why);
            option.value.split(':').map(|name| volume(draft, &named(name), bytes, 1, payload)).collect()
        }
        None => vec![volume(draft, &job.name, bytes, (jobs * many) as usize, payload)],
    };
    Ok(Files { volumes, of_each: many, sharing: if own { 1 } else { jobs }, zone, step })
}

/// Bytes of each file, where something says it.
fn whole(
    job: &mut Job,
    notes: &mut Notes,
    size: Option<&Extent>,
    many: u64,
    base_1000: bool,
) -> Result<Option<u64>> {
    let Some(option) = job.take("filesize") else {
        if size.and_then(Extent::bytes).is_none() {
            let why = format!(
                "none in bytes: fio asks the device; here {} GiB, change it to yours",
                VOLUME_BYTES >> 30
            );
            notes.tell(&job.place, "size", Mapped::Nearly, why);
        }
        return Ok(None);
    };
    let (least, most) = option.value.split_once('-').unwrap_or((&option.value, &option.value));
    let read = |text: &str| {
        bytes(text, base_1000)
            .ok_or_else(|| wrong(&option.place, format!("'{text}' is no size; write 10g or 4096")))
    };
    let (least, most) = (read(least)?, read(most)?);
    if least != most {
        let why = "files of one size: half way between the two";
        notes.tell(&option.place, format!("filesize={}", option.value), Mapped::Nearly, why);
    }
    let used = size.and_then(Extent::bytes).map_or(0, |bytes| bytes / many);
    Ok(Some(((least + most) / 2).max(used)))
}

fn extent(job: &mut Job, name: &str, base_1000: bool) -> Result<Option<Extent>> {
    let Some(option) = job.take(name) else { return Ok(None) };
    let wrong =
        || wrong(&option.place, format!("{name} '{}' is no size; write 10g, 4096 or 50%", option.value));
    let extent = match option.value.ends_with('%') {
        true => Extent::Percent(percent(&option.value).ok_or_else(wrong)?),
        false => Extent::Bytes(bytes(&option.value, base_1000).ok_or_else(wrong)?),
    };
    Ok(Some(extent))
}

fn count(job: &mut Job, name: &str) -> Result<u64> {
    let Some(Opt { value, place }) = job.take(name) else { return Ok(1) };
    let count = value.parse::<u64>().ok().filter(|count| (1..=1000).contains(count));
    count.ok_or_else(|| wrong(&place, format!("{name} '{value}': from 1 to 1000 can be")))
}

/// Ratios of deduplication and compression.
fn payload(job: &mut Job, notes: &mut Notes) -> Result<(f64, f64)> {
    let mut ratio = |name: &str, most: f64| -> Result<f64> {
        let Some(option) = job.take(name) else { return Ok(1.0) };
        let share = percent(&option.value)
            .ok_or_else(|| wrong(&option.place, format!("'{}' is no share from 0 to 100", option.value)))?;
        let ratio = 1.0 / (1.0 - share / 100.0).max(1e-9);
        if ratio > most {
            let why = format!("{most}:1, which is the most that the lab's payload reduces");
            notes.tell(&option.place, format!("{name}={}", option.value), Mapped::Nearly, why);
        }
        Ok((ratio.min(most) * 1e4).round() / 1e4)
    };
    let ratios =
        (ratio("dedupe_percentage", DEDUPE_MAX)?, ratio("buffer_compress_percentage", COMPRESSION_MAX)?);
    if let Some(option) = job.take("buffer_compress_chunk") {
        let why = "what is written reduces alike in every block of 4K";
        notes.tell(&option.place, format!("buffer_compress_chunk={}", option.value), Mapped::Nearly, why);
    }
    Ok(ratios)
}
