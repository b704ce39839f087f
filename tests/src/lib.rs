//! End to end: the real binary on real files, with real clients, killed for real.
//!
//! *Promises*: every wait has a time-out and fails with the server's last words; what a test starts is gone when the
//! test is, by its process id; a failed run keeps its pool and prints how to run it again. *Never*: looks inside the
//! server, or says "correct" by any measure but the reference model's. *Owns*: the servers it starts, each in a folder of
//! its own. *May be used by*: the tests beside it.
//!
//! | module | for |
//! |---|---|
//! | [`gateway`] | a running `stonefold serve`: start, kill, restart, ask by the command line |
//! | [`binary`] | which binary that is |
//! | [`nbd`] | a client that keeps many requests in flight |
//! | [`story`], [`judge`] | what was done to the disks, and whether what is found after a crash may be |
//! | [`load`], [`keeper`] | clients that write, and one that snapshots and clones, while the server is killed |
//! | [`qemu`] | QEMU's NBD client, which reconnects; in front of other clients |
//! | [`away`] | how long a server is away, and who held it up |
//! | [`rot`] | damage to files |
//! | [`recorder`] | a disk that remembers each write and flush, for losses of power |
//! | [`tools`] | foreign programs; [`mounts`]: file systems and loop devices, for root |
//! | [`root`] | a root file system to install things into; [`package`]: the Debian package |
//! | [`replicas`] | points on their way to another pool |
//! | [`monitor`] | a client of QEMU's monitor |
//! | [`agent`] | commands that run in a guest, by its agent |
//! | [`postgres`] | a database server, as a user of its own |

pub mod agent;
pub mod away;
pub mod binary;
pub mod clocks;
pub mod gateway;
pub mod judge;
pub mod keeper;
pub mod libvirt;
pub mod load;
pub mod machines;
pub mod monitor;
pub mod mounts;
pub mod nbd;
pub mod package;
pub mod postgres;
pub mod qemu;
pub mod recorder;
pub mod replicas;
pub mod root;
pub mod rot;
pub mod runs;
pub mod story;
pub mod tools;
