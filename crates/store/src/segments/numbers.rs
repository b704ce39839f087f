//! Numbers of segments, and who writes some outside of the fold's rounds.

use super::{SEGMENT_FRAMES_BYTES, Segments};
use crate::planted;
use std::sync::atomic::Ordering;
use stonefold_format::entry::SegmentId;
use stonefold_format::segment::{Scope, SegmentBuilder, SegmentKind};

impl Segments {
    pub(crate) fn new_builder(&self, kind: SegmentKind, scope: Scope) -> SegmentBuilder {
        SegmentBuilder::new(self.next_id(), kind, scope, self.env.random(), SEGMENT_FRAMES_BYTES)
    }

    /// Every number given out so far is lower.
    pub(crate) fn peek_id(&self) -> SegmentId {
        SegmentId::new(self.session, self.next_count.load(Ordering::Relaxed))
    }

    /// Until the guard goes, no segment that is begun from here on is taken for one that was left over. For who writes
    /// segments while rounds and passes of reclaim go on.
    pub(crate) fn begin_writing(&self) -> Writing<'_> {
        let from = self.peek_id();
        self.writing.lock().push(from);
        Writing { segments: self, from }
    }

    /// Segments before this one are named by a head or an account by now, or nobody is going to name them. Asked between two
    /// rounds of the fold.
    pub(crate) fn settled_below(&self) -> SegmentId {
        let oldest = self.writing.lock().iter().min().copied();
        let oldest = oldest.filter(|_| !planted::is("rollback-not-young"));
        self.peek_id().min(oldest.unwrap_or(SegmentId(u64::MAX)))
    }

    /// Waits until nobody writes outside of rounds.
    pub(crate) async fn written(&self) {
        loop {
            let done = self.writing_ended.notified();
            if self.writing.lock().is_empty() {
                return;
            }
            done.await;
        }
    }

    /// A number that no other segment, ledger or account has.
    pub(crate) fn next_id(&self) -> SegmentId {
        SegmentId::new(self.session, self.next_count.fetch_add(1, Ordering::Relaxed))
    }
}

/// See [`Segments::begin_writing`].
pub(crate) struct Writing<'a> {
    segments: &'a Segments,
    from: SegmentId,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut writing = self.segments.writing.lock();
        let at = writing.iter().position(|from| *from == self.from);
        writing.swap_remove(at.expect("it was noted when it began"));
        self.segments.writing_ended.notify_one();
    }
}
