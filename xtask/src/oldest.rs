//! The check that the oldest Rust we promise can read the sources: no chain of `let` in a condition, which Rust knows since 1.88 (its release
//! notes), no `if let` as the guard of an arm and no `_` as the length of an array, which are newer still. A newer compiler takes them without a word,
//! whatever `rust-version` says; newer calls of the standard library are told by clippy (`incompatible_msrv`).

use crate::metadata;
use anyhow::{Context, Result, bail, ensure};
use proc_macro2::{TokenStream, TokenTree};
use std::fs;
use std::path::{Path, PathBuf};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Arm, BinOp, Expr, ExprBinary, ExprRepeat, Macro};

/// What the workspace's manifest promises.
const OLDEST: &str = env!("CARGO_PKG_RUST_VERSION");

/// Reads every Rust file of the workspace's packages, and fails with the lines that have any of these.
pub(crate) fn check() -> Result<()> {
    let metadata = metadata::read(&["--no-deps"])?;
    let mut files = Vec::new();
    for package in metadata["packages"].as_array().context("cargo metadata names packages")? {
        let manifest = package["manifest_path"].as_str().context("a package has a manifest")?;
        sources(Path::new(manifest).parent().context("a manifest lies in a folder")?, &mut files)?;
    }
    ensure!(!files.is_empty(), "the workspace's packages have no Rust files");
    files.sort();
    files.dedup();
    let mut found = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        let lines = newer(&text).with_context(|| format!("reading {} as Rust", file.display()))?;
        found.extend(lines.into_iter().map(|line| format!("  {}:{line}", file.display())));
    }
    if found.is_empty() {
        println!("oldest: nothing that Rust {OLDEST} cannot read, in {} files", files.len());
        return Ok(());
    }
    let what = "a let beside && or as an arm's guard, or an array's length left to be found";
    bail!("we promise Rust {OLDEST}, which does not know {what}:\n{}", found.join("\n"));
}

fn sources(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        let is_ours = name != "target" && !name.to_string_lossy().starts_with('.');
        match path.is_dir() {
            true if is_ours => sources(&path, files)?,
            false if path.extension().is_some_and(|of| of == "rs") => files.push(path),
            _ => {}
        }
    }
    Ok(())
}

/// The lines with a `let` that is one of several parts of a condition, or an arm's guard; and with an array whose length is to be found.
fn newer(text: &str) -> syn::Result<Vec<usize>> {
    let mut found = Newer(Vec::new());
    found.visit_file(&syn::parse_file(text)?);
    Ok(found.0)
}

struct Newer(Vec<usize>);

impl<'a> Visit<'a> for Newer {
    fn visit_expr_binary(&mut self, both: &'a ExprBinary) {
        let is_let = |side: &Expr| matches!(side, Expr::Let(_));
        if matches!(both.op, BinOp::And(_)) && (is_let(&both.left) || is_let(&both.right)) {
            self.0.push(both.span().start().line);
        }
        visit::visit_expr_binary(self, both);
    }

    fn visit_arm(&mut self, arm: &'a Arm) {
        if let Some((_, guard)) = arm.guard.as_ref().filter(|(_, guard)| matches!(**guard, Expr::Let(_))) {
            self.0.push(guard.span().start().line);
        }
        visit::visit_arm(self, arm);
    }

    fn visit_expr_repeat(&mut self, array: &'a ExprRepeat) {
        if matches!(*array.len, Expr::Infer(_)) {
            self.0.push(array.span().start().line);
        }
        visit::visit_expr_repeat(self, array);
    }

    fn visit_macro(&mut self, of: &'a Macro) {
        self.look_through(of.tokens.clone());
        visit::visit_macro(self, of);
    }
}

impl Newer {
    /// What a macro is given is no syntax yet: there `&& let` is looked for, as no condition that Rust 1.85 knows has it.
    fn look_through(&mut self, tokens: TokenStream) {
        let mut ands = 0;
        for token in tokens {
            match token {
                TokenTree::Group(group) => {
                    ands = 0;
                    self.look_through(group.stream());
                }
                TokenTree::Punct(punct) if punct.as_char() == '&' => ands += 1,
                TokenTree::Ident(word) if word == "let" && ands == 2 => {
                    self.0.push(word.span().start().line);
                }
                _ => ands = 0,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_newer_is_found_and_nothing_else() {
        let of = |condition: &str| newer(&format!("fn a() {{\n    if {condition} {{}}\n}}")).unwrap();
        assert_eq!(of("let Some(b) = c && d"), [2]);
        assert_eq!(of("d && let Some(b) = c"), [2]);
        assert_eq!(of("d && e && let Some(b) = c"), [2]);
        assert_eq!(of("let Some(b) = c.filter(|b| b && d)"), [0; 0]);
        assert_eq!(of("d && matches!(c, Some(_))"), [0; 0]);
        assert_eq!(newer("fn a() {\n while e\n && let Some(b) = c\n {}\n}").unwrap(), [2]);
        assert_eq!(newer("fn a() { select! {\n _ = b => if c && let Some(d) = e {},\n} }").unwrap(), [2]);
        assert_eq!(newer("fn a() { select! {\n b = c => { f(&&d); let e = 1; }\n} }").unwrap(), [0; 0]);
        assert_eq!(newer("fn a() { match b {\n c if let Some(d) = e => {}\n _ => {} } }").unwrap(), [2]);
        assert_eq!(newer("fn a() {\n b([0; _]); let c = [0; 4]; }").unwrap(), [2]);
        assert_eq!(newer("fn a() { match b {\n c if d => {}\n _ => {} } }").unwrap(), [0; 0]);
    }
}
