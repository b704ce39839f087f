//! Lines of `name=value,name=(value,value),…`, which go on behind a comma, and comments.

use super::super::{Mapped, Notes, Place, read, wrong};
use std::path::Path;
use stonefold_types::Result;

/// How deep files include one another at most.
const INCLUDES_MAX: usize = 16;

/// One definition. Who maps an option takes it; what is left was not mapped.
#[derive(Debug)]
pub(super) struct Line {
    pub place: Place,
    /// Names and values, in order; the first one says what is defined.
    pub options: Vec<(String, Vec<String>)>,
    kind: String,
}

impl Line {
    pub(super) fn kind(&self) -> &str {
        &self.kind
    }

    pub(super) fn take(&mut self, name: &str) -> Option<Vec<String>> {
        let at = self.options.iter().position(|(other, _)| other == name)?;
        Some(self.options.remove(at).1)
    }

    pub(super) fn take_one(&mut self, name: &str) -> Option<String> {
        self.take(name).map(|values| values.join(","))
    }
}

/// The definitions of a file.
pub(super) fn lines(path: &Path, file: &str, text: &str, notes: &mut Notes) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    gather(path, file, text, 0, &mut lines, notes)?;
    Ok(lines)
}

fn gather(
    path: &Path,
    file: &str,
    text: &str,
    depth: usize,
    lines: &mut Vec<Line>,
    notes: &mut Notes,
) -> Result<()> {
    let mut open: Option<(Place, String)> = None;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', '*', '/']) {
            continue;
        }
        if open.is_none() && line.split([' ', '\t', '=']).next() == Some("stop") {
            break;
        }
        let place = Place { file: file.to_owned(), line: number + 1 };
        let (words, comment) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        if looks_meant(comment) {
            let why = "behind a blank vdbench reads a comment";
            notes.tell(&place, comment.trim(), Mapped::Not, why);
        }
        let (place, mut whole) = open.take().unwrap_or((place, String::new()));
        whole.push_str(words);
        match whole.ends_with(',') {
            true => open = Some((place, whole)),
            false => finish(path, place, &whole, depth, lines, notes)?,
        }
    }
    match open {
        Some((place, whole)) => finish(path, place, whole.trim_end_matches(','), depth, lines, notes),
        None => Ok(()),
    }
}

/// A comment that was meant to be none, by its look.
fn looks_meant(comment: &str) -> bool {
    let comment = comment.trim();
    let name = comment.split('=').next().unwrap_or_default();
    comment.contains('=') && !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase())
}

fn finish(
    path: &Path,
    place: Place,
    whole: &str,
    depth: usize,
    lines: &mut Vec<Line>,
    notes: &mut Notes,
) -> Result<()> {
    let options = options(whole).map_err(|why| wrong(&place, why))?;
    let Some((first, value)) = options.first() else { return Ok(()) };
    if first == "include" {
        if depth >= INCLUDES_MAX {
            return Err(wrong(&place, format!("more than {INCLUDES_MAX} files include one another")));
        }
        let name = value.join(",");
        let beside = path.parent().map(|dir| dir.join(&name)).filter(|path| path.exists());
        let path = beside.unwrap_or_else(|| name.clone().into());
        let text = read(&path).map_err(|e| e.context(format!("{}:{}", place.file, place.line)))?;
        return gather(&path, &name, &text, depth + 1, lines, notes);
    }
    let kind = first.clone();
    lines.push(Line { place, options, kind });
    Ok(())
}

/// `a=1,b=(2,3),c` is a with 1, b with 2 and 3, c with nothing.
fn options(text: &str) -> std::result::Result<Vec<(String, Vec<String>)>, String> {
    let mut options: Vec<(String, Vec<String>)> = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = end_of(rest).ok_or_else(|| format!("'{rest}': a bracket is never closed"))?;
        let word = &rest[..end];
        rest = rest[end..].trim_start_matches(',');
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let value = value.trim_matches('"');
        let inner = value.strip_prefix('(').and_then(|value| value.strip_suffix(')')).unwrap_or(value);
        let values = inner.split(',').map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        options.push((name.trim().to_ascii_lowercase(), values.collect()));
    }
    Ok(options)
}

/// Where the comma is that no bracket holds.
fn end_of(text: &str) -> Option<usize> {
    let mut depth = 0i32;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => return Some(at),
            _ => {}
        }
    }
    (depth == 0).then_some(text.len())
}
