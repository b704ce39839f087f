//! Applying what a round of the fold packed to a map: new nodes along the paths that it touches.
//!
//! Leaves are most of the work: each is changed, encoded and compressed on a worker, some together, because ten microseconds each for
//! thousands of them would hold up every client of the data thread.

use super::{TOP, node_at, span};
use crate::ledger::Tally;
use crate::overlay::Blocks;
use crate::packer::Packer;
use crate::planted;
use crate::segments::Segments;
use futures::future::{BoxFuture, try_join_all};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stonefold_format::entry::Entry;
use stonefold_format::frame;
use stonefold_format::node::{NODE_WAYS, Node};
use stonefold_format::segment::FirstUse;
use stonefold_format::snapshots::Commit;
use stonefold_types::{Compression, Result};

/// Subtrees worked on side by side: hides the engine's time per node without flooding it.
const ABREAST: usize = 16;
/// Of a node's leaves, groups of [`ABREAST`] under way at one time: the next is read while one is with a worker.
const GROUPS_ABREAST: usize = 2;

/// What becomes of some consecutive blocks.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) blocks: Blocks,
    /// The entry of the first block; the others lie behind it in the same frame. A hole means that all become holes; so does what is lost.
    pub(crate) first: Entry,
    /// The blocks were stored already, and are referred to once more.
    pub(crate) shared: bool,
}

impl Run {
    pub(crate) fn entry(&self, block: u64) -> Entry {
        if !self.first.is_stored() {
            return self.first;
        }
        let ahead = block - self.blocks.start;
        let mut entry = self.first;
        if planted::is("one-slot-per-frame") {
            return entry;
        }
        entry.address += ahead;
        entry.hint = entry.hint.with_index(entry.hint.index() + ahead as usize);
        entry
    }
}

/// Writes new nodes for a commit with `runs` (ascending, not overlapping) applied.
pub(crate) struct Update<'a> {
    pub(crate) segments: &'a Segments,
    pub(crate) packer: &'a Packer,
    /// The disk, named in the index of the segments.
    pub(crate) owner: u64,
    /// The disk's epoch: when what is mapped now was born.
    pub(crate) epoch: u64,
    /// What the update does to references.
    pub(crate) tally: Mutex<Tally>,
}

/// A subtree after an update, and by how many mapped blocks it grew.
type Updated = (Entry, i64);

impl Update<'_> {
    /// The commit after the runs. New nodes are durable when the packer has finished.
    pub(crate) async fn apply(&self, commit: &Commit, runs: &[Run]) -> Result<Commit> {
        if runs.is_empty() {
            return Ok(*commit);
        }
        let (root, grown) = self.subtree(commit.root, TOP, 0, runs).await?;
        let mapped = commit.mapped_blocks as i64 + grown;
        Ok(Commit { root, mapped_blocks: u64::try_from(mapped).expect("no fewer than no blocks are mapped") })
    }

    /// Updates the node of `level`, above the leaves, whose first block is `base`.
    fn subtree<'b>(
        &'b self,
        at: Entry,
        level: u32,
        base: u64,
        runs: &'b [Run],
    ) -> BoxFuture<'b, Result<Updated>> {
        Box::pin(async move {
            if at.is_hole() && runs.iter().all(|run| run.first.is_hole()) {
                return Ok((Entry::HOLE, 0));
            }
            let before = node_at(self.segments, &at).await?;
            let mut node = Node::clone(&before);
            let grown = self.children(&mut node, level, base, runs).await?;
            if node == *before {
                return Ok((at, grown));
            }
            if at.is_stored() {
                self.tally.lock().died.push(at);
            }
            if let Some(entry) = node.in_place() {
                return Ok((entry, grown));
            }
            let encoded = encode(&node);
            Ok((self.push(node, &encoded, level, base), grown))
        })
    }

    async fn children(&self, node: &mut Node, level: u32, base: u64, runs: &[Run]) -> Result<i64> {
        let width = span(level);
        let end = base + width * NODE_WAYS as u64;
        let mut touched = Vec::new();
        let mut rest = runs;
        let mut at = base;
        while let Some(run) = rest.first() {
            at = at.max(run.blocks.start) / width * width;
            if at >= end {
                break;
            }
            let upto = at + width;
            let count = rest.iter().take_while(|run| run.blocks.start < upto).count();
            touched.push((at, &rest[..count]));
            // A run that reaches beyond this child belongs to the next one too.
            let done = rest[..count].iter().take_while(|run| run.blocks.end <= upto).count();
            rest = &rest[done..];
            at = upto;
        }
        let place = |at: u64| ((at - base) / width) as usize;
        let abreast = if level == 1 { ABREAST * GROUPS_ABREAST } else { ABREAST };
        let mut grown = 0;
        for group in touched.chunks(abreast) {
            let olds: Vec<Entry> = group.iter().map(|(at, _)| node.entries[place(*at)]).collect();
            let updated: Vec<Updated> = if level == 1 {
                let parts = group.chunks(ABREAST).zip(olds.chunks(ABREAST));
                let parts = parts.map(|(part, olds)| self.leaves(part, olds));
                try_join_all(parts.collect::<Vec<_>>()).await?.concat()
            } else {
                let subtrees = group.iter().zip(&olds);
                let subtrees = subtrees.map(|((at, runs), old)| self.subtree(*old, level - 1, *at, runs));
                try_join_all(subtrees.collect::<Vec<_>>()).await?
            };
            // A round that touches a large map all over writes a hundred megabytes of nodes.
            self.packer.throttle().await?;
            for ((at, _), (entry, growth)) in group.iter().zip(updated) {
                node.entries[place(*at)] = entry;
                grown += growth;
            }
        }
        Ok(grown)
    }

    /// Updates some leaves, each given by its first block and the runs that touch it.
    async fn leaves(&self, touched: &[(u64, &[Run])], olds: &[Entry]) -> Result<Vec<Updated>> {
        let before = try_join_all(olds.iter().map(|old| node_at(self.segments, old))).await?;
        let leaves = touched.iter().zip(before);
        let leaves: Vec<Leaf> =
            leaves.map(|((base, runs), before)| Leaf { before, base: *base, runs: runs.to_vec() }).collect();
        let epoch = self.epoch;
        let made = self
            .segments
            .env
            .offload(move || leaves.into_iter().map(|leaf| leaf.make(epoch)).collect::<Vec<Made>>());
        let made = made.await;
        // Where the workers are ahead nothing has been waited for.
        self.segments.env.yield_now().await;
        let mut updated = Vec::with_capacity(olds.len());
        for ((made, old), (base, _)) in made.into_iter().zip(olds).zip(touched) {
            let Some((node, encoded)) = made.node else {
                updated.push((*old, made.grown));
                continue;
            };
            {
                let mut tally = self.tally.lock();
                tally.add(made.tally);
                if old.is_stored() {
                    tally.died.push(*old);
                }
            }
            let entry = match node.in_place() {
                Some(entry) => entry,
                None => self.push(node, &encoded, 0, *base),
            };
            updated.push((entry, made.grown));
        }
        Ok(updated)
    }

    /// Packs a node.
    fn push(&self, node: Node, encoded: &[u8], level: u32, base: u64) -> Entry {
        let place = FirstUse::node_place(level, base);
        let first_use = FirstUse { owner: self.owner, epoch: self.epoch, place };
        let entry = push(self.segments, self.packer, node, encoded, first_use);
        self.tally.lock().born.push(entry.address);
        entry
    }
}

fn push(segments: &Segments, packer: &Packer, node: Node, encoded: &[u8], first_use: FirstUse) -> Entry {
    let counters = &segments.counters;
    let is_leaf = first_use.node_at().0 == 0;
    let counter = if is_leaf { &counters.leaves } else { &counters.inner_nodes };
    counter.fetch_add(1, Ordering::Relaxed);
    packer.push_node(node, encoded, first_use).born(first_use.epoch)
}

/// Packs a node that is no update of another, unless a hole or what is lost can stand for it.
pub(crate) fn write_node(segments: &Segments, packer: &Packer, node: Node, first_use: FirstUse) -> Entry {
    if let Some(entry) = node.in_place() {
        return entry;
    }
    let encoded = encode(&node);
    push(segments, packer, node, &encoded, first_use)
}

/// A leaf to be updated.
struct Leaf {
    before: Arc<Node>,
    /// Its first block.
    base: u64,
    runs: Vec<Run>,
}

/// A leaf that was.
struct Made {
    /// As it is now, and encoded; nothing encoded where something can stand for it. `None` where nothing changed.
    node: Option<(Node, Vec<u8>)>,
    /// By how many mapped blocks it grew.
    grown: i64,
    tally: Tally,
}

impl Leaf {
    fn make(self, epoch: u64) -> Made {
        let (mut node, mut tally, mut grown) = (Node::clone(&self.before), Tally::default(), 0);
        for run in &self.runs {
            let clipped = run.blocks.start.max(self.base)..run.blocks.end.min(self.base + NODE_WAYS as u64);
            for block in clipped {
                let slot = &mut node.entries[(block - self.base) as usize];
                let entry = run.entry(block).born(epoch);
                // The same block again, found by dedupe: the reference that is there lives on.
                if entry.address == slot.address {
                    continue;
                }
                grown += i64::from(slot.is_hole()) - i64::from(entry.is_hole());
                let old = std::mem::replace(slot, entry);
                if old.is_stored() {
                    tally.died.push(old);
                }
                if !entry.is_stored() {
                    continue;
                }
                let list = if run.shared { &mut tally.shared } else { &mut tally.born };
                list.push(entry.address);
            }
        }
        let node = (node != *self.before).then(|| {
            let encoded = if node.in_place().is_some() { Vec::new() } else { encode(&node) };
            (node, encoded)
        });
        Made { node, grown, tally }
    }
}

fn encode(node: &Node) -> Vec<u8> {
    let mut encoded = Vec::new();
    frame::encode(&node.encode(), Compression::Lz4, &mut encoded);
    encoded
}
