//! Points of a disk of a server, kept and brought back by its API, for a load that recovers.

use super::load::door;
use super::run::Run;
use crate::context::Context;
use crate::failure::Failure;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use stonefold_api::{Client, SnapshotCreate};
use stonefold_lab::TargetSpec;
use stonefold_lab::oltp::Keeper;
use stonefold_lab::oltp::chain::Commands;
use stonefold_types::{Error, Kind, Name, SnapshotName};

/// Who keeps points of the target; nobody where the profile recovers none, or where nobody can.
pub(super) fn keeper(
    run: &Run,
    context: &Context,
    recovers: bool,
    began: u64,
) -> Result<Option<Arc<dyn Keeper>>, Failure> {
    match (&run.recovery, &run.target[..]) {
        // Commands may name targets that are no disks of a server.
        (Some(file), _) => Ok(Some(Arc::new(commands(file, context.client().ok())?))),
        (None, [target]) if recovers => {
            let Ok(TargetSpec::Stonefold(disk)) = target.parse::<TargetSpec>() else { return Ok(None) };
            let disk = disk.parse().map_err(Failure::Misuse)?;
            let keeper = OfServer { client: context.client()?, disk, began };
            // Before hours are spent: a name that is too long.
            keeper.clone_name(u32::MAX).map_err(Failure::Misuse)?;
            Ok(Some(Arc::new(keeper)))
        }
        _ => Ok(None),
    }
}

fn commands(file: &Path, client: Option<Client>) -> Result<Commands, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|e| Error::io(format!("reading the commands '{}'", file.display()), e))?;
    let resolve = move |text: &str| match (text.parse::<TargetSpec>()?, &client) {
        (TargetSpec::Stonefold(disk), Some(client)) => door(&client.disk(&disk.parse()?)?),
        (spec, _) => Ok(spec),
    };
    Commands::of_file(&text, resolve).map_err(Failure::Misuse)
}

/// For a client that has just let go of a disk to be seen to.
const BUSY_MAX: usize = 50;
const LOOK_EVERY: Duration = Duration::from_millis(100);

struct OfServer {
    client: Client,
    disk: Name,
    /// Seconds since 1970: sets its names apart from what an earlier run, or somebody else, has left.
    began: u64,
}

/// Without the client, which has a secret.
impl fmt::Debug for OfServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OfServer").field(&self.disk).finish()
    }
}

impl OfServer {
    fn snapshot(&self, point: u32) -> Result<SnapshotName, Error> {
        let snapshot = format!("lab-{:x}-{point}", self.began).parse()?;
        Ok(SnapshotName { disk: self.disk.clone(), snapshot })
    }

    /// The name of the clone that is made of a point.
    fn clone_name(&self, point: u32) -> Result<Name, Error> {
        format!("{}-lab-{:x}-{point}", self.disk, self.began).parse()
    }
}

impl Keeper for OfServer {
    fn told(&self) -> String {
        format!("snapshots of the disk '{}' and clones of them", self.disk)
    }

    fn keep(&self, point: u32) -> Result<(), Error> {
        let SnapshotName { disk, snapshot } = self.snapshot(point)?;
        self.client.create_snapshot(&SnapshotCreate { disks: vec![disk], name: Some(snapshot) }).map(drop)
    }

    fn recover(&self, point: u32) -> Result<TargetSpec, Error> {
        let disk = self.client.clone_snapshot(&self.snapshot(point)?, &self.clone_name(point)?)?;
        door(&disk).inspect_err(|_| {
            // It was made, and is of no use.
            let _ = self.client.remove_disk(&disk.name, false);
        })
    }

    fn discard(&self, point: u32) -> Result<(), Error> {
        let clone = self.clone_name(point)?;
        for _ in 0..BUSY_MAX {
            match self.client.remove_disk(&clone, false) {
                Err(error) if error.kind() == Kind::Busy => std::thread::sleep(LOOK_EVERY),
                done => return done,
            }
        }
        self.client.remove_disk(&clone, false)
    }

    fn forget(&self, point: u32) -> Result<(), Error> {
        self.client.remove_snapshot(&self.snapshot(point)?)
    }
}
