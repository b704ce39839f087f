//! Objects kept open for reading.
//!
//! Bounded, because descriptors are; what was used since the hand last passed stays (second chance), which costs
//! one flag per read where strict order would cost a list under a lock.

use crate::Key;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An open object.
pub(super) struct Handle {
    pub(super) file: Arc<File>,
    /// Bytes of payload.
    pub(super) len: u64,
    used: AtomicBool,
}

impl Handle {
    pub(super) fn new(file: File, len: u64) -> Arc<Self> {
        Arc::new(Handle { file: Arc::new(file), len, used: AtomicBool::new(false) })
    }
}

/// The open objects of one member.
pub(super) struct Handles {
    max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: HashMap<Key, Arc<Handle>>,
    hand: VecDeque<Key>,
}

impl Handles {
    /// At most `max` of them, at least one.
    pub(super) fn new(max: usize) -> Self {
        Handles { max: max.max(1), state: Mutex::default() }
    }

    pub(super) fn find(&self, key: &Key) -> Option<Arc<Handle>> {
        let handle = self.state.lock().open.get(key)?.clone();
        handle.used.store(true, Ordering::Relaxed);
        Some(handle)
    }

    /// Keeps an object open. Called under the key's lock, so that it is not one just replaced or deleted.
    pub(super) fn keep(&self, key: &Key, handle: Arc<Handle>) {
        let mut evicted = None;
        {
            let mut state = self.state.lock();
            while state.open.len() >= self.max {
                let Some(oldest) = state.hand.pop_front() else { break };
                let used = state.open.get(&oldest).map(|h| h.used.swap(false, Ordering::Relaxed));
                match used {
                    Some(true) => state.hand.push_back(oldest),
                    Some(false) => evicted = state.open.remove(&oldest),
                    None => {}
                }
            }
            if state.open.insert(key.clone(), handle).is_none() {
                state.hand.push_back(key.clone());
            }
        }
        // Closed outside the lock.
        drop(evicted);
    }

    /// Forgets an object that was replaced or deleted.
    pub(super) fn forget(&self, key: &Key) {
        let mut state = self.state.lock();
        if state.open.remove(key).is_some() {
            state.hand.retain(|k| k != key);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.state.lock().open.len()
    }
}

/// Half of the descriptors this process may have, 4096 at most: the rest are for clients.
pub(super) fn default_max() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(8192);
    (limit / 2).clamp(16, 4096) as usize
}
