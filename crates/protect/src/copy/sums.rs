//! Which chunks of a disk differ from what is copied to it, by sums (SHA-256) that the other end tells: what is alike is not sent.

use super::{BLOCK, Copy};
use crate::ssh::{CHUNK_BYTES, RemoteDisk, Sum};
use ring::digest::{SHA256, digest};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use stonefold_types::{Kind, Result};

impl Copy<'_> {
    /// Those of a range, each with whether it reads as zeros there.
    pub(super) async fn differing_chunks(
        &self,
        from: &RemoteDisk,
        all: Range<u64>,
    ) -> Result<Vec<(Range<u64>, bool)>> {
        let theirs = self.unless_stopped(from.sums(all.clone())).await?;
        let mut differing = Vec::new();
        for (at, theirs) in all.clone().step_by(CHUNK_BYTES as usize).zip(theirs) {
            self.live.check()?;
            let chunk = at..all.end.min(at + CHUNK_BYTES);
            let bytes = chunk.end - chunk.start;
            let zero = theirs == zeros(bytes as usize);
            let is_alike = self.own_sum(&chunk, zero).await? == Some(theirs);
            if !is_alike {
                differing.push((chunk, zero));
            }
            // What is sent is counted where it is read.
            if is_alike || zero {
                self.live.figures.read.fetch_add(bytes, Ordering::Relaxed);
                self.live.figures.sent.fetch_add(theirs.len() as u64, Ordering::Relaxed);
            }
        }
        Ok(differing)
    }

    /// The sum of what the disk holds in a chunk's place; nothing where that is no chunk: it cannot be read, or something lies behind the end.
    async fn own_sum(&self, chunk: &Range<u64>, zero: bool) -> Result<Option<Sum>> {
        let (bytes, end) = ((chunk.end - chunk.start) as usize, chunk.end.next_multiple_of(BLOCK));
        let extents = self.to.extents(chunk.start, end - chunk.start).await?;
        if extents.iter().all(|extent| extent.hole) {
            return Ok(zero.then(|| zeros(bytes)));
        }
        let mut held = vec![0; (end - chunk.start) as usize];
        match self.to.read(chunk.start, &mut held).await {
            Ok(()) if held[bytes..].iter().any(|byte| *byte != 0) => Ok(None),
            // Not beside the doors, which would wait for it.
            Ok(()) => Ok(Some(self.env.offload(move || sum_of(held, bytes)).await)),
            // It is written anew.
            Err(error) if error.kind() == Kind::Corrupt => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Of so many zeros. That of a whole chunk is wanted for each.
fn zeros(bytes: usize) -> Sum {
    static CHUNK: OnceLock<Sum> = OnceLock::new();
    match bytes as u64 {
        CHUNK_BYTES => *CHUNK.get_or_init(|| sum_of(vec![0; bytes], bytes)),
        _ => sum_of(vec![0; bytes], bytes),
    }
}

/// Of the first bytes.
fn sum_of(held: Vec<u8>, bytes: usize) -> Sum {
    let mut sum = Sum::default();
    sum.copy_from_slice(digest(&SHA256, &held[..bytes]).as_ref());
    sum
}
