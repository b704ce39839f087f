//! The claim linter: reads what is published of a storage's performance, and says where it cannot be trusted.
//!
//! *Promises*: each finding names its rule, its place, why, and what would mend it; the rules are those by which published
//! reports were found wrong, and those of an honest number ([`RULES`]). *Never*: judges a claim's truth: it knows what a text
//! says, and not what was measured; a text without findings may still be wrong. When in doubt it is silent. *May be used by*:
//! the command line.

mod blanks;
mod capacity;
mod disclosure;
mod loads;
mod peaks;
mod quantity;
mod ratios;
mod rules;
mod runs;
mod scores;
mod statistics;
mod text;
mod tokens;
mod trials;
mod units;

pub use rules::{RULES, Rule};
pub use runs::{Told, lint_run};
pub use trials::{ToldTrial, lint_report, lint_trial};

use serde::Serialize;
use std::ops::Range;
use text::Text;

/// Bytes of a text that is read at most.
pub const TEXT_BYTES_MAX: u64 = 16 << 20;
/// Letters of the words that a finding shows.
const WORDS_MAX: usize = 120;

/// A fault that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The rule's name.
    pub rule: &'static str,
    /// Line of the text, from 1; nothing where it is of a run.
    pub line: Option<usize>,
    /// Letter of the line, from 1.
    pub column: Option<usize>,
    /// The words, or the point of a run.
    pub words: String,
    /// What is wrong with them.
    pub why: String,
    /// What would mend it.
    pub mend: &'static str,
}

/// Looks through a text: plain, Markdown or HTML.
pub fn lint_text(source: &str) -> Vec<Finding> {
    let mut claims = Claims { source, text: Text::new(source), found: Vec::new() };
    ratios::look(&mut claims);
    peaks::look(&mut claims);
    loads::look(&mut claims);
    scores::look(&mut claims);
    capacity::look(&mut claims);
    units::look(&mut claims);
    statistics::look(&mut claims);
    disclosure::look(&mut claims);
    claims.found.sort_by_key(|(at, finding)| (at.start, finding.rule));
    claims.found.dedup();
    claims.found.into_iter().map(|(_, finding)| finding).collect()
}

/// A text while it is looked through.
struct Claims<'a> {
    source: &'a str,
    text: Text,
    found: Vec<(Range<usize>, Finding)>,
}

impl Claims<'_> {
    fn find(&mut self, rule: &'static str, at: Range<usize>, why: impl Into<String>) {
        let before = &self.source[..at.start];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        let words: Vec<&str> = self.source[at.clone()].split_whitespace().collect();
        let mut words: String = words.join(" ");
        if let Some((end, _)) = words.char_indices().nth(WORDS_MAX) {
            words.truncate(end);
            words.push('…');
        }
        let mend = rules::rule(rule).mend;
        let (line, column) = (Some(line), Some(column));
        self.found.push((at, Finding { rule, line, column, words, why: why.into(), mend }));
    }
}

#[cfg(test)]
mod tests;
