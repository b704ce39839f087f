use super::*;
use stonefold_types::Result;

const MIB: u64 = 1 << 20;

/// A machine as installers make them: ESP and /boot as partitions, and a volume group behind them, with root in two pieces, swap, a volume that is not
/// active (extents 60 to 69), and extents of none.
const TOLD: &str = "\
== machine
x86_64
8
16314236
efi
lvm
== named
== blocks
dm-0|253:0|163840|-|-|vg-root|sda3
dm-1|253:1|81920|-|-|vg-swap|sda3
loop0|7:0|8192|-|-|-|*
sda|8:0|2097152|-|-|-|*
sda1|8:1|65536|2048|sda|-|*
sda2|8:2|131072|67584|sda|-|*
sda3|8:3|1884160|198656|sda|-|*
sdb|8:16|2097152|-|-|-|*
== mounts
22 1 253:0 / / rw,relatime shared:1 - ext4 /dev/mapper/vg-root rw
23 22 8:2 / /boot rw,relatime - ext2 /dev/sda2 rw
24 23 8:1 / /boot/efi rw,relatime - vfat /dev/sda1 rw
25 22 7:0 / /snap/core ro - squashfs /dev/loop0 ro
26 22 0:21 / /proc rw - proc proc rw
27 22 8:16 / /mnt ro - ext4 /dev/sdb ro
== swaps
Filename\tType\tSize\tUsed\tPriority
/dev/dm-1 partition 40956 0 -2
== kinds
KNAME=\"sda1\" FSTYPE=\"vfat\"
KNAME=\"sda3\" FSTYPE=\"LVM2_member\"
== groups
/dev/sda3|vg|1048576|4194304|229|633339904
== segments
/dev/sda3|0|10|root
/dev/sda3|10|10|swap
/dev/sda3|20|10|root
/dev/sda3|30|30|
/dev/sda3|60|10|old
/dev/sda3|70|159|
== volumes
  vg|root|253|0|83886080|linear
  vg|root|253|0|83886080|linear
  vg|swap|253|1|41943040|linear
  vg|old|-1|-1|41943040|linear
== tables
vg-root: 0 81920 linear 8:3 2048
vg-root: 81920 81920 linear 8:3 165888
vg-swap: 0 81920 linear 8:3 83968
== end
";

fn layout(told: &str, room: Option<u64>) -> Result<Layout> {
    let facts = Facts::parse(told)?;
    Wanted { facts: &facts, room, tag: "stonefold_7" }.layout()
}

fn named(lines: &str) -> String {
    TOLD.replace("== named\n", &format!("== named\n{lines}"))
}

fn refused(told: &str, room: Option<u64>) -> String {
    layout(told, room).unwrap_err().to_string()
}

/// What a place of a disk is read from, in words.
fn at(disk: &Disk, at: u64) -> String {
    let piece = disk.pieces.iter().find(|piece| piece.at <= at && at < piece.at + piece.bytes).unwrap();
    match part_of(piece, at, at + 1).unwrap().from {
        Place::Zeros => "zeros".to_owned(),
        Place::Device(path, at) => format!("{path}+{at}"),
        Place::Kept(number, at) => format!("kept {number}+{at}"),
    }
}

fn covers(disk: &Disk) -> bool {
    let ends = disk.pieces.iter().map(|piece| piece.at + piece.bytes);
    let starts = disk.pieces.iter().skip(1).map(|piece| piece.at).chain([disk.bytes]);
    disk.pieces[0].at == 0 && ends.eq(starts)
}

#[test]
fn a_disk_is_put_together_of_itself_and_of_snapshots() {
    let made = layout(TOLD, None).unwrap();
    // sdb is only read, so all of it may be read as it is.
    assert_eq!(made.disks.len(), 2);
    let disk = &made.disks[0];
    assert!(disk.bytes == 1 << 30 && made.disks.iter().all(covers), "{:?}", disk.pieces);
    let group = 97 * MIB;
    let extent = |number: u64| group + MIB + number * 4 * MIB;
    for (place, from) in [
        (0, "/dev/sda+0".to_owned()),
        (MIB, "/dev/sda1+0".to_owned()),
        (33 * MIB + 5, "/dev/sda2+5".to_owned()),
        (group, "kept 0+0".to_owned()),
        (group + MIB - 1, format!("kept 0+{}", MIB - 1)),
        (extent(0), "/dev/mapper/vg-stonefold_7_0+0".to_owned()),
        (extent(20) + 3, format!("/dev/mapper/vg-stonefold_7_0+{}", 40 * MIB + 3)),
        // Swap: its first page, and no more.
        (extent(10), "/dev/mapper/vg-swap+0".to_owned()),
        (extent(10) + MIB, "zeros".to_owned()),
        (extent(30), "zeros".to_owned()),
        (extent(60), format!("/dev/sda3+{}", MIB + 240 * MIB)),
        (extent(228), "zeros".to_owned()),
        (extent(229), "kept 1+0".to_owned()),
    ] {
        assert_eq!(at(disk, place), from, "at {place}");
    }
    assert_eq!(made.kept, [("/dev/sda3".to_owned(), 0, MIB), ("/dev/sda3".to_owned(), 917 * MIB, 3 * MIB)]);
    let root = Volume {
        group: "vg".to_owned(),
        name: "root".to_owned(),
        snapshot: "stonefold_7_0".to_owned(),
        room: 128 * MIB,
    };
    assert_eq!(made.volumes, [root]);
    let quiet: Vec<&str> = made.quiet.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(quiet, ["/dev/sda1", "/dev/sda2"]);
}

/// Goal: of a folder the image is read that was made of it, which nobody else writes; without one it is no device.
#[test]
fn a_folder_is_read_by_its_image() {
    let mut facts = Facts::parse(&named("/srv/share|folder|/srv/share\n")).unwrap();
    assert_eq!(facts.named[0].is, Is::Folder("/srv/share".to_owned()));
    let wanted = |facts: &Facts| Wanted { facts, room: None, tag: "stonefold_7" }.layout();
    assert!(wanted(&facts).unwrap_err().to_string().contains("neither a block device nor a file"));
    facts.named[0].is = Is::Image("/var/tmp/x/0".to_owned(), 64 << 20);
    let made = wanted(&facts).unwrap();
    assert_eq!(made.disks.iter().map(|disk| disk.bytes).collect::<Vec<_>>(), [64 << 20]);
    assert!(made.quiet.is_empty() && made.volumes.is_empty());
}

#[test]
fn what_is_named_is_read_and_nothing_else() {
    let told =
        named("/dev/vg/swap|block|dm-1\n/dev/disk/by-id/x|block|sda1\n/srv/x.img|file|/srv/x.img|1000\n");
    let made = layout(&told, Some(1 << 20)).unwrap();
    assert_eq!(made.disks.iter().map(|disk| disk.bytes).collect::<Vec<_>>(), [40 * MIB, 32 * MIB, 1000]);
    assert_eq!(at(&made.disks[0], 7), "/dev/mapper/vg-stonefold_7_0+7");
    assert_eq!((made.volumes[0].name.as_str(), made.volumes[0].room), ("swap", 1 << 20));
    assert_eq!(made.quiet.len(), 2);
    assert!(made.kept.is_empty());
    let told = named("/dev/vg/root|block|dm-0\n")
        .replace("vg|root|253|0|83886080|linear", "vg|root|253|0|83886080|thin");
    assert_eq!(layout(&told, Some(1)).unwrap().volumes[0].room, 0, "a thin one has its pool's");
}

#[test]
fn what_cannot_be_of_one_instant_is_refused_by_its_name() {
    let large = TOLD.replace("sda2|8:2|131072|", "sda2|8:2|16777216|");
    let crypt = TOLD
        .replace("dm-1|253:1|81920|-|-|vg-swap|sda3", "dm-1|253:1|81920|-|-|luks|sda2")
        .replace("/dev/dm-1 partition", "/dev/none partition");
    let thin = TOLD.replace("vg-root: 81920 81920 linear 8:3 165888", "vg-root: 81920 81920 thin 253:4 1");
    let stranger =
        TOLD.replace("dm-1|253:1|81920|-|-|vg-swap|sda3", "dm-9|253:9|81920|-|-|vg-root-real|sda3");
    let spread = TOLD.replace("== segments", "/dev/sdc1|vg|1048576|4194304|200|633339904\n== segments");
    for (told, room, words) in [
        (large, None, "'/boot' lies on '/dev/sda2' (8G), which is no logical volume"),
        (crypt, None, "'/dev/sda2' is a part of '/dev/mapper/luks'"),
        (thin, None, "on '/dev/sda3' lies '/dev/mapper/vg-root', which is no plain volume"),
        (stranger, None, "on '/dev/sda3' lies '/dev/mapper/vg-root-real', which is no plain volume"),
        (spread, None, "volume group 'vg' lies on '/dev/sdc1', too"),
        (
            TOLD.to_owned(),
            Some(1 << 30),
            "volume group 'vg' has 604M free (151 extents), and its snapshots are to have 1G (256 extents)",
        ),
        (named("/dev/sdz|none\n"), None, "'/dev/sdz' is neither a block device nor a file"),
        (TOLD.replace("\nlvm\n", "\n-\n"), None, "install them there: apt install lvm2"),
        (TOLD.replace("== end\n", ""), None, "told only a part"),
    ] {
        let said = refused(&told, room);
        assert!(said.contains(words), "{words}: {said}");
    }
}

/// Goal: what another machine tells makes a failed run at most.
#[test]
fn noise_is_survived() {
    let lines: Vec<&str> = TOLD.lines().collect();
    for left_out in 0..lines.len() {
        let told: Vec<&str> =
            lines.iter().enumerate().filter(|(at, _)| *at != left_out).map(|(_, line)| *line).collect();
        let _ = layout(&told.join("\n"), None);
        for number in ["18446744073709551615", "9223372036854775807", "-1", "x", "0", ""] {
            for digit in ["253", "2048", "1048576", "4194304", "229", "81920", "10"] {
                let changed: Vec<String> = lines
                    .iter()
                    .enumerate()
                    .map(
                        |(at, line)| {
                            if at == left_out { line.replace(digit, number) } else { (*line).to_owned() }
                        },
                    )
                    .collect();
                if let Ok(made) = layout(&changed.join("\n"), None) {
                    assert!(made.disks.iter().all(covers), "{}", changed[left_out]);
                }
            }
        }
    }
}

#[test]
fn a_thin_pool_that_is_nearly_full_is_left_alone() {
    let thin = named("/dev/vg/data|block|dm-2\n")
        .replace("dm-1|", "dm-2|253:2|81920|-|-|vg-data|\ndm-1|")
        .replace("== tables\n", "  vg|data|253|2|41943040|thin\n== pools\n  vg|POOL\n== tables\n");
    let with = |pool: &str| thin.replace("POOL", pool);
    assert_eq!(layout(&with("79.90|12.00"), None).unwrap().volumes[0].room, 0);
    for full in ["80.10|12.00", "3.00|97.50"] {
        let said = refused(&with(full), None);
        assert!(said.contains("% full") && said.contains("lvextend"), "{said}");
    }
}

#[test]
fn what_nobody_has_mounted_is_watched_or_told() {
    let made = layout(&named("/dev/sdc|block|sdc\n").replace("sdb|", "sdc|8:32|2097152|-|-|-|*\nsdb|"), None)
        .unwrap();
    assert_eq!(made.quiet, [("/dev/sdc".to_owned(), "'/dev/sdc'".to_owned())]);
    let large =
        layout(&named("/dev/sdc|block|sdc\n").replace("sdb|", "sdc|8:32|20971520|-|-|-|*\nsdb|"), None)
            .unwrap();
    assert!(large.quiet.is_empty() && large.unwatched == ["'/dev/sdc' (10G)"], "{:?}", large.unwatched);
}

#[test]
fn more_than_can_be_looked_through_is_refused() {
    let many = TOLD.replace(
        "== mounts\n",
        &format!("== mounts\n{}", "22 1 0:3 / /x rw - tmpfs none rw\n".repeat(20_000)),
    );
    assert!(refused(&many, None).contains("more than can be looked through"));
}
