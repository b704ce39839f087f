//! What policies' runs came to, for who listens.

use crate::life::{HOUR, Life, Pool, name};
use crate::policies::{HOURLY, asked, begin, hours_pass, refused, round};
use crate::standstills::{Guest, Mood};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use stonefold_protect::{
    Consistency, NewMachine, NewPolicy, Outcome, PolicyChange, Protection, RunRequest, SourceOf,
};
use stonefold_types::Kind;

/// What is told from now on, as `POLICY SOURCE failed` or `… works`, with the URL that is to hear it.
fn heard(protection: &Protection) -> Arc<Mutex<Vec<String>>> {
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let by = heard.clone();
    protection.listen(Box::new(move |told| {
        let Outcome { policy, source, run, failure, webhook, .. } = told;
        let named = if run.is_some() { " named" } else { "" };
        let how = if failure.is_some() { "failed" } else { "works" };
        by.lock().push(format!("{policy} {source} {how}{named} {}", webhook.unwrap_or_default()));
    }));
    heard
}

/// Goal: who listens is told of each run that fails, one that a start had to end among them, and of the first that makes a point again, over a restart, too; and
/// of nothing else.
#[test]
fn what_fails_is_told_and_what_works_again() {
    let pool = Pool::new();
    let url = Some("https://hooks.example/x".to_owned());
    let telling = NewPolicy { webhook: url, ..asked("1h", None) };
    const FAILED: &str = "hourly a failed named https://hooks.example/x";
    const WORKS: &str = "hourly a works named https://hooks.example/x";
    pool.life(|life| {
        let pool = &pool;
        async move {
            begin(&life, telling).await;
            life.create("lone").await;
            let lone = NewMachine { name: name("a"), disks: vec![name("lone")], hardware: None };
            life.protection.add_machine(lone).await.unwrap();
            life.protection.add_source(name("a"), SourceOf::Machine(name("a"))).await.unwrap();
            life.protection.apply_policy(&name(HOURLY), &[name("a")]).await.unwrap();
            let told = heard(&life.protection);
            life.store.remove_disk(&name("lone")).await.unwrap();
            life.protection.back_up(&name("a"), RunRequest::default()).await.unwrap_err();
            assert!(told.lock().is_empty(), "who asked himself is answered");
            hours_pass(pool, &life, 2).await;
            assert_eq!(*told.lock(), [FAILED; 2]);
            life.store.close().await.unwrap();
        }
    });
    pool.life(|life| {
        let pool = &pool;
        async move {
            let told = heard(&life.protection);
            life.create("lone").await;
            hours_pass(pool, &life, 2).await;
            assert_eq!(*told.lock(), [WORKS]);
            // As a server that dies leaves it.
            let runs = life.protection.runs(Some(&name("a"))).await.unwrap();
            let path = format!("runs/a/{}", runs.last().unwrap().name.stamp);
            life.protection.remove_point(&runs.last().unwrap().name).await.unwrap();
            let cut =
                |text: Option<&str>| Ok(text.unwrap().replace(r#""state":"done""#, r#""state":"running""#));
            life.store.change_catalog_entry(&path, cut).await.unwrap();
            let next = Protection::new(life.env.clone(), life.store.clone());
            let told = heard(&next);
            next.settle().await;
            assert_eq!(*told.lock(), [FAILED]);
            pool.clock.passes(HOUR);
            assert_eq!(next.round().await.unwrap().done.len(), 2);
            assert_eq!(*told.lock(), [FAILED, WORKS]);
        }
    });
    let long = NewPolicy { webhook: Some("x".repeat(3000)), ..asked("1h", None) };
    pool.life(|life| async move {
        refused(
            life.protection.create_policy(name("x"), long).await.unwrap_err(),
            Kind::Invalid,
            "3000 bytes",
        );
    });
}

/// Why each that failed did, and `works` for the others.
fn reasons(protection: &Protection) -> Arc<Mutex<Vec<String>>> {
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let by = heard.clone();
    protection
        .listen(Box::new(move |told| by.lock().push(told.failure.unwrap_or_else(|| "works".to_owned()))));
    heard
}

/// Goal: a point that was made, and is not as its policy wants it, is told as a failure, over a restart, too: one whose guest did not stay still, one whose lock
/// was over before it could be locked.
#[test]
fn a_point_that_lacks_what_its_policy_wants_is_told() {
    let (pool, guest) = (Pool::new(), Guest::new(Mood::Restless));
    pool.life(|life| {
        let pool = &pool;
        async move {
            begin(&life, asked("1h", None)).await;
            guest.wakes_up(&life);
            life.protection.set_machine_agent(&name("web"), Some(guest.place())).await.unwrap();
            let of_app = PolicyChange { consistency: Some(Consistency::App), ..PolicyChange::default() };
            life.protection.change_policy(&name(HOURLY), &of_app).await.unwrap();
            let told = reasons(&life.protection);
            for count in 1..=2 {
                pool.clock.passes(HOUR);
                assert_eq!(round(&life).await.begun.len(), 1);
                until(&life, || told.lock().len() == count).await;
                guest.state.lock().mood = Mood::Well;
            }
            let told = told.lock();
            assert!(told[0].contains("was made, but is not a point of an application that was told"));
            assert_eq!(told[1], "works");
        }
    });
    pool.life(|life| async move {
        let unlocked = life.protection.points(None).await.unwrap().pop().unwrap().point.name;
        let locking = PolicyChange { lock_seconds: Some(86_400), ..PolicyChange::default() };
        life.protection.change_policy(&name(HOURLY), &locking).await.unwrap();
        // As a server leaves it that died before it locked the point, and was away for longer than the lock.
        let path = format!("runs/web/{}", unlocked.stamp);
        let cut = |text: Option<&str>| {
            let was_done = r#""state":"done""#;
            Ok(text.unwrap().replace(was_done, r#""state":"running","lock_until":1"#))
        };
        life.store.change_catalog_entry(&path, cut).await.unwrap();
        let next = Protection::new(life.env.clone(), life.store.clone());
        let told = reasons(&next);
        next.settle().await;
        let told = told.lock();
        assert!(
            told.len() == 1 && told[0].contains("but is not locked: its point is not locked"),
            "{told:?}"
        );
    });
}

async fn until(life: &Life, is_so: impl Fn() -> bool) {
    for _ in 0..500 {
        if is_so() {
            return;
        }
        life.env.sleep(Duration::from_millis(10)).await;
    }
    panic!("it does not come");
}
