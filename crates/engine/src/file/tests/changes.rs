//! Directories that are added, drained and replaced while the pool is used.

use super::left::holds_a_tombstone_alone;
use super::several::{files, key, payload, several};
use super::*;
use crate::directories::{Directories, DirectoryState, Step};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Goes on with the change under way to its end.
pub(super) async fn finish(engine: &FileEngine) {
    for _ in 0..10_000 {
        match engine.step().await.unwrap() {
            Step::Idle => return,
            Step::Went { .. } => {}
            Step::Waits { .. } => panic!("it waits: {:?}", engine.moving()),
        }
    }
    panic!("it never ends");
}

async fn step(engine: &FileEngine, times: usize) {
    for _ in 0..times {
        engine.step().await.unwrap();
    }
}

pub(super) fn made(at: &Path) -> PathBuf {
    fs::create_dir(at).unwrap();
    at.to_path_buf()
}

pub(super) async fn put_some(engine: &FileEngine, numbers: std::ops::Range<usize>) {
    for n in numbers {
        engine.put_new(&key(n), payload(n, 5000)).await.unwrap();
    }
}

pub(super) async fn read_all(engine: &FileEngine, count: usize) {
    for n in 0..count {
        assert_eq!(engine.get(&key(n)).await.unwrap().0, payload(n, 5000), "object {n}");
        assert_eq!(
            engine.get_range(&key(n), 4990, 100).await.unwrap(),
            payload(n, 5000)[4990..],
            "object {n}"
        );
    }
    assert_eq!(engine.list("segment/", None, 1000).await.unwrap().len(), count);
}

pub(super) async fn states(engine: &FileEngine) -> Vec<DirectoryState> {
    engine.states().await.unwrap().into_iter().map(|one| one.state).collect()
}

/// A pool on one directory gets a second, which takes its half; then the first goes, and is empty. The old URL still opens
/// the pool after each of these, and the journal that is written all the time has every chunk.
#[tokio::test]
async fn a_pool_moves_from_one_directory_to_another() {
    let dir = tempdir();
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    let options = Options { journal_file_bytes_max: 64 << 10, ..Options::new(&one) };
    let engine = open(&options).await.unwrap();
    let id = JournalId([4; 16]);
    let journal = engine.journal_create(id).await.unwrap();
    let mut seq = 0;
    let mut append = async |count: u64| {
        for _ in 0..count {
            journal.append(chunk::encode(id.0, seq, 1, &[seq as u8; 6000]).freeze()).await.unwrap();
            seq += 1;
        }
        journal.sync().await.unwrap();
        seq
    };
    append(10).await;
    put_some(&engine, 0..40).await;
    let head = Key::new("head/web");
    let version = engine.put_new(&head, payload(1, 100)).await.unwrap();
    engine.add(&made(&two)).await.unwrap();
    assert_eq!(states(&engine).await, [DirectoryState::Sound, DirectoryState::Filling]);
    put_some(&engine, 40..60).await;
    engine.put_if(&head, payload(2, 100), &version).await.unwrap();
    read_all(&engine, 60).await;
    finish(&engine).await;
    assert_eq!(states(&engine).await, [DirectoryState::Sound; 2]);
    let both = Options { dirs: vec![one.clone(), two.clone()], ..options.clone() };
    let on_two = (0..60).filter(|n| files(&both, &key(*n)) == files(&Options::new(&two), &key(*n))).count();
    assert!((15..45).contains(&on_two), "{on_two} of 60 lie in the new directory");
    assert!((0..60).all(|n| files(&both, &key(n)).len() == 1));
    assert!(engine.url().ends_with(&format!("/one?also={}", two.display())), "{}", engine.url());
    append(20).await;

    engine.drain(&one).await.unwrap();
    assert_eq!(states(&engine).await, [DirectoryState::Draining, DirectoryState::Sound]);
    for _ in 0..500 {
        if let Step::Waits { for_journals } = engine.step().await.unwrap() {
            assert!(for_journals);
            break;
        }
    }
    // What is appended from now on goes to the other; once what was before is trimmed, the change ends.
    let end = append(1).await;
    journal.trim(end - 1).await.unwrap();
    finish(&engine).await;
    assert!(holds_a_tombstone_alone(&one), "nothing of the pool is left there");
    assert_eq!(states(&engine).await, [DirectoryState::Sound]);
    assert!(engine.url().ends_with("/two"), "{}", engine.url());
    read_all(&engine, 60).await;
    drop((journal, engine));
    // Whoever forgot to edit the URL has a server that starts, as long as it names one of the pool's.
    assert!(open(&both).await.unwrap().describe().contains("/two"));
    let engine = open(&Options::new(&two)).await.unwrap();
    read_all(&engine, 60).await;
    assert_eq!(engine.get(&head).await.unwrap().0, payload(2, 100));
    let mut reader = engine.journal_open(id).await.unwrap();
    let mut last = None;
    while let Some(found) = reader.next().await.unwrap() {
        last = Some(found);
    }
    assert_eq!(last.unwrap(), chunk::encode(id.0, end - 1, 1, &[(end - 1) as u8; 6000]).freeze());
}

/// A URL that names one directory finds the others, where they were; but not those of the pool that it is a copy of.
#[tokio::test]
async fn directories_that_are_not_named_are_found() {
    let dir = tempdir();
    let one = dir.path().join("one");
    let engine = open(&Options::new(&one)).await.unwrap();
    put_some(&engine, 0..20).await;
    engine.add(&made(&dir.path().join("two"))).await.unwrap();
    step(&engine, 100).await;
    drop(engine);
    let engine = open(&Options::new(&one)).await.unwrap();
    assert!(engine.moving().is_some(), "the change goes on");
    read_all(&engine, 20).await;
    finish(&engine).await;
    drop(engine);
    read_all(&open(&Options::new(&one)).await.unwrap(), 20).await;
    let copy = dir.path().join("copy");
    fs::rename(&one, &copy).unwrap();
    let error = open(&Options::new(&copy)).await.err().unwrap().to_string();
    assert!(error.contains("name all its directories"), "{error}");
    fs::rename(&copy, &one).unwrap();
    fs::rename(dir.path().join("two"), &copy).unwrap();
    let error = open(&Options::new(&one)).await.err().unwrap().to_string();
    assert!(error.contains("two' (it does not exist)"), "{error}");
    let named = Options { dirs: vec![one, copy], ..Options::new("/") };
    read_all(&open(&named).await.unwrap(), 20).await;
}

/// Each change can be taken back in its midst; then all is as before, and the directory that was to come has nothing of the pool.
#[tokio::test]
async fn a_change_is_taken_back() {
    for copies in [1, 2] {
        let dir = tempdir();
        let options = several(dir.path(), 3, copies);
        let engine = open(&options).await.unwrap();
        put_some(&engine, 0..40).await;
        let fourth = made(&dir.path().join("fourth"));
        let before: Vec<_> = (0..40).map(|n| files(&options, &key(n))).collect();
        let same = || (0..40).all(|n| files(&options, &key(n)) == before[n]);
        for change in 0..4 {
            match change {
                0 => engine.add(&fourth).await.unwrap(),
                1 | 2 => engine.drain(&options.dirs[1]).await.unwrap(),
                _ => engine.replace(&options.dirs[0], &fourth).await.unwrap(),
            }
            let refused = engine.drain(&options.dirs[2]).await.unwrap_err();
            assert_eq!(refused.kind(), Kind::Busy, "{refused}");
            step(&engine, 85).await;
            match change {
                0 => engine.drain(&fourth).await.unwrap(),
                1 => engine.add(&options.dirs[1]).await.unwrap(),
                _ => engine.cancel().await.unwrap(),
            }
            read_all(&engine, 40).await;
            finish(&engine).await;
            assert!(same(), "change {change} of {copies} copies is undone");
            assert!(holds_a_tombstone_alone(&fourth));
        }
        assert_eq!(engine.cancel().await.unwrap_err().kind(), Kind::NotFound);
        read_all(&engine, 40).await;
    }
}

/// A directory that failed is replaced by another while the pool is served; so is one whose disk is gone.
#[tokio::test]
async fn a_failed_directory_is_replaced() {
    for gone in [false, true] {
        let dir = tempdir();
        let options = several(dir.path(), 3, 2);
        let mut engine = open(&options).await.unwrap();
        put_some(&engine, 0..40).await;
        engine.members.view().member(1).break_for_test();
        put_some(&engine, 40..60).await;
        assert_eq!(states(&engine).await[1], DirectoryState::Damaged);
        if gone {
            drop(engine);
            fs::remove_dir_all(&options.dirs[1]).unwrap();
            engine = open(&options).await.unwrap();
            assert_eq!(states(&engine).await[1], DirectoryState::Missing);
        }
        let new = made(&dir.path().join("new"));
        engine.replace(&options.dirs[1], &new).await.unwrap();
        finish(&engine).await;
        assert!(engine.missing().is_empty());
        read_all(&engine, 60).await;
        let now = Options {
            dirs: vec![options.dirs[0].clone(), new.clone(), options.dirs[2].clone()],
            ..options.clone()
        };
        assert!((0..60).all(|n| files(&now, &key(n)).len() == 2));
        drop(engine);
        // The old one is left out, whatever it holds, and named or not.
        let engine = open(&options).await.unwrap();
        assert!(engine.describe().contains(new.to_str().unwrap()));
        read_all(&engine, 60).await;
    }
}

/// A member that fails in the midst of a change is dropped like any other, and the change goes on.
#[tokio::test]
async fn a_member_that_fails_meanwhile_is_dropped() {
    for broken in 0..4 {
        let dir = tempdir();
        let options = several(dir.path(), 3, 2);
        let engine = open(&options).await.unwrap();
        put_some(&engine, 0..30).await;
        let fourth = made(&dir.path().join("fourth"));
        engine.replace(&options.dirs[0], &fourth).await.unwrap();
        step(&engine, 90).await;
        engine.members.view().member(broken).break_for_test();
        put_some(&engine, 30..50).await;
        for _ in 0..3000 {
            if engine.step().await.unwrap() == Step::Idle {
                break;
            }
        }
        read_all(&engine, 50).await;
        if broken != 3 {
            assert!(engine.moving().is_none(), "member {broken}: it is done");
            let now = Options {
                dirs: vec![options.dirs[1].clone(), options.dirs[2].clone(), fourth],
                ..options.clone()
            };
            let receiving = |n| files(&now, &key(n)).len();
            assert!((0..50).all(|n| receiving(n) >= 2), "all have their copies");
        }
    }
}

/// What makes no sense is refused, with what to do, and leaves everything as it was.
#[tokio::test]
async fn what_makes_no_sense_is_refused() {
    let dir = tempdir();
    let options = several(dir.path(), 2, 2);
    let engine = open(&options).await.unwrap();
    put_some(&engine, 0..5).await;
    let (full, other) = (made(&dir.path().join("full")), dir.path().join("other"));
    fs::write(full.join("thesis.txt"), "years of work").unwrap();
    drop(open(&Options::new(&other)).await.unwrap());
    let inside = made(&options.dirs[0].join("inside"));
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&options.dirs[1], &link).unwrap();
    for (new, kind, says) in [
        (full.clone(), Kind::Invalid, "thesis.txt"),
        (other.clone(), Kind::Invalid, "the directory of a pool"),
        (inside.clone(), Kind::Invalid, "one inside the other"),
        (dir.path().to_path_buf(), Kind::Invalid, "one inside the other"),
        (link, Kind::Invalid, "is the pool's directory"),
        (dir.path().join("absent"), Kind::NotFound, "absent"),
        (PathBuf::from("relative"), Kind::Invalid, "not an absolute path"),
        (options.dirs[0].clone(), Kind::AlreadyExists, "is a directory of the pool already"),
    ] {
        let error = engine.add(&new).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
    fs::remove_dir(inside).unwrap();
    let few = engine.drain(&options.dirs[0]).await.unwrap_err();
    assert!(few.to_string().contains("copies=2 need as many directories, and 1 would be left"), "{few}");
    let unknown = engine.drain(&other).await.unwrap_err();
    assert_eq!(unknown.kind(), Kind::NotFound);
    assert!(unknown.to_string().contains("name one of '"), "{unknown}");
    assert!(!dir.path().join("absent").exists() && engine.moving().is_none());
    assert_eq!(fs::read_dir(&full).unwrap().count(), 1);
    read_all(&engine, 5).await;
}

/// An engine in the midst of a change: each opening steps on, and turns it round now and then.
struct Changing {
    env: Env,
    options: Options,
    fourth: PathBuf,
    change: u32,
    opened: AtomicU32,
    engine: parking_lot::Mutex<std::sync::Weak<FileEngine>>,
}

#[async_trait]
impl Place for Changing {
    async fn open(&self) -> Arc<dyn Engine> {
        let engine = loop {
            match FileEngine::open(self.env.clone(), self.options.clone()).await {
                // A step on the one before is not over.
                Err(error) if error.kind() == Kind::Busy => self.env.sleep(Duration::from_millis(2)).await,
                other => break other.unwrap(),
            }
        };
        if self.opened.fetch_add(1, Ordering::Relaxed) == 0 {
            match self.change {
                0 => engine.add(&self.fourth).await.unwrap(),
                1 => engine.drain(&self.options.dirs[0]).await.unwrap(),
                _ => engine.replace(&self.options.dirs[1], &self.fourth).await.unwrap(),
            }
        }
        let engine = Arc::new(engine);
        *self.engine.lock() = Arc::downgrade(&engine);
        engine
    }
}

/// An engine keeps its words in the midst of every change: standing still in it, and while it goes on.
#[tokio::test]
async fn an_engine_conforms_in_the_midst_of_every_change() {
    for (copies, change, moves) in [(1, 0, true), (2, 1, true), (2, 2, false)] {
        let dir = tempdir();
        let options = Options { handles_max: Some(2), ..several(dir.path(), 3, copies) };
        let fourth = made(&dir.path().join("fourth"));
        let (opened, engine) = Default::default();
        let place = Arc::new(Changing { env: env(), options, fourth, change, opened, engine });
        let (of_task, stop) = (place.clone(), Arc::new(AtomicBool::new(false)));
        let told = stop.clone();
        place.env.spawn("stepping", async move {
            // Round and round, so that the change is under way all the time.
            for turn in 1u32.. {
                of_task.env.sleep(Duration::from_micros(200)).await;
                if told.load(Ordering::Relaxed) {
                    return;
                }
                let engine = of_task.engine.lock().upgrade();
                let Some(engine) = engine.filter(|_| moves) else { continue };
                let stepped = engine.step().await;
                if turn % 151 == 0 && !matches!(stepped, Ok(Step::Idle)) {
                    let _ = engine.cancel().await;
                }
            }
        });
        conformance::run(&*place).await;
        stop.store(true, Ordering::Relaxed);
    }
}

/// A directory whose disk is gone is told while it still counts, with the others' room; and once it is dropped it is replaced by
/// another at its path, in the same process, which finds nothing of the old one in its place.
#[tokio::test]
async fn one_that_is_gone_is_told_and_replaced_at_its_path() {
    let dir = tempdir();
    let options = several(dir.path(), 3, 2);
    let engine = open(&options).await.unwrap();
    for n in 0..20 {
        engine.put_new(&key(n), payload(n, 5000)).await.unwrap();
    }
    let gone = &options.dirs[1];
    fs::rename(gone, dir.path().join("away")).unwrap();
    assert!(engine.room().await.unwrap().free_bytes > 0);
    let states: Vec<DirectoryState> = engine.states().await.unwrap().iter().map(|one| one.state).collect();
    assert_eq!(states, [DirectoryState::Sound, DirectoryState::Damaged, DirectoryState::Sound]);
    for n in 20..40 {
        engine.put_new(&key(n), payload(n, 5000)).await.unwrap();
    }
    assert!(engine.describe().contains("DEGRADED"), "{}", engine.describe());
    fs::create_dir(gone).unwrap();
    engine.replace(gone, gone).await.unwrap();
    finish(&engine).await;
    assert!(!engine.describe().contains("DEGRADED"), "{}", engine.describe());
    for n in 0..40 {
        assert_eq!(files(&options, &key(n)).len(), 2, "object {n}");
        assert_eq!(engine.get(&key(n)).await.unwrap().0, payload(n, 5000));
    }
    assert!(!gone.join("left").exists(), "the new one has not left");
    drop(engine);
    let engine = open(&options).await.unwrap();
    assert!(!engine.describe().contains("DEGRADED"), "{}", engine.describe());
}
