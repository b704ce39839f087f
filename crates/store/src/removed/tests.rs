//! What comes between two steps.

use super::*;
use crate::store::Options;
use stonefold_engine::MemoryEngine;
use stonefold_env::{Env, SystemWorld};
use stonefold_types::{BLOCK_BYTES, DiskSettings, Name};

const DISK: &str = "web";
/// Several steps each.
const BLOCKS: usize = 2 * STEP_ADDRESSES;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Writes so many blocks that are like no others from `block` on, and has a round fold them.
async fn fill(store: &Arc<Store>, block: usize, blocks: usize, seed: u8) {
    let mut data = vec![seed; blocks * BLOCK_BYTES];
    for (at, content) in data.chunks_mut(BLOCK_BYTES).enumerate() {
        content[..8].copy_from_slice(&((block + at) as u64).to_le_bytes());
    }
    let disk = store.attach(&DISK.parse().unwrap()).unwrap();
    disk.write((block * BLOCK_BYTES) as u64, &data, false).await.unwrap();
    store.fold(None).await.unwrap();
}

async fn snapshot(store: &Arc<Store>, snapshot: &str) {
    store.snapshot(&[name(DISK)], Some(name(snapshot))).await.unwrap();
    store.fold(None).await.unwrap();
}

async fn remove(store: &Arc<Store>, snapshot: &str) {
    store.remove_snapshot(&format!("{DISK}@{snapshot}").parse().unwrap()).await.unwrap();
    store.fold(None).await.unwrap();
}

/// Goal: whatever snapshot goes while another is being settled, what none of them holds comes back.
///
/// Past bug: what one step had found to be held was believed by the next, although the snapshot that held it was removed in between.
#[test]
fn a_snapshot_removed_between_two_steps_leaves_nothing_behind() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap());
        let options = Options { cache_bytes: 8 << 20, journal_bytes_max: 64 << 20, ..Options::default() };
        let store = Store::open(env, Arc::new(MemoryEngine::default()), options).await.unwrap();
        store.create_disk(&name(DISK), 1 << 30, DiskSettings::default()).await.unwrap();
        fill(&store, 0, 10, 1).await;
        snapshot(&store, "s0").await;
        fill(&store, 0, BLOCKS, 2).await;
        snapshot(&store, "s1").await;
        fill(&store, BLOCKS, 10, 3).await;
        snapshot(&store, "s2").await;
        // Two sections behind the newest snapshot, of what the one before it holds too.
        fill(&store, 0, BLOCKS / 2, 4).await;
        fill(&store, BLOCKS / 2, BLOCKS / 2, 5).await;
        let disk = store.find(&name(DISK)).unwrap();
        let mut memory = store.reclaiming.lock().await;
        let mut filtered = Filtered::new();
        remove(&store, "s2").await;
        let more = settle_snapshots(&store, &disk, &mut memory, &mut filtered).await.unwrap();
        assert!(more && !filtered.is_empty(), "one step has found something to be held, and there are more");
        remove(&store, "s1").await;
        while settle_snapshots(&store, &disk, &mut memory, &mut filtered).await.unwrap() {}
        assert_eq!(disk.state.lock().snapshots.iter().count(), 1, "only the first is left");
        drop(memory);
        store.reclaim().await.unwrap();
        let checked = store.check().await.unwrap();
        assert_eq!((&checked.problems[..], checked.lost_blocks), (&[][..], 0), "{checked:?}");
    });
}
