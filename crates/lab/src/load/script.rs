//! The requests of a trace as a stream of the load engine, each at its moment.
//!
//! *Promises*: a block of records is decoded when it is due and not before, so that memory does not grow with the trace; decoding one
//! takes far less than what counts as late. A trace that ends before the phase begins again.

use crate::address::Draw;
use crate::trace::fit::Fit;
use crate::trace::{Record, Trace};
use std::sync::Arc;

/// A trace is repeated no faster than this, in nanoseconds of its own time: one of a single moment would have no end.
const LAP_MIN: u64 = 1_000_000;

/// What a stream replays, and how.
#[derive(Clone)]
pub struct Play {
    /// The trace.
    pub trace: Arc<Trace>,
    /// Where its requests go.
    pub fit: Fit,
    /// How much faster than it was captured.
    pub speed: f64,
    /// Where in the trace it begins, in nanoseconds of the trace's time: what went before comes at the end.
    pub phase: u64,
}

/// One play, under way.
pub(crate) struct Script {
    play: Play,
    /// Nanoseconds at which nothing more begins.
    until: u64,
    /// A lap's nanoseconds of the trace's time.
    lap: u64,
    laps: u64,
    /// The next block to decode.
    block: usize,
    records: Vec<Record>,
    /// The next of `records`.
    place: usize,
}

impl Script {
    /// From now for `until` nanoseconds.
    pub(crate) fn new(play: &Play, until: u64) -> Self {
        let lap = play.trace.length().max(LAP_MIN);
        let phase = play.phase % lap;
        let block = play.trace.blocks().partition_point(|block| block.last < phase);
        let play = Play { phase, ..play.clone() };
        Script { play, until, lap, laps: 0, block, records: Vec::new(), place: 0 }
    }

    /// The next request and its moment, in nanoseconds since the phase began.
    pub(crate) fn next(&mut self) -> Option<(u64, Draw)> {
        let (at, record) = self.next_record()?;
        let (offset, bytes) = self.play.fit.place(&record);
        Some((
            at,
            Draw { op: record.op, fua: record.fua, offset, bytes, random: true, hot: false, align: None },
        ))
    }

    /// The same as it was captured.
    pub(crate) fn next_record(&mut self) -> Option<(u64, Record)> {
        loop {
            let Some(record) = self.records.get(self.place).copied() else {
                self.turn()?;
                continue;
            };
            self.place += 1;
            // What lies before the phase is part of the lap before this one.
            let Some(since) = (self.laps * self.lap + record.at).checked_sub(self.play.phase) else {
                continue;
            };
            let at = (since as f64 / self.play.speed) as u64;
            return (at < self.until).then_some((at, record));
        }
    }

    /// Decodes the next block.
    fn turn(&mut self) -> Option<()> {
        let blocks = self.play.trace.blocks().len();
        if blocks == 0 {
            return None;
        }
        if self.block == blocks {
            (self.block, self.laps) = (0, self.laps + 1);
        }
        self.records.clear();
        self.place = 0;
        self.play.trace.decode(self.block, &mut self.records);
        self.block += 1;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Op;
    use crate::trace::fit::Mode;
    use crate::trace::tests::trace;

    fn moments(speed: f64, phase: u64, until: u64) -> Vec<(u64, u64)> {
        // Ten in a second, a millisecond into each tenth; then half a second of silence.
        let made = (0..10).map(|number| (number * 100_000 + 1_000, Op::Read, number << 20, 4096));
        let trace = Arc::new(trace(made, 1_500_000));
        let fit = Fit::new(64 << 20, 64 << 20, 512, 1 << 20, Mode::Scale).unwrap();
        let mut script = Script::new(&Play { trace, fit, speed, phase }, until);
        std::iter::from_fn(|| script.next()).map(|(at, draw)| (at / 1_000_000, draw.offset >> 20)).collect()
    }

    #[test]
    fn each_has_its_moment_at_any_speed() {
        let expected: Vec<_> = (0..10).map(|number| (number * 100 + 1, number)).collect();
        assert_eq!(moments(1.0, 0, 1_500_000_000), expected);
        let double: Vec<_> = (0..10).map(|number| (number * 50, number)).collect();
        assert_eq!(moments(2.0, 0, 750_000_000), double);
        assert_eq!(moments(0.5, 0, 3_000_000_000).last(), Some(&(1802, 9)));
    }

    #[test]
    fn it_begins_anywhere_and_begins_again() {
        // From 0.85 s on: one, silence, then all from the front.
        let moments = moments(1.0, 850_000_000, 3_000_000_000);
        assert_eq!(moments[..3], [(51, 9), (651, 0), (751, 1)]);
        assert_eq!(moments.len(), 20, "two laps of ten");
        assert_eq!(moments[10..12], [(1551, 9), (2151, 0)]);
    }

    /// Goal: an hour of a trace of ten minutes is that trace again and again. Every lap asks for the same, in the same order, a lap later, and
    /// for nothing else.
    #[test]
    fn laps_keep_order_times_and_places() {
        let trace = Arc::new(crate::trace::shipped::find("mail").unwrap());
        let (lap, bytes) = (trace.length(), trace.device_bytes());
        let once: Vec<Record> = trace.records().collect();
        let fit = Fit::new(bytes, bytes, 512, 32 << 20, Mode::Scale).unwrap();
        for phase in [0, lap / 3] {
            let play = Play { trace: trace.clone(), fit: fit.clone(), speed: 1.0, phase };
            let mut script = Script::new(&play, 5 * lap / 2);
            let asked: Vec<(u64, Record)> = std::iter::from_fn(|| script.next_record()).collect();
            assert!(asked.windows(2).all(|pair| pair[0].0 <= pair[1].0), "times go back");
            let first = once.iter().position(|record| record.at >= phase).unwrap();
            for (number, (at, record)) in asked.iter().enumerate() {
                let (laps, place) = ((first + number) / once.len(), (first + number) % once.len());
                assert_eq!(*record, once[place]);
                // Times of hours are exact to a part of a microsecond in what speeds are computed with.
                assert!(at.abs_diff(laps as u64 * lap + record.at - phase) < 1_000);
            }
            assert!(asked.len() >= 2 * once.len(), "{} of {}", asked.len(), once.len());
        }
    }
}
