//! Runs and points: a run ends in a point that is whole, or in none and nothing besides; a removal takes all of it.

use crate::life::{ENDS, End, Ended, Life, Pool, name};
use crate::machines::web;
use stonefold_protect::{Hardware, RunRequest, RunState, SourceOf};
use stonefold_types::{Error, Kind, PointName};

async fn source(life: &Life) {
    web(life, Some(Hardware::QemuArgs("-m 1G".into()))).await;
    life.protection.add_source(name("nightly"), SourceOf::Machine(name("web"))).await.unwrap();
}

async fn back_up(life: &Life) -> PointName {
    life.protection.back_up(&name("nightly"), RunRequest::default()).await.unwrap().name
}

/// Every point of the pool, looked at: each is whole, or is refused by name. Returns how many there are.
async fn sound_points(life: &Life, when: &str) -> usize {
    let points = life.protection.points(None).await.unwrap();
    for status in &points {
        assert!(status.missing.is_empty() && !status.point.removing, "{when}: {status:?}");
        for (disk, byte) in status.point.disks.iter().zip([1, 2]) {
            let export = status.point.snapshot_of(disk).to_string();
            assert_eq!(life.read(&export).await, byte, "{when}");
        }
        let hardware = status.point.hardware.as_ref().map(Hardware::text);
        assert_eq!(hardware, Some("-m 1G"), "{when}");
    }
    assert_eq!(life.snapshots().len(), 2 * points.len(), "leftovers {when}");
    points.len()
}

fn refused(error: Error, kind: Kind, words: &str) {
    assert!(error.kind() == kind && error.to_string().contains(words), "{error:?}");
}

#[test]
fn a_run_makes_a_point_of_all_disks_at_one_instant() {
    let pool = Pool::new();
    let point = pool.life(|life| async move {
        source(&life).await;
        let run = life.protection.back_up(&name("nightly"), RunRequest::default()).await.unwrap();
        assert_eq!((run.state, run.hardware, run.note), (RunState::Done, None, None));
        life.write("root", 9).await;
        run.name
    });
    pool.life(|life| async move {
        let status = life.protection.point(&point).await.unwrap();
        assert_eq!(status.point.machine, name("web"));
        assert_eq!(status.point.disks[0].created, status.point.disks[1].created);
        assert_eq!(sound_points(&life, "").await, 1);
        // A second one in the same second has a name of its own.
        let second = back_up(&life).await;
        let third = back_up(&life).await;
        assert!(point < second && second < third);
        let diff = life.protection.diff_points(&point, &third).await.unwrap();
        assert_eq!(diff.disks[0].ranges, [(0, 4096)]);
        assert!(diff.disks[1].ranges.is_empty() && !diff.hardware_differs && diff.only_first.is_empty());
        assert_eq!(life.protection.runs(Some(&name("nightly"))).await.unwrap().len(), 3);
        life.protection.remove_point(&second).await.unwrap();
        assert_eq!(life.protection.points(Some(&name("nightly"))).await.unwrap().len(), 2);
        assert_eq!(life.snapshots().len(), 4);
    });
}

/// Goal: what cannot be is refused, says why, and changes nothing.
#[test]
fn what_cannot_be_done_is_refused() {
    Pool::new().life(|life| async move {
        let protection = &life.protection;
        let of = || SourceOf::Machine(name("web"));
        refused(
            protection.add_source(name("nightly"), of()).await.unwrap_err(),
            Kind::NotFound,
            "machine 'web'",
        );
        source(&life).await;
        let twice = protection.add_source(name("nightly"), of()).await.unwrap_err();
        refused(twice, Kind::AlreadyExists, "source 'nightly'");
        let kept = protection.remove_machine(&name("web")).await.unwrap_err();
        refused(kept, Kind::Busy, "source rm nightly");
        refused(
            protection.back_up(&name("none"), RunRequest::default()).await.unwrap_err(),
            Kind::NotFound,
            "source 'none'",
        );
        let unknown = "nightly@20200101T000000Z".parse().unwrap();
        refused(protection.point(&unknown).await.unwrap_err(), Kind::NotFound, "point 'nightly@2020");
        refused(protection.remove_point(&unknown).await.unwrap_err(), Kind::NotFound, "point ls");

        // A disk that is gone: the run fails, and is kept with the reason.
        life.store.remove_disk(&name("data")).await.unwrap();
        refused(
            protection.back_up(&name("nightly"), RunRequest::default()).await.unwrap_err(),
            Kind::NotFound,
            "'data'",
        );
        let runs = protection.runs(None).await.unwrap();
        assert!(runs.len() == 1 && runs[0].state == RunState::Failed);
        assert!(runs[0].note.as_ref().unwrap().contains("disk 'data' does not exist"), "{runs:?}");
        assert!(life.snapshots().is_empty() && protection.points(None).await.unwrap().is_empty());
        assert_eq!(protection.remove_source(&name("nightly")).await.unwrap(), 0);
    });
}

/// Goal: nobody removes a locked point, whatever else is asked, and none of its snapshots goes.
#[test]
fn a_locked_point_stays() {
    let pool = Pool::new();
    let point = pool.life(|life| async move {
        source(&life).await;
        let point = back_up(&life).await;
        let until = life.store.time().trusted + 3600 * 1_000_000_000;
        let locked = life.protection.lock_point(&point, until).await.unwrap();
        assert_eq!(locked.locked_until, Some(until));
        let shorter = life.protection.lock_point(&point, until - 1_000_000_000).await.unwrap_err();
        refused(shorter, Kind::Invalid, "never shortened");
        point
    });
    pool.life(|life| async move {
        refused(life.protection.remove_point(&point).await.unwrap_err(), Kind::Locked, "is locked until 20");
        for disk in ["root", "data"] {
            let name = format!("{disk}@{}", point.stamp).parse().unwrap();
            assert_eq!(life.store.remove_snapshot(&name).await.unwrap_err().kind(), Kind::Locked);
        }
        assert_eq!(sound_points(&life, "").await, 1);
    });
}

/// Goal: a point of which somebody took a snapshot away says so, is no base for anything, and can be removed. Another snapshot of that name
/// is not taken for it, and stays.
#[test]
fn a_point_that_is_not_whole_says_so() {
    Pool::new().life(|life| async move {
        source(&life).await;
        let point = back_up(&life).await;
        let other = back_up(&life).await;
        let gone = format!("data@{}", point.stamp).parse().unwrap();
        life.store.remove_snapshot(&gone).await.unwrap();
        life.store.snapshot(&[name("data")], Some(point.stamp.clone())).await.unwrap();
        assert_eq!(life.protection.point(&point).await.unwrap().missing, [name("vdb")]);
        let diff = life.protection.diff_points(&other, &point).await.unwrap_err();
        refused(diff, Kind::NotFound, "is not whole: the snapshot of its disk 'vdb'");
        life.protection.remove_point(&point).await.unwrap();
        assert!(life.snapshots().contains(&gone.to_string()));
    });
}

/// Goal: a point that somebody reads is not taken apart.
#[test]
fn a_point_that_is_read_stays_whole() {
    Pool::new().life(|life| async move {
        source(&life).await;
        let point = back_up(&life).await;
        let reader = life.store.attach(&format!("data@{}", point.stamp).parse().unwrap()).unwrap();
        refused(life.protection.remove_point(&point).await.unwrap_err(), Kind::Busy, "is in use");
        assert_eq!(sound_points(&life, "").await, 1);
        drop(reader);
        life.protection.remove_point(&point).await.unwrap();
    });
}

/// Goal: a server that dies at any step of a run, or of several, leaves points that are whole and nothing besides; what was told of is there.
#[test]
fn a_run_that_is_cut_off_is_a_whole_point_or_none() {
    ENDS.into_iter().for_each(a_run_cut_off);
}

fn a_run_cut_off(end: End) {
    for steps in 0.. {
        let when = &format!("{end:?} after {steps} steps");
        let pool = Pool::new();
        let ended = pool.life(|life| async move {
            source(&life).await;
            back_up(&life).await;
            life.cut_after(steps, life.protection.back_up(&name("nightly"), RunRequest::default())).await
        });
        pool.ends(end);
        let made = pool.life(|life| async move {
            let points = sound_points(&life, when).await;
            let runs = life.protection.runs(None).await.unwrap();
            assert!(runs.iter().all(|run| run.state != RunState::Running), "{when}: {runs:?}");
            let done = runs.iter().filter(|run| run.state == RunState::Done).count();
            assert_eq!(done, points, "{when}");
            // And it goes on.
            back_up(&life).await;
            assert_eq!(sound_points(&life, when).await, points + 1);
            points
        });
        match ended {
            Ended::Whole(_) => {
                assert_eq!(made, 2);
                assert!(steps > 3, "a run, its marks, a point and the run's end take as many steps");
                return;
            }
            Ended::Cut => assert!((1..=2).contains(&made), "{when}"),
        }
    }
}

/// Goal: the same of an error while the server lives on: what it told of is ended before anything else is done.
#[test]
fn a_run_that_fails_is_ended_by_the_same_server() {
    use stonefold_engine::wrap::Ask;
    for (ask, key) in
        [(Ask::PutNew, "catalog/points/"), (Ask::PutIf, "catalog/runs/"), (Ask::PutNew, "catalog/runs/")]
    {
        Pool::new().life(|life| async move {
            source(&life).await;
            life.fail_once(ask, key);
            life.protection.back_up(&name("nightly"), RunRequest::default()).await.unwrap_err();
            let points = sound_points(&life, "").await;
            let runs = life.protection.runs(None).await.unwrap();
            assert_eq!(runs.iter().filter(|run| run.state == RunState::Done).count(), points, "{key}");
            assert!(runs.iter().all(|run| run.state != RunState::Running), "{key}: {runs:?}");
            back_up(&life).await;
        });
    }
}

/// Goal: an error that passes leaves no point of which the snapshots are not durable. *Method*: some changes of the medium fail, from each
/// step on, the server ends what it can, and then the power is lost.
#[test]
fn a_point_that_an_error_delayed_outlives_a_loss_of_power() {
    for failing in [1, 2, 3, 5] {
        ENDS.into_iter().for_each(|end| a_run_shaken(end, failing));
    }
}

fn a_run_shaken(end: End, failing: usize) {
    for steps in 0.. {
        let pool = Pool::new();
        let when = &format!("{end:?} after {failing} failures after {steps} steps");
        let (any, told) = pool.life(|life| async move {
            source(&life).await;
            let (any, told) = life
                .shaken_after(
                    steps,
                    failing,
                    life.protection.back_up(&name("nightly"), RunRequest::default()),
                )
                .await;
            // Of what was told as an error another run may have been made whole.
            (any, told.is_some_and(|told| told.is_ok()))
        });
        pool.ends(end);
        let points = pool.life(|life| async move { sound_points(&life, when).await });
        assert!(points >= usize::from(told), "{when}");
        if !any {
            assert_eq!(points, 1);
            return;
        }
    }
}

/// Goal: the same of a removal: what is gone for the server that removed it does not come back without a point that has it.
#[test]
fn a_removal_that_an_error_delayed_outlives_a_loss_of_power() {
    for failing in [1, 2, 3, 5] {
        ENDS.into_iter().for_each(|end| a_removal_shaken(end, failing));
    }
}

fn a_removal_shaken(end: End, failing: usize) {
    for steps in 0.. {
        let pool = Pool::new();
        let when = &format!("{end:?} after {failing} failures after {steps} steps");
        let any = pool.life(|life| async move {
            source(&life).await;
            let point = back_up(&life).await;
            life.shaken_after(steps, failing, life.protection.remove_point(&point)).await.0
        });
        pool.ends(end);
        let points = pool.life(|life| async move { sound_points(&life, when).await });
        if !any {
            assert_eq!(points, 0);
            return;
        }
    }
}

/// Goal: a removal that is cut off at any step is gone on with, and takes all of the point and nothing else.
#[test]
fn a_removal_that_is_cut_off_is_ended() {
    ENDS.into_iter().for_each(a_removal_cut_off);
}

fn a_removal_cut_off(end: End) {
    for steps in 0.. {
        let when = &format!("{end:?} after {steps} steps");
        let pool = Pool::new();
        let ended = pool.life(|life| async move {
            source(&life).await;
            back_up(&life).await;
            let point = back_up(&life).await;
            life.cut_after(steps, life.protection.remove_point(&point)).await
        });
        pool.ends(end);
        let left = pool.life(|life| async move { sound_points(&life, when).await });
        match ended {
            Ended::Whole(()) => {
                assert_eq!(left, 1);
                assert!(steps > 3, "two documents and two marks take as many steps");
                return;
            }
            Ended::Cut => assert!((1..=2).contains(&left), "{when}"),
        }
    }
}
