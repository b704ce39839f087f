//! The rules by name.

/// A rule of the linter.
#[derive(Debug)]
pub struct Rule {
    /// By which a finding names it.
    pub name: &'static str,
    /// What it is about.
    pub what: &'static str,
    /// What would mend a breach.
    pub mend: &'static str,
    /// Where it comes from.
    pub source: &'static str,
}

const DEEPSTORAGE: &str = "DeepStorage 2018, instant recovery";
const NUTANIX: &str = "Nutanix notes on Jetstress";
const LAB: &str = "the lab's rules of an honest number";

/// All of them; `docs/reference/lab-lint.md` explains each.
pub const RULES: &[Rule] = &[
    Rule {
        name: "one-ratio",
        what: "two ratios for one comparison",
        mend: "compute the ratio from the figures, and give the same one everywhere",
        source: DEEPSTORAGE,
    },
    Rule {
        name: "best-arm",
        what: "a peak that ignores the best result of its own run",
        mend: "name the highest result, or say which arms the peak is of and why the others do not count",
        source: NUTANIX,
    },
    Rule {
        name: "same-load",
        what: "arms compared at different threads, users, queue depths, block sizes or working sets",
        mend: "compare both at the same load, or at each one's whole curve",
        source: DEEPSTORAGE,
    },
    Rule {
        name: "score",
        what: "a score that does not follow from its counts",
        mend: "give the smaller of the ratios, or their geometric mean, and say which",
        source: "IOmark-VM 3.8, Tintri T5060",
    },
    Rule {
        name: "capacity",
        what: "logical, written and physical capacity mixed, or not told apart",
        mend: "say of each capacity whether it is logical, written or physical, and divide only what belongs together",
        source: "DeepStorage 2018; IOmark-VM 3.8",
    },
    Rule {
        name: "queue-depth",
        what: "a rate without the queue depth, threads or arrivals that it was measured with",
        mend: "say how many I/Os were in flight, or at which rate they came",
        source: "Springpath, SQLIO",
    },
    Rule {
        name: "units",
        what: "MiB printed as MB, or the reverse",
        mend: "write MiB/s for 2^20 bytes and MB/s for 10^6",
        source: "Springpath, SQLIO; StorageReview, HCIBench",
    },
    Rule {
        name: "no-impact",
        what: "'no impact' without a run in which the feature was off",
        mend: "show the same load with the feature off and on, in pairs, and the interval of their ratio",
        source: "Springpath, SQLIO",
    },
    Rule {
        name: "averaged-percentiles",
        what: "an average of percentiles",
        mend: "merge the histograms and take the percentile of that",
        source: "StorageReview, HCIBench",
    },
    Rule {
        name: "percentile-count",
        what: "a percentile without the number of I/Os that it is of",
        mend: "say how many I/Os it is of, and their maximum",
        source: LAB,
    },
    Rule {
        name: "rare-percentile",
        what: "a percentile of too few I/Os: fewer than ten lie above it",
        mend: "measure longer (p99.9 needs 10,000 I/Os), or give the maximum in its place",
        source: LAB,
    },
    Rule {
        name: "closed-loop",
        what: "a closed loop's latency told as a response time",
        mend: "call it a service time, or measure with an open loop, from the moment each I/O was meant to be issued",
        source: LAB,
    },
    Rule {
        name: "steady-state",
        what: "no word of a steady state, of what went before, or of how long it was measured",
        mend: "say how long the load ran before and while it was measured, and that it had settled",
        source: LAB,
    },
    Rule {
        name: "interval",
        what: "'faster' without an interval, or how far the runs spread",
        mend: "give the interval of the ratio over at least five pairs of runs",
        source: LAB,
    },
    Rule {
        name: "hardware",
        what: "no word of the hardware",
        mend: "say processors, memory, disks and software with their versions",
        source: LAB,
    },
    Rule {
        name: "cache",
        what: "no word of caches, or of how much of the data fitted into them",
        mend: "say the size of the working set and of each cache, and whether it was warm",
        source: LAB,
    },
    Rule {
        name: "gate",
        what: "a rule of the lab that a run did not keep",
        mend: "mend its cause and run it again; do not publish the figure",
        source: LAB,
    },
    Rule {
        name: "sketch",
        what: "a run that is no result: quick, of a modified profile, or ended early",
        mend: "run the profile in full, as it is shipped",
        source: LAB,
    },
];

pub(super) fn rule(name: &str) -> &'static Rule {
    RULES.iter().find(|rule| rule.name == name).expect("a finding is by a rule that there is")
}
