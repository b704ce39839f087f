//! What lies in the pool that was written where a node is lost: nodes and blocks, by the indexes of all segments.
//!
//! A reference never points at what was put later (P3), and within a segment never at a later slot: a node at address *a* names only
//! addresses below *a*, whatever round, snapshot or hit of deduplication they are from. What was born in epoch *e* names nothing that
//! its disk wrote in a later one; and of the disk that it was cloned from, nothing written after that snapshot. So of everything that was
//! written at a place, what is eligible for a lost node is known exactly; which of it the node named is not.
//!
//! Memory: [`RECORDS_MAX`] blocks and nodes. Where more is lost, the search goes through it in windows, and reads all indexes again for
//! each further one.

use super::trees::{LostNode, Tree};
use crate::overlay::Blocks;
use crate::recount;
use crate::store::Store;
use std::collections::{BTreeMap, BTreeSet};
use stonefold_format::account::{Slot, shard_of};
use stonefold_format::entry::{Entry, Hint, SegmentId};
use stonefold_format::node::NODE_WAYS;
use stonefold_format::segment::{INDEX_RECORD, IndexRecord, SegmentKind};
use stonefold_types::{Kind, Result};

/// Blocks and nodes remembered at one time: some 64 MiB.
const RECORDS_MAX: usize = if cfg!(test) { 200 } else { 1 << 20 };
/// Versions of one node remembered, the newest.
const VERSIONS_MAX: usize = 8;

/// See the module.
pub(super) struct Search<'a> {
    store: &'a Store,
    /// The newest form of each segment, once they were listed.
    forms: Option<BTreeMap<SegmentId, u8>>,
    /// What is looked for: of several trees that share what is lost it is found once.
    lost: Vec<LostNode>,
    lineage: Lineage,
    domain: u16,
    /// What of it was looked for.
    window: Blocks,
    /// The newest that was written of each block, born when it was.
    blocks: BTreeMap<u64, Entry>,
    /// By first block and level, the newest first.
    nodes: BTreeMap<(u64, u32), Vec<Entry>>,
    unseen: BTreeMap<SegmentId, String>,
}

/// The disks whose writes a map may name, each with the last epoch of which it does.
type Lineage = Vec<(u64, u64)>;

impl<'a> Search<'a> {
    pub(super) fn new(store: &'a Store) -> Self {
        Search {
            store,
            forms: None,
            lost: Vec::new(),
            lineage: Vec::new(),
            domain: 0,
            window: 0..0,
            blocks: BTreeMap::new(),
            nodes: BTreeMap::new(),
            unseen: BTreeMap::new(),
        }
    }

    /// Segments that could not be looked into.
    pub(super) fn unseen(self) -> Vec<String> {
        self.unseen.into_values().collect()
    }

    /// From now on for another tree; what was found is kept where the same is lost of it: the same nodes named the same.
    pub(super) fn begin(&mut self, tree: &Tree, lost: &[LostNode]) {
        if self.lost == lost {
            return;
        }
        (self.lost, self.lineage) = (lost.to_vec(), lineage(self.store, tree));
        (self.domain, self.window) = (tree.disk.domain, 0..0);
    }

    /// Looks for what is lost from a block on, unless that was done.
    pub(super) async fn cover(&mut self, block: u64) -> Result<()> {
        if self.window.contains(&block) {
            return Ok(());
        }
        (self.blocks, self.nodes) = (BTreeMap::new(), BTreeMap::new());
        self.window = block..u64::MAX;
        if self.forms.is_none() {
            self.forms = Some(recount::list_forms(self.store).await?);
        }
        let newest = self.lost.iter().map(|lost| lost.entry.segment()).max().unwrap_or(SegmentId(0));
        let segments: Vec<SegmentId> =
            self.forms.iter().flat_map(|forms| forms.range(..=newest).map(|(id, _)| *id)).collect();
        for segment in segments {
            self.store.check_staying()?;
            self.look_into(segment).await?;
        }
        Ok(())
    }

    async fn look_into(&mut self, segment: SegmentId) -> Result<()> {
        let generation = self.store.segments.accounts.generation(segment);
        let index = match self.store.segments.index(segment, generation).await {
            Ok(index) => index,
            Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::NotFound) => {
                let why = format!("segment {segment} could not be looked into: {error}");
                self.unseen.insert(segment, why);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.store.pace_looking((index.len() * INDEX_RECORD) as u64).await;
        for record in index.iter() {
            let owner = self.lineage.iter().find(|(disk, _)| *disk == record.owner);
            let Some(epoch) = owner.and_then(|(_, upto)| record.epoch_up_to(*upto)) else { continue };
            match index.kind {
                SegmentKind::Map => self.note_node(entry_of(segment, record, 0).born(epoch), record),
                SegmentKind::Data if index.domain == self.domain => {
                    for ahead in 0..usize::from(record.blocks) {
                        let block = record.place.saturating_add(ahead as u64);
                        self.note_block(entry_of(segment, record, ahead).born(epoch), block);
                    }
                }
                SegmentKind::Data => {}
            }
            self.shrink();
        }
        Ok(())
    }

    /// The lost node that covers a block.
    fn lost_at(&self, block: u64) -> Option<&LostNode> {
        let after = self.lost.partition_point(|lost| lost.base <= block);
        after.checked_sub(1).map(|at| &self.lost[at]).filter(|lost| lost.blocks().contains(&block))
    }

    fn note_node(&mut self, entry: Entry, record: &IndexRecord) {
        let (level, base) = record.first_use(0).node_at();
        let eligible = |lost: &&LostNode| level <= lost.level && may_name(lost, &entry);
        if !self.window.contains(&base) || self.lost_at(base).filter(eligible).is_none() {
            return;
        }
        let versions = self.nodes.entry((base, level)).or_default();
        let at = versions.partition_point(|version| age(version) > age(&entry));
        versions.insert(at, entry);
        versions.truncate(VERSIONS_MAX);
    }

    fn note_block(&mut self, entry: Entry, block: u64) {
        let eligible = |lost: &&LostNode| may_name(lost, &entry);
        if !self.window.contains(&block) || self.lost_at(block).filter(eligible).is_none() {
            return;
        }
        let newest = self.blocks.entry(block).or_insert(entry);
        if age(newest) < age(&entry) {
            *newest = entry;
        }
    }

    /// Makes the window smaller until what is in it fits.
    fn shrink(&mut self) {
        let leaf = NODE_WAYS as u64;
        while self.blocks.len() + self.nodes.len() > RECORDS_MAX {
            let blocks = self.blocks.last_key_value().map(|(block, _)| *block);
            let last = blocks.max(self.nodes.last_key_value().map(|((base, _), _)| *base));
            let first_leaf = self.window.start / leaf;
            let middle = last.map_or(0, |last| (first_leaf + last / leaf) / 2 + 1) * leaf;
            if middle >= self.window.end {
                // One leaf, with all that is remembered of it.
                return;
            }
            self.window.end = middle;
            self.blocks.split_off(&middle);
            self.nodes.split_off(&(middle, 0));
        }
    }

    /// The newest that was written of a block.
    pub(super) fn block(&self, block: u64) -> Option<Entry> {
        self.blocks.get(&block).copied()
    }

    /// Versions of a node, the newest first.
    pub(super) fn versions(&self, level: u32, base: u64) -> Vec<Entry> {
        self.nodes.get(&(base, level)).cloned().unwrap_or_default()
    }

    /// Whether it is known that nothing was found in there.
    pub(super) fn is_bare(&self, blocks: &Blocks) -> bool {
        blocks.start >= self.window.start
            && blocks.end <= self.window.end
            && self.blocks.range(blocks.clone()).next().is_none()
            && self.nodes.range((blocks.start, 0)..(blocks.end, 0)).next().is_none()
    }

    /// Whether something may refer to a block or node, so that it may be referred to again: what has no references by the
    /// accounts was certainly not named by what was lost, and may be gone.
    pub(super) async fn is_named(&self, entry: &Entry) -> Result<bool> {
        let segment = entry.segment();
        let shard = match self.store.segments.accounts.shard(shard_of(segment)).await {
            Ok(shard) => shard,
            // All is counted anew by the next pass of reclaim that can; what is there is there.
            Err(error) if error.kind() == Kind::Corrupt => return Ok(true),
            Err(error) => return Err(error),
        };
        let slot = entry.slot() as usize;
        Ok(match shard.get(&segment) {
            Some(account) => !matches!(account.slots.get(slot), Some(Slot::Dead | Slot::Live(0))),
            // Not counted yet. One that was written anew was, and is none any more.
            None => self.forms.as_ref().is_some_and(|forms| forms.get(&segment) == Some(&0)),
        })
    }
}

/// Whether a lost node may have named what was written at an address in an epoch.
fn may_name(lost: &LostNode, entry: &Entry) -> bool {
    entry.address < lost.entry.address && entry.birth() <= lost.entry.birth()
}

/// The order in which a disk's frames came about. One round of the fold writes all blocks of several epochs before the first node, so
/// that addresses alone do not tell whether a block is newer than a node.
pub(super) fn age(entry: &Entry) -> (u64, u64) {
    (entry.birth(), entry.address)
}

/// The block of a frame that lies `ahead` of its first.
fn entry_of(segment: SegmentId, record: &IndexRecord, ahead: usize) -> Entry {
    let hint = Hint::new(record.offset as usize, record.length as usize, ahead);
    Entry::new(segment, record.first_slot + ahead as u32, hint)
}

/// The disk, what it was cloned from, and so on.
fn lineage(store: &Store, tree: &Tree) -> Lineage {
    let all = store.disks_and_gone();
    let mut lineage = vec![(tree.disk.id, tree.epoch)];
    let mut base = tree.disk.state.lock().base;
    // Nobody is his own ancestor; what is read from a medium may say so.
    let mut seen = BTreeSet::from([tree.disk.id]);
    while let Some(of) = base.filter(|of| seen.insert(of.disk)) {
        lineage.push((of.disk, of.epoch));
        let disk = all.iter().find(|disk| disk.id == of.disk);
        base = disk.and_then(|disk| disk.state.lock().base);
    }
    lineage
}
