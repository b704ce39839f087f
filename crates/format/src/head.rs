//! A disk's head, object `head/NAME`: all that is mutable about a disk. Of a disk that was removed, until reclaim has
//! given back what it held, object `gone/ID`.
//!
//! Body, version 1, in order:
//! ```text
//! disk id 8 · domain id 2 · name text · created 8 · size 8 · durability 1 · compression 1+1 · flags 1 · qos class text
//! lease: owner 16 · epoch 8
//! origin: 1, then name text · snapshot text when 1
//! base: 1, then disk id 8 · epoch 8 when 1
//! folded lsn 8 · root entry 16 · mapped blocks 8 · next snapshot id 8 · reclaimed 8
//! refs: changes · refs: deaths
//! directories: count 4, each a page ref · recent: count 4, each a record        both of [`crate::snapshots`]
//! refs = count 4, each: object 8 · offset 4 · length 4 · addresses 4
//! ```
//! `folded lsn`: the journal's records up to and including this number are in `root` and in the snapshots; a
//! replay skips them. A root of a disk with nothing stored is a hole.
//!
//! *Flags*: 1 deduplicated; 2 the pool keeps room for its whole size.
//!
//! *Epochs*: a disk's time is cut by its snapshots; the epoch that ends with a snapshot has its number. *Base*: the snapshot (disk
//! and number) a clone began as; what was born in that epoch or before belongs to the other disk. *Changes*: sections of the
//! [ledger](crate::ledger) that reclaim has not taken over. *Deaths*: sections about what died in the epochs after the snapshot before, up to this
//! one, or up to now. *Reclaimed*: of a removed disk, blocks before this one were given back.
//!
//! *Lease*: who may write the disk, and how many have been that, this one included. Journal records carry the epoch; those of
//! another than the head's are void. While a pool has one gateway, the lock of the pool says who that is, and the owner is zeros.
//!
//! *Directories* name the pages that hold all but the *recent* snapshots, oldest first, so that a head is as short behind
//! 100,000 snapshots as behind one. Every recent snapshot is younger than all that a directory names.

use crate::bounds::{disk_size, epoch, lsn};
use crate::document::{self, DocumentKind};
use crate::domains::{compression, put_compression};
use crate::ledger::{LedgerRef, put_refs, refs};
use crate::snapshots::{Commit, PageRef, SnapshotRecord, commit, list, put_commit, put_list};
use crate::wire::{Reader, Writer};
use stonefold_types::{DiskSettings, Durability, Name, Result, SnapshotName};

const VERSION: u16 = 1;

const DEDUPE: u8 = 1;
const RESERVE: u8 = 2;

/// All that is mutable about a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Never reused; what journal records name.
    pub id: u64,
    /// The domain it was made in, for good.
    pub domain: u16,
    /// Unique in the pool while the disk lives.
    pub name: Name,
    /// Nanoseconds since 1970.
    pub created: u64,
    /// In bytes, a multiple of 4 KiB.
    pub size_bytes: u64,
    /// As chosen by the user.
    pub settings: DiskSettings,
    /// Who may write it.
    pub lease: Lease,
    /// The snapshot it began as.
    pub origin: Option<SnapshotName>,
    /// Of a clone: the snapshot it began as.
    pub base: Option<Base>,
    /// Journal records up to this one are in the roots.
    pub folded_lsn: u64,
    /// The newest commit.
    pub commit: Commit,
    /// The next snapshot's number, and the current epoch.
    pub next_snapshot_id: u64,
    /// Of a removed disk: blocks before this one were given back.
    pub reclaimed: u64,
    /// What reclaim has not taken over yet, oldest first.
    pub changes: Vec<LedgerRef>,
    /// What died since the newest snapshot and is held by one.
    pub deaths: Vec<LedgerRef>,
    /// Where all snapshots but the recent ones are, oldest first.
    pub directories: Vec<PageRef>,
    /// The newest snapshots, oldest first.
    pub recent: Vec<SnapshotRecord>,
}

/// Who may write a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The gateway; zeros: whoever holds the pool's lock.
    pub owner: [u8; 16],
    /// One higher with each new owner; from 1.
    pub epoch: u64,
}

impl Default for Lease {
    fn default() -> Self {
        Lease { owner: [0; 16], epoch: 1 }
    }
}

/// The snapshot that a clone began as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    /// The other disk's id.
    pub disk: u64,
    /// The snapshot's number; what was born later is the clone's own.
    pub epoch: u64,
}

impl Head {
    /// The document.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.u64(self.id);
        body.u16(self.domain);
        body.text(self.name.as_str());
        body.u64(self.created);
        body.u64(self.size_bytes);
        put_settings(&mut body, &self.settings);
        body.put(&self.lease.owner);
        body.u64(self.lease.epoch);
        body.u8(self.origin.is_some().into());
        if let Some(origin) = &self.origin {
            body.text(origin.disk.as_str());
            body.text(origin.snapshot.as_str());
        }
        body.u8(self.base.is_some().into());
        if let Some(base) = &self.base {
            body.u64(base.disk);
            body.u64(base.epoch);
        }
        body.u64(self.folded_lsn);
        put_commit(&mut body, &self.commit);
        body.u64(self.next_snapshot_id);
        body.u64(self.reclaimed);
        put_refs(&mut body, &self.changes);
        put_refs(&mut body, &self.deaths);
        put_list(&mut body, &self.directories, &self.recent);
        document::seal(DocumentKind::Head, VERSION, &body)
    }

    /// Reads the document.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (_, body) = document::open(bytes, DocumentKind::Head, VERSION)?;
        let mut reader = Reader::new(body, "a disk's head");
        let mut head = Head {
            id: reader.u64()?,
            domain: reader.u16()?,
            name: Name::new(reader.text()?)?,
            created: reader.u64()?,
            size_bytes: disk_size(&mut reader)?,
            settings: settings(&mut reader)?,
            lease: lease(&mut reader)?,
            origin: origin(&mut reader)?,
            base: base(&mut reader)?,
            folded_lsn: lsn(&mut reader)?,
            commit: commit(&mut reader)?,
            next_snapshot_id: epoch(&mut reader)?,
            reclaimed: reader.u64()?,
            changes: refs(&mut reader)?,
            deaths: refs(&mut reader)?,
            directories: Vec::new(),
            recent: Vec::new(),
        };
        (head.directories, head.recent) = list(&mut reader)?;
        reader.end()?;
        Ok(head)
    }
}

fn put_settings(body: &mut Vec<u8>, settings: &DiskSettings) {
    body.u8(match settings.durability {
        Durability::Flush => 0,
        Durability::Ack => 1,
    });
    put_compression(body, settings.compression);
    let flag = |is: bool, flag: u8| if is { flag } else { 0 };
    body.u8(flag(settings.dedupe, DEDUPE) | flag(settings.reserve, RESERVE));
    body.text(settings.qos.as_str());
}

fn settings(reader: &mut Reader<'_>) -> Result<DiskSettings> {
    let durability = match reader.u8()? {
        0 => Durability::Flush,
        1 => Durability::Ack,
        other => return Err(reader.malformed(&format!("durability {other}"))),
    };
    let compression = compression(reader)?;
    let flags = reader.u8()?;
    if flags & !(DEDUPE | RESERVE) != 0 {
        return Err(reader.malformed(&format!("flags {flags:#x}")));
    }
    let (dedupe, reserve) = (flags & DEDUPE != 0, flags & RESERVE != 0);
    let qos = Name::new(reader.text()?)?;
    Ok(DiskSettings { durability, compression, dedupe, qos, reserve })
}

fn lease(reader: &mut Reader<'_>) -> Result<Lease> {
    let lease = Lease { owner: reader.id()?, epoch: reader.u64()? };
    if lease.epoch == 0 { Err(reader.malformed("a lease of no epoch")) } else { Ok(lease) }
}

fn origin(reader: &mut Reader<'_>) -> Result<Option<SnapshotName>> {
    match reader.u8()? {
        0 => Ok(None),
        _ => {
            Ok(Some(SnapshotName { disk: Name::new(reader.text()?)?, snapshot: Name::new(reader.text()?)? }))
        }
    }
}

fn base(reader: &mut Reader<'_>) -> Result<Option<Base>> {
    match reader.u8()? {
        0 => Ok(None),
        _ => Ok(Some(Base { disk: reader.u64()?, epoch: epoch(reader)? })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Entry, Hint, SegmentId};
    use stonefold_types::Compression;

    #[test]
    fn comes_back() {
        let commit = Commit { root: Entry::new(SegmentId(5), 6, Hint::new(64, 900, 0)), mapped_blocks: 17 };
        let name = |text| Name::new(text).unwrap();
        let at = |id| LedgerRef { id, offset: 1, length: 2, addresses: 3 };
        let head = Head {
            id: 1,
            domain: 7,
            name: name("web"),
            created: 2,
            size_bytes: 3 << 20,
            settings: DiskSettings {
                durability: Durability::Ack,
                compression: Compression::Zstd(4),
                dedupe: false,
                qos: name("critical"),
                reserve: true,
            },
            lease: Lease { owner: [6; 16], epoch: 4 },
            origin: Some(SnapshotName { disk: name("golden"), snapshot: name("v1") }),
            base: Some(Base { disk: 12, epoch: 3 }),
            folded_lsn: 99,
            commit,
            next_snapshot_id: 8,
            reclaimed: 77,
            changes: vec![at(1), at(2)],
            deaths: vec![at(3)],
            directories: vec![PageRef { number: 9, first: 2, last: 6, records: 3 }],
            recent: vec![SnapshotRecord {
                id: 7,
                removed: true,
                name: name("mon"),
                created: 4,
                size_bytes: 1 << 20,
                locked_until: 0,
                commit,
                deaths: vec![at(4), at(5)],
            }],
        };
        assert_eq!(Head::decode(&head.encode()).unwrap(), head);
        let disordered =
            Head { directories: vec![PageRef { number: 9, first: 2, last: 7, records: 3 }], ..head };
        assert!(
            Head::decode(&disordered.encode()).is_err(),
            "a recent snapshot is younger than all in pages"
        );
    }
}
