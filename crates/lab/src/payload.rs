//! What is written: blocks that reduce as declared and that can be checked afterwards.
//!
//! The content of every 4 KiB block is a function of (seed, volume, block address, generation), and its sectors name
//! those, so that what comes back is either what it must be or tells what it is instead. A share of the blocks takes
//! its content from a pool that is used many times over: that is the declared deduplication, and the function stays
//! one, because *which* content of the pool a block has follows from its address and generation too. A part of each
//! sector is filler, which is the declared compression.
//!
//! A sector of a block, 512 bytes, little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | `SFlb` |
//! | 4 | 0: content of its own; 1: content of the pool |
//! | 5 | which of the block's eight sectors |
//! | 6..8 | volume; 0 in content of the pool |
//! | 8..16 | block address, or number in the pool |
//! | 16..20 | generation; 0 in content of the pool |
//! | 20..24 | check: over bytes 4..20 and the seed |
//! | 24..r | random bytes of the block's stream |
//! | r..512 | filler: one byte of the block's stream, over and over |
//!
//! The names stand first, so that what was cut short can still be read, and in every sector, because a sector is the
//! least that storage may lose, mix up or leave old.

use stonefold_types::{BLOCK_BYTES, Error, Kind, Result};

/// Bytes of a sector, the unit in which storage may tear a write.
pub const SECTOR_BYTES: usize = 512;
/// Sectors of a block.
pub const SECTORS: usize = BLOCK_BYTES / SECTOR_BYTES;

const MAGIC: [u8; 4] = *b"SFlb";
const NAMES_BYTES: usize = 24;

/// How far content reduces. Both are ratios of what is written to what is left: 1 is nothing at all, 2 is half.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reduction {
    /// Logical blocks of 4 KiB for each different one.
    pub dedupe: f64,
    /// Bytes of a block for each byte that is left of it: half way between what LZ4 and zstd leave, which differ by a few in a
    /// hundred.
    pub compression: f64,
}

impl Reduction {
    /// Nothing equal and nothing to compress.
    pub const NONE: Reduction = Reduction { dedupe: 1.0, compression: 1.0 };
}

/// The most that a block of names and filler alone can be compressed; what asks for more is refused.
pub const COMPRESSION_MAX: f64 = 12.0;
/// The most equal blocks: beyond this the pool of contents would be smaller than what in-line deduplication hides.
pub const DEDUPE_MAX: f64 = 100.0;

/// Makes and names the content of the blocks of one volume.
#[derive(Clone, Debug)]
pub struct Payload {
    seed: u64,
    volume: u16,
    /// The volume of whose contents the first generation is a copy.
    original: Option<u16>,
    /// Of 2^32: how many blocks take their content from the pool.
    shared: u64,
    /// Contents in the pool, at least 1.
    pool: u64,
    /// Bytes of each sector before the filler, names included.
    dense: [u16; SECTORS],
}

/// What a sector says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Content of its own: of this volume, block and generation.
    Own {
        /// The volume it was written to.
        volume: u16,
        /// The block address it was written to.
        block: u64,
        /// The generation of that block.
        generation: u32,
    },
    /// This content of the pool.
    Shared(u64),
}

/// Which content a block has: 0 marks the pool's.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Content {
    told: Told,
    /// Seed of its random bytes.
    key: u64,
}

impl Payload {
    /// Content for `volume`, of which `blocks` blocks are in use (that sets how large the pool is).
    ///
    /// # Errors
    /// [`Kind::Invalid`] when a ratio is below 1 or beyond what content can have.
    pub fn new(seed: u64, volume: u16, blocks: u64, reduction: Reduction) -> Result<Self> {
        check("dedupe", reduction.dedupe, DEDUPE_MAX)?;
        check("compression", reduction.compression, COMPRESSION_MAX)?;
        let (shared, pool) = sharing(reduction.dedupe, blocks.max(1));
        let dense = [SECTOR_BYTES as u16; SECTORS];
        // Measured on the contents of one volume for all: a copy's sectors are to be divided as its original's are, to the byte.
        let mut payload = Payload { seed, volume: 0, original: None, shared, pool, dense };
        if reduction.compression > 1.0 {
            payload.calibrate(reduction.compression);
        }
        Ok(Payload { volume, ..payload })
    }

    /// The same where each block's first generation is, byte for byte, that of another volume of the same size and
    /// reduction: what was copied is a duplicate of its original.
    #[must_use]
    pub fn copy_of(mut self, original: u16) -> Self {
        self.original = Some(original);
        self
    }

    /// Whether this generation is a copy of another volume's.
    pub fn is_copied(&self, generation: u32) -> bool {
        self.original.is_some() && generation == 1
    }

    /// Whether content of `volume` in this generation is what a block of this volume holds, or held.
    pub(crate) fn is_own(&self, volume: u16, generation: u32) -> bool {
        volume == self.holder(generation)
    }

    /// The volume whose content a generation is.
    fn holder(&self, generation: u32) -> u16 {
        self.original.filter(|_| generation == 1).unwrap_or(self.volume)
    }

    /// Writes sectors `from..from + into.len() / 512` of what `block` holds in `generation`.
    pub fn fill(&self, block: u64, generation: u32, from: usize, into: &mut [u8]) {
        debug_assert!(into.len() % SECTOR_BYTES == 0 && from + into.len() / SECTOR_BYTES <= SECTORS);
        let content = self.content(block, generation);
        for (sector, bytes) in (from..).zip(into.chunks_exact_mut(SECTOR_BYTES)) {
            self.sector(content, sector, bytes);
        }
    }

    /// Whether `sector` (its place in a block) holds what `block` must hold in `generation`.
    pub fn holds(&self, block: u64, generation: u32, place: usize, sector: &[u8]) -> bool {
        let mut expected = [0; SECTOR_BYTES];
        self.sector(self.content(block, generation), place, &mut expected);
        sector == expected
    }

    /// What a sector says it is, if it is ours, whole and lies in its place of a block; else nothing.
    pub fn tell(&self, place: usize, sector: &[u8]) -> Option<Told> {
        let told = names(self.seed, place, sector)?;
        let is = |key: u64| {
            let mut expected = [0; SECTOR_BYTES];
            self.sector(Content { told, key }, place, &mut expected);
            sector == expected
        };
        let whole = match told {
            Told::Own { volume, block, generation } => is(self.key(volume, block, generation)),
            Told::Shared(number) => {
                let holders = std::iter::once(self.volume).chain(self.original);
                holders.into_iter().any(|holder| is(self.pool_key(holder, number)))
            }
        };
        whole.then_some(told)
    }

    /// The number in the pool of what `block` holds in `generation`, if that is where it is from.
    pub fn shared(&self, block: u64, generation: u32) -> Option<u64> {
        match self.content(block, generation).told {
            Told::Shared(number) => Some(number),
            Told::Own { .. } => None,
        }
    }

    /// A number that two blocks have in common exactly when they hold the same (up to collisions of 64 bits).
    pub fn identity(&self, block: u64, generation: u32) -> u64 {
        self.content(block, generation).key
    }

    fn content(&self, block: u64, generation: u32) -> Content {
        let volume = self.holder(generation);
        let key = self.key(volume, block, generation);
        if (key >> 32) < self.shared {
            // The upper half chose the pool; the lower one, mixed anew, chooses within.
            let number = ((u128::from(mix(key)) * u128::from(self.pool)) >> 64) as u64;
            return Content { told: Told::Shared(number), key: self.pool_key(volume, number) };
        }
        Content { told: Told::Own { volume, block, generation }, key }
    }

    fn key(&self, volume: u16, block: u64, generation: u32) -> u64 {
        let place = mix(self.seed ^ block.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mix(place ^ (u64::from(generation) << 16 | u64::from(volume)).wrapping_mul(0xd6e8_feb8_6659_fd93))
    }

    /// Volumes of one seed have no content in common, so that each has the declared ratio by itself.
    fn pool_key(&self, volume: u16, number: u64) -> u64 {
        mix(mix(self.seed ^ u64::from(volume) << 48 ^ 0x5045_4f4f_4c00_0000).wrapping_add(number))
    }

    fn sector(&self, content: Content, place: usize, into: &mut [u8]) {
        let names = names_of(self.seed, content.told, place);
        into[..NAMES_BYTES].copy_from_slice(&names);
        let dense = usize::from(self.dense[place]);
        let mut stream = Stream::new(content.key, place);
        stream.fill(&mut into[NAMES_BYTES..dense]);
        into[dense..].fill(content.key as u8);
    }

    /// Finds of how many dense bytes what is asked for is left, by halving.
    fn calibrate(&mut self, compression: f64) {
        let target = BLOCK_BYTES as f64 / compression;
        let (mut low, mut high) = (NAMES_BYTES * SECTORS, BLOCK_BYTES);
        while high - low > 1 {
            let middle = (low + high) / 2;
            self.spread(middle);
            if self.left() > target { high = middle } else { low = middle }
        }
        self.spread(low);
    }

    fn spread(&mut self, dense: usize) {
        for (sector, bytes) in self.dense.iter_mut().enumerate() {
            // The first sectors take what does not divide.
            *bytes = (dense / SECTORS + usize::from(sector < dense % SECTORS)) as u16;
        }
    }

    /// Mean bytes that are left of a block.
    fn left(&self) -> f64 {
        const SAMPLES: u64 = 16;
        let mut block = [0; BLOCK_BYTES];
        let sizes = (0..SAMPLES).map(|n| {
            self.fill(n, 1, 0, &mut block);
            let (lz4, zstd) = left_of(&block);
            (lz4 * zstd) as f64
        });
        sizes.map(f64::sqrt).sum::<f64>() / SAMPLES as f64
    }
}

/// Bytes that LZ4 and zstd leave of a block; all of it where they do not help.
pub(crate) fn left_of(block: &[u8; BLOCK_BYTES]) -> (usize, usize) {
    let lz4 = lz4_flex::block::compress(block).len().min(BLOCK_BYTES);
    let zstd = zstd::bulk::compress(block, 1).map_or(BLOCK_BYTES, |left| left.len().min(BLOCK_BYTES));
    (lz4, zstd)
}

fn check(what: &str, ratio: f64, most: f64) -> Result<()> {
    if (1.0..=most).contains(&ratio) {
        return Ok(());
    }
    Err(Error::new(Kind::Invalid, format!("{what} {ratio} is not a ratio of payload"))
        .remedy(format!("write a ratio from 1 (nothing) to {most}")))
}

/// Of 2^32, how many blocks have their content from the pool, and how many contents are in it.
///
/// With a share p of n blocks drawing from a pool of k contents, n(1 − p) + k(1 − e^(−pn/k)) different blocks are
/// expected. Each content is drawn m times on average, so k = pn/m, and p follows from the ratio asked for.
fn sharing(dedupe: f64, blocks: u64) -> (u64, u64) {
    if dedupe <= 1.0 {
        return (0, 1);
    }
    let times = (4.0 * dedupe).max(8.0);
    let different = -(-times).exp_m1() / times;
    let share = ((1.0 - 1.0 / dedupe) / (1.0 - different)).min(1.0);
    let pool = (share * blocks as f64 / times).round().max(1.0);
    ((share * 2f64.powi(32)).round() as u64, pool as u64)
}

fn names_of(seed: u64, told: Told, place: usize) -> [u8; NAMES_BYTES] {
    let (kind, volume, number, generation) = match told {
        Told::Own { volume, block, generation } => (0, volume, block, generation),
        Told::Shared(number) => (1, 0, number, 0),
    };
    let mut names = [0; NAMES_BYTES];
    names[..4].copy_from_slice(&MAGIC);
    names[4] = kind;
    names[5] = place as u8;
    names[6..8].copy_from_slice(&volume.to_le_bytes());
    names[8..16].copy_from_slice(&number.to_le_bytes());
    names[16..20].copy_from_slice(&generation.to_le_bytes());
    let check = check_of(seed, kind, place as u8, volume, number, generation);
    names[20..].copy_from_slice(&check.to_le_bytes());
    names
}

fn check_of(seed: u64, kind: u8, place: u8, volume: u16, number: u64, generation: u32) -> u32 {
    let rest =
        u64::from(generation) << 32 | u64::from(volume) << 16 | u64::from(place) << 8 | u64::from(kind);
    (mix(mix(seed ^ number) ^ rest) >> 32) as u32
}

fn names(seed: u64, place: usize, sector: &[u8]) -> Option<Told> {
    let field = |from: usize, to: usize| {
        let mut bytes = [0; 8];
        bytes[..to - from].copy_from_slice(&sector[from..to]);
        u64::from_le_bytes(bytes)
    };
    let told = match sector[4] {
        0 => Told::Own { volume: field(6, 8) as u16, block: field(8, 16), generation: field(16, 20) as u32 },
        1 => Told::Shared(field(8, 16)),
        _ => return None,
    };
    (sector[..NAMES_BYTES] == names_of(seed, told, place)).then_some(told)
}

/// Whether this begins like a sector that the lab has written, under whatever seed.
pub fn is_ours(sector: &[u8]) -> bool {
    sector.len() >= NAMES_BYTES && sector[..4] == MAGIC
}

/// The finalizer of SplitMix64 (Steele, Lea and Flood 2014): every bit of the input moves every bit of the output.
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Random bytes by 64 x 64 → 128 bit multiplication, in the manner of wyrand (Wang Yi 2019): about 10 GB/s on one
/// core, which a load of a million writes a second needs.
struct Stream(u64);

impl Stream {
    fn new(key: u64, place: usize) -> Self {
        // Mixed, so that no sector's stream is part of another's.
        Stream(mix(key ^ ((place as u64 + 1) << 56)))
    }

    fn fill(&mut self, into: &mut [u8]) {
        let mut words = into.chunks_exact_mut(8);
        for word in &mut words {
            word.copy_from_slice(&self.word().to_le_bytes());
        }
        let rest = words.into_remainder();
        let last = self.word().to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }

    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0xa076_1d64_78bd_642f);
        let product = u128::from(self.0) * u128::from(self.0 ^ 0xe703_7ed1_a0b4_28db);
        (product >> 64) as u64 ^ product as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use xxhash_rust::xxh3::xxh3_64_with_seed;

    fn volume(reduction: Reduction, blocks: u64) -> Payload {
        Payload::new(7, 3, blocks, reduction).unwrap()
    }

    /// Achieved ratios, over all of a volume: by counting different contents, and by two compressors.
    fn achieved(payload: &Payload, blocks: u64) -> (f64, f64, f64) {
        let (mut different, mut lz4, mut zstd) = (HashSet::new(), 0, 0);
        let mut bytes = [0; BLOCK_BYTES];
        for block in 0..blocks {
            let generation = 1 + (mix(block) % 5) as u32;
            payload.fill(block, generation, 0, &mut bytes);
            different.insert(xxh3_64_with_seed(&bytes, 0));
            if block % 64 == 0 {
                lz4 += lz4_flex::block::compress(&bytes).len().min(BLOCK_BYTES);
                zstd += zstd::bulk::compress(&bytes, 1).unwrap().len();
            }
        }
        let sampled = (blocks.div_ceil(64) * BLOCK_BYTES as u64) as f64;
        (blocks as f64 / different.len() as f64, sampled / lz4 as f64, sampled / zstd as f64)
    }

    /// The lab's acceptance: what was asked for, within 2%.
    #[test]
    fn it_reduces_as_declared() {
        for (dedupe, compression) in [(1.0, 1.0), (1.2, 2.0), (2.0, 1.5), (3.0, 3.0), (5.0, 2.0)] {
            let payload = volume(Reduction { dedupe, compression }, 40_000);
            let (by_count, by_lz4, by_zstd) = achieved(&payload, 40_000);
            for (what, asked, got) in
                [("dedupe", dedupe, by_count), ("lz4", compression, by_lz4), ("zstd", compression, by_zstd)]
            {
                assert!((got / asked - 1.0).abs() < 0.02, "{what} {asked}: {got}");
            }
        }
    }

    #[test]
    fn what_cannot_be_had_is_refused() {
        for (dedupe, compression) in [(0.9, 1.0), (1.0, 0.5), (1.0, 50.0), (1000.0, 1.0), (f64::NAN, 1.0)] {
            assert!(
                Payload::new(1, 0, 100, Reduction { dedupe, compression }).is_err(),
                "{dedupe} {compression}"
            );
        }
    }

    #[test]
    fn a_sector_tells_what_it_is_and_nothing_when_it_is_changed() {
        let payload = volume(Reduction { dedupe: 2.0, compression: 2.0 }, 1000);
        let mut bytes = [0; BLOCK_BYTES];
        for block in 0..200 {
            payload.fill(block, 4, 0, &mut bytes);
            for (place, sector) in bytes.chunks_exact_mut(SECTOR_BYTES).enumerate() {
                assert!(payload.holds(block, 4, place, sector));
                assert!(!payload.holds(block, 3, place, sector) || payload.shared(block, 4).is_some());
                let told = payload.tell(place, sector).expect("it is ours");
                match payload.shared(block, 4) {
                    Some(number) => assert_eq!(told, Told::Shared(number)),
                    None => assert_eq!(told, Told::Own { volume: 3, block, generation: 4 }),
                }
                assert_eq!(payload.tell((place + 1) % SECTORS, sector), None, "another place of a block");
                let at = (block as usize * 37 + place * 5) % SECTOR_BYTES;
                sector[at] ^= 1;
                assert_eq!(payload.tell(place, sector), None, "a bit of byte {at} was changed");
                assert!(!payload.holds(block, 4, place, sector));
            }
        }
    }

    #[test]
    fn a_part_of_a_block_is_the_part_of_the_whole() {
        let payload = volume(Reduction { dedupe: 1.2, compression: 2.0 }, 1000);
        let (mut whole, mut part) = ([0; BLOCK_BYTES], [0; 3 * SECTOR_BYTES]);
        payload.fill(9, 2, 0, &mut whole);
        payload.fill(9, 2, 4, &mut part);
        assert_eq!(part, whole[4 * SECTOR_BYTES..7 * SECTOR_BYTES]);
    }

    /// Seeds are in committed bundles: what they make must not change.
    /// *Past bug*: how many bytes of a sector are dense was measured on each volume's own contents, and so differed by a byte now and then: copies of a
    /// volume that compresses were told to be corrupt.
    #[test]
    fn a_copy_is_its_original_to_the_byte() {
        let reduction = Reduction { dedupe: 1.2, compression: 2.0 };
        for seed in 0..16 {
            let original = Payload::new(seed, 0, 1000, reduction).unwrap();
            for volume in 1..4 {
                let copy = Payload::new(seed, volume, 1000, reduction).unwrap().copy_of(0);
                let (mut of, mut is) = ([0; BLOCK_BYTES], [0; BLOCK_BYTES]);
                for block in 0..16 {
                    original.fill(block, 1, 0, &mut of);
                    copy.fill(block, 1, 0, &mut is);
                    assert!(of == is, "seed {seed}, volume {volume}, block {block}");
                }
            }
        }
    }

    #[test]
    fn a_seed_makes_the_same_for_ever() {
        let payload = Payload::new(1, 2, 1000, Reduction { dedupe: 1.0, compression: 1.0 }).unwrap();
        let mut bytes = [0; BLOCK_BYTES];
        payload.fill(3, 4, 0, &mut bytes);
        assert_eq!(xxh3_64_with_seed(&bytes, 0), 11_997_845_735_835_867_544);
    }
}
