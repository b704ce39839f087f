//! Goal: what is told of sets of snapshots is what is then no longer reached, and what reclaim then gives back, whatever disks, clones and
//! equal contents there are. What is reached is found by walking all maps ([`crate::usage::tests`]), which knows nothing of references,
//! births and deaths.

use super::*;
use crate::usage::tests::{bytes, open, reached, step, take};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use stonefold_types::{DiskSettings, Name};

/// Takes snapshots at random out of all there are, in sets of one to three, in any order.
fn sets_of(store: &Store, picks: &[(usize, usize)]) -> Vec<Vec<SnapshotName>> {
    let mut left: Vec<SnapshotName> =
        store.snapshots(None).unwrap().into_iter().map(|one| one.name).collect();
    let mut sets = Vec::new();
    for (at, size) in picks {
        let take = (*size).min(left.len());
        sets.push((0..take).map(|_| left.remove(at % left.len())).collect());
    }
    sets
}

/// Asks, removes set by set, looks what each has taken away, and has it given back.
async fn check(store: &Arc<Store>, picks: &[(usize, usize)], settled_before: bool) {
    store.fold(None).await.unwrap();
    if settled_before {
        store.reclaim().await.unwrap();
    }
    let sets = sets_of(store, picks);
    let told = store.freed_by(&sets).await.unwrap();
    assert_eq!(store.freed_within(&sets, 600).await.unwrap(), told, "in small windows");
    let before = reached(store, None, false).await;
    let mut left = before.clone();
    for (set, told) in sets.iter().zip(&told) {
        for snapshot in set {
            store.remove_snapshot(snapshot).await.unwrap();
        }
        store.fold(None).await.unwrap();
        let now = reached(store, None, false).await;
        assert_eq!(left.difference(&now).count() as u64, told.blocks, "{set:?} of {sets:?}");
        left = now;
    }
    let back: BTreeSet<u64> = before.difference(&left).copied().collect();
    assert_eq!(told.iter().map(|set| set.bytes).sum::<u64>(), bytes(store, &back).await);
    let live = || store.segments.accounts.document().live_blocks;
    let counted = live();
    store.reclaim().await.unwrap();
    assert_eq!(live(), left.len() as u64, "nothing else is left");
    if settled_before {
        assert_eq!(counted - live(), back.len() as u64, "what is given back");
    }
}

proptest! {
    #[test]
    fn what_is_told_is_what_comes_back(
        steps in prop::collection::vec(step(), 1..40),
        picks in prop::collection::vec((0usize..9, 0usize..4), 1..6),
        settled_before: bool,
    ) {
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
            check(&store, &picks, settled_before).await;
            store.close().await.unwrap();
        });
    }
}

/// Goal: what is asked that is not there, or too much, is refused.
#[test]
fn what_cannot_be_told_is_refused() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = open().await;
        let unknown = store.freed_by(&[vec!["web@monday".parse().unwrap()]]).await.unwrap_err();
        assert_eq!(unknown.kind(), Kind::NotFound);
        let too_many = store.freed_by(&vec![Vec::new(); SETS_MAX + 1]).await.unwrap_err();
        assert_eq!(too_many.kind(), Kind::Invalid);
        assert_eq!(store.freed_by(&[Vec::new()]).await.unwrap(), [Freed::default()]);
    });
}

/// Goal: a frame's bytes are told whole, however many sets they are told in.
#[test]
fn parts_of_a_frame_add_up() {
    let back: Vec<(u32, Fate)> =
        [3, 1, 2, 1, 3].into_iter().map(|last| (0, Fate { released: 1, last })).collect();
    let mut freed = vec![Freed::default(); 3];
    share(1001, 7, &back, &mut freed);
    assert_eq!(freed.iter().map(|set| set.blocks).collect::<Vec<_>>(), [2, 1, 2]);
    assert_eq!(freed.iter().map(|set| set.bytes).sum::<u64>(), 1001 * 5 / 7);
}
