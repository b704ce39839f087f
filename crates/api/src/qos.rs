//! Classes of service.

use serde::{Deserialize, Deserializer, Serialize};
use stonefold_types::Name;
use utoipa::ToSchema;

/// A class of service. Its figures hold for *each* disk in it. An operation is a request of up to 64 KiB; a longer one counts
/// once for each 64 KiB that it begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QosClass {
    /// Its name.
    #[schema(value_type = String, examples("production"))]
    pub name: Name,
    /// Operations a second that a disk gets before anything is shared out; 0 for none.
    pub min_iops: u64,
    /// Bytes a second that a disk gets before anything is shared out; 0 for none.
    pub min_bytes: u64,
    /// Operations a second that a disk never exceeds; absent for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iops: Option<u64>,
    /// Bytes a second that a disk never exceeds; absent for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// A disk's part of what is shared out, in proportion to the shares of the others that compete: 1 to 1000.
    pub share: u32,
    /// Every pool has it, and it cannot be removed.
    pub predefined: bool,
    /// Of the pool's own work, `fold` and `reclaim`; no disk can have it.
    pub background: bool,
    /// The disks in it.
    #[schema(value_type = Vec<String>)]
    pub disks: Vec<Name>,
}

/// A class to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QosCreate {
    /// Its name: 1 to 128 letters, digits, `.`, `_` or `-`.
    #[schema(value_type = String, pattern = "^[A-Za-z0-9._-]{1,128}$", examples("gold"))]
    pub name: Name,
    /// Left out: 0, no reservation.
    #[serde(default)]
    pub min_iops: u64,
    /// Left out: 0, no reservation.
    #[serde(default)]
    pub min_bytes: u64,
    /// Left out: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iops: Option<u64>,
    /// Left out: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// 1 to 1000. Left out: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<u32>,
}

/// Figures to change; what is left out stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QosSet {
    /// 0 for no reservation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_iops: Option<u64>,
    /// 0 for no reservation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_bytes: Option<u64>,
    /// `null` for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<u64>)]
    pub max_iops: Option<Option<u64>>,
    /// `null` for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<u64>)]
    pub max_bytes: Option<Option<u64>>,
    /// 1 to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<u32>,
}

/// Tells `null` from what was left out.
fn given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(from).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_not_the_same_as_left_out() {
        let read = |text: &str| serde_json::from_str::<QosSet>(text).unwrap();
        assert_eq!(read("{}"), QosSet::default());
        assert_eq!(read(r#"{"max_iops": null}"#), QosSet { max_iops: Some(None), ..QosSet::default() });
        let set = QosSet { max_iops: Some(Some(5)), max_bytes: Some(None), ..QosSet::default() };
        assert_eq!(read(&serde_json::to_string(&set).unwrap()), set);
    }
}
