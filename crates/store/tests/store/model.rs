//! Disks on an engine in memory, against the reference disk.
//!
//! Goal: whatever is written, zeroed, snapshotted, cloned, resized, folded and reopened in whatever order, each disk
//! and snapshot reads as the model says.

use crate::disks::{DISK_BYTES, create, open};
use crate::pool::{attach, contents, name, run};
use proptest::prelude::*;
use std::sync::Arc;
use stonefold_engine::MemoryEngine;
use stonefold_model::{Image, ReferenceDisk, Step};
use stonefold_store::Store;
use stonefold_types::Name;

/// What a test does next.
#[derive(Clone, Debug)]
enum Act {
    Write { disk: usize, at: u64, len: u64, tag: u8 },
    Zero { disk: usize, at: u64, len: u64 },
    Snapshot { disk: usize },
    Unsnapshot { pick: usize },
    Clone { pick: usize },
    Rollback { pick: usize },
    Resize { disk: usize, size: u64 },
    Fold { disk: usize },
    Reopen,
}

fn act() -> impl Strategy<Value = Act> {
    let disk = 0usize..4;
    // Grains of 512 bytes: most requests touch partial blocks.
    let range = || (0..DISK_BYTES / 512, prop_oneof![1u64..40, Just(8), 1u64..700]);
    prop_oneof![
        8 => (disk.clone(), range(), 1u8..).prop_map(|(disk, (at, len), tag)| Act::Write { disk, at, len, tag }),
        3 => (disk.clone(), range()).prop_map(|(disk, (at, len))| Act::Zero { disk, at, len }),
        2 => disk.clone().prop_map(|disk| Act::Snapshot { disk }),
        1 => (0usize..8).prop_map(|pick| Act::Unsnapshot { pick }),
        1 => (0usize..8).prop_map(|pick| Act::Clone { pick }),
        1 => (0usize..8).prop_map(|pick| Act::Rollback { pick }),
        1 => (disk.clone(), 1..DISK_BYTES / 4096 + 1).prop_map(|(disk, blocks)| Act::Resize { disk, size: blocks * 4096 }),
        1 => disk.prop_map(|disk| Act::Fold { disk }),
        1 => Just(Act::Reopen),
    ]
}

/// The store under test beside what it should hold.
struct Pair {
    engine: Arc<MemoryEngine>,
    store: Arc<Store>,
    disks: Vec<(Name, ReferenceDisk)>,
    snapshots: Vec<(String, Image)>,
    made: usize,
}

impl Pair {
    async fn new() -> Self {
        let engine = Arc::new(MemoryEngine::default());
        let store = open(&engine).await;
        create(&store, "d0").await;
        let disks = vec![(name("d0"), ReferenceDisk::new(DISK_BYTES))];
        Pair { engine, store, disks, snapshots: Vec::new(), made: 0 }
    }

    fn fresh(&mut self, prefix: &str) -> Name {
        self.made += 1;
        name(&format!("{prefix}{}", self.made))
    }

    async fn act(&mut self, act: Act) {
        let count = self.disks.len();
        match act {
            Act::Write { disk, at, len, tag } => {
                let (name, model) = &mut self.disks[disk % count];
                let size = model.now().size;
                let (offset, len) = (at * 512 % size, len * 512);
                let data: Vec<u8> = (0..len.min(size - offset)).map(|i| tag ^ (i / 512) as u8).collect();
                attach(&self.store, name.as_str()).write(offset, &data, tag % 5 == 0).await.unwrap();
                model.step(Step::Write { offset, data });
            }
            Act::Zero { disk, at, len } => {
                let (name, model) = &mut self.disks[disk % count];
                let size = model.now().size;
                let offset = at * 512 % size;
                let len = (len * 512).min(size - offset);
                attach(&self.store, name.as_str()).zero(offset, len, false).await.unwrap();
                model.step(Step::Zero { offset, len });
            }
            Act::Snapshot { disk } => {
                let snapshot = self.fresh("s");
                let (name, model) = &mut self.disks[disk % count];
                self.store.snapshot(std::slice::from_ref(name), Some(snapshot.clone())).await.unwrap();
                self.snapshots.push((format!("{name}@{snapshot}"), model.now().clone()));
            }
            Act::Unsnapshot { pick } if !self.snapshots.is_empty() => {
                let (snapshot, _) = self.snapshots.remove(pick % self.snapshots.len());
                self.store.remove_snapshot(&snapshot.parse().unwrap()).await.unwrap();
            }
            Act::Clone { pick } if !self.snapshots.is_empty() => {
                let clone = self.fresh("c");
                let (snapshot, image) = self.snapshots[pick % self.snapshots.len()].clone();
                self.store.clone_snapshot(&snapshot.parse().unwrap(), &clone).await.unwrap();
                self.disks.push((clone, ReferenceDisk::from_image(image)));
            }
            Act::Rollback { pick } if !self.snapshots.is_empty() => {
                let (snapshot, image) = self.snapshots[pick % self.snapshots.len()].clone();
                let snapshot: stonefold_types::SnapshotName = snapshot.parse().unwrap();
                let kept = self.store.rollback(&snapshot).await.unwrap();
                let (_, model) = self.disks.iter_mut().find(|(name, _)| *name == snapshot.disk).unwrap();
                self.snapshots.push((kept.name.to_string(), model.now().clone()));
                *model = ReferenceDisk::from_image(image);
            }
            Act::Resize { disk, size } => {
                let (name, model) = &mut self.disks[disk % count];
                self.store.resize_disk(name, size, true).await.unwrap();
                model.step(Step::Resize(size));
            }
            Act::Fold { disk } => {
                let (name, _) = &self.disks[disk % count];
                if let Some((snapshot, _)) =
                    self.snapshots.iter().find(|(s, _)| s.starts_with(&format!("{name}@")))
                {
                    self.store.diff(&snapshot.parse().unwrap(), None).await.unwrap();
                }
            }
            Act::Reopen => {
                self.store.close().await.unwrap();
                self.store = open(&self.engine).await;
            }
            Act::Unsnapshot { .. } | Act::Clone { .. } | Act::Rollback { .. } => {}
        }
    }

    async fn check(&self) {
        for (name, model) in &self.disks {
            let disk = attach(&self.store, name.as_str());
            let image = model.now();
            assert_eq!(disk.size_bytes(), image.size, "the size of {name}");
            assert!(contents(&disk).await == image.read(0, image.size as usize), "disk {name}");
        }
        for (name, image) in &self.snapshots {
            let snapshot = attach(&self.store, name);
            assert!(contents(&snapshot).await == image.read(0, image.size as usize), "snapshot {name}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn disks_and_snapshots_read_as_the_model_says(acts in proptest::collection::vec(act(), 1..60)) {
        run(async {
            let mut pair = Pair::new().await;
            for (at, act) in acts.into_iter().enumerate() {
                pair.act(act).await;
                if at % 8 == 7 {
                    pair.check().await;
                }
            }
            pair.check().await;
            pair.act(Act::Reopen).await;
            pair.check().await;
        });
    }
}
