//! Directories that have left their pool: nobody makes another there by mistake, wherever a crash came.

use super::changes::{finish, made, put_some, read_all, states};
use super::*;
use crate::directories::{Directories, DirectoryState};
use std::path::Path;

/// A pool that began in `one`, lies in `two`, and has ended its last change or is about to empty `one`.
async fn moved(dir: &Path, emptied: bool) -> (FileEngine, PathBuf, PathBuf) {
    let (one, two) = (dir.join("one"), dir.join("two"));
    let engine = open(&Options::new(&one)).await.unwrap();
    put_some(&engine, 0..20).await;
    engine.add(&made(&two)).await.unwrap();
    finish(&engine).await;
    engine.drain(&one).await.unwrap();
    while states(&engine).await[0] != DirectoryState::Emptying {
        engine.step().await.unwrap();
    }
    if emptied {
        finish(&engine).await;
    }
    (engine, one, two)
}

pub(super) fn holds_a_tombstone_alone(dir: &Path) -> bool {
    let names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names == ["left"]
}

async fn refused(options: &Options) -> String {
    let error = open(options).await.err().expect("no pool is opened there");
    assert_eq!(error.kind(), Kind::NotFound, "{error}");
    format!("{} ({})", error.what(), error.remedy_text().unwrap_or_default())
}

/// A start with the URL from before makes no pool: it says where the pool is, and what to do. Named beside one of the pool's it is
/// left out, as ever; and who removes the tombstone has a pool made.
#[tokio::test]
async fn an_old_url_makes_no_new_pool() {
    let dir = tempdir();
    let (engine, one, two) = moved(dir.path(), true).await;
    assert!(holds_a_tombstone_alone(&one));
    let old = Options::new(&one);
    assert!(old.is_made(), "it is no room for a pool");
    let url = format!("file://{}", two.display());
    let file = one.join("left").display().to_string();
    for options in [&old, &Options { create: false, ..old.clone() }] {
        let why = refused(options).await;
        assert!(why.contains(&url) && why.contains(&format!("remove '{file}'")), "{why}");
    }
    drop(engine);
    let beside =
        Options { dirs: vec![one.clone(), dir.path().join("three")], copies: Some(2), ..old.clone() };
    assert!(refused(&beside).await.contains(&url), "nor beside another");
    assert!(holds_a_tombstone_alone(&one) && !dir.path().join("three").exists(), "nothing was touched");
    for dirs in [vec![one.clone(), two.clone()], vec![two.clone(), one.clone()]] {
        let engine = open(&Options { dirs, ..old.clone() }).await.unwrap();
        read_all(&engine, 20).await;
        assert!(engine.url().ends_with("/two"));
    }
    fs::remove_file(file).unwrap();
    assert_eq!(open(&old).await.unwrap().list("", None, 10).await.unwrap(), []);
}

/// Of several tombstones the last tells: the others tell of places that were left since.
#[tokio::test]
async fn the_last_tombstone_tells() {
    let dir = tempdir();
    let (engine, one, two) = moved(dir.path(), true).await;
    let three = made(&dir.path().join("three"));
    engine.replace(&two, &three).await.unwrap();
    finish(&engine).await;
    drop(engine);
    assert!(refused(&Options::new(&one)).await.contains(&format!("'file://{}'", two.display())));
    for dirs in [vec![one.clone(), two.clone()], vec![two, one]] {
        let why = refused(&Options { dirs, ..Options::new("/") }).await;
        assert!(why.contains(&format!("'file://{}'", three.display())), "{why}");
    }
    read_all(&open(&Options::new(&three)).await.unwrap(), 20).await;
}

/// A directory that has left can be added again, to its pool or to another; then it is that pool's, and says so, also when the
/// process died before the tombstone was removed. Before it is recorded that it has come back, it has not.
#[tokio::test]
async fn one_that_has_left_can_come_back() {
    let dir = tempdir();
    let (engine, one, two) = moved(dir.path(), true).await;
    let text = fs::read(one.join("left")).unwrap();
    engine.add(&one).await.unwrap();
    assert!(!one.join("left").exists());
    drop(engine);
    // As if it had died at once, and with it all the same.
    fs::write(one.join("left"), &text).unwrap();
    let engine = open(&Options::new(&one)).await.unwrap();
    assert!(!one.join("left").exists() && engine.moving().is_some());
    read_all(&engine, 20).await;
    finish(&engine).await;
    engine.drain(&one).await.unwrap();
    finish(&engine).await;
    assert!(holds_a_tombstone_alone(&one) && fs::read(one.join("left")).unwrap() != text);
    drop(engine);

    let other = dir.path().join("other");
    let engine = open(&Options::new(&other)).await.unwrap();
    put_some(&engine, 0..5).await;
    engine.add(&one).await.unwrap();
    finish(&engine).await;
    drop(engine);
    read_all(&open(&Options::new(&one)).await.unwrap(), 5).await;
    read_all(&open(&Options::new(&two)).await.unwrap(), 20).await;
}

/// One that was invited, before a death, and is in no record of the pool: it has not come back.
#[tokio::test]
async fn an_invitation_is_no_return() {
    let dir = tempdir();
    let (engine, one, two) = moved(dir.path(), true).await;
    let before = fs::read(two.join("member")).unwrap();
    let text = fs::read(one.join("left")).unwrap();
    engine.add(&one).await.unwrap();
    drop(engine);
    // What a death between the invitation and the record of it leaves.
    for name in ["member", "member.second"] {
        fs::write(two.join(name), &before).unwrap();
        let mut invited = roster::Roster::decode(&fs::read(one.join(name)).unwrap()).unwrap();
        invited.generation = 0;
        fs::write(one.join(name), invited.encode(invited.own)).unwrap();
    }
    fs::write(one.join("left"), &text).unwrap();
    assert!(refused(&Options::new(&one)).await.contains("has left its pool"));
    let engine = open(&Options::new(&two)).await.unwrap();
    read_all(&engine, 20).await;
    engine.add(&one).await.unwrap();
    finish(&engine).await;
    read_all(&engine, 20).await;
    assert_eq!(states(&engine).await, [DirectoryState::Sound; 2]);
}

fn tombstone_of_the_first(engine: &FileEngine) -> tombstone::Tombstone {
    let view = engine.members.view();
    let entry = &view.roster.members[0];
    tombstone::Tombstone {
        pool: view.roster.pool,
        member: entry.id,
        generation: entry.since,
        url: engine.url(),
    }
}

/// Who dies after the first step of an emptying leaves a directory that tells that it has left, and everything else in it.
#[tokio::test]
async fn the_tombstone_is_laid_before_anything_is_removed() {
    let dir = tempdir();
    let (engine, one, _) = moved(dir.path(), false).await;
    let tombstone = tombstone_of_the_first(&engine);
    let first = only(&engine);
    let mut emptying = Box::pin(first.empty(tombstone));
    assert!(futures::poll!(&mut emptying).is_pending(), "its first step is under way");
    drop(emptying);
    let all = ["objects", "journals", "spares", "temporary", "pool", "member", "member.second"];
    let is_whole = || all.iter().all(|name| one.join(name).exists());
    while is_whole() && !one.join("left").exists() {
        tokio::task::yield_now().await;
    }
    assert!(is_whole() && one.join("left").exists());
}

/// A death at any step of the emptying leaves a pool that opens, by a URL that names one of its directories, and no place for a
/// new one; the next process empties to the end.
#[tokio::test]
async fn an_emptying_is_cut_short_anywhere() {
    let steps =
        ["left", "objects", "journals", "spares", "temporary", "pool", "member", "member.second", "lock"];
    for done in 1..=steps.len() {
        let dir = tempdir();
        let (engine, one, two) = moved(dir.path(), false).await;
        let tombstone = tombstone_of_the_first(&engine);
        drop(engine);
        tombstone.write(&layout::Layout { root: one.clone() }).unwrap();
        for gone in &steps[1..done] {
            let path = one.join(gone);
            if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
        }
        assert!(refused(&Options::new(&one)).await.contains("has left its pool"), "after {done} steps");
        let engine = open(&Options { dirs: vec![one.clone(), two], ..Options::new("/") }).await.unwrap();
        read_all(&engine, 20).await;
        finish(&engine).await;
        assert!(
            holds_a_tombstone_alone(&one),
            "after {done} steps: {:?}",
            fs::read_dir(&one).unwrap().collect::<Vec<_>>()
        );
    }
}
