//! A job of fio as streams.

use super::super::draft::Draft;
use super::super::{Mapped, Notes, Place, wrong};
use super::VOLUME_BYTES;
use super::distribution::{self, Spread};
use super::files::{self, Files};
use super::ini::{Job, Opt};
use super::sizes::{self, Mix};
use super::streams;
use super::values::{bytes, directions, percent, seconds};
use stonefold_types::Result;

/// Engines that move nothing to storage.
const NO_STORAGE: &[&str] =
    &["cpuio", "net", "netsplice", "exec", "filecreate", "filestat", "filedelete", "mmap-pmem"];
/// Engines that have one I/O in flight, whatever `iodepth` says.
const SYNCHRONOUS: &[&str] = &["psync", "sync", "vsync", "pvsync", "pvsync2", "mmap", "splice", "ftruncate"];

/// What a job does, before it is cut into streams.
pub(super) struct Work {
    pub place: Place,
    /// Percent.
    pub read: f64,
    /// Percent of reads and of writes that go to a place by chance.
    pub random: (f64, f64),
    pub sizes: (Mix, Mix),
    /// Of reads and of writes that go to a place by chance; 0: each by its own size.
    pub align: (u64, u64),
    pub spread: Spread,
    pub pace: Pace,
}

/// Of one job, on all its files.
#[derive(Clone, Copy)]
pub(super) enum Pace {
    Closed(u64),
    Open { iops: f64, even: bool },
}

/// Adds the job's volumes and streams; returns the streams' names.
pub(super) fn map(job: &mut Job, draft: &mut Draft, notes: &mut Notes) -> Result<Vec<String>> {
    times(job, draft, notes)?;
    let engine = job.take("ioengine");
    let name = engine.as_ref().map_or("psync", |engine| engine.value.as_str()).to_owned();
    if let Some(option) = engine.as_ref().filter(|_| NO_STORAGE.contains(&name.as_str())) {
        let why = format!("job '{}' is left out: it does no I/O to storage", job.name);
        notes.tell(&option.place, format!("ioengine={name}"), Mapped::Not, why);
        return Ok(Vec::new());
    }
    if let Some(option) = job.options.get("read_iolog") {
        let why = format!("job '{}' is left out: a log that is replayed is no profile", job.name);
        notes.tell(&option.place, "read_iolog", Mapped::Not, why);
        return Ok(Vec::new());
    }
    let base_1000 = job.options.get("kb_base").is_some_and(|option| option.value == "1000");
    let Some(rw) = direction(job, notes) else { return Ok(Vec::new()) };
    direct(job, notes);
    let sizes = sizes::of(job, notes, base_1000)?;
    let files = files::of(job, draft, notes, base_1000)?;
    let read = mix(job, &rw)?;
    let random = chance(job, &rw)?;
    let (pace, read) = pace(job, notes, &name, read, &sizes, base_1000)?;
    let work = Work {
        place: job.place.clone(),
        read,
        random,
        align: align(job, notes, &sizes, base_1000)?,
        spread: spread(job, draft, notes, &files, &sizes),
        sizes,
        pace,
    };
    Ok(streams::add(job, &work, &files, draft, notes))
}

/// What `rw` says.
struct Rw {
    reads: bool,
    writes: bool,
    random: bool,
    /// I/Os from one place by chance to the next.
    run: f64,
}

fn direction(job: &mut Job, notes: &mut Notes) -> Option<Rw> {
    let option = job.take("rw");
    let identical = job.take("rw_sequencer").is_some_and(|option| option.value == "identical");
    let written = option.as_ref().map_or("read", |option| option.value.as_str());
    let (word, rest) = written.split_once(':').unwrap_or((written, ""));
    let place = option.as_ref().map_or(job.place.clone(), |option| option.place.clone());
    let (reads, writes, random) = match word {
        "read" => (true, false, false),
        "write" => (false, true, false),
        "randread" => (true, false, true),
        "randwrite" => (false, true, true),
        "rw" | "readwrite" => (true, true, false),
        "randrw" => (true, true, true),
        _ => {
            let why = format!("job '{}' is left out: profiles read and write, and no more", job.name);
            notes.tell(&place, format!("rw={written}"), Mapped::Not, why);
            return None;
        }
    };
    let run = rest.parse::<f64>().ok().filter(|run| *run >= 1.0);
    let run = match (random, run) {
        (true, Some(run)) if !identical => run,
        _ => {
            if !rest.is_empty() {
                notes.tell(
                    &place,
                    format!("rw={written}"),
                    Mapped::Not,
                    "no gaps in a row of I/Os, and none that goes to one place again",
                );
            }
            1.0
        }
    };
    Some(Rw { reads, writes, random, run })
}

fn direct(job: &mut Job, notes: &mut Notes) {
    let place = job.options.get("direct").map_or(job.place.clone(), |option| option.place.clone());
    if !job.flag("direct") {
        let why = "fio goes through the page cache; the lab goes around it";
        notes.tell(&place, "direct", Mapped::Nearly, why);
    }
}

/// Reads of a mix, in percent.
fn mix(job: &mut Job, rw: &Rw) -> Result<f64> {
    let (reads, writes) = (job.take("rwmixread"), job.take("rwmixwrite"));
    if !(rw.reads && rw.writes) {
        return Ok(if rw.reads { 100.0 } else { 0.0 });
    }
    let share = |option: &Opt| {
        percent(&option.value)
            .ok_or_else(|| wrong(&option.place, format!("'{}' is no share from 0 to 100", option.value)))
    };
    match (&reads, &writes) {
        (Some(option), _) => share(option),
        (None, Some(option)) => share(option).map(|writes| 100.0 - writes),
        (None, None) => Ok(50.0),
    }
}

/// Percent of reads and of writes that go to a place by chance.
fn chance(job: &mut Job, rw: &Rw) -> Result<(f64, f64)> {
    let option = job.take("percentage_random");
    let Some(option) = option.filter(|_| rw.random) else {
        let share = if rw.random { 100.0 / rw.run } else { 0.0 };
        return Ok((share, share));
    };
    let (read, write) = directions(&option.value);
    let share = |text: &str| {
        percent(text).ok_or_else(|| wrong(&option.place, format!("'{text}' is no share from 0 to 100")))
    };
    Ok((share(&read)?, share(&write)?))
}

/// How much at a time, and what part of it reads: with rates, those say it.
fn pace(
    job: &mut Job,
    notes: &mut Notes,
    engine: &str,
    read: f64,
    sizes: &(Mix, Mix),
    base_1000: bool,
) -> Result<(Pace, f64)> {
    let depth = depth(job, notes, engine)?;
    let even = job.take("rate_process").is_none_or(|option| option.value != "poisson");
    let (by_ios, by_bytes) = (job.take("rate_iops"), job.take("rate"));
    let Some(option) = by_ios.as_ref().or(by_bytes.as_ref()) else { return Ok((Pace::Closed(depth), read)) };
    let (reads, writes) = directions(&option.value);
    let rate = |text: &str, mix: &Mix| -> Result<f64> {
        let number = bytes(text, base_1000).filter(|number| *number > 0).ok_or_else(|| {
            wrong(&option.place, format!("'{text}' is no rate; write one for each direction, as in 500,200"))
        })?;
        Ok(if by_ios.is_some() { number as f64 } else { number as f64 / mean(mix) })
    };
    let reads = if read > 0.0 { rate(&reads, &sizes.0)? } else { 0.0 };
    let writes = if read < 100.0 { rate(&writes, &sizes.1)? } else { 0.0 };
    let name = if by_ios.is_some() { "rate_iops" } else { "rate" };
    notes.tell(
        &option.place,
        format!("{name}={}", option.value),
        Mapped::Nearly,
        "an open loop: I/Os come at their moments, whatever is in flight; fio stops at iodepth and falls behind",
    );
    let iops = reads + writes;
    Ok((Pace::Open { iops, even }, reads / iops * 100.0))
}

fn depth(job: &mut Job, notes: &mut Notes, engine: &str) -> Result<u64> {
    let Some(option) = job.take("iodepth") else { return Ok(1) };
    let depth = option.value.parse::<u64>().ok().filter(|depth| *depth > 0);
    let depth = depth.ok_or_else(|| wrong(&option.place, format!("iodepth '{}' is none", option.value)))?;
    if depth > 1 && SYNCHRONOUS.contains(&engine) {
        let why = format!("1: with ioengine={engine} fio has one I/O in flight, whatever iodepth says");
        notes.tell(&option.place, format!("iodepth={depth}"), Mapped::Nearly, why);
        return Ok(1);
    }
    Ok(depth)
}

fn mean(mix: &Mix) -> f64 {
    let whole: f64 = mix.iter().map(|(_, share)| share).sum();
    mix.iter().map(|(bytes, share)| *bytes as f64 * share).sum::<f64>() / whole
}

/// Of reads and of writes; where nothing is said, fio aligns each direction to the smallest of its sizes.
fn align(job: &mut Job, notes: &mut Notes, sizes: &(Mix, Mix), base_1000: bool) -> Result<(u64, u64)> {
    let unaligned = job.flag("bs_unaligned");
    let by_sizes = (align_by(&sizes.0, unaligned), align_by(&sizes.1, unaligned));
    let Some(option) = job.take("blockalign") else { return Ok(by_sizes) };
    let (read, write) = directions(&option.value);
    let mut of = |text: &str, by_sizes: u64| -> Result<u64> {
        // One direction may be left out, as in ",4k".
        if text.is_empty() && option.value.contains(',') {
            return Ok(by_sizes);
        }
        let asked = bytes(text, base_1000)
            .ok_or_else(|| wrong(&option.place, format!("'{text}' of blockalign is no size")))?;
        let align = asked.max(1).next_multiple_of(512);
        if align != asked {
            let why = format!("addresses are multiples of {align}");
            notes.tell(&option.place, format!("blockalign={text}"), Mapped::Nearly, why);
        }
        Ok(align)
    };
    Ok((of(&read, by_sizes.0)?, of(&write, by_sizes.1)?))
}

fn align_by(sizes: &Mix, unaligned: bool) -> u64 {
    let all = || sizes.iter().map(|(bytes, _)| *bytes);
    let (least, most) = (all().min().unwrap_or(4096), all().max().unwrap_or(4096));
    match unaligned {
        true => 512,
        // A power of two is aligned to itself without being told.
        false if least == most && least.is_power_of_two() => 0,
        false => least,
    }
}

fn spread(job: &mut Job, draft: &Draft, notes: &mut Notes, files: &Files, sizes: &(Mix, Mix)) -> Spread {
    let Some(option) = job.take("random_distribution") else { return Spread::Even };
    let of = |name: &String| draft.volumes.iter().find(|volume| volume.name == *name);
    let bytes = files.volumes.first().and_then(of).map_or(VOLUME_BYTES, |volume| volume.bytes);
    let least = sizes.0.iter().chain(&sizes.1).map(|(bytes, _)| *bytes).min().unwrap_or(4096);
    distribution::of(&option, bytes / least.max(1), notes)
}

fn times(job: &mut Job, draft: &mut Draft, notes: &mut Notes) -> Result<()> {
    let whole = job.flag("time_based");
    for (name, longest) in [("runtime", &mut draft.sample), ("ramp_time", &mut draft.precondition)] {
        let Some(option) = job.take(name) else { continue };
        let length =
            seconds(&option.value).filter(|length| *length > 0.0 || name == "ramp_time").ok_or_else(
                || wrong(&option.place, format!("'{}' is no time; write 90, 30m or 1h", option.value)),
            )?;
        job.timed |= name == "runtime";
        let written = format!("{name}={}", option.value);
        if *longest > 0.0 && *longest != length {
            let why = format!("all steps take as long as the longest: {} s", longest.max(length));
            notes.tell(&option.place, written, Mapped::Nearly, why);
        } else if name == "runtime" && !whole {
            let why = "the whole time: without time_based fio ends earlier where it has been over everything";
            notes.tell(&option.place, written, Mapped::Nearly, why);
        }
        *longest = longest.max(length);
    }
    Ok(())
}
