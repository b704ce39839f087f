//! The reference disk: the one definition of correct that every kind of test consults.
//!
//! A disk is a sequence of *steps* (writes, zeroes, snapshots, resizes). What it holds now is all of them in order;
//! what a crash may leave of it is any prefix that contains every step up to the *flush line*. Nothing else.

use std::collections::BTreeMap;

/// The grain at which the model remembers contents. Finer than a store's block, so that partial writes show.
const GRAIN: u64 = 512;

/// A change to a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// `data` at `offset`; both multiples of 512.
    Write {
        /// In bytes.
        offset: u64,
        /// What is written.
        data: Vec<u8>,
    },
    /// Zeros.
    Zero {
        /// In bytes.
        offset: u64,
        /// In bytes.
        len: u64,
    },
    /// Keeps the present under a name.
    Snapshot(String),
    /// A new size in bytes. What a shrink cuts off is gone, also when the disk grows again.
    Resize(u64),
}

impl Step {
    /// For traces.
    pub fn in_words(&self) -> String {
        match self {
            Step::Write { offset, data } => format!("to write {} bytes at {offset}", data.len()),
            Step::Zero { offset, len } => format!("to zero {len} bytes at {offset}"),
            Step::Snapshot(name) => format!("to snapshot '{name}'"),
            Step::Resize(size) => format!("to resize to {size} bytes"),
        }
    }
}

/// The contents of a disk at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// In bytes.
    pub size: u64,
    grains: BTreeMap<u64, [u8; GRAIN as usize]>,
}

impl Image {
    /// All zeros.
    pub fn new(size: u64) -> Self {
        Image { size, grains: BTreeMap::new() }
    }

    /// Applies a step; a snapshot changes nothing here.
    pub fn apply(&mut self, step: &Step) {
        match step {
            Step::Write { offset, data } => {
                for (index, grain) in data.chunks(GRAIN as usize).enumerate() {
                    let grain = grain.try_into().expect("writes are whole grains");
                    self.grains.insert(offset / GRAIN + index as u64, grain);
                }
            }
            Step::Zero { offset, len } => self.forget(offset / GRAIN, (offset + len) / GRAIN),
            Step::Snapshot(_) => {}
            Step::Resize(size) => {
                self.size = *size;
                self.forget(size.div_ceil(GRAIN), u64::MAX);
            }
        }
    }

    fn forget(&mut self, from: u64, to: u64) {
        let gone: Vec<u64> = self.grains.range(from..to).map(|(at, _)| *at).collect();
        for at in gone {
            self.grains.remove(&at);
        }
    }

    /// `len` bytes from `offset`, both multiples of 512.
    pub fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        for (at, grain) in self.grains.range(offset / GRAIN..(offset + len as u64) / GRAIN) {
            let start = (at * GRAIN - offset) as usize;
            bytes[start..start + GRAIN as usize].copy_from_slice(grain);
        }
        bytes
    }
}

/// A disk with its history.
#[derive(Clone, Debug)]
pub struct ReferenceDisk {
    origin: Image,
    steps: Vec<Step>,
    /// Steps that must survive: all with a lower index.
    flush_line: usize,
    now: Image,
}

impl ReferenceDisk {
    /// A new disk of zeros.
    pub fn new(size: u64) -> Self {
        Self::from_image(Image::new(size))
    }

    /// A disk that begins with contents: a clone.
    pub fn from_image(origin: Image) -> Self {
        ReferenceDisk { now: origin.clone(), origin, steps: Vec::new(), flush_line: 0 }
    }

    /// Adds a step and returns its number.
    pub fn step(&mut self, step: Step) -> usize {
        self.now.apply(&step);
        self.steps.push(step);
        self.steps.len()
    }

    /// A flush that covered the first `steps` steps has completed. A line never goes back.
    pub fn flushed(&mut self, steps: usize) {
        self.flush_line = self.flush_line.max(steps);
    }

    /// Steps that must survive a crash.
    pub fn flush_line(&self) -> usize {
        self.flush_line
    }

    /// Steps so far.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether nothing has been done to it.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// What it holds.
    pub fn now(&self) -> &Image {
        &self.now
    }

    /// What it held when `name` was taken.
    pub fn snapshot(&self, name: &str) -> Option<Image> {
        let at = self.steps.iter().rposition(|step| matches!(step, Step::Snapshot(n) if n == name))?;
        Some(self.after(at))
    }

    /// What it held after the first `steps` steps.
    pub fn after(&self, steps: usize) -> Image {
        let mut image = self.origin.clone();
        self.steps[..steps].iter().for_each(|step| image.apply(step));
        image
    }

    /// After a crash: the longest prefix of the steps, not shorter than the flush line, that `seen` equals; `None`
    /// when there is none, which is a lost or an invented write.
    pub fn prefix_matching(&self, mut seen: impl FnMut(&Image) -> bool) -> Option<usize> {
        (self.flush_line..=self.steps.len()).rev().find(|steps| seen(&self.after(*steps)))
    }

    /// Takes back the steps beyond a prefix, none of which was flushed: they were refused.
    pub fn take_back_to(&mut self, steps: usize) {
        assert!(steps >= self.flush_line, "flushed steps never vanish");
        self.steps.truncate(steps);
        self.now = self.after(steps);
    }

    /// Continues from a prefix: what lies beyond is as if it had never been.
    pub fn crashed_to(&mut self, steps: usize) {
        self.take_back_to(steps);
        self.flush_line = steps;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_leaves_a_prefix_beyond_the_flush_line() {
        let mut disk = ReferenceDisk::new(8192);
        let first = disk.step(Step::Write { offset: 0, data: vec![1; 512] });
        disk.flushed(first);
        disk.step(Step::Snapshot("s".into()));
        disk.step(Step::Write { offset: 512, data: vec![2; 512] });
        disk.step(Step::Zero { offset: 0, len: 512 });
        assert_eq!(disk.now().read(0, 1024), [vec![0; 512], vec![2; 512]].concat());
        assert_eq!(disk.snapshot("s").unwrap().read(0, 512), vec![1; 512]);

        let only_first = disk.after(1);
        assert_eq!(disk.prefix_matching(|image| *image == only_first), Some(2), "the mark changes nothing");
        assert_eq!(
            disk.prefix_matching(|image| *image == Image::new(8192)),
            None,
            "the flushed write is lost"
        );
        disk.crashed_to(2);
        assert_eq!(disk.now().read(0, 512), vec![1; 512]);
    }

    #[test]
    fn a_shrink_forgets() {
        let mut disk = ReferenceDisk::new(8192);
        disk.step(Step::Write { offset: 4096, data: vec![1; 4096] });
        disk.step(Step::Resize(4096));
        disk.step(Step::Resize(8192));
        assert_eq!(disk.now().read(4096, 4096), vec![0; 4096]);
    }
}
