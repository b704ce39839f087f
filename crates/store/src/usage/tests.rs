//! Goal: what is counted from accounts, maps and deaths is what is found by walking every map there is, whatever was shared,
//! cloned, set back and removed; and what is called reclaimable is what comes back. The brute force here knows nothing of
//! references, births and deaths.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use stonefold_dice::noise;
use stonefold_engine::{Engine, MemoryEngine};
use stonefold_env::{Env, SystemWorld};
use stonefold_format::entry::Entry;
use stonefold_types::{DiskSettings, SnapshotName};

use crate::store::Options;

const BLOCK: usize = BLOCK_BYTES;
/// Blocks of a disk that are written to: several leaves.
const BLOCKS: u64 = 700;

/// Something that happens; numbers are taken modulo what there is.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Contents with the same tag are the same, wherever they lie.
    Write {
        disk: usize,
        block: u64,
        blocks: u64,
        tag: u64,
    },
    Zero {
        disk: usize,
        block: u64,
        blocks: u64,
    },
    Snapshot {
        disk: usize,
    },
    RemoveSnapshot {
        which: usize,
    },
    Clone {
        which: usize,
    },
    Rollback {
        which: usize,
    },
    RemoveDisk {
        disk: usize,
    },
    Reclaim,
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let at = || (0usize..9, 0..BLOCKS - 40, 1u64..40);
    prop_oneof![
        6 => (at(), 0u64..6).prop_map(|((disk, block, blocks), tag)| Step::Write { disk, block, blocks, tag }),
        1 => at().prop_map(|(disk, block, blocks)| Step::Zero { disk, block, blocks }),
        3 => (0usize..9).prop_map(|disk| Step::Snapshot { disk }),
        2 => (0usize..9).prop_map(|which| Step::RemoveSnapshot { which }),
        3 => (0usize..9).prop_map(|which| Step::Clone { which }),
        1 => (0usize..9).prop_map(|which| Step::Rollback { which }),
        2 => (0usize..9).prop_map(|disk| Step::RemoveDisk { disk }),
        1 => Just(Step::Reclaim),
    ]
}

fn pick<T: Clone>(all: &[T], which: usize) -> Option<T> {
    (!all.is_empty()).then(|| all[which % all.len()].clone())
}

pub(crate) async fn open() -> Arc<Store> {
    let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap());
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::default());
    let options = Options { cache_bytes: 8 << 20, journal_bytes_max: 16 << 20, ..Options::default() };
    Store::open(env, engine, options).await.unwrap()
}

pub(crate) async fn take(store: &Arc<Store>, step: Step, made: &mut usize) {
    let disks: Vec<Name> = store.disks().into_iter().map(|disk| disk.name).collect();
    let snapshots: Vec<SnapshotName> =
        store.snapshots(None).unwrap().into_iter().map(|snapshot| snapshot.name).collect();
    let attach =
        |disk: usize| pick(&disks, disk).map(|name| store.attach(&name.as_str().parse().unwrap()).unwrap());
    let at = |block: u64| block * BLOCK as u64;
    match step {
        Step::Write { disk, block, blocks, tag } => {
            let Some(disk) = attach(disk) else { return };
            disk.write(at(block), &noise(tag, blocks as usize * BLOCK), false).await.unwrap();
        }
        Step::Zero { disk, block, blocks } => {
            let Some(disk) = attach(disk) else { return };
            disk.zero(at(block), at(blocks), false).await.unwrap();
        }
        Step::Snapshot { disk } => {
            let Some(disk) = pick(&disks, disk) else { return };
            *made += 1;
            store.snapshot(&[disk], Some(Name::new(&format!("s{made}")).unwrap())).await.unwrap();
        }
        Step::RemoveSnapshot { which } => {
            let Some(snapshot) = pick(&snapshots, which) else { return };
            store.remove_snapshot(&snapshot).await.unwrap();
        }
        Step::Clone { which } => {
            let Some(snapshot) = pick(&snapshots, which) else { return };
            *made += 1;
            store.clone_snapshot(&snapshot, &Name::new(&format!("c{made}")).unwrap()).await.unwrap();
        }
        Step::Rollback { which } => {
            let Some(snapshot) = pick(&snapshots, which) else { return };
            store.rollback(&snapshot).await.unwrap();
        }
        Step::RemoveDisk { disk } => {
            let Some(disk) = pick(&disks, disk) else { return };
            remove(store, &disk).await;
        }
        Step::Reclaim => {
            store.reclaim().await.unwrap();
        }
    }
}

async fn remove(store: &Arc<Store>, disk: &Name) {
    for snapshot in store.snapshots(Some(disk)).unwrap() {
        store.remove_snapshot(&snapshot.name).await.unwrap();
    }
    store.remove_disk(disk).await.unwrap();
}

/// Every address below a root.
async fn tree(store: &Store, root: Entry) -> BTreeSet<u64> {
    let (mut found, mut level) = (BTreeSet::new(), vec![root]);
    for depth in 0..=4 {
        let mut below = Vec::new();
        for entry in level.into_iter().filter(|entry| !entry.is_hole()) {
            if found.insert(entry.address) && depth < 4 {
                below.extend_from_slice(&store.segments.node(&entry).await.unwrap().entries[..]);
            }
        }
        level = below;
    }
    found
}

/// What is reached in the end: with all disks, or with one away; its map, too, if that is `forgotten`.
pub(crate) async fn reached(store: &Store, without: Option<u64>, forgotten: bool) -> BTreeSet<u64> {
    let disks = store.disks_and_gone();
    fn stays(disks: &[Arc<Disk>], disk: &Disk, without: Option<u64>) -> bool {
        let there = !disk.is_gone() && Some(disk.id) != without;
        there || disks.iter().any(|other| began(other, disk, None) && stays(disks, other, without))
    }
    fn began(other: &Disk, disk: &Disk, snapshot: Option<u64>) -> bool {
        let base = other.state.lock().base;
        base.is_some_and(|base| base.disk == disk.id && snapshot.is_none_or(|s| s == base.epoch))
    }
    let mut all = BTreeSet::new();
    for disk in &disks {
        let (head, snapshots) = {
            let state = disk.state.lock();
            (state.commit.root, state.snapshots.iter().cloned().collect::<Vec<_>>())
        };
        let there = !disk.is_gone() && Some(disk.id) != without;
        if stays(&disks, disk, without) && !(forgotten && Some(disk.id) == without) {
            all.append(&mut tree(store, head).await);
        }
        for snapshot in snapshots {
            let mut clones = disks.iter().filter(|other| began(other, disk, Some(snapshot.id)));
            if (there && !snapshot.removed) || clones.any(|clone| stays(&disks, clone, without)) {
                all.append(&mut tree(store, snapshot.commit.unwrap().root).await);
            }
        }
    }
    all
}

/// What a disk and its snapshots refer to.
async fn referred(store: &Store, disk: &Disk) -> BTreeSet<u64> {
    let (head, snapshots) = {
        let state = disk.state.lock();
        (state.commit.root, state.snapshots.iter().filter(|s| !s.removed).cloned().collect::<Vec<_>>())
    };
    let mut all = tree(store, head).await;
    for snapshot in snapshots {
        all.append(&mut tree(store, snapshot.commit.unwrap().root).await);
    }
    all
}

pub(crate) async fn bytes(store: &Store, addresses: &BTreeSet<u64>) -> u64 {
    let mut frames: BTreeMap<(u64, u32), (u64, u64, u64)> = BTreeMap::new();
    for address in addresses {
        let (segment, slot) = (SegmentId(address >> 20), (address & 0xf_ffff) as u32);
        let shard = store.segments.accounts.shard(shard_of(segment)).await.unwrap();
        let generation = shard.get(&segment).map_or(0, |account| account.generation);
        let index = store.segments.index(segment, generation).await.unwrap();
        let within = |first: u32, blocks: u8| (first..first + u32::from(blocks)).contains(&slot);
        let record = index.iter().find(|record| within(record.first_slot, record.blocks)).unwrap();
        let frame = frames.entry((segment.0, record.first_slot)).or_default();
        *frame = (record.length.into(), record.blocks.into(), frame.2 + 1);
    }
    frames.values().map(|(length, blocks, hit)| length * hit / blocks).sum()
}

/// Counts every disk both ways, then removes one and sees what comes back.
async fn check(store: &Arc<Store>, removed: usize) {
    store.fold(None).await.unwrap();
    for info in store.disks() {
        let usage = store.usage(&info.name).await.unwrap();
        assert_eq!(Usage { as_of: usage.as_of, ..store.usage_within(&info.name, 600).await.unwrap() }, usage);
        let disk = store.find(&info.name).unwrap();
        let now = reached(store, None, false).await;
        let without = reached(store, Some(disk.id), false).await;
        let forgotten = reached(store, Some(disk.id), true).await;
        let unique: BTreeSet<u64> = now.difference(&forgotten).copied().collect();
        let shared: BTreeSet<u64> = referred(store, &disk).await.difference(&unique).copied().collect();
        let back: BTreeSet<u64> = now.difference(&without).copied().collect();
        let expected = Usage {
            logical_bytes: store.disk(&info.name).unwrap().mapped_bytes,
            unique_bytes: bytes(store, &unique).await,
            shared_bytes: bytes(store, &shared).await,
            reclaimable_bytes: bytes(store, &back).await,
            reclaimable_blocks: back.len() as u64,
            as_of: usage.as_of,
        };
        assert_eq!(usage, expected, "disk {}", info.name);
    }
    let Some(disk) = pick(&store.disks(), removed).map(|disk| disk.name) else { return };
    store.reclaim().await.unwrap();
    let promised = store.usage(&disk).await.unwrap().reclaimable_blocks;
    let before = store.segments.accounts.document().live_blocks;
    remove(store, &disk).await;
    store.reclaim().await.unwrap();
    let after = store.segments.accounts.document().live_blocks;
    assert_eq!(before - after, promised, "removing {disk}");
}

/// How often each block is referred to, by the accounts.
async fn counted(store: &Store) -> BTreeMap<u64, u32> {
    let accounts = &store.segments.accounts;
    let mut counted = BTreeMap::new();
    for number in accounts.document().shards.keys() {
        for (segment, account) in &*accounts.shard(*number).await.unwrap() {
            let live = account.slots.iter().enumerate().filter_map(|(at, slot)| match slot {
                Slot::Live(references @ 1..) => Some((segment.0 << 20 | at as u64, *references)),
                _ => None,
            });
            counted.extend(live);
        }
    }
    counted
}

/// Counted anew, in many windows, each block has as many references as the ledger has told step by step.
async fn check_anew(store: &Store) {
    store.reclaim().await.unwrap();
    let told = counted(store).await;
    let mut memory = store.reclaiming.lock().await;
    crate::recount::recount(store, &mut memory).await.unwrap();
    assert_eq!(counted(store).await, told);
}

proptest! {
    #[test]
    fn counts_are_what_is_found_by_walking_everything(steps in prop::collection::vec(step(), 1..40), removed in 0usize..9) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = open().await;
            for name in ["a", "b"] {
                store.create_disk(&Name::new(name).unwrap(), 1 << 30, DiskSettings::default()).await.unwrap();
            }
            let mut made = 0;
            for step in steps {
                take(&store, step, &mut made).await;
            }
            check(&store, removed).await;
            check_anew(&store).await;
            // However many things are under way, nothing is taken for lost.
            let checked = store.check().await.unwrap();
            assert_eq!((&checked.problems[..], checked.lost_blocks), (&[][..], 0));
            store.close().await.unwrap();
        });
    }
}
