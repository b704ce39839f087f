use super::*;
use crate::clock::Clock;
use parking_lot::Mutex;

/// A guest of 200 requests a second, of a millisecond each, and as much longer as the copy beside it is fast: at 100 MiB/s twice as long.
struct Played {
    clock: Clock,
    now: Mutex<Now>,
}

#[derive(Default)]
struct Now {
    at: Duration,
    counted: Counted,
    speed: u64,
    paused: bool,
    works: bool,
    /// How many times as long its requests take, whatever is beside it.
    slow: u64,
}

impl Played {
    fn new(works: bool) -> Played {
        Played { clock: Clock::default(), now: Mutex::new(Now { works, slow: 1, ..Now::default() }) }
    }

    /// What it does from now on, when all until now has been counted.
    fn change(&self, change: impl FnOnce(&mut Now)) {
        let mut now = self.now.lock();
        let since = self.clock.now().saturating_sub(now.at).as_secs_f64();
        let speed = if now.paused { 0.0 } else { now.speed.min(400 << 20) as f64 };
        let requests = if now.works { 200.0 * since } else { 0.0 };
        now.counted.operations += requests as u64;
        now.counted.nanos += (requests * 1e6 * now.slow as f64 * (1.0 + speed / f64::from(100 << 20))) as u64;
        now.at = self.clock.now();
        change(&mut now);
    }
}

impl Paced for Played {
    const LOOK: Duration = Duration::from_secs(1);
    const LOOK_AT_IDLE: Duration = Duration::from_millis(100);
    const SPEED_AT_IDLE: u64 = SPEED_MAX;
    /// Of nobody else, so that no other speed can be taken for it.
    const SPEED_AT_WORK: u64 = 24 << 20;
    const SPEED_MIN: u64 = 1 << 20;
    const MARGIN: f64 = 0.9;

    async fn counted(&self) -> Result<Counted> {
        self.change(|_| {});
        Ok(self.now.lock().counted)
    }

    async fn pause(&self) -> Result<()> {
        self.change(|now| now.paused = true);
        Ok(())
    }

    async fn resume(&self) -> Result<()> {
        self.change(|now| now.paused = false);
        Ok(())
    }

    async fn set_speed(&self, bytes: u64) -> Result<()> {
        self.change(|now| now.speed = bytes);
        Ok(())
    }
}

#[tokio::test]
async fn a_guest_that_works_keeps_its_share_and_one_that_begins_to_gets_it() {
    for works in [true, false] {
        let guest = Played::new(works);
        let env = guest.clock.env();
        let mut pace = Pace::begin(&env, &guest, 80).await.unwrap();
        assert_eq!(pace.speed, if works { Played::SPEED_AT_WORK } else { SPEED_MAX });
        assert_eq!(pace.is_busy(), works);
        guest.change(|now| now.works = true);
        let mut kept = Vec::new();
        for round in 0..1000 {
            env.sleep(Duration::from_millis(500)).await;
            let rate = pace.set(&env, &guest).await.unwrap();
            // After what it takes to notice, and to come down.
            kept.extend(rate.guest_percent.filter(|_| round > 30));
        }
        assert!(pace.is_busy(), "what it does is not seen");
        let worst = kept.iter().min().unwrap();
        assert!(*worst >= 78, "it keeps {worst}% where it worked at the beginning: {works}");
        assert!(pace.speed > 5 << 20, "the copy gets nowhere: {}", pace.speed);
    }
}

#[tokio::test]
async fn a_copy_that_is_not_the_cause_is_let_go() {
    let guest = Played::new(true);
    let env = guest.clock.env();
    let mut pace = Pace::begin(&env, &guest, 80).await.unwrap();
    // What it asks for takes ten times as long from now on, with and without a copy.
    guest.change(|now| now.slow = 10);
    for _ in 0..60 {
        env.sleep(Duration::from_millis(500)).await;
        pace.set(&env, &guest).await.unwrap();
    }
    assert!(pace.speed > 5 << 20, "it is held back for what it has not done: {}", pace.speed);
}

/// Goal: a moment in which the guest's storage is slow by itself, just when it is looked at, lets the copy go for some seconds and not for a minute.
#[tokio::test]
async fn a_look_at_a_bad_moment_is_not_believed_for_long() {
    let guest = Played::new(true);
    let env = guest.clock.env();
    let mut pace = Pace::begin(&env, &guest, 80).await.unwrap();
    let mut worst = Vec::new();
    for round in 0..120 {
        // Ten seconds of it: the copy comes down to its slowest, and then it is looked at.
        guest.change(|now| now.slow = if (40..60).contains(&round) { 20 } else { 1 });
        env.sleep(Duration::from_millis(500)).await;
        worst.extend(pace.set(&env, &guest).await.unwrap().guest_percent.filter(|_| round > 75));
    }
    assert!(worst.iter().all(|kept| *kept >= 75), "{worst:?}");
    assert!(pace.alone.is_some_and(|alone| alone < 1.3e6), "{:?}", pace.alone);
}

#[test]
fn a_guest_that_is_slower_is_believed_step_by_step() {
    assert_eq!(believed(None, Some(5.0)), (Some(5.0), false));
    assert_eq!(believed(Some(5.0), None), (Some(5.0), false));
    assert_eq!(believed(Some(4.0), Some(5.0)), (Some(5.0), false));
    assert_eq!(believed(Some(4.0), Some(7.0)), (Some(7.0), true));
    assert_eq!(believed(Some(4.0), Some(70.0)), (Some(8.0), true));
    assert_eq!(believed(Some(8.0), Some(4.0)), (Some(4.0), false));
}

#[test]
fn the_copy_gives_way_until_the_guest_keeps_its_share() {
    // A guest whose requests take longer by what the copy takes: at 100 MiB/s twice as long.
    let kept_at = |speed: u64| 1.0 / (1.0 + speed as f64 / f64::from(100 << 20));
    let mut speed = SPEED_BEGINNING;
    let mut worst: f64 = 1.0;
    for round in 0..200 {
        speed = next(speed, Some(kept_at(speed)), 0.75 / 0.9);
        if round > 20 {
            worst = worst.min(kept_at(speed));
        }
    }
    assert!(worst > 0.74, "it keeps {worst}");
    assert!(speed > 8 << 20, "the copy gets nowhere: {speed}");
}

#[test]
fn a_guest_that_sleeps_is_no_reason_to_be_slow() {
    let mut speed = 1 << 20;
    for _ in 0..20 {
        speed = next(speed, None, 0.75);
    }
    assert_eq!(speed, SPEED_MAX);
    assert!(next(speed, Some(0.1), 0.75) < SPEED_FELT, "it gives way from where nobody has felt it");
}

#[test]
fn too_few_requests_say_nothing() {
    let counted = |operations, nanos| Counted { operations, nanos };
    let second = Duration::from_secs(1);
    assert_eq!(latency(&counted(0, 0), &counted(4, 400), second), None);
    assert_eq!(latency(&counted(0, 0), &counted(10, 400), second), Some(40.0));
    assert_eq!(kept(None, Some(1.0)), None);
}
