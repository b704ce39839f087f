//! Packing new frames into segments.
//!
//! *Promises*: a frame is durable before [`Packer::finish`] returns; data of different domains never shares a segment.
//! *May be called by*: fold, map, rollback, salvage.

use crate::gate::Gate;
use crate::segments::{self, Segments};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stonefold_format::entry::{Entry, Hint, SegmentId};
use stonefold_format::fingerprint::Fingerprint;
use stonefold_format::node::Node;
use stonefold_format::segment::{FirstUse, Scope, SegmentBuilder, SegmentKind};
use stonefold_types::{Error, Result};

/// Segments being put at one time: one under way while the next is filled, and memory for no more.
const PUTS_MAX: usize = 2;

/// The packers of a round's data, one for each domain. Data comes domain by domain, so that one segment is being filled at a time,
/// however many domains there are.
pub(crate) struct Packers {
    segments: Arc<Segments>,
    all: Mutex<Vec<Arc<Packer>>>,
}

impl Packers {
    pub(crate) fn new(segments: Arc<Segments>) -> Self {
        Packers { segments, all: Mutex::default() }
    }

    /// The packer of a domain. Those of other domains get nothing more.
    pub(crate) async fn of(&self, domain: u16) -> Result<Arc<Packer>> {
        let last = self.all.lock().last().cloned();
        match last {
            Some(packer) if packer.scope.domain == domain => return Ok(packer),
            Some(packer) => packer.finish().await?,
            None => {}
        }
        let scope = self.segments.keyring.scope(domain)?;
        let packer = Arc::new(Packer::data(self.segments.clone(), scope));
        self.all.lock().push(packer.clone());
        Ok(packer)
    }

    fn all(&self) -> Vec<Arc<Packer>> {
        self.all.lock().clone()
    }

    /// See [`Packer::lengths`].
    pub(crate) fn lengths(&self) -> Vec<(SegmentId, u64)> {
        self.all().iter().flat_map(|packer| packer.lengths()).collect()
    }

    /// See [`Packer::abandon`].
    pub(crate) async fn abandon(&self) {
        for packer in self.all() {
            packer.abandon().await;
        }
    }

    /// See [`Packer::finish`].
    pub(crate) async fn finish(&self) -> Result<()> {
        for packer in self.all() {
            packer.finish().await?;
        }
        Ok(())
    }
}

/// Packs new frames into segments and puts these while the next is filled.
pub(crate) struct Packer {
    segments: Arc<Segments>,
    kind: SegmentKind,
    scope: Scope,
    state: Mutex<Packing>,
}

#[derive(Default)]
struct Packing {
    builder: Option<SegmentBuilder>,
    /// Every segment begun.
    begun: Vec<SegmentId>,
    /// Lengths of those that were put, in bytes.
    lengths: Arc<Mutex<Vec<(SegmentId, u64)>>>,
    puts: VecDeque<Arc<Gate>>,
    /// A put failed: nobody is told that anything is durable any more, whoever of many that pack side by side heard of it first.
    failed: Option<Error>,
}

impl Packer {
    /// For data of one domain.
    pub(crate) fn data(segments: Arc<Segments>, scope: Scope) -> Self {
        Packer { segments, kind: SegmentKind::Data, scope, state: Mutex::default() }
    }

    /// For map nodes, of whichever domains: they are not sealed.
    pub(crate) fn nodes(segments: Arc<Segments>) -> Self {
        Packer { segments, kind: SegmentKind::Map, scope: Scope::default(), state: Mutex::default() }
    }

    /// Adds an encoded frame of `blocks` blocks; returns the entry of its first block. The frame can be read once
    /// [`Packer::finish`] has returned.
    pub(crate) fn push(
        &self,
        encoded: &[u8],
        blocks: usize,
        fingerprints: &[Fingerprint],
        first_use: FirstUse,
    ) -> Entry {
        let mut state = self.state.lock();
        if state.builder.as_ref().is_some_and(|builder| !builder.has_room(encoded.len(), blocks)) {
            let full = state.builder.take();
            let lengths = state.lengths.clone();
            state.puts.extend(full.map(|builder| self.put(builder, lengths)));
        }
        let Packing { builder, begun, .. } = &mut *state;
        let builder = builder.get_or_insert_with(|| {
            let builder = self.segments.new_builder(self.kind, self.scope.clone());
            begun.push(builder.id());
            builder
        });
        let (slot, offset, length) = builder.push(encoded, blocks, fingerprints, first_use);
        Entry::new(builder.id(), slot, Hint::new(offset, length, 0))
    }

    /// Adds a map node. It can be read from the cache at once.
    pub(crate) fn push_node(&self, node: Node, encoded: &[u8], first_use: FirstUse) -> Entry {
        let entry = self.push(encoded, 1, &[], first_use);
        self.segments.keep_node(&entry, Arc::new(node));
        entry
    }

    fn put(&self, builder: SegmentBuilder, lengths: Arc<Mutex<Vec<(SegmentId, u64)>>>) -> Arc<Gate> {
        let gate = Arc::new(Gate::default());
        let (segments, done, kind) = (self.segments.clone(), gate.clone(), self.kind);
        self.segments.env.spawn("segment put", async move {
            let id = builder.id();
            let key = segments::key(id, 0);
            // Checksums, and sealing, of a whole segment: a worker's work.
            let object = segments.env.offload(move || builder.finish().freeze()).await;
            segments.counters.puts.fetch_add(1, Ordering::Relaxed);
            lengths.lock().push((id, object.len() as u64));
            segments.counters.put_bytes.fetch_add(object.len() as u64, Ordering::Relaxed);
            if kind == SegmentKind::Map {
                segments.counters.map_bytes.fetch_add(object.len() as u64, Ordering::Relaxed);
            }
            done.open(segments.engine.put_new(&key, object).await.map(|_| ()));
        });
        gate
    }

    /// Waits until few enough puts are under way that more may be packed.
    pub(crate) async fn throttle(&self) -> Result<()> {
        loop {
            let oldest = {
                let state = self.state.lock();
                state.failed.clone().map_or(Ok(()), Err)?;
                if state.puts.len() < PUTS_MAX { None } else { state.puts.front().cloned() }
            };
            let Some(put) = oldest else { return Ok(()) };
            self.await_put(put).await;
        }
    }

    /// Waits for a put. It is taken off the list only when it has ended: who is broken off while it waits leaves it to be waited for.
    async fn await_put(&self, put: Arc<Gate>) {
        let ended = put.wait().await;
        let mut state = self.state.lock();
        if let Err(error) = ended {
            state.failed.get_or_insert(error);
        }
        state.puts.retain(|other| !Arc::ptr_eq(other, &put));
    }

    async fn await_puts(&self) {
        loop {
            let Some(put) = self.state.lock().puts.front().cloned() else { return };
            self.await_put(put).await;
        }
    }

    /// Segments put so far and their lengths in bytes.
    pub(crate) fn lengths(&self) -> Vec<(SegmentId, u64)> {
        self.state.lock().lengths.lock().clone()
    }

    /// Takes back every segment: nothing that is stored names them.
    pub(crate) async fn abandon(&self) {
        self.state.lock().builder = None;
        // Whether they were put or not: they are deleted below, and none may come into being after that.
        self.await_puts().await;
        let begun = std::mem::take(&mut self.state.lock().begun);
        for id in begun {
            if let Err(error) = self.segments.engine.delete(&segments::key(id, 0)).await {
                tracing::warn!("segment {id} is left over until the next reclaim: {error}");
            }
        }
    }

    /// Puts what is left, and waits until every frame pushed so far is durable.
    pub(crate) async fn finish(&self) -> Result<()> {
        {
            let mut state = self.state.lock();
            let last = state.builder.take();
            let lengths = state.lengths.clone();
            state.puts.extend(last.map(|builder| self.put(builder, lengths)));
        }
        self.await_puts().await;
        self.state.lock().failed.clone().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Options, Store};
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;
    use stonefold_engine::wrap::{Ask, Decision, Operation, Subject};
    use stonefold_engine::{Engine, FaultEngine, MemoryEngine};
    use stonefold_env::{Env, SystemWorld};
    use stonefold_types::Kind;

    /// Goal: when a segment could not be put, nobody is told that what it holds is durable, although somebody else was told of
    /// the failure before; and whoever takes everything back leaves nothing, although another put was still under way then. What is
    /// packed side by side lies in the same segments.
    #[test]
    fn a_put_that_failed_is_told_to_everybody() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap());
            let once = AtomicBool::new(true);
            let decide = move |operation: &Operation<'_>| match operation.subject {
                Subject::Object(key)
                    if operation.ask == Ask::PutNew && key.as_str().starts_with("segment/") =>
                {
                    let slow = Decision { delay_before: Duration::from_millis(30), ..Decision::PROCEED };
                    if once.swap(false, Ordering::Relaxed) { Decision::fail(Kind::Io) } else { slow }
                }
                _ => Decision::PROCEED,
            };
            let stored = Arc::new(MemoryEngine::default());
            let engine = FaultEngine::new(stored.clone(), env.clone(), decide);
            let options = Options { cache_bytes: 8 << 20, ..Options::default() };
            let store = Store::open(env.clone(), Arc::new(engine), options).await.unwrap();
            let packer = Packer::nodes(store.segments.clone());
            let frame = vec![7; 32 << 10];
            while packer.state.lock().puts.len() < PUTS_MAX {
                packer.push(&frame, 8, &[], FirstUse { owner: 1, epoch: 1, place: 0 });
            }
            assert_eq!(packer.throttle().await.unwrap_err().kind(), Kind::Io);
            assert_eq!(packer.throttle().await.unwrap_err().kind(), Kind::Io, "told again");
            assert_eq!(packer.finish().await.unwrap_err().kind(), Kind::Io, "and at the end");
            packer.abandon().await;
            env.sleep(Duration::from_millis(60)).await;
            assert_eq!(stored.list("segment/", None, 10).await.unwrap(), []);
        });
    }
}
