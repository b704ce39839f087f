//! Idle page-aligned memory, kept for the next buffer.
//!
//! Fresh memory costs a page fault for each 4 KiB, and the kernel's clearing of it: a fifth of the time of a small write
//! before memory was kept. *Owns*: what it keeps. *Promises*: never keeps more than [`KEPT_BYTES_MAX`]; gives each run to one taker.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Mutex;

/// Kept at most, in bytes, by the whole process: most of what a journal of the usual size gives back when it is folded, for the writes that
/// come next. It was in use a moment ago, so that keeping it does not raise the most that is ever used.
const KEPT_BYTES_MAX: usize = 128 << 20;

/// What the process keeps.
pub(crate) static SHELF: Mutex<Shelf> = Mutex::new(Shelf::new(KEPT_BYTES_MAX));

/// Idle runs of memory by their capacity.
pub(crate) struct Shelf {
    classes: BTreeMap<usize, Class>,
    bytes: usize,
    bytes_max: usize,
    /// Counts takings, to tell which class was used last.
    clock: u64,
}

#[derive(Default)]
struct Class {
    idle: Vec<Idle>,
    used: u64,
}

/// The start of a run that nobody refers to.
struct Idle(NonNull<u8>);

// SAFETY: plain memory that nobody else knows; it is tied to no thread.
unsafe impl Send for Idle {}

impl Shelf {
    const fn new(bytes_max: usize) -> Self {
        Shelf { classes: BTreeMap::new(), bytes: 0, bytes_max, clock: 0 }
    }

    /// A run of exactly `capacity` bytes, which holds anything.
    pub(crate) fn take(&mut self, capacity: usize) -> Option<NonNull<u8>> {
        self.clock += 1;
        let class = self.classes.entry(capacity).or_default();
        class.used = self.clock;
        let Idle(start) = class.idle.pop()?;
        self.bytes -= capacity;
        Some(start)
    }

    /// Keeps a run, of a capacity that was asked for lately; what has to go instead is returned with its capacity, and is the
    /// caller's to release.
    pub(crate) fn keep(&mut self, start: NonNull<u8>, capacity: usize) -> Vec<(NonNull<u8>, usize)> {
        if capacity > self.bytes_max || !self.classes.contains_key(&capacity) {
            return vec![(start, capacity)];
        }
        self.classes.entry(capacity).or_default().idle.push(Idle(start));
        self.bytes += capacity;
        let mut released = Vec::new();
        while self.bytes > self.bytes_max {
            let oldest =
                self.classes.iter().min_by_key(|(_, class)| class.used).map(|(capacity, _)| *capacity);
            let oldest = oldest.expect("what is kept is in a class");
            let class = self.classes.get_mut(&oldest).expect("found just now");
            match class.idle.pop() {
                Some(Idle(start)) => {
                    self.bytes -= oldest;
                    released.push((start, oldest));
                }
                // Nobody has asked for it for longer than for any other.
                None => {
                    self.classes.remove(&oldest);
                }
            }
        }
        released
    }

    /// Gives up everything; it is the caller's to release.
    pub(crate) fn clear(&mut self) -> Vec<(NonNull<u8>, usize)> {
        self.bytes = 0;
        let classes = std::mem::take(&mut self.classes).into_iter();
        classes
            .flat_map(|(capacity, class)| class.idle.into_iter().map(move |Idle(start)| (start, capacity)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(at: usize) -> NonNull<u8> {
        NonNull::new(std::ptr::without_provenance_mut(at)).unwrap()
    }

    #[test]
    fn what_was_asked_for_longest_ago_goes_first() {
        let mut shelf = Shelf::new(100);
        assert_eq!(shelf.keep(run(1), 40), [(run(1), 40)], "nobody has ever asked for such");
        assert_eq!((shelf.take(40), shelf.take(30)), (None, None));
        assert!(shelf.keep(run(1), 40).is_empty() && shelf.keep(run(2), 40).is_empty());
        assert_eq!(shelf.keep(run(3), 30), [(run(2), 40)]);
        assert_eq!(shelf.keep(run(4), 30), [], "exactly full");
        assert_eq!(shelf.keep(run(5), 30), [(run(1), 40)]);
        assert_eq!(shelf.keep(run(6), 30), [(run(6), 30)], "the class of 40 is gone, and this one is full");
        assert_eq!((shelf.take(40), shelf.take(30)), (None, Some(run(5))));
        assert_eq!(shelf.keep(run(7), 101), [(run(7), 101)]);
        assert_eq!((shelf.clear().len(), shelf.bytes, shelf.take(30)), (2, 0, None));
    }
}
