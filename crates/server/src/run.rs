//! A server's life: start, ready, stop.

use crate::data::{self, Opened};
use crate::doors::door_uri;
use crate::http::{self, ApiListener, App};
use crate::{Config, Ready, memory, notify};
use std::io::Write;
use std::thread::JoinHandle;
use stonefold_types::{Error, Kind, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};

/// A server that is running.
pub struct Running {
    ready: Ready,
    api: Worker,
    data: Worker,
}

/// A thread, how to tell it to stop, and how it tells that it has ended.
struct Worker {
    stop: watch::Sender<bool>,
    thread: JoinHandle<Result<()>>,
}

impl Worker {
    /// Starts a thread; `ended` is dropped when it ends, however it does.
    fn start(
        name: &str,
        ended: Option<oneshot::Sender<()>>,
        run: impl FnOnce(watch::Receiver<bool>) -> Result<()> + Send + 'static,
    ) -> Result<Worker> {
        let (stop, stopped) = watch::channel(false);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let _ended = ended;
                run(stopped)
            })
            .map_err(|e| Error::io(format!("starting the {name} thread"), e))?;
        Ok(Worker { stop, thread })
    }

    fn stop(self, name: &str) -> Result<()> {
        // A thread that has ended already hears nothing.
        let _ = self.stop.send(true);
        self.thread.join().unwrap_or_else(|_| {
            Err(Error::new(Kind::Io, format!("the {name} thread ended by a defect of Stonefold"))
                .remedy("report what the log says above; what was acknowledged as durable is not lost"))
        })
    }
}

/// A server whose pool is being opened.
struct Starting {
    config: Config,
    listeners: Vec<ApiListener>,
    data: Worker,
}

/// What the data thread tells once: that the pool is open, or why not.
type Told = oneshot::Receiver<Result<Opened>>;

/// Starts a server and returns when every door is open.
pub fn start(config: Config) -> Result<Running> {
    let (starting, told) = Starting::begin(config, None)?;
    starting.end(told.blocking_recv().ok())
}

impl Starting {
    /// Listens, and begins to open the pool.
    fn begin(config: Config, ended: Option<oneshot::Sender<()>>) -> Result<(Starting, Told)> {
        memory::share_one_heap();
        let listeners: Vec<ApiListener> =
            config.api.iter().map(|address| ApiListener::bind(address, &config)).collect::<Result<_>>()?;
        let (tell, told) = oneshot::channel();
        let of_data = config.clone();
        let data = Worker::start("data", ended, move |stop| data::run(&of_data, tell, stop))?;
        Ok((Starting { config, listeners, data }, told))
    }

    /// Goes on with what the data thread has told; without a word it panicked.
    fn end(self, told: Option<Result<Opened>>) -> Result<Running> {
        let Starting { config, listeners, data } = self;
        let opened = match told {
            Some(Ok(opened)) => opened,
            Some(Err(error)) => {
                data.stop("data")?;
                return Err(error);
            }
            // Joining tells.
            None => {
                let ended = || Error::new(Kind::Closed, "the server ended");
                return Err(data.stop("data").err().unwrap_or_else(ended));
            }
        };
        let ready = Ready {
            pool: config.pool.clone(),
            nbd: opened.doors.iter().map(door_uri).collect(),
            api: listeners.iter().map(ApiListener::url).collect(),
        };
        let app = App::new(&config, &ready, &opened);
        let Opened { env, api_tls, .. } = opened;
        let api = Worker::start("api", None, move |stop| http::run(listeners, app, env, api_tls, stop))?;
        Ok(Running { ready, api, data })
    }
}

impl Running {
    /// Where it is reached.
    pub fn ready(&self) -> &Ready {
        &self.ready
    }

    /// Stops it: no new clients, answers to what was asked, everything folded and closed.
    pub fn stop(self) -> Result<()> {
        // The API first: its calls need the data thread.
        let api = self.api.stop("api");
        let data = self.data.stop("data");
        data.and(api)
    }
}

/// Runs a server until a signal stops it: SIGTERM, SIGINT or SIGHUP once, gracefully; twice, at once. One that comes while the
/// pool is still being opened ends that as a crash would: replay and refill are for the next start. Prints its one line on stdout,
/// as JSON when asked.
pub fn serve(config: Config, json: bool) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::io("starting the signals' runtime", e))?;
    // Caught from here on, so that a stop during start is a stop, too.
    let mut signals = runtime.block_on(async { Signals::new() })?;
    let (ended, has_ended) = oneshot::channel();
    let (starting, told) = Starting::begin(config, Some(ended))?;
    let told = runtime.block_on(async {
        tokio::select! {
            // First: once it is told clients may be there, and an orderly stop is owed to them.
            biased;
            told = told => Some(told.ok()),
            name = signals.next() => {
                tracing::info!(signal = name, "stopped while starting; the next start begins anew, and nothing is lost");
                None
            }
        }
    });
    let Some(told) = told else { return Ok(()) };
    let running = starting.end(told)?;
    announce(running.ready(), json)?;
    notify::tell(notify::READY);
    let stopped_by_signal = runtime.block_on(async {
        tokio::select! {
            name = signals.next() => {
                tracing::info!(signal = name, "stopping; a second signal stops at once");
                true
            }
            _ = has_ended => false,
        }
    });
    notify::tell(notify::STOPPING);
    if stopped_by_signal {
        exit_on_the_next(signals, runtime)?;
    }
    running.stop()
}

/// Tells stdout, which scripts read.
fn announce(ready: &Ready, json: bool) -> Result<()> {
    let line = match json {
        true => serde_json::to_string(ready).expect("text is plain JSON"),
        false => ready.to_string(),
    };
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}")
        .and_then(|()| stdout.flush())
        .map_err(|e| Error::io("writing the ready line", e))
}

/// The signals that stop a server.
struct Signals {
    term: tokio::signal::unix::Signal,
    int: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> Result<Self> {
        let listen = |kind| signal(kind).map_err(|e| Error::io("listening for signals", e));
        Ok(Signals {
            term: listen(SignalKind::terminate())?,
            int: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
            _ = self.hangup.recv() => "SIGHUP",
        }
    }
}

/// While the server closes, another signal ends the process: whatever is durable stays, and the journal is
/// replayed at the next start.
fn exit_on_the_next(mut signals: Signals, runtime: tokio::runtime::Runtime) -> Result<()> {
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            let name = runtime.block_on(signals.next());
            tracing::warn!(signal = name, "stopped at once; the journal is replayed at the next start");
            std::process::exit(1);
        })
        .map(drop)
        .map_err(|e| Error::io("starting the signals' thread", e))
}
