//! A move that is looked after, of a QEMU that is played: it says that it copies, and remembers what it was asked to do.

use super::*;
use crate::hypervisor::Folder;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value, json};
use stonefold_engine::MemoryEngine;
use stonefold_env::{Env, SystemWorld};
use stonefold_store::{Options, Store};
use stonefold_types::DiskSettings;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

type Asked = Arc<Mutex<Vec<String>>>;

/// Copies for ever.
async fn qemu(listener: UnixListener, asked: Asked) {
    while let Ok((stream, _)) = listener.accept().await {
        // Its end is the next one's beginning.
        let _ = answer(BufReader::new(stream), &asked).await;
    }
}

async fn answer(mut stream: BufReader<UnixStream>, asked: &Asked) -> std::io::Result<()> {
    stream.write_all(b"{\"QMP\": {}}\n").await?;
    let mut line = String::new();
    while stream.read_line(&mut line).await? > 0 {
        let command: Value = serde_json::from_str(&line)?;
        let name = command["execute"].as_str().unwrap_or_default().to_owned();
        let cancelled = asked.lock().iter().any(|asked| asked == "block-job-cancel");
        let status = if cancelled { "concluded" } else { "running" };
        let told = match name.as_str() {
            "query-jobs" => {
                json!([{ "id": "stonefold-home0", "status": status, "current-progress": 1, "total-progress": 9 }])
            }
            "query-block-jobs" => json!([{ "device": "stonefold-home0", "ready": false, "paused": false }]),
            "query-block" | "query-blockstats" | "query-named-block-nodes" => json!([]),
            _ => json!({}),
        };
        asked.lock().push(name);
        stream.write_all(format!("{}\n", json!({ "return": told, "id": command["id"] })).as_bytes()).await?;
        line.clear();
    }
    Ok(())
}

/// Has copied two disks, and goes over to the first; the second it refuses. Its guest sleeps.
async fn half_a_qemu(listener: UnixListener, asked: Asked) {
    let Ok((stream, _)) = listener.accept().await else { return };
    let mut stream = BufReader::new(stream);
    let begun = stream.write_all(b"{\"QMP\": {}}\n").await;
    let mut line = String::new();
    while begun.is_ok() && stream.read_line(&mut line).await.is_ok_and(|read| read > 0) {
        let command: Value = serde_json::from_str(&line).unwrap();
        let name = command["execute"].as_str().unwrap_or_default().to_owned();
        let what = format!("{name} {}", command["arguments"]);
        let has = |what: &str, job: &str| {
            asked.lock().iter().any(|asked| asked.starts_with(what) && asked.contains(job))
        };
        let gone = |job: &str| has("job-dismiss", job);
        let jobs = ["stonefold-home0", "stonefold-home1"].into_iter().filter(|job| !gone(job));
        let told = match name.as_str() {
            "query-jobs" => jobs
                .map(|job| {
                    let is_over =
                        has("job-complete", job) && job.ends_with('0') || has("block-job-cancel", job);
                    let status = if is_over { "concluded" } else { "ready" };
                    json!({ "id": job, "status": status, "current-progress": 9, "total-progress": 9 })
                })
                .collect(),
            "query-block-jobs" => {
                jobs.map(|job| json!({ "device": job, "ready": true, "paused": false })).collect()
            }
            "query-status" => json!({ "status": "suspended", "running": false }),
            "query-block" if has("job-complete", "home0") => {
                json!([{ "inserted": { "node-name": "stonefold-home0" } }])
            }
            "query-block" | "query-blockstats" | "query-named-block-nodes" => json!([]),
            _ => json!({}),
        };
        let is_refused = name == "job-complete" && what.contains("home1");
        asked.lock().push(what);
        let error =
            json!({ "error": { "class": "GenericError", "desc": "no permission" }, "id": command["id"] });
        let answer = if is_refused { error } else { json!({ "return": told, "id": command["id"] }) };
        if stream.write_all(format!("{answer}\n").as_bytes()).await.is_err() {
            return;
        }
        line.clear();
    }
}

/// Has a mirror that came to its end without going over: whoever ended it meant to compare, and was killed.
async fn qemu_at_an_end(listener: UnixListener, asked: Asked) {
    let Ok((stream, _)) = listener.accept().await else { return };
    let mut stream = BufReader::new(stream);
    let begun = stream.write_all(b"{\"QMP\": {}}\n").await;
    let mut line = String::new();
    while begun.is_ok() && stream.read_line(&mut line).await.is_ok_and(|read| read > 0) {
        let command: Value = serde_json::from_str(&line).unwrap();
        let name = command["execute"].as_str().unwrap_or_default().to_owned();
        let count = |what: &str| asked.lock().iter().filter(|asked| *asked == what).count();
        let is_complete = count("job-complete") > 0;
        let status = match (count("job-dismiss"), count("blockdev-mirror")) {
            (0, 0) => Some("concluded"),
            (_, 1) if count("job-dismiss") < 2 => Some(if is_complete { "concluded" } else { "ready" }),
            _ => None,
        };
        let told = match name.as_str() {
            "query-jobs" => status
                .map(|status| json!({ "id": "stonefold-home0", "status": status, "current-progress": 9, "total-progress": 9 }))
                .into_iter()
                .collect(),
            "query-block-jobs" => {
                json!([{ "device": "stonefold-home0", "ready": status.is_some(), "paused": false }])
            }
            "query-block" if is_complete => json!([{ "inserted": { "node-name": "stonefold-home0" } }]),
            "query-named-block-nodes" => json!([{ "node-name": "stonefold-home0" }]),
            "query-block" | "query-blockstats" => json!([]),
            _ => json!({}),
        };
        asked.lock().push(name);
        let answer = json!({ "return": told, "id": command["id"] });
        if stream.write_all(format!("{answer}\n").as_bytes()).await.is_err() {
            return;
        }
        line.clear();
    }
}

struct World {
    env: Env,
    store: Arc<Store>,
    protection: Arc<Protection>,
    asked: Asked,
    folder: tempfile::TempDir,
}

impl World {
    /// A server that finds a move under way.
    async fn begin() -> World {
        let world = World::with(&["vda"], |listener, asked| Box::pin(qemu(listener, asked))).await;
        world.until("it is looked after", |asked| asked.contains(&"block-job-set-speed".to_owned())).await;
        world
    }

    async fn with(
        targets: &[&str],
        qemu: impl FnOnce(UnixListener, Asked) -> BoxFuture<'static, ()>,
    ) -> World {
        World::found(targets, json!({}), qemu).await
    }

    /// A server that finds a move of which `more` is kept, too.
    async fn found(
        targets: &[&str],
        more: Value,
        qemu: impl FnOnce(UnixListener, Asked) -> BoxFuture<'static, ()>,
    ) -> World {
        let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap());
        let options = Options { cache_bytes: 4 << 20, journal_bytes_max: 4 << 20, ..Options::default() };
        let store = Store::open(env.clone(), Arc::new(MemoryEngine::default()), options).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let asked = Asked::default();
        let listener = UnixListener::bind(Folder(folder.path().into()).qmp()).unwrap();
        env.spawn("qemu", qemu(listener, asked.clone()));
        let each =
            |of: &dyn Fn(&str) -> Value| -> Value { targets.iter().map(|target| of(target)).collect() };
        let recovery = json!({
            "version": 1, "name": "again", "point": "nightly@20261123T184005Z",
            "disks": each(&|target| json!({ "target": target, "disk": format!("again.{target}") })),
            "of": each(&|target| json!(target)), "numbers": each(&|_| json!("0123456789abcdef")),
            "begun": 1, "ready_us": 1, "started": { "host": { "qemu": { "folder": folder.path() } }, "asked": 1 },
        });
        let mut migration = json!({
            "version": 1, "name": "again", "format": "raw", "floor_percent": 75, "state": "copying", "begun": 1,
            "disks": each(&|target| json!({
                "target": target, "disk": format!("again.{target}"), "home": { "file": format!("/nowhere/{target}") },
                "total_bytes": 9, "done_bytes": 1,
            })),
        });
        for (key, value) in more.as_object().unwrap() {
            migration[key] = value.clone();
        }
        let recovery: Recovery = catalog::read(&recovery.to_string()).unwrap();
        catalog::put_new(&store, &recovery).await.unwrap();
        let migration: Migration = catalog::read(&migration.to_string()).unwrap();
        catalog::put_new(&store, &migration).await.unwrap();
        let protection = Protection::new(env.clone(), store.clone());
        protection.clone().go_on_moving().await;
        World { env, store, protection, asked, folder }
    }

    /// A move once it has ended.
    async fn ended(&self, name: &Name) -> Migration {
        for _ in 0..600 {
            let migration = self.protection.migration(name).await.unwrap();
            if !migration.is_under_way() {
                return migration;
            }
            self.env.sleep(Duration::from_millis(20)).await;
        }
        panic!("not in time: {:?}", self.asked.lock());
    }

    async fn until(&self, what: &str, is_so: impl Fn(&[String]) -> bool) {
        for _ in 0..600 {
            if is_so(&self.asked.lock()) {
                return;
            }
            self.env.sleep(Duration::from_millis(50)).await;
        }
        panic!("not in time: {what}: {:?}", self.asked.lock());
    }

    fn is_cancelled(&self) -> bool {
        self.asked.lock().iter().any(|asked| asked == "block-job-cancel")
    }
}

/// Goal: a server that leaves leaves QEMU at work; the next one finds it so.
#[tokio::test]
async fn a_server_that_leaves_ends_no_move() {
    let world = World::begin().await;
    world.store.close().await.unwrap();
    // Until it has been looked at several times, if anybody still looks.
    world.env.sleep(LOOK_EVERY * 4).await;
    assert!(!world.is_cancelled(), "{:?}", world.asked.lock());
}

/// Goal: one that somebody cancels ends in QEMU, and then is told to have.
#[tokio::test]
async fn one_that_is_cancelled_is_ended_in_qemu_first() {
    let world = World::begin().await;
    let name = Name::new("again").unwrap();
    world.protection.set_migration(&name, MigrationState::Cancelling).await.unwrap();
    world.until("it is cancelled", |asked| asked.contains(&"block-job-cancel".to_owned())).await;
    assert_eq!(world.ended(&name).await.state, MigrationState::Cancelled);
    let again = world.protection.set_migration(&name, MigrationState::Paused).await.unwrap_err();
    assert_eq!(again.kind(), Kind::Conflict);
}

/// Goal: a guest stands still for a comparison no longer than that is wanted; a server that leaves waits until it goes on, and ends no move.
#[tokio::test]
async fn a_comparison_is_given_up_where_somebody_cancels_or_the_server_leaves() {
    let world = World::begin().await;
    let own = Name::new("again").unwrap();
    let cancelled = json!({
        "version": 1, "name": "other", "format": "raw", "floor_percent": 75, "state": "cancelling", "begun": 1,
        "disks": [], "verify": true,
    });
    let cancelled: Migration = catalog::read(&cancelled.to_string()).unwrap();
    catalog::put_new(&world.store, &cancelled).await.unwrap();
    tokio::select! {
        why = world.protection.given_up(&own) => panic!("it is given up, and nobody wished that: {why}"),
        () = world.env.sleep(LOOK_EVERY * 3) => {}
    }
    assert_eq!(world.protection.given_up(&cancelled.name).await.kind(), Kind::Conflict);

    let patience = Duration::from_millis(300);
    let since = world.env.monotonic();
    {
        let _still = world.protection.compares(&cancelled).unwrap();
        world.protection.end_copies(patience).await;
    }
    assert!(world.env.monotonic() - since >= patience, "a guest stands still, and nobody waits for it");
    let left = world.protection.given_up(&own).await;
    assert_eq!(left.kind(), Kind::Closed);
    assert!(
        world.protection.leaves(&Err::<(), _>(left)),
        "what is left for the next server counts as failed"
    );
    let failed = Err::<(), _>(Error::new(Kind::Io, "the new place is full"));
    assert!(!world.protection.leaves(&failed), "what has failed is left for the next server");
    world.protection.end_comparisons(Duration::from_secs(3600)).await;
    assert!(!world.is_cancelled(), "{:?}", world.asked.lock());
}

/// Goal: of a move that goes over with one disk and not with the other it is told which did; the next one leaves that where it is.
#[tokio::test]
async fn a_move_that_is_left_half_done_is_told_and_goes_on_from_there() {
    let world = World::with(&["vda", "vdb"], |listener, asked| Box::pin(half_a_qemu(listener, asked))).await;
    let name = Name::new("again").unwrap();
    let left = world.ended(&name).await;
    let note = left.note.unwrap_or_default();
    assert_eq!(left.state, MigrationState::Failed);
    assert!(note.contains("has 'vda' at the new place already") && note.contains("no permission"), "{note}");
    assert_eq!(left.disks.iter().map(|disk| disk.moved).collect::<Vec<_>>(), [true, false]);
    let refused = |asked: &String| asked.starts_with("block-job-cancel") && asked.contains("home0");
    assert!(
        !world.asked.lock().iter().any(refused),
        "what has gone over is taken back: {:?}",
        world.asked.lock()
    );

    for disk in ["again.vda", "again.vdb"] {
        world.store.create_disk(&Name::new(disk).unwrap(), 1 << 20, DiskSettings::default()).await.unwrap();
    }
    let half = world.protection.check_not_half_moved(&name).await.unwrap_err();
    assert!(half.to_string().contains("'vda' at /nowhere/vda already"), "{half}");
    let recovery = world.protection.recovery(&name).await.unwrap();
    let asked = MigrateRequest {
        name: name.clone(),
        to: Home::File(world.folder.path().into()),
        format: HomeFormat::Qcow2,
        floor_percent: 75,
        verify: false,
    };
    let again = world.protection.to_be_moved(&recovery, &asked).await.unwrap();
    assert_eq!((again[0].moved, &again[0].home), (true, &Home::File("/nowhere/vda".into())));
    assert_eq!(
        (again[1].moved, &again[1].home),
        (false, &Home::File(world.folder.path().join("again.vdb.qcow2")))
    );
}

/// Goal: what a guest has written since a mirror's end is on the new disk, too: a mirror that a killed server had ended is begun anew.
#[tokio::test]
async fn a_mirror_that_a_killed_server_had_ended_is_begun_anew() {
    let world = World::with(&["vda"], |listener, asked| Box::pin(qemu_at_an_end(listener, asked))).await;
    let ended = world.ended(&Name::new("again").unwrap()).await;
    let asked = world.asked.lock();
    let order: Vec<&str> = (asked.iter().map(String::as_str))
        .filter(|asked| ["job-dismiss", "blockdev-mirror", "job-complete"].contains(asked))
        .collect();
    assert_eq!(order, ["job-dismiss", "blockdev-mirror", "job-complete", "job-dismiss"]);
    assert_eq!(ended.state, MigrationState::Done, "{:?}", ended.note);
}

/// Goal: a guest that a server had stand still, and was killed, goes on before anything else is asked; and is known to.
#[tokio::test]
async fn a_guest_that_a_killed_server_had_stand_still_goes_on_first() {
    let more = json!({ "verify": true, "stands": true, "goes_over": true });
    let world = World::found(&["vda"], more, |listener, asked| Box::pin(qemu(listener, asked))).await;
    world.until("it is looked after", |asked| asked.contains(&"block-job-set-speed".to_owned())).await;
    let first = world.asked.lock().iter().find(|asked| *asked != "qmp_capabilities").cloned();
    assert_eq!(first.as_deref(), Some("cont"), "{:?}", world.asked.lock());
    assert!(!world.protection.migration(&Name::new("again").unwrap()).await.unwrap().stands);
}

/// Goal: likewise of a move that has ended, for which nobody looks any more.
#[tokio::test]
async fn a_guest_that_stands_still_after_its_move_has_ended_goes_on() {
    let more = json!({ "verify": true, "stands": true, "state": "failed", "ended": 2 });
    let world = World::found(&["vda"], more, |listener, asked| Box::pin(qemu(listener, asked))).await;
    world.until("it goes on", |asked| asked.contains(&"cont".to_owned())).await;
}

/// Goal: a guest that somebody else has stand still is left so, when a server finds its move again.
#[tokio::test]
async fn a_guest_that_somebody_has_stand_still_is_left_so() {
    let more = json!({ "verify": true });
    let world = World::found(&["vda"], more, |listener, asked| Box::pin(qemu(listener, asked))).await;
    world.until("it is looked after", |asked| asked.contains(&"block-job-set-speed".to_owned())).await;
    assert!(!world.asked.lock().contains(&"cont".to_owned()), "{:?}", world.asked.lock());
}

/// Goal: a guest that sleeps, and may wake by itself, is not taken for one that stands still: its mirrors are not ended for a comparison.
#[tokio::test]
async fn a_guest_that_sleeps_is_not_compared() {
    let more = json!({ "verify": true });
    let world = World::found(&["vda"], more, |listener, asked| Box::pin(half_a_qemu(listener, asked))).await;
    let ended = world.ended(&Name::new("again").unwrap()).await;
    let note = ended.note.unwrap_or_default();
    assert!(ended.state == MigrationState::Failed && note.contains("the guest sleeps"), "{note}");
    let asked = world.asked.lock();
    assert!(!asked.iter().any(|asked| asked.starts_with("stop") || asked.starts_with("cont")), "{asked:?}");
}

/// Goal: of a machine that was going over, and has ended before anybody saw whether it had, the old disks are not taken for the newest.
#[tokio::test]
async fn a_machine_that_ended_while_it_went_over_may_have_newer_disks() {
    let more = json!({ "goes_over": true });
    let world = World::found(&["vda"], more, |listener, _| Box::pin(async { drop(listener) })).await;
    let name = Name::new("again").unwrap();
    let ended = world.ended(&name).await;
    let note = ended.note.unwrap_or_default();
    assert!(ended.state == MigrationState::Failed && note.contains("/nowhere/vda may be newer"), "{note}");
    let refused = world.protection.check_not_half_moved(&name).await.unwrap_err();
    assert!(refused.kind() == Kind::Conflict && refused.to_string().contains("may be newer"), "{refused}");
}
