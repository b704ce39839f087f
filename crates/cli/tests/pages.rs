//! Reports of the lab in a real browser: those of the runs that are kept, of every kind there is among them.
//!
//! Goal: whichever of these was run, its page is drawn to its end, with its charts, by itself, and no wider than a phone.

mod browser;

use browser::Browser;
use std::path::Path;
use std::process::Command;

const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/runs");
/// Pixels: of a phone, and of a desk.
const WIDTHS: [u32; 2] = [500, 1100];

/// What the page of a kept run must have: its folder, words that only what was drawn has, and how many charts at least.
const PAGES: [(&str, &[&str], usize); 10] = [
    (
        "corners-quick",
        &[">What each did<", ">p99 response: the median of each arm's runs.", ">Every figure<"],
        10,
    ),
    (
        "poltp-quick",
        &[">I/Os a second: the median of each arm's runs.", ">CPU for a million I/Os<", ">Every run<"],
        10,
    ),
    ("oltp-quick", &[">NOPM<", ">Orders by users. Dashed", ">Response time of New-Order by users."], 30),
    (
        "recovery-quick/chain-recover",
        &[">Recovered points<", ">90% of native<", "Triangles: the first order."],
        30,
    ),
    ("recovery-quick/migrate-live", &[">The disk is moved<", "Dashed: the rate before the move"], 15),
    (
        "sqlio-quick",
        &[">Figures<", ">Point by point<", ">I/Os a second; what is shaded", ">Share of I/Os that took"],
        15,
    ),
    (
        "storage-nodes-quick",
        &[">Phases<", ">Search for the best I/Os in flight<", ">Figures<", ">Point by point<"],
        10,
    ),
    ("chaos-quick/stonefold", &[">Outages<", ">What was required<", ">Point by point<"], 10),
    (
        "tile-hour",
        &[">Tiles<", ">Applications of 8 virtual machines (1 tile)<", ">Each machine's mean response time"],
        8,
    ),
    ("vm-ops-quick", &[">Tiles<", ">Beside 8 virtual machines (1 tile)<", ">mean of each step<"], 8),
];

#[test]
fn a_page_of_each_kind_is_drawn_to_its_end() {
    let Some(browser) = Browser::find("reports in a browser") else { return };
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for (run, words, charts) in PAGES {
        let page = folder.path().join(format!("{}.html", run.replace('/', "-")));
        let made = Command::new(env!("CARGO_BIN_EXE_stonefold"))
            .args(["lab", "report"])
            .arg(Path::new(KEPT).join(run))
            .arg("--html")
            .arg(&page)
            .output()
            .unwrap();
        assert!(made.status.success(), "{run}: {}", String::from_utf8_lossy(&made.stderr));
        for width in WIDTHS {
            let drawn = browser.draw(&page, width);
            assert_eq!(drawn.error(), None, "{run}, {width} wide");
            assert!(
                !drawn.title().is_empty() && drawn.title() != "report",
                "{run}: its script did not come to its end"
            );
            assert!(drawn.over() <= 0, "{run} is {} pixels wider than {width}", drawn.over());
            let page = drawn.without_scripts();
            let drawn_charts = page.matches("<svg").count();
            assert!(drawn_charts >= charts, "{run}: {drawn_charts} charts");
            words.iter().for_each(|word| assert!(page.contains(word), "{run} has no '{word}'"));
        }
    }
}
