//! The engine on an S3 server: the suite that every engine passes, on one that behaves and on one that loses answers; who is refused; who takes over; what
//! disks do in an outage.

#![expect(clippy::disallowed_methods, reason = "a real server, and real time")]

mod place;

use bytes::Bytes;
use place::{Bucket, env, open};
use std::time::{Duration, Instant};
use stonefold_engine::{Engine, JournalId, Key, conformance};
use stonefold_format::chunk;
use stonefold_object_store::Server;
use stonefold_s3::{Options, is_made};
use stonefold_store::{Options as StoreOptions, Store};
use stonefold_types::{DiskSettings, Kind, Name};

fn key(text: &str) -> Key {
    Key::new(text)
}

fn chunk_of(id: JournalId, seq: u64) -> Bytes {
    chunk::encode(id.0, seq, 1, &[7; 100]).freeze()
}

#[tokio::test]
async fn conforms() {
    // Another server, by hand: see HACKING.md.
    if let Ok(url) = std::env::var("STONEFOLD_S3_URL") {
        return conformance::run(&Bucket(url)).await;
    }
    let server = Server::start(&[]);
    conformance::run(&Bucket(server.url("conforms"))).await;
}

/// One answer in sixteen is lost, and one request in sixteen is refused for now: nothing is done twice, and nothing is taken for another's.
#[tokio::test]
async fn conforms_where_answers_are_lost() {
    let server = Server::start(&["--lose", "0.06", "--refuse", "0.06"]);
    conformance::run(&Bucket(server.url("lossy"))).await;
}

#[tokio::test]
async fn a_store_that_hears_no_condition_is_refused() {
    for (header, said) in [("if-match", "If-Match"), ("if-none-match", "If-None-Match")] {
        let server = Server::start(&["--deaf", header]);
        let error = open(&server.url("deaf")).await.map(drop).unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported, "{error}");
        assert!(error.to_string().contains(said), "{error}");
        assert!(!is_made(&Options::parse(&server.url("deaf")).unwrap(), &env()).await.unwrap());
    }
}

/// Looking first and putting then is not enough: two servers could both have looked.
#[tokio::test]
async fn a_store_that_looks_first_and_puts_later_is_refused() {
    let server = Server::start(&["--racy"]);
    let error = open(&server.url("racy")).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported, "{error}");
    assert!(error.to_string().contains("of 8 swaps of one version at one time"), "{error}");
}

#[tokio::test]
async fn a_place_of_others_is_left_alone() {
    let server = Server::start(&[]);
    let engine = open(&server.url("mine")).await.unwrap();
    engine.put_new(&key("a"), Bytes::from_static(b"x")).await.unwrap();
    engine.rest().await;
    drop(engine);
    // What lies below "mine" is no pool at "": its objects belong to somebody.
    let root = server.url("mine").replace("/mine?", "?");
    let error = open(&root).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid, "{error}");
    assert!(error.to_string().contains("mine/"), "{error}");
    let absent = Options { create: false, ..Options::parse(&server.url("absent")).unwrap() };
    let error = stonefold_s3::S3Engine::open(env(), absent).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound, "{error}");
    let nowhere = server.url("x").replace("s3://pool/", "s3://no-such-bucket/");
    let error = open(&nowhere).await.map(drop).unwrap_err();
    assert!(error.to_string().contains("make the bucket first"), "{error}");
}

#[tokio::test]
async fn room_ends_where_the_url_says() {
    let server = Server::start(&[]);
    let engine = open(&(server.url("small") + "&size=1M")).await.unwrap();
    engine.put_new(&key("a"), vec![1; 700 << 10].into()).await.unwrap();
    let error = engine.put_new(&key("b"), vec![1; 700 << 10].into()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NoSpace, "{error}");
    let room = engine.room().await.unwrap();
    assert!(room.used_bytes > 700 << 10 && room.used_bytes < 710 << 10, "{room:?}");
    engine.delete(&key("a")).await.unwrap();
    engine.put_new(&key("b"), vec![1; 700 << 10].into()).await.unwrap();
    engine.rest().await;
    drop(engine);
    // Counted anew.
    let again = open(&(server.url("small") + "&size=1M")).await.unwrap();
    let room = again.room().await.unwrap();
    assert!(room.used_bytes > 700 << 10 && room.used_bytes < 710 << 10, "{room:?}");
}

/// A server that lives keeps its pool; one that let it go, or has ended on this machine, is not waited for.
#[tokio::test]
async fn one_server_at_a_time() {
    let server = Server::start(&[]);
    let first = open(&server.url("one")).await.unwrap();
    let error = open(&server.url("one")).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), Kind::Busy, "{error}");
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    first.put_new(&key("a"), Bytes::from_static(b"x")).await.unwrap();
    first.rest().await;
    let began = Instant::now();
    let second = open(&server.url("one")).await.unwrap();
    // Far less than it is waited for a server that may live.
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
    second.put_new(&key("b"), Bytes::from_static(b"x")).await.unwrap();
    // Whoever let it go and comes again finds it taken.
    let error = first.put_new(&key("c"), Bytes::from_static(b"x")).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Busy, "{error}");
}

/// A store that is silent for longer than the lease: nothing is asked of it; then it goes on by itself, as nobody else has come.
#[tokio::test]
async fn a_lease_that_ran_out_holds_again_when_nobody_came() {
    let server = Server::start(&[]);
    let engine = open(&server.url("silent")).await.unwrap();
    server.signal("-STOP");
    tokio::time::sleep(Duration::from_secs(27)).await;
    let error = engine.get(&key("a")).await.unwrap_err();
    assert!(error.kind() == Kind::Io && error.to_string().contains("lease"), "{error}");
    server.signal("-CONT");
    let deadline = Instant::now() + Duration::from_secs(60);
    while engine.put_new(&key("a"), Bytes::from_static(b"x")).await.is_err() {
        assert!(Instant::now() < deadline, "it does not go on");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// A store that does not answer for longer than the lease holds: writes and flushes wait, and go on with it; nothing is lost by it.
#[tokio::test(flavor = "multi_thread")]
async fn disks_wait_for_a_store_that_is_silent() {
    let server = Server::start(&[]);
    let engine = std::sync::Arc::new(open(&server.url("patient")).await.unwrap());
    let options =
        StoreOptions { cache_bytes: 4 << 20, journal_bytes_max: 4 << 20, ..StoreOptions::default() };
    let store = Store::open(env(), engine, options.clone()).await.unwrap();
    let disk = Name::new("disk").unwrap();
    store.create_disk(&disk, 16 << 20, DiskSettings::default()).await.unwrap();
    let attached = store.attach(&"disk".parse().unwrap()).unwrap();
    attached.write(0, &[1; 4096], false).await.unwrap();
    let _ = attached.flush().await.unwrap();
    server.signal("-STOP");
    let silent = async {
        tokio::time::sleep(Duration::from_secs(35)).await;
        server.signal("-CONT");
    };
    let written = async {
        attached.write(4096, &[2; 4096], false).await.unwrap();
        let _ = attached.flush().await.unwrap();
    };
    futures::join!(silent, written);
    attached.write(8192, &[3; 4096], true).await.unwrap();
    drop(attached);
    store.close().await.unwrap();
    drop(store);
    let engine = std::sync::Arc::new(open(&server.url("patient")).await.unwrap());
    let store = Store::open(env(), engine, options).await.unwrap();
    let attached = store.attach(&"disk".parse().unwrap()).unwrap();
    let mut found = vec![0; 3 * 4096];
    attached.read(0, &mut found).await.unwrap();
    let of = |at: usize| found[at * 4096];
    assert_eq!([of(0), of(1), of(2)], [1, 2, 3]);
    drop(attached);
    store.close().await.unwrap();
}

/// Who opens a journal closes it for whoever wrote it, at any moment; what that had is all there.
#[tokio::test]
async fn a_journal_that_is_opened_takes_nothing_more() {
    let server = Server::start(&[]);
    let engine = open(&server.url("fenced")).await.unwrap();
    let id = JournalId([5; 16]);
    let journal = engine.journal_create(id).await.unwrap();
    for seq in 0..3 {
        journal.append(chunk_of(id, seq)).await.unwrap();
    }
    for _ in 0..2 {
        let mut reader = engine.journal_open(id).await.unwrap();
        let mut seqs = 0;
        while let Some(found) = reader.next().await.unwrap() {
            assert_eq!(found, chunk_of(id, seqs));
            seqs += 1;
        }
        assert_eq!(seqs, 3);
    }
    let error = journal.append(chunk_of(id, 3)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict, "{error}");
    assert_eq!(journal.trim(4).await.unwrap_err().kind(), Kind::Conflict, "nor is it trimmed");
    engine.journal_remove(id).await.unwrap();
    assert!(engine.list("", None, 10).await.unwrap().is_empty());
}

/// A chunk that is gone from the midst is not taken for the end, where the next one says that it was durable.
#[tokio::test]
async fn a_chunk_that_vanished_is_told() {
    let server = Server::start(&[]);
    let url = server.url("gap");
    let id = JournalId([6; 16]);
    {
        let engine = open(&url).await.unwrap();
        let journal = engine.journal_create(id).await.unwrap();
        for seq in 0..4 {
            journal.append(chunk::encode_after(id.0, seq, 1, seq, &[7; 100]).freeze()).await.unwrap();
        }
        engine.rest().await;
    }
    server.remove(&format!("gap/chunks/{id}/{:020}", 1));
    let engine = open(&url).await.unwrap();
    let mut reader = engine.journal_open(id).await.unwrap();
    assert!(reader.next().await.unwrap().is_some());
    let error = reader.next().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt, "{error}");
}
