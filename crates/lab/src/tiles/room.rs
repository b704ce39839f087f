//! Whether the targets have room for so many tiles.

use super::Plan;
use crate::target::{TargetSpec, look, room_of_file};
use stonefold_types::{Result, Size};

/// Why there is none; nothing where there is.
///
/// # Errors
/// What is wrong with a target.
pub(super) fn lacking(plan: &Plan, tiles: usize) -> Result<Option<String>> {
    let (vms, scale) = (&plan.profile.vms, plan.scale());
    if let [target] = &plan.targets[..] {
        let needed = plan.profile.tile_bytes(scale) * tiles as u64;
        return of_target(target, needed, tiles);
    }
    if plan.targets.len() < tiles * vms.len() {
        let (have, need) = (plan.targets.len(), tiles * vms.len());
        return Ok(Some(format!("{have} targets were named, and {tiles} tiles need {need}")));
    }
    // Files of one file system each have room for themselves: that all of them have is seen when they are written.
    for (target, vm) in plan.targets.iter().zip(vms.iter().cycle()).take(tiles * vms.len()) {
        if let Some(why) = of_target(target, vm.bytes(scale), tiles)? {
            return Ok(Some(why));
        }
    }
    Ok(None)
}

fn of_target(target: &TargetSpec, needed: u64, tiles: usize) -> Result<Option<String>> {
    let have = match target {
        // A file grows as far as its file system has room.
        TargetSpec::File(path) => Some(room_of_file(path)?),
        _ => look(target)?.bytes,
    };
    let lacks = |have: &u64| *have < needed;
    Ok(have.filter(lacks).map(|have| {
        let tiles = super::figures::of_tiles(tiles);
        format!("{target} has room for {}, and {tiles} on it would need {}", Size(have), Size(needed))
    }))
}
