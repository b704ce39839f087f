//! Runs seeds of the simulation: `cargo run --release -p stonefold-sim -- --from 1 --seeds 10000`.

use clap::Parser;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs the store in a seeded world and checks every promise it can.
#[derive(Parser)]
struct Arguments {
    /// Run one seed, twice, and compare the digests.
    #[arg(long)]
    seed: Option<u64>,
    /// With --seed: tell what happens.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Run this many seeds.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Threads to use.
    #[arg(long, default_value_t = 2)]
    jobs: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let failures = match arguments.seed {
        Some(seed) if arguments.trace => print(stonefold_sim::run_seed(seed, true)),
        Some(seed) => run_twice(seed),
        None => run_many(&arguments),
    };
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print(result: Result<u64, String>) -> u64 {
    println!(
        "{}",
        result.as_ref().map_or_else(Clone::clone, |digest| format!("passed, digest {digest:016x}"))
    );
    u64::from(result.is_err())
}

fn run_twice(seed: u64) -> u64 {
    match (stonefold_sim::run_seed(seed, false), stonefold_sim::run_seed(seed, false)) {
        (Ok(first), Ok(second)) if first == second => {
            println!("seed {seed}: passed, digest {first:016x}");
            0
        }
        (Ok(first), Ok(second)) => {
            println!("seed {seed}: not deterministic, digests {first:016x} and {second:016x}");
            1
        }
        (Err(what), _) | (_, Err(what)) => {
            println!("{what}");
            1
        }
    }
}

fn run_many(arguments: &Arguments) -> u64 {
    let next = AtomicU64::new(arguments.from);
    let failures = AtomicU64::new(0);
    let end = arguments.from.saturating_add(arguments.seeds);
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    if let Err(what) = stonefold_sim::run_seed(seed, false) {
                        failures.fetch_add(1, Ordering::Relaxed);
                        println!("{what}");
                    }
                }
            });
        }
    });
    let failures = failures.into_inner();
    println!("{} seeds, {failures} failed", arguments.seeds);
    failures
}
