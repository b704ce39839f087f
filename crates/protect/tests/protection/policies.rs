//! Policies: what is due is made, once; what is no longer kept goes, and nothing else, whatever becomes of clocks, locks and the process.

use crate::life::{BEGINNING, DAY, ENDS, End, Ended, HOUR, Life, Pool, name};
use crate::machines::web;
use std::time::Duration;
use stonefold_protect::rounds::{self, Round};
use stonefold_protect::{NewPolicy, Plan, RUNS_MAX, RunRequest, RunState, SourceOf, Verdict};
use stonefold_types::{Error, Kind, PointName};

pub(crate) const HOURLY: &str = "hourly";

pub(crate) fn asked(every: &str, keep: Option<&str>) -> NewPolicy {
    NewPolicy {
        every: every.to_owned(),
        zone: Some("UTC".to_owned()),
        keep: keep.map(str::to_owned),
        ..NewPolicy::default()
    }
}

/// Machine and source `web`, and a policy `hourly` that is applied to it.
pub(crate) async fn begin(life: &Life, asked: NewPolicy) {
    web(life, None).await;
    life.protection.add_source(name("web"), SourceOf::Machine(name("web"))).await.unwrap();
    life.protection.create_policy(name(HOURLY), asked).await.unwrap();
    life.protection.apply_policy(&name(HOURLY), &[name("web")]).await.unwrap();
}

pub(crate) async fn round(life: &Life) -> Round {
    life.protection.round().await.unwrap()
}

pub(crate) async fn plan(life: &Life) -> Plan {
    life.protection.plan(&name(HOURLY)).await.unwrap()
}

/// The hours of the points there are, counted from midnight of the first day.
pub(crate) async fn hours(life: &Life) -> Vec<u64> {
    let points = life.protection.points(None).await.unwrap();
    assert_eq!(life.snapshots().len(), 2 * points.len(), "leftovers");
    let midnight = BEGINNING / DAY * DAY;
    points.iter().map(|status| (status.point.taken - midnight) / HOUR).collect()
}

/// Lets an hour pass and makes a round, so often.
pub(crate) async fn hours_pass(pool: &Pool, life: &Life, count: u64) -> Vec<PointName> {
    let mut removed = Vec::new();
    for _ in 0..count {
        pool.clock.passes(HOUR);
        removed.extend(round(life).await.removed);
    }
    removed
}

pub(crate) fn refused(error: Error, kind: Kind, words: &str) {
    assert!(error.kind() == kind && error.to_string().contains(words), "{error:?}");
}

/// Goal: a run for each slot, none before the first, and none twice, also over a restart; what is no longer kept goes, and what somebody
/// asked for himself stays.
#[test]
fn runs_are_made_when_they_are_due() {
    let pool = Pool::new();
    pool.life(|life| {
        let pool = &pool;
        async move {
            begin(&life, asked("1h", Some("last=2"))).await;
            assert_eq!(round(&life).await, Round::default(), "applied at 10:30");
            let by_hand = life.protection.back_up(&name("web"), RunRequest::default()).await.unwrap();
            assert_eq!((by_hand.slot, by_hand.lock_until), (None, None));
            pool.clock.passes(HOUR / 2);
            let first = round(&life).await;
            assert_eq!((first.done.len(), first.removed.len()), (1, 0));
            let run = life.protection.run(&first.done[0]).await.unwrap();
            assert_eq!(run.slot.unwrap().at, BEGINNING + HOUR / 2);
            assert_eq!(round(&life).await, Round::default(), "once");
            assert_eq!(hours_pass(pool, &life, 1).await, []);
            assert_eq!(hours(&life).await, [10, 11, 12]);
        }
    });
    pool.ends(End::Undone);
    pool.life(|life| {
        let pool = &pool;
        async move {
            assert_eq!(round(&life).await, Round::default(), "the slot stands in the run");
            assert_eq!(hours_pass(pool, &life, 1).await.len(), 1);
            assert_eq!(hours(&life).await, [10, 12, 13]);
            let next = plan(&life).await.next;
            assert_eq!(next, [(name("web"), BEGINNING + 3 * HOUR + HOUR / 2)]);
        }
    });
}

/// Goal: however many slots were missed, while the server was down or behind, one run makes up for them.
#[test]
fn what_was_missed_is_caught_up_once() {
    let pool = Pool::new();
    pool.life(|life| async move { begin(&life, asked("1h", None)).await });
    pool.clock.passes(7 * HOUR);
    pool.life(|life| {
        let pool = &pool;
        async move {
            let caught_up = round(&life).await;
            assert_eq!(caught_up.done.len(), 1);
            assert_eq!(round(&life).await, Round::default());
            assert_eq!(hours(&life).await, [17]);
            let run = life.protection.run(&caught_up.done[0]).await.unwrap();
            assert_eq!(run.slot.unwrap().at, BEGINNING + 6 * HOUR + HOUR / 2, "the newest that was over");
            assert_eq!(hours_pass(pool, &life, 1).await, [], "nothing is said of what stays");
            assert_eq!(hours(&life).await, [17, 18]);
            assert_eq!(plan(&life).await.points[0].verdict, Verdict::All);
        }
    });
}

/// Goal: a clock that jumps, while the server runs or over a restart, makes nothing due and removes nothing, until it is confirmed; then
/// one run is made, and the counts hold.
#[test]
fn a_clock_that_jumps_removes_nothing() {
    let pool = Pool::new();
    pool.life(|life| {
        let pool = &pool;
        async move {
            begin(&life, asked("1h", Some("last=3"))).await;
            hours_pass(pool, &life, 3).await;
            // Another policy's worth of points, so that something would go.
            life.protection.remove_policy(&name(HOURLY)).await.unwrap();
            life.protection.create_policy(name(HOURLY), asked("1h", Some("last=1"))).await.unwrap();
            life.protection.apply_policy(&name(HOURLY), &[name("web")]).await.unwrap();
            pool.clock.jumps(400 * DAY);
            assert!(life.store.time().in_doubt);
            assert_eq!(round(&life).await, Round::default());
            let told = plan(&life).await;
            assert!(told.in_doubt && told.points[0].verdict == Verdict::InDoubt, "{told:?}");
            // Runs go on by trusted time, and still nothing goes.
            let passed = hours_pass(pool, &life, 1).await;
            assert_eq!((passed.len(), hours(&life).await), (0, vec![11, 12, 13, 14]));
            life.store.close().await.unwrap();
        }
    });
    pool.life(|life| {
        let pool = &pool;
        async move {
            assert!(life.store.time().in_doubt, "over a restart, too");
            hours_pass(pool, &life, 1).await;
            assert_eq!(hours(&life).await, [11, 12, 13, 14, 15]);
            life.store.confirm_time().await.unwrap();
            let confirmed = round(&life).await;
            assert_eq!((confirmed.done.len(), confirmed.removed.len()), (1, 5), "four hundred days, one run");
            assert_eq!(hours(&life).await, [400 * 24 + 15]);
        }
    });
}

/// Goal: a clock that was ahead for some days, by less than is doubted, and is set right stops no runs, and the points that were made
/// meanwhile do not drive out those that are made after.
#[test]
fn a_clock_that_is_set_back_stops_nothing() {
    let pool = Pool::new();
    pool.life(|life| {
        let pool = &pool;
        async move {
            begin(&life, asked("1h", Some("last=2"))).await;
            hours_pass(pool, &life, 2).await;
            life.store.close().await.unwrap();
        }
    });
    pool.clock.jumps(5 * DAY);
    pool.life(|life| {
        let pool = &pool;
        async move {
            hours_pass(pool, &life, 2).await;
            assert_eq!(hours(&life).await, [5 * 24 + 13, 5 * 24 + 14], "believed");
            pool.clock.is_set_right();
            life.store.confirm_time().await.unwrap();
            assert_eq!(round(&life).await, Round::default(), "its last slot lies ahead");
            hours_pass(pool, &life, 3).await;
            assert_eq!(hours(&life).await, [16, 17]);
        }
    });
}

/// Goal: what is locked stays, whatever the policy says; when the lock is over it goes with the next run.
#[test]
fn a_lock_holds_against_retention() {
    let pool = Pool::new();
    pool.life(|life| {
        let pool = &pool;
        async move {
            let locked = NewPolicy { lock_seconds: Some(5 * 3600), ..asked("1h", Some("last=1")) };
            begin(&life, locked).await;
            assert_eq!(hours_pass(pool, &life, 3).await, []);
            let points = life.protection.points(None).await.unwrap();
            assert!(
                points.iter().all(|one| one.locked_until == Some(one.point.taken + 5 * HOUR)),
                "{points:?}"
            );
            let told = plan(&life).await;
            assert_eq!(told.points[0].verdict, Verdict::Locked(points[0].point.taken + 5 * HOUR));
            assert_eq!((told.freed.unwrap().blocks, told.unknown), (0, None));
            let by_hand = life.protection.remove_point(&points[0].point.name).await.unwrap_err();
            refused(by_hand, Kind::Locked, "is locked until");
            assert_eq!(hours_pass(pool, &life, 3).await.len(), 1, "the first lock is over");
            assert_eq!(hours(&life).await, [12, 13, 14, 15, 16]);
        }
    });
}

/// Goal: a source that fails says so in its run, and the others are backed up.
#[test]
fn a_source_that_fails_stops_no_other() {
    let pool = Pool::new();
    pool.life(|life| {
        let pool = &pool;
        async move {
            begin(&life, asked("1h", None)).await;
            life.create("lone").await;
            let lone =
                stonefold_protect::NewMachine { name: name("a"), disks: vec![name("lone")], hardware: None };
            life.protection.add_machine(lone).await.unwrap();
            life.protection.add_source(name("a"), SourceOf::Machine(name("a"))).await.unwrap();
            life.protection.apply_policy(&name(HOURLY), &[name("a"), name("web")]).await.unwrap();
            life.store.remove_disk(&name("lone")).await.unwrap();
            pool.clock.passes(HOUR);
            let done = round(&life).await;
            assert_eq!(done.failed, [(name(HOURLY), name("a"))]);
            assert_eq!(done.done.len(), 1);
            let runs = life.protection.runs(Some(&name("a"))).await.unwrap();
            assert!(runs.len() == 1 && runs[0].state == RunState::Failed, "{runs:?}");
            assert!(runs[0].note.as_ref().unwrap().contains("disk 'lone' does not exist"), "{runs:?}");
            assert_eq!(round(&life).await, Round::default(), "the next is for the next slot");
            pool.clock.passes(HOUR);
            assert_eq!(round(&life).await.failed.len(), 1);
        }
    });
}

/// Goal: wherever a round is cut off, a run or a removal of it, the next server ends it: points are whole and locked as their policy
/// says, no slot is made twice, and in the end there is what the policy keeps.
#[test]
fn a_round_that_is_cut_off_is_gone_on_with() {
    for end in ENDS {
        for steps in 0.. {
            let pool = Pool::new();
            let (is_whole, before) = pool.life(|life| {
                let pool = &pool;
                async move {
                    let locked = NewPolicy { lock_seconds: Some(1800), ..asked("1h", Some("last=3")) };
                    begin(&life, locked).await;
                    hours_pass(pool, &life, 3).await;
                    life.protection.remove_policy(&name(HOURLY)).await.unwrap();
                    let locked = NewPolicy { lock_seconds: Some(1800), ..asked("1h", Some("last=1")) };
                    life.protection.create_policy(name(HOURLY), locked).await.unwrap();
                    life.protection.apply_policy(&name(HOURLY), &[name("web")]).await.unwrap();
                    pool.clock.passes(HOUR);
                    let protection = life.protection.clone();
                    let work = async move {
                        let round = protection.round().await?;
                        let is_whole = round.removed.len() == 3;
                        is_whole.then_some(()).ok_or_else(|| Error::new(Kind::Io, "cut"))
                    };
                    (matches!(life.cut_after(steps, work).await, Ended::Whole(())), hours_of_store(&life))
                }
            });
            pool.ends(end);
            let when = format!("{end:?} after {steps} steps, {before} snapshots there");
            pool.life(|life| {
                let pool = &pool;
                let when = &when;
                async move {
                    for status in life.protection.points(None).await.unwrap() {
                        let age = life.store.time().trusted - status.point.taken;
                        assert!(status.missing.is_empty() && !status.point.removing, "{when}: {status:?}");
                        assert!(age > HOUR / 2 || status.locked_until.is_some(), "{when}: {status:?}");
                    }
                    round(&life).await;
                    let runs = life.protection.runs(None).await.unwrap();
                    let mut slots: Vec<_> = runs.iter().map(|run| run.slot.clone().unwrap().at).collect();
                    slots.dedup();
                    assert_eq!(slots.len(), runs.len(), "{when}: a slot twice");
                    hours_pass(pool, &life, 1).await;
                    assert_eq!(hours(&life).await, [15], "{when}");
                }
            });
            if is_whole {
                break;
            }
        }
    }
}

fn hours_of_store(life: &Life) -> usize {
    life.snapshots().len()
}

/// Goal: what is planned is what is done, and its bytes are what comes back.
#[test]
fn a_plan_is_what_is_done() {
    let pool = Pool::new();
    pool.life(|life| {
        let pool = &pool;
        async move {
            begin(&life, asked("1h", Some("last=6"))).await;
            for byte in 0..6 {
                life.write("root", 40 + byte).await;
                hours_pass(pool, &life, 1).await;
            }
            life.protection.remove_policy(&name(HOURLY)).await.unwrap();
            life.protection.create_policy(name(HOURLY), asked("1h", Some("last=2"))).await.unwrap();
            life.protection.apply_policy(&name(HOURLY), &[name("web")]).await.unwrap();
            life.write("root", 50).await;
            life.store.reclaim().await.unwrap();
            let told = plan(&life).await;
            let going: Vec<_> = told.points.iter().filter(|one| one.verdict == Verdict::Goes).collect();
            assert!(going.iter().all(|one| one.freed.unwrap().blocks > 0), "{told:?}");
            let total: u64 = going.iter().map(|one| one.freed.unwrap().bytes).sum();
            assert_eq!((going.len(), told.freed.unwrap().bytes), (4, total));
            assert!(matches!(&told.points[5].verdict, Verdict::Kept(why) if why.len() == 1));
            for planned in going {
                life.protection.remove_point(&planned.point).await.unwrap();
            }
            let back = life.store.reclaim().await.unwrap();
            assert_eq!(back.dead_blocks, told.freed.unwrap().blocks);
            assert_eq!(hours_pass(pool, &life, 1).await, [told.points[4].point.clone()]);
        }
    });
}

/// Goal: what cannot be is refused, says why, and changes nothing.
#[test]
fn what_cannot_be_done_is_refused() {
    Pool::new().life(|life| async move {
        begin(&life, asked("1h", Some("daily=3"))).await;
        let protection = &life.protection;
        let create = |asked: NewPolicy| protection.create_policy(name("other"), asked);
        refused(create(asked("7h", None)).await.unwrap_err(), Kind::Invalid, "'7h' does not say how often");
        refused(create(asked("1h", Some("dayly=3"))).await.unwrap_err(), Kind::Invalid, "'dayly=3'");
        let zone = NewPolicy { zone: Some("Berlin".into()), ..asked("1d", None) };
        refused(create(zone).await.unwrap_err(), Kind::Invalid, "time zone 'Berlin'");
        let lock = NewPolicy { lock_seconds: Some(u64::MAX), ..asked("1d", None) };
        refused(create(lock).await.unwrap_err(), Kind::Invalid, "ten years");
        let twice = protection.create_policy(name(HOURLY), asked("1h", None)).await.unwrap_err();
        refused(twice, Kind::AlreadyExists, "policy 'hourly'");
        let unknown = protection.apply_policy(&name(HOURLY), &[name("web"), name("x")]).await.unwrap_err();
        refused(unknown, Kind::NotFound, "source 'x'");
        refused(protection.plan(&name("none")).await.unwrap_err(), Kind::NotFound, "policy ls");
        refused(protection.remove_policy(&name("none")).await.unwrap_err(), Kind::NotFound, "policy 'none'");
        refused(protection.remove_source(&name("web")).await.unwrap_err(), Kind::Busy, "--remove");
        let withdrawn = protection.withdraw_policy(&name(HOURLY), &[name("web"), name("x")]).await;
        refused(withdrawn.unwrap_err(), Kind::NotFound, "not applied to source 'x'");
        assert!(protection.policy(&name(HOURLY)).await.unwrap().since(&name("web")).is_some());
        protection.withdraw_policy(&name(HOURLY), &[name("web")]).await.unwrap();
        assert_eq!(protection.remove_source(&name("web")).await.unwrap(), 0);
    });
}

/// Goal: two thousand points of one policy are judged, and their bytes told, in good time; and go at once when they are to.
#[test]
fn two_thousand_points_are_planned_in_good_time() {
    const POINTS: u64 = 2000;
    let pool = Pool::new();
    pool.life(|life| {
        let pool = &pool;
        async move {
            begin(&life, asked("15m", None)).await;
            // It is remembered what was done for this one, whatever the other does.
            let yearly = NewPolicy { at: Some("11-23 10:45".to_owned()), ..asked("1y", None) };
            life.protection.create_policy(name("yearly"), yearly).await.unwrap();
            life.protection.apply_policy(&name("yearly"), &[name("web")]).await.unwrap();
            for _ in 0..POINTS {
                pool.clock.passes(HOUR / 4);
                assert!(!round(&life).await.done.is_empty());
            }
            assert_eq!(life.protection.runs(None).await.unwrap().len(), RUNS_MAX + 1);
            life.protection.remove_policy(&name(HOURLY)).await.unwrap();
            life.protection.create_policy(name(HOURLY), asked("15m", Some("daily=7"))).await.unwrap();
            life.protection.apply_policy(&name(HOURLY), &[name("web")]).await.unwrap();
            let began = life.env.monotonic();
            let told = plan(&life).await;
            let took = life.env.monotonic() - began;
            let going = told.points.iter().filter(|one| one.verdict == Verdict::Goes && one.freed.is_some());
            assert_eq!((told.points.len(), going.count()), (POINTS as usize, POINTS as usize - 7));
            assert!(took < Duration::from_secs(10), "planned in {took:?}");
            life.store.close().await.unwrap();
        }
    });
    pool.life(|life| {
        let pool = &pool;
        async move {
            round(&life).await;
            let runs = life.protection.runs(None).await.unwrap();
            let is_yearly =
                |run: &&stonefold_protect::Run| run.slot.as_ref().unwrap().policy == name("yearly");
            assert_eq!(runs.iter().filter(is_yearly).count(), 1, "once a year, over a restart, too");
            pool.clock.passes(HOUR / 4);
            let done = round(&life).await;
            assert_eq!((done.done.len(), done.removed.len()), (1, POINTS as usize + 1 - 7));
            let left = life.protection.points(None).await.unwrap();
            let is_hourly =
                |status: &&stonefold_protect::PointStatus| status.point.policy == Some(name(HOURLY));
            assert_eq!(left.iter().filter(is_hourly).count(), 7);
        }
    });
}

/// Goal: the task that a server has makes rounds by itself, is told when something may be due, and ends with its store.
#[test]
fn the_task_makes_rounds_and_ends() {
    let pool = Pool::new();
    pool.life(|life| {
        let pool = &pool;
        async move {
            begin(&life, asked("1h", None)).await;
            let task = rounds::keep(life.env.clone(), std::sync::Arc::downgrade(&life.protection));
            life.env.spawn("policies", task);
            pool.clock.passes(HOUR);
            // Nothing but this tells it that time has passed.
            life.protection.apply_policy(&name(HOURLY), &[name("web")]).await.unwrap();
            while life.protection.points(None).await.unwrap().is_empty() {
                life.env.sleep(Duration::from_millis(5)).await;
            }
            life.store.close().await.unwrap();
            // One that begins now ends now.
            rounds::keep(life.env.clone(), std::sync::Arc::downgrade(&life.protection)).await;
        }
    });
}
