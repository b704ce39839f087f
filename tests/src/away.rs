//! How long a server is away, by knocking at its door; and for how much of that its machine kept it from running.
//!
//! *Promise*: the time is what a client sees that tries all the time, not what the server says of itself. What others on the machine took is
//! told by the kernel: how long threads of the server were ready to run and waited for a processor.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, anyhow};
use stonefold_guest::time::Stopwatch;

/// Between two knocks; as exact the time is.
const PAUSE: Duration = Duration::from_millis(5);
/// For an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long nobody answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Away {
    /// From the last answer of the one server to the first of the next.
    pub time: Duration,
    /// What the one that went waited for a processor meanwhile, all its threads together.
    pub held_up: Duration,
}

/// Knocks at a server's NBD door until it is told to stop.
pub struct Knocker {
    enough: Arc<AtomicBool>,
    thread: JoinHandle<Away>,
}

impl Knocker {
    /// Begins to knock at the socket of the server that is this process.
    ///
    /// # Errors
    /// When there are no threads left.
    pub fn start(socket: &Path, server: u32) -> Result<Self> {
        let (enough, socket) = (Arc::new(AtomicBool::new(false)), socket.to_owned());
        let told = Arc::clone(&enough);
        let thread = std::thread::Builder::new()
            .name("knocker".into())
            .spawn(move || knock(&socket, server, &told))?;
        Ok(Knocker { enough, thread })
    }

    /// The longest that nobody answered.
    ///
    /// # Errors
    /// When the thread panicked.
    pub fn stop(self) -> Result<Away> {
        self.enough.store(true, SeqCst);
        self.thread.join().map_err(|_| anyhow!("the knocker panicked"))
    }
}

fn knock(socket: &Path, server: u32, enough: &AtomicBool) -> Away {
    let (mut longest, mut since) = (Away::default(), Stopwatch::start());
    let mut threads = HeldUp::of(server);
    let mut before = threads.look();
    while !enough.load(SeqCst) {
        let answered = is_answered(socket).is_ok();
        let after = threads.look();
        if answered {
            if since.elapsed() > longest.time {
                longest = Away { time: since.elapsed(), held_up: after - before };
            }
            (since, before) = (Stopwatch::start(), after);
        }
        std::thread::sleep(PAUSE);
    }
    longest
}

/// A server greets whoever connects.
fn is_answered(socket: &Path) -> Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream.read_exact(&mut [0; 8])?)
}

/// How long the threads of a process have been ready to run and waited for a processor, together (`Documentation/scheduler/sched-stats.rst`
/// of Linux: the second number of schedstat, in nanoseconds; nothing where the kernel does not count).
pub struct HeldUp {
    process: u32,
    /// What was seen last of each, also of those that have ended.
    nanos: BTreeMap<PathBuf, u64>,
}

impl HeldUp {
    /// Of a process that may end meanwhile.
    pub fn of(process: u32) -> Self {
        HeldUp { process, nanos: BTreeMap::new() }
    }

    /// How long by now; never less than before.
    pub fn look(&mut self) -> Duration {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process)).into_iter().flatten().flatten();
        for thread in tasks.map(|entry| entry.path()) {
            let Ok(text) = fs::read_to_string(thread.join("schedstat")) else { continue };
            if let Some(waited) = text.split_whitespace().nth(1).and_then(|word| word.parse().ok()) {
                self.nanos.insert(thread, waited);
            }
        }
        Duration::from_nanos(self.nanos.values().sum())
    }
}
