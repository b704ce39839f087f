//! What the other machine tells of itself: its block devices, what is mounted, its volumes and where they lie.
//!
//! Hostile until parsed: a line that is not understood is left out, and what would have been in it is missed where it is needed. Names of
//! devices come back to the machine as words of a line, so none with a space or a character that a shell knows is taken.

mod lines;

use lines::{block, first_word, kind, logical, mount, named, physical, pool, row};
use std::collections::BTreeMap;
use stonefold_types::{Error, Kind, Result};

/// What the kernel counts devices and maps in, in bytes, whatever a device's own sectors are.
pub(super) const SECTOR: u64 = 512;

/// The most lines that one part of it may have. Places are found by looking through all of them, on the thread that serves disks.
const LINES_MAX: usize = 4096;
/// Of what is mounted there are more where containers run.
const MOUNTS_MAX: usize = 16384;

/// More than any device has, in bytes; sums of two stay numbers.
const BYTES_MAX: u64 = 1 << 62;

/// A device's number: major, minor.
pub(super) type Number = (u32, u32);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) architecture: String,
    pub(super) processors: u64,
    pub(super) memory_kib: u64,
    /// It was booted by UEFI.
    pub(super) efi: bool,
    /// LVM's tools are there.
    pub(super) has_lvm: bool,
    /// What the devices are that were asked for, in that order.
    pub(super) named: Vec<Named>,
    pub(super) blocks: Vec<Block>,
    pub(super) mounts: Vec<Mount>,
    /// Paths of what is swapped to.
    pub(super) swaps: Vec<String>,
    /// What is on devices, by the kernel's names, where that is known: `ext4`, `LVM2_member`.
    pub(super) kinds: BTreeMap<String, String>,
    pub(super) groups: Vec<Physical>,
    pub(super) volumes: BTreeMap<Number, Logical>,
    /// Pools of thin volumes: the group, and how full the pool is, in percent of its data or of what it keeps of them, whichever is more.
    pub(super) pools: Vec<(String, f64)>,
    /// Of each mapped device, by its name, where it lies, in order.
    pub(super) tables: BTreeMap<String, Vec<Row>>,
}

/// A device that was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) asked: String,
    pub(super) is: Is,
}

/// What it is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Is {
    /// A block device, by the kernel's name.
    Block(String),
    /// A file of so many bytes.
    File(String, u64),
    /// A folder.
    Folder(String),
    /// An image of one, which is ours, of so many bytes.
    Image(String, u64),
    Nothing,
}

/// A block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// The kernel's.
    pub(super) name: String,
    pub(super) number: Number,
    pub(super) bytes: u64,
    /// Of a partition where it begins on which disk.
    pub(super) part_of: Option<(String, u64)>,
    /// Of a mapped device its name.
    pub(super) mapped: Option<String>,
    /// What it lies on.
    pub(super) slaves: Vec<String>,
}

/// A mounted file system.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mount {
    number: Number,
    pub(super) folder: String,
    pub(super) kind: String,
    source: String,
    pub(super) written: bool,
}

/// What of a volume group lies on one device.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Physical {
    /// The device's path.
    pub(super) device: String,
    pub(super) group: String,
    /// Where extents begin, how long one is, how many there are.
    pub(super) begins: u64,
    pub(super) extent_bytes: u64,
    pub(super) extents: u64,
    /// Of the whole group.
    pub(super) free_bytes: u64,
    /// Extents of no volume: the first, and how many.
    pub(super) unused: Vec<(u64, u64)>,
}

/// A logical volume that is active.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Logical {
    pub(super) group: String,
    pub(super) name: String,
    pub(super) bytes: u64,
    /// `linear`, `thin`.
    pub(super) kind: String,
}

/// A part of a mapped device.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) at: u64,
    pub(super) bytes: u64,
    /// Where it lies, where that is one place.
    pub(super) linear: Option<(Number, u64)>,
}

impl Block {
    /// Its path on the other machine.
    pub(super) fn path(&self) -> String {
        match &self.mapped {
            Some(name) => format!("/dev/mapper/{name}"),
            // The kernel's own replacement.
            None => format!("/dev/{}", self.name.replace('!', "/")),
        }
    }
}

/// Whether a word may stand in a request: a path, or a name of a volume.
pub(super) fn is_plain(word: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:=@,%".contains(c);
    !word.is_empty() && word.len() <= 1024 && !word.starts_with('-') && word.chars().all(plain)
}

impl Facts {
    /// Reads what `look` has answered.
    ///
    /// # Errors
    /// [`Kind::Io`] where it has not all parts; [`Kind::Unsupported`] where there is more of something than can be looked through.
    pub(super) fn parse(text: &str) -> Result<Facts> {
        let mut parts: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut part = "";
        for line in text.lines() {
            match line.strip_prefix("== ") {
                Some(name) => part = name,
                None => parts.entry(part).or_default().push(line),
            }
        }
        if part != "end" {
            let what = "the other machine told only a part of what it is";
            return Err(Error::new(Kind::Io, what).remedy("run it again"));
        }
        let is_long = |(name, lines): &(&&str, &Vec<&str>)| {
            lines.len() > if **name == "mounts" { MOUNTS_MAX } else { LINES_MAX }
        };
        if let Some((name, lines)) = parts.iter().find(is_long) {
            let what =
                format!("the other machine tells {} {name}, more than can be looked through", lines.len());
            return Err(
                Error::new(Kind::Unsupported, what).remedy("back its file systems up by their folders")
            );
        }
        let of = |name: &str| parts.get(name).cloned().unwrap_or_default();
        let mut facts = Facts {
            named: of("named").into_iter().filter_map(named).collect(),
            blocks: of("blocks").into_iter().filter_map(block).collect(),
            mounts: of("mounts").into_iter().filter_map(mount).collect(),
            swaps: of("swaps").into_iter().skip(1).filter_map(first_word).collect(),
            kinds: of("kinds").into_iter().filter_map(kind).collect(),
            groups: of("groups").into_iter().filter_map(physical).collect(),
            volumes: of("volumes").into_iter().filter_map(logical).collect(),
            pools: of("pools").into_iter().filter_map(pool).collect(),
            tables: BTreeMap::new(),
            ..Facts::default()
        };
        facts.tell_machine(&of("machine"));
        facts.tell_unused(&of("segments"));
        for (name, row) in of("tables").into_iter().filter_map(row) {
            facts.tables.entry(name).or_default().push(row);
        }
        Ok(facts)
    }

    fn tell_machine(&mut self, lines: &[&str]) {
        if let [architecture, processors, memory, firmware, lvm] = lines {
            self.architecture = (*architecture).to_owned();
            self.processors = processors.parse().unwrap_or(1);
            self.memory_kib = memory.parse().unwrap_or(0);
            self.efi = *firmware == "efi";
            self.has_lvm = *lvm == "lvm";
        }
    }

    fn tell_unused(&mut self, lines: &[&str]) {
        for line in lines {
            let words: Vec<&str> = line.split('|').collect();
            let [device, first, count, ""] = words.as_slice() else { continue };
            let (Ok(first), Ok(count)) = (first.parse::<u64>(), count.parse::<u64>()) else { continue };
            let on = self.groups.iter_mut().find(|on| on.device == *device);
            if let Some(on) = on.filter(|on| first.saturating_add(count) <= on.extents) {
                on.unused.push((first, count));
            }
        }
    }

    /// A block device by the kernel's name.
    pub(super) fn block(&self, name: &str) -> Option<&Block> {
        self.blocks.iter().find(|block| block.name == name)
    }

    /// The one that a path without links leads to.
    pub(super) fn at(&self, path: &str) -> Option<&Block> {
        self.blocks.iter().find(|block| block.kernel_path() == path)
    }

    /// The partitions of a disk.
    pub(super) fn parts_of(&self, disk: &str) -> Vec<&Block> {
        let is_part = |block: &&Block| block.part_of.as_ref().is_some_and(|(of, _)| of == disk);
        self.blocks.iter().filter(is_part).collect()
    }

    /// What lies on a device.
    pub(super) fn holders_of(&self, name: &str) -> Vec<&Block> {
        self.blocks.iter().filter(|block| block.slaves.iter().any(|slave| slave == name)).collect()
    }

    /// The volume group that a device is a part of.
    pub(super) fn group_on(&self, block: &Block) -> Option<&Physical> {
        self.groups.iter().find(|on| on.device == block.kernel_path() && !on.group.is_empty())
    }

    /// What of a device is mounted: first what is written.
    pub(super) fn mount_of(&self, block: &Block) -> Option<&Mount> {
        // What has many devices tells one of them, or none.
        let of_many = match self.kinds.get(&block.name).map(String::as_str) {
            Some("zfs_member") => "zfs",
            Some("btrfs") => "btrfs",
            _ => "",
        };
        let is_on = |mount: &&Mount| {
            mount.number == block.number
                || [block.path(), block.kernel_path()].contains(&mount.source)
                || mount.kind == of_many
        };
        let found: Vec<&Mount> = self.mounts.iter().filter(is_on).collect();
        found.iter().find(|mount| mount.written).or(found.first()).copied()
    }

    /// Whether a device is swapped to.
    pub(super) fn is_swap(&self, block: &Block) -> bool {
        self.swaps.iter().any(|path| *path == block.path() || *path == block.kernel_path())
    }
}

impl Block {
    /// What a link to it leads to.
    fn kernel_path(&self) -> String {
        format!("/dev/{}", self.name.replace('!', "/"))
    }
}
