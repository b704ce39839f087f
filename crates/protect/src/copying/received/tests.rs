//! Goal: what has arrived otherwise than it was sent is told, wherever it was to be looked at.

use super::*;
use crate::points::Consistency;
use crate::runs::RunRequest;
use stonefold_engine::MemoryEngine;
use stonefold_env::{Env, SystemWorld};
use stonefold_store::{Options, Store};
use stonefold_types::DiskSettings;

const BYTES: u64 = 1 << 20;
const AT: u64 = 12_288;

async fn write(store: &Arc<Store>, disk: &str, at: u64, byte: u8) {
    let attached = store.attach(&disk.parse().unwrap()).unwrap();
    attached.write(at, &[byte; 4096], false).await.unwrap();
}

#[test]
fn what_arrived_otherwise_is_told() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap());
        let options = Options { cache_bytes: 4 << 20, journal_bytes_max: 4 << 20, ..Options::default() };
        let store = Store::open(env.clone(), Arc::new(MemoryEngine::default()), options).await.unwrap();
        let protection = Protection::new(env, store.clone());
        let sent = Name::new("sent").unwrap();
        for disk in ["sent", "there"] {
            store.create_disk(&Name::new(disk).unwrap(), BYTES, DiskSettings::default()).await.unwrap();
            write(&store, disk, AT, 7).await;
        }
        store.snapshot(&[sent], Some(Name::new("s").unwrap())).await.unwrap();
        let live = Live::new(RunRequest { full: false, consistency: Consistency::Crash }, None, None);
        let check = async |changed: Option<Vec<Range<u64>>>, since: Option<&[Range<u64>]>| {
            let origin = store.attach(&"sent@s".parse().unwrap()).unwrap();
            let origin = Origin::Snapshot(Snapshot::new(origin, BYTES, changed));
            let there = store.attach(&"there".parse().unwrap()).unwrap();
            protection.check_arrived(&live, &origin, &there, since).await
        };
        let block = std::iter::once(AT..AT + 4096).collect::<Vec<_>>();
        check(None, None).await.unwrap();
        write(&store, "there", AT, 8).await;
        for (changed, since) in [
            (None, None),
            (Some(block.clone()), Some(&[][..])),
            // Not of what differs, but of what an earlier attempt or somebody else has written.
            (Some(Vec::new()), Some(&block[..])),
        ] {
            let error = check(changed, since).await.unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt);
            assert!(error.what().contains("from byte 12288 on"), "{error}");
        }
        // What is the same in both points, and nobody touched, is as it was when it was compared.
        check(Some(Vec::new()), Some(&[])).await.unwrap();
        write(&store, "there", AT, 7).await;
        write(&store, "there", 5 * AT, 1).await;
        assert_eq!(check(None, None).await.unwrap_err().kind(), Kind::Corrupt, "there are zeros");
    });
}
