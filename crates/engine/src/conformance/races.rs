//! Cases about operations that overlap.

use super::{key, kind, pattern};
use crate::{Engine, Version};
use bytes::Bytes;
use futures::future::join_all;
use futures::{FutureExt, poll};
use std::sync::Arc;
use stonefold_types::{Kind, Result};

type Shared = Arc<dyn Engine>;

/// Many put_new of one key at once: exactly one wins, and its bytes are there.
pub(super) async fn one_of_many_puts_wins(engine: &Shared) {
    let key = key("race-new");
    let puts = (0..20u64).map(|n| {
        let key = key.clone();
        async move { engine.put_new(&key, pattern(90_000, n)).await }
    });
    let results = join_all(puts).await;
    let winner = only_winner(&results, Kind::AlreadyExists);
    assert!(
        engine.get(&key).await.unwrap().0 == pattern(90_000, winner as u64),
        "the winner's bytes are there"
    );
    engine.delete(&key).await.unwrap();
}

/// Many put_if of one version at once: exactly one wins.
pub(super) async fn one_of_many_swaps_wins(engine: &Shared) {
    let key = key("race-swap");
    let mut version = engine.put_new(&key, Bytes::new()).await.unwrap();
    for round in 0..5u64 {
        let (expected, at) = (&version, &key);
        let swaps = (0..20u64)
            .map(|n| async move { engine.put_if(at, pattern(64, round * 100 + n), expected).await });
        let results = join_all(swaps).await;
        let winner = only_winner(&results, Kind::Conflict);
        let (bytes, found) = engine.get(&key).await.unwrap();
        assert_eq!(bytes, pattern(64, round * 100 + winner as u64), "the winner's bytes are there");
        assert_eq!(Ok(&found), results[winner].as_ref().map_err(|_| ()), "and its version");
        version = found;
    }
    engine.delete(&key).await.unwrap();
}

#[track_caller]
fn only_winner(results: &[Result<Version>], losers: Kind) -> usize {
    let winners: Vec<usize> = (0..results.len()).filter(|n| results[*n].is_ok()).collect();
    assert_eq!(winners.len(), 1, "exactly one of many wins: {winners:?}");
    for error in results.iter().filter_map(|r| r.as_ref().err()) {
        assert_eq!(error.kind(), losers, "the others are told so: {error}");
    }
    winners[0]
}

/// Readers that swap what they read, again when they lose, count to the sum.
pub(super) async fn counters_lose_no_increment(engine: &Shared) {
    let key = key("counter");
    engine.put_new(&key, Bytes::from_static(&[0; 8])).await.unwrap();
    let counters = (0..4).map(|_| async {
        for _ in 0..5 {
            loop {
                let (bytes, version) = engine.get(&key).await.unwrap();
                let count = u64::from_le_bytes(bytes[..].try_into().unwrap()) + 1;
                let swapped =
                    engine.put_if(&key, Bytes::copy_from_slice(&count.to_le_bytes()), &version).await;
                match swapped {
                    Ok(_) => break,
                    Err(error) => assert_eq!(error.kind(), Kind::Conflict),
                }
            }
        }
    });
    join_all(counters).await;
    assert_eq!(engine.get(&key).await.unwrap().0[..], 20u64.to_le_bytes(), "no increment is lost");
    engine.delete(&key).await.unwrap();
}

/// A put whose caller lost interest happened or did not; once read, that stays so.
pub(super) async fn a_dropped_put_is_whole_or_absent(engine: &Shared) {
    for round in 0..8u64 {
        let key = key(&format!("dropped-{round}"));
        let bytes = pattern(300_000, round);
        let mut put = engine.put_new(&key, bytes.clone()).boxed();
        for _ in 0..round {
            if poll!(&mut put).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(put);
        let first = engine.get(&key).await.map(|(bytes, _)| bytes);
        match &first {
            Ok(found) => assert!(*found == bytes, "a dropped put is whole"),
            Err(error) => assert_eq!(error.kind(), Kind::NotFound, "or absent"),
        }
        if first.is_ok() {
            let again = engine.get_range(&key, 0, 10).await.unwrap();
            assert_eq!(again, bytes[..10], "what was seen stays");
        }
        // It may still be on its way: a new put waits for it or meets it.
        match engine.put_new(&key, bytes.clone()).await {
            Ok(_) => assert!(first.is_err(), "what was seen stays"),
            Err(error) => assert_eq!(error.kind(), Kind::AlreadyExists),
        }
        engine.delete(&key).await.unwrap();
        assert_eq!(kind(engine.get(&key).await, "a delete ends it"), Kind::NotFound);
    }
}

/// While a document changes, each read is one of its states, and no read is older than one before it.
pub(super) async fn readers_see_whole_documents(engine: &Shared) {
    let key = key("torn");
    let of = |n: u64| [n.to_le_bytes().to_vec(), pattern(50_000, n).to_vec()].concat();
    let mut version = engine.put_new(&key, of(0).into()).await.unwrap();
    let writer = async {
        for n in 1..10 {
            version = engine.put_if(&key, of(n).into(), &version).await.unwrap();
        }
    };
    let reader = async {
        let mut last = 0;
        while last < 9 {
            let (bytes, _) = engine.get(&key).await.unwrap();
            let n = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            assert!(bytes == of(n), "a document is read whole");
            assert!(n >= last, "state {n} was read after state {last}");
            last = n;
            tokio::task::yield_now().await;
        }
    };
    futures::join!(writer, reader);
    engine.delete(&key).await.unwrap();
}
