//! Who is next when disks compete: reservations first, then shares.
//!
//! After mClock (Gulati, Merchant, Varman: mClock: Handling Throughput Variability for Hypervisor IO Scheduling, OSDI
//! 2010). What is under way at one time is bounded by a *window*; while it is full, requests wait in a queue for each disk,
//! and each queue's first has two tags. *Reserved at*, in time: when the next request is due if the disk is to have its
//! reservation. *Start*, in virtual time: what the disk has got already, divided by its share. A place that becomes free goes
//! to the earliest reservation that is due, else to the lowest start. The paper's third tag, the limit, is a stage before
//! this one ([`super::limit`]), so that a limited disk holds nothing while it waits.
//!
//! *Promises*: nobody waits while there is room; whoever waits gets a place in the end, whatever the others do; a disk that was
//! idle has saved nothing up (its start is never before virtual time), and one whose reservation carried it ahead owes at most one
//! window. *Never*: reads a clock, wakes anybody.
//!
//! Reads and writes have a *lane* each, with a window and virtual time of its own: writes that wait for the fold to make room
//! must not keep anybody from reading. Shares are kept within each lane, reservations over both.

use super::flow::{Flow, Place, Ready};
use parking_lot::MutexGuard;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use stonefold_types::QosFigures;
use tokio::sync::oneshot;

/// What is under way at one time in a lane while disks compete, in cost: some 58 requests of 4 KiB, or 7 of 256 KiB. Less leaves
/// the engine idle between them and the group commit small; of more the engine makes nothing, and it would take all the
/// longer until a disk that comes in gets its part.
pub(crate) const WINDOW_SHARED: u64 = 2 << 20;
/// The same for a disk that has the lane to itself: whatever clients send, but for what would make the next disk wait
/// noticeably for the first place.
pub(crate) const WINDOW_ALONE: u64 = 16 << 20;
/// What a request costs beside its length, in bytes: on flash, a 4 KiB request takes about as long as half of one of 64 KiB.
const REQUEST_COST: u64 = 32 << 10;
/// Virtual time that a cost of one takes at share one. Enough for two digits at the smallest request and the largest share;
/// small enough that 64 bits last for decades.
pub(crate) const VIRTUAL: u64 = 64;

const SECOND: u64 = 1_000_000_000;

/// What a request costs.
pub(crate) fn cost(bytes: u64) -> u64 {
    REQUEST_COST + bytes
}

/// What of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Reads,
    Writes,
}

/// A disk's place in each lane.
#[derive(Default)]
pub(crate) struct Tags {
    pub(crate) figures: QosFigures,
    /// When its reservation is due next, in operations and in bytes.
    reserved_at: [u64; 2],
    lanes: [Line; 2],
}

#[derive(Default)]
struct Line {
    /// The start of the next request, in virtual time.
    start: u64,
    /// Requests under way.
    under_way: u32,
    waiting: VecDeque<Waiting>,
    /// Where the first of the waiting stands in the lane's queues.
    keys: Option<(u64, Option<u64>)>,
}

struct Waiting {
    bytes: u64,
    since: u64,
    tell: oneshot::Sender<Place>,
}

/// Both lanes.
#[derive(Default)]
pub(crate) struct Lanes([Queues; 2]);

#[derive(Default)]
struct Queues {
    /// Cost under way.
    under_way: u64,
    /// Disks with something under way.
    busy: usize,
    /// Virtual time: the start of the request that was let in last by share.
    now: u64,
    by_share: BTreeMap<(u64, u64), Arc<Flow>>,
    by_reservation: BTreeMap<(u64, u64), Arc<Flow>>,
}

impl Lanes {
    /// Lets a request in when there is room and nobody waits.
    #[inline]
    pub(crate) fn enter(&mut self, flow: &Flow, lane: Lane, bytes: u64) -> bool {
        let queues = &mut self.0[lane as usize];
        let mut tags = flow.tags.lock();
        let alone = queues.busy == usize::from(tags.lanes[lane as usize].under_way > 0);
        if !queues.by_share.is_empty() || !queues.has_room(alone, bytes) {
            return false;
        }
        queues.let_in(&mut tags, lane, bytes, false);
        true
    }

    /// Puts a request into the queue.
    pub(crate) fn wait(
        &mut self,
        flow: &Arc<Flow>,
        lane: Lane,
        bytes: u64,
        now: Duration,
    ) -> oneshot::Receiver<Place> {
        let (tell, told) = oneshot::channel();
        let mut tags = flow.tags.lock();
        tags.lanes[lane as usize].waiting.push_back(Waiting { bytes, since: nanos(now), tell });
        if tags.lanes[lane as usize].keys.is_none() {
            self.0[lane as usize].stand(flow, &mut tags, lane);
        }
        told
    }

    /// A request has ended.
    #[inline]
    pub(crate) fn leave(&mut self, flow: &Flow, lane: Lane, bytes: u64) {
        let queues = &mut self.0[lane as usize];
        queues.under_way -= cost(bytes);
        let mut tags = flow.tags.lock();
        let line = &mut tags.lanes[lane as usize];
        line.under_way -= 1;
        queues.busy -= usize::from(line.under_way == 0);
    }

    /// Whether anybody waits.
    #[inline]
    pub(crate) fn is_queued(&self, lane: Lane) -> bool {
        !self.0[lane as usize].by_share.is_empty()
    }

    /// Lets in whoever is next for as long as there is room. They are to be told without this lock.
    pub(crate) fn next(&mut self, lane: Lane, now: Duration, ready: &mut Vec<Ready>) {
        let queues = &mut self.0[lane as usize];
        while let Some((flow, reserved)) = queues.first(lane, nanos(now)) {
            let mut tags = flow.tags.lock();
            let line = &mut tags.lanes[lane as usize];
            let first = line.waiting.front().expect("whoever stands in a queue waits");
            let gone = first.tell.is_closed();
            let alone = queues.by_share.len() == 1 && queues.busy == usize::from(line.under_way > 0);
            if !gone && !queues.has_room(alone, first.bytes) {
                return;
            }
            let Waiting { bytes, since, tell } = line.waiting.pop_front().expect("it was just there");
            queues.leave_queue(&flow, &mut tags, lane);
            if !gone {
                if reserved {
                    tags.reserve(bytes, since);
                }
                queues.let_in(&mut tags, lane, bytes, reserved);
            }
            queues.stand(&flow, &mut tags, lane);
            drop(tags);
            if !gone {
                ready.push(Ready { flow, lane, bytes, tell });
            }
        }
    }

    /// A disk's figures from now on.
    pub(crate) fn set(&mut self, flow: &Arc<Flow>, figures: QosFigures, now: Duration) {
        let mut tags = flow.tags.lock();
        tags.figures = figures;
        // What was due at the old rates is settled.
        tags.reserved_at = [nanos(now); 2];
        for lane in [Lane::Reads, Lane::Writes] {
            let queues = &mut self.0[lane as usize];
            queues.leave_queue(flow, &mut tags, lane);
            // What it owed was counted at the old share.
            let owed = queues.now + WINDOW_SHARED * VIRTUAL / u64::from(figures.share);
            let line = &mut tags.lanes[lane as usize];
            line.start = line.start.min(owed);
            queues.stand(flow, &mut tags, lane);
        }
    }

    /// How far virtual time has come, in both lanes together: what a disk of share one has got.
    pub(crate) fn progress(&self) -> u64 {
        self.0[0].now + self.0[1].now
    }

    /// Whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.0.iter().all(|queues| queues.under_way == 0)
    }
}

impl Queues {
    fn has_room(&self, alone: bool, bytes: u64) -> bool {
        let window = if alone { WINDOW_ALONE } else { WINDOW_SHARED };
        // One request may be longer than any window.
        self.under_way == 0 || self.under_way + cost(bytes) <= window
    }

    fn let_in(&mut self, tags: &mut Tags, lane: Lane, bytes: u64, reserved: bool) {
        let share = u64::from(tags.figures.share);
        let line = &mut tags.lanes[lane as usize];
        let start = line.start.max(self.now);
        line.start = start + cost(bytes) * VIRTUAL / share;
        if reserved {
            // Ahead of the others, but not so far that they could keep it from its share for long.
            line.start = line.start.min(self.now + WINDOW_SHARED * VIRTUAL / share);
        } else {
            self.now = start;
        }
        self.busy += usize::from(line.under_way == 0);
        line.under_way += 1;
        self.under_way += cost(bytes);
    }

    /// Puts a disk that waits into the queues.
    fn stand(&mut self, flow: &Arc<Flow>, tags: &mut MutexGuard<'_, Tags>, lane: Lane) {
        let Some(first) = tags.lanes[lane as usize].waiting.front() else { return };
        let reserved_at = tags.reserved_at(first.since);
        let start = tags.lanes[lane as usize].start.max(self.now);
        tags.lanes[lane as usize].keys = Some((start, reserved_at));
        self.by_share.insert((start, flow.id), flow.clone());
        if let Some(at) = reserved_at {
            self.by_reservation.insert((at, flow.id), flow.clone());
        }
    }

    fn leave_queue(&mut self, flow: &Flow, tags: &mut Tags, lane: Lane) {
        if let Some((start, reserved_at)) = tags.lanes[lane as usize].keys.take() {
            self.by_share.remove(&(start, flow.id));
            reserved_at.map(|at| self.by_reservation.remove(&(at, flow.id)));
        }
    }

    /// Whose turn it is, and whether by reservation.
    fn first(&mut self, lane: Lane, now: u64) -> Option<(Arc<Flow>, bool)> {
        while let Some((&(at, _), flow)) = self.by_reservation.first_key_value() {
            if at > now {
                break;
            }
            let flow = flow.clone();
            let mut tags = flow.tags.lock();
            let since = tags.lanes[lane as usize].waiting.front().map_or(now, |first| first.since);
            match tags.reserved_at(since) {
                // The other lane has had what was due here.
                Some(later) if later > at => {
                    self.leave_queue(&flow, &mut tags, lane);
                    self.stand(&flow, &mut tags, lane);
                }
                _ => {
                    drop(tags);
                    return Some((flow, true));
                }
            }
        }
        self.by_share.first_key_value().map(|(_, flow)| (flow.clone(), false))
    }
}

impl Tags {
    fn rates(&self) -> [u64; 2] {
        [self.figures.min_iops, self.figures.min_bytes]
    }

    /// When a request that came at `since` is due, when there is a reservation: when either of the two is.
    fn reserved_at(&self, since: u64) -> Option<u64> {
        let due = self.rates().into_iter().zip(self.reserved_at).filter(|(rate, _)| *rate > 0);
        due.map(|(_, at)| at.max(since)).min()
    }

    /// Counts a request that came at `since` against the reservation.
    fn reserve(&mut self, bytes: u64, since: u64) {
        let amounts = [QosFigures::operations(bytes), bytes];
        for ((rate, at), amount) in self.rates().into_iter().zip(&mut self.reserved_at).zip(amounts) {
            if let Some(takes) = (amount * SECOND).checked_div(rate) {
                *at = (*at).max(since) + takes;
            }
        }
    }
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}

#[cfg(test)]
#[path = "lanes_tests.rs"]
mod tests;
