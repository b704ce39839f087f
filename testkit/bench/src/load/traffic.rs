//! A load over NBD: so many requests under way, each a write of the payload's next blocks or a read, and a flush now and then.
//!
//! One thread sends and one hears; the number of requests under way is all that ties them together. What a request took is not
//! measured: rates are what these jobs are for.

use crate::payload::Payload;
use anyhow::{Context, Result, ensure};
use std::io::{BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use stonefold_dice::Dice;
use stonefold_guest::nbd::{CMD_DISCONNECT, CMD_FLUSH, CMD_READ, CMD_WRITE, Client, reply_to, request};
use stonefold_guest::time::{Deadline, Stopwatch};
use stonefold_types::BLOCK_BYTES;

/// No single answer takes longer.
const ANSWER_WITHIN: Duration = Duration::from_secs(120);
/// What a request is, is told by the low bits of its cookie, so that nobody needs a table.
const KINDS: u64 = 4;

/// Where requests go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Pattern {
    /// From the disk's beginning on, and round again.
    Sequential,
    /// Anywhere, on multiples of the request.
    Random,
}

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) pattern: Pattern,
    pub(crate) request_bytes: u32,
    pub(crate) depth: u32,
    pub(crate) flush_each: u64,
    pub(crate) reads_percent: u64,
    pub(crate) write_bytes: u64,
    pub(crate) seconds_max: u64,
    pub(crate) seed: u32,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) flushes: u64,
    pub(crate) took: Duration,
}

pub(crate) fn run(socket: &Path, export: &str, payload: Payload, job: &Job) -> Result<Done> {
    let client = Client::connect(socket, export, ANSWER_WITHIN)?;
    let places = client.size_bytes() / u64::from(job.request_bytes);
    ensure!(places > 0, "the export is smaller than a request");
    let stream = client.into_stream();
    let hearing = stream.try_clone().context("sharing the connection")?;
    // A message for each place that an answer makes; closed, when whoever hears has failed.
    let (answered, free) = channel();
    let since = Stopwatch::start();
    let (job, request_bytes) = (*job, job.request_bytes as usize);
    let hearer = std::thread::Builder::new().name("hear".into());
    let hearer = hearer.spawn(move || hear(hearing, request_bytes, &answered))?;
    let sent = Sending {
        stream,
        payload,
        job,
        places,
        dice: Dice::new(job.seed.into()),
        out: Vec::new(),
        sent: 0,
        placed: 0,
    }
    .run(&free);
    drop(free);
    let heard = hearer.join().expect("who hears does not panic");
    let mut done = heard?;
    sent?;
    done.took = since.elapsed();
    Ok(done)
}

struct Sending {
    stream: UnixStream,
    payload: Payload,
    job: Job,
    places: u64,
    dice: Dice,
    out: Vec<u8>,
    /// Requests of any kind.
    sent: u64,
    /// Of which those that have a place.
    placed: u64,
}

impl Sending {
    fn run(mut self, free: &Receiver<u64>) -> Result<()> {
        let deadline = Deadline::after(Duration::from_secs(self.job.seconds_max));
        let (mut room, mut written, mut writes) = (u64::from(self.job.depth), 0, 0u64);
        while written < self.job.write_bytes && !deadline.passed() {
            while room > 0 && written < self.job.write_bytes {
                room -= 1;
                if self.job.flush_each > 0 && writes == self.job.flush_each {
                    writes = 0;
                    self.push(CMD_FLUSH, 0, 0);
                } else if self.dice.below(100) < self.job.reads_percent {
                    let offset = self.next_offset();
                    self.push(CMD_READ, offset, self.job.request_bytes);
                } else {
                    let offset = self.next_offset();
                    self.push(CMD_WRITE, offset, self.job.request_bytes);
                    let blocks = u64::from(self.job.request_bytes) / BLOCK_BYTES as u64;
                    self.payload.hand_out(blocks, &mut self.out);
                    written += u64::from(self.job.request_bytes);
                    writes += 1;
                }
            }
            self.stream.write_all(&self.out).context("sending a request")?;
            self.out.clear();
            room += take(free)?;
        }
        while room < u64::from(self.job.depth) {
            room += take(free)?;
        }
        // What was written counts when it is durable.
        self.push(CMD_FLUSH, 0, 0);
        self.stream.write_all(&self.out).context("sending the last flush")?;
        take(free)?;
        self.stream.write_all(&request(CMD_DISCONNECT, 0, 0, 0)).context("closing the connection")
    }

    fn next_offset(&mut self) -> u64 {
        self.placed += 1;
        let place = match self.job.pattern {
            Pattern::Sequential => (self.placed - 1) % self.places,
            Pattern::Random => self.dice.below(self.places),
        };
        place * u64::from(self.job.request_bytes)
    }

    fn push(&mut self, command: u16, offset: u64, length: u32) {
        let cookie = self.sent * KINDS + u64::from(command);
        self.out.extend_from_slice(&request(command, cookie, offset, length));
        self.sent += 1;
    }
}

/// All that has become free; at least one.
fn take(free: &Receiver<u64>) -> Result<u64> {
    let first = free.recv().context("the server does not answer any more")?;
    Ok(first + free.try_iter().sum::<u64>())
}

/// Hears answers until the connection ends.
fn hear(stream: UnixStream, request_bytes: usize, answered: &Sender<u64>) -> Result<Done> {
    let mut from = BufReader::with_capacity(256 << 10, stream);
    let (mut done, mut header, mut data) = (Done::default(), [0; 16], vec![0; request_bytes]);
    loop {
        match from.read(&mut header[..1]) {
            Ok(0) => return Ok(done),
            read => read.context("waiting for an answer")?,
        };
        from.read_exact(&mut header[1..]).context("reading an answer")?;
        let cookie = reply_to(&header)?;
        match (cookie % KINDS) as u16 {
            CMD_READ => {
                from.read_exact(&mut data).context("reading what was asked for")?;
                done.reads += 1;
            }
            CMD_WRITE => done.writes += 1,
            _ => done.flushes += 1,
        }
        // Who sends has failed, and says why.
        if answered.send(1).is_err() {
            return Ok(done);
        }
    }
}
