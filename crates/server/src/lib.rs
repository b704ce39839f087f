//! The server: engine, store, doors and API put together; the only place that knows them all.
//!
//! *Promises*: settings are checked and addresses taken before the pool is touched, so a misuse changes nothing; `ready` is printed
//! when every door is open, and never otherwise; a stop loses nothing and answers what was asked before it; the
//! API runs on a thread of its own, so that a slow call there never keeps an I/O waiting. *Never*: decides how
//! data is kept (the store does), or speaks a block protocol (doors do). *Owns*: the process: threads, signals,
//! stdout's one line, the log. *May be used by*: the command line's `serve`, and tests.
//!
//! Threads: `data` runs the doors, the store's tasks and the engine's ring; `api` runs HTTP and hands every call
//! that does I/O over to `data` ([`gate`]); `fold-N` compress and hash; the main thread waits for a signal.

mod access;
mod bounds;
mod config;
mod convert;
mod data;
mod descriptors;
mod doors;
mod durability;
mod engines;
mod gate;
mod histograms;
mod hooks;
mod http;
mod keys;
mod log;
mod memory;
mod metrics;
mod notify;
mod ready;
mod run;
mod suggest;

pub use config::{ApiAddress, Config, Settings, Tls};
pub use keys::KeySource;
pub use log::start_log;
pub use ready::Ready;
pub use run::{Running, serve, start};
pub use stonefold_nbd::{Address as NbdAddress, TlsMode};
pub use stonefold_store::MasterKey;
pub use suggest::nearest;

/// The version that the server and the command line tell.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
