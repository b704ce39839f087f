//! Which members an object, or a file of a journal, lies on.
//!
//! A rule and no table: every member draws a number from the object's key, and the highest `copies` of those that are
//! current have it. So objects spread evenly, a disk's segments lie on all members, and when a member goes only what
//! lay on it changes its place: whoever had a copy before and is still there has it afterwards.

use super::roster::{MEMBERS_MAX, MemberId};
use crate::{JournalId, Key};
use xxhash_rust::xxh3::xxh3_64;

/// Seats of members, the first choice first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Targets {
    seats: [u8; MEMBERS_MAX],
    len: usize,
}

impl Targets {
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = usize> {
        let seats = self.seats;
        (0..self.len).map(move |at| usize::from(seats[at]))
    }

    pub(super) fn first(&self) -> usize {
        usize::from(self.seats[0])
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn contains(&self, seat: usize) -> bool {
        self.iter().any(|one| one == seat)
    }
}

/// A member that can be chosen: its seat, and its part in the draw.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) seat: usize,
    lot: u64,
}

impl Candidate {
    pub(super) fn new(seat: usize, id: &MemberId) -> Self {
        Candidate { seat, lot: xxh3_64(id) }
    }
}

/// The members that an object lies on.
pub(super) fn of_object(key: &Key, candidates: &[Candidate], copies: usize) -> Targets {
    let mut targets = Targets { seats: [0; MEMBERS_MAX], len: 0 };
    if let [only] = candidates {
        targets.seats[0] = only.seat as u8;
        targets.len = 1;
        return targets;
    }
    let drawn = xxh3_64(key.as_str().as_bytes());
    let mut scores = [0; MEMBERS_MAX];
    for candidate in candidates {
        let mut both = [0; 16];
        both[..8].copy_from_slice(&drawn.to_le_bytes());
        both[8..].copy_from_slice(&candidate.lot.to_le_bytes());
        let score = xxh3_64(&both);
        let at = scores[..targets.len].partition_point(|other| *other >= score);
        if at == copies {
            continue;
        }
        targets.len = copies.min(targets.len + 1);
        scores[at..targets.len].rotate_right(1);
        targets.seats[at..targets.len].rotate_right(1);
        scores[at] = score;
        targets.seats[at] = candidate.seat as u8;
    }
    targets
}

/// The members that file `number` of a journal lies on: they take turns, so that a long journal uses all of them.
pub(super) fn of_journal_file(
    id: JournalId,
    number: u64,
    candidates: &[Candidate],
    copies: usize,
) -> Vec<usize> {
    let members = candidates.len();
    let first = (xxh3_64(&id.0) % members as u64).wrapping_add(number.wrapping_mul(copies as u64));
    (0..copies.min(members) as u64)
        .map(|n| candidates[(first.wrapping_add(n) % members as u64) as usize].seat)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn candidates(seats: impl IntoIterator<Item = usize>) -> Vec<Candidate> {
        seats.into_iter().map(|seat| Candidate::new(seat, &[seat as u8 * 37 + 1; 16])).collect()
    }

    #[test]
    fn objects_spread_evenly_over_different_members() {
        for (members, copies) in [(2, 1), (3, 2), (5, 2), (5, 5)] {
            let all = candidates(0..members);
            let mut counts = vec![0usize; members];
            for n in 0..3000 {
                let targets = of_object(&Key::new(format!("segment/{n:016x}")), &all, copies);
                let seats: BTreeSet<usize> = targets.iter().collect();
                assert_eq!(seats.len(), copies);
                seats.iter().for_each(|seat| counts[*seat] += 1);
            }
            let fair = 3000 * copies / members;
            assert!(counts.iter().all(|count| count.abs_diff(fair) <= fair / 8), "{counts:?}, fair {fair}");
        }
    }

    /// What stays current keeps what it had; that is what lets a dropped member's copies be made again elsewhere.
    #[test]
    fn a_member_that_goes_moves_only_its_own() {
        let (all, without) = (candidates(0..4), candidates([0, 1, 3]));
        for n in 0..500 {
            let key = Key::new(format!("segment/{n}"));
            let (before, after) = (of_object(&key, &all, 2), of_object(&key, &without, 2));
            assert!(before.iter().filter(|seat| *seat != 2).all(|seat| after.contains(seat)));
        }
    }

    #[test]
    fn files_of_a_journal_take_turns() {
        let id = JournalId([7; 16]);
        for (members, copies) in [(1, 1), (2, 1), (2, 2), (3, 2), (5, 2)] {
            let all = candidates(0..members);
            let mut used = BTreeSet::new();
            for number in 0..members as u64 {
                let seats: BTreeSet<usize> = of_journal_file(id, number, &all, copies).into_iter().collect();
                assert_eq!(seats.len(), copies);
                used.extend(seats);
            }
            assert_eq!(used.len(), members, "all members are used");
        }
    }
}
