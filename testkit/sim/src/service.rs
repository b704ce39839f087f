//! Classes of service by dice: disks are limited, reserved for and preferred, also in the midst of things. Whatever is chosen
//! may make the world slow, and must not make it stand still.

use crate::clients::Stop;
use crate::world::World;
use std::sync::Arc;
use stonefold_dice::Dice;
use stonefold_store::Store;
use stonefold_types::{DiskSettings, Error, Kind, Name, QosFigures};

/// Changes a class or two, and puts a disk into one; or leaves everything as it is.
pub(crate) async fn shuffle(world: &World, store: &Arc<Store>, stormy: bool) -> Result<(), Stop> {
    let sort = |doing: &str, error: Error| match error.kind() {
        Kind::Io | Kind::Closed if stormy => Stop::Weather(error),
        _ => Stop::Wrong(format!("{doing}: {error:?}")),
    };
    let throw = |sides: u64| world.with_dice(|dice| dice.below(sides));
    if throw(2) == 0 {
        return Ok(());
    }
    let classes = ["critical", "production", "test", "backup-target", "reclaim", "fold"];
    let class = classes[throw(6) as usize];
    let background = matches!(class, "reclaim" | "fold");
    let figures = world.with_dice(|dice| figures(dice, background));
    store.set_qos(&name(class), |now| *now = figures).await.map_err(|e| sort("sets a class", e))?;
    let disks = store.disks();
    if disks.is_empty() || background {
        return Ok(());
    }
    let disk = &disks[throw(disks.len() as u64) as usize];
    let settings = DiskSettings { qos: name(class), ..disk.settings.clone() };
    match store.set_disk(&disk.name, |_| settings).await {
        // It was a clone that its maker has removed meanwhile.
        Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Busy) => Ok(()),
        other => other.map(|_| ()).map_err(|e| sort("sets a disk's class", e)),
    }
}

fn figures(dice: &mut Dice, background: bool) -> QosFigures {
    let mut some =
        |least: u64, sides: u64| (!background && dice.one_in(2)).then(|| least + dice.below(sides));
    let (max_iops, max_bytes) = (some(20, 2000), some(50_000, 4 << 20));
    let (min_iops, min_bytes) = (some(0, 2000).unwrap_or(0), some(0, 4 << 20).unwrap_or(0));
    QosFigures {
        min_iops: max_iops.map_or(min_iops, |max| min_iops.min(max)),
        min_bytes: max_bytes.map_or(min_bytes, |max| min_bytes.min(max)),
        max_iops,
        max_bytes,
        share: 1 + dice.below(1000) as u32,
    }
}

fn name(text: &str) -> Name {
    Name::new(text).expect("letters make a name")
}
