//! Idle page-aligned memory, kept for the next buffer.
//!
//! Fresh memory costs a page fault for each 4 KiB, and the kernel's clearing of it: a fifth of the time of a small write
//! before memory was kept. *Owns*: what it keeps. *Promises*: never keeps more than [`KEPT_BYTES_MAX`], nor so
//! much that with what is in use it would be more than was ever in use at one time; gives each run to one taker.
//!
//! What goes when there is too much is what was not missed: of each capacity the shelf knows how many runs have lain there untouched
//! (Bonwick's working set, *Magazines and Vmem*, 2001). So a segment's buffer, which is asked for once in a second, stays
//! beside the journal's, which are asked for all the time; by age it would always have been the one to go, 18 MiB given back and made
//! anew each second.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Mutex;

/// Kept at most, in bytes, by the whole process: what a journal of the usual size gives back when it is folded, for the writes that come
/// next, and the buffers of the segments it is folded into.
const KEPT_BYTES_MAX: usize = 256 << 20;

/// What the process keeps.
pub(crate) static SHELF: Mutex<Shelf> = Mutex::new(Shelf::new(KEPT_BYTES_MAX));

/// Runs with their capacities that are the caller's to release.
pub(crate) type Released = Vec<(NonNull<u8>, usize)>;

/// Idle runs of memory by their capacity.
pub(crate) struct Shelf {
    classes: BTreeMap<usize, Class>,
    bytes: usize,
    bytes_max: usize,
    /// Bytes that are not here but with takers, and the most that this was since everything was last given up.
    in_use: usize,
    in_use_most: usize,
}

#[derive(Default)]
struct Class {
    idle: Vec<Idle>,
    /// Of these, so many have lain here since `Shelf::count_spares`.
    spare: usize,
}

/// The start of a run that nobody refers to.
struct Idle(NonNull<u8>);

// SAFETY: plain memory that nobody else knows; it is tied to no thread.
unsafe impl Send for Idle {}

impl Shelf {
    const fn new(bytes_max: usize) -> Self {
        Shelf { classes: BTreeMap::new(), bytes: 0, bytes_max, in_use: 0, in_use_most: 0 }
    }

    /// A run of exactly `capacity` bytes, which holds anything; nothing when the taker is to make one, and then with what has to go
    /// for it, which is the caller's to release.
    pub(crate) fn take(&mut self, capacity: usize) -> (Option<NonNull<u8>>, Released) {
        let class = self.classes.entry(capacity).or_default();
        if let Some(Idle(start)) = class.idle.pop() {
            class.spare = class.spare.min(class.idle.len());
            self.bytes -= capacity;
            self.in_use += capacity;
            self.in_use_most = self.in_use_most.max(self.in_use);
            return (Some(start), Vec::new());
        }
        (None, self.made(capacity))
    }

    /// A run of `capacity` bytes was made by somebody who has not asked; what has to go for it is the caller's to release.
    pub(crate) fn made(&mut self, capacity: usize) -> Released {
        self.in_use += capacity;
        self.in_use_most = self.in_use_most.max(self.in_use);
        self.shrink()
    }

    /// Keeps a run, of a capacity that was asked for before; what has to go instead is returned with its capacity, and is the
    /// caller's to release.
    pub(crate) fn keep(&mut self, start: NonNull<u8>, capacity: usize) -> Released {
        self.in_use -= capacity;
        if capacity > self.bytes_max || !self.classes.contains_key(&capacity) {
            return vec![(start, capacity)];
        }
        self.classes.entry(capacity).or_default().idle.push(Idle(start));
        self.bytes += capacity;
        self.shrink()
    }

    /// Lets go until the bounds hold.
    fn shrink(&mut self) -> Released {
        let bytes_max = self.bytes_max.min(self.in_use_most - self.in_use);
        let mut released = Vec::new();
        while self.bytes > bytes_max {
            let (capacity, class) = self.most_spare();
            let Idle(start) = class.idle.pop().expect("what is spare is idle");
            class.spare -= 1;
            released.push((start, capacity));
            self.bytes -= capacity;
        }
        released
    }

    /// The class with the most bytes that were not missed. Some are kept.
    fn most_spare(&mut self) -> (usize, &mut Class) {
        if self.classes.values().all(|class| class.spare == 0) {
            self.count_spares();
        }
        let most = self.classes.iter_mut().max_by_key(|(capacity, class)| *capacity * class.spare);
        let (capacity, class) = most.expect("what is kept is in a class");
        (*capacity, class)
    }

    /// From now on it is counted anew what lies untouched.
    fn count_spares(&mut self) {
        self.classes.values_mut().for_each(|class| class.spare = class.idle.len());
    }

    /// Gives up everything; it is the caller's to release.
    pub(crate) fn clear(&mut self) -> Released {
        self.bytes = 0;
        self.in_use_most = self.in_use;
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
    fn keeps_to_its_bound_and_to_what_was_asked_for() {
        let mut shelf = Shelf::new(100);
        assert_eq!(shelf.made(1000), [], "so much was in use once");
        assert_eq!(shelf.keep(run(1), 40), [(run(1), 40)], "nobody has ever asked for such");
        assert_eq!((shelf.take(40).0, shelf.take(30).0), (None, None));
        assert!(shelf.keep(run(1), 40).is_empty() && shelf.keep(run(2), 40).is_empty());
        assert_eq!(shelf.keep(run(3), 30), [(run(2), 40)], "of the capacity of which most lies idle");
        assert_eq!(shelf.keep(run(4), 30), [], "exactly full");
        assert_eq!((shelf.take(40).0, shelf.take(30).0), (Some(run(1)), Some(run(4))));
        assert_eq!(shelf.keep(run(7), 101), [(run(7), 101)]);
        assert_eq!((shelf.clear().len(), shelf.bytes, shelf.take(30).0), (1, 0, None));
    }

    /// Goal: a buffer that is asked for seldom is there when it is asked for, beside others that come and go all the time; what nobody
    /// asks for any more makes room for both. *Past bug*: by age the seldom one was the first to go, each time.
    #[test]
    fn what_lies_untouched_goes_first() {
        let mut shelf = Shelf::new(100);
        shelf.made(1000);
        let take = |shelf: &mut Shelf, capacity| {
            let kept = shelf.take(capacity).0;
            (kept.is_none(), kept.unwrap_or(run(1 << 20 | capacity)))
        };
        let old: Vec<_> = (0..8).map(|_| take(&mut shelf, 9).1).collect();
        old.into_iter().for_each(|start| assert_eq!(shelf.keep(start, 9), []));
        let mut made = 0;
        for round in 0..10 {
            let often: Vec<_> = (0..8).map(|_| take(&mut shelf, 5)).collect();
            let seldom = take(&mut shelf, 40);
            if round > 2 {
                made += often.iter().chain([&seldom]).filter(|(made, _)| *made).count();
            }
            shelf.keep(seldom.1, 40);
            often.into_iter().for_each(|(_, start)| drop(shelf.keep(start, 5)));
        }
        assert_eq!(made, 0, "none but the first had to be made");
        assert!(shelf.classes[&9].idle.len() <= 2, "{} that nobody wants", shelf.classes[&9].idle.len());
    }

    /// What is kept and what is in use together are never more than what was in use at one time: keeping costs no memory.
    #[test]
    fn keeping_does_not_raise_the_most_that_is_used() {
        let mut shelf = Shelf::new(100);
        assert_eq!((shelf.take(40).0, shelf.take(40).0), (None, None));
        assert!(shelf.keep(run(1), 40).is_empty() && shelf.keep(run(2), 40).is_empty());
        assert_eq!(shelf.take(30), (None, vec![(run(2), 40)]), "80 were in use");
        assert_eq!(shelf.take(40), (Some(run(1)), vec![]));
        assert_eq!((shelf.in_use, shelf.in_use_most, shelf.bytes), (70, 80, 0));
        assert!(shelf.keep(run(3), 30).is_empty());
        shelf.clear();
        assert_eq!((shelf.in_use, shelf.in_use_most), (40, 40), "emptied, it begins anew");
    }
}
