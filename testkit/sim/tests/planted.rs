//! Goal: the worlds find bugs. Method: each planted bug in turn; some seed must fail. A bug that no seed finds is a hole in
//! the net, and fails this test, as does one whose seed fails without it, too. `STONEFOLD_PLANTED=name,name` tries only these.
#![cfg(feature = "planted")]

use std::sync::Mutex;
use std::thread;
use stonefold_sim::run_seed;
use stonefold_store::planted::{BUGS, plant};

/// Seeds tried before a bug counts as not found.
const SEEDS_MAX: u64 = 3000;

#[test]
fn every_planted_bug_is_found() {
    std::panic::set_hook(Box::new(|_| {}));
    let only = std::env::var("STONEFOLD_PLANTED").ok();
    let wanted = |bug: &&str| only.as_ref().is_none_or(|only| only.split(',').any(|name| name == *bug));
    let bugs = Mutex::new(BUGS.iter().map(|(bug, _)| *bug).filter(wanted));
    let missed = Mutex::new(Vec::new());
    let next = || bugs.lock().unwrap().next();
    let search = || {
        while let Some(bug) = next() {
            if !is_found(bug) {
                missed.lock().unwrap().push(bug);
            }
        }
    };
    // A bug is planted in one thread alone, and a world is of one thread.
    thread::scope(|threads| {
        (0..thread::available_parallelism().map_or(1, usize::from)).for_each(|_| drop(threads.spawn(search)));
    });
    let _ = std::panic::take_hook();
    let missed = missed.into_inner().unwrap();
    assert!(missed.is_empty(), "no seed of {SEEDS_MAX} finds {missed:?}");
}

fn is_found(bug: &'static str) -> bool {
    plant(Some(bug));
    let found = (1..=SEEDS_MAX).find_map(|seed| run_seed(seed, false).err().map(|what| (seed, what)));
    plant(None);
    let Some((seed, what)) = found else { return false };
    println!("{bug}: {}", what.lines().next().unwrap_or_default());
    // A seed that fails by itself would find every bug.
    run_seed(seed, false).is_ok()
}
