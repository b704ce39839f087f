//! The NBD door: disks and snapshots to hypervisors, over TCP and Unix sockets.
//!
//! *Promises*: the fixed newstyle protocol with simple, structured and extended replies, as its document says; what is
//! advertised is true; a hostile or broken client costs only its own connection, and of memory no more than
//! `limits.rs` says; a flush is answered only after the store has flushed. *Never*: knows an engine, keeps data of its own, or answers a
//! write that the store has not taken. *Owns*: sockets, connections and what is in flight on them. *May be used by*: the server.
//!
//! ```text
//!   server ── listener ── one task per connection:  socket ── connection ── session ── Target (the store)
//!                                                 tls, handshake ┘            └ output, memory
//!   wire: the protocol's bytes, without any state
//! ```
//! One task owns a socket and everything about it, so there is nothing to lock. Requests that the cache can answer are
//! answered while the input is parsed; the others wait side by side in the same task; replies are gathered and written at once.

mod address;
mod connection;
mod fault;
mod handshake;
mod limits;
mod listener;
mod memory;
mod meta;
mod metrics;
mod negotiation;
mod output;
mod peer;
mod server;
mod session;
mod socket_file;
mod target;
mod tls;
pub mod wire;

pub use address::Address;
pub use limits::{REQUEST_BYTES_MAX, REQUEST_BYTES_MIN, REQUEST_BYTES_PREFERRED};
pub use listener::Listener;
pub use metrics::{COMMANDS, Counts, ExportCounts, Metrics};
pub use server::Server;
pub use socket_file::{SocketFile, bind_unix};
pub use target::{Exports, Target};
pub use tls::{Tls, TlsMode};
