//! Goal: of what a journal holds of a disk, only what its present owner appended comes to life.

use std::sync::Arc;
use stonefold_engine::{Engine, Key, MemoryEngine};
use stonefold_env::{Env, SystemWorld};
use stonefold_format::head::Head;
use stonefold_store::{Options, Store};
use stonefold_types::{DiskSettings, Name};

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

async fn open(engine: &Arc<MemoryEngine>) -> Arc<Store> {
    let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap());
    let options = Options { cache_bytes: 1 << 20, journal_bytes_max: 1 << 20, ..Options::default() };
    Store::open(env, engine.clone() as Arc<dyn Engine>, options).await.unwrap()
}

async fn first_byte(store: &Arc<Store>, disk: &str) -> u8 {
    let mut block = vec![0xee; 4096];
    store.attach(&disk.parse().unwrap()).unwrap().read(0, &mut block).await.unwrap();
    block[0]
}

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
        let store = open(&engine).await;
        for disk in ["kept", "taken"] {
            let name = Name::new(disk).unwrap();
            store.create_disk(&name, 1 << 20, DiskSettings::default()).await.unwrap();
            store.attach(&disk.parse().unwrap()).unwrap().write(0, &[7; 4096], true).await.unwrap();
        }
        drop(store);
        let engine = Arc::new(engine.after_crash(&mut |_| 0));
        hand_over(&engine, "taken").await;
        let store = open(&engine).await;
        assert_eq!((first_byte(&store, "kept").await, first_byte(&store, "taken").await), (7, 0));

        store.attach(&"taken".parse().unwrap()).unwrap().write(0, &[8; 4096], true).await.unwrap();
        drop(store);
        let store = open(&Arc::new(engine.after_crash(&mut |_| 0))).await;
        assert_eq!(first_byte(&store, "taken").await, 8, "and what the present owner appended is there");
        store.close().await.unwrap();
    });
}
