//! A database as a load, on a real PostgreSQL.
//!
//! *Promises*: a run loads, restores, measures, audits and checks, and leaves nothing behind; what is not as it must be is told
//! by name: a database that was changed behind the lab's back, a server that was killed in mid-run, a PostgreSQL that is
//! missing, a folder of somebody else. *Method*: one or two warehouses on a folder of the machine, a few seconds; who interferes does
//! so with PostgreSQL's own psql, or a signal. *Past bug*: none yet.

mod database;
mod nbdkit;

use database::{World, against, profile};
use nbdkit::Served;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use stonefold_lab::TargetSpec;
use stonefold_lab::measure::Reins;
use stonefold_lab::oltp::{self, Outcome, Plan, Profile, Programs, migration};
use stonefold_lab::stats::gates::State;
use stonefold_lab::verdict::Verdict;
use stonefold_needs::{Need, there_is};
use stonefold_types::{Kind, Result};

/// For a step to begin, on a busy machine.
const STEP_MAX: Duration = Duration::from_secs(180);

/// Runs it, and lets somebody else act as soon as the step with so many users is measured.
fn run(world: &World, plan: &Plan, users: u32, act: impl FnOnce(&Path) + Send) -> Result<Outcome> {
    let reins = Reins::new();
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new();
        let runs = thread.spawn_scoped(scope, || oltp::run(&world.env, plan, &reins)).unwrap();
        #[expect(clippy::disallowed_methods, reason = "the test watches from outside, by the real clock")]
        let began = Instant::now();
        let wanted = format!("{users} user{}", if users == 1 { "" } else { "s" });
        while !runs.is_finished() && reins.doing().0.what != wanted && began.elapsed() < STEP_MAX {
            std::thread::sleep(Duration::from_millis(50));
        }
        if !runs.is_finished() {
            // Into the sample.
            std::thread::sleep(Duration::from_millis(2_500));
            act(&world.folder.path().join("target/stonefold-lab-oltp/run"));
        }
        runs.join().unwrap()
    })
}

/// The postmaster's pid and socket, from its own file.
fn server(data: &Path) -> (String, PathBuf) {
    let told = fs::read_to_string(data.join("postmaster.pid")).unwrap();
    let lines: Vec<&str> = told.lines().collect();
    (lines[0].to_owned(), lines[4].into())
}

#[test]
fn a_ramp_is_measured_audited_and_checked_and_leaves_nothing() {
    let world = World::new();
    let plan = world.plan(profile("[1, 4]", "6s"));
    let outcome = run(&world, &plan, 1, |_| {}).unwrap();
    assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
    assert_eq!(outcome.points.len(), 2);
    let summary = world.judged(&plan, &outcome, "nopm>=1,errors<=0");
    for (point, judged) in outcome.points.iter().zip(&summary.points) {
        let database = point.database.as_ref().unwrap();
        assert_eq!(database.checks.len(), 7, "{:?}", database.checks);
        assert!(point.series.len() == 6 && point.iops() > 1.0);
        // Whether the machine is steady is not the promise here.
        let void =
            judged.gates.iter().filter(|gate| gate.state == State::Void && gate.name != "steady state");
        assert_eq!(void.collect::<Vec<_>>(), Vec::<&stonefold_lab::stats::gates::Gate>::new());
        assert!(database.log_bytes > 0 && database.database_bytes > 100 << 20, "{database:?}");
    }
    assert_eq!(summary.required.len(), 2);
    assert!(summary.required.iter().all(|one| one.met.met == Some(true)));
    world.is_clean();
}

#[test]
fn a_database_that_was_changed_behind_its_back_is_found() {
    let world = World::new();
    let plan = world.plan(profile("[2]", "6s"));
    let programs = Programs::find(None).unwrap();
    let outcome = run(&world, &plan, 2, |data| {
        let (_, socket) = server(data);
        let done = Command::new(programs.folder().join("psql"))
            .args(["-h", &*socket.to_string_lossy(), "-U", "postgres", "-qc"])
            .arg("UPDATE district SET d_ytd = d_ytd + 1 WHERE d_id = 3")
            .args(["-c", "DELETE FROM order_line WHERE ol_o_id = 17 AND ol_d_id = 4 AND ol_number = 1"])
            .args(["-c", "DELETE FROM orders WHERE o_id = 2999 AND o_d_id = 5"])
            .status()
            .unwrap();
        assert!(done.success());
    })
    .unwrap();
    let summary = world.judged(&plan, &outcome, "nopm>=1");
    let void: Vec<&str> = against(&summary).into_iter().filter(|name| *name != "steady state").collect();
    assert_eq!(void.len(), 3, "{void:?}");
    assert!(void[0].starts_with("consistency 1") && void[1].starts_with("consistency 4"), "{void:?}");
    assert_eq!(void[2], "acknowledged orders");
    assert_eq!(summary.verdict, Verdict::Invalid, "though the requirement is met");
    world.is_clean();
}

#[test]
fn a_server_that_is_killed_ends_the_run_and_is_told() {
    let world = World::new();
    let plan = world.plan(profile("[2, 3]", "8s"));
    let outcome = run(&world, &plan, 2, |data| {
        let killed = Command::new("kill").args(["-9", &server(data).0]).status().unwrap();
        assert!(killed.success());
    })
    .unwrap();
    let failure = outcome.failure.as_ref().expect("it is told");
    let words = failure.to_string();
    assert!(words.contains("2 users") && words.contains("PostgreSQL ended by itself"), "{words}");
    let summary = world.judged(&plan, &outcome, "nopm>=1");
    assert_eq!(summary.verdict, Verdict::Invalid, "though the requirement is met");
    assert!(outcome.points.len() == 1 && outcome.points[0].cut_short, "the second step is not begun");
    assert!(outcome.points[0].iops() > 0.0, "what was measured until then is kept");
    let void = against(&summary);
    assert!(void.contains(&"errors") && void.contains(&"whole"), "{void:?}");
    world.is_clean();
}

/// A small file system in a file, mounted until it is dropped.
struct Small(PathBuf);

impl Small {
    fn mount(folder: &Path) -> Self {
        let (file, at) = (folder.join("small.img"), folder.join("target"));
        fs::create_dir(&at).unwrap();
        fs::File::create(&file).unwrap().set_len(2 << 30).unwrap();
        let done = |command: &mut Command| assert!(command.status().unwrap().success(), "{command:?}");
        done(Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(&file));
        done(Command::new("mount").args(["-o", "loop"]).arg(&file).arg(&at));
        fs::set_permissions(&at, fs::Permissions::from_mode(0o711)).unwrap();
        fs::remove_dir(at.join("lost+found")).unwrap();
        Small(at)
    }

    /// Takes all that is free, to the last block.
    fn fill(&self) {
        let mut filler = fs::File::create(self.0.join("filler")).unwrap();
        for piece in [1 << 20, 4096] {
            while filler.write_all(&vec![1; piece]).is_ok() {}
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// Goal: a target that fills up below a database that works ends the run with what PostgreSQL said, keeps what was measured until then, and
/// leaves what is not the lab's.
#[test]
fn a_target_that_fills_up_in_mid_run_ends_it_and_is_told() {
    if !there_is(Need::Loop, "a database of the lab on a file system that fills up") {
        return;
    }
    let world = World::new();
    let small = Small::mount(world.folder.path());
    let plan = world.plan(profile("[2, 3]", "20s"));
    let outcome = run(&world, &plan, 2, |_| small.fill()).unwrap();
    let failure = outcome.failure.as_ref().expect("it is told");
    assert!(
        failure.kind() == Kind::NoSpace && failure.to_string().contains("No space left on device"),
        "{failure}"
    );
    let summary = world.judged(&plan, &outcome, "nopm>=1");
    assert_eq!(summary.verdict, Verdict::Invalid, "though the requirement is met");
    assert!(outcome.points.len() == 1 && outcome.points[0].cut_short, "the second step is not begun");
    assert!(outcome.points[0].iops() > 0.0, "what was measured until then is kept");
    fs::remove_file(small.0.join("filler")).expect("it is not the lab's");
    world.is_clean();
}

#[test]
fn a_file_system_is_made_on_what_is_nobodys_and_taken_down() {
    if !there_is(Need::Loop, "a database of the lab on a file, by a loop device") {
        return;
    }
    let world = World::new();
    let file = world.folder.path().join("disk");
    let mut plan = world.plan(profile("[2]", "5s"));
    plan.target = TargetSpec::File(file.clone());
    fs::create_dir(world.folder.path().join("target")).unwrap();
    fs::write(&file, "of somebody").unwrap();
    let error = oltp::run(&world.env, &plan, &Reins::new()).unwrap_err();
    assert!(error.kind() == Kind::AlreadyExists && error.to_string().contains("--destroy-data"), "{error}");
    fs::write(&file, "").unwrap();
    let outcome = run(&world, &plan, 2, |_| {}).unwrap();
    assert!(outcome.failure.is_none() && outcome.points.len() == 1, "{:?}", outcome.failure);
    assert!(outcome.facts["database lies on"].contains("loop device"), "{:?}", outcome.facts);
    let checks = &outcome.points[0].database.as_ref().unwrap().checks;
    assert!(checks.iter().all(|check| check.violations == 0), "{checks:?}");
    let devices = Command::new("losetup").arg("--associated").arg(&file).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&devices.stdout), "", "a device is left");
    // What the lab has left there is its own: a second run gets as far as making a cluster.
    let stopped = Reins::new();
    stopped.stop();
    assert_eq!(oltp::run(&world.env, &plan, &stopped).unwrap_err().kind(), Kind::Closed);
    world.is_clean();
}

/// Two users, cycles of 6 s, and a disk that is moved from one file to another.
fn moving(world: &World) -> Plan {
    let text = format!("{}[migration]\nbefore = 1\nafter = 1\n", profile("[2]", "5s").text);
    let mut plan = world.plan(Profile::parse("test", &text).unwrap());
    plan.target = TargetSpec::File(world.folder.path().join("home"));
    plan.to = Some(TargetSpec::File(world.folder.path().join("new-home")));
    fs::create_dir(world.folder.path().join("target")).unwrap();
    plan
}

#[test]
fn a_disk_is_moved_below_its_users_and_everything_is_there() {
    if !there_is(Need::Loop, "a database of the lab whose disk is moved") {
        return;
    }
    let world = World::new();
    let plan = moving(&world);
    let outcome = oltp::run(&world.env, &plan, &Reins::new()).unwrap();
    assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
    let record = outcome.migration.clone().expect("it was moved");
    let (began, moved) = (record.began.unwrap(), record.moved.expect("it has ended"));
    assert!(record.alike.is_some_and(|alike| began < alike && alike <= moved) && record.failure.is_none());
    assert!(record.copied > 100 << 20, "{record:?}");
    let labels: Vec<&str> = outcome.points.iter().map(|point| point.label.as_str()).collect();
    assert_eq!((labels[0], labels[1]), ("1 before the move", "2 while it moves"));
    assert!(labels.last().unwrap().ends_with("after the move"), "{labels:?}");
    // The checks are of the database on its new home, with what was acknowledged in every cycle.
    for point in &outcome.points {
        let checks = &point.database.as_ref().unwrap().checks;
        assert!(checks.len() == 7 && checks.iter().all(|check| check.violations == 0), "{checks:?}");
    }
    let summary = world.judged(&plan, &outcome, "");
    assert_eq!(summary.required[0].met.met, Some(true), "{:?}", summary.required);
    let figures = migration::Figures::new(&record, &outcome.points);
    assert!(figures.baseline > 1.0 && figures.after.is_some_and(|rate| rate > 1.0), "{figures:?}");
    // The users are on the new home alone: what lies behind the old one is as it was when they left it.
    let new_home = fs::read(world.folder.path().join("new-home")).unwrap();
    assert_eq!(&new_home[1024 + 0x78..][..14], b"stonefold-oltp", "it holds the file system");
    assert!(new_home != fs::read(world.folder.path().join("home")).unwrap());
    // The same can be done again: what the lab has moved there is its own.
    let stopped = Reins::new();
    stopped.stop();
    assert_eq!(oltp::run(&world.env, &plan, &stopped).unwrap_err().kind(), Kind::Closed);
    world.is_clean();
}

#[test]
fn a_move_that_fails_is_told_and_the_database_stays() {
    if !there_is(Need::Loop, "a database of the lab whose disk cannot be moved") {
        return;
    }
    let world = World::new();
    let mut plan = moving(&world);
    let home_bytes = 4u64 << 30;
    let home = fs::File::create(world.folder.path().join("home")).unwrap();
    home.set_len(home_bytes).unwrap();
    drop(home);
    // It takes nothing, and says so.
    let socket = world.folder.path().join("full");
    let size = home_bytes.to_string();
    let arguments = ["--filter=error", "memory", &size, "error-pwrite=ENOSPC", "error-pwrite-rate=100%"];
    let full = Served::start(&socket, &arguments);
    plan.to = Some(format!("nbd+unix:///?socket={}", socket.display()).parse().unwrap());
    let outcome = oltp::run(&world.env, &plan, &Reins::new()).unwrap();
    drop(full);
    let failure = outcome.failure.as_ref().expect("it is told").to_string();
    assert!(failure.contains("the move failed") && failure.contains("No space left"), "{failure}");
    assert_eq!(outcome.points.len(), 2, "the cycle is ended, and no other begun");
    let checks = &outcome.points[1].database.as_ref().unwrap().checks;
    assert!(checks.len() == 7 && checks.iter().all(|check| check.violations == 0), "{checks:?}");
    let summary = world.judged(&plan, &outcome, "");
    assert_eq!((summary.verdict, summary.required[0].met.met), (Verdict::Invalid, Some(false)));
    world.is_clean();
}

/// Before anything is loaded.
#[test]
fn a_new_home_that_cannot_be_used_is_refused_at_once() {
    let world = World::new();
    let mut plan = moving(&world);
    fs::write(world.folder.path().join("new-home"), "of somebody").unwrap();
    let refused = |plan: &Plan| oltp::run(&world.env, plan, &Reins::new()).unwrap_err();
    let error = refused(&plan);
    assert!(
        error.kind() == Kind::AlreadyExists && error.to_string().contains("new-home holds data"),
        "{error}"
    );
    let theirs = fs::read(world.folder.path().join("new-home")).unwrap();
    assert!(theirs.starts_with(b"of somebody") && theirs[11..].iter().all(|byte| *byte == 0));
    plan.to = Some(plan.target.clone());
    let error = refused(&plan);
    assert!(error.kind() == Kind::Invalid && error.to_string().contains("already"), "{error}");
    plan.to = Some(TargetSpec::Null);
    assert_eq!(refused(&plan).kind(), Kind::Unsupported);
    world.is_clean();
}

#[test]
fn a_move_needs_to_be_told_where_to_and_nothing_else_does() {
    let world = World::new();
    let mut plan = moving(&world);
    plan.to = None;
    let error = oltp::run(&world.env, &plan, &Reins::new()).unwrap_err();
    assert!(error.kind() == Kind::Invalid && error.to_string().contains("--to"), "{error}");
    plan.to = Some(TargetSpec::Null);
    plan.profile = profile("[1]", "5s");
    let error = oltp::run(&world.env, &plan, &Reins::new()).unwrap_err();
    assert!(error.kind() == Kind::Invalid && error.to_string().contains("migrate-live"), "{error}");
    world.is_clean();
}

#[test]
fn what_cannot_be_used_is_refused_by_name() {
    let world = World::new();
    let mut plan = world.plan(profile("[1]", "5s"));
    let refused = |plan: &Plan| oltp::run(&world.env, plan, &Reins::new()).unwrap_err();
    plan.programs = Some("/nowhere".into());
    let error = refused(&plan);
    assert_eq!(error.kind(), Kind::NotFound);
    assert!(
        error.to_string().contains("/nowhere")
            && error.to_string().contains("install the package postgresql")
    );
    plan.programs = None;
    let theirs = world.folder.path().join("target/stonefold-lab-oltp");
    fs::create_dir_all(&theirs).unwrap();
    fs::write(theirs.join("letters"), "of somebody").unwrap();
    let error = refused(&plan);
    assert!(error.kind() == Kind::AlreadyExists && error.to_string().contains("--destroy-data"), "{error}");
    assert_eq!(fs::read_to_string(theirs.join("letters")).unwrap(), "of somebody");
    fs::remove_dir_all(&theirs).unwrap();
    plan.target = TargetSpec::Null;
    assert_eq!(refused(&plan).kind(), Kind::Invalid);
    plan.target = TargetSpec::Directory(world.folder.path().join("target"));
    plan.profile = plan.profile.clone().with_warehouses(Some(100_000));
    let error = refused(&plan);
    assert!(error.kind() == Kind::NoSpace && error.to_string().contains("fewer warehouses"), "{error}");
    world.is_clean();
}
