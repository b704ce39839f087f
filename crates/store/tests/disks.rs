//! Disks on an engine in memory, against the reference disk.
//!
//! Goal: whatever is written, zeroed, snapshotted, cloned, resized, folded and reopened in whatever order, each disk
//! and snapshot reads as the model says.

use proptest::prelude::*;
use std::sync::Arc;
use stonefold_engine::{Engine, MemoryEngine};
use stonefold_env::{Env, SystemWorld};
use stonefold_model::{Image, ReferenceDisk, Step};
use stonefold_store::{Attachment, Options, Store};
use stonefold_types::{DiskSettings, Kind, Name};

const DISK_BYTES: u64 = 3 << 20;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

async fn open(engine: &Arc<MemoryEngine>) -> Arc<Store> {
    let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap());
    let options = Options {
        cache_bytes: 1 << 20,
        journal_bytes_max: 1 << 20,
        snapshot_page_records: 3,
        ..Options::default()
    };
    Store::open(env, engine.clone() as Arc<dyn Engine>, options).await.unwrap()
}

async fn create(store: &Store, disk: &str) {
    store.create_disk(&name(disk), DISK_BYTES, DiskSettings::default()).await.unwrap();
}

fn attach(store: &Arc<Store>, export: &str) -> Attachment {
    store.attach(&export.parse().unwrap()).unwrap()
}

async fn contents(attachment: &Attachment) -> Vec<u8> {
    let mut bytes = vec![0xee; attachment.size_bytes() as usize];
    attachment.read(0, &mut bytes).await.unwrap();
    let mut again = vec![0xee; bytes.len()];
    if let Some(done) = attachment.read_cached(0, &mut again) {
        done.unwrap();
        assert!(bytes == again, "a cached read differs");
    }
    bytes
}

#[test]
fn a_disk_holds_what_was_written_also_after_reopening() {
    run(async {
        let engine = Arc::new(MemoryEngine::default());
        let store = open(&engine).await;
        create(&store, "web").await;
        let web = attach(&store, "web");
        web.write(4096, &[1; 8192], false).await.unwrap();
        web.write(5000, &[2; 10], true).await.unwrap();
        web.zero(8192, 4096, false).await.unwrap();
        let _ = web.flush().await.unwrap();
        let expected = contents(&web).await;
        assert_eq!((expected[4999], expected[5000], expected[5010], expected[8192]), (1, 2, 1, 0));
        drop(web);
        store.close().await.unwrap();
        assert_eq!(store.disk(&name("web")).unwrap_err().kind(), Kind::Closed);

        let store = open(&engine).await;
        assert_eq!(contents(&attach(&store, "web")).await, expected);
        assert_eq!(store.disk(&name("web")).unwrap().mapped_bytes, 4096);
        store.drop_cache();
        assert_eq!(contents(&attach(&store, "web")).await, expected, "cold");
    });
}

#[test]
fn bad_requests_are_refused_and_change_nothing() {
    run(async {
        let store = open(&Arc::new(MemoryEngine::default())).await;
        create(&store, "web").await;
        let kind = |e: stonefold_types::Error| e.kind();
        let settings = DiskSettings::default;
        assert_eq!(
            store.create_disk(&name("web"), 4096, settings()).await.map_err(kind).unwrap_err(),
            Kind::AlreadyExists
        );
        for size in [0, 100, 4097, 1 << 60] {
            assert_eq!(
                store.create_disk(&name("x"), size, settings()).await.map_err(kind).unwrap_err(),
                Kind::Invalid
            );
        }
        let web = attach(&store, "web");
        assert_eq!(web.write(DISK_BYTES - 1, &[0; 2], false).await.map_err(kind), Err(Kind::Invalid));
        assert_eq!(web.read(u64::MAX, &mut [0; 2]).await.map_err(kind), Err(Kind::Invalid));
        assert_eq!(store.remove_disk(&name("web")).await.map_err(kind), Err(Kind::Busy));
        store.snapshot(&[name("web")], Some(name("s"))).await.unwrap();
        let again = store.snapshot(&[name("web")], Some(name("s"))).await;
        assert_eq!(again.map_err(kind).unwrap_err(), Kind::AlreadyExists);
        let snapshot = attach(&store, "web@s");
        assert_eq!(snapshot.write(0, &[1], false).await.map_err(kind), Err(Kind::ReadOnly));
        assert_eq!(store.remove_snapshot(&"web@s".parse().unwrap()).await.map_err(kind), Err(Kind::Busy));
        assert_eq!(store.rollback(&"web@s".parse().unwrap()).await.map_err(kind).unwrap_err(), Kind::Busy);
        drop((web, snapshot));
        assert_eq!(store.remove_disk(&name("web")).await.map_err(kind), Err(Kind::Busy), "it has a snapshot");
        store.remove_snapshot(&"web@s".parse().unwrap()).await.unwrap();
        store.remove_disk(&name("web")).await.unwrap();
        assert_eq!(store.disk(&name("web")).map_err(kind).unwrap_err(), Kind::NotFound);
    });
}

#[test]
fn a_group_is_snapshotted_at_one_instant() {
    run(async {
        let store = open(&Arc::new(MemoryEngine::default())).await;
        create(&store, "a").await;
        create(&store, "b").await;
        let taken = store.snapshot(&[name("b"), name("a"), name("b")], Some(name("s"))).await.unwrap();
        assert_eq!(taken.len(), 2);
        let refused = store.snapshot(&[name("a"), name("nobody")], Some(name("t"))).await;
        assert_eq!(refused.unwrap_err().kind(), Kind::NotFound);
        assert_eq!(store.snapshots(None).unwrap().len(), 2, "all or none");
    });
}

#[test]
fn extents_and_changes_are_told() {
    run(async {
        let store = open(&Arc::new(MemoryEngine::default())).await;
        create(&store, "web").await;
        let web = attach(&store, "web");
        let told = |extents: Vec<stonefold_store::Extent>| {
            extents.iter().map(|e| (e.bytes, e.hole)).collect::<Vec<_>>()
        };
        assert_eq!(told(web.extents(0, DISK_BYTES).await.unwrap()), [(DISK_BYTES, true)]);
        web.write(8192, &[1; 4096], false).await.unwrap();
        store.snapshot(&[name("web")], Some(name("s"))).await.unwrap();
        web.write(1 << 20, &[2; 8192], false).await.unwrap();
        let rest = DISK_BYTES - (1 << 20) - 8192;
        let all = [(8192, true), (4096, false), ((1 << 20) - 12288, true), (8192, false), (rest, true)];
        assert_eq!(told(web.extents(0, DISK_BYTES).await.unwrap()), all);
        assert_eq!(told(web.extents(9000, 100).await.unwrap()), [(100, false)]);
        assert_eq!(store.diff(&"web@s".parse().unwrap(), None).await.unwrap(), [(1 << 20, 8192)]);
        assert_eq!(told(web.extents(0, DISK_BYTES).await.unwrap()), all, "folded, the same");
        let changed = web.changed_since(&name("s"), 4096, 2 << 20).await.unwrap();
        assert_eq!(told(changed), [((1 << 20) - 4096, true), (8192, false), ((1 << 20) - 4096, true)]);
    });
}

/// What a test does next.
#[derive(Clone, Debug)]
enum Act {
    Write { disk: usize, at: u64, len: u64, tag: u8 },
    Zero { disk: usize, at: u64, len: u64 },
    Snapshot { disk: usize },
    Unsnapshot { pick: usize },
    Clone { pick: usize },
    Rollback { pick: usize },
    Resize { disk: usize, size: u64 },
    Fold { disk: usize },
    Reopen,
}

fn act() -> impl Strategy<Value = Act> {
    let disk = 0usize..4;
    // Grains of 512 bytes: most requests touch partial blocks.
    let range = || (0..DISK_BYTES / 512, prop_oneof![1u64..40, Just(8), 1u64..700]);
    prop_oneof![
        8 => (disk.clone(), range(), 1u8..).prop_map(|(disk, (at, len), tag)| Act::Write { disk, at, len, tag }),
        3 => (disk.clone(), range()).prop_map(|(disk, (at, len))| Act::Zero { disk, at, len }),
        2 => disk.clone().prop_map(|disk| Act::Snapshot { disk }),
        1 => (0usize..8).prop_map(|pick| Act::Unsnapshot { pick }),
        1 => (0usize..8).prop_map(|pick| Act::Clone { pick }),
        1 => (0usize..8).prop_map(|pick| Act::Rollback { pick }),
        1 => (disk.clone(), 1..DISK_BYTES / 4096 + 1).prop_map(|(disk, blocks)| Act::Resize { disk, size: blocks * 4096 }),
        1 => disk.prop_map(|disk| Act::Fold { disk }),
        1 => Just(Act::Reopen),
    ]
}

/// The store under test beside what it should hold.
struct Pair {
    engine: Arc<MemoryEngine>,
    store: Arc<Store>,
    disks: Vec<(Name, ReferenceDisk)>,
    snapshots: Vec<(String, Image)>,
    made: usize,
}

impl Pair {
    async fn new() -> Self {
        let engine = Arc::new(MemoryEngine::default());
        let store = open(&engine).await;
        create(&store, "d0").await;
        let disks = vec![(name("d0"), ReferenceDisk::new(DISK_BYTES))];
        Pair { engine, store, disks, snapshots: Vec::new(), made: 0 }
    }

    fn fresh(&mut self, prefix: &str) -> Name {
        self.made += 1;
        name(&format!("{prefix}{}", self.made))
    }

    async fn act(&mut self, act: Act) {
        let count = self.disks.len();
        match act {
            Act::Write { disk, at, len, tag } => {
                let (name, model) = &mut self.disks[disk % count];
                let size = model.now().size;
                let (offset, len) = (at * 512 % size, len * 512);
                let data: Vec<u8> = (0..len.min(size - offset)).map(|i| tag ^ (i / 512) as u8).collect();
                attach(&self.store, name.as_str()).write(offset, &data, tag % 5 == 0).await.unwrap();
                model.step(Step::Write { offset, data });
            }
            Act::Zero { disk, at, len } => {
                let (name, model) = &mut self.disks[disk % count];
                let size = model.now().size;
                let offset = at * 512 % size;
                let len = (len * 512).min(size - offset);
                attach(&self.store, name.as_str()).zero(offset, len, false).await.unwrap();
                model.step(Step::Zero { offset, len });
            }
            Act::Snapshot { disk } => {
                let snapshot = self.fresh("s");
                let (name, model) = &mut self.disks[disk % count];
                self.store.snapshot(std::slice::from_ref(name), Some(snapshot.clone())).await.unwrap();
                self.snapshots.push((format!("{name}@{snapshot}"), model.now().clone()));
            }
            Act::Unsnapshot { pick } if !self.snapshots.is_empty() => {
                let (snapshot, _) = self.snapshots.remove(pick % self.snapshots.len());
                self.store.remove_snapshot(&snapshot.parse().unwrap()).await.unwrap();
            }
            Act::Clone { pick } if !self.snapshots.is_empty() => {
                let clone = self.fresh("c");
                let (snapshot, image) = self.snapshots[pick % self.snapshots.len()].clone();
                self.store.clone_snapshot(&snapshot.parse().unwrap(), &clone).await.unwrap();
                self.disks.push((clone, ReferenceDisk::from_image(image)));
            }
            Act::Rollback { pick } if !self.snapshots.is_empty() => {
                let (snapshot, image) = self.snapshots[pick % self.snapshots.len()].clone();
                let snapshot: stonefold_types::SnapshotName = snapshot.parse().unwrap();
                let kept = self.store.rollback(&snapshot).await.unwrap();
                let (_, model) = self.disks.iter_mut().find(|(name, _)| *name == snapshot.disk).unwrap();
                self.snapshots.push((kept.name.to_string(), model.now().clone()));
                *model = ReferenceDisk::from_image(image);
            }
            Act::Resize { disk, size } => {
                let (name, model) = &mut self.disks[disk % count];
                self.store.resize_disk(name, size).await.unwrap();
                model.step(Step::Resize(size));
            }
            Act::Fold { disk } => {
                let (name, _) = &self.disks[disk % count];
                if let Some((snapshot, _)) =
                    self.snapshots.iter().find(|(s, _)| s.starts_with(&format!("{name}@")))
                {
                    self.store.diff(&snapshot.parse().unwrap(), None).await.unwrap();
                }
            }
            Act::Reopen => {
                self.store.close().await.unwrap();
                self.store = open(&self.engine).await;
            }
            Act::Unsnapshot { .. } | Act::Clone { .. } | Act::Rollback { .. } => {}
        }
    }

    async fn check(&self) {
        for (name, model) in &self.disks {
            let disk = attach(&self.store, name.as_str());
            let image = model.now();
            assert_eq!(disk.size_bytes(), image.size, "the size of {name}");
            assert!(contents(&disk).await == image.read(0, image.size as usize), "disk {name}");
        }
        for (name, image) in &self.snapshots {
            let snapshot = attach(&self.store, name);
            assert!(contents(&snapshot).await == image.read(0, image.size as usize), "snapshot {name}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn disks_and_snapshots_read_as_the_model_says(acts in proptest::collection::vec(act(), 1..60)) {
        run(async {
            let mut pair = Pair::new().await;
            for (at, act) in acts.into_iter().enumerate() {
                pair.act(act).await;
                if at % 8 == 7 {
                    pair.check().await;
                }
            }
            pair.check().await;
            pair.act(Act::Reopen).await;
            pair.check().await;
        });
    }
}

/// Past bug: a round of the fold ended at the first disk that could not be folded, and every disk's writes waited for
/// room for ever.
#[test]
fn a_damaged_disk_holds_up_no_other() {
    run(async {
        let engine = Arc::new(MemoryEngine::default());
        let store = open(&engine).await;
        create(&store, "sound").await;
        create(&store, "damaged").await;
        attach(&store, "damaged").write(0, &[1; 4096], false).await.unwrap();
        store.close().await.unwrap();
        for segment in engine.list("segment/", None, 100).await.unwrap() {
            // The first frame lies behind the header of 64 bytes.
            assert!(engine.rot(&segment.key, 8 * 90));
        }
        let store = open(&engine).await;
        let (sound, damaged) = (attach(&store, "sound"), attach(&store, "damaged"));
        let mut block = [0; 4096];
        assert_eq!(damaged.read(0, &mut block).await.unwrap_err().kind(), Kind::Corrupt);
        damaged.write(4096, &[2; 4096], true).await.unwrap();
        let told = loop {
            if let Err(error) = damaged.write(8192, &[3; 4096], false).await {
                break error;
            }
            sound.write(0, &vec![4; 1 << 19], false).await.unwrap();
            tokio::task::yield_now().await;
        };
        assert_eq!(told.kind(), Kind::Corrupt);
        assert!(told.to_string().contains("'damaged'"), "{told}");
        for _ in 0..20 {
            sound.write(0, &vec![5; 1 << 19], false).await.unwrap();
        }
        damaged.read(4096, &mut block).await.unwrap();
        assert_eq!(block, [2; 4096], "what was acknowledged is still there");
        assert_eq!(contents(&sound).await[..1 << 19], vec![5; 1 << 19]);
    });
}

fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut word = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 32) as u32
    };
    (0..len / 4).flat_map(|_| word().to_le_bytes()).collect()
}

fn counter(status: &stonefold_store::PoolStatus, name: &str) -> u64 {
    status.counters.iter().find(|(counter, _, _)| *counter == name).unwrap().2
}

/// The first pass of reclaim tells dedupe which blocks of earlier sessions it may point at.
async fn first_pass(store: &Store) {
    while counter(&store.status().await.unwrap(), "reclaim_passes") == 0 {
        tokio::task::yield_now().await;
    }
}

/// Goal: what the pool has already is not stored again, also after a restart, when only samples are in memory.
#[test]
fn a_second_copy_costs_next_to_nothing() {
    run(async {
        let engine = Arc::new(MemoryEngine::default());
        let used = async |store: &Store| store.status().await.unwrap().used_bytes;
        let data = random_bytes(7, 704 * 4096);
        let store = open(&engine).await;
        for disk in ["a", "b", "c", "off"] {
            create(&store, disk).await;
        }
        let settings = DiskSettings { dedupe: false, ..DiskSettings::default() };
        store.set_disk(&name("off"), settings).await.unwrap();
        attach(&store, "a").write(0, &data, false).await.unwrap();
        store.snapshot(&[name("a")], Some(name("s"))).await.unwrap();
        store.diff(&"a@s".parse().unwrap(), None).await.unwrap();
        let samples = counter(&store.status().await.unwrap(), "dedupe_samples");
        store.close().await.unwrap();

        let store = open(&engine).await;
        while counter(&store.status().await.unwrap(), "dedupe_samples") < samples {
            tokio::task::yield_now().await;
        }
        first_pass(&store).await;
        let once = used(&store).await;
        // Shifted by a block, and written in another rhythm.
        for (at, part) in data.chunks(3 * 4096 * 17).enumerate() {
            attach(&store, "b").write(4096 + (at * 3 * 4096 * 17) as u64, part, false).await.unwrap();
        }
        store.close().await.unwrap();
        let store = open(&engine).await;
        first_pass(&store).await;
        let twice = used(&store).await;
        // A job of 256 blocks has no sample once in 56 times, and is then stored again. All three once in 170,000.
        assert!(twice < once + once * 4 / 5, "{once} bytes became {twice}");
        attach(&store, "off").write(0, &data, false).await.unwrap();
        store.snapshot(&[name("off")], Some(name("s"))).await.unwrap();
        store.diff(&"off@s".parse().unwrap(), None).await.unwrap();
        assert!(used(&store).await > twice + data.len() as u64, "switched off, it is stored again");

        // Single blocks here and there, known since the last fold.
        let before = counter(&store.status().await.unwrap(), "dedupe_found_blocks");
        for at in 0..50 {
            let block = &data[at * 5 * 4096..][..4096];
            attach(&store, "c").write(at as u64 * 3 * 4096, block, false).await.unwrap();
        }
        store.snapshot(&[name("c")], Some(name("s"))).await.unwrap();
        store.diff(&"c@s".parse().unwrap(), None).await.unwrap();
        let found = counter(&store.status().await.unwrap(), "dedupe_found_blocks") - before;
        assert_eq!(found, 50);
        store.drop_cache();
        assert_eq!(contents(&attach(&store, "b")).await[4096..4096 + data.len()], data[..]);
        assert_eq!(contents(&attach(&store, "off")).await[..data.len()], data[..]);
        for at in 0..50 {
            let mut block = [0; 4096];
            attach(&store, "c").read(at as u64 * 3 * 4096, &mut block).await.unwrap();
            assert_eq!(block[..], data[at * 5 * 4096..][..4096]);
        }
    });
}
