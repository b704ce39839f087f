//! Clients that write, zero, flush and read with many requests in flight, and live through the server's deaths.
//!
//! A client that *stays* connects again, sends again what was not answered, flushes, reads its whole region, and goes on;
//! what it then wrote must survive the next death. One that does not stay ends with its server.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use stonefold_guest::time::{Deadline, Stopwatch};
use stonefold_model::Step;
use stonefold_nbd::wire::request::{Command, Request, flag};

use crate::judge::{Entry, GRAIN};
use crate::nbd::{Asking, Connection, Listening, Reply};
use crate::story::Story;
use stonefold_dice::{Dice, mix};

/// The store's block: a zeroing that does not keep to it may take effect in three steps.
const BLOCK: u64 = 4096;
/// Where the NBD door cuts a write that is longer than [`WHOLE_BYTES_MAX`]: at multiples of this.
const PART: u64 = 256 << 10;
/// A write up to this length takes effect in one step wherever it lies.
const WHOLE_BYTES_MAX: u64 = 64 << 10;
/// Kinds of data that clients write again and again.
const KINDS: u64 = 6;
/// How long a client tries to reach a server that is being started.
const RECONNECT_MAX: Duration = Duration::from_secs(60);
/// How often it tries.
const RETRY: Duration = Duration::from_millis(5);

/// What the clients and the test share.
pub struct World {
    /// Where the server listens.
    pub socket: PathBuf,
    /// What was done.
    pub story: Mutex<Story>,
    /// Whether clients outlive their server.
    pub stay: AtomicBool,
    /// The server is to be killed: what fails now fails for that.
    pub killing: AtomicBool,
    /// Clients are to finish what they do and leave.
    pub ending: AtomicBool,
    /// Counts the servers: raised when one is dead, before the next is started.
    pub server: AtomicU64,
    /// By client: on which server it has flushed and found all that it wrote.
    pub settled: Vec<AtomicU64>,
    /// Requests acknowledged.
    pub acked: AtomicU64,
    /// Requests sent again after a death.
    pub resent: AtomicU64,
    /// The longest that an answer took, in nanoseconds; whoever measures sets it back.
    pub longest_nanos: AtomicU64,
    /// Whether clients trim: what stands between them and the server may take a trim for a hint.
    pub trims: bool,
    failure: Mutex<Option<String>>,
}

impl World {
    /// A world of these regions.
    pub fn new(socket: PathBuf, story: Story) -> Self {
        World {
            socket,
            settled: story.regions.iter().map(|_| AtomicU64::new(0)).collect(),
            story: Mutex::new(story),
            stay: AtomicBool::new(false),
            killing: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            server: AtomicU64::new(0),
            acked: AtomicU64::new(0),
            resent: AtomicU64::new(0),
            longest_nanos: AtomicU64::new(0),
            trims: true,
            failure: Mutex::new(None),
        }
    }

    /// The same with clients that do not trim.
    #[must_use]
    pub fn without_trims(self) -> Self {
        World { trims: false, ..self }
    }

    /// The story. A client that panicked fails the test elsewhere.
    pub fn story(&self) -> MutexGuard<'_, Story> {
        self.story.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes why the test fails; the first reason stays.
    pub fn fail(&self, why: String) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }

    /// Fails when anything has failed.
    ///
    /// # Errors
    /// The first reason.
    pub fn check(&self) -> Result<()> {
        match &*self.failure.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(why) => bail!("{why}"),
            None => Ok(()),
        }
    }
}

/// A request without its answer.
struct Flight {
    request: Request,
    entries: Vec<Arc<Entry>>,
    /// What a read must give.
    expected: Option<Vec<u8>>,
    /// Relative to the region, in bytes: nothing else touches it meanwhile.
    range: (u64, u64),
    since: Stopwatch,
}

impl Flight {
    fn payload(&self) -> Vec<u8> {
        let data = self.entries.iter().map(|entry| match &entry.step {
            Step::Write { data, .. } => &data[..],
            _ => &[],
        });
        data.collect::<Vec<_>>().concat()
    }
}

#[derive(Default)]
struct Flights {
    open: BTreeMap<u64, Flight>,
    broken: bool,
}

/// One client.
pub struct Client {
    world: Arc<World>,
    number: usize,
    chance: Dice,
    export: String,
    base: u64,
    bytes: u64,
    cookie: u64,
}

/// A connection in use: one thread asks, another listens.
struct Session<'a> {
    world: &'a World,
    client: usize,
    flights: Mutex<Flights>,
    changed: Condvar,
}

impl Client {
    /// The owner of region `number`.
    pub fn new(world: Arc<World>, number: usize, chance: Dice) -> Self {
        let story = world.story();
        let region = &story.regions[number];
        let (export, base, bytes) = (region.disk.clone(), region.base, region.bytes);
        drop(story);
        Client { world, number, chance, export, base, bytes, cookie: 0 }
    }

    /// Lives until it is told to end, or, when it does not stay, until the server dies.
    pub fn live(mut self) {
        if let Err(error) = self.lives() {
            self.world.fail(format!("client {}: {error:#}", self.number));
        }
    }

    fn lives(&mut self) -> Result<()> {
        let mut unanswered = Vec::new();
        loop {
            let Some(connection) = self.connect()? else { return Ok(()) };
            let server = self.world.server.load(SeqCst);
            unanswered = self.session(connection, server, unanswered)?;
            self.world.check()?;
            if self.world.ending.load(SeqCst) && unanswered.is_empty() {
                return Ok(());
            }
            ensure!(self.world.killing.load(SeqCst), "the server broke the connection");
            if !self.world.stay.load(SeqCst) {
                return Ok(());
            }
        }
    }

    /// Connects, trying for as long as a server may take to come back; `None` when it is no longer wanted.
    fn connect(&self) -> Result<Option<Connection>> {
        let deadline = Deadline::after(RECONNECT_MAX);
        loop {
            self.world.check()?;
            let error = match Connection::open(&self.world.socket, &self.export) {
                Ok(connection) => return Ok(Some(connection)),
                Err(error) => error,
            };
            if self.world.killing.load(SeqCst) && !self.world.stay.load(SeqCst) {
                return Ok(None);
            }
            if deadline.passed() {
                return Err(error.context("the server did not come back"));
            }
            std::thread::sleep(RETRY);
        }
    }

    /// Uses a connection until it breaks; gives what was not answered.
    fn session(&mut self, connection: Connection, server: u64, again: Vec<Flight>) -> Result<Vec<Flight>> {
        let (mut asking, listening) = connection.split();
        let world = Arc::clone(&self.world);
        let session = Session {
            world: &world,
            client: self.number,
            flights: Mutex::default(),
            changed: Condvar::new(),
        };
        std::thread::scope(|scope| {
            let listener = std::thread::Builder::new()
                .name(format!("client-{}-listens", self.number))
                .spawn_scoped(scope, || session.listen(listening))
                .context("starting a thread")?;
            self.ask(&session, &mut asking, server, again);
            asking.hang_up();
            listener.join().map_err(|_| anyhow!("a listener panicked"))
        })?;
        let flights = session.flights.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(flights.open.into_values().filter(|flight| !flight.entries.is_empty()).collect())
    }

    fn ask(&mut self, session: &Session<'_>, asking: &mut Asking, server: u64, again: Vec<Flight>) {
        if self.settle(session, asking, again).is_none() {
            return;
        }
        self.world.settled[self.number].store(server, SeqCst);
        let depth = self.chance.between(1, 32) as usize;
        while !self.world.ending.load(SeqCst) {
            if session.wait(|flights| flights.open.len() < depth).is_none() {
                return;
            }
            let Some(flight) = self.next(session) else { continue };
            if self.send(session, asking, flight).is_none() {
                return;
            }
        }
        if self.flush(session, asking).is_some() {
            session.wait(|flights| flights.open.is_empty());
        }
    }

    /// After connecting: sends again what was not answered, flushes before or after that, and reads everything.
    fn settle(&mut self, session: &Session<'_>, asking: &mut Asking, again: Vec<Flight>) -> Option<()> {
        let flush_first = self.chance.percent(50);
        let mut unsent: Vec<Flight> = again;
        // Put down before anything is sent: if this server dies too, they are still not answered.
        let mut all = Vec::new();
        for mut flight in unsent.drain(..) {
            self.cookie += 1;
            flight.request.cookie = self.cookie;
            all.push((flight.request, flight.payload()));
            session.lock().open.insert(self.cookie, flight);
        }
        if flush_first {
            self.flush(session, asking)?;
        }
        for (request, payload) in all {
            self.world.resent.fetch_add(1, SeqCst);
            session.sent(asking.send(&request, &payload))?;
        }
        if !flush_first {
            self.flush(session, asking)?;
        }
        session.wait(|flights| flights.open.is_empty())?;
        for offset in (0..self.bytes).step_by(256 << 10) {
            let flight = self.read(offset, (256 << 10).min(self.bytes - offset));
            self.send(session, asking, flight)?;
        }
        session.wait(|flights| flights.open.is_empty())
    }

    fn flush(&mut self, session: &Session<'_>, asking: &mut Asking) -> Option<()> {
        let flight = self.flight(Command::Flush, 0, (0, 0));
        self.send(session, asking, flight)
    }

    fn send(&mut self, session: &Session<'_>, asking: &mut Asking, mut flight: Flight) -> Option<()> {
        self.cookie += 1;
        flight.request.cookie = self.cookie;
        let (request, payload) = (flight.request, flight.payload());
        session.lock().open.insert(self.cookie, flight);
        session.sent(asking.send(&request, &payload))
    }

    /// The next thing to do, begun in the story; `None` when the place chosen is busy.
    fn next(&mut self, session: &Session<'_>) -> Option<Flight> {
        let what = self.chance.below(100);
        if what < 8 {
            return Some(self.flight(Command::Flush, 0, (0, 0)));
        }
        let range = self.range();
        let busy = session.lock().open.values().any(|flight| {
            let (offset, len) = flight.range;
            len > 0 && offset < range.0 + range.1 && range.0 < offset + len
        });
        if busy {
            return None;
        }
        let fua = if self.chance.percent(10) { flag::FUA } else { 0 };
        Some(match what {
            8..20 => self.read(range.0, range.1),
            20..28 => self.zero(Command::WriteZeroes, fua | flag::NO_HOLE, range),
            28..34 => self.zero(Command::WriteZeroes, fua, range),
            34..40 if self.world.trims => self.zero(Command::Trim, fua, range),
            _ => self.write(fua, range),
        })
    }

    /// Offset and length: half of them in a small part that is overwritten again and again, many off the store's blocks.
    fn range(&mut self) -> (u64, u64) {
        let len = match self.chance.below(100) {
            0..45 => BLOCK * self.chance.between(1, 4),
            45..75 => GRAIN * self.chance.between(1, 40),
            75..92 => GRAIN * self.chance.between(1, 128),
            _ => GRAIN * self.chance.between(128, 512),
        };
        let within = if self.chance.percent(50) { self.bytes.min(512 << 10) } else { self.bytes };
        let grain = if self.chance.percent(60) { BLOCK } else { GRAIN };
        (self.chance.below((within - len) / grain + 1) * grain, len)
    }

    fn flight(&self, command: Command, flags: u16, range: (u64, u64)) -> Flight {
        let offset = if range.1 == 0 { 0 } else { self.base + range.0 };
        let request = Request { flags, command, cookie: 0, offset, length: range.1 };
        Flight { request, entries: Vec::new(), expected: None, range, since: Stopwatch::start() }
    }

    fn read(&self, offset: u64, len: u64) -> Flight {
        let expected = self.world.story().expected(self.number, offset, len as usize);
        Flight { expected: Some(expected), ..self.flight(Command::Read, 0, (offset, len)) }
    }

    fn write(&mut self, flags: u16, (offset, len): (u64, u64)) -> Flight {
        let data = data(&mut self.chance, len as usize);
        let entries = self.world.story().begin(self.number, writing(self.base, offset, &data));
        Flight { entries, ..self.flight(Command::Write, flags, (offset, len)) }
    }

    fn zero(&self, command: Command, flags: u16, (offset, len): (u64, u64)) -> Flight {
        let entries = self.world.story().begin(self.number, zeroing(self.base, offset, len));
        Flight { entries, ..self.flight(command, flags, (offset, len)) }
    }
}

impl Session<'_> {
    fn lock(&self) -> MutexGuard<'_, Flights> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn broke(&self) {
        self.lock().broken = true;
        self.changed.notify_all();
    }

    /// `None` when the connection is broken.
    fn sent(&self, sent: std::io::Result<()>) -> Option<()> {
        sent.map_err(|_| self.broke()).ok()
    }

    /// Waits; `None` when the connection is broken. The socket's own time-out ends a wait for a silent server.
    fn wait(&self, until: impl Fn(&Flights) -> bool) -> Option<()> {
        let mut flights = self.lock();
        while !flights.broken && !until(&flights) {
            flights = self.changed.wait(flights).unwrap_or_else(PoisonError::into_inner);
        }
        (!flights.broken).then_some(())
    }

    fn listen(&self, mut listening: Listening) {
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

/// A write as the steps in which it may take effect.
fn writing(base: u64, offset: u64, data: &[u8]) -> Vec<Step> {
    let (start, end) = (base + offset, base + offset + data.len() as u64);
    let mut cuts = vec![start];
    if end - start > WHOLE_BYTES_MAX {
        cuts.extend((start / PART * PART + PART..end).step_by(PART as usize));
    }
    cuts.push(end);
    cuts.windows(2)
        .map(|cut| Step::Write {
            offset: cut[0] - base,
            data: data[(cut[0] - start) as usize..(cut[1] - start) as usize].to_vec(),
        })
        .collect()
}

/// A zeroing as the steps in which it may take effect: the parts of blocks at its ends, and the blocks between.
fn zeroing(base: u64, offset: u64, len: u64) -> Vec<Step> {
    let (start, end) = (base + offset, base + offset + len);
    let (first, last) = (start.next_multiple_of(BLOCK).min(end), (end / BLOCK * BLOCK).max(start));
    let cuts = if first <= last { vec![start, first, last, end] } else { vec![start, end] };
    cuts.windows(2)
        .filter(|cut| cut[0] < cut[1])
        .map(|cut| Step::Zero { offset: cut[0] - base, len: cut[1] - cut[0] })
        .collect()
}

/// Bytes of which every 16 are unlike any others, unless they are of the few kinds that come again and again and are there
/// to be deduplicated. Half of each compresses well in half of the cases.
fn data(chance: &mut Dice, len: usize) -> Vec<u8> {
    let mark = if chance.percent(30) { mix(1 + chance.below(KINDS)) } else { chance.number() };
    let compressible = chance.percent(50);
    let mut bytes = Vec::with_capacity(len);
    for cell in 0..(len / 16) as u64 {
        bytes.extend_from_slice(&mark.wrapping_add(cell).to_le_bytes());
        bytes.extend_from_slice(&if compressible { mark } else { mix(mark ^ cell) }.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zeroing_is_cut_where_the_store_cuts_it() {
        let cut = |base, offset, len| {
            zeroing(base, offset, len)
                .into_iter()
                .map(|step| if let Step::Zero { offset, len } = step { (offset, len) } else { (0, 0) })
                .collect::<Vec<_>>()
        };
        assert_eq!(cut(0, 0, 8192), [(0, 8192)]);
        assert_eq!(cut(0, 512, 8192), [(512, 3584), (4096, 4096), (8192, 512)]);
        assert_eq!(cut(512, 0, 512), [(0, 512)]);
        assert_eq!(cut(3584, 0, 1024), [(0, 512), (512, 512)]);
    }

    #[test]
    fn a_long_write_is_cut_where_the_door_cuts_it() {
        let cut = |base, offset, len| -> Vec<usize> {
            let steps = writing(base, offset, &vec![0; len]);
            steps
                .iter()
                .map(|step| if let Step::Write { data, .. } = step { data.len() } else { 0 })
                .collect()
        };
        assert_eq!(cut(0, PART - 512, 65536), [65536]);
        assert_eq!(cut(512, PART - 1024, 66048), [512, 65536]);
        assert_eq!(cut(0, 0, 1 << 18), [1 << 18]);
    }
}
