//! One shard of a cache: slots, the chains by which they are found, and the hand of CLOCK.
//!
//! Chains through the slots, and no table beside them: eight bytes for each entry, where a hash table of places took 20 to 39, which
//! for a million blocks that deduplication knows are 12 to 30 MiB. And in a cache that is full each insertion takes something out:
//! nothing is left behind by that, and chains are lengthened no more.

use super::spread;

/// No slot.
const NONE: u32 = u32::MAX;

/// See the module.
pub(super) struct Shard<V> {
    /// The first slot of each chain; a power of two of them, and no more slots in use than chains.
    chains: Vec<u32>,
    slots: Vec<Slot<V>>,
    /// The first of the slots that hold nothing.
    free: u32,
    hand: usize,
    bytes: u64,
}

struct Slot<V> {
    address: u64,
    bytes: u64,
    /// The one behind it in its chain, or among those that hold nothing.
    next: u32,
    used: bool,
    value: Option<V>,
}

impl<V> Default for Shard<V> {
    fn default() -> Self {
        Shard { chains: vec![NONE], slots: Vec::new(), free: NONE, hand: 0, bytes: 0 }
    }
}

impl<V> Shard<V> {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn contains(&self, address: u64) -> bool {
        self.place(address).is_some()
    }

    /// The value at an address, which is kept when the hand comes by next.
    pub(super) fn use_value(&mut self, address: u64) -> Option<&V> {
        let place = self.place(address)?;
        let slot = &mut self.slots[place as usize];
        slot.used = true;
        slot.value.as_ref()
    }

    /// Adds what is not there yet. A new value must be used once more before the hand comes round to be kept.
    pub(super) fn insert(&mut self, address: u64, value: V, bytes: u64) {
        debug_assert!(!self.contains(address));
        let slot = Slot { address, bytes, next: NONE, used: false, value: Some(value) };
        let place = self.free;
        if place != NONE {
            self.free = std::mem::replace(&mut self.slots[place as usize], slot).next;
            self.link(place);
        } else {
            // Slots take more memory than 32 bits can count long before that.
            assert!(self.slots.len() < NONE as usize);
            self.slots.push(slot);
            if self.slots.len() > self.chains.len() {
                self.lengthen();
            } else {
                self.link(self.slots.len() as u32 - 1);
            }
        }
        self.bytes += bytes;
    }

    /// Takes values out until no more than `bytes_max` are held: those not used since the hand came by.
    pub(super) fn shrink_to(&mut self, bytes_max: u64) {
        while self.bytes > bytes_max {
            let hand = self.hand;
            self.hand = (hand + 1) % self.slots.len();
            let slot = &mut self.slots[hand];
            if slot.value.is_none() || std::mem::take(&mut slot.used) && bytes_max > 0 {
                continue;
            }
            self.take_out(hand as u32);
        }
    }

    /// Takes out the values that are not to be kept.
    pub(super) fn retain(&mut self, keep: impl Fn(&V) -> bool) {
        for place in 0..self.slots.len() {
            if self.slots[place].value.as_ref().is_some_and(|value| !keep(value)) {
                self.take_out(place as u32);
            }
        }
    }

    fn chain(&mut self, address: u64) -> &mut u32 {
        let chain = self.chain_number(address);
        &mut self.chains[chain]
    }

    /// The low bits: the high ones have chosen the shard.
    fn chain_number(&self, address: u64) -> usize {
        spread(address) as usize & (self.chains.len() - 1)
    }

    fn place(&self, address: u64) -> Option<u32> {
        let mut place = self.chains[self.chain_number(address)];
        while place != NONE {
            let slot = &self.slots[place as usize];
            if slot.address == address {
                return Some(place);
            }
            place = slot.next;
        }
        None
    }

    fn link(&mut self, place: u32) {
        let address = self.slots[place as usize].address;
        let next = std::mem::replace(self.chain(address), place);
        self.slots[place as usize].next = next;
    }

    fn unlink(&mut self, place: u32) {
        let (address, next) = (self.slots[place as usize].address, self.slots[place as usize].next);
        let mut at = *self.chain(address);
        if at == place {
            *self.chain(address) = next;
            return;
        }
        while self.slots[at as usize].next != place {
            at = self.slots[at as usize].next;
        }
        self.slots[at as usize].next = next;
    }

    fn take_out(&mut self, place: u32) {
        self.unlink(place);
        let slot = &mut self.slots[place as usize];
        slot.value = None;
        slot.next = self.free;
        self.bytes -= slot.bytes;
        self.free = place;
    }

    /// Twice as many chains. Every slot is in use: otherwise one of those that hold nothing would have been taken.
    fn lengthen(&mut self) {
        self.chains = vec![NONE; self.chains.len() * 2];
        (0..self.slots.len() as u32).for_each(|place| self.link(place));
    }
}

#[cfg(test)]
impl<V> Shard<V> {
    /// The slots behind one another from here on.
    fn from(&self, first: u32) -> impl Iterator<Item = u32> {
        let some = |at: u32| (at != NONE).then_some(at);
        std::iter::successors(some(first), move |at| some(self.slots[*at as usize].next))
    }

    fn longest_chain(&self) -> usize {
        self.chains.iter().map(|first| self.from(*first).count()).max().unwrap_or(0)
    }

    fn check(&self) {
        let held = self.slots.iter().filter(|slot| slot.value.is_some());
        assert_eq!(held.clone().map(|slot| slot.bytes).sum::<u64>(), self.bytes);
        assert!(held.clone().all(|slot| self.place(slot.address).is_some()), "every value is found");
        assert_eq!(
            held.count() + self.from(self.free).count(),
            self.slots.len(),
            "every slot holds something or is free"
        );
        assert!(self.slots.len() <= self.chains.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use stonefold_dice::Dice;

    /// Goal: whatever is put in, taken out and looked for, in whatever order, what is found is what was put in last.
    #[test]
    fn finds_what_is_in_it_and_nothing_else() {
        let mut dice = Dice::new(17);
        let (mut shard, mut model) = (Shard::default(), HashMap::new());
        for step in 0..50_000u64 {
            let address = dice.below(700);
            match dice.below(10) {
                0..=5 if !shard.contains(address) => {
                    let bytes = dice.below(100);
                    shard.insert(address, (address, step), bytes);
                    model.insert(address, (step, bytes));
                }
                0..=8 => {
                    let found = shard.use_value(address).copied();
                    assert_eq!(found, model.get(&address).map(|(at, _)| (address, *at)));
                }
                _ if dice.below(2) == 0 => {
                    let odd = dice.below(9);
                    shard.retain(|(_, at)| at % 9 != odd);
                    model.retain(|_, (at, _)| *at % 9 != odd);
                }
                _ => {
                    let bytes_max = dice.below(30_000);
                    shard.shrink_to(bytes_max);
                    assert!(shard.bytes() <= bytes_max);
                    model.retain(|address, _| shard.contains(*address));
                }
            }
            assert_eq!(shard.bytes(), model.values().map(|(_, bytes)| bytes).sum::<u64>());
            if step % 500 == 0 {
                shard.check();
            }
        }
    }

    /// Goal: a look-up in a cache that has been full for long costs what it did at first.
    #[test]
    fn chains_stay_short_however_long_it_has_been_full() {
        let mut shard = Shard::default();
        for address in 0..400_000u64 {
            shard.shrink_to(9999);
            shard.insert(address, (), 1);
        }
        shard.check();
        assert_eq!(shard.chains.len(), 16_384);
        assert!(shard.longest_chain() <= 10, "{} in one", shard.longest_chain());
    }
}
