//! The bytes of the NBD protocol that a client of the lab needs (the protocol's document, `doc/proto.md` of the NBD
//! project): fixed newstyle, `NBD_OPT_GO`, simple replies. All numbers are big-endian.
//!
//! | a request | bytes | | a simple reply | bytes |
//! |---|---|---|---|---|
//! | magic 0x25609513 | 4 | | magic 0x67446698 | 4 |
//! | flags: 1 durable when answered | 2 | | error, 0 for none | 4 |
//! | type: 0 read, 1 write, 2 disconnect, 3 flush, 4 trim, 6 zeroing | 2 | | cookie | 8 |
//! | cookie | 8 | | of a read, its data | |
//! | offset | 8 | | | |
//! | length | 4 | | | |
//! | of a write, its data | | | | |

use crate::target::{Op, Request};

/// Bytes of a request before its data.
pub(super) const REQUEST_BYTES: usize = 28;
/// Bytes of a simple reply before its data.
pub(super) const REPLY_BYTES: usize = 16;

const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
const DISCONNECT: u16 = 2;
const FUA: u16 = 1;

/// A request as it goes out; its cookie is the slot.
pub(super) fn request(request: &Request) -> [u8; REQUEST_BYTES] {
    let kind = match request.op {
        Op::Read => 0,
        Op::Write => 1,
        Op::Flush => 3,
        Op::Trim => 4,
        Op::Zero => 6,
    };
    let flags = if request.fua { FUA } else { 0 };
    encode(flags, kind, request.slot.into(), request.offset, request.bytes)
}

/// The request by which a client says that it goes.
pub(super) fn disconnect() -> [u8; REQUEST_BYTES] {
    encode(0, DISCONNECT, 0, 0, 0)
}

fn encode(flags: u16, kind: u16, cookie: u64, offset: u64, length: u32) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&flags.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..24].copy_from_slice(&offset.to_be_bytes());
    bytes[24..].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// Error and cookie of a simple reply; nothing if it is none.
pub(super) fn reply(bytes: &[u8; REPLY_BYTES]) -> Option<(u32, u64)> {
    let number = |from: usize| u32::from_be_bytes(bytes[from..from + 4].try_into().expect("4 of 16 bytes"));
    let cookie = u64::from_be_bytes(bytes[8..].try_into().expect("8 of 16 bytes"));
    (number(0) == REPLY_MAGIC).then(|| (number(4), cookie))
}
