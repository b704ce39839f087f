//! The pool's own record, object `pool`: who it is, and which sessions it has seen.
//!
//! Body, version 1: `pool id (16) · created, ns since 1970 (8) · sessions (4)`.
//!
//! Every opening for writing takes the next session number by compare-and-swap before it writes anything, so
//! that no two ever give a segment the same number, and no number is used twice.

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
}

impl Pool {
    /// The document.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.put(&self.id);
        body.u64(self.created);
        body.u32(self.sessions);
        document::seal(DocumentKind::Pool, VERSION, &body)
    }

    /// Reads the document.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (_, body) = document::open(bytes, DocumentKind::Pool, VERSION)?;
        let mut reader = Reader::new(body, "the pool's record");
        let pool = Pool { id: reader.id()?, created: reader.u64()?, sessions: reader.u32()? };
        reader.end()?;
        Ok(pool)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_back() {
        let pool = Pool { id: [3; 16], created: 5, sessions: 7 };
        assert_eq!(Pool::decode(&pool.encode()).unwrap(), pool);
    }
}
