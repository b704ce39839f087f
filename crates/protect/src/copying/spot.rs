//! Whether a bitmap that somebody else keeps has told all that changed: places that it has not marked are looked at.
//!
//! *Why*: a server's bitmap that was cleared, or begun anew, since the last point leaves out what had changed before, and nothing in it says so. What is
//! found here is certain; what is not found is likely. [`LOOKS`] pieces find a bitmap that has left out one piece in twenty 96 times in a hundred.

use super::Live;
use crate::Protection;
use crate::origin::Origin;
use std::sync::atomic::Ordering;
use stonefold_store::Attachment;
use stonefold_types::{BLOCK_BYTES, Kind, Result};

/// How many places are drawn, over all of the disk, and how long each is, in bytes: of each what is not marked is looked at.
const LOOKS: usize = 64;
const PIECE_BYTES: u64 = 64 << 10;

impl Protection {
    /// Whether places that are drawn, as far as they are not marked, are as the last point has them.
    pub(super) async fn is_told(&self, live: &Live, from: &Origin, last: &Attachment) -> Result<bool> {
        let pieces = from.bytes().div_ceil(PIECE_BYTES);
        for _ in 0..LOOKS {
            live.until_resumed().await?;
            live.check()?;
            let at = u64::from_le_bytes(self.env.random()) % pieces * PIECE_BYTES;
            if !self.is_piece_told(live, from, last, at).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn is_piece_told(&self, live: &Live, from: &Origin, last: &Attachment, at: u64) -> Result<bool> {
        let len = PIECE_BYTES.min(from.bytes() - at).min(from.read_bytes_max());
        let (mut unmarked, mut told) = (Vec::new(), 0);
        while told < len {
            for run in from.runs(at + told, (len - told) as u32).await? {
                if !run.changed {
                    unmarked.push(told as usize..(told + run.bytes) as usize);
                }
                told += run.bytes;
            }
        }
        if unmarked.is_empty() {
            return Ok(true);
        }
        let read = from.read(at, len as u32).await?;
        live.figures.read.fetch_add(len, Ordering::Relaxed);
        live.figures.sent.fetch_add(read.sent, Ordering::Relaxed);
        let mut before = vec![0; read.bytes.len().next_multiple_of(BLOCK_BYTES)];
        match last.read(at, &mut before).await {
            Ok(()) => {}
            // What is damaged is written anew where all is compared.
            Err(error) if error.kind() == Kind::Corrupt => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(unmarked.into_iter().all(|range| read.bytes[range.clone()] == before[range]))
    }
}
