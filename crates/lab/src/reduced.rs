//! How far what was written reduces in the end, measured on it.
//!
//! A profile declares two ratios, and the payload is made to have them. Loads wear on that: a footprint that is overwritten for hours draws other
//! contents than the first pass did. (A part of a block that is equal to others is written as it was, so small and unaligned writes do not.) So after each load it is counted what its volumes hold: the content of every block that was written, by the generations
//! that are kept in memory, and what two compressors leave of a sample. Reads that were verified say that the target holds the same.

use crate::payload::{SECTOR_BYTES, SECTORS, mix};
use crate::volume::Content;
use crate::workload::Workload;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use stonefold_types::BLOCK_BYTES;
use utoipa::ToSchema;

/// Different contents that are counted at most; of more a part is, chosen by what they are, so that of each content that is in the part all
/// blocks are.
const CONTENTS_MAX: u64 = 1 << 18;
/// Blocks of a volume that are compressed.
const COMPRESSED: u64 = 512;
/// How far what was reached may be from what was declared, as a share, before it is said.
pub const APART_MAX: f64 = 0.02;

/// What a volume holds, and how far it reduces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Reduced {
    /// The volume's number in the workload.
    pub volume: usize,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Logical blocks for each different one, as declared.
    #[serde(default)]
    pub dedupe_declared: f64,
    /// Bytes for each that compression leaves, as declared.
    #[serde(default)]
    pub compression_declared: f64,
    /// Blocks of 4 KiB that hold what was written; what was never written, zeroed or trimmed does not count.
    pub blocks: u64,
    /// Of these, those whose contents were counted.
    pub counted: u64,
    /// Different ones among the counted.
    pub different: u64,
    /// Bytes that were compressed, block by block.
    pub bytes: u64,
    /// What LZ4 left of them.
    pub lz4: u64,
    /// What zstd left of them.
    pub zstd: u64,
}

/// What was found, beside what the workload declares.
pub(crate) fn declared(workload: &Workload, found: Vec<Reduced>) -> Vec<Reduced> {
    let of = |reduced: Reduced| {
        let volume = &workload.volumes[reduced.volume];
        Reduced {
            name: volume.name.clone(),
            dedupe_declared: volume.reduction.dedupe,
            compression_declared: volume.reduction.compression,
            ..reduced
        }
    };
    found.into_iter().map(of).collect()
}

impl Reduced {
    /// Of a volume while nothing is in flight to it; nothing where it is not known what that holds.
    pub(crate) fn of(volume: usize, content: &Content) -> Option<Self> {
        let generations = content.generations.as_ref()?;
        let mut reduced = Reduced { volume, ..Reduced::default() };
        let part = generations.blocks().div_ceil(CONTENTS_MAX).next_power_of_two();
        let step = (generations.blocks() / COMPRESSED).max(1);
        let mut seen = HashSet::new();
        for block in 0..generations.blocks() {
            let Some(sectors) = content.held(block) else { continue };
            reduced.blocks += 1;
            let identity = identity(content, block, &sectors);
            if mix(identity) & (part - 1) == 0 {
                reduced.counted += 1;
                seen.insert(identity);
            }
            if block % step == 0 {
                reduced.compress(content, block, &sectors);
            }
        }
        reduced.different = seen.len() as u64;
        Some(reduced)
    }

    fn compress(&mut self, content: &Content, block: u64, sectors: &[u32; SECTORS]) {
        let mut bytes = [0; BLOCK_BYTES];
        for (place, (generation, sector)) in
            sectors.iter().zip(bytes.chunks_exact_mut(SECTOR_BYTES)).enumerate()
        {
            content.payload.fill(block, *generation, place, sector);
        }
        let (lz4, zstd) = crate::payload::left_of(&bytes);
        self.bytes += BLOCK_BYTES as u64;
        self.lz4 += lz4 as u64;
        self.zstd += zstd as u64;
    }

    /// Adds what the same volume of another worker holds: they have nothing in common.
    pub(crate) fn add(&mut self, other: &Reduced) {
        self.blocks += other.blocks;
        self.counted += other.counted;
        self.different += other.different;
        self.bytes += other.bytes;
        self.lz4 += other.lz4;
        self.zstd += other.zstd;
    }

    /// Logical blocks for each different one.
    pub fn dedupe(&self) -> f64 {
        if self.different == 0 { 1.0 } else { self.counted as f64 / self.different as f64 }
    }

    /// Bytes for each that is left: half way between what the two compressors leave, as it is declared.
    pub fn compression(&self) -> f64 {
        let left = (self.lz4 as f64 * self.zstd as f64).sqrt();
        if left == 0.0 { 1.0 } else { self.bytes as f64 / left }
    }

    /// How far the ratio that is farther from what was declared is from it, as a share of that.
    pub fn apart(&self) -> f64 {
        let apart = |reached: f64, declared: f64| (reached / declared.max(1.0) - 1.0).abs();
        apart(self.dedupe(), self.dedupe_declared).max(apart(self.compression(), self.compression_declared))
    }
}

/// What two blocks have in common exactly when they hold the same, but for collisions of 64 bits.
fn identity(content: &Content, block: u64, sectors: &[u32; SECTORS]) -> u64 {
    let first = content.payload.identity(block, sectors[0]);
    if sectors.iter().all(|generation| *generation == sectors[0]) {
        return first;
    }
    sectors
        .iter()
        .fold(first, |all, generation| mix(all).wrapping_add(content.payload.identity(block, *generation)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generations::Generations;
    use crate::payload::{Payload, Reduction};

    const BLOCKS: u64 = 40_000;

    fn written(dedupe: f64, compression: f64) -> Content {
        let payload = Payload::new(3, 0, BLOCKS, Reduction { dedupe, compression }).unwrap();
        let mut content = Content::new(0, payload, Some(Generations::new(BLOCKS)));
        let mut bytes = vec![0; 128 << 10];
        for offset in (0..BLOCKS * BLOCK_BYTES as u64).step_by(bytes.len()) {
            write(&mut content, offset, &mut bytes);
        }
        content
    }

    fn write(content: &mut Content, offset: u64, bytes: &mut [u8]) {
        let left = (BLOCKS * BLOCK_BYTES as u64 - offset).min(bytes.len() as u64) as usize;
        let mut issued = Vec::new();
        content.write(offset, &mut bytes[..left], &mut issued);
        content.written(offset, left, &issued, false);
    }

    /// Goal: the lab's acceptance, on what a whole volume holds: within 2% of what was asked for.
    #[test]
    fn what_was_declared_is_what_is_reached() {
        for (dedupe, compression) in [(1.0, 1.0), (1.2, 2.0), (2.0, 1.5), (4.0, 3.0)] {
            let content = written(dedupe, compression);
            let reached = Reduced {
                dedupe_declared: dedupe,
                compression_declared: compression,
                ..Reduced::of(0, &content).unwrap()
            };
            assert_eq!(reached.blocks, BLOCKS);
            assert!(reached.apart() <= APART_MAX, "{dedupe} and {compression}: {reached:?}");
        }
    }

    /// Goal: a load of writes of every size and alignment leaves what was declared; a block of which a part is written stays as equal to others as it was.
    #[test]
    fn what_was_declared_is_what_a_load_leaves() {
        let mut content = written(1.2, 2.0);
        let (mut bytes, sectors) = (vec![0; 64 << 10], BLOCKS * SECTORS as u64);
        for turn in 0..3 * BLOCKS {
            let long = [1, 2, 4, 8, 16, 32, 64, 128][mix(turn) as usize % 8];
            let offset = mix(turn ^ 0xA5) % (sectors - long) * SECTOR_BYTES as u64;
            write(&mut content, offset, &mut bytes[..long as usize * SECTOR_BYTES]);
        }
        let reached =
            Reduced { dedupe_declared: 1.2, compression_declared: 2.0, ..Reduced::of(0, &content).unwrap() };
        assert!(reached.apart() <= APART_MAX, "{reached:?}");
        // Most blocks have been written in part, and what they hold is what is expected of them.
        let mixed = (0..BLOCKS).filter_map(|block| content.held(block));
        let mixed = mixed.filter(|sectors| sectors.iter().any(|one| one != &sectors[0])).count() as u64;
        assert!(mixed > BLOCKS / 10, "{mixed}");
    }

    /// Goal: what was trimmed does not count.
    #[test]
    fn what_is_trimmed_is_seen() {
        let mut content = written(2.0, 2.0);
        let mut issued = Vec::new();
        content.erase(0, BLOCK_BYTES * 100, true, &mut issued);
        content.written(0, BLOCK_BYTES * 100, &issued, false);
        assert_eq!(Reduced::of(0, &content).unwrap().blocks, BLOCKS - 100);
    }
}
