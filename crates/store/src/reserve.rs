//! Room promised to disks: a reserved disk can be written to its whole size, whatever the others do.
//!
//! *Promises*: what is promised is there. No reduction is assumed: a reserved disk counts with its full size, whatever deduplication
//! and compression make of it today, because it may be overwritten with what they can make nothing of. Others are refused with
//! `NoSpace` before they touch what was promised. *Never*: keeps anybody from trimming, or from reading.
//!
//! Invariant, looked at after every round of the fold, with room beside it for all that may be acknowledged until the next look:
//! either as much is *free* as was promised, so that every reserved disk could be written anew without anything coming back; or everything that is *kept*
//! beside the reserved disks, as it would be without reduction, fits with them into the place ([`physical_bytes_max`]). The first
//! is what a fresh promise gives; the second lets a reserved disk that is full not count twice.

use crate::disk::{Disk, State};
use crate::qos::PRESSURE_FULL;
use crate::rewrite;
use crate::store::{RESERVE_BYTES, Store};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use stonefold_engine::Room;
use stonefold_types::{BLOCK_BYTES, Error, Kind, Name, Result, Size};

/// What was promised, and what is kept beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Standing {
    /// Sizes of the reserved disks.
    promised_bytes: u64,
    /// What all else could take without reduction: the other disks' blocks, and all that snapshots hold.
    kept_bytes: u64,
}

/// Why a disk takes no more writes although the pool has room.
#[derive(Default)]
pub(crate) struct Refusal {
    refused: AtomicBool,
    why: Mutex<Option<Error>>,
}

impl Refusal {
    /// Fails while room that was promised to others is all that is left.
    pub(crate) fn check(&self) -> Result<()> {
        match self.refused.load(Ordering::Relaxed) {
            false => Ok(()),
            true => self.why.lock().clone().map_or(Ok(()), Err),
        }
    }

    /// Returns whether it was not refused before and is now.
    fn set(&self, why: Option<Error>) -> bool {
        let refuses = why.is_some();
        *self.why.lock() = why;
        !self.refused.swap(refuses, Ordering::Relaxed) && refuses
    }
}

/// What logical bytes can take in the place at most: a thirty-second for frames' headers, index and map, and a third on top because a
/// segment is written anew only when a quarter of it is dead.
fn physical_bytes_max(bytes: u64) -> u64 {
    bytes.saturating_mul(11) / 8
}

impl Standing {
    /// Whether room is left for `others`, the part of the promises that whoever writes must not touch.
    fn holds(&self, room: &Room, kept_free: u64, others: u64) -> bool {
        let untouched = room.free_bytes >= kept_free + physical_bytes_max(others);
        let all = physical_bytes_max(self.kept_bytes + self.promised_bytes);
        untouched || all + kept_free <= room.free_bytes.saturating_add(room.used_bytes)
    }
}

impl Store {
    /// Room that must be free whatever happens, in bytes: what was acknowledged must find its place.
    pub(crate) fn needed_bytes(&self) -> u64 {
        self.options.journal_bytes_max + RESERVE_BYTES
    }

    /// What must be free beside promises: the same, what others may still write until the next look, and what reclaim writes before it
    /// frees more than that.
    fn kept_free_bytes(&self) -> u64 {
        self.needed_bytes() + self.options.journal_bytes_max + rewrite::UNDER_WAY_BYTES_MAX
    }

    /// How urgent it is that reclaim gives room back, in thousandths: nothing while an eighth of the place is free beside what is kept, and
    /// [`PRESSURE_FULL`] from a sixty-fourth on: then it takes what it needs from clients, who would else be refused beside blocks that are
    /// dead.
    pub(crate) fn room_pressure(&self, room: &Room) -> u64 {
        pressure(room, self.kept_free_bytes())
    }
}

/// A larger place counts as one of this size: what is free there is enough for a long time.
const LARGE_BYTES: u64 = 1 << 40;

fn pressure(room: &Room, kept: u64) -> u64 {
    let part = |of: u64| room.total_bytes.min(LARGE_BYTES) / of;
    let (calm, full) = (kept + part(8), kept + part(64));
    let missing = u128::from(calm.saturating_sub(room.free_bytes));
    (missing * u128::from(PRESSURE_FULL) / u128::from((calm - full).max(1))).min(1000) as u64
}

impl Store {
    /// Looks who may still write. Returns whether anybody is refused.
    pub(crate) fn keep_promises(&self, room: &Room) -> bool {
        let standing = self.standing();
        let (mut any, mut began) = (false, false);
        for disk in self.all_disks() {
            let own = promised_to(&disk.state.lock());
            let others = standing.promised_bytes - own.min(standing.promised_bytes);
            let refused = others > 0 && !standing.holds(room, self.kept_free_bytes(), others);
            began |= disk.refusal.set(refused.then(|| refusal(room, others)));
            any |= refused;
        }
        if began {
            tracing::warn!("{}", refusal(room, standing.promised_bytes));
        }
        // A reserved disk that is full and is overwritten lives on what comes back. With half of that still to go there is time.
        let slack = (physical_bytes_max(standing.promised_bytes) - standing.promised_bytes) / 2;
        if slack > 0 && room.free_bytes < self.kept_free_bytes() + slack {
            self.hurry_reclaim();
        }
        any
    }

    /// Fails unless a disk can be promised its size; `now` is what it has been promised before.
    pub(crate) async fn check_promise(&self, disk: &Name, size_bytes: u64, now: u64) -> Result<()> {
        let room = self.engine.room().await?;
        let mut standing = self.standing();
        standing.promised_bytes = standing.promised_bytes - now + size_bytes;
        if standing.holds(&room, self.kept_free_bytes(), standing.promised_bytes) {
            return Ok(());
        }
        let (size, free) = (Size(size_bytes), Size(room.free_bytes));
        let others = Size(standing.promised_bytes - size_bytes);
        let what = format!(
            "disk '{disk}' cannot be promised its {size}: {free} are free in the pool, of which {others} are promised to others and {} \
             are kept to fold what was acknowledged",
            Size(self.kept_free_bytes())
        );
        Err(Error::new(Kind::NoSpace, what)
            .remedy("give the pool more room, choose a smaller size, or do not reserve it"))
    }

    /// Fails unless the promises still hold when a snapshot keeps what reserved disks hold now.
    pub(crate) async fn check_snapshot_room(&self, disks: &[Arc<Disk>]) -> Result<()> {
        let reserved = disks.iter().filter(|disk| promised_to(&disk.state.lock()) > 0);
        let more: u64 =
            reserved.map(|disk| disk.state.lock().commit.mapped_blocks * BLOCK_BYTES as u64).sum();
        if more == 0 {
            return Ok(());
        }
        let room = self.engine.room().await?;
        let mut standing = self.standing();
        standing.kept_bytes += more;
        if standing.holds(&room, self.kept_free_bytes(), standing.promised_bytes) {
            return Ok(());
        }
        let what = format!(
            "a snapshot would keep up to {} of disks that reserve their size, which then could no longer be written to it",
            Size(more)
        );
        Err(Error::new(Kind::NoSpace, what).remedy(
            "give the pool more room, or release the disk with 'stonefold disk set NAME --reserve off'",
        ))
    }

    fn standing(&self) -> Standing {
        let mut standing = Standing::default();
        for disk in self.disks_and_gone() {
            let state = disk.state.lock();
            let promised = if disk.is_gone() { 0 } else { promised_to(&state) };
            standing.promised_bytes += promised;
            let blocks = kept_blocks(&state, promised > 0);
            standing.kept_bytes =
                standing.kept_bytes.saturating_add(blocks.saturating_mul(BLOCK_BYTES as u64));
        }
        standing
    }
}

/// What was promised to a disk, in bytes.
pub(crate) fn promised_to(state: &State) -> u64 {
    if state.settings.reserve { state.size_bytes } else { 0 }
}

/// Blocks that a disk keeps beside what was promised to it: what snapshots hold; its own when nothing was promised.
fn kept_blocks(state: &State, reserved: bool) -> u64 {
    let newest = state.snapshots.last();
    let mapped = match newest {
        Some(newest) if reserved => newest.commit.unwrap_or(state.commit).mapped_blocks,
        None if reserved => 0,
        _ => state.commit.mapped_blocks.max(newest.and_then(|s| s.commit).unwrap_or_default().mapped_blocks),
    };
    let open: u64 = state.deaths.iter().map(|at| u64::from(at.addresses)).sum();
    mapped + state.snapshots.dead() + open
}

fn refusal(room: &Room, promised: u64) -> Error {
    let (free, promised) = (Size(room.free_bytes), Size(promised));
    let what = format!(
        "the pool has no room but what it promised: {free} are free, and {promised} are reserved for disks"
    );
    Error::new(Kind::NoSpace, what)
        .remedy("give it more room, remove something, or release one with 'stonefold disk set NAME --reserve off'; reads and trims go on")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// *Past bug*: reclaim kept to its part beside busy clients however little room was left, and they were refused beside dead blocks.
    #[test]
    fn reclaim_is_the_more_urgent_the_less_room_is_left() {
        let room = |free_bytes| Room { free_bytes, total_bytes: 64_000, ..Room::default() };
        let of = |free| pressure(&room(free), 500);
        assert_eq!((of(64_000), of(8_500), of(1_500), of(0)), (0, 0, PRESSURE_FULL, 910));
        assert!(of(8_000) > 0 && of(5_000) > of(8_000) && of(5_000) < PRESSURE_FULL);
        assert_eq!(pressure(&Room::default(), 0), 0);
    }

    #[test]
    fn a_full_disk_does_not_count_twice_and_an_empty_one_counts_in_full() {
        const GIB: u64 = 1 << 30;
        let standing = |promised, kept| Standing { promised_bytes: promised * GIB, kept_bytes: kept * GIB };
        let room = |free, used| Room { free_bytes: free * GIB, used_bytes: used * GIB, ..Room::default() };
        // Ten promised and nothing written: they must be free.
        assert!(standing(10, 9).holds(&room(15, 8), GIB, 10 * GIB));
        assert!(!standing(10, 9).holds(&room(14, 8), GIB, 10 * GIB));
        // Ten promised and written: they need not be free once more, as long as all fits without reduction.
        assert!(standing(10, 2).holds(&room(6, 12), GIB, 10 * GIB));
        assert!(!standing(10, 4).holds(&room(6, 12), GIB, 10 * GIB));
    }
}
