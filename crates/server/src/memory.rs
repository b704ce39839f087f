//! Keeps the process within the memory that it was given.
//!
//! Caches, journal and buffers are each bounded and count what they hold; what the allocator takes beside that, for gaps between
//! values of many lengths, nobody counts. So the process looks at itself as the operator would, at its resident memory, and
//! makes the caches smaller before it passes what it was given: `--cache`, `--journal`, and 64 MiB.

use std::sync::Arc;
use std::time::Duration;
use stonefold_env::Env;
use stonefold_store::Store;

/// A round of the fold comes and goes within some seconds.
const LOOKED_EVERY: Duration = Duration::from_millis(250);
/// What a server may take beside cache and journal, in bytes.
const BESIDE_BYTES: u64 = 64 << 20;
/// Caches begin to give before everything is taken, in bytes: what they give is of use to others, but seldom goes back to the kernel.
const EARLY_BYTES: u64 = 64 << 20;
/// One part in so many of what is too much is taken from the caches at each look: all of it within a second or two, and little more than that
/// where what they gave is slow to be of use.
const TAKEN_PART: u64 = 2;
/// One part in so many of what is not needed any more goes back to the caches at each look: all but a fiftieth in a minute.
const GIVEN_BACK_PART: u64 = 64;

/// Watches for as long as there is a store.
pub(crate) fn watch(env: &Env, store: &Arc<Store>, journal_bytes_max: u64) {
    let (env_of_task, store) = (env.clone(), Arc::downgrade(store));
    env.spawn("memory", async move {
        let mut withheld = 0;
        loop {
            env_of_task.sleep(LOOKED_EVERY).await;
            let Some(store) = store.upgrade() else { return };
            // Where the kernel does not tell, everything is as it would be without us.
            let Some(resident) = resident_bytes() else { return };
            let cache = store.cache_bytes_max();
            let budget = cache + journal_bytes_max + BESIDE_BYTES;
            let next = to_withhold(withheld, resident, budget).min(cache / 2);
            if withheld == 0 && next > 0 {
                tracing::debug!("{resident} bytes are resident of {budget}: the caches give way");
            }
            store.withhold_cache(next);
            withheld = next;
        }
    });
}

/// What caches are to give, in bytes, when they gave `withheld` so far: more for as long as too much is taken, and less only slowly,
/// because what they would take again is not free any more.
fn to_withhold(withheld: u64, resident: u64, budget: u64) -> u64 {
    let early = budget - EARLY_BYTES;
    if resident > early {
        withheld + (resident - early).div_ceil(TAKEN_PART)
    } else {
        withheld - withheld.min(early - resident).div_ceil(GIVEN_BACK_PART)
    }
}

/// Bytes of the process that are in memory (`/proc/self/statm`, its second word, in pages).
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_kernel_tells_what_is_resident() {
        let before = resident_bytes().unwrap();
        let memory = std::hint::black_box(vec![1u8; 64 << 20]);
        let after = resident_bytes().unwrap();
        assert!(after >= before + 60 * MIB, "{before} and {} more are {after}", memory.len());
    }

    /// Goal: nothing is taken from caches while there is room; where there is none they give soon, and get it back bit by bit.
    #[test]
    fn caches_give_soon_and_get_back_slowly() {
        let budget = 1280 * MIB;
        assert_eq!(to_withhold(0, budget - EARLY_BYTES, budget), 0);
        assert_eq!(to_withhold(0, budget - EARLY_BYTES + 10 * MIB, budget), 5 * MIB);
        let mut withheld = 128 * MIB;
        let mut looks = 0;
        while withheld > 0 {
            let next = to_withhold(withheld, budget / 2, budget);
            assert!(next < withheld && withheld - next <= 2 * MIB);
            (withheld, looks) = (next, looks + 1);
        }
        assert!(looks > 240, "a minute and more, {looks} looks");
    }

    /// Goal: a process whose other memory grows by 8 MiB a second keeps to its budget as long as caches have something to give: where what they
    /// give goes back to the kernel, and where it does not, but is of use to others.
    #[test]
    fn what_others_take_comes_from_the_caches() {
        let (budget, cache) = (1280 * MIB, 1024 * MIB);
        for returned in [true, false] {
            let (mut withheld, mut others, mut resident) = (0, 150 * MIB, 0);
            while others < 700 * MIB {
                let held = others + cache - withheld;
                resident = if returned { held } else { held.max(resident) };
                assert!(resident <= budget, "{others} of others, {withheld} withheld, {returned}");
                withheld = to_withhold(withheld, resident, budget).min(cache / 2);
                others += 2 * MIB;
            }
        }
    }
}
