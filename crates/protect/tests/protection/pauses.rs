//! Policies that are paused and resumed.

use crate::life::{BEGINNING, End, HOUR, Pool, name};
use crate::policies::{HOURLY, asked, begin, hours, hours_pass, plan, refused, round};
use stonefold_protect::rounds::Round;
use stonefold_protect::{Consistency, PolicyChange, RunRequest};
use stonefold_types::Kind;

/// Goal: a policy that is paused makes nothing and removes nothing, over a restart, too;
/// resumed it makes one run for all that it has missed, and its counts hold again.
#[test]
fn a_paused_policy_rests_and_then_catches_up_once() {
    let pool = Pool::new();
    pool.life(|life| {
        let pool = &pool;
        async move {
            begin(&life, asked("1h", Some("last=1"))).await;
            assert_eq!(hours_pass(pool, &life, 2).await.len(), 1);
            let paused = life.protection.pause_policy(&name(HOURLY), true).await.unwrap();
            let since = paused.paused.unwrap();
            assert_eq!(hours_pass(pool, &life, 3).await, []);
            let again = life.protection.pause_policy(&name(HOURLY), true).await.unwrap();
            assert_eq!(again.paused, Some(since), "since the first time");
            assert_eq!(hours(&life).await, [12]);
            assert_eq!((plan(&life).await.next, plan(&life).await.policy.paused), (vec![], Some(since)));
            let none = life.protection.pause_policy(&name("none"), true).await.unwrap_err();
            refused(none, Kind::NotFound, "policy ls");
        }
    });
    pool.ends(End::Undone);
    pool.life(|life| {
        let pool = &pool;
        async move {
            assert_eq!(hours_pass(pool, &life, 2).await, []);
            assert_eq!(hours(&life).await, [12], "paused over a loss of power");
            // What somebody asks for himself is made.
            life.protection.back_up(&name("web"), RunRequest::default()).await.unwrap();
            let resumed = life.protection.pause_policy(&name(HOURLY), false).await.unwrap();
            assert_eq!(resumed.paused, None);
            let caught_up = round(&life).await;
            assert_eq!((caught_up.done.len(), caught_up.removed.len()), (1, 1));
            let run = life.protection.run(&caught_up.done[0]).await.unwrap();
            assert_eq!(run.slot.unwrap().at, BEGINNING + 6 * HOUR + HOUR / 2, "the newest that was over");
            assert_eq!(round(&life).await, Round::default(), "once");
            assert_eq!(hours_pass(pool, &life, 1).await.len(), 1);
        }
    });
}

/// Goal: what is named of a policy is another from its next run on, and the rest stays; what cannot be changes nothing.
#[test]
fn a_policy_is_changed_and_its_points_stay_its_own() {
    let pool = Pool::new();
    pool.life(|life| {
        let pool = &pool;
        async move {
            begin(&life, asked("1h", None)).await;
            assert_eq!(hours_pass(pool, &life, 3).await, []);
            let set =
                async |change: PolicyChange| life.protection.change_policy(&name(HOURLY), &change).await;
            let text = |text: &str| Some(text.to_owned());
            let changed =
                set(PolicyChange { keep: text("last=2"), lock_seconds: Some(86_400), ..Default::default() });
            let changed = changed.await.unwrap();
            assert_eq!(
                (changed.keep.unwrap().to_string().as_str(), changed.lock_seconds),
                ("last=2", Some(86_400))
            );
            assert_eq!(changed.schedule.every().to_string(), "1h");
            assert_eq!(hours(&life).await, [11, 12, 13], "nothing goes before its next run");
            assert_eq!(hours_pass(pool, &life, 1).await.len(), 2);
            assert_eq!(hours(&life).await, [13, 14]);
            for (wrong, says) in [
                (PolicyChange { every: text("7m"), ..Default::default() }, "7m"),
                (PolicyChange { every: text("1w"), at: text("25:00"), ..Default::default() }, "25:00"),
                (
                    PolicyChange { keep: text("sometimes=1"), zone: text("UTC"), ..Default::default() },
                    "sometimes",
                ),
                (PolicyChange { lock_seconds: Some(u64::MAX), ..Default::default() }, "cannot be locked"),
                (PolicyChange { consistency: Some(Consistency::App), ..Default::default() }, "agent"),
            ] {
                let error = set(wrong).await.unwrap_err();
                assert!(error.kind() == Kind::Invalid && error.to_string().contains(says), "{error:?}");
            }
            let back = PolicyChange {
                every: text("1d"),
                at: text("02:00"),
                window: text("none"),
                keep: text("all"),
                lock_seconds: Some(0),
                webhook: text("https://hooks.example/a"),
                ..Default::default()
            };
            let back = set(back).await.unwrap();
            assert_eq!((back.keep, back.lock_seconds, back.schedule.at().as_str()), (None, None, "02:00"));
            assert_eq!(back.webhook.as_deref(), Some("https://hooks.example/a"));
            let none = PolicyChange { webhook: text(""), ..Default::default() };
            assert_eq!(set(none).await.unwrap().webhook, None);
            let before = hours(&life).await;
            assert_eq!(hours_pass(pool, &life, 2).await, []);
            assert_eq!(hours(&life).await, before, "not before 02:00");
            assert_eq!(hours_pass(pool, &life, 12).await, []);
            assert_eq!(hours(&life).await.len(), before.len() + 1);
        }
    });
}

/// Goal: a policy that is paused while a round is under way makes no more runs in it, and has not lost the slot.
#[test]
fn a_pause_counts_within_a_round() {
    let pool = Pool::new();
    pool.life(|life| {
        let pool = &pool;
        async move {
            begin(&life, asked("1h", None)).await;
            pool.clock.passes(HOUR);
            let hourly = name(HOURLY);
            let (at_work, paused) =
                futures::join!(life.protection.round(), life.protection.pause_policy(&hourly, true));
            paused.unwrap();
            let made = at_work.unwrap().done.len();
            assert_eq!(hours_pass(pool, &life, 1).await, []);
            assert_eq!(hours(&life).await.len(), made);
            life.protection.pause_policy(&name(HOURLY), false).await.unwrap();
            assert_eq!(round(&life).await.done.len(), 1);
        }
    });
}
