//! Tells the program from which commit it is built: what the lab keeps says which code measured it.
//!
//! *Promises*: outside of git, or without it, the build goes on and the commit is "unknown". *Never*: runs again for a commit on another branch,
//! or for what is no source of the program.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Digits of a commit's hash: as many as tell it in a repository that grows.
const DIGITS: usize = 12;
/// What the program is made of, from the workspace's root.
const SOURCES: [&str; 3] = ["crates", "Cargo.toml", "Cargo.lock"];

fn main() {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default();
    let root = Path::new(&package).join("../..");
    println!("cargo:rerun-if-changed=build.rs");
    let commit = commit(&root).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=STONEFOLD_COMMIT={commit}");
}

/// The commit that is checked out, and whether sources are other than there.
fn commit(root: &Path) -> Option<String> {
    // A copy of the sources within somebody else's repository is of no commit of that.
    let top = PathBuf::from(git(root, &["rev-parse", "--show-toplevel"])?);
    if top.canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    watch_head(root)?;
    watch_sources(root);
    let commit = git(root, &["rev-parse", &format!("--short={DIGITS}"), "HEAD"])?;
    // What git has noted of unchanged files is not written: another command of git may be under way.
    let mut words = vec!["--no-optional-locks", "status", "--porcelain", "--untracked-files=no", "--"];
    words.extend(SOURCES);
    let is_changed = !git(root, &words)?.is_empty();
    Some(if is_changed { format!("{commit}, modified") } else { commit })
}

/// Of refs only the one that is checked out: others change with every commit of anybody. In a worktree `.git` is a file, so git says where they lie.
fn watch_head(root: &Path) -> Option<()> {
    let place = |name: &str| git(root, &["rev-parse", "--git-path", name]).map(|path| root.join(path));
    let watch = |path: &Path| println!("cargo:rerun-if-changed={}", path.display());
    watch(&place("HEAD")?);
    let Some(branch) = git(root, &["symbolic-ref", "--quiet", "HEAD"]) else { return Some(()) };
    let branch = place(&branch)?;
    if branch.exists() {
        watch(&branch);
        return Some(());
    }
    // It is packed with others. A commit makes a file of it, in a folder that there is or will be; a file that is not there would be looked for
    // with every build.
    [place("packed-refs"), place("refs/heads")]
        .iter()
        .flatten()
        .filter(|path| path.exists())
        .for_each(|path| watch(path));
    Some(())
}

/// A change of these has the program built anew in any case; whether they are as committed is to be true then.
fn watch_sources(root: &Path) {
    let crates = std::fs::read_dir(root.join("crates")).into_iter().flatten().flatten();
    let of_crates = crates.map(|entry| entry.path().join("src")).filter(|path| path.is_dir());
    let of_all = SOURCES[1..].iter().map(|name| root.join(name));
    of_crates.chain(of_all).for_each(|path| println!("cargo:rerun-if-changed={}", path.display()));
}

/// What git answers; nothing where it cannot.
fn git(root: &Path, words: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root).args(words).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
