//! Figures and what is made of them, by the binary: a real run on a file; its report, held against the schema by another's
//! code; its certificate; what the linter says of it; and a job that the real fio runs, too.

use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

const PROFILE: &str = r#"
title = "small"
about = "as small as can be"
source = "this test"
[[volume]]
name = "v"
size = "32M"
quick = "32M"
[[stream]]
name = "web"
volume = "v"
read = 70
random = 100
sizes = { "4K" = 50, "16K" = 50 }
outstanding = 2
[[step]]
name = "hold"
[[step]]
name = "latency"
loads = [50]
[time]
precondition = "1s"
sample = "6s"
point = "6s"
quick_precondition = "1s"
quick_sample = "6s"
quick_point = "6s"
"#;

const PRICE: &str = "currency = \"EUR\"\ndate = \"2026-11-01\"\nvms = 3\n\
    [[line]]\nitem = \"box\"\nquantity = 3\nunit = \"19.99\"\ndiscount = \"12.5%\"\nsource = \"list\"\ntotal = \"52.47\"\n";

fn stonefold<S: AsRef<std::ffi::OsStr>>(words: impl IntoIterator<Item = S>) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stonefold")).args(words).output().unwrap()
}

/// Of a command, with words that may hold blanks.
fn lab(words: &[&str]) -> Output {
    stonefold(["lab"].iter().chain(words))
}

fn done(words: &[&str]) -> String {
    let output = lab(words);
    assert_eq!(output.status.code(), Some(0), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(words: &[&str]) -> String {
    let output = lab(words);
    assert_ne!(output.status.code(), Some(0), "{words:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// A run that all tests share, in a folder that lives as long as they.
fn run() -> &'static Path {
    static RUN: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = RUN.get_or_init(|| {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let profile = dir.path().join("small.toml");
        std::fs::write(&profile, PROFILE).unwrap();
        let out = dir.path().join("run");
        let target = format!("file:{}", dir.path().join("disk").display());
        let needs = "web:p99<=10s";
        let output = lab(&[
            "run",
            text(&profile),
            "--target",
            &target,
            "--threads",
            "1",
            "--seed",
            "7",
            "--require",
            needs,
            "--out",
            text(&out),
        ]);
        // On a busy machine it may not have settled: then it is INVALID, and whole all the same.
        assert!(matches!(output.status.code(), Some(0 | 3)), "{}", String::from_utf8_lossy(&output.stderr));
        (dir, out)
    });
    path
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// By script(1), of bsdutils, which gives it a terminal.
#[test]
fn at_a_terminal_it_is_asked_first_what_is_needed() {
    use std::io::Write;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let profile = dir.path().join("p.toml");
    let text = "title = 't'\nabout = 'a'\n[[volume]]\nname = 'v'\nsize = '1M'\nquick = '1M'\n[[stream]]\nname = 's'\n\
        volume = 'v'\nread = 50\nrandom = 100\nsizes = { '4K' = 100 }\noutstanding = 1\n[time]\nprecondition = '0s'\n\
        sample = '2s'\nquick_precondition = '0s'\nquick_sample = '2s'\n";
    std::fs::write(&profile, text).unwrap();
    let line = format!(
        "{} lab run {} --target file:{}/t.img --quick",
        env!("CARGO_BIN_EXE_stonefold"),
        profile.display(),
        dir.path().display()
    );
    let mut script = std::process::Command::new("script")
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("script(1), of the package bsdutils");
    let mut asks = script.stdin.take().unwrap();
    asks.write_all(b"iops>=nothing\niops>=1000000000\n").unwrap();
    let output = script.wait_with_output().unwrap();
    drop(asks);
    let said = String::from_utf8_lossy(&output.stdout);
    let (wrong, asked) = (said.find("is no requirement"), said.find("What do you need of it?"));
    assert!(asked < wrong && wrong.is_some() && asked.is_some(), "{said}");
    assert!(said.contains("iops>=1000000000") && said.contains("NOT MET"), "{said}");
}

/// The package python3-jsonschema knows nothing of us.
#[test]
fn a_report_is_what_its_schema_says() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (json, html) = (dir.path().join("report.json"), dir.path().join("report.html"));
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/lab-report.schema.json");
    done(&["report", text(run()), "--json", text(&json), "--html", text(&html)]);
    assert!(std::fs::read_to_string(&html).unwrap().contains("<html"));
    let check = |json: &Path| {
        // With each object closed: a field that the schema does not have is found, too.
        let script = "import json, sys, jsonschema\n\
            schema = json.load(open(sys.argv[1])); report = json.load(open(sys.argv[2]))\n\
            jsonschema.Draft202012Validator.check_schema(schema)\n\
            for one in schema['$defs'].values():\n    \
                if 'properties' in one: one['additionalProperties'] = False\n\
            jsonschema.Draft202012Validator(schema).validate(report)\n";
        Command::new("python3").args(["-c", script, schema, text(json)]).output().expect("python3 is there")
    };
    let output = check(&json);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "is the package python3-jsonschema there? {told}");
    let mut report: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!((report["format"].as_u64(), report["runs"].as_array().unwrap().len()), (Some(1), 1));
    let points = report["runs"][0]["charts"]["points"].as_array().unwrap();
    assert!(
        points.len() == 2 && points.iter().all(|point| !point["timeline"].as_array().unwrap().is_empty())
    );
    for wrong in [Value::String("fast".into()), Value::Null] {
        report["runs"][0]["charts"]["points"][0]["iops"] = wrong;
        std::fs::write(&json, report.to_string()).unwrap();
        assert!(!check(&json).status.success(), "a report that is wrong passes");
    }
    let printed: Value = serde_json::from_slice(&lab(&["report", text(run()), "--json"]).stdout).unwrap();
    assert_eq!(printed["runs"][0]["bundle"].as_str().unwrap().len(), 64);
}

#[test]
fn runs_and_texts_are_linted() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let json = dir.path().join("report.json");
    done(&["report", text(run()), "--json", text(&json)]);
    // What is published of it is no better than the run.
    let page = dir.path().join("report.html");
    done(&["report", text(run()), "--html", text(&page)]);
    for what in [run(), &json, &page] {
        let output = lab(&["lint", text(what), "--json"]);
        assert_eq!(output.status.code(), Some(1));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let rules: Vec<&str> = document["findings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["rule"].as_str().unwrap())
            .collect();
        assert!(rules.contains(&"sketch"), "the profile is nobody's: {rules:?}");
        assert!(!rules.contains(&"closed-loop"), "its open loop was asked for the p99: {rules:?}");
    }
    let article = dir.path().join("article.md");
    std::fs::write(&article, "# Fast\n\nIt does 9,000 IOPS at queue depth 4\non 8 cores, cold cache, for an hour.\nThe average p99 is low.\n").unwrap();
    let output = lab(&["lint", text(&article)]);
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        told.starts_with(&format!("{}:5:5: averaged-percentiles: average p99", article.display())),
        "{told}"
    );
    std::fs::write(&article, "It keeps disks.\n").unwrap();
    assert_eq!(done(&["lint", text(&article)]), "nothing found\n");
    for misuse in [dir.path().join("none.md"), {
        std::fs::write(&article, "{}").unwrap();
        article.clone()
    }] {
        assert_eq!(lab(&["lint", text(&misuse)]).status.code(), Some(2));
    }
}

#[test]
fn a_run_is_certified_and_what_was_changed_is_found() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (key, price, out) = (at("key"), at("price.toml"), at("certificate"));
    std::fs::write(&price, PRICE).unwrap();
    let made: Value = serde_json::from_str(&done(&["certify", "--new-key", &key, "--json"])).unwrap();
    let public = made["public_key"].as_str().unwrap();
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(refused(&["certify", "--new-key", &key]).contains("never written over"));

    let mut words = vec![
        "certify",
        text(run()),
        "--sponsor",
        "Maker & Sons",
        "--auditor",
        "Audits",
        "--available",
        "2026-12-01",
    ];
    words.extend(["--price", &price, "--key", &key, "--out", &out]);
    let why = refused(&words);
    assert!(why.contains("MODIFIED") && why.contains("--stamped"), "{why}");
    words.push("--stamped");
    let told = done(&words);
    assert!(told.contains("52.47 EUR") && told.contains("MODIFIED") && told.contains(public), "{told}");
    assert!(refused(&words).contains("holds something"));

    let json = format!("{out}/certificate.json");
    done(&["certify", "--verify", &json, "--public-key", public]);
    done(&["certify", "--verify", &json, text(run())]);
    let other = "0".repeat(64);
    assert!(refused(&["certify", "--verify", &json, "--public-key", &other]).contains("another signed it"));
    assert_eq!(lab(&["certify", "--verify", &json, "--public-key", "ab"]).status.code(), Some(2));
    let page = std::fs::read_to_string(format!("{out}/certificate.html")).unwrap();
    assert!(
        page.contains("Maker &amp; Sons")
            && page.contains("17.49 EUR per VM")
            && page.contains("class=\"stamp\">MODIFIED")
    );
    let printed = std::fs::read_to_string(format!("{out}/certificate.txt")).unwrap();
    std::fs::write(format!("{out}/certificate.txt"), printed.replacen("52.47", "52.46", 1)).unwrap();
    assert!(refused(&["certify", "--verify", &json]).contains("is not what was signed"));
    std::fs::write(format!("{out}/certificate.txt"), printed).unwrap();
    let signed = std::fs::read_to_string(&json).unwrap();
    std::fs::write(&json, signed.replacen("\"Audits\"", "\"Nobody\"", 1)).unwrap();
    assert!(refused(&["certify", "--verify", &json]).contains("is not what was signed"));
}

/// The run's raw data are held against their hashes before anything is certified.
#[test]
fn a_run_that_was_changed_is_not_certified() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let changed = dir.path().join("run");
    std::fs::create_dir(&changed).unwrap();
    for entry in std::fs::read_dir(run()).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, changed.join(path.file_name().unwrap())).unwrap();
    }
    let file = changed.join("run.json");
    let text_of = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text_of.replacen("\"locked\":false", "\"locked\":true", 1)).unwrap();
    let key = dir.path().join("key");
    done(&["certify", "--new-key", text(&key)]);
    let out = dir.path().join("out");
    let why = refused(&[
        "certify",
        text(&changed),
        "--sponsor",
        "A",
        "--auditor",
        "B",
        "--available",
        "2026-12-01",
        "--key",
        text(&key),
        "--out",
        text(&out),
        "--stamped",
    ]);
    assert!(why.contains("its hash is not that of the manifest"), "{why}");
    assert!(!out.exists());
}

const JOB: &str = "[global]\nioengine=psync\ndirect=1\ntime_based\nruntime=3\nsize=64m\nnorandommap\n\
    [mix]\nrw=randrw\nrwmixread=70\nbssplit=4k/55:16k/30:64k/15\n";

/// Shares of reads and of sizes of a job, as the real fio issues them and as the lab does with what was made of the job.
#[test]
fn an_imported_job_does_what_fio_does() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(at("mix.fio"), JOB).unwrap();
    let log = at("iolog");
    let fio = Command::new("fio")
        .args([
            &at("mix.fio"),
            &format!("--filename={}", at("fio.disk")),
            &format!("--write_iolog={log}"),
            "--output",
            &at("fio.out"),
        ])
        .output()
        .expect("the package fio is there");
    assert!(fio.status.success(), "{}", String::from_utf8_lossy(&fio.stderr));
    let by_fio = Shares::of_iolog(&std::fs::read_to_string(&log).unwrap());

    done(&["import", &at("mix.fio"), "--out", &at("mix.toml")]);
    let output = lab(&[
        "run",
        &at("mix.toml"),
        "--target",
        &format!("file:{}", at("lab.disk")),
        "--quick",
        "--out",
        &at("run"),
    ]);
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", String::from_utf8_lossy(&output.stderr));
    let run = stonefold_lab::bundle::load(std::path::Path::new(&at("run"))).unwrap();
    let by_lab = Shares::of_stream(&serde_json::to_value(&run.points[0].streams[0]).unwrap());

    println!("fio {by_fio:?}\nlab {by_lab:?}");
    assert!(by_fio.ios > 500 && by_lab.ios > 500, "{by_fio:?} {by_lab:?}");
    // Four deviations of a share of half, of whichever did less.
    let near = 4.0 * 0.5 / (by_fio.ios.min(by_lab.ios) as f64).sqrt();
    assert!((by_fio.reads - by_lab.reads).abs() < near, "{by_fio:?} {by_lab:?}");
    assert_eq!(by_fio.sizes.keys().collect::<Vec<_>>(), by_lab.sizes.keys().collect::<Vec<_>>());
    for (bytes, share) in &by_fio.sizes {
        assert!((share - by_lab.sizes[bytes]).abs() < near, "{bytes}: {by_fio:?} {by_lab:?}");
    }
}

/// Shares of I/Os, from 0 to 1.
#[derive(Debug)]
struct Shares {
    ios: u64,
    reads: f64,
    sizes: BTreeMap<u64, f64>,
}

impl Shares {
    fn of(reads: u64, ios: u64, sizes: BTreeMap<u64, u64>) -> Self {
        let issued: u64 = sizes.values().sum();
        let sizes = sizes.into_iter().map(|(bytes, count)| (bytes, count as f64 / issued as f64)).collect();
        Shares { ios, reads: reads as f64 / ios as f64, sizes }
    }

    /// Lines `… read|write OFFSET BYTES`.
    fn of_iolog(log: &str) -> Self {
        let (mut reads, mut ios, mut sizes) = (0, 0, BTreeMap::new());
        for line in log.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [.., action @ ("read" | "write"), _, bytes] = words[..] else { continue };
            reads += u64::from(action == "read");
            ios += 1;
            *sizes.entry(bytes.parse().unwrap()).or_default() += 1;
        }
        Shares::of(reads, ios, sizes)
    }

    fn of_stream(stream: &Value) -> Self {
        let count = |side: &str| stream[side]["ios"].as_u64().unwrap();
        let sizes = stream["sizes"].as_object().unwrap().iter();
        let sizes = sizes.map(|(bytes, count)| (bytes.parse().unwrap(), count.as_u64().unwrap())).collect();
        Shares::of(count("read"), count("read") + count("write"), sizes)
    }
}
