//! Archives: another pool gets the last point of each period that is over, keeps that for longer, and nothing goes here before it is there.

use crate::life::{HOUR, Life, Pool, name};
use crate::policies::{HOURLY, asked, begin, hours, hours_pass, refused};
use stonefold_protect::{Archive, ReplicaStatus, Verdict};
use stonefold_types::Kind;

const URL: &str = "test:there";
const DATA: &str = "data";

async fn archive(life: &Life, keep: &str) {
    let archive = Archive::new(URL.to_owned(), keep.parse().unwrap());
    life.protection.archive_policy(&name(HOURLY), Some(archive)).await.unwrap();
}

async fn status(life: &Life) -> ReplicaStatus {
    let policy = life.protection.policy(&name(HOURLY)).await.unwrap();
    life.protection.replicas(&policy).await.unwrap().remove(0)
}

/// Goal: of a policy that keeps two points an archive has the last of each day, that of a day that is not over is not sent, and days beyond its count go.
/// What it lacks stays here meanwhile, however little the policy keeps.
#[test]
fn an_archive_has_the_last_of_each_day_that_is_over() {
    let here = Pool::new();
    let there = Pool::beside(&here);
    here.life(|life| {
        let (here, there) = (&here, &there);
        async move {
            begin(&life, asked("1h", Some("last=2"))).await;
            archive(&life, "daily=2").await;
            // The first day is over at hour 24; the policy begins at 10:30.
            life.write(DATA, 10).await;
            hours_pass(here, &life, 13).await;
            assert_eq!((status(&life).await.behind, hours(&life).await), (0, vec![22, 23]));
            life.write(DATA, 11).await;
            hours_pass(here, &life, 24).await;
            // Nobody has sent it, and the second day is not over.
            assert_eq!((status(&life).await.behind, hours(&life).await), (1, vec![23, 46, 47]));
            let plan = life.protection.plan(&name(HOURLY)).await.unwrap();
            assert_eq!(plan.points[0].verdict, Verdict::Sent);
            there.opener(&life, false);
            let sent = life.protection.replicate(&name(HOURLY)).await.unwrap();
            assert_eq!(sent.len(), 1);
            life.write(DATA, 12).await;
            hours_pass(here, &life, 24).await;
            assert_eq!(life.protection.replicate(&name(HOURLY)).await.unwrap().len(), 1);
            life.write(DATA, 13).await;
            hours_pass(here, &life, 24).await;
            let third = life.protection.replicate(&name(HOURLY)).await.unwrap();
            assert_eq!(third.len(), 1);
            let copied = third[0].copied.as_ref().unwrap();
            assert!(copied.notes.is_empty() && copied.read_bytes <= 4096, "told from the last: {copied:?}");
            let known = status(&life).await;
            assert!(known.archive && known.failed.is_none() && known.behind == 0, "{known:?}");
        }
    });
    there.life(|life| async move {
        assert_eq!(hours(&life).await, [47, 71], "two days, of three");
        let points = life.protection.points(None).await.unwrap();
        let mut held = Vec::new();
        for status in &points {
            let point = &status.point;
            held.push(life.read(&point.snapshot_of(&point.disks[1]).to_string()).await);
        }
        assert_eq!(held, [11, 12]);
    });
}

/// Goal: a policy may have both; one pool cannot be both; and what is known of one is not taken for the other's.
#[test]
fn an_archive_is_beside_the_other_pool() {
    let here = Pool::new();
    let there = Pool::beside(&here);
    here.life(|life| {
        let (here, there) = (&here, &there);
        async move {
            begin(&life, asked("1h", None)).await;
            archive(&life, "last=1").await;
            let both = life.protection.replicate_policy(&name(HOURLY), Some(URL.to_owned())).await;
            refused(both.unwrap_err(), Kind::Invalid, "cannot be its archive");
            assert_eq!(life.protection.policy(&name(HOURLY)).await.unwrap().replicate, None);
            there.opener(&life, false);
            hours_pass(here, &life, 2).await;
            assert!(!life.protection.replicate(&name(HOURLY)).await.unwrap().is_empty());
            assert!(status(&life).await.newest.is_some());
            // Other points of the same pool: what is there is known still.
            archive(&life, "last=2").await;
            assert!(status(&life).await.newest.is_some());
            life.protection.archive_policy(&name(HOURLY), None).await.unwrap();
            life.protection.replicate_policy(&name(HOURLY), Some(URL.to_owned())).await.unwrap();
            let known = status(&life).await;
            assert!(!known.archive && known.newest.is_none() && known.behind == 2, "{known:?}");
            here.clock.passes(HOUR / 2);
            life.protection.replicate_policy(&name(HOURLY), None).await.unwrap();
            let nowhere = life.protection.replicate(&name(HOURLY)).await.unwrap_err();
            refused(nowhere, Kind::Invalid, "--archive URL");
        }
    });
}

/// Goal: what two policies send of one source does not meet in an archive, where the one's younger points would keep the other's out.
#[test]
fn an_archive_gets_a_source_by_one_policy() {
    let here = Pool::new();
    here.life(|life| async move {
        begin(&life, asked("1h", None)).await;
        archive(&life, "monthly=12").await;
        let other = name("other");
        life.protection.create_policy(other.clone(), asked("1d", None)).await.unwrap();
        life.protection.replicate_policy(&other, Some(URL.to_owned())).await.unwrap();
        let both = life.protection.apply_policy(&other, &[name("web")]).await.unwrap_err();
        refused(both, Kind::Invalid, "a pool of its own");
        assert!(life.protection.policy(&other).await.unwrap().sources.is_empty());
        life.protection.replicate_policy(&other, None).await.unwrap();
        life.protection.apply_policy(&other, &[name("web")]).await.unwrap();
        let both = life.protection.replicate_policy(&other, Some(URL.to_owned())).await.unwrap_err();
        refused(both, Kind::Invalid, "a pool of its own");
    });
}
