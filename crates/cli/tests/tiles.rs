//! Tiles by the binary: exit statuses, what is told, what is kept, and what a machine costs.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// One machine of the lab's own busiest trace, for a second or two.
const PROFILE: &str = r#"
title = "small"
about = "as small as can be"
[tiles]
sample = "2s"
quick_sample = "1s"
scale = 0.001
[[vm]]
name = "shop"
trace = "store-db"
gigabytes = 45
count = 2
"#;
const PRICE: &str = "currency = \"EUR\"\ndate = \"2026-11-01\"\n\
    [[line]]\nitem = \"box\"\nquantity = 1\nunit = \"100.00\"\nsource = \"list\"\n";

fn lab(dir: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stonefold")).current_dir(dir).arg("lab").args(words).output().unwrap()
}

fn written(words: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    words.iter().for_each(|(name, text)| std::fs::write(dir.path().join(name), text).unwrap());
    dir
}

#[test]
fn tiles_are_counted_priced_kept_and_drawn() {
    let dir = written(&[("tile.toml", PROFILE), ("price.toml", PRICE)]);
    let words = [
        "run",
        "tile.toml",
        "--target",
        "null:",
        "--tiles",
        "1..2",
        "--price",
        "price.toml",
        "--out",
        "kept",
    ];
    let run = lab(dir.path(), &words);
    let (said, told) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert_eq!(run.status.code(), Some(0), "{said}{told}");
    assert!(told.contains("a tile has 85.8M in 2 volumes, 0.001 of the published size"), "{told}");
    assert!(said.contains("result: at least 4 virtual machines (2 tiles)"), "{said}");
    assert!(said.contains("price: 25.00 EUR per VM, of 4"), "{said}");
    assert!(said.contains("--tiles 1..2"), "{said}");
    let report = lab(dir.path(), &["report", "kept", "--html", "kept.html", "--json", "kept.json"]);
    assert_eq!(report.status.code(), Some(0), "{}", String::from_utf8_lossy(&report.stderr));
    let json: Value =
        serde_json::from_str(&std::fs::read_to_string(dir.path().join("kept.json")).unwrap()).unwrap();
    let tiles = &json["runs"][0]["charts"]["tiles"];
    assert_eq!((&tiles["vms"], &tiles["steps"][1]["machines"][3]["tile"]), (&4.into(), &2.into()));
    assert!(tiles["steps"][1]["machines"][3]["footprint_bytes"].as_u64().unwrap() > 0);
    assert_eq!(lab(dir.path(), &["verify", "kept"]).status.code(), Some(0));
}

/// Goal: what is done beside the tiles is counted, told, kept and drawn; what it does leaves nothing behind.
#[test]
fn operations_go_on_beside_tiles() {
    let operation =
        "[[operation]]\nname = \"deploy\"\nsteps = [\"clone\", \"delete\"]\nleast = 1800\nfrom = 1\n";
    let dir = written(&[
        (
            "ops.toml",
            "[deploy]\nclone = 'sleep 0.2; touch round-$STONEFOLD_LAB_ROUND'\ndelete = 'rm round-*'\n",
        ),
        ("tile.toml", &format!("{PROFILE}{operation}")),
    ]);
    let words =
        ["run", "tile.toml", "--target", "null:", "--tiles", "1..1", "--ops", "ops.toml", "--out", "kept"];
    let run = lab(dir.path(), &words);
    let (said, told) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert_eq!(run.status.code(), Some(0), "{said}{told}");
    // One is required in two seconds, and on a quiet machine eight fit.
    for words in ["deploy>=1800 an hour: met", "score: ", "clone 0.", "delete 0.", "--ops ops.toml"] {
        assert!(said.contains(words), "no {words:?} in {said}");
    }
    assert!(
        std::fs::read_dir(dir.path())
            .unwrap()
            .all(|entry| { !entry.unwrap().file_name().to_string_lossy().starts_with("round-") })
    );
    let report = lab(dir.path(), &["report", "kept", "--json", "kept.json"]);
    assert_eq!(report.status.code(), Some(0), "{}", String::from_utf8_lossy(&report.stderr));
    let json: Value =
        serde_json::from_str(&std::fs::read_to_string(dir.path().join("kept.json")).unwrap()).unwrap();
    let tiles = &json["runs"][0]["charts"]["tiles"];
    assert!(tiles["steps"][0]["operations"][0]["done"].as_u64() >= Some(1), "{tiles}");
    let missing = lab(dir.path(), &["run", "tile.toml", "--target", "null:"]);
    assert!(String::from_utf8_lossy(&missing.stderr).contains("--ops FILE"));
    let needless = lab(dir.path(), &["run", "vm-tile", "--target", "null:", "--ops", "ops.toml"]);
    assert!(String::from_utf8_lossy(&needless.stderr).contains("no operation 'deploy'"));
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_measured() {
    let dir = written(&[("tile.toml", PROFILE), ("bad.toml", "currency = 7\n")]);
    let refused = |words: &[&str], status: i32, says: &str| {
        let run = lab(dir.path(), &[&["run"], words, &["--target", "null:"]].concat());
        let told = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(status), "{words:?}: {told}");
        assert!(told.contains(says), "{words:?}: {told}");
    };
    refused(&["tile.toml", "--tiles", "0"], 2, "no number of tiles");
    refused(&["tile.toml", "--tiles", "8..4"], 2, "name the fewer first");
    refused(&["tile.toml", "--tiles", "129"], 2, "choose from 1 to 128");
    refused(&["tile.toml", "--scale", "2"], 2, "no share");
    refused(&["tile.toml", "--size", "1G"], 2, "--scale makes volumes smaller");
    refused(&["tile.toml", "--price", "bad.toml"], 1, "the price file");
    refused(&["tile.toml", "--require", "nobody:p99<=1ms"], 2, "name one of shop");
    refused(&["poltp", "--tiles", "2"], 2, "has no tiles");
    let compared = lab(dir.path(), &["compare", "vm-tile", "--a", "null:", "--b", "null:"]);
    assert_eq!(compared.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&compared.stderr).contains("replays tiles"));
}

#[test]
fn the_labs_own_traces_are_shown_by_name() {
    let dir = written(&[]);
    let shown = lab(dir.path(), &["trace", "show", "idle"]);
    assert_eq!(shown.status.code(), Some(0), "{}", String::from_utf8_lossy(&shown.stderr));
    assert!(String::from_utf8_lossy(&shown.stdout).contains("length"));
    // A file of that name comes first.
    std::fs::write(dir.path().join("idle"), "no trace").unwrap();
    assert_eq!(lab(dir.path(), &["trace", "show", "idle"]).status.code(), Some(1));
}
