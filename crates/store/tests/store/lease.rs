//! Goal: of what a journal holds of a disk, only what its present owner appended comes to life.

use crate::pool::{BLOCK, attach, create, open, options, read, run};
use std::sync::Arc;
use stonefold_engine::{Engine, Key, MemoryEngine};
use stonefold_format::head::Head;

/// Gives the disk away, as a hand-over does: by a swap of its head.
async fn hand_over(engine: &MemoryEngine, disk: &str) {
    let key = Key::new(format!("head/{disk}"));
    let (bytes, version) = engine.get(&key).await.unwrap();
    let mut head = Head::decode(&bytes).unwrap();
    assert_eq!(head.lease.epoch, 1);
    head.lease.epoch += 1;
    engine.put_if(&key, head.encode().into(), &version).await.unwrap();
}

#[test]
fn what_a_fenced_owner_appended_is_void() {
    run(async {
        let engine = Arc::new(MemoryEngine::default());
        let store = open(engine.clone(), options(1, 1)).await;
        for disk in ["kept", "taken"] {
            create(&store, disk).await;
            attach(&store, disk).write(0, &[7; BLOCK], true).await.unwrap();
        }
        drop(store);
        let engine = Arc::new(engine.after_crash(&mut |_| 0));
        hand_over(&engine, "taken").await;
        let store = open(engine.clone(), options(1, 1)).await;
        assert_eq!(read(&store, "kept", 0, BLOCK).await, [7; BLOCK]);
        assert_eq!(read(&store, "taken", 0, BLOCK).await, [0; BLOCK]);

        attach(&store, "taken").write(0, &[8; BLOCK], true).await.unwrap();
        drop(store);
        let store = open(Arc::new(engine.after_crash(&mut |_| 0)), options(1, 1)).await;
        let appended = read(&store, "taken", 0, BLOCK).await;
        assert_eq!(appended, [8; BLOCK], "and what the present owner appended is there");
        store.close().await.unwrap();
    });
}
