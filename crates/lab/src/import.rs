//! Profiles out of what others write: job files of fio, parameter files of vdbench.
//!
//! *Promises*: what comes out is a profile that the lab reads; every option of the file that has no place in a profile, or only
//! nearly one, is told with its line and why. *Never*: guesses what a file does not say without telling. *May be used by*: the
//! command line.

mod draft;
mod fio;
mod vdbench;

use crate::profile::Profile;
use draft::Draft;
use serde::Serialize;
use std::fmt;
use std::path::Path;
use stonefold_types::{Error, Kind, Result};

/// Bytes of a file that is read at most: people write them.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// How far an option was mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mapped {
    /// A profile cannot say it: the load is another one.
    Not,
    /// The profile says something like it.
    Nearly,
    /// It says nothing of a load: where output goes, how threads are made.
    Beside,
}

impl fmt::Display for Mapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Mapped::Not => "not mapped",
            Mapped::Nearly => "nearly",
            Mapped::Beside => "beside",
        })
    }
}

/// What became of one option.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Note {
    /// The file, where it is an included one.
    pub file: String,
    /// Line of the file, from 1.
    pub line: usize,
    /// The option, as it is written.
    pub option: String,
    /// How far it was mapped.
    pub mapped: Mapped,
    /// Why, and what is there in its place.
    pub why: String,
}

/// A file, as a profile.
#[derive(Clone, Debug)]
pub struct Imported {
    /// `fio` or `vdbench`.
    pub from: &'static str,
    /// The profile, read as any other.
    pub profile: Profile,
    /// What was not mapped, or only nearly, by its lines.
    pub notes: Vec<Note>,
}

impl Imported {
    /// The profile's file, with what was not mapped as comments at its head.
    pub fn file(&self) -> String {
        let mut text = String::new();
        for Note { file, line, option, mapped, why } in &self.notes {
            // A line of its own each, whatever the option holds.
            let words = format!("{file}:{line}: {mapped}: {option}: {why}").replace(char::is_control, " ");
            text.push_str(&format!("# {words}\n"));
        }
        text + &self.profile.text
    }
}

/// Where an option is written.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    file: String,
    line: usize,
}

/// What is told of options while a file is mapped.
#[derive(Default)]
struct Notes(Vec<Note>);

impl Notes {
    fn tell(&mut self, place: &Place, option: impl Into<String>, mapped: Mapped, why: impl Into<String>) {
        let note = Note {
            file: place.file.clone(),
            line: place.line,
            option: option.into(),
            mapped,
            why: why.into(),
        };
        // One that several jobs inherit is told once.
        if !self.0.contains(&note) {
            self.0.push(note);
        }
    }
}

/// Reads a job file of fio or a parameter file of vdbench; which of them, it says itself.
///
/// # Errors
/// What the file system says; [`Kind::Invalid`] with file and line where the file cannot be understood, or has nothing that
/// loads storage.
pub fn import(path: &Path) -> Result<Imported> {
    import_text(path, &read(path)?)
}

/// The same of a text that is in this file; what it includes is looked for beside it.
///
/// # Errors
/// See [`import`].
pub fn import_text(path: &Path, text: &str) -> Result<Imported> {
    let name = path.file_stem().map_or_else(|| "imported".to_owned(), |stem| stem.to_string_lossy().into());
    let (from, (draft, notes)) = match is_fio(text) {
        true => ("fio", fio::map(path, text)?),
        false => ("vdbench", vdbench::map(path, text)?),
    };
    let mut notes = notes.0;
    notes.sort();
    notes.sort_by_key(|note| (note.file.clone(), note.line));
    let profile = profile_of(&draft, &name)?;
    Ok(Imported { from, profile, notes })
}

fn profile_of(draft: &Draft, name: &str) -> Result<Profile> {
    draft.check()?;
    let profile = Profile::parse(name, &draft.text(draft::QUICK_BYTES));
    // A small part of a small disk may be too small for its I/Os; then a quick run has all of it.
    profile.or_else(|_| Profile::parse(name, &draft.text(u64::MAX)))
}

/// fio's files have sections; vdbench's have none.
fn is_fio(text: &str) -> bool {
    text.lines().map(str::trim).any(|line| line.starts_with('[') && line.contains(']'))
}

fn read(path: &Path) -> Result<String> {
    let what = || format!("reading '{}'", path.display());
    let file = std::fs::metadata(path).map_err(|e| Error::io(what(), e).remedy("name a readable file"))?;
    // A device may have no end.
    if !file.is_file() || file.len() > FILE_BYTES_MAX {
        let what = format!("'{}' is no file of at most {FILE_BYTES_MAX} bytes", path.display());
        return Err(
            Error::new(Kind::Invalid, what).remedy("name a job file of fio or a parameter file of vdbench")
        );
    }
    std::fs::read_to_string(path).map_err(|e| Error::io(what(), e).remedy("name a readable file of text"))
}

fn wrong(place: &Place, what: impl fmt::Display) -> Error {
    Error::new(Kind::Invalid, format!("{}:{}: {what}", place.file, place.line))
}
