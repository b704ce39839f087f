//! Goal: through the whole store, on virtual time, a disk gets what its class says, and never more than its limit.
//! Method: greedy clients on an engine of a certain speed; what each got is counted after some seconds that take none.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use stonefold_engine::wrap::Limits;
use stonefold_engine::{MemoryEngine, ThrottleEngine};
use stonefold_env::Env;
use stonefold_sim::world::{Ended, World};
use stonefold_store::{Attachment, Options, Store};
use stonefold_types::{DiskSettings, Name, QosFigures};

const POLLS_MAX: u64 = 30_000_000;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Runs a story over a new pool on an engine that moves so many bytes a second; 0 for no bound.
fn play<F: Future<Output = ()> + Send>(
    bytes_per_second: u64,
    journal_bytes_max: u64,
    story: impl FnOnce(Env, Arc<Store>) -> F + Send + 'static,
) {
    let world = World::new(1);
    let env = world.env();
    let outcome = Arc::new(Mutex::new(None));
    let tell = outcome.clone();
    let ended = world.run(POLLS_MAX, async move {
        let bytes_per_second = (bytes_per_second > 0).then_some(bytes_per_second);
        let limits = Limits { bytes_per_second, ..Limits::default() };
        let engine = ThrottleEngine::new(Arc::new(MemoryEngine::default()), env.clone(), limits);
        let options = Options { cache_bytes: 1 << 20, journal_bytes_max, ..Options::default() };
        let store = Store::open(env.clone(), Arc::new(engine), options).await.unwrap();
        story(env, store.clone()).await;
        store.close().await.unwrap();
        *tell.lock() = Some(());
    });
    assert_eq!((ended, *outcome.lock()), (Ended::Finished, Some(())));
}

async fn disk(store: &Arc<Store>, disk: &str, class: &str) -> Attachment {
    let settings = DiskSettings { qos: name(class), dedupe: false, ..DiskSettings::default() };
    store.create_disk(&name(disk), 64 << 20, settings).await.unwrap();
    store.attach(&disk.parse().unwrap()).unwrap()
}

async fn class(store: &Store, class: &str, figures: QosFigures) {
    if store.qos_class(&name(class)).is_err() {
        store.create_qos(&name(class), figures).await.unwrap();
    }
    store.set_qos(&name(class), |now| *now = figures).await.unwrap();
}

/// Goal: beside others the fold waits until a fifth of the journal is full; nobody waits for a fold that waits.
#[test]
fn beside_others_the_fold_waits_and_nobody_waits_for_it() {
    play(0, 64 << 20, |env, store| async move {
        let minute = Duration::from_secs(60);
        let _evenly = store.goes_evenly();
        let unfolded = |disk: &str| store.disk(&name(disk)).unwrap().unfolded_bytes;
        let one = disk(&store, "one", "production").await;
        one.write(0, &vec![7; 1 << 20], false).await.unwrap();
        env.sleep(minute).await;
        assert!(unfolded("one") > 0, "it was folded, and nothing pressed");
        drop(one);
        let since = env.monotonic();
        store.remove_disk(&name("one")).await.unwrap();
        assert!(env.monotonic() - since < minute / 60, "somebody waited for a fold that waits");
        let two = disk(&store, "two", "production").await;
        for at in 0..16 {
            two.write(at << 20, &vec![at as u8 + 1; 1 << 20], false).await.unwrap();
        }
        env.sleep(minute).await;
        assert_eq!(unfolded("two"), 0, "a quarter of the journal is full");
    });
}

#[derive(Clone, Copy)]
enum Doing {
    Read,
    Write,
    Trim,
    Flush,
}

/// Starts `depth` clients that do one thing over and over; what they did is counted by the store.
fn greedy(env: &Env, disk: &Attachment, depth: u64, doing: Doing) {
    for client in 0..depth {
        let disk = disk.clone();
        let of_client = env.clone();
        env.spawn("client", async move {
            let mut buf = vec![(client % 251) as u8 + 1; 4096];
            for at in 0u64.. {
                // Within 8 MiB, and never two blocks of one frame in a row.
                let offset = (client * 613 + at * 37) % 2048 * 4096;
                let done = match doing {
                    Doing::Read => disk.read(offset, &mut buf).await,
                    Doing::Write => disk.write(offset, &buf, false).await,
                    Doing::Trim => disk.zero(offset, 4096, false).await,
                    Doing::Flush => disk.flush().await.map(|_| ()),
                };
                if done.is_err() {
                    return;
                }
                // What is in memory takes no time in this world, but for this.
                of_client.sleep(Duration::from_micros(200)).await;
            }
        });
    }
}

/// What a disk does in so many seconds from now: reads, writes and flushes in each.
async fn in_seconds(env: &Env, store: &Store, disks: &[&str], seconds: u64) -> Vec<u64> {
    let count = || {
        let info = disks.iter().map(|disk| store.disk(&name(disk)).unwrap());
        info.map(|info| info.traffic[0] + info.traffic[2] + info.traffic[4]).collect::<Vec<u64>>()
    };
    let before = count();
    env.sleep(Duration::from_secs(seconds)).await;
    count().into_iter().zip(before).map(|(now, before)| (now - before) / seconds).collect()
}

fn assert_near(what: &str, is: u64, should: u64, percent: u64) {
    assert!(is.abs_diff(should) * 100 <= should * percent, "{what}: {is}, and not {should}");
}

#[test]
fn a_limit_holds_for_everything_a_client_can_do() {
    for doing in [Doing::Read, Doing::Write, Doing::Flush] {
        play(0, 1 << 20, move |env, store| async move {
            class(&store, "slow", QosFigures { max_iops: Some(300), ..QosFigures::default() }).await;
            let web = disk(&store, "web", "slow").await;
            assert!(web.read_cached(0, &mut [0; 4096]).is_none(), "it would not have waited");
            greedy(&env, &web, 16, doing);
            assert_near("operations", in_seconds(&env, &store, &["web"], 10).await[0], 300, 3);
            let waited = store.disk(&name("web")).unwrap().latencies.qos_waits;
            let (waits, nanos) = (waited.count(), waited.sum_ns);
            assert!(waits > 2500 && nanos > 9_000_000_000, "{waits} waits, {nanos} ns");
        });
    }
    // Trims are not counted with writes: they share the limit with reads, which are.
    play(0, 1 << 20, |env, store| async move {
        class(&store, "slow", QosFigures { max_iops: Some(300), ..QosFigures::default() }).await;
        let web = disk(&store, "web", "slow").await;
        greedy(&env, &web, 8, Doing::Read);
        greedy(&env, &web, 8, Doing::Trim);
        assert_near("reads", in_seconds(&env, &store, &["web"], 10).await[0], 150, 10);
    });
}

#[test]
fn bytes_are_limited_too_and_snapshots_count_as_their_disk() {
    play(0, 4 << 20, |env, store| async move {
        class(&store, "slow", QosFigures { max_bytes: Some(1 << 20), ..QosFigures::default() }).await;
        let web = disk(&store, "web", "slow").await;
        store.snapshot(&[name("web")], Some(name("s"))).await.unwrap();
        let old = store.attach(&"web@s".parse().unwrap()).unwrap();
        let since = env.monotonic();
        for _ in 0..10 {
            web.write(0, &vec![1; 512 << 10], false).await.unwrap();
            old.read(0, &mut vec![0; 512 << 10]).await.unwrap();
        }
        assert_near("milliseconds", (env.monotonic() - since).as_millis() as u64, 9500, 3);
    });
}

/// Both a change of the class and another class count for clients that are connected, and even for what waits.
#[test]
fn a_change_counts_for_who_waits() {
    play(0, 1 << 20, |env, store| async move {
        class(&store, "slow", QosFigures { max_iops: Some(1), ..QosFigures::default() }).await;
        let web = disk(&store, "web", "slow").await;
        greedy(&env, &web, 16, Doing::Write);
        assert!(in_seconds(&env, &store, &["web"], 5).await[0] <= 1);
        class(&store, "slow", QosFigures { max_iops: Some(500), ..QosFigures::default() }).await;
        assert_near("after set", in_seconds(&env, &store, &["web"], 5).await[0], 500, 3);
        class(&store, "slower", QosFigures { max_iops: Some(50), ..QosFigures::default() }).await;
        let now = store.disk(&name("web")).unwrap().settings;
        store.set_disk(&name("web"), |_| DiskSettings { qos: name("slower"), ..now.clone() }).await.unwrap();
        assert_near("another class", in_seconds(&env, &store, &["web"], 5).await[0], 50, 8);
        store.set_disk(&name("web"), |_| DiskSettings { qos: name("production"), ..now }).await.unwrap();
        assert!(in_seconds(&env, &store, &["web"], 1).await[0] > 5000);
    });
}

/// Writers that outrun a slow engine fill the journal; what the fold makes room for goes by shares, and the fold goes on.
#[test]
fn greedy_writers_share_by_class_and_the_fold_keeps_up() {
    play(20 << 20, 8 << 20, |env, store| async move {
        let (a, b) = (disk(&store, "a", "critical").await, disk(&store, "b", "test").await);
        greedy(&env, &a, 128, Doing::Write);
        greedy(&env, &b, 128, Doing::Write);
        let _warm = in_seconds(&env, &store, &["a", "b"], 5).await;
        let got = in_seconds(&env, &store, &["a", "b"], 30).await;
        assert!(got[0] > 1000, "{got:?}");
        // 800 to 100, and the reservation of 500 beside it counts as part of that.
        assert_near("a", got[0], got[1] * 8, 10);
        let held_back = store.status().await.unwrap().counters;
        let held_back =
            held_back.iter().find(|(name, _, _)| *name == "fold_held_back_milliseconds").unwrap().2;
        assert!(
            held_back < 15_000,
            "the fold was held back for {held_back} ms of 35 s while writers waited for it"
        );
    });
}

/// Past bug: the fold waited for clients to be served before it took its part, and the only one waited for the fold.
#[test]
fn who_waits_for_room_is_not_waited_for() {
    play(0, 256 << 10, |env, store| async move {
        let least = QosFigures { share: 1, ..QosFigures::default() };
        store.set_qos(&name("fold"), |fold| *fold = least).await.unwrap();
        let web = disk(&store, "web", "production").await;
        let since = env.monotonic();
        for at in 0..8 {
            // More than is left, and less used than would press by itself.
            let (offset, len) = (at << 20, if at % 2 == 0 { 64 << 10 } else { 224 << 10 });
            web.write(offset, &vec![at as u8 + 1; len], false).await.unwrap();
        }
        assert!(env.monotonic() - since < Duration::from_secs(5), "it waited for a timer");
    });
}

#[test]
fn a_reader_keeps_its_reservation_beside_a_crowd() {
    // 100 MiB a second: some 3000 frames of 32 KiB, and nearly every read needs one.
    play(100 << 20, 64 << 20, |env, store| async move {
        class(&store, "kept", QosFigures { min_iops: 600, share: 1, ..QosFigures::default() }).await;
        let kept = disk(&store, "kept", "kept").await;
        let crowd = [disk(&store, "x", "critical").await, disk(&store, "y", "critical").await];
        for disk in crowd.iter().chain([&kept]) {
            let noise: Vec<u8> =
                (0..8 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
            disk.write(0, &noise, false).await.unwrap();
        }
        // Out of the journal and of the cache: what is in memory is not competed for.
        store.reclaim().await.unwrap();
        store.drop_cache();
        crowd.iter().for_each(|disk| greedy(&env, disk, 256, Doing::Read));
        greedy(&env, &kept, 32, Doing::Read);
        let got = in_seconds(&env, &store, &["kept", "x", "y"], 10).await;
        assert!(got[0] >= 570, "{got:?}");
        assert!(got[0] <= 630, "a share of 1 in 1601 has no more beside it, if they compete: {got:?}");
    });
}

#[test]
fn a_class_in_use_stays_and_classes_survive() {
    play(0, 1 << 20, |_, store| async move {
        class(&store, "gold", QosFigures { min_iops: 7, ..QosFigures::default() }).await;
        let _web = disk(&store, "web", "gold").await;
        let refused = store.remove_qos(&name("gold")).await.unwrap_err();
        assert!(refused.what().contains("web"), "{refused}");
        assert!(
            store.remove_qos(&name("fold")).await.is_err() && store.remove_qos(&name("test")).await.is_err()
        );
        let settings = |class| DiskSettings { qos: name(class), ..DiskSettings::default() };
        for bad in ["fold", "reclaim", "nonsense"] {
            assert!(store.create_disk(&name("bad"), 4096, settings(bad)).await.is_err(), "{bad}");
            assert!(store.set_disk(&name("web"), |_| settings(bad)).await.is_err(), "{bad}");
        }
        assert!(store.set_qos(&name("fold"), |fold| fold.max_bytes = Some(1)).await.is_err());
        store.set_qos(&name("fold"), |fold| fold.share = 7).await.unwrap();
        store.set_disk(&name("web"), |_| settings("test")).await.unwrap();
        store.remove_qos(&name("gold")).await.unwrap();
        assert_eq!(store.qos_class(&name("fold")).unwrap().figures.share, 7);
        assert_eq!(store.qos_classes().len(), 6);
    });
}
