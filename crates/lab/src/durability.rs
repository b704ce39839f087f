//! What a volume must still hold after its target has died: which writes were acknowledged, and which of them flushed.
//!
//! A flush covers what had been acknowledged when it was issued, and nothing after that: this is the *flush line*. Of each
//! block with acknowledged writes behind the line there is a history, from what is durable to what was acknowledged last.
//! When the target dies, what it has not promised may be gone: a read may then return anything from the flush line on, and
//! both lines are kept until the block is written anew, so that what was lost is told by which promise it breaks.
//!
//! *Owns*: some 100 bytes for each block that was written since the last flush, or before the last outage and not since.

use crate::chaos::Promise;
use crate::generations::{BlockHasher, Generations, Lows};
use crate::payload::SECTORS;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

type ByBlock<T> = HashMap<u64, T, BuildHasherDefault<BlockHasher>>;

/// See the module.
#[derive(Debug, Default)]
pub struct Durability {
    /// Flushes issued.
    issued: u32,
    /// What was acknowledged before this flush was issued is durable.
    done: u32,
    behind: ByBlock<History>,
    lines: ByBlock<Lines>,
}

/// Of a block with writes behind the flush line.
#[derive(Debug)]
struct History {
    durable: Lows,
    /// What was acknowledged since, each with how many flushes had been issued by then.
    later: Vec<(u32, Lows)>,
}

/// What each sector of a block must be, by each promise, since the target died. 0: nothing is known to be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lines {
    /// The generation that had been acknowledged.
    pub acknowledged: [u32; SECTORS],
    /// The generation that had been flushed.
    pub flushed: [u32; SECTORS],
}

impl Durability {
    /// A flush is about to be issued: its number.
    pub(crate) fn begin_flush(&mut self) -> u32 {
        self.issued += 1;
        self.issued
    }

    /// That flush was acknowledged.
    pub(crate) fn flushed(&mut self, number: u32) {
        self.done = self.done.max(number);
        let done = self.done;
        self.behind.retain(|_, history| {
            history.advance(done);
            !history.later.is_empty()
        });
    }

    /// A write of sectors `from..to` of a block was acknowledged: what a read may return at least, before and since.
    pub(crate) fn acknowledged(&mut self, block: u64, from: usize, to: usize, before: Lows, since: Lows) {
        let (issued, done) = (self.issued, self.done);
        // What was lost with the target, and not written anew since, is no more durable for having been acknowledged.
        let durable = self.lines.get(&block).map_or(before, |lines| lines.durable(before));
        let history = self.behind.entry(block).or_insert_with(|| History { durable, later: Vec::new() });
        history.advance(done);
        match history.later.last_mut() {
            Some((at, lows)) if *at == issued => *lows = since,
            _ => history.later.push((issued, since)),
        }
        if let Some(lines) = self.lines.get_mut(&block) {
            lines.acknowledged[from..to].fill(0);
            lines.flushed[from..to].fill(0);
            if lines.acknowledged.iter().chain(&lines.flushed).all(|line| *line == 0) {
                self.lines.remove(&block);
            }
        }
    }

    /// The target has died: what it has not promised may be gone.
    pub(crate) fn crash(&mut self, generations: &mut Generations, promise: Promise) {
        for (block, history) in self.behind.drain() {
            let acknowledged = generations.lows(block);
            if promise == Promise::Flush {
                generations.lower(block, history.durable);
            }
            let lines = self
                .lines
                .entry(block)
                .or_insert(Lines { acknowledged: [0; SECTORS], flushed: [0; SECTORS] });
            for sector in 0..SECTORS {
                let line = &mut lines.acknowledged[sector];
                *line = acknowledged.of(sector).max(*line);
                let line = &mut lines.flushed[sector];
                *line = history.durable.of(sector).max(*line);
            }
        }
    }

    /// The oldest generation of a block that may come back.
    pub(crate) fn oldest(&self, block: u64) -> Option<u32> {
        self.behind.get(&block).map(|history| history.durable.oldest())
    }

    /// What had been acknowledged of each sector of a block, and what flushed, when a read of it is issued that may return no less
    /// than `lows`. Nothing where both are that.
    pub fn lines(&self, block: u64, lows: Lows) -> Option<Lines> {
        let (known, history) = (self.lines.get(&block), self.behind.get(&block));
        if known.is_none() && history.is_none() {
            return None;
        }
        let each = |sector: usize| {
            let low = lows.of(sector);
            let known = known.map(|lines| (lines.acknowledged[sector], lines.flushed[sector]));
            // 0 is a line that nothing is missing behind: the sector was written anew.
            let (acknowledged, flushed) = known.unwrap_or((0, 0));
            let durable = history.map_or(low, |history| history.durable.of(sector).min(low));
            (if acknowledged == 0 { low } else { acknowledged }, if flushed == 0 { durable } else { flushed })
        };
        let lines: [(u32, u32); SECTORS] = std::array::from_fn(each);
        Some(Lines { acknowledged: lines.map(|line| line.0), flushed: lines.map(|line| line.1) })
    }
}

impl Lines {
    /// What is known to be durable of a block of which `lows` was acknowledged.
    fn durable(&self, lows: Lows) -> Lows {
        let of = |sector: usize| match self.flushed[sector] {
            0 => lows.of(sector),
            flushed => flushed.min(lows.of(sector)),
        };
        Lows::Each(std::array::from_fn(of))
    }
}

impl History {
    fn advance(&mut self, done: u32) {
        let durable = self.later.iter().take_while(|(at, _)| *at < done).count();
        if let Some((_, lows)) = self.later.drain(..durable).next_back() {
            self.durable = lows;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A block of one volume, and what is known of it.
    struct Block {
        generations: Generations,
        durability: Durability,
    }

    impl Block {
        fn new() -> Self {
            let mut block = Block { generations: Generations::new(1), durability: Durability::default() };
            let first = block.generations.begin(0, 0, SECTORS);
            block.generations.end(0, 0, SECTORS, first, false);
            block
        }

        fn acknowledge(&mut self, generation: u32) {
            let before = self.generations.lows(0);
            self.generations.end(0, 0, SECTORS, generation, false);
            self.durability.acknowledged(0, 0, SECTORS, before, self.generations.lows(0));
        }

        fn write(&mut self) -> u32 {
            let generation = self.generations.begin(0, 0, SECTORS);
            self.acknowledge(generation);
            generation
        }

        fn flush(&mut self) {
            let number = self.durability.begin_flush();
            self.durability.flushed(number);
        }

        /// What had been acknowledged, and what flushed.
        fn lines(&self) -> (u32, u32) {
            let lows = self.generations.lows(0);
            let lines = self.durability.lines(0, lows);
            lines.map_or((lows.of(0), lows.of(0)), |lines| (lines.acknowledged[0], lines.flushed[0]))
        }

        fn range(&self) -> (u32, u32) {
            (self.generations.lows(0).of(0), self.generations.highs(0).of(0))
        }
    }

    #[test]
    fn a_flush_covers_what_was_acknowledged_before_it_and_no_more() {
        let mut block = Block::new();
        let covered = block.write();
        let flush = block.durability.begin_flush();
        let after = block.write();
        block.durability.flushed(flush);
        block.durability.crash(&mut block.generations, Promise::Flush);
        assert_eq!(block.range(), (covered, after));
        assert_eq!(block.lines(), (after, covered));
    }

    #[test]
    fn whoever_promises_on_acknowledgement_may_lose_nothing() {
        let mut block = Block::new();
        let last = block.write();
        block.durability.crash(&mut block.generations, Promise::Ack);
        assert_eq!(block.range(), (last, last));
        assert_eq!(block.lines(), (last, 1), "and it is known what was flushed");
    }

    /// A read that is asked again after the outage may be answered when its block has been written anew.
    #[test]
    fn what_was_lost_is_not_called_flushed_when_it_is_written_anew() {
        let mut block = Block::new();
        let flushed = block.write();
        block.flush();
        let lost = block.write();
        block.durability.crash(&mut block.generations, Promise::Ack);
        assert_eq!(block.lines(), (lost, flushed));
        let anew = block.write();
        assert_eq!(block.lines(), (anew, flushed));
        block.durability.crash(&mut block.generations, Promise::Ack);
        assert_eq!(block.lines(), (anew, flushed), "the next outage finds no more flushed than there was");
        block.write();
        block.flush();
        assert_eq!(block.durability.lines(0, block.generations.lows(0)), None);
    }

    #[test]
    fn a_flush_that_was_under_way_says_nothing_of_what_came_after_the_outage() {
        let mut block = Block::new();
        let flushed = block.write();
        block.flush();
        let gone = block.write();
        let flush = block.durability.begin_flush();
        block.durability.crash(&mut block.generations, Promise::Flush);
        // Asked again of whoever came back, who answers at once and knows nothing of it.
        block.durability.flushed(flush);
        assert_eq!(block.range(), (flushed, gone));
        let new = block.write();
        assert_eq!(block.range(), (new, new));
        block.durability.crash(&mut block.generations, Promise::Flush);
        assert_eq!(block.range(), (flushed, new), "it was never flushed");
        block.write();
        block.flush();
        assert!(block.durability.behind.is_empty() && block.durability.lines.is_empty());
    }

    proptest! {
        /// A medium with a cache: flushes write back, a death drops what the cache has, or a part of it. What it holds is
        /// always within what may be read, and never below the flush line.
        #[test]
        fn what_a_cache_may_lose_is_never_refused(steps in prop::collection::vec((0u8..5, any::<u16>()), 1..120)) {
            let mut block = Block::new();
            let (mut medium, mut cache): (u32, Vec<u32>) = (1, Vec::new());
            let mut flying: Vec<u32> = Vec::new();
            let mut flushes: Vec<u32> = Vec::new();
            for (what, chance) in steps {
                let chance = usize::from(chance);
                match what {
                    0 => flying.push(block.generations.begin(0, 0, SECTORS)),
                    1 if !flying.is_empty() => {
                        let generation = flying.swap_remove(chance % flying.len());
                        cache.push(generation);
                        block.acknowledge(generation);
                    }
                    2 => flushes.push(block.durability.begin_flush()),
                    3 if !flushes.is_empty() => {
                        medium = cache.drain(..).next_back().unwrap_or(medium);
                        let number = flushes.swap_remove(chance % flushes.len());
                        block.durability.flushed(number);
                    }
                    4 => {
                        // Some of it had been written back already.
                        medium = cache.drain(..).take(chance % 3).next_back().unwrap_or(medium);
                        block.durability.crash(&mut block.generations, Promise::Flush);
                        flushes.clear();
                    }
                    _ => {}
                }
                let held = cache.last().copied().unwrap_or(medium);
                let (low, high) = block.range();
                prop_assert!((low..=high).contains(&held), "{held} in {low}..={high}");
                let (_, flushed) = block.lines();
                prop_assert!(medium >= flushed.min(held) && held >= flushed, "{medium}, {held} of {flushed}");
            }
        }
    }
}
