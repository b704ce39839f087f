//! What is measured: a volume behind a target, without knowing what is behind that.
//!
//! *Promises*: each backend carries reads, writes and flushes of many volumes for one thread, without waiting for any of
//! them. *Never*: retries, merges, caches or reorders; what is measured is what was asked for.

mod buffers;
mod file;
pub(crate) mod nbd;
mod null;
mod open;
mod own;
mod spec;
mod used;

pub(crate) use buffers::Buffers;
pub(crate) use file::Files;
pub(crate) use null::Null;
pub(crate) use open::{Look, Opened, backend, lasting, look, refuse_memory, room_of_file};
pub use spec::TargetSpec;

/// What to do: reads go into the slot's buffer, writes come from it, all else leaves it alone.
pub(crate) use crate::trace::Op;
use std::io;
use std::time::Duration;

/// What a target can be asked for beside reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Abilities {
    pub flush: bool,
    /// Writes that are durable when they are answered.
    pub fua: bool,
    pub trim: bool,
    pub zero: bool,
}

impl Abilities {
    /// All of it.
    pub(crate) const ALL: Abilities = Abilities { flush: true, fua: true, trim: true, zero: true };

    /// Whether it can be asked for this.
    pub(crate) fn has(self, op: Op) -> bool {
        match op {
            Op::Read | Op::Write => true,
            Op::Flush => self.flush,
            Op::Trim => self.trim,
            Op::Zero => self.zero,
        }
    }
}

/// One I/O for a backend. The buffer is that of `slot`, from its beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub slot: u32,
    /// Number of the volume among those of the backend.
    pub volume: u32,
    pub op: Op,
    /// To be durable when it is answered.
    pub fua: bool,
    pub offset: u64,
    pub bytes: u32,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    pub slot: u32,
    /// 0, or the number of the error (errno).
    pub error: i32,
}

/// Carries requests of one thread.
pub(crate) trait Backend {
    /// Takes a request; may keep it until [`Backend::push`]. The slot's buffer is the backend's until completion.
    fn submit(&mut self, request: Request);

    /// Hands over what was taken.
    ///
    /// # Errors
    /// When the target can no longer be spoken to at all.
    fn push(&mut self) -> io::Result<()>;

    /// Adds what has completed, without waiting.
    ///
    /// # Errors
    /// When the target can no longer be spoken to at all.
    fn reap(&mut self, done: &mut Vec<Completion>) -> io::Result<()>;

    /// Waits until something has completed, but no longer than `at_most`.
    ///
    /// # Errors
    /// When the target can no longer be spoken to at all.
    fn wait(&mut self, at_most: Duration) -> io::Result<()>;

    /// Volumes that hung up since this was last asked, with what was seen of it. What they had been asked is asked again
    /// when they are back. Only of backends that wait for that; others fail.
    fn broken_off(&mut self) -> Vec<(u32, io::Error)> {
        Vec::new()
    }
}
