//! What rounds and passes that were broken off have left over: objects that nothing names.
//!
//! Only what is older than the newest batch is looked at: all of that is either in the accounts, named by a head in memory, or left
//! over. Called by a pass of [`crate::reclaim`], with nobody else changing the accounts.

use crate::accounts;
use crate::pages;
use crate::planted;
use crate::reclaim::{Memory, Reclaimed};
use crate::segments;
use crate::store::Store;
use std::collections::BTreeSet;
use stonefold_engine::Key;
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
    sweep_ledgers(store, below).await?;
    sweep_pages(store, below).await
}

async fn sweep_ledgers(store: &Store, below: SegmentId) -> Result<()> {
    let number = |key: &Key| u64::from_str_radix(key.as_str().strip_prefix("ledger/")?, 16).ok();
    let mut left = leftovers(store, "ledger/", below, number).await?;
    leave_named(store, &mut left);
    for id in left {
        store.engine.delete(&accounts::ledger_key(id)).await?;
    }
    Ok(())
}

async fn sweep_pages(store: &Store, below: SegmentId) -> Result<()> {
    let mut left = leftovers(store, "snapshots/", below, pages::number_of).await?;
    if is_something_lost(store) {
        return Ok(());
    }
    for disk in store.disks_and_gone() {
        let state = disk.state.lock();
        for number in state.snapshots.list.numbers() {
            left.remove(&number);
        }
    }
    let left: Vec<u64> = left.into_iter().collect();
    pages::forget(store, &left).await;
    Ok(())
}

/// The numbers of all objects of a kind that are older than the newest batch.
async fn leftovers(
    store: &Store,
    prefix: &str,
    below: SegmentId,
    number: impl Fn(&Key) -> Option<u64>,
) -> Result<BTreeSet<u64>> {
    let mut found = BTreeSet::new();
    let mut after = None;
    loop {
        let listed = store.engine.list(prefix, after.as_ref(), LIST_LIMIT).await?;
        let Some(last) = listed.last() else { return Ok(found) };
        after = Some(last.key.clone());
        found.extend(listed.iter().filter_map(|one| number(&one.key)).filter(|id| *id < below.0));
    }
}

/// Whether some head or page cannot be read: then nobody knows all that is named.
pub(crate) fn is_something_lost(store: &Store) -> bool {
    let hides = store.damage.is_any() && !planted::is("hidden-head-swept");
    hides
        || store.disks_and_gone().iter().any(|disk| disk.state.lock().snapshots.list.lost().next().is_some())
}

/// Takes from the numbers those of ledger objects that some head or page names, or may name.
fn leave_named(store: &Store, numbers: &mut BTreeSet<u64>) {
    if is_something_lost(store) {
        numbers.clear();
    }
    for disk in store.disks_and_gone() {
        if numbers.is_empty() {
            return;
        }
        let state = disk.state.lock();
        let gaps = state.snapshots.iter().map(|snapshot| &snapshot.deaths);
        for at in gaps.chain([&state.changes, &state.deaths]).flatten() {
            numbers.remove(&at.id);
        }
    }
}

/// Deletes ledger objects that no head names any more.
pub(crate) async fn forget_ledgers(store: &Store, memory: &mut Memory) -> Result<()> {
    let mut gone = memory.read_ledgers.clone();
    leave_named(store, &mut gone);
    for id in gone {
        store.engine.delete(&accounts::ledger_key(id)).await?;
        memory.read_ledgers.remove(&id);
    }
    Ok(())
}
