//! What a machine is made of, besides its disks: a description that somebody else wrote, kept as its bytes.

use crate::domain::{self, Domain, Identity};
use crate::hypervisor;
use serde::{Deserialize, Serialize};
use stonefold_types::{Error, Kind, Result};

/// The longest description, in bytes. A large one of libvirt's has 30 KiB; in JSON a byte takes six at most, and documents of the pool
/// are to stay below 1 MiB, as every point has its own.
pub const HARDWARE_BYTES_MAX: usize = 128 << 10;

/// A hardware description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hardware {
    /// A domain of libvirt's, in XML.
    Libvirt(String),
    /// What QEMU is started with, as a shell reads it; disks left out.
    QemuArgs(String),
}

impl Hardware {
    /// Its bytes.
    pub fn text(&self) -> &str {
        match self {
            Hardware::Libvirt(text) | Hardware::QemuArgs(text) => text,
        }
    }

    /// Looks whether it can be kept; returns what its disks are called, where it says so.
    pub fn check(&self) -> Result<Option<Vec<String>>> {
        let length = self.text().len();
        if length > HARDWARE_BYTES_MAX {
            let what =
                format!("the hardware description has {length} bytes, and {HARDWARE_BYTES_MAX} are the most");
            return Err(
                Error::new(Kind::Invalid, what).remedy("leave out of it what the machine does not need")
            );
        }
        match self {
            Hardware::Libvirt(xml) => {
                Ok(Some(Domain::parse(xml)?.disks.into_iter().map(|disk| disk.target).collect()))
            }
            Hardware::QemuArgs(text) if text.trim().is_empty() => {
                Err(Error::new(Kind::Invalid, "there are no arguments of QEMU in it")
                    .remedy("write what the machine is started with, disks left out, as in: -m 2G -smp 2"))
            }
            Hardware::QemuArgs(text) => hypervisor::check_arguments(text).map(|()| None),
        }
    }

    /// That of a machine which is made from this one's, and what of it was left out, in words.
    pub fn of_copy(&self, identity: &Identity) -> Result<(Hardware, Vec<String>)> {
        match self {
            Hardware::Libvirt(xml) => {
                let made = domain::recovered(xml, identity)?;
                let notes = made.left_out.iter().map(|what| format!("left out: {what}")).collect();
                Ok((Hardware::Libvirt(made.xml), notes))
            }
            // An older server may have kept what cannot be read now: it is no reason to have nothing back.
            Hardware::QemuArgs(text) => match hypervisor::recovered_arguments(text, identity) {
                Ok((made, notes)) => Ok((Hardware::QemuArgs(made), notes)),
                Err(error) => Ok((self.clone(), vec![error.to_string()])),
            },
        }
    }
}
