//! Goal: nothing that is read can make a reader panic, take memory without bound, or go on without end. Method: each reader of
//! [`stonefold_fuzz`] gets inputs by dice for a while; this process counts what it allocates. A failure prints the input, and the seed
//! that makes it again.
//!
//! ```sh
//! STONEFOLD_FUZZ_SECONDS=600 cargo test --release -p stonefold-fuzz -- --nocapture       # each reader for ten minutes
//! STONEFOLD_FUZZ_SEED=… …                                                                # the same inputs again
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use stonefold_dice::Dice;
use stonefold_fuzz::mutate::input;
use stonefold_fuzz::{Target, targets};

/// Each reader's time, in seconds, unless `STONEFOLD_FUZZ_SECONDS` says another.
const SECONDS: f64 = 0.7;
/// One input, on a machine that does much else.
const READ_MAX: Duration = Duration::from_secs(5);
/// Memory for each byte of input: what it says, as numbers of eight bytes, and room to grow.
const BYTES_PER_BYTE: usize = 100;

/// The system's allocator, which counts what this thread has and had at most.
struct Counting;

thread_local! {
    static NOW: Cell<usize> = const { Cell::new(0) };
    static MOST: Cell<usize> = const { Cell::new(0) };
}

fn count(more: usize, less: usize) {
    // While a thread ends there is nothing to count in any more.
    let _ = NOW.try_with(|now| {
        now.set(now.get().saturating_add(more).saturating_sub(less));
        let _ = MOST.try_with(|most| most.set(most.get().max(now.get())));
    });
}

// SAFETY: every call is passed on to the system's allocator as it came; counting touches nothing but two numbers of the thread, and
// allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn every_reader_survives_what_nobody_wrote() {
    let asked = |name: &str| std::env::var(name).ok();
    let seconds =
        asked("STONEFOLD_FUZZ_SECONDS").map_or(SECONDS, |s| s.parse().expect("seconds are a number"));
    let seed = Dice::seed("STONEFOLD_FUZZ_SEED");
    println!("seed {seed}");
    for target in targets() {
        let read = soak(&target, seed, Duration::from_secs_f64(seconds));
        println!("{}: {read} inputs", target.name);
        assert!(read > 10, "{} is too slow to be tried", target.name);
    }
}

#[allow(clippy::disallowed_methods)]
fn soak(target: &Target, seed: u64, time: Duration) -> u64 {
    let seeds = (target.seeds)();
    seeds.iter().for_each(|seed| (target.read)(seed));
    let mut dice = Dice::new(seed);
    let began = Instant::now();
    let mut read = 0;
    while began.elapsed() < time {
        let bytes = input(&mut dice, &seeds);
        let since = Instant::now();
        let before = NOW.get();
        MOST.set(before);
        let done = std::panic::catch_unwind(AssertUnwindSafe(|| (target.read)(&bytes)));
        let (took, most) = (since.elapsed(), MOST.get().saturating_sub(before));
        let told = || format!("{}, seed {seed}, input {read}: {}", target.name, hex(&bytes));
        assert!(done.is_ok(), "a panic: {}", told());
        assert!(took < READ_MAX, "{} ms: {}", took.as_millis(), told());
        assert!(
            most <= target.bytes_max + BYTES_PER_BYTE * bytes.len(),
            "{most} bytes of memory: {}",
            told()
        );
        read += 1;
    }
    read
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
