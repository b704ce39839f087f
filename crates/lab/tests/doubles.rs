//! Targets whose answer is known: nbdkit with its filters, frozen, slow, failing, or forgetful.
//!
//! Goal: what the lab says of a target is what was done to it.

mod nbdkit;

use nbdkit::Nbdkit;
use std::ops::ControlFlow;
use std::process::{Command, Stdio};
use std::time::Duration;
use stonefold_env::{Env, SystemWorld};
use stonefold_lab::bundle::{Bundle, Run};
use stonefold_lab::load::{Control, Goal, Outcome, Phase};
use stonefold_lab::measure::{self, FleetPlan, Plan, Reins};
use stonefold_lab::payload::Reduction;
use stonefold_lab::profile::Profile;
use stonefold_lab::rig::{Rig, RigOptions};
use stonefold_lab::stats::compare::Finding;
use stonefold_lab::stats::gates::State;
use stonefold_lab::trial::{self, Arm, Contrast, Figure, Ran, Subject, TrialPlan, findings};
use stonefold_lab::verdict::{Summary, Verdict, summarise_with};
use stonefold_lab::workload::{Arrivals, Load, Stream, Volume, Workload};
use stonefold_needs::{Need, there_is};
use stonefold_types::Kind;

const VOLUME_BYTES: u64 = 64 << 20;
const PROFILE: &str = "title = 'one volume'\nabout = 'for this test'\n[[volume]]\nname = 'v'\nsize = '16M'\nquick = '16M'\n\
    [[stream]]\nname = 's'\nvolume = 'v'\nread = 100\nrandom = 100\nsizes = { '4K' = 100 }\noutstanding = 2\n\
    [time]\nquick_precondition = '1s'\nquick_sample = '6s'\n";

fn nbdkit(arguments: &[&str]) -> Nbdkit {
    Nbdkit::start(tempfile::tempdir().unwrap(), arguments)
}

fn signal(nbdkit: &Nbdkit, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(nbdkit.served.0.id() as i32).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// One stream of 4K I/Os at random over one volume.
fn workload(read: f64, load: Load) -> Workload {
    Workload {
        volumes: vec![Volume {
            name: "v".into(),
            bytes: VOLUME_BYTES,
            reduction: Reduction { dedupe: 1.2, compression: 2.0 },
            original: None,
        }],
        streams: vec![Stream {
            name: "s".into(),
            volume: 0,
            read,
            random: 1.0,
            sizes: vec![(4096, 1.0)],
            alignments: Vec::new(),
            zone: (0.0, 1.0),
            hotspots: None,
            flush: 0,
            load,
        }],
    }
}

/// A load on a target, with what it needs to run.
struct Bench {
    _runtime: tokio::runtime::Runtime,
    rig: Rig,
    load: Load,
}

impl Bench {
    fn new(target: &str, read: f64, load: Load, verify: bool) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let env = Env::new(SystemWorld::new(runtime.handle().clone(), 1).unwrap());
        let workload = workload(read, load);
        let options = RigOptions { threads: 1, verify, seed: 5, destroy_data: false, lasting: false };
        let rig = Rig::open(&env, &workload, &[target.parse().unwrap()], &[vec![load]], &options).unwrap();
        Bench { _runtime: runtime, rig, load }
    }

    fn fill(&mut self) -> Outcome {
        self.phase(Goal::Fill)
    }

    fn run(&mut self, seconds: f64) -> Outcome {
        self.phase(Goal::For(Duration::from_secs_f64(seconds)))
    }

    fn phase(&mut self, goal: Goal) -> Outcome {
        let phase =
            Phase { goal, loads: vec![Some(self.load)], footprint: 1.0, grace: Duration::from_secs(20) };
        self.rig.run(&phase, &Control::new()).unwrap()
    }
}

const STEADY: Load = Load::Open { from: 1000.0, to: 1000.0, arrivals: Arrivals::Constant };
const ONE: Load = Load::Closed { outstanding: 1 };

/// The lab's acceptance. A closed loop, as fio's, would show one slow I/O; here each of a thousand has waited.
#[test]
fn a_stall_is_seen_by_everybody_whom_it_kept_waiting() {
    let nbdkit = nbdkit(&["memory", "64M"]);
    let mut bench = Bench::new(&nbdkit.target(), 1.0, STEADY, true);
    bench.fill();
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_secs(2));
            signal(&nbdkit, rustix::process::Signal::STOP);
            std::thread::sleep(Duration::from_secs(1));
            signal(&nbdkit, rustix::process::Signal::CONT);
        });
        bench.run(5.0)
    });
    let read = &outcome.streams[0].read;
    assert!((4_990..=5_001).contains(&read.response.count()), "{}", read.response.count());
    let p90 = Duration::from_nanos(read.response.quantile(0.9));
    assert!(p90 >= Duration::from_millis(400), "p90 of the response time is {p90:?}");
    assert!(read.response.max() >= 950_000_000 && read.response.quantile(0.5) < 50_000_000);
    assert_eq!(outcome.verification.faults() + outcome.verification.unwritten, 0);
}

/// Goal: whatever the generator does between an answer and what takes its place is time that somebody waits, so that throughput times response time
/// is what is in flight (Little 1961). *Past bug*: what was meant to go out when a batch of answers came counted from when it did, after those before it had been
/// looked at: of 20 in flight on a file 13 to 15 were accounted for.
#[test]
fn no_time_is_lost_between_answers() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for target in [format!("file:{}", dir.path().join("disk").display()), "null:".to_owned()] {
        let mut bench = Bench::new(&target, 1.0, Load::Closed { outstanding: 32 }, target != "null:");
        bench.fill();
        // A medium that stalls at the very end adds what is beyond it, once; time that is lost is lost each time.
        let mut found = Vec::new();
        while !found.iter().any(|in_flight: &f64| (in_flight / 32.0 - 1.0).abs() <= 0.05) {
            assert!(found.len() < 3, "{target}: {found:?} of 32");
            let outcome = bench.run(2.0);
            let read = &outcome.streams[0].read;
            let waited = read.response.mean() * read.response.count() as f64;
            found.push(waited / outcome.elapsed.as_nanos() as f64);
        }
    }
}

#[test]
fn a_delay_is_measured_as_what_it_is() {
    let nbdkit = nbdkit(&["--filter=delay", "memory", "64M", "rdelay=5ms", "wdelay=9ms"]);
    let mut bench = Bench::new(&nbdkit.target(), 0.5, ONE, false);
    let outcome = bench.run(3.0);
    let record = &outcome.streams[0];
    for (side, nanos) in [(&record.read, 5e6), (&record.write, 9e6)] {
        let mean = side.service.mean();
        assert!((nanos..nanos * 1.6).contains(&mean), "{mean} ns for {nanos}");
    }
}

/// A target that gives so many bits a second is found to.
#[test]
fn a_rate_is_measured_as_what_it_is() {
    // 8 MiB a second; the filter lets a fiftieth of a second's worth through at once.
    let nbdkit = nbdkit(&["--filter=rate", "memory", "64M", "rate=64M", "burstiness=0.02"]);
    let mut bench = Bench::new(&nbdkit.target(), 1.0, Load::Closed { outstanding: 8 }, false);
    let outcome = bench.run(5.0);
    let rate = outcome.streams[0].read.bytes as f64 / outcome.elapsed.as_secs_f64() / f64::from(8 << 20);
    assert!((0.9..1.05).contains(&rate), "{rate} of what it gives");
}

/// Goal: of a target that fails in mid-sample, or fills up, there is a figure and no number: it is void, and says why.
#[test]
fn a_target_that_fails_in_mid_sample_gives_no_number() {
    let text = PROFILE.replace("read = 100", "read = 0");
    for error in ["EIO", "ENOSPC"] {
        let dir = tempfile::tempdir().unwrap();
        let trigger = dir.path().join("fail");
        let (file, error) = (format!("error-file={}", trigger.display()), format!("error={error}"));
        let nbdkit = nbdkit(&["--filter=error", "memory", "64M", "error-pwrite-rate=20%", &error, &file]);
        let profile = Profile::parse("p", &text).unwrap();
        let plan = plan_of(&nbdkit, profile.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let env = Env::new(SystemWorld::new(runtime.handle().clone(), 1).unwrap());
        let reins = Reins::new();
        let is_sampling = || {
            let what = reins.doing().0.what;
            !what.is_empty() && !what.contains("writing") && !what.contains("settling")
        };
        let measured = std::thread::scope(|scope| {
            scope.spawn(|| {
                // A run that comes to nothing before says why.
                (0..6000)
                    .take_while(|_| !is_sampling())
                    .for_each(|_| std::thread::sleep(Duration::from_millis(10)));
                std::fs::write(&trigger, "").unwrap();
            });
            measure::run(&env, &plan, &reins).unwrap()
        });
        let run = Run { profile: "p".into(), quick: true, ..Run::default() };
        let bundle = Bundle { run, profile: text.clone(), points: measured.points, hash: String::new() };
        let summary = summarise_with(&bundle, &profile).unwrap();
        let gate = summary.points[0].gates.iter().find(|gate| gate.name == "errors").unwrap();
        assert!(gate.state == State::Void && gate.why.contains("I/Os failed"), "{error}: {gate:?}");
        assert_eq!(summary.verdict, Verdict::Invalid, "{error}");
    }
}

fn plan_of(nbdkit: &Nbdkit, profile: Profile) -> Plan {
    Plan {
        profile,
        quick: true,
        targets: vec![nbdkit.target().parse().unwrap()],
        options: RigOptions { threads: 1, verify: false, seed: 5, destroy_data: false, lasting: false },
        fleet: FleetPlan::default(),
        outages: None,
        counters: Vec::new(),
        capacities: Vec::new(),
    }
}

#[test]
fn errors_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    // Errors come only while this file is there.
    let trigger = dir.path().join("fail");
    let file = format!("error-file={}", trigger.display());
    let nbdkit = nbdkit(&["--filter=error", "memory", "64M", "error-pread-rate=10%", "error=EIO", &file]);
    let mut bench = Bench::new(&nbdkit.target(), 1.0, Load::Closed { outstanding: 4 }, false);
    std::fs::write(&trigger, "").unwrap();
    let outcome = bench.run(1.0);
    let record = &outcome.streams[0];
    let share = record.failed() as f64 / record.issued() as f64;
    assert!((0.08..0.12).contains(&share), "{share}");
    assert_eq!(record.errors.keys().copied().collect::<Vec<_>>(), [5]);
}

/// Nothing is measured on volumes of which a part was never written.
#[test]
fn a_target_that_does_not_take_every_block_is_not_measured() {
    for (error, kind) in [("ENOSPC", Kind::NoSpace), ("EIO", Kind::Io)] {
        let error = format!("error={error}");
        let nbdkit = nbdkit(&["--filter=error", "memory", "64M", "error-pwrite-rate=20%", &error]);
        let plan = plan_of(&nbdkit, Profile::parse("p", PROFILE).unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let env = Env::new(SystemWorld::new(runtime.handle().clone(), 1).unwrap());
        let error = measure::run(&env, &plan, &Reins::new()).unwrap_err();
        assert!(error.kind() == kind && error.what().contains("writing every block"), "{error}");
    }
}

/// One of two volumes on one thread answers nothing for longer than the load lasts; the other one's I/Os wait for none of that.
#[test]
fn a_slow_volume_holds_up_no_others_stream() {
    let (slow, quick) =
        (nbdkit(&["--filter=delay", "memory", "64M", "rdelay=4"]), nbdkit(&["memory", "64M"]));
    let load = Load::Open { from: 2000.0, to: 2000.0, arrivals: Arrivals::Constant };
    let mut two = workload(1.0, load);
    two.volumes.push(Volume { name: "w".into(), ..two.volumes[0].clone() });
    two.streams.push(Stream { name: "t".into(), volume: 1, ..two.streams[0].clone() });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let env = Env::new(SystemWorld::new(runtime.handle().clone(), 1).unwrap());
    let options = RigOptions { threads: 1, verify: false, seed: 5, destroy_data: true, lasting: false };
    let targets = [slow.target().parse().unwrap(), quick.target().parse().unwrap()];
    let mut rig = Rig::open(&env, &two, &targets, &[vec![load], vec![load]], &options).unwrap();
    let phase = Phase {
        goal: Goal::For(Duration::from_secs(3)),
        loads: vec![Some(load); 2],
        footprint: 1.0,
        grace: Duration::from_secs(1),
    };
    let outcome = rig.run(&phase, &Control::new()).unwrap();
    let [slow, quick] = &outcome.streams[..] else { panic!("two streams") };
    assert!(slow.unissued > 4000, "it had no more in flight than its share: {}", slow.unissued);
    assert!(quick.unissued < 60, "{}", quick.unissued);
    let median = Duration::from_nanos(quick.read.response.quantile(0.5));
    assert!(median < Duration::from_millis(100), "{median:?}");
}

/// What nbdkit loses between two runs of one load is told by its kind.
#[test]
fn what_a_target_forgets_is_found() {
    let nbdkit = nbdkit(&["memory", "64M"]);
    let mut bench = Bench::new(&nbdkit.target(), 0.5, Load::Closed { outstanding: 8 }, true);
    bench.fill();
    let before = bench.run(1.0);
    assert_eq!(before.verification.faults(), 0, "{:?}", before.verification.findings);
    assert!(before.verification.right > 0);
    // Behind the lab's back: zeros over a mebibyte.
    let zeros = Command::new("qemu-io")
        .args(["-f", "raw", "-c", "write -z 8M 1M", &nbdkit.target()])
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(zeros.success());
    let after = bench.phase(Goal::Scan);
    assert_eq!(after.verification.lost, (1 << 20) / 512);
    assert_eq!(after.verification.faults(), after.verification.lost);
    // In whatever order several connections answer.
    let within = |offset: u64| (8 << 20..9 << 20).contains(&offset);
    assert!(after.verification.findings.iter().all(|finding| within(finding.offset)));
}

/// A target with a file system's beginning on it is refused, and keeps it.
#[test]
fn data_of_others_is_left_alone() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("disk.img");
    let mut bytes = vec![0; VOLUME_BYTES as usize];
    bytes[(VOLUME_BYTES - 4096) as usize..][..5].copy_from_slice(b"EXT4 ");
    std::fs::write(&path, &bytes).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let env = Env::new(SystemWorld::new(runtime.handle().clone(), 1).unwrap());
    let workload = workload(1.0, ONE);
    let options = RigOptions { threads: 1, verify: true, seed: 5, destroy_data: false, lasting: false };
    let specs = [format!("file:{}", path.display()).parse().unwrap()];
    let error = Rig::open(&env, &workload, &specs, &[vec![ONE]], &options).err().expect("it is refused");
    assert!(error.to_string().contains("has not written"), "{error}");
    assert!(std::fs::read(&path).unwrap() == bytes);
    let destroying = RigOptions { destroy_data: true, ..options.clone() };
    drop(Rig::open(&env, &workload, &specs, &[vec![ONE]], &destroying).unwrap());
    // What holds nothing, and what the lab has written, is its to use.
    std::fs::write(&path, vec![0; VOLUME_BYTES as usize]).unwrap();
    let mut bench = Bench::new(&format!("file:{}", path.display()), 0.0, ONE, true);
    bench.fill();
    drop(bench);
    Rig::open(&env, &workload, &specs, &[vec![ONE]], &options).map(drop).unwrap();
}

/// The lab's acceptance: with a closed loop both find the same capacity. The target's pace is a delay, so that other work on
/// this machine slows neither down much; of three pairs, taken by turns, the middle one is judged.
#[test]
fn a_closed_loop_finds_what_fio_finds() {
    let nbdkit = nbdkit(&["--filter=delay", "memory", "64M", "rdelay=10ms"]);
    let ratio = lab_against_fio(|| {
        let mut bench = Bench::new(&nbdkit.target(), 1.0, SIXTEEN, false);
        let uri = format!("--uri={}", nbdkit.target());
        iops(&bench.run(2.0)) / fio_iops(&["--ioengine=nbd", "--size=64M", &uri])
    });
    assert!((0.95..1.05).contains(&ratio), "{ratio}");
}

/// The same where nothing but the engine takes its time: a file of a disk. Tests run beside others, so that only an engine that is
/// much slower than fio's is found here; how much slower or faster it is tells `bench/lab/run`.
#[test]
fn without_a_delay_the_engine_keeps_up_with_fios() {
    if !there_is(Need::IoUring, "the lab's engine beside fio's on a file") {
        return;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("disk");
    let target = format!("file:{}", path.display());
    // Blocks that were never written are read by no disk.
    Bench::new(&target, 1.0, SIXTEEN, false).fill();
    let ratio = lab_against_fio(|| {
        let mut bench = Bench::new(&target, 1.0, SIXTEEN, false);
        let (file, size) = (format!("--filename={}", path.display()), format!("--size={VOLUME_BYTES}"));
        iops(&bench.run(2.0)) / fio_iops(&["--ioengine=io_uring", "--direct=1", &size, &file])
    });
    assert!(ratio >= 0.7, "{ratio}");
}

const SIXTEEN: Load = Load::Closed { outstanding: 16 };

/// The median of three pairs, of which each runs the one after the other.
fn lab_against_fio(pair: impl Fn() -> f64) -> f64 {
    let mut pairs: Vec<f64> = (0..3).map(|_| pair()).collect();
    println!("lab against fio: {pairs:?}");
    pairs.sort_by(f64::total_cmp);
    pairs[1]
}

fn iops(outcome: &Outcome) -> f64 {
    outcome.streams[0].ios() as f64 / outcome.elapsed.as_secs_f64()
}

/// What fio finds in two seconds by the same load.
fn fio_iops(target: &[&str]) -> f64 {
    let output = Command::new("fio")
        .args(["--name=job", "--rw=randread", "--bs=4k", "--iodepth=16", "--time_based", "--runtime=2"])
        .args(["--randrepeat=0", "--norandommap", "--output-format=json"])
        .args(target)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap();
    json["jobs"][0]["read"]["iops"].as_f64().unwrap()
}

/// A device with a file system that is mounted is refused, whatever is said, and keeps it.
#[test]
fn a_device_in_use_is_left_alone() {
    if !there_is(Need::Loop, "a mounted device that the lab is pointed at") {
        return;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (image, at) = (dir.path().join("disk.img"), dir.path().join("mnt"));
    std::fs::create_dir(&at).unwrap();
    std::fs::File::create(&image).unwrap().set_len(VOLUME_BYTES).unwrap();
    let device = shell(&format!("losetup --find --show '{}'", image.display()));
    let device = device.trim();
    shell(&format!("mkfs.ext4 -q {device} && mount {device} '{0}' && echo mine > '{0}/file'", at.display()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let env = Env::new(SystemWorld::new(runtime.handle().clone(), 1).unwrap());
    let options = RigOptions { threads: 1, verify: true, seed: 5, destroy_data: true, lasting: false };
    let specs = [format!("dev:{device}").parse().unwrap()];
    let opened = Rig::open(&env, &workload(1.0, ONE), &specs, &[vec![ONE]], &options);
    let why = opened.err().map(|error| error.to_string());
    let kept = std::fs::read_to_string(at.join("file"));
    shell(&format!("umount '{}'; losetup --detach {device}", at.display()));
    assert!(why.as_deref().is_some_and(|why| why.contains("is mounted or in use")), "{why:?}");
    assert_eq!(kept.unwrap(), "mine\n");
}

fn shell(command: &str) -> String {
    let output = Command::new("sh").args(["-c", command]).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The mean of two targets that wait so long before each answer, held against one another by five rounds.
fn compared(delays: [&str; 2]) -> Contrast {
    let late = |delay: &str| nbdkit(&["--filter=delay", "memory", "64M", &format!("rdelay={delay}")]);
    let [first, second] = delays.map(late);
    let arm = |name: &str, target: &Nbdkit| {
        let targets = vec![target.target().parse().unwrap()];
        Arm { name: name.into(), targets, words: Vec::new(), before: None, after: None, system: None }
    };
    let text = PROFILE.replace("outstanding = 2", "outstanding = 16");
    let profile = Profile::parse("p", &text).unwrap();
    let plan = TrialPlan {
        fleet: FleetPlan::default(),
        subject: Subject::Load(profile.clone()),
        quick: true,
        arms: vec![arm("as it is", &first), arm("the other", &second)],
        // Five decide; a busy machine keeps some from becoming steady.
        rounds: 16,
        options: RigOptions { threads: 1, verify: true, seed: 5, destroy_data: true, lasting: false },
        counters: Vec::new(),
        capacities: Vec::new(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let env = Env::new(SystemWorld::new(runtime.handle().clone(), 1).unwrap());
    let (mut turns, mut bundles, mut summaries) = (Vec::new(), Vec::new(), Vec::<Summary>::new());
    let reins = Reins::new();
    trial::run(&env, &plan, &reins, |turn, Ran { points, .. }| {
        let run = Run { profile: "p".into(), quick: true, verified: true, ..Run::default() };
        let bundle = Bundle { run, profile: text.clone(), points, hash: String::new() };
        turns.push(turn);
        summaries.push(summarise_with(&bundle, &profile).unwrap());
        bundles.push(bundle);
        let is_steady =
            |summary: &Summary| summary.points[0].steadiness.as_ref().is_some_and(|one| one.is_steady());
        if summaries.chunks_exact(2).filter(|round| round.iter().all(is_steady)).count() == 5 {
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    let found = findings(2, &turns, &bundles, &summaries, 5);
    found.contrasts.into_iter().find(|one| one.figure == Figure::Mean).unwrap()
}

/// The lab's acceptance, on targets that are what they are: one answers 5% later than the other, and is found to. So long that what a busy machine
/// adds to it is little.
#[test]
fn a_target_that_is_five_percent_slower_is_found() {
    let mean = compared(["60ms", "63ms"]);
    assert!(mean.comparison.finding == Finding::Higher && mean.void.is_none(), "{mean:?}");
    assert!((1.04..1.06).contains(&mean.comparison.ratio), "{mean:?}");
}

/// Likewise: of two that are alike nothing is made. That an interval covers 1 is so 95 times in a hundred, which numbers that were made show; here it is
/// that whoever comes second, or on the other target, is no slower.
#[test]
fn two_targets_that_are_alike_are_found_to_be() {
    let mean = compared(["60ms", "60ms"]);
    assert!(mean.void.is_none() && (0.99..1.01).contains(&mean.comparison.ratio), "{mean:?}");
}
