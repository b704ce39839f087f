//! A disk's map: which block lies where.
//!
//! A copy-on-write radix tree of four levels with 256 ways ([`stonefold_format::node`]). Nodes are immutable; an
//! [update](Update) writes new nodes along the paths it touches and shares the rest, so that a commit is a root. Comparing two
//! commits skips what they share.

mod update;

pub(crate) use update::{Run, Update, write_node};

use crate::overlay::Blocks;
use crate::planted;
use crate::segments::Segments;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::sync::Arc;
use stonefold_format::entry::Entry;
use stonefold_format::node::{NODE_SHIFT, NODE_WAYS, Node};
use stonefold_types::{Error, Kind, Result};

/// The level of the top node; leaves have level 0.
pub(crate) const TOP: u32 = 3;

/// Blocks below one entry of a node of `level`.
pub(crate) const fn span(level: u32) -> u64 {
    1 << (level * NODE_SHIFT)
}

/// The entries of `blocks`, if every node on the way is in memory.
pub(crate) fn lookup_cached(
    segments: &Segments,
    root: &Entry,
    blocks: &Blocks,
    out: &mut Vec<Entry>,
) -> Option<()> {
    let mut at = blocks.start;
    while at < blocks.end {
        let leaf_end = (at / NODE_WAYS as u64 + 1) * NODE_WAYS as u64;
        let upto = leaf_end.min(blocks.end);
        let mut entry = *root;
        let mut level = TOP;
        let leaf = loop {
            if entry.is_hole() {
                break None;
            }
            // Rare, and told with its place by who comes for it next.
            let node = if entry.is_lost() { None } else { segments.cached_node(&entry) }?;
            if level == 0 {
                break Some(node);
            }
            entry = node.entries[(at / span(level)) as usize % NODE_WAYS];
            level -= 1;
        };
        match leaf {
            Some(leaf) => {
                let first = at as usize % NODE_WAYS;
                out.extend_from_slice(&leaf.entries[first..first + (upto - at) as usize]);
            }
            None => out.resize(out.len() + (upto - at) as usize, Entry::HOLE),
        }
        at = upto;
    }
    Some(())
}

/// The entries of `blocks`.
pub(crate) async fn lookup(segments: &Segments, root: &Entry, blocks: &Blocks) -> Result<Vec<Entry>> {
    let mut out = Vec::with_capacity((blocks.end - blocks.start) as usize);
    let mut at = blocks.start;
    while at < blocks.end {
        let (found, upto) = descend(segments, root, at).await?;
        let upto = upto.min(blocks.end);
        match found {
            Some(leaf) => {
                let first = at as usize % NODE_WAYS;
                out.extend_from_slice(&leaf.entries[first..first + (upto - at) as usize]);
            }
            None => out.resize(out.len() + (upto - at) as usize, Entry::HOLE),
        }
        at = upto;
    }
    Ok(out)
}

/// The leaf over a block, or `None` where nothing is stored; and the first block that it says nothing about.
async fn descend(segments: &Segments, root: &Entry, block: u64) -> Result<(Option<Arc<Node>>, u64)> {
    let mut entry = *root;
    let mut level = TOP;
    loop {
        let width = span(level + 1);
        let end = (block / width + 1) * width;
        if entry.is_hole() {
            return Ok((None, end));
        }
        if entry.is_lost() {
            return Ok((Some(Arc::new(Node::filled(Entry::LOST))), (block / span(1) + 1) * span(1)));
        }
        // Held here, not in the cache: that may be too small for the whole way.
        let node = segments.node(&entry).await?;
        if level == 0 {
            return Ok((Some(node), end));
        }
        entry = node.entries[(block / span(level)) as usize % NODE_WAYS];
        level -= 1;
    }
}

/// Runs of `blocks` that are stored (`true`) or holes, in order, alternating. Empty subtrees are skipped whole.
pub(crate) async fn extents(
    segments: &Segments,
    root: &Entry,
    blocks: Blocks,
) -> Result<Vec<(Blocks, bool)>> {
    let mut out: Vec<(Blocks, bool)> = Vec::new();
    let mut push = |blocks: Blocks, stored: bool| match out.last_mut() {
        Some((last, same)) if *same == stored => last.end = blocks.end,
        _ => out.push((blocks, stored)),
    };
    let mut at = blocks.start;
    while at < blocks.end {
        let (found, upto) = descend(segments, root, at).await?;
        let upto = upto.min(blocks.end);
        match found {
            None => push(at..upto, false),
            Some(leaf) => {
                for block in at..upto {
                    push(block..block + 1, !leaf.entries[block as usize % NODE_WAYS].is_hole());
                }
            }
        }
        at = upto;
    }
    Ok(out)
}

/// Blocks of `within` whose entries differ between two commits, as ascending runs.
pub(crate) async fn diff(segments: &Segments, a: &Entry, b: &Entry, within: Blocks) -> Result<Vec<Blocks>> {
    let mut out = Vec::new();
    diff_below(segments, *a, *b, TOP, 0, &within, &mut out).await?;
    Ok(out)
}

/// Adds to `out` what lies below `root` and was born after epoch `after`: blocks from `from` on, and each node once everything below it
/// is there. What was born later lies only below nodes that were. Returns the block to go on from, when more than `limit` came
/// together, and the damage: what lies below a node that cannot be read is left out, and that node too.
pub(crate) async fn own(
    segments: &Segments,
    root: &Entry,
    after: u64,
    from: u64,
    limit: usize,
    out: &mut Vec<Entry>,
) -> Result<(Option<u64>, Vec<Error>)> {
    let wanted = Own { after, from, limit, damaged: Mutex::default() };
    let next = own_below(segments, *root, TOP, 0, &wanted, out).await?;
    Ok((next, wanted.damaged.into_inner()))
}

struct Own {
    after: u64,
    from: u64,
    limit: usize,
    damaged: Mutex<Vec<Error>>,
}

fn own_below<'a>(
    segments: &'a Segments,
    at: Entry,
    level: u32,
    base: u64,
    wanted: &'a Own,
    out: &'a mut Vec<Entry>,
) -> BoxFuture<'a, Result<Option<u64>>> {
    Box::pin(async move {
        let end = base + span(level + 1);
        // A node that ends where the last step did has been looked through but for itself.
        let done = if level == 0 { end <= wanted.from } else { end < wanted.from };
        // What is lost was never born, and so is nobody's.
        if at.is_hole() || at.birth() <= wanted.after || done {
            return Ok(None);
        }
        let node = match segments.node(&at).await {
            Err(error) if error.kind() == Kind::Corrupt => {
                wanted.damaged.lock().push(error);
                return Ok(None);
            }
            done => done?,
        };
        for (place, entry) in node.entries.iter().enumerate() {
            if level == 0 {
                if !entry.is_hole() && entry.birth() > wanted.after {
                    out.push(*entry);
                }
                continue;
            }
            let child = base + place as u64 * span(level);
            if let Some(next) = own_below(segments, *entry, level - 1, child, wanted, out).await? {
                return Ok(Some(next));
            }
        }
        out.push(at);
        // Only a leaf ends a step, so that every node on the way is still to come.
        Ok((level == 0 && out.len() >= wanted.limit).then_some(end))
    })
}

fn diff_below<'a>(
    segments: &'a Segments,
    a: Entry,
    b: Entry,
    level: u32,
    base: u64,
    within: &'a Blocks,
    out: &'a mut Vec<Blocks>,
) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        if a.address == b.address || base >= within.end || base + span(level + 1) <= within.start {
            return Ok(());
        }
        let (left, right) = (node_at(segments, &a).await?, node_at(segments, &b).await?);
        for (at, (x, y)) in left.entries.iter().zip(right.entries.iter()).enumerate() {
            if at >= NODE_WAYS / 2 && planted::is("diff-one-child") {
                break;
            }
            let block = base + at as u64 * span(level);
            if level > 0 {
                diff_below(segments, *x, *y, level - 1, block, within, out).await?;
            } else if x.address != y.address && within.contains(&block) {
                match out.last_mut() {
                    Some(last) if last.end == block => last.end += 1,
                    _ => out.push(block..block + 1),
                }
            }
        }
        Ok(())
    })
}

/// Adds to `out` what commit `a` refers to, nodes among them, and commit `b` does not: an entry is the same when it has the same address
/// at the same place and was born in the same epoch.
pub(crate) async fn died(segments: &Segments, a: &Entry, b: &Entry, out: &mut Vec<Entry>) -> Result<()> {
    died_below(segments, *a, *b, TOP, out).await
}

fn is_same(a: &Entry, b: &Entry) -> bool {
    a.address == b.address && a.birth() == b.birth()
}

fn died_below<'a>(
    segments: &'a Segments,
    a: Entry,
    b: Entry,
    level: u32,
    out: &'a mut Vec<Entry>,
) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        if !a.is_stored() || is_same(&a, &b) {
            return Ok(());
        }
        out.push(a);
        let (before, after) = (segments.node(&a).await?, node_at(segments, &b).await?);
        for (x, y) in before.entries.iter().zip(after.entries.iter()) {
            if level > 0 {
                died_below(segments, *x, *y, level - 1, out).await?;
            } else if x.is_stored() && !is_same(x, y) {
                out.push(*x);
            }
        }
        Ok(())
    })
}

/// The node at an entry, be it a hole or lost.
async fn node_at(segments: &Segments, at: &Entry) -> Result<Arc<Node>> {
    if at.is_stored() { segments.node(at).await } else { Ok(Arc::new(Node::filled(*at))) }
}
