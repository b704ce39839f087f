use super::*;
use crate::clock::Clock;
use futures::future::poll_immediate;
use std::pin::pin;

const fn bytes(count: u64) -> NonZeroU64 {
    NonZeroU64::new(count).unwrap()
}

#[tokio::test]
async fn what_begins_is_what_the_time_allows() {
    let (clock, budget) = (Clock::default(), Bandwidth::new(bytes(1 << 20)));
    let at = Duration::from_millis;
    let env = clock.env();
    // When so much begins, asked for at a time.
    let begins = async |asked: Duration, bytes| {
        clock.set(asked.max(clock.now()));
        budget.take(&env, bytes).await;
        clock.now()
    };
    assert_eq!(begins(at(5_000), 1 << 20).await, at(5_000), "the first waits for nothing");
    assert_eq!(
        begins(at(5_000), 512 << 10).await,
        at(5_995),
        "and the second for the first, but for the slack"
    );
    assert_eq!(begins(at(6_100), 1).await, at(6_495));
    assert_eq!(begins(at(60_000), 1 << 20).await, at(60_000), "nothing else is saved up");
    assert_eq!(begins(at(60_000), 1).await, at(60_995));
}

#[tokio::test]
async fn small_pieces_make_up_for_late_wakes() {
    let (clock, budget) = (Clock::default(), Bandwidth::new(bytes(100 << 20)));
    let env = clock.env();
    clock.set(Duration::from_secs(1));
    let mut moved = 0;
    while clock.now() < Duration::from_secs(2) {
        budget.take(&env, 4096).await;
        moved += 4096;
        // As a timer of milliseconds wakes.
        clock.set(Duration::from_millis(clock.now().as_micros().div_ceil(1000) as u64));
    }
    assert!((95 << 20..=101 << 20).contains(&moved), "{moved} in a second");
}

#[tokio::test]
async fn what_waits_goes_by_what_was_said_last() {
    let (clock, budget) = (Clock::default(), Bandwidth::new(bytes(1)));
    let env = clock.env();
    budget.stand_still(true);
    {
        let mut waits = pin!(budget.take(&env, 1000));
        assert_eq!(poll_immediate(waits.as_mut()).await, None, "it begins while all stands still");
        budget.stand_still(false);
        waits.await;
    }
    budget.set(bytes(1000));
    budget.take(&env, 1000).await;
    budget.take(&env, 1).await;
    // The first at one byte a second, the second at a thousand.
    assert_eq!(clock.now().as_secs(), 1000 + 1);
}
