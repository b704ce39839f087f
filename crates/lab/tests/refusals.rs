//! Targets that cannot be measured are refused before anything is written to them, and say what to do.

mod nbdkit;

use nbdkit::Nbdkit;
use std::process::Command;
use stonefold_env::{Env, SystemWorld};
use stonefold_lab::payload::Reduction;
use stonefold_lab::rig::{Rig, RigOptions};
use stonefold_lab::workload::{Load, Stream, Volume, Workload};
use stonefold_needs::{Need, there_is};
use stonefold_types::{Error, Kind};

const BYTES: u64 = 64 << 20;
const ONE: Load = Load::Closed { outstanding: 1 };

fn open(target: &str) -> Result<(tokio::runtime::Runtime, Rig), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let env = Env::new(SystemWorld::new(runtime.handle().clone(), 1).unwrap());
    let workload = Workload {
        volumes: vec![Volume {
            name: "v".into(),
            bytes: BYTES,
            reduction: Reduction { dedupe: 1.0, compression: 1.0 },
            original: None,
        }],
        streams: vec![Stream {
            name: "s".into(),
            volume: 0,
            read: 0.5,
            random: 1.0,
            sizes: vec![(4096, 1.0)],
            alignments: Vec::new(),
            zone: (0.0, 1.0),
            hotspots: None,
            flush: 0,
            load: ONE,
        }],
    };
    let options = RigOptions { threads: 1, verify: true, seed: 5, destroy_data: false, lasting: false };
    let rig = Rig::open(&env, &workload, &[target.parse().unwrap()], &[vec![ONE]], &options)?;
    Ok((runtime, rig))
}

/// It is refused, by these words and with something to do.
fn refused(target: &str, kind: Kind, words: &str) {
    let error = told(target, words);
    assert!(error.kind() == kind, "{target}: {error:?}");
}

/// What it is told.
fn told(target: &str, words: &str) -> Error {
    let error = open(target).err().unwrap_or_else(|| panic!("{target} is taken"));
    assert!(error.what().contains(words), "{target}: {error:?}");
    assert!(error.remedy_text().is_some(), "{target}: {error} does not say what to do");
    error
}

#[test]
fn an_export_that_cannot_be_used_is_refused() {
    let small = Nbdkit::start(tempfile::tempdir().unwrap(), &["memory", "1M"]);
    refused(&small.target(), Kind::Invalid, "has 1M, and the load needs 64M");
    let read_only = Nbdkit::start(tempfile::tempdir().unwrap(), &["--readonly", "memory", "64M"]);
    refused(&read_only.target(), Kind::ReadOnly, "is read-only");
    let gone = Nbdkit::start(tempfile::tempdir().unwrap(), &["memory", "64M"]).target();
    assert!(open(&gone).is_err());
}

#[test]
fn a_file_that_cannot_be_used_is_refused() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    told(&format!("file:{}", at("none/disk.img")), "looking at the file system");
    told(&format!("file:{}", dir.path().display()), "opening");
    told(&format!("dev:{}", at("disk.img")), "opening");
    std::fs::write(at("disk.img"), "").unwrap();
    refused(&format!("dev:{}", at("disk.img")), Kind::Invalid, "no block device");
    refused(&format!("dir:{}", dir.path().display()), Kind::Invalid, "is a folder");

    // Two loads on one file would find each other's faults.
    let target = format!("file:{}", at("disk.img"));
    let first = open(&target).unwrap();
    refused(&target, Kind::Busy, "is used by somebody else");
    drop(first);
    open(&target).map(drop).unwrap();
}

/// A program that ends with what it was started for.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// *Never*: what a machine, a program of QEMU's or a loop device has is written over.
#[test]
fn a_file_that_something_else_uses_is_refused() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let [path, socket, begun] = ["disk.img", "socket", "begun"].map(|name| dir.path().join(name));
    std::fs::File::create(&path).unwrap().set_len(BYTES).unwrap();
    let target = format!("file:{}", path.display());
    for words in [&["--read-only"][..], &[]] {
        let mut served = Command::new("qemu-nbd");
        served.args(["--persistent", "--format=raw", "--socket"]).arg(&socket).args(words).arg(&path);
        // Which it writes once it has the image.
        served.arg("--pid-file").arg(&begun);
        let served = Ended(served.spawn().expect("qemu-utils is installed"));
        for _ in 0..1000 {
            if begun.exists() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        refused(&target, Kind::Busy, "is used by a QEMU");
        drop(served);
        std::fs::remove_file(&socket).unwrap();
        std::fs::remove_file(&begun).unwrap();
        open(&target).map(drop).unwrap();
    }
    if !there_is(Need::Loop, "a file beneath a loop device that the lab is pointed at") {
        return;
    }
    let device = shell(&format!("losetup --find --show '{}'", path.display()));
    let device = device.trim();
    let error = open(&target).err();
    shell(&format!("losetup --detach {device}"));
    let error = error.expect("a file beneath a loop device is taken");
    assert!(error.what().contains(&format!("the loop device {device}")), "{error:?}");
    assert!(error.remedy_text().unwrap().contains(&format!("losetup -d {device}")));
    open(&target).map(drop).unwrap();
}

/// Wherever data of others lies it is found, and the file stays as it was, as long as it was.
#[test]
fn data_of_others_is_left_as_it_is_wherever_it_lies() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("disk.img");
    let target = format!("file:{}", path.display());
    let text = b"somebody's only copy of something, of which no byte may be written over. ".repeat(2000);
    // (bytes of the file, where in it somebody's data lie, how much of them)
    for (bytes, at, len) in [
        (9, 0, 9),
        (BYTES, 81_920, text.len()),
        // Where md, btrfs and others have their marks, and nothing else.
        (BYTES, 4096, 64),
        (BYTES, (64 << 10) + 64, 8),
        (BYTES, (32 << 20) + 12_345, 1),
        (BYTES, BYTES - 1, 1),
        // As large as is not looked at whole.
        (4 << 30, (3 << 30) + 4096, 100),
        (4 << 30, (4 << 30) - 70_000, 100),
    ] {
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(bytes).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &text[..len], at).unwrap();
        refused(&target, Kind::AlreadyExists, "holds data that the lab has not written");
        assert_eq!(file.metadata().unwrap().len(), bytes, "at {at}");
        let mut held = vec![0; len];
        std::os::unix::fs::FileExt::read_exact_at(&std::fs::File::open(&path).unwrap(), &mut held, at)
            .unwrap();
        assert!(held == text[..len], "at {at}");
        if bytes == BYTES {
            let served = Nbdkit::start(tempfile::tempdir().unwrap(), &["file", &path.display().to_string()]);
            refused(&served.target(), Kind::AlreadyExists, "holds data that the lab has not written");
        }
        std::fs::remove_file(&path).unwrap();
    }
}

/// Memory is no storage, also where the kernel reads it around the page cache.
#[test]
fn a_file_in_memory_is_refused() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return };
    let path = dir.path().join("disk.img");
    refused(&format!("file:{}", path.display()), Kind::Unsupported, "lies in memory");
    assert!(!path.exists(), "a file that was refused is made");
}

/// Goal: a file system that has no room for the volumes is not filled for everybody, and a device that is too small or read-only is left as it is.
#[test]
fn what_has_no_room_is_refused() {
    if !there_is(Need::Loop, "a small file system and small devices that the lab is pointed at") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (image, at) = (dir.path().join("disk.img"), dir.path().join("mnt"));
    std::fs::create_dir(&at).unwrap();
    std::fs::File::create(&image).unwrap().set_len(32 << 20).unwrap();
    let device = shell(&format!("losetup --find --show '{}'", image.display()));
    let device = device.trim();
    let small = std::panic::catch_unwind(|| {
        refused(&format!("dev:{device}"), Kind::Invalid, "has 32M, and the load needs 64M");
        refused(&format!("file:{device}"), Kind::Invalid, "is a block device");
        shell(&format!("mkfs.ext4 -q {device} && mount {device} '{}'", at.display()));
        let file = at.join("disk.img");
        refused(&format!("file:{}", file.display()), Kind::NoSpace, "has room for");
        assert!(!file.exists(), "a file that was refused is made");
        shell(&format!(
            "umount '{}'; losetup --detach {device}; losetup --read-only {device} '{}'",
            at.display(),
            image.display()
        ));
        let error = open(&format!("dev:{device}")).err().expect("a read-only device is taken");
        assert!(error.remedy_text().is_some(), "{error}");
    });
    let _ = Command::new("sh")
        .args(["-c", &format!("umount '{}'; losetup --detach {device}", at.display())])
        .output();
    small.unwrap();
}

fn shell(command: &str) -> String {
    let output = Command::new("sh").args(["-c", command]).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
