//! Connections that outlive their server: when it is gone, what was in flight is asked again of whoever comes back.
//!
//! As a virtual machine's disk does it that waits for its storage: a request is answered late, and not with an error.
//! *Promises*: whoever loads is told of a break before anything is answered by who came back, so that it is known what was
//! acknowledged by whom. *Never*: takes a server that does not keep to the protocol, or that came back smaller, for one that
//! is back.

use super::{Connection, HANDSHAKE_PATIENCE, connect_within, wait_for};
use crate::target::spec::NbdAddress;
use crate::target::{Backend, Buffers, Completion, Op, Request};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, TryRecvError};
use std::time::Duration;
use stonefold_types::{Error, Kind, Result};

/// How often a server that is gone is asked for.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// How long each attempt may take: less than whoever measures would notice, more than a busy server needs.
const ATTEMPT: Duration = Duration::from_secs(2);
/// How long is slept while somebody is away.
const AWAY_MAX: Duration = Duration::from_millis(5);

/// See the module.
pub(crate) struct Lasting {
    links: Vec<Link>,
    buffers: Buffers,
    /// Links that broke and of which nobody was told yet.
    broken: Vec<(u32, io::Error)>,
}

/// The connections to one export.
pub(crate) struct Link {
    address: NbdAddress,
    /// Bytes that it must have, and connections it is given.
    bytes: u64,
    many: usize,
    /// None while it is away.
    connections: Vec<Connection>,
    /// What waits for it to come back.
    held: Vec<Request>,
    coming: Option<Coming>,
}

/// A server that is asked for, on a thread of its own: connecting may take its time.
struct Coming {
    connected: mpsc::Receiver<Result<Vec<Connection>>>,
    given_up: Arc<AtomicBool>,
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.given_up.store(true, Ordering::Relaxed);
    }
}

impl Link {
    /// Connects `many` times to an export of at least `bytes`.
    pub(crate) fn new(address: &NbdAddress, bytes: u64, many: usize) -> Result<Self> {
        let connections = connect_all(address, bytes, many, HANDSHAKE_PATIENCE)?;
        let (address, held) = (address.clone(), Vec::new());
        Ok(Link { address, bytes, many, connections, held, coming: None })
    }

    /// Takes back all that was in flight, and begins to ask for the server.
    fn break_off(&mut self) -> io::Result<()> {
        for connection in self.connections.drain(..) {
            self.held.extend(connection.in_flight());
        }
        let (sender, connected) = mpsc::channel();
        let given_up = Arc::new(AtomicBool::new(false));
        let (address, bytes, many, ended) = (self.address.clone(), self.bytes, self.many, given_up.clone());
        let ask = move || {
            while !ended.load(Ordering::Relaxed) {
                match connect_all(&address, bytes, many, ATTEMPT) {
                    // Not there yet.
                    Err(error) if error.kind() != Kind::Corrupt => std::thread::sleep(ASK_EVERY),
                    done => return drop(sender.send(done)),
                }
            }
        };
        std::thread::Builder::new().name("reconnect".into()).spawn(ask)?;
        self.coming = Some(Coming { connected, given_up });
        Ok(())
    }

    /// Looks whether the server is back, and asks it what was held.
    fn look(&mut self, buffers: &Buffers) -> io::Result<()> {
        let Some(coming) = &self.coming else { return Ok(()) };
        match coming.connected.try_recv() {
            Err(TryRecvError::Empty) => return Ok(()),
            Err(TryRecvError::Disconnected) => return Err(io::Error::other("nobody asks for the server")),
            Ok(Err(error)) => return Err(io::Error::other(error.to_string())),
            Ok(Ok(connections)) => self.connections = connections,
        }
        self.coming = None;
        let held = std::mem::take(&mut self.held);
        held.into_iter().for_each(|request| self.submit(request, buffers));
        Ok(())
    }

    fn submit(&mut self, request: Request, buffers: &Buffers) {
        match self.connections.iter_mut().min_by_key(|connection| connection.in_flight) {
            Some(least) => least.submit(request, buffers),
            None => self.held.push(request),
        }
    }

    fn carry(&mut self, buffers: &Buffers, done: &mut Vec<Completion>) -> io::Result<()> {
        for connection in self.connections.iter_mut().filter(|connection| connection.in_flight > 0) {
            while connection.receive(buffers, done)? {}
        }
        Ok(())
    }
}

/// Connections to one export, or none.
fn connect_all(address: &NbdAddress, bytes: u64, many: usize, patience: Duration) -> Result<Vec<Connection>> {
    (0..many)
        .map(|_| {
            let (connection, export) = connect_within(address.place(), address.export(), patience)?;
            if export.bytes < bytes || export.read_only {
                let what = "the server came back with another export: it is smaller, or read-only";
                return Err(Error::new(Kind::Corrupt, what).remedy("restore the same one"));
            }
            connection.notice_silence();
            Ok(connection)
        })
        .collect()
}

impl Lasting {
    /// Carries requests to these, by their numbers.
    pub(crate) fn new(links: Vec<Link>, buffers: Buffers) -> Self {
        Lasting { links, buffers, broken: Vec::new() }
    }

    /// Only a server that is gone is waited for; one that says what makes no sense is not.
    fn settle(&mut self, number: usize, carried: io::Result<()>) -> io::Result<()> {
        match carried {
            Err(error) if error.kind() != io::ErrorKind::InvalidData => {
                self.links[number].break_off()?;
                self.broken.push((number as u32, error));
                Ok(())
            }
            other => other,
        }
    }
}

impl Backend for Lasting {
    fn submit(&mut self, request: Request) {
        self.links[request.volume as usize].submit(request, &self.buffers);
    }

    fn push(&mut self) -> io::Result<()> {
        for number in 0..self.links.len() {
            let sending = |connection: &mut Connection| connection.send(&self.buffers);
            let sent = self.links[number].connections.iter_mut().try_for_each(sending);
            self.settle(number, sent)?;
        }
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<Completion>) -> io::Result<()> {
        for number in 0..self.links.len() {
            // Whoever loads must hear of a break before anything that was asked after it is answered.
            if self.broken.iter().any(|(broken, _)| *broken as usize == number) {
                continue;
            }
            self.links[number].look(&self.buffers)?;
            let carried = self.links[number].carry(&self.buffers, done);
            self.settle(number, carried)?;
        }
        Ok(())
    }

    fn wait(&mut self, at_most: Duration) -> io::Result<()> {
        let away = self.links.iter().any(|link| link.coming.is_some());
        let at_most = if away { at_most.min(AWAY_MAX) } else { at_most };
        wait_for(self.links.iter().flat_map(|link| &link.connections), at_most)
    }

    fn broken_off(&mut self) -> Vec<(u32, io::Error)> {
        std::mem::take(&mut self.broken)
    }
}

impl Connection {
    /// What was asked and not answered.
    fn in_flight(&self) -> impl Iterator<Item = Request> + '_ {
        let half = self.payload.as_ref().map(|payload| Request {
            slot: payload.slot,
            op: Op::Read,
            ..payload.asked
        });
        self.asked.iter().flatten().copied().chain(half)
    }
}
