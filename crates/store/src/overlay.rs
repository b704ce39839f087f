//! What was written and is not folded yet: extents over the map.
//!
//! A disk's unfolded changes lie in *layers*, oldest first. Only the newest takes writes. A snapshot, or the
//! beginning of a fold, freezes it; nothing is ever merged across a frozen layer's end, so that a snapshot holds what it held.

use crate::arena::ArenaSlice;
use crate::planted;
use std::collections::BTreeMap;
use std::ops::Range;
use stonefold_types::BLOCK_BYTES;

/// Block addresses, in blocks.
pub(crate) type Blocks = Range<u64>;

/// Where the contents of an extent are.
#[derive(Clone)]
pub(crate) enum Source {
    /// In memory; as long as the extent.
    Data(ArenaSlice),
    /// Zeros.
    Zero,
}

#[derive(Clone)]
struct Extent {
    blocks: u64,
    lsn: u64,
    source: Source,
}

impl Extent {
    /// The part from block `skip` of it on, `blocks` long.
    fn part(&self, skip: u64, blocks: u64) -> Extent {
        let source = match &self.source {
            Source::Zero => Source::Zero,
            Source::Data(data) => {
                Source::Data(data.part(skip as usize * BLOCK_BYTES, blocks as usize * BLOCK_BYTES))
            }
        };
        Extent { blocks, lsn: self.lsn, source }
    }
}

/// Changes between two marks.
///
/// Invariant: extents do not overlap, are not empty, and a data extent's slice is exactly as long as it.
#[derive(Default)]
pub(crate) struct Layer {
    extents: BTreeMap<u64, Extent>,
    /// The oldest journal record that this layer needs, when it needs any.
    pub(crate) first_lsn: Option<u64>,
    /// The newest.
    pub(crate) last_lsn: u64,
    /// Room taken from the budget on its behalf.
    pub(crate) budget_bytes: u64,
    /// The snapshot that ends it.
    pub(crate) ends_with: Option<u64>,
    /// The disk's epoch it belongs to, known once it is frozen.
    pub(crate) epoch: u64,
    /// The disk's size from this layer on, in bytes, where it changed.
    pub(crate) size_bytes: Option<u64>,
}

impl Layer {
    /// Notes that the layer holds the effect of a record.
    pub(crate) fn note(&mut self, lsn: u64, budget_bytes: u64) {
        self.first_lsn.get_or_insert(lsn);
        self.last_lsn = self.last_lsn.max(lsn);
        self.budget_bytes += budget_bytes;
    }

    /// Whether no record touched it.
    pub(crate) fn is_clean(&self) -> bool {
        self.first_lsn.is_none()
    }

    /// Lays an extent over whatever was there.
    pub(crate) fn insert(&mut self, blocks: Blocks, lsn: u64, source: Source) {
        debug_assert!(!blocks.is_empty());
        if let Source::Data(data) = &source {
            debug_assert_eq!(data.len() as u64, (blocks.end - blocks.start) * BLOCK_BYTES as u64);
        }
        self.cut(&blocks);
        self.extents.insert(blocks.start, Extent { blocks: blocks.end - blocks.start, lsn, source });
    }

    /// Removes what lies in a range, keeping the parts outside.
    fn cut(&mut self, range: &Blocks) {
        if let Some((&start, extent)) = self.extents.range(..range.start).next_back() {
            let end = start + extent.blocks;
            if end > range.start {
                let left = extent.part(0, range.start - start);
                let right = (end > range.end).then(|| extent.part(range.end - start, end - range.end));
                self.extents.insert(start, left);
                if let Some(right) = right {
                    self.extents.insert(range.end, right);
                }
            }
        }
        while let Some((&start, extent)) = self.extents.range(range.clone()).next() {
            let end = start + extent.blocks;
            let right = (end > range.end).then(|| extent.part(range.end - start, end - range.end));
            self.extents.remove(&start);
            if let Some(right) = right {
                self.extents.insert(range.end, right);
            }
        }
    }

    /// The extents that touch a range, clipped to it, in order.
    pub(crate) fn over<'a>(
        &'a self,
        range: &Blocks,
    ) -> impl Iterator<Item = (Blocks, u64, Part<'a>)> + use<'a> {
        let range = range.clone();
        let first = self.extents.range(..=range.start).next_back().map_or(range.start, |(start, _)| *start);
        self.extents.range(first..range.end.max(first)).filter_map(move |(&start, extent)| {
            let clipped = start.max(range.start)..(start + extent.blocks).min(range.end);
            if clipped.start >= clipped.end {
                return None;
            }
            let part = match &extent.source {
                Source::Zero => Part::Zero,
                Source::Data(data) => {
                    Part::Data { data, skip_bytes: (clipped.start - start) as usize * BLOCK_BYTES }
                }
            };
            Some((clipped, extent.lsn, part))
        })
    }

    /// All extents in order.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Blocks, &Source)> {
        self.extents.iter().map(|(&start, extent)| (start..start + extent.blocks, &extent.source))
    }
}

/// A view of an extent's contents.
pub(crate) enum Part<'a> {
    /// Contents begin `skip_bytes` into `data`.
    Data {
        /// The extent's data.
        data: &'a ArenaSlice,
        /// Where the clipped part begins in it.
        skip_bytes: usize,
    },
    /// Zeros.
    Zero,
}

/// The parts of `range` that none of `layers` (newest first) covers; `found` sees every covered part once, from the
/// newest layer that has it.
pub(crate) fn resolve<'a>(
    layers: impl Iterator<Item = &'a Layer>,
    range: Blocks,
    mut found: impl FnMut(Blocks, u64, Part<'_>),
) -> Vec<Blocks> {
    let mut open = vec![range];
    for layer in layers {
        if open.is_empty() {
            break;
        }
        if layer.extents.is_empty() {
            continue;
        }
        let mut rest = Vec::new();
        for range in open {
            let mut at = range.start;
            for (blocks, lsn, part) in layer.over(&range) {
                if blocks.start > at && !planted::is("resolve-drops-gap") {
                    rest.push(at..blocks.start);
                }
                at = blocks.end;
                found(blocks, lsn, part);
            }
            if at < range.end {
                rest.push(at..range.end);
            }
        }
        open = rest;
    }
    open
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Each block of the slice holds `tag` and its own place in the write.
    fn data(tag: u8, blocks: u64) -> Source {
        let mut bytes = vec![tag; blocks as usize * BLOCK_BYTES];
        bytes.chunks_mut(BLOCK_BYTES).enumerate().for_each(|(at, block)| block[1] = at as u8);
        Source::Data(ArenaSlice::copy_of(&bytes))
    }

    proptest! {
        /// Layers against an array: whatever is written over whatever, the newest wins and nothing else changes.
        #[test]
        fn the_newest_wins(writes in proptest::collection::vec((0u64..40, 1u64..12, any::<bool>(), any::<bool>()), 1..60),
            from in 0u64..50, len in 1u64..50) {
            let mut model: Vec<Option<(u8, u8)>> = vec![None; 100];
            let mut layers = vec![Layer::default()];
            for (tag, (start, blocks, zero, freeze)) in writes.into_iter().enumerate() {
                if freeze { layers.push(Layer::default()); }
                let tag = tag as u8 + 1;
                let source = if zero { Source::Zero } else { data(tag, blocks) };
                layers.last_mut().unwrap().insert(start..start + blocks, u64::from(tag), source);
                for at in 0..blocks {
                    model[(start + at) as usize] = Some(if zero { (0, 0) } else { (tag, at as u8) });
                }
            }
            let mut seen: Vec<Option<(u8, u8)>> = vec![None; 100];
            let open = resolve(layers.iter().rev(), from..from + len, |blocks, _, part| {
                for at in blocks.clone() {
                    assert!(seen[at as usize].is_none(), "found twice");
                    seen[at as usize] = Some(match &part {
                        Part::Zero => (0, 0),
                        Part::Data { data, skip_bytes } => {
                            let block = &data[skip_bytes + (at - blocks.start) as usize * BLOCK_BYTES..];
                            (block[0], block[1])
                        }
                    });
                }
            });
            for at in from..from + len {
                prop_assert_eq!(seen[at as usize], model[at as usize], "block {}", at);
                prop_assert_eq!(open.iter().any(|r| r.contains(&at)), model[at as usize].is_none());
            }
        }
    }
}
