//! The Debian package, of the build that is tested.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use stonefold_guest::process;

use crate::binary::stonefold;
use crate::gateway::Place;

/// To strip and to pack a test build.
const BUILD_MAX: Duration = Duration::from_secs(240);

/// Makes it; the path of its file.
pub fn build(place: &Place) -> Result<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/build-deb");
    let mut command = Command::new(script);
    command.arg("--binary").arg(stonefold()?).arg(place.path("packages"));
    // Nobody downloads it.
    let built = process::run(command.env("DPKG_DEB_COMPRESSOR_TYPE", "none"), BUILD_MAX)?;
    ensure!(built.status.success(), "build-deb: {}", built.stderr);
    Ok(built.stdout.trim().into())
}
