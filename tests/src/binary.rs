//! Which `stonefold` is tested: the one that was built with the tests.
//!
//! Cargo tells a test only the binaries of its own crate. So it is looked for beside the test, in the same profile;
//! when it is not there or older than its sources it is built. `STONEFOLD_BIN` names another.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use stonefold_guest::process;

/// From nothing, on two cores that others use too.
const BUILD_MAX: Duration = Duration::from_secs(900);

/// The path of the binary.
///
/// # Errors
/// When it has to be built and cannot be.
pub fn stonefold() -> Result<&'static Path> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match FOUND.get_or_init(|| find().map_err(|error| format!("{error:#}"))) {
        Ok(path) => Ok(path),
        Err(why) => anyhow::bail!("{why}"),
    }
}

fn find() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("STONEFOLD_BIN") {
        return Ok(named.into());
    }
    // target/PROFILE/deps/TEST
    let test = std::env::current_exe().context("finding this test's own path")?;
    let profile = test.ancestors().nth(2).context("a test lies in target/PROFILE/deps")?;
    let binary = profile.join("stonefold");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("tests/ lies in the workspace")?;
    let built = fs::metadata(&binary).and_then(|meta| meta.modified());
    if built.is_ok_and(|built| newest(&sources.join("crates")).is_none_or(|source| source <= built)) {
        return Ok(binary);
    }
    build(sources, profile)?;
    Ok(binary)
}

fn build(sources: &Path, profile: &Path) -> Result<()> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--locked", "-p", "stonefold-cli"]).current_dir(sources);
    if profile.file_name().is_some_and(|name| name == "release") {
        cargo.arg("--release");
    }
    let built = process::run(&mut cargo, BUILD_MAX).context("building stonefold")?;
    ensure!(built.status.success(), "stonefold does not build:\n{}", built.stderr);
    Ok(())
}

/// When a source of the binary was last changed; tests of its crates are none.
fn newest(folder: &Path) -> Option<SystemTime> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    let times = entries.filter_map(|entry| {
        let path = entry.path();
        match path.is_dir() {
            true if entry.file_name() == "tests" || entry.file_name() == "examples" => None,
            true => newest(&path),
            false if path.extension().is_some_and(|e| e == "rs" || e == "toml") => {
                entry.metadata().ok()?.modified().ok()
            }
            false => None,
        }
    });
    times.max()
}
