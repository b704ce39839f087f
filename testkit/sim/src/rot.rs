//! Copies of immutable objects, and the bits of them that have rotted.
//!
//! The engine below keeps one; here it counts for one or two, each with bits of its own flipped. With two, what rots in one copy is
//! sound in the other, so that nobody must ever notice. Documents do not rot: engines verify them and have copies of their own.

use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stonefold_dice::Dice;
use stonefold_engine::{Key, Repaired, Sound};

/// The copies of a pool's objects; clones are the same ones.
#[derive(Clone)]
pub struct Copies(Arc<Mutex<State>>);

struct State {
    count: usize,
    /// Which copy is damaged, and the bits of it that are flipped. Never both copies of one object.
    rotten: BTreeMap<Key, (usize, BTreeSet<u64>)>,
    /// Every read is answered from this one.
    only: Option<usize>,
    /// Objects that have rotted so far.
    struck: u64,
    /// Ranges of copies that were made sound.
    healed: u64,
}

/// Whether an object is one that never changes, and so may rot here.
pub fn is_immutable(key: &Key) -> bool {
    ["segment/", "account/", "ledger/"].iter().any(|prefix| key.as_str().starts_with(prefix))
}

impl Copies {
    /// So many sound copies of everything.
    pub fn new(count: usize) -> Self {
        Copies(Arc::new(Mutex::new(State {
            count,
            rotten: BTreeMap::new(),
            only: None,
            struck: 0,
            healed: 0,
        })))
    }

    /// How many there are of each object.
    pub fn count(&self) -> usize {
        self.0.lock().count
    }

    /// Objects that have rotted so far.
    pub fn struck(&self) -> u64 {
        self.0.lock().struck
    }

    /// From now on every read is answered from this copy; `None`: from either.
    pub fn read_only_from(&self, copy: Option<usize>) {
        self.0.lock().only = copy;
    }

    /// Ranges of copies that were made sound so far.
    pub fn healed(&self) -> u64 {
        self.0.lock().healed
    }

    /// Flips a bit of an object that is so many bytes long.
    pub fn rot(&self, key: &Key, bytes: u64, dice: &mut Dice) {
        if bytes == 0 {
            return;
        }
        let mut state = self.0.lock();
        state.struck += 1;
        let copy = dice.below(state.count as u64) as usize;
        let bit = dice.below(bytes * 8);
        let (_, bits) = state.rotten.entry(key.clone()).or_insert((copy, BTreeSet::new()));
        bits.insert(bit);
    }

    /// The copy that answers a read.
    pub fn choose(&self, dice: &mut Dice) -> usize {
        let state = self.0.lock();
        state
            .only
            .unwrap_or_else(|| if state.count > 1 { dice.below(state.count as u64) as usize } else { 0 })
    }

    /// What a copy holds where the engine below has `bytes`.
    pub fn seen(&self, key: &Key, copy: usize, offset: u64, bytes: Bytes) -> Bytes {
        let state = self.0.lock();
        let Some((_, bits)) = state.rotten.get(key).filter(|(rotten, _)| *rotten == copy) else {
            return bytes;
        };
        let mut seen = bytes.to_vec();
        for bit in bits.range(offset * 8..(offset + bytes.len() as u64) * 8) {
            let at = bit - offset * 8;
            seen[(at / 8) as usize] ^= 1 << (at % 8);
        }
        seen.into()
    }

    /// See [`stonefold_engine::Engine::repair`]; `bytes` are what the engine below has there.
    pub fn repair(&self, key: &Key, offset: u64, bytes: &Bytes, sound: &Sound<'_>) -> Option<Repaired> {
        let count = self.count();
        let copies: Vec<Bytes> = (0..count).map(|copy| self.seen(key, copy, offset, bytes.clone())).collect();
        let good = copies.iter().find(|copy| sound(copy))?.clone();
        let mut healed = 0;
        for (copy, _) in copies.iter().enumerate().filter(|(_, seen)| !sound(seen)) {
            self.heal(key, copy, offset, bytes.len() as u64);
            healed += 1;
        }
        self.0.lock().healed += u64::from(healed);
        Some(Repaired { bytes: good, copies: count as u32, healed })
    }

    fn heal(&self, key: &Key, copy: usize, offset: u64, len: u64) {
        let mut state = self.0.lock();
        let Some((rotten, bits)) = state.rotten.get_mut(key).filter(|(rotten, _)| *rotten == copy) else {
            return;
        };
        debug_assert_eq!(*rotten, copy);
        bits.retain(|bit| !(offset * 8..(offset + len) * 8).contains(bit));
        if bits.is_empty() {
            state.rotten.remove(key);
        }
    }

    /// Another object has taken its place, or none.
    pub fn forget(&self, key: &Key) {
        self.0.lock().rotten.remove(key);
    }
}
