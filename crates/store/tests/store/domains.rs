//! Domains: data of one never meets that of another, and of a sealed one nothing is on the medium but sealed.
//!
//! Goal: what was written is found by nobody who has the medium and not the key: not after a write, a fold, a reclaim, a
//! crash; whoever has the key finds all of it; and a key that is gone is gone ([`keys`]).

mod keys;
mod removal;

use crate::pool::{self, BLOCK, attach, counter, master, name, options, run, sound};
use std::sync::Arc;
use stonefold_engine::{Engine, MemoryEngine};
use stonefold_format::frame;
use stonefold_format::seal::TAG_BYTES;
use stonefold_store::{DomainPolicy, Keys, Options, Store};
use stonefold_types::{Compression, DiskSettings, Kind, Result};

const DISK_BYTES: u64 = 8 << 20;

async fn try_open(engine: &Arc<MemoryEngine>, keys: Keys) -> Result<Arc<Store>> {
    pool::try_open(engine.clone(), Options { keys, ..options(8, 64) }).await
}

async fn open(engine: &Arc<MemoryEngine>, keys: Keys) -> Arc<Store> {
    try_open(engine, keys).await.unwrap()
}

async fn create(store: &Store, domain: &str, disk: &str) {
    let settings = DiskSettings { compression: Compression::None, ..DiskSettings::default() };
    store.create_disk_in(&name(domain), &name(disk), DISK_BYTES, settings).await.unwrap();
}

async fn sealed(store: &Store, domain: &str) {
    store.create_domain(&name(domain), DomainPolicy::default(), true).await.unwrap();
}

/// A new pool in which a sealed domain 'bank' has a disk 'vault'.
async fn vault() -> (Arc<MemoryEngine>, Arc<Store>) {
    let engine = Arc::new(MemoryEngine::default());
    let store = open(&engine, master(1)).await;
    sealed(&store, "bank").await;
    create(&store, "bank", "vault").await;
    (engine, store)
}

/// All of a disk, as it lies in the pool.
async fn contents(store: &Arc<Store>, disk: &str) -> Vec<u8> {
    store.drop_cache();
    pool::contents(&attach(store, disk)).await
}

/// Blocks that differ, and that nobody takes for chance: each repeats a word with its number.
fn pattern(blocks: usize, salt: u64) -> Vec<u8> {
    let word = |block: usize| format!("secret {salt:08} {block:07} ").into_bytes();
    (0..blocks).flat_map(|block| word(block).into_iter().cycle().take(BLOCK)).collect()
}

/// Every byte of the pool: objects and journals.
async fn everything(engine: &MemoryEngine) -> Vec<u8> {
    let mut bytes = Vec::new();
    for listed in engine.list("", None, 100_000).await.unwrap() {
        bytes.extend(listed.key.as_str().as_bytes());
        bytes.extend(engine.get(&listed.key).await.unwrap().0);
    }
    for id in engine.journal_list().await.unwrap() {
        let mut reader = engine.journal_open(id).await.unwrap();
        while let Some(chunk) = reader.next().await.unwrap() {
            bytes.extend(chunk);
        }
    }
    bytes
}

fn holds(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}

#[test]
fn equal_blocks_of_different_domains_are_stored_twice_and_never_together() {
    run(async {
        let engine = Arc::new(MemoryEngine::default());
        let store = open(&engine, master(1)).await;
        store.create_domain(&name("plain"), DomainPolicy::default(), false).await.unwrap();
        sealed(&store, "bank").await;
        for (domain, disk) in [("default", "a"), ("plain", "b"), ("bank", "c"), ("bank", "d")] {
            create(&store, domain, disk).await;
            attach(&store, disk).write(0, &pattern(64, 1), false).await.unwrap();
        }
        store.reclaim().await.unwrap();
        let found = counter(&store, "dedupe_found_blocks").await;
        assert_eq!(found, 64, "only the second disk of one domain has what is there already");
        for disk in ["a", "b", "c", "d"] {
            assert!(contents(&store, disk).await.starts_with(&pattern(64, 1)), "{disk}");
        }
        sound(&store).await;
        store.close().await.unwrap();
    });
}

#[test]
fn nothing_of_what_was_written_is_on_the_medium() {
    run(async {
        let (engine, store) = vault().await;
        create(&store, "default", "open").await;
        let vault = attach(&store, "vault");
        vault.write(0, &pattern(300, 7), true).await.unwrap();
        vault.write(5 * BLOCK as u64 + 100, b"a secret in the middle of a block", true).await.unwrap();
        attach(&store, "open").write(0, b"an open word", true).await.unwrap();
        let journaled = everything(&engine).await;
        assert!(holds(&journaled, b"an open word"), "the search finds what is there");
        assert!(!holds(&journaled, b"secret"), "in the journal");
        store.snapshot(&[name("vault")], Some(name("s"))).await.unwrap();
        store.clone_snapshot(&"vault@s".parse().unwrap(), &name("copy")).await.unwrap();
        attach(&store, "copy").write(0, &pattern(30, 8), true).await.unwrap();
        drop(vault);
        store.close().await.unwrap();
        let folded = everything(&engine).await;
        assert!(holds(&folded, b"an open word") && !holds(&folded, b"secret"), "in segments");
        assert!(!holds(&folded, &[1; 32]), "the master key");
        let store = open(&engine, master(1)).await;
        let copy = contents(&store, "copy").await;
        assert!(copy.starts_with(&pattern(30, 8)));
        assert!(contents(&store, "vault").await.starts_with(&pattern(5, 7)));
        assert_eq!(store.disk(&name("copy")).unwrap().domain, name("bank"));
        sound(&store).await;
        store.close().await.unwrap();
    });
}

#[test]
fn reclaim_seals_what_it_moves_by_the_newest_key() {
    run(async {
        let (engine, store) = vault().await;
        let vault = attach(&store, "vault");
        vault.write(0, &pattern(512, 3), false).await.unwrap();
        store.reclaim().await.unwrap();
        store.rotate_domain(&name("bank")).await.unwrap();
        for block in (0..512).step_by(3) {
            vault.zero(block * BLOCK as u64, BLOCK as u64, false).await.unwrap();
        }
        let done = store.reclaim().await.unwrap();
        assert!(done.rewritten_segments > 0, "{done:?}");
        let found = contents(&store, "vault").await;
        for (block, expected) in pattern(512, 3).chunks(BLOCK).enumerate() {
            let is = &found[block * BLOCK..][..BLOCK];
            assert!(
                if block % 3 == 0 { is.iter().all(|b| *b == 0) } else { is == expected },
                "block {block}"
            );
        }
        sound(&store).await;
        drop(vault);
        store.close().await.unwrap();
        assert!(!holds(&everything(&engine).await, b"secret"));
        // Locked, reclaim goes on with what it can and breaks nothing.
        let store = open(&engine, Keys::default()).await;
        store.reclaim().await.unwrap();
        store.close().await.unwrap();
        let store = open(&engine, master(1)).await;
        assert!(contents(&store, "vault").await == found);
        store.close().await.unwrap();
    });
}

/// Goal: whoever changes what is stored, and makes the checksum anew, gets an error read, and no data.
/// The first sealed frame of the pool is changed and placed anew: reading it is an error, and told by a check.
fn is_refused_when_changed(change: impl Fn(&mut [u8])) {
    run(async {
        let (engine, store) = vault().await;
        attach(&store, "vault").write(0, &pattern(8, 5), false).await.unwrap();
        store.close().await.unwrap();
        let mut changed = 0;
        for listed in engine.list("segment/", None, 100).await.unwrap() {
            let (object, version) = engine.get(&listed.key).await.unwrap();
            let id = u64::from_str_radix(&listed.key.as_str()["segment/".len()..], 16).unwrap();
            let at = stonefold_format::segment::SEGMENT_HEADER;
            if !frame::is_sealed(&object[at..]) {
                continue;
            }
            let mut object = object.to_vec();
            change(&mut object[at..]);
            let length = frame::FrameHeader::peek(&object[at..]).unwrap().length;
            frame::place(&mut object[at..at + length], id << 20);
            engine.put_if(&listed.key, object.into(), &version).await.unwrap();
            changed += 1;
        }
        assert_eq!(changed, 1);
        let store = open(&engine, master(1)).await;
        let mut bytes = vec![0; BLOCK];
        let error = attach(&store, "vault").read(0, &mut bytes).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{error}");
        assert!(!store.check().await.unwrap().problems.is_empty());
        store.close().await.unwrap();
    });
}

#[test]
fn a_changed_frame_is_an_error_also_under_a_sound_checksum() {
    is_refused_when_changed(|frame| frame[100] ^= 1);
}

/// *Past bug*: a frame that was not sealed was read where a sealed one belongs.
#[test]
fn a_frame_without_its_seal_is_an_error_also_under_a_sound_checksum() {
    is_refused_when_changed(|frame| {
        let sealed = frame::FrameHeader::peek(frame).unwrap();
        let whole = frame::FRAME_HEADER + sealed.blocks * BLOCK;
        assert_eq!(sealed.length, whole + TAG_BYTES, "it is stored as it was written");
        frame[8..12].copy_from_slice(&(whole as u32).to_le_bytes());
        frame[12] &= !128;
        frame[frame::FRAME_HEADER..whole].fill(b'x');
    });
}
