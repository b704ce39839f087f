//! What cargo tells of the workspace and of everything it is built from.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::process::Command;

/// `cargo metadata` with further arguments.
pub(crate) fn read(arguments: &[&str]) -> Result<Value> {
    let output = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
        .args(["metadata", "--format-version=1"])
        .args(arguments)
        .output()
        .context("running cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("reading cargo metadata")
}
