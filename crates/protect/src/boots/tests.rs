//! What a boot reads is learnt as it was read, and is in memory before it is asked for the next time.

use super::*;
use crate::domain::{Network, Reach};
use crate::{NewMachine, RecoverRequest, Recovery, RunRequest, SourceOf};
use stonefold_engine::MemoryEngine;
use stonefold_env::{Env, SystemWorld};
use stonefold_format::trace::Op;
use stonefold_store::Options;
use stonefold_types::{DiskSettings, PointName};

const MIB: u64 = 1 << 20;
const READS: usize = 0;
/// Some ten seconds.
const TRIES: usize = 2000;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

#[test]
fn pieces_are_kept_once_and_in_order() {
    const K: u64 = 1 << 10;
    let reads = [(0, 4 * K), (1000 * K, 512), (60 * K, 8 * K), (128 * K, 64 * K), (0, 512), (7, 0)];
    assert_eq!(runs_of(&reads), [(0, 1), (15, 1), (1, 2)]);
    assert!(runs_of(&[]).is_empty());
    // A hostile client names what no disk has.
    assert_eq!(runs_of(&[(u64::MAX, u64::MAX)]).len(), 1);
    assert_eq!(runs_of(&[(0, u64::MAX)]), [(0, CHUNKS_MAX as u64)]);
    let scattered: Vec<_> = (0..2 * CHUNKS_MAX as u64).map(|at| (at * 3 * CHUNK_BYTES, 1)).collect();
    assert_eq!(runs_of(&scattered).len(), RUNS_MAX);
}

/// A disk of data that does not compress, a machine of it, and a point of that.
async fn point(protection: &Protection) -> PointName {
    let store = &protection.store;
    store.create_disk(&name("root"), 8 * MIB, DiskSettings::default()).await.unwrap();
    let disk = store.attach(&"root".parse().unwrap()).unwrap();
    for at in 0..8 {
        let mut data = vec![0; MIB as usize];
        data.chunks_mut(32).for_each(|chunk| chunk.copy_from_slice(&protection.env.random::<32>()));
        disk.write(at * MIB, &data, false).await.unwrap();
    }
    let disks = vec![name("root")];
    protection.add_machine(NewMachine { name: name("web"), disks, hardware: None }).await.unwrap();
    protection.add_source(name("nightly"), SourceOf::Machine(name("web"))).await.unwrap();
    protection.back_up(&name("nightly"), RunRequest::default()).await.unwrap().name
}

async fn recovered(protection: &Protection, point: &PointName, new: &str) -> Recovery {
    let request = RecoverRequest {
        point: point.clone(),
        name: name(new),
        qos: None,
        reach: Reach::Socket("/run/nbd.sock".into()),
        network: Network::Isolated,
        dry_run: false,
    };
    protection.recover(request).await.unwrap().recovery
}

/// Goal: what the first boot read is in memory at the second one, before that asks, and nothing else is; it is no client's read, and keeps no disk.
#[tokio::test]
async fn what_a_boot_reads_is_there_at_the_next() {
    let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap());
    let options = Options { cache_bytes: 64 << 20, ..Options::default() };
    let store = Store::open(env.clone(), Arc::new(MemoryEngine::default()), options).await.unwrap();
    let protection = Protection::new(env.clone(), store.clone());
    let point = point(&protection).await;

    let first = recovered(&protection, &point, "first").await;
    assert_eq!(protection.fetch_ahead(&first).await, None);
    let up = protection.learn_boot(protection.trace_boot(&first));
    let guest = store.attach_for(&"first.vda".parse().unwrap(), "guest".into()).unwrap();
    for at in [5 * MIB, MIB, MIB + CHUNK_BYTES] {
        guest.note(Op::Read, at, 4096, false);
    }
    guest.note(Op::Write, 3 * MIB, 4096, false);
    up.send_replace(true);
    let mut learnt = None;
    for _ in 0..TRIES {
        learnt = catalog::find::<Boot>(&store, "nightly").await.unwrap();
        if learnt.is_some() {
            break;
        }
        env.sleep(LOOK_EVERY).await;
    }
    let learnt = learnt.expect("it is kept");
    assert_eq!(learnt.disks, [BootDisk { target: name("vda"), runs: vec![(80, 1), (16, 2)] }]);

    store.drop_cache();
    let second = recovered(&protection, &point, "second").await;
    assert_eq!(protection.fetch_ahead(&second).await, Some(Size(3 * CHUNK_BYTES)));
    for _ in 0..TRIES {
        if protection.fetching.lock().is_empty() {
            break;
        }
        env.sleep(LOOK_EVERY).await;
    }
    assert!(protection.fetching.lock().is_empty(), "it is fetched for ever");
    let info = store.disk(&name("second.vda")).unwrap();
    assert_eq!((info.traffic[READS], info.clients), (0, 0));
    let guest = store.attach_for(&"second.vda".parse().unwrap(), "guest".into()).unwrap();
    let mut block = [0; 4096];
    for at in [5 * MIB, MIB, MIB + CHUNK_BYTES, MIB + 2 * CHUNK_BYTES - 4096] {
        assert!(guest.read_cached(at, &mut block).is_some(), "{at} is not there");
    }
    assert!(guest.read_cached(7 * MIB, &mut block).is_none());
    drop(guest);
    protection.stop_fetching(&name("second")).await;
    store.remove_disk(&name("second.vda")).await.unwrap();
}
