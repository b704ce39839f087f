//! The report as a document for programs, and the schema by which it may be read.
//!
//! *Promises*: the page and the JSON show the same figures, of one computation; what a run's document holds is what the
//! [schema](schema) says, made from these very types (JSON Schema 2020-12). A field is added without notice; one that goes or
//! changes its meaning raises `format`. *Never*: holds a figure that cannot be computed again from the bundle.

use super::data::{Charts, charts};
use crate::bundle::{Bundle, Run};
use crate::stats::compare::CONFIDENCE;
use crate::trial::{Findings, Trial, Turn};
use crate::verdict::{Summary, Verdict};
use serde::Serialize;
use serde_json::{Value, json};
use stonefold_types::{Error, Kind, Result};
use utoipa::{OpenApi, ToSchema};

/// The layout of the document.
const FORMAT: u32 = 1;

/// A report of some runs.
#[derive(Serialize, ToSchema)]
pub struct Report<'a> {
    /// Layout of the document: 1.
    pub format: u32,
    /// Each run, in the order in which they were named.
    pub runs: Vec<RunReport<'a>>,
    /// Where it is of a trial, that: runs of several arms in turn, and what tells the arms apart.
    pub trials: Vec<TrialReport<'a>>,
}

/// All that is shown of one run.
#[derive(Serialize, ToSchema)]
pub struct RunReport<'a> {
    /// What was run, where, when and with what.
    pub run: &'a Run,
    /// What it says.
    pub summary: &'a Summary,
    /// What is drawn, as numbers: milliseconds, and rates a second.
    pub charts: Charts,
    /// The hash of the raw data (BLAKE3), as their manifest has it.
    pub bundle: &'a str,
    /// The profile's file, as it was run.
    pub profile: &'a str,
}

/// All that is shown of a trial.
#[derive(Serialize, ToSchema)]
pub struct TrialReport<'a> {
    /// What was run in turn.
    pub trial: &'a Trial,
    /// What tells the arms apart.
    pub findings: &'a Findings,
    /// How sure the intervals are, from 0 to 1.
    pub confidence: f64,
    /// Its runs, in order.
    pub runs: Vec<TrialRun<'a>>,
}

/// One run of a trial.
#[derive(Serialize, ToSchema)]
pub struct TrialRun<'a> {
    /// Its round, its arm, its seed.
    pub turn: &'a Turn,
    /// What it was run on.
    pub targets: &'a [String],
    /// What it says by itself.
    pub verdict: Verdict,
    /// The hash of its raw data (BLAKE3).
    pub bundle: &'a str,
}

impl<'a> TrialReport<'a> {
    /// Of a trial, what it found, and its runs in order with what they say.
    pub fn of(trial: &'a Trial, findings: &'a Findings, runs: &'a [(Bundle, Summary)]) -> Self {
        let told = trial.runs.iter().zip(runs).map(|((turn, _), (bundle, summary))| TrialRun {
            turn,
            targets: &bundle.run.targets,
            verdict: summary.verdict,
            bundle: &bundle.hash,
        });
        TrialReport { trial, findings, confidence: CONFIDENCE, runs: told.collect() }
    }
}

impl<'a> Report<'a> {
    /// Of runs and what they say.
    pub fn of(runs: &'a [(Bundle, Summary)]) -> Self {
        let of_run = |(bundle, summary): &'a (Bundle, Summary)| RunReport {
            run: &bundle.run,
            summary,
            charts: charts(bundle),
            bundle: &bundle.hash,
            profile: &bundle.profile,
        };
        Report { format: FORMAT, runs: runs.iter().map(of_run).collect(), trials: Vec::new() }
    }

    /// Of a trial.
    pub fn of_trial(trial: TrialReport<'a>) -> Self {
        Report { format: FORMAT, runs: Vec::new(), trials: vec![trial] }
    }
}

#[derive(OpenApi)]
#[openapi(components(schemas(Report<'static>)))]
struct Types;

/// The schema of the document, as `docs/reference/lab-report.schema.json` keeps it.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn schema() -> Result<Value> {
    let failed = |e: serde_json::Error| Error::new(Kind::Io, format!("writing the report's schema: {e}"));
    let components = Types::openapi().components.unwrap_or_default();
    // An OpenAPI 3.1 schema is one of JSON Schema 2020-12; only what refers to another lies elsewhere.
    let text = serde_json::to_string(&components.schemas).map_err(failed)?;
    let types: Value =
        serde_json::from_str(&text.replace("#/components/schemas/", "#/$defs/")).map_err(failed)?;
    Ok(json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A report of stonefold lab",
        "description": "What 'stonefold lab report DIR --json FILE' writes. Times in charts are milliseconds, \
            those of requirements nanoseconds; rates are a second; shares go from 0 to 1.",
        "$ref": "#/$defs/Report",
        "$defs": types,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/lab-report.schema.json");

    /// The schema is part of the contract: a change of it shows in a review, as a change of the file kept.
    #[test]
    fn the_schema_is_the_one_kept() {
        let now = serde_json::to_string_pretty(&schema().unwrap()).unwrap() + "\n";
        if std::env::var_os("STONEFOLD_UPDATE").is_some() {
            std::fs::write(KEPT, &now).unwrap();
        }
        let kept = std::fs::read_to_string(KEPT).unwrap_or_default();
        assert!(
            kept == now,
            "the report changed; if that is meant: STONEFOLD_UPDATE=1 cargo test -p stonefold-lab the_schema_is, and commit docs/reference/lab-report.schema.json"
        );
    }

    /// Every reference leads somewhere.
    #[test]
    fn nothing_in_it_is_left_undescribed() {
        fn look(value: &Value, types: &Value, seen: &mut usize) {
            match value {
                Value::Object(fields) => {
                    if let Some(place) = fields.get("$ref").and_then(Value::as_str) {
                        let name = place.strip_prefix("#/$defs/").expect("it refers to the schema itself");
                        assert!(types[name].is_object(), "{place}");
                        *seen += 1;
                    }
                    fields.values().for_each(|value| look(value, types, seen));
                }
                Value::Array(values) => values.iter().for_each(|value| look(value, types, seen)),
                _ => {}
            }
        }
        let schema = schema().unwrap();
        let mut seen = 0;
        look(&schema, &schema["$defs"], &mut seen);
        assert!(seen > 15, "only {seen} references: some types are not described");
    }
}
