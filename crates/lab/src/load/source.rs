//! One stream while it runs: where its next I/O goes and when.

use super::part::LATE_NANOS;
use super::script::Script;
use crate::address::{Addresses, Draw};
use crate::chance::Chance;
use crate::record::StreamRecord;
use crate::trace::Op;
use crate::workload::{Arrivals, Load};
use std::collections::VecDeque;

/// One stream of a part. Times are nanoseconds since the phase began.
pub(crate) struct Source {
    /// Its number in the workload.
    pub stream: usize,
    /// Number of its volume within the part.
    pub volume: usize,
    pub addresses: Addresses,
    pub record: StreamRecord,
    pub in_flight: u32,
    /// It has nothing more to issue in this phase.
    pub exhausted: bool,
    /// The volume within the part to which all that is read is written.
    pub copies_to: Option<usize>,
    flushing: Flushing,
    schedule: Schedule,
    chance: Chance,
}

/// When it flushes, beside its other I/Os.
#[derive(Clone, Copy)]
enum Flushing {
    Never,
    /// After so many writes.
    Each {
        writes: u32,
        since: u32,
    },
    /// At once, and nothing else.
    Once,
}

enum Schedule {
    Closed {
        outstanding: u32,
    },
    Open {
        arrivals: Arrivals,
        from: f64,
        to: f64,
        length: f64,
        next: f64,
    },
    /// `leader` is a number within the part.
    Follow {
        leader: usize,
        each: f64,
        credit: f64,
        /// When each that is due became so.
        due: VecDeque<u64>,
    },
    Replay {
        script: Box<Script>,
        /// Its moment, and what it is.
        next: Option<(u64, Draw)>,
    },
}

impl Source {
    pub(crate) fn new(stream: usize, volume: usize, addresses: Addresses, seed: u64) -> Self {
        Source {
            stream,
            volume,
            addresses,
            record: StreamRecord::default(),
            in_flight: 0,
            exhausted: false,
            copies_to: None,
            flushing: Flushing::Never,
            schedule: Schedule::Closed { outstanding: 0 },
            chance: Chance::new(seed),
        }
    }

    /// Flushes after each so many writes from here on; 0: never.
    pub(crate) fn flush_each(&mut self, writes: u32) {
        self.flushing = if writes > 0 { Flushing::Each { writes, since: 0 } } else { Flushing::Never };
    }

    /// Flushes once, and does nothing else.
    pub(crate) fn flush_once(&mut self) {
        self.flushing = Flushing::Once;
    }

    /// Begins to replay.
    pub(crate) fn replay(&mut self, mut script: Script) {
        let next = script.next();
        self.exhausted = next.is_none();
        self.schedule = Schedule::Replay { script: Box::new(script), next };
    }

    /// Whether it replays.
    pub(crate) fn replays(&self) -> bool {
        matches!(self.schedule, Schedule::Replay { .. })
    }

    /// Begins a phase of `length` seconds; `leader` tells the number within the part of the stream that is followed, if it runs.
    pub(crate) fn begin(&mut self, load: Load, length: f64, leader: impl Fn(usize) -> Option<usize>) {
        self.schedule = match load {
            Load::Closed { outstanding } => Schedule::Closed { outstanding },
            Load::Open { from, to, arrivals } => Schedule::Open { arrivals, from, to, length, next: 0.0 },
            Load::Follow { stream, ios, per } => {
                let leader = leader(stream);
                // Whoever follows nobody has nothing to do.
                self.exhausted = leader.is_none();
                let (leader, due) = (leader.unwrap_or(usize::MAX), VecDeque::new());
                Schedule::Follow { leader, each: ios / per, credit: 0.0, due }
            }
            // Given by `replay`, or by nobody.
            Load::Replay { .. } => {
                self.exhausted = true;
                Schedule::Closed { outstanding: 0 }
            }
        };
        if matches!(self.schedule, Schedule::Open { .. }) {
            self.advance();
        }
    }

    /// When the next I/O is meant to be issued, if one is by `now`; of a closed loop, when the answer was there that made room for it.
    pub(crate) fn due(&self, now: u64, answered: u64) -> Option<u64> {
        if self.exhausted {
            return None;
        }
        match &self.schedule {
            Schedule::Closed { outstanding } => (self.in_flight < *outstanding).then_some(answered),
            Schedule::Open { next, .. } => (*next <= now as f64).then_some(*next as u64),
            Schedule::Follow { due, .. } => due.front().copied(),
            Schedule::Replay { next, .. } => next.map(|(at, _)| at).filter(|at| *at <= now),
        }
    }

    /// When the next one is due by the clock; nothing when that hangs on an answer.
    pub(crate) fn next(&self) -> Option<u64> {
        match &self.schedule {
            Schedule::Open { next, .. } if !self.exhausted => Some(*next as u64),
            Schedule::Replay { next, .. } => next.map(|(at, _)| at),
            _ => None,
        }
    }

    /// The I/O that was due. Nothing when the stream has gone once over its zone and was to do no more.
    pub(crate) fn draw(&mut self) -> Option<Draw> {
        if let Some(flush) = self.draw_flush() {
            return Some(flush);
        }
        let drawn = match &self.schedule {
            Schedule::Replay { next, .. } => next.map(|(_, draw)| draw),
            _ => self.addresses.draw(),
        };
        let Some(draw) = drawn else {
            self.exhausted = true;
            return None;
        };
        self.record.requests[draw.op as usize] += 1;
        if matches!(draw.op, Op::Read | Op::Write) {
            *self.record.sizes.entry(draw.bytes).or_default() += 1;
        }
        self.record.hot += u64::from(draw.hot);
        self.record.random += u64::from(draw.random);
        if let Some(align) = draw.align {
            *self.record.alignments.entry(align).or_default() += 1;
        }
        if let Flushing::Each { since, .. } = &mut self.flushing {
            *since += u32::from(draw.op == Op::Write);
        }
        self.advance();
        Some(draw)
    }

    /// A flush, where one is due. It takes no other I/O's moment.
    fn draw_flush(&mut self) -> Option<Draw> {
        match &mut self.flushing {
            Flushing::Once => self.exhausted = true,
            Flushing::Each { writes, since } if *since >= *writes => *since = 0,
            Flushing::Each { .. } | Flushing::Never => return None,
        }
        self.record.requests[Op::Flush as usize] += 1;
        Some(Draw { op: Op::Flush, fua: false, offset: 0, bytes: 0, random: false, hot: false, align: None })
    }

    /// I/Os in flight, where its load says how many.
    pub(crate) fn outstanding(&self) -> Option<u32> {
        match self.schedule {
            Schedule::Closed { outstanding } => Some(outstanding),
            _ => None,
        }
    }

    /// Another stream has completed an I/O.
    pub(crate) fn led(&mut self, by: usize, now: u64) {
        match &mut self.schedule {
            Schedule::Follow { leader, each, credit, due } if *leader == by => {
                *credit += *each;
                while *credit >= 1.0 {
                    *credit -= 1.0;
                    due.push_back(now);
                }
            }
            _ => {}
        }
    }

    /// Counts what was meant to be issued before `end` and was not.
    pub(crate) fn give_up(&mut self, end: u64) {
        while !self.exhausted && self.next().is_some_and(|next| next < end) {
            self.record.unissued += 1;
            self.advance();
        }
        // What its leader's last answers made due had no time left.
        if let Schedule::Follow { due, .. } = &mut self.schedule {
            let waited = |at: &&u64| **at + LATE_NANOS < end;
            self.record.unissued += due.iter().filter(waited).count() as u64;
            due.clear();
        }
    }

    fn advance(&mut self) {
        match &mut self.schedule {
            Schedule::Closed { .. } => {}
            Schedule::Replay { script, next } => {
                *next = script.next();
                self.exhausted = next.is_none();
            }
            Schedule::Follow { due, .. } => drop(due.pop_front()),
            Schedule::Open { arrivals, from, to, length, next } => {
                // Of so many I/Os that the rate, which changes evenly, brings within the phase, the next one's moment.
                let ahead = match arrivals {
                    Arrivals::Constant => 1.0,
                    Arrivals::Poisson => self.chance.gap(),
                };
                match after(*next / 1e9, ahead, *from, *to, *length) {
                    Some(seconds) => *next = seconds * 1e9,
                    None => self.exhausted = true,
                }
            }
        }
    }
}

/// The moment at which `ahead` more I/Os have come since `now`, with a rate that goes from `from` to `to` in `length`
/// seconds and then stays. Nothing when the rate ends at 0 before.
fn after(now: f64, ahead: f64, from: f64, to: f64, length: f64) -> Option<f64> {
    let slope = if length > 0.0 && length.is_finite() { (to - from) / length } else { 0.0 };
    let rate = if slope == 0.0 {
        from
    } else if now >= length {
        to
    } else {
        from + slope * now
    };
    if slope == 0.0 || now >= length {
        return (rate > 0.0).then(|| now + ahead / rate);
    }
    // rate·t + slope·t²/2 = ahead, in the form that is exact for small slopes.
    let inner = rate * rate + 2.0 * slope * ahead;
    let step = if inner >= 0.0 { 2.0 * ahead / (rate + inner.sqrt()) } else { f64::INFINITY };
    if now + step <= length {
        return Some(now + step);
    }
    let left = ahead - (rate + to) / 2.0 * (length - now);
    (to > 0.0).then(|| length + left.max(0.0) / to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::tests::reads;

    fn moments(load: Load, length: f64) -> Vec<f64> {
        let workload = reads(1 << 20);
        let addresses = Addresses::new(&workload.streams[0], &workload.volumes[0], 1);
        let mut source = Source::new(0, 0, addresses, 9);
        source.begin(load, length, Some);
        let mut moments = Vec::new();
        while let Some(next) = source.next().filter(|next| (*next as f64) < length * 1e9) {
            moments.push(next as f64 / 1e9);
            source.draw().unwrap();
        }
        moments
    }

    #[test]
    fn a_constant_rate_is_even() {
        let moments = moments(Load::Open { from: 100.0, to: 100.0, arrivals: Arrivals::Constant }, 10.0);
        assert!((999..=1000).contains(&moments.len()), "{}", moments.len());
        assert!(moments.windows(2).all(|pair| (pair[1] - pair[0] - 0.01).abs() < 1e-6));
    }

    #[test]
    fn a_ramp_brings_the_mean_of_its_ends() {
        for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
            for (from, to) in [(0.0, 2000.0), (2000.0, 0.0), (500.0, 1500.0)] {
                let moments = moments(Load::Open { from, to, arrivals }, 20.0);
                let expected = (from + to) / 2.0 * 20.0;
                assert!(
                    (moments.len() as f64 / expected - 1.0).abs() < 0.03,
                    "{from} to {to}: {}",
                    moments.len()
                );
                let first = moments.iter().filter(|moment| **moment < 10.0).count() as f64;
                let half = (from + (from + to) / 2.0) / 2.0 * 10.0;
                assert!(
                    (first / half - 1.0).abs() < 0.05,
                    "{from} to {to}: {first} of {half} in the first half"
                );
            }
        }
    }

    #[test]
    fn arrivals_by_themselves_scatter() {
        let moments = moments(Load::Open { from: 1000.0, to: 1000.0, arrivals: Arrivals::Poisson }, 20.0);
        let gaps: Vec<f64> = moments.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let deviation = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
        assert!((deviation / mean - 1.0).abs() < 0.03, "{deviation} of {mean}");
    }

    #[test]
    fn a_flush_follows_each_so_many_writes() {
        let mut workload = reads(1 << 20);
        workload.streams[0].read = 0.5;
        let addresses = Addresses::new(&workload.streams[0], &workload.volumes[0], 1);
        let mut source = Source::new(0, 0, addresses, 9);
        source.flush_each(8);
        source.begin(Load::Closed { outstanding: 1 }, 1.0, Some);
        let drawn: Vec<Op> = (0..1000).map(|_| source.draw().unwrap().op).collect();
        let mut writes = 0;
        for op in &drawn {
            match op {
                Op::Flush => assert_eq!(std::mem::take(&mut writes), 8),
                Op::Write => writes += 1,
                _ => {}
            }
        }
        assert!(drawn.iter().filter(|op| **op == Op::Flush).count() > 40);
        source.flush_once();
        assert_eq!((source.draw().unwrap().op, source.exhausted), (Op::Flush, true));
    }

    #[test]
    fn a_follower_keeps_its_ratio() {
        let workload = reads(1 << 20);
        let addresses = Addresses::new(&workload.streams[0], &workload.volumes[0], 1);
        let mut source = Source::new(1, 0, addresses, 9);
        source.begin(Load::Follow { stream: 0, ios: 15.0, per: 100.0 }, 1.0, Some);
        let mut issued = 0;
        for _ in 0..1000 {
            source.led(0, 5);
            source.led(7, 5);
            while let Some(intended) = source.due(9, 9) {
                assert_eq!(intended, 5, "from when it was due");
                source.draw().unwrap();
                issued += 1;
            }
        }
        assert!((149..=150).contains(&issued), "{issued}");
    }
}
