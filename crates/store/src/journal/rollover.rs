//! Going on in another journal when the medium of one fails.
//!
//! A sync that failed is never repeated: the kernel may have dropped what it could not write, and says so once. Nor is anything
//! appended behind an append that failed. Instead all that is not known to be durable is written anew, in order, as the beginning of
//! another journal; only a sync of that one answers for it. The failed one stays until all that it made durable is folded: a sync of it
//! that was under way may still have succeeded. A replay that finds a record in both takes it once.
//!
//! *Called* by the writer alone, while nobody appends; the syncer waits.

use super::{Journal, Kept, Medium};
use crate::domains::JournalSeed;
use crate::planted;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stonefold_engine::{self as engine, JournalId};
use stonefold_types::{Error, Result};

/// Journals that may fail one after another, or fail to be begun, without a sync that succeeds between them, before nothing is taken any more.
const FAILURES_MAX: u32 = 3;

impl Medium {
    pub(super) async fn create(engine: &dyn engine::Engine, id: JournalSeed) -> Result<Arc<Self>> {
        let engine = engine.journal_create(JournalId(id.incarnation)).await?;
        Ok(Arc::new(Medium { engine, id }))
    }

    pub(super) fn id(&self) -> JournalId {
        JournalId(self.id.incarnation)
    }
}

impl Journal {
    /// Notes that a journal takes nothing more, if it is the one that counts.
    pub(super) fn note_broken(&self, medium: &Arc<Medium>, error: Error) {
        {
            let mut queue = self.queue.lock();
            if !Arc::ptr_eq(medium, &self.medium()) || queue.broken.is_some() {
                return;
            }
            queue.failures += 1;
            queue.broken = Some(error);
        }
        self.writer_wake.notify_one();
    }

    /// Goes on in another journal where this one's medium failed; tells whether there was anything to do.
    pub(super) async fn roll_over_if_broken(&self) -> bool {
        let (broken, failures) = {
            let queue = self.queue.lock();
            (queue.broken.clone().filter(|_| queue.failed.is_none()), queue.failures)
        };
        let Some(why) = broken else { return false };
        if failures > FAILURES_MAX {
            self.give_up(&why);
            return true;
        }
        match self.roll_over().await {
            Ok(()) => {
                self.counters.rollovers.fetch_add(1, Ordering::Relaxed);
                tracing::error!(
                    "the journal failed; all that was not durable was written into another: {why}"
                );
            }
            Err(error) => {
                tracing::error!("no other journal takes the place of one that failed: {error}");
                self.queue.lock().failures += 1;
            }
        }
        true
    }

    async fn roll_over(&self) -> Result<()> {
        let failed = self.medium();
        let id = JournalSeed { seed: failed.id.seed, incarnation: self.env.random() };
        let medium = Medium::create(&*self.engine, id).await?;
        let kept: Vec<_> = self.queue.lock().kept.iter().cloned().collect();
        if let Err(error) = self.write_anew(&medium, &kept).await {
            // What it has the failed one has, too, or nobody was told of it.
            let _ = self.engine.journal_remove(medium.id()).await;
            return Err(error);
        }
        let end = kept.last().map_or_else(|| self.handed_below(), |chunk| chunk.end);
        let durable_below = {
            let mut queue = self.queue.lock();
            queue.next_seq = kept.len() as u64;
            queue.written = kept.iter().enumerate().map(|(seq, chunk)| (seq as u64, chunk.end)).collect();
            queue.trim_below = 0;
            queue.kept = kept.iter().cloned().collect();
            queue.broken = None;
            self.handed_chunks.store(queue.next_seq, Ordering::Release);
            self.durable_chunks.store(0, Ordering::Release);
            self.handed_below.store(end, Ordering::Release);
            *self.medium.lock() = medium;
            // Only now: until here a sync of the failed one may have answered for what its successor has not made durable.
            self.durable_below.load(Ordering::Acquire)
        };
        self.left.lock().push((failed.id(), durable_below));
        kept.iter().for_each(|chunk| chunk.handed.open(Ok(())));
        self.syncer_wake.notify_one();
        Ok(())
    }

    async fn write_anew(&self, medium: &Medium, kept: &[Arc<Kept>]) -> Result<()> {
        let kept = if planted::is("rollover-drops-kept") { &[] } else { kept };
        for (seq, chunk) in kept.iter().enumerate() {
            medium.engine.append(chunk.written_anew(&medium.id, seq as u64, 0)).await?;
        }
        Ok(())
    }

    /// The journals that were left since the last call; each with the lsn before which it alone made records durable.
    pub(crate) fn take_left(&self) -> Vec<(JournalId, u64)> {
        std::mem::take(&mut *self.left.lock())
    }
}
