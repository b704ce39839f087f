//! What lies in the folders that 'lab report' and 'lab verify' are given: runs, comparisons, and studies that hold some of these.

use super::{report, trial};
use crate::context::Context;
use crate::failure::Failure;
use serde::Serialize;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use stonefold_lab::report::{Report, TrialReport};
use stonefold_lab::trial::Trial;
use stonefold_lab::{bundle, verdict};
use stonefold_types::{Error, Kind, Result};

/// Computes again what was kept, each folder by its kind.
pub(super) fn verify(context: &Context, dirs: &[PathBuf]) -> std::result::Result<ExitCode, Failure> {
    let (mut worst, mut texts, mut documents) = (0, String::new(), Vec::new());
    let found = each(dirs)?;
    for dir in &found {
        let (text, document, status) = if Trial::is_in(dir) { trial::told(dir)? } else { report::told(dir)? };
        if found.len() > dirs.len() {
            texts.push_str(&format!("{}:\n", dir.display()));
        }
        worst = worst.max(status);
        texts.push_str(&text);
        documents.push(document);
    }
    // A comparison alone is told as 'lab compare' tells it.
    match (&found[..], documents.pop()) {
        ([dir], Some(document)) if Trial::is_in(dir) => context.answer(&document, || texts)?,
        (_, last) => {
            documents.extend(last);
            context.answer(&documents, || texts)?;
        }
    }
    Ok(ExitCode::from(worst))
}

/// Writes the page of what was kept, or its figures, or both; with neither prints the figures.
pub(super) fn write(
    context: &Context,
    mut dirs: Vec<PathBuf>,
    html: Option<&Path>,
) -> std::result::Result<ExitCode, Failure> {
    let json = json_file(context, &mut dirs).map_err(Failure::Misuse)?;
    if html.is_none() && json.is_none() && !context.json {
        return verify(context, &dirs);
    }
    let (mut runs, mut trials) = (Vec::new(), Vec::new());
    for dir in each(&dirs)? {
        if Trial::is_in(&dir) {
            trials.push(trial::read(&dir)?);
        } else {
            let bundle = bundle::load(&dir)?;
            let summary = verdict::summarise(&bundle)?;
            runs.push((bundle, summary));
        }
    }
    let of_runs = runs.iter().map(|(_, summary)| summary.verdict);
    let of_trials = trials.iter().map(|one| one.found.verdict);
    let status = of_runs.chain(of_trials).map(verdict::Verdict::status).max().unwrap_or(0);
    let told = trials.iter().map(|one| TrialReport::of(&one.trial, &one.found, &one.runs)).collect();
    let document = Report { trials: told, ..Report::of(&runs) };
    Out { html, json: json.as_deref() }.write(context, status, &document)
}

/// Those of the folders that hold a run or a comparison; of a study's, which holds neither itself, the folders in it that do.
fn each(dirs: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for dir in dirs {
        let inside = if holds(dir) { Vec::new() } else { inside(dir)? };
        // Reading it says why it is none.
        if inside.is_empty() {
            all.push(dir.clone());
        }
        all.extend(inside);
    }
    Ok(all)
}

fn holds(dir: &Path) -> bool {
    Trial::is_in(dir) || bundle::is_in(dir)
}

/// One level down, by name. What a run that was cut off has left is nobody's result: whoever wants it names it.
fn inside(dir: &Path) -> Result<Vec<PathBuf>> {
    if !dir.is_dir() {
        return Ok(Vec::new());
    }
    let failed = |e| Error::io(format!("reading the folder '{}'", dir.display()), e);
    let entries = std::fs::read_dir(dir).map_err(failed)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()).map_err(failed));
    let mut found = paths.collect::<Result<Vec<_>>>()?;
    found.retain(|path| holds(path) && !bundle::is_unfinished(path));
    found.sort();
    Ok(found)
}

/// `--json FILE`: the flag that every command has takes no value, so that the file is read as one more folder.
fn json_file(context: &Context, dirs: &mut Vec<PathBuf>) -> Result<Option<PathBuf>> {
    if !context.json || dirs.len() < 2 {
        return Ok(None);
    }
    let is_file = |path: &PathBuf| path.extension().is_some_and(|end| end == "json") && !path.is_dir();
    if let Some(at) = dirs.iter().position(is_file) {
        return Ok(Some(dirs.remove(at)));
    }
    match dirs.iter().find(|path| !path.is_dir()) {
        Some(other) => Err(Error::new(Kind::Invalid, format!("'{}' is no folder", other.display()))
            .remedy("if the figures are to go there, take a name that ends in .json")),
        None => Ok(None),
    }
}

/// As a document for programs.
pub(super) fn value(document: &impl Serialize) -> Result<Value> {
    serde_json::to_value(document)
        .map_err(|e| Error::new(Kind::Io, format!("writing the answer as JSON: {e}")))
}

/// Where a report goes.
struct Out<'a> {
    html: Option<&'a Path>,
    json: Option<&'a Path>,
}

impl Out<'_> {
    /// Without a file the document is the answer, and the status that of the verdict.
    fn write(
        &self,
        context: &Context,
        status: u8,
        report: &Report<'_>,
    ) -> std::result::Result<ExitCode, Failure> {
        let write = |path: &Path, text: String| {
            std::fs::write(path, text)
                .map_err(|e| Error::io(format!("writing the report '{}'", path.display()), e))
        };
        if let Some(path) = self.html {
            write(path, stonefold_lab::report::html_of(report)?)?;
        }
        if let Some(path) = self.json {
            write(path, stonefold_lab::report::json(report)?)?;
        }
        if self.html.is_none() && self.json.is_none() {
            context.answer(report, String::new)?;
            return Ok(ExitCode::from(status));
        }
        let written: String =
            self.html.into_iter().chain(self.json).map(|path| format!("{}\n", path.display())).collect();
        context.answer(&serde_json::json!({ "html": self.html, "json": self.json }), || written)?;
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stonefold_lab::bundle::Run;

    /// Goal: a study's folder of two parts stands for these, beside a comparison and a run, each as what it is.
    #[test]
    fn each_folder_is_taken_by_its_kind() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let run = Run { format: Run::FORMAT, ..Run::default() };
        let save = |name: &str| bundle::save(&at(name), &run, "title = 1", &[]).map(drop).unwrap();
        ["run", "study/migrate-live", "study/chain-recover", "study/unfinished"].into_iter().for_each(save);
        stonefold_lab::trial::save(&at("trial"), &Trial::default()).unwrap();
        std::fs::write(at("study/recovery.txt"), "x").unwrap();
        let found = each(&["trial", "study", "run", "nothing"].map(at)).unwrap();
        let wanted = ["trial", "study/chain-recover", "study/migrate-live", "run", "nothing"];
        assert_eq!(found, wanted.map(at));
    }

    /// Goal: a file's name that is taken for a folder is told as what it was meant to be.
    #[test]
    fn figures_go_to_a_name_that_ends_in_json() {
        use crate::context::Global;
        let dir = tempfile::tempdir().unwrap();
        let context = Context::new(Global { json: true, ..Global::default() });
        let given = |name: &str| vec![dir.path().to_owned(), PathBuf::from(name)];
        assert_eq!(json_file(&context, &mut given("r1.json")).unwrap(), Some("r1.json".into()));
        let error = json_file(&context, &mut given("r1.jsn")).unwrap_err();
        assert!(error.remedy_text().unwrap().contains(".json"), "{error}");
    }
}
