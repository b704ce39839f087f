//! More than is remembered at one time: here, 200 blocks and nodes, fewer than a leaf has.

use super::*;
use crate::segments;
use crate::store::Options;
use stonefold_dice::noise;
use stonefold_engine::{Engine, MemoryEngine};
use stonefold_env::{Env, SystemWorld};

const LEAVES: usize = 5;
const BYTES: usize = LEAVES << 20;

async fn open(memory: &Arc<MemoryEngine>) -> Arc<Store> {
    let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap());
    let engine: Arc<dyn Engine> = memory.clone();
    let options = Options { cache_bytes: 8 << 20, journal_bytes_max: 16 << 20, ..Options::default() };
    Store::open(env, engine, options).await.unwrap()
}

/// The nodes on the way to the leaf over a block, the root first.
async fn way(store: &Store, block: u64) -> Vec<Entry> {
    let root = store.all_disks()[0].state.lock().commit.root;
    let mut way = vec![root];
    for level in (1..=map::TOP).rev() {
        let node = store.segments.node(way.last().unwrap()).await.unwrap();
        way.push(node.entries[(block / map::span(level)) as usize % 256]);
    }
    way
}

/// Goal: in as many windows as it takes, all is found, and told in as many sections as it takes.
#[tokio::test]
async fn what_does_not_fit_is_found_window_by_window() {
    let memory = Arc::new(MemoryEngine::default());
    let store = open(&memory).await;
    let name = Name::new("web").unwrap();
    store.create_disk(&name, 64 << 20, DiskSettings::default()).await.unwrap();
    let data = noise(5, BYTES);
    store.attach(&"web".parse().unwrap()).unwrap().write(0, &data, false).await.unwrap();
    store.fold(None).await.unwrap();
    let mut lost = vec![way(&store, 0).await[0]];
    for leaf in [1, 2, 4] {
        lost.push(way(&store, leaf << 8).await[3]);
    }
    store.leave().await.unwrap();
    drop(store);
    for entry in lost {
        assert!(memory.rot(&segments::key(entry.segment(), 0), entry.hint.offset() * 8 + 130));
    }
    let store = open(&memory).await;
    let salvage = store.salvage().await.unwrap();
    let one = &salvage.salvaged[0];
    assert_eq!((one.disk.as_ref().unwrap().as_str(), one.lost_bytes), ("web.salvaged", 0), "{salvage:?}");
    let froms: Vec<_> = one.ranges.iter().map(|range| (range.offset_bytes >> 20, range.from)).collect();
    let (nodes, blocks) = (SalvagedFrom::Nodes, SalvagedFrom::Blocks);
    assert_eq!(froms, [(0, nodes), (1, blocks), (3, nodes), (4, blocks), (5, nodes)]);
    let sections: usize = store.find(one.disk.as_ref().unwrap()).unwrap().state.lock().changes.len();
    assert!(sections > LEAVES - 1, "{sections} sections");
    let mut found = vec![0; BYTES];
    store.attach(&"web.salvaged".parse().unwrap()).unwrap().read(0, &mut found).await.unwrap();
    assert!(found == data);
    store.remove_disk(&name).await.unwrap();
    store.reclaim().await.unwrap();
    store.drop_cache();
    store.attach(&"web.salvaged".parse().unwrap()).unwrap().read(0, &mut found).await.unwrap();
    assert!(found == data);
    assert!(store.check().await.unwrap().problems.is_empty());
}
