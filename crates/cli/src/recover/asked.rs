//! One machine that is to be back.

use super::limits::limits;
use super::{How, TIMEOUT_SECONDS, To};
use stonefold_api::{Client, MachineLimits, Recovered, RecoveryCreate, RecoveryStart};
use stonefold_types::{Error, Kind, Name, PointName, Result};

/// See the module.
#[derive(Clone)]
pub(super) struct Asked {
    pub(super) point: PointName,
    pub(super) name: Name,
    to: To,
    network: Option<String>,
    wait: Option<String>,
    timeout_seconds: u64,
    qos: Option<Name>,
    limits: MachineLimits,
}

impl Asked {
    /// One of a point, as `how` says, which has been [checked](How::check).
    pub(super) fn new(point: PointName, name: Name, how: How) -> Asked {
        let How { to, network, wait, timeout, qos, memory_max, processors } = how;
        Asked {
            point,
            name,
            to: to.unwrap_or(To::Export),
            network,
            wait,
            timeout_seconds: timeout.unwrap_or(TIMEOUT_SECONDS),
            qos,
            limits: limits(memory_max, processors),
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
        let start = RecoveryStart {
            on: on.clone(),
            wait: self.wait.clone(),
            timeout_seconds: self.timeout_seconds,
            limits: self.limits,
        };
        let started = client.start_recovery(&self.name, &start).map_err(|error| self.clear(client, error))?;
        made.recovery = started.recovery;
        made.notes.extend(started.notes);
        Ok(made)
    }

    /// Whether it gave the sign of life that is waited for, where one is.
    pub(super) fn is_alive(&self, made: &Recovered) -> bool {
        self.wait.is_none()
            || made.recovery.started.as_ref().is_some_and(|started| started.alive_us.is_some())
    }

    /// What there is to say of one that gave none.
    pub(super) fn silent(&self) -> Error {
        let what = format!("recovering '{}': it runs, and has given no sign of life", self.name);
        Error::new(Kind::Io, what)
    }

    fn created(&self, dry_run: bool) -> RecoveryCreate {
        RecoveryCreate {
            point: self.point.clone(),
            name: self.name.clone(),
            qos: self.qos.clone(),
            network: self.network.clone(),
            on: match &self.to {
                To::On(on) => Some(on.clone()),
                To::Export => None,
            },
            limits: self.limits,
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
