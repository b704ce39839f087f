//! Every byte Stonefold keeps.
//!
//! *Promises*: whatever is encoded decodes to the same; whatever was not encoded here fails to decode with an
//! error, and never with a panic or an allocation beyond a small multiple of the input's own size. Each format is
//! drawn once, at the top of its module; integers are little-endian; checksums are XXH3-64. *Never*: does I/O.
//! *May be used by*: engine (chunk headers only), store, and, for traces alone, server and lab.
//!
//! | module | what | where it lies |
//! |---|---|---|
//! | [`chunk`], [`record`] | one group commit of the journal, and what is in it | a journal |
//! | [`entry`] | the address of a block | map leaves, heads |
//! | [`fingerprint`] | what a block is known by | a segment's end |
//! | [`frame`] | contiguous blocks compressed and checksummed together | a segment |
//! | [`node`] | one node of a map | a frame of a segment |
//! | [`segment`] | many frames and their index | object `segment/…` |
//! | [`ledger`] | what a round of the fold added to maps and took from them | object `ledger/…` |
//! | [`account`] | how often each block is referred to | objects `account/…`, `accounts` |
//! | [`document`], [`head`], [`pool`], [`tokens`], [`qos`], [`domains`], [`growth`], [`scrub`] | small mutable records | objects `head/…`, `gone/…`, `pool`, `tokens`, `qos`, `domains`, `growth`, `scrub` |
//! | [`snapshots`] | a disk's snapshots, in pages | objects `snapshots/…` |
//! | [`seal`] | which key seals what, and how it is made | nowhere: keys are derived |
//! | [`trace`] | what was asked of a device, for the lab to replay | wherever its owner keeps it |
//! | [`export`] | a domain's keys as a text to be locked away | wherever its owner keeps it |

pub mod account;
mod bounds;
pub mod catalog;
pub mod chunk;
pub mod document;
pub mod domains;
pub mod entry;
pub mod export;
pub mod fingerprint;
pub mod frame;
pub mod growth;
pub mod head;
pub mod ledger;
pub mod node;
pub mod pool;
pub mod qos;
pub mod record;
pub mod scrub;
pub mod seal;
pub mod segment;
pub mod snapshots;
pub mod tokens;
pub mod trace;
mod wire;
