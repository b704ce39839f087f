//! What was signed is told from what was changed.

use super::*;
use std::sync::Arc;
use stonefold_engine::MemoryEngine;
use stonefold_env::{Env, SystemWorld};
use stonefold_store::{Options, Store};

pub(super) fn proof() -> Proof {
    let signing = key::Key::of_seed(&[7; 32]).unwrap();
    let picture = b"a picture";
    let record = ProofRecord {
        point: "nightly@20261123T184005Z".parse().unwrap(),
        snapshots: vec![("root@20261123T184005Z".to_owned(), 3, 17)],
        boots: true,
        sign: Sign::Console("login:".into()),
        said: "login:".to_owned(),
        begun: 1_795_459_205_000_000_000,
        stages: vec![Stage { what: "sign of life".to_owned(), after_us: 12 }],
        screenshot_hash: Some(hash(picture)),
    };
    let text = serde_json::to_string(&record).unwrap();
    Proof {
        point: record.point,
        public_key: signing.public(),
        signature: signing.sign(text.as_bytes()),
        record: text,
        screenshot: Some(BASE64.encode(picture)),
        unknown: Unknown::new(),
    }
}

#[test]
fn a_changed_proof_is_none() {
    let sound = proof();
    assert!(sound.check().unwrap().boots);
    let other_key = key::Key::of_seed(&[8; 32]).unwrap().public();
    let changes: [fn(&mut Proof); 5] = [
        |proof| proof.record = proof.record.replace("true", "false"),
        |proof| proof.screenshot = None,
        |proof| proof.screenshot = Some(BASE64.encode("another")),
        |proof| proof.point = "daily@20261123T184005Z".parse().unwrap(),
        |proof| proof.signature.replace_range(0..2, "zz"),
    ];
    for change in changes {
        let mut changed = sound.clone();
        change(&mut changed);
        assert_eq!(changed.check().unwrap_err().kind(), Kind::Corrupt, "{changed:?}");
    }
    let of_another = Proof { public_key: other_key, ..sound };
    assert!(of_another.check().is_err());
}

#[test]
fn a_proof_is_stored_and_read() {
    let stored = catalog::written(&proof());
    assert_eq!(catalog::read::<Proof>(&stored).unwrap(), proof());
}

/// Goal: a proof counts where the pool's own key signed it; one that fits itself alone is told.
#[tokio::test]
async fn a_proof_by_another_key_is_none() {
    let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap());
    let store =
        Store::open(env.clone(), Arc::new(MemoryEngine::default()), Options::default()).await.unwrap();
    let protection = Protection::new(env, store.clone());
    let of_another = proof();
    catalog::put(&store, &of_another).await.unwrap();
    let refused = protection.proof(&of_another.point).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Corrupt, "the pool has no key, and signed nothing");
    let own = key::of_pool(&protection).await.unwrap();
    let refused = protection.proof(&of_another.point).await.unwrap_err().to_string();
    assert!(refused.contains("another key than this pool's"), "{refused}");
    assert!(refused.contains("stonefold verify nightly@20261123T184005Z"), "{refused}");
    let ours = Proof {
        public_key: own.public(),
        signature: own.sign(of_another.record.as_bytes()),
        ..of_another.clone()
    };
    catalog::put(&store, &ours).await.unwrap();
    assert_eq!(protection.proof(&of_another.point).await.unwrap(), Some(ours));
}
