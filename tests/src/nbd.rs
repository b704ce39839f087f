//! An NBD client that keeps many requests in flight, over a Unix socket, with structured replies.
//!
//! It shares the protocol's numbers with the server (`stonefold_nbd::wire`) and nothing else; that these are the right
//! ones is shown by the foreign clients.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use stonefold_nbd::wire::option::{self, REPLY_MAGIC, code, info, rep};
use stonefold_nbd::wire::reply::chunk;
use stonefold_nbd::wire::request::{Command, Request};
use stonefold_nbd::wire::{Style, handshake_flag};

/// No single answer may take longer: the server may be folding on a busy machine, but a hung one is a failure.
const ANSWER_MAX: Duration = Duration::from_secs(60);
const SIMPLE_MAGIC: u32 = 0x6744_6698;
const STRUCTURED_MAGIC: u32 = 0x668e_33ef;
const FLAG_DONE: u16 = 1;
/// The longest chunk that an honest server sends: a read of 32 MiB and its offset.
const CHUNK_BYTES_MAX: u32 = (32 << 20) + 8;

/// The server's refusal of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// As the protocol numbers it.
    pub errno: u32,
    /// In the server's words.
    pub message: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server answered with error {}: {}", self.errno, self.message)
    }
}

impl std::error::Error for Refused {}

/// One reply.
#[derive(Debug)]
pub struct Reply {
    /// Of the request.
    pub cookie: u64,
    /// Data of a read by their offset; holes as zeros.
    pub data: Vec<(u64, Vec<u8>)>,
    /// Why not.
    pub refused: Option<Refused>,
}

impl Reply {
    fn new(cookie: u64) -> Self {
        Reply { cookie, data: Vec::new(), refused: None }
    }

    /// The data in one piece.
    ///
    /// # Errors
    /// When they are not exactly this range.
    pub fn bytes(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let mut pieces: Vec<_> = self.data.iter().collect();
        pieces.sort_by_key(|(at, _)| *at);
        let mut bytes = Vec::with_capacity(len);
        for (at, piece) in pieces {
            ensure!(*at == offset + bytes.len() as u64, "pieces of a read overlap or leave a gap at {at}");
            bytes.extend_from_slice(piece);
        }
        ensure!(bytes.len() == len, "a read of {len} bytes gave {}", bytes.len());
        Ok(bytes)
    }
}

/// The half that asks.
pub struct Asking(UnixStream);

/// The half that listens.
pub struct Listening {
    stream: BufReader<UnixStream>,
    /// Replies of which more is to come.
    begun: BTreeMap<u64, Reply>,
}

/// A connection to one export.
pub struct Connection {
    asking: Asking,
    listening: Listening,
    /// The export's size.
    pub size_bytes: u64,
    cookie: u64,
}

impl Connection {
    /// Opens an export.
    ///
    /// # Errors
    /// When nobody listens there, or refuses.
    pub fn open(socket: &Path, export: &str) -> Result<Self> {
        let stream = UnixStream::connect(socket)
            .with_context(|| format!("no NBD server answers at {}", socket.display()))?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.set_write_timeout(Some(ANSWER_MAX))?;
        let mut connection = Connection {
            listening: Listening {
                stream: BufReader::with_capacity(256 << 10, stream.try_clone()?),
                begun: BTreeMap::new(),
            },
            asking: Asking(stream),
            size_bytes: 0,
            cookie: 0,
        };
        connection.handshake(export).with_context(|| format!("opening the export '{export}'"))?;
        Ok(connection)
    }

    fn handshake(&mut self, export: &str) -> Result<()> {
        let flags = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
        let mut greeting = [0; 18];
        self.listening.stream.read_exact(&mut greeting)?;
        ensure!(greeting == option::greeting(flags), "an unknown greeting");
        self.asking.0.write_all(&u32::from(flags).to_be_bytes())?;
        self.option(code::STRUCTURED_REPLY, &[])?;
        let mut go = (export.len() as u32).to_be_bytes().to_vec();
        go.extend_from_slice(export.as_bytes());
        go.extend_from_slice(&[0, 0]);
        let infos = self.option(code::GO, &go)?;
        let export = infos.iter().find(|data| data.len() == 12 && data[..2] == info::EXPORT.to_be_bytes());
        self.size_bytes = be(&export.context("the export's size was not told")?[2..10]);
        Ok(())
    }

    /// Sends an option; gives the data of the replies before the last.
    fn option(&mut self, code: u32, data: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.asking.0.write_all(&option::encode(code, data))?;
        let mut replies = Vec::new();
        loop {
            let mut head = [0; 20];
            self.listening.stream.read_exact(&mut head)?;
            let (magic, kind, len) = (be(&head[..8]), be(&head[12..16]) as u32, be(&head[16..20]));
            ensure!(magic == REPLY_MAGIC && len < 64 << 10, "an option was answered out of protocol");
            let mut data = vec![0; len as usize];
            self.listening.stream.read_exact(&mut data)?;
            match kind {
                rep::ACK => return Ok(replies),
                rep::INFO => replies.push(data),
                _ => bail!("refused: {}", String::from_utf8_lossy(&data)),
            }
        }
    }

    /// The two halves, for two threads.
    pub fn split(self) -> (Asking, Listening) {
        (self.asking, self.listening)
    }

    /// One request and its reply.
    ///
    /// # Errors
    /// [`Refused`], or when the connection breaks.
    pub fn request(
        &mut self,
        command: Command,
        flags: u16,
        offset: u64,
        length: u64,
        payload: &[u8],
    ) -> Result<Reply> {
        self.cookie += 1;
        let request = Request { flags, command, cookie: self.cookie, offset, length };
        self.asking.send(&request, payload)?;
        let reply = self.listening.reply()?;
        ensure!(reply.cookie == self.cookie, "the server answered another request");
        match reply.refused {
            Some(refused) => Err(refused.into()),
            None => Ok(reply),
        }
    }

    /// Reads.
    ///
    /// # Errors
    /// As [`Connection::request`].
    pub fn read(&mut self, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.request(Command::Read, 0, offset, len as u64, &[])?.bytes(offset, len)
    }

    /// Writes.
    ///
    /// # Errors
    /// As [`Connection::request`].
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        self.request(Command::Write, 0, offset, data.len() as u64, data).map(drop)
    }

    /// Makes durable what was written.
    ///
    /// # Errors
    /// As [`Connection::request`].
    pub fn flush(&mut self) -> Result<()> {
        self.request(Command::Flush, 0, 0, 0, &[]).map(drop)
    }

    /// Reads much, in requests of 1 MiB.
    ///
    /// # Errors
    /// As [`Connection::request`].
    pub fn read_all(&mut self, offset: u64, len: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(len as usize);
        while (bytes.len() as u64) < len {
            let part = (len - bytes.len() as u64).min(1 << 20);
            bytes.extend(self.read(offset + bytes.len() as u64, part as usize)?);
        }
        Ok(bytes)
    }
}

impl Asking {
    /// Sends a request.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn send(&mut self, request: &Request, payload: &[u8]) -> io::Result<()> {
        let mut bytes = request.encode(Style::Structured);
        bytes.extend_from_slice(payload);
        self.0.write_all(&bytes)
    }

    /// Breaks the connection, so that the other half wakes.
    pub fn hang_up(&self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

impl Listening {
    /// Waits for the next reply that is whole; chunks of several may interleave.
    ///
    /// # Errors
    /// When the connection is broken, silent for too long, or out of protocol.
    pub fn reply(&mut self) -> io::Result<Reply> {
        loop {
            let (cookie, done) = self.chunk()?;
            if done {
                return Ok(self.begun.remove(&cookie).unwrap_or_else(|| Reply::new(cookie)));
            }
        }
    }

    fn begun(&mut self, cookie: u64) -> &mut Reply {
        self.begun.entry(cookie).or_insert_with(|| Reply::new(cookie))
    }

    fn chunk(&mut self) -> io::Result<(u64, bool)> {
        let invalid = |why: &str| io::Error::new(ErrorKind::InvalidData, why);
        let magic = self.number::<4>()? as u32;
        if magic == SIMPLE_MAGIC {
            let errno = self.number::<4>()? as u32;
            let cookie = self.number::<8>()?;
            self.begun(cookie).refused = (errno != 0).then(|| Refused { errno, message: String::new() });
            return Ok((cookie, true));
        }
        if magic != STRUCTURED_MAGIC {
            return Err(invalid("a reply with an unknown magic"));
        }
        let (flags, kind) = (self.number::<2>()? as u16, self.number::<2>()? as u16);
        let (cookie, len) = (self.number::<8>()?, self.number::<4>()? as u32);
        if len > CHUNK_BYTES_MAX {
            return Err(invalid("a chunk longer than any request"));
        }
        let mut payload = vec![0; len as usize];
        self.stream.read_exact(&mut payload)?;
        let reply = self.begun(cookie);
        match kind {
            chunk::NONE => {}
            chunk::OFFSET_DATA if payload.len() > 8 => {
                reply.data.push((be(&payload[..8]), payload.split_off(8)));
            }
            chunk::OFFSET_HOLE if payload.len() == 12 => {
                reply.data.push((be(&payload[..8]), vec![0; be(&payload[8..]) as usize]));
            }
            chunk::ERROR if payload.len() >= 6 => {
                let message = String::from_utf8_lossy(&payload[6..]).into_owned();
                reply.refused = Some(Refused { errno: be(&payload[..4]) as u32, message });
            }
            _ => return Err(invalid("a chunk of an unknown kind")),
        }
        Ok((cookie, flags & FLAG_DONE != 0))
    }

    fn number<const N: usize>(&mut self) -> io::Result<u64> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes)?;
        Ok(be(&bytes))
    }
}

/// A big-endian number of at most eight bytes.
fn be(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Whether this is the server's refusal, and which error it is.
pub fn errno(error: &anyhow::Error) -> Option<u32> {
    error.downcast_ref::<Refused>().map(|refused| refused.errno)
}
