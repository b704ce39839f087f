//! Loops of a run definition: `forthreads=(1,2,4)` and the like.

use super::super::{Notes, Place, wrong};
use super::defined::{random_of, sizes_of};
use super::values::{number, numbers};
use super::words::Line;
use stonefold_types::Result;

/// Turns of all loops of one run definition.
const TURNS_MAX: usize = 64;

/// One turn of the loops.
#[derive(Clone, Default)]
pub(super) struct Turn {
    /// Of each loop its name and value, for people.
    pub told: Vec<String>,
    pub threads: Option<u32>,
    pub sizes: Option<Vec<(u64, f64)>>,
    pub read: Option<f64>,
    pub random: Option<f64>,
}

/// Every turn of the loops; the first one that is written is the outermost.
pub(super) fn turns(line: &mut Line, notes: &mut Notes) -> Result<Vec<Turn>> {
    let place = line.place.clone();
    let mut turns = vec![Turn::default()];
    if let Some(threads) = line.take_one("threads") {
        turns[0].threads = Some(number(&threads, "threads", &place)? as u32);
    }
    let loops: Vec<String> = line.options.iter().map(|(name, _)| name.clone()).collect();
    for name in loops {
        let known = ["forthreads", "forxfersize", "forrdpct", "forseekpct"].contains(&name.as_str());
        let Some(values) = known.then(|| line.take(&name)).flatten() else { continue };
        let mut all = Vec::new();
        for turn in &turns {
            for value in expanded(&name, &values, &place)? {
                let mut turn = turn.clone();
                turn.told.push(format!("{} {value}", name.trim_start_matches("for")));
                match name.as_str() {
                    "forthreads" => turn.threads = Some(number(&value, "threads", &place)? as u32),
                    "forxfersize" => turn.sizes = Some(sizes_of(&[value], &place, notes)?),
                    "forrdpct" => turn.read = Some(number(&value, "rdpct", &place)?),
                    _ => turn.random = Some(random_of(&value, &place, notes)?),
                }
                all.push(turn);
            }
        }
        if all.len() > TURNS_MAX {
            return Err(wrong(
                &place,
                format!("its loops have more than {TURNS_MAX} turns; write several run definitions"),
            ));
        }
        turns = all;
    }
    Ok(turns)
}

fn expanded(name: &str, values: &[String], place: &Place) -> Result<Vec<String>> {
    match name != "forxfersize" && values.iter().any(|value| value.contains('-')) {
        true => Ok(numbers(values, name, place)?.iter().map(ToString::to_string).collect()),
        false => Ok(values.to_vec()),
    }
}
