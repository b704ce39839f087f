//! What the ledger cannot tell any more, told anew from the maps.
//!
//! A gap's deaths are what the snapshot before it maps and the one behind it, or the present, does not: births and addresses, at the
//! same places of two trees. So a section of deaths that cannot be read is no loss: the gap's whole list is written anew from a
//! comparison, and only what differs is read for it. A section of changes tells births and releases that nothing else tells one by one;
//! without it everything is counted anew ([`crate::recount`]).
//!
//! *Never*: changes a gap when one of its trees cannot be read. The caller holds reclaim's lock.

use crate::disk::{Disk, State};
use crate::map;
use crate::pages::Edit;
use crate::reclaim::Memory;
use crate::store::Store;
use std::sync::Arc;
use stonefold_format::entry::Entry;
use stonefold_format::head::Head;
use stonefold_format::ledger::{LedgerBuilder, LedgerRef};
use stonefold_format::snapshots::{Commit, SnapshotRecord};
use stonefold_types::{Kind, Result};

/// A gap between two neighbouring snapshots, or behind the newest.
struct Gap {
    /// What the snapshot before it mapped; `None` before the first, where nothing of the disk's own is held.
    before: Option<Commit>,
    /// The snapshot that ends it, or `None` for the present.
    end: Option<u64>,
    /// What that maps.
    after: Commit,
    refs: Vec<LedgerRef>,
}

/// Writes every gap anew in which a section was found that cannot be read; tells whether anything came of it. What fails for one is
/// tried again by the next pass, but where its maps are damaged, too: then what only the section names stays counted as alive.
pub(crate) async fn mend_gaps(store: &Store, memory: &mut Memory) -> bool {
    let before = memory.damaged.len();
    if before == 0 {
        return false;
    }
    for disk in store.disks_and_gone() {
        loop {
            match mend_one(store, &disk, memory).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    tracing::warn!("what died of disk '{}' stays untold for now: {error}", disk.name);
                    if error.kind() == Kind::Corrupt {
                        give_up(&disk.state.lock(), memory);
                    }
                    break;
                }
            }
        }
    }
    memory.damaged.len() < before
}

/// Nothing tells what these sections told.
fn give_up(state: &State, memory: &mut Memory) {
    let all = state.snapshots.iter().map(|snapshot| &snapshot.deaths).chain([&state.deaths]).flatten();
    for at in all {
        if memory.damaged.remove(at) {
            memory.untold.insert(*at);
        }
    }
}

/// One gap of a disk; `false` when none is damaged.
async fn mend_one(store: &Store, disk: &Arc<Disk>, memory: &mut Memory) -> Result<bool> {
    // No round may add to it meanwhile, nor may it be settled.
    let _alone = store.folding.lock().await;
    let Some(gap) = damaged_gap(&disk.state.lock(), memory) else { return Ok(false) };
    let mut died: Vec<Entry> = Vec::new();
    if let Some(before) = gap.before {
        map::died(&store.segments, &before.root, &gap.after.root, &mut died).await?;
    }
    let mut builder = LedgerBuilder::new(store.segments.next_id().0);
    let told = builder.deaths(died.iter().map(|entry| (entry.birth(), entry.address)).collect());
    store.segments.accounts.put_ledger(builder).await?;
    let (edit, open) = {
        let state = disk.state.lock();
        match gap.end.and_then(|id| state.snapshot(id)) {
            None => (Edit::new(), told),
            Some(end) => {
                let record = SnapshotRecord { deaths: told, ..end.record(gap.after) };
                (Edit::from([(end.id, Some(record))]), state.deaths.clone())
            }
        }
    };
    store.change_snapshots(disk, edit, |head: &mut Head, _: &State| head.deaths = open, |_| ()).await?;
    tracing::info!(
        "what died of disk '{}' in a gap of {} sections was told anew from its maps",
        disk.name,
        gap.refs.len()
    );
    memory.read_ledgers.extend(gap.refs.iter().map(|at| at.id));
    memory.damaged.retain(|at| !gap.refs.contains(at));
    Ok(true)
}

/// The oldest gap with a section that cannot be read. None while it is not known what lies on either side of it.
fn damaged_gap(state: &State, memory: &Memory) -> Option<Gap> {
    if state.snapshots.list.lost().next().is_some() {
        return None;
    }
    let is_damaged = |refs: &[LedgerRef]| refs.iter().any(|at| memory.damaged.contains(at));
    let mut before = None;
    for snapshot in state.snapshots.iter() {
        let Some(after) = snapshot.commit else { continue };
        if is_damaged(&snapshot.deaths) {
            return Some(Gap { before, end: Some(snapshot.id), after, refs: snapshot.deaths.clone() });
        }
        before = Some(after);
    }
    let after = state.commit;
    is_damaged(&state.deaths).then(|| Gap { before, end: None, after, refs: state.deaths.clone() })
}
