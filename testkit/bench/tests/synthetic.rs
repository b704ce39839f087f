//! A disk that was mapped and not written is a disk like any other: a check finds nothing wrong with its pool, whatever
//! snapshots and changes it has, it can be written to and reclaimed, and what it refers to can be read.

use std::sync::Arc;
use stonefold_bench::terabyte::{self, Plan};
use stonefold_engine::MemoryEngine;
use stonefold_env::{Env, SystemWorld};
use stonefold_store::{Options, Store};
use stonefold_types::{Name, SnapshotName};

const PLAN: Plan = Plan {
    size_bytes: 64 << 20,
    stock_bytes: 1 << 20,
    segment_bytes: 128 << 10,
    snapshots: 5,
    changed_blocks: 100,
    seed: 7,
};

#[tokio::test]
async fn a_synthetic_pool_is_a_true_one() {
    let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap());
    let options = Options { cache_bytes: 16 << 20, ..Options::default() };
    let store = Store::open(env.clone(), Arc::new(MemoryEngine::default()), options).await.unwrap();
    let made = terabyte::make(&env, &store, &PLAN, |_| ()).await.unwrap();
    assert_eq!((made.stock_blocks, made.stock_segments, made.map_nodes), (256, 8, 64 + 1 + 1 + 1));

    let disk = Name::new("disk").unwrap();
    let told = store.disks().into_iter().find(|one| one.name == disk).unwrap();
    assert_eq!((told.mapped_bytes, told.snapshots), (PLAN.size_bytes, 5));
    let snapshot =
        |at: u64| SnapshotName { disk: disk.clone(), snapshot: Name::new(&format!("s{at}")).unwrap() };
    let attached = store.attach(&"disk".parse().unwrap()).unwrap();
    let mut bytes = vec![0; 1 << 20];
    attached.read(5 << 20, &mut bytes).await.unwrap();
    assert!(bytes.chunks(4096).all(|block| block.iter().any(|byte| *byte != 0)), "every block is mapped");
    sound(&store).await;

    for block in 0..500u64 {
        attached.write(block * 8 * 4096, &[block as u8 | 1; 4096], false).await.unwrap();
    }
    store.fold_everything().await.unwrap();
    store.remove_snapshot(&snapshot(4)).await.unwrap();
    store.remove_snapshot(&snapshot(1)).await.unwrap();
    store.reclaim().await.unwrap();
    sound(&store).await;
    let usage = store.usage(&disk).await.unwrap();
    assert_eq!(usage.logical_bytes, PLAN.size_bytes);
    assert!(usage.shared_bytes >= PLAN.stock_bytes, "the stock is the other disk's too");
    drop(attached);
    store.close().await.unwrap();
}

async fn sound(store: &Store) {
    let checked = store.check().await.unwrap();
    assert_eq!((checked.problems, checked.lost_blocks), (Vec::new(), 0));
}

/// A leaf whose blocks lie in few segments must not be much easier to compress than one of a real disk, or what it costs to
/// write would be told too low.
#[test]
fn a_leaf_is_nearly_as_long_as_a_real_one() {
    let real = terabyte::real_leaf_bytes(1);
    let ours = terabyte::leaf_bytes(2048, 512, 1);
    assert!(ours > 0.8 * real && ours <= real, "{ours} of {real}");
}
