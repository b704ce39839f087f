//! An NBD client that keeps many requests in flight over several connections.
//!
//! *Promises*: nothing waits for a reply but the caller who asks to; large payloads are neither copied in nor out. *Never*:
//! reconnects by itself: what a break costs is for the caller to measure, who has [`Lasting`] for it.

mod handshake;
mod lasting;
mod wire;

use super::{Backend, Buffers, Completion, Op, Request};
pub(crate) use handshake::Export;
pub(crate) use lasting::{Lasting, Link};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use stonefold_types::{Error, Kind, Result};

/// How long a server may take over each step of a handshake.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);
/// Payloads up to this are copied behind their headers: one piece for the kernel is cheaper than two, in bytes.
const COPIED_BYTES_MAX: usize = 16 << 10;
/// What one read takes from the kernel at most, beside the payload that is expected, in bytes.
const INCOMING_BYTES: usize = 256 << 10;
/// Pieces handed to the kernel at once.
const PIECES_MAX: usize = 64;

/// Where an export is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Host and port.
    Tcp(String, u16),
    /// A socket's path.
    Unix(std::path::PathBuf),
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// One connection to an export, after its handshake.
pub(crate) struct Connection {
    stream: Stream,
    out: VecDeque<Piece>,
    incoming: Vec<u8>,
    /// Of `incoming`, the part that is not parsed yet.
    parsed: usize,
    filled: usize,
    /// The read whose data comes next.
    payload: Option<Payload>,
    /// What its slots were asked for.
    asked: Vec<Option<Request>>,
    in_flight: u32,
}

/// What is still to be sent.
enum Piece {
    Bytes { bytes: Vec<u8>, sent: usize },
    Slot { slot: u32, bytes: usize, sent: usize },
}

struct Payload {
    asked: Request,
    slot: u32,
    bytes: usize,
    filled: usize,
}

/// Connections to exports, as a backend.
pub(crate) struct Nbd {
    connections: Vec<Connection>,
    /// The connections of each volume.
    volumes: Vec<Vec<usize>>,
    buffers: Buffers,
}

/// Connects, and asks for the export `name`.
pub(crate) fn connect(place: &Place, name: &str) -> Result<(Connection, Export)> {
    connect_within(place, name, HANDSHAKE_PATIENCE)
}

/// The same, of a server that may take no longer over each step.
fn connect_within(place: &Place, name: &str, patience: Duration) -> Result<(Connection, Export)> {
    let mut stream = Stream::open(place, patience)?;
    let export = handshake::go(&mut stream, name)?;
    stream.set_nonblocking().map_err(|e| Error::io("a connection to an NBD server", e))?;
    let connection = Connection {
        stream,
        out: VecDeque::new(),
        incoming: vec![0; INCOMING_BYTES],
        parsed: 0,
        filled: 0,
        payload: None,
        asked: Vec::new(),
        in_flight: 0,
    };
    Ok((connection, export))
}

/// The first of the host's addresses that answers in time.
fn connect_tcp(host: &str, port: u16, patience: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, patience) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl Stream {
    fn open(place: &Place, patience: Duration) -> Result<Self> {
        let remedy = "start the server, or correct the address";
        let stream = match place {
            Place::Tcp(host, port) => connect_tcp(host, *port, patience).map(Stream::Tcp).map_err(|e| {
                Error::io(format!("connecting to the NBD server at {host}:{port}"), e).remedy(remedy)
            })?,
            Place::Unix(path) => UnixStream::connect(path).map(Stream::Unix).map_err(|e| {
                Error::io(format!("connecting to the NBD server at '{}'", path.display()), e).remedy(remedy)
            })?,
        };
        let set = match &stream {
            Stream::Tcp(stream) => stream
                .set_nodelay(true)
                .and_then(|()| stream.set_read_timeout(Some(patience)))
                .and_then(|()| stream.set_write_timeout(Some(patience))),
            Stream::Unix(stream) => stream
                .set_read_timeout(Some(patience))
                .and_then(|()| stream.set_write_timeout(Some(patience))),
        };
        set.map_err(|e| Error::new(Kind::Io, format!("a connection to an NBD server: {e}")))?;
        Ok(stream)
    }

    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_nonblocking(true),
            Stream::Unix(stream) => stream.set_nonblocking(true),
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_vectored(&mut [IoSliceMut::new(buffer)])
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read_vectored(buffers),
            Stream::Unix(stream) => stream.read_vectored(buffers),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write_vectored(pieces),
            Stream::Unix(stream) => stream.write_vectored(pieces),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Connection {
    /// Has the kernel find out within seconds that the other machine is gone, which says nothing when it loses power.
    fn notice_silence(&self) {
        use rustix::net::sockopt;
        if let Stream::Tcp(stream) = &self.stream {
            // Without any of these a machine that is gone is noticed later, and no less surely.
            let _ = sockopt::set_socket_keepalive(stream, true);
            let _ = sockopt::set_tcp_keepidle(stream, Duration::from_secs(1));
            let _ = sockopt::set_tcp_keepintvl(stream, Duration::from_secs(1));
            let _ = sockopt::set_tcp_keepcnt(stream, 4);
            let _ = sockopt::set_tcp_user_timeout(stream, 5_000);
        }
    }

    fn submit(&mut self, request: Request, buffers: &Buffers) {
        let slot = request.slot as usize;
        if self.asked.len() <= slot {
            self.asked.resize(slot + 1, None);
        }
        self.asked[slot] = Some(request);
        self.in_flight += 1;
        let bytes = if request.op == Op::Write { request.bytes as usize } else { 0 };
        let header = wire::request(&request);
        if !matches!(self.out.back(), Some(Piece::Bytes { .. })) {
            self.out.push_back(Piece::Bytes { bytes: Vec::with_capacity(4096), sent: 0 });
        }
        let Some(Piece::Bytes { bytes: out, .. }) = self.out.back_mut() else {
            unreachable!("it was just pushed")
        };
        out.extend_from_slice(&header);
        if bytes > COPIED_BYTES_MAX {
            self.out.push_back(Piece::Slot { slot: request.slot, bytes, sent: 0 });
        } else if bytes > 0 {
            // SAFETY: a slot that was submitted is the backend's, and only read until it completes.
            out.extend_from_slice(unsafe { buffers.slice(request.slot, bytes) });
        }
    }

    /// Sends what the socket takes.
    fn send(&mut self, buffers: &Buffers) -> io::Result<()> {
        while !self.out.is_empty() {
            let pieces: Vec<IoSlice<'_>> =
                self.out.iter().take(PIECES_MAX).map(|piece| piece.slice(buffers)).collect();
            let sent = match self.stream.write_vectored(&pieces) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => sent,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            self.sent(sent);
        }
        Ok(())
    }

    fn sent(&mut self, mut sent: usize) {
        while let Some(piece) = self.out.front_mut() {
            let took = piece.advance(sent);
            sent -= took;
            if piece.left() > 0 {
                return;
            }
            self.out.pop_front();
        }
    }

    /// Takes what has come; true when there may be more.
    fn receive(&mut self, buffers: &Buffers, done: &mut Vec<Completion>) -> io::Result<bool> {
        let room = self.incoming.len() - self.filled;
        let rest = match &self.payload {
            // SAFETY: a slot in flight is the backend's; nothing else of this thread looks at it.
            Some(payload) => unsafe { &mut buffers.slice(payload.slot, payload.bytes)[payload.filled..] },
            None => &mut [],
        };
        let expected = rest.len();
        let into = &mut [IoSliceMut::new(rest), IoSliceMut::new(&mut self.incoming[self.filled..])];
        let read = match self.stream.read_vectored(into) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server has hung up")),
            Ok(read) => read,
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return Ok(false);
            }
            Err(e) => return Err(e),
        };
        let direct = read.min(expected);
        if let Some(payload) = &mut self.payload {
            payload.filled += direct;
        }
        self.filled += read - direct;
        self.parse(buffers, done)?;
        Ok(read == expected + room)
    }

    fn parse(&mut self, buffers: &Buffers, done: &mut Vec<Completion>) -> io::Result<()> {
        loop {
            if let Some(payload) = &mut self.payload {
                let take = (payload.bytes - payload.filled).min(self.filled - self.parsed);
                // SAFETY: as in `receive`.
                let into = unsafe { buffers.slice(payload.slot, payload.bytes) };
                into[payload.filled..payload.filled + take]
                    .copy_from_slice(&self.incoming[self.parsed..self.parsed + take]);
                payload.filled += take;
                self.parsed += take;
                if payload.filled < payload.bytes {
                    break;
                }
                done.push(Completion { slot: payload.slot, error: 0 });
                self.in_flight -= 1;
                self.payload = None;
            }
            let Some(header) = self.incoming[self.parsed..self.filled].first_chunk() else { break };
            let wrong =
                || io::Error::new(io::ErrorKind::InvalidData, "the server does not keep to the NBD protocol");
            let (error, cookie) = wire::reply(header).ok_or_else(wrong)?;
            self.parsed += wire::REPLY_BYTES;
            let asked = self.asked.get_mut(cookie as usize).and_then(Option::take).ok_or_else(wrong)?;
            if asked.op == Op::Read && error == 0 {
                let (slot, bytes) = (asked.slot, asked.bytes as usize);
                self.payload = Some(Payload { asked, slot, bytes, filled: 0 });
            } else {
                done.push(Completion { slot: asked.slot, error: error as i32 });
                self.in_flight -= 1;
            }
        }
        // What is left is less than a header, or nothing.
        self.incoming.copy_within(self.parsed..self.filled, 0);
        self.filled -= self.parsed;
        self.parsed = 0;
        Ok(())
    }
}

impl Piece {
    fn slice<'a>(&'a self, buffers: &'a Buffers) -> IoSlice<'a> {
        match self {
            Piece::Bytes { bytes, sent } => IoSlice::new(&bytes[*sent..]),
            Piece::Slot { slot, bytes, sent } => {
                // SAFETY: a slot that was submitted is the backend's, and only read until it completes.
                let payload = unsafe { buffers.slice(*slot, *bytes) };
                IoSlice::new(&payload[*sent..])
            }
        }
    }

    fn left(&self) -> usize {
        match self {
            Piece::Bytes { bytes, sent } => bytes.len() - sent,
            Piece::Slot { bytes, sent, .. } => bytes - sent,
        }
    }

    /// Counts as sent as much of `by` as it has left.
    fn advance(&mut self, by: usize) -> usize {
        let took = by.min(self.left());
        match self {
            Piece::Bytes { sent, .. } | Piece::Slot { sent, .. } => *sent += took,
        }
        took
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A courtesy: whoever does not read it sees the end of the stream.
        let _ = self.stream.write(&wire::disconnect());
    }
}

impl Nbd {
    /// Carries requests to the connections of each volume.
    pub(crate) fn new(volumes: Vec<Vec<Connection>>, buffers: Buffers) -> Self {
        let mut nbd = Nbd { connections: Vec::new(), volumes: Vec::new(), buffers };
        for connections in volumes {
            let first = nbd.connections.len();
            nbd.connections.extend(connections);
            nbd.volumes.push((first..nbd.connections.len()).collect());
        }
        nbd
    }
}

impl Backend for Nbd {
    fn submit(&mut self, request: Request) {
        let connections = &self.volumes[request.volume as usize];
        let least = connections.iter().min_by_key(|number| self.connections[**number].in_flight);
        let least = *least.expect("a volume has a connection");
        self.connections[least].submit(request, &self.buffers);
    }

    fn push(&mut self) -> io::Result<()> {
        self.connections.iter_mut().try_for_each(|connection| connection.send(&self.buffers))
    }

    fn reap(&mut self, done: &mut Vec<Completion>) -> io::Result<()> {
        for connection in self.connections.iter_mut().filter(|connection| connection.in_flight > 0) {
            while connection.receive(&self.buffers, done)? {}
        }
        Ok(())
    }

    fn wait(&mut self, at_most: Duration) -> io::Result<()> {
        wait_for(&self.connections, at_most)
    }
}

/// Waits until one of the connections on which something is in flight has an answer, or takes what is to be sent.
fn wait_for<'a>(connections: impl IntoIterator<Item = &'a Connection>, at_most: Duration) -> io::Result<()> {
    let busy = connections.into_iter().filter(|connection| connection.in_flight > 0);
    let mut watched: Vec<PollFd<'_>> = busy
        .map(|connection| {
            let sending = if connection.out.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            PollFd::from_borrowed_fd(connection.stream.fd(), PollFlags::IN | sending)
        })
        .collect();
    let until = Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: at_most.subsec_nanos().into() };
    match poll(&mut watched, Some(&until)) {
        Err(rustix::io::Errno::INTR) => Ok(()),
        other => other.map(drop).map_err(io::Error::from),
    }
}
