//! What a disk is copied from: an export of somebody's, a point's disk, in another pool that this process has open or in this one, or a disk of a machine
//! that is reached by SSH.

use crate::nbd::{Client, Read, Run};
use crate::ssh::RemoteDisk;
use std::ops::Range;
use stonefold_store::Attachment;
use stonefold_types::{BLOCK_BYTES, Result};

/// The longest read of a snapshot, or of a machine that starts a program for each, in bytes.
const LONGEST: u64 = 1 << 20;
/// Of an export: longer ones are no faster, and a guest whose disk it is waits behind them.
const LONGEST_OF_EXPORT: u64 = 256 << 10;

/// See the module.
pub(crate) enum Origin {
    Export(Client),
    Snapshot(Snapshot),
    /// It tells sums of what it holds, by which what differs is found.
    Remote(RemoteDisk),
}

/// A disk of a point.
pub(crate) struct Snapshot {
    disk: Attachment,
    bytes: u64,
    /// What differs from the last point, of another pool from the last that both have, in order; nothing where that is not known.
    changed: Option<Vec<Range<u64>>>,
}

impl Snapshot {
    /// Of a disk of so many bytes.
    pub(crate) fn new(disk: Attachment, bytes: u64, changed: Option<Vec<Range<u64>>>) -> Self {
        Snapshot { disk, bytes, changed }
    }

    async fn runs(&self, offset: u64, len: u64) -> Result<Vec<Run>> {
        let (mut runs, mut at) = (Vec::new(), offset);
        for extent in self.disk.extents(offset, len).await? {
            let end = at + extent.bytes;
            while at < end {
                let (changed, until) = changed_at(self.changed.as_deref(), at, end);
                runs.push(Run { bytes: until - at, zero: extent.hole, changed });
                at = until;
            }
        }
        Ok(runs)
    }
}

/// Whether a place has changed, and up to where that holds, `end` at most.
fn changed_at(changed: Option<&[Range<u64>]>, at: u64, end: u64) -> (bool, u64) {
    let Some(changed) = changed else { return (true, end) };
    let next = changed.partition_point(|range| range.end <= at);
    match changed.get(next) {
        Some(range) if range.start <= at => (true, end.min(range.end)),
        Some(range) => (false, end.min(range.start)),
        None => (false, end),
    }
}

impl Origin {
    /// How long it is.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Origin::Export(client) => client.export().bytes,
            Origin::Snapshot(snapshot) => snapshot.bytes,
            Origin::Remote(disk) => disk.bytes(),
        }
    }

    /// What reads of it are multiples of, in bytes.
    pub(crate) fn block_bytes(&self) -> u64 {
        match self {
            Origin::Export(client) => client.export().block_bytes.into(),
            Origin::Snapshot(_) | Origin::Remote(_) => BLOCK_BYTES as u64,
        }
    }

    /// The longest read that is asked of it, in bytes.
    pub(crate) fn read_bytes_max(&self) -> u64 {
        match self {
            Origin::Export(client) => LONGEST_OF_EXPORT.min(client.export().io_bytes_max.into()),
            Origin::Snapshot(_) | Origin::Remote(_) => LONGEST,
        }
    }

    /// Whether it tells what reads as zeros.
    pub(crate) fn tells_zeros(&self) -> bool {
        match self {
            Origin::Export(client) => client.export().allocation.is_some(),
            Origin::Snapshot(_) => true,
            Origin::Remote(_) => false,
        }
    }

    /// Whether it tells what has changed since the last point.
    pub(crate) fn tells_changes(&self) -> bool {
        match self {
            Origin::Export(client) => client.export().changed.is_some(),
            Origin::Snapshot(snapshot) => snapshot.changed.is_some(),
            Origin::Remote(_) => false,
        }
    }

    /// Reads whole blocks of it, no more than one read may have.
    pub(crate) async fn read(&self, offset: u64, len: u32) -> Result<Read> {
        match self {
            Origin::Export(client) => client.read(offset, len).await,
            Origin::Snapshot(snapshot) => {
                let mut bytes = vec![0; len as usize];
                snapshot.disk.read(offset, &mut bytes).await?;
                Ok(Read { bytes, sent: len.into() })
            }
            Origin::Remote(disk) => disk.read(offset, len).await,
        }
    }

    /// What of a range reads as zeros, and what has changed, from its beginning on: at least one run, and no more than the range.
    pub(crate) async fn runs(&self, offset: u64, len: u32) -> Result<Vec<Run>> {
        match self {
            Origin::Export(client) => client.runs(offset, len).await,
            Origin::Snapshot(snapshot) => snapshot.runs(offset, len.into()).await,
            // It tells nothing of that.
            Origin::Remote(_) => Ok(vec![Run { bytes: len.into(), zero: false, changed: true }]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_changed_is_told_up_to_where_it_holds() {
        let changed = [10..20, 30..40];
        let of = |at, end| changed_at(Some(&changed), at, end);
        assert_eq!((of(0, 50), of(0, 5)), ((false, 10), (false, 5)));
        assert_eq!((of(10, 50), of(15, 18)), ((true, 20), (true, 18)));
        assert_eq!((of(20, 50), of(39, 50), of(40, 50)), ((false, 30), (true, 40), (false, 50)));
        assert_eq!(changed_at(None, 3, 7), (true, 7));
        assert_eq!(changed_at(Some(&[]), 3, 7), (false, 7));
    }
}
