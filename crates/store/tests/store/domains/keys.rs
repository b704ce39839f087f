//! Keys: without one nothing opens, a rotated one opens what it sealed, a lost one is replaced, a shredded one is gone.

use super::{contents, create, everything, holds, open, pattern, sealed, try_open, vault};
use crate::pool::{BLOCK, attach, master, name, run, sound};
use std::sync::Arc;
use stonefold_engine::{Engine, Key, MemoryEngine};
use stonefold_store::{Attachment, DomainPolicy, DomainState, Keys, MasterKey, Store, export};
use stonefold_types::{Error, Kind, Result};
use zeroize::Zeroizing;

fn passphrase(text: &str) -> MasterKey {
    MasterKey::Passphrase(Arc::new(Zeroizing::new(text.as_bytes().to_vec())))
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
fn a_replay_needs_the_key_and_a_wrong_one_changes_nothing() {
    run(async {
        let (engine, store) = vault().await;
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
        let (engine, store) = vault().await;
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
        sound(&store).await;
        assert!(contents(&store, "till").await.starts_with(&pattern(64, 5)), "others are untouched");
        store.close().await.unwrap();
    });
}

#[test]
fn the_master_key_is_changed_by_one_swap_and_a_lost_one_is_replaced_with_exported_keys() {
    run(async {
        let (engine, store) = vault().await;
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
