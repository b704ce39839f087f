//! Clients that write, zero, flush and read with many requests in flight, and live through the server's deaths.
//!
//! A client that *stays* connects again, sends again what was not answered, flushes, reads its whole region, and goes on;
//! what it then wrote must survive the next death. One that does not stay ends with its server.

mod requests;
mod session;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use stonefold_dice::Dice;
use stonefold_guest::time::Deadline;
use stonefold_nbd::wire::request::Command;

use self::session::{Flight, Session};
use crate::nbd::{Asking, Connection};
use crate::story::Story;

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
        let session = Session::new(&world, self.number);
        std::thread::scope(|scope| {
            let listener = std::thread::Builder::new()
                .name(format!("client-{}-listens", self.number))
                .spawn_scoped(scope, || session.listen(listening))
                .context("starting a thread")?;
            self.ask(&session, &mut asking, server, again);
            asking.hang_up();
            listener.join().map_err(|_| anyhow!("a listener panicked"))
        })?;
        Ok(session.unanswered())
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
}
