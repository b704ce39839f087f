//! `stonefold pool check --salvage`.

use crate::context::Context;
use crate::failure::Failure;
use crate::pool::told;
use crate::waiting::wait_for_parts;
use stonefold_api::{Checked, Salvaged, SalvagedFrom};
use stonefold_types::{Error, Kind, Size};

pub(crate) fn run(context: &Context) -> Result<(), Failure> {
    let client = context.client()?;
    let found = wait_for_parts(&client, "salvage", &["check"], |client| client.salvage_pool())?;
    context.answer(&found, || told(&found) + &disks(&found))?;
    if found.problems.is_empty() {
        return Ok(());
    }
    let what = match found.problems.len() {
        1 => "1 thing is wrong in the pool".to_owned(),
        wrong => format!("{wrong} things are wrong in the pool"),
    };
    let remedy = "look through the salvaged disks, which may hold older content in places; then remove the damaged ones";
    let none =
        "no map is damaged that could be salvaged: 'stonefold pool scrub' heals what has a second copy";
    let made = found.salvage.iter().flat_map(|salvage| &salvage.disks).any(|one| one.disk.is_some());
    Err(Error::new(Kind::Corrupt, what).remedy(if made { remedy } else { none }).into())
}

/// What was made of each, range by range.
fn disks(found: &Checked) -> String {
    let Some(salvage) = &found.salvage else { return String::new() };
    let mut text = String::new();
    for one in &salvage.disks {
        text.push_str(&told_of(one));
    }
    if salvage.disks.iter().any(|one| one.ranges.iter().any(|range| range.from > SalvagedFrom::Memory)) {
        text.push_str(
            "note: what was rebuilt is what lies in the pool, not what is certain: a block that was overwritten by one found by \
             deduplication, or trimmed, since its map was last readable may be as it was before\n",
        );
    }
    salvage.unseen.iter().for_each(|unseen| text.push_str(&format!("note: {unseen}\n")));
    text
}

fn told_of(one: &Salvaged) -> String {
    let mut text = match (&one.disk, &one.error) {
        (Some(disk), _) => format!("salvaged: '{}' as disk '{disk}'\n", one.of),
        (None, Some(error)) => format!("not salvaged: {}\n", error.what),
        (None, None) => format!("not salvaged: '{}'\n", one.of),
    };
    if one.disk.is_none() {
        return text;
    }
    for range in &one.ranges {
        let from = match range.from {
            SalvagedFrom::Memory => "as the server's memory still had it",
            SalvagedFrom::Nodes => "from the newest parts of the map",
            SalvagedFrom::OlderVersion => "from an older version of the map and blocks written since",
            SalvagedFrom::Blocks => "from blocks written there",
            SalvagedFrom::Nothing => "NOTHING FOUND: reading fails until it is written or trimmed",
        };
        text.push_str(&format!("  {} for {} bytes: {from}\n", range.offset, range.length));
    }
    if one.untold_bytes > 0 {
        text.push_str(&format!("  and {} in further ranges\n", Size(one.untold_bytes)));
    }
    if one.lost_bytes > 0 {
        text.push_str(&format!("  of {} in all nothing was found\n", Size(one.lost_bytes)));
    }
    text
}
