//! A plain client that can speak every style, and misbehave.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use stonefold_nbd::wire::Style;
use stonefold_nbd::wire::option::{self, REPLY_MAGIC, code, rep};
use stonefold_nbd::wire::request::{Command, Request, flag};

pub(crate) struct Client<S = UnixStream> {
    pub(crate) stream: S,
    pub(crate) style: Style,
    next_cookie: u64,
}

/// Where the data of a simple reply are.
const SOMEWHERE: u64 = u64::MAX;

/// A reply to an option.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OptionReply {
    pub(crate) kind: u32,
    pub(crate) data: Vec<u8>,
}

/// All chunks of a reply.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) error: u32,
    pub(crate) message: String,
    /// Data by offset.
    pub(crate) data: BTreeMap<u64, Vec<u8>>,
    pub(crate) holes: usize,
    /// Extents by context.
    pub(crate) status: BTreeMap<u32, Vec<(u64, u32)>>,
}

impl Reply {
    /// The data in one piece.
    pub(crate) fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (at, data) in &self.data {
            // A simple reply does not say where its data belong.
            let at = if *at == SOMEWHERE { offset } else { *at };
            assert_eq!(at, offset + bytes.len() as u64, "pieces neither overlap nor leave a gap");
            bytes.extend(data);
        }
        assert_eq!(bytes.len(), len);
        bytes
    }
}

impl Client {
    /// Connects and says hello.
    pub(crate) fn connect(socket: &Path) -> Self {
        let mut client = Self::connect_silently(socket);
        let mut greeting = [0; 18];
        client.stream.read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting, b"NBDMAGICIHAVEOPT\0\x03");
        client.send(&3u32.to_be_bytes());
        client
    }

    pub(crate) fn connect_silently(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
        Client { stream, style: Style::Simple, next_cookie: 1 }
    }

    /// Connects and opens an export in a style, with `base:allocation` where the style allows.
    pub(crate) fn open(socket: &Path, export: &str, style: Style) -> Self {
        let mut client = Self::connect(socket);
        let wanted = match style {
            Style::Simple => None,
            Style::Structured => Some(code::STRUCTURED_REPLY),
            Style::Extended => Some(code::EXTENDED_HEADERS),
        };
        if let Some(option) = wanted {
            assert_eq!(client.option(option, &[]).last().unwrap().kind, rep::ACK);
            client.style = style;
            let replies = client.option(code::SET_META_CONTEXT, &meta(export, &["base:allocation"]));
            assert_eq!(replies.last().unwrap().kind, rep::ACK, "{replies:?}");
        }
        let replies = client.option(code::GO, &info(export, &[]));
        assert_eq!(replies.last().unwrap().kind, rep::ACK, "{replies:?}");
        client
    }

    /// Another hold on the same connection, to send from another thread.
    pub(crate) fn twin(&self) -> Self {
        Client { stream: self.stream.try_clone().unwrap(), ..*self }
    }
}

impl<S: Read + Write> Client<S> {
    /// Goes on over another stream, that of TLS for one.
    pub(crate) fn over<T>(self, wrap: impl FnOnce(S) -> T) -> Client<T> {
        Client { stream: wrap(self.stream), style: self.style, next_cookie: self.next_cookie }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends an option and reads the replies up to the last.
    pub(crate) fn option(&mut self, code: u32, data: &[u8]) -> Vec<OptionReply> {
        self.send(&option::encode(code, data));
        let mut replies = Vec::new();
        loop {
            let (of, reply) = self.option_reply().unwrap();
            assert_eq!(of, code);
            let last = reply.kind == rep::ACK || reply.kind & 1 << 31 != 0;
            replies.push(reply);
            if last {
                return replies;
            }
        }
    }

    fn option_reply(&mut self) -> io::Result<(u32, OptionReply)> {
        assert_eq!(self.u64()?, REPLY_MAGIC);
        let (of, kind, len) = (self.u32()?, self.u32()?, self.u32()?);
        Ok((of, OptionReply { kind, data: self.take(len as usize)? }))
    }

    /// Sends a request's header and payload, and returns its cookie.
    pub(crate) fn start(
        &mut self,
        command: Command,
        flags: u16,
        offset: u64,
        length: u64,
        payload: &[u8],
    ) -> u64 {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let flags = if self.style == Style::Extended && !payload.is_empty() {
            flags | flag::PAYLOAD_LEN
        } else {
            flags
        };
        let mut bytes = Request { flags, command, cookie, offset, length }.encode(self.style);
        bytes.extend_from_slice(payload);
        self.send(&bytes);
        cookie
    }

    /// Sends a request and reads its reply.
    pub(crate) fn request(
        &mut self,
        command: Command,
        flags: u16,
        offset: u64,
        length: u64,
        payload: &[u8],
    ) -> Reply {
        let cookie = self.start(command, flags, offset, length, payload);
        let reads = if command == Command::Read { length as usize } else { 0 };
        let (of, reply) = self.reply(reads).unwrap();
        assert_eq!(of, cookie);
        reply
    }

    pub(crate) fn read(&mut self, offset: u64, len: usize) -> Vec<u8> {
        let reply = self.request(Command::Read, 0, offset, len as u64, &[]);
        assert_eq!(reply.error, 0, "{}", reply.message);
        reply.bytes(offset, len)
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        let reply = self.request(Command::Write, 0, offset, data.len() as u64, data);
        assert_eq!(reply.error, 0, "{}", reply.message);
    }

    /// Reads one whole reply; `reads` is the length of the read that a simple reply would answer. Only for one request at a
    /// time, unless the replies have no payload.
    pub(crate) fn reply(&mut self, reads: usize) -> io::Result<(u64, Reply)> {
        let mut whole = Reply::default();
        let mut cookie = None;
        loop {
            let (of, done) = self.chunk(reads, &mut whole)?;
            assert_eq!(*cookie.get_or_insert(of), of, "chunks of one reply");
            if done {
                return Ok((of, whole));
            }
        }
    }

    /// Reads one chunk into `whole`; returns the cookie and whether it was the last.
    pub(crate) fn chunk(&mut self, reads: usize, whole: &mut Reply) -> io::Result<(u64, bool)> {
        let magic = self.u32()?;
        if magic == 0x6744_6698 {
            assert!(self.style != Style::Extended, "a simple reply to an extended request");
            whole.error = self.u32()?;
            let cookie = self.u64()?;
            if whole.error == 0 && reads > 0 {
                assert_eq!(self.style, Style::Simple, "a simple reply to a structured read");
                let data = self.take(reads)?;
                whole.data.insert(SOMEWHERE, data);
            }
            return Ok((cookie, true));
        }
        let extended = self.style == Style::Extended;
        assert_eq!(magic, if extended { 0x6e8a_278c } else { 0x668e_33ef });
        let (flags, kind) = (self.u16()?, self.u16()?);
        let cookie = self.u64()?;
        let len = if extended {
            self.u64()?;
            self.u64()? as usize
        } else {
            self.u32()? as usize
        };
        let payload = self.take(len)?;
        whole.absorb(kind, &payload);
        Ok((cookie, flags & 1 != 0))
    }

    /// Whether the server has closed the connection, having sent nothing more.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        }
    }

    pub(crate) fn take(&mut self, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn u16(&mut self) -> io::Result<u16> {
        Ok(u16::from_be_bytes(self.take(2)?.try_into().unwrap()))
    }

    fn u32(&mut self) -> io::Result<u32> {
        Ok(u32::from_be_bytes(self.take(4)?.try_into().unwrap()))
    }

    fn u64(&mut self) -> io::Result<u64> {
        Ok(u64::from_be_bytes(self.take(8)?.try_into().unwrap()))
    }
}

impl Reply {
    fn absorb(&mut self, kind: u16, payload: &[u8]) {
        let u32_at = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
        let u64_at = |at: usize| u64::from_be_bytes(payload[at..at + 8].try_into().unwrap());
        match kind {
            0 => assert!(payload.is_empty()),
            1 => {
                assert!(payload.len() > 8, "a data chunk has data");
                assert!(self.data.insert(u64_at(0), payload[8..].to_vec()).is_none());
            }
            2 => {
                assert_eq!(payload.len(), 12);
                self.holes += 1;
                assert!(self.data.insert(u64_at(0), vec![0; u32_at(8) as usize]).is_none());
            }
            5 => {
                let extents = payload[4..].chunks_exact(8).map(|e| {
                    let word = |at: usize| u32::from_be_bytes(e[at..at + 4].try_into().unwrap());
                    (u64::from(word(0)), word(4))
                });
                assert!(self.status.insert(u32_at(0), extents.collect()).is_none());
            }
            6 => {
                let extents = payload[8..].chunks_exact(16).map(|e| {
                    let word = |at: usize| u64::from_be_bytes(e[at..at + 8].try_into().unwrap());
                    (word(0), word(8) as u32)
                });
                assert_eq!(u32_at(4) as usize * 16 + 8, payload.len());
                assert!(self.status.insert(u32_at(0), extents.collect()).is_none());
            }
            0x8001 => {
                self.error = u32_at(0);
                let len = usize::from(u16::from_be_bytes(payload[4..6].try_into().unwrap()));
                assert_eq!(payload.len(), 6 + len);
                self.message = String::from_utf8(payload[6..].to_vec()).unwrap();
            }
            other => panic!("chunk type {other}"),
        }
    }
}

/// The data of `INFO` and `GO`.
pub(crate) fn info(export: &str, wanted: &[u16]) -> Vec<u8> {
    let mut data = (export.len() as u32).to_be_bytes().to_vec();
    data.extend(export.as_bytes());
    data.extend((wanted.len() as u16).to_be_bytes());
    wanted.iter().for_each(|info| data.extend(info.to_be_bytes()));
    data
}

/// The data of `LIST_META_CONTEXT` and `SET_META_CONTEXT`.
pub(crate) fn meta(export: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = (export.len() as u32).to_be_bytes().to_vec();
    data.extend(export.as_bytes());
    data.extend((queries.len() as u32).to_be_bytes());
    for query in queries {
        data.extend((query.len() as u32).to_be_bytes());
        data.extend(query.as_bytes());
    }
    data
}
