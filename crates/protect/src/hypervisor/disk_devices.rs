//! The guest's ends of a machine's disks, as QEMU's arguments name them: a copy has the same, each with a disk of ours behind it.
//!
//! A device belongs to the disk that it names: by its `drive` or its `id`, or, where none is named so and there are as many, in their order. It says
//! `drive=stonefold-disk0` then, the number being the disk's. *Never*: loses what the guest knows its disk by: the bus, its place there, a serial number.

use super::words::{Word, Words};
use serde_json::Value;

/// What is behind the guest's end of a disk, but for its number.
const NODE: &str = "stonefold-disk";
/// Devices that are disks.
const DISKS: &[&str] = &[
    "ide-hd",
    "nvme",
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

/// The name of what is behind a disk.
pub(crate) fn node(number: usize) -> String {
    format!("{NODE}{number}")
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
    let found: Vec<usize> = (0..words.len()).filter(|at| is_disk(&words[*at])).collect();
    let own = chosen(words, &found, targets);
    for at in found.into_iter().filter(|at| !own.contains(&Some(*at))) {
        // What an earlier copy was given, and is no disk of this one.
        if is_of_disk(&words[at]) {
            words[at].option.clear();
        }
    }
    let mut behind = Vec::new();
    for (number, at) in own.iter().enumerate().filter_map(|(number, at)| at.map(|at| (number, at))) {
        let word = &mut words[at];
        if word.option == "device" {
            behind.extend(word.property("drive").filter(|drive| !drive.starts_with(NODE)).map(str::to_owned));
            set_drive(word, &node(number));
        } else {
            *word = Word {
                option: "device".to_owned(),
                value: format!("{},drive={}", device_of(word), node(number)),
            };
        }
    }
    number_boots(words);
    words.take(|word| {
        let name = ["id", "node-name"].iter().find_map(|name| word.property(name));
        let is_behind = || name.is_some_and(|name| behind.iter().any(|gone| gone == name));
        word.option.is_empty() || ["drive", "blockdev"].contains(&word.option.as_str()) && is_behind()
    });
}

/// What the disks of ours hang on.
pub(super) fn controllers(words: &Words) -> Vec<String> {
    let of_disks = words.iter().filter(|word| is_of_disk(word));
    of_disks.filter_map(|word| Some(word.property("bus")?.split('.').next()?.to_owned())).collect()
}

/// The word of each disk.
fn chosen(words: &Words, found: &[usize], targets: &[&str]) -> Vec<Option<usize>> {
    let by_name = |target: &&str| {
        let names =
            |at: &&usize| ["drive", "id"].iter().any(|name| words[**at].property(name) == Some(target));
        found.iter().find(names).copied()
    };
    let named: Vec<Option<usize>> = targets.iter().map(by_name).collect();
    // Of a machine that is a copy itself: what it was given.
    let given = |number: usize| {
        let is_it = |at: &&usize| {
            words[**at].property("drive") == Some(&node(number)) && !named.contains(&Some(**at))
        };
        found.iter().find(is_it).copied()
    };
    let chosen: Vec<Option<usize>> =
        named.iter().enumerate().map(|(number, at)| at.or_else(|| given(number))).collect();
    match found.len() == targets.len() && chosen.iter().all(Option::is_none) {
        true => found.iter().copied().map(Some).collect(),
        false => chosen,
    }
}

fn is_disk(word: &Word) -> bool {
    match word.option.as_str() {
        "device" => is_disk_device(word) && word.property("drive").is_some(),
        "drive" => {
            let is_removable = word.property("media") == Some("cdrom");
            let is_read = ["readonly", "read-only"].iter().any(|name| word.property(name) == Some("on"));
            !is_removable && !is_read && !word.property("if").is_some_and(|kind| NO_DISKS.contains(&kind))
        }
        option => SHORT.contains(&option),
    }
}

fn is_disk_device(word: &Word) -> bool {
    word.option == "device" && word.kind("driver").is_some_and(|driver| DISKS.contains(&driver))
}

/// What QEMU makes of a disk that is not given a device.
fn device_of(word: &Word) -> &'static str {
    match word.property("if") {
        Some("virtio") => "virtio-blk-pci",
        // Without it a pc has them where it always had.
        _ => "ide-hd",
    }
}

fn set_drive(word: &mut Word, drive: &str) {
    match serde_json::from_str::<Value>(&word.value) {
        Ok(mut told) if told.is_object() => {
            told["drive"] = drive.into();
            word.value = told.to_string();
        }
        _ => word.replace_property("drive", drive),
    }
}

/// A device's place in the order of boots: lower ones are tried first.
fn boots(word: &Word) -> Option<u64> {
    match serde_json::from_str::<Value>(&word.value) {
        Ok(told) => told["bootindex"].as_u64(),
        Err(_) => word.property("bootindex")?.parse().ok(),
    }
}

/// The first place from this one on that no device has.
pub(super) fn free_boot(words: &Words, from: u64) -> u64 {
    (from..).find(|at| words.iter().all(|word| boots(word) != Some(*at))).expect("numbers go on")
}

/// Those that have no place in the order of boots get the next ones, as QEMU tries its disks; what has one keeps it.
fn number_boots(words: &mut Words) {
    let mut next = words.iter().filter_map(boots).max().map_or(1, |last| last.saturating_add(1));
    words.each(|word| {
        if !is_of_disk(word) || boots(word).is_some() {
            return;
        }
        match serde_json::from_str::<Value>(&word.value) {
            Ok(mut told) if told.is_object() => {
                told["bootindex"] = next.into();
                word.value = told.to_string();
            }
            _ => word.value += &format!(",bootindex={next}"),
        }
        next += 1;
    });
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
            -blockdev '{\"driver\":\"file\",\"node-name\":\"more\",\"filename\":\"/b\"}' \
            -device '{\"driver\":\"scsi-hd\",\"drive\":\"more\",\"id\":\"data\"}' -device virtio-scsi-pci -drive if=pflash,file=/vars";
        let is = kept(text, &["root", "data"]);
        assert!(is.contains("ide-hd,drive=stonefold-disk0,serial=S1,bus=ide.2,bootindex=1"), "{is}");
        for word in [
            "\"drive\":\"stonefold-disk1\"",
            "\"driver\":\"scsi-hd\"",
            "\"bootindex\":2",
            "virtio-scsi-pci",
            "/vars",
        ] {
            assert!(is.contains(word), "no {word} in {is}");
        }
        assert!(!is.contains("/a,") && !is.contains("filename"), "{is}");
        let text = kept_text(text, &["root", "data"]);
        assert_eq!(kept_text(&text, &["root", "data"]), text, "of a copy of the copy");
    }

    #[test]
    fn those_without_names_are_taken_in_their_order() {
        let is =
            kept("-hda /a -drive file=/b,if=virtio -cdrom /iso -drive file=/c,media=cdrom", &["vda", "vdb"]);
        assert!(is.starts_with("-device ide-hd,drive=stonefold-disk0,bootindex=1 -device virtio-blk-pci,drive=stonefold-disk1,bootindex=2 "), "{is}");
        assert!(is.ends_with("-cdrom /iso -drive file=/c,media=cdrom"), "{is}");
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
