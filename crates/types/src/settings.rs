//! What a user may choose for a disk.

use crate::{Name, QOS_DEFAULT};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// At once; durable after a flush, like a disk with a volatile cache. It outlives the server's process, not the machine.
    #[default]
    Flush,
    /// Only when durable.
    Ack,
}

/// How a frame's payload is compressed. Whatever does not shrink is stored raw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Compression {
    /// Stored as it is.
    None,
    /// LZ4, fast both ways.
    #[default]
    Lz4,
    /// Zstandard at a level from 1 to 19.
    Zstd(u8),
}

/// Zstandard's level where none is named.
const ZSTD_LEVEL_DEFAULT: u8 = 3;
const ZSTD_LEVEL_MAX: u8 = 19;

macro_rules! serde_by_text {
    ($type:ty) => {
        impl TryFrom<String> for $type {
            type Error = String;
            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }
        impl From<$type> for String {
            fn from(value: $type) -> String {
                value.to_string()
            }
        }
    };
}
serde_by_text!(Compression);

impl FromStr for Durability {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "flush" => Ok(Durability::Flush),
            "ack" => Ok(Durability::Ack),
            _ => Err(format!("'{text}' is not a durability; choose flush or ack")),
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Durability::Flush => "flush",
            Durability::Ack => "ack",
        })
    }
}

impl FromStr for Compression {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "'{text}' is not a compression; choose none, lz4, zstd or zstd:1 to zstd:{ZSTD_LEVEL_MAX}"
            )
        };
        match text {
            "none" => Ok(Compression::None),
            "lz4" => Ok(Compression::Lz4),
            "zstd" => Ok(Compression::Zstd(ZSTD_LEVEL_DEFAULT)),
            _ => {
                let level = text.strip_prefix("zstd:").and_then(|l| l.parse().ok()).ok_or_else(wrong)?;
                if (1..=ZSTD_LEVEL_MAX).contains(&level) {
                    Ok(Compression::Zstd(level))
                } else {
                    Err(wrong())
                }
            }
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Compression::None => f.write_str("none"),
            Compression::Lz4 => f.write_str("lz4"),
            Compression::Zstd(level) => write!(f, "zstd:{level}"),
        }
    }
}

/// What a disk is made with, and what can be changed of it while it lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskSettings {
    /// When its writes are acknowledged.
    pub durability: Durability,
    /// How what is written from now on is compressed.
    pub compression: Compression,
    /// Whether what is written from now on is stored only once in the pool.
    pub dedupe: bool,
    /// Its class of service.
    pub qos: Name,
    /// Whether the pool keeps room for its whole size.
    #[serde(default)]
    pub reserve: bool,
}

impl Default for DiskSettings {
    fn default() -> Self {
        DiskSettings {
            durability: Durability::default(),
            compression: Compression::default(),
            dedupe: true,
            qos: Name::new(QOS_DEFAULT).expect("letters make a name"),
            reserve: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_reads_and_prints() {
        for text in ["none", "lz4", "zstd:1", "zstd:19"] {
            assert_eq!(text.parse::<Compression>().unwrap().to_string(), text);
        }
        assert_eq!("zstd".parse(), Ok(Compression::Zstd(3)));
        for bad in ["", "gzip", "zstd:0", "zstd:20", "zstd:", "LZ4"] {
            assert!(bad.parse::<Compression>().is_err(), "{bad}");
        }
    }
}
