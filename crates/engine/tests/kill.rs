//! What was acknowledged is there after `kill -9`, and nothing half done is.
//!
//! A child, this very program, puts objects, swaps a document and appends to a journal as fast as it can and says what
//! was acknowledged on its standard output; it is killed at some moment; the pool is opened again and held against what was said.
//! This shows what survives the process. What survives the power is seen in `src/file/tests/power.rs`, where it is known
//! what was synced.

use bytes::Bytes;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use stonefold_engine::{Engine, FileEngine, FileOptions, JournalId, Key, uring};
use stonefold_env::{Env, SystemWorld};
use stonefold_format::chunk::{self, ChunkHeader};

const DIR: &str = "STONEFOLD_KILL_TEST_DIR";
const SHAPE: &str = "STONEFOLD_KILL_TEST_SHAPE";
/// Directories and copies.
const SHAPES: [(usize, usize); 3] = [(1, 1), (2, 2), (3, 2)];
const ROUNDS: u32 = 18;
/// From this round on a directory is lost together with the process: nobody has opened the pool in between, and healed it.
const LOST_AT_ONCE_FROM: u32 = 12;
const JOURNAL: JournalId = JournalId(*b"the one journal.");

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

async fn open(dir: &Path, shape: (usize, usize)) -> FileEngine {
    open_so(dir, shape, false).await
}

async fn open_degraded(dir: &Path, shape: (usize, usize)) -> FileEngine {
    open_so(dir, shape, true).await
}

async fn open_so(dir: &Path, (members, copies): (usize, usize), degraded: bool) -> FileEngine {
    let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap());
    let dirs = (0..members).map(|n| dir.join(n.to_string())).collect();
    let options = FileOptions {
        dirs,
        copies: Some(copies),
        degraded,
        journal_file_bytes_max: 1 << 20,
        ..FileOptions::new(dir)
    };
    FileEngine::open(env, options).await.unwrap()
}

fn payload(n: u64) -> Bytes {
    vec![n as u8; 1000 + (n as usize * 7919) % 200_000].into()
}

/// The child's part; without a directory it is no child.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    runtime().block_on(async {
        let _ = uring::install();
        let shape = std::env::var(SHAPE).unwrap().parse::<usize>().unwrap();
        let engine = open(Path::new(&dir), SHAPES[shape]).await;
        let document = Key::new("head/document");
        let mut version = engine.put_new(&document, Bytes::from_static(&[0; 8])).await.unwrap();
        let journal = engine.journal_create(JOURNAL).await.unwrap();
        let mut out = std::io::stdout();
        for n in 0..u64::MAX {
            let key = Key::new(format!("seg/{n}"));
            let swapped = Bytes::copy_from_slice(&n.to_le_bytes());
            let chunk = chunk::encode(JOURNAL.0, n, 1, &payload(n)).freeze();
            let all = futures::future::try_join3(
                engine.put_new(&key, payload(n)),
                engine.put_if(&document, swapped, &version),
                journal.append(chunk),
            );
            version = all.await.unwrap().1;
            writeln!(out, "acknowledged {n}").unwrap();
        }
    });
}

#[test]
fn what_was_acknowledged_survives_the_process() {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    for round in 0..ROUNDS {
        let dir = tempfile::tempdir_in(&beside).or_else(|_| tempfile::tempdir()).unwrap();
        let shape = round as usize % SHAPES.len();
        let after = Duration::from_millis(u64::from(20 + round * 25));
        let acknowledged = run_and_kill(dir.path(), shape, after);
        let lost = (round >= LOST_AT_ONCE_FROM).then_some(acknowledged as usize % SHAPES[shape].0);
        runtime().block_on(check(dir.path(), SHAPES[shape], acknowledged, lost));
    }
}

/// Lets the child run for a while after its first acknowledgement; returns the last.
fn run_and_kill(dir: &Path, shape: usize, after: Duration) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(DIR, dir)
        .env(SHAPE, shape.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let number = |line: String| line.split_once("acknowledged ")?.1.parse::<u64>().ok();
    let mut last = lines.by_ref().find_map(number).expect("a child that acknowledges");
    std::thread::sleep(after);
    child.kill().unwrap();
    last = lines.filter_map(number).last().unwrap_or(last);
    child.wait().unwrap();
    last
}

async fn check(dir: &Path, shape: (usize, usize), acknowledged: u64, lost_at_once: Option<usize>) {
    let lost_at_once = lost_at_once.filter(|_| shape.1 > 1);
    let engine = match lost_at_once {
        None => open(dir, shape).await,
        Some(lost) => {
            std::fs::remove_dir_all(dir.join(lost.to_string())).unwrap();
            open_degraded(dir, shape).await
        }
    };
    for n in 0..=acknowledged + 1 {
        match engine.get(&Key::new(format!("seg/{n}"))).await {
            Ok((bytes, _)) => assert!(bytes == payload(n), "object {n} is whole"),
            Err(error) => assert!(n > acknowledged, "object {n} of {acknowledged} is lost: {error}"),
        }
    }
    let (document, version) = engine.get(&Key::new("head/document")).await.unwrap();
    let state = u64::from_le_bytes(document[..].try_into().unwrap());
    assert!(
        (acknowledged..=acknowledged + 1).contains(&state),
        "the document is at {state}, not {acknowledged}"
    );
    engine.put_if(&Key::new("head/document"), Bytes::new(), &version).await.unwrap();
    let mut reader = engine.journal_open(JOURNAL).await.unwrap();
    let mut next = 0;
    while let Some(found) = reader.next().await.unwrap() {
        let header = ChunkHeader::verify(&found).unwrap();
        assert_eq!(header.seq, next);
        assert!(found[chunk::CHUNK_HEADER..header.len] == payload(next), "chunk {next} is whole");
        next += 1;
    }
    assert!(next > acknowledged, "the journal ends at {next}, chunk {acknowledged} was acknowledged");
    for member in std::fs::read_dir(dir).unwrap() {
        let left = std::fs::read_dir(member.unwrap().path().join("temporary")).unwrap().count();
        assert_eq!(left, 0, "nothing half done is left");
    }
    drop((reader, engine));
    if shape.1 > 1 && lost_at_once.is_none() {
        // What was acknowledged survives the loss of a directory, too.
        let lost = acknowledged as usize % shape.0;
        std::fs::remove_dir_all(dir.join(lost.to_string())).unwrap();
        let engine = open_degraded(dir, shape).await;
        for n in 0..=acknowledged {
            let (bytes, _) = engine.get(&Key::new(format!("seg/{n}"))).await.unwrap();
            assert!(bytes == payload(n), "object {n} is whole without directory {lost}");
        }
        assert!(engine.get(&Key::new("head/document")).await.is_ok());
        let mut reader = engine.journal_open(JOURNAL).await.unwrap();
        for n in 0..=acknowledged {
            assert!(reader.next().await.unwrap().is_some(), "chunk {n} is there without directory {lost}");
        }
    }
}
