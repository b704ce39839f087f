//! Keeps the process within the memory that it was given.
//!
//! Caches, journal and buffers are each bounded and count what they hold; what the allocator takes beside that, for gaps between
//! values of many lengths, nobody counts. All threads share one heap, so that gaps are of use to whoever comes next. And the
//! process looks at itself as the operator would, at its resident memory, and makes the caches smaller before it passes what
//! it was given: `--cache`, `--journal`, and 64 MiB.

use std::sync::Arc;
use std::time::Duration;
use stonefold_env::Env;
use stonefold_store::Store;

/// A round of the fold comes and goes within some seconds.
const LOOKED_EVERY: Duration = Duration::from_millis(250);
/// What a server may take beside cache and journal, in bytes.
const BESIDE_BYTES: u64 = 64 << 20;
/// Caches begin to give before everything is taken, in bytes: an eighth of it, and this at most.
const EARLY_BYTES: u64 = 96 << 20;
/// For each byte that is taken beyond that, caches give so many: what they give is of use to others, but seldom goes back to the
/// kernel.
const GIVEN_FOR_EACH: u64 = 8;
/// Looks without growth after which it is tried whether caches may have something back: a minute.
const QUIET_LOOKS: u32 = 240;
/// One part in so many of what was taken goes back to the caches at each look: all but a fiftieth in a minute.
const GIVEN_BACK_PART: u64 = 64;

/// Lets all threads share one heap of the allocator. glibc gives each thread a heap of its own, up to eight times as many as
/// there are processors, and what one of them has freed is of no use to the others: some 180 MiB of 1,170 after a reclaim
/// on a disk of 1 TiB. To be called before threads are started.
pub(crate) fn share_one_heap() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: sets a bound, and touches no memory of ours.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }
}

/// Resident bytes beyond which caches give. Small budgets have little more than what a server takes beside its caches.
fn early(budget: u64) -> u64 {
    budget - EARLY_BYTES.min((budget / 8).max(BESIDE_BYTES)).min(budget)
}

/// Watches for as long as there is a store.
pub(crate) fn watch(env: &Env, store: &Arc<Store>, journal_bytes_max: u64) {
    let (env_of_task, store) = (env.clone(), Arc::downgrade(store));
    env.spawn("memory", async move {
        let mut withheld = Withheld::default();
        loop {
            env_of_task.sleep(LOOKED_EVERY).await;
            let Some(store) = store.upgrade() else { return };
            // Where the kernel does not tell, everything is as it would be without us.
            let Some(resident) = resident_bytes() else { return };
            let cache = store.cache_bytes_max();
            let budget = cache + journal_bytes_max + BESIDE_BYTES;
            let before = withheld.bytes;
            withheld.look(resident, budget, cache / 2);
            if before == 0 && withheld.bytes > 0 {
                tracing::debug!("{resident} bytes are resident of {budget}: the caches give way");
            }
            store.withhold_cache(withheld.bytes);
        }
    });
}

/// What caches are to give.
#[derive(Default)]
struct Withheld {
    bytes: u64,
    /// What was resident at the last look.
    resident: u64,
    /// Looks since it last grew beyond what is early.
    quiet: u32,
}

impl Withheld {
    /// More is taken only when more is resident, and in proportion to that: memory that the allocator keeps for whoever comes next
    /// stays resident, and says nothing about who needs it. When nothing has grown for a while some is given back, bit by bit.
    fn look(&mut self, resident: u64, budget: u64, at_most: u64) {
        let early = early(budget);
        let grown = resident.saturating_sub(self.resident);
        self.resident = resident;
        if resident > early && grown > 0 {
            let in_proportion = (resident - early) * GIVEN_FOR_EACH;
            let more = self.bytes + grown * GIVEN_FOR_EACH;
            self.bytes = more.min(in_proportion).max(self.bytes);
            self.quiet = 0;
        } else if resident > early && self.quiet < QUIET_LOOKS {
            self.quiet += 1;
        } else {
            self.bytes -= self.bytes.div_ceil(GIVEN_BACK_PART);
        }
        self.bytes = self.bytes.min(at_most);
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

    /// *Past bug*: a budget below what was early ended the server.
    #[test]
    fn what_is_early_fits_every_budget() {
        for (budget, is_early) in [(1280, 1184), (512, 448), (84, 20), (64, 0), (10, 0), (0, 0)] {
            assert_eq!(early(budget * MIB), is_early * MIB, "{budget}");
        }
    }

    /// Goal: nothing is taken from caches while there is room; where there is none they give soon, and get it back bit by bit.
    #[test]
    fn caches_give_soon_and_get_back_slowly() {
        let (budget, at_most) = (1280 * MIB, 512 * MIB);
        let mut withheld = Withheld::default();
        withheld.look(early(budget), budget, at_most);
        assert_eq!(withheld.bytes, 0);
        withheld.look(early(budget) + 10 * MIB, budget, at_most);
        assert_eq!(withheld.bytes, 80 * MIB);
        let mut looks = 0;
        while withheld.bytes > 0 {
            let before = withheld.bytes;
            withheld.look(budget / 2, budget, at_most);
            assert!(withheld.bytes < before && before - withheld.bytes <= 2 * MIB);
            looks += 1;
        }
        assert!(looks > 240, "a minute and more, {looks} looks");
    }

    /// Goal: what the allocator keeps is not held against the caches for ever. *Past bug*: as long as it stayed resident more and more was
    /// taken from them, until they had half.
    #[test]
    fn what_stays_resident_takes_nothing_more() {
        let (budget, at_most) = (1280 * MIB, 512 * MIB);
        let mut withheld = Withheld::default();
        let stuck = early(budget) + 20 * MIB;
        let mut most = 0;
        for _ in 0..QUIET_LOOKS * 6 {
            withheld.look(stuck, budget, at_most);
            most = withheld.bytes.max(most);
        }
        assert_eq!(most, 160 * MIB);
        assert_eq!(withheld.bytes, 0, "nobody has needed it");
    }

    /// Goal: a process whose other memory grows by 8 MiB a second keeps to its budget as long as caches have something to give: where what they
    /// give goes back to the kernel, and where it does not, but is of use to others.
    #[test]
    fn what_others_take_comes_from_the_caches() {
        let (budget, cache) = (1280 * MIB, 1024 * MIB);
        for returned in [true, false] {
            let (mut withheld, mut others, mut resident) = (Withheld::default(), 150 * MIB, 0);
            while others < 700 * MIB {
                let held = others + cache - withheld.bytes;
                resident = if returned { held } else { held.max(resident) };
                assert!(resident <= budget, "{others} of others, {} withheld, {returned}", withheld.bytes);
                withheld.look(resident, budget, cache / 2);
                others += 2 * MIB;
            }
        }
    }
}
