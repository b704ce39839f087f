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

/// What the page of a kept run must have: its folder, words of it, and how many charts at least.
const PAGES: [(&str, &[&str], usize); 8] = [
    ("corners-quick", &["What differs", "Every figure", "Round by round"], 5),
    ("poltp-quick", &["What each did"], 2),
    ("oltp-quick", &["NOPM", "Response time of New-Order by users"], 4),
    ("recovery-quick/chain-recover", &["Users"], 1),
    ("recovery-quick/migrate-live", &["The disk is moved"], 1),
    ("sqlio-quick", &["Point by point", "Search for the best I/Os in flight"], 2),
    ("tile-hour", &["Figures"], 1),
    ("vm-ops-quick", &["Point by point"], 1),
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
            assert!(drawn.count("svg") >= charts, "{run}: {} charts", drawn.count("svg"));
            words.iter().for_each(|word| assert!(drawn.dom.contains(word), "{run} has no '{word}'"));
        }
    }
}
