use super::*;
use stonefold_format::chunk;

#[tokio::test]
async fn a_crash_takes_only_what_was_not_promised() {
    let engine = MemoryEngine::default();
    let key = Key::new("head/a");
    engine.put_new(&key, Bytes::from_static(b"one")).await.unwrap();
    let id = JournalId([7; 16]);
    let journal = engine.journal_create(id).await.unwrap();
    for seq in 0..3 {
        journal.append(chunk::encode(id.0, seq, 1, &[seq as u8; 5000]).freeze()).await.unwrap();
        if seq == 0 {
            journal.sync().await.unwrap();
        }
    }
    let version = engine.get(&key).await.unwrap().1;
    let mut put = std::pin::pin!(engine.put_if(&key, Bytes::from_static(b"two"), &version));
    assert!(futures_poll(put.as_mut()).is_pending());

    // The put undone, chunk 1 kept, chunk 2 torn.
    let mut choices = [0, 0, 2, 5, 0].into_iter();
    let crashed = engine.after_crash(&mut |n| choices.next().unwrap().min(n - 1));
    assert_eq!(crashed.get(&key).await.unwrap().0, "one");
    let mut reader = crashed.journal_open(id).await.unwrap();
    assert!(reader.next().await.unwrap().is_some());
    assert!(reader.next().await.unwrap().is_some());
    assert!(reader.next().await.unwrap().is_none());

    // The put kept, chunk 1 lost.
    let mut choices = [1, 1, 0].into_iter();
    let crashed = engine.after_crash(&mut |_| choices.next().unwrap());
    assert_eq!(crashed.get(&key).await.unwrap().0, "two");
    let mut reader = crashed.journal_open(id).await.unwrap();
    assert!(reader.next().await.unwrap().is_some());
    assert!(reader.next().await.unwrap().is_none());

    // Once it returned there is nothing to choose about the put.
    put.await.unwrap();
    journal.sync().await.unwrap();
    engine.after_crash(&mut |_| panic!("all of it is durable"));
}

fn futures_poll<F: Future>(future: std::pin::Pin<&mut F>) -> std::task::Poll<F::Output> {
    future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
}

#[tokio::test]
async fn a_full_engine_refuses_and_rot_shows() {
    let engine = MemoryEngine::with_capacity_bytes(10);
    let key = Key::new("seg/1");
    engine.put_new(&key, Bytes::from_static(b"12345678")).await.unwrap();
    let refused = engine.put_new(&Key::new("seg/2"), Bytes::from_static(b"123")).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::NoSpace);
    assert!(engine.rot(&key, 3));
    assert_eq!(engine.get(&key).await.unwrap().0[0], b'1' ^ 8);
    engine.delete(&key).await.unwrap();
    assert_eq!(engine.room().await.unwrap().free_bytes, 10);
}

#[tokio::test]
async fn conforms() {
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::default());
    crate::conformance::run(&engine).await;
}
