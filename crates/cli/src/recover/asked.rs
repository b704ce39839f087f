//! One machine that is to be back.

use super::To;
use stonefold_api::{Client, Recovered, RecoveryCreate, RecoveryStart};
use stonefold_types::{Error, Kind, Name, PointName, Result};

/// See the module.
#[derive(Clone)]
pub(super) struct Asked {
    pub(super) point: PointName,
    pub(super) name: Name,
    pub(super) to: To,
    pub(super) network: Option<String>,
    pub(super) wait: Option<String>,
    pub(super) timeout_seconds: u64,
    pub(super) qos: Option<Name>,
}

impl Asked {
    /// Fails where what is asked for makes no sense, whatever the server has.
    pub(super) fn check(&self) -> Result<()> {
        match (&self.to, &self.wait) {
            (To::Export, Some(_)) => {
                let what = format!("there is no machine '{}' to wait for", self.name);
                Err(Error::new(Kind::Invalid, what)
                    .remedy("say qemu for where it runs, or leave the sign of life out"))
            }
            _ => Ok(()),
        }
    }

    /// Looks whether it can be done.
    pub(super) fn look(&self, client: &Client) -> Result<Recovered> {
        client.recover(&self.created(true))
    }

    /// Brings it back, and starts it where that is asked; one that does not start leaves no recovery that nobody asked for.
    pub(super) fn carry_out(&self, client: &Client) -> Result<Recovered> {
        let mut made = client.recover(&self.created(false))?;
        let To::On(on) = &self.to else { return Ok(made) };
        let start =
            RecoveryStart { on: on.clone(), wait: self.wait.clone(), timeout_seconds: self.timeout_seconds };
        let started = client.start_recovery(&self.name, &start).map_err(|error| self.clear(client, error))?;
        made.recovery = started.recovery;
        made.notes.extend(started.notes);
        Ok(made)
    }

    fn created(&self, dry_run: bool) -> RecoveryCreate {
        RecoveryCreate {
            point: self.point.clone(),
            name: self.name.clone(),
            qos: self.qos.clone(),
            network: self.network.clone(),
            dry_run,
        }
    }

    fn clear(&self, client: &Client, error: Error) -> Error {
        match client.stop_recovery(&self.name, true, true) {
            Ok(()) => error,
            Err(left) => error.context(format!("recovery '{}' is still there ({left})", self.name)),
        }
    }
}
