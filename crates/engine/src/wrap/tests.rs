use super::*;
use crate::{MemoryEngine, conformance};
use std::time::Duration;
use stonefold_env::{Env, SystemWorld};
use stonefold_format::chunk;

fn env() -> Env {
    Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap())
}

fn memory() -> Arc<dyn Engine> {
    Arc::new(MemoryEngine::default())
}

#[tokio::test]
async fn a_stack_of_wrappers_conforms() {
    let faults = FaultEngine::new(memory(), env(), |_| Decision::PROCEED);
    let throttle = ThrottleEngine::new(Arc::new(faults), env(), Limits::default());
    let trace = TraceEngine::new(Arc::new(throttle), env());
    let engine: Arc<dyn Engine> = Arc::new(trace.clone());
    conformance::run(&engine).await;
    for count in trace.counts() {
        assert!(count.operations > 0, "the suite asks for {}", count.ask.name());
        assert_eq!(count.classes.iter().sum::<u64>(), count.operations);
        assert_eq!(Ask::ALL[count.ask as usize], count.ask);
    }
    assert!(trace.hook().count(Ask::GetRange).bytes > 70_000);
    assert_eq!(trace.hook().count(Ask::PutIf).errors, 0, "a lost race is an answer");
}

#[tokio::test]
async fn faults_do_what_was_decided() {
    let engine = FaultEngine::new(memory(), env(), |operation| {
        let outcome = match operation.subject {
            Subject::Object(key) if operation.ask == Ask::PutNew => match key.as_str() {
                "before" => Outcome::Fail(Kind::Io),
                "after" => Outcome::FailAfter(Kind::Io),
                "full" => Outcome::FailAfter(Kind::NoSpace),
                _ => Outcome::Proceed,
            },
            Subject::Object(key) if key.as_str() == "rotten" => Outcome::Rot(9),
            Subject::Journal(_) if operation.ask == Ask::JournalSync => Outcome::Fail(Kind::Io),
            _ => Outcome::Proceed,
        };
        Decision { outcome, ..Decision::PROCEED }
    });
    let put = async |name: &'static str| engine.put_new(&Key::new(name), Bytes::from_static(b"abc")).await;
    let there = async |name: &'static str| engine.get(&Key::new(name)).await;
    assert_eq!(put("before").await.unwrap_err().kind(), Kind::Io);
    assert!(there("before").await.is_err());
    assert_eq!(put("after").await.unwrap_err().kind(), Kind::Io);
    assert!(there("after").await.is_ok());
    assert_eq!(put("full").await.unwrap_err().kind(), Kind::NoSpace);
    assert!(there("full").await.is_err(), "NoSpace leaves nothing behind");
    put("rotten").await.unwrap();
    assert_eq!(there("rotten").await.unwrap().0, "a`c");

    let id = JournalId([1; 16]);
    let journal = engine.journal_create(id).await.unwrap();
    journal.append(chunk::encode(id.0, 0, 1, b"x").freeze()).await.unwrap();
    assert_eq!(journal.sync().await.unwrap_err().kind(), Kind::Io);
    let next = journal.append(chunk::encode(id.0, 1, 1, b"x").freeze()).await;
    assert_eq!(next.unwrap_err().kind(), Kind::Closed, "a failed sync is final");
}

#[tokio::test]
async fn a_throttle_keeps_its_rate() {
    let env = env();
    let limits = Limits { operations_per_second: Some(200), ..Limits::default() };
    let engine = ThrottleEngine::new(memory(), env.clone(), limits);
    let key = Key::new("x");
    engine.put_new(&key, vec![0; 1 << 20].into()).await.unwrap();
    let waited =
        |bytes: usize, count: u64| (0..count).fold(Duration::ZERO, |_, _| engine.hook().charge(1, bytes));
    assert!(waited(0, 20) > Duration::from_millis(90), "20 operations at 200 a second");
    engine.set_limits(Limits { bytes_per_second: Some(100 << 20), ..Limits::default() });
    assert!(waited(1 << 20, 20) > Duration::from_millis(180), "20 MiB at 100 MiB a second");
}
