//! Which disks are read where none is named.

use crate::ssh::facts::{Block, Facts};
use std::collections::BTreeSet;
use stonefold_types::{Error, Kind, Result};

/// The disks that a machine lives on: root's first, then those of other file systems, and of the rest of their volume groups.
///
/// # Errors
/// [`Kind::NotFound`] where none is found.
pub(super) fn disks_in_use(facts: &Facts) -> Result<Vec<String>> {
    let mut found: Vec<String> = Vec::new();
    let (root, others): (Vec<&Block>, Vec<&Block>) = facts
        .blocks
        .iter()
        .filter(|block| facts.mount_of(block).is_some() || facts.is_swap(block))
        .partition(|block| facts.mount_of(block).is_some_and(|mount| mount.folder == "/"));
    for block in root.into_iter().chain(others) {
        add_below(facts, block, &mut found, 0);
    }
    let touched: BTreeSet<&str> = facts
        .groups
        .iter()
        .filter(|on| found.iter().any(|disk| is_on(facts, &on.device, disk)))
        .map(|on| on.group.as_str())
        .collect();
    for on in facts.groups.iter().filter(|on| touched.contains(on.group.as_str())) {
        if let Some(block) = facts.at(&on.device) {
            add_below(facts, block, &mut found, 0);
        }
    }
    match found.is_empty() {
        false => Ok(found),
        true => {
            let what = "no disk was found that its file systems lie on";
            Err(Error::new(Kind::NotFound, what).remedy("name its devices: --device /dev/sda"))
        }
    }
}

/// Puts the disks that a device lies on to the others. What lies on itself is no device.
fn add_below(facts: &Facts, block: &Block, found: &mut Vec<String>, depth: u32) {
    let below: Vec<&str> = match &block.part_of {
        Some((disk, _)) => vec![disk.as_str()],
        None => block.slaves.iter().map(String::as_str).collect(),
    };
    let no_disk = ["loop", "ram", "zram", "sr", "fd"].iter().any(|kind| {
        block.name.strip_prefix(kind).is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
    });
    if below.is_empty() && !no_disk && !found.contains(&block.name) {
        found.push(block.name.clone());
    }
    for block in below.iter().filter_map(|name| facts.block(name)).filter(|_| depth < 16) {
        add_below(facts, block, found, depth + 1);
    }
}

/// Whether a device is this disk, or a partition of it.
fn is_on(facts: &Facts, device: &str, disk: &str) -> bool {
    facts.at(device).is_some_and(|block| {
        block.name == disk || block.part_of.as_ref().is_some_and(|(of, _)| of.as_str() == disk)
    })
}
