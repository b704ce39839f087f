//! Several load generators, each with a socket of its own, led as one.
//!
//! Goal: what comes of them together is the sum of what each did, to the last I/O; nobody is led who does not know the token; one that
//! is lost ends the run.

mod nbdkit;

use nbdkit::Served;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use stonefold_env::{Env, SystemWorld};
use stonefold_lab::bundle::{Bundle, Run};
use stonefold_lab::measure::{FleetPlan, Measured, Plan, Reins, run};
use stonefold_lab::profile::Profile;
use stonefold_lab::rig::RigOptions;
use stonefold_lab::stats::gates::{Gate, State};
use stonefold_lab::verdict::summarise_with;
use stonefold_lab::worker::{Token, serve};

const TOKEN: &str = "a token for this test alone";
const PROFILE: &str = r#"
title = "two volumes"
about = "for this test"
[payload]
dedupe = 1.2
[[volume]]
name = "v"
count = 2
size = "8M"
quick = "8M"
[[stream]]
name = "s"
volume = "v"
read = 50
random = 100
sizes = { "4K" = 100 }
outstanding = 2
[time]
quick_precondition = "1s"
quick_sample = "6s"
"#;

fn env() -> (tokio::runtime::Runtime, Env) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let env = Env::new(SystemWorld::new(runtime.handle().clone(), 1).unwrap());
    (runtime, env)
}

/// A worker on a thread that lives as long as the test's process.
fn worker() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serving = move || {
        let (_runtime, env) = env();
        serve(&env, &listener, &Token::new(TOKEN).unwrap(), |_| {}).unwrap();
    };
    std::thread::Builder::new().name("worker".into()).spawn(serving).unwrap();
    address
}

fn plan(dir: &Path, workers: &[String], token: &str) -> Plan {
    Plan {
        profile: Profile::parse("p", PROFILE).unwrap(),
        quick: true,
        targets: Vec::new(),
        options: RigOptions { threads: 1, verify: true, seed: 7, destroy_data: false, lasting: false },
        fleet: FleetPlan {
            workers: workers.iter().map(|worker| worker.parse().unwrap()).collect(),
            token: Some(Token::new(token).unwrap()),
            targets: vec![format!("file:{}/vm-{{n}}", dir.display())],
        },
        outages: None,
        counters: Vec::new(),
        capacities: Vec::new(),
    }
}

#[test]
fn what_comes_of_all_is_the_sum_of_each() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let plan = plan(dir.path(), &[worker(), worker()], TOKEN);
    let (_runtime, env) = env();
    let Measured { points, machines, .. } = run(&env, &plan, &Reins::new()).unwrap().unbroken().unwrap();
    assert_eq!((points.len(), machines.len()), (1, 2));
    let point = &points[0];
    assert_eq!((point.streams.len(), point.workers.len()), (2, 2));
    for number in 0..2 {
        let each: Vec<u64> = point.workers.iter().map(|(_, streams)| streams[number].ios()).collect();
        assert!(each.iter().all(|ios| *ios > 100), "{each:?}");
        assert_eq!(point.streams[number].ios(), each.iter().sum::<u64>());
        let response = &point.streams[number].read.response;
        assert_eq!(
            response.count(),
            point.workers.iter().map(|(_, streams)| streams[number].read.response.count()).sum::<u64>()
        );
    }
    assert!(point.series.len() >= 5 && point.ceiling > point.iops());
    assert!(point.verification.right > 0 && point.verification.faults() == 0, "{:?}", point.verification);
    // The loads of all together are what the result is held against.
    assert!(point.loads.iter().all(|load| load.outstanding == Some(4)), "{:?}", point.loads);
    // Each has volumes of its own, and nothing in common with the other's.
    let blocks = |name: &str| -> std::collections::HashSet<[u8; 32]> {
        let bytes = std::fs::read(dir.path().join(name)).unwrap();
        assert_eq!(bytes.len(), 16 << 20);
        bytes.chunks(4096).map(|block| *blake3::hash(block).as_bytes()).collect()
    };
    assert!(blocks("vm-1").is_disjoint(&blocks("vm-2")));
}

/// Goal: sixteen machines with ten disks each, as published methods have them, are one result, and each disk is one of its own.
#[test]
fn sixteen_machines_with_ten_disks_each_are_one_result() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let workers: Vec<String> = (0..16).map(|_| worker()).collect();
    let mut plan = plan(dir.path(), &workers, TOKEN);
    let profile = PROFILE.replace("count = 2", "count = 10").replace("\"8M\"", "\"1M\"");
    plan.profile = Profile::parse("p", &profile).unwrap();
    let (_runtime, env) = env();
    let Measured { points, machines, .. } = run(&env, &plan, &Reins::new()).unwrap().unbroken().unwrap();
    let [point] = &points[..] else { panic!("{} points", points.len()) };
    assert_eq!((machines.len(), point.workers.len(), point.streams.len()), (16, 16, 10));
    for (number, stream) in point.streams.iter().enumerate() {
        let each: Vec<u64> = point.workers.iter().map(|(_, streams)| streams[number].ios()).collect();
        assert!(each.iter().all(|ios| *ios > 0), "disk {number}: {each:?}");
        assert_eq!(stream.ios(), each.iter().sum::<u64>(), "disk {number}");
    }
    assert!(point.verification.right > 0 && point.verification.faults() == 0, "{:?}", point.verification);
    for machine in 1..=16 {
        assert_eq!(std::fs::metadata(dir.path().join(format!("vm-{machine}"))).unwrap().len(), 10 << 20);
    }
}

/// Goal: half of what all can do together is half, and no rule is broken by there being two of them.
#[test]
fn a_share_of_the_capacity_is_one_of_all_together() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // Slow by a known time, so that little of a busy machine is seen.
    let slow = |name: &str| {
        let socket = dir.path().join(name);
        let served = Served::start(&socket, &["--filter=delay", "memory", "16M", "rdelay=8ms", "wdelay=8ms"]);
        (served, socket)
    };
    let served = [slow("vm-1"), slow("vm-2")];
    let mut plan = plan(dir.path(), &[worker(), worker()], TOKEN);
    plan.fleet.targets = vec![format!("nbd+unix:///?socket={}/vm-{{n}}", dir.path().display())];
    let steps =
        "[[step]]\nname = 'all'\n[[step]]\nname = 'part'\nloads = [50]\n[time]\nquick_point = \"8s\"\n";
    plan.profile = Profile::parse("p", &PROFILE.replace("[time]\n", steps)).unwrap();
    let (_runtime, env) = env();
    let points = run(&env, &plan, &Reins::new()).unwrap().unbroken().unwrap().points;
    let share = points[1].iops() / points[0].iops();
    assert!((share - 0.5).abs() < 0.06, "{share}");
    let run = Run { format: Run::FORMAT, verified: true, quick: true, ..Run::default() };
    let bundle = Bundle { run, profile: plan.profile.text.clone(), points, hash: String::new() };
    for point in summarise_with(&bundle, &plan.profile).unwrap().points {
        let against = |gate: &&Gate| gate.state == State::Fail && gate.name != "clock";
        assert!(!point.gates.iter().any(|gate| against(&gate)), "{}: {:#?}", point.name, point.gates);
    }
    drop(served);
}

#[test]
fn a_stranger_is_not_followed() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let address = worker();
    let (_runtime, env) = env();
    let error =
        run(&env, &plan(dir.path(), std::slice::from_ref(&address), "another token of them"), &Reins::new())
            .unwrap_err();
    assert!(error.to_string().contains(&address), "{error}");
    assert!(!dir.path().join("vm-1").exists(), "nothing was touched");
    // And whoever comes next with the right one is.
    let reins = Arc::new(Reins::new());
    let stop = reins.clone();
    let stopper = std::thread::Builder::new().spawn(move || {
        std::thread::sleep(Duration::from_secs(2));
        stop.stop();
    });
    let measured = run(&env, &plan(dir.path(), &[address], TOKEN), &reins).unwrap();
    assert!(measured.points.iter().all(|point| point.cut_short));
    stopper.unwrap().join().unwrap();
}

#[test]
fn what_one_cannot_do_is_told_with_its_name_and_ends_all() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let workers = [worker(), worker()];
    // The second one's target is no file.
    std::fs::create_dir(dir.path().join("vm-2")).unwrap();
    let (_runtime, env) = env();
    let error = run(&env, &plan(dir.path(), &workers, TOKEN), &Reins::new()).unwrap_err().to_string();
    assert!(error.contains(&workers[1]) && error.contains("vm-2"), "{error}");
    // One that is not there at all.
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let error = run(&env, &plan(dir.path(), std::slice::from_ref(&nobody), TOKEN), &Reins::new())
        .unwrap_err()
        .to_string();
    assert!(error.contains(&nobody), "{error}");
}
