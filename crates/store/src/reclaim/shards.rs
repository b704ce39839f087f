//! What a batch does to the accounts of one shard: on a worker, because a shard has up to a million blocks.

use crate::accounts;
use crate::rewrite;
use std::sync::Arc;
use stonefold_env::Env;
use stonefold_format::account::{Account, Shard, Slot, shard_of};
use stonefold_format::entry::SegmentId;
use stonefold_types::Result;

/// By how much the references to each address change, in ascending order, each address once.
pub(crate) type Deltas = Vec<(u64, i64)>;

/// Adds up what comes to the same address, in ascending order.
pub(crate) async fn sum_up(env: &Env, mut deltas: Deltas) -> Deltas {
    let sum_up = move || {
        deltas.sort_unstable_by_key(|(address, _)| *address);
        deltas.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 += next.1;
            }
            same
        });
        deltas
    };
    env.offload(sum_up).await
}

/// Those of a shard.
pub(crate) fn of_shard(deltas: &[(u64, i64)], number: u64) -> &[(u64, i64)] {
    let from = deltas.partition_point(|(address, _)| shard_of(segment_of(*address)) < number);
    let upto = deltas.partition_point(|(address, _)| shard_of(segment_of(*address)) <= number);
    &deltas[from..upto]
}

fn of_segment(deltas: &[(u64, i64)], segment: SegmentId) -> &[(u64, i64)] {
    let from = deltas.partition_point(|(address, _)| segment_of(*address) < segment);
    let upto = deltas.partition_point(|(address, _)| segment_of(*address) <= segment);
    &deltas[from..upto]
}

fn segment_of(address: u64) -> SegmentId {
    SegmentId(address >> 20)
}

fn slot_of(address: u64) -> u32 {
    (address & 0xf_ffff) as u32
}

/// Blocks alive, and blocks held.
pub(crate) fn totals(shard: &Shard) -> (u64, u64) {
    shard.values().fold((0, 0), |(live, present), account| {
        (live + u64::from(account.live()), present + u64::from(account.present))
    })
}

/// The addresses of a shard's idle slots.
pub(super) fn idle_addresses(shard: &Shard) -> Vec<u64> {
    let of_account = |(segment, account): (&SegmentId, &Account)| {
        let slots = account.slots.iter().enumerate().filter(|(_, slot)| **slot == Slot::Live(0));
        let segment = segment.0;
        slots.map(move |(at, _)| segment << 20 | at as u64).collect::<Vec<u64>>()
    };
    shard.iter().flat_map(of_account).collect()
}

/// A shard to which a batch is to be done.
pub(super) struct Job {
    pub(super) number: u64,
    pub(super) before: Arc<Shard>,
    /// Of all shards.
    pub(super) deltas: Arc<Deltas>,
    /// Whether what was idle and still is dies; then segments with one part in so many dead are sparse.
    pub(super) dead_part: Option<u32>,
}

/// A shard as a batch leaves it.
#[derive(Default)]
pub(super) struct Done {
    pub(super) shard: Shard,
    /// Segments with nothing alive, and their form: they have left the shard.
    pub(super) empty: Vec<(SegmentId, u8)>,
    /// Segments with enough dead blocks.
    pub(super) sparse: Vec<SegmentId>,
    pub(super) dead_blocks: u64,
    /// Slots without references that are not dead.
    pub(super) idle: u32,
    /// Blocks alive, and blocks held: before and after.
    pub(super) totals: [(u64, u64); 2],
}

impl Job {
    pub(super) fn run(&self) -> Result<Done> {
        let deltas = of_shard(&self.deltas, self.number);
        let mut done = Done { shard: Shard::clone(&self.before), ..Done::default() };
        if self.dead_part.is_some() {
            condemn(&mut done, deltas);
        }
        apply(&mut done.shard, deltas)?;
        if let Some(dead_part) = self.dead_part {
            settle(&mut done, dead_part);
        }
        done.totals = [totals(&self.before), totals(&done.shard)];
        done.idle = done.shard.values().map(Account::idle).sum();
        Ok(done)
    }
}

/// Condemns what was idle before and still is.
fn condemn(done: &mut Done, deltas: &[(u64, i64)]) {
    for (segment, account) in &mut done.shard {
        let risen = of_segment(deltas, *segment).iter().filter(|(_, by)| *by > 0);
        let mut risen = risen.map(|(address, _)| slot_of(*address)).peekable();
        for (slot, at) in account.slots.iter_mut().zip(0..) {
            let has_risen = risen.next_if_eq(&at).is_some();
            if *slot == Slot::Live(0) && !has_risen {
                *slot = Slot::Dead;
                done.dead_blocks += 1;
            }
        }
    }
}

/// Takes changes over.
fn apply(shard: &mut Shard, deltas: &[(u64, i64)]) -> Result<()> {
    for of_one in deltas.chunk_by(|a, b| segment_of(a.0) == segment_of(b.0)) {
        let segment = segment_of(of_one[0].0);
        let account = shard.entry(segment).or_default();
        for (address, by) in of_one.iter().filter(|(_, by)| *by != 0) {
            let slot = slot_of(*address);
            accounts::change(account, slot, *by)
                .map_err(|e| e.context(format!("slot {slot} of segment {segment}")))?;
        }
        // A block that came and went within the batch: its segment must be known all the same.
        for (address, _) in of_one.iter().filter(|(_, by)| *by == 0) {
            if account.slots.len() as u32 <= slot_of(*address) {
                accounts::change(account, slot_of(*address), 0)?;
            }
        }
    }
    Ok(())
}

/// Finds segments with nothing alive, which leave the shard, and those with much dead.
fn settle(done: &mut Done, dead_part: u32) {
    let Done { shard, empty, sparse, .. } = done;
    shard.retain(|segment, account| {
        let live = account.live();
        if live == 0 {
            empty.push((*segment, account.generation));
        } else if rewrite::is_worth(account.present - live, account.present, dead_part) {
            sparse.push(*segment);
        }
        live > 0
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: of what was idle only that dies which nothing has come to refer to since (P3); what falls idle now has another batch before
    /// it; a segment with nothing alive leaves the shard.
    #[test]
    fn what_was_idle_and_is_referred_to_again_lives() {
        let account =
            |slots: &[Slot]| Account { generation: 1, present: slots.len() as u32, slots: slots.to_vec() };
        let slots = [Slot::Live(0), Slot::Live(0), Slot::Live(1), Slot::Live(2)];
        let before =
            Shard::from([(SegmentId(1), account(&slots)), (SegmentId(2), account(&[Slot::Live(0)]))]);
        let at = |segment: u64, slot: u64| segment << 20 | slot;
        let deltas = vec![(at(1, 1), 1), (at(1, 2), -1), (at(1, 3), 0), (at(1, 5), 1), (at(3, 0), 0)];
        let run = |dead_part| {
            let (before, deltas) = (Arc::new(before.clone()), Arc::new(deltas.clone()));
            Job { number: 0, before, deltas, dead_part }.run().unwrap()
        };
        let done = run(Some(4));
        let (dead, live) = (Slot::Dead, Slot::Live);
        let after = [dead, live(1), live(0), live(2), live(0), live(1)];
        assert_eq!(done.shard[&SegmentId(1)].slots, after);
        assert_eq!((done.dead_blocks, done.idle), (2, 3));
        assert_eq!((done.empty, done.sparse), (vec![(SegmentId(2), 1)], vec![]));
        assert_eq!(done.shard[&SegmentId(3)].slots, [live(0)], "it came and went, and is known");
        let done = run(None);
        assert_eq!(done.shard[&SegmentId(1)].slots[0], live(0), "nothing is condemned");
        assert_eq!((done.dead_blocks, done.empty.len()), (0, 0));
    }
}
