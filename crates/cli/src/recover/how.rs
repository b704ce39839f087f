//! Where and how a machine is to be back, as the command line says it, and as a plan does.

use super::limits::Processors;
use super::{patience, sign_of_life};
use clap::Args;
use serde::{Deserialize, Deserializer, de::Error as _};
use std::fmt::Display;
use std::str::FromStr;
use stonefold_protect::Where;
use stonefold_types::{Error, Kind, Name, Result, Size};

/// What is not said is left to whoever comes after: in a plan a machine's own words come first, then those of `[all]`, then the command line's.
#[derive(Args, Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct How {
    /// Where it runs: libvirt:URI, qemu (one of its own, on the server's host), or export (nowhere: its disks are served) [default: export]
    #[arg(long, value_name = "WHERE")]
    #[serde(deserialize_with = "as_text")]
    pub(super) to: Option<To>,
    /// Where its network goes: isolated, or a network of libvirt's by its name [default: where the original's goes]
    #[arg(long, value_name = "NETWORK")]
    pub(super) network: Option<String>,
    /// A sign of life to wait for: agent or cmd:COMMAND; of a qemu port:N and console:REGEX, too
    #[arg(long, value_name = "SIGN")]
    pub(super) wait: Option<String>,
    /// How long [default: 5m]
    #[arg(long, value_name = "TIME", value_parser = patience)]
    #[serde(deserialize_with = "as_patience")]
    pub(super) timeout: Option<u64>,
    /// A class of service for its disks [default: that of the originals]
    #[arg(long, value_name = "CLASS")]
    pub(super) qos: Option<Name>,
    /// The memory that its hypervisor may take of the host, its own among it
    #[arg(long, value_name = "SIZE")]
    #[serde(deserialize_with = "as_text")]
    pub(super) memory_max: Option<Size>,
    /// The processors that it may take of the host: 2, 0.5
    #[arg(long, value_name = "NUMBER")]
    #[serde(deserialize_with = "as_number")]
    pub(super) processors: Option<Processors>,
}

/// Where a recovered machine runs.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum To {
    /// Its disks are served; whoever wants starts a machine with them.
    Export,
    /// The server starts it there.
    On(String),
}

impl FromStr for To {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "export" => Ok(To::Export),
            _ if text.parse::<Where>().is_ok() => Ok(To::On(text.to_owned())),
            _ => Err(format!(
                "'{text}' is no place for a machine: write export, qemu, or libvirt:URI as in libvirt:qemu:///system"
            )),
        }
    }
}

impl How {
    /// What is not said here is as `other` says.
    pub(super) fn or(self, other: &How) -> How {
        How {
            to: self.to.or(other.to.clone()),
            network: self.network.or(other.network.clone()),
            wait: self.wait.or(other.wait.clone()),
            timeout: self.timeout.or(other.timeout),
            qos: self.qos.or(other.qos.clone()),
            memory_max: self.memory_max.or(other.memory_max),
            processors: self.processors.or(other.processors),
        }
    }

    /// Fails where what is asked for a machine makes no sense, whatever the server has.
    pub(super) fn check(&self, name: &Name) -> Result<()> {
        let wrong = |what: String, remedy: &str| Err(Error::new(Kind::Invalid, what).remedy(remedy));
        if let Some(sign) = &self.wait {
            sign_of_life(sign).map_err(|why| {
                Error::new(Kind::Invalid, format!("machine '{name}': {why}"))
                    .remedy("correct what is waited for")
            })?;
        }
        let is_limited = self.memory_max.is_some() || self.processors.is_some();
        match (self.to.as_ref().unwrap_or(&To::Export), &self.wait) {
            (To::Export, Some(_)) => wrong(
                format!("there is no machine '{name}' to wait for"),
                "say qemu for where it runs, or leave the sign of life out",
            ),
            (To::Export, None) if is_limited => wrong(
                format!("there is no machine '{name}' to limit"),
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
}

/// What a plan has as a text, as the command line has it.
pub(super) fn as_text<'de, D, T>(read: D) -> std::result::Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    String::deserialize(read)?.parse().map(Some).map_err(D::Error::custom)
}

/// Likewise of a time to wait.
pub(super) fn as_patience<'de, D: Deserializer<'de>>(read: D) -> std::result::Result<Option<u64>, D::Error> {
    patience(&String::deserialize(read)?).map(Some).map_err(D::Error::custom)
}

/// Likewise of processors, which are a number.
pub(super) fn as_number<'de, D: Deserializer<'de>>(
    read: D,
) -> std::result::Result<Option<Processors>, D::Error> {
    f64::deserialize(read)?.to_string().parse().map(Some).map_err(D::Error::custom)
}
