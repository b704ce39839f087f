//! The mail profile's parts on a real target: phases that are timed as a whole, copies, the search, the check.
//!
//! Goal: what is copied is, byte for byte, a duplicate of its original where that is declared, and nothing of it where not;
//! what the target changes behind the lab's back is found by the check; a search ends with what it promises.

mod nbdkit;

use nbdkit::Served;
use std::collections::HashSet;
use std::path::Path;
use stonefold_env::{Env, SystemWorld};
use stonefold_lab::bundle::{Bundle, Run};
use stonefold_lab::measure::{self, FleetPlan, Plan, Point, Reins, TaskKind, fit};
use stonefold_lab::profile::{Profile, shipped};
use stonefold_lab::rig::RigOptions;
use stonefold_lab::stats::gates::State;
use stonefold_lab::verdict::{Summary, Verdict, summarise_with};
use stonefold_lab::worker::{Token, serve};

const VOLUME_BYTES: usize = 4 << 20;

/// Two databases and a log, small; `more` is what happens after they were written.
fn profile(payload: &str, more: &str) -> Profile {
    let text = format!(
        r#"
title = "mail"
about = "for this test"
[payload]
{payload}
[[volume]]
name = "db"
count = 2
size = "4M"
quick = "4M"
[[volume]]
name = "log"
size = "1M"
quick = "1M"
[[stream]]
name = "db"
volume = "db"
read = 60
random = 100
sizes = {{ "32K" = 100 }}
zone = [0, 80]
outstanding = 2
[[stream]]
name = "log"
volume = "log"
read = 0
random = 0
sizes = {{ "4K" = 100 }}
zone = [0, 80]
outstanding = 1
[[step]]
name = "create"
fill = ["db-1", "log"]
part = 80
[[step]]
name = "duplicate"
copy = {{ from = "db-1", to = ["db-2"] }}
part = 80
{more}
[[step]]
name = "checksum"
check = ["db", "log"]
part = 80
[time]
quick_precondition = "0.5s"
quick_sample = "6s"
quick_point = "2s"
"#
    );
    Profile::parse("mail", &text).unwrap()
}

const REQUIRE: &str = "db:iops>=1,db:read.mean<=20s";
const RUN: &str = "[[step]]\nname = \"mixed\"\n";

fn env() -> (tokio::runtime::Runtime, Env) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let env = Env::new(SystemWorld::new(runtime.handle().clone(), 1).unwrap());
    (runtime, env)
}

fn plan(profile: Profile, target: &str) -> Plan {
    Plan {
        profile,
        quick: true,
        targets: vec![target.parse().unwrap()],
        options: RigOptions { threads: 2, verify: true, seed: 7, destroy_data: false, lasting: false },
        fleet: FleetPlan::default(),
        outages: None,
        counters: Vec::new(),
        capacities: Vec::new(),
    }
}

fn run(plan: &Plan) -> (Vec<Point>, Summary) {
    let (_runtime, env) = env();
    let points = measure::run(&env, plan, &Reins::new()).unwrap().unbroken().unwrap().points;
    let summary = summary(plan, &points);
    (points, summary)
}

fn summary(plan: &Plan, points: &[Point]) -> Summary {
    let run = Run {
        format: Run::FORMAT,
        version: "0".into(),
        profile: "mail".into(),
        locked: false,
        quick: true,
        targets: Vec::new(),
        seed: 7,
        threads: 2,
        verified: true,
        bytes: plan.profile.bytes(true),
        require: if points.iter().any(Point::is_judged) { REQUIRE.into() } else { String::new() },
        began: 0,
        reproduce: String::new(),
        machine: Default::default(),
        cut_short: false,
        scale: plan.profile.scale,
        ..Run::default()
    };
    let (profile, hash) = (plan.profile.text.clone(), String::new());
    let bundle = Bundle { run, profile, points: points.to_vec(), hash };
    summarise_with(&bundle, &plan.profile).unwrap()
}

/// The contents of the first 80% of the volume that begins at `from`.
fn blocks(path: &Path, from: usize) -> Vec<[u8; 32]> {
    let bytes = std::fs::read(path).unwrap();
    let filled = VOLUME_BYTES * 8 / 10 / 4096 * 4096;
    bytes[from..from + filled].chunks(4096).map(|block| *blake3::hash(block).as_bytes()).collect()
}

/// No load runs, so that the medium has what the copy has left.
#[test]
fn a_copy_is_a_duplicate_of_its_original_where_that_is_declared() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for (payload, equal) in
        [("copies = \"equal\"\ndedupe = 1.3", true), ("dedupe = 1.3\ncompression = 2.0", false)]
    {
        let path = dir.path().join(if equal { "equal" } else { "own" });
        let (points, summary) = run(&plan(profile(payload, ""), &format!("file:{}", path.display())));
        let (original, copy) = (blocks(&path, 0), blocks(&path, VOLUME_BYTES));
        if equal {
            assert!(original == copy, "byte for byte");
        } else {
            let original: HashSet<_> = original.into_iter().collect();
            assert!(copy.iter().all(|block| !original.contains(block)), "nothing in common");
        }
        let kinds: Vec<TaskKind> = points.iter().map(|point| point.task.as_ref().unwrap().kind).collect();
        assert_eq!(kinds, [TaskKind::Fill, TaskKind::Copy, TaskKind::Check]);
        let bytes: Vec<u64> = points.iter().map(|point| point.task.as_ref().unwrap().bytes).collect();
        let of = |bytes: usize| (bytes as f64 * 0.8) as u64 / 512 * 512;
        let near = |a: u64, b: u64| a.abs_diff(b) <= 1024;
        assert!(
            near(bytes[0], of(VOLUME_BYTES) + of(1 << 20)) && near(bytes[1], of(VOLUME_BYTES)),
            "{bytes:?}"
        );
        let checked = &points[2].verification;
        assert_eq!((checked.right * 512, checked.checked()), (bytes[2], checked.right), "{checked:?}");
        assert_eq!(points[1].name(), "duplicate, to db-2");
        assert!(summary.points.iter().all(|judged| judged.gates.len() == 4), "{summary:#?}");
    }
}

#[test]
fn the_whole_of_it_passes_and_the_search_finds_what_the_requirement_allows() {
    // Reads of 6 ms, one after the other at a time: nothing is gained by more in flight, and a bound of 15 ms allows two.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let socket = dir.path().join("sock");
    // One has its turn, behind the delay.
    let _server =
        Served::start(&socket, &["--filter=delay", "--filter=noparallel", "memory", "16M", "rdelay=6ms"]);
    let tune = "[[step]]\nname = \"tune\"\nstreams = [\"db\"]\n\
        tune = { streams = [\"db\"], from = 1, to = 16, within = \"db:read.mean<=3s\" }\n";
    let plan = plan(
        profile("copies = \"equal\"", &format!("{tune}{RUN}")),
        &format!("nbd+unix:///?socket={}", socket.display()),
    );
    let (points, summary) = run(&plan);
    let probes: Vec<_> = points.iter().filter_map(|point| point.probe.as_ref()).collect();
    assert!(probes.len() >= 3 && probes[0].outstanding == 1, "{probes:?}");
    assert_eq!(probes.iter().filter(|probe| probe.chosen).count(), 1);
    let chosen = probes.iter().find(|probe| probe.chosen).unwrap();
    assert!(chosen.kept && probes.iter().all(|probe| !probe.kept || probe.iops <= chosen.iops * 1.02));
    // What was found is what runs.
    let mixed = points.iter().find(|point| point.step == "mixed").unwrap();
    assert_eq!(mixed.loads[0].outstanding, Some(chosen.outstanding));
    for point in &points {
        let seen = &point.verification;
        assert_eq!(seen.faults() + seen.unwritten, 0, "{}: {seen:?}", point.name());
    }
    assert!(summary.required.iter().all(|one| one.met.met == Some(true)), "{summary:#?}");
    assert!(summary.required.iter().all(|one| points[one.point].step == "mixed"));
    assert_ne!(summary.verdict, Verdict::Fail);
}

/// Of a target that has lost a part of the second database nothing can be concluded, whatever was required.
#[test]
fn what_the_check_finds_voids_the_run() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("disk");
    let (_, clean) = run(&plan(profile("copies = \"equal\"", ""), &format!("file:{}", path.display())));
    // A busy machine is told, and is no fault of the target's.
    let mut against =
        clean.points.iter().flat_map(|judged| &judged.gates).filter(|gate| gate.state > State::Pass);
    assert!(against.all(|gate| gate.name == "processors"), "{clean:#?}");
    // The same file, by a server that reads zeros where the second database begins.
    let socket = dir.path().join("sock");
    let disk = path.display();
    let _server = Served::start(
        &socket,
        &[
            "eval",
            &format!("get_size=stat -c %s {disk}"),
            &format!(
                "pread=if [ $4 -eq 4194304 ]; then head -c $3 /dev/zero; else dd if={disk} skip=$4 count=$3 iflag=count_bytes,skip_bytes status=none; fi"
            ),
            &format!("pwrite=dd of={disk} seek=$4 oflag=seek_bytes conv=notrunc status=none"),
        ],
    );
    let target = format!("nbd+unix:///?socket={}", socket.display());
    let (points, summary) = run(&plan(profile("copies = \"equal\"", ""), &target));
    let lost: Vec<u64> = points.iter().map(|point| point.verification.lost).collect();
    assert_eq!(lost, [0, 0, (128 << 10) / 512]);
    assert_eq!(summary.verdict, Verdict::Invalid);
}

/// Four workers do the phases together: the check begins on all when all have ended what goes before it.
#[test]
fn workers_wait_for_each_other_before_the_check() {
    const TOKEN: &str = "a token for this test alone";
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let worker = || {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serving = move || {
            let (_runtime, env) = env();
            serve(&env, &listener, &Token::new(TOKEN).unwrap(), |_| {}).unwrap();
        };
        std::thread::Builder::new().name("worker".into()).spawn(serving).unwrap();
        address
    };
    // One of them is slow to write: the others wait for it.
    let (slow, fast) = (dir.path().join("sock-1"), dir.path().join("sock-2"));
    let _slow = Served::start(&slow, &["--filter=delay", "memory", "16M", "wdelay=120ms"]);
    let _fast = Served::start(&fast, &["--filter=log", "memory", "16M", &log(dir.path())]);
    let _others = ["sock-3", "sock-4"].map(|name| Served::start(&dir.path().join(name), &["memory", "16M"]));
    let mut plan = plan(profile("copies = \"equal\"", ""), "null:");
    plan.fleet = FleetPlan {
        workers: (0..4).map(|_| worker().parse().unwrap()).collect(),
        token: Some(Token::new(TOKEN).unwrap()),
        targets: vec![format!("nbd+unix:///?socket={}/sock-{{n}}", dir.path().display())],
    };
    let (points, _) = run(&plan);
    assert_eq!(points.len(), 3);
    assert!(points.iter().all(|point| point.workers.len() == 4));
    let check = &points[2];
    assert!(
        check.verification.faults() == 0
            && check.verification.right > 4 * (VOLUME_BYTES as u64) * 8 / 10 / 512
    );
    // The fast one had copied long before; between its last write and its check lies what the slow one's copy took.
    let waited = silence_before_the_check(&dir.path().join("log"));
    let copied = points[1].seconds;
    assert!(
        copied > 0.2 && waited > copied * 0.5,
        "{waited} s of the {copied} s that the slow one's copy took"
    );
}

fn log(dir: &Path) -> String {
    format!("logfile={}", dir.join("log").display())
}

/// Seconds between the last write that a server has logged and the first read after it.
fn silence_before_the_check(log: &Path) -> f64 {
    let text = std::fs::read_to_string(log).unwrap();
    // 2026-11-23 04:00:00.123456 connection=1 Write id=5 offset=0x0 count=0x1000 ...
    let seconds = |line: &str| {
        let clock = line.split_whitespace().nth(1).unwrap();
        clock.split(':').map(|part| part.parse::<f64>().unwrap()).fold(0.0, |sum, part| sum * 60.0 + part)
    };
    let lines: Vec<&str> = text.lines().collect();
    let last = lines.iter().rposition(|line| line.contains("Write id=")).unwrap();
    let read = lines[last..].iter().find(|line| line.contains(" Read id=")).expect("the check reads");
    seconds(read) - seconds(lines[last])
}

#[test]
fn the_shipped_profile_fits_a_small_target_and_says_so() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("disk");
    std::fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
    let target = format!("file:{}", path.display()).parse().unwrap();
    let fitted = fit(shipped::find("mail").unwrap(), true, &[target]).unwrap();
    assert!(fitted.bytes(true) <= 64 << 20 && fitted.bytes(true) > 63 << 20, "{}", fitted.bytes(true));
    assert!(fitted.scale.is_some_and(|scale| scale < 0.02));
    // One that is not there becomes as large as the profile says.
    let target = format!("file:{}", dir.path().join("none").display()).parse().unwrap();
    assert_eq!(fit(shipped::find("mail").unwrap(), true, &[target]).unwrap().scale, None);
}
