//! A damaged map written anew.
//!
//! What can be read is kept as it is, but for the nodes on the way to what is lost. A lost node is made again:
//! - from memory, if it is still there;
//! - a leaf from its newest older version that can be read, and over that what was written since;
//! - a node above leaves from the newest version of each child. It was written anew with every one of them, so the newest that something
//!   refers to is the one it named; where that cannot be read either, or there is none, the same again one level down.
//!
//! All below a lost node is written anew and born in the new disk's first epoch, shared or not: whose it was, and since when, stood in
//! the lost node.

use super::search::{Search, age};
use super::trees::{LostNode, Tree};
use super::{SalvagedFrom, Told};
use crate::map::{self, TOP, span};
use crate::packer::Packer;
use crate::store::Store;
use futures::future::BoxFuture;
use std::sync::Arc;
use stonefold_format::entry::Entry;
use stonefold_format::node::{NODE_WAYS, Node};
use stonefold_format::segment::FirstUse;
use stonefold_types::{Kind, Result};

/// See the module.
pub(super) struct Rebuild<'a, 's> {
    store: &'a Store,
    tree: &'a Tree,
    /// By their blocks.
    lost: Vec<LostNode>,
    search: &'a mut Search<'s>,
    packer: &'a Packer,
    /// The new disk.
    owner: u64,
    pub(super) told: Told,
}

/// A node to be made again.
struct Missing {
    level: u32,
    base: u64,
    /// The lost node that named it, or that it is.
    lost: LostNode,
    /// What an older version of the node above names in its place; [`Entry::LOST`] where that is not known.
    before: Entry,
}

/// An older version of a node.
struct Older {
    at: Entry,
    node: Arc<Node>,
}

impl<'a, 's> Rebuild<'a, 's> {
    pub(super) fn new(
        store: &'a Store,
        tree: &'a Tree,
        lost: Vec<LostNode>,
        search: &'a mut Search<'s>,
        (packer, owner): (&'a Packer, u64),
    ) -> Self {
        Rebuild { store, tree, lost, search, packer, owner, told: Told::default() }
    }

    /// The new disk's number.
    pub(super) fn owner(&self) -> u64 {
        self.owner
    }

    /// The root of the map with everything rebuilt. It can be read when the packer has finished.
    pub(super) async fn tree(&mut self) -> Result<Entry> {
        self.search.begin(self.tree, &self.lost);
        self.keep(self.tree.commit.root, TOP, 0).await
    }

    /// A subtree outside of lost nodes.
    fn keep(&mut self, at: Entry, level: u32, base: u64) -> BoxFuture<'_, Result<Entry>> {
        Box::pin(async move {
            let blocks = base..base + span(level + 1);
            let first = self.lost.partition_point(|lost| lost.blocks().end <= blocks.start);
            let Some(lost) = self.lost.get(first).copied().filter(|lost| lost.base < blocks.end) else {
                return Ok(at);
            };
            if lost.entry == at && (lost.level, lost.base) == (level, base) {
                return self.lost_node(lost).await;
            }
            if !at.is_stored() {
                return Ok(at);
            }
            let mut node = Node::clone(&*self.store.segments.node(&at).await?);
            for (place, entry) in (0..).zip(node.entries.iter_mut()) {
                *entry = self.keep(*entry, level - 1, base + place * span(level)).await?;
            }
            self.write(node, level, base).await
        })
    }

    async fn lost_node(&mut self, lost: LostNode) -> Result<Entry> {
        self.search.cover(lost.base).await?;
        match self.read(&lost.entry).await? {
            Some(node) => self.copy(&node, (lost.level, lost.base), SalvagedFrom::Memory).await,
            None => {
                let LostNode { level, base, .. } = lost;
                self.make(Missing { level, base, lost, before: Entry::LOST }).await
            }
        }
    }

    /// A node, unless it is damaged.
    async fn read(&self, at: &Entry) -> Result<Option<Arc<Node>>> {
        match self.store.segments.node(at).await {
            Ok(node) => Ok(Some(node)),
            Err(error) if error.kind() == Kind::Corrupt => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes anew a node that can be read and that is lost or below one that is, with all below it.
    fn copy<'b>(
        &'b mut self,
        node: &'b Node,
        (level, base): (u32, u64),
        from: SalvagedFrom,
    ) -> BoxFuture<'b, Result<Entry>> {
        Box::pin(async move {
            let mut copy = node.clone();
            for (place, entry) in (0..).zip(copy.entries.iter_mut()) {
                let block = base + place * span(level);
                if level == 0 {
                    *entry = self.leaf_entry(block, *entry, from).await?;
                } else if !entry.is_stored() {
                    self.tell(block, level, if entry.is_hole() { from } else { SalvagedFrom::Nothing });
                } else {
                    let below = match self.read(entry).await? {
                        Some(child) => self.copy(&child, (level - 1, block), from).await?,
                        None => {
                            let lost = LostNode { entry: *entry, level: level - 1, base: block };
                            self.make(Missing { level: level - 1, base: block, lost, before: Entry::LOST })
                                .await?
                        }
                    };
                    *entry = below;
                }
            }
            self.write(copy, level, base).await
        })
    }

    /// Makes a node again of what was found.
    fn make(&mut self, missing: Missing) -> BoxFuture<'_, Result<Entry>> {
        Box::pin(async move {
            let Missing { level, base, lost, before } = missing;
            let blocks = base..base + span(level + 1);
            if base >= self.tree.end {
                return Ok(Entry::HOLE);
            }
            self.search.cover(base).await?;
            let versions = self.search.versions(level, base);
            if level < lost.level {
                if let Some(node) = self.newest_named(&versions).await? {
                    return self.copy(&node, (level, base), SalvagedFrom::Nodes).await;
                }
            }
            let older = self.older(&versions, before, lost.entry).await?;
            if older.is_none() && self.search.is_bare(&blocks) {
                if before.is_hole() {
                    self.tell(base, level + 1, SalvagedFrom::OlderVersion);
                    return Ok(Entry::HOLE);
                }
                // What lies behind the end of the disk is not lost, but nothing.
                if blocks.end <= self.tree.end {
                    self.tell(base, level + 1, SalvagedFrom::Nothing);
                    return Ok(Entry::LOST);
                }
            }
            let before = if before.is_hole() { Entry::HOLE } else { Entry::LOST };
            let mut node =
                older.as_ref().map_or_else(|| Node::filled(before), |older| Node::clone(&older.node));
            for (place, entry) in (0..).zip(node.entries.iter_mut()) {
                let base = base + place * span(level);
                *entry = match level {
                    0 => self.block(base, *entry, older.as_ref().map(|older| older.at)).await?,
                    _ => self.make(Missing { level: level - 1, base, lost, before: *entry }).await?,
                };
            }
            self.write(node, level, base).await
        })
    }

    /// The newest version that something refers to, if it can be read: an older one is not what the node above named.
    async fn newest_named(&self, versions: &[Entry]) -> Result<Option<Arc<Node>>> {
        for version in versions {
            if self.search.is_named(version).await? {
                return self.read(version).await;
            }
        }
        Ok(None)
    }

    /// The newest version that can be read.
    async fn older(&self, versions: &[Entry], before: Entry, lost: Entry) -> Result<Option<Older>> {
        let before = Some(before).filter(Entry::is_stored);
        for version in versions.iter().chain(&before).filter(|version| version.address != lost.address) {
            if let Some(node) = self.read(version).await? {
                return Ok(Some(Older { at: *version, node }));
            }
        }
        Ok(None)
    }

    /// A block of a leaf that is made again: what was written there after the older version, else what that names.
    async fn block(&mut self, block: u64, before: Entry, older: Option<Entry>) -> Result<Entry> {
        let is_newer = |written: &Entry| older.is_none_or(|older| age(written) > age(&older));
        let written = self.search.block(block).filter(is_newer);
        let (entry, from) = match (written, older) {
            (Some(written), None) if !before.is_hole() => (written, SalvagedFrom::Blocks),
            (Some(written), _) => (written, SalvagedFrom::OlderVersion),
            (None, _) => (before, SalvagedFrom::OlderVersion),
        };
        self.leaf_entry(block, entry, from).await
    }

    /// What a leaf that is written anew holds of a block; told.
    async fn leaf_entry(&mut self, block: u64, entry: Entry, from: SalvagedFrom) -> Result<Entry> {
        let is_there = !entry.is_stored() || self.search.is_named(&entry).await?;
        let (entry, from) = match entry {
            _ if block >= self.tree.end => return Ok(Entry::HOLE),
            entry if entry.is_lost() || !is_there => (Entry::LOST, SalvagedFrom::Nothing),
            entry => (entry.born(self.tree.epoch), from),
        };
        self.told.add(block, 1, from);
        Ok(entry)
    }

    /// Tells of all blocks below an entry of a node of `level`, as far as the disk reaches.
    fn tell(&mut self, base: u64, level: u32, from: SalvagedFrom) {
        let end = (base + span(level)).min(self.tree.end);
        self.told.add(base, end.saturating_sub(base), from);
    }

    async fn write(&self, node: Node, level: u32, base: u64) -> Result<Entry> {
        let place = FirstUse::node_place(level, base);
        let first_use = FirstUse { owner: self.owner, epoch: self.tree.epoch, place };
        let entry = map::write_node(&self.store.segments, self.packer, node, first_use);
        if level == 0 {
            self.store.check_staying()?;
        }
        self.packer.throttle().await?;
        Ok(entry)
    }
}

const _: () = assert!(span(1) == NODE_WAYS as u64);
