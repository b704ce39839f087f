//! An engine in memory, for tests and simulations.
//!
//! *Promises*: the trait's semantics exactly, and nothing better: it remembers which journal chunks were never
//! synced and which puts and deletes never returned, so that [`MemoryEngine::after_crash`] can take them away.
//! *Never*: reads a clock or throws dice; every choice is the caller's. *Owns*: its objects, shared by all clones.
//! *May be used by*: tests, the simulation, `memory:` pools.

mod crash;
mod journal;
#[cfg(test)]
mod tests;

use crate::{Engine, Journal, JournalId, JournalReader, Key, Listed, Room, Version};
use async_trait::async_trait;
use bytes::Bytes;
use journal::{JournalState, MemoryJournal};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use stonefold_types::{Error, Kind, Result};

/// An engine whose objects live in memory. Clones share them.
#[derive(Clone, Default)]
pub struct MemoryEngine {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<Key, Object>,
    /// Puts and deletes that took effect but have not returned: what a loss of power may bring back.
    unsettled: BTreeMap<Key, Vec<Unsettled>>,
    journals: BTreeMap<JournalId, JournalState>,
    /// Operations so far; names versions.
    serial: u64,
    /// The most bytes it takes; `None` for no bound.
    capacity_bytes: Option<u64>,
    used_bytes: u64,
}

#[derive(Clone)]
struct Object {
    bytes: Bytes,
    version: Version,
}

impl Object {
    fn new(bytes: Bytes, version: Version) -> Self {
        Object { bytes, version }
    }
}

/// What a key held before an operation that has not returned.
struct Unsettled {
    serial: u64,
    before: Option<Object>,
}

impl MemoryEngine {
    /// An engine that answers `NoSpace` beyond `bytes` of objects and journal chunks.
    pub fn with_capacity_bytes(bytes: u64) -> Self {
        let engine = MemoryEngine::default();
        engine.set_capacity_bytes(Some(bytes));
        engine
    }

    /// Makes the place larger or smaller; what it holds already stays.
    pub fn set_capacity_bytes(&self, bytes: Option<u64>) {
        self.state.lock().capacity_bytes = bytes;
    }

    /// Flips one bit of a stored object, counted modulo its length: bit rot. `false` when there is nothing to rot.
    pub fn rot(&self, key: &Key, bit: u64) -> bool {
        let mut state = self.state.lock();
        let Some(object) = state.objects.get_mut(key).filter(|o| !o.bytes.is_empty()) else { return false };
        let mut bytes = object.bytes.to_vec();
        let bit = bit % (bytes.len() as u64 * 8);
        bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        object.bytes = bytes.into();
        true
    }

    /// Applies a change to one key, lets other tasks run while it is in flight, then settles it.
    async fn change<T>(
        &self,
        key: &Key,
        change: impl FnOnce(&mut State, u64) -> Result<(Option<Object>, T)>,
    ) -> Result<T> {
        let (serial, result) = {
            let mut state = self.state.lock();
            state.serial += 1;
            let serial = state.serial;
            let (object, result) = change(&mut state, serial)?;
            let before = state.replace(key, object);
            state.unsettled.entry(key.clone()).or_default().push(Unsettled { serial, before });
            (serial, result)
        };
        tokio::task::yield_now().await;
        self.state.lock().settle(key, serial);
        Ok(result)
    }

    /// Looks at one object. What a read has shown is durable.
    fn look<T>(&self, key: &Key, look: impl FnOnce(&Object) -> T) -> Result<T> {
        let mut state = self.state.lock();
        state.unsettled.remove(key);
        state.objects.get(key).map(look).ok_or_else(|| not_found(key))
    }
}

impl State {
    fn replace(&mut self, key: &Key, object: Option<Object>) -> Option<Object> {
        self.used_bytes += object.as_ref().map_or(0, |object| object.bytes.len() as u64);
        let before = match object {
            Some(object) => self.objects.insert(key.clone(), object),
            None => self.objects.remove(key),
        };
        self.used_bytes -= before.as_ref().map_or(0, |object| object.bytes.len() as u64);
        before
    }

    /// An operation that returned is durable, and so is all that happened to its key before it.
    fn settle(&mut self, key: &Key, serial: u64) {
        if let Some(open) = self.unsettled.get_mut(key) {
            open.retain(|u| u.serial > serial);
            if open.is_empty() {
                self.unsettled.remove(key);
            }
        }
    }

    fn reserve(&self, what: &dyn std::fmt::Display, bytes: usize) -> Result<()> {
        let free = self.free_bytes();
        if bytes as u64 > free {
            let why = format!("{what} needs {bytes} bytes and the engine in memory has {free} left");
            return Err(Error::new(Kind::NoSpace, why).remedy("delete something or give it more"));
        }
        Ok(())
    }

    fn free_bytes(&self) -> u64 {
        self.capacity_bytes.map_or(u64::MAX, |capacity| capacity.saturating_sub(self.used_bytes))
    }

    fn journal(&mut self, id: JournalId) -> Result<&mut JournalState> {
        self.journals
            .get_mut(&id)
            .ok_or_else(|| Error::new(Kind::NotFound, format!("journal {id} does not exist")))
    }
}

fn not_found(key: &Key) -> Error {
    Error::new(Kind::NotFound, format!("object '{key}' does not exist"))
}

fn version(serial: u64) -> Version {
    Version(format!("m{serial}").into())
}

#[async_trait]
impl Engine for MemoryEngine {
    fn describe(&self) -> String {
        "memory:, gone when the process ends".into()
    }

    async fn put_new(&self, key: &Key, bytes: Bytes) -> Result<Version> {
        self.change(key, |state, serial| {
            if state.objects.contains_key(key) {
                return Err(Error::new(Kind::AlreadyExists, format!("object '{key}' exists already")));
            }
            state.reserve(&format_args!("object '{key}'"), bytes.len())?;
            let version = version(serial);
            Ok((Some(Object::new(bytes, version.clone())), version))
        })
        .await
    }

    async fn put_if(&self, key: &Key, bytes: Bytes, expected: &Version) -> Result<Version> {
        self.change(key, |state, serial| {
            let found = state.objects.get(key).ok_or_else(|| not_found(key))?;
            if found.version != *expected {
                let why = format!("object '{key}' is version {}, not {}", found.version.0, expected.0);
                return Err(Error::new(Kind::Conflict, why));
            }
            // The old document stays until the new one is durable, so both need room.
            state.reserve(&format_args!("object '{key}'"), bytes.len())?;
            let version = version(serial);
            Ok((Some(Object::new(bytes, version.clone())), version))
        })
        .await
    }

    async fn get(&self, key: &Key) -> Result<(Bytes, Version)> {
        self.look(key, |object| (object.bytes.clone(), object.version.clone()))
    }

    async fn get_range(&self, key: &Key, offset: u64, len: usize) -> Result<Bytes> {
        self.look(key, |object| {
            let begin = offset.min(object.bytes.len() as u64) as usize;
            let end = begin.saturating_add(len).min(object.bytes.len());
            object.bytes.slice(begin..end)
        })
    }

    async fn delete(&self, key: &Key) -> Result<()> {
        self.change(key, |_, _| Ok((None, ()))).await
    }

    async fn list(&self, prefix: &str, after: Option<&Key>, limit: usize) -> Result<Vec<Listed>> {
        let mut state = self.state.lock();
        let first = match after {
            Some(after) if after.as_str() >= prefix => Bound::Excluded(after.as_str()),
            _ => Bound::Included(prefix),
        };
        let listed: Vec<Listed> = state
            .objects
            .range::<str, _>((first, Bound::Unbounded))
            .take_while(|(key, _)| key.as_str().starts_with(prefix))
            .take(limit)
            .map(|(key, object)| Listed { key: key.clone(), bytes: object.bytes.len() as u64 })
            .collect();
        for one in &listed {
            state.unsettled.remove(&one.key);
        }
        Ok(listed)
    }

    async fn room(&self) -> Result<Room> {
        let state = self.state.lock();
        let free_bytes = state.free_bytes();
        let used_bytes = state.used_bytes;
        let total_bytes = free_bytes.saturating_add(used_bytes);
        Ok(Room { raw_bytes: total_bytes, total_bytes, free_bytes, used_bytes })
    }

    async fn journal_create(&self, id: JournalId) -> Result<Arc<dyn Journal>> {
        let mut state = self.state.lock();
        if state.journals.contains_key(&id) {
            return Err(Error::new(Kind::AlreadyExists, format!("journal {id} exists already")));
        }
        state.journals.insert(id, JournalState::default());
        Ok(Arc::new(MemoryJournal::new(self.state.clone(), id)))
    }

    async fn journal_list(&self) -> Result<Vec<JournalId>> {
        Ok(self.state.lock().journals.keys().copied().collect())
    }

    async fn journal_open(&self, id: JournalId) -> Result<Box<dyn JournalReader>> {
        let mut state = self.state.lock();
        Ok(Box::new(state.journal(id)?.open(id)))
    }

    async fn journal_remove(&self, id: JournalId) -> Result<()> {
        let mut state = self.state.lock();
        if let Some(gone) = state.journals.remove(&id) {
            state.used_bytes -= gone.bytes();
        }
        Ok(())
    }
}
