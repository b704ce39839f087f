//! Where the next I/O of a stream goes.

use crate::chance::{Chance, Share, Shares};
use crate::trace::Op;
use crate::workload::{Stream, Volume};

/// Draws of a place outside the hotspots at most: of a zone of which they are nine tenths, one in a thousand finds none.
const DRAWS_MAX: usize = 64;

/// One I/O, as drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// What it does.
    pub op: Op,
    /// It has to be durable when it is answered.
    pub fua: bool,
    /// First byte in the volume.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// Goes to a place by chance; else follows on the one before.
    pub random: bool,
    /// Begins in a hotspot, by chance.
    pub hot: bool,
}

/// Draws the I/Os of one stream.
#[derive(Clone, Debug)]
pub struct Addresses {
    chance: Chance,
    read: Share,
    random: Share,
    sizes: Shares<u64>,
    align: u64,
    from: u64,
    to: u64,
    hot: Share,
    /// From and to of each hotspot, in bytes, in order.
    spots: Vec<(u64, u64)>,
    /// Where the one before ended.
    next: u64,
    /// Goes over the zone once, in order, and ends.
    pass: bool,
}

impl Addresses {
    /// For a stream of a workload that was checked.
    pub fn new(stream: &Stream, volume: &Volume, seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let (from, to) = stream.span(volume);
        let mut addresses = Addresses {
            read: Share::new(stream.read),
            random: Share::new(stream.random),
            sizes: Shares::new(&stream.sizes),
            align: stream.align,
            from,
            to,
            hot: Share::new(stream.hotspots.map_or(0.0, |spots| spots.share)),
            spots: Vec::new(),
            next: from,
            pass: false,
            chance: chance.clone(),
        };
        if let Some(hotspots) = stream.hotspots {
            let slice = (to - from) / u64::from(hotspots.count);
            // Each spot lies somewhere within its slice of the zone and holds the largest I/O.
            let spot = ((slice as f64 * hotspots.range) as u64).max(stream.largest()).min(slice);
            addresses.spots = (0..u64::from(hotspots.count))
                .map(|number| from + number * slice + chance.below(slice - spot + 1))
                .map(|start| (start, start + spot))
                .collect();
        }
        addresses.chance = chance;
        addresses
    }

    /// From here on once over the zone, in order and to its last byte.
    pub fn set_pass(&mut self) {
        (self.pass, self.next) = (true, self.from);
    }

    /// The next I/O; nothing at the end of a pass.
    pub fn draw(&mut self) -> Option<Draw> {
        let op = if self.chance.is(self.read) { Op::Read } else { Op::Write };
        let bytes = self.sizes.draw(&mut self.chance);
        if self.pass {
            let (offset, bytes) = (self.next, bytes.min(self.to - self.next));
            self.next += bytes;
            return (bytes > 0).then_some(Draw { op, fua: false, offset, bytes, random: false, hot: false });
        }
        if !self.chance.is(self.random) {
            let offset = if self.next + bytes > self.to { self.from } else { self.next };
            self.next = offset + bytes;
            return Some(Draw { op, fua: false, offset, bytes, random: false, hot: false });
        }
        let hot = !self.spots.is_empty() && self.chance.is(self.hot);
        let offset = if hot {
            let (from, to) = self.spots[self.chance.below(self.spots.len() as u64) as usize];
            self.within(from, to, bytes)
        } else {
            self.beside_spots(bytes)
        };
        self.next = offset + bytes;
        // By where it goes, and not by what was meant: where there is no room beside the spots, that is told.
        let hot = self.is_hot(offset);
        Some(Draw { op, fua: false, offset, bytes, random: true, hot })
    }

    /// Evenly among the places that are in no hotspot; where none is found, anywhere.
    fn beside_spots(&mut self, bytes: u64) -> u64 {
        let mut offset = self.within(self.from, self.to, bytes);
        for _ in 0..DRAWS_MAX {
            if !self.is_hot(offset) {
                break;
            }
            offset = self.within(self.from, self.to, bytes);
        }
        offset
    }

    fn is_hot(&self, offset: u64) -> bool {
        let after = self.spots.partition_point(|(from, _)| *from <= offset);
        after > 0 && offset < self.spots[after - 1].1
    }

    /// Evenly among the aligned places of a range in which `bytes` fit; without any, the one nearest before it.
    fn within(&mut self, from: u64, to: u64, bytes: u64) -> u64 {
        // By its own size: the largest power of two that is not above it.
        let align = if self.align > 0 { self.align } else { 1 << bytes.ilog2() };
        let first = from.next_multiple_of(align);
        match to.checked_sub(first + bytes) {
            Some(span) => first + self.chance.below(span / align + 1) * align,
            None => (from / align * align).min(self.to - bytes).max(self.from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Hotspots;
    use crate::workload::tests::reads;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn drawn(stream: &Stream, volume: &Volume, many: usize) -> Vec<Draw> {
        let mut addresses = Addresses::new(stream, volume, 11);
        (0..many).map(|_| addresses.draw().unwrap()).collect()
    }

    #[test]
    fn sequential_follows_on_and_begins_again() {
        let workload = reads(64 << 10);
        let stream = Stream { random: 0.0, sizes: vec![(24 << 10, 1.0)], ..workload.streams[0].clone() };
        let places: Vec<u64> =
            drawn(&stream, &workload.volumes[0], 5).iter().map(|draw| draw.offset).collect();
        assert_eq!(places, [0, 24 << 10, 0, 24 << 10, 0]);
    }

    #[test]
    fn hotspots_get_their_share_and_no_more() {
        let workload = reads(1 << 30);
        let stream = Stream {
            hotspots: Some(Hotspots { count: 30, range: 0.15, share: 0.83 }),
            zone: (0.0, 0.8),
            ..workload.streams[0].clone()
        };
        let draws = drawn(&stream, &workload.volumes[0], 200_000);
        // By the places alone: of those that are asked for most often, which have 15% of the zone, the share.
        let mut asked: HashMap<u64, usize> = HashMap::new();
        draws.iter().for_each(|draw| *asked.entry(draw.offset).or_default() += 1);
        let mut often: Vec<usize> = asked.into_values().collect();
        often.sort_unstable_by_key(|times| std::cmp::Reverse(*times));
        let range = (0.15 * 0.8 * f64::from(1 << 30) / 4096.0) as usize;
        let share = often[..range].iter().sum::<usize>() as f64 / draws.len() as f64;
        assert!((share - 0.83).abs() < 0.01, "{share}");
        let hot = draws.iter().filter(|draw| draw.hot).count() as f64 / draws.len() as f64;
        assert!((hot - 0.83).abs() < 0.005, "{hot}");
        assert!(draws.iter().all(|draw| draw.offset + draw.bytes <= (0.8 * f64::from(1 << 30)) as u64));
    }

    #[test]
    fn a_pass_touches_every_byte_once() {
        let workload = reads(100 << 10);
        let stream = Stream { sizes: vec![(24 << 10, 1.0)], ..workload.streams[0].clone() };
        let mut addresses = Addresses::new(&stream, &workload.volumes[0], 1);
        addresses.set_pass();
        let places: Vec<_> = std::iter::from_fn(|| addresses.draw())
            .map(|draw| (draw.offset >> 10, draw.bytes >> 10))
            .collect();
        assert_eq!(places, [(0, 24), (24, 24), (48, 24), (72, 24), (96, 4)]);
    }

    proptest! {
        /// Whatever the mix, an I/O lies within its zone, on sectors, and where its alignment can be had, on that.
        #[test]
        fn every_io_lies_in_its_zone(seed in any::<u64>(), random in 0.0f64..=1.0, from in 0.0f64..0.5, to in 0.6f64..=1.0,
                                     align in prop::sample::select(vec![0u64, 512, 4096, 65536]),
                                     spots in prop::option::of((1u32..40, 0.01f64..=1.0))) {
            let workload = reads(8 << 20);
            let stream = Stream {
                random,
                zone: (from, to),
                align,
                sizes: vec![(512, 1.0), (4096, 2.0), (12 << 10, 1.0), (256 << 10, 0.5)],
                hotspots: spots.map(|(count, range)| Hotspots { count, range, share: 0.5 }),
                ..workload.streams[0].clone()
            };
            let (first, end) = stream.span(&workload.volumes[0]);
            let mut addresses = Addresses::new(&stream, &workload.volumes[0], seed);
            for _ in 0..500 {
                let draw = addresses.draw().unwrap();
                prop_assert!(draw.offset >= first && draw.offset + draw.bytes <= end, "{draw:?} in {first}..{end}");
                prop_assert_eq!(draw.offset % 512, 0);
            }
        }
    }
}
