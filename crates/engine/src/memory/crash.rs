//! What is left of an engine in memory after the power fails.

use super::journal::{JournalState, Stored};
use super::{MemoryEngine, State};
use crate::JournalId;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use stonefold_types::AlignedBuf;

/// Bytes a device writes whole or not at all.
const SECTOR: usize = 512;

impl MemoryEngine {
    /// The engine as the next boot finds it. Whatever was durable is there. Of the rest the caller chooses:
    /// `choose(n)` answers a number below `n`, and is asked in an order that depends on nothing but the state.
    ///
    /// Each put or delete that has not returned happened or did not. Each journal chunk that was not synced is
    /// there, lost, or torn at a sector, one independently of the other, as a disk with a volatile cache does it.
    /// This engine is left as it is, for tasks that do not know yet that they are dead.
    pub fn after_crash(&self, choose: &mut dyn FnMut(usize) -> usize) -> MemoryEngine {
        let state = self.state.lock();
        let mut objects = state.objects.clone();
        for (key, open) in &state.unsettled {
            let chosen = choose(open.len() + 1);
            let Some(undone) = open.get(chosen) else { continue };
            match &undone.before {
                Some(before) => objects.insert(key.clone(), before.clone()),
                None => objects.remove(key),
            };
        }
        let journals: BTreeMap<JournalId, JournalState> =
            state.journals.iter().map(|(id, journal)| (*id, survivors(journal, choose))).collect();
        let used_bytes = objects.values().map(|object| object.bytes.len() as u64).sum::<u64>()
            + journals.values().map(JournalState::bytes).sum::<u64>();
        let state = State {
            objects,
            unsettled: BTreeMap::new(),
            journals,
            serial: state.serial,
            capacity_bytes: state.capacity_bytes,
            used_bytes,
        };
        MemoryEngine { state: Arc::new(Mutex::new(state)) }
    }
}

/// The chunks as the medium holds them; lost and torn ones lie there for the reader to find out.
fn survivors(journal: &JournalState, choose: &mut dyn FnMut(usize) -> usize) -> JournalState {
    let mut kept = VecDeque::new();
    for stored in &journal.chunks {
        let bytes = match if stored.durable { 0 } else { choose(3) } {
            0 => stored.bytes.clone(),
            1 => AlignedBuf::zeroed(stored.bytes.len()).freeze(),
            _ => torn(&stored.bytes, choose),
        };
        kept.push_back(Stored { seq: stored.seq, bytes, durable: true });
    }
    JournalState::left_behind(kept)
}

/// A chunk of which only the part before, or only the part from, some sector reached the medium.
fn torn(chunk: &[u8], choose: &mut dyn FnMut(usize) -> usize) -> bytes::Bytes {
    let sectors = chunk.len() / SECTOR;
    let cut = (1 + choose(sectors.saturating_sub(1).max(1))) * SECTOR;
    let cut = cut.min(chunk.len());
    let mut bytes = AlignedBuf::zeroed(chunk.len());
    match choose(2) {
        0 => bytes[..cut].copy_from_slice(&chunk[..cut]),
        _ => bytes[cut..].copy_from_slice(&chunk[cut..]),
    }
    bytes.freeze()
}
