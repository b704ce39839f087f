//! Runs that copy: each point is what its source held, byte by byte, whatever the source, the disk or the server does meanwhile; and nothing
//! is written that was there.

use crate::exporter::{Exporter, Then};
use crate::life::{ENDS, End, Ended, Life, Pool, name};
use std::process::Command;
use std::time::Duration;
use stonefold_protect::domain::{Network, Reach};
use stonefold_protect::{ImageFile, RecoverRequest, Run, RunRequest, RunState, SourceOf};
use stonefold_types::{Error, Kind, PointName};

pub(crate) const MIB: usize = 1 << 20;
pub(crate) const BLOCK: usize = 4096;
pub(crate) const DISK: &str = "db.vda";

/// Bytes of which no two blocks are alike, with holes: each second 128 KiB is one.
pub(crate) fn patterned(bytes: usize, seed: u64) -> Vec<u8> {
    let of = |at: usize| {
        let hole = at / (128 << 10) % 2 == 1;
        let mixed =
            (at as u64 / 8 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed).rotate_left(23);
        if hole { 0 } else { (mixed >> (at % 8 * 8)) as u8 | 1 }
    };
    (0..bytes).map(of).collect()
}

async fn contents(life: &Life, export: &str) -> Vec<u8> {
    let attachment = life.store.attach(&export.parse().unwrap()).unwrap();
    let mut bytes = vec![0; attachment.size_bytes() as usize];
    attachment.read(0, &mut bytes).await.unwrap();
    bytes
}

pub(crate) async fn is_held(life: &Life, export: &str, wanted: &[u8], when: &str) {
    let held = contents(life, export).await;
    assert_eq!(held.len(), wanted.len().next_multiple_of(BLOCK), "{when}: '{export}'");
    let wrong = wanted.iter().zip(&held).position(|(wanted, held)| wanted != held);
    assert!(wrong.is_none(), "{when}: '{export}' differs at {wrong:?}");
    assert!(held[wanted.len()..].iter().all(|byte| *byte == 0));
}

/// A source `db` of an exporter.
pub(crate) async fn exported(life: &Life, bytes: Vec<u8>) -> Exporter {
    let exporter = Exporter::start(life, bytes);
    life.protection.add_source(name("db"), SourceOf::Nbd(exporter.uri().as_str().into())).await.unwrap();
    exporter
}

pub(crate) async fn run(life: &Life) -> Run {
    life.protection.back_up(&name("db"), RunRequest::default()).await.unwrap()
}

pub(crate) fn snapshot(point: &PointName) -> String {
    format!("{DISK}@{}", point.stamp)
}

pub(crate) fn refused(error: Error, kind: Kind, words: &str) {
    assert!(error.kind() == kind && error.to_string().contains(words), "{error:?}");
}

/// What of a run the pool did not have, once that is told.
async fn stored(life: &Life, run: &PointName) -> u64 {
    loop {
        let run = life.protection.run(run).await.unwrap();
        if let Some(bytes) = run.copied.unwrap().stored_bytes {
            return bytes;
        }
        life.env.sleep(Duration::from_millis(100)).await;
    }
}

/// How many points there are, each of them whole, and no snapshot besides.
pub(crate) async fn points(life: &Life) -> usize {
    let points = life.protection.points(None).await.unwrap();
    assert!(points.iter().all(|point| point.missing.is_empty()));
    assert_eq!(life.snapshots().len(), points.len(), "leftovers");
    points.len()
}

#[test]
fn the_first_is_whole_and_the_next_only_what_differs() {
    let pool = Pool::new();
    let (first, old) = pool.life(|life| async move {
        let exporter = exported(&life, patterned(4 * MIB, 1)).await;
        let first = run(&life).await;
        let copied = first.copied.unwrap();
        assert_eq!(
            (copied.read_bytes, copied.sent_bytes, copied.written_bytes),
            (2 * MIB as u64, 2 * MIB as u64, 2 * MIB as u64)
        );
        assert!(copied.notes.is_empty() && copied.complete, "{copied:?}");
        // It does not get smaller, and each frame has a header.
        let more = stored(&life, &first.name).await - 2 * MIB as u64;
        assert!(more > 0 && more <= 2 * MIB as u64 / 100, "{more}");
        assert_eq!(first.state, RunState::Done);
        is_held(&life, &snapshot(&first.name), &exporter.bytes(), "the first").await;
        let disk = life.store.disk(&name(DISK)).unwrap();
        assert_eq!(disk.settings.qos.as_str(), "backup-target");

        let unchanged = run(&life).await;
        assert_eq!(stored(&life, &unchanged.name).await, 0);
        let again = unchanged.copied.unwrap();
        assert_eq!((again.read_bytes, again.written_bytes), (2 * MIB as u64, 0));
        let old = exporter.bytes();
        exporter.change(|bytes| {
            bytes[5] ^= 0xff;
            bytes[MIB + BLOCK - 1..MIB + BLOCK + 1].fill(9);
            // In a hole, and one where there was none.
            bytes[200 << 10] = 7;
            bytes[512 << 10..600 << 10].fill(0);
        });
        let changed = run(&life).await;
        assert_eq!(changed.copied.unwrap().written_bytes, 4 * BLOCK as u64);
        is_held(&life, &snapshot(&changed.name), &exporter.bytes(), "what changed").await;
        let attachment = life.store.attach(&DISK.parse().unwrap()).unwrap();
        let extents = attachment.extents(512 << 10, 88 << 10).await.unwrap();
        assert!(extents.iter().all(|extent| extent.hole), "{extents:?}");

        exporter.after(None);
        let full = life
            .protection
            .back_up(&name("db"), RunRequest { full: true, ..RunRequest::default() })
            .await
            .unwrap()
            .copied
            .unwrap();
        assert_eq!((full.read_bytes, full.written_bytes, full.full), (4 * MIB as u64, 0, true));
        assert_eq!(exporter.reads(), 16, "it is asked for 256 KiB at a time");
        (first.name, old)
    });
    pool.life(|life| async move {
        is_held(&life, &snapshot(&first), &old, "after a restart").await;
        assert_eq!(points(&life).await, 4);
        let runs = life.protection.runs(Some(&name("db"))).await.unwrap();
        assert!(runs.iter().all(|run| run.copied.as_ref().unwrap().complete && run.ended.is_some()));
        let asked = RecoverRequest {
            point: first,
            name: name("again"),
            qos: None,
            reach: Reach::Socket("/run/nbd.sock".into()),
            network: Network::Same,
            dry_run: false,
        };
        life.protection.recover(asked).await.unwrap();
        is_held(&life, "again.vda", &old, "recovered").await;
        let again = life.store.disk(&name("again.vda")).unwrap();
        assert_eq!(again.settings.qos.as_str(), "production", "what comes back is to work");
    });
}

/// Goal: a server that has no more than the oldest part of the protocol, and a size that is no whole number of blocks, are copied as well.
#[test]
fn a_plain_server_is_read_whole() {
    Pool::new().life(|life| async move {
        let exporter = exported(&life, patterned(MIB + 512, 1)).await;
        exporter.speaks_plainly();
        let copied = run(&life).await;
        assert_eq!(copied.copied.unwrap().sent_bytes, MIB as u64 + 512);
        is_held(&life, &snapshot(&copied.name), &exporter.bytes(), "plain").await;
        exporter.after(Some((0, Then::Fail)));
        let failed = life.protection.back_up(&name("db"), RunRequest::default()).await.unwrap_err();
        refused(failed, Kind::Io, "an error of its medium (5)");
    });
}

#[test]
fn a_source_that_grows_or_shrinks_is_told_of() {
    Pool::new().life(|life| async move {
        let exporter = exported(&life, patterned(2 * MIB, 1)).await;
        let first = run(&life).await;
        let old = exporter.bytes();
        for (bytes, words) in
            [(3 * MIB, "the source has grown from 2M to 3M"), (MIB, "has shrunk from 3M to 1M")]
        {
            exporter.change(|all| *all = patterned(bytes, 1));
            let next = run(&life).await;
            assert!(next.copied.as_ref().unwrap().notes[0].contains(words), "{next:?}");
            is_held(&life, &snapshot(&next.name), &exporter.bytes(), words).await;
            let point = life.protection.point(&next.name).await.unwrap();
            assert_eq!(point.point.disks[0].size_bytes, bytes as u64);
        }
        is_held(&life, &snapshot(&first.name), &old, "as it was").await;
    });
}

/// Goal: a source that fails, goes or is not there leaves no point and says why; what was copied is not copied again, and the points there are stay as
/// they are.
#[test]
fn a_source_that_fails_leaves_what_there_was() {
    for then in [Then::Fail, Then::Vanish] {
        Pool::new().life(|life| async move {
            let exporter = exported(&life, patterned(4 * MIB, 1)).await;
            let first = run(&life).await;
            let old = exporter.bytes();
            exporter.change(|bytes| *bytes = patterned(4 * MIB, 2));
            exporter.after(Some((5, then)));
            let error = life.protection.back_up(&name("db"), RunRequest::default()).await.unwrap_err();
            let words = match then {
                Then::Fail => "an error of its medium (5): worn",
                _ => "the NBD server has gone",
            };
            refused(error, Kind::Io, words);
            assert_eq!(points(&life).await, 1);
            is_held(&life, &snapshot(&first.name), &old, "after an error").await;
            let failed = life.protection.runs(None).await.unwrap().pop().unwrap();
            assert_eq!(failed.state, RunState::Failed);
            assert!(failed.note.unwrap().contains(words));
            let copied = failed.copied.unwrap();
            assert!(!copied.complete && copied.read_bytes <= 5 * (128 << 10), "{copied:?}");

            exporter.after(None);
            let next = run(&life).await;
            let lacking = 2 * MIB as u64 - copied.written_bytes;
            assert_eq!(next.copied.unwrap().written_bytes, lacking, "only what is lacking");
            is_held(&life, &snapshot(&next.name), &exporter.bytes(), "again").await;
            is_held(&life, &snapshot(&first.name), &old, "and the first").await;
        });
    }
}

#[test]
fn what_cannot_be_copied_is_refused() {
    Pool::new().life(|life| async move {
        let protection = &life.protection;
        let nbd = |uri: &str| SourceOf::Nbd(uri.into());
        refused(protection.add_source(name("x"), nbd("db")).await.unwrap_err(), Kind::Invalid, "nbd://HOST");
        let image = SourceOf::Image(ImageFile { path: "/nowhere/x".into(), format: None });
        refused(protection.add_source(name("x"), image).await.unwrap_err(), Kind::NotFound, "/nowhere/x");
        let long = name(&"x".repeat(126));
        refused(protection.add_source(long, nbd("nbd://h/x")).await.unwrap_err(), Kind::Invalid, "copied to");
        life.create(DISK).await;
        let taken = protection.add_source(name("db"), nbd("nbd://h/x")).await.unwrap_err();
        refused(taken, Kind::AlreadyExists, "disk 'db.vda' exists already");
        life.store.remove_disk(&name(DISK)).await.unwrap();

        // One that came meanwhile is nobody's to copy to.
        let exporter = exported(&life, patterned(MIB, 1)).await;
        life.create(DISK).await;
        let taken = protection.back_up(&name("db"), RunRequest::default()).await.unwrap_err();
        refused(taken, Kind::AlreadyExists, "disk 'db.vda' exists already");
        assert_eq!(contents(&life, DISK).await, vec![0; MIB]);
        life.store.remove_disk(&name(DISK)).await.unwrap();
        exporter.change(Vec::clear);
        let empty = protection.back_up(&name("db"), RunRequest::default()).await.unwrap_err();
        refused(empty, Kind::Invalid, "has 0 bytes");
        drop(exporter);
        let gone = protection.back_up(&name("db"), RunRequest::default()).await.unwrap_err();
        refused(gone, Kind::NotFound, "connecting to the NBD server");
        let runs = protection.runs(None).await.unwrap();
        assert!(runs.len() == 3 && runs.iter().all(|run| run.state == RunState::Failed), "{runs:?}");
        assert_eq!((points(&life).await, life.disks().len()), (0, 0));
        // What is gone is made anew.
        protection.remove_source(&name("db")).await.unwrap();
        exported(&life, patterned(MIB, 1)).await;
    });
}

/// Goal: what others do to the disk is in no point, and told where it is known; while they could write there is no run.
#[test]
fn what_others_write_to_the_disk_is_in_no_point() {
    Pool::new().life(|life| async move {
        let exporter = exported(&life, patterned(MIB, 1)).await;
        run(&life).await;
        life.write(DISK, 77).await;
        let next = run(&life).await;
        let notes = next.copied.unwrap().notes;
        assert!(notes.len() == 1 && notes[0].contains("had changed 4K of disk 'db.vda'"), "{notes:?}");
        is_held(&life, &snapshot(&next.name), &exporter.bytes(), "set right").await;

        let guest = life.store.attach_for(&DISK.parse().unwrap(), "a guest".into()).unwrap();
        let busy = life.protection.back_up(&name("db"), RunRequest::default()).await.unwrap_err();
        refused(busy, Kind::Busy, "is in use: a guest");
        drop(guest);
        assert!(run(&life).await.copied.unwrap().notes.is_empty());

        // One that comes in the midst of it, and is gone again.
        exporter.after(Some((2, Then::Hang)));
        let comes = async {
            while exporter.reads() <= 2 {
                tokio::task::yield_now().await;
            }
            life.write(DISK, 78).await;
            exporter.after(None);
        };
        let db = name("db");
        let (ended, ()) = futures::join!(life.protection.back_up(&db, RunRequest::default()), comes);
        refused(ended.unwrap_err(), Kind::Conflict, "something else wrote to disk 'db.vda'");
        let next = run(&life).await;
        is_held(&life, &snapshot(&next.name), &exporter.bytes(), "after all").await;
        assert_eq!(points(&life).await, 4);
    });
}

/// Goal: cut off at any step of the medium, by any end, a run is a whole point or none, and the next one is whole.
#[test]
fn a_copy_that_is_cut_off_is_a_whole_point_or_none() {
    ENDS.into_iter().for_each(a_copy_cut_off);
}

fn a_copy_cut_off(end: End) {
    for steps in 0.. {
        let when = &format!("{end:?} after {steps} steps");
        let pool = Pool::new();
        let sockets = tempfile::tempdir().unwrap();
        let served = &sockets;
        let ended = pool.life(|life| async move {
            let exporter = Exporter::start_in(&life, served, patterned(256 << 10, 1));
            life.protection
                .add_source(name("db"), SourceOf::Nbd(exporter.uri().as_str().into()))
                .await
                .unwrap();
            life.cut_after(steps, life.protection.back_up(&name("db"), RunRequest::default())).await
        });
        pool.ends(end);
        let made = pool.life(|life| async move {
            let exporter = Exporter::start_in(&life, served, patterned(256 << 10, 1));
            let made = points(&life).await;
            for run in life.protection.runs(None).await.unwrap() {
                assert_ne!(run.state, RunState::Running, "{when}");
                assert_eq!(run.state == RunState::Done, made == 1, "{when}: {run:?}");
                if made == 1 {
                    is_held(&life, &snapshot(&run.name), &exporter.bytes(), when).await;
                }
            }
            exporter.change(|bytes| *bytes = patterned(256 << 10, 2));
            let next = run(&life).await;
            is_held(&life, &snapshot(&next.name), &exporter.bytes(), when).await;
            assert_eq!(points(&life).await, made + 1, "{when}");
            made
        });
        if let Ended::Whole(_) = ended {
            assert_eq!(made, 1);
            assert!(
                steps > 6,
                "a run, a source, a disk, data, a mark, a point and the run's end take as many"
            );
            return;
        }
    }
}

fn tool(program: &str, args: &[&str]) {
    let done = Command::new(program).args(args).output();
    let done = done.unwrap_or_else(|e| panic!("{program}, of the package qemu-utils, is needed: {e}"));
    assert!(done.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Goal: an image is read by whatever format it has, and its size and holes are its own; one that is in use, and one that has gone, are
/// refused, and nothing is left over.
#[test]
fn an_image_is_copied_by_a_real_qemu() {
    let folder = tempfile::tempdir().unwrap();
    let path = |file: &str| folder.path().join(file).to_str().unwrap().to_owned();
    let (raw, image) = (path("raw"), path("image"));
    let mut bytes = patterned(4 * MIB, 1);
    std::fs::write(&raw, &bytes).unwrap();
    for format in ["qcow2", "vmdk", "vdi", "vhdx", "vpc", "raw"] {
        // Else it rounds a size up to what disks of cylinders have.
        let options: &[&str] = if format == "vpc" { &["-o", "force_size=on"] } else { &[] };
        let words = [&["convert", "-f", "raw", "-O", format], options, &[&raw, &image]].concat();
        tool("qemu-img", &words);
        bytes = std::fs::read(&raw).unwrap();
        let (image, bytes) = (&image, &bytes);
        Pool::new().life(|life| async move {
            let of = SourceOf::Image(ImageFile { path: image.clone(), format: None });
            let added = life.protection.add_source(name("db"), of).await.unwrap();
            let SourceOf::Image(told) = added.of else { panic!() };
            assert_eq!(told.format.as_deref(), Some(format));
            let first = run(&life).await;
            is_held(&life, &snapshot(&first.name), bytes, format).await;
            assert!(first.copied.unwrap().written_bytes <= 2 * MIB as u64);
            tool("qemu-io", &["-f", format, "-c", "write -P 5 1M 4k", image]);
            let next = run(&life).await;
            assert_eq!(next.copied.unwrap().written_bytes, BLOCK as u64, "{format}");
            let mut changed = bytes.clone();
            changed[MIB..MIB + BLOCK].fill(5);
            is_held(&life, &snapshot(&next.name), &changed, format).await;
            is_held(&life, &snapshot(&first.name), bytes, format).await;
            std::fs::remove_file(image).unwrap();
            let gone = life.protection.back_up(&name("db"), RunRequest::default()).await.unwrap_err();
            refused(gone, Kind::Io, "No such file");
            assert_eq!(points(&life).await, 2);
        });
    }
}

/// Goal: whichever point goes, and in whatever order, all others are what they were, byte by byte, also when the room is given back.
#[test]
fn points_that_go_in_any_order_take_nothing_of_the_others() {
    for seed in 1..=4 {
        let mut dice = stonefold_dice::Dice::new(seed);
        Pool::new().life(|life| async move {
            let exporter = exported(&life, patterned(MIB, seed)).await;
            let mut kept = Vec::new();
            for _ in 0..10 {
                for _ in 0..8 {
                    let (at, byte) = (dice.index(MIB / BLOCK) * BLOCK, dice.below(256) as u8);
                    exporter.change(|bytes| bytes[at..at + BLOCK].fill(byte));
                }
                kept.push((run(&life).await.name, exporter.bytes()));
            }
            while !kept.is_empty() {
                let (gone, _) = kept.swap_remove(dice.index(kept.len()));
                life.protection.remove_point(&gone).await.unwrap();
                if dice.one_in(2) {
                    life.store.reclaim().await.unwrap();
                }
                for (point, wanted) in &kept {
                    is_held(&life, &snapshot(point), wanted, &format!("seed {seed}, without {gone}")).await;
                }
                assert_eq!(points(&life).await, kept.len());
            }
        });
    }
}
