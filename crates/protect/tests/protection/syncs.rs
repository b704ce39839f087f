//! Machines that are brought up to their master: all of their disks or none, whatever the server dies in, and what is kept stays.

use crate::life::{ENDS, End, Ended, HOUR, Life, Pool, name};
use crate::machines::web;
use stonefold_engine::wrap::Ask;
use stonefold_protect::domain::Reach;
use stonefold_protect::{CloneRequest, NewMachine, SyncRequest, Synced};
use stonefold_types::{DiskSettings, Error, Kind, Result};

/// Master `web`, whose snapshot `v2` holds 7 and 8; machine `desk`, whose first two disks are clones of what was before, hold 5 and 6 by now,
/// and are of the class `test`; its third is its own, and holds 3.
async fn begin(life: &Life) {
    web(life, None).await;
    let reach = Reach::Socket("/run/nbd.sock".into());
    let of_web = CloneRequest { machine: name("web"), snapshot: None, new: name("desk"), count: None, reach };
    life.protection.clone_machine(of_web).await.unwrap();
    life.protection.remove_machine(&name("desk")).await.unwrap();
    life.create("own").await;
    let disks = ["desk.vda", "desk.vdb", "own"];
    for (disk, byte) in disks.into_iter().zip([5, 6, 3]) {
        life.write(disk, byte).await;
    }
    let disks = disks.map(name).to_vec();
    life.protection.add_machine(NewMachine { name: name("desk"), disks, hardware: None }).await.unwrap();
    life.protection.set_machine_class(&name("desk"), &name("test")).await.unwrap();
    for (disk, byte) in [("root", 7), ("data", 8)] {
        life.write(disk, byte).await;
    }
    life.protection.snapshot_machine(&name("web"), Some(name("v2"))).await.unwrap();
    // What is cut off is to be the sync; folds are cut off where machines are cloned.
    life.store.fold_everything().await.unwrap();
    life.write("root", 9).await;
}

async fn sync(life: &Life, snapshot: Option<&str>, keep: &[&str]) -> Result<Synced> {
    let keep = Some(keep.iter().map(|target| name(target)).collect());
    let request =
        SyncRequest { machine: name("desk"), master: name("web"), snapshot: snapshot.map(name), keep };
    life.protection.sync_machine(request).await
}

/// One that does not say which disks are kept.
async fn sync_as_before(life: &Life) -> Result<Synced> {
    let request = SyncRequest { machine: name("desk"), master: name("web"), snapshot: None, keep: None };
    life.protection.sync_machine(request).await
}

async fn held(life: &Life) -> [u8; 3] {
    [life.read("desk.vda").await, life.read("desk.vdb").await, life.read("own").await]
}

fn refused(result: Result<Synced>, kind: Kind, words: &str) {
    let error: Error = result.unwrap_err();
    assert!(error.kind() == kind && error.to_string().contains(words), "{error:?}");
}

/// Goal: what the master has begins anew as its newest snapshot, under the old names and with the old settings; what is kept, and what the master
/// has not, stays as it is, over a restart, too.
#[test]
fn a_machine_is_brought_up_to_its_master() {
    let pool = Pool::new();
    pool.life(|life| async move {
        begin(&life).await;
        let disks = life.disks();
        let kept = sync(&life, None, &["vdb"]).await.unwrap();
        assert_eq!((kept.replaced, kept.kept), (vec![name("vda")], vec![name("vdb"), name("vdc")]));
        assert_eq!((kept.snapshot.as_str(), held(&life).await), ("v2", [7, 6, 3]));
        let remembered = sync_as_before(&life).await.unwrap();
        assert_eq!((remembered.replaced, held(&life).await), (vec![name("vda")], [7, 6, 3]));
        let all = sync(&life, None, &[]).await.unwrap();
        assert_eq!(all.machine.origin.as_deref(), Some("web@v2"));
        assert_eq!(held(&life).await, [7, 8, 3]);
        assert_eq!(life.disks(), disks, "by the old names");
        let settings = life.store.disk(&name("desk.vda")).unwrap().settings;
        assert_eq!(settings, DiskSettings { qos: name("test"), ..DiskSettings::default() });
        let targets = all.machine.disks.iter().map(|disk| disk.target.as_str());
        assert_eq!(targets.collect::<Vec<_>>(), ["vda", "vdb", "vdc"]);
    });
    pool.ends(End::Undone);
    pool.life(|life| async move {
        assert_eq!(held(&life).await, [7, 8, 3]);
        // What was written since is gone with the next, and a snapshot that is named is taken.
        life.write("desk.vda", 4).await;
        life.protection.snapshot_machine(&name("web"), None).await.unwrap();
        sync(&life, Some("v2"), &[]).await.unwrap();
        assert_eq!(held(&life).await, [7, 8, 3]);
        sync(&life, None, &[]).await.unwrap();
        assert_eq!(held(&life).await, [9, 8, 3]);
        // A disk that somebody has removed comes back.
        life.store.remove_disk(&name("desk.vdb")).await.unwrap();
        sync(&life, None, &["vda"]).await.unwrap();
        assert_eq!(held(&life).await, [9, 8, 3]);
    });
    pool.ends(End::Undone);
    // What is kept is remembered, over a restart, too.
    pool.life(|life| async move {
        life.write("desk.vda", 5).await;
        life.write("desk.vdb", 5).await;
        let kept = sync_as_before(&life).await.unwrap().kept;
        assert_eq!((kept, held(&life).await), (vec![name("vda"), name("vdc")], [5, 8, 3]));
    });
}

/// Goal: what cannot be done, or would take more than what the disks hold, is refused, says what to do, and changes nothing.
#[test]
fn a_sync_that_cannot_be_is_refused() {
    Pool::new().life(|life| async move {
        begin(&life).await;
        refused(sync(&life, Some("v3"), &[]).await, Kind::NotFound, "root@v3");
        refused(sync(&life, None, &["vdx"]).await, Kind::Invalid, "calls 'vdx'");
        refused(sync(&life, None, &["vda", "vdb"]).await, Kind::Invalid, "nothing to sync");
        let own = SyncRequest { machine: name("web"), master: name("web"), snapshot: None, keep: None };
        refused(life.protection.sync_machine(own).await, Kind::Invalid, "its own master");
        let client = life.store.attach(&"desk.vdb".parse().unwrap()).unwrap();
        refused(sync(&life, None, &[]).await, Kind::Busy, "desk.vdb");
        drop(client);
        life.protection.snapshot_machine(&name("desk"), Some(name("mine"))).await.unwrap();
        refused(sync(&life, None, &["vdb"]).await, Kind::Busy, "--keep");
        let mine = "desk.vda@mine".parse().unwrap();
        life.store.lock_snapshot(&mine, life.store.time().trusted + HOUR).await.unwrap();
        refused(sync(&life, None, &[]).await, Kind::Locked, "locked until");
        life.store.remove_snapshot(&"desk.vdb@mine".parse().unwrap()).await.unwrap();
        let reserve = |now: DiskSettings| DiskSettings { reserve: true, ..now };
        life.store.set_disk(&name("desk.vdb"), reserve).await.unwrap();
        refused(sync(&life, None, &["vda"]).await, Kind::Busy, "--reserve off");
        life.protection.set_template(&name("desk"), true).await.unwrap();
        refused(sync(&life, None, &[]).await, Kind::Busy, "template desk --off");
        assert_eq!(held(&life).await, [5, 6, 3]);
        assert_eq!(life.store.catalog("syncing").await.unwrap(), Vec::<String>::new());
    });
}

/// Goal: where the store refuses the first removal for what nobody could look at before, it is as if nobody had asked. Method: a clone of the disk that
/// may be half made.
#[test]
fn a_sync_whose_first_step_is_refused_changes_nothing() {
    Pool::new().life(|life| async move {
        begin(&life).await;
        life.store.snapshot(&[name("desk.vda")], Some(name("s"))).await.unwrap();
        let snapshot = "desk.vda@s".parse().unwrap();
        life.fail_once(Ask::PutNew, "head/half");
        life.store.clone_snapshot(&snapshot, &name("half")).await.unwrap_err();
        life.store.remove_snapshot(&snapshot).await.unwrap();
        refused(sync(&life, None, &[]).await, Kind::Busy, "being made");
        assert_eq!(life.store.catalog("syncing").await.unwrap(), Vec::<String>::new());
        assert_eq!(held(&life).await, [5, 6, 3]);
        sync(&life, None, &["vda"]).await.unwrap();
        assert_eq!(held(&life).await, [5, 8, 3]);
    });
}

/// Goal: a sync that is decided waits for a client that has come in its midst; until it is done the machine is not snapshotted, cloned or removed.
/// Method: the first removal fails, and so does it when it is tried again at once.
#[test]
fn a_client_that_comes_in_the_midst_is_waited_for() {
    Pool::new().life(|life| async move {
        begin(&life).await;
        for _ in 0..2 {
            life.fail_once(Ask::PutNew, "gone/");
        }
        refused(sync(&life, None, &[]).await, Kind::Io, "bringing machine 'desk' up to web@v2");
        let client = life.store.attach(&"desk.vdb".parse().unwrap()).unwrap();
        let desk = name("desk");
        let waits = [
            life.protection.snapshot_machine(&desk, None).await.unwrap_err(),
            life.protection.remove_machine(&desk).await.unwrap_err(),
            sync(&life, None, &[]).await.unwrap_err(),
        ];
        for error in waits {
            assert!(
                error.kind() == Kind::Busy && error.to_string().contains("brought up to web@v2"),
                "{error}"
            );
        }
        assert_eq!(life.disks(), ["data", "desk.vdb", "own", "root"]);
        drop(client);
        life.protection.snapshot_machine(&desk, None).await.unwrap();
        assert_eq!(life.store.catalog("syncing").await.unwrap(), Vec::<String>::new());
        assert_eq!(held(&life).await, [7, 8, 3]);
    });
}

/// Goal: a server that dies at any step of a sync leaves all disks as they were, or all anew, and nothing besides.
#[test]
fn a_sync_that_is_cut_off_is_all_or_none() {
    ENDS.into_iter().for_each(a_sync_cut_off);
}

fn a_sync_cut_off(end: End) {
    for steps in 0.. {
        let pool = Pool::new();
        let ended = pool.life(|life| async move {
            begin(&life).await;
            life.cut_after(steps, sync(&life, None, &[])).await
        });
        pool.ends(end);
        let is_new =
            pool.life(|life| async move { is_all_or_none(&life, &format!("{end:?}, {steps} steps")).await });
        if matches!(ended, Ended::Whole(_)) {
            assert!(
                is_new && steps > 8,
                "a note, two removals, two disks, their class and a machine take as many steps"
            );
            return;
        }
    }
}

/// Goal: the same where some operations fail and the medium is well again, and then the server dies: what was told as done stays done.
#[test]
fn a_sync_that_errors_delay_is_all_or_none() {
    for failing in [1, 2, 5] {
        ENDS.into_iter().for_each(|end| a_sync_shaken(end, failing));
    }
}

fn a_sync_shaken(end: End, failing: usize) {
    for steps in 0.. {
        let pool = Pool::new();
        let (any, told) = pool.life(|life| async move {
            begin(&life).await;
            let (any, told) = life.shaken_after(steps, failing, sync(&life, None, &[])).await;
            (any, told.is_some_and(|told| told.is_ok()))
        });
        pool.ends(end);
        let when = format!("{end:?}, {failing} failures after {steps} steps");
        let is_new = pool.life(|life| async move { is_all_or_none(&life, &when).await });
        assert!(is_new || !told, "{end:?}, {failing} failures after {steps} steps");
        if !any {
            return;
        }
    }
}

/// Whether a new life finds all disks anew, and not all as they were.
async fn is_all_or_none(life: &Life, when: &str) -> bool {
    assert_eq!(life.protection.machines().await.unwrap().len(), 2, "{when}");
    assert_eq!(life.disks(), ["data", "desk.vda", "desk.vdb", "own", "root"], "{when}");
    assert_eq!(life.store.catalog("syncing").await.unwrap(), Vec::<String>::new(), "{when}");
    let class = |disk: &str| life.store.disk(&name(disk)).unwrap().settings.qos.to_string();
    assert_eq!([class("desk.vda"), class("desk.vdb")], ["test", "test"], "{when}");
    let desk = life.protection.machine(&name("desk")).await.unwrap();
    match held(life).await {
        [5, 6, 3] => assert_eq!(desk.origin, None, "{when}"),
        [7, 8, 3] => assert_eq!(desk.origin.as_deref(), Some("web@v2"), "{when}"),
        other => panic!("{other:?} {when}"),
    }
    desk.origin.is_some()
}

/// Goal: a template is cloned as its newest snapshot, nothing new is taken for that, and it stays until it is none any more.
#[test]
fn a_template_is_cloned_as_its_newest_snapshot_and_stays() {
    Pool::new().life(|life| async move {
        web(&life, None).await;
        life.protection.set_template(&name("web"), true).await.unwrap();
        let reach = Reach::Socket("/run/nbd.sock".into());
        let desk = |new: &str| CloneRequest {
            machine: name("web"),
            snapshot: None,
            new: name(new),
            count: None,
            reach: reach.clone(),
        };
        let none = life.protection.clone_machine(desk("none")).await.unwrap_err();
        assert!(none.kind() == Kind::NotFound && none.to_string().contains("machine snapshot web"), "{none}");
        life.protection.snapshot_machine(&name("web"), Some(name("v1"))).await.unwrap();
        life.write("root", 7).await;
        life.store.snapshot(&[name("root")], Some(name("half"))).await.unwrap();
        let made = life.protection.clone_machine(desk("one")).await.unwrap();
        assert_eq!((made.snapshot.as_str(), life.read("one.vda").await), ("v1", 1));
        assert!(!made.machines[0].template);
        assert_eq!(life.snapshots().len(), 3);
        let stays = life.protection.remove_machine(&name("web")).await.unwrap_err();
        assert!(stays.kind() == Kind::Busy && stays.to_string().contains("--off"), "{stays}");
        life.protection.set_template(&name("web"), false).await.unwrap();
        life.protection.remove_machine(&name("web")).await.unwrap();
    });
}
