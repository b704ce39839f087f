//! What one thread does: the streams of some volumes, over one backend.
//!
//! *Promises*: each I/O is counted once, whatever becomes of it; a volume's content belongs to one part for as long as the
//! run lasts, so that what must come back is known without locks.

mod answers;

use super::effort::Awake;
use super::script::{Play, Script};
use super::source::Source;
use super::{Control, Gap, Goal, Phase, Shown, Task};
use crate::address::{Addresses, Draw};
use crate::payload::mix;
use crate::record::Second;
use crate::reduced::Reduced;
use crate::target::{Abilities, Backend, Buffers, Op, Request};
use crate::verify::{Expected, Verification};
use crate::volume::Content;
use crate::workload::{Load, Stream, Workload};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::{Error, Result};

/// An I/O that begins later than this after its moment counts as late, in nanoseconds.
pub(super) const LATE_NANOS: u64 = 1_000_000;
/// Nearer than this to the next I/O a thread does not sleep: it would oversleep, in nanoseconds.
const SPIN_NANOS: u64 = 60_000;
/// The longest sleep: how soon a stop is seen.
const SLEEP_MAX: Duration = Duration::from_millis(20);
/// I/Os of an open loop in flight on one thread: more than any queue takes, and few enough for their memory.
const OPEN_MAX: u32 = 1024;
/// Memory of one thread's buffers at most, in bytes.
const BUFFERS_BYTES_MAX: u64 = 512 << 20;
const SECOND: u64 = 1_000_000_000;

/// One thread's share of a workload.
pub(crate) struct Part {
    env: Env,
    workload: Arc<Workload>,
    /// The streams that are its own, by their numbers in the workload.
    streams: Vec<usize>,
    volumes: Vec<Behind>,
    sources: Vec<Source>,
    backend: Box<dyn Backend + Send>,
    buffers: Buffers,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// I/Os of one stream in flight at most, where its load says nothing of that: so that a slow volume's leave room for those of others.
    share: u32,
    seed: u64,
    /// Phases begun.
    phase: u64,
    /// What streams that replay have to replay.
    plays: Arc<[Play]>,
}

/// A volume of a part.
pub(crate) struct Behind {
    /// Its number in the workload.
    pub volume: usize,
    /// The number of its target in the backend.
    pub target: u32,
    /// Where in the target it begins, in bytes.
    pub base: u64,
    /// What the target can be asked for.
    pub abilities: Abilities,
    pub content: Content,
}

/// An I/O in flight, or room for one.
#[derive(Default)]
struct Slot {
    source: usize,
    /// Number of the volume within the part.
    volume: usize,
    draw: Option<Draw>,
    /// Nanoseconds since the phase began.
    intended: u64,
    issued: u64,
    expected: Vec<Expected>,
    generations: Vec<u32>,
    /// The phase it was issued in: what was given up then may be answered later.
    phase: u64,
}

/// One phase under way.
struct Running<'a> {
    control: &'a Control,
    /// Nanoseconds of the environment's clock at its beginning.
    start: u64,
    /// Nanoseconds since the beginning at which nothing more is issued.
    end: u64,
    series: Vec<Second>,
    /// The second under way.
    second: usize,
    verification: Verification,
    last_completion: u64,
    /// It counts as no shorter than this, in nanoseconds, whenever the last answer came.
    shortest: u64,
    /// Somebody strikes the target: silences are noted.
    watched: bool,
    gaps: Vec<Gap>,
    breaks: u64,
    awake: Awake,
}

/// Bytes of each I/O by which volumes are filled and scanned.
pub(crate) const FILL_BYTES: u64 = 128 << 10;
/// How many of these are in flight on each volume.
pub(crate) const FILL_OUTSTANDING: u32 = 16;

/// Slots that a part with these loads needs: all that a closed loop has in flight, and many for open ones.
pub(crate) fn slots_for(loads: &[Load], bytes: u64) -> usize {
    let closed: u32 = loads
        .iter()
        .map(|load| match load {
            Load::Closed { outstanding } => *outstanding,
            _ => 0,
        })
        .sum();
    let open = loads.iter().any(|load| !matches!(load, Load::Closed { .. }));
    let room = (BUFFERS_BYTES_MAX / bytes.max(1)).max(1);
    u64::from(closed + if open { OPEN_MAX } else { 0 }).min(room.max(u64::from(closed))) as usize
}

impl Part {
    /// For `streams` of a workload; `volumes` are all to which these go.
    pub(crate) fn new(
        env: &Env,
        workload: Arc<Workload>,
        streams: Vec<usize>,
        volumes: Vec<Behind>,
        backend: Box<dyn Backend + Send>,
        buffers: Buffers,
        seed: u64,
    ) -> Self {
        let slots: Vec<Slot> = std::iter::repeat_with(Slot::default).take(buffers.slots()).collect();
        Part {
            env: env.clone(),
            workload,
            streams,
            volumes,
            sources: Vec::new(),
            backend,
            buffers,
            free: (0..slots.len() as u32).rev().collect(),
            slots,
            share: u32::MAX,
            seed,
            phase: 0,
            plays: Arc::new([]),
        }
    }

    /// From here on it is known what was flushed, or nobody asks any more.
    pub(crate) fn keep_durability(&mut self, keep: bool) {
        for behind in &mut self.volumes {
            if keep {
                behind.content.keep_durability();
            } else {
                behind.content.forget_durability();
            }
        }
    }

    /// See [`crate::rig::Rig::rehearse`].
    pub(crate) fn rehearse(&mut self) {
        self.volumes.iter_mut().for_each(|behind| behind.content.rehearse());
    }

    /// See [`crate::rig::Rig::give`].
    pub(crate) fn give(&mut self, plays: Arc<[Play]>) {
        self.plays = plays;
    }

    /// Runs a phase from `start` on.
    pub(crate) fn run(&mut self, phase: &Phase, start: Duration, control: &Control) -> Result<Shown> {
        self.begin(phase);
        let cpu = thread_cpu();
        let start = start.as_nanos() as u64;
        let end = match phase.goal {
            Goal::For(length) => length.as_nanos() as u64,
            Goal::Replay(length, overrun) => (length + overrun).as_nanos() as u64,
            Goal::Fill | Goal::Scan | Goal::Flush | Goal::Survey | Goal::Task(_) => u64::MAX,
        };
        while self.clock() < start {
            std::thread::sleep(Duration::from_nanos((start - self.clock().min(start)).min(1_000_000)));
        }
        let mut running = Running {
            control,
            start,
            end,
            series: Vec::new(),
            second: 0,
            verification: Verification::default(),
            last_completion: 0,
            shortest: match phase.goal {
                Goal::Replay(length, _) => length.as_nanos() as u64,
                _ => 0,
            },
            watched: control.is_watched(),
            gaps: Vec::new(),
            breaks: 0,
            awake: Awake::default(),
        };
        // A survey asks the target nothing: not even for what it never answered.
        if phase.goal != Goal::Survey {
            self.drive(&mut running, phase.grace)
                .map_err(|e| Error::io("the target cannot be spoken to any more", e))?;
        }
        let mut shown = self.finish(running, cpu);
        if phase.goal == Goal::Survey {
            let of = |behind: &Behind| Reduced::of(behind.volume, &behind.content);
            shown.reduced = self.volumes.iter().filter_map(of).collect();
        }
        Ok(shown)
    }

    fn begin(&mut self, phase: &Phase) {
        self.phase += 1;
        self.sources = match &phase.goal {
            Goal::For(length) | Goal::Replay(length, _) => self.sources_of_streams(phase, *length),
            Goal::Fill => self.sources_of_volumes(0.0, 1.0, |_| true),
            Goal::Scan => self.sources_of_volumes(1.0, 1.0, |_| true),
            Goal::Survey => Vec::new(),
            Goal::Flush => {
                let mut sources = self.sources_of_volumes(0.0, 1.0, |_| true);
                sources.iter_mut().for_each(Source::flush_once);
                sources
            }
            Goal::Task(Task::Fill { volumes, share }) => {
                self.sources_of_volumes(0.0, *share, |volume| volumes.contains(&volume))
            }
            Goal::Task(Task::Check { volumes, share }) => {
                self.sources_of_volumes(1.0, *share, |volume| volumes.contains(&volume))
            }
            Goal::Task(Task::Copy { from, to, share }) => {
                let mut sources = self.sources_of_volumes(1.0, *share, |volume| volume == *from);
                sources.iter_mut().for_each(|source| source.copies_to = Some(self.place(*to)));
                sources
            }
        };
        self.share_out();
    }

    /// What closed loops leave of the free slots goes to the others in equal parts.
    fn share_out(&mut self) {
        let bounded: u32 = self.sources.iter().filter_map(Source::outstanding).sum();
        let others = self.sources.iter().filter(|source| source.outstanding().is_none()).count() as u32;
        let left = (self.free.len() as u32).saturating_sub(bounded);
        self.share = left.checked_div(others).map_or(u32::MAX, |share| share.max(1));
    }

    fn sources_of_streams(&self, phase: &Phase, length: Duration) -> Vec<Source> {
        let running: Vec<(usize, Load)> =
            self.streams.iter().filter_map(|number| Some((*number, (*phase.loads.get(*number)?)?))).collect();
        let leader = |stream: usize| running.iter().position(|(number, _)| *number == stream);
        let source = |(number, load): &(usize, Load)| {
            let stream = &self.workload.streams[*number];
            let seed = mix(self.seed ^ mix(self.phase << 32 | *number as u64));
            let addresses =
                Addresses::new(&stream.on_part(phase.footprint), &self.workload.volumes[stream.volume], seed);
            let mut source = Source::new(*number, self.place(stream.volume), addresses, mix(seed));
            source.flush_each(stream.flush);
            match load {
                Load::Replay { play } => {
                    source.replay(Script::new(&self.plays[*play], length.as_nanos() as u64));
                }
                _ => source.begin(*load, length.as_secs_f64(), leader),
            }
            source
        };
        running.iter().map(source).collect()
    }

    /// One for each volume that is wanted, over its first `share`.
    fn sources_of_volumes(&self, read: f64, share: f64, wanted: impl Fn(usize) -> bool) -> Vec<Source> {
        let source = |(place, behind): (usize, &Behind)| {
            let volume = &self.workload.volumes[behind.volume];
            let load = Load::Closed { outstanding: FILL_OUTSTANDING };
            let bytes = FILL_BYTES.min(self.buffers.slot_bytes() as u64);
            let stream = Stream { zone: (0.0, share), ..Stream::whole(read, bytes, load) };
            let mut addresses = Addresses::new(&stream, volume, self.seed);
            addresses.set_pass();
            let mut source = Source::new(behind.volume, place, addresses, self.seed);
            source.begin(load, f64::INFINITY, |_| None);
            source
        };
        self.volumes.iter().enumerate().filter(|(_, behind)| wanted(behind.volume)).map(source).collect()
    }

    fn place(&self, volume: usize) -> usize {
        self.volumes
            .iter()
            .position(|behind| behind.volume == volume)
            .expect("a stream's volume is in its part")
    }

    fn drive(&mut self, running: &mut Running<'_>, grace: Duration) -> io::Result<()> {
        let mut done = Vec::with_capacity(self.slots.len());
        let grace = grace.as_nanos() as u64;
        loop {
            let now = self.clock() - running.start;
            running.awake.turn(now);
            let stopped = running.control.is_stopped();
            if stopped {
                running.end = running.end.min(now);
            }
            let (issuing, before) = (now < running.end, self.free.len());
            if issuing {
                self.issue_due(now, now);
            }
            let issued = self.free.len() < before;
            self.backend.push()?;
            self.backend.reap(&mut done)?;
            if !done.is_empty() {
                let answered = self.clock() - running.start;
                for completion in done.drain(..) {
                    self.complete(completion, answered, running);
                    // What it makes room for goes out before the next is looked at: the target is not to wait for that. It was meant to go
                    // out when the answers were there; that those before it were looked at first is time that somebody waits.
                    let now = self.clock() - running.start;
                    if issuing && now < running.end {
                        self.issue_due(now, answered);
                    }
                }
                self.note_breaks(running)?;
                continue;
            }
            self.note_breaks(running)?;
            if running.control.is_abandoned() {
                return Ok(());
            }
            let in_flight = self.slots.len() - self.free.len();
            let more = issuing && self.sources.iter().any(|source| !source.exhausted);
            if in_flight == 0 && !more {
                return Ok(());
            }
            if !issuing && now - running.end > grace {
                return Ok(());
            }
            if !self.rest(now, running, in_flight > 0)? && !issued {
                running.awake.idle(now);
            }
        }
    }

    /// Waits for the next thing to happen; false where that is too near for a sleep.
    fn rest(&mut self, now: u64, running: &mut Running<'_>, in_flight: bool) -> io::Result<bool> {
        running.turn_to(now);
        let next = self.sources.iter().filter_map(Source::next).min().unwrap_or(u64::MAX).min(running.end);
        let gap = next.saturating_sub(now);
        if gap < SPIN_NANOS {
            std::hint::spin_loop();
            return Ok(false);
        }
        let sleep = Duration::from_nanos(gap - SPIN_NANOS / 2).min(SLEEP_MAX);
        match in_flight {
            true => self.backend.wait(sleep)?,
            false => std::thread::sleep(sleep),
        }
        Ok(true)
    }

    fn issue_due(&mut self, now: u64, answered: u64) {
        for index in 0..self.sources.len() {
            while let Some(intended) = self.sources[index].due(now, answered) {
                // Its own share of the slots is in flight: others have theirs.
                let source = &self.sources[index];
                if source.outstanding().is_none() && source.in_flight >= self.share {
                    break;
                }
                let Some(slot) = self.free.pop() else { return };
                let Some(draw) = self.sources[index].draw() else {
                    self.free.push(slot);
                    break;
                };
                self.issue(index, slot, draw, intended, now);
            }
        }
    }

    fn issue(&mut self, index: usize, number: u32, draw: Draw, intended: u64, now: u64) {
        let source = &mut self.sources[index];
        let behind = &mut self.volumes[source.volume];
        if source.replays() {
            source.record.timing.note(intended, now);
        }
        source.record.late += u64::from(now - intended > LATE_NANOS);
        if !behind.abilities.has(draw.op) {
            source.record.skipped += 1;
            self.free.push(number);
            return;
        }
        source.in_flight += 1;
        let fua = draw.fua && behind.abilities.fua;
        source.record.weakened += u64::from(draw.fua && !fua);
        let (volume, bytes) = (source.volume, draw.bytes as usize);
        let slot = &mut self.slots[number as usize];
        (slot.source, slot.draw, slot.intended, slot.issued) = (index, Some(draw), intended, now);
        (slot.volume, slot.phase) = (volume, self.phase);
        let content = &mut behind.content;
        match draw.op {
            Op::Read => content.expect(draw.offset, bytes, &mut slot.expected),
            Op::Write => {
                // SAFETY: the slot was free, so nothing else has its buffer.
                let buffer = unsafe { self.buffers.slice(number, bytes) };
                content.write(draw.offset, buffer, &mut slot.generations);
            }
            Op::Trim | Op::Zero => {
                content.erase(draw.offset, bytes, draw.op == Op::Trim, &mut slot.generations);
            }
            Op::Flush => content.begin_flush(&mut slot.generations),
        }
        // A flush has no place.
        let offset = if draw.op == Op::Flush { 0 } else { behind.base + draw.offset };
        let (volume, op, bytes) = (behind.target, draw.op, draw.bytes as u32);
        self.backend.submit(Request { slot: number, volume, op, fua, offset, bytes });
    }

    fn finish(&mut self, mut running: Running<'_>, cpu: Duration) -> Shown {
        let ended = (self.clock() - running.start).max(running.shortest);
        let elapsed = running.end.min(if running.end == u64::MAX { running.last_completion } else { ended });
        running.series.truncate((elapsed / SECOND) as usize);
        // What never came back keeps its slot: the backend may still write to its buffer.
        for slot in self.slots.iter().filter(|slot| slot.draw.is_some() && slot.phase == self.phase) {
            self.sources[slot.source].record.unanswered += 1;
        }
        let streams = self.sources.iter_mut().map(|source| {
            source.give_up(if running.end == u64::MAX { 0 } else { running.end });
            (source.stream, std::mem::take(&mut source.record))
        });
        Shown {
            streams: streams.collect(),
            series: running.series,
            verification: running.verification,
            elapsed: Duration::from_nanos(elapsed),
            cpu: thread_cpu().saturating_sub(cpu),
            awake: running.awake.total(),
            gaps: running.gaps,
            breaks: running.breaks,
            reduced: Vec::new(),
        }
    }

    fn clock(&self) -> u64 {
        self.env.monotonic().as_nanos() as u64
    }
}

impl Running<'_> {
    fn count(&mut self, now: u64, draw: &Draw, response: u64) {
        self.turn_to(now);
        let second = &mut self.series[(now / SECOND) as usize];
        let (ios, bytes) = match draw.op {
            Op::Read => (&mut second.reads, &mut second.read_bytes),
            Op::Write => (&mut second.writes, &mut second.write_bytes),
            // Seconds are of I/Os.
            Op::Flush | Op::Trim | Op::Zero => return,
        };
        *ios += 1;
        *bytes += draw.bytes;
        second.response.record(response);
    }

    /// Begins the second of `now`, and tells of those that are over.
    fn turn_to(&mut self, now: u64) {
        let second = (now.min(self.end.saturating_sub(1)) / SECOND) as usize;
        if self.series.len() <= second {
            self.series.resize_with(second + 1, Second::new);
        }
        while self.second < second {
            self.control.report(self.second, &self.series[self.second]);
            self.second += 1;
        }
    }
}

/// CPU time that this thread has used.
#[expect(clippy::disallowed_methods, reason = "processor time is measured, not waited for")]
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec as u32)
}
