//! Whether the targets have room for so many tiles.

use super::Plan;
use crate::target::{TargetSpec, look};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use stonefold_types::{Error, Result, Size};

/// Bytes of the blocks in which a file's allocation is told (POSIX, `st_blocks` as Linux has it).
const ALLOCATED_UNIT: u64 = 512;

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
        TargetSpec::File(path) => Some(of_file(path)?),
        _ => look(target)?.bytes,
    };
    let lacks = |have: &u64| *have < needed;
    Ok(have.filter(lacks).map(|have| {
        let tiles = super::figures::of_tiles(tiles);
        format!("{target} has room for {}, and {tiles} on it would need {}", Size(have), Size(needed))
    }))
}

/// What a file has allocated, and what its file system has left, in bytes.
fn of_file(path: &Path) -> Result<u64> {
    let failed = |e| Error::io(format!("looking at the file system of '{}'", path.display()), e);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let free = rustix::fs::statvfs(folder)
        .map_err(|e| failed(e.into()).remedy("name a file in a folder that is there"))?;
    let allocated = std::fs::metadata(path).map_or(0, |meta| meta.blocks() * ALLOCATED_UNIT);
    Ok(allocated + free.f_bavail * free.f_frsize)
}
