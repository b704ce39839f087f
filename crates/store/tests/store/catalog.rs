//! The catalog: entries of which the store knows the names, changed one after the other, and told when they are damaged.

use crate::pool::{options, run};
use crate::script::scripted;
use crate::{pool, script::Script};
use std::sync::Arc;
use stonefold_engine::wrap::{Ask, Decision, Outcome};
use stonefold_engine::{Engine, Key, MemoryEngine};
use stonefold_store::Store;
use stonefold_types::Kind;

async fn open() -> (Arc<MemoryEngine>, Arc<Store>, Script) {
    let memory = Arc::new(MemoryEngine::default());
    let (engine, script) = scripted(&memory);
    (memory, pool::open(engine, options(1, 1)).await, script)
}

#[test]
fn an_entry_is_kept_listed_and_removed() {
    run(async {
        let (memory, store, _) = open().await;
        assert_eq!(store.catalog("points").await.unwrap(), Vec::<String>::new());
        for name in ["points/web/b", "points/web/a", "points/db/c", "sources/web"] {
            store.put_catalog_entry(name, &format!("{{\"of\":\"{name}\"}}"), None).await.unwrap();
        }
        assert_eq!(store.catalog("points").await.unwrap(), ["points/db/c", "points/web/a", "points/web/b"]);
        assert_eq!(store.catalog("points/web").await.unwrap(), ["points/web/a", "points/web/b"]);
        store.close().await.unwrap();

        let store = pool::open(memory, options(1, 1)).await;
        let entry = store.catalog_entry("points/db/c").await.unwrap().unwrap();
        assert_eq!(entry.text, "{\"of\":\"points/db/c\"}");
        store.remove_catalog_entry("points/db/c").await.unwrap();
        store.remove_catalog_entry("points/db/c").await.unwrap();
        assert_eq!(store.catalog_entry("points/db/c").await.unwrap(), None);
        for bad in ["points", "points/", "points/we b", "/x", "points/../pool"] {
            assert_eq!(store.catalog_entry(bad).await.unwrap_err().kind(), Kind::Invalid, "{bad}");
        }
        store.close().await.unwrap();
        assert_eq!(store.catalog("points").await.unwrap_err().kind(), Kind::Closed);
    });
}

/// Goal: nobody writes over what he has not seen, and of changes at once none is lost.
#[test]
fn changes_come_one_after_the_other() {
    run(async {
        let (_, store, _) = open().await;
        let first = store.put_catalog_entry("runs/1", "1", None).await.unwrap();
        assert_eq!(store.put_catalog_entry("runs/1", "2", None).await.unwrap_err().kind(), Kind::Conflict);
        store.put_catalog_entry("runs/1", "3", Some(&first)).await.unwrap();
        let late = store.put_catalog_entry("runs/1", "4", Some(&first)).await.unwrap_err();
        assert!(late.kind() == Kind::Conflict && late.to_string().contains("runs/1"), "{late}");
        // That it says what the other would have said does not make it his.
        assert_eq!(store.put_catalog_entry("runs/1", "3", None).await.unwrap_err().kind(), Kind::Conflict);
        let next =
            |text: Option<&str>| Ok((text.map_or(0, |text| text.parse::<u32>().unwrap()) + 1).to_string());
        let counts = (0..6).map(|_| store.change_catalog_entry("runs/3", next));
        for counted in futures::future::join_all(counts).await {
            counted.unwrap();
        }
        assert_eq!(store.catalog_entry("runs/3").await.unwrap().unwrap().text, "6");
        let add = |digit: char| {
            store.change_catalog_entry("runs/2", move |text| {
                Ok(format!("{}{digit}", text.unwrap_or_default()))
            })
        };
        for changed in futures::future::join_all("abcdef".chars().map(add)).await {
            changed.unwrap();
        }
        let all = store.catalog_entry("runs/2").await.unwrap().unwrap().text;
        assert!(all.len() == 6 && "abcdef".chars().all(|digit| all.contains(digit)), "{all}");
        store.close().await.unwrap();
    });
}

/// Goal: an error does not say whether a change happened; what is stored does.
#[test]
fn a_change_of_which_nobody_told_is_found_again() {
    run(async {
        let (_, store, script) = open().await;
        script.on(
            Ask::PutNew,
            "catalog/",
            Decision { outcome: Outcome::FailAfter(Kind::Io), ..Decision::PROCEED },
        );
        store.put_catalog_entry("runs/1", "1", None).await.unwrap();
        script.on(Ask::PutNew, "catalog/", Decision::fail(Kind::Io));
        assert_eq!(store.put_catalog_entry("runs/2", "2", None).await.unwrap_err().kind(), Kind::Io);
        assert_eq!(store.catalog("runs").await.unwrap(), ["runs/1"]);
        store.close().await.unwrap();
    });
}

/// Goal: damage is told by the entry's name, by a read and by a check; the entry can be put anew.
#[test]
fn a_damaged_entry_is_told() {
    run(async {
        let (memory, store, _) = open().await;
        store.put_catalog_entry("sources/web", "{}", None).await.unwrap();
        assert_eq!(store.check().await.unwrap().problems, Vec::<String>::new());
        let key = Key::new("catalog/sources/web");
        let (bytes, version) = memory.get(&key).await.unwrap();
        let mut damaged = bytes.to_vec();
        *damaged.last_mut().unwrap() ^= 1;
        memory.put_if(&key, damaged.into(), &version).await.unwrap();
        let error = store.catalog_entry("sources/web").await.unwrap_err();
        assert!(error.kind() == Kind::Corrupt && error.to_string().contains("sources/web"), "{error}");
        let problems = store.check().await.unwrap().problems;
        assert!(problems.len() == 1 && problems[0].contains("'sources/web' is damaged"), "{problems:?}");
        store.remove_catalog_entry("sources/web").await.unwrap();
        store.put_catalog_entry("sources/web", "{}", None).await.unwrap();
        assert_eq!(store.check().await.unwrap().problems, Vec::<String>::new());
        store.close().await.unwrap();
    });
}
