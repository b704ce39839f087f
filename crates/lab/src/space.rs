//! The bytes of a run, of which there are three kinds that reports have mixed: *logical*, what all volumes are large; *written*, what was written to
//! them, again and again; *physical*, what the target takes for them, as it says itself.
//!
//! *Never*: computes one of them from another. *May be used by*: the command line and reports.

use crate::bundle::Bundle;
use crate::measure::Point;
use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use utoipa::ToSchema;

/// Bytes of the blocks in which a file's allocation is told (POSIX, `st_blocks` as Linux has it).
const ALLOCATED_UNIT: u64 = 512;

/// What a target took when a run was over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Occupied {
    /// As it was named.
    pub target: String,
    /// By what it says itself; nothing where it does not tell.
    pub bytes: Option<u64>,
}

/// The bytes of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Space {
    /// Of all volumes, as large as they are.
    pub logical: u64,
    /// That were written and acknowledged in the whole run; nothing of a bundle that does not tell.
    pub written: Option<u64>,
    /// What each target took in the end; empty where none was asked.
    pub physical: Vec<Occupied>,
}

impl Space {
    /// Of a run of a load on volumes; nothing of a database.
    pub fn of(bundle: &Bundle) -> Option<Self> {
        if bundle.points.iter().any(|point| point.database.is_some()) {
            return None;
        }
        let written = |point: &Point| point.written;
        Some(Space {
            logical: bundle.run.bytes,
            written: bundle
                .points
                .iter()
                .map(written)
                .sum::<Option<u64>>()
                .filter(|_| !bundle.points.is_empty()),
            physical: bundle.run.occupied.clone(),
        })
    }
}

/// What a file takes of its file system; nothing where that does not tell.
pub fn of_file(path: &Path) -> Option<u64> {
    std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|meta| meta.blocks() * ALLOCATED_UNIT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::tests::bundle;
    use crate::measure::tests::point;

    /// Goal: what was written is told where all of it is known, and each kind by itself.
    #[test]
    fn each_kind_of_bytes_is_told_by_itself() {
        let wrote = |bytes| Point { written: bytes, ..point(10) };
        let told = Space::of(&bundle(vec![wrote(Some(9000)), wrote(Some(500))])).unwrap();
        assert_eq!(told, Space { logical: 4096, written: Some(9500), physical: Vec::new() });
        assert_eq!(Space::of(&bundle(vec![wrote(Some(1)), wrote(None)])).unwrap().written, None);
        assert_eq!(Space::of(&bundle(Vec::new())).unwrap().written, None);
    }

    #[test]
    fn a_file_takes_what_was_written_to_it_and_not_its_length() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::File::create(&path).unwrap().set_len(1 << 30).unwrap();
        assert!(of_file(&path).unwrap() < 1 << 20);
        assert_eq!((of_file(dir.path()), of_file(&dir.path().join("none"))), (None, None));
    }
}
