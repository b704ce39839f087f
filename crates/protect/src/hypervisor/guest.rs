//! A guest that is asked, by its agent, to have its file systems stand still.
//!
//! A file system that stands still has written everything it was told and takes no writes until it is told to go on; the agent's hooks have
//! programs finish theirs before (`/etc/qemu/fsfreeze-hook.d`). *Never*: waits for ever.

use super::agent::Agent;
use super::virsh::Virsh;
use crate::qmp::is_left;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result};

/// How long an agent may take to say that it is there.
const GREET_MAX: Duration = Duration::from_secs(5);

/// Where a guest's agent is reached: `unix:PATH`, where QEMU listens for whoever speaks to it, or `libvirt:URI`, whose the channel is then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum AgentPlace {
    /// The socket of the agent's channel.
    Socket(PathBuf),
    /// The libvirt that has the machine.
    Libvirt(String),
}

impl FromStr for AgentPlace {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.split_once(':') {
            Some(("unix", path)) if Path::new(path).is_absolute() => Ok(AgentPlace::Socket(path.into())),
            Some(("libvirt", uri)) if uri.contains(':') => Ok(AgentPlace::Libvirt(uri.to_owned())),
            _ => Err(Error::new(Kind::Invalid, format!("'{}' is no place of a guest agent", text.escape_debug()))
                .remedy(
                    "write unix:/PATH, the socket of the channel org.qemu.guest_agent.0, or libvirt:URI as in libvirt:qemu:///system",
                )),
        }
    }
}

impl TryFrom<String> for AgentPlace {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<AgentPlace> for String {
    fn from(place: AgentPlace) -> String {
        place.to_string()
    }
}

impl fmt::Display for AgentPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AgentPlace::Socket(path) => write!(f, "unix:{}", path.display()),
            AgentPlace::Libvirt(uri) => write!(f, "libvirt:{uri}"),
        }
    }
}

/// A guest, by where its agent is and what libvirt calls it.
pub(crate) struct Guest<'a> {
    pub(crate) env: &'a Env,
    pub(crate) agent: &'a AgentPlace,
    pub(crate) domain: &'a str,
}

/// A guest whose agent may be asked to have it stand still: that it is there is known already, as far as it can be.
pub(crate) enum Greeted<'a> {
    Agent(Agent),
    Libvirt(Virsh<'a>, &'a str),
}

impl<'a> Guest<'a> {
    /// Sees whether the agent is there. Nothing has been asked of the guest yet.
    ///
    /// # Errors
    /// [`Kind::NotFound`] where no agent answers, what the socket or libvirt says else.
    pub(crate) async fn greet(&self) -> Result<Greeted<'a>> {
        match self.agent {
            AgentPlace::Socket(path) => Agent::greet(self.env, path, GREET_MAX).await.map(Greeted::Agent),
            AgentPlace::Libvirt(uri) => {
                let virsh = Virsh { env: self.env, uri };
                match virsh.state(self.domain).await? {
                    Some(true) => Ok(Greeted::Libvirt(virsh, self.domain)),
                    _ => Err(Error::new(Kind::NotFound, format!("domain '{}' does not run", self.domain))
                        .remedy("start it, or back it up as after a loss of power (crash)")),
                }
            }
        }
    }

    /// Has it go on; returns how many file systems had stood still.
    pub(crate) async fn thaw(&self, patience: Duration) -> Result<u64> {
        match self.greet().await? {
            Greeted::Agent(mut agent) => {
                let thawed = agent.execute("guest-fsfreeze-thaw", json!({}), patience).await?;
                Ok(thawed.as_u64().unwrap_or(0))
            }
            Greeted::Libvirt(virsh, domain) => virsh.count_of(&["domfsthaw", domain], patience).await,
        }
    }

    /// Whether there is no machine any more whose guest could stand still.
    pub(crate) async fn is_gone(&self) -> bool {
        match self.agent {
            // Through such a one nobody could tell a guest anything.
            AgentPlace::Socket(path) => is_left(self.env, path, GREET_MAX).await,
            AgentPlace::Libvirt(uri) => {
                let state = Virsh { env: self.env, uri }.state(self.domain).await;
                matches!(state, Ok(None | Some(false)))
            }
        }
    }
}

impl Greeted<'_> {
    /// Has its file systems stand still; returns how many do.
    pub(crate) async fn freeze(&mut self, patience: Duration) -> Result<u64> {
        match self {
            Greeted::Agent(agent) => {
                let frozen = agent.execute("guest-fsfreeze-freeze", json!({}), patience).await?;
                Ok(frozen.as_u64().unwrap_or(0))
            }
            Greeted::Libvirt(virsh, domain) => virsh.count_of(&["domfsfreeze", domain], patience).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_they_are_written() {
        for text in ["unix:/run/vm/agent.sock", "libvirt:qemu:///system"] {
            assert_eq!(text.parse::<AgentPlace>().unwrap().to_string(), text);
        }
        for wrong in ["", "unix:", "unix:agent.sock", "libvirt:", "libvirt:system", "/run/agent.sock", "none"]
        {
            assert!(wrong.parse::<AgentPlace>().is_err(), "{wrong}");
        }
    }
}
