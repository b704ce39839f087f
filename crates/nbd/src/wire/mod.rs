//! The NBD protocol's bytes, and nothing but them.
//!
//! *Promises*: any input gives a value or an error, never a panic, and never an allocation larger than its input.
//! What is written reads back. *Never*: does I/O, keeps state, or decides anything. *Owns*: every number and layout of the
//! protocol, each drawn once, beside its code. *May be used by*: this crate, its fuzzers, tests that play a client, and the bench's bridge, which plays a server.
//!
//! Source: the protocol document of the Network Block Device project (`doc/proto.md`), with its extension of
//! 64-bit headers. All integers are big-endian.

pub mod option;
pub mod reply;
pub mod request;

/// How replies look, which the handshake settles; each step includes the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Style {
    /// One header, one payload; an error has no words.
    #[default]
    Simple,
    /// Replies in chunks, with errors in words and holes.
    Structured,
    /// The same in both directions with 64-bit lengths.
    Extended,
}

/// Flags of the handshake, either direction.
pub mod handshake_flag {
    /// The fixed newstyle negotiation.
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    /// No padding after the answer to `EXPORT_NAME`.
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// What an export can do: the transmission flags.
pub mod export_flag {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// `FLUSH` is understood.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// `FUA` is understood.
    pub const SEND_FUA: u16 = 1 << 3;
    /// `TRIM` is understood.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// `WRITE_ZEROES` is understood.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// `DF` is understood.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush on one connection covers the writes of all.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// `CACHE` is understood.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// `FAST_ZERO` is understood.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
    /// `BLOCK_STATUS` may name the contexts it wants.
    pub const BLOCK_STATUS_PAYLOAD: u16 = 1 << 12;
}

/// Errors as the protocol numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    /// Not permitted: the export is read-only.
    Perm = 1,
    /// The medium failed.
    Io = 5,
    /// The request makes no sense.
    Inval = 22,
    /// No space, or beyond the end.
    NoSpc = 28,
    /// Too large to be answered in one piece.
    Overflow = 75,
    /// Not supported.
    NotSup = 95,
    /// The server is going away.
    Shutdown = 108,
}

/// Reads integers from the front of a slice.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
