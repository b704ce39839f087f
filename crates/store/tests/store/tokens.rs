//! Tokens: kept as hashes, changed one after the other, never left without an admin.

use crate::pool::{self, name, options, run};
use std::sync::Arc;
use stonefold_engine::{Engine, Key, MemoryEngine};
use stonefold_store::Store;
use stonefold_types::{Kind, Name, Role};

async fn open(engine: &Arc<MemoryEngine>) -> Arc<Store> {
    pool::open(engine.clone(), options(1, 1)).await
}

#[test]
fn a_token_lives_until_it_is_removed_and_its_secret_is_kept_nowhere() {
    run(async {
        let engine = Arc::new(MemoryEngine::default());
        let store = open(&engine).await;
        assert!(store.tokens().await.unwrap().0.is_empty());
        let (all, secret) = store.create_token(Some(name("boss")), Role::Admin).await.unwrap();
        assert_eq!((all.0.len(), secret.len()), (1, "stonefold_".len() + 64));
        let (all, other) = store.create_token(None, Role::Viewer).await.unwrap();
        assert_ne!(secret, other);
        assert!(all.0[1].name.as_str().starts_with("viewer-"), "{}", all.0[1].name);
        store.close().await.unwrap();

        let store = open(&engine).await;
        let all = store.tokens().await.unwrap();
        assert_eq!(all.of_secret(&secret).unwrap().role, Role::Admin);
        assert_eq!(all.of_secret(&other).unwrap().role, Role::Viewer);
        let (bytes, _) = engine.get(&Key::new("tokens")).await.unwrap();
        let kept = |part: &str| bytes.windows(part.len()).any(|window| window == part.as_bytes());
        assert!(!kept(&secret) && !kept(&secret["stonefold_".len()..]));

        let rest = store.remove_token(&all.0[1].name).await.unwrap();
        assert!(rest.of_secret(&other).is_none() && rest.of_secret(&secret).is_some());
        store.forget_tokens().await.unwrap();
        assert!(store.tokens().await.unwrap().0.is_empty());
        store.close().await.unwrap();
    });
}

#[test]
fn there_is_an_admin_as_long_as_there_is_anybody() {
    run(async {
        let store = open(&Arc::new(MemoryEngine::default())).await;
        let refused = store.create_token(Some(name("a")), Role::Operator).await.unwrap_err();
        assert_eq!(refused.kind(), Kind::Invalid);
        store.create_token(Some(name("a")), Role::Admin).await.unwrap();
        let twice = store.create_token(Some(name("a")), Role::Viewer).await.unwrap_err();
        assert_eq!(twice.kind(), Kind::AlreadyExists);
        store.create_token(Some(name("b")), Role::Operator).await.unwrap();
        assert_eq!(store.remove_token(&name("a")).await.unwrap_err().kind(), Kind::Busy);
        assert_eq!(store.remove_token(&name("c")).await.unwrap_err().kind(), Kind::NotFound);
        store.remove_token(&name("b")).await.unwrap();
        assert!(store.remove_token(&name("a")).await.unwrap().0.is_empty());
        store.close().await.unwrap();
    });
}

/// Two who change at once both see their change: neither writes over the other's.
#[test]
fn changes_at_once_are_made_one_after_the_other() {
    run(async {
        let store = open(&Arc::new(MemoryEngine::default())).await;
        store.create_token(Some(name("boss")), Role::Admin).await.unwrap();
        let names: Vec<Name> = (0..8).map(|i| name(&format!("t{i}"))).collect();
        let made = names.iter().map(|name| store.create_token(Some(name.clone()), Role::Viewer));
        for made in futures::future::join_all(made).await {
            made.unwrap();
        }
        let all = store.tokens().await.unwrap();
        assert!(names.iter().all(|name| all.0.iter().any(|token| token.name == *name)));
        store.close().await.unwrap();
    });
}
