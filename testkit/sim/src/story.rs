//! What was done to the disks, and what a crash may have left of it: the oracle.
//!
//! Each client owns a region of a disk and does one thing at a time there, so that its steps have an order. Between
//! clients the order is told by a logical clock that ticks when a step is begun and when it is acknowledged.
//!
//! After a crash, per region (P1): it reads as some prefix of its steps, not shorter than its flush line. A flush
//! moves the line of *every* region to what was acknowledged when the flush began, whoever asked for it. Between
//! regions of all disks: when a step is there, so is every step that had been acknowledged before it was begun.

use std::collections::BTreeMap;
use stonefold_model::{Image, ReferenceDisk, Step};

/// One client's region and what it did there.
pub struct Region {
    /// The disk's name.
    pub disk: String,
    /// Where it begins on the disk, in bytes.
    pub base: u64,
    /// In bytes; of one that is resized, the most it may become.
    pub bytes: u64,
    /// Its disk is all its own, and changes its size.
    pub resizes: bool,
    /// Its disk acknowledges what is durable (`ack`), as this life found it.
    pub ack: bool,
    /// What it holds, with offsets from its beginning.
    pub model: ReferenceDisk,
    /// Steps acknowledged.
    pub acked: usize,
    /// Per step: when it was begun, and when it was acknowledged.
    times: Vec<(u64, Option<u64>)>,
}

/// A snapshot of one disk.
pub struct Taken {
    /// Acknowledged.
    pub acked: bool,
    /// Its removal was asked for.
    pub leaving: bool,
    /// It was locked for longer than the world lasts, and nobody has confirmed a later time since.
    pub locked: bool,
    /// Per region of the disk: index, and the fewest and the most steps it may hold.
    pub bounds: Vec<(usize, usize, usize)>,
    /// What it was seen to hold, per region; it must never hold anything else.
    pub seen: Option<Vec<Image>>,
}

/// All of it.
#[derive(Default)]
pub struct Story {
    /// By client.
    pub regions: Vec<Region>,
    /// By `disk@name`.
    pub snapshots: BTreeMap<String, Taken>,
    /// The disk whose head cannot be read for now: nobody can look at it.
    pub hidden: Option<String>,
    /// What reclaim keeps has rotted, and may not have been told anew yet.
    pub miscounted: bool,
    clock: u64,
    /// Whether to tell what happens.
    trace: bool,
    /// Power was lost since the regions were last read: what was acknowledged before may be gone.
    in_doubt: bool,
}

impl Story {
    /// Nothing was done yet. With `trace`, it is told as it happens.
    pub fn new(trace: bool) -> Self {
        Story { trace, ..Story::default() }
    }

    /// Adds a region of zeros.
    pub fn add_region(&mut self, disk: String, base: u64, bytes: u64) {
        self.add(disk, base, bytes, ReferenceDisk::new(bytes), false);
    }

    /// Adds a disk of zeros for one client, who may make it up to `bytes_max` long.
    pub fn add_resized_disk(&mut self, disk: String, bytes: u64, bytes_max: u64) {
        self.add(disk, 0, bytes_max, ReferenceDisk::new(bytes), true);
    }

    fn add(&mut self, disk: String, base: u64, bytes: u64, model: ReferenceDisk, resizes: bool) {
        let times = Vec::new();
        self.regions.push(Region { disk, base, bytes, resizes, ack: false, model, acked: 0, times });
    }

    /// Tells what happens, when asked to (`--trace`).
    pub fn tell(&self, what: impl FnOnce() -> String) {
        if self.trace {
            eprintln!("{:6} {}", self.clock, what());
        }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// The power failed.
    pub fn power_lost(&mut self) {
        self.in_doubt = true;
    }

    /// The process was killed: whatever was acknowledged since the power last failed outlives it.
    pub fn killed(&mut self) {
        if !self.in_doubt {
            let covered = self.flush_begins();
            self.flush_ended(&covered);
        }
    }

    /// A client begins a step.
    pub fn begin(&mut self, client: usize, step: Step) {
        let now = self.tick();
        self.tell(|| format!("client {client} begins {}", step.in_words()));
        let region = &mut self.regions[client];
        region.model.step(step);
        region.times.push((now, None));
    }

    /// Its step was acknowledged; durably when `durable`.
    pub fn acknowledge(&mut self, client: usize, durable: bool) {
        let now = self.tick();
        self.tell(|| {
            format!(
                "client {client}: step {} acknowledged, durable: {durable}",
                self.regions[client].model.len()
            )
        });
        let region = &mut self.regions[client];
        region.acked = region.model.len();
        region.times.last_mut().expect("a step was begun").1 = Some(now);
        if durable {
            region.model.flushed(region.acked);
        }
    }

    /// A resize was acknowledged, durably, and with it whatever the client had begun before it: that came before, or was cut off.
    pub fn acknowledge_resize(&mut self, client: usize) {
        let now = self.clock + 1;
        let region = &mut self.regions[client];
        region.times.iter_mut().for_each(|(_, acked)| *acked = acked.or(Some(now)));
        self.acknowledge(client, true);
    }

    /// Its step was refused and must have changed nothing.
    pub fn refuse(&mut self, client: usize) {
        self.tell(|| format!("client {client} is refused"));
        let region = &mut self.regions[client];
        let steps = region.model.len() - 1;
        region.model.take_back_to(steps);
        region.times.truncate(steps);
    }

    /// What a flush that begins now will cover. Of a hidden disk nobody knows yet what the last crash has left.
    pub fn flush_begins(&mut self) -> Vec<usize> {
        self.tick();
        let hidden = self.hidden.clone();
        let covered = |region: &Region| match Some(&region.disk) == hidden.as_ref() {
            true => region.model.flush_line(),
            false => region.acked,
        };
        self.regions.iter().map(covered).collect()
    }

    /// A disk's head rots, or is restored. What its writers were told before, and was not flushed, may be gone without anybody
    /// having seen it.
    pub fn hide(&mut self, disk: Option<String>) {
        let in_doubt = self.in_doubt;
        for region in self.regions.iter_mut().filter(|region| Some(&region.disk) == disk.as_ref() && in_doubt)
        {
            let line = region.model.flush_line();
            region.times.iter_mut().skip(line).for_each(|(_, acked)| *acked = None);
        }
        self.hidden = disk;
    }

    /// That flush has ended.
    pub fn flush_ended(&mut self, covered: &[usize]) {
        self.tick();
        self.tell(|| format!("flushed: {covered:?}"));
        for (region, steps) in self.regions.iter_mut().zip(covered) {
            region.model.flushed(*steps);
        }
    }

    /// Per region of a disk: steps that a snapshot beginning now holds at least.
    pub fn snapshot_begins(&mut self, disk: &str) -> Vec<(usize, usize, usize)> {
        let on_disk =
            |(at, region): (usize, &Region)| (region.disk == disk).then_some((at, region.acked, usize::MAX));
        self.regions.iter().enumerate().filter_map(on_disk).collect()
    }

    /// A snapshot is there for good; it holds at most the steps begun by now.
    pub fn snapshot_ended(&mut self, name: &str) {
        let lens: Vec<usize> = self.regions.iter().map(|region| region.model.len()).collect();
        let taken = self.snapshots.get_mut(name).expect("it was begun");
        taken.acked = true;
        taken.bounds.iter_mut().for_each(|(at, _, most)| *most = (*most).min(lens[*at]));
        // A snapshot is durable, and with it all that it holds for certain.
        for (at, fewest, _) in taken.bounds.clone() {
            self.regions[at].model.flushed(fewest);
        }
    }

    /// Checks what a snapshot's regions hold, and that it is what they held before.
    pub fn check_snapshot(&mut self, name: &str, contents: &[Vec<u8>]) -> Result<(), String> {
        let taken = self.snapshots.get_mut(name).expect("it is known");
        let mut images = Vec::new();
        for ((at, fewest, most), bytes) in taken.bounds.iter().zip(contents) {
            let model = &self.regions[*at].model;
            let matching = (*fewest..=(*most).min(model.len())).map(|steps| model.after(steps));
            let image = match &taken.seen {
                Some(seen) => {
                    seen.get(images.len()).filter(|i| i.read(0, i.size as usize) == *bytes).cloned()
                }
                None => matching.into_iter().find(|i| i.read(0, i.size as usize) == *bytes),
            };
            let held =
                if taken.seen.is_some() { "what it held before" } else { "any state between its bounds" };
            images.push(image.ok_or_else(|| format!("snapshot {name}, region {at}, does not hold {held}"))?);
        }
        taken.seen = Some(images);
        Ok(())
    }

    /// After a crash: checks what every region reads as, and goes on from there. Those of a hidden disk (`None`) are checked when it
    /// is back.
    pub fn check_after_crash(&mut self, contents: &[Option<Vec<u8>>]) -> Result<(), String> {
        let mut shortest = Vec::new();
        let mut longest = Vec::new();
        for (at, (region, bytes)) in self.regions.iter().zip(contents).enumerate() {
            let Some(bytes) = bytes else {
                shortest.push(0);
                longest.push(usize::MAX);
                continue;
            };
            let same = |image: &Image| image.read(0, image.size as usize) == *bytes;
            let most = region.model.prefix_matching(same);
            let most = most.ok_or_else(|| self.explain(at, bytes))?;
            longest.push(most);
            let fewest = (region.model.flush_line()..=most).find(|steps| same(&region.model.after(*steps)));
            shortest.push(fewest.unwrap_or(most));
        }
        self.tell(|| format!("found steps: {longest:?}"));
        self.check_order(&shortest, &longest)?;
        self.in_doubt &= self.hidden.is_some();
        for (region, steps) in self.regions.iter_mut().zip(&longest).filter(|(_, steps)| **steps < usize::MAX)
        {
            region.model.crashed_to(*steps);
            region.times.truncate(*steps);
            region.acked = *steps;
        }
        for taken in self.snapshots.values_mut() {
            taken.bounds.iter_mut().for_each(|(at, _, most)| *most = (*most).min(longest[*at]));
        }
        Ok(())
    }

    fn explain(&self, at: usize, bytes: &[u8]) -> String {
        let model = &self.regions[at].model;
        let (line, len) = (model.flush_line(), model.len());
        let holds = |image: &Image| image.read(0, image.size as usize) == *bytes;
        let lost = (0..line).rev().find(|steps| holds(&model.after(*steps)));
        match lost {
            Some(steps) => {
                format!("region {at} is back at step {steps}, but {line} of {len} had been flushed")
            }
            None => format!("region {at} reads as no prefix of its {len} steps ({line} flushed)"),
        }
    }

    /// When a step is there, so is every step that had been acknowledged before it was begun.
    fn check_order(&self, shortest: &[usize], longest: &[usize]) -> Result<(), String> {
        for (at, region) in self.regions.iter().enumerate() {
            let Some(last) = shortest[at].checked_sub(1) else { continue };
            let begun = region.times[last].0;
            for (other, region) in self.regions.iter().enumerate() {
                let before =
                    region.times.iter().take_while(|(_, acked)| acked.is_some_and(|acked| acked < begun));
                let before = before.count();
                if before > longest[other] {
                    return Err(format!(
                        "region {at} has step {last}, begun after step {} of region {other} was acknowledged, which is gone",
                        before - 1
                    ));
                }
            }
        }
        Ok(())
    }
}
