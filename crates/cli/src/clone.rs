//! `stonefold clone` and `stonefold rollback`: what is made of a snapshot.

use crate::context::Context;
use crate::disk;
use crate::failure::Failure;
use crate::waiting::wait_for;
use clap::Args;
use stonefold_types::{Name, SnapshotName};

/// Make a new disk from a snapshot, at once whatever its size
///
/// The clone is a disk like any other; it shares with the snapshot all that neither has overwritten since.
#[derive(Args)]
#[command(after_help = "Example:\n  stonefold clone web@before-upgrade web-test")]
pub(crate) struct Clone {
    /// The snapshot
    #[arg(value_name = "DISK@SNAP")]
    from: SnapshotName,
    /// The new disk's name
    new: Name,
}

impl Clone {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let (from, new) = (self.from.clone(), self.new.clone());
        let made = wait_for(&context.client()?, "clone", move |client| client.clone_snapshot(&from, &new))?;
        context.answer(&made, || disk::made_text(&made, &format!("cloned from {}", self.from)))
    }
}

/// Bring a disk back to a snapshot; the present is kept as another snapshot
///
/// Refused while a client is connected to the disk: a guest whose disk changes under it is a broken guest.
#[derive(Args)]
#[command(after_help = "Example:\n  stonefold rollback web@before-upgrade")]
pub(crate) struct Rollback {
    /// The snapshot
    #[arg(value_name = "DISK@SNAP")]
    to: SnapshotName,
}

impl Rollback {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let to = self.to.clone();
        let done = wait_for(&context.client()?, "rollback", move |client| client.rollback(&to))?;
        context.answer(&done, || {
            let (to, kept) = (&self.to, &done.kept);
            format!(
                "disk '{}' is back at {to}; what it held before is {}@{}\n",
                to.disk, kept.disk, kept.name
            )
        })
    }
}
