//! Goal: whatever was written, trimmed, snapshotted, cloned, set back and reclaimed, and whichever nodes rot: what is salvaged of each
//! disk and snapshot is what it held, once held, or lost; all else is as it was; and without what is damaged the pool is sound.
//! Method: worlds by dice; a seed that failed is printed, and run again by `STONEFOLD_SALVAGE_SEED`.

use super::ruin::{nodes, rot};
use super::{DISK_BYTES, Tags, content, lost, open, reopen, tag_of};
use crate::pool::{attach, name, run, snap};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stonefold_dice::Dice;
use stonefold_engine::{Engine, MemoryEngine};
use stonefold_store::Store;
use stonefold_types::DiskSettings;

/// Two leaves and a part.
const BLOCKS: u64 = 600;
const WORLDS: u64 = 40;

struct World {
    dice: Dice,
    store: Arc<Store>,
    /// Disks and snapshots by the names of their exports.
    held: BTreeMap<String, Tags>,
    made: u64,
}

impl World {
    fn pick(&mut self, is_snapshot: bool) -> Option<String> {
        let all: Vec<_> =
            self.held.keys().filter(|name| name.contains('@') == is_snapshot).cloned().collect();
        (!all.is_empty()).then(|| self.dice.one_of(&all).clone())
    }

    fn number(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    async fn act(&mut self) {
        match self.dice.below(20) {
            0..9 => self.change().await,
            9..12 => self.store.fold_everything().await.unwrap(),
            12..15 => {
                let (disk, snapshot) = (self.pick(false).unwrap(), format!("s{}", self.number()));
                self.store.snapshot(&[name(&disk)], Some(name(&snapshot))).await.unwrap();
                self.held.insert(format!("{disk}@{snapshot}"), self.held[&disk].clone());
            }
            15 => {
                let Some(from) = self.pick(true) else { return };
                let clone = format!("clone{}", self.number());
                self.store.clone_snapshot(&snap(&from), &name(&clone)).await.unwrap();
                self.held.insert(clone, self.held[&from].clone());
            }
            16 => {
                let Some(snapshot) = self.pick(true) else { return };
                self.store.remove_snapshot(&snap(&snapshot)).await.unwrap();
                self.held.remove(&snapshot);
            }
            17 => {
                let Some(to) = self.pick(true) else { return };
                let kept = self.store.rollback(&snap(&to)).await.unwrap().name.to_string();
                let (then, disk) = (self.held[&to].now.clone(), snap(&to).disk.to_string());
                self.held.insert(kept, self.held[&disk].clone());
                self.held.get_mut(&disk).unwrap().now = then;
            }
            _ => self.store.reclaim().await.map(drop).unwrap(),
        }
    }

    /// Writes or trims a run of blocks; some of what is written is there already.
    async fn change(&mut self) {
        let disk = self.pick(false).unwrap();
        let start = self.dice.below(BLOCKS);
        let end = (start + 1 + self.dice.below(40)).min(BLOCKS);
        let attachment = attach(&self.store, &disk);
        let (zero, repeats) = (self.dice.one_in(5), self.dice.one_in(3));
        for block in start..end {
            let tag = match (zero, repeats) {
                (true, _) => 0,
                (_, true) => 1 + self.dice.below(3),
                _ => 100 + self.number(),
            };
            attachment.write(block * 4096, &content(tag), false).await.unwrap();
            self.held.get_mut(&disk).unwrap().set(block, tag);
        }
    }
}

/// What is damaged reads as it was, or not at all; all else as it was.
async fn check_rest(store: &Arc<Store>, held: &BTreeMap<String, Tags>, damaged: &BTreeSet<String>) {
    store.drop_cache();
    for (export, tags) in held {
        let attachment = attach(store, export);
        for (block, last) in tags.now.iter().enumerate() {
            let mut found = vec![0xee; 4096];
            match attachment.read(block as u64 * 4096, &mut found).await {
                Ok(()) => assert_eq!(tag_of(&found), Some(*last), "{export} at {block}"),
                Err(error) => assert!(damaged.contains(export), "{export} at {block}: {error}"),
            }
        }
    }
}

async fn live(seed: u64) {
    let memory = Arc::new(MemoryEngine::default());
    let engine: Arc<dyn Engine> = memory.clone();
    let store = open(&engine).await;
    store.create_disk(&name("web"), DISK_BYTES, DiskSettings::default()).await.unwrap();
    let held = BTreeMap::from([("web".to_owned(), Tags::new(BLOCKS))]);
    let mut world = World { dice: Dice::new(seed), store, held, made: 0 };
    for _ in 0..20 + world.dice.below(40) {
        world.act().await;
    }
    let World { mut dice, store, held, .. } = world;
    store.fold_everything().await.unwrap();
    let store = reopen(store, &engine).await;
    let mut all = nodes(&memory).await;
    for _ in 0..(1 + dice.below(4)).min(all.len() as u64) {
        rot(&memory, &all.swap_remove(dice.index(all.len())));
    }
    let salvage = store.salvage().await.unwrap();
    let damaged: BTreeSet<String> = salvage.salvaged.iter().map(|one| one.of.to_string()).collect();
    let made: Vec<(String, String)> = salvage
        .salvaged
        .iter()
        .map(|one| (one.disk.as_ref().unwrap().to_string(), one.of.to_string()))
        .collect();
    let mut gone = BTreeMap::new();
    for (disk, of) in &made {
        gone.insert(disk, lost(&store, disk, &held[of], false).await);
    }
    check_rest(&store, &held, &damaged).await;
    store.reclaim().await.unwrap();
    check_rest(&store, &held, &damaged).await;
    for snapshot in held.keys().filter(|export| export.contains('@')) {
        store.remove_snapshot(&snap(snapshot)).await.unwrap();
    }
    for disk in held.keys().filter(|export| !export.contains('@')) {
        store.remove_disk(&name(disk)).await.unwrap();
    }
    store.reclaim().await.unwrap();
    for (disk, of) in &made {
        assert_eq!(lost(&store, disk, &held[of], false).await, gone[disk], "{disk} after all else went");
    }
    let checked = store.check().await.unwrap();
    assert!(checked.problems.is_empty(), "{:?}", checked.problems);
}

#[test]
fn whatever_rots_what_is_salvaged_was_there() {
    let seed = Dice::seed("STONEFOLD_SALVAGE_SEED");
    for world in 0..WORLDS {
        let seed = seed + world;
        println!("STONEFOLD_SALVAGE_SEED={seed}");
        run(live(seed));
    }
}
