//! The check that dependencies point downwards only.
//!
//! Every crate of ours stands on a floor; it may use crates of lower floors only. A crate that is not in the
//! table fails the check, so that a new room is placed when it is built.

use crate::metadata;
use anyhow::{Context, Result, bail};

/// Floors from the ground up; crates on one floor do not know each other.
const FLOORS: &[&[&str]] = &[
    &["stonefold-types"],
    &["stonefold-env", "stonefold-format"],
    &["stonefold-engine", "stonefold-api", "stonefold-tls"],
    &["stonefold-store", "stonefold-s3", "stonefold-lab"],
    &["stonefold-nbd", "stonefold-protect"],
    &["stonefold-server"],
    &["stonefold-cli"],
    &["stonefold-model", "stonefold-dice", "stonefold-needs", "stonefold-object-store"],
    &["stonefold-sim", "stonefold-fuzz", "stonefold-guest"],
    &["stonefold-quickstart", "stonefold-e2e", "stonefold-bench"],
    &["xtask"],
];

/// Rooms that may not know each other although one stands lower: (who, must not use, why).
const FORBIDDEN: &[(&str, &str, &str)] = &[
    ("stonefold-nbd", "stonefold-engine", "doors know the store's façade, never an engine"),
    (
        "stonefold-lab",
        "stonefold-engine",
        "the lab measures any storage, and knows nothing of what is below a target",
    ),
    ("stonefold-lab", "stonefold-tls", "as above"),
    ("stonefold-protect", "stonefold-engine", "protection knows the store's façade, never an engine"),
    ("stonefold-cli", "stonefold-store", "commands ask the server, or start one"),
    ("stonefold-cli", "stonefold-engine", "as above"),
    ("stonefold-api", "stonefold-store", "the API's types are shared with clients that have no store"),
];

/// Reads `cargo metadata` and fails on the first crate that reaches upwards or sideways.
pub(crate) fn check() -> Result<()> {
    let metadata = metadata::read(&["--no-deps"])?;
    let mut breaches = Vec::new();
    let packages = metadata["packages"].as_array().context("cargo metadata names packages")?;
    for package in packages {
        let user = package["name"].as_str().context("a package has a name")?;
        for dependency in package["dependencies"].as_array().context("a package has dependencies")? {
            let used = dependency["name"].as_str().context("a dependency has a name")?;
            // What a test uses says nothing about the shape of the house.
            if dependency["kind"] == "dev" || dependency["path"].is_null() {
                continue;
            }
            breaches.extend(breach(user, used)?);
        }
        floor(user)?;
    }
    if breaches.is_empty() {
        println!("layers: {} crates, every dependency points downwards", packages.len());
        return Ok(());
    }
    bail!("dependencies must point downwards:\n{}", breaches.join("\n"));
}

fn floor(name: &str) -> Result<usize> {
    FLOORS
        .iter()
        .position(|floor| floor.contains(&name))
        .with_context(|| format!("crate '{name}' has no floor; place it in FLOORS of xtask/src/layers.rs"))
}

fn breach(user: &str, used: &str) -> Result<Option<String>> {
    if let Some((_, _, why)) = FORBIDDEN.iter().find(|(a, b, _)| *a == user && *b == used) {
        return Ok(Some(format!("  {user} uses {used}: {why}")));
    }
    let (upper, lower) = (floor(user)?, floor(used)?);
    Ok((upper <= lower).then(|| format!("  {user} (floor {upper}) uses {used} (floor {lower})")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upwards_sideways_and_forbidden_are_breaches() {
        assert!(breach("stonefold-store", "stonefold-engine").unwrap().is_none());
        assert!(breach("stonefold-engine", "stonefold-store").unwrap().is_some());
        assert!(breach("stonefold-env", "stonefold-format").unwrap().is_some());
        assert!(breach("stonefold-nbd", "stonefold-engine").unwrap().is_some());
        assert!(breach("stonefold-lab", "stonefold-engine").unwrap().is_some());
        assert!(breach("stonefold-cli", "stonefold-engine").unwrap().is_some());
        assert!(breach("stonefold-new", "stonefold-types").is_err());
    }
}
