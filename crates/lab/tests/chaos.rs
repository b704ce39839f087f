//! Targets that are struck while they are loaded: servers that keep what they promise, and servers that do not.
//!
//! Goal: whoever keeps its promise passes, and whoever breaks it is found, with what was lost told by which promise it
//! breaks. Servers are real, killed by SIGKILL, frozen by SIGSTOP; nbdkit's cache filter is the medium that forgets:
//! with `writeback` what was not flushed, with `unsafe` what was flushed, too.

use std::path::{Path, PathBuf};
use std::process::Command;
use stonefold_env::{Env, SystemWorld};
use stonefold_lab::bundle::{Bundle, Run};
use stonefold_lab::chaos::{OutageRecord, Outages};
use stonefold_lab::measure::{self, FleetPlan, Plan, Point, Reins};
use stonefold_lab::profile::Profile;
use stonefold_lab::rig::RigOptions;
use stonefold_lab::verdict::{Summary, Verdict, summarise_with};
use stonefold_types::Result;

const PROFILE: &str = r#"
title = "files and a log"
about = "for this test"
[payload]
dedupe = 1.2
[[volume]]
name = "files"
size = "12M"
quick = "12M"
[[volume]]
name = "log"
size = "4M"
quick = "4M"
[[stream]]
name = "files"
volume = "files"
read = 30
random = 80
sizes = { "4K" = 60, "16K" = 40 }
align = "4K"
rate = { iops = 300 }
flush = 64
[[stream]]
name = "log"
volume = "log"
read = 0
random = 0
sizes = { "4K" = 100 }
rate = { iops = 100, arrivals = "constant" }
flush = 4
[[step]]
name = "outage"
outages = true
[time]
quick_precondition = "0.5s"
quick_sample = "5s"
"#;

/// A server in a folder of its own, started and ended by commands, as a user's is.
struct Server {
    dir: tempfile::TempDir,
    start: String,
}

impl Server {
    /// `command` has `DIR` for the folder; it leaves its process id in `DIR/pid`, and serves `DIR/sock`.
    fn new(command: &str) -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        std::fs::File::create(dir.path().join("disk")).unwrap().set_len(16 << 20).unwrap();
        let at = dir.path().display().to_string();
        let start = format!("rm -f {at}/sock {at}/pid; {}", command.replace("DIR", &at));
        let server = Server { dir, start };
        shell(&server.start);
        server
    }

    fn nbdkit(arguments: &str) -> Self {
        Self::new(&format!("nbdkit --unix DIR/sock --pidfile DIR/pid {arguments}"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn signal(&self, signal: &str) -> String {
        format!("kill -{signal} $(cat {})", self.path("pid").display())
    }

    fn outages(&self, promise: &str, kinds: &[&str]) -> String {
        let mut text = format!("promise = '{promise}'\n");
        for kind in kinds {
            let (strike, restore) = match *kind {
                "freeze" => (self.signal("STOP"), self.signal("CONT")),
                _ => (self.signal("KILL"), self.start.clone()),
            };
            text.push_str(&format!(
                "[[outage]]\nkind = '{kind}'\nstrike = '''{strike}'''\nrestore = '''{restore}'''\n\
                 after = '1.5s'\nlasts = '0.6s'\npatience = '30s'\n"
            ));
        }
        text
    }

    fn target(&self) -> String {
        format!("nbd+unix:///?socket={}", self.path("sock").display())
    }

    fn run(&self, outages: &str) -> (Vec<Point>, Summary) {
        run(&self.target(), outages, PROFILE, &Reins::new()).unwrap()
    }

    /// The same with a load that seldom flushes.
    fn run_behind_flushes(&self, outages: &str) -> (Vec<Point>, Summary) {
        let seldom = PROFILE.replace("flush = 64", "flush = 400").replace("flush = 4\n", "flush = 100000\n");
        run(&self.target(), outages, &seldom, &Reins::new()).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be frozen, or dead by the test's own hand.
        let _ = Command::new("sh").args(["-c", &format!("{} 2> /dev/null", self.signal("KILL"))]).status();
    }
}

fn shell(command: &str) {
    let done = Command::new("sh").args(["-c", command]).status().unwrap();
    assert!(done.success(), "{command}");
}

fn plan(target: &str, outages: &str, profile: &str) -> Plan {
    Plan {
        profile: Profile::parse("p", profile).unwrap(),
        quick: true,
        targets: vec![target.parse().unwrap()],
        options: RigOptions { threads: 2, verify: true, seed: 7, destroy_data: false, lasting: true },
        fleet: FleetPlan::default(),
        outages: Some(Outages::parse("o", outages).unwrap()),
        counters: Vec::new(),
        capacities: Vec::new(),
    }
}

fn run(target: &str, outages: &str, profile: &str, reins: &Reins) -> Result<(Vec<Point>, Summary)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let env = Env::new(SystemWorld::new(runtime.handle().clone(), 1).unwrap());
    let plan = plan(target, outages, profile);
    let points = measure::run(&env, &plan, reins)?.unbroken()?.points;
    let bundle =
        Bundle { run: record(&plan), profile: PROFILE.into(), points: points.clone(), hash: String::new() };
    let summary = summarise_with(&bundle, &plan.profile).unwrap();
    Ok((points, summary))
}

fn record(plan: &Plan) -> Run {
    Run {
        format: Run::FORMAT,
        version: "0".into(),
        profile: "p".into(),
        locked: false,
        quick: true,
        targets: Vec::new(),
        seed: 7,
        threads: 2,
        verified: true,
        bytes: 16 << 20,
        require: String::new(),
        began: 0,
        reproduce: String::new(),
        machine: Default::default(),
        cut_short: false,
        outages: plan.outages.clone(),
        ..Run::default()
    }
}

fn outage(point: &Point) -> &OutageRecord {
    point.outage.as_ref().expect("each point has its outage")
}

/// Requirements that are not met, by their words.
fn missed(summary: &Summary) -> Vec<&str> {
    let missed = summary.required.iter().filter(|one| one.met.met == Some(false));
    missed.map(|one| one.met.requirement.as_str()).collect()
}

#[test]
fn a_server_that_keeps_what_was_flushed_passes_and_is_timed() {
    let server = Server::new(
        "qemu-nbd --fork --persistent --shared=16 -f raw -k DIR/sock --pid-file=DIR/pid DIR/disk",
    );
    let (points, summary) = server.run(&server.outages("flush", &["kill"]));
    assert_eq!(summary.verdict, Verdict::Pass, "{summary:#?}");
    let outage = outage(&points[0]);
    // Each thread has connections of its own, and all of them broke.
    assert!(outage.breaks >= 2 && outage.came_back, "{outage:?}");
    let (resume, silent) = (outage.resume_seconds().unwrap(), outage.silent_seconds().unwrap());
    assert!(silent >= 0.6 && resume <= silent, "{resume} of {silent}");
    assert!((1.5..5.0).contains(&outage.struck) && outage.restored >= outage.struck + 0.6);
    let seen = outage.verification.as_ref().unwrap();
    // Every sector, and those that were read in the load.
    assert!(seen.right > (16 << 20) / 512 && seen.faults() + seen.unwritten == 0, "{seen:?}");
    assert!(points[0].streams.iter().all(|stream| stream.failed() + stream.unanswered == 0));
    assert!(points[0].streams[1].control.ios > 0, "it flushed");
}

/// A cache that writes back on a flush keeps one promise and not the other, and the lab tells which.
#[test]
fn a_cache_that_forgets_what_was_not_flushed_is_held_to_what_it_promises() {
    let server = Server::nbdkit("--filter=cache file DIR/disk cache=writeback");
    let (points, summary) = server.run_behind_flushes(&server.outages("flush", &["kill"]));
    let seen = outage(&points[0]).verification.clone().unwrap();
    assert_eq!(summary.verdict, Verdict::Pass, "{summary:#?}");
    assert_eq!((seen.faults(), seen.gone_flushed), (0, 0), "{:?}", seen.findings);
    assert!(seen.gone_acknowledged > 0, "it lost nothing: the load had flushed everything");
    assert!(summary.beside.iter().any(|one| one.met.met == Some(false)), "told beside");

    let server = Server::nbdkit("--filter=cache file DIR/disk cache=writeback");
    let (points, summary) = server.run_behind_flushes(&server.outages("ack", &["kill"]));
    let seen = outage(&points[0]).verification.clone().unwrap();
    assert_eq!(summary.verdict, Verdict::Fail);
    assert_eq!(missed(&summary), ["kill: no acknowledged write is lost"]);
    assert!(seen.stale > 0 && seen.gone_flushed == 0, "{seen:?}");
}

/// Flushes that are answered and not done.
#[test]
fn a_server_that_swallows_flushes_is_found() {
    let server = Server::nbdkit("--filter=cache file DIR/disk cache=unsafe");
    let (points, summary) = server.run(&server.outages("flush", &["kill"]));
    let seen = outage(&points[0]).verification.clone().unwrap();
    assert_eq!(summary.verdict, Verdict::Fail);
    assert!(missed(&summary).contains(&"kill: no flushed write is lost"), "{:?}", missed(&summary));
    assert!(seen.gone_flushed > 0 && seen.lost > 0, "{seen:?}");
}

/// One that comes back and cannot read what it had: nobody reads it in the load, only the look at every block does.
#[test]
fn what_cannot_be_read_afterwards_is_not_kept() {
    let server = Server::nbdkit("--filter=error file DIR/disk error-pread-rate=20% error-file=DIR/fail");
    let fails = format!("touch {}; {}", server.path("fail").display(), server.start);
    let text = server.outages("flush", &["kill"]).replace(&server.start, &fails);
    let writes = PROFILE.replace("read = 30", "read = 0");
    let (points, summary) = run(&server.target(), &text, &writes, &Reins::new()).unwrap();
    let outage = outage(&points[0]);
    assert!(outage.unread > 0 && outage.verification.as_ref().unwrap().faults() == 0, "{outage:?}");
    assert_eq!(summary.verdict, Verdict::Fail, "{summary:#?}");
    assert_eq!(missed(&summary), ["kill: every block can be read afterwards"]);
}

/// The same, of one that is read in the load: its errors are what came of the outage, and not what makes a figure void.
#[test]
fn errors_after_it_came_back_fail_it() {
    let server = Server::nbdkit("--filter=error file DIR/disk error-pread-rate=20% error-file=DIR/fail");
    let fails = format!("touch {}; {}", server.path("fail").display(), server.start);
    let text = server.outages("flush", &["kill"]).replace(&server.start, &fails);
    let (points, summary) = run(&server.target(), &text, PROFILE, &Reins::new()).unwrap();
    assert!(points[0].streams.iter().any(|stream| stream.failed() > 0));
    assert_eq!(summary.verdict, Verdict::Fail, "{summary:#?}");
    assert!(
        missed(&summary).contains(&"kill: every I/O is answered, without an error"),
        "{:?}",
        missed(&summary)
    );
}

/// Two outages: after the first nothing is there any more, and the second begins with everything written anew.
#[test]
fn a_server_of_memory_forgets_everything_and_is_found() {
    let server = Server::nbdkit("memory 16M");
    let (points, summary) = server.run(&server.outages("flush", &["kill", "power"]));
    assert_eq!((points.len(), summary.verdict), (2, Verdict::Fail));
    for point in &points {
        let seen = outage(point).verification.clone().unwrap();
        assert!(seen.lost > 1000 && seen.gone_flushed >= seen.lost, "{seen:?}");
    }
}

#[test]
fn a_server_that_stands_still_and_goes_on_may_lose_nothing() {
    let server = Server::nbdkit("memory 16M");
    let (points, summary) = server.run(&server.outages("flush", &["freeze"]));
    assert_eq!(summary.verdict, Verdict::Pass, "{summary:#?}");
    let outage = outage(&points[0]);
    assert_eq!(outage.breaks, 0);
    assert!(outage.silent_seconds().unwrap() >= 0.5, "{outage:?}");
}

#[test]
fn one_that_does_not_come_back_fails_and_ends_the_run() {
    let server = Server::nbdkit("memory 16M");
    let text = server.outages("flush", &["kill"]).replace(&server.start, "true").replace("'30s'", "'1s'");
    let (points, summary) =
        server.run(&format!("{text}[[outage]]\nkind='power'\nstrike='true'\nrestore='true'"));
    assert_eq!((points.len(), summary.verdict), (1, Verdict::Fail));
    assert_eq!(missed(&summary), ["kill: answers again within 1 s"]);
    assert!(outage(&points[0]).verification.is_none());
}

/// A command that does nothing says nothing of what survives, and one that fails ends the run.
#[test]
fn commands_that_do_not_strike_are_told() {
    let server = Server::nbdkit("memory 16M");
    let text = |strike: &str| {
        format!(
            "promise='flush'\n[[outage]]\nkind='kill'\nstrike='{strike}'\nrestore='true'\nafter='1s'\nlasts='0.1s'"
        )
    };
    let (_, summary) = server.run(&text("true"));
    assert_eq!(summary.verdict, Verdict::Invalid, "{summary:#?}");
    let error = run(&server.target(), &text("exit 3"), PROFILE, &Reins::new()).unwrap_err().to_string();
    assert!(error.contains("'strike'") && error.contains("'kill'") && error.contains('3'), "{error}");
}

/// Nobody struck it: a server that hangs up by itself ends the run, as ever.
#[test]
fn a_server_that_hangs_up_by_itself_is_no_outage() {
    let server = Server::nbdkit("memory 16M");
    let (kill, reins) = (server.signal("KILL"), Reins::new());
    // Long before the outage that is to come.
    let late = server.outages("flush", &["kill"]).replace("'1.5s'", "'3s'");
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            while reins.doing().0.what != "outage, kill" {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            shell(&kill);
        });
        run(&server.target(), &late, PROFILE, &reins).unwrap_err().to_string()
    });
    assert!(error.contains("cannot be spoken to"), "{error}");
}

#[test]
fn files_can_be_frozen_and_not_killed() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = |name: &str| Path::new(dir.path()).join(name).display().to_string();
    let text = "promise='ack'\n[[outage]]\nkind='kill'\nstrike='true'\nrestore='true'";
    let error = run(&format!("file:{}", at("x")), text, PROFILE, &Reins::new()).unwrap_err().to_string();
    assert!(error.contains("no server that could come back") && error.contains("'kill'"), "{error}");
    assert!(!Path::new(&at("x")).exists(), "nothing was touched");
}
