//! The report: one file that a browser shows without a network, in light and dark, on a phone and on paper.
//!
//! What is drawn is computed here, from histograms and series, and handed to the page as one JSON document; the page
//! draws and computes nothing. Charts are drawn by Observable Plot (ISC licence, as D3 below it), which is in the file.

mod data;
mod document;
mod phases;
mod streams;

pub use data::{Charts, charts};
pub use document::{Report, RunReport, TrialReport, TrialRun, schema};
pub use phases::{OutageFigures, OutageFound, TaskFigures, outages, tasks};
pub use streams::{StreamFigures, WorkerFigures, workers};

use crate::bundle::Bundle;
use crate::trial::{Findings, Trial};
use crate::verdict::Summary;
use serde::Serialize;
use stonefold_types::{Error, Kind, Result};

const PAGE: &str = include_str!("report/page.html");
const STYLE: &str = include_str!("report/page.css");
/// One script: what is named in one file is used in those after it.
const SCRIPT: &str = concat!(
    include_str!("report/page/elements.js"),
    include_str!("report/page/tables.js"),
    include_str!("report/page/charts.js"),
    include_str!("report/page/database.js"),
    include_str!("report/page/trial.js"),
    include_str!("report/page/page.js"),
);
const D3: &str = include_str!("report/vendor/d3.min.js");
const PLOT: &str = include_str!("report/vendor/plot.umd.min.js");

/// The page for some runs.
///
/// # Errors
/// When what was measured cannot be written as JSON.
pub fn html(runs: &[(Bundle, Summary)]) -> Result<String> {
    page(&Report::of(runs).runs)
}

/// The page for a trial; summaries are of its runs, in their order.
///
/// # Errors
/// See [`html`].
pub fn trial_html(trial: &Trial, findings: &Findings, runs: &[(Bundle, Summary)]) -> Result<String> {
    page(&[TrialReport::of(trial, findings, runs)])
}

/// The page for all of a report, trials before runs.
///
/// # Errors
/// See [`html`].
pub fn html_of(report: &Report<'_>) -> Result<String> {
    let trials = report.trials.iter().map(Part::Trial);
    page(&trials.chain(report.runs.iter().map(Part::Run)).collect::<Vec<_>>())
}

/// What the page tells apart by its fields.
#[derive(Serialize)]
#[serde(untagged)]
enum Part<'a> {
    Trial(&'a TrialReport<'a>),
    Run(&'a RunReport<'a>),
}

/// The same figures for programs, as JSON by the [`schema`].
///
/// # Errors
/// When what was measured cannot be written as JSON.
pub fn json(report: &Report<'_>) -> Result<String> {
    serde_json::to_string_pretty(report)
        .map(|text| text + "\n")
        .map_err(|e| Error::new(Kind::Io, format!("writing a report as JSON: {e}")))
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
