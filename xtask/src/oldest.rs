//! The check that the oldest Rust we promise can read the sources: no chain of `let` in a condition, which Rust knows since 1.88 only
//! (Rust's release notes). A newer compiler takes such a chain without a word, whatever `rust-version` says; newer calls of the standard
//! library are told by clippy (`incompatible_msrv`).

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, ExprBinary};

/// Reads every Rust file that git knows, and fails with the lines that have such chains.
pub(crate) fn check() -> Result<()> {
    let listed =
        Command::new("git").args(["ls-files", "-z", "*.rs"]).output().context("running git ls-files")?;
    ensure!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
    let files = String::from_utf8(listed.stdout).context("a file's name")?;
    let (mut found, mut read) = (Vec::new(), 0);
    for file in files.split_terminator('\0') {
        let text = fs::read_to_string(file).with_context(|| format!("reading {file}"))?;
        let lines = chains(&text).with_context(|| format!("reading {file} as Rust"))?;
        found.extend(lines.into_iter().map(|line| format!("  {file}:{line}")));
        read += 1;
    }
    ensure!(read > 0, "git names no Rust files here");
    if found.is_empty() {
        println!("oldest: no chain of let in a condition, in {read} files");
        return Ok(());
    }
    bail!("chains of let in a condition need Rust 1.88, and we promise {OLDEST}:\n{}", found.join("\n"));
}

/// What the workspace's manifest promises.
const OLDEST: &str = env!("CARGO_PKG_RUST_VERSION");

/// The lines with a condition in which a `let` is one of several parts.
fn chains(text: &str) -> syn::Result<Vec<usize>> {
    let mut chains = Chains(Vec::new());
    chains.visit_file(&syn::parse_file(text)?);
    Ok(chains.0)
}

struct Chains(Vec<usize>);

impl<'a> Visit<'a> for Chains {
    fn visit_expr_binary(&mut self, both: &'a ExprBinary) {
        let is_let = |side: &Expr| matches!(side, Expr::Let(_));
        if matches!(both.op, BinOp::And(_)) && (is_let(&both.left) || is_let(&both.right)) {
            self.0.push(both.span().start().line);
        }
        visit::visit_expr_binary(self, both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_are_found_and_nothing_else() {
        let of = |condition: &str| chains(&format!("fn a() {{\n    if {condition} {{}}\n}}")).unwrap();
        assert_eq!(of("let Some(b) = c && d"), [2]);
        assert_eq!(of("d && let Some(b) = c"), [2]);
        assert_eq!(of("d && e && let Some(b) = c"), [2]);
        assert_eq!(of("let Some(b) = c.filter(|b| b && d)"), [0; 0]);
        assert_eq!(of("d && matches!(c, Some(_))"), [0; 0]);
        assert_eq!(chains("fn a() {\n while e\n && let Some(b) = c\n {}\n}").unwrap(), [2]);
    }
}
