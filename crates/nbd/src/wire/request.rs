//! Requests of the transmission phase.
//!
//! ```text
//!            compact, 28 bytes                     extended, 32 bytes
//!   0  u32   magic 0x25609513                0  u32   magic 0x21e41c71
//!   4  u16   flags                           4  u16   flags
//!   6  u16   type                            6  u16   type
//!   8  u64   cookie                          8  u64   cookie
//!  16  u64   offset                         16  u64   offset
//!  24  u32   length                         24  u64   length
//! ```
//! The payload of a write follows at once. With extended headers any request may carry one, which the flag
//! `PAYLOAD_LEN` announces.

use super::{Reader, Style};

/// Bytes of a compact header.
pub const COMPACT_BYTES: usize = 28;
/// Bytes of an extended header.
pub const EXTENDED_BYTES: usize = 32;

const COMPACT_MAGIC: u32 = 0x2560_9513;
const EXTENDED_MAGIC: u32 = 0x21e4_1c71;

/// Flags of a request.
pub mod flag {
    /// Durable before it is answered.
    pub const FUA: u16 = 1 << 0;
    /// Zeros must stay allocated.
    pub const NO_HOLE: u16 = 1 << 1;
    /// The answer in one piece.
    pub const DF: u16 = 1 << 2;
    /// One extent for each context.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Fail rather than be slow.
    pub const FAST_ZERO: u16 = 1 << 4;
    /// The length is that of a payload.
    pub const PAYLOAD_LEN: u16 = 1 << 5;
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the protocol's own names")]
pub enum Command {
    Read,
    Write,
    Disconnect,
    Flush,
    Trim,
    Cache,
    WriteZeroes,
    BlockStatus,
    /// None of the above.
    Unknown(u16),
}

impl Command {
    fn from_wire(code: u16) -> Self {
        match code {
            0 => Command::Read,
            1 => Command::Write,
            2 => Command::Disconnect,
            3 => Command::Flush,
            4 => Command::Trim,
            5 => Command::Cache,
            6 => Command::WriteZeroes,
            7 => Command::BlockStatus,
            other => Command::Unknown(other),
        }
    }

    fn to_wire(self) -> u16 {
        match self {
            Command::Read => 0,
            Command::Write => 1,
            Command::Disconnect => 2,
            Command::Flush => 3,
            Command::Trim => 4,
            Command::Cache => 5,
            Command::WriteZeroes => 6,
            Command::BlockStatus => 7,
            Command::Unknown(code) => code,
        }
    }

    /// The flags the command may carry, `PAYLOAD_LEN` aside. `FUA` is accepted on every command, as the protocol demands.
    pub fn flags_valid(self) -> u16 {
        flag::FUA
            | match self {
                Command::Read => flag::DF,
                Command::WriteZeroes => flag::NO_HOLE | flag::FAST_ZERO,
                Command::BlockStatus => flag::REQ_ONE,
                _ => 0,
            }
    }
}

/// A request's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// See [`flag`].
    pub flags: u16,
    /// What is asked for.
    pub command: Command,
    /// The client's mark, which the reply repeats.
    pub cookie: u64,
    /// In bytes.
    pub offset: u64,
    /// In bytes; of the effect, or of the payload.
    pub length: u64,
}

/// What came is not a request: the stream cannot be followed any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadMagic(pub u32);

/// Bytes of a request's header.
pub const fn header_bytes(style: Style) -> usize {
    match style {
        Style::Extended => EXTENDED_BYTES,
        Style::Simple | Style::Structured => COMPACT_BYTES,
    }
}

impl Request {
    /// Reads the header at the front of `bytes`; `None` when there is not enough.
    #[inline]
    pub fn parse(bytes: &[u8], style: Style) -> Result<Option<Request>, BadMagic> {
        if bytes.len() < header_bytes(style) {
            return Ok(None);
        }
        let mut reader = Reader(bytes);
        Self::fields(&mut reader, style).transpose()
    }

    fn fields(reader: &mut Reader<'_>, style: Style) -> Option<Result<Request, BadMagic>> {
        let magic = reader.u32()?;
        let extended = style == Style::Extended;
        if magic != if extended { EXTENDED_MAGIC } else { COMPACT_MAGIC } {
            return Some(Err(BadMagic(magic)));
        }
        Some(Ok(Request {
            flags: reader.u16()?,
            command: Command::from_wire(reader.u16()?),
            cookie: reader.u64()?,
            offset: reader.u64()?,
            length: if extended { reader.u64()? } else { u64::from(reader.u32()?) },
        }))
    }

    /// The bytes a client sends. With a compact header the length's upper half is lost.
    pub fn encode(&self, style: Style) -> Vec<u8> {
        let extended = style == Style::Extended;
        let mut bytes = Vec::with_capacity(EXTENDED_BYTES);
        bytes.extend(if extended { EXTENDED_MAGIC } else { COMPACT_MAGIC }.to_be_bytes());
        bytes.extend(self.flags.to_be_bytes());
        bytes.extend(self.command.to_wire().to_be_bytes());
        bytes.extend(self.cookie.to_be_bytes());
        bytes.extend(self.offset.to_be_bytes());
        if extended {
            bytes.extend(self.length.to_be_bytes());
        } else {
            bytes.extend((self.length as u32).to_be_bytes());
        }
        bytes
    }

    /// Bytes that follow the header. A write has them whether or not it says so.
    #[inline]
    pub fn payload_bytes(&self, style: Style) -> u64 {
        let announced = style == Style::Extended && self.flags & flag::PAYLOAD_LEN != 0;
        if announced || self.command == Command::Write { self.length } else { 0 }
    }

    /// Whether a flag is set.
    #[inline]
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// The payload of a `BLOCK_STATUS` that names its contexts: `u64` length of the range, then `u32` ids.
pub struct StatusPayload {
    /// The length of the range asked about, in bytes.
    pub length: u64,
    /// The contexts wanted.
    pub ids: Vec<u32>,
}

impl StatusPayload {
    /// `None` when it is malformed.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let length = reader.u64()?;
        if reader.0.len() % 4 != 0 {
            return None;
        }
        let ids = std::iter::from_fn(|| reader.u32()).collect();
        Some(StatusPayload { length, ids })
    }
}
