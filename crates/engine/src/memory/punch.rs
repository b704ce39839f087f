//! Giving back the room of parts of an object: zeros in their place, so that whoever reads them all the same finds
//! damage.

use super::{Object, State, not_found};
use crate::Key;
use std::ops::Range;
use stonefold_types::{AlignedBuf, Result};

const PAGE: u64 = AlignedBuf::ALIGN as u64;

impl Object {
    /// Bytes that count as used.
    pub(super) fn occupied_bytes(&self) -> u64 {
        self.bytes.len() as u64 - self.punched.len() as u64 * PAGE
    }
}

impl State {
    /// Zeroes the whole pages inside the ranges; returns the bytes given back.
    pub(super) fn punch(&mut self, key: &Key, ranges: &[Range<u64>]) -> Result<u64> {
        let object = self.objects.get_mut(key).ok_or_else(|| not_found(key))?;
        let before = object.occupied_bytes();
        let len = object.bytes.len() as u64;
        let pages = ranges.iter().flat_map(|range| range.start.div_ceil(PAGE)..range.end.min(len) / PAGE);
        let fresh: Vec<u64> = pages.filter(|page| object.punched.insert(*page)).collect();
        if !fresh.is_empty() {
            let mut bytes = object.bytes.to_vec();
            for page in fresh {
                let begin = (page * PAGE) as usize;
                bytes[begin..begin + PAGE as usize].fill(0);
            }
            object.bytes = bytes.into();
        }
        let given = before - object.occupied_bytes();
        self.used_bytes -= given;
        Ok(given)
    }
}
