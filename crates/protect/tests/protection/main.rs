//! Protection over a real store in memory, one room a theme; `life` is a server's life, which can end at any step.

mod archives;
mod backups;
mod copies;
mod copies_ended;
mod exporter;
mod life;
mod machines;
mod outcomes;
mod pauses;
mod policies;
mod recoveries;
mod replicas;
mod standstills;
mod syncs;
