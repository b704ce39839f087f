//! Options of the handshake.
//!
//! ```text
//!   server's greeting, 18 bytes           client's flags, 4 bytes: u32
//!   0  u64  "NBDMAGIC"
//!   8  u64  "IHAVEOPT"
//!  16  u16  handshake flags
//!
//!   option from the client, 16 bytes      reply from the server, 20 bytes
//!   0  u64  "IHAVEOPT"                    0  u64  magic 0x0003e889045565a9
//!   8  u32  option                        8  u32  option
//!  12  u32  data length                  12  u32  reply type
//!                                        16  u32  data length
//!
//!   data of EXPORT_NAME                   data of INFO and GO
//!   the name                              u32 name length, name, u16 count, u16 info …
//!
//!   data of LIST_META_CONTEXT, SET_META_CONTEXT
//!   u32 name length, name, u32 count, (u32 query length, query) …
//! ```

use super::Reader;

/// "NBDMAGIC"
pub const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// "IHAVEOPT"
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Before each reply to an option.
pub const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Bytes of an option's header.
pub const OPTION_HEADER_BYTES: usize = 16;
/// Bytes of zeros after the answer to `EXPORT_NAME`, unless the client knows better.
pub const EXPORT_NAME_PADDING_BYTES: usize = 124;

/// Option codes.
#[expect(missing_docs, reason = "the protocol's own names")]
pub mod code {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Reply types.
#[expect(missing_docs, reason = "the protocol's own names")]
pub mod rep {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    pub const ERR_UNSUP: u32 = 1 << 31 | 1;
    pub const ERR_POLICY: u32 = 1 << 31 | 2;
    pub const ERR_INVALID: u32 = 1 << 31 | 3;
    pub const ERR_TLS_REQD: u32 = 1 << 31 | 5;
    pub const ERR_UNKNOWN: u32 = 1 << 31 | 6;
    pub const ERR_SHUTDOWN: u32 = 1 << 31 | 7;
    pub const ERR_TOO_BIG: u32 = 1 << 31 | 9;
    pub const ERR_EXT_HEADER_REQD: u32 = 1 << 31 | 10;
}

/// Information types of `INFO` and `GO`.
#[expect(missing_docs, reason = "the protocol's own names")]
pub mod info {
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const DESCRIPTION: u16 = 2;
    pub const BLOCK_SIZE: u16 = 3;
}

/// An option's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHeader {
    /// See [`code`].
    pub code: u32,
    /// Bytes of data that follow.
    pub data_bytes: u32,
}

impl OptionHeader {
    /// `None` when the magic is wrong.
    pub fn parse(bytes: &[u8; OPTION_HEADER_BYTES]) -> Option<Self> {
        let mut reader = Reader(bytes);
        (reader.u64()? == OPTION_MAGIC).then_some(())?;
        Some(OptionHeader { code: reader.u32()?, data_bytes: reader.u32()? })
    }
}

/// The bytes a client sends.
pub fn encode(code: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(OPTION_HEADER_BYTES + data.len());
    bytes.extend(OPTION_MAGIC.to_be_bytes());
    bytes.extend(code.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

/// Appends a reply whose data are `parts`, one after the other.
pub fn reply(out: &mut Vec<u8>, code: u32, kind: u32, parts: &[&[u8]]) {
    let data_bytes: usize = parts.iter().map(|part| part.len()).sum();
    out.extend_from_slice(&REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&code.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&(data_bytes as u32).to_be_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// The server's first words.
pub fn greeting(flags: u16) -> [u8; 18] {
    let mut bytes = [0; 18];
    bytes[..8].copy_from_slice(&GREETING_MAGIC.to_be_bytes());
    bytes[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
    bytes[16..].copy_from_slice(&flags.to_be_bytes());
    bytes
}

/// The data of `INFO` and `GO`.
#[derive(Debug, PartialEq, Eq)]
pub struct InfoRequest<'a> {
    /// The export's name.
    pub name: &'a str,
    /// What else the client wants to know.
    pub wanted: Vec<u16>,
}

impl<'a> InfoRequest<'a> {
    /// `None` when it is malformed.
    pub fn parse(data: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(data);
        let name = string(&mut reader)?;
        let count = reader.u16()?;
        if reader.0.len() != usize::from(count) * 2 {
            return None;
        }
        let wanted = std::iter::from_fn(|| reader.u16()).collect();
        Some(InfoRequest { name, wanted })
    }
}

/// The data of `LIST_META_CONTEXT` and `SET_META_CONTEXT`.
#[derive(Debug, PartialEq, Eq)]
pub struct MetaRequest<'a> {
    /// The export's name.
    pub name: &'a str,
    /// Contexts asked for.
    pub queries: Vec<&'a str>,
}

impl<'a> MetaRequest<'a> {
    /// `None` when it is malformed.
    pub fn parse(data: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(data);
        let name = string(&mut reader)?;
        let count = reader.u32()?;
        // Each query has at least its length: the count cannot make us reserve more than the data could hold.
        if reader.0.len() / 4 < count as usize {
            return None;
        }
        let queries = (0..count).map(|_| string(&mut reader)).collect::<Option<Vec<_>>>()?;
        reader.is_empty().then_some(MetaRequest { name, queries })
    }
}

fn string<'a>(reader: &mut Reader<'a>) -> Option<&'a str> {
    let len = reader.u32()?;
    std::str::from_utf8(reader.bytes(len as usize)?).ok()
}
