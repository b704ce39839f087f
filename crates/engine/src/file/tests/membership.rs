//! Members that fail, are missing, or come back.

use super::several::{files, key, payload, several};
use super::*;
use stonefold_format::chunk::ChunkHeader;

/// From now on every write to a member fails.
fn break_member(engine: &FileEngine, seat: usize) {
    engine.members.view().member(seat).break_for_test();
}

async fn read_all(engine: &FileEngine, count: usize) {
    for n in 0..count {
        assert_eq!(engine.get(&key(n)).await.unwrap().0, payload(n, 5000), "object {n}");
    }
    assert_eq!(engine.list("segment/", None, 1000).await.unwrap().len(), count);
}

/// A member whose writes fail is dropped, in the midst of whatever was asked; nothing is lost and all goes on. When it
/// comes back it is filled again with what it missed, and loses what was deleted meanwhile.
#[tokio::test]
async fn a_member_that_fails_is_dropped_and_filled_again() {
    for (members, broken) in [(2, 0), (2, 1), (3, 0), (3, 2)] {
        let dir = tempdir();
        let options = several(dir.path(), members, 2);
        let engine = open(&options).await.unwrap();
        let head = Key::new("head/web");
        for n in 0..20 {
            engine.put_new(&key(n), payload(n, 5000)).await.unwrap();
        }
        let one = engine.put_new(&head, payload(1, 100)).await.unwrap();
        let id = JournalId([1; 16]);
        let journal = engine.journal_create(id).await.unwrap();
        let chunk = |seq: u64| chunk::encode(id.0, seq, 1, &[seq as u8; 6000]).freeze();
        journal.append(chunk(0)).await.unwrap();
        break_member(&engine, broken);
        journal.append(chunk(1)).await.unwrap();
        journal.sync().await.unwrap();
        let two = engine.put_if(&head, payload(2, 100), &one).await.unwrap();
        for n in 20..40 {
            engine.put_new(&key(n), payload(n, 5000)).await.unwrap();
        }
        engine.delete(&key(39)).await.unwrap();
        engine.delete(&key(0)).await.unwrap();
        engine.put_new(&key(0), payload(0, 5000)).await.unwrap();
        journal.append(chunk(2)).await.unwrap();
        journal.sync().await.unwrap();
        let says = engine.describe();
        let failed = options.dirs[broken].display().to_string();
        assert!(says.contains(&format!("DEGRADED: without '{failed}'")), "{says}");
        read_all(&engine, 39).await;
        drop((journal, engine));

        let engine = open(&options).await.unwrap();
        assert!(!engine.describe().contains("DEGRADED"), "{}", engine.describe());
        assert!(engine.missing().is_empty());
        for n in 0..39 {
            let copies = files(&options, &key(n));
            assert_eq!(copies.len(), 2, "object {n} has its copies again, and no more");
            assert!(fs::read(&copies[0]).unwrap() == fs::read(&copies[1]).unwrap());
        }
        assert!(files(&options, &key(39)).is_empty(), "what was deleted stays deleted");
        assert_eq!(engine.get(&head).await.unwrap(), (payload(2, 100), two));
        read_all(&engine, 39).await;
        let journals = |dir: &PathBuf| dir.join("journals").join(id.to_string()).join("00000000-0");
        assert!(options.dirs.iter().filter(|dir| journals(dir).exists()).count() >= 2, "journals, too");
        let mut reader = engine.journal_open(id).await.unwrap();
        for seq in 0..3 {
            assert_eq!(reader.next().await.unwrap().unwrap(), chunk(seq));
        }
        assert!(reader.next().await.unwrap().is_none());
        drop((reader, engine));

        // Now the others may fail: what was filled again has everything.
        let other = (broken + 1) % members;
        fs::rename(&options.dirs[other], dir.path().join("away")).unwrap();
        let degraded = Options { degraded: true, ..options.clone() };
        read_all(&open(&degraded).await.unwrap(), 39).await;
    }
}

/// The last copy is never dropped: then the error is told, and nothing is acknowledged.
#[tokio::test]
async fn the_last_copy_is_not_dropped() {
    let dir = tempdir();
    let engine = open(&several(dir.path(), 2, 2)).await.unwrap();
    break_member(&engine, 0);
    engine.put_new(&key(1), payload(1, 100)).await.unwrap();
    break_member(&engine, 1);
    let error = engine.put_new(&key(2), payload(2, 100)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Io);
    assert!(error.to_string().contains("cannot be spared"), "{error}");
    assert_eq!(engine.get(&key(1)).await.unwrap().0, payload(1, 100), "reads go on");
    let dir = tempdir();
    let engine = open(&several(dir.path(), 2, 1)).await.unwrap();
    break_member(&engine, 0);
    let mut results = Vec::new();
    for n in 0..20 {
        results.push(engine.put_new(&key(n), payload(n, 9)).await);
    }
    assert!(results.iter().any(Result::is_err) && results.iter().any(Result::is_ok), "only that one fails");
    assert!(!engine.describe().contains("DEGRADED"));
}

/// Without a directory that may know more the pool is not opened; the operator is told which, why, and what to do.
#[tokio::test]
async fn a_missing_member_is_not_done_without_unasked() {
    let dir = tempdir();
    let options = several(dir.path(), 2, 2);
    let engine = open(&options).await.unwrap();
    for n in 0..5 {
        engine.put_new(&key(n), payload(n, 5000)).await.unwrap();
    }
    drop(engine);
    let (second, away) = (options.dirs[1].clone(), dir.path().join("away"));
    let refused = async |options: &Options, why: &str| {
        let error = open(options).await.err().expect("a pool without a member is not opened").to_string();
        assert!(error.contains(second.to_str().unwrap()) && error.contains(why), "{error}");
        assert!(error.contains("--degraded"), "{error}");
    };
    fs::rename(&second, &away).unwrap();
    refused(&options, "does not exist").await;
    fs::create_dir(&second).unwrap();
    refused(&options, "is empty").await;
    assert_eq!(fs::read_dir(&second).unwrap().count(), 0, "it is left as it was");
    fs::remove_dir(&second).unwrap();
    let alone = Options { dirs: options.dirs[..1].to_vec(), ..options.clone() };
    // The one that is named tells of the other.
    refused(&alone, "does not exist").await;

    // Asked to, it goes on; and the directory that comes back is filled again.
    let degraded = Options { degraded: true, ..options.clone() };
    let engine = open(&degraded).await.unwrap();
    assert!(engine.describe().contains("DEGRADED"));
    read_all(&engine, 5).await;
    engine.put_new(&key(5), payload(5, 5000)).await.unwrap();
    drop(engine);
    fs::rename(&away, &second).unwrap();
    let engine = open(&options).await.unwrap();
    assert!(!engine.describe().contains("DEGRADED"));
    assert!((0..6).all(|n| files(&options, &key(n)).len() == 2));
    read_all(&engine, 6).await;
}

/// A disk that died is replaced by an empty one, when told so: once the pool went on without it, it is filled.
#[tokio::test]
async fn an_empty_directory_takes_the_place_of_a_dropped_one() {
    let dir = tempdir();
    let options = several(dir.path(), 3, 2);
    let engine = open(&options).await.unwrap();
    for n in 0..30 {
        engine.put_new(&key(n), payload(n, 5000)).await.unwrap();
    }
    drop(engine);
    fs::rename(&options.dirs[1], dir.path().join("dead")).unwrap();
    drop(open(&Options { degraded: true, ..options.clone() }).await.unwrap());
    // Still absent: the pool runs, for nothing newer can be there.
    read_all_but_one(&open(&options).await.unwrap()).await;
    fs::create_dir(&options.dirs[1]).unwrap();
    // Nor is an empty mount point taken for a new disk.
    read_all_but_one(&open(&options).await.unwrap()).await;
    assert_eq!(fs::read_dir(&options.dirs[1]).unwrap().count(), 0);
    let engine = open(&Options { replace: vec![options.dirs[1].clone()], ..options.clone() }).await.unwrap();
    assert!(!engine.describe().contains("DEGRADED"));
    assert!((0..30).all(|n| files(&options, &key(n)).len() == 2));
    read_all_but_one(&engine).await;
    drop(engine);
    // The dead one is no part of it any more.
    fs::rename(&options.dirs[1], dir.path().join("new")).unwrap();
    fs::rename(dir.path().join("dead"), &options.dirs[1]).unwrap();
    let error = open(&options).await.err().unwrap().to_string();
    assert!(error.contains("another took its place"), "{error}");
}

async fn read_all_but_one(engine: &FileEngine) {
    for n in (0..30).filter(|n| *n != 1) {
        assert_eq!(engine.get(&key(n)).await.unwrap().0, payload(n, 5000), "object {n}");
    }
    assert_eq!(engine.get_range(&key(1), 4096, 904).await.unwrap(), payload(1, 5000)[4096..]);
}

/// Two halves that each went on alone cannot both be right.
#[tokio::test]
async fn two_histories_are_refused() {
    let dir = tempdir();
    let options = several(dir.path(), 2, 2);
    drop(open(&options).await.unwrap());
    let degraded = Options { degraded: true, ..options.clone() };
    for alone in 0..2 {
        let other = &options.dirs[1 - alone];
        let away = dir.path().join("away");
        fs::rename(other, &away).unwrap();
        let engine = open(&degraded).await.unwrap();
        engine.put_new(&key(alone), payload(alone, 100)).await.unwrap();
        drop(engine);
        fs::rename(&away, other).unwrap();
    }
    let error = open(&options).await.err().unwrap();
    assert!(error.to_string().contains("two histories"), "{error}");
    assert!(open(&degraded).await.is_err(), "nor is it guessed when degraded");
}

/// Directories of other pools and other numbers of copies are refused; nothing that is no part of the pool is touched.
#[tokio::test]
async fn strangers_are_refused() {
    let dir = tempdir();
    let options = several(dir.path(), 2, 2);
    drop(open(&options).await.unwrap());
    let (third, other) = (dir.path().join("third"), dir.path().join("other"));
    drop(open(&Options::new(&other)).await.unwrap());
    let with = |extra: &PathBuf| Options {
        dirs: options.dirs.iter().chain([extra]).cloned().collect(),
        ..options.clone()
    };
    let refusal = async |options: &Options| open(options).await.err().unwrap().to_string();
    // Left out with a warning: a drained directory may be named still, and removed since.
    drop(open(&with(&third)).await.unwrap());
    assert!(!third.exists());
    assert!(refusal(&with(&other)).await.contains("different pools"));
    assert!(refusal(&Options { copies: Some(1), ..options.clone() }).await.contains("copies=2"));
    // One that is named leads to the others.
    let one = Options { copies: None, ..Options::new(&options.dirs[1]) };
    assert!(open(&one).await.unwrap().describe().contains("copies=2"));
    let none = Options { copies: Some(2), ..Options::new(dir.path().join("new")) };
    assert!(refusal(&none).await.contains("2 copies need as many directories, but 1 are named"));
    // In another order, and found elsewhere, it is the same pool.
    let moved = dir.path().join("moved");
    fs::rename(&options.dirs[0], &moved).unwrap();
    let reordered = Options { dirs: vec![options.dirs[1].clone(), moved.clone()], ..options.clone() };
    assert!(open(&reordered).await.unwrap().describe().contains(moved.to_str().unwrap()));
}

/// Making a pool that a crash cut short is made to its end; a record that rotted has a second.
#[tokio::test]
async fn a_pool_half_made_is_made_and_a_rotten_record_has_a_second() {
    let dir = tempdir();
    let options = several(dir.path(), 2, 2);
    drop(open(&options).await.unwrap());
    for path in ["member", "member.second"] {
        fs::remove_file(options.dirs[0].join(path)).unwrap();
        fs::remove_file(options.dirs[1].join(path)).unwrap();
    }
    let engine = open(&options).await.unwrap();
    engine.put_new(&key(1), payload(1, 10)).await.unwrap();
    drop(engine);
    for dir in &options.dirs {
        fs::write(dir.join("member"), "rot").unwrap();
    }
    let engine = open(&options).await.unwrap();
    assert_eq!(engine.get(&key(1)).await.unwrap().0, payload(1, 10));
    assert!(fs::read(options.dirs[0].join("member")).unwrap().len() > 100, "and it is written anew");
}

/// Whatever a journal is asked when a member fails, it goes on, and everything is there afterwards without that member.
#[tokio::test]
async fn a_journal_goes_on_whichever_step_fails() {
    for (members, broken, step) in (0..5).flat_map(|step| [(2, 0, step), (2, 1, step), (3, 1, step)]) {
        let dir = tempdir();
        let options = Options { journal_file_bytes_max: 64 << 10, ..several(dir.path(), members, 2) };
        let engine = open(&options).await.unwrap();
        let id = JournalId([7; 16]);
        let chunk = |seq: u64| chunk::encode_after(id.0, seq, 1, seq, &[seq as u8; 6000]).freeze();
        let fails = |at: u32| {
            if at == step {
                break_member(&engine, broken)
            }
        };
        fails(0);
        let journal = engine.journal_create(id).await.unwrap();
        for seq in 0..60 {
            if seq == 33 {
                fails(1);
            }
            journal.append(chunk(seq)).await.unwrap();
            if seq == 35 {
                fails(2);
            }
            if seq % 5 == 0 {
                journal.sync().await.unwrap();
            }
            if seq == 40 {
                fails(3);
                journal.trim(20).await.unwrap();
            }
        }
        journal.sync().await.unwrap();
        let old = JournalId([8; 16]);
        engine.journal_create(old).await.unwrap();
        fails(4);
        engine.journal_remove(old).await.unwrap();
        drop((journal, engine));
        let mut degraded = Options { degraded: true, ..options };
        if step != 3 {
            // It is gone for good. (A trim that failed there has nothing to do where it had no file.)
            fs::rename(&degraded.dirs[broken], dir.path().join("away")).unwrap();
        }
        degraded.direct = Direct::Never;
        let engine = loop {
            match open(&degraded).await {
                // A journal's file is still being made ahead.
                Err(error) if error.kind() == Kind::Busy => tokio::task::yield_now().await,
                other => break other.unwrap(),
            }
        };
        assert_eq!(engine.journal_list().await.unwrap(), [id], "member {broken} of {members}, step {step}");
        let mut reader = engine.journal_open(id).await.unwrap();
        let mut next = ChunkHeader::peek(&reader.next().await.unwrap().unwrap()).unwrap().seq + 1;
        assert!(next <= 21);
        while let Some(found) = reader.next().await.unwrap() {
            assert_eq!(found, chunk(next));
            next += 1;
        }
        assert_eq!(next, 60, "member {broken} of {members}, step {step}");
    }
}
