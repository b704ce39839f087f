//! A disk's number, as documents keep it: sixteen hexadecimal digits, since not every reader of JSON keeps 64 bits of a number.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use stonefold_store::{DiskInfo, Store};
use stonefold_types::{Kind, Name, Result};

/// See [`DiskInfo::number`]: drawn before a disk is made, so that it is known for ours whatever becomes of the call that makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DiskNumber(pub(crate) u64);

impl DiskNumber {
    pub(crate) fn is_of(self, disk: &DiskInfo) -> bool {
        disk.number == self.0
    }

    /// Whether the very disk is there. An error, where nobody knows: a disk that cannot be read now is not gone.
    pub(crate) fn is_there(self, store: &Store, name: &Name) -> Result<bool> {
        match store.disk(name) {
            Ok(disk) => Ok(self.is_of(&disk)),
            Err(error) if error.kind() == Kind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Serialize for DiskNumber {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{:016x}", self.0))
    }
}

impl<'de> Deserialize<'de> for DiskNumber {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let digits =
            text.len() == 16 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        let number = digits.then(|| u64::from_str_radix(&text, 16).ok()).flatten();
        number.map(DiskNumber).ok_or_else(|| D::Error::custom(format!("'{text}' is no disk's number")))
    }
}
