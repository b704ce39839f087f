//! The envelope of a small mutable record.
//!
//! ```text
//!  0        8        16      18       20       24
//!  +--------+--------+-------+--------+--------+---------+
//!  | check  | magic  | kind  | version| length | body …  |
//!  +--------+--------+-------+--------+--------+---------+
//! ```
//! `check` covers everything behind it. `version` counts the changes of a kind's body: a reader decodes every
//! version up to its own and refuses later ones by name.

use stonefold_types::{Error, Kind, Result};
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: [u8; 8] = *b"SFDOCUM1";
const HEADER: usize = 24;

/// What a document is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum DocumentKind {
    /// The pool's own record.
    Pool = 1,
    /// A disk's head.
    Head = 2,
    /// What is known of references to segments.
    Accounts = 3,
    /// The tokens of the API.
    Tokens = 4,
    /// The classes of service.
    Qos = 5,
    /// The domains of a pool and their wrapped keys.
    Domains = 6,
    /// How full the pool has been.
    Growth = 7,
    /// Some of a disk's snapshots.
    SnapshotPage = 8,
    /// Where some pages of a disk's snapshots are.
    SnapshotDirectory = 9,
    /// How far the scrub has come.
    Scrub = 10,
    /// An entry of the catalog.
    Catalog = 11,
}

/// Wraps a body.
pub fn seal(kind: DocumentKind, version: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    bytes[8..16].copy_from_slice(&MAGIC);
    bytes[16..18].copy_from_slice(&(kind as u16).to_le_bytes());
    bytes[18..20].copy_from_slice(&version.to_le_bytes());
    bytes[20..24].copy_from_slice(&(body.len() as u32).to_le_bytes());
    bytes.extend_from_slice(body);
    let check = xxh3_64(&bytes[8..]);
    bytes[..8].copy_from_slice(&check.to_le_bytes());
    bytes
}

/// Verifies and unwraps; returns the version and the body. Fails with `Corrupt`, or with `Unsupported` when the
/// document is sound but later than `version_max`.
pub fn open(bytes: &[u8], kind: DocumentKind, version_max: u16) -> Result<(u16, &[u8])> {
    let wrong = |why: &str| Error::new(Kind::Corrupt, format!("the {kind:?} record {why}"));
    let header: &[u8; HEADER] = bytes.first_chunk().ok_or_else(|| wrong("is cut short"))?;
    if header[8..16] != MAGIC {
        return Err(wrong("does not begin with its magic"));
    }
    if xxh3_64(&bytes[8..]).to_le_bytes() != header[..8] {
        return Err(wrong("fails its checksum"));
    }
    if header[16..18] != (kind as u16).to_le_bytes() {
        return Err(wrong("is a record of another kind"));
    }
    let version = u16::from_le_bytes([header[18], header[19]]);
    if version > version_max {
        return Err(Error::new(Kind::Unsupported, format!("the {kind:?} record has version {version}"))
            .remedy(format!("this build reads up to version {version_max}: use a newer stonefold")));
    }
    Ok((version, &bytes[HEADER..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_versions_other_kinds_and_damage_are_told_apart() {
        let bytes = seal(DocumentKind::Pool, 2, b"hello");
        assert_eq!(open(&bytes, DocumentKind::Pool, 2).unwrap(), (2, &b"hello"[..]));
        assert_eq!(open(&bytes, DocumentKind::Pool, 1).unwrap_err().kind(), Kind::Unsupported);
        assert_eq!(open(&bytes, DocumentKind::Head, 2).unwrap_err().kind(), Kind::Corrupt);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(open(&damaged, DocumentKind::Pool, 9).unwrap_err().kind(), Kind::Corrupt, "byte {at}");
            assert!(open(&bytes[..at], DocumentKind::Pool, 9).is_err());
        }
    }
}
