//! The store on engines in memory, one room a theme.
//!
//! `pool` opens pools and reads them, `script` says what their engine gets wrong, `beside` lets two calls meet.

mod beside;
mod captures;
mod catalog;
mod damage;
mod dedupe;
mod disks;
mod domains;
mod durability;
mod faults;
mod heads;
mod lease;
mod locks;
mod model;
mod patience;
mod pool;
mod reclaim;
mod recount;
mod removals;
mod reserve;
mod rollover;
mod salvage;
mod script;
mod scrub;
mod snapshots;
mod tokens;
mod unread;
