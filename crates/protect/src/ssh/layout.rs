//! Where the bytes of each disk of a point are read: a disk that boots is put together of the disk itself and of its volumes' snapshots.
//!
//! | of a disk | is read from |
//! |---|---|
//! | the table of partitions, what lies between them, what is mounted and only read | itself |
//! | a partition whose file system is mounted and written, or that nobody has mounted | itself, and its sum before and after is one; a large one that nobody has mounted is told not to have been watched |
//! | what is swapped to | its first page alone: the rest are zeros |
//! | LVM's own data of a partition (from its beginning to the first extent, and behind the last) | a copy from before the snapshots: else they would be in it |
//! | extents of a volume that is active | its snapshot |
//! | extents of one that is not | itself |
//! | extents of none | zeros: what the snapshots are kept in is there |
//!
//! *Never*: leaves out what it cannot read as of one instant, without saying so: it is refused by its name.

mod chosen;
mod pieces;

pub(super) use pieces::{Piece, Place, part_of};

use super::facts::{Block, Facts, Is, Logical, Physical, SECTOR};
use chosen::disks_in_use;
use pieces::put;
use std::collections::{BTreeMap, BTreeSet};
use stonefold_types::{Error, Kind, Result, Size};

/// The largest file system that is not on a volume and may be read while it is mounted, in bytes: what boots, not what works.
const PLAIN_BYTES_MAX: u64 = 4 << 30;
/// What a swap area begins with is no longer, on any machine of today.
const PAGE_BYTES: u64 = 64 << 10;
/// How full a pool of thin volumes may be, in percent, for snapshots to be made in it: what is overwritten meanwhile takes its room, and one that is full
/// fails the writes of all volumes in it.
const POOL_PERCENT_MAX: f64 = 80.0;
/// The largest file that is read as a disk, in bytes: it is summed as a whole, before and after.
const FILE_BYTES_MAX: u64 = 256 << 30;
/// LVM's own data of one device, in bytes: a mebibyte as a rule.
const OWN_BYTES_MAX: u64 = 64 << 20;
/// The least room of a snapshot, in bytes.
const ROOM_BYTES_MIN: u64 = 128 << 20;
/// What a snapshot has of its volume's size, where nobody says how much.
const ROOM_SHARE: u64 = 10;

/// A disk of the point.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Disk {
    pub(super) bytes: u64,
    /// All of it, in order.
    pub(super) pieces: Vec<Piece>,
}

/// A volume of which a snapshot is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Volume {
    pub(super) group: String,
    pub(super) name: String,
    /// The snapshot's name.
    pub(super) snapshot: String,
    /// How much may be overwritten meanwhile; 0 of a thin one, which has its pool's room.
    pub(super) room: u64,
}

/// See the module.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) disks: Vec<Disk>,
    pub(super) volumes: Vec<Volume>,
    /// Places that are copied before: device, where, how long.
    pub(super) kept: Vec<(String, u64, u64)>,
    /// What must be the same before and after: a device or a file, and what that is to people.
    pub(super) quiet: Vec<(String, String)>,
    /// What nobody has mounted, and is too large to be summed for that: it may have been written while it was read.
    pub(super) unwatched: Vec<String>,
}

/// How a layout is made.
pub(super) struct Wanted<'a> {
    pub(super) facts: &'a Facts,
    /// How much each snapshot may take, where that was said.
    pub(super) room: Option<u64>,
    /// What the snapshots' names begin with.
    pub(super) tag: &'a str,
}

impl Wanted<'_> {
    /// Where all is read of what was named, or of the disks in use where nothing was.
    ///
    /// # Errors
    /// What cannot be read as of one instant, by its name and with what to do.
    pub(super) fn layout(&self) -> Result<Layout> {
        let mut made = Making {
            wanted: self,
            layout: Layout::default(),
            groups: BTreeSet::new(),
            seen: BTreeSet::new(),
        };
        if self.facts.named.is_empty() {
            for name in disks_in_use(self.facts)? {
                made.add_block(&name)?;
            }
        }
        for named in &self.facts.named {
            match &named.is {
                Is::Block(name) => made.add_block(name)?,
                Is::File(path, bytes) => made.add_file(path, *bytes)?,
                // Nobody else writes to it.
                Is::Image(path, bytes) => made.add_all(path, *bytes),
                Is::Folder(_) | Is::Nothing => {
                    let what = format!("'{}' is neither a block device nor a file there", named.asked);
                    return Err(Error::new(Kind::NotFound, what).remedy("name a device that 'lsblk' tells"));
                }
            }
        }
        made.check_groups()?;
        made.check_room()?;
        Ok(made.layout)
    }
}

struct Making<'a> {
    wanted: &'a Wanted<'a>,
    layout: Layout,
    /// Groups that lie on disks which are put together, and the devices of theirs that are.
    groups: BTreeSet<String>,
    seen: BTreeSet<String>,
}

impl<'a> Making<'a> {
    fn add_block(&mut self, name: &str) -> Result<()> {
        let facts = self.wanted.facts;
        let block = facts.block(name).ok_or_else(|| {
            let what = format!("'/dev/{name}' is no device that can be read there");
            Error::new(Kind::NotFound, what).remedy("name one that 'lsblk' tells, with a size")
        })?;
        let pieces = match facts.volumes.get(&block.number) {
            Some(volume) => {
                let from = self.snapshot_of(volume)?;
                vec![Piece { at: 0, bytes: block.bytes, from: Place::Device(from, 0) }]
            }
            None => self.whole(block)?,
        };
        self.layout.disks.push(Disk { bytes: block.bytes, pieces });
        Ok(())
    }

    fn add_file(&mut self, path: &str, bytes: u64) -> Result<()> {
        if bytes > FILE_BYTES_MAX {
            let what =
                format!("file '{path}' has {}, and {} are the most", Size(bytes), Size(FILE_BYTES_MAX));
            return Err(Error::new(Kind::Unsupported, what)
                .remedy("serve it by NBD there (qemu-nbd), and add that: --nbd URI"));
        }
        self.add_all(path, bytes);
        self.layout.quiet.push((path.to_owned(), format!("file '{path}'")));
        Ok(())
    }

    fn add_all(&mut self, path: &str, bytes: u64) {
        let from = Place::Device(path.to_owned(), 0);
        self.layout.disks.push(Disk { bytes, pieces: vec![Piece { at: 0, bytes, from }] });
    }

    /// A device with its partitions.
    fn whole(&mut self, block: &'a Block) -> Result<Vec<Piece>> {
        let parts = self.wanted.facts.parts_of(&block.name);
        if parts.is_empty() {
            return self.part(block);
        }
        let mut pieces = vec![raw(block)];
        for part in parts {
            let (_, start) = part.part_of.as_ref().expect("it is a partition");
            for piece in self.part(part)? {
                put(&mut pieces, Piece { at: piece.at + start, ..piece }, block.bytes);
            }
        }
        Ok(pieces)
    }

    /// A partition, or a device without any.
    fn part(&mut self, block: &'a Block) -> Result<Vec<Piece>> {
        let facts = self.wanted.facts;
        if let Some(on) = facts.group_on(block) {
            return self.physical(block, on);
        }
        if facts.is_swap(block) {
            return Ok(swap(block));
        }
        if let Some(holder) = facts.holders_of(&block.name).first() {
            let (path, holder) = (block.path(), holder.path());
            let what = format!("'{path}' is a part of '{holder}', and cannot be read as of one instant");
            let remedy = "name what lies above it, a logical volume or the like: --device /dev/VG/LV";
            return Err(Error::new(Kind::Unsupported, what).remedy(remedy));
        }
        if let Some(mount) = facts.mount_of(block).filter(|mount| mount.written) {
            let (path, folder, size) = (block.path(), &mount.folder, Size(block.bytes));
            if block.bytes > PLAIN_BYTES_MAX {
                let what = format!(
                    "'{folder}' lies on '{path}' ({size}), which is no logical volume: nothing holds it still while it is read"
                );
                let remedy = "name the other devices (--device), put it on LVM, or run it while the machine is started from elsewhere (a rescue system)";
                return Err(Error::new(Kind::Unsupported, what).remedy(remedy));
            }
            self.layout.quiet.push((path, format!("file system '{folder}'")));
        } else if facts.mount_of(block).is_none() {
            // Nobody tells who else writes there: a database, a machine, another host.
            if block.bytes <= PLAIN_BYTES_MAX {
                self.layout.quiet.push((block.path(), format!("'{}'", block.path())));
            } else {
                self.layout.unwatched.push(format!("'{}' ({})", block.path(), Size(block.bytes)));
            }
        }
        Ok(vec![raw(block)])
    }

    /// What LVM has on a device.
    fn physical(&mut self, block: &'a Block, on: &'a Physical) -> Result<Vec<Piece>> {
        let facts = self.wanted.facts;
        self.groups.insert(on.group.clone());
        self.seen.insert(on.device.clone());
        let mut pieces = vec![raw(block)];
        let end = on.begins + on.extents * on.extent_bytes;
        if on.begins > OWN_BYTES_MAX || end > block.bytes {
            let what = format!("what LVM says of '{}' is not understood", block.path());
            return Err(Error::new(Kind::Unsupported, what).remedy("name its volumes: --device /dev/VG/LV"));
        }
        for (at, bytes) in [(0, on.begins), (end, (block.bytes - end).min(OWN_BYTES_MAX))] {
            if bytes > 0 {
                let from = Place::Kept(self.layout.kept.len(), 0);
                self.layout.kept.push((block.path(), at, bytes));
                put(&mut pieces, Piece { at, bytes, from }, block.bytes);
            }
        }
        for (first, count) in &on.unused {
            let (at, bytes) = (on.begins + first * on.extent_bytes, count * on.extent_bytes);
            put(&mut pieces, Piece { at, bytes, from: Place::Zeros }, block.bytes);
        }
        for holder in facts.holders_of(&block.name) {
            for piece in self.extents(block, holder)? {
                put(&mut pieces, piece, block.bytes);
            }
        }
        Ok(pieces)
    }

    /// What of a device is a mapped one's, which lies on it.
    fn extents(&mut self, block: &Block, holder: &'a Block) -> Result<Vec<Piece>> {
        let facts = self.wanted.facts;
        let rows = holder.mapped.as_ref().and_then(|name| facts.tables.get(name));
        let rows = rows.filter(|rows| rows.iter().all(|row| row.linear.is_some()));
        let (Some(rows), Some(volume)) = (rows, facts.volumes.get(&holder.number)) else {
            let (path, holder) = (block.path(), holder.path());
            let what = format!(
                "on '{path}' lies '{holder}', which is no plain volume (of a thin pool, a mirror, RAID, a cache, stripes, or a snapshot), so its disk cannot be put together"
            );
            let remedy = match facts.has_lvm {
                true => {
                    "name the volumes instead, as disks of their own: --device /dev/VG/LV; or remove that snapshot"
                }
                false => "install LVM's tools there (lvm2)",
            };
            return Err(Error::new(Kind::Unsupported, what).remedy(remedy));
        };
        let is_swap = facts.is_swap(holder);
        let from = if is_swap { holder.path() } else { self.snapshot_of(volume)? };
        let mut pieces = Vec::new();
        for row in rows {
            let Some((_, at)) = row.linear.filter(|(number, _)| *number == block.number) else { continue };
            let of = |bytes, from| Piece { at, bytes, from };
            if !is_swap {
                pieces.push(of(row.bytes, Place::Device(from.clone(), row.at)));
                continue;
            }
            pieces.push(of(row.bytes, Place::Zeros));
            if row.at == 0 {
                pieces.push(of(row.bytes.min(PAGE_BYTES), Place::Device(from.clone(), 0)));
            }
        }
        Ok(pieces)
    }

    /// The device of a volume's snapshot, which will be.
    fn snapshot_of(&mut self, volume: &Logical) -> Result<String> {
        let volumes = &mut self.layout.volumes;
        let known = volumes.iter().find(|known| known.group == volume.group && known.name == volume.name);
        let snapshot = match known {
            Some(known) => known.snapshot.clone(),
            None => {
                let snapshot = format!("{}_{}", self.wanted.tag, volumes.len());
                let room = match (volume.kind.as_str(), self.wanted.room) {
                    ("thin", _) => 0,
                    (_, Some(room)) => room,
                    (_, None) => (volume.bytes / ROOM_SHARE).max(ROOM_BYTES_MIN),
                };
                let (group, name) = (volume.group.clone(), volume.name.clone());
                volumes.push(Volume {
                    group,
                    name,
                    snapshot: snapshot.clone(),
                    room: room.next_multiple_of(SECTOR),
                });
                snapshot
            }
        };
        if !self.wanted.facts.has_lvm {
            let what =
                format!("LVM's tools are missing, and '{}/{}' is a volume of its", volume.group, volume.name);
            return Err(Error::new(Kind::NotFound, what).remedy("install them there: apt install lvm2"));
        }
        // As device-mapper writes it: a dash that is a name's own is two.
        let doubled = |name: &str| name.replace('-', "--");
        Ok(format!("/dev/mapper/{}-{}", doubled(&volume.group), doubled(&snapshot)))
    }

    /// Fails where a group lies on a device, too, that is no part of this.
    fn check_groups(&self) -> Result<()> {
        let lacks = |on: &&Physical| self.groups.contains(&on.group) && !self.seen.contains(&on.device);
        match self.wanted.facts.groups.iter().find(lacks) {
            None => Ok(()),
            Some(on) => {
                let what = format!("volume group '{}' lies on '{}', too", on.group, on.device);
                Err(Error::new(Kind::Invalid, what).remedy("name its disk, too, with another --device"))
            }
        }
    }

    /// Fails where a group has no room for the snapshots.
    fn check_room(&self) -> Result<()> {
        let facts = self.wanted.facts;
        for volume in self.layout.volumes.iter().filter(|volume| volume.room == 0) {
            let fullest =
                facts.pools.iter().find(|(group, full)| *group == volume.group && *full > POOL_PERCENT_MAX);
            if let Some((group, full)) = fullest {
                let what = format!(
                    "a thin pool of group '{group}' is {full}% full, and would be fuller while a snapshot is read"
                );
                let remedy = format!("make it larger (lvextend), below {POOL_PERCENT_MAX}% full");
                return Err(Error::new(Kind::NoSpace, what).remedy(remedy));
            }
        }
        let mut needed: BTreeMap<&str, u64> = BTreeMap::new();
        for volume in &self.layout.volumes {
            let on = facts.groups.iter().find(|on| on.group == volume.group);
            let extent = on.map_or(SECTOR, |on| on.extent_bytes.max(SECTOR));
            let needed: &mut u64 = needed.entry(&volume.group).or_default();
            *needed = needed.saturating_add(volume.room.next_multiple_of(extent));
        }
        for (group, needed) in needed {
            let Some(on) = facts.groups.iter().find(|on| on.group == group) else { continue };
            if on.free_bytes < needed {
                let (extent, free) = (on.extent_bytes.max(1), Size(on.free_bytes));
                let what = format!(
                    "volume group '{group}' has {free} free ({} extents), and its snapshots are to have {} ({} extents)",
                    on.free_bytes / extent,
                    Size(needed),
                    needed.div_ceil(extent)
                );
                let remedy = "make room there (vgextend, lvreduce), or name another room for each volume's: --snapshot-size 256M";
                return Err(Error::new(Kind::NoSpace, what).remedy(remedy));
            }
        }
        Ok(())
    }
}

fn raw(block: &Block) -> Piece {
    Piece { at: 0, bytes: block.bytes, from: Place::Device(block.path(), 0) }
}

/// What is swapped to means nothing to a machine that starts.
fn swap(block: &Block) -> Vec<Piece> {
    let page = PAGE_BYTES.min(block.bytes);
    let mut pieces = vec![Piece { bytes: page, ..raw(block) }];
    if page < block.bytes {
        pieces.push(Piece { at: page, bytes: block.bytes - page, from: Place::Zeros });
    }
    pieces
}

#[cfg(test)]
mod tests;
