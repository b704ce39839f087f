//! From a fresh connection to an export that takes requests.

use crate::target::Abilities;
use std::io::{Read, Write};
use stonefold_types::{Error, Kind, Result};

const SERVER_MAGIC: &[u8; 16] = b"NBDMAGICIHAVEOPT";
const OPTION_MAGIC: &[u8; 8] = b"IHAVEOPT";
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Fixed newstyle, and no 124 zeros.
const CLIENT_FLAGS: u32 = 3;
const OPT_GO: u32 = 7;
const REP_ACK: u32 = 1;
const REP_INFO: u32 = 3;
const INFO_EXPORT: u16 = 0;
const INFO_BLOCK_SIZE: u16 = 3;
const REP_ERROR: u32 = 1 << 31;
const REP_ERR_UNKNOWN: u32 = REP_ERROR | 6;
const REP_ERR_TLS_REQUIRED: u32 = REP_ERROR | 5;
/// Longer than any answer to an option that a server has reason to send.
const ANSWER_BYTES_MAX: u32 = 64 << 10;
/// What a server must take at least that says nothing of sizes.
const IO_BYTES_DEFAULT: u32 = 32 << 20;

/// What the server says of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Export {
    pub bytes: u64,
    pub read_only: bool,
    /// Several connections see each other's flushed writes.
    pub multi_conn: bool,
    pub io_bytes_min: u32,
    pub io_bytes_max: u32,
    pub abilities: Abilities,
}

/// Asks for `name`; from then on the server takes requests.
pub(super) fn go(stream: &mut (impl Read + Write), name: &str) -> Result<Export> {
    let broken = |e| Error::io("the server does not finish the NBD handshake", e);
    let mut hello = [0; 18];
    stream.read_exact(&mut hello).map_err(broken)?;
    if hello[..16] != *SERVER_MAGIC {
        return Err(Error::new(Kind::Invalid, "what answers is no NBD server of the newstyle protocol")
            .remedy("name the address of an NBD server"));
    }
    let mut ask = CLIENT_FLAGS.to_be_bytes().to_vec();
    ask.extend_from_slice(OPTION_MAGIC);
    ask.extend_from_slice(&OPT_GO.to_be_bytes());
    ask.extend_from_slice(&(name.len() as u32 + 8).to_be_bytes());
    ask.extend_from_slice(&(name.len() as u32).to_be_bytes());
    ask.extend_from_slice(name.as_bytes());
    ask.extend_from_slice(&1u16.to_be_bytes());
    ask.extend_from_slice(&INFO_BLOCK_SIZE.to_be_bytes());
    stream.write_all(&ask).map_err(broken)?;
    let mut export = None;
    let mut sizes = (1, IO_BYTES_DEFAULT);
    loop {
        let (kind, answer) = answer(stream)?;
        match kind {
            REP_ACK => break,
            REP_INFO => note(&answer, &mut export, &mut sizes),
            kind if kind & REP_ERROR != 0 => return Err(refusal(kind, name, &answer)),
            _ => {}
        }
    }
    let (bytes, flags) = export.ok_or_else(|| {
        Error::new(Kind::Invalid, format!("the server does not say how large export '{name}' is"))
    })?;
    Ok(Export {
        bytes,
        read_only: flags & 2 != 0,
        multi_conn: flags & 0x100 != 0,
        io_bytes_min: sizes.0,
        io_bytes_max: sizes.1,
        abilities: Abilities {
            flush: flags & 4 != 0,
            fua: flags & 8 != 0,
            trim: flags & 0x20 != 0,
            zero: flags & 0x40 != 0,
        },
    })
}

fn note(answer: &[u8], export: &mut Option<(u64, u16)>, sizes: &mut (u32, u32)) {
    let two = |at: usize| u16::from_be_bytes(answer[at..at + 2].try_into().expect("two bytes"));
    let four = |at: usize| u32::from_be_bytes(answer[at..at + 4].try_into().expect("four bytes"));
    match answer.len() {
        12 if two(0) == INFO_EXPORT => {
            let bytes = u64::from_be_bytes(answer[2..10].try_into().expect("eight bytes"));
            *export = Some((bytes, two(10)));
        }
        14 if two(0) == INFO_BLOCK_SIZE => *sizes = (four(2), four(10).min(IO_BYTES_DEFAULT)),
        _ => {}
    }
}

fn answer(stream: &mut impl Read) -> Result<(u32, Vec<u8>)> {
    let broken = |e| Error::io("the server does not finish the NBD handshake", e);
    let mut head = [0; 20];
    stream.read_exact(&mut head).map_err(broken)?;
    let four = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four of 20 bytes"));
    let magic = u64::from_be_bytes(head[..8].try_into().expect("eight of 20 bytes"));
    if magic != REPLY_MAGIC || four(8) != OPT_GO || four(16) > ANSWER_BYTES_MAX {
        return Err(Error::new(Kind::Invalid, "the server does not keep to the NBD protocol"));
    }
    let mut bytes = vec![0; four(16) as usize];
    stream.read_exact(&mut bytes).map_err(broken)?;
    Ok((four(12), bytes))
}

fn refusal(kind: u32, name: &str, answer: &[u8]) -> Error {
    let said = String::from_utf8_lossy(answer);
    let said = if said.is_empty() { String::new() } else { format!(": {}", said.escape_debug()) };
    match kind {
        REP_ERR_UNKNOWN => Error::new(Kind::NotFound, format!("the server has no export '{name}'{said}"))
            .remedy("'nbdinfo --list URI' shows what it has"),
        REP_ERR_TLS_REQUIRED => {
            Error::new(Kind::Unsupported, format!("the server wants TLS for export '{name}'{said}"))
                .remedy("measure it through a door without TLS, or over a Unix socket")
        }
        _ => Error::new(Kind::Invalid, format!("the server refuses export '{name}' (reply {kind:#x}){said}")),
    }
}
