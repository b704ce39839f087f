//! `stonefold lab lint`.

use crate::context::Context;
use crate::failure::Failure;
use clap::Args;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;
use stonefold_lab::claims::{
    Finding, TEXT_BYTES_MAX, Told, ToldTrial, lint_report, lint_run, lint_text, lint_trial,
};
use stonefold_lab::trial::{self, Trial};
use stonefold_lab::{bundle, verdict};
use stonefold_types::{Error, Kind, Result};

/// Look for the faults of published figures in a text, or in a run
///
/// A text may be plain, Markdown or HTML; it is judged by what it says. Exit status: 0 nothing found, 1 something found, 2 misuse.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    stonefold lab lint article.md\n  \
    curl -s https://host/report.html | stonefold lab lint -\n  \
    stonefold lab lint runs/poltp-1")]
pub(crate) struct Lint {
    /// A file of text, the folder of a run or of a comparison, a report of the lab (its page, or its JSON), or - for standard input
    what: String,
}

impl Lint {
    pub(super) fn run(&self, context: &Context) -> std::result::Result<ExitCode, Failure> {
        // What cannot be read is misuse here, so that 1 means one thing.
        let found = self.look().map_err(Failure::Misuse)?;
        let document = serde_json::json!({ "findings": found });
        context.answer(&document, || self.text(&found))?;
        Ok(if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn look(&self) -> Result<Vec<Finding>> {
        let path = Path::new(&self.what);
        if Trial::is_in(path) {
            return of_trial(path);
        }
        if path.is_dir() {
            let bundle = bundle::load(path)?;
            let summary = verdict::summarise(&bundle)?;
            return Ok(lint_run(&Told::of(bundle, summary)));
        }
        let text = self.read()?;
        let Some(of_report) = lint_report(&text) else { return Ok(lint_text(&text)) };
        of_report.map_err(|e| {
            let what = format!("'{}' has JSON, and is no report of this version's lab: {e}", self.what);
            Error::new(Kind::Invalid, what)
                .remedy("name what 'stonefold lab report DIR' or its --json FILE wrote, or a text")
        })
    }

    fn read(&self) -> Result<String> {
        let failed = |e| {
            Error::io(format!("reading '{}'", self.what), e)
                .remedy("name a readable file of text, or - for standard input")
        };
        let mut text = String::new();
        let input: Box<dyn Read> = match self.what.as_str() {
            "-" => Box::new(std::io::stdin().lock()),
            path => Box::new(std::fs::File::open(path).map_err(failed)?),
        };
        input.take(TEXT_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
        if text.len() as u64 > TEXT_BYTES_MAX {
            return Err(Error::new(
                Kind::Invalid,
                format!("'{}' has more than {TEXT_BYTES_MAX} bytes", self.what),
            ));
        }
        Ok(text)
    }

    fn text(&self, found: &[Finding]) -> String {
        if found.is_empty() {
            return "nothing found\n".into();
        }
        let told = found.iter().map(|finding| {
            let place = match (finding.line, finding.column) {
                (Some(line), Some(column)) => format!(":{line}:{column}"),
                _ => String::new(),
            };
            let Finding { rule, words, why, mend, .. } = finding;
            format!("{}{place}: {rule}: {words}\n  why: {why}\n  mend: {mend}\n", self.what)
        });
        told.collect()
    }
}

/// What is said of a trial's arms, and each of its runs.
fn of_trial(path: &Path) -> Result<Vec<Finding>> {
    let (trial, bundles) = trial::load(path)?;
    let (summaries, found) = super::trial::compute(&trial, &bundles)?;
    let of_arms = lint_trial(&ToldTrial::of(&trial, &found, &summaries));
    let of_runs =
        bundles.into_iter().zip(summaries).flat_map(|(bundle, summary)| lint_run(&Told::of(bundle, summary)));
    Ok(of_arms.into_iter().chain(of_runs).collect())
}
