//! What a volume must hold: the generation of each sector, kept in memory and never on the medium.
//!
//! A block that was written whole, and that nothing writes now, is one number. A block whose sectors differ is eight.
//! While writes of a block are in flight, each of its sectors has a lowest generation that a read may return (what was
//! acknowledged before) and a highest one (what was issued last): with two overlapping writes nobody can know which
//! of them the medium applied last, nor that it applied one after the other, and neither is an error. Until the next
//! write that has a sector for itself, each byte of it may be of either.
//!
//! *Promises*: a generation is issued once for each block, and none after it is lower; but a part of a block may be written again as it is. *Owns*: 4 bytes for each block,
//! 36 for one whose sectors differ, about 170 for one that is being written in part or twice.

use crate::payload::{SECTORS, mix};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Generations end here: the two bits above tell what a block's number is.
pub const GENERATION_MAX: u32 = (1 << 30) - 1;

const SETTLED: u32 = 0 << 30;
const WRITING: u32 = 1 << 30;
const MIXED: u32 = 2 << 30;
const OPEN: u32 = 3 << 30;
const STATE: u32 = 3 << 30;

/// The lowest generations of a block's sectors when a read of it was issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lows {
    /// All the same.
    Same(u32),
    /// One for each sector.
    Each([u32; SECTORS]),
}

impl Lows {
    /// That of one sector.
    pub fn of(self, sector: usize) -> u32 {
        match self {
            Lows::Same(low) => low,
            Lows::Each(lows) => lows[sector],
        }
    }

    /// The oldest of them.
    pub(crate) fn oldest(self) -> u32 {
        match self {
            Lows::Same(low) => low,
            Lows::Each(lows) => lows.into_iter().min().unwrap_or(0),
        }
    }
}

/// What every sector of a volume must hold.
#[derive(Debug)]
pub struct Generations {
    blocks: Vec<u32>,
    mixed: Vec<[u32; SECTORS]>,
    mixed_free: Vec<u32>,
    open: HashMap<u64, Open, BuildHasherDefault<BlockHasher>>,
}

/// A block with more going on than one write of all of it.
#[derive(Debug)]
struct Open {
    sectors: [Sector; SECTORS],
    /// Writes in flight.
    writes: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sector {
    /// A read may return no older generation.
    low: u32,
    /// Nor a newer one.
    high: u32,
    /// That of the write which found no other in flight: of those in flight together with it, any may be the last.
    first: u32,
    /// From this generation on there is a part of each, maybe: they were in flight together, and none was alone since. 0 where none were.
    mixed: u32,
    /// Writes in flight.
    busy: u32,
}

impl Sector {
    fn settled(generation: u32) -> Self {
        Sector { low: generation, high: generation, first: generation, mixed: 0, busy: 0 }
    }

    fn begin(&mut self, generation: u32) {
        if self.busy == 0 {
            self.first = generation;
        } else if self.mixed == 0 {
            self.mixed = self.first;
        }
        self.busy += 1;
        self.high = generation;
    }

    fn moving(self) -> u32 {
        match self.mixed {
            0 if self.busy > 0 => self.first,
            0 => self.high + 1,
            mixed => mixed,
        }
    }

    fn end(&mut self, failed: bool) {
        self.busy -= 1;
        if failed {
            // It happened or it did not: what may be read stays as wide as it was.
            return;
        }
        self.low = self.low.max(self.first);
        // No other was there with the last.
        if self.busy == 0 && self.low == self.high {
            self.mixed = 0;
        }
    }
}

impl Generations {
    /// For `blocks` blocks that nobody has written.
    pub fn new(blocks: u64) -> Self {
        Generations {
            blocks: vec![SETTLED; blocks as usize],
            mixed: Vec::new(),
            mixed_free: Vec::new(),
            open: HashMap::default(),
        }
    }

    /// Blocks of the volume.
    pub fn blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// A write of sectors `from..to` of `block` is about to be issued: the generation it has.
    ///
    /// # Panics
    /// When a block was written 2^30 times.
    pub fn begin(&mut self, block: u64, from: usize, to: usize) -> u32 {
        let word = self.blocks[block as usize];
        if word & STATE == SETTLED && (from, to) == (0, SECTORS) {
            let generation = next(word);
            self.blocks[block as usize] = WRITING | generation;
            return generation;
        }
        let open = self.open(block);
        let generation = next(open.sectors.iter().map(|sector| sector.high).max().unwrap_or(0));
        open.writes += 1;
        open.sectors[from..to].iter_mut().for_each(|sector| sector.begin(generation));
        generation
    }

    /// The generation of all of a block that nothing writes now; nothing where sectors differ, or nobody has written it.
    pub(crate) fn settled(&self, block: u64) -> Option<u32> {
        let word = self.blocks[block as usize];
        (word & STATE == SETTLED && word != SETTLED).then_some(word & !STATE)
    }

    /// Sectors of a block that has [settled](Self::settled) are about to be written as they are. Ends as every write does.
    pub(crate) fn begin_again(&mut self, block: u64, from: usize, to: usize) {
        let open = self.open(block);
        open.writes += 1;
        open.sectors[from..to].iter_mut().for_each(|sector| sector.begin(sector.high));
    }

    /// The write of `from..to` that had this generation is acknowledged; or it is not and, `failed`, happened or did
    /// not, or in part.
    pub fn end(&mut self, block: u64, from: usize, to: usize, generation: u32, failed: bool) {
        if self.blocks[block as usize] == WRITING | generation && !failed {
            self.blocks[block as usize] = SETTLED | generation;
            return;
        }
        let open = self.open(block);
        open.writes -= 1;
        open.sectors[from..to].iter_mut().for_each(|sector| sector.end(failed));
        if open.writes == 0 {
            self.settle(block);
        }
    }

    /// What a read that is issued now may return at least.
    pub fn lows(&self, block: u64) -> Lows {
        let word = self.blocks[block as usize];
        match word & STATE {
            SETTLED => Lows::Same(word & !STATE),
            WRITING => Lows::Same((word & !STATE) - 1),
            MIXED => Lows::Each(self.mixed[(word & !STATE) as usize]),
            _ => Lows::Each(self.open[&block].sectors.map(|sector| sector.low)),
        }
    }

    /// What a read that ends now may return at most, of each sector.
    pub fn highs(&self, block: u64) -> Lows {
        let word = self.blocks[block as usize];
        match word & STATE {
            SETTLED | WRITING => Lows::Same(word & !STATE),
            MIXED => Lows::Each(self.mixed[(word & !STATE) as usize]),
            _ => Lows::Each(self.open[&block].sectors.map(|sector| sector.high)),
        }
    }

    /// The first generation of each sector of which there may be a part: those in flight now, and those that were together; where none
    /// is, that which the next write will have.
    pub(crate) fn moving(&self, block: u64) -> Lows {
        let word = self.blocks[block as usize];
        match word & STATE {
            SETTLED => Lows::Same((word & !STATE) + 1),
            WRITING => Lows::Same(word & !STATE),
            MIXED => Lows::Each(self.mixed[(word & !STATE) as usize].map(|generation| generation + 1)),
            _ => Lows::Each(self.open[&block].sectors.map(|sector| sector.moving())),
        }
    }

    /// What was acknowledged may be gone: a read of each sector may return these generations from now on.
    pub(crate) fn lower(&mut self, block: u64, lows: Lows) {
        let open = self.open(block);
        for (place, sector) in open.sectors.iter_mut().enumerate() {
            sector.low = sector.low.min(lows.of(place));
        }
        if open.writes == 0 {
            self.settle(block);
        }
    }

    fn open(&mut self, block: u64) -> &mut Open {
        let word = &mut self.blocks[block as usize];
        let number = *word & !STATE;
        let opened = match *word & STATE {
            OPEN => None,
            MIXED => {
                self.mixed_free.push(number);
                Some(Open { sectors: self.mixed[number as usize].map(Sector::settled), writes: 0 })
            }
            WRITING => {
                let sector = Sector { low: number - 1, high: number, first: number, mixed: 0, busy: 1 };
                Some(Open { sectors: [sector; SECTORS], writes: 1 })
            }
            _ => Some(Open { sectors: [Sector::settled(number); SECTORS], writes: 0 }),
        };
        *word = OPEN;
        if let Some(open) = opened {
            self.open.insert(block, open);
        }
        self.open.get_mut(&block).expect("a block that is marked open is in the table")
    }

    /// Keeps a block that nothing writes any more in as few bytes as it needs.
    fn settle(&mut self, block: u64) {
        let sectors = self.open[&block].sectors;
        if sectors.iter().any(|sector| sector.low != sector.high) {
            return;
        }
        self.open.remove(&block);
        let lows = sectors.map(|sector| sector.low);
        self.blocks[block as usize] =
            if lows.iter().all(|low| *low == lows[0]) { SETTLED | lows[0] } else { MIXED | self.keep(lows) };
    }

    fn keep(&mut self, lows: [u32; SECTORS]) -> u32 {
        if let Some(free) = self.mixed_free.pop() {
            self.mixed[free as usize] = lows;
            return free;
        }
        self.mixed.push(lows);
        (self.mixed.len() - 1) as u32
    }
}

fn next(word: u32) -> u32 {
    let generation = word & !STATE;
    assert!(generation < GENERATION_MAX, "a block was written {GENERATION_MAX} times");
    generation + 1
}

/// Block addresses are numbers that nobody chooses against us.
#[derive(Default)]
pub(crate) struct BlockHasher(u64);

impl Hasher for BlockHasher {
    fn write(&mut self, _: &[u8]) {
        unreachable!("block addresses are hashed as numbers");
    }

    fn write_u64(&mut self, block: u64) {
        self.0 = mix(block);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(generations: &Generations, block: u64, sector: usize) -> (u32, u32) {
        (generations.lows(block).of(sector), generations.highs(block).of(sector))
    }

    #[test]
    fn a_write_of_a_whole_block_takes_no_room() {
        let mut generations = Generations::new(4);
        assert_eq!(range(&generations, 2, 0), (0, 0), "never written");
        for round in 1..=3 {
            assert_eq!(generations.begin(2, 0, SECTORS), round);
            assert_eq!(range(&generations, 2, 5), (round - 1, round));
            generations.end(2, 0, SECTORS, round, false);
            assert_eq!(range(&generations, 2, 5), (round, round));
        }
        assert!(generations.open.is_empty() && generations.mixed.is_empty());
    }

    #[test]
    fn what_is_written_as_it_was_is_known_all_the_while() {
        let mut generations = Generations::new(1);
        assert_eq!(generations.settled(0), None);
        let a = generations.begin(0, 0, SECTORS);
        assert_eq!(generations.settled(0), None);
        generations.end(0, 0, SECTORS, a, false);
        assert_eq!(generations.settled(0), Some(a));
        generations.begin_again(0, 2, 4);
        assert_eq!(generations.settled(0), None);
        assert_eq!(range(&generations, 0, 3), (a, a));
        // One of all of it comes meanwhile: of the two either may be the last where both write.
        let b = generations.begin(0, 0, SECTORS);
        assert_eq!((range(&generations, 0, 3), range(&generations, 0, 5)), ((a, b), (a, b)));
        generations.end(0, 2, 4, a, false);
        generations.end(0, 0, SECTORS, b, false);
        assert_eq!((range(&generations, 0, 3), range(&generations, 0, 5)), ((a, b), (b, b)));
        for failed in [false, true] {
            let c = generations.begin(0, 0, SECTORS);
            generations.end(0, 0, SECTORS, c, false);
            generations.begin_again(0, 0, 1);
            generations.end(0, 0, 1, c, failed);
            assert_eq!(generations.settled(0), Some(c));
            assert!(generations.open.is_empty());
        }
    }

    #[test]
    fn of_two_writes_in_flight_together_either_may_be_the_last() {
        let mut generations = Generations::new(1);
        let (a, b) = (generations.begin(0, 0, SECTORS), generations.begin(0, 0, SECTORS));
        generations.end(0, 0, SECTORS, b, false);
        assert_eq!(range(&generations, 0, 0), (a, b), "the first may still come and be the last");
        generations.end(0, 0, SECTORS, a, false);
        assert_eq!(range(&generations, 0, 0), (a, b));
        let c = generations.begin(0, 0, SECTORS);
        generations.end(0, 0, SECTORS, c, false);
        assert_eq!(range(&generations, 0, 0), (c, c));
        assert!(generations.open.is_empty());
    }

    #[test]
    fn a_failed_write_happened_or_did_not() {
        let mut generations = Generations::new(1);
        let a = generations.begin(0, 0, SECTORS);
        generations.end(0, 0, SECTORS, a, false);
        let b = generations.begin(0, 0, SECTORS);
        generations.end(0, 0, SECTORS, b, true);
        assert_eq!(range(&generations, 0, 7), (a, b));
    }

    #[test]
    fn a_part_of_a_block_is_its_own() {
        let mut generations = Generations::new(1);
        let a = generations.begin(0, 0, SECTORS);
        generations.end(0, 0, SECTORS, a, false);
        let b = generations.begin(0, 2, 4);
        generations.end(0, 2, 4, b, false);
        assert_eq!((range(&generations, 0, 1), range(&generations, 0, 3)), ((a, a), (b, b)));
        assert!(generations.open.is_empty());
        let c = generations.begin(0, 0, SECTORS);
        assert!(c > b);
        generations.end(0, 0, SECTORS, c, false);
        assert_eq!((range(&generations, 0, 7), generations.mixed_free.len()), ((c, c), 1));
    }

    /// A sector on a medium: the generations that its two halves are of.
    type Halves = [u32; 2];
    /// A write: its block, the sectors from and to, its generation, and the sectors' halves that are still to be applied.
    type Flying = (u64, usize, usize, u32, Vec<(usize, usize)>);

    /// Each half is something that may be read; and what is older than all that may be there in part is there whole.
    fn may_be_read(generations: &Generations, block: u64, sector: usize, held: Halves) -> bool {
        let (low, high) = range(generations, block, sector);
        let moving = generations.moving(block).of(sector);
        let older: Vec<u32> = held.into_iter().filter(|generation| *generation < moving).collect();
        held.iter().all(|generation| (low..=high).contains(generation))
            && older.iter().all(|generation| *generation == older[0])
    }

    #[test]
    fn of_two_writes_in_flight_together_a_part_of_each_may_stay() {
        let mut generations = Generations::new(1);
        let may = |generations: &Generations, held| may_be_read(generations, 0, 0, held);
        let a = generations.begin(0, 0, SECTORS);
        generations.end(0, 0, SECTORS, a, false);
        let (b, c) = (generations.begin(0, 0, SECTORS), generations.begin(0, 0, 4));
        generations.end(0, 0, SECTORS, b, false);
        generations.end(0, 0, 4, c, false);
        assert!(may(&generations, [b, c]) && may(&generations, [c, b]) && !may(&generations, [a, c]));
        assert!(!may_be_read(&generations, 0, 4, [b, c]), "the second was not there");
        // The next is over a part of each, until it is there.
        let d = generations.begin(0, 0, SECTORS);
        assert!(may(&generations, [b, c]) && may(&generations, [b, d]));
        generations.end(0, 0, SECTORS, d, false);
        assert!(may(&generations, [d, d]) && !may(&generations, [c, d]) && generations.open.is_empty());
        // One after the other they leave no part.
        let e = generations.begin(0, 0, SECTORS);
        generations.end(0, 0, SECTORS, e, true);
        assert!(may(&generations, [e, e]) && may(&generations, [d, d]) && !may(&generations, [d, e]));
    }

    proptest! {
        /// A medium that applies each write at some moment between its issue and its end, sector by sector and half by half: what it
        /// holds is always within what may be read.
        #[test]
        fn what_a_medium_holds_is_never_refused(steps in prop::collection::vec((0u8..4, 0usize..8, 1usize..=8, any::<u16>()), 1..200)) {
            let mut generations = Generations::new(2);
            let mut medium = [[Halves::default(); SECTORS]; 2];
            let mut flying: Vec<Flying> = Vec::new();
            for (what, from, count, chance) in steps {
                let chance = usize::from(chance);
                match what {
                    0 | 1 => {
                        let (block, to) = ((chance % 2) as u64, (from + count).min(SECTORS));
                        let (from, to) = if what == 1 { (0, SECTORS) } else { (from, to) };
                        let generation = generations.begin(block, from, to);
                        let halves = (from..to).flat_map(|sector| [(sector, 0), (sector, 1)]).collect();
                        flying.push((block, from, to, generation, halves));
                    }
                    2 if !flying.is_empty() => {
                        let at = chance % flying.len();
                        let (block, _, _, generation, left) = &mut flying[at];
                        if !left.is_empty() {
                            let (sector, half) = left.remove(chance / 7 % left.len());
                            medium[*block as usize][sector][half] = *generation;
                        }
                    }
                    3 if !flying.is_empty() => {
                        let (block, from, to, generation, mut left) = flying.swap_remove(chance % flying.len());
                        let failed = chance % 5 == 0;
                        if failed {
                            // A sector that has come at all has come whole.
                            let all = left.clone();
                            left.retain(|(sector, half)| !all.contains(&(*sector, 1 - half)));
                        }
                        left.iter().for_each(|(sector, half)| medium[block as usize][*sector][*half] = generation);
                        generations.end(block, from, to, generation, failed);
                    }
                    _ => {}
                }
                for (block, sectors) in medium.iter().enumerate() {
                    for (sector, held) in sectors.iter().enumerate() {
                        let right = may_be_read(&generations, block as u64, sector, *held);
                        prop_assert!(right, "{held:?} of {:?}", range(&generations, block as u64, sector));
                    }
                }
            }
        }
    }
}
