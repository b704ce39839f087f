//! Replication: what another pool has of a policy's points is what was sent, whole, whatever is cut off, and comes back with the first pool gone.

use crate::life::{DAY, ENDS, End, Ended, HOUR, Life, Opener, Pool, name};
use crate::policies::{HOURLY, asked, begin, hours_pass, refused};
use futures::FutureExt;
use parking_lot::Mutex;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use stonefold_protect::domain::{Network, Reach};
use stonefold_protect::{
    NewMachine, NewPolicy, Outcome, RecoverRequest, ReplicaStatus, Run, RunRequest, RunState, SourceOf,
    Verdict,
};
use stonefold_store::{DomainPolicy, DomainState};
use stonefold_types::{DiskSettings, Kind, Result};

const URL: &str = "test:there";
const ROOT: &str = "root";
const DATA: &str = "data";

/// Machine, source and policy, whose points go to the other pool; its disks hold 1 and 2.
async fn begin_here(life: &Life, asked: NewPolicy) {
    begin(life, asked).await;
    life.protection.replicate_policy(&name(HOURLY), Some(URL.to_owned())).await.unwrap();
}

async fn replicate(life: &Life) -> Result<Vec<Run>> {
    life.protection.replicate(&name(HOURLY)).await
}

/// What comes of it, unless that takes so many seconds: a medium that fails may be waited for without end.
async fn within<T>(life: &Life, seconds: u64, what: impl Future<Output = T>) -> Option<T> {
    let mut what = std::pin::pin!(what.fuse());
    let mut patience = life.env.sleep(Duration::from_secs(seconds)).fuse();
    futures::select_biased! {
        done = what => Some(done),
        () = patience => None,
    }
}

async fn status(life: &Life) -> ReplicaStatus {
    let policy = life.protection.policy(&name(HOURLY)).await.unwrap();
    life.protection.replicas(&policy).await.unwrap().remove(0)
}

/// Of each point that the other pool has, what its disks begin with; every snapshot is a point's.
async fn held(life: &Life) -> Vec<(u8, u8)> {
    let points = life.protection.points(None).await.unwrap();
    assert!(points.iter().all(|point| point.missing.is_empty()));
    assert_eq!(life.snapshots().len(), 2 * points.len(), "leftovers");
    let runs = life.protection.runs(None).await.unwrap();
    assert!(runs.iter().all(|run| run.state != RunState::Running), "{runs:?}");
    let mut held = Vec::new();
    for point in points {
        let point = &point.point;
        let of = async |at: usize| life.read(&point.snapshot_of(&point.disks[at]).to_string()).await;
        held.push((of(0).await, of(1).await));
    }
    held
}

/// Goal: the other pool has each point as it was, with what is known of it; only what differs is read and written; it comes back there with the
/// first pool gone.
#[test]
fn points_come_back_from_the_other_pool() {
    let here = Pool::new();
    let there = Pool::beside(&here);
    let sent = here.life(|life| {
        let (here, there) = (&here, &there);
        async move {
            begin_here(&life, asked("1h", None)).await;
            there.opener(&life, false);
            assert_eq!((status(&life).await.behind, status(&life).await.newest), (0, None));
            hours_pass(here, &life, 1).await;
            assert_eq!(status(&life).await.behind, 1);
            let first = replicate(&life).await.unwrap();
            assert_eq!((first.len(), first[0].copied.as_ref().unwrap().written_bytes), (1, 2 * 4096));
            life.write(DATA, 3).await;
            hours_pass(here, &life, 2).await;
            let more = replicate(&life).await.unwrap();
            let copied: Vec<_> = more.iter().map(|run| run.copied.clone().unwrap()).collect();
            let figures = |at: usize| (copied[at].read_bytes, copied[at].written_bytes);
            assert_eq!((more.len(), figures(0), figures(1)), (2, (4096, 4096), (0, 0)), "{copied:?}");
            assert!(copied.iter().all(|copied| copied.notes.is_empty()), "{copied:?}");
            let known = status(&life).await;
            assert_eq!((known.behind, known.newest.as_ref(), known.failed), (0, Some(&more[1].name), None));
            assert!(known.lag_seconds < 5, "{}", known.lag_seconds);
            here.clock.passes(HOUR / 4);
            assert!((900..910).contains(&status(&life).await.lag_seconds));
            assert!(replicate(&life).await.unwrap().is_empty(), "all of it is there");
            life.protection.points(None).await.unwrap()
        }
    });
    drop(here);
    there.life(|life| async move {
        assert_eq!(held(&life).await, [(1, 2), (1, 3), (1, 3)]);
        let arrived = life.protection.points(None).await.unwrap();
        for (sent, arrived) in sent.iter().zip(&arrived) {
            let (sent, arrived) = (&sent.point, &arrived.point);
            assert_eq!(
                (&sent.name, sent.taken, &sent.hardware),
                (&arrived.name, arrived.taken, &arrived.hardware)
            );
            assert_eq!((&sent.machine, &sent.policy), (&arrived.machine, &arrived.policy));
        }
        let recovered = RecoverRequest {
            point: arrived[0].point.name.clone(),
            name: name("again"),
            qos: None,
            reach: Reach::Socket("/run/nbd.sock".into()),
            network: Network::Same,
            dry_run: false,
        };
        life.protection.recover(recovered).await.unwrap();
        assert_eq!((life.read("again.vda").await, life.read("again.vdb").await), (1, 2));
        let error = life.protection.back_up(&name("web"), Default::default()).await.unwrap_err();
        refused(error, Kind::Invalid, "sent by another pool");
    });
}

/// Goal: whatever is cut off, at any step of the other pool's medium, by a kill or a loss of power: what is there is whole, and the next attempt sends the rest.
#[test]
fn what_is_cut_off_goes_on() {
    for end in ENDS {
        let mut whole = false;
        for steps in (0..400).step_by(2) {
            let here = Pool::new();
            let there = Pool::beside(&here);
            whole = here.life(|life| {
                let (here, there) = (&here, &there);
                async move {
                    begin_here(&life, asked("1h", None)).await;
                    hours_pass(here, &life, 1).await;
                    life.write(ROOT, 4).await;
                    hours_pass(here, &life, 1).await;
                    let opener = there.opener(&life, false);
                    opener.fail_after(steps);
                    let done = within(&life, 3, replicate(&life)).await;
                    matches!(done, Some(Ok(_))) && opener.is_well()
                }
            });
            there.ends(end);
            there.life(|life| async move {
                let found = held(&life).await;
                let all = [(1, 2), (4, 2)];
                assert!(all.starts_with(&found), "{end:?} after {steps}: {found:?}");
            });
            here.life(|life| {
                let there = &there;
                async move {
                    there.opener(&life, true);
                    replicate(&life).await.unwrap();
                    assert_eq!(status(&life).await.behind, 0);
                }
            });
            there.life(|life| async move {
                assert_eq!(held(&life).await, [(1, 2), (4, 2)], "{end:?} after {steps}");
            });
            if whole {
                break;
            }
        }
        assert!(whole, "{end:?}: there are more steps");
    }
}

/// Goal: the same where the first pool's medium fails, and its server ends with it.
#[test]
fn a_server_that_ends_in_the_midst_goes_on() {
    let mut steps = 0;
    loop {
        let here = Pool::new();
        let there = Pool::beside(&here);
        let ended = here.life(|life| {
            let (here, there) = (&here, &there);
            async move {
                begin_here(&life, asked("1h", None)).await;
                hours_pass(here, &life, 2).await;
                there.opener(&life, false);
                life.cut_after(steps, replicate(&life)).await
            }
        });
        here.ends(End::Undone);
        there.ends(End::Undone);
        here.life(|life| {
            let there = &there;
            async move {
                there.opener(&life, true);
                replicate(&life).await.unwrap();
                let known = status(&life).await;
                assert_eq!((known.behind, known.failed), (0, None));
            }
        });
        there.life(|life| async move { assert_eq!(held(&life).await, [(1, 2), (1, 2)], "after {steps}") });
        if matches!(ended, Ended::Whole(_)) {
            break;
        }
        steps += 1;
        assert!(steps < 200, "there are more steps");
    }
}

/// Goal: what the policy does not keep goes there, too, but for what is locked; what the next one is told from stays here until that is there.
#[test]
fn the_other_pool_keeps_what_the_policy_keeps() {
    let here = Pool::new();
    let there = Pool::beside(&here);
    here.life(|life| {
        let (here, there) = (&here, &there);
        async move {
            begin_here(&life, asked("1h", Some("last=1"))).await;
            there.opener(&life, false);
            for hour in 0..4 {
                life.write(DATA, 10 + hour).await;
                hours_pass(here, &life, 1).await;
                let runs = replicate(&life).await.unwrap();
                let copied = runs[0].copied.as_ref().unwrap();
                assert!(copied.notes.is_empty() && copied.read_bytes <= 2 * 4096, "{copied:?}");
            }
            assert_eq!(
                life.protection.points(None).await.unwrap().len(),
                2,
                "the last, and what the next is told from"
            );
            hours_pass(here, &life, 1).await;
            let plan = life.protection.plan(&name(HOURLY)).await.unwrap();
            assert_eq!(plan.points[0].verdict, Verdict::Sent, "{:?}", plan.points);
            // While it is paused nothing goes there either.
            life.protection.pause_policy(&name(HOURLY), true).await.unwrap();
            assert_eq!(replicate(&life).await.unwrap().len(), 1);
        }
    });
    there.life(|life| async move { assert_eq!(held(&life).await, [(1, 13), (1, 13)]) });

    // Locked, as they are here.
    let here = Pool::new();
    let there = Pool::beside(&here);
    here.life(|life| {
        let (here, there) = (&here, &there);
        async move {
            let locking = NewPolicy { lock_seconds: Some(14 * 86_400), ..asked("1h", Some("last=1")) };
            begin_here(&life, locking).await;
            there.opener(&life, false);
            for _ in 0..3 {
                hours_pass(here, &life, 1).await;
                replicate(&life).await.unwrap();
            }
        }
    });
    there.life(|life| async move {
        let points = life.protection.points(None).await.unwrap();
        assert_eq!(points.len(), 3);
        let error = life.protection.remove_point(&points[0].point.name).await.unwrap_err();
        refused(error, Kind::Locked, "locked until");
    });
}

/// Goal: a pool that is open for minutes each day is not in doubt of the time that this one has lived through; and while this one is in doubt, nothing goes there.
#[test]
fn the_time_of_the_pool_that_sends_vouches() {
    let here = Pool::new();
    let there = Pool::beside(&here);
    here.life(|life| {
        let (here, there) = (&here, &there);
        async move {
            begin_here(&life, asked("1d", Some("last=1"))).await;
            there.opener(&life, false);
            for _ in 0..20 {
                here.clock.passes(DAY);
                life.protection.round().await.unwrap();
                replicate(&life).await.unwrap();
            }
            here.clock.jumps(400 * DAY);
            let by_hand = RunRequest::default();
            life.protection.back_up(&name("web"), by_hand).await.unwrap();
            let refusal = replicate(&life).await.unwrap_err();
            refused(refusal, Kind::Denied, "in doubt");
            here.clock.is_set_right();
        }
    });
    there.life(|life| async move {
        assert_eq!(held(&life).await.len(), 1);
        assert!(!life.store.time().in_doubt);
    });
}

/// Machine and source `vault` of a disk in a domain, sealed or not, and the policy of it.
async fn vault(life: &Life, sealed: bool) {
    let bank = name("bank");
    life.store.create_domain(&bank, DomainPolicy::default(), sealed).await.unwrap();
    life.store.create_disk_in(&bank, &name("safe"), 1 << 20, DiskSettings::default()).await.unwrap();
    life.write("safe", 5).await;
    begin_here(life, asked("1h", None)).await;
    let vault = NewMachine { name: name("vault"), disks: vec![name("safe")], hardware: None };
    life.protection.add_machine(vault).await.unwrap();
    life.protection.add_source(name("vault"), SourceOf::Machine(name("vault"))).await.unwrap();
    life.protection.apply_policy(&name(HOURLY), &[name("vault")]).await.unwrap();
}

/// Goal: what is encrypted here is never there in the clear, not even where a disk of its name is there already; a source beside it is sent all the same.
#[test]
fn what_is_encrypted_needs_a_domain_of_its_own_there() {
    let here = Pool::new();
    let there = Pool::beside(&here);
    here.life(|life| {
        let (here, there) = (&here, &there);
        async move {
            vault(&life, true).await;
            hours_pass(here, &life, 1).await;
            there.opener(&life, false);
            refused(replicate(&life).await.unwrap_err(), Kind::Denied, "is encrypted, in domain 'bank'");
            let policy = life.protection.policy(&name(HOURLY)).await.unwrap();
            let behind: Vec<u64> =
                life.protection.replicas(&policy).await.unwrap().iter().map(|one| one.behind).collect();
            assert_eq!(behind, [1, 0], "vault, web");
        }
    });
    there.life(|life| async move {
        assert_eq!(life.protection.points(None).await.unwrap().len(), 1);
        assert!(life.store.disk(&name("vault.vda")).is_err());
        life.store.create_domain(&name("bank"), DomainPolicy::default(), true).await.unwrap();
    });
    here.life(|life| {
        let there = &there;
        async move {
            there.opener(&life, true);
            assert_eq!(replicate(&life).await.unwrap().len(), 1);
        }
    });
    there.life(|life| async move {
        let disk = life.store.disk(&name("vault.vda")).unwrap();
        assert_eq!((disk.domain.as_str(), disk.domain_state), ("bank", DomainState::Open));
    });

    // First plain; then another disk, which is sealed, takes its place.
    let here = Pool::new();
    let there = Pool::beside(&here);
    here.life(|life| {
        let (here, there) = (&here, &there);
        async move {
            vault(&life, false).await;
            hours_pass(here, &life, 1).await;
            there.opener(&life, false);
            assert_eq!(replicate(&life).await.unwrap().len(), 2);
            let sealed = name("sealed");
            life.store.create_domain(&sealed, DomainPolicy::default(), true).await.unwrap();
            life.store.create_disk_in(&sealed, &name("new"), 1 << 20, DiskSettings::default()).await.unwrap();
            life.protection.withdraw_policy(&name(HOURLY), &[name("vault")]).await.unwrap();
            life.protection.remove_source(&name("vault")).await.unwrap();
            life.protection.remove_machine(&name("vault")).await.unwrap();
            let vault = NewMachine { name: name("vault"), disks: vec![name("new")], hardware: None };
            life.protection.add_machine(vault).await.unwrap();
            life.protection.add_source(name("vault"), SourceOf::Machine(name("vault"))).await.unwrap();
            life.protection.apply_policy(&name(HOURLY), &[name("vault")]).await.unwrap();
            hours_pass(here, &life, 1).await;
            refused(replicate(&life).await.unwrap_err(), Kind::Denied, "in domain 'sealed'");
        }
    });
    there.life(|life| async move {
        let disk = life.store.disk(&name("vault.vda")).unwrap();
        assert_eq!((disk.domain.as_str(), life.read("vault.vda").await), ("default", 5));
    });
}

/// Goal: another's source is left alone, with its points, also when there is nothing to send; and a pool that was there before is not made anew.
#[test]
fn what_cannot_be_is_refused_and_told() {
    let here = Pool::new();
    let there = Pool::beside(&here);
    there.life(|life| {
        let there = &there;
        async move {
            begin(&life, asked("1h", None)).await;
            hours_pass(there, &life, 3).await;
        }
    });
    here.life(|life| {
        let (here, there) = (&here, &there);
        async move {
            begin_here(&life, asked("1h", Some("last=1"))).await;
            let error = replicate(&life).await.unwrap_err();
            refused(error, Kind::Unsupported, "opens no other pools");
            there.opener(&life, true);
            // There is nothing to send yet.
            refused(replicate(&life).await.unwrap_err(), Kind::AlreadyExists, "none of this pool's");
            hours_pass(here, &life, 1).await;
            refused(replicate(&life).await.unwrap_err(), Kind::AlreadyExists, "none of this pool's");
            assert_eq!(status(&life).await.behind, 1);
            let known = status(&life).await;
            assert!(known.failed.unwrap().contains("none of this pool's"));
            life.protection.replicate_policy(&name(HOURLY), None).await.unwrap();
            refused(replicate(&life).await.unwrap_err(), Kind::Invalid, "names no other pool");
        }
    });
    there.life(|life| async move {
        assert_eq!(held(&life).await.len(), 3);
        // Nobody's, they are not built on either.
        let (policy, source) = (name(HOURLY), name("web"));
        life.protection.withdraw_policy(&policy, std::slice::from_ref(&source)).await.unwrap();
        life.protection.remove_source(&source).await.unwrap();
    });
    here.life(|life| {
        let there = &there;
        async move {
            there.opener(&life, true);
            life.protection.replicate_policy(&name(HOURLY), Some(URL.to_owned())).await.unwrap();
            refused(replicate(&life).await.unwrap_err(), Kind::AlreadyExists, "not there any more");
        }
    });
    there.life(|life| async move { assert_eq!(held(&life).await.len(), 3) });
    let here = Pool::new();
    here.life(|life| {
        let here = &here;
        async move {
            begin_here(&life, asked("1h", None)).await;
            hours_pass(here, &life, 1).await;
            let gone = Pool::beside(here);
            let opener: Arc<Opener> = gone.opener(&life, false);
            replicate(&life).await.unwrap();
            assert_eq!(opener.opened.load(Ordering::SeqCst), 1);
            let told: Arc<Mutex<Vec<Outcome>>> = Arc::default();
            let hears = told.clone();
            life.protection.listen(Box::new(move |outcome| hears.lock().push(outcome)));
            opener.forget();
            hours_pass(here, &life, 1).await;
            refused(replicate(&life).await.unwrap_err(), Kind::NotFound, "there is no pool");
            refused(replicate(&life).await.unwrap_err(), Kind::NotFound, "there is no pool");
            assert_eq!(status(&life).await.behind, 1);
            opener.remember();
            assert_eq!(replicate(&life).await.unwrap().len(), 1);
            let told = told.lock().clone();
            assert_eq!(told.len(), 2, "once each: {told:?}");
            assert!(told.iter().all(|outcome| outcome.sending) && told[0].failure.is_some());
            assert_eq!(
                (&told[1].failure, told[1].run.as_ref()),
                (&None, status(&life).await.newest.as_ref())
            );
        }
    });
}

/// Goal: where this pool does not have the last point that the other has any more, everything is compared, and only what differs is written.
#[test]
fn without_the_last_point_everything_is_compared() {
    let here = Pool::new();
    let there = Pool::beside(&here);
    here.life(|life| {
        let (here, there) = (&here, &there);
        async move {
            begin_here(&life, asked("1h", None)).await;
            there.opener(&life, false);
            hours_pass(here, &life, 1).await;
            let first = replicate(&life).await.unwrap();
            life.protection.remove_point(&first[0].name).await.unwrap();
            life.write(ROOT, 9).await;
            hours_pass(here, &life, 1).await;
            let copied = replicate(&life).await.unwrap().remove(0).copied.unwrap();
            assert_eq!((copied.read_bytes, copied.written_bytes), (2 * 4096, 4096));
            assert!(
                copied.notes.iter().any(|note| note.contains("does not have the last point")),
                "{copied:?}"
            );
        }
    });
    there.life(|life| async move { assert_eq!(held(&life).await, [(1, 2), (9, 2)]) });
}

/// Goal: two policies of one source that name the same pool send all of their points, in the order in which they were made, whichever is asked.
#[test]
fn policies_of_one_source_send_together() {
    let here = Pool::new();
    let there = Pool::beside(&here);
    here.life(|life| {
        let (here, there) = (&here, &there);
        async move {
            begin_here(&life, asked("1h", Some("last=1"))).await;
            let daily = name("daily");
            life.protection.create_policy(daily.clone(), asked("2h", None)).await.unwrap();
            life.protection.apply_policy(&daily, &[name("web")]).await.unwrap();
            life.protection.replicate_policy(&daily, Some(URL.to_owned())).await.unwrap();
            there.opener(&life, false);
            hours_pass(here, &life, 2).await;
            // 11:30, and two of 12:30.
            let sent = life.protection.replicate(&daily).await.unwrap();
            let policies: Vec<_> =
                sent.iter().map(|run| run.slot.as_ref().unwrap().policy.to_string()).collect();
            assert!(
                policies.contains(&HOURLY.to_owned()) && policies.contains(&"daily".to_owned()),
                "{policies:?}"
            );
            assert!(sent.is_sorted_by(|one, next| one.name.stamp < next.name.stamp));
            assert_eq!(status(&life).await.behind, 0);
            hours_pass(here, &life, 2).await;
            replicate(&life).await.unwrap();
            let policy = life.protection.policy(&daily).await.unwrap();
            assert_eq!(life.protection.replicas(&policy).await.unwrap()[0].behind, 0);
        }
    });
    there.life(|life| async move {
        let points = life.protection.points(None).await.unwrap();
        let of = |policy: &str| {
            points
                .iter()
                .filter(|one| one.point.policy.as_ref().is_some_and(|of| of.as_str() == policy))
                .count()
        };
        assert_eq!((of(HOURLY), of("daily")), (1, 2), "each keeps its own");
    });
}

/// Goal: a point that somebody has broken there is received anew, and a medium that fails is told, whatever it keeps from being seen.
#[test]
fn what_is_broken_there_is_mended_and_what_fails_is_told() {
    let here = Pool::new();
    let there = Pool::beside(&here);
    let sent = here.life(|life| {
        let (here, there) = (&here, &there);
        async move {
            begin_here(&life, asked("1h", None)).await;
            there.opener(&life, false);
            hours_pass(here, &life, 2).await;
            replicate(&life).await.unwrap().pop().unwrap().name
        }
    });
    there.life(|life| async move {
        let snapshot = format!("web.vda@{}", sent.stamp).parse().unwrap();
        life.store.remove_snapshot(&snapshot).await.unwrap();
    });
    here.life(|life| {
        let (here, there) = (&here, &there);
        async move {
            let opener = there.opener(&life, true);
            assert_eq!(status(&life).await.behind, 0, "nobody has looked");
            assert_eq!(replicate(&life).await.unwrap().len(), 1);
            hours_pass(here, &life, 1).await;
            opener.fail_after(6);
            let failed = within(&life, 20, replicate(&life)).await;
            assert!(failed.is_none_or(|failed| failed.is_err()));
            let known = status(&life).await;
            assert_eq!(known.behind, 1);
        }
    });
    there.life(|life| async move { assert!(held(&life).await.len() >= 2) });
}
