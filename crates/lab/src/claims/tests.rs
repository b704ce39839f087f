//! Goal: each fault that published reports had is found, and a text that is right is passed. The texts are of our own words;
//! the figures of those that name a report are its own.

use super::{RULES, lint_text};
use std::collections::BTreeSet;

/// What an honest text tells of itself.
const TOLD: &str = "Both ran on four nodes with 20 cores and NVMe disks, on a working set of twice the cache, at queue depth 16, \
    after 30 minutes of the same load, in five rounds.";

fn rules_of(text: &str) -> Vec<&'static str> {
    let found: BTreeSet<&str> = lint_text(text).into_iter().map(|finding| finding.rule).collect();
    found.into_iter().collect()
}

/// The fault alone, in a text that is otherwise right.
fn wrong(rule: &str, claims: &[&str]) {
    for claim in claims {
        let text = format!("# A report\n\n{TOLD}\n\n{claim}\n");
        assert_eq!(rules_of(&text), [rule], "{claim}\n{:#?}", lint_text(&text));
    }
}

fn right(claims: &[&str]) {
    for claim in claims {
        let text = format!("# A report\n\n{TOLD}\n\n{claim}\n");
        assert!(lint_text(&text).is_empty(), "{claim}\n{:#?}", lint_text(&text));
    }
}

#[test]
fn two_ratios_for_one_comparison() {
    wrong(
        "one-ratio",
        &[
            // DeepStorage 2018: 2.64 at the plateaus.
            "The recovered machine did 118,417 TPM on Cohesity and 44,821 TPM on the other, over three times the transactions.",
            "Cohesity was over three times faster than Veeam.\n\nSeen closely, Cohesity gave 2.6 times the throughput of Veeam.",
            "A moved 100 MB/s and B moved 180 MB/s. That makes B 2.5x faster.",
            "It did over three times the transactions of Veeam: 118,417 TPM against 44,821 TPM, or 2.6 times.",
            "With the new code Alpha has 50% more IOPS: 1,000 IOPS on Beta, 1,200 IOPS here.",
            "It was more than triple the TPM: 118,417 against 44,821.",
            "It was more than triple the TPM: 118,417 vs. 44,821.",
            "Alpha gave double the IOPS: 1,000 IOPS on Beta, 1,200 IOPS here.",
            "Throughput quadrupled, from 100 MB/s to 180 MB/s.",
        ],
    );
    right(&[
        "The recovered machine did 118,417 TPM on Cohesity and 44,821 TPM on the other, 2.6 times the transactions.",
        "Cohesity was more than twice as fast as Veeam.\n\nSeen closely, Cohesity gave 2.6 times the throughput of Veeam.",
        "Alpha gave 2 times the IOPS of Beta for reads.\n\nAlpha gave 3 times the IOPS of Beta for writes.",
        "It did 2.6 times the transactions of Veeam: 118,417 TPM against 44,821 TPM, at 1.1 times the price.",
        "It is tried four times a second, and more performance is not needed.",
        "Alpha has 20% more IOPS: 1,000 IOPS on Beta, 1,200 IOPS here.",
        "Reads were 1.4 to 1.6 × faster than nbdkit's.",
        "It was more than double the TPM: 118,417 against 44,821.",
        "With double the RAM it gave more: 1,000 IOPS then, 1,200 IOPS now.",
        "A triple mirror has more performance to lose: 1,000 IOPS then, 1,200 IOPS now.",
        "It does three times the IOPS. It has 5000 against 4000 customers.",
        "It does three times the IOPS, as in the releases of 2018 and 2024.",
    ]);
}

#[test]
fn a_peak_that_ignores_the_best_arm() {
    wrong(
        "best-arm",
        &[
            // The Nutanix ladder, T1 to T6.
            "Tuning peaked at 362.7 IOPS.\n\n| step | IOPS |\n|---|---|\n| T1 | 200.7 |\n| T2 | 249.6 |\n| T3 | 389.8 |\n| T6 | 362.7 |",
            "The steps gave 200.7, 249.6, 389.8, 300.3 and 334 IOPS. The highest was 334 IOPS.",
            "The best result was that of T6 with 362.7 IOPS. T1 200.7, T2 249.6, T3 389.8, T4 300.3.",
            "The best result was T6 with 362.7 IOPS (T1 200.7, T3 389.8, T4 300.3).",
            "The steps were T1: 200.7, T3: 389.8 and T6: 362.7. The best result was 362.7 IOPS.",
            "The best random read was 150,829 IOPS.\n\n| load | IOPS |\n|---|---|\n| random read, small | 227,242 |\n| random read, large | 150,829 |\n| random write | 400,000 |",
        ],
    );
    right(&[
        "Tuning peaked at 389.8 IOPS.\n\n| step | IOPS |\n|---|---|\n| T1 | 200.7 |\n| T3 | 389.8 |\n| T6 | 362.7 |",
        "Alpha peaked at 300 IOPS.\n\n| system | IOPS |\n|---|---|\n| Alpha | 300 |\n| Beta | 500 |",
        "The highest write rate was 63,868 IOPS.\n\n| load | IOPS |\n|---|---|\n| read | 227,242 |\n| write | 63,868 |",
        "The steps gave 200, 250 and 334 IOPS. The highest was 334 IOPS, where 500 IOPS are required.",
        "The best result was that of T3 with 389.8 IOPS. T1 200.7, T2 249.6, T6 362.7.",
        "The best result was that of T6 with 362.7 IOPS. In seconds T1 took 500, T2 600, T3 700.",
        "The best result was that of T6 with 362.7 IOPS. T1 had 400 disks, T2 500 disks.",
    ]);
}

#[test]
fn arms_at_different_loads() {
    wrong(
        "same-load",
        &[
            // DeepStorage 2018.
            "Cohesity did 118,417 TPM at 21 users, against 44,821 at 9.",
            "Alpha read 9,000 IOPS with 32 threads, Beta 7,000 IOPS, compared with 16 threads.",
            "Alpha gave 20,000 IOPS of 4K while Beta gave 9,000 IOPS of 64K.",
            "NTFS did 7,328 IOPS with 16 threads and ReFS 6,697 IOPS with 8 threads.",
            "| system | users | TPM |\n|---|---|---|\n| Alpha | 21 | 118,417 |\n| Beta | 9 | 44,821 |",
            "Cohesity: 118,417 TPM at 21 users; Veeam: 44,821 TPM at 9 users.",
            "Cohesity: 118,417 TPM at 21 users. Veeam: 44,821 TPM at 9 users.",
            "Cohesity did 118,417 TPM at 21 users. Veeam did 44,821 TPM at 9 users.",
            "- Cohesity: 118,417 TPM at 21 users\n- Veeam: 44,821 TPM at 9 users",
            "On a footprint of 1.6 TB Alpha was ahead, whereas Beta had a footprint of 16 TB.",
            "Alpha against Beta:\n\n| system | users | TPM |\n|---|---|---|\n| Alpha | 21 | 118,417 |\n| Beta | 9 | 44,821 |",
        ],
    );
    right(&[
        "Cohesity did 60,000 TPM at 9 users, against 44,821 at 9.",
        "NTFS did 7,328 IOPS with 16 threads and ReFS 6,697 IOPS with 16 threads.",
        "Cohesity: 60,000 TPM at 9 users; Veeam: 44,821 TPM at 9 users.",
        "Reads: 60,000 IOPS with 32 threads; Writes: 9,000 IOPS with 16 threads.",
        "Baseline: 10,000 IOPS at 8 threads; Saturation: 40,000 IOPS at 64 threads.",
        "Light: 100 TPM at 5 users. Heavy: 900 TPM at 50 users.",
        "Alpha: 9,000 IOPS with 1 thread. Alpha: 60,000 IOPS with 32 threads.",
        "T1: 9,000 IOPS with 1 thread; T2: 60,000 IOPS with 32 threads.",
        "Alpha did 60,000 IOPS with 32 threads. Beta was given 16 threads by its vendor.",
        "With 1 thread Alpha did 9,000 IOPS and with 32 threads 60,000 IOPS.",
        "| step | users | TPM |\n|---|---|---|\n| first | 21 | 118,417 |\n| second | 9 | 44,821 |",
        "At queue depths 1 and 32 Alpha gave more than Beta.",
        "Alpha against Beta:\n\n| system | users | TPM |\n|---|---|---|\n| Alpha | 9 | 60,000 |\n| Beta | 9 | 44,821 |",
        "Alpha at each depth, against itself:\n\n| depth | IOPS |\n|---|---|\n| 1 | 9,000 |\n| 32 | 60,000 |",
        "Alpha against Beta:\n\n| system | users | TPM |\n|---|---|---|\n| Alpha | 1 | 9 |\n| Alpha | 2 | 18 |\n| Beta | 1 | 8 |\n| Beta | 2 | 17 |",
    ]);
}

#[test]
fn a_score_that_does_not_follow_from_its_counts() {
    wrong(
        "score",
        &[
            // IOmark-VM 3.8, Tintri T5060: ratios 1.33 and 2.33.
            "In the hour there were 8 clones of the 6 that are required, and 7 migrations of 3. The score is 5.47.",
            "Score: 5.47 (8 clone-and-deploys where 6 are needed; 7 migrations where 3 are needed).",
            "Score: 5.47 (8 clones, 6 required; 7 migrations, 3 required).",
            "Clone 8 (required 6), migrate 7 (required 3): score 5.47.",
            "The score is 5.47.\n\n| operation | completed | required |\n|---|---|---|\n| clone and deploy | 8 | 6 |\n| migrate | 7 | 3 |",
        ],
    );
    right(&[
        "In the hour there were 8 clones of the 6 that are required, and 7 migrations of 3. The score is 1.33, the smaller ratio.",
        "In the hour there were 8 clones of the 6 that are required, and 7 migrations of 3. The geometric mean gives a score of 1.76.",
        "Score: 1.33 (8 clone-and-deploys where 6 are needed; 7 migrations where 3 are needed).",
        "Clone 8 (required 6), migrate 7 (required 3): score 1.76.",
        "There were 9 runs where 3 failed, and 8 where 2 failed; the score was 5.47.",
        "Of 9 runs 7 of 9 passed. The score of another benchmark was 5.47.",
    ]);
}

#[test]
fn capacities_mixed() {
    wrong(
        "capacity",
        &[
            "Deduplication brought 34 TB down to 7.2 TB physical.",
            "At $0.25 per GB it is cheap.",
            "It keeps 40 TB of VMs on 15 TB of flash.",
            "It stores 40 TB of virtual machines on 15 TB of all-flash storage.",
            "Our 40 TB of data fit in only 15 TB of raw disk.",
            "Alpha holds 40 TB logical against 15 TB physical on Beta.",
        ],
    );
    right(&[
        "Deduplication brought 34 TB written down to 7.2 TB physical.",
        "At $0.25 per usable GB it is cheap.",
        "Alpha holds 40 TB raw against 15 TB raw on Beta.",
        "A disk of 1 TB and one of 2 TB were filled.",
        "It keeps 40 TB of VMs, as written, on 15 TB of flash.",
        "It keeps 12 TB of VMs on 15 TB of flash.",
        "It keeps 40 TB of VMs on 15 TB of flash in each of four nodes.",
        "It keeps 40 TB of VMs on disks, and 15 TB on flash.",
    ]);
}

#[test]
fn a_rate_without_its_depth() {
    let told = TOLD.replace("at queue depth 16, ", "");
    // Springpath, SQLIO.
    let text = format!("# A report\n\n{told}\n\nSmall random reads gave 238k IOPS, writes 83k IOPS.\n");
    assert_eq!(rules_of(&text), ["queue-depth"]);
    let finding = &lint_text(&text)[0];
    assert_eq!((finding.line, finding.column, finding.words.as_str()), (Some(5), Some(25), "238k IOPS"));
    for rate in ["238k I/O operations per second", "238,000 I/Os a second", "0.2 million IOs/s"] {
        let text = format!("# A report\n\n{told}\n\nSmall random reads gave {rate}.\n");
        let found = lint_text(&text);
        assert_eq!(found.iter().map(|one| one.words.as_str()).collect::<Vec<_>>(), [rate], "{found:#?}");
        right(&[&format!("Small random reads gave {rate}.")]);
    }
    right(&["Small random reads gave 238k IOPS, writes 83k IOPS."]);
    let counted = format!("# A report\n\n{told}\n\nAll 238,000 I/Os were answered, each second one late.\n");
    assert!(lint_text(&counted).is_empty(), "{:#?}", lint_text(&counted));
}

#[test]
fn one_unit_called_another() {
    wrong(
        "units",
        &[
            // 622 MB/s as printed; 9,952 I/Os of 64 KiB a second are 622 MiB.
            "Writing in order took 9,952 IOPS of 64K: 622 MB/s.",
            "| load | IOPS | MB/s |\n|---|---|---|\n| 32K read | 79,703 | 2,490.7 |\n| 4K read | 100 | 3 |",
            "In order it was 10,000 IOPS of 64K, that is 655.4 MiB/s.",
        ],
    );
    right(&[
        "Writing in order took 9,952 IOPS of 64K: 622 MiB/s.",
        "Writing in order took 9,952 IOPS of 64K: 652 MB/s.",
        "| load | IOPS | MiB/s |\n|---|---|---|\n| 32K read | 79,703 | 2,490.7 |\n| 4K read | 100 | 0.39 |",
        "A mix gave 9,952 IOPS of 4K and 64K, 300 MB/s.",
    ]);
}

#[test]
fn no_impact_without_an_off_run() {
    wrong(
        "no-impact",
        &[
            "Deduplication and compression have no impact on performance.",
            "Snapshots come with zero overhead for the load beside them.",
            "Encryption brings a zero performance penalty.",
            "Deduplication did not affect performance.",
            "Snapshots did not impact performance, nor do they impact anything else.",
            "Throughput was unaffected by the backup.",
            "Encryption had no measurable effect on latency.",
        ],
    );
    right(&[
        "Deduplication has no impact on performance: with it switched off the rates were within the interval.",
        "Snapshots come with no overhead: against the same without them, 0.99 to 1.01 in five pairs.",
        "The vote had no impact on the plan.",
        "Clones are unaffected by the removal of their snapshots.",
        "The vote did not affect the plan.",
        "Encryption had no measurable effect on latency: switched off it was the same within 2%.",
    ]);
}

#[test]
fn averages_of_percentiles() {
    wrong(
        "averaged-percentiles",
        &[
            "Of 40,000 reads the average p99 of the four nodes was low.",
            "Of 40,000 reads the p95 was averaged over all machines.",
            "The mean 99th percentile of 40,000 reads was low.",
            "| node | reads | p99, ms |\n|---|---|---|\n| 1 | 90,000 | 2 |\n| 2 | 90,000 | 9 |\n| average | 90,000 | 5.5 |",
        ],
    );
    right(&[
        "Of 40,000 reads the average was 1 ms, and p99 4 ms.",
        "Percentiles are never averaged: the p99 is that of the merged histogram.",
        "| node | reads | p99, ms |\n|---|---|---|\n| 1 | 90,000 | 2 |\n| 2 | 90,000 | 9 |\n| all, merged | 180,000 | 8 |",
    ]);
}

#[test]
fn percentiles_of_few_and_of_nobody_knows_how_many() {
    wrong("percentile-count", &["The p99 was 2.4 ms."]);
    wrong(
        "rare-percentile",
        &["Of 2,000 I/Os the p99.9 was 9 ms.", "Over 400 requests the 99th percentile was 9 ms."],
    );
    right(&[
        "Of 20,000 I/Os the p99.9 was 9 ms.",
        "Over 4,000 requests the 99th percentile was 9 ms.",
        "A p99.9 needs 10,000 I/Os.",
    ]);
}

#[test]
fn a_closed_loop_told_as_response_times() {
    wrong("closed-loop", &["The response time was 2 ms.", "Users see 2 ms."]);
    right(&[
        "The service time was 2 ms.",
        "The response time was 2 ms, with an open loop at 70% of the most.",
    ]);
}

#[test]
fn faster_without_an_interval() {
    let told = TOLD.replace(", in five rounds", "");
    let report = |claim: &str| format!("# A report\n\n{told}\n\n{claim}\n");
    // Nutanix notes, ReFS or NTFS.
    assert_eq!(rules_of(&report("The second file system is 7% faster than the first.")), ["interval"]);
    assert!(rules_of(&report("The second is 7.2% faster than the first, 95% CI 4.1 to 10.3%.")).is_empty());
    assert!(rules_of(&report("Nothing is faster unless its interval says so.")).is_empty());
    right(&["The second file system is 7% faster than the first."]);
}

#[test]
fn figures_without_their_kitchen() {
    let claim = "It reads 9,000 IOPS at queue depth 4.";
    assert_eq!(rules_of(claim), ["cache", "hardware", "steady-state"]);
    assert!(rules_of("It keeps disks, and has no figures.").is_empty());
    assert!(rules_of("A class may have a limit of 500 IOPS.").is_empty());
    assert!(rules_of("| class | reservation |\n|---|---|\n| a | 500 IOPS |\n| b | 50 IOPS |\n").is_empty());
}

/// Tables and figures of a page are found at their places; what is code or a script is no claim.
#[test]
fn pages_and_code_are_read_as_they_show() {
    let page = "<!doctype html><html><head><style>p { width: 9000 IOPS }</style></head><body><h1>R</h1>\n\
        <script>const x = '9000 IOPS';</script>\n<table><tr><th>load</th><th>IOPS</th><th>MB/s</th></tr>\n\
        <tr><td>64K write</td><td>9,952</td><td>622</td></tr></table>\n\
        <p>Ran 30 minutes on 20 cores, cold cache, queue&nbsp;depth 16.</p></body></html>";
    let found = lint_text(page);
    assert_eq!(
        found.iter().map(|finding| (finding.rule, finding.line)).collect::<Vec<_>>(),
        [("units", Some(4))],
        "{found:#?}"
    );
    let code =
        "# Use\n\n```\nfio --rate_iops=9000 IOPS 100 MB/s p99 9 ms\n```\n\nWrite `9000 IOPS` into it.\n";
    assert!(lint_text(code).is_empty(), "{:#?}", lint_text(code));
}

/// Figures of our own that were published are read by the same rules.
#[test]
fn our_own_pages_pass() {
    for page in ["docs/design/performance.md", "docs/use/lab.md", "README.md"] {
        let path = format!("{}/../../{page}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(lint_text(&text).is_empty(), "{page}: {:#?}", lint_text(&text));
    }
}

/// The page that explains the rules has each, with its source.
#[test]
fn every_rule_is_explained() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/lab-lint.md");
    let page = std::fs::read_to_string(path).unwrap();
    for rule in RULES {
        assert!(page.contains(&format!("| `{}` |", rule.name)), "{}", rule.name);
    }
    assert_eq!(page.lines().filter(|line| line.starts_with("| `")).count(), RULES.len());
}
