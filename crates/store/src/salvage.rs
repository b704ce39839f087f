//! Salvage: what is still possible where a node of a map cannot be read in any copy.
//!
//! Each disk or snapshot whose map has such nodes is made anew beside itself, as a disk `NAME.salvaged` whose map is the old one with
//! the lost nodes rebuilt ([`rebuild`]) from what the segments' indexes tell of each frame ([`search`]). It gives what is there, not
//! what is certain: a block that was overwritten by one found by deduplication, or trimmed, since the last version of its node that
//! can be read may come back as it was before. What nobody knows reads as an error, never as zeros.
//!
//! *Promises*: nothing that was there before is changed; a disk is made whole, by one put of its head, or not at all; what it refers to
//! is told in the ledger before that, and nothing of it is given back meanwhile: reclaim waits. Memory is bounded ([`search`]).
//! *Never*: reads a frame of data, or takes for a snapshot's what was written after it.
//!
//! The new disk shares what can be read of the map, and stands alone: it has no base, every block and node that it maps is counted once
//! more for it, so that the damaged disk can be removed and leaves nothing behind that cannot be read.

mod rebuild;
mod search;
mod trees;

use crate::disk::Disk;
use crate::disks::Beginning;
use crate::fold;
use crate::map::{self, Update};
use crate::packer::Packer;
use crate::removed::STEP_ADDRESSES;
use crate::store::Store;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use rebuild::Rebuild;
use search::Search;
use std::collections::HashMap;
use std::sync::Arc;
use stonefold_format::entry::{Entry, SegmentId};
use stonefold_format::ledger::{Changes, LedgerBuilder, LedgerRef};
use stonefold_format::snapshots::Commit;
use stonefold_types::{BLOCK_BYTES, DiskSettings, Error, ExportName, Kind, Name, Result};
use trees::{LostNode, Tree};

/// The longest name of a disk, in bytes.
const NAME_BYTES_MAX: usize = 128;
/// Names tried for one disk.
const NAMES_MAX: u32 = 1000;
/// Ranges told one by one of each disk; of further ones only the bytes together.
const RANGES_MAX: usize = 1000;

/// What was found and done.
#[derive(Clone, Debug, Default)]
pub struct Salvage {
    /// What a check found before.
    pub checked: crate::Checked,
    /// Everything whose map is damaged.
    pub salvaged: Vec<Salvaged>,
    /// Segments that could not be looked into, and why: what they hold may be missed.
    pub unseen: Vec<String>,
}

/// A disk or snapshot whose map is damaged, and what became of it.
#[derive(Clone, Debug)]
pub struct Salvaged {
    /// What is damaged.
    pub of: ExportName,
    /// The new disk, or why there is none.
    pub disk: std::result::Result<Name, Error>,
    /// What the damage covered, by address; at most a thousand ranges.
    pub ranges: Vec<SalvagedRange>,
    /// Bytes of ranges that are not told one by one.
    pub untold_bytes: u64,
    /// Bytes of which nothing was found: reading them is an error.
    pub lost_bytes: u64,
}

/// Consecutive bytes that a lost node covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SalvagedRange {
    /// Bytes from the disk's beginning.
    pub offset_bytes: u64,
    /// Bytes.
    pub bytes: u64,
    /// What they are from.
    pub from: SalvagedFrom,
}

/// What a rebuilt range is from, the surest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SalvagedFrom {
    /// The node itself, which was still in memory.
    Memory,
    /// The newest nodes below a lost one: what that one named, unless they were emptied.
    Nodes,
    /// An older version of the node, and blocks written since.
    OlderVersion,
    /// Blocks written there, without any version of the node.
    Blocks,
    /// Nothing.
    Nothing,
}

impl Store {
    /// Checks the pool, then makes a new disk of every disk and snapshot whose map is damaged, which stay as they are. What cannot be
    /// salvaged is told with the reason. Fails only when the engine does.
    pub async fn salvage(&self) -> Result<Salvage> {
        self.check_open()?;
        // Nothing that is about to be referred to may be given back.
        let _no_pass = self.reclaiming.lock().await;
        let (checked, damaged) = self.verify_all(false).await?;
        let mut salvage = Salvage { checked, ..Salvage::default() };
        if damaged.is_empty() {
            return Ok(salvage);
        }
        let _telling = self.tell("salvage");
        let mut search = Search::new(self);
        for (tree, lost) in trees::damaged(self, &damaged).await? {
            self.check_staying()?;
            let mut one = self.salvage_one(&tree, lost, &mut search).await;
            if let Err(error) = &mut one.disk {
                self.check_open()?;
                *error = error.clone().context(format!("'{}' was not salvaged", tree.of));
                tracing::warn!("{error}");
            }
            salvage.salvaged.push(one);
        }
        salvage.unseen = search.unseen();
        Ok(salvage)
    }

    async fn salvage_one(&self, tree: &Tree, lost: Vec<LostNode>, search: &mut Search<'_>) -> Salvaged {
        // Until the head is there nobody else may take these segments for leftovers.
        let _writing = self.segments.begin_writing();
        let fresh_from = self.segments.peek_id();
        let nodes = Packer::nodes(self.segments.clone());
        let id = self.env.random();
        let mut rebuild = Rebuild::new(self, tree, lost, search, (&nodes, u64::from_le_bytes(id)));
        let (commit, changes) = match self.write(tree, &mut rebuild, &nodes, fresh_from).await {
            Ok(written) => written,
            Err(error) => {
                nodes.abandon().await;
                return Salvaged::failed(tree, error);
            }
        };
        let made = self.add_salvaged(tree, u64::from_le_bytes(id), commit, changes).await;
        rebuild.told.into_salvaged(tree, made)
    }

    /// Writes the map with the lost nodes rebuilt and all layers folded in, and tells its references in the ledger; durable on return.
    async fn write(
        &self,
        tree: &Tree,
        rebuild: &mut Rebuild<'_, '_>,
        nodes: &Packer,
        fresh_from: SegmentId,
    ) -> Result<(Commit, Vec<LedgerRef>)> {
        self.check_domain(&tree.disk)?;
        let owner = rebuild.owner();
        let mut commit = Commit { root: rebuild.tree().await?, ..tree.commit };
        nodes.finish().await?;
        if !tree.layers.is_empty() {
            // Before anything is updated: nobody knew what was mapped below the lost nodes.
            commit.mapped_blocks = self.count(&commit.root, None).await?.mapped_blocks;
        }
        for runs in fold::pack_layers(self, &tree.disk, tree.layers.clone()).await? {
            let (segments, packer, epoch) = (&self.segments, nodes, tree.epoch);
            let update = Update { segments, packer, owner, epoch, tally: Mutex::default() };
            commit = update.apply(&commit, &runs).await?;
            nodes.finish().await?;
        }
        let counted = self.count(&commit.root, Some(fresh_from)).await?;
        commit.mapped_blocks = counted.mapped_blocks;
        Ok((commit, counted.told))
    }

    /// Makes the disk, under the first name that is free.
    async fn add_salvaged(
        &self,
        tree: &Tree,
        id: u64,
        commit: Commit,
        changes: Vec<LedgerRef>,
    ) -> Result<Name> {
        let settings = DiskSettings { reserve: false, ..tree.disk.state.lock().settings.clone() };
        for attempt in 1..=NAMES_MAX {
            let name = free_name(&tree.of, attempt);
            if self.disks.lock().contains_key(&name) {
                continue;
            }
            let begins = Beginning {
                id,
                domain: tree.disk.domain,
                origin: tree.origin(),
                base: None,
                commit,
                epoch: tree.epoch,
                changes: changes.clone(),
            };
            match self.add_disk(&name, tree.size_bytes, settings.clone(), begins).await {
                Err(error) if error.kind() == Kind::AlreadyExists => {}
                made => return made.map(|_| name),
            }
        }
        let what =
            format!("disks '{}' to '{}' exist", free_name(&tree.of, 1), free_name(&tree.of, NAMES_MAX));
        Err(Error::new(Kind::AlreadyExists, what).remedy("remove what is not needed"))
    }

    /// Walks a map, and finds that all of it can be read; tells its references in the ledger, given the first segment that was written
    /// for it.
    async fn count(&self, root: &Entry, fresh_from: Option<SegmentId>) -> Result<Count> {
        let mut count = Count { fresh_from, ..Count::default() };
        count_below(self, *root, map::TOP, &mut count).await?;
        count.tell(self).await?;
        Ok(count)
    }
}

/// What a map refers to.
#[derive(Default)]
struct Count {
    /// Segments from here on were written for it; `None` when its references are not to be told.
    fresh_from: Option<SegmentId>,
    mapped_blocks: u64,
    changes: Changes,
    told: Vec<LedgerRef>,
}

impl Count {
    fn add(&mut self, entry: &Entry) {
        let Some(fresh_from) = self.fresh_from else { return };
        if entry.is_stored() {
            let is_fresh = entry.segment() >= fresh_from;
            let list = if is_fresh { &mut self.changes.born } else { &mut self.changes.shared };
            list.push(entry.address);
        }
    }

    async fn tell(&mut self, store: &Store) -> Result<()> {
        if self.changes.is_empty() {
            return Ok(());
        }
        let mut builder = LedgerBuilder::new(store.segments.next_id().0);
        self.told.extend(builder.changes(std::mem::take(&mut self.changes)));
        store.segments.accounts.put_ledger(builder).await
    }
}

fn count_below<'a>(
    store: &'a Store,
    at: Entry,
    level: u32,
    count: &'a mut Count,
) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        if !at.is_stored() {
            count.mapped_blocks += if at.is_lost() { map::span(level + 1) } else { 0 };
            return Ok(());
        }
        count.add(&at);
        let node = store.segments.node(&at).await?;
        for entry in node.entries.iter() {
            if level > 0 {
                count_below(store, *entry, level - 1, count).await?;
            } else {
                count.mapped_blocks += u64::from(!entry.is_hole());
                count.add(entry);
            }
        }
        if level == 0 {
            store.check_staying()?;
            if count.changes.len() >= STEP_ADDRESSES {
                count.tell(store).await?;
            }
        }
        Ok(())
    })
}

/// `DISK.salvaged`, `DISK.SNAP.salvaged`, and with a number from the second attempt on; shortened where it would be too long.
fn free_name(of: &ExportName, attempt: u32) -> Name {
    let stem = of.to_string().replace('@', ".");
    let suffix = if attempt == 1 { ".salvaged".to_owned() } else { format!(".salvaged.{attempt}") };
    let stem = &stem[..stem.len().min(NAME_BYTES_MAX - suffix.len())];
    Name::new(&format!("{stem}{suffix}")).expect("parts of names make a name")
}

/// What is told of one tree while it is rebuilt.
#[derive(Default)]
struct Told {
    ranges: Vec<SalvagedRange>,
    untold_bytes: u64,
    lost_bytes: u64,
}

impl Told {
    /// Blocks, behind all that were told before.
    fn add(&mut self, start: u64, blocks: u64, from: SalvagedFrom) {
        let (offset_bytes, bytes) = (start * BLOCK_BYTES as u64, blocks * BLOCK_BYTES as u64);
        if from == SalvagedFrom::Nothing {
            self.lost_bytes += bytes;
        }
        let is_full = self.ranges.len() == RANGES_MAX;
        match self.ranges.last_mut() {
            _ if bytes == 0 => {}
            Some(last) if last.from == from && last.offset_bytes + last.bytes == offset_bytes => {
                last.bytes += bytes;
            }
            _ if is_full => self.untold_bytes += bytes,
            _ => self.ranges.push(SalvagedRange { offset_bytes, bytes, from }),
        }
    }

    fn into_salvaged(self, tree: &Tree, disk: Result<Name>) -> Salvaged {
        let Told { ranges, untold_bytes, lost_bytes } = self;
        Salvaged { of: tree.of.clone(), disk, ranges, untold_bytes, lost_bytes }
    }
}

impl Salvaged {
    fn failed(tree: &Tree, why: Error) -> Self {
        Told::default().into_salvaged(tree, Err(why))
    }
}

/// What cannot be read, by address.
type Damaged = HashMap<u64, String>;
/// A disk as everybody holds it.
type Shared = Arc<Disk>;

#[cfg(test)]
mod tests;
