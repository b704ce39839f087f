//! From a fresh connection to an export that takes requests: fixed newstyle, `NBD_OPT_GO`, and structured replies with the
//! context `base:allocation` where the server has them, and `qemu:dirty-bitmap:NAME` where one is asked for
//! (<https://www.qemu.org/docs/master/interop/nbd.html>). All numbers are big-endian.
//!
//! | an option | bytes | | a reply to it | bytes |
//! |---|---|---|---|---|
//! | magic `IHAVEOPT` | 8 | | magic 0x0003e889045565a9 | 8 |
//! | option | 4 | | the option | 4 |
//! | length of its data | 4 | | type; from 2³¹ on an error | 4 |
//! | data | | | length of its data | 4 |
//! | | | | data | |

use super::Wire;
use stonefold_types::{Error, Kind, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SERVER_MAGIC: &[u8; 16] = b"NBDMAGICIHAVEOPT";
const OPTION_MAGIC: &[u8; 8] = b"IHAVEOPT";
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Of the server's and of ours: errors are replied to, and no zeros follow.
const FIXED_NEWSTYLE: u16 = 1;
const NO_ZEROES: u16 = 2;
const OPT_ABORT: u32 = 2;
const OPT_INFO: u32 = 6;
const OPT_GO: u32 = 7;
const OPT_STRUCTURED_REPLY: u32 = 8;
const OPT_SET_META_CONTEXT: u32 = 10;
const REP_ACK: u32 = 1;
const REP_INFO: u32 = 3;
const REP_META_CONTEXT: u32 = 4;
const REP_ERROR: u32 = 1 << 31;
const REP_ERR_UNSUPPORTED: u32 = REP_ERROR | 1;
const REP_ERR_TLS_REQUIRED: u32 = REP_ERROR | 5;
const REP_ERR_UNKNOWN: u32 = REP_ERROR | 6;
const INFO_EXPORT: u16 = 0;
const INFO_BLOCK_SIZE: u16 = 3;
/// Of the flags that come with an export's size.
const READ_ONLY: u16 = 1 << 1;
/// Which parts of an export hold nothing.
const ALLOCATION: &str = "base:allocation";
/// Which parts a bitmap of QEMU's has marked; its name follows.
const BITMAP: &str = "qemu:dirty-bitmap:";
/// Longer than any reply to an option that a server has reason to send, in bytes.
const REPLY_BYTES_MAX: u32 = 64 << 10;
/// More than a server has reason to send before it acknowledges an option.
const REPLIES_MAX: usize = 64;
/// What a server takes at most that says nothing of sizes, in bytes.
const IO_BYTES_DEFAULT: u32 = 32 << 20;
/// What a server takes at least, or else all of its export, in bytes: one of our blocks.
const IO_BYTES_MIN: u32 = 4096;
/// The largest block of a server that is read, in bytes: as large as ours may be at most.
const BLOCK_BYTES_MAX: u32 = 64 << 10;

/// What the server says of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Export {
    pub(crate) bytes: u64,
    /// Offsets and lengths are multiples of it; a power of two.
    pub(crate) block_bytes: u32,
    /// The longest request.
    pub(crate) io_bytes_max: u32,
    /// Replies come in chunks.
    pub(crate) structured: bool,
    /// The number of the context that tells what holds nothing.
    pub(crate) allocation: Option<u32>,
    /// The number of the context that tells what has changed, where that was asked for.
    pub(crate) changed: Option<u32>,
}

/// What a server offers, to whomever it lets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) bytes: u64,
    pub(crate) read_only: bool,
}

/// Asks what there is to say of the export `name`, without having it: a server that serves one client and ends has served none. Nothing of a server
/// that is too old to say.
pub(super) async fn look(wire: &mut Wire, name: &str) -> Result<Option<Offer>> {
    let mut data = named(name);
    data.extend_from_slice(&0u16.to_be_bytes());
    let (end, replies) = ask(wire, OPT_INFO, &data).await?;
    let offer = replies.iter().filter(|(kind, _)| *kind == REP_INFO).find_map(|(_, reply)| {
        let reply: &[u8; 12] = reply.as_slice().try_into().ok()?;
        let [kind, flags] = [[reply[0], reply[1]], [reply[10], reply[11]]].map(u16::from_be_bytes);
        let bytes = u64::from_be_bytes(reply[2..10].try_into().expect("eight bytes"));
        (kind == INFO_EXPORT).then_some(Offer { bytes, read_only: flags & READ_ONLY != 0 })
    });
    match end {
        REP_ACK => {
            // Whatever it says to that: it knows by then that nobody wants more.
            let _ = ask(wire, OPT_ABORT, &[]).await;
            Ok(offer)
        }
        REP_ERR_UNSUPPORTED => Ok(None),
        _ => Err(refusal(end, name, replies.last().map_or(&[][..], |(_, said)| said.as_slice()))),
    }
}

/// Asks for the export `name`, with a bitmap of it, once both have greeted each other; from then on the server takes requests. Where it has no such
/// bitmap it has no number of one, either.
pub(super) async fn go(wire: &mut Wire, name: &str, bitmap: Option<&str>) -> Result<Export> {
    let structured = ask(wire, OPT_STRUCTURED_REPLY, &[]).await?.0 == REP_ACK;
    let bitmap = bitmap.map(|bitmap| format!("{BITMAP}{bitmap}"));
    let contexts: Vec<&str> = std::iter::once(ALLOCATION).chain(bitmap.as_deref()).collect();
    let mut numbers = vec![None; contexts.len()];
    if structured {
        numbers = ask_for(wire, name, &contexts).await?;
        if bitmap.is_some() && numbers.iter().all(Option::is_none) {
            // It may have refused all for one that it does not know.
            numbers = ask_for(wire, name, &[ALLOCATION]).await?;
        }
    }
    let (allocation, changed) = (numbers[0], numbers.get(1).copied().flatten());
    let mut data = named(name);
    data.extend_from_slice(&1u16.to_be_bytes());
    data.extend_from_slice(&INFO_BLOCK_SIZE.to_be_bytes());
    let (end, replies) = ask(wire, OPT_GO, &data).await?;
    if end != REP_ACK {
        return Err(refusal(end, name, replies.last().map_or(&[][..], |(_, said)| said.as_slice())));
    }
    let (bytes, block_bytes, io_bytes_max) = (0, 1, IO_BYTES_DEFAULT);
    let mut export = Export { bytes, block_bytes, io_bytes_max, structured, allocation, changed };
    let mut has_size = false;
    for (_, reply) in replies.iter().filter(|(kind, _)| *kind == REP_INFO) {
        has_size |= note(reply, &mut export);
    }
    if !has_size {
        let what = format!("the server does not say how large export '{name}' is");
        return Err(Error::new(Kind::Invalid, what));
    }
    let (block, longest) = (export.block_bytes, u64::from(export.io_bytes_max));
    let is_enough = longest >= u64::from(block.max(IO_BYTES_MIN)) || longest >= export.bytes;
    if !block.is_power_of_two() || block > BLOCK_BYTES_MAX || !is_enough {
        let what = format!("export '{name}' has blocks of {block} bytes, and takes {longest} at once");
        return Err(Error::new(Kind::Unsupported, what)
            .remedy("have it served with blocks of 64K or less, and requests of 4K or more"));
    }
    Ok(export)
}

/// The first words of both.
pub(super) async fn greet(wire: &mut Wire) -> Result<()> {
    let mut hello = [0; 18];
    wire.reader.read_exact(&mut hello).await.map_err(broken)?;
    let flags = u16::from_be_bytes([hello[16], hello[17]]);
    if hello[..16] != *SERVER_MAGIC || flags & FIXED_NEWSTYLE == 0 {
        return Err(Error::new(Kind::Invalid, "what answers is no NBD server of the newstyle protocol")
            .remedy("name the address of an NBD server"));
    }
    let ours = u32::from(flags & (FIXED_NEWSTYLE | NO_ZEROES));
    wire.writer.write_all(&ours.to_be_bytes()).await.map_err(broken)
}

/// What is told of a bitmap that a server has not.
pub(super) fn no_bitmap(name: &str, bitmap: &str) -> Error {
    let what = format!("the server has no context '{BITMAP}{bitmap}' for export '{name}'");
    Error::new(Kind::NotFound, what).remedy("look at what it logs")
}

/// The contexts' numbers; nothing of one that the server has not.
async fn ask_for(wire: &mut Wire, name: &str, contexts: &[&str]) -> Result<Vec<Option<u32>>> {
    let mut data = named(name);
    data.extend_from_slice(&(contexts.len() as u32).to_be_bytes());
    contexts.iter().for_each(|context| data.extend(named(context)));
    let (end, replies) = ask(wire, OPT_SET_META_CONTEXT, &data).await?;
    let number_of = |context: &str| {
        let said = replies.iter().filter(|(kind, _)| *kind == REP_META_CONTEXT);
        let mut said = said.filter_map(|(_, reply)| reply.split_first_chunk::<4>());
        said.find(|(_, of)| *of == context.as_bytes()).map(|(number, _)| u32::from_be_bytes(*number))
    };
    // What it refuses here it refuses with a reason when it is asked for the export.
    Ok(contexts.iter().map(|context| number_of(context).filter(|_| end == REP_ACK)).collect())
}

/// Takes a piece of what a server says of an export; whether it was its size.
fn note(reply: &[u8], export: &mut Export) -> bool {
    let two = |at: usize| u16::from_be_bytes(reply[at..at + 2].try_into().expect("two bytes"));
    let four = |at: usize| u32::from_be_bytes(reply[at..at + 4].try_into().expect("four bytes"));
    match reply.len() {
        12 if two(0) == INFO_EXPORT => {
            export.bytes = u64::from_be_bytes(reply[2..10].try_into().expect("eight bytes"));
            true
        }
        14 if two(0) == INFO_BLOCK_SIZE => {
            export.block_bytes = four(2);
            export.io_bytes_max = four(10).min(IO_BYTES_DEFAULT);
            false
        }
        _ => false,
    }
}

fn named(name: &str) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(name.as_bytes());
    data
}

/// Asks for an option. How the server ended its replies, and all of them.
pub(super) async fn ask(wire: &mut Wire, option: u32, data: &[u8]) -> Result<(u32, Vec<(u32, Vec<u8>)>)> {
    let mut asked = OPTION_MAGIC.to_vec();
    asked.extend_from_slice(&option.to_be_bytes());
    asked.extend_from_slice(&(data.len() as u32).to_be_bytes());
    asked.extend_from_slice(data);
    wire.writer.write_all(&asked).await.map_err(broken)?;
    // TLS may have kept some of it.
    wire.writer.flush().await.map_err(broken)?;
    let mut replies = Vec::new();
    while replies.len() < REPLIES_MAX {
        let (kind, reply) = reply(wire, option).await?;
        replies.push((kind, reply));
        if kind == REP_ACK || kind & REP_ERROR != 0 {
            return Ok((kind, replies));
        }
    }
    Err(nonsense())
}

async fn reply(wire: &mut Wire, option: u32) -> Result<(u32, Vec<u8>)> {
    let mut head = [0; 20];
    wire.reader.read_exact(&mut head).await.map_err(broken)?;
    let four = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four of 20 bytes"));
    let magic = u64::from_be_bytes(head[..8].try_into().expect("eight of 20 bytes"));
    if magic != REPLY_MAGIC || four(8) != option || four(16) > REPLY_BYTES_MAX {
        return Err(nonsense());
    }
    let mut bytes = vec![0; four(16) as usize];
    wire.reader.read_exact(&mut bytes).await.map_err(broken)?;
    Ok((four(12), bytes))
}

fn broken(error: std::io::Error) -> Error {
    Error::new(Kind::Io, format!("the server does not finish the NBD handshake: {error}"))
        .remedy("look whether it is an NBD server, and what it logs")
}

pub(super) fn nonsense() -> Error {
    Error::new(Kind::Io, "the server does not keep to the NBD protocol").remedy("look at what it logs")
}

fn refusal(kind: u32, name: &str, said: &[u8]) -> Error {
    let said = String::from_utf8_lossy(said);
    let said = if said.is_empty() { String::new() } else { format!(": {}", said.escape_debug()) };
    let error = |kind: Kind, what: String| Error::new(kind, format!("the server {what}{said}"));
    match kind {
        REP_ERR_UNKNOWN => error(Kind::NotFound, format!("has no export '{name}'"))
            .remedy("'nbdinfo --list URI' shows what it has"),
        REP_ERR_TLS_REQUIRED => error(Kind::Unsupported, format!("wants TLS for export '{name}'"))
            .remedy("name it by nbds://HOST/EXPORT?tls-certificates=DIR, or a door without TLS"),
        REP_ERR_UNSUPPORTED => error(Kind::Unsupported, "is too old: it has no NBD_OPT_GO".to_owned())
            .remedy("serve it with another server, as qemu-nbd"),
        _ => error(Kind::Invalid, format!("refuses export '{name}' (reply {kind:#x})")),
    }
}
