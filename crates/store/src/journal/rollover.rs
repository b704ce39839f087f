//! Going on in another journal when the medium of one fails.
//!
//! A sync that failed is never repeated: the kernel may have dropped what it could not write, and says so once. Nor is anything
//! appended behind an append that failed. Instead all that is not known to be durable is written anew, in order, as the beginning of
//! another journal; only a sync of that one answers for it. The failed one stays until all before its successor's first record is
//! folded. A replay that finds a record in both takes it once.
//!
//! *Called* by the writer alone, while nobody appends; the syncer waits.

use super::{Journal, Medium};
use crate::domains::JournalSeed;
use crate::planted;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stonefold_engine::{self as engine, JournalId};
use stonefold_types::{Error, Result};

/// Journals that may fail one after another, without a sync that succeeds between them, before nothing is taken any more.
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
            Err(error) => self.give_up(&error.context(format!("beginning another journal after: {why}"))),
        }
        true
    }

    async fn roll_over(&self) -> Result<()> {
        let failed = self.medium();
        let id = JournalSeed { seed: failed.id.seed, incarnation: self.env.random() };
        let medium = Medium::create(&*self.engine, id).await?;
        let kept: Vec<_> = self.queue.lock().kept.iter().cloned().collect();
        let first_lsn = self.durable_below.load(Ordering::Acquire);
        if !planted::is("rollover-drops-kept") {
            for (seq, chunk) in kept.iter().enumerate() {
                medium.engine.append(chunk.written_anew(&id, seq as u64, 0)).await?;
            }
        }
        let end = kept.last().map_or_else(|| self.handed_below(), |chunk| chunk.end);
        {
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
        }
        self.left.lock().push((failed.id(), first_lsn));
        kept.iter().for_each(|chunk| chunk.handed.open(Ok(())));
        self.syncer_wake.notify_one();
        Ok(())
    }

    /// The journals that were left since the last call; each with the lsn before which it alone has the records.
    pub(crate) fn take_left(&self) -> Vec<(JournalId, u64)> {
        std::mem::take(&mut *self.left.lock())
    }
}
