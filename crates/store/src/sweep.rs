//! What rounds and passes that were broken off have left over: objects that nothing names.
//!
//! Only what is older than the newest batch is looked at: all of that is either in the accounts, named by a head in memory, or left
//! over. Called by a pass of [`crate::reclaim`], with nobody else changing the accounts.

use crate::accounts;
use crate::reclaim::{Memory, Reclaimed};
use crate::segments;
use crate::store::Store;
use std::collections::BTreeSet;
use stonefold_format::account::shard_of;
use stonefold_format::entry::SegmentId;
use stonefold_types::Result;

/// Keys asked for at one time; large, because an engine may look at every name for every page.
const LIST_LIMIT: usize = 100_000;

/// Deletes what is left over: segments, accounts and ledgers before `below`, the newest batch, that nothing names.
pub(crate) async fn sweep(store: &Store, below: SegmentId, done: &mut Reclaimed) -> Result<()> {
    store.segments.accounts.sweep(below).await?;
    store.segments.pins.drained().await;
    let mut after = None;
    loop {
        let listed = store.engine.list("segment/", after.as_ref(), LIST_LIMIT).await?;
        let Some(last) = listed.last() else { break };
        after = Some(last.key.clone());
        for one in &listed {
            let Some((segment, generation)) = segments::form_of(&one.key).filter(|(id, _)| *id < below)
            else {
                continue;
            };
            let shard = store.segments.accounts.shard(shard_of(segment)).await?;
            let named = shard.get(&segment);
            if named.is_none_or(|account| account.generation != generation) {
                if named.is_none() {
                    store.dedupe.note_form(segment, None);
                }
                store.engine.delete(&one.key).await?;
                done.freed_bytes += one.bytes;
                done.deleted_segments += u64::from(named.is_none());
            }
        }
    }
    sweep_ledgers(store, below).await
}

async fn sweep_ledgers(store: &Store, below: SegmentId) -> Result<()> {
    let mut after = None;
    loop {
        let listed = store.engine.list("ledger/", after.as_ref(), LIST_LIMIT).await?;
        let Some(last) = listed.last() else { return Ok(()) };
        after = Some(last.key.clone());
        let named = named_ledgers(store);
        for one in &listed {
            let id = one.key.as_str().strip_prefix("ledger/").and_then(|id| u64::from_str_radix(id, 16).ok());
            if id.is_some_and(|id| id < below.0 && !named.contains(&id)) {
                store.engine.delete(&one.key).await?;
            }
        }
    }
}

/// Ledger objects that some head names.
fn named_ledgers(store: &Store) -> BTreeSet<u64> {
    let mut named = BTreeSet::new();
    for disk in store.disks_and_gone() {
        let state = disk.state.lock();
        let gaps = state.snapshots.iter().map(|snapshot| &snapshot.deaths);
        let lists = gaps.chain([&state.changes, &state.deaths]);
        named.extend(lists.flatten().map(|at| at.id));
    }
    named
}

/// Deletes ledger objects that no head names any more.
pub(crate) async fn forget_ledgers(store: &Store, memory: &mut Memory) -> Result<()> {
    let named = named_ledgers(store);
    let gone: Vec<u64> = memory.read_ledgers.iter().filter(|id| !named.contains(id)).copied().collect();
    for id in gone {
        store.engine.delete(&accounts::ledger_key(id)).await?;
        memory.read_ledgers.remove(&id);
    }
    Ok(())
}
