//! What the accounts count, held against what is reached.
//!
//! The accounts are as of the last batch of reclaim. What has changed since, and what removed snapshots and disks still hold, is
//! taken into account exactly, so that whatever is left over is wrong: a block without references that is in use, which
//! reclaim would take away, or one with references that nothing has, which it would keep for ever.

use super::{Checked, Walk};
use crate::accounts;
use crate::map;
use crate::reclaim::{self, Deltas};
use crate::releases::Releases;
use crate::removed::STEP_ADDRESSES;
use crate::store::Store;
use crate::sweep;
use std::collections::{BTreeMap, BTreeSet};
use stonefold_format::account::{Account, SHARD_SHIFT, Shard, Slot, shard_of};
use stonefold_format::entry::SegmentId;
use stonefold_format::ledger::LedgerRef;
use stonefold_types::{Kind, Result};

/// What the accounts do not know yet, at the instant the maps are looked at.
pub(super) struct Untold {
    /// Changes that no batch has taken over.
    pub(super) changes: Vec<LedgerRef>,
    /// What was removed and is still counted.
    pub(super) releases: Releases,
}

/// A set of slots of a segment.
#[derive(Default)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    pub(super) fn set(&mut self, at: u32) {
        let word = at as usize / 64;
        self.0.resize(self.0.len().max(word + 1), 0);
        self.0[word] |= 1 << (at % 64);
    }

    fn has(&self, at: u32) -> bool {
        self.0.get(at as usize / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        let all = self.0.iter().enumerate();
        all.flat_map(|(at, word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at as u32 * 64 + bit)
        })
    }
}

impl Store {
    /// What is referred to must have references in the accounts, and nothing else should, once they know everything.
    pub(super) async fn compare_accounts(
        &self,
        walk: &Walk,
        untold: &Untold,
        checked: &mut Checked,
    ) -> Result<()> {
        if !self.damage.lost().is_empty() {
            checked
                .notes
                .push("all references are to be counted anew; until then no lost space can be told".into());
            return Ok(());
        }
        let accounts = &self.segments.accounts;
        if let Some(why) = accounts.hidden() {
            checked.problems.push(format!("what is referred to cannot be compared with the accounts: {why}"));
            return Ok(());
        }
        // What a clone shares is counted for the disk that it began as: that one's head may not have been counted yet.
        let uncounted = self.damage.hides_a_disk();
        let going = self.going(&untold.releases).await?;
        let (deltas, exact) = match self.untold_deltas(untold).await {
            Err(error) if error.kind() == Kind::Corrupt => {
                checked.problems.push(format!("what changed is counted anew by the next reclaim: {error}"));
                return Ok(());
            }
            done => done?,
        };
        let mut shards: BTreeSet<u64> = walk.reached.keys().map(|id| shard_of(*id)).collect();
        shards.extend(accounts.document().shards.keys());
        shards.extend(deltas.iter().map(|(address, _)| shard_of(SegmentId(address >> 20))));
        for number in shards {
            let mut shard = match accounts.shard(number).await {
                Ok(shard) => Shard::clone(&*shard),
                Err(error) if error.kind() == Kind::Corrupt => {
                    checked.problems.push(format!("everything is counted anew by the next reclaim: {error}"));
                    continue;
                }
                Err(error) => return Err(error),
            };
            for (address, by) in reclaim::of_shard(&deltas, number) {
                let (segment, slot) = (SegmentId(address >> 20), (address & 0xf_ffff) as u32);
                if let Err(error) = accounts::change(shard.entry(segment).or_default(), slot, *by) {
                    checked.problems.push(error.context(format!("slot {slot} of segment {segment}")).what());
                }
            }
            let first = SegmentId(number << SHARD_SHIFT);
            let last = SegmentId(((number + 1) << SHARD_SHIFT) - 1);
            let reached = walk.reached.range(first..=last).map(|(segment, _)| *segment);
            let segments: BTreeSet<SegmentId> = shard.keys().copied().chain(reached).collect();
            let none = Account::default();
            for segment in segments {
                let account = shard.get(&segment).unwrap_or(&none);
                let (reached, going) = (walk.reached.get(&segment), going.get(&segment));
                compare(segment, account, (reached, going), uncounted, checked);
            }
        }
        if sweep::is_something_lost(self) || !exact {
            // What cannot be read may well refer to them.
            checked.lost_blocks = 0;
        }
        Ok(())
    }

    /// By how much the references to each address change when the accounts know everything but the maps of removed disks; tells also
    /// whether everything that was removed is in it.
    async fn untold_deltas(&self, untold: &Untold) -> Result<(Deltas, bool)> {
        let mut deltas = reclaim::read_deltas(self, &untold.changes).await?;
        let mut exact = true;
        for (at, after) in &untold.releases.deaths {
            let deaths = match self.segments.accounts.read_deaths(at).await {
                // Reclaim tells it anew when it comes to it.
                Err(error) if error.kind() == Kind::Corrupt => {
                    exact = false;
                    continue;
                }
                done => done?,
            };
            let freed = deaths.into_iter().filter(|(birth, _)| birth > after);
            deltas.extend(freed.map(|(_, address)| (address, -1)));
        }
        Ok((reclaim::sum_up(&self.env, deltas).await, exact))
    }

    /// The blocks and nodes of removed disks that reclaim has not come to yet.
    async fn going(&self, releases: &Releases) -> Result<BTreeMap<SegmentId, Bits>> {
        let mut going: BTreeMap<SegmentId, Bits> = BTreeMap::new();
        for own in &releases.maps {
            let mut from = Some(own.from);
            while let Some(start) = from {
                self.check_open()?;
                let mut found = Vec::new();
                // What cannot be read of it is not going anywhere, and so is lost.
                (from, _) =
                    map::own(&self.segments, &own.root, own.after, start, STEP_ADDRESSES, &mut found).await?;
                for entry in found {
                    going.entry(entry.segment()).or_default().set(entry.slot());
                }
            }
        }
        Ok(going)
    }
}

/// Holds what is counted of a segment against what was reached. `uncounted`: some references are known not to be counted.
fn compare(
    segment: SegmentId,
    account: &Account,
    (reached, going): (Option<&Bits>, Option<&Bits>),
    uncounted: bool,
    checked: &mut Checked,
) {
    let slots = account.slots.len().max(reached.map_or(0, |bits| bits.0.len() * 64)) as u32;
    for slot in 0..slots {
        let counted = account.slots.get(slot as usize).copied().unwrap_or(Slot::Live(0));
        let is_in = |bits: Option<&Bits>| bits.is_some_and(|bits| bits.has(slot));
        match (counted, is_in(reached)) {
            (Slot::Dead, true) => checked
                .problems
                .push(format!("slot {slot} of segment {segment} is in use, but reclaim takes it for dead")),
            (Slot::Live(0), true) if !uncounted => checked.problems.push(format!(
                "slot {slot} of segment {segment} is in use, but reclaim knows of no reference"
            )),
            (Slot::Live(1..), false) if !is_in(going) => checked.lost_blocks += 1,
            _ => {}
        }
    }
}
