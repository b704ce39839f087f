//! One machine that is to be back.

use super::{To, sign_of_life};
use stonefold_api::{Client, MachineLimits, Recovered, RecoveryCreate, RecoveryStart};
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
    pub(super) limits: MachineLimits,
}

impl Asked {
    /// Fails where what is asked for makes no sense, whatever the server has.
    pub(super) fn check(&self) -> Result<()> {
        let wrong = |what: String, remedy: &str| Err(Error::new(Kind::Invalid, what).remedy(remedy));
        if let Some(sign) = &self.wait {
            sign_of_life(sign).map_err(|why| {
                Error::new(Kind::Invalid, format!("machine '{}': {why}", self.name))
                    .remedy("correct what is waited for")
            })?;
        }
        match (&self.to, &self.wait) {
            (To::Export, Some(_)) => wrong(
                format!("there is no machine '{}' to wait for", self.name),
                "say qemu for where it runs, or leave the sign of life out",
            ),
            (To::Export, None) if !self.limits.is_none() => wrong(
                format!("there is no machine '{}' to limit", self.name),
                "say qemu or libvirt:URI for where it runs, or leave its limits out",
            ),
            (To::On(on), Some(sign))
                if on != "qemu" && ["port:", "console:"].iter().any(|kind| sign.starts_with(kind)) =>
            {
                wrong(
                    format!("of a domain of libvirt's no '{sign}' can be waited for"),
                    "wait for agent or cmd:COMMAND, or say qemu for where it runs",
                )
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
