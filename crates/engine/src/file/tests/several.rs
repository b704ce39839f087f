//! Several directories: the same promises, and copies that make good for each other.

use super::super::header::front_bytes;
use super::*;
use crate::file::replica::{FileNumber, JournalFile};
use std::path::Path;

/// `members` directories, side by side.
pub(super) fn several(at: &Path, members: usize, copies: usize) -> Options {
    let dirs = (1..=members).map(|n| at.join(format!("d{n}"))).collect();
    Options { dirs, copies: Some(copies), ..Options::new(at) }
}

async fn conforms(members: usize, copies: usize) {
    let dir = tempdir();
    let options = several(dir.path(), members, copies);
    conformance::run(&Dir { env: env(), options: options.clone() }).await;
    let short = Options { journal_file_bytes_max: 64 << 10, handles_max: Some(2), ..options };
    conformance::journals(&Dir { env: env(), options: short }).await;
}

#[tokio::test]
async fn two_directories_conform() {
    conforms(2, 1).await;
}

#[tokio::test]
async fn two_directories_with_two_copies_conform() {
    conforms(2, 2).await;
}

#[tokio::test]
async fn three_directories_with_two_copies_conform() {
    let _ = uring::install();
    conforms(3, 2).await;
}

pub(super) fn key(n: usize) -> Key {
    Key::new(format!("segment/{n:08}"))
}

pub(super) fn payload(n: usize, len: usize) -> Bytes {
    (0..len).map(|at| (n * 31 + at / 7) as u8).collect::<Vec<_>>().into()
}

/// The files in which an object lies.
pub(super) fn files(options: &Options, key: &Key) -> Vec<PathBuf> {
    let place = |dir: &PathBuf| layout::Layout { root: dir.clone() }.place(key).unwrap().file;
    options.dirs.iter().map(place).filter(|path| path.exists()).collect()
}

/// Objects lie on as many members as there are copies, and on all members about as many of them.
#[tokio::test]
async fn objects_and_journals_use_all_directories() {
    let dir = tempdir();
    let options = Options { journal_file_bytes_max: 64 << 10, ..several(dir.path(), 3, 2) };
    let engine = open(&options).await.unwrap();
    for n in 0..60 {
        engine.put_new(&key(n), payload(n, 10_000)).await.unwrap();
        assert_eq!(files(&options, &key(n)).len(), 2);
    }
    let id = JournalId([3; 16]);
    let journal = engine.journal_create(id).await.unwrap();
    for seq in 0..60 {
        journal.append(chunk::encode(id.0, seq, 1, &[seq as u8; 6000]).freeze()).await.unwrap();
    }
    for dir in &options.dirs {
        let objects =
            (0..60).filter(|n| files(&options, &key(*n)).iter().any(|f| f.starts_with(dir))).count();
        assert!((20..60).contains(&objects), "{objects} of 60 lie in {}", dir.display());
        let journal = fs::read_dir(dir.join("journals").join(id.to_string())).unwrap().count();
        assert!(journal >= 4, "{journal} files of a journal lie in {}", dir.display());
    }
}

/// What a sync of a journal answers for is durable in every copy, and not in the first alone.
#[tokio::test]
async fn a_sync_of_a_journal_reaches_every_copy() {
    let dir = tempdir();
    let engine = open(&several(dir.path(), 2, 2)).await.unwrap();
    let id = JournalId([4; 16]);
    // Makes the folders in which the file lies.
    engine.journal_create(id).await.unwrap();
    let number = FileNumber { number: 7, first_seq: 0 };
    let file = JournalFile::make(&engine.members, id, number, 100_000, false).await.unwrap();
    let chunk = chunk::encode(id.0, 0, 1, &[1; 6000]).freeze();
    file.write(&engine.members, chunk.clone(), 0).await.unwrap();
    assert_eq!(file.synced(), [0, 0]);
    file.sync(&engine.members).await.unwrap();
    assert_eq!(file.synced(), [chunk.len() as u64; 2]);
}

/// Rot in either copy of a segment is healed by a repair, in place; rot in both is told, and nothing changed.
#[tokio::test]
async fn rot_in_either_copy_is_healed() {
    let dir = tempdir();
    let options = several(dir.path(), 2, 2);
    let engine = open(&options).await.unwrap();
    let bytes = payload(1, (2 << 20) + 77);
    engine.put_new(&key(1), bytes.clone()).await.unwrap();
    let (offset, len) = (1_000_001, 50_000);
    let expected = bytes.slice(offset..offset + len);
    let repair =
        async || engine.repair(&key(1), offset as u64, len, &|found| found == expected).await.unwrap();
    let front = front_bytes(bytes.len() as u64);
    let rot_at = |path: &PathBuf, at: usize| {
        let file = fs::OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(b"rot", (front + at) as u64).unwrap();
        file.sync_all().unwrap();
    };
    let rot = |path: &PathBuf| rot_at(path, offset + 30_000);
    // Two pages of one stripe.
    let ruin = |path: &PathBuf| {
        rot(path);
        rot_at(path, offset + 30_000 + 16 * 4096);
    };
    let copies = files(&options, &key(1));
    for rotten in &copies {
        rot(rotten);
        let repaired = repair().await.unwrap();
        assert_eq!((repaired.copies, repaired.healed), (2, 1));
        assert_eq!(repaired.bytes, expected);
        let repaired = repair().await.unwrap();
        assert_eq!((repaired.copies, repaired.healed), (2, 0), "it is healed");
        assert!(
            copies.iter().all(|path| fs::read(path).unwrap()[front..] == bytes[..]),
            "nothing else changed"
        );
    }
    copies.iter().for_each(rot);
    let repaired = repair().await.unwrap();
    assert_eq!((repaired.copies, repaired.healed), (2, 2), "one by its own parity, the other from that one");
    assert_eq!(engine.healed(), 4);
    copies.iter().for_each(ruin);
    assert_eq!(repair().await, None, "no copy is sound");
}

/// Where the only copy that has a range is damaged elsewhere, the member that lacks it all is not to blame.
///
/// Past bug: it was dropped from the pool because its copy could not be made from the other.
#[tokio::test]
async fn a_damaged_source_does_not_drop_its_target() {
    let dir = tempdir();
    let options = several(dir.path(), 2, 2);
    let engine = open(&options).await.unwrap();
    let bytes = payload(1, 2 << 20);
    engine.put_new(&key(1), bytes.clone()).await.unwrap();
    let copies = files(&options, &key(1));
    let damaged = fs::OpenOptions::new().write(true).open(&copies[0]).unwrap();
    for header in [0, front_bytes(2 << 20) - 4096] {
        damaged.write_all_at(&[9], header as u64 + 20).unwrap();
    }
    fs::remove_file(&copies[1]).unwrap();
    engine.members.view().current().for_each(|(_, member)| member.handles.forget(&key(1)));
    let expected = bytes.slice(5000..6000);
    let repaired = engine.repair(&key(1), 5000, 1000, &|found| found == expected).await.unwrap().unwrap();
    assert_eq!((&repaired.bytes, repaired.healed), (&expected, 0));
    assert_eq!(engine.members.view().current().count(), 2, "both are in the pool still");
    assert!(!engine.describe().contains("DEGRADED"));
}

/// A copy that is missing, cut short or has a damaged header is made anew: by reading, and by a repair.
#[tokio::test]
async fn a_missing_copy_is_made_anew() {
    let dir = tempdir();
    let options = several(dir.path(), 2, 2);
    let engine = open(&options).await.unwrap();
    let mut healed = 0;
    let (segment, head) = (key(1), Key::new("head/web"));
    let bytes = payload(1, 3 << 20);
    engine.put_new(&segment, bytes.clone()).await.unwrap();
    engine.put_new(&head, payload(2, 300)).await.unwrap();
    for n in 0..2 {
        let damage: [&dyn Fn(&Path); 3] = [
            &|path| fs::remove_file(path).unwrap(),
            &|path| fs::OpenOptions::new().write(true).open(path).unwrap().set_len(9000).unwrap(),
            &|path| fs::OpenOptions::new().write(true).open(path).unwrap().write_all_at(&[9], 20).unwrap(),
        ];
        for (kind, damage) in damage.iter().enumerate() {
            let (segments, heads) = (files(&options, &segment), files(&options, &head));
            let sound = (fs::read(&segments[1 - n]).unwrap(), fs::read(&heads[1 - n]).unwrap());
            damage(&segments[n]);
            if kind != 1 {
                damage(&heads[n]);
            }
            // As another process finds it: open files would go on showing what is removed.
            engine.members.view().current().for_each(|(_, member)| member.handles.forget(&segment));
            assert_eq!(engine.get(&head).await.unwrap().0, payload(2, 300));
            assert_eq!(fs::read(&heads[n]).unwrap(), sound.1, "a document is healed before it is shown");
            if kind == 0 {
                for _ in 0..2 {
                    assert_eq!(
                        engine.get_range(&segment, 2 << 20, 10).await.unwrap(),
                        bytes[2 << 20..][..10]
                    );
                }
                while engine.members.healing.lock().contains(&segment) {
                    tokio::task::yield_now().await;
                }
            } else {
                let whole = engine.repair(&segment, 0, bytes.len(), &|found| found == bytes).await.unwrap();
                assert_eq!(whole.unwrap().healed, 1, "a damaged header is mended with the rest");
                engine.get(&segment).await.unwrap();
            }
            assert!(fs::read(&segments[n]).unwrap() == sound.0, "damage {kind} of copy {n} is healed");
            healed += if kind == 1 { 1 } else { 2 };
            assert_eq!(engine.healed(), healed, "damage {kind} of copy {n} is counted, whoever met it");
        }
    }
}

/// The newest version of a document wins, wherever a crash left it, and stays.
#[tokio::test]
async fn the_newest_document_wins_at_opening() {
    let dir = tempdir();
    let options = several(dir.path(), 3, 2);
    let head = Key::new("head/web");
    for newer in 0..2 {
        let engine = open(&options).await.unwrap();
        let old = engine.put_new(&head, payload(1, 200)).await.unwrap();
        let copies = files(&options, &head);
        let before = fs::read(&copies[0]).unwrap();
        let new = engine.put_if(&head, payload(2, 300), &old).await.unwrap();
        drop(engine);
        // A crash in the midst of put_if: one copy is new, the other old; and a put_new that reached one only.
        fs::write(&copies[1 - newer], &before).unwrap();
        let engine = open(&options).await.unwrap();
        assert_eq!(
            fs::read(&copies[0]).unwrap(),
            fs::read(&copies[1]).unwrap(),
            "opening makes them the same"
        );
        assert_eq!(engine.get(&head).await.unwrap(), (payload(2, 300), new));
        drop(engine);
        fs::remove_file(&copies[newer]).unwrap();
        let engine = open(&options).await.unwrap();
        assert_eq!(files(&options, &head).len(), 2, "what is there once is there as often as it shall");
        engine.delete(&head).await.unwrap();
        assert_eq!(files(&options, &head).len(), 0);
    }
}

/// A chunk that one copy of a journal lost or never had comes from the other, and is in both when it was read.
#[tokio::test]
async fn the_longest_journal_wins_and_is_made_durable_everywhere() {
    let dir = tempdir();
    let options = Options { journal_file_bytes_max: 64 << 10, ..several(dir.path(), 3, 2) };
    let engine = open(&options).await.unwrap();
    let id = JournalId([5; 16]);
    let journal = engine.journal_create(id).await.unwrap();
    for seq in 0..40u64 {
        let chunk = chunk::encode_after(id.0, seq, 1, seq, &[seq as u8; 6000]);
        journal.append(chunk.freeze()).await.unwrap();
    }
    drop(journal);
    // Eight chunks lie in each file, and each file on two of three members.
    let files = |number: u64| -> Vec<PathBuf> {
        let at = |dir: &PathBuf| {
            dir.join("journals").join(id.to_string()).join(format!("{number:08}-{}", number * 8))
        };
        options.dirs.iter().map(at).filter(|path| path.exists()).collect()
    };
    let damage = |path: &Path, chunk: u64| {
        let file = fs::OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(&[0xee; 5000], chunk * 8192).unwrap();
    };
    for (torn, copy) in [(0u64, 0), (0, 1), (7, 1), (8, 0), (21, 0), (22, 1), (39, 1)] {
        damage(&files(torn / 8)[copy], torn % 8);
    }
    let whole = |(engine, count): (FileEngine, u64)| async move {
        let mut reader = engine.journal_open(id).await.unwrap();
        for _ in 0..count {
            assert!(reader.next().await.unwrap().is_some());
        }
        reader.next().await
    };
    // Chunk 0 was torn in both copies: nothing is left, and what is behind it says that it was durable.
    assert_eq!(whole((engine.clone(), 0)).await.unwrap_err().kind(), Kind::Corrupt);
    let first = chunk::encode_after(id.0, 0, 1, 0, &[0; 6000]).freeze();
    fs::OpenOptions::new().write(true).open(&files(0)[1]).unwrap().write_all_at(&first, 0).unwrap();
    assert_eq!(whole((engine.clone(), 40)).await.unwrap(), None);
    for number in 0..5 {
        let replicas = files(number);
        assert_eq!(replicas.len(), 2);
        let chunks = |path: &PathBuf| fs::read(path).unwrap()[..8 * 8192].to_vec();
        assert!(chunks(&replicas[0]) == chunks(&replicas[1]), "file {number} is the same everywhere");
    }
    // A file that one member lost is there again after opening.
    fs::remove_file(&files(2)[0]).unwrap();
    drop(engine);
    let engine = open(&options).await.unwrap();
    assert_eq!(files(2).len(), 2);
    assert_eq!(whole((engine.clone(), 40)).await.unwrap(), None);
    engine.journal_remove(id).await.unwrap();
    assert!(files(0).is_empty());
}

/// A segment whose put reached one copy only is served at once, and has its other soon.
#[tokio::test]
async fn a_segment_with_a_copy_less_is_healed_after_opening() {
    let dir = tempdir();
    let options = several(dir.path(), 2, 2);
    let engine = open(&options).await.unwrap();
    for n in 0..10 {
        engine.put_new(&key(n), payload(n, 2 << 20)).await.unwrap();
    }
    drop(engine);
    for n in 0..10 {
        fs::remove_file(&files(&options, &key(n))[n % 2]).unwrap();
    }
    let engine = open(&options).await.unwrap();
    for n in 0..10 {
        assert_eq!(engine.get_range(&key(n), 5000, 10).await.unwrap(), payload(n, 5010)[5000..]);
        engine.members.settle_locked(&key(n)).await.unwrap();
        let copies = files(&options, &key(n));
        assert!(fs::read(&copies[0]).unwrap() == fs::read(&copies[1]).unwrap());
    }
}
