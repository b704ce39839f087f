//! A run that is stopped keeps what it has measured, and says that it is not whole.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Long enough for a signal to come in its midst.
const TIMES: &str = "[time]\nprecondition = \"1s\"\nsample = \"5s\"\npoint = \"5s\"\nquick_precondition = \"0s\"\nquick_sample = \"1s\"\nquick_point = \"5s\"\n";

fn lab(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stonefold")).arg("lab").args(words).output().unwrap()
}

/// A run of a profile in short, which gets SIGINT two seconds after it told that it does what begins so; its figures and its status.
fn stopped(dir: &Path, at: &str) -> (Value, Option<i32>) {
    let shown = String::from_utf8(lab(&["show", "corners"]).stdout).unwrap();
    let profile = dir.join("corners.toml");
    std::fs::write(&profile, shown.split("[time]").next().unwrap().to_owned() + TIMES).unwrap();
    let target = format!("file:{}/t.img", dir.display());
    interrupted(dir, &["run", "corners.toml", "--target", &target, "--size", "32M"], at)
}

/// What the lab answers that gets SIGINT two seconds after it told that it does what begins so, and its status; what it keeps is in `out`.
fn interrupted(dir: &Path, words: &[&str], at: &str) -> (Value, Option<i32>) {
    let mut run = Command::new(env!("CARGO_BIN_EXE_stonefold"))
        .current_dir(dir)
        .arg("lab")
        .args(words)
        .args(["--json", "--out", "out"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let told = BufReader::new(run.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut said = Vec::new();
    for line in told {
        if line.starts_with(at) {
            std::thread::sleep(Duration::from_secs(2));
            rustix::process::kill_process(
                rustix::process::Pid::from_child(&run),
                rustix::process::Signal::INT,
            )
            .unwrap();
        }
        said.push(line);
    }
    assert!(said.iter().any(|line| line.starts_with(at)), "it never told {at:?}: {said:#?}");
    let answer = run.wait_with_output().unwrap();
    (serde_json::from_slice(&answer.stdout).unwrap(), answer.status.code())
}

/// The names of the rules that void a point.
fn void(point: &Value) -> Vec<&str> {
    let gates = point["gates"].as_array().unwrap().iter();
    gates.filter(|gate| gate["state"] == "void").map(|gate| gate["name"].as_str().unwrap()).collect()
}

#[test]
fn a_run_that_is_stopped_keeps_what_it_has_and_is_not_held_for_whole() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (run, status) = stopped(dir.path(), "4K random read, 50%");
    assert_eq!((status, &run["run"]["cut_short"]), (Some(3), &Value::Bool(true)), "{run}");
    let summary = &run["summary"];
    assert_eq!(summary["verdict"], "INVALID");
    let [whole, cut] = &summary["points"].as_array().unwrap()[..] else { panic!("{summary}") };
    assert!(whole["iops"].as_f64().unwrap() > 0.0 && !void(whole).contains(&"whole"), "{whole}");
    assert!(cut["grade"] == "F" && void(cut).contains(&"whole"), "{cut}");
    // What is kept tells the same, and can be shown.
    let out = dir.path().join("out").to_str().unwrap().to_owned();
    let again = lab(&["verify", &out, "--json"]);
    assert_eq!(again.status.code(), Some(3));
    let again: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(again[0]["summary"], *summary);
    let page = dir.path().join("page.html");
    let report = lab(&["report", &out, "--html", page.to_str().unwrap()]);
    assert!(report.status.success(), "{}", String::from_utf8_lossy(&report.stderr));
    assert!(std::fs::read_to_string(page).unwrap().contains("it was ended before its time"));
}

/// Goal: a run that is killed leaves the points that it had, which can be shown and are not held for a whole run; its folder is not written to again.
#[test]
fn a_run_that_is_killed_leaves_the_points_it_had() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let shown = String::from_utf8(lab(&["show", "corners"]).stdout).unwrap();
    let profile = dir.path().join("corners.toml");
    std::fs::write(&profile, shown.split("[time]").next().unwrap().to_owned() + TIMES).unwrap();
    let (target, out) = (format!("file:{}/t.img", dir.path().display()), dir.path().join("out"));
    let words = [
        "run",
        profile.to_str().unwrap(),
        "--target",
        &target,
        "--size",
        "32M",
        "--out",
        out.to_str().unwrap(),
    ];
    let mut run = Command::new(env!("CARGO_BIN_EXE_stonefold"))
        .arg("lab")
        .args(words)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let unfinished = out.join("unfinished");
    while !unfinished.join("manifest.json").exists() {
        assert!(run.try_wait().unwrap().is_none(), "it has ended");
        std::thread::sleep(Duration::from_millis(100));
    }
    run.kill().unwrap();
    run.wait().unwrap();
    let told = lab(&["verify", unfinished.to_str().unwrap(), "--json"]);
    assert_eq!(told.status.code(), Some(3), "{}", String::from_utf8_lossy(&told.stderr));
    let told: Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(
        (&told[0]["run"]["cut_short"], &told[0]["summary"]["verdict"]),
        (&true.into(), &"INVALID".into())
    );
    assert!(told[0]["summary"]["points"][0]["iops"].as_f64().unwrap() > 0.0, "{told}");
    let again = lab(&words);
    let said = String::from_utf8(again.stderr).unwrap();
    assert!(
        again.status.code() == Some(1) && said.contains("holds something") && said.contains("unfinished"),
        "{said}"
    );
}

/// Goal: a comparison that is stopped keeps the runs it has, and says that it did not come to an end.
#[test]
fn a_comparison_that_is_stopped_keeps_its_runs() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let profile = dir.path().join("p.toml");
    let text = "title = 't'\nabout = 'a'\n[[volume]]\nname = 'v'\nsize = '8M'\nquick = '8M'\n[[stream]]\nname = 's'\nvolume = 'v'\n\
        read = 100\nrandom = 100\nsizes = { '4K' = 100 }\noutstanding = 2\n\
        [time]\nprecondition = '0s'\nsample = '5s'\nquick_precondition = '0s'\nquick_sample = '5s'\n";
    std::fs::write(&profile, text).unwrap();
    let target = |name: &str| format!("file:{}/{name}.img", dir.path().display());
    let mut compare = Command::new(env!("CARGO_BIN_EXE_stonefold"))
        .args(["lab", "compare"])
        .arg(profile)
        .args(["--a", &target("a"), "--b", &target("b"), "--pairs", "5", "--quick", "--out"])
        .arg(dir.path().join("out"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut is_told = false;
    for line in BufReader::new(compare.stderr.take().unwrap()).lines().map_while(Result::ok) {
        if !is_told && line.starts_with("round 2 of 5") {
            is_told = true;
            let pid = rustix::process::Pid::from_child(&compare);
            rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        }
    }
    let answer = compare.wait_with_output().unwrap();
    assert!(is_told && matches!(answer.status.code(), Some(3 | 4)), "{answer:?}");
    let trial: Value =
        serde_json::from_slice(&std::fs::read(dir.path().join("out/trial.json")).unwrap()).unwrap();
    let runs = trial["runs"].as_array().unwrap().len();
    assert!((2..10).contains(&runs), "{runs} of ten runs are kept");
    let out = dir.path().join("out").to_str().unwrap().to_owned();
    let page = dir.path().join("trial.html");
    let report = lab(&["report", &out, "--html", page.to_str().unwrap()]);
    assert!(std::fs::read_to_string(page).is_ok(), "{}", String::from_utf8_lossy(&report.stderr));
}

/// It is marked, and void for that reason; what was kept is whole, tells the same, and can be shown.
fn is_partial_and_valid(dir: &Path, words: &[&str], at: &str) {
    let (run, status) = interrupted(dir, words, at);
    assert_eq!((status, &run["run"]["cut_short"]), (Some(3), &Value::Bool(true)), "{words:?}: {run}");
    let summary = &run["summary"];
    assert_eq!(summary["verdict"], "INVALID", "{words:?}");
    let last = summary["points"].as_array().unwrap().last().unwrap();
    assert!(void(last).contains(&"whole"), "{words:?}: {last}");
    let out = dir.join("out").to_str().unwrap().to_owned();
    let again = lab(&["verify", &out, "--json"]);
    let again: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(again[0]["summary"], *summary, "{words:?}");
    let page = dir.join("page.html");
    let report = lab(&["report", &out, "--html", page.to_str().unwrap()]);
    assert!(report.status.success(), "{}", String::from_utf8_lossy(&report.stderr));
    std::fs::remove_dir_all(dir.join("out")).unwrap();
}

#[test]
fn a_replay_tiles_and_a_database_that_are_stopped_keep_what_they_have() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let replay = ["replay", "store-db", "--target", "null:", "--duration", "60s", "--size", "16M"];
    is_partial_and_valid(dir.path(), &replay, "replaying store-db");

    let tile = "title = 't'\nabout = 'a'\n[tiles]\nsample = '60s'\nquick_sample = '60s'\nscale = 0.001\n\
        [[vm]]\nname = 'shop'\ntrace = 'store-db'\ngigabytes = 45\ncount = 1\n";
    std::fs::write(dir.path().join("tile.toml"), tile).unwrap();
    let tiles = ["run", "tile.toml", "--target", "null:", "--tiles", "1..2"];
    is_partial_and_valid(dir.path(), &tiles, "1 tile: replaying");

    // PostgreSQL's user has to come through.
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
    let database = "title = 't'\nabout = 'a'\n[database]\nwarehouses = 1\nbuffers = '32M'\nusers = [1, 2]\n\
        warm_up = '1s'\nsample = '60s'\n[settings]\nmax_wal_size = '256MB'\n";
    std::fs::write(dir.path().join("db.toml"), database).unwrap();
    let target = format!("dir:{}/db", dir.path().display());
    is_partial_and_valid(dir.path(), &["run", "db.toml", "--target", &target], "1 user, ");
    let left = std::fs::read_dir(dir.path().join("db")).unwrap().count();
    assert_eq!(left, 0, "the database is left behind");
}

/// Goal: on a terminal there is one line that moves, with how much is done, what comes of it now, and how long it will take.
#[test]
fn a_terminal_is_shown_what_comes_of_it_now() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let profile = "title = 't'\nabout = 'a'\n[[volume]]\nname = 'v'\nsize = '8M'\nquick = '8M'\n[[stream]]\nname = 's'\n\
        volume = 'v'\nread = 100\nrandom = 100\nsizes = { '4K' = 100 }\noutstanding = 2\n\
        [time]\nprecondition = '0s'\nsample = '4s'\nquick_precondition = '0s'\nquick_sample = '4s'\n";
    std::fs::write(dir.path().join("p.toml"), profile).unwrap();
    let command =
        format!("stty cols 120; exec '{}' lab run p.toml --target null:", env!("CARGO_BIN_EXE_stonefold"));
    let run = Command::new("script")
        .current_dir(dir.path())
        .env("TERM", "xterm")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .stdin(Stdio::null())
        .output()
        .expect("script is there, of the package bsdutils");
    let shown = String::from_utf8_lossy(&run.stdout);
    let frames: Vec<&str> = shown.split(['\r', '\n']).filter(|line| line.contains(" IOPS, p99 ")).collect();
    let moving = |line: &&&str| {
        let iops = line.split(" IOPS").next().and_then(|line| line.rsplit(' ').next());
        iops.and_then(|iops| iops.parse::<u64>().ok()).is_some_and(|iops| iops > 1000)
    };
    assert!(frames.iter().filter(moving).count() > 3, "{shown}");
    let left =
        |line: &str| line.split(", ").last().and_then(|last| last.split(' ').next()?.parse::<u32>().ok());
    let lefts: Vec<u32> = frames.iter().filter_map(|line| left(line)).collect();
    assert!(lefts.windows(2).any(|pair| pair[1] < pair[0]), "how long it will take does not fall: {lefts:?}");
}
