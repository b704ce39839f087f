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
            align: 0,
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
    let dir = tempfile::tempdir().unwrap();
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
