//! Long work that lets others have the processor.
//!
//! A thread that has just woken does not always take a processor from one that works: the kernel's fair scheduler (EEVDF, Linux 6.6 and later) lets
//! that go on until its slice ends, some 3 ms. On a machine with few processors these are what the slowest hundredth of a guest's requests
//! wait for. So work in the background asks now and then whether anybody waits.
//!
//! *Promises*: who takes the processor for a moment waits for it a tenth of a millisecond, where the work asks that often; after somebody who takes it
//! for long, as a guest that computes, the work goes on for as long as it had waited before it asks again.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Work between two questions, at least.
const GRAIN: Duration = Duration::from_micros(100);

thread_local! {
    /// When this thread asks again.
    static NEXT: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Lets threads that wait for this processor go first, if it is time for that. Cheap enough for each 10 µs of work.
#[expect(
    clippy::disallowed_methods,
    reason = "how long this thread has waited decides nothing but who works next"
)]
pub fn give_way() {
    let asked = Instant::now();
    if NEXT.get().is_some_and(|next| asked < next) {
        return;
    }
    std::thread::yield_now();
    let now = Instant::now();
    NEXT.set(Some(again(asked, now)));
}

fn again(asked: Instant, now: Instant) -> Instant {
    now + GRAIN.max(now - asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "an instant to reckon from")]
    fn work_goes_on_for_as_long_as_it_had_waited() {
        let asked = Instant::now();
        let after = |micros| asked + Duration::from_micros(micros);
        assert_eq!(again(asked, after(1)), after(1) + GRAIN);
        assert_eq!(again(asked, after(3000)), after(6000));
    }

    #[test]
    fn it_asks_no_more_often_than_that() {
        give_way();
        let next = NEXT.get().unwrap();
        give_way();
        let later = NEXT.get().unwrap();
        assert!(later == next || later >= next + GRAIN);
    }
}
