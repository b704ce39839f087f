//! Answering `BLOCK_STATUS`: extents of the store, merged, in each context asked for.

use std::ops::Range;
use stonefold_types::Result;

use crate::limits::EXTENTS_MAX;
use crate::meta::MetaContext;
use crate::negotiation::context_id;
use crate::target::Target;

/// What is asked of the store at first, in bytes: 4096 blocks, so at most as many extents. Grows while they are few.
const WINDOW_BYTES_INITIAL: u64 = 16 << 20;
/// A window with fewer extents lets the next one be larger.
const WINDOW_EXTENTS_FEW: usize = EXTENTS_MAX / 16;

/// The status of a range in one context.
pub(super) struct Status {
    pub(super) id: u32,
    /// Length in bytes and status; no two neighbours have the same status.
    pub(super) extents: Vec<(u64, u32)>,
}

/// The status of the beginning of a range in the contexts `wanted` (indices into `contexts`); of one extent each, or
/// of as many as a reply holds.
pub(super) async fn survey<T: Target>(
    target: &T,
    contexts: &[MetaContext],
    wanted: &[usize],
    range: Range<u64>,
    one: bool,
) -> Result<Vec<Status>> {
    let extents_max = if one { 1 } else { EXTENTS_MAX };
    let mut statuses = Vec::with_capacity(wanted.len());
    for index in wanted {
        let extents = extents(target, &contexts[*index], range.clone(), extents_max).await?;
        statuses.push(Status { id: context_id(*index), extents });
    }
    Ok(statuses)
}

async fn extents<T: Target>(
    target: &T,
    context: &MetaContext,
    range: Range<u64>,
    extents_max: usize,
) -> Result<Vec<(u64, u32)>> {
    let mut found: Vec<(u64, u32)> = Vec::new();
    let mut at = range.start;
    let mut window = WINDOW_BYTES_INITIAL;
    // One more than wanted proves that the last one wanted has ended.
    while at < range.end && found.len() <= extents_max {
        let len = window.min(range.end - at);
        let seen = match context {
            MetaContext::Allocation => target.extents(at, len).await?,
            MetaContext::ChangedSince(snapshot) => target.changed_since(snapshot, at, len).await?,
        };
        for extent in &seen {
            let status = context.status(extent.hole);
            match found.last_mut() {
                Some((len, last)) if *last == status => *len += extent.bytes,
                _ => found.push((extent.bytes, status)),
            }
        }
        at += len;
        if seen.len() < WINDOW_EXTENTS_FEW {
            window = window.saturating_mul(4);
        }
    }
    found.truncate(extents_max);
    Ok(found)
}
