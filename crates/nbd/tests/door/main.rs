//! The door from outside: over real sockets, with real clients and with hostile ones.

#![allow(clippy::disallowed_methods, reason = "tests time real sockets")]

mod certificates;
mod client;
mod codec;
mod differential;
mod fixture;
mod handshake;
mod hostile;
mod memory;
mod patience;
mod real_clients;
mod serving;
mod tls;
mod tls_clients;
mod transmission;
