//! Every test of the workspace, several test programs at a time.
//!
//! Cargo runs one test program after the other, and much of what ours do is waiting: for a server to start, for a medium that was
//! made slow, for a clock. Beside one another they take three quarters of the time on two cores, and a program that is written as
//! if it were alone on the machine is found out.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::cmp::Reverse;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// What cargo tells a program that it runs about itself. Build scripts that look at it would take it for theirs, and everything that hangs on
/// them would be built anew each time.
const OF_THIS_PROGRAM: [&str; 4] = ["CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_BIN_", "CARGO_CRATE_"];
/// With this status a program of tests ends of which some failed.
const TESTS_FAILED: i32 = 101;
/// What takes long, in seconds on two cores, for a machine that has not run it yet: what is begun last would keep all others waiting.
const TOOK: [(&str, u64); 23] = [
    ("tests files", 340),
    ("tests clocks", 180),
    ("lab doubles", 125),
    ("tests archives", 115),
    ("tests recovery", 90),
    ("tests replicas", 85),
    ("s3 s3", 70),
    ("engine stonefold_engine", 70),
    ("lab chain", 65),
    ("tests domains", 65),
    ("tests directories", 60),
    ("lab oltp", 55),
    ("cli protect", 55),
    ("tests libvirt", 50),
    ("tests power_loss", 45),
    ("tests booted", 45),
    ("lab replay", 45),
    ("cli studies", 40),
    ("sim seeds", 40),
    ("lab chaos", 40),
    ("cli stopped", 40),
    ("tests fleece", 30),
    ("fuzz readers", 30),
];

/// One program of tests, built.
#[derive(Debug, PartialEq)]
struct Program {
    /// As in `stonefold-store store`: the package, and its target.
    name: String,
    executable: PathBuf,
    /// The package's folder, in which cargo runs its tests.
    folder: PathBuf,
    /// Whether it is one of the package's `tests/`, which take longer than those beside the code.
    is_whole: bool,
}

impl Program {
    /// How long it ran the last time, or where nobody knows on another machine; none where it is not long.
    fn took_last(&self) -> Duration {
        let millis = std::fs::read_to_string(self.log().with_extension("millis")).ok();
        let elsewhere = TOOK.iter().find(|(name, _)| *name == self.name).map(|(_, seconds)| seconds * 1000);
        Duration::from_millis(millis.and_then(|millis| millis.parse().ok()).or(elsewhere).unwrap_or(0))
    }

    fn log(&self) -> PathBuf {
        let built = self.executable.ancestors().nth(2).unwrap_or(Path::new("."));
        built.join("test-logs").join(format!("{}.log", self.name.replace(' ', "-")))
    }
}

/// Builds and runs them all, with what cargo is told besides; prints each program's words when it has ended.
///
/// # Errors
/// Where something does not build or a test failed; all others were run.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let mut programs = build(arguments)?;
    // The long ones first, by how long each took the last time, so that none is left over when the others are through.
    programs.sort_by_key(|program| (Reverse(program.took_last()), !program.is_whole));
    if let Some(logs) = programs.first().map(Program::log) {
        std::fs::create_dir_all(logs.parent().expect("a folder")).context("making the folder for logs")?;
    }
    let lanes = thread::available_parallelism().map_or(2, |cores| cores.get());
    let mut failed = side_by_side(&programs, lanes)?;
    if !cargo(arguments).arg("--doc").status().context("running cargo")?.success() {
        failed.push("examples in the documentation");
    }
    if !failed.is_empty() {
        bail!("tests failed, of: {}", failed.join(", "));
    }
    Ok(())
}

fn cargo(arguments: &[String]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["test", "--workspace"]).args(arguments);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| OF_THIS_PROGRAM.iter().any(|of| name.starts_with(of))) {
            command.env_remove(name);
        }
    }
    command
}

fn build(arguments: &[String]) -> Result<Vec<Program>> {
    let mut command = cargo(arguments);
    command.args(["--no-run", "--message-format=json-render-diagnostics"]).stdout(Stdio::piped());
    let mut building = command.spawn().context("running cargo")?;
    let told = building.stdout.take().expect("it was asked to be piped");
    let mut programs = Vec::new();
    for line in BufReader::new(told).lines() {
        let line = line.context("listening to cargo")?;
        let message = serde_json::from_str(&line).with_context(|| format!("cargo says '{line}'"))?;
        programs.extend(program(&message));
    }
    if !building.wait().context("waiting for cargo")?.success() {
        bail!("the tests do not build");
    }
    Ok(programs)
}

/// The program of tests that a message of cargo's is about.
fn program(message: &Value) -> Option<Program> {
    let is_tests = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
    let executable = PathBuf::from(message["executable"].as_str().filter(|_| is_tests)?);
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let target = &message["target"];
    let is_whole = target["kind"].as_array()?.iter().any(|kind| kind == "test");
    let name = format!("{} {}", folder.file_name()?.to_str()?, target["name"].as_str()?);
    Some(Program { name, executable, folder, is_whole })
}

/// Runs programs in so many lanes; returns which have failed.
fn side_by_side(programs: &[Program], lanes: usize) -> Result<Vec<&str>> {
    let turns = Mutex::new(programs.iter());
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let lane = || -> Result<()> {
            loop {
                let Some(program) = turns.lock().expect("no lane panics").next() else { return Ok(()) };
                if !in_its_turn(program)? {
                    failed.lock().expect("no lane panics").push(program.name.as_str());
                }
            }
        };
        let running: Vec<_> = (0..lanes).map(|_| scope.spawn(lane)).collect();
        running.into_iter().try_for_each(|one| one.join().expect("no lane panics"))
    })?;
    Ok(failed.into_inner().expect("no lane panics"))
}

/// Runs one, and prints what it said; tells whether all its tests passed. While it runs its words are in `test-logs` beside the
/// folder of the programs, for whoever wonders what it does.
#[expect(clippy::disallowed_methods, reason = "tests take the time of whoever waits for them")]
fn in_its_turn(program: &Program) -> Result<bool> {
    let log = program.log();
    let said = File::create(&log).with_context(|| format!("making {}", log.display()))?;
    let also = said.try_clone().with_context(|| format!("sharing {}", log.display()))?;
    let began = Instant::now();
    let status = Command::new(&program.executable)
        .current_dir(&program.folder)
        .env("CARGO_MANIFEST_DIR", &program.folder)
        .stdin(Stdio::null())
        .stdout(said)
        .stderr(also)
        .status()
        .with_context(|| format!("running {}", program.executable.display()))?;
    let took = began.elapsed();
    // Without it the next run has another order, and nothing else.
    let _ = std::fs::write(log.with_extension("millis"), took.as_millis().to_string());
    let said = std::fs::read(&log).with_context(|| format!("reading {}", log.display()))?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n     Ran {} in {:.1} s{}", program.name, took.as_secs_f64(), how_it_ended(status))?;
    out.write_all(&said)?;
    Ok(status.success())
}

/// What to say of an end that a test program's own words do not tell.
fn how_it_ended(status: ExitStatus) -> String {
    match status.code() {
        Some(0 | TESTS_FAILED) => String::new(),
        _ => format!(": it ended early, {status}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cargo_built_to_be_tested_is_run() {
        let message = |test: bool, kind: &str| {
            serde_json::json!({
                "reason": "compiler-artifact", "manifest_path": "/w/tests/Cargo.toml", "executable": "/t/debug/deps/crash-1",
                "target": { "name": "crash", "kind": [kind] }, "profile": { "test": test },
            })
        };
        let found = program(&message(true, "test")).unwrap();
        assert_eq!((found.name.as_str(), found.is_whole), ("tests crash", true));
        assert_eq!(found.log(), Path::new("/t/debug/test-logs/tests-crash.log"));
        assert!(!program(&message(true, "lib")).unwrap().is_whole);
        assert_eq!(program(&message(false, "bin")), None);
        assert_eq!(program(&serde_json::json!({ "reason": "build-finished" })), None);
    }

    /// Goal: what is long is known to be, before this machine has run it; then what it took here counts.
    #[test]
    fn what_takes_long_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let deps = dir.path().join("deps");
        std::fs::create_dir_all(dir.path().join("test-logs")).unwrap();
        let named = |name: &str| Program {
            name: name.into(),
            executable: deps.join("any"),
            folder: dir.path().into(),
            is_whole: true,
        };
        assert_eq!(named("tests clocks").took_last(), Duration::from_secs(180));
        assert_eq!(named("tests new").took_last(), Duration::ZERO);
        std::fs::write(named("tests clocks").log().with_extension("millis"), "7").unwrap();
        assert_eq!(named("tests clocks").took_last(), Duration::from_millis(7));
    }

    /// Goal: one that fails, and one that dies, are named; the others run all the same.
    #[test]
    fn who_fails_is_named_and_keeps_nobody_from_running() {
        let dir = tempfile::tempdir().unwrap();
        let deps = dir.path().join("deps");
        std::fs::create_dir_all(dir.path().join("test-logs")).unwrap();
        std::fs::create_dir_all(&deps).unwrap();
        let shell = |name: &str, script: &str| {
            use std::os::unix::fs::PermissionsExt;
            let executable = deps.join(name);
            std::fs::write(&executable, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&executable, std::fs::Permissions::from_mode(0o755)).unwrap();
            Program { name: name.into(), executable, folder: dir.path().into(), is_whole: true }
        };
        let programs =
            [shell("a", "exit 101"), shell("b", "kill -9 $$"), shell("c", "touch ran"), shell("d", "exit 0")];
        let mut failed = side_by_side(&programs, 2).unwrap();
        failed.sort_unstable();
        assert_eq!(failed, ["a", "b"]);
        assert!(dir.path().join("ran").exists(), "in its folder");
    }
}
