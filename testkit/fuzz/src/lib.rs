//! Bytes that nobody wrote, for whoever reads bytes: every decoder of what is kept, every text that people and clients give.
//!
//! *Promises*: each [`Target`] is fed what its encoder made, changed by dice ([`mutate`]), and behind a checksum that is right again, because
//! a parser behind a checksum that is never right is never reached. *Oracle*: an answer or an error; never a panic, never more memory than
//! a bound that goes with the input, never more than a moment; what was accepted is written the same way again; and of what is sealed
//! nothing is accepted that was changed. *Never*: needs more than the toolchain that builds the rest. *May be used by*: the test beside it;
//! the NBD door has streams of its own (`crates/nbd/tests/door/hostile.rs`).

pub mod claims;
pub mod documents;
pub mod mutate;
pub mod objects;
pub mod protection;
pub mod sealed;
pub mod texts;
pub mod traces;

/// A reader of bytes.
pub struct Target {
    /// For the one who looks for it.
    pub name: &'static str,
    /// What it really reads.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Reads; panics when it finds a promise broken.
    pub read: fn(&[u8]),
    /// Memory it may take at one time beyond a hundred times the input, in bytes.
    pub bytes_max: usize,
}

/// All of them.
pub fn targets() -> Vec<Target> {
    [
        claims::targets(),
        documents::targets(),
        objects::targets(),
        protection::targets(),
        sealed::targets(),
        texts::targets(),
        traces::targets(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
