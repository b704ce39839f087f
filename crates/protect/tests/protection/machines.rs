//! Machines: added, shown, snapshotted at one instant, and cloned, all or none.

use crate::life::{ENDS, End, Ended, Life, Pool, name};
use stonefold_engine::wrap::Ask;
use stonefold_protect::domain::{Domain, Reach};
use stonefold_protect::{CloneRequest, Hardware, Machine, NewMachine};
use stonefold_types::Kind;

pub(crate) const XML: &str = "<domain type='kvm'><name>web</name><uuid>11111111-1111-4111-8111-111111111111</uuid><devices>\
    <disk type='file' device='disk'><source file='/a'/><target dev='vda'/></disk>\
    <disk type='file' device='cdrom'><target dev='sda'/></disk>\
    <disk type='file' device='disk'><source file='/b'/><target dev='vdb'/></disk>\
    <interface type='network'><mac address='52:54:00:11:22:33'/></interface></devices></domain>";

/// Machine `web` of two disks, which hold 1 and 2.
pub(crate) async fn web(life: &Life, hardware: Option<Hardware>) -> Machine {
    for (disk, byte) in [("root", 1), ("data", 2)] {
        life.create(disk).await;
        life.write(disk, byte).await;
    }
    let disks = vec![name("root"), name("data")];
    life.protection.add_machine(NewMachine { name: name("web"), disks, hardware }).await.unwrap()
}

fn clones(count: Option<u32>) -> CloneRequest {
    let reach = Reach::Socket("/run/nbd.sock".into());
    CloneRequest { machine: name("web"), snapshot: None, new: name("lab"), count, reach }
}

#[test]
fn a_machine_is_kept_with_its_description_to_the_byte() {
    let pool = Pool::new();
    let xml = Hardware::Libvirt(XML.into());
    let added = pool.life(|life| async move { web(&life, Some(xml)).await });
    pool.life(|life| async move {
        let found = life.protection.machine(&name("web")).await.unwrap();
        assert_eq!(found, added);
        assert_eq!(found.hardware.as_ref().unwrap().text(), XML);
        let disks = found.disks.iter().map(|disk| format!("{}={}", disk.target, disk.disk));
        assert_eq!(disks.collect::<Vec<_>>(), ["vda=root", "vdb=data"]);
        life.protection.remove_machine(&name("web")).await.unwrap();
        assert_eq!(life.protection.machine(&name("web")).await.unwrap_err().kind(), Kind::NotFound);
        assert_eq!(life.disks(), ["data", "root"]);
    });
}

/// Goal: what cannot be is refused, says why, and leaves nothing.
#[test]
fn what_cannot_be_a_machine_is_refused() {
    Pool::new().life(|life| async move {
        for disk in ["root", "data"] {
            life.create(disk).await;
        }
        let add = |text: &str, disks: &[&str], hardware: Option<Hardware>| {
            let disks = disks.iter().map(|disk| name(disk)).collect();
            let protection = life.protection.clone();
            let new = NewMachine { name: name(text), disks, hardware };
            async move { protection.add_machine(new).await }
        };
        let xml = || Some(Hardware::Libvirt(XML.into()));
        for (disks, hardware, kind, words) in [
            (&["root", "none"][..], None, Kind::NotFound, "'none'"),
            (&[], None, Kind::Invalid, "0 are named"),
            (&["root", "root"], None, Kind::Invalid, "named twice"),
            (&["root"], xml(), Kind::Invalid, "has 2 disks that hold data (vda, vdb), and 1 are named"),
            (&["root"], Some(Hardware::Libvirt("<dom/>".into())), Kind::Invalid, "<domain>"),
            (&["root"], Some(Hardware::QemuArgs(" \n".into())), Kind::Invalid, "no arguments"),
            (&["root"], Some(Hardware::QemuArgs("x".repeat(200 << 10))), Kind::Invalid, "204800 bytes"),
        ] {
            let error = add("web", disks, hardware).await.unwrap_err();
            assert!(error.kind() == kind && error.to_string().contains(words), "{error}");
        }
        assert_eq!(life.protection.machines().await.unwrap(), []);
        add("web", &["root"], None).await.unwrap();
        assert_eq!(add("web", &["data"], None).await.unwrap_err().kind(), Kind::AlreadyExists);
        let error = add("other", &["root"], None).await.unwrap_err();
        assert!(error.kind() == Kind::Busy && error.to_string().contains("machine 'web'"), "{error}");
    });
}

/// Goal: all disks of a machine at one instant.
#[test]
fn a_snapshot_is_of_all_disks() {
    Pool::new().life(|life| async move {
        web(&life, None).await;
        let taken = life.protection.snapshot_machine(&name("web"), Some(name("monday"))).await.unwrap();
        assert_eq!(taken.len(), 2);
        assert_eq!(taken[0].created, taken[1].created);
        let again = life.protection.snapshot_machine(&name("web"), Some(name("monday"))).await.unwrap_err();
        assert!(again.kind() == Kind::AlreadyExists && again.to_string().contains("'web'"), "{again}");
    });
}

/// Goal: each clone has all disks as they were at one instant, and is somebody else.
#[test]
fn clones_have_the_disks_and_an_identity_of_their_own() {
    Pool::new().life(|life| async move {
        web(&life, Some(Hardware::Libvirt(XML.into()))).await;
        let made = life.protection.clone_machine(clones(Some(2))).await.unwrap();
        assert_eq!(made.notes, Vec::<String>::new());
        life.write("root", 9).await;
        assert_eq!(life.disks(), ["data", "lab-1.vda", "lab-1.vdb", "lab-2.vda", "lab-2.vdb", "root"]);
        for disk in ["lab-1", "lab-2"] {
            assert_eq!(life.read(&format!("{disk}.vda")).await, 1);
            assert_eq!(life.read(&format!("{disk}.vdb")).await, 2);
        }
        let domains: Vec<Domain> = made
            .machines
            .iter()
            .map(|one| Domain::parse(one.hardware.as_ref().unwrap().text()).unwrap())
            .collect();
        assert_eq!(domains[0].name, "lab-1");
        assert_eq!(domains[1].disks[1].source.as_deref(), Some("nbd:lab-2.vdb"));
        assert!(domains[0].uuid != domains[1].uuid && domains[0].macs != domains[1].macs);
        // From a snapshot, and of a clone.
        let of = CloneRequest { snapshot: Some(made.snapshot.clone()), new: name("third"), ..clones(None) };
        let third = life.protection.clone_machine(of.clone()).await.unwrap();
        assert_eq!(third.machines[0].origin, Some(format!("web@{}", made.snapshot)));
        assert_eq!(life.read("third.vda").await, 1);
        let again = life.protection.clone_machine(of).await.unwrap_err();
        assert_eq!(again.kind(), Kind::AlreadyExists);
        assert_eq!(life.protection.machines().await.unwrap().len(), 4);
    });
}

/// Goal: what cannot be cloned leaves nothing, neither disks nor snapshots.
#[test]
fn a_clone_that_is_refused_leaves_nothing() {
    Pool::new().life(|life| async move {
        web(&life, None).await;
        life.create("lab-2.vdb").await;
        let (disks, refused) = (life.disks(), |error: stonefold_types::Error, kind, words: &str| {
            assert!(error.kind() == kind && error.to_string().contains(words), "{error}");
        });
        let protection = &life.protection;
        let taken = protection.clone_machine(clones(Some(2))).await.unwrap_err();
        refused(taken, Kind::AlreadyExists, "'lab-2.vdb'");
        let many = protection.clone_machine(clones(Some(1001))).await.unwrap_err();
        refused(many, Kind::Invalid, "1 to 1000");
        let long = CloneRequest { new: name(&"x".repeat(127)), ..clones(None) };
        refused(protection.clone_machine(long).await.unwrap_err(), Kind::Invalid, "not a name");
        let none = CloneRequest { snapshot: Some(name("none")), ..clones(None) };
        refused(protection.clone_machine(none).await.unwrap_err(), Kind::NotFound, "root@none");
        // Of one name, and not of one instant.
        for disk in ["root", "data"] {
            life.store.snapshot(&[name(disk)], Some(name("same"))).await.unwrap();
        }
        let same = CloneRequest { snapshot: Some(name("same")), ..clones(None) };
        refused(protection.clone_machine(same).await.unwrap_err(), Kind::Invalid, "not of one instant");
        assert_eq!(life.disks(), disks);
        assert_eq!(life.snapshots(), ["data@same", "root@same"]);
    });
}

/// Goal: a server that dies at any step of cloning leaves all of the machines or none, and nothing besides.
#[test]
fn a_clone_that_is_cut_off_is_whole_or_gone() {
    ENDS.into_iter().for_each(a_clone_cut_off);
}

fn a_clone_cut_off(end: End) {
    for steps in 0.. {
        let pool = Pool::new();
        let ended = pool.life(|life| async move {
            web(&life, Some(Hardware::Libvirt(XML.into()))).await;
            life.cut_after(steps, life.protection.clone_machine(clones(Some(2)))).await
        });
        pool.ends(end);
        pool.life(|life| async move {
            let machines = life.protection.machines().await.unwrap().len();
            match machines {
                1 => {
                    assert_eq!(life.disks(), ["data", "root"], "{end:?} after {steps} steps");
                    assert_eq!(life.snapshots(), Vec::<String>::new(), "{end:?} after {steps} steps");
                }
                3 => {
                    assert_eq!(life.disks().len(), 6, "{end:?} after {steps} steps");
                    assert_eq!((life.read("lab-1.vda").await, life.read("lab-2.vdb").await), (1, 2));
                }
                other => panic!("{other} machines {end:?} after {steps} steps"),
            }
            assert_eq!(life.store.catalog("making").await.unwrap(), Vec::<String>::new());
        });
        if matches!(ended, Ended::Whole(_)) {
            assert!(steps > 8, "a note, a snapshot, four disks and two machines take as many steps");
            return;
        }
    }
}

/// Goal: what a failed clone leaves for later takes nothing away that somebody else has made since, be it called as it would have been, and be
/// it a clone of the same snapshot. Method: the machine's document cannot be put, and one of the two disks not be taken away.
#[test]
fn what_is_left_to_be_taken_away_takes_nothing_of_others() {
    Pool::new().life(|life| async move {
        web(&life, None).await;
        life.store.snapshot(&[name("root"), name("data")], Some(name("v3"))).await.unwrap();
        let of_v3 = || CloneRequest { snapshot: Some(name("v3")), ..clones(None) };
        life.fail_once(Ask::PutNew, "catalog/machines/");
        life.fail_once(Ask::PutNew, "gone/");
        life.protection.clone_machine(of_v3()).await.unwrap_err();
        assert_eq!(life.disks(), ["data", "lab.vda", "root"], "one could not be taken away");

        life.store.clone_snapshot(&"data@v3".parse().unwrap(), &name("lab.vdb")).await.unwrap();
        life.write("lab.vdb", 8).await;
        let half = NewMachine { name: name("half"), disks: vec![name("lab.vda")], hardware: None };
        // The next change takes away what is left, and then there is no such disk.
        let refused = life.protection.add_machine(half).await.unwrap_err();
        assert_eq!(refused.kind(), Kind::NotFound, "{refused}");
        assert_eq!(life.disks(), ["data", "lab.vdb", "root"]);
        assert_eq!(life.read("lab.vdb").await, 8);
        let named = life.protection.clone_machine(of_v3()).await.unwrap_err();
        assert!(named.kind() == Kind::AlreadyExists && named.to_string().contains("'lab.vdb'"), "{named}");
    });
}

/// Goal: while the note of a clone cannot be ended, what it names is nobody's machine.
#[test]
fn what_is_half_made_is_nobodys_machine() {
    Pool::new().life(|life| async move {
        web(&life, None).await;
        life.fail_once(Ask::PutNew, "catalog/machines/");
        for _ in 0..2 {
            life.fail_once(Ask::PutNew, "gone/");
        }
        life.protection.clone_machine(clones(None)).await.unwrap_err();
        assert_eq!(life.disks(), ["data", "lab.vda", "lab.vdb", "root"]);
        // Somebody is in the way, so that the next change cannot take it away either.
        let client = life.store.attach(&"lab.vda".parse().unwrap()).unwrap();
        let half = || NewMachine { name: name("half"), disks: vec![name("lab.vda")], hardware: None };
        let refused = life.protection.add_machine(half()).await.unwrap_err();
        assert!(refused.kind() == Kind::Busy && refused.to_string().contains("half made"), "{refused}");
        drop(client);
        assert_eq!(life.protection.add_machine(half()).await.unwrap_err().kind(), Kind::NotFound);
        assert_eq!(life.disks(), ["data", "root"]);
        assert!(life.snapshots().is_empty());
    });
}

/// Goal: a class is given to all disks or, where one of them or the class is not there, to none; cut off anywhere, it can be given again.
#[test]
fn a_class_is_given_to_all_disks() {
    Pool::new().life(|life| async move {
        web(&life, None).await;
        let classes =
            || ["root", "data"].map(|disk| life.store.disk(&name(disk)).unwrap().settings.qos.to_string());
        let set = |class: &str| {
            let (protection, class) = (life.protection.clone(), name(class));
            async move { protection.set_machine_class(&name("web"), &class).await }
        };
        for (class, kind) in [("none", Kind::NotFound), ("fold", Kind::Invalid)] {
            assert_eq!(set(class).await.unwrap_err().kind(), kind);
        }
        life.fail_once(Ask::PutIf, "head/data");
        let failed = set("test").await.unwrap_err();
        assert!(failed.to_string().contains("1 of 2 disks have the class"), "{failed}");
        set("test").await.unwrap();
        assert_eq!(classes(), ["test", "test"]);
        life.store.remove_disk(&name("data")).await.unwrap();
        let refused = set("critical").await.unwrap_err();
        assert!(refused.to_string().contains("machine 'web': disk 'data'"), "{refused}");
        assert_eq!(life.store.disk(&name("root")).unwrap().settings.qos.as_str(), "test");
    });
}
