//! Real virtual machines for tests and demonstrations.
//!
//! *Promises*: a guest is a QEMU process on a disk behind an NBD Unix socket, driven over its serial console in
//! sentences that read like prose; every wait has a time-out and says, when it fails, what it waited for and what the
//! console said last; a guest that goes out of scope is gone, by its process id.
//!
//! ```no_run
//! # use std::{path::Path, time::Duration};
//! # use stonefold_guest::{Accelerator, Launch, NbdDisk};
//! # fn main() -> anyhow::Result<()> {
//! # let (state, socket) = (Path::new("/tmp/x"), Path::new("/tmp/x/nbd.sock"));
//! let mut guest = Launch::new("debian", state)
//!     .accelerator(Accelerator::Tcg)
//!     .disk(NbdDisk::new(socket, "debian"))
//!     .start()?;
//! guest.wait_for("login:", Duration::from_secs(180))?;
//! let sums = guest.run("sha256sum /srv/*", Duration::from_secs(30))?.success()?;
//! guest.quit(Duration::from_secs(10))?;
//! # drop(sums); Ok(()) }
//! ```
//!
//! *Never*: modifies an image, opens a network port, gives a guest a network card, or kills by name.
//! *Owns*: the QEMU processes it started, their console logs, their QMP sockets.
//! *Callers*: `testkit/quickstart` and end-to-end tests. It knows nothing of Stonefold but the NBD protocol, so a guest
//! can as well be put on a peer's export.
//!
//! | module | for |
//! |---|---|
//! | [`Launch`], [`Guest`] | start a machine; wait, run, screenshot, stop |
//! | [`probe_accelerator`] | KVM where a guest really runs under it, else TCG |
//! | [`nbd`] | read a few bytes of an export without starting a process |
//! | [`process`] | run a command with a time-out; stop a child politely, then firmly |
//! | [`cancel`] | one flag that ends every wait of this crate, for Ctrl-C |
//! | [`time`] | stopwatch and deadline, on the real clock |

mod accelerator;
pub mod cancel;
mod console;
mod guest;
mod launch;
pub mod nbd;
pub mod process;
mod qmp;
mod terminal;
pub mod time;

pub use accelerator::{Accelerator, Probe, probe_accelerator};
pub use guest::{CommandOutput, Guest};
pub use launch::{Launch, NbdDisk};
