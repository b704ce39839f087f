//! Studies, by the binary: real runs on files, as short as can be, and the published tables filled from what they kept.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// Seconds where the profile has minutes. What is run so is no shipped profile any more, and is told to be modified.
const TIMES: &str = "[time]\nprecondition = \"0s\"\nsample = \"2s\"\npoint = \"2s\"\nquick_precondition = \"0s\"\nquick_sample = \"2s\"\nquick_point = \"2s\"\n";

fn lab(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stonefold")).arg("lab").args(words).output().unwrap()
}

fn json(words: &[&str]) -> Value {
    let output = lab(words);
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{words:?}: {e}: {}", String::from_utf8_lossy(&output.stderr)))
}

fn misused(words: &[&str]) -> String {
    let output = lab(words);
    assert_eq!(output.status.code(), Some(2), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stderr).unwrap()
}

/// A shipped profile with short times, in a file of its name.
fn short(dir: &Path, name: &str) -> String {
    let shown = lab(&["show", name]);
    let text = String::from_utf8(shown.stdout).unwrap();
    let text = text.split("[time]").next().unwrap().to_owned() + TIMES;
    let path = dir.join(format!("{name}.toml"));
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Rows of a table by what they are of.
fn row<'a>(study: &'a Value, table: usize, name: &str, of: &str) -> &'a Value {
    let rows = study["found"]["tables"][table]["rows"].as_array().unwrap();
    rows.iter()
        .find(|row| row["name"] == name && row["of"] == of)
        .unwrap_or_else(|| panic!("no {name}, {of} in {study}"))
}

fn figure(row: &Value, column: usize) -> f64 {
    row["figures"][column].as_f64().unwrap_or_else(|| panic!("no figure {column} in {row}"))
}

#[test]
fn a_run_fills_the_tables_of_its_report() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (profile, out) = (short(dir.path(), "sqlio"), dir.path().join("out"));
    let out = out.to_str().unwrap();
    let target = format!("file:{}/t.img", dir.path().display());
    let run = json(&["run", &profile, "--target", &target, "--size", "32M", "--out", out, "--json"]);
    // Every block was written once before anything was measured; what a file takes for that its file system says, which may compress.
    let (space, file) = (&run["space"], &run["space"]["physical"][0]);
    assert!(
        space["written"].as_u64() >= space["logical"].as_u64() && space["logical"].as_u64() > Some(0),
        "{space}"
    );
    assert!(file["target"] == target && file["bytes"].as_u64() > Some(0), "{space}");
    let cost = &run["cpu"][0];
    assert!(cost["generator"].as_f64() > Some(0.0) && cost["machine"].as_f64() > Some(0.0), "{cost}");
    let study = json(&["study", "sqlio", "--from", out, "--cores", "4", "--json"]);
    let iops = |point: &str| {
        let figures = run["figures"].as_array().unwrap();
        figures.iter().find(|one| one["point"] == point).unwrap()["iops"].as_f64().unwrap()
    };
    for (column, (point, published)) in
        [("8K random read", 238_000.0), ("8K random write", 83_000.0)].into_iter().enumerate()
    {
        assert_eq!(figure(row(&study, 0, "SQLIO", "published"), column), published);
        let here = figure(row(&study, 0, "SQLIO", "here"), column);
        assert!((here / iops(point) - 1.0).abs() < 1e-9, "{here}, {}", iops(point));
        assert_eq!(figure(row(&study, 0, "SQLIO", "here, a core"), column), here / 4.0);
    }
    assert_eq!(figure(row(&study, 0, "SQLIO", "published, a core"), 0), 2975.0);
    let megabytes = figure(row(&study, 2, "SQLIO", "here"), 0);
    assert!((megabytes / (iops("8K sequential write") * 8192.0 / 1e6) - 1.0).abs() < 1e-6, "{megabytes}");

    let text = String::from_utf8(lab(&["study", "sqlio", "--from", out]).stdout).unwrap();
    for words in [
        "238,000",
        "2,975",
        "a core: 80 there",
        "modified: not to be held against others",
        "again: stonefold lab run",
    ] {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
    let refused = misused(&["study", "corners", "--from", out]);
    assert!(
        refused.contains("is a run of sqlio") && refused.contains("the study 'corners' is of corners"),
        "{refused}"
    );
    assert!(misused(&["study", "filesystems", "--from", out]).contains("is of ab"));
}

#[test]
fn a_trial_fills_the_tables_of_its_report() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (profile, out) = (short(dir.path(), "ab"), dir.path().join("out"));
    let out = out.to_str().unwrap();
    let target = |name: &str| format!("file:{}/{name}.img", dir.path().display());
    let (a, b) = (target("a"), target("b"));
    json(&[
        "compare", &profile, "--a", &a, "--b", &b, "--pairs", "2", "--size", "32M", "--out", out, "--json",
    ]);
    // The command that does the same again names what is kept, and not what was there when it was run.
    let kept = std::fs::read_to_string(format!("{out}/arms.toml")).unwrap();
    assert!(kept.contains(&a) && kept.contains(&b), "{kept}");
    let trial: Value =
        serde_json::from_str(&std::fs::read_to_string(format!("{out}/trial.json")).unwrap()).unwrap();
    assert!(trial["reproduce"].as_str().unwrap().contains(" --arms arms.toml --pairs 2 "), "{trial}");
    assert!(trial["version"].as_str().unwrap().contains(" (commit "), "{trial}");
    let told = String::from_utf8(lab(&["verify", out]).stdout).unwrap();
    assert!(told.contains(&format!(" --arms {out}/arms.toml ")), "{told}");
    let study = json(&["study", "filesystems", "--from", out, "--json"]);
    let name = "Jetstress there, 8K 70/30 here";
    let here = row(&study, 0, name, "here");
    assert!(figure(here, 0) > 0.0 && figure(here, 1) > 0.0, "{here}");
    assert!(
        (figure(row(&study, 0, name, "here, of the first"), 1) - figure(here, 1) / figure(here, 0)).abs()
            < 1e-9
    );
    assert_eq!(figure(row(&study, 1, name, "published"), 0), 1.072);
    // Of two rounds that are short some may not have become steady: then there is no ratio, and the study says so by a dash.
    let ratio = row(&study, 1, name, "here");
    let told = ratio["told"][0].as_str().unwrap();
    assert_eq!(ratio["figures"][0].is_null(), told == "-", "{ratio}");
    assert!(told == "-" || told.contains(" to "), "a ratio has its interval: {told}");
    assert_eq!(study["found"]["arms"], serde_json::json!(["A", "B"]));
    assert!(misused(&["study", "sqlio", "--from", out]).contains("on several arms"));
}

/// Goal: one load of a profile can be compared alone, and what was left out is told wherever the figures are.
#[test]
fn a_step_alone_is_compared_and_told() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (profile, out) = (short(dir.path(), "ab"), dir.path().join("out"));
    let out = out.to_str().unwrap();
    let target = |name: &str| format!("file:{}/{name}.img", dir.path().display());
    let (a, b) = (target("a"), target("b"));
    let words =
        ["compare", &profile, "--a", &a, "--b", &b, "--pairs", "1", "--size", "32M", "--step", "reads"];
    let told = lab(&[&words[..], &["--out", out]].concat());
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("modified") && told.contains(", of its steps only 'reads'"), "{told}");
    assert!(!told.contains("writes") && told.contains(" --step reads "), "{told}");
    let mut kept = std::fs::read_dir(out).unwrap().filter_map(Result::ok).map(|entry| entry.path());
    let run = kept.find(|path| path.is_dir()).unwrap();
    let again = String::from_utf8(lab(&["report", run.to_str().unwrap()]).stdout).unwrap();
    assert!(again.contains(", of its steps only 'reads'"), "{again}");
}

#[test]
fn what_a_study_needs_is_said() {
    let listed = json(&["study", "--json"]);
    let names: Vec<&str> =
        listed.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"corners") && names.contains(&"ladder"), "{names:?}");
    for (words, says) in [
        (vec!["study", "recovry"], "there is no study 'recovry'"),
        (vec!["study", "corners"], "name it with --target"),
        (vec!["study", "recovery"], "name it with --target"),
        (vec!["study", "corners", "--target", "null:", "--to", "file:/x"], "moves and recovers nothing"),
        (vec!["study", "corners", "--from", "/x", "--from", "/y"], "say --from once"),
        (vec!["study", "corners", "--a", "null:", "--b", "null:"], "--target"),
        (
            vec!["study", "recovery", "--a", "null:", "--b", "null:", "--to", "file:/x"],
            "say --to once for each",
        ),
        (vec!["study", "storage-nodes", "--arms", "/x"], "and no --arms"),
        (vec!["study", "sqlio", "--target", "null:", "--ops", "/x"], "does nothing beside"),
        (vec!["study", "tiles", "--a", "null:", "--b", "null:"], "--target"),
        (vec!["study", "filesystems"], "name two with --a and --b"),
        (vec!["study", "filesystems", "--target", "null:"], "name two with --a and --b"),
        (vec!["run", "sqlio", "--target", "null:", "--quick", "--point", "1s"], "leave --point out"),
        (vec!["run", "ab", "--target", "null:", "--quick", "--step", "read"], "'mixed', 'reads', 'writes'"),
        (
            vec!["run", "oltp", "--target", "dir:/", "--step", "read"],
            "--step says nothing to a profile that runs a database",
        ),
        (
            vec!["run", "vm-tile", "--target", "null:", "--step", "read"],
            "--step says nothing to a profile of tiles",
        ),
        (vec!["compare", "ab"], "name two targets with --a and --b"),
    ] {
        let said = misused(&words);
        assert!(said.contains(says), "{words:?}: {said}");
    }
}
