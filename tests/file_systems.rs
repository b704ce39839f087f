//! File systems on an export, while the server is killed under them.
//!
//! *Promise* (P1, seen through a file system): ext4 and XFS are whole after `kill -9` of the server, by their own checks, and hold all that was
//! synced: every file whole under its last name, none that was removed. *Method*: the export as a file by nbdfuse, a loop device over it,
//! several writers that make, rename and remove files and sync each step, and fio that overwrites one large file in place; the
//! kill takes the device away, too, as when a machine dies. Then the same again from the start: the journal is replayed by mounting, every
//! step that was acknowledged is looked for, and the file system's check is run. *Past bug*: none yet.
//!
//! ```sh
//! STONEFOLD_FILE_SYSTEM_ROUNDS=40 cargo test -p stonefold-e2e --test file_systems -- --nocapture
//! ```

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stonefold_dice::Dice;
use stonefold_e2e::gateway::{Place, in_a_place};
use stonefold_e2e::mounts::{Fuse, Loop, Mount};
use stonefold_e2e::tools::{Beside, attempt, run};
use stonefold_guest::time::Deadline;
use stonefold_needs::{Need, there_is};

/// Kills of each file system's server. `STONEFOLD_FILE_SYSTEM_ROUNDS` asks for more.
const ROUNDS: u64 = 3;
/// Who make, rename and remove files at one time.
const WRITERS: usize = 3;
/// Steps of each writer in each round before the server is killed.
const STEPS_BEFORE_KILL: u64 = 12;
/// For these, however slow the machine is: some must be done, and the next ones under way.
const STEPS_MAX: Duration = Duration::from_secs(90);
/// A file, at most, in bytes.
const FILE_BYTES_MAX: u64 = 200_000;
/// Small caches and journals, so that folding and cold reads happen within a test.
const SMALL: [&str; 4] = ["--cache", "8M", "--journal", "16M"];

#[test]
fn ext4_is_whole_after_the_server_is_killed_under_it() {
    survives(&Kind {
        name: "ext4",
        make: &["mkfs.ext4", "-q", "-F"],
        options: "errors=remount-ro",
        check: &["e2fsck", "-f", "-n"],
    });
}

#[test]
fn xfs_is_whole_after_the_server_is_killed_under_it() {
    survives(&Kind {
        name: "xfs",
        make: &["mkfs.xfs", "-q", "-f"],
        // The dead mount of the same file system may still be on its way out.
        options: "nouuid",
        check: &["xfs_repair", "-n"],
    });
}

/// A file system's ways.
struct Kind {
    name: &'static str,
    make: &'static [&'static str],
    options: &'static str,
    check: &'static [&'static str],
}

fn survives(kind: &Kind) {
    if !there_is(Need::Loop, &format!("{} on an export, through nbdfuse and a loop device", kind.name)) {
        return;
    }
    let rounds = std::env::var("STONEFOLD_FILE_SYSTEM_ROUNDS").ok();
    let rounds =
        rounds.map_or(ROUNDS, |text| text.parse().expect("STONEFOLD_FILE_SYSTEM_ROUNDS is a number"));
    in_a_place(|place| {
        let gateway = place.start(&SMALL)?;
        place.ok(&format!("disk create fs --size {}M", 512 + 32 * rounds))?;
        {
            let fuse = Fuse::of(&place.uri("fs"), &place.path("fuse"))?;
            let device = Loop::over(&fuse.file())?;
            run(kind.make[0], &[&kind.make[1..], &[&device.device]].concat())?;
            drop(device);
            fuse.unmount()?;
        }
        gateway.stop()?;
        let done: [AtomicU64; WRITERS] = Default::default();
        for round in 0..rounds {
            write_and_kill(place, kind, &done, round)
                .with_context(|| format!("round {round} of {rounds}"))?;
            look(place, kind, &done, round).with_context(|| format!("after kill {round} of {rounds}"))?;
        }
        let steps: u64 = done.iter().map(|done| done.load(SeqCst)).sum();
        println!("{}: {steps} steps synced and found through {rounds} kills", kind.name);
        let gateway = place.start(&SMALL)?;
        place.ok("pool check")?;
        gateway.stop()
    });
}

/// The server is killed under everything that writes.
fn write_and_kill(place: &Place, kind: &Kind, done: &[AtomicU64; WRITERS], round: u64) -> Result<()> {
    let gateway = place.start(&SMALL)?;
    let fuse = Fuse::of(&place.uri("fs"), &place.path(&format!("fuse{round}")))?;
    let device = Loop::over(&fuse.file())?;
    let mount = Mount::of(&device.device, &place.path(&format!("mount{round}")), kind.options)?;
    let before: Vec<u64> = done.iter().map(|done| done.load(SeqCst)).collect();
    let file = format!("--filename={}", mount.folder.join("overwritten").display());
    let fio = Beside::start(
        "fio",
        &[
            "--name=beside",
            &file,
            "--size=32M",
            "--rw=randwrite",
            "--bsrange=4k-64k",
            "--fsync=32",
            "--time_based",
            "--runtime=600",
        ],
        || true,
    )?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (writer, done) in done.iter().enumerate() {
            let (folder, stop) = (mount.folder.join(format!("w{writer}")), &stop);
            let name = format!("writer-{writer}");
            std::thread::Builder::new().name(name).spawn_scoped(scope, move || work(&folder, done, stop))?;
        }
        let patience = Deadline::after(STEPS_MAX);
        let behind =
            || done.iter().zip(&before).any(|(done, before)| done.load(SeqCst) < before + STEPS_BEFORE_KILL);
        while behind() && !patience.passed() {
            std::thread::sleep(Duration::from_millis(10));
        }
        gateway.kill();
        stop.store(true, SeqCst);
        anyhow::Ok(())
    })?;
    fio.kill();
    ensure!(
        done.iter().zip(&before).all(|(done, before)| done.load(SeqCst) > *before),
        "a writer did nothing"
    );
    mount.let_go();
    drop(device);
    drop(fuse);
    Ok(())
}

/// All that was synced is there, and the file system's own check finds nothing.
fn look(place: &Place, kind: &Kind, done: &[AtomicU64; WRITERS], round: u64) -> Result<()> {
    let gateway = place.start(&SMALL)?;
    let fuse = Fuse::of(&place.uri("fs"), &place.path(&format!("again{round}")))?;
    let device = Loop::over(&fuse.file())?;
    let mount = Mount::of(&device.device, &place.path(&format!("look{round}")), kind.options)?;
    for (writer, done) in done.iter().enumerate() {
        find(&mount.folder.join(format!("w{writer}")), done.load(SeqCst))
            .with_context(|| format!("writer {writer}"))?;
    }
    mount.unmount()?;
    let (status, said) = attempt(kind.check[0], &[&kind.check[1..], &[&device.device]].concat())?;
    ensure!(status == Some(0), "the check of {} ends with {status:?}:\n{said}", kind.name);
    drop(device);
    fuse.unmount()?;
    gateway.stop()
}

/// The file that step `number` removes, if it is one that removes: every fourth does, the one of two steps before.
fn removed_by(number: u64) -> Option<u64> {
    (number % 4 == 3).then(|| number - 2)
}

fn contents(folder: &Path, number: u64) -> Vec<u8> {
    let writer = folder.to_string_lossy().bytes().next_back().unwrap_or_default();
    let mut chance = Dice::new(number << 8 | u64::from(writer));
    let mut bytes = vec![0; chance.between(1, FILE_BYTES_MAX) as usize];
    chance.fill(&mut bytes);
    bytes
}

/// Step after step, each synced before it counts, until one fails or it is enough.
fn work(folder: &Path, done: &AtomicU64, stop: &AtomicBool) {
    if sync_folder_made(folder).is_err() {
        return;
    }
    while !stop.load(SeqCst) {
        let number = done.load(SeqCst);
        if step(folder, number).is_err() {
            return;
        }
        done.store(number + 1, SeqCst);
    }
}

fn sync_folder_made(folder: &Path) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    folder.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

/// Makes a file under another name and renames it, or removes one. It may have been done already, at a kill in its midst.
fn step(folder: &Path, number: u64) -> std::io::Result<()> {
    if let Some(gone) = removed_by(number) {
        fs::remove_file(folder.join(format!("f{gone}")))
            .or_else(|e| if e.kind() == ErrorKind::NotFound { Ok(()) } else { Err(e) })?;
        return File::open(folder)?.sync_all();
    }
    let (fresh, path) = (folder.join("fresh"), folder.join(format!("f{number}")));
    let mut file = File::create(&fresh)?;
    file.write_all(&contents(folder, number))?;
    file.sync_all()?;
    fs::rename(&fresh, &path)?;
    File::open(folder)?.sync_all()
}

/// What must be there after so many steps; the next one may have happened.
fn find(folder: &Path, done: u64) -> Result<()> {
    for number in (0..done).filter(|number| removed_by(*number).is_none()) {
        let removed = (number % 4 == 1).then_some(number + 2);
        let path = folder.join(format!("f{number}"));
        match fs::read(&path) {
            Ok(found) => {
                ensure!(
                    removed.is_none_or(|by| by >= done),
                    "file {number} was removed, synced, and is there"
                );
                ensure!(
                    found == contents(folder, number),
                    "file {number} of {done} steps holds something else"
                );
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                ensure!(removed.is_some_and(|by| by <= done), "file {number} of {done} synced steps is gone");
            }
            Err(error) => return Err(error).with_context(|| format!("file {number} of {done} synced steps")),
        }
    }
    Ok(())
}
