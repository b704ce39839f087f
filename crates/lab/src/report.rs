//! The report: one file that a browser shows without a network, in light and dark, on a phone and on paper.
//!
//! What is drawn is computed here, from histograms and series, and handed to the page as one JSON document; the page
//! draws and computes nothing. Charts are drawn by Observable Plot (ISC licence, as D3 below it), which is in the file.

mod data;

pub use data::{Charts, charts};

use crate::bundle::Bundle;
use crate::trial::{Findings, Trial, Turn};
use crate::verdict::{Summary, Verdict};
use serde::Serialize;
use stonefold_types::{Error, Kind, Result};

const PAGE: &str = include_str!("report/page.html");
const STYLE: &str = include_str!("report/page.css");
const SCRIPT: &str = include_str!("report/page.js");
const D3: &str = include_str!("report/vendor/d3.min.js");
const PLOT: &str = include_str!("report/vendor/plot.umd.min.js");

/// All that the page shows of one run.
#[derive(Serialize)]
struct Document<'a> {
    run: &'a crate::bundle::Run,
    summary: &'a Summary,
    charts: Charts,
    bundle: &'a str,
    profile: &'a str,
}

/// All that the page shows of a trial.
#[derive(Serialize)]
struct TrialDocument<'a> {
    trial: &'a Trial,
    findings: &'a Findings,
    confidence: f64,
    runs: Vec<TrialRun<'a>>,
}

#[derive(Serialize)]
struct TrialRun<'a> {
    turn: &'a Turn,
    targets: &'a [String],
    verdict: Verdict,
    bundle: &'a str,
}

/// The page for some runs.
///
/// # Errors
/// When what was measured cannot be written as JSON.
pub fn html(runs: &[(Bundle, Summary)]) -> Result<String> {
    let documents: Vec<Document<'_>> = runs
        .iter()
        .map(|(bundle, summary)| Document {
            run: &bundle.run,
            summary,
            charts: charts(bundle),
            bundle: &bundle.hash,
            profile: &bundle.profile,
        })
        .collect();
    page(&documents)
}

/// The page for a trial; summaries are of its runs, in their order.
///
/// # Errors
/// See [`html`].
pub fn trial_html(trial: &Trial, findings: &Findings, runs: &[(Bundle, Summary)]) -> Result<String> {
    let told = trial.runs.iter().zip(runs).map(|((turn, _), (bundle, summary))| TrialRun {
        turn,
        targets: &bundle.run.targets,
        verdict: summary.verdict,
        bundle: &bundle.hash,
    });
    let confidence = crate::stats::compare::CONFIDENCE;
    page(&[TrialDocument { trial, findings, confidence, runs: told.collect() }])
}

fn page(documents: &[impl Serialize]) -> Result<String> {
    let data = serde_json::to_string(documents)
        .map_err(|e| Error::new(Kind::Io, format!("writing a report: {e}")))?
        // Within a script no text may end it.
        .replace("</", "<\\/");
    // Each mark stands once in the page; what is put in is not looked through again.
    let mut page = String::with_capacity(PAGE.len() + D3.len() + PLOT.len() + data.len());
    let mut rest = PAGE;
    for (mark, content) in [
        ("/*STYLE*/", STYLE),
        ("/*D3*/", D3),
        ("/*PLOT*/", PLOT),
        ("/*DATA*/", &data),
        ("/*SCRIPT*/", SCRIPT),
    ] {
        let (before, after) = rest.split_once(mark).expect("the page has every mark, in this order");
        page.push_str(before);
        page.push_str(content);
        rest = after;
    }
    page.push_str(rest);
    Ok(page)
}
