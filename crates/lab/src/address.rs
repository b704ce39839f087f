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
    /// Of a stream with a mix of alignments, where it goes to a place by chance: the one that was drawn for it, in bytes; `offset` is a
    /// multiple of it.
    pub align: Option<u64>,
}

/// What addresses divide by, of I/Os that go to a place by chance.
#[derive(Clone, Debug)]
enum Alignment {
    /// Each by its own size: the largest power of two that is not above it.
    OwnSize,
    /// All by the same.
    One(u64),
    /// Each by one that is drawn for it.
    Mix(Shares<u64>),
}

impl Alignment {
    fn of(stream: &Stream) -> Self {
        let one = stream.alignments.iter().find(|(_, weight)| *weight > 0.0);
        match one {
            None => Alignment::OwnSize,
            Some(_) if stream.mixes_alignments() => Alignment::Mix(Shares::new(&stream.alignments)),
            Some((align, _)) => Alignment::One(*align),
        }
    }
}

/// Draws the I/Os of one stream.
#[derive(Clone, Debug)]
pub struct Addresses {
    chance: Chance,
    read: Share,
    random: Share,
    sizes: Shares<u64>,
    alignment: Alignment,
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
            alignment: Alignment::of(stream),
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
            return (bytes > 0).then_some(in_order(op, offset, bytes));
        }
        if !self.chance.is(self.random) {
            let offset = if self.next + bytes > self.to { self.from } else { self.next };
            self.next = offset + bytes;
            return Some(in_order(op, offset, bytes));
        }
        let (align, drawn) = self.align(bytes);
        let hot = !self.spots.is_empty() && self.chance.is(self.hot);
        let offset = if hot {
            let (from, to) = self.spots[self.chance.below(self.spots.len() as u64) as usize];
            self.within(from, to, bytes, align)
        } else {
            self.beside_spots(bytes, align)
        };
        self.next = offset + bytes;
        // By where it goes, and not by what was meant: where there is no room beside the spots, that is told.
        let hot = self.is_hot(offset);
        Some(Draw { op, fua: false, offset, bytes, random: true, hot, align: drawn })
    }

    /// What the address of an I/O of so many bytes divides by, and whether that was drawn. A number is drawn only of a mix: without one a seed
    /// leads to what it led to before there were mixes.
    fn align(&mut self, bytes: u64) -> (u64, Option<u64>) {
        match &self.alignment {
            Alignment::OwnSize => (1 << bytes.ilog2(), None),
            Alignment::One(align) => (*align, None),
            Alignment::Mix(shares) => {
                let align = shares.draw(&mut self.chance);
                (align, Some(align))
            }
        }
    }

    /// Evenly among the places that are in no hotspot; where none is found, anywhere.
    fn beside_spots(&mut self, bytes: u64, align: u64) -> u64 {
        let mut offset = self.within(self.from, self.to, bytes, align);
        for _ in 0..DRAWS_MAX {
            if !self.is_hot(offset) {
                break;
            }
            offset = self.within(self.from, self.to, bytes, align);
        }
        offset
    }

    fn is_hot(&self, offset: u64) -> bool {
        let after = self.spots.partition_point(|(from, _)| *from <= offset);
        after > 0 && offset < self.spots[after - 1].1
    }

    /// Evenly among the aligned places of a range in which `bytes` fit; without any, the one nearest before it.
    fn within(&mut self, from: u64, to: u64, bytes: u64, align: u64) -> u64 {
        let first = from.next_multiple_of(align);
        match to.checked_sub(first.saturating_add(bytes)) {
            Some(span) => first + self.chance.below(span / align + 1) * align,
            // Of a mix it is told how much was aligned to what, so it is a multiple here, too; the workload's check has seen that the zone has one.
            None if matches!(self.alignment, Alignment::Mix(_)) => (from / align * align)
                .min((self.to - bytes) / align * align)
                .max(self.from.next_multiple_of(align)),
            None => (from / align * align).min(self.to - bytes).max(self.from),
        }
    }
}

/// It follows on the one before.
fn in_order(op: Op, offset: u64, bytes: u64) -> Draw {
    Draw { op, fua: false, offset, bytes, random: false, hot: false, align: None }
}

#[cfg(test)]
mod tests;
