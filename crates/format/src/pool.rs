//! The pool's own record, object `pool`: who it is, which sessions it has seen, and what time it is.
//!
//! Body, version 1: `pool id 16 · created, ns since 1970 8 · sessions 4 · trusted time 8 · unproven 8 · in doubt 1`.
//!
//! Every opening for writing takes the next session number by compare-and-swap before it writes anything, so
//! that no two ever give a segment the same number, and no number is used twice.
//!
//! *Trusted time*: what locks are judged by, nanoseconds since 1970, as of the last record. *Unproven*: for how many
//! nanoseconds of it there is only the wall clock's word. *In doubt*: 1 when the wall clock was seen to be ahead of it.

use crate::document::{self, DocumentKind};
use crate::wire::{Reader, Writer};
use stonefold_types::Result;

const VERSION: u16 = 1;

/// The pool's own record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Made at random when the pool was.
    pub id: [u8; 16],
    /// Nanoseconds since 1970.
    pub created: u64,
    /// Sessions begun so far; the newest has this number.
    pub sessions: u32,
    /// What locks are judged by.
    pub time: TrustedTime,
}

/// The time that the pool believes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrustedTime {
    /// Nanoseconds since 1970.
    pub trusted: u64,
    /// Nanoseconds of it for which there is only the wall clock's word.
    pub unproven: u64,
    /// The wall clock was seen to be ahead by more than it should.
    pub in_doubt: bool,
}

impl Pool {
    /// The document.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.put(&self.id);
        body.u64(self.created);
        body.u32(self.sessions);
        body.u64(self.time.trusted);
        body.u64(self.time.unproven);
        body.u8(self.time.in_doubt.into());
        document::seal(DocumentKind::Pool, VERSION, &body)
    }

    /// Reads the document.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (_, body) = document::open(bytes, DocumentKind::Pool, VERSION)?;
        let mut reader = Reader::new(body, "the pool's record");
        let (id, created, sessions) = (reader.id()?, reader.u64()?, reader.u32()?);
        let (trusted, unproven, in_doubt) = (reader.u64()?, reader.u64()?, reader.u8()? != 0);
        reader.end()?;
        Ok(Pool { id, created, sessions, time: TrustedTime { trusted, unproven, in_doubt } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_back() {
        let time = TrustedTime { trusted: 8, unproven: 9, in_doubt: true };
        let pool = Pool { id: [3; 16], created: 5, sessions: 7, time };
        assert_eq!(Pool::decode(&pool.encode()).unwrap(), pool);
    }
}
