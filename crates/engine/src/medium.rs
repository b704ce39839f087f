//! What a medium would still hold if the power went: what tests ask, and what every sync tells them.
//!
//! *Promises*: in tests, whatever makes a file or a folder durable says so here, before and after, wherever it runs
//! ([`begin`], [`carried`]); so [`Medium`] knows what a loss of power leaves, and can play one. *Never*: does anything outside of
//! tests, where all of it is empty. *May be used by*: whatever calls fsync.

#[cfg(test)]
mod image;
#[cfg(test)]
mod loss;
#[cfg(test)]
mod watched;

#[cfg(test)]
pub(crate) use watched::{Counted, Medium, begin, carried};

#[cfg(not(test))]
pub(crate) use unwatched::{begin, carried};

#[cfg(not(test))]
mod unwatched {
    use std::fs::File;
    use std::io;

    /// A sync that nobody looks at.
    pub(crate) struct Syncing;

    #[inline(always)]
    pub(crate) fn begin(_file: &File) -> io::Result<Syncing> {
        Ok(Syncing)
    }

    impl Syncing {
        #[inline(always)]
        pub(crate) fn end(self) -> io::Result<()> {
            Ok(())
        }
    }

    #[inline(always)]
    pub(crate) fn carried(job: impl FnOnce() + Send + 'static) -> impl FnOnce() + Send + 'static {
        job
    }
}
