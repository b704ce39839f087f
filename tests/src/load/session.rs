//! A connection in use: one thread asks, another listens and judges what is answered.

use super::World;
use crate::judge::Entry;
use crate::nbd::{Listening, Reply};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use stonefold_guest::time::Stopwatch;
use stonefold_model::Step;
use stonefold_nbd::wire::request::Request;

/// A request without its answer.
pub(super) struct Flight {
    pub(super) request: Request,
    pub(super) entries: Vec<Arc<Entry>>,
    /// What a read must give.
    pub(super) expected: Option<Vec<u8>>,
    /// Relative to the region, in bytes: nothing else touches it meanwhile.
    pub(super) range: (u64, u64),
    pub(super) since: Stopwatch,
}

impl Flight {
    pub(super) fn payload(&self) -> Vec<u8> {
        let data = self.entries.iter().map(|entry| match &entry.step {
            Step::Write { data, .. } => &data[..],
            _ => &[],
        });
        data.collect::<Vec<_>>().concat()
    }
}

#[derive(Default)]
pub(super) struct Flights {
    pub(super) open: BTreeMap<u64, Flight>,
    broken: bool,
}

/// A connection in use: one thread asks, another listens.
pub(super) struct Session<'a> {
    world: &'a World,
    client: usize,
    flights: Mutex<Flights>,
    changed: Condvar,
}

impl<'a> Session<'a> {
    pub(super) fn new(world: &'a World, client: usize) -> Self {
        Session { world, client, flights: Mutex::default(), changed: Condvar::new() }
    }
}

impl Session<'_> {
    pub(super) fn lock(&self) -> MutexGuard<'_, Flights> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn broke(&self) {
        self.lock().broken = true;
        self.changed.notify_all();
    }

    /// What was not answered and has to be sent again.
    pub(super) fn unanswered(self) -> Vec<Flight> {
        let flights = self.flights.into_inner().unwrap_or_else(PoisonError::into_inner);
        flights.open.into_values().filter(|flight| !flight.entries.is_empty()).collect()
    }

    /// `None` when the connection is broken.
    pub(super) fn sent(&self, sent: std::io::Result<()>) -> Option<()> {
        sent.map_err(|_| self.broke()).ok()
    }

    /// Waits; `None` when the connection is broken. The socket's own time-out ends a wait for a silent server.
    pub(super) fn wait(&self, until: impl Fn(&Flights) -> bool) -> Option<()> {
        let mut flights = self.lock();
        while !flights.broken && !until(&flights) {
            flights = self.changed.wait(flights).unwrap_or_else(PoisonError::into_inner);
        }
        (!flights.broken).then_some(())
    }

    pub(super) fn listen(&self, mut listening: Listening) {
        loop {
            match listening.reply() {
                Ok(reply) => self.answered(reply),
                Err(error) => {
                    use std::io::ErrorKind::{InvalidData, TimedOut, WouldBlock};
                    let idle = self.lock().open.is_empty();
                    if matches!(error.kind(), InvalidData | TimedOut | WouldBlock) && !idle {
                        self.world.fail(format!("client {}: waiting for a reply: {error}", self.client));
                    }
                    return self.broke();
                }
            }
        }
    }

    fn answered(&self, reply: Reply) {
        let Some(flight) = self.lock().open.get(&reply.cookie).map(|flight| {
            let took = flight.since.elapsed().as_nanos() as u64;
            self.world.longest_nanos.fetch_max(took, SeqCst);
            (flight.request, flight.entries.clone(), flight.expected.clone(), flight.range)
        }) else {
            return self.world.fail(format!("client {}: a reply to no request", self.client));
        };
        let (request, entries, expected, (offset, len)) = flight;
        if let Some(refused) = &reply.refused {
            self.world.fail(format!("client {}: {request:?}: {refused}", self.client));
            return;
        }
        if let Some(expected) = expected {
            match reply.bytes(request.offset, len as usize) {
                Ok(bytes) if bytes == expected => {}
                Ok(bytes) => {
                    let at = bytes.iter().zip(&expected).position(|(a, b)| a != b).unwrap_or_default() as u64;
                    let at = offset + at;
                    self.world.fail(format!(
                        "client {}: a read of {len} bytes at {offset} of its region finds other bytes at {at} than it wrote",
                        self.client
                    ));
                }
                Err(error) => self.world.fail(format!("client {}: {error:#}", self.client)),
            }
        }
        // In this order: whatever touches these bytes next is begun after this was acknowledged.
        if !entries.is_empty() {
            self.world.story().acknowledge(self.client, &entries);
        }
        self.world.acked.fetch_add(1, SeqCst);
        self.lock().open.remove(&reply.cookie);
        self.changed.notify_all();
    }
}
