//! Job files of fio (its manual: <https://fio.readthedocs.io/en/latest/fio_doc.html>).
//!
//! Each job is a stream, or several; jobs between two `stonewall`s are a step. What was tried with fio 3.33 and is not in
//! its manual: with `rate_iops` each direction of a mix gets the rate, whatever `rwmixread` says; `bsrange` draws evenly
//! among the multiples of its smallest size.

mod distribution;
mod files;
mod ini;
mod job;
mod sizes;
mod streams;
mod values;

use super::draft::{Draft, StepDraft, StepDraftKind, VolumeDraft, plain};
use super::{Mapped, Note, Notes, Place};
use ini::Job;
use std::path::Path;
use stonefold_types::Result;

/// Seconds of a step, where no job says how long it runs.
const SAMPLE_SECONDS: f64 = 300.0;
/// Bytes of a volume, where no job says how large it is.
const VOLUME_BYTES: u64 = 10 << 30;

pub(super) fn map(path: &Path, text: &str) -> Result<(Draft, Notes)> {
    let mut notes = Notes::default();
    let jobs = ini::jobs(path, text)?;
    let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut draft = Draft {
        title: format!("{file}, imported"),
        source: format!("fio's job file {file}"),
        about: "As far as a profile can say what the job file does; the importer told what it cannot.".into(),
        precondition: 0.0,
        sample: 0.0,
        ..Draft::default()
    };
    let mut group: Vec<String> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for mut job in jobs {
        if job.flag("stonewall") {
            end_group(&mut draft, &mut group, &mut names);
        }
        let place = job.place.clone();
        let name = job.name.clone();
        let made = job::map(&mut job, &mut draft, &mut notes)?;
        // One that was left out was told as a whole.
        if made.is_empty() {
            continue;
        }
        names.push(name);
        group.extend(made);
        leave(&mut job, &mut notes);
        if draft.sample == 0.0 && !job.timed {
            notes.tell(
                &place,
                "runtime",
                Mapped::Nearly,
                format!("none: fio ends when it has been over everything, the lab after {SAMPLE_SECONDS} s"),
            );
        }
    }
    end_group(&mut draft, &mut group, &mut names);
    if draft.sample == 0.0 {
        draft.sample = SAMPLE_SECONDS;
    }
    Ok((draft, notes))
}

fn end_group(draft: &mut Draft, group: &mut Vec<String>, names: &mut Vec<String>) {
    if !group.is_empty() {
        draft.steps.push(StepDraft {
            name: names.join(" and "),
            streams: std::mem::take(group),
            kind: StepDraftKind::Hold,
        });
    }
    names.clear();
}

/// What nobody has taken is told.
fn leave(job: &mut Job, notes: &mut Notes) {
    for (name, option) in std::mem::take(&mut job.options) {
        let written = if option.value.is_empty() { name.clone() } else { format!("{name}={}", option.value) };
        let (mapped, why) = values::left(&name);
        notes.0.push(Note {
            file: option.place.file,
            line: option.place.line,
            option: written,
            mapped,
            why: why.into(),
        });
    }
    notes.0.sort();
    notes.0.dedup();
}

/// The volume behind a file's name; made where it is new, else as large as whoever needs most of it.
fn volume(draft: &mut Draft, name: &str, bytes: u64, count: usize, payload: (f64, f64)) -> String {
    let name = plain(name);
    match draft.volumes.iter_mut().find(|volume| volume.name == name) {
        Some(volume) => volume.bytes = volume.bytes.max(bytes),
        None => draft.volumes.push(VolumeDraft { name: name.clone(), bytes, count, payload }),
    }
    name
}

/// Where a job's section begins.
fn at(file: &str, line: usize) -> Place {
    Place { file: file.to_owned(), line }
}

#[cfg(test)]
mod tests;
