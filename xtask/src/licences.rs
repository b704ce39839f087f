//! The check that everything that is built in may be: licences and sources of all dependencies, by the lists of `deny.toml`.
//!
//! `cargo deny check` looks further, at advisories for one, and has to be installed; this is what every run of the tests can see.

use crate::metadata;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use spdx::{Expression, LicenseReq, Licensee};

/// How the source of a crate begins that comes from a registry, as a version that cannot change any more.
const REGISTRY: &str = "registry+";

/// Reads `deny.toml` and `cargo metadata`; fails with every crate that nothing on the list allows.
pub(crate) fn check() -> Result<()> {
    let rules = std::fs::read_to_string("deny.toml").context("reading deny.toml at the project's root")?;
    let rules: toml::Table = toml::from_str(&rules).context("reading deny.toml")?;
    let allowed = strings(&rules, "licenses", "allow")?;
    let allowed = allowed.iter().map(|name| Licensee::parse(name)).collect::<Result<Vec<_>, _>>()?;
    let mut breaches = Vec::new();
    let mut looked_at = 0;
    for target in strings(&rules, "graph", "targets")? {
        let metadata = metadata::read(&["--all-features", "--locked", "--filter-platform", &target])?;
        // Only what this platform's tree has: the list of packages has those of all others, too.
        let used = metadata["resolve"]["nodes"].as_array().context("cargo metadata resolves packages")?;
        let packages = metadata["packages"].as_array().context("cargo metadata names packages")?;
        let used = packages.iter().filter(|package| used.iter().any(|node| node["id"] == package["id"]));
        for package in used {
            looked_at += 1;
            breaches.extend(breach(package, &allowed)?);
        }
    }
    breaches.sort();
    breaches.dedup();
    if !breaches.is_empty() {
        bail!("deny.toml does not allow:\n{}", breaches.join("\n"));
    }
    println!("licences: {looked_at} crates on all platforms, each allowed by deny.toml");
    Ok(())
}

fn strings(rules: &toml::Table, table: &str, key: &str) -> Result<Vec<String>> {
    let list = rules.get(table).and_then(|table| table.get(key)).and_then(|list| list.as_array());
    let list = list.with_context(|| format!("deny.toml has no list '{key}' in [{table}]"))?;
    list.iter()
        .map(|one| {
            one.as_str().map(str::to_owned).with_context(|| format!("'{key}' of deny.toml has a {one:?}"))
        })
        .collect()
}

/// What is wrong with a package, if anything.
fn breach(package: &Value, allowed: &[Licensee]) -> Result<Option<String>> {
    let name = package["name"].as_str().context("a package has a name")?;
    let source = package["source"].as_str();
    if source.is_some_and(|source| !source.starts_with(REGISTRY)) {
        return Ok(Some(format!("  {name} comes from {}", source.unwrap_or_default())));
    }
    let Some(licence) = package["license"].as_str() else {
        return Ok(Some(format!("  {name} names no licence")));
    };
    // Old manifests write "MIT/Apache-2.0".
    let expression = Expression::parse_mode(licence, spdx::ParseMode::LAX)
        .with_context(|| format!("{name} has the licence '{licence}'"))?;
    let may = |asked: &LicenseReq| allowed.iter().any(|licence| licence.satisfies(asked));
    Ok((!expression.evaluate(may)).then(|| format!("  {name} is under {licence}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_not_on_the_list_is_a_breach() {
        let allowed = [Licensee::parse("MIT").unwrap(), Licensee::parse("Apache-2.0").unwrap()];
        let told = |package: Value| breach(&package, &allowed).unwrap().is_some();
        for fine in ["MIT", "MIT OR GPL-3.0-only", "MIT/Apache-2.0", "Apache-2.0 AND MIT"] {
            assert!(!told(json!({ "name": "a", "source": REGISTRY, "license": fine })), "{fine}");
        }
        for refused in ["AGPL-3.0-only", "MIT AND GPL-2.0-only", "Apache-2.0 WITH LLVM-exception"] {
            assert!(told(json!({ "name": "a", "source": REGISTRY, "license": refused })), "{refused}");
        }
        assert!(told(json!({ "name": "a", "source": REGISTRY })));
        assert!(told(json!({ "name": "a", "source": "git+ssh://a/b", "license": "MIT" })));
        assert!(!told(json!({ "name": "ours", "license": "Apache-2.0" })));
    }
}
