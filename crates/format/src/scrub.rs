//! How far the scrub in the background has come, object `scrub`.
//!
//! Body, version 1: `passes 8 · begun 8 · upto 8 · damaged 8 · finished 8 · left damaged 8`.

use crate::document::{self, DocumentKind};
use crate::entry::SegmentId;
use crate::wire::{Reader, Writer};
use stonefold_types::Result;

const VERSION: u16 = 1;

/// A pass over all segments, and the last that was finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubRecord {
    /// Passes finished.
    pub passes: u64,
    /// When the one under way began, in nanoseconds since 1970.
    pub begun: u64,
    /// The last segment it has looked at, in their order; 0, which is none, at its beginning.
    pub upto: SegmentId,
    /// Segments in which it found something damaged that no copy has whole.
    pub damaged: u64,
    /// When the last was finished, in nanoseconds since 1970; 0 for never.
    pub finished: u64,
    /// What `damaged` was then.
    pub left_damaged: u64,
}

/// The document.
pub fn encode(record: &ScrubRecord) -> Vec<u8> {
    let mut body = Vec::new();
    let ScrubRecord { passes, begun, upto, damaged, finished, left_damaged } = *record;
    [passes, begun, upto.0, damaged, finished, left_damaged].into_iter().for_each(|word| body.u64(word));
    document::seal(DocumentKind::Scrub, VERSION, &body)
}

/// Reads the document.
pub fn decode(bytes: &[u8]) -> Result<ScrubRecord> {
    let (_, body) = document::open(bytes, DocumentKind::Scrub, VERSION)?;
    let mut reader = Reader::new(body, "the progress of the scrub");
    let record = ScrubRecord {
        passes: reader.u64()?,
        begun: reader.u64()?,
        upto: SegmentId(reader.u64()?),
        damaged: reader.u64()?,
        finished: reader.u64()?,
        left_damaged: reader.u64()?,
    };
    reader.end()?;
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_back() {
        let record =
            ScrubRecord { passes: 3, begun: 5, upto: SegmentId(7), damaged: 1, finished: 4, left_damaged: 2 };
        assert_eq!(decode(&encode(&record)).unwrap(), record);
        assert!(decode(&encode(&record)[..60]).is_err());
    }
}
