//! Which point is to be proven next.

use super::*;
use crate::hypervisor::Sign;
use crate::policies::{NewPolicy, NewVerification};
use crate::runs::Slot;
use crate::{NewMachine, RunRequest, SourceOf};
use std::sync::Arc;
use stonefold_engine::MemoryEngine;
use stonefold_env::SystemWorld;
use stonefold_store::{Options, Store};
use stonefold_types::DiskSettings;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A source, and a policy of it.
async fn protected() -> Arc<Protection> {
    let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap());
    let engine = Arc::new(MemoryEngine::default());
    let store = Store::open(env.clone(), engine, Options::default()).await.unwrap();
    let protection = Protection::new(env, store.clone());
    store.create_disk(&name("root"), 1 << 20, DiskSettings::default()).await.unwrap();
    let machine = NewMachine { name: name("web"), disks: vec![name("root")], hardware: None };
    protection.add_machine(machine).await.unwrap();
    protection.add_source(name("web"), SourceOf::Machine(name("web"))).await.unwrap();
    let asked = NewPolicy { every: "1d".to_owned(), ..NewPolicy::default() };
    protection.create_policy(name("nightly"), asked).await.unwrap();
    protection.apply_policy(&name("nightly"), &[name("web")]).await.unwrap();
    protection
}

async fn made(protection: &Protection, of_policy: bool) -> PointName {
    let policy = protection.policy(&name("nightly")).await.unwrap();
    let slot = Slot { policy: policy.name.clone(), at: protection.store.time().trusted };
    let run = match of_policy {
        true => protection.back_up_for(&name("web"), &policy, slot).await.unwrap().unwrap(),
        false => protection.back_up(&name("web"), RunRequest::default()).await.unwrap(),
    };
    run.name
}

async fn verifies(protection: &Protection, every: bool) -> Policy {
    let verify = NewVerification { sign: Sign::Agent, timeout_seconds: 60, every };
    protection.verify_policy(&name("nightly"), Some(verify)).await.unwrap()
}

/// Goal: of a policy that wants every point proven each is, the oldest first, from when that was said on; of one that wants the newest, that one alone;
/// of neither what somebody else has made.
#[tokio::test]
async fn the_right_point_is_next() {
    let protection = protected().await;
    let source = name("web");
    let mut untried = HashMap::new();
    made(&protection, true).await;
    let every = verifies(&protection, true).await;
    assert_eq!(
        protection.to_be_proven(&every, &source, &untried).await.unwrap(),
        None,
        "it was there before"
    );
    let points = [made(&protection, true).await, made(&protection, true).await];
    made(&protection, false).await;
    for point in &points {
        assert_eq!(protection.to_be_proven(&every, &source, &untried).await.unwrap().as_ref(), Some(point));
        let proof = Proof { point: point.clone(), ..crate::proofs::tests::proof() };
        catalog::put(&protection.store, &proof).await.unwrap();
    }
    assert_eq!(protection.to_be_proven(&every, &source, &untried).await.unwrap(), None);

    let newest = verifies(&protection, false).await;
    assert_eq!(protection.to_be_proven(&newest, &source, &untried).await.unwrap(), None, "it is proven");
    let last = [made(&protection, true).await, made(&protection, true).await];
    assert_eq!(protection.to_be_proven(&newest, &source, &untried).await.unwrap().as_ref(), Some(&last[1]));
    // One that could not be tried waits, and none goes in its place where the newest is wanted.
    untried.insert(last[1].clone(), Duration::ZERO);
    assert_eq!(protection.to_be_proven(&newest, &source, &untried).await.unwrap(), None);
    untried.insert(last[0].clone(), Duration::ZERO);
    untried.remove(&last[1]);
    assert_eq!(protection.to_be_proven(&every, &source, &untried).await.unwrap().as_ref(), Some(&last[1]));
}
