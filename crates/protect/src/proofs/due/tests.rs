//! Which point is to be proven next.

use super::*;
use crate::hypervisor::Sign;
use crate::policies::{NewPolicy, NewVerification};
use crate::runs::Slot;
use crate::{NewMachine, RunRequest, SourceOf};
use parking_lot::Mutex;
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
    let now = protection.env.monotonic();
    untried.insert(last[1].clone(), now);
    assert_eq!(protection.to_be_proven(&newest, &source, &untried).await.unwrap(), None);
    untried.insert(last[0].clone(), now);
    untried.remove(&last[1]);
    assert_eq!(protection.to_be_proven(&every, &source, &untried).await.unwrap().as_ref(), Some(&last[1]));
}

/// Goal: that a point could not be tried at all is told like a run that failed, and once.
#[tokio::test]
async fn a_proof_that_cannot_be_tried_is_told_once() {
    let protection = protected().await;
    verifies(&protection, false).await;
    let point = made(&protection, true).await;
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = told.clone();
    protection.listen(Box::new(move |outcome| heard.lock().push(outcome)));
    let mut untried = HashMap::new();
    // Nobody has said what machine it is.
    let reach = Reach::Socket("/nowhere".to_owned());
    for _ in 0..2 {
        protection.prove_due(&reach, &mut untried).await.unwrap();
        let now = protection.env.monotonic();
        // As if the time for another attempt had come.
        untried.values_mut().for_each(|tried| *tried = now.saturating_sub(AGAIN));
    }
    let told = told.lock();
    let [one] = told.as_slice() else { panic!("told {} times: {told:?}", told.len()) };
    assert_eq!(one.run.as_ref(), Some(&point));
    assert!(one.failure.as_ref().is_some_and(|why| why.contains("could not be proven")), "{one:?}");
}
