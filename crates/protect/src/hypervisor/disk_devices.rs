//! The guest's ends of a machine's disks, as QEMU's arguments name them: a copy has the same, each with a disk of ours behind it.
//!
//! A device belongs to the disk that is called as QEMU calls it: by its `drive`, its `id`, or the name that QEMU gives one that has none; or, where none is
//! called so and there are as many, in their order. It says `drive=stonefold-disk0` then, the number being the disk's. *Never*: loses what the guest
//! knows its disk by: the bus, its place there, a serial number.

use super::words::{Word, Words};

/// What is behind the guest's end of a disk, but for its number.
const NODE: &str = "stonefold-disk";
/// Devices that are disks.
const DISKS: &[&str] = &[
    "ide-hd",
    "nvme",
    "nvme-ns",
    "scsi-hd",
    "usb-storage",
    "virtio-blk",
    "virtio-blk-device",
    "virtio-blk-pci",
    "virtio-blk-pci-non-transitional",
    "virtio-blk-pci-transitional",
];
/// Disks in a word, on the bus that their machine has by itself.
const SHORT: &[&str] = &["hda", "hdb", "hdc", "hdd"];
/// Drives of these kinds are no disks, or have a device that says what they are.
const NO_DISKS: &[&str] = &["none", "pflash", "sd", "mtd", "floppy"];
/// Letters of a disk's name.
const NAME_LETTERS_MAX: usize = 32;

/// The name of what is behind a disk.
pub(crate) fn node(number: usize) -> String {
    format!("{NODE}{number}")
}

/// What a disk is called of which QEMU says this.
pub(crate) fn called(text: &str) -> String {
    let allowed = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    text.chars().filter(allowed).take(NAME_LETTERS_MAX).collect()
}

/// Whether a device is the guest's end of a disk of ours, whichever.
pub(super) fn is_of_disk(word: &Word) -> bool {
    is_disk_device(word) && word.property("drive").is_some_and(|drive| drive.starts_with(NODE))
}

/// Whether the guest's end of the disk of that number is there.
pub(super) fn has(words: &Words, number: usize) -> bool {
    words.iter().any(|word| is_disk_device(word) && word.property("drive") == Some(&node(number)))
}

/// Has the devices of these disks, by what the machine calls each, name what will be behind them. What was behind them is taken out.
pub(super) fn keep(words: &mut Words, targets: &[&str]) {
    let found = Found::all(words);
    let own = chosen(words, &found, targets);
    for at in found.iter().map(|found| found.at).filter(|at| !own.contains(&Some(*at))) {
        // What an earlier copy was given, and is no disk of this one.
        if is_of_disk(&words[at]) {
            words[at].option.clear();
        }
    }
    let (is_q35, mut behind, mut last) = (is_q35(words), Vec::new(), Vec::new());
    for (number, at) in own.iter().enumerate().filter_map(|(number, at)| at.map(|at| (number, at))) {
        let word = &mut words[at];
        if word.option == "device" {
            behind.extend(word.property("drive").filter(|drive| !drive.starts_with(NODE)).map(str::to_owned));
            word.set_property("drive", &node(number));
        } else {
            let device = Word { option: "device".to_owned(), value: device_of(word, is_q35) + &node(number) };
            word.option.clear();
            last.push(device);
        }
    }
    words.take(|word| word.option.is_empty());
    // QEMU makes them behind the others, and a guest's cards keep their places.
    last.into_iter().for_each(|word| words.push("device", word.value));
    number_boots(words, targets.len());
    take_behind(words, behind);
}

/// Takes out these nodes, and what they are built on.
fn take_behind(words: &mut Words, mut behind: Vec<String>) {
    while !behind.is_empty() {
        let gone = words.take(|word| {
            ["drive", "blockdev"].contains(&word.option.as_str())
                && word.names().any(|name| behind.iter().any(|gone| gone == name))
        });
        let below =
            |word: &Word| ["file", "backing", "data-file"].map(|name| word.property(name).map(str::to_owned));
        behind = gone.iter().filter(|word| word.option == "blockdev").flat_map(below).flatten().collect();
    }
}

/// What the disks of ours hang on.
pub(super) fn controllers(words: &Words) -> Vec<String> {
    let of_disks = words.iter().filter(|word| is_of_disk(word));
    of_disks.filter_map(|word| Some(word.property("bus")?.split('.').next()?.to_owned())).collect()
}

/// A disk among the words, and all that QEMU may call it.
struct Found {
    at: usize,
    names: Vec<String>,
}

impl Found {
    fn all(words: &Words) -> Vec<Found> {
        let (mut found, mut anonymous, mut virtio) = (Vec::new(), 0, 0);
        for at in 0..words.len() {
            let word = &words[at];
            let mut names: Vec<String> =
                ["drive", "id"].iter().filter_map(|name| word.property(name)).map(called).collect();
            if word.option == "device" && word.property("id").is_none() {
                names.push(called(&format!("device[{anonymous}]")));
                anonymous += 1;
            }
            if word.option == "drive" && word.property("if") == Some("virtio") {
                names.push(format!("virtio{virtio}"));
                virtio += 1;
            }
            names.extend(ide_index(word).map(|index| format!("ide{}-hd{}", index / 2, index % 2)));
            if is_disk(words, word) {
                found.push(Found { at, names });
            }
        }
        found
    }
}

/// The word of each disk.
fn chosen(words: &Words, found: &[Found], targets: &[&str]) -> Vec<Option<usize>> {
    let by_name = |target: &&str| {
        let found = found.iter().find(|found| found.names.iter().any(|name| name == target));
        found.map(|found| found.at)
    };
    let named: Vec<Option<usize>> = targets.iter().map(by_name).collect();
    // Of a machine that is a copy itself: what it was given.
    let given = |number: usize| {
        let is_it = |found: &&Found| {
            words[found.at].property("drive") == Some(&node(number)) && !named.contains(&Some(found.at))
        };
        found.iter().find(is_it).map(|found| found.at)
    };
    let chosen: Vec<Option<usize>> =
        named.iter().enumerate().map(|(number, at)| at.or_else(|| given(number))).collect();
    match found.len() == targets.len() && chosen.iter().all(Option::is_none) {
        true => found.iter().map(|found| Some(found.at)).collect(),
        false => chosen,
    }
}

fn is_disk(words: &Words, word: &Word) -> bool {
    let is_read =
        |word: &Word| ["readonly", "read-only"].iter().any(|name| word.property(name) == Some("on"));
    let is_behind = |node: &Word, drive: &str| {
        ["drive", "blockdev"].contains(&node.option.as_str()) && node.names().any(|name| name == drive)
    };
    match word.option.as_str() {
        "device" if is_disk_device(word) => word
            .property("drive")
            .is_some_and(|drive| !words.iter().any(|node| is_behind(node, drive) && is_read(node))),
        "drive" => {
            let is_removable = word.property("media") == Some("cdrom");
            let is_no_disk = word.property("if").is_some_and(|kind| NO_DISKS.contains(&kind));
            !is_removable && !is_read(word) && !is_no_disk
        }
        option => SHORT.contains(&option),
    }
}

fn is_disk_device(word: &Word) -> bool {
    word.option == "device" && word.kind("driver").is_some_and(|driver| DISKS.contains(&driver))
}

fn is_q35(words: &Words) -> bool {
    let machines = words.iter().filter(|word| ["M", "machine"].contains(&word.option.as_str()));
    machines.filter_map(|word| word.kind("type")).any(|kind| kind.contains("q35"))
}

/// Which of the machine's own places for disks it has, where it says so.
fn ide_index(word: &Word) -> Option<usize> {
    if let Some(index) = SHORT.iter().position(|name| *name == word.option) {
        return Some(index);
    }
    let is_ide = word.option == "drive" && matches!(word.property("if"), None | Some("ide"));
    word.property("index").filter(|_| is_ide)?.parse().ok()
}

/// What QEMU makes of a disk that is not given a device, up to what is behind it.
fn device_of(word: &Word, is_q35: bool) -> String {
    match (word.property("if"), ide_index(word)) {
        (Some("virtio"), _) => "virtio-blk-pci,drive=".to_owned(),
        (_, Some(index)) if is_q35 => format!("ide-hd,bus=ide.{index},drive="),
        (_, Some(index)) => format!("ide-hd,bus=ide.{},unit={},drive=", index / 2, index % 2),
        // At the first place that is free there.
        _ => "ide-hd,drive=".to_owned(),
    }
}

/// A device's place in the order of boots: lower ones are tried first.
fn boots(word: &Word) -> Option<u64> {
    word.property("bootindex")?.parse().ok()
}

/// The first place from this one on that no device has.
pub(super) fn free_boot(words: &Words, from: u64) -> u64 {
    (from..).find(|at| words.iter().all(|word| boots(word) != Some(*at))).expect("numbers go on")
}

/// Disks that have no place in the order of boots get the next ones, in their order; what has one keeps it, and of a disk whose device is yet to come
/// its place stays free.
fn number_boots(words: &mut Words, disks: usize) {
    let first = words.iter().filter_map(boots).max().map_or(1, |last| last.saturating_add(1));
    for (number, place) in (0..disks).zip(first..) {
        let own = node(number);
        words.each(|word| {
            if is_of_disk(word) && word.property("drive") == Some(&own) && boots(word).is_none() {
                word.set_property("bootindex", &place.to_string());
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept_text(text: &str, targets: &[&str]) -> String {
        let mut words = Words::parse(text).unwrap();
        keep(&mut words, targets);
        words.text()
    }

    fn kept(text: &str, targets: &[&str]) -> String {
        let mut words = Words::parse(text).unwrap();
        keep(&mut words, targets);
        words.arguments().join(" ")
    }

    #[test]
    fn a_disk_hangs_where_it_hung() {
        let text = "-M q35 -drive file=/a,if=none,id=root -device ide-hd,drive=root,serial=S1,bus=ide.2 \
            -blockdev file,node-name=low,filename=/b -blockdev '{\"driver\":\"qcow2\",\"node-name\":\"more\",\"file\":\"low\"}' \
            -device '{\"driver\":\"scsi-hd\",\"drive\":\"more\",\"id\":\"data\"}' -device virtio-scsi-pci -drive if=pflash,file=/vars";
        let is = kept(text, &["root", "data"]);
        assert!(is.contains("ide-hd,drive=stonefold-disk0,serial=S1,bus=ide.2,bootindex=1"), "{is}");
        for word in ["scsi-hd,drive=stonefold-disk1,id=data,bootindex=2", "virtio-scsi-pci", "/vars"] {
            assert!(is.contains(word), "no {word} in {is}");
        }
        assert!(!is.contains("/a,") && !is.contains("filename") && !is.contains("low"), "{is}");
        let text = kept_text(text, &["root", "data"]);
        assert_eq!(kept_text(&text, &["root", "data"]), text, "of a copy of the copy");
    }

    #[test]
    fn those_without_names_are_taken_in_their_order() {
        let text =
            "-hdb /a -drive file=/b,if=virtio -cdrom /iso -device e1000,netdev=n -drive file=/c,media=cdrom";
        // Behind the card, which is where it was.
        let wanted = "-cdrom /iso -device e1000,netdev=n -drive file=/c,media=cdrom -device ide-hd,bus=ide.0,unit=1,drive=stonefold-disk0,bootindex=1 \
            -device virtio-blk-pci,drive=stonefold-disk1,bootindex=2";
        assert_eq!(kept(text, &["vda", "vdb"]), wanted);
        let is = kept(&format!("-M q35 {text}"), &["vda", "vdb"]);
        assert!(is.contains("ide-hd,bus=ide.1,drive=stonefold-disk0"), "{is}");
    }

    /// Goal: each is known by what QEMU calls it, whatever else is there.
    #[test]
    fn those_that_have_no_names_of_their_own_are_known_by_qemu_s() {
        let text = "-drive file=/a,if=virtio -device virtio-net-pci -blockdev raw,node-name=b,file=f -device scsi-hd,drive=b,serial=B \
            -blockdev raw,node-name=seed,read-only=on,file=g -device virtio-blk-pci,drive=seed -drive file=/c,index=3 -device nvme,id=n,serial=N -device nvme-ns,bus=n,drive=x";
        let is = kept(text, &["virtio0", "device1", "ide1-hd1", "x"]);
        for word in [
            "virtio-blk-pci,drive=stonefold-disk0,bootindex=1",
            "scsi-hd,drive=stonefold-disk1,serial=B,bootindex=2",
            "ide-hd,bus=ide.1,unit=1,drive=stonefold-disk2,bootindex=3",
            "nvme-ns,bus=n,drive=stonefold-disk3,bootindex=4",
            "virtio-blk-pci,drive=seed",
        ] {
            assert!(is.contains(word), "no {word} in {is}");
        }
    }

    #[test]
    fn what_is_not_there_yet_keeps_its_place_among_the_boots() {
        let mut words = Words::parse("-device virtio-blk-pci,drive=b").unwrap();
        keep(&mut words, &["a", "b"]);
        assert_eq!(words[0].property("bootindex"), Some("2"));
        assert_eq!(free_boot(&words, 1), 1);
    }

    /// Goal: where it is not plain which is which, nothing is guessed.
    #[test]
    fn nothing_is_guessed() {
        for (text, targets) in [
            ("-hda /a -hdb /b", &["vda"][..]),
            ("-drive file=/a,if=none,id=x -device virtio-blk-pci,drive=x -hda /b", &["vda", "vdb", "vdc"]),
            ("-m 1G", &["vda"]),
        ] {
            assert_eq!(kept(text, targets), Words::parse(text).unwrap().arguments().join(" "));
        }
    }

    #[test]
    fn whoever_writes_arguments_says_how_a_disk_hangs() {
        let is = kept("-device ahci,id=a -device ide-hd,drive=vdb,bus=a.0,bootindex=0", &["vda", "vdb"]);
        assert_eq!(is, "-device ahci,id=a -device ide-hd,drive=stonefold-disk1,bus=a.0,bootindex=0");
    }

    #[test]
    fn a_copy_s_own_devices_are_known_again() {
        let of_ours = "-device ide-hd,drive=stonefold-disk0,bootindex=1";
        let words = Words::parse(of_ours).unwrap();
        assert!(has(&words, 0) && !has(&words, 1) && is_of_disk(&words[0]));
        assert_eq!(kept(of_ours, &["vda"]), of_ours);
    }
}
