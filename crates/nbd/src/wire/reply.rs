//! Replies of the transmission phase.
//!
//! ```text
//!      simple, 16 bytes            structured chunk, 20 bytes     extended chunk, 32 bytes
//!   0  u32  magic 0x67446698     0  u32  magic 0x668e33ef       0  u32  magic 0x6e8a278c
//!   4  u32  error                4  u16  flags                  4  u16  flags
//!   8  u64  cookie               6  u16  type                   6  u16  type
//!                                8  u64  cookie                 8  u64  cookie
//!                               16  u32  payload length        16  u64  offset of the request
//!                                                              24  u64  payload length
//!
//!   payload of a chunk, by type
//!   NONE 0                   nothing
//!   OFFSET_DATA 1            u64 offset, data
//!   OFFSET_HOLE 2            u64 offset, u32 length
//!   BLOCK_STATUS 5           u32 context, then (u32 length, u32 status) …
//!   BLOCK_STATUS_EXT 6       u32 context, u32 count, then (u64 length, u64 status) …
//!   ERROR 0x8001             u32 error, u16 message length, message
//! ```

use super::{Errno, Style};

const SIMPLE_MAGIC: u32 = 0x6744_6698;
const STRUCTURED_MAGIC: u32 = 0x668e_33ef;
const EXTENDED_MAGIC: u32 = 0x6e8a_278c;

const FLAG_DONE: u16 = 1;

/// Chunk types.
pub mod chunk {
    /// No payload.
    pub const NONE: u16 = 0;
    /// Data.
    pub const OFFSET_DATA: u16 = 1;
    /// Zeros.
    pub const OFFSET_HOLE: u16 = 2;
    /// Extents in 32 bits.
    pub const BLOCK_STATUS: u16 = 5;
    /// Extents in 64 bits.
    pub const BLOCK_STATUS_EXT: u16 = 6;
    /// An error, in words.
    pub const ERROR: u16 = 0x8001;
}

/// Status bits of `base:allocation`.
pub mod allocation {
    /// Nothing is stored.
    pub const HOLE: u32 = 1;
    /// Reads as zeros.
    pub const ZERO: u32 = 2;
}

/// The longest fixed part of a reply: an extended chunk that describes a hole, 32 + 12 bytes.
pub const HEAD_BYTES_MAX: usize = 44;

/// The longest message an error carries, in bytes; the protocol's limit for strings.
const MESSAGE_BYTES_MAX: usize = 4096;

/// The fixed part of a reply, ready to be copied out.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    bytes: [u8; HEAD_BYTES_MAX],
    len: usize,
}

impl Head {
    fn new() -> Self {
        Head { bytes: [0; HEAD_BYTES_MAX], len: 0 }
    }

    #[inline]
    fn put<const N: usize>(mut self, value: [u8; N]) -> Self {
        self.bytes[self.len..self.len + N].copy_from_slice(&value);
        self.len += N;
        self
    }
}

impl std::ops::Deref for Head {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A simple reply; 0 is success.
#[inline]
pub fn simple(cookie: u64, error: u32) -> Head {
    Head::new().put(SIMPLE_MAGIC.to_be_bytes()).put(error.to_be_bytes()).put(cookie.to_be_bytes())
}

/// Which request a chunk answers, and how.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// Structured or extended.
    pub style: Style,
    /// The request's mark.
    pub cookie: u64,
    /// The request's offset.
    pub offset: u64,
}

impl Answer {
    #[inline]
    fn head(&self, kind: u16, done: bool, payload_bytes: u64) -> Head {
        let extended = self.style == Style::Extended;
        let head = Head::new()
            .put(if extended { EXTENDED_MAGIC } else { STRUCTURED_MAGIC }.to_be_bytes())
            .put(if done { FLAG_DONE } else { 0 }.to_be_bytes())
            .put(kind.to_be_bytes())
            .put(self.cookie.to_be_bytes());
        if extended {
            head.put(self.offset.to_be_bytes()).put(payload_bytes.to_be_bytes())
        } else {
            head.put((payload_bytes as u32).to_be_bytes())
        }
    }

    /// The request is done, with nothing to say. Outside extended headers the shorter simple reply serves.
    #[inline]
    pub fn done(&self) -> Head {
        match self.style {
            Style::Extended => self.head(chunk::NONE, true, 0),
            Style::Simple | Style::Structured => simple(self.cookie, 0),
        }
    }

    /// What stands before `len` bytes of data from `at`.
    #[inline]
    pub fn data(&self, at: u64, len: usize, done: bool) -> Head {
        match self.style {
            Style::Simple => simple(self.cookie, 0),
            Style::Structured | Style::Extended => {
                self.head(chunk::OFFSET_DATA, done, 8 + len as u64).put(at.to_be_bytes())
            }
        }
    }

    /// A run of zeros.
    pub fn hole(&self, at: u64, len: u32, done: bool) -> Head {
        self.head(chunk::OFFSET_HOLE, done, 12).put(at.to_be_bytes()).put(len.to_be_bytes())
    }

    /// The end of a reply in chunks.
    pub fn end(&self) -> Head {
        self.head(chunk::NONE, true, 0)
    }

    /// An error, with words where the style has room for them.
    pub fn error(&self, errno: Errno, message: &str, out: &mut Vec<u8>) {
        if self.style == Style::Simple {
            out.extend_from_slice(&simple(self.cookie, errno as u32));
            return;
        }
        let message = &message.as_bytes()[..message.floor_char_boundary_at(MESSAGE_BYTES_MAX)];
        out.extend_from_slice(&self.head(chunk::ERROR, true, 6 + message.len() as u64));
        out.extend_from_slice(&(errno as u32).to_be_bytes());
        out.extend_from_slice(&(message.len() as u16).to_be_bytes());
        out.extend_from_slice(message);
    }

    /// The status of consecutive extents (length in bytes, status) in one context.
    pub fn status(&self, context: u32, extents: &[(u64, u32)], done: bool, out: &mut Vec<u8>) {
        if self.style == Style::Extended {
            let payload = 8 + 16 * extents.len() as u64;
            out.extend_from_slice(&self.head(chunk::BLOCK_STATUS_EXT, done, payload));
            out.extend_from_slice(&context.to_be_bytes());
            out.extend_from_slice(&(extents.len() as u32).to_be_bytes());
            for (len, status) in extents {
                out.extend_from_slice(&len.to_be_bytes());
                out.extend_from_slice(&u64::from(*status).to_be_bytes());
            }
        } else {
            let payload = 4 + 8 * extents.len() as u64;
            out.extend_from_slice(&self.head(chunk::BLOCK_STATUS, done, payload));
            out.extend_from_slice(&context.to_be_bytes());
            for (len, status) in extents {
                // A compact request cannot ask about more than 32 bits of length.
                out.extend_from_slice(&(*len as u32).to_be_bytes());
                out.extend_from_slice(&status.to_be_bytes());
            }
        }
    }
}

/// `str::floor_char_boundary`, which the oldest compiler we support does not have.
trait FloorCharBoundary {
    fn floor_char_boundary_at(&self, index: usize) -> usize;
}

impl FloorCharBoundary for str {
    fn floor_char_boundary_at(&self, index: usize) -> usize {
        (0..=index.min(self.len())).rev().find(|i| self.is_char_boundary(*i)).unwrap_or(0)
    }
}
