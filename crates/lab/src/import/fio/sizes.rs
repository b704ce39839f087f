//! How large fio's I/Os are: `bs`, `bsrange` and `bssplit`, for each direction.

use super::super::{Mapped, Notes, wrong};
use super::ini::{Job, Opt};
use super::values::{bytes, directions};
use stonefold_types::Result;

/// Sizes of a range that are told one by one at most.
const RANGE_SIZES_MAX: u64 = 256;

/// Sizes with their shares in percent.
pub(super) type Mix = Vec<(u64, f64)>;

/// Sizes of reads and of writes.
pub(super) fn of(job: &mut Job, notes: &mut Notes, base_1000: bool) -> Result<(Mix, Mix)> {
    let (bs, range, split) = (job.take("bs"), job.take("bsrange"), job.take("bssplit"));
    let default = vec![(4096, 100.0)];
    if let Some(option) = split {
        let (read, write) = directions(&option.value);
        return Ok((
            split_of(&read, &option, notes, base_1000)?,
            split_of(&write, &option, notes, base_1000)?,
        ));
    }
    if let Some(option) = range {
        let (read, write) = directions(&option.value);
        return Ok((
            range_of(&read, &option, notes, base_1000)?,
            range_of(&write, &option, notes, base_1000)?,
        ));
    }
    let Some(option) = bs else { return Ok((default.clone(), default)) };
    let (read, write) = directions(&option.value);
    let one = |text: &str| match text {
        "" => Ok(default.clone()),
        text => size(text, &option, base_1000).map(|bytes| vec![(bytes, 100.0)]),
    };
    Ok((one(&read)?, one(&write)?))
}

/// `4k/60:64k/40`; shares that are not written have what the others leave, evenly.
fn split_of(text: &str, option: &Opt, notes: &mut Notes, base_1000: bool) -> Result<Mix> {
    let mut mix: Vec<(u64, Option<f64>)> = Vec::new();
    for part in text.split(':').filter(|part| !part.is_empty()) {
        let (bytes, share) = part.split_once('/').unwrap_or((part, ""));
        let share = match share.trim() {
            "" => None,
            share => Some(share.parse::<f64>().map_err(|_| {
                wrong(&option.place, format!("'{part}' of bssplit has no share; write 4k/60:64k/40"))
            })?),
        };
        mix.push((size(bytes, option, base_1000)?, share));
    }
    if mix.iter().filter_map(|(_, share)| *share).any(|share| share.fract() != 0.0) {
        notes.tell(
            &option.place,
            format!("bssplit={text}"),
            Mapped::Nearly,
            "kept as it is written; fio itself cuts each share to a whole percent",
        );
    }
    let told: f64 = mix.iter().filter_map(|(_, share)| *share).sum();
    let untold = mix.iter().filter(|(_, share)| share.is_none()).count().max(1) as f64;
    let rest = (100.0 - told).max(0.0) / untold;
    let mut sizes: Mix = Vec::new();
    for (bytes, share) in mix {
        let share = share.unwrap_or(rest);
        match sizes.iter_mut().find(|(other, _)| *other == bytes) {
            Some((_, sum)) => *sum += share,
            None if share > 0.0 => sizes.push((bytes, share)),
            None => {}
        }
    }
    match sizes.is_empty() {
        true => Err(wrong(&option.place, "bssplit has no size with a share; write 4k/60:64k/40")),
        false => Ok(sizes),
    }
}

/// `1k-4k`: evenly among the multiples of the smaller one.
fn range_of(text: &str, option: &Opt, notes: &mut Notes, base_1000: bool) -> Result<Mix> {
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    let (least, most) = (size(least, option, base_1000)?, size(most, option, base_1000)?);
    if least > most {
        return Err(wrong(&option.place, format!("the range '{text}' ends before it begins")));
    }
    let many = most / least;
    let every = many.div_ceil(RANGE_SIZES_MAX);
    if every > 1 || most % least != 0 {
        let why = format!("as multiples of {least} bytes, {} of them", many.div_ceil(every));
        notes.tell(&option.place, format!("bsrange={text}"), Mapped::Nearly, why);
    }
    let sizes: Vec<u64> = (1..=many).step_by(every as usize).map(|times| times * least).collect();
    let share = 100.0 / sizes.len() as f64;
    Ok(sizes.into_iter().map(|bytes| (bytes, share)).collect())
}

/// In whole sectors.
fn size(text: &str, option: &Opt, base_1000: bool) -> Result<u64> {
    let bytes = bytes(text, base_1000)
        .ok_or_else(|| wrong(&option.place, format!("'{text}' is no size; write 512, 4k or 1m")))?;
    match bytes > 0 && bytes % 512 == 0 {
        true => Ok(bytes),
        false => Err(wrong(
            &option.place,
            format!("an I/O of {bytes} bytes: a profile has multiples of 512; change it to one"),
        )),
    }
}
