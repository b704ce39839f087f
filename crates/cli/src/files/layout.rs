//! Which file systems are on a point's disks, what they are called, and where its operating system has them.

use super::appliance::Appliance;
use crate::table::Table;
use serde::Serialize;
use stonefold_types::{Error, Kind, Name, Result, Size};

/// What is no file system, in libguestfs's words.
const NO_FILES: [&str; 4] = ["swap", "unknown", "crypto_LUKS", "LVM2_member"];

/// A file system, or what could be one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct FileSystem {
    /// What it is called here: the machine's name of its disk and the partition's number, or volume group and volume.
    name: String,
    /// What libguestfs calls it.
    #[serde(skip)]
    device: String,
    /// ext4, xfs, ntfs, vfat, …
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    size_bytes: Option<u64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    label: String,
    /// Where the operating system has it.
    mounted_at: Vec<String>,
}

/// An operating system.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct System {
    /// As it calls itself.
    name: String,
    /// Where it has what: a path, and libguestfs's name of the file system there. The root comes first, and each before what is below it.
    #[serde(skip)]
    mounts: Vec<(String, String)>,
}

/// All of a point.
#[derive(Debug, Serialize)]
pub(super) struct Layout {
    operating_systems: Vec<System>,
    file_systems: Vec<FileSystem>,
}

impl Layout {
    /// Looks at all disks, which the machine that was taken calls `disks`.
    pub(super) fn find(appliance: &mut Appliance<'_>, disks: &[Name]) -> Result<Self> {
        let mut layout =
            Layout { operating_systems: Vec::new(), file_systems: file_systems(appliance, disks)? };
        for root in appliance.lines(b"inspect-os", &[])? {
            let name = appliance.ask_for(b"inspect-get-product-name", &[root.as_bytes()])?;
            let mounts = appliance.lines(b"inspect-get-mountpoints", &[root.as_bytes()])?;
            let name = String::from_utf8_lossy(&name).trim().to_owned();
            let mounts = in_order(&mounts, &root, &layout.file_systems);
            layout.operating_systems.push(System { name, mounts });
        }
        for system in &mut layout.file_systems {
            let device = system.device.as_bytes();
            let size = appliance.ask_for(b"blockdev-getsize64", &[device])?;
            system.size_bytes = String::from_utf8_lossy(&size).trim().parse().ok();
            let label = appliance.ask_for(b"vfs-label", &[device])?;
            system.label = String::from_utf8_lossy(&label).trim().to_owned();
            let places = layout.operating_systems.iter().flat_map(|system| &system.mounts);
            system.mounted_at =
                places.filter(|(_, at)| *at == system.device).map(|(at, _)| at.clone()).collect();
        }
        Ok(layout)
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut table = Table::new(&["FILE SYSTEM", "TYPE", "SIZE>", "LABEL", "MOUNTED AT"]);
        for system in &self.file_systems {
            table.row([
                printable(&system.name),
                system.kind.clone(),
                system.size_bytes.map_or("-".to_owned(), |bytes| Size(bytes).to_string()),
                printable(&system.label),
                printable(&system.mounted_at.join(" ")),
            ]);
        }
        let names: Vec<String> =
            self.operating_systems.iter().map(|system| printable(&system.name)).collect();
        let systems = if names.is_empty() { "no operating system".to_owned() } else { names.join(", ") };
        format!("{}{systems}\n", table.or("no file systems"))
    }
}

/// Puts together what paths are looked for in: all that the one operating system has mounted, or the one file system that is `wanted` or
/// that there is.
///
/// # Errors
/// When it cannot be told which is meant, or that one cannot be read.
pub(super) fn enter(appliance: &mut Appliance<'_>, disks: &[Name], wanted: Option<&str>) -> Result<()> {
    if let Some(wanted) = wanted {
        let systems = file_systems(appliance, disks)?;
        let found = systems.iter().find(|system| system.name == wanted);
        let found = found.ok_or_else(|| {
            Error::new(Kind::NotFound, format!("no file system '{wanted}' is on these disks"))
                .remedy(named(&systems))
        })?;
        return mount(appliance, found);
    }
    let layout = Layout::find(appliance, disks)?;
    let with_files: Vec<_> =
        layout.file_systems.iter().filter(|system| !NO_FILES.contains(&system.kind.as_str())).collect();
    match (layout.operating_systems.as_slice(), with_files.as_slice()) {
        ([system], _) => mount_all(appliance, system, &layout.file_systems),
        ([], [only]) => mount(appliance, only),
        (systems, _) => {
            let found =
                if systems.is_empty() { "no operating system is" } else { "several operating systems are" };
            let what =
                format!("{found} on these disks, so that a path does not say which file system is meant");
            Err(Error::new(Kind::Invalid, what).remedy(named(&layout.file_systems)))
        }
    }
}

fn named(systems: &[FileSystem]) -> String {
    let names: Vec<&str> = systems
        .iter()
        .filter(|system| !NO_FILES.contains(&system.kind.as_str()))
        .map(|system| system.name.as_str())
        .collect();
    match names.as_slice() {
        [] => "there is none that can be read".to_owned(),
        names => format!("name one of {} with --file-system", printable(&names.join(", "))),
    }
}

fn mount(appliance: &mut Appliance<'_>, system: &FileSystem) -> Result<()> {
    let mounted = appliance.ask(b"mount-ro", &[system.device.as_bytes(), b"/"]);
    mounted.map(drop).map_err(|error| {
        error.context(format!("file system '{}' ({}) cannot be read", printable(&system.name), system.kind))
    })
}

/// What is not the root may be missing, as a machine starts without it, too.
fn mount_all(appliance: &mut Appliance<'_>, system: &System, all: &[FileSystem]) -> Result<()> {
    for (place, device) in &system.mounts {
        let words = [device.as_bytes(), place.as_bytes()];
        if place == "/" {
            appliance.ask(b"mount-ro", &words)?;
            continue;
        }
        appliance.ask_for(b"mount-ro", &words)?;
        let is_there =
            appliance.lines(b"mountpoints", &[])?.iter().any(|line| line.ends_with(&format!(": {place}")));
        if !is_there {
            let name =
                all.iter().find(|system| system.device == *device).map_or(device, |system| &system.name);
            eprintln!("note: '{}' cannot be read, and is missing at {}", printable(name), printable(place));
        }
    }
    Ok(())
}

fn file_systems(appliance: &mut Appliance<'_>, disks: &[Name]) -> Result<Vec<FileSystem>> {
    let lines = appliance.lines(b"list-filesystems", &[])?;
    Ok(lines.iter().filter_map(|line| file_system(line, disks)).collect())
}

/// Out of `/dev/sda1: ext4`.
fn file_system(line: &str, disks: &[Name]) -> Option<FileSystem> {
    let (device, kind) = line.rsplit_once(": ")?;
    Some(FileSystem {
        name: name_of(device, disks),
        device: device.to_owned(),
        kind: kind.to_owned(),
        size_bytes: None,
        label: String::new(),
        mounted_at: Vec::new(),
    })
}

/// Out of lines of `/boot: /dev/sda1`, of the system whose root is there.
fn in_order(lines: &[String], root: &str, systems: &[FileSystem]) -> Vec<(String, String)> {
    let mut mounts: Vec<(String, String)> = lines
        .iter()
        .filter_map(|line| line.rsplit_once(": "))
        .map(|(place, device)| match place {
            "/" => (place.to_owned(), root.to_owned()),
            _ => (place.to_owned(), here(device, systems)),
        })
        .collect();
    mounts.sort_by_key(|(place, _)| place.len());
    mounts
}

/// What a system calls `/dev/vdb` is `/dev/sdb` here; libguestfs sees to that where disks have partitions, and leaves whole ones.
fn here(device: &str, systems: &[FileSystem]) -> String {
    let is_there = |name: &str| systems.iter().any(|system| system.device == name);
    let prefixes = ["/dev/vd", "/dev/xvd", "/dev/hd"];
    let letters = prefixes.iter().find_map(|prefix| device.strip_prefix(prefix));
    let renamed = letters.map(|letters| format!("/dev/sd{letters}"));
    renamed.filter(|name| !is_there(device) && is_there(name)).unwrap_or_else(|| device.to_owned())
}

/// What is called `/dev/sdb1` in the small machine is the first partition of the second disk.
fn name_of(device: &str, disks: &[Name]) -> String {
    let bare = device.trim_start_matches("btrfsvol:").trim_start_matches("/dev/");
    let Some(behind) = bare.strip_prefix("sd") else { return bare.to_owned() };
    let letters = behind.len() - behind.trim_start_matches(|c: char| c.is_ascii_lowercase()).len();
    let (letters, rest) = behind.split_at(letters);
    let number = letters.bytes().fold(0, |number, letter| number * 26 + usize::from(letter - b'a') + 1);
    let Some(disk) = number.checked_sub(1).and_then(|at| disks.get(at)) else { return bare.to_owned() };
    let disk = disk.to_string();
    // As in nvme0n1p1.
    let between = if disk.ends_with(|c: char| c.is_ascii_digit()) && !rest.is_empty() { "p" } else { "" };
    format!("{disk}{between}{rest}")
}

/// What a guest has named, as a terminal may have it: nothing in it moves the cursor.
pub(super) fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|c| if c.is_control() { c.escape_default().collect::<Vec<_>>() } else { vec![c] })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disks(names: &[&str]) -> Vec<Name> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    #[test]
    fn a_file_system_is_called_by_the_disk_it_is_on() {
        let two = disks(&["vda", "nvme0n1"]);
        for (device, name) in [
            ("/dev/sda", "vda"),
            ("/dev/sda14", "vda14"),
            ("/dev/sdb", "nvme0n1"),
            ("/dev/sdb2", "nvme0n1p2"),
            ("/dev/sdc1", "sdc1"),
            ("/dev/debian-vg/root", "debian-vg/root"),
            ("btrfsvol:/dev/sda1/home", "vda1/home"),
            ("/dev/md127", "md127"),
        ] {
            assert_eq!(name_of(device, &two), name, "{device}");
        }
        let many: Vec<String> = (0..30).map(|number| format!("d{number}x")).collect();
        let many = disks(&many.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(name_of("/dev/sdz1", &many), "d25x1");
        assert_eq!(name_of("/dev/sdaa1", &many), "d26x1");
    }

    #[test]
    fn a_root_comes_before_what_is_below_it() {
        let lines = ["/boot/efi: /dev/sda15", "/: /dev/sda1", "/boot: /dev/sda2"].map(str::to_owned);
        let mounts = in_order(&lines, "/dev/sda1", &[]);
        let places: Vec<&str> = mounts.iter().map(|(place, _)| place.as_str()).collect();
        assert_eq!(places, ["/", "/boot", "/boot/efi"]);
    }

    #[test]
    fn a_whole_disk_is_found_by_what_its_system_calls_it() {
        let lines = ["/data: /dev/vdb", "/: /dev/vda", "/gone: /dev/vdc"].map(str::to_owned);
        let none = disks(&[]);
        let systems = ["/dev/sda: ext4", "/dev/sdb: xfs"].map(|line| file_system(line, &none).unwrap());
        let mounts = in_order(&lines, "/dev/sda", &systems);
        let devices: Vec<&str> = mounts.iter().map(|(_, device)| device.as_str()).collect();
        assert_eq!(devices, ["/dev/sda", "/dev/sdb", "/dev/vdc"]);
    }

    #[test]
    fn what_a_guest_has_named_moves_no_cursor() {
        assert_eq!(printable("a\u{1b}[2Jé\n"), "a\\u{1b}[2Jé\\n");
    }
}
