//! What the bench needs and no tool has.
//!
//! *Promises*: what is measured with it is a true pool, and true traffic. *Never*: judges anything: figures and goals are
//! `bench/run`'s. *Called by*: `bench/run`, through the programs, of which the first two print one JSON document each.
//!
//! | | for |
//! |---|---|
//! | `stonefold-synthetic` | [`terabyte`]: a disk that is mapped and not written, with snapshots between changes |
//! | `stonefold-load` | payload cut from real binaries, and a load that writes it over NBD |
//! | `stonefold-bridge` | the virtio disk of a QEMU whose processors never run, as an NBD export |

#[cfg(feature = "synthetic")]
pub mod terabyte;
