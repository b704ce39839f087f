//! How full the pool has been, object `growth`: what its days to full are told from.
//!
//! Body, version 1: `count 4, then each: time 8 · used bytes 8`, oldest first, at most [`SAMPLES_MAX`].

use crate::document::{self, DocumentKind};
use crate::wire::{Reader, Writer};
use stonefold_types::Result;

/// Two weeks of hours: long enough to see through a week's rhythm, short enough to follow what changes.
pub const SAMPLES_MAX: usize = 14 * 24;

const VERSION: u16 = 1;

/// What the pool took up at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Nanoseconds since 1970.
    pub time: u64,
    /// In bytes.
    pub used_bytes: u64,
}

/// The document.
pub fn encode(samples: &[Sample]) -> Vec<u8> {
    assert!(samples.len() <= SAMPLES_MAX, "{} samples", samples.len());
    let mut body = Vec::new();
    body.u32(samples.len() as u32);
    for sample in samples {
        body.u64(sample.time);
        body.u64(sample.used_bytes);
    }
    document::seal(DocumentKind::Growth, VERSION, &body)
}

/// Reads the document.
pub fn decode(bytes: &[u8]) -> Result<Vec<Sample>> {
    let (_, body) = document::open(bytes, DocumentKind::Growth, VERSION)?;
    let mut reader = Reader::new(body, "the pool's growth");
    let count = reader.u32()? as usize;
    if count > SAMPLES_MAX {
        return Err(reader.malformed(&format!("{count} samples")));
    }
    let mut samples = Vec::with_capacity(count);
    for _ in 0..count {
        samples.push(Sample { time: reader.u64()?, used_bytes: reader.u64()? });
    }
    reader.end()?;
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_back_and_is_bounded() {
        let samples: Vec<Sample> =
            (0..SAMPLES_MAX as u64).map(|at| Sample { time: at, used_bytes: 7 * at }).collect();
        assert_eq!(decode(&encode(&samples)).unwrap(), samples);
        assert_eq!(decode(&encode(&[])).unwrap(), []);
        let many = document::seal(DocumentKind::Growth, 1, &u32::MAX.to_le_bytes());
        assert!(decode(&many).is_err());
    }
}
