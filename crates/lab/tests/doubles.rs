//! Targets whose answer is known: nbdkit with its filters, frozen, slow, failing, or forgetful.
//!
//! Goal: what the lab says of a target is what was done to it.

mod nbdkit;

use nbdkit::Nbdkit;
use std::process::{Command, Stdio};
use std::time::Duration;
use stonefold_env::{Env, SystemWorld};
use stonefold_lab::load::{Control, Goal, Outcome, Phase};
use stonefold_lab::payload::Reduction;
use stonefold_lab::rig::{Rig, RigOptions};
use stonefold_lab::workload::{Arrivals, Load, Stream, Volume, Workload};
use stonefold_needs::{Need, there_is};

const VOLUME_BYTES: u64 = 64 << 20;

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
            align: 0,
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

#[test]
fn errors_are_counted_and_void_the_number() {
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
    let dir = tempfile::tempdir().unwrap();
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
/// this machine slows neither down much; the best of a few pairs is judged for what it does all the same.
#[test]
fn a_closed_loop_finds_what_fio_finds() {
    let nbdkit = nbdkit(&["--filter=delay", "memory", "64M", "rdelay=10ms"]);
    let pairs: Vec<f64> = (0..3)
        .map(|_| {
            let mut bench = Bench::new(&nbdkit.target(), 1.0, Load::Closed { outstanding: 16 }, false);
            let outcome = bench.run(3.0);
            outcome.streams[0].ios() as f64 / outcome.elapsed.as_secs_f64() / fio_iops(&nbdkit, 16)
        })
        .collect();
    println!("lab against fio: {pairs:?}");
    let best = pairs.iter().copied().min_by(|a, b| (a - 1.0).abs().total_cmp(&(b - 1.0).abs())).unwrap();
    assert!((0.95..1.05).contains(&best), "lab against fio: {pairs:?}");
}

fn fio_iops(nbdkit: &Nbdkit, depth: u32) -> f64 {
    let output = Command::new("fio")
        .args([
            "--name=job",
            "--ioengine=nbd",
            "--rw=randread",
            "--bs=4k",
            "--size=64M",
            "--time_based",
            "--runtime=3",
        ])
        .args(["--randrepeat=0", "--norandommap", "--output-format=json"])
        .arg(format!("--iodepth={depth}"))
        .arg(format!("--uri={}", nbdkit.target()))
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
    let dir = tempfile::tempdir().unwrap();
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
