//! A disk's snapshots: their records, and the pages that hold them, objects `snapshots/NUMBER`.
//!
//! ```text
//! head ──> recent records                     the newest few
//!  └─────> directory ──> page ──> records     all the others, oldest first
//! ```
//! Both are documents ([`crate::document`]) that never change: what is to be changed is written anew under another
//! number, from the count that segments and ledgers have too, and the head is what makes it count. Body, version 1:
//! ```text
//! page      = disk id 8 · its own number 8 · count 4 · record …
//! directory = disk id 8 · its own number 8 · count 4 · page ref …
//! record    = id 8 · state 1 · name text · created 8 · size 8 · locked until 8 · root entry 16 · mapped blocks 8 · refs: deaths
//! page ref  = number 8 · first id 8 · last id 8 · records 4
//! ```
//! *State*: 0 alive, 1 removed, and waiting for reclaim. *Locked until*: nanoseconds since 1970 by the pool's trusted
//! time ([`crate::pool`]); 0 when it is not locked. *Deaths*: see [`crate::head`].
//! Ids ascend through all pages of a disk, and a ref says exactly which its page holds: so when a page is damaged it
//! is known which snapshots are missing, and a page that went to a wrong place is not believed.

use crate::bounds::{disk_size, epoch};
use crate::document::{self, DocumentKind};
use crate::entry::{ENTRY_BYTES, Entry};
use crate::ledger::{LedgerRef, put_refs, refs};
use crate::wire::{Reader, Writer};
use stonefold_types::{Error, Kind, Name, Result};

const VERSION: u16 = 1;

/// A map's root and what it maps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// The map's top node, or a hole.
    pub root: Entry,
    /// Blocks mapped below it.
    pub mapped_blocks: u64,
}

/// A snapshot, materialised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRecord {
    /// Unique in its disk, growing.
    pub id: u64,
    /// Removed, and waiting for reclaim.
    pub removed: bool,
    /// Unique in its disk.
    pub name: Name,
    /// Nanoseconds since 1970.
    pub created: u64,
    /// The disk's size then.
    pub size_bytes: u64,
    /// Nanoseconds since 1970; not to be removed before. 0: not locked.
    pub locked_until: u64,
    /// What it held.
    pub commit: Commit,
    /// What died between the snapshot before it and this one, and is held by an earlier one.
    pub deaths: Vec<LedgerRef>,
}

/// Names a page or a directory, and says which snapshots are in it or below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRef {
    /// The object's number.
    pub number: u64,
    /// The first snapshot's id.
    pub first: u64,
    /// The last snapshot's id.
    pub last: u64,
    /// How many snapshots.
    pub records: u32,
}

impl PageRef {
    /// Of a page of these records, which ascend; there is at least one.
    pub fn of_records(number: u64, records: &[SnapshotRecord]) -> Self {
        let (first, last) = (records[0].id, records[records.len() - 1].id);
        PageRef { number, first, last, records: records.len() as u32 }
    }

    /// Of a directory of these pages, which ascend; there is at least one.
    pub fn of_pages(number: u64, pages: &[PageRef]) -> Self {
        let (first, last) = (pages[0].first, pages[pages.len() - 1].last);
        PageRef { number, first, last, records: pages.iter().map(|page| page.records).sum() }
    }
}

/// The document of a page. Records ascend.
pub fn encode_page(disk: u64, number: u64, records: &[SnapshotRecord]) -> Vec<u8> {
    let mut body = front(disk, number, records.len());
    records.iter().for_each(|record| put_record(&mut body, record));
    document::seal(DocumentKind::SnapshotPage, VERSION, &body)
}

/// Reads the document of the page that `at` names.
pub fn decode_page(bytes: &[u8], disk: u64, at: &PageRef) -> Result<Vec<SnapshotRecord>> {
    let (_, body) = document::open(bytes, DocumentKind::SnapshotPage, VERSION)?;
    let mut reader = Reader::new(body, "a page of snapshots");
    let count = check_front(&mut reader, disk, at.number)?;
    let records = (0..count).map(|_| record(&mut reader)).collect::<Result<Vec<_>>>()?;
    reader.end()?;
    let found = (!records.is_empty()).then(|| PageRef::of_records(at.number, &records));
    check_content(at, found, records.windows(2).all(|pair| pair[0].id < pair[1].id))?;
    Ok(records)
}

/// The document of a directory. Pages ascend.
pub fn encode_directory(disk: u64, number: u64, pages: &[PageRef]) -> Vec<u8> {
    let mut body = front(disk, number, pages.len());
    pages.iter().for_each(|page| put_ref(&mut body, page));
    document::seal(DocumentKind::SnapshotDirectory, VERSION, &body)
}

/// Reads the document of the directory that `at` names.
pub fn decode_directory(bytes: &[u8], disk: u64, at: &PageRef) -> Result<Vec<PageRef>> {
    let (_, body) = document::open(bytes, DocumentKind::SnapshotDirectory, VERSION)?;
    let mut reader = Reader::new(body, "a directory of snapshots");
    let count = check_front(&mut reader, disk, at.number)?;
    let pages = (0..count).map(|_| page_ref(&mut reader)).collect::<Result<Vec<_>>>()?;
    reader.end()?;
    let records = pages.iter().try_fold(0u32, |sum, page| sum.checked_add(page.records));
    let found = (!pages.is_empty() && records.is_some()).then(|| PageRef::of_pages(at.number, &pages));
    check_content(at, found, ascend(&pages))?;
    Ok(pages)
}

fn front(disk: u64, number: u64, count: usize) -> Vec<u8> {
    let mut body = Vec::new();
    body.u64(disk);
    body.u64(number);
    body.u32(count as u32);
    body
}

fn check_front(reader: &mut Reader<'_>, disk: u64, number: u64) -> Result<u32> {
    if (reader.u64()?, reader.u64()?) != (disk, number) {
        return Err(reader.malformed("it belongs to another place"));
    }
    reader.u32()
}

fn check_content(at: &PageRef, found: Option<PageRef>, ascends: bool) -> Result<()> {
    if ascends && found == Some(*at) {
        return Ok(());
    }
    Err(Error::new(Kind::Corrupt, format!("{at:?} does not hold what it should: {found:?}")))
}

/// Whether pages follow one another, and none is empty.
fn ascend(pages: &[PageRef]) -> bool {
    pages.iter().all(|page| page.first <= page.last && page.records > 0)
        && pages.windows(2).all(|pair| pair[0].last < pair[1].first)
}

/// What the head says of its list: its length in bytes is bounded by the head's.
pub(crate) fn put_list(body: &mut Vec<u8>, directories: &[PageRef], recent: &[SnapshotRecord]) {
    body.u32(directories.len() as u32);
    directories.iter().for_each(|at| put_ref(body, at));
    body.u32(recent.len() as u32);
    recent.iter().for_each(|record| put_record(body, record));
}

pub(crate) fn list(reader: &mut Reader<'_>) -> Result<(Vec<PageRef>, Vec<SnapshotRecord>)> {
    let directories = (0..reader.u32()?).map(|_| page_ref(reader)).collect::<Result<Vec<_>>>()?;
    let recent = (0..reader.u32()?).map(|_| record(reader)).collect::<Result<Vec<_>>>()?;
    let paged = directories.last().map_or(0, |at| at.last);
    let younger = recent.first().is_none_or(|record| record.id > paged || directories.is_empty());
    if !ascend(&directories) || !younger || !recent.windows(2).all(|pair| pair[0].id < pair[1].id) {
        return Err(reader.malformed("its snapshots are not in order"));
    }
    Ok((directories, recent))
}

fn put_ref(body: &mut Vec<u8>, at: &PageRef) {
    body.u64(at.number);
    body.u64(at.first);
    body.u64(at.last);
    body.u32(at.records);
}

fn page_ref(reader: &mut Reader<'_>) -> Result<PageRef> {
    Ok(PageRef { number: reader.u64()?, first: epoch(reader)?, last: epoch(reader)?, records: reader.u32()? })
}

fn put_record(body: &mut Vec<u8>, record: &SnapshotRecord) {
    body.u64(record.id);
    body.u8(record.removed.into());
    body.text(record.name.as_str());
    body.u64(record.created);
    body.u64(record.size_bytes);
    body.u64(record.locked_until);
    put_commit(body, &record.commit);
    put_refs(body, &record.deaths);
}

fn record(reader: &mut Reader<'_>) -> Result<SnapshotRecord> {
    Ok(SnapshotRecord {
        id: epoch(reader)?,
        removed: reader.u8()? != 0,
        name: Name::new(reader.text()?)?,
        created: reader.u64()?,
        size_bytes: disk_size(reader)?,
        locked_until: reader.u64()?,
        commit: commit(reader)?,
        deaths: refs(reader)?,
    })
}

pub(crate) fn put_commit(body: &mut Vec<u8>, commit: &Commit) {
    body.put(&commit.root.encode());
    body.u64(commit.mapped_blocks);
}

pub(crate) fn commit(reader: &mut Reader<'_>) -> Result<Commit> {
    let root = reader.bytes(ENTRY_BYTES)?.try_into().expect("16 bytes");
    Ok(Commit { root: Entry::decode(root), mapped_blocks: reader.u64()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Hint, SegmentId};
    use proptest::prelude::*;

    fn record(id: u64) -> SnapshotRecord {
        SnapshotRecord {
            id,
            removed: id % 2 == 1,
            name: Name::new(&format!("s{id}")).unwrap(),
            created: 4,
            size_bytes: 1 << 20,
            locked_until: id * 1000,
            commit: Commit { root: Entry::new(SegmentId(5), 6, Hint::new(64, 900, 0)), mapped_blocks: 17 },
            deaths: vec![LedgerRef { id: 9, offset: 1, length: 2, addresses: 3 }; id as usize % 3],
        }
    }

    /// Goal: a page and a directory come back as they were, for their own disk, number and range, and for no other.
    #[test]
    fn pages_come_back_only_where_they_belong() {
        let records: Vec<SnapshotRecord> = [3, 4, 9].map(record).to_vec();
        let at = PageRef::of_records(70, &records);
        let bytes = encode_page(1, 70, &records);
        assert_eq!(decode_page(&bytes, 1, &at).unwrap(), records);
        let pages = vec![at, PageRef { number: 71, first: 12, last: 12, records: 1 }];
        let above = PageRef::of_pages(72, &pages);
        assert_eq!((above.first, above.last, above.records), (3, 12, 4));
        let directory = encode_directory(1, 72, &pages);
        assert_eq!(decode_directory(&directory, 1, &above).unwrap(), pages);

        assert!(decode_page(&bytes, 2, &at).is_err(), "another disk");
        assert!(decode_page(&directory, 1, &above).is_err(), "another kind");
        for wrong in [
            PageRef { number: 71, ..at },
            PageRef { first: 2, ..at },
            PageRef { last: 10, ..at },
            PageRef { records: 4, ..at },
        ] {
            assert_eq!(decode_page(&bytes, 1, &wrong).unwrap_err().kind(), Kind::Corrupt, "{wrong:?}");
        }
        let out_of_order = encode_page(1, 70, &[4, 3].map(record));
        assert!(decode_page(&out_of_order, 1, &PageRef { first: 4, last: 3, records: 2, ..at }).is_err());
        assert!(decode_page(&encode_page(1, 70, &[]), 1, &at).is_err());
    }

    proptest! {
        #[test]
        fn noise_never_panics(body in proptest::collection::vec(any::<u8>(), 0..300)) {
            let at = PageRef { number: 1, first: 1, last: 2, records: 2 };
            let page = document::seal(DocumentKind::SnapshotPage, VERSION, &body);
            let directory = document::seal(DocumentKind::SnapshotDirectory, VERSION, &body);
            prop_assert!(decode_page(&page, 7, &at).is_err() && decode_directory(&directory, 7, &at).is_err());
        }
    }
}
