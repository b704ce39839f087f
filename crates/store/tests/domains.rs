//! Domains: data of one never meets that of another, and of a sealed one nothing is on the medium but sealed.
//!
//! Goal: what was written is found by nobody who has the medium and not the key: not after a write, a fold, a reclaim, a
//! crash; whoever has the key finds all of it; and a key that is gone is gone.

use std::sync::Arc;
use stonefold_engine::{Engine, Key, MemoryEngine};
use stonefold_env::{Env, SystemWorld};
use stonefold_store::{
    Attachment, DomainPolicy, DomainState, Keys, MasterKey, Options, Secret, Store, export,
};
use stonefold_types::{Compression, DiskSettings, Error, Kind, Name, Result};
use zeroize::Zeroizing;

const DISK_BYTES: u64 = 8 << 20;
const BLOCK: usize = 4096;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn master(byte: u8) -> Keys {
    Keys { master: Some(MasterKey::Key(Secret::new(&[byte; 32]))), ..Keys::default() }
}

fn passphrase(text: &str) -> MasterKey {
    MasterKey::Passphrase(Arc::new(Zeroizing::new(text.as_bytes().to_vec())))
}

async fn try_open(engine: &Arc<MemoryEngine>, keys: Keys) -> Result<Arc<Store>> {
    let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap());
    let options = Options { cache_bytes: 8 << 20, journal_bytes_max: 64 << 20, keys, ..Options::default() };
    Store::open(env, engine.clone() as Arc<dyn Engine>, options).await
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

fn attach(store: &Arc<Store>, disk: &str) -> Attachment {
    store.attach(&disk.parse().unwrap()).unwrap()
}

async fn contents(store: &Arc<Store>, disk: &str) -> Vec<u8> {
    store.drop_cache();
    let attachment = attach(store, disk);
    let mut bytes = vec![0xee; attachment.size_bytes() as usize];
    attachment.read(0, &mut bytes).await.unwrap();
    bytes
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

/// The medium after a loss of power.
async fn crash(store: Arc<Store>, engine: &MemoryEngine, disk: &str) -> Arc<MemoryEngine> {
    let _ = attach(&store, disk).flush().await.unwrap();
    Arc::new(engine.after_crash(&mut |_| 0))
}

fn refused(result: Result<Attachment>) -> Error {
    match result {
        Ok(_) => panic!("it is attached"),
        Err(error) => error,
    }
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
        let counters = store.status().await.unwrap().counters;
        let found = counters.iter().find(|(name, _, _)| *name == "dedupe_found_blocks").unwrap().2;
        assert_eq!(found, 64, "only the second disk of one domain has what is there already");
        for disk in ["a", "b", "c", "d"] {
            assert!(contents(&store, disk).await.starts_with(&pattern(64, 1)), "{disk}");
        }
        assert_eq!(store.check().await.unwrap().problems, Vec::<String>::new());
        store.close().await.unwrap();
    });
}

#[test]
fn nothing_of_what_was_written_is_on_the_medium() {
    run(async {
        let engine = Arc::new(MemoryEngine::default());
        let store = open(&engine, master(1)).await;
        sealed(&store, "bank").await;
        create(&store, "bank", "vault").await;
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
        assert_eq!(store.check().await.unwrap().problems, Vec::<String>::new());
        store.close().await.unwrap();
    });
}

#[test]
fn a_replay_needs_the_key_and_a_wrong_one_changes_nothing() {
    run(async {
        let engine = Arc::new(MemoryEngine::default());
        let store = open(&engine, master(1)).await;
        sealed(&store, "bank").await;
        create(&store, "bank", "vault").await;
        // More than one chunk's worth, so that a worker seals it, and a little.
        let vault = attach(&store, "vault");
        vault.write(0, &pattern(300, 7), false).await.unwrap();
        vault.write(0, &pattern(1, 9), false).await.unwrap();
        drop(vault);
        let engine = crash(store, &engine, "vault").await;

        let before = everything(&engine).await;
        let wrong = try_open(&engine, master(2)).await.err().unwrap();
        assert_eq!(wrong.kind(), Kind::WrongKey, "{wrong}");
        assert!(everything(&engine).await == before, "a wrong key changes nothing");
        let absent = try_open(&engine, Keys::default()).await.err().unwrap();
        assert_eq!(absent.kind(), Kind::WrongKey, "{absent}");
        assert!(
            absent.to_string().contains("'vault'") && absent.remedy_text().unwrap().contains("--key-file")
        );

        let store = open(&engine, master(1)).await;
        let found = contents(&store, "vault").await;
        assert!(found.starts_with(&pattern(1, 9)) && found[BLOCK..].starts_with(&pattern(300, 7)[BLOCK..]));
        store.close().await.unwrap();

        // All is folded: the pool opens without the key, and its sealed disks stay shut.
        let store = open(&engine, Keys::default()).await;
        assert_eq!(store.domain(&name("bank")).unwrap().state, DomainState::Locked);
        let error = refused(store.attach(&"vault".parse().unwrap()));
        assert_eq!(error.kind(), Kind::WrongKey, "{error}");
        assert!(error.remedy_text().unwrap().contains("--key-file"));
        let checked = store.check().await.unwrap();
        assert_eq!(checked.problems, Vec::<String>::new(), "checksums need no key");
        assert!(checked.notes.iter().any(|note| note.contains("'bank' is locked")), "{checked:?}");
        assert_eq!(store.disk(&name("vault")).unwrap().domain_state, DomainState::Locked);
        assert!(store.create_domain(&name("other"), DomainPolicy::default(), true).await.is_err());
        create(&store, "default", "open").await;
        store.remove_disk(&name("vault")).await.unwrap();
        store.close().await.unwrap();
    });
}

#[test]
fn a_rotated_key_seals_what_comes_and_opens_what_was() {
    run(async {
        let engine = Arc::new(MemoryEngine::default());
        let store = open(&engine, master(1)).await;
        sealed(&store, "bank").await;
        create(&store, "bank", "vault").await;
        let vault = attach(&store, "vault");
        vault.write(0, &pattern(64, 1), false).await.unwrap();
        store.reclaim().await.unwrap();
        assert_eq!(store.rotate_domain(&name("bank")).await.unwrap().key.unwrap().0, 2);
        // What was there before the rotation is still known, though a new key seals.
        vault.write(1 << 20, &pattern(64, 1), false).await.unwrap();
        vault.write(2 << 20, &pattern(64, 2), false).await.unwrap();
        drop(vault);
        let engine = crash(store, &engine, "vault").await;
        let store = open(&engine, master(1)).await;
        store.reclaim().await.unwrap();
        let found = contents(&store, "vault").await;
        assert!(found.starts_with(&pattern(64, 1)) && found[1 << 20..].starts_with(&pattern(64, 1)));
        assert!(found[2 << 20..].starts_with(&pattern(64, 2)));
        for _ in 2..32 {
            store.rotate_domain(&name("bank")).await.unwrap();
        }
        assert_eq!(store.rotate_domain(&name("bank")).await.unwrap_err().kind(), Kind::Invalid);
        assert!(store.rotate_domain(&name("default")).await.is_err());
        store.close().await.unwrap();
    });
}

#[test]
fn reclaim_seals_what_it_moves_by_the_newest_key() {
    run(async {
        let engine = Arc::new(MemoryEngine::default());
        let store = open(&engine, master(1)).await;
        sealed(&store, "bank").await;
        create(&store, "bank", "vault").await;
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
        let checked = store.check().await.unwrap();
        assert_eq!((checked.problems.len(), checked.lost_blocks), (0, 0), "{checked:?}");
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

#[test]
fn a_shredded_domain_is_gone_and_gives_its_space_back() {
    run(async {
        let engine = Arc::new(MemoryEngine::default());
        let store = open(&engine, master(1)).await;
        sealed(&store, "bank").await;
        sealed(&store, "shop").await;
        create(&store, "bank", "vault").await;
        create(&store, "shop", "till").await;
        attach(&store, "till").write(0, &pattern(64, 5), false).await.unwrap();
        let vault = attach(&store, "vault");
        vault.write(0, &pattern(64, 4), false).await.unwrap();
        store.snapshot(&[name("vault")], Some(name("s"))).await.unwrap();
        let text = store.export_domain_key(&name("bank")).unwrap();
        let copy = export::decode(&text).unwrap();
        assert_eq!(store.shred_domain(&name("bank")).await.unwrap_err().kind(), Kind::Busy);
        vault.write(0, &pattern(1, 4), false).await.unwrap();
        drop(vault);
        let shredded = store.shred_domain(&name("bank")).await.unwrap();
        assert_eq!((shredded.state, shredded.key, shredded.disks), (DomainState::Shredded, None, 1));
        let gone = |store: &Arc<Store>| {
            for export in ["vault", "vault@s"] {
                let error = refused(store.attach(&export.parse().unwrap()));
                assert!(error.to_string().contains("shredded"), "{error}");
            }
        };
        gone(&store);
        let (document, _) = engine.get(&Key::new("domains")).await.unwrap();
        let kept = |key: &export::ExportedKey| holds(&document, key.key.secret.expose());
        assert!(!copy.iter().any(kept));
        store.close().await.unwrap();
        let store = open(&engine, master(1)).await;
        gone(&store);
        assert!(store.clone_snapshot(&"vault@s".parse().unwrap(), &name("x")).await.is_err());
        let name_taken = store.create_domain(&name("bank"), DomainPolicy::default(), true).await;
        assert_eq!(name_taken.unwrap_err().kind(), Kind::AlreadyExists);
        store.remove_snapshot(&"vault@s".parse().unwrap()).await.unwrap();
        store.remove_disk(&name("vault")).await.unwrap();
        let done = store.reclaim().await.unwrap();
        assert!(done.dead_blocks >= 64, "{done:?}");
        let checked = store.check().await.unwrap();
        assert_eq!((checked.problems.len(), checked.lost_blocks), (0, 0), "{checked:?}");
        assert!(contents(&store, "till").await.starts_with(&pattern(64, 5)), "others are untouched");
        store.close().await.unwrap();
    });
}

#[test]
fn the_master_key_is_changed_by_one_swap_and_a_lost_one_is_replaced_with_exported_keys() {
    run(async {
        let engine = Arc::new(MemoryEngine::default());
        let store = open(&engine, master(1)).await;
        sealed(&store, "bank").await;
        create(&store, "bank", "vault").await;
        attach(&store, "vault").write(0, &pattern(64, 5), false).await.unwrap();
        store.rewrap_domains(passphrase("correct horse")).await.unwrap();
        store.rotate_domain(&name("bank")).await.unwrap();
        attach(&store, "vault").write(1 << 20, &pattern(64, 6), false).await.unwrap();
        let text = store.export_domain_key(&name("bank")).unwrap();
        let engine = crash(store, &engine, "vault").await;

        for wrong in [master(1), Keys { master: Some(passphrase("wrong horse")), ..Keys::default() }] {
            assert_eq!(try_open(&engine, wrong).await.err().unwrap().kind(), Kind::WrongKey);
        }
        let right = Keys { master: Some(passphrase("correct horse")), ..Keys::default() };
        let store = open(&engine, right).await;
        assert!(contents(&store, "vault").await.starts_with(&pattern(64, 5)));
        attach(&store, "vault").write(2 << 20, &pattern(64, 7), false).await.unwrap();
        let engine = crash(store, &engine, "vault").await;

        // The passphrase is lost. Writes that are not folded are in the journal, and open with the exported key.
        let exported = export::decode(&text).unwrap();
        let recovery = Keys { recovery: exported.clone(), ..Keys::default() };
        let store = open(&engine, recovery).await;
        assert!(contents(&store, "vault").await[2 << 20..].starts_with(&pattern(64, 7)));
        store.close().await.unwrap();
        let anew = Keys { recovery: exported.clone(), ..master(9) };
        open(&engine, anew).await.close().await.unwrap();
        let store = open(&engine, master(9)).await;
        let found = contents(&store, "vault").await;
        assert!(found.starts_with(&pattern(64, 5)) && found[1 << 20..].starts_with(&pattern(64, 6)));
        store.rotate_domain(&name("bank")).await.unwrap();
        store.close().await.unwrap();
        let stale = Keys { recovery: exported, ..Keys::default() };
        let error = try_open(&engine, stale).await.err().unwrap();
        assert!(error.to_string().contains("older than its newest key"), "{error}");
    });
}

/// Goal: whoever changes what is stored, and makes the checksum anew, gets an error read, and no data.
#[test]
fn a_changed_frame_is_an_error_also_under_a_sound_checksum() {
    run(async {
        let engine = Arc::new(MemoryEngine::default());
        let store = open(&engine, master(1)).await;
        sealed(&store, "bank").await;
        create(&store, "bank", "vault").await;
        attach(&store, "vault").write(0, &pattern(8, 5), false).await.unwrap();
        store.close().await.unwrap();
        let mut changed = 0;
        for listed in engine.list("segment/", None, 100).await.unwrap() {
            let (object, version) = engine.get(&listed.key).await.unwrap();
            let id = stonefold_format::entry::SegmentId(
                u64::from_str_radix(&listed.key.as_str()["segment/".len()..], 16).unwrap(),
            );
            let frame = stonefold_format::segment::SEGMENT_HEADER;
            if !stonefold_format::frame::is_sealed(&object[frame..]) {
                continue;
            }
            let mut object = object.to_vec();
            let header = stonefold_format::frame::FrameHeader::peek(&object[frame..]).unwrap();
            object[frame + 100] ^= 1;
            stonefold_format::frame::place(&mut object[frame..frame + header.length], id.0 << 20);
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
