//! Recoveries: a point's disks are back all at once, or none is; what is discarded goes whole, and nobody else's with it.

use crate::life::{ENDS, End, Ended, Life, Pool, name};
use crate::machines::{XML, web};
use stonefold_engine::wrap::Ask;
use stonefold_protect::domain::{Domain, Network, Reach};
use stonefold_protect::{Hardware, NewMachine, RecoverRequest, RunRequest, SourceOf, StopRequest};
use stonefold_types::{Error, Kind, PointName};

const DISCARD: StopRequest = StopRequest { discard: true, power_off: false };

/// A point of two disks that hold 1 and 2, and by now 9.
async fn point(life: &Life) -> PointName {
    web(life, Some(Hardware::Libvirt(XML.into()))).await;
    life.protection.add_source(name("nightly"), SourceOf::Machine(name("web"))).await.unwrap();
    let point = life.protection.back_up(&name("nightly"), RunRequest::default()).await.unwrap().name;
    for disk in ["root", "data"] {
        life.write(disk, 9).await;
    }
    point
}

fn request(point: &PointName, text: &str) -> RecoverRequest {
    let reach = Reach::Socket("/run/nbd.sock".into());
    RecoverRequest {
        point: point.clone(),
        name: name(text),
        qos: None,
        reach,
        network: Network::Same,
        dry_run: false,
    }
}

fn refused(error: Error, kind: Kind, words: &str) {
    assert!(error.kind() == kind && error.to_string().contains(words), "{error:?}");
}

#[test]
fn a_point_comes_back_as_another_machine() {
    let pool = Pool::new();
    pool.life(|life| async move {
        let point = point(&life).await;
        let dry = RecoverRequest { dry_run: true, ..request(&point, "again") };
        let would = life.protection.recover(dry).await.unwrap();
        assert_eq!(life.disks(), ["data", "root"]);
        assert!(life.protection.recoveries().await.unwrap().is_empty());

        let asked = RecoverRequest { qos: Some(name("test")), ..request(&point, "again") };
        let made = life.protection.recover(asked).await.unwrap().recovery;
        assert_eq!(made.disks, would.recovery.disks);
        assert!(made.ready_us > 0);
        assert_eq!((life.read("again.vda").await, life.read("again.vdb").await), (1, 2));
        assert_eq!(life.store.disk(&name("again.vdb")).unwrap().settings.qos, name("test"));
        let domain = Domain::parse(made.hardware.unwrap().text()).unwrap();
        assert_eq!(
            (domain.name.as_str(), domain.disks[0].source.as_deref()),
            ("again", Some("nbd:again.vda"))
        );
        // The original and the point stay as they were; what is recovered is written and outlives both.
        assert_eq!(life.read("root").await, 9);
        life.write("again.vda", 7).await;
        life.protection.remove_point(&point).await.unwrap();
    });
    pool.life(|life| async move {
        assert_eq!((life.read("again.vda").await, life.read("again.vdb").await), (7, 2));
        life.protection.stop_recovery(&name("again"), StopRequest::default()).await.unwrap();
        assert!(life.protection.recoveries().await.unwrap().is_empty());
        assert_eq!(life.disks().len(), 4, "its disks stay");
    });
}

/// Goal: what cannot be recovered or discarded is refused, says why, and changes nothing.
#[test]
fn what_cannot_be_done_is_refused() {
    Pool::new().life(|life| async move {
        let point = point(&life).await;
        let protection = &life.protection;
        let unknown = "nightly@20200101T000000Z".parse().unwrap();
        refused(
            protection.recover(request(&unknown, "a")).await.unwrap_err(),
            Kind::NotFound,
            "point 'nightly@2020",
        );
        refused(
            protection.recover(request(&point, "web")).await.unwrap_err(),
            Kind::AlreadyExists,
            "machine 'web'",
        );
        for (class, kind) in [("none", Kind::NotFound), ("reclaim", Kind::Invalid)] {
            let asked = RecoverRequest { qos: Some(name(class)), ..request(&point, "a") };
            refused(protection.recover(asked).await.unwrap_err(), kind, class);
        }
        life.create("a.vdb").await;
        refused(
            protection.recover(request(&point, "a")).await.unwrap_err(),
            Kind::AlreadyExists,
            "disk 'a.vdb'",
        );
        assert_eq!(life.disks(), ["a.vdb", "data", "root"]);

        protection.recover(request(&point, "b")).await.unwrap();
        refused(
            protection.recover(request(&point, "b")).await.unwrap_err(),
            Kind::AlreadyExists,
            "recovery 'b'",
        );
        let before = life.disks();
        let client = life.store.attach(&"b.vdb".parse().unwrap()).unwrap();
        let in_use = protection.stop_recovery(&name("b"), DISCARD).await.unwrap_err();
        refused(in_use, Kind::Busy, "'b.vdb'");
        drop(client);
        let kept = NewMachine { name: name("kept"), disks: vec![name("b.vda")], hardware: None };
        protection.add_machine(kept).await.unwrap();
        let needed = protection.stop_recovery(&name("b"), DISCARD).await.unwrap_err();
        refused(needed, Kind::Busy, "machine 'kept'");
        protection.remove_machine(&name("kept")).await.unwrap();
        life.store.snapshot(&[name("b.vda")], Some(name("mine"))).await.unwrap();
        refused(
            protection.stop_recovery(&name("b"), DISCARD).await.unwrap_err(),
            Kind::Busy,
            "has snapshots",
        );
        assert_eq!(life.disks(), before);
        life.store.remove_snapshot(&"b.vda@mine".parse().unwrap()).await.unwrap();

        // Another's disk of that name by now.
        life.store.remove_disk(&name("b.vdb")).await.unwrap();
        life.create("b.vdb").await;
        protection.stop_recovery(&name("b"), DISCARD).await.unwrap();
        assert_eq!(life.disks(), ["a.vdb", "b.vdb", "data", "root"]);
    });
}

/// Goal: a server that dies at any step of a recovery leaves all of it or nothing.
#[test]
fn a_recovery_that_is_cut_off_is_whole_or_gone() {
    ENDS.into_iter().for_each(a_recovery_cut_off);
}

fn a_recovery_cut_off(end: End) {
    for steps in 0.. {
        let pool = Pool::new();
        let ended = pool.life(|life| async move {
            let point = point(&life).await;
            let asked = RecoverRequest { qos: Some(name("test")), ..request(&point, "again") };
            life.cut_after(steps, life.protection.recover(asked)).await
        });
        pool.ends(end);
        let when = &format!("{end:?} after {steps} steps");
        let there = pool.life(|life| async move {
            let there = life.protection.recoveries().await.unwrap().len();
            assert_eq!(life.disks().len(), 2 + 2 * there, "{when}");
            if there == 1 {
                assert_eq!((life.read("again.vda").await, life.read("again.vdb").await), (1, 2), "{when}");
                let class = life.store.disk(&name("again.vda")).unwrap().settings.qos;
                assert_eq!(class, name("test"), "{when}");
            }
            assert_eq!(life.store.catalog("making").await.unwrap(), Vec::<String>::new(), "{when}");
            there
        });
        if let Ended::Whole(_) = ended {
            assert!(
                there == 1 && steps > 6,
                "a note, two disks with their class and a document take as many steps"
            );
            return;
        }
    }
}

/// Goal: an error that passes leaves all of a recovery or nothing, also when the power is lost behind it.
#[test]
fn a_recovery_that_meets_an_error_is_whole_or_gone() {
    for failing in [1, 2, 3, 5] {
        ENDS.into_iter().for_each(|end| a_recovery_shaken(end, failing));
    }
}

fn a_recovery_shaken(end: End, failing: usize) {
    for steps in 0.. {
        let pool = Pool::new();
        let when = &format!("{end:?} after {failing} failures after {steps} steps");
        let (any, told) = pool.life(|life| async move {
            let point = point(&life).await;
            let call = life.protection.recover(request(&point, "again"));
            let (any, told) = life.shaken_after(steps, failing, call).await;
            (any, told.is_some_and(|told| told.is_ok()))
        });
        pool.ends(end);
        pool.life(|life| async move {
            let there = life.protection.recoveries().await.unwrap().len();
            assert!(there >= usize::from(told), "{when}");
            assert_eq!(life.disks().len(), 2 + 2 * there, "{when}");
            if there == 1 {
                assert_eq!((life.read("again.vda").await, life.read("again.vdb").await), (1, 2), "{when}");
            }
            assert_eq!(life.store.catalog("making").await.unwrap(), Vec::<String>::new(), "{when}");
        });
        if !any {
            return;
        }
    }
}

/// Goal: the same of a discard: it is gone on with, or has not begun.
#[test]
fn a_discard_that_is_cut_off_is_ended() {
    ENDS.into_iter().for_each(a_discard_cut_off);
}

fn a_discard_cut_off(end: End) {
    for steps in 0.. {
        let pool = Pool::new();
        let ended = pool.life(|life| async move {
            let point = point(&life).await;
            life.protection.recover(request(&point, "again")).await.unwrap();
            life.cut_after(steps, life.protection.stop_recovery(&name("again"), DISCARD)).await
        });
        pool.ends(end);
        let there = pool.life(|life| async move {
            let there = life.protection.recoveries().await.unwrap();
            assert!(there.iter().all(|recovery| !recovery.discarding), "{end:?} after {steps} steps");
            assert_eq!(life.disks().len(), 2 + 2 * there.len(), "{end:?} after {steps} steps");
            there.len()
        });
        if let Ended::Whole(_) = ended {
            assert!(there == 0 && steps > 4, "two changes of a document and two disks take as many steps");
            return;
        }
    }
}

/// Goal: a discard that was refused is not carried out behind the back of who was told so. Method: the first disk cannot be removed.
#[test]
fn a_discard_that_was_refused_is_none() {
    let pool = Pool::new();
    pool.life(|life| async move {
        let point = point(&life).await;
        life.protection.recover(request(&point, "b")).await.unwrap();
        let before = life.disks();
        for _ in 0..2 {
            life.fail_once(Ask::PutNew, "gone/");
        }
        let client = life.store.attach(&"b.vdb".parse().unwrap()).unwrap();
        life.protection.stop_recovery(&name("b"), DISCARD).await.unwrap_err();
        drop(client);
        life.protection.stop_recovery(&name("b"), DISCARD).await.unwrap_err();
        assert_eq!(life.disks(), before);
        assert!(!life.protection.recovery(&name("b")).await.unwrap().discarding);
        let kept = NewMachine { name: name("kept"), disks: vec![name("b.vda")], hardware: None };
        life.protection.add_machine(kept).await.unwrap();
    });
    pool.life(|life| async move {
        assert_eq!(life.disks(), ["b.vda", "b.vdb", "data", "root"], "a start does not carry it out either");
        life.protection.stop_recovery(&name("b"), StopRequest::default()).await.unwrap();
    });
}
