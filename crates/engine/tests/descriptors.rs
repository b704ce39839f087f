//! Goal: a process that runs out of descriptors loses nothing by it: what cannot be opened was not begun, no directory is dropped,
//! and when clients have gone it goes on.
//!
//! Alone in its process, because the limit is the process's.

use std::fs::File;
use stonefold_engine::{Engine, FileEngine, FileOptions, JournalId, Key};
use stonefold_env::{Env, SystemWorld};
use stonefold_format::chunk;
use stonefold_types::Kind;

/// All the descriptors that are left.
fn exhaust() -> Vec<File> {
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

#[tokio::test]
async fn without_descriptors_nothing_is_begun_and_nothing_is_lost() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(96), maximum }).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap());
    let dirs = vec![dir.path().join("one"), dir.path().join("two")];
    let options = FileOptions {
        dirs,
        copies: Some(2),
        journal_file_bytes_max: 64 << 10,
        ..FileOptions::new(dir.path())
    };
    let engine = FileEngine::open(env, options).await.unwrap();
    let id = JournalId([5; 16]);
    let journal = engine.journal_create(id).await.unwrap();
    let chunk = |seq: u64| chunk::encode(id.0, seq, 1, &[seq as u8; 30_000]).freeze();
    engine.put_new(&Key::new("head/web"), vec![1; 300].into()).await.unwrap();
    journal.append(chunk(0)).await.unwrap();
    let held = exhaust();
    let mut seq = 1;
    let refused = loop {
        match journal.append(chunk(seq)).await {
            Ok(()) => seq += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), Kind::NoSpace, "{refused}");
    assert!(refused.to_string().contains("limit of open files"), "{refused}");
    for len in [300, 1 << 20] {
        let refused = engine.put_new(&Key::new("segment/1"), vec![2; len].into()).await.unwrap_err();
        assert_eq!(refused.kind(), Kind::NoSpace, "{refused}");
    }
    journal.sync().await.unwrap();
    assert!(!engine.describe().contains("DEGRADED"), "no directory is dropped");
    drop(held);
    for seq in seq..seq + 10 {
        journal.append(chunk(seq)).await.unwrap();
    }
    journal.sync().await.unwrap();
    engine.put_new(&Key::new("segment/1"), vec![2; 1 << 20].into()).await.unwrap();
    let mut reader = engine.journal_open(id).await.unwrap();
    for _ in 0..seq + 10 {
        assert!(reader.next().await.unwrap().is_some(), "every chunk that was taken is there");
    }
    assert!(!engine.describe().contains("DEGRADED"));
}
