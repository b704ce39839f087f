//! Generations that have no content of the lab's: those by which a block was zeroed or trimmed.
//!
//! *Owns*: some 40 bytes for each block that was, until it is zeroed or trimmed again.

use crate::generations::BlockHasher;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

/// What was done in place of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It reads as zeros.
    Zeroed,
    /// It reads as whatever storage makes of it.
    Trimmed,
}

/// Which generations of which blocks.
#[derive(Debug, Default)]
pub struct Erased(HashMap<u64, Vec<(u32, How)>, BuildHasherDefault<BlockHasher>>);

impl Erased {
    /// A block has this generation by being zeroed or trimmed. Generations before `oldest` can no more be read.
    pub fn note(&mut self, block: u64, generation: u32, how: How, oldest: u32) {
        let of_block = self.0.entry(block).or_default();
        of_block.retain(|(older, _)| *older >= oldest);
        of_block.push((generation, how));
    }

    /// How a block came to this generation, if not by a write.
    pub fn how(&self, block: u64, generation: u32) -> Option<How> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&block)?.iter().find(|(of, _)| *of == generation).map(|(_, how)| *how)
    }
}
