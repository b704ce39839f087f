//! Which maps are damaged, and where.
//!
//! A map is looked at as of one instant between two rounds of the fold. What of its disk is not folded belongs to it: of a disk whose
//! map is damaged that can be much, because the fold cannot go on with it.

use super::{Damaged, Shared};
use crate::map::{TOP, span};
use crate::overlay::{Blocks, Layer};
use crate::store::Store;
use futures::future::BoxFuture;
use std::collections::HashSet;
use std::sync::Arc;
use stonefold_format::entry::Entry;
use stonefold_format::snapshots::Commit;
use stonefold_types::{BLOCK_BYTES, ExportName, Kind, Result, SnapshotName};

/// A disk or a snapshot at one instant.
pub(super) struct Tree {
    pub(super) disk: Shared,
    pub(super) of: ExportName,
    pub(super) commit: Commit,
    /// What is not folded of it, oldest first.
    pub(super) layers: Vec<Arc<Layer>>,
    pub(super) size_bytes: u64,
    /// Nothing of it was born later.
    pub(super) epoch: u64,
    /// The first block behind all that the map may hold.
    pub(super) end: u64,
}

/// A node that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LostNode {
    pub(super) entry: Entry,
    pub(super) level: u32,
    /// Its first block.
    pub(super) base: u64,
}

impl LostNode {
    pub(super) fn blocks(&self) -> Blocks {
        self.base..self.base + span(self.level + 1)
    }
}

/// Everything whose map is damaged, with the nodes that are lost, by their blocks: of each disk its snapshots first, oldest first.
pub(super) async fn damaged(store: &Store, damaged: &Damaged) -> Result<Vec<(Tree, Vec<LostNode>)>> {
    let mut found = Vec::new();
    let mut finding = Finding { store, damaged, sound: HashSet::new(), lost: Vec::new() };
    for disk in store.all_disks() {
        for tree in at_once(store, &disk).await {
            finding.below(tree.commit.root, TOP, 0).await?;
            let lost = std::mem::take(&mut finding.lost);
            if !lost.is_empty() {
                found.push((tree, lost));
            }
        }
    }
    Ok(found)
}

/// All maps of a disk at one instant.
async fn at_once(store: &Store, disk: &Shared) -> Vec<Tree> {
    let _alone = store.folding.lock().await;
    let mut state = disk.state.lock();
    state.freeze(None);
    let size_max = state.size_bytes.max(state.folded_size_bytes);
    let tree = |of, commit, layers, size_bytes, epoch| {
        let end = size_max.max(size_bytes).div_ceil(BLOCK_BYTES as u64);
        Tree { disk: disk.clone(), of, commit, layers, size_bytes, epoch, end }
    };
    let mut trees = Vec::new();
    for snapshot in state.snapshots.iter().filter(|snapshot| !snapshot.removed) {
        let name = SnapshotName { disk: disk.name.clone(), snapshot: snapshot.name.clone() };
        let (of, size_bytes) = (ExportName::Snapshot(name), snapshot.size_bytes);
        trees.push(match snapshot.commit {
            Some(commit) => tree(of, commit, Vec::new(), size_bytes, snapshot.id + 1),
            // The fold has not reached it: the present's commit, and the layers up to its own.
            None => {
                let upto = state.frozen.iter().position(|layer| layer.ends_with == Some(snapshot.id));
                let layers = state.frozen.iter().take(upto.map_or(0, |at| at + 1)).cloned().collect();
                tree(of, state.commit, layers, size_bytes, state.next_snapshot_id)
            }
        });
    }
    let layers = state.frozen.iter().cloned().collect();
    let of = ExportName::Disk(disk.name.clone());
    trees.push(tree(of, state.commit, layers, state.size_bytes, state.next_snapshot_id));
    trees
}

struct Finding<'a> {
    store: &'a Store,
    damaged: &'a Damaged,
    /// Inner nodes below which nothing is lost: maps share most of what they hold.
    sound: HashSet<u64>,
    lost: Vec<LostNode>,
}

impl Finding<'_> {
    fn below(&mut self, entry: Entry, level: u32, base: u64) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let is_damaged = self.damaged.contains_key(&entry.address);
            if !entry.is_stored() || self.sound.contains(&entry.address) || (level == 0 && !is_damaged) {
                return Ok(());
            }
            let before = self.lost.len();
            let node = if is_damaged { None } else { Some(self.store.segments.node(&entry).await) };
            match node {
                Some(Ok(node)) => {
                    for (at, child) in (0..).zip(node.entries.iter()) {
                        self.below(*child, level - 1, base + at * span(level)).await?;
                    }
                }
                Some(Err(error)) if error.kind() != Kind::Corrupt => return Err(error),
                _ => self.lost.push(LostNode { entry, level, base }),
            }
            if self.lost.len() == before {
                self.sound.insert(entry.address);
            }
            Ok(())
        })
    }
}

impl Tree {
    /// What the new disk is told to be a clone of.
    pub(super) fn origin(&self) -> Option<SnapshotName> {
        match &self.of {
            ExportName::Snapshot(name) => Some(name.clone()),
            ExportName::Disk(_) => self.disk.origin.clone(),
        }
    }
}
