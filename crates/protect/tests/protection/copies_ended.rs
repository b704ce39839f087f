//! Runs that copy, and do not come to their end at once: somebody pauses or ends them, their server dies, a policy's go on in the background.

use crate::copies::{DISK, MIB, exported, is_held, patterned, points, refused, run, snapshot};
use crate::exporter::{Exporter, Then};
use crate::life::{HOUR, Pool, name};
use std::time::Duration;
use stonefold_protect::rounds::Round;
use stonefold_protect::{NewPolicy, Run, RunRequest, RunState, SourceOf};
use stonefold_types::{Kind, Name};

/// Goal: a run that somebody ends makes no point, keeps nobody from anything else while it goes on, and lets nobody at its disk.
#[test]
fn a_run_that_is_cancelled_makes_no_point() {
    Pool::new().life(|life| async move {
        let protection = &life.protection;
        let exporter = exported(&life, patterned(4 * MIB, 1)).await;
        exporter.after(Some((3, Then::Hang)));
        let meanwhile = async {
            while exporter.reads() <= 3 {
                tokio::task::yield_now().await;
            }
            let under_way = protection.runs(None).await.unwrap().pop().unwrap();
            assert_eq!(under_way.state, RunState::Running);
            crate::machines::web(&life, None).await;
            let twice = protection.back_up(&name("db"), RunRequest::default()).await.unwrap_err();
            refused(twice, Kind::Busy, &format!("backup cancel {}", under_way.name));
            refused(protection.remove_source(&name("db")).await.unwrap_err(), Kind::Busy, "is under way");
            refused(life.store.remove_disk(&name(DISK)).await.unwrap_err(), Kind::Busy, "backup run 'db@");
            let ended = protection.cancel_run(&under_way.name).await.unwrap();
            assert_eq!(ended.state, RunState::Cancelled);
            ended
        };
        let db = name("db");
        let (error, ended) = futures::join!(protection.back_up(&db, RunRequest::default()), meanwhile);
        refused(error.unwrap_err(), Kind::Conflict, "was cancelled");
        assert_eq!(points(&life).await, 0);
        refused(protection.cancel_run(&ended.name).await.unwrap_err(), Kind::Invalid, "has ended already");
        let unknown = "db@20200101T000000Z".parse().unwrap();
        refused(protection.cancel_run(&unknown).await.unwrap_err(), Kind::NotFound, "backup ls");
        exporter.after(None);
        let next = run(&life).await;
        is_held(&life, &snapshot(&next.name), &exporter.bytes(), "after all").await;
    });
}

/// Goal: a run that somebody pauses reads nothing more until it is resumed, and then makes its point; one that is paused can be ended, and one that has
/// ended neither paused nor resumed. *Past bug*: none yet.
#[test]
fn a_run_that_is_paused_reads_nothing_until_it_is_resumed() {
    Pool::new().life(|life| async move {
        let protection = &life.protection;
        let exporter = exported(&life, patterned(48 * MIB, 1)).await;
        let meanwhile = |resumes: bool| {
            let (life, exporter, before) = (&life, &exporter, exporter.reads());
            async move {
                while exporter.reads() <= before + 3 {
                    tokio::task::yield_now().await;
                }
                let under_way = protection.runs(None).await.unwrap().pop().unwrap();
                assert!(!under_way.paused);
                let paused = protection.pause_run(&under_way.name, true).await.unwrap();
                assert!(paused.paused && paused.state == RunState::Running);
                // What had begun ends.
                life.env.sleep(Duration::from_millis(300)).await;
                let reads = exporter.reads();
                life.env.sleep(Duration::from_millis(300)).await;
                assert_eq!(exporter.reads(), reads, "it reads on");
                assert!(reads - before < 48 * MIB / (256 << 10) / 2, "{reads} of all were under way");
                if resumes {
                    assert!(!protection.pause_run(&paused.name, false).await.unwrap().paused);
                } else {
                    protection.cancel_run(&paused.name).await.unwrap();
                }
                paused.name
            }
        };
        let db = name("db");
        let (ended, cancelled) =
            futures::join!(protection.back_up(&db, RunRequest::default()), meanwhile(false));
        refused(ended.unwrap_err(), Kind::Conflict, "was cancelled");
        let (made, resumed) = futures::join!(protection.back_up(&db, RunRequest::default()), meanwhile(true));
        let made = made.unwrap();
        assert!(made.name == resumed && !made.paused && made.state == RunState::Done);
        is_held(&life, &snapshot(&made.name), &exporter.bytes(), "after a pause").await;
        for (run, pauses) in [(&cancelled, true), (&resumed, false)] {
            refused(protection.pause_run(run, pauses).await.unwrap_err(), Kind::Invalid, "has ended already");
        }
        let unknown = "db@20200101T000000Z".parse().unwrap();
        refused(protection.pause_run(&unknown, true).await.unwrap_err(), Kind::NotFound, "backup ls");
    });
}

/// Goal: a server that dies while it copies leaves a run that has failed and says what to do, and no point.
#[test]
fn a_server_killed_in_the_midst_leaves_no_point() {
    let pool = Pool::new();
    pool.life(|life| async move {
        let exporter = exported(&life, patterned(4 * MIB, 1)).await;
        run(&life).await;
        exporter.change(|bytes| *bytes = patterned(4 * MIB, 2));
        exporter.after(Some((5, Then::Hang)));
        let killed = async {
            while exporter.reads() <= 5 {
                tokio::task::yield_now().await;
            }
        };
        let db = name("db");
        tokio::select! {
            done = life.protection.back_up(&db, RunRequest::default()) => panic!("{done:?}"),
            () = killed => {}
        }
    });
    pool.life(|life| async move {
        assert_eq!(points(&life).await, 1);
        let cut = life.protection.runs(None).await.unwrap().pop().unwrap();
        assert_eq!(cut.state, RunState::Failed);
        assert!(
            cut.cut_off && cut.note.unwrap().contains("stopped in its midst; the next one makes it again")
        );
        // The same source, elsewhere by now.
        life.protection.remove_source(&name("db")).await.unwrap();
        let added = life.protection.add_source(name("db"), SourceOf::Nbd("nbd://h/x".into())).await;
        refused(added.unwrap_err(), Kind::AlreadyExists, "disk 'db.vda' exists already");
    });
}

/// Goal: a policy's copies go on beside it: no slot twice, one that comes while a copy goes on is passed over, and what is no longer kept goes.
#[test]
fn a_policy_copies_in_the_background() {
    let pool = Pool::new();
    pool.life(|life| {
        let pool = &pool;
        async move {
            let protection = &life.protection;
            let exporter = exported(&life, patterned(MIB, 1)).await;
            let asked = NewPolicy {
                every: "1h".to_owned(),
                zone: Some("UTC".to_owned()),
                keep: Some("last=1".to_owned()),
                ..NewPolicy::default()
            };
            protection.create_policy(name("hourly"), asked).await.unwrap();
            protection.apply_policy(&name("hourly"), &[name("db")]).await.unwrap();
            for runs in 1..=2 {
                exporter.after(Some((1, Then::Hang)));
                pool.clock.passes(HOUR);
                let round = protection.round().await.unwrap();
                assert_eq!(round.begun, [(name("hourly"), name("db"))]);
                assert_eq!(protection.round().await.unwrap(), Round::default(), "the slot is begun");
                while exporter.reads() <= 1 {
                    life.env.sleep(Duration::from_millis(1)).await;
                }
                pool.clock.passes(HOUR);
                assert_eq!(protection.round().await.unwrap().begun.len(), 1);
                // Until it has found that there is one already.
                life.env.sleep(Duration::from_millis(100)).await;
                exporter.after(None);
                let is_over = |run: &Run| run.state == RunState::Done;
                while !protection.runs(None).await.unwrap().iter().all(is_over) {
                    life.env.sleep(Duration::from_millis(1)).await;
                }
                while protection.points(None).await.unwrap().len() != 1 {
                    life.env.sleep(Duration::from_millis(1)).await;
                }
                assert_eq!(protection.runs(None).await.unwrap().len(), runs);
                exporter.change(|bytes| bytes[7] ^= 0xff);
            }
            let point = protection.points(None).await.unwrap().pop().unwrap().point;
            assert_eq!(point.policy, Some(name("hourly")));
        }
    });
}

/// Goal: where two policies of a source meet, or one comes while somebody's run goes on, each makes its point: the later one when the earlier has ended. None fails, and none
/// is made twice.
#[test]
fn policies_that_meet_on_a_source_have_their_turns() {
    let pool = Pool::new();
    pool.life(|life| {
        let pool = &pool;
        async move {
            let protection = &life.protection;
            let exporter = exported(&life, patterned(MIB, 1)).await;
            let asked = |every: &str| NewPolicy {
                every: every.to_owned(),
                zone: Some("UTC".to_owned()),
                ..NewPolicy::default()
            };
            let (db, hourly, nightly) = (name("db"), name("hourly"), name("nightly"));
            for (policy, every) in [(&hourly, "1h"), (&nightly, "3h")] {
                protection.create_policy(policy.clone(), asked(every)).await.unwrap();
                protection.apply_policy(policy, std::slice::from_ref(&db)).await.unwrap();
            }
            let points_of = async |policy: Option<&Name>| {
                let points = protection.points(None).await.unwrap();
                points.iter().filter(|status| status.point.policy.as_ref() == policy).count()
            };
            let until = async |policy: Option<&Name>, count: usize| {
                while points_of(policy).await < count {
                    life.env.sleep(Duration::from_millis(1)).await;
                }
            };
            // Both are due at 12:00.
            exporter.after(Some((1, Then::Hang)));
            pool.clock.passes(2 * HOUR);
            let begun = [(hourly.clone(), db.clone())];
            assert_eq!(protection.round().await.unwrap().begun, begun);
            for _ in 0..3 {
                assert_eq!(protection.round().await.unwrap(), Round::default(), "the other has it");
            }
            exporter.after(None);
            until(Some(&hourly), 1).await;
            let begun = [(nightly.clone(), db.clone())];
            while protection.round().await.unwrap().begun != begun {
                life.env.sleep(Duration::from_millis(1)).await;
            }
            until(Some(&nightly), 1).await;

            // Somebody's own is in the way.
            let before = exporter.reads();
            exporter.after(Some((1, Then::Hang)));
            let meanwhile = async {
                while exporter.reads() <= before + 1 {
                    life.env.sleep(Duration::from_millis(1)).await;
                }
                pool.clock.passes(HOUR);
                assert_eq!(protection.round().await.unwrap(), Round::default(), "somebody has it");
                exporter.after(None);
            };
            let (own, ()) = futures::join!(protection.back_up(&db, RunRequest::default()), meanwhile);
            own.unwrap();
            assert_eq!(protection.round().await.unwrap().begun, [(hourly.clone(), db.clone())]);
            until(Some(&hourly), 2).await;
            // A point is there a moment before its run is done.
            while protection.runs(None).await.unwrap().iter().any(|run| run.state == RunState::Running) {
                life.env.sleep(Duration::from_millis(1)).await;
            }
            let runs = protection.runs(None).await.unwrap();
            assert!(runs.len() == 4 && runs.iter().all(|run| run.state == RunState::Done), "{runs:?}");
            assert_eq!((points_of(Some(&hourly)).await, points_of(Some(&nightly)).await), (2, 1));
        }
    });
}

/// Goal: a copy that somebody asked for is made when its server is back, once it died in its midst; but not for ever, where servers die of it. Whoever
/// asks for another meanwhile waits.
#[test]
fn a_copy_that_ended_with_its_server_is_made_again() {
    let pool = Pool::new();
    // How often the server dies; then whether it is made.
    for (deaths, is_made) in [(1, true), (2, true), (3, false)] {
        let source = name(&format!("db-{deaths}"));
        let folder = tempfile::tempdir().unwrap();
        for death in 0..deaths {
            pool.life(|life| {
                let (source, folder) = (source.clone(), &folder);
                async move {
                    let exporter = Exporter::start_in(&life, folder, patterned(MIB, 1));
                    exporter.after(Some((1, Then::Hang)));
                    let protection = life.protection.clone();
                    if death == 0 {
                        let at = SourceOf::Nbd(exporter.uri().as_str().into());
                        protection.add_source(source.clone(), at).await.unwrap();
                        let full = RunRequest { full: true, ..RunRequest::default() };
                        life.env.spawn("run", async move {
                            let _ = protection.back_up(&source, full).await;
                        });
                    } else {
                        protection.go_on_copying().await;
                    }
                    while exporter.reads() <= 1 {
                        life.env.sleep(Duration::from_millis(1)).await;
                    }
                }
            });
        }
        pool.life(|life| {
            let (source, folder) = (&source, &folder);
            async move {
                let exporter = Exporter::start_in(&life, folder, patterned(MIB, 2));
                life.protection.clone().go_on_copying().await;
                let own = life.protection.back_up(source, RunRequest::default()).await.unwrap();
                let runs = life.protection.runs(Some(source)).await.unwrap();
                let (cut_off, made) = runs.split_at(deaths);
                assert!(cut_off.iter().all(|run| run.cut_off), "{runs:?}");
                let (last, again) = made.split_last().unwrap();
                assert_eq!((&last.name, again.len()), (&own.name, usize::from(is_made)), "{runs:?}");
                for run in again {
                    assert!(run.state == RunState::Done && run.copied.as_ref().unwrap().full, "{run:?}");
                    let disk = format!("{source}.vda@{}", run.name.stamp);
                    is_held(&life, &disk, &exporter.bytes(), "made again").await;
                }
                // Of what has ended well nothing is made again.
                life.protection.clone().go_on_copying().await;
                life.env.sleep(Duration::from_millis(50)).await;
                assert_eq!(life.protection.runs(Some(source)).await.unwrap().len(), runs.len());
            }
        });
    }
}

/// Goal: a slot that was over meanwhile is no hindrance to what is made again, nor that to the slot: both get their points.
#[test]
fn a_copy_is_made_again_and_then_what_is_due() {
    let pool = Pool::new();
    let (source, policy) = (name("db"), name("daily"));
    let folder = tempfile::tempdir().unwrap();
    pool.life(|life| {
        let (source, policy, folder, pool) = (source.clone(), &policy, &folder, &pool);
        async move {
            let exporter = Exporter::start_in(&life, folder, patterned(MIB, 1));
            exporter.after(Some((1, Then::Hang)));
            let protection = life.protection.clone();
            let at = SourceOf::Nbd(exporter.uri().as_str().into());
            protection.add_source(source.clone(), at).await.unwrap();
            let daily =
                NewPolicy { every: "1d".to_owned(), zone: Some("UTC".to_owned()), ..NewPolicy::default() };
            protection.create_policy(policy.clone(), daily).await.unwrap();
            protection.apply_policy(policy, std::slice::from_ref(&source)).await.unwrap();
            let full = RunRequest { full: true, ..RunRequest::default() };
            life.env.spawn("run", async move {
                let _ = protection.back_up(&source, full).await;
            });
            while exporter.reads() <= 1 {
                life.env.sleep(Duration::from_millis(1)).await;
            }
            pool.clock.passes(24 * HOUR);
        }
    });
    pool.life(|life| {
        let (source, policy, folder) = (&source, &policy, &folder);
        async move {
            let _exporter = Exporter::start_in(&life, folder, patterned(MIB, 2));
            life.protection.clone().go_on_copying().await;
            let round = life.protection.round().await.unwrap();
            assert_eq!(round.begun, [(policy.clone(), source.clone())]);
            let mut runs = Vec::new();
            for _ in 0..10_000 {
                runs = life.protection.runs(Some(source)).await.unwrap();
                if runs.len() == 3 && runs.iter().all(|run| run.ended.is_some()) {
                    break;
                }
                life.env.sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(runs.len(), 3, "{runs:?}");
            let (again, due) = (&runs[1], &runs[2]);
            assert!(
                runs[0].cut_off && again.slot.is_none() && again.copied.as_ref().unwrap().full,
                "{runs:?}"
            );
            assert!(due.slot.is_some(), "{runs:?}");
            assert!([again, due].iter().all(|run| run.state == RunState::Done), "{runs:?}");
        }
    });
}

/// Goal: what a policy's copy was begun for is made when its server is back, once it died in its midst; but not for ever, where servers die of it.
#[test]
fn a_policy_s_copy_that_ended_with_its_server_is_made_again() {
    let pool = Pool::new();
    let asked = || NewPolicy { every: "1d".to_owned(), zone: Some("UTC".to_owned()), ..NewPolicy::default() };
    // How often the server dies; then whether the slot is made yet.
    for (deaths, is_made) in [(1, true), (3, false)] {
        let policy = name(&format!("daily-{deaths}"));
        let source = name(&format!("db-{deaths}"));
        let folder = tempfile::tempdir().unwrap();
        for death in 0..deaths {
            pool.life(|life| {
                let (pool, policy, source, folder) = (&pool, &policy, &source, &folder);
                async move {
                    let exporter = Exporter::start_in(&life, folder, patterned(MIB, 1));
                    let at = SourceOf::Nbd(exporter.uri().as_str().into());
                    if death == 0 {
                        life.protection.add_source(source.clone(), at).await.unwrap();
                        life.protection.create_policy(policy.clone(), asked()).await.unwrap();
                        life.protection.apply_policy(policy, std::slice::from_ref(source)).await.unwrap();
                        pool.clock.passes(24 * HOUR);
                    }
                    exporter.after(Some((1, Then::Hang)));
                    let round = life.protection.round().await.unwrap();
                    assert_eq!(round.begun, [(policy.clone(), source.clone())], "after {death} deaths");
                    while exporter.reads() <= 1 {
                        life.env.sleep(Duration::from_millis(1)).await;
                    }
                }
            });
        }
        pool.life(|life| {
            let (policy, source) = (&policy, &source);
            async move {
                let round = life.protection.round().await.unwrap();
                let wanted = if is_made { vec![(policy.clone(), source.clone())] } else { Vec::new() };
                assert_eq!(round.begun, wanted, "after {deaths} deaths");
                let runs = life.protection.runs(Some(source)).await.unwrap();
                assert!(runs.iter().take(deaths).all(|run| run.cut_off), "{runs:?}");
                life.protection.remove_policy(policy).await.unwrap();
            }
        });
    }
}
