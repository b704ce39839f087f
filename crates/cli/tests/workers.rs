//! Loads that are made by workers in processes of their own, and led by a command.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// Two seconds of one stream on one volume.
const PROFILE: &str = "title = 'one volume'\nabout = 'for this test'\n[[volume]]\nname = 'v'\nsize = '8M'\nquick = '8M'\n\
    [[stream]]\nname = 's'\nvolume = 'v'\nread = 70\nrandom = 100\nsizes = { '4K' = 100 }\noutstanding = 4\n\
    [time]\nprecondition = '1s'\nsample = '5s'\nquick_precondition = '1s'\nquick_sample = '5s'\n";

/// One that listens; it ends with the test.
struct Worker {
    process: Child,
    at: String,
}

impl Worker {
    fn start(token: &Path) -> Worker {
        let mut process = Command::new(env!("CARGO_BIN_EXE_stonefold"))
            .args(["lab", "worker", "--listen", "127.0.0.1:0", "--token-file"])
            .arg(token)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let at = line.trim().strip_prefix("listening on ").expect("it says where it listens").to_owned();
        Worker { process, at }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn run(folder: &Path, workers: &[&Worker], token: &str, target: &str) -> Output {
    let profile = folder.join("p.toml");
    std::fs::write(&profile, PROFILE).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_stonefold"));
    command.args(["lab", "run"]).arg(profile).args(["--quick", "--json", "--target", target]);
    workers.iter().for_each(|worker| {
        command.args(["--worker", &worker.at]);
    });
    command.arg("--token-file").arg(folder.join(token)).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Goal: two workers make one result: each fills and loads a file of its own, all they did is in it, and what they read was what they had written.
#[test]
fn workers_of_two_processes_make_one_result() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let token = folder.path().join("token");
    let (first, second) = (Worker::start(&token), Worker::start(&token));
    let target = format!("file:{}/disk-{{n}}.img", folder.path().display());
    let one = run(folder.path(), &[&first], "token", &target);
    let both = run(folder.path(), &[&first, &second], "token", &target);
    let told = |output: &Output| -> Value {
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", said(output)))
    };
    let (one, both) = (told(&one), told(&both));
    assert_eq!(both["run"]["targets"].as_array().unwrap().len(), 2, "{both}");
    assert_eq!(both["run"]["bytes"], one["run"]["bytes"].as_u64().unwrap() * 2);
    for number in [1, 2] {
        let file = folder.path().join(format!("disk-{number}.img"));
        assert_eq!(std::fs::metadata(file).unwrap().len(), 8 << 20);
    }
    let point = &both["summary"]["points"][0];
    assert!(point["iops"].as_f64().unwrap() > 0.0, "{point}");
    // What each did is told, and is all of it.
    let each = both["workers"].as_array().unwrap();
    let names: Vec<&str> = each.iter().map(|part| part["worker"].as_str().unwrap()).collect();
    assert_eq!(names, [&*first.at, &*second.at]);
    let parts = each.iter().flat_map(|part| part["streams"].as_array().unwrap());
    let sum: f64 = parts.map(|stream| stream["iops"].as_f64().unwrap()).sum();
    assert!((sum / point["iops"].as_f64().unwrap() - 1.0).abs() < 1e-6, "{both}");
    assert!(one["workers"].as_array().is_some_and(|each| each.len() == 1), "{one}");
    let gates = point["gates"].as_array().unwrap();
    let verified = gates.iter().find(|gate| gate["name"] == "verification").unwrap();
    assert_eq!(verified["state"], "pass", "{verified}");
}

/// Goal: whoever does not know the token has a worker do nothing, and a worker that goes in mid-run ends the run, which says which.
#[test]
fn a_worker_obeys_who_knows_the_token_and_is_missed() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (token, other) = (folder.path().join("token"), folder.path().join("other"));
    let (worker, stranger) = (Worker::start(&token), Worker::start(&other));
    let target = format!("file:{}/disk-{{n}}.img", folder.path().display());
    let refused = run(folder.path(), &[&worker], "other", &target);
    assert!(!refused.status.success(), "{}", said(&refused));
    assert!(!folder.path().join("disk-1.img").exists(), "a stranger had it write");
    drop(stranger);

    let (second, pid) = (Worker::start(&token), worker.process.id());
    let lost = std::thread::scope(|scope| {
        scope.spawn(|| {
            // In its sample, whose beginning needs both files.
            let both = || (1..3).all(|number| folder.path().join(format!("disk-{number}.img")).exists());
            (0..3000)
                .take_while(|_| !both())
                .for_each(|_| std::thread::sleep(std::time::Duration::from_millis(10)));
            std::thread::sleep(std::time::Duration::from_secs(3));
            let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        });
        run(folder.path(), &[&worker, &second], "token", &target)
    });
    assert!(!lost.status.success() && said(&lost).contains(&worker.at), "{}", said(&lost));
}

/// Goal: two storages are told apart by workers, too: each run of either is made by all of them, and what is compared is what they did together.
#[test]
fn arms_are_compared_by_workers() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let token = folder.path().join("token");
    let (first, second) = (Worker::start(&token), Worker::start(&token));
    let profile = folder.path().join("p.toml");
    std::fs::write(&profile, PROFILE).unwrap();
    let target = |arm: &str| format!("file:{}/{arm}-{{n}}.img", folder.path().display());
    let out = folder.path().join("out");
    let mut command = Command::new(env!("CARGO_BIN_EXE_stonefold"));
    command.args(["lab", "compare"]).arg(profile).args(["--quick", "--json", "--pairs", "1"]);
    command.args(["--a", &target("a"), "--b", &target("b"), "--worker", &first.at, "--worker", &second.at]);
    let output = command.arg("--token-file").arg(&token).arg("--out").arg(&out).output().unwrap();
    let told: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", said(&output)));
    for file in ["a-1", "a-2", "b-1", "b-2"] {
        let file = folder.path().join(format!("{file}.img"));
        assert_eq!(std::fs::metadata(&file).unwrap().len(), 8 << 20, "{}", file.display());
    }
    let levels = told["findings"]["levels"].as_array().unwrap();
    assert!(
        levels.iter().all(|level| level["figure"] != "cpu"),
        "what workers take is not known here: {levels:?}"
    );
    let kept = std::fs::read_to_string(out.join("arms.toml")).unwrap();
    assert!(kept.contains("/a-{n}.img"), "{kept}");
    let again = told["trial"]["reproduce"].as_str().unwrap();
    assert!(again.contains(&format!("--worker {} --worker {}", first.at, second.at)), "{again}");
    let level = &told["findings"]["levels"][0];
    assert!(level["load"] == "closed, 8 in flight" && level["medians"][1].as_f64() > Some(0.0), "{level}");
    let report = |of: &str| {
        let run = std::fs::read_to_string(out.join(of).join("run.json")).unwrap();
        serde_json::from_str::<Value>(&run).unwrap()
    };
    let run = report("round-01-arm-2");
    let targets: Vec<&str> = run["targets"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(targets.len(), 2, "{targets:?}");
    assert!(targets[1].contains("/b-{n}.img by worker ") && targets[1].ends_with(&second.at), "{targets:?}");
    assert_eq!(run["bytes"], 16 << 20);
}
