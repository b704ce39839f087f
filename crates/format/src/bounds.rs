//! Numbers of disks as they are read: none may be what no writer would have put there, because whoever goes on with them adds to them.

use crate::entry::BIRTH_MAX;
use crate::wire::Reader;
use stonefold_types::{BLOCK_BYTES, DISK_BYTES_MAX, Result};

/// The highest number of a journal's record: a thousand million each second reach it in a century and a half.
pub(crate) const LSN_MAX: u64 = 1 << 62;

/// The number of a record.
pub(crate) fn lsn(reader: &mut Reader<'_>) -> Result<u64> {
    let lsn = reader.u64()?;
    if lsn <= LSN_MAX { Ok(lsn) } else { Err(reader.malformed(&format!("record number {lsn}"))) }
}

/// The number of a snapshot, and so of an epoch.
pub(crate) fn epoch(reader: &mut Reader<'_>) -> Result<u64> {
    let epoch = reader.u64()?;
    if epoch < BIRTH_MAX { Ok(epoch) } else { Err(reader.malformed(&format!("snapshot number {epoch}"))) }
}

/// The size of a disk, in bytes.
pub(crate) fn disk_size(reader: &mut Reader<'_>) -> Result<u64> {
    let size = reader.u64()?;
    if size <= DISK_BYTES_MAX { Ok(size) } else { Err(reader.malformed(&format!("a disk of {size} bytes"))) }
}

/// The first block of an extent and how many there are: some, and none beyond the largest disk.
pub(crate) fn extent(reader: &mut Reader<'_>) -> Result<(u64, u64)> {
    let (block, blocks) = (reader.u64()?, reader.u64()?);
    let end = block.checked_add(blocks).filter(|end| *end <= DISK_BYTES_MAX / BLOCK_BYTES as u64);
    match end {
        Some(_) if blocks > 0 => Ok((block, blocks)),
        _ => Err(reader.malformed(&format!("{blocks} blocks from {block}"))),
    }
}
