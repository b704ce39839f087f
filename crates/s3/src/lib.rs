//! Pools in an object store that speaks S3.
//!
//! *Promises*: what [`Engine`](stonefold_engine::Engine) says, on any place whose conditional puts are honoured; one where they are not is
//! refused when it is opened, by what it did. One server at a time: a [lease](lease) in the place itself. *Never*: caches, or looks into an object.
//! *Owns*: connections, and two threads of its own for them, so that signing and TLS keep no disk waiting.
//! *May be used by*: whoever opens a pool.
//!
//! Below the URL's prefix lie
//!
//! | object | what |
//! |---|---|
//! | `owner` | who serves the pool ([`record::Owner`]) |
//! | `objects/KEY` | the pool's objects |
//! | `journals/ID` | a journal that exists ([`record::JournalRecord`]) |
//! | `chunks/ID/NUMBER` | its chunks, and the fence behind the last |
//! | `probe/…` | what an opening tries the place with; gone at its end |
//!
//! Each object ends with 16 bytes that are in no other: equal bytes have different ETags, and a put whose answer was lost is known again.

mod bucket;
mod changes;
mod clients;
mod credentials;
mod engine;
mod errors;
mod journal;
mod lease;
mod options;
mod probe;
mod record;

pub use engine::{S3Engine, is_made};
pub use options::Options;
