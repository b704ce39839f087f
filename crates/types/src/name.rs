//! Names of disks, snapshots and points: `[A-Za-z0-9._-]{1,128}`.

use crate::{Error, Kind, Result};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A valid name of a disk, a snapshot, a domain or a class. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(Arc<str>);

/// The longest name, in bytes: it must fit a file name beside a suffix on every file system.
const NAME_BYTES_MAX: usize = 128;

impl Name {
    /// Checks the text; fails with [`Kind::Invalid`].
    pub fn new(text: &str) -> Result<Self> {
        let valid = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        if text.is_empty() || text.len() > NAME_BYTES_MAX || !text.bytes().all(valid) {
            return Err(Error::new(Kind::Invalid, format!("'{}' is not a name", text.escape_debug()))
                .remedy("use 1 to 128 letters, digits, '.', '_' or '-'"));
        }
        // "." and ".." would leave the folder a name lives in.
        if text.bytes().all(|b| b == b'.') {
            return Err(Error::new(Kind::Invalid, format!("'{text}' is not a name"))
                .remedy("add a letter or a digit"));
        }
        Ok(Name(text.into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Name {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        Name::new(text)
    }
}

impl TryFrom<String> for Name {
    type Error = Error;
    fn try_from(text: String) -> Result<Self> {
        Name::new(&text)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.0.to_string()
    }
}

/// `DISK@SNAP`: one snapshot of one disk.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotName {
    /// The disk.
    pub disk: Name,
    /// The snapshot's name, unique within its disk.
    pub snapshot: Name,
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.disk, self.snapshot)
    }
}

impl FromStr for SnapshotName {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        match ExportName::from_str(text)? {
            ExportName::Snapshot(name) => Ok(name),
            ExportName::Disk(disk) => {
                Err(Error::new(Kind::Invalid, format!("'{disk}' names a disk, not a snapshot"))
                    .remedy(format!("write {disk}@SNAPSHOT")))
            }
        }
    }
}

/// `SOURCE@TIME`: one point of a source, or the run that makes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PointName {
    /// The source.
    pub source: Name,
    /// The time at which the run began, as a name; it is the name of the point's snapshots.
    pub stamp: Name,
}

impl fmt::Display for PointName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.source, self.stamp)
    }
}

impl FromStr for PointName {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let Some((source, stamp)) = text.split_once('@') else {
            return Err(Error::new(Kind::Invalid, format!("'{}' names no point", text.escape_debug()))
                .remedy("write SOURCE@TIME, as 'stonefold point ls' shows it"));
        };
        Ok(PointName { source: Name::new(source)?, stamp: Name::new(stamp)? })
    }
}

impl TryFrom<String> for PointName {
    type Error = Error;
    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<PointName> for String {
    fn from(name: PointName) -> String {
        name.to_string()
    }
}

/// What a door serves under a name: `DISK`, writable, or `DISK@SNAP`, read-only.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExportName {
    /// A disk.
    Disk(Name),
    /// A snapshot of a disk.
    Snapshot(SnapshotName),
}

impl ExportName {
    /// The disk, or the disk of the snapshot.
    pub fn disk(&self) -> &Name {
        match self {
            ExportName::Disk(disk) => disk,
            ExportName::Snapshot(name) => &name.disk,
        }
    }
}

impl fmt::Display for ExportName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExportName::Disk(name) => name.fmt(f),
            ExportName::Snapshot(name) => name.fmt(f),
        }
    }
}

impl FromStr for ExportName {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        match text.split_once('@') {
            None => Ok(ExportName::Disk(Name::new(text)?)),
            Some((disk, snapshot)) => Ok(ExportName::Snapshot(SnapshotName {
                disk: Name::new(disk)?,
                snapshot: Name::new(snapshot)?,
            })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_to_their_alphabet() {
        for good in ["a", "web-1", "A.b_c", &"x".repeat(128)] {
            assert!(Name::new(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a b", "a/b", "a@b", "ä", &"x".repeat(129), "a\n"] {
            assert!(Name::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_snapshot_is_disk_at_name() {
        let name: SnapshotName = "web@monday".parse().unwrap();
        assert_eq!(name.to_string(), "web@monday");
        assert!("web".parse::<SnapshotName>().is_err());
        assert!("web@a@b".parse::<ExportName>().is_err());
        assert_eq!("web".parse::<ExportName>().unwrap().disk().as_str(), "web");
        let point: PointName = "web@20261123T184005Z".parse().unwrap();
        assert_eq!(point.to_string(), "web@20261123T184005Z");
        assert!("web".parse::<PointName>().unwrap_err().to_string().contains("SOURCE@TIME"));
        assert!("a@b@c".parse::<PointName>().is_err());
    }
}
