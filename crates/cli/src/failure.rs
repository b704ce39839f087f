//! How a command fails.

use clap::CommandFactory;
use serde::Serialize;
use std::process::ExitCode;
use stonefold_types::{Error, Kind};

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It was asked wrongly: exit status 2.
    Misuse(Error),
    /// It could not: exit status 1.
    Failed(Error),
    /// Nobody reads what it prints any more, as in `stonefold disk ls | head -1`.
    Unread,
}

/// An answer of a command that may have failed all the same: for who reads JSON its own fields, and `error` beside them.
#[derive(Serialize)]
pub(crate) struct Beside<T> {
    #[serde(flatten)]
    answer: T,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Told>,
}

#[derive(Serialize)]
struct Told {
    what: String,
    remedy: Option<String>,
}

impl<T> Beside<T> {
    pub(crate) fn new(answer: T, error: Option<&Error>) -> Self {
        let told =
            |error: &Error| Told { what: error.what(), remedy: error.remedy_text().map(str::to_owned) };
        Beside { answer, error: error.map(told) }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Failed(error)
    }
}

impl Failure {
    /// What went wrong, for whoever does not tell the ways apart.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Failure::Misuse(error) | Failure::Failed(error) => error,
            Failure::Unread => Error::new(Kind::Io, "nobody reads what is printed"),
        }
    }

    /// Says it on stderr, in the words and the form that misuse of flags is told in; with `as_json` also as a document on
    /// stdout, `{"error": {"what": …, "remedy": …}}`.
    pub(crate) fn tell(&self, as_json: bool) -> ExitCode {
        if let (true, Failure::Misuse(error) | Failure::Failed(error)) = (as_json, self) {
            tell_json(&error.what(), error.remedy_text());
        }
        match self {
            Failure::Misuse(error) => {
                say(error);
                ExitCode::from(2)
            }
            Failure::Failed(error) => {
                say(error);
                ExitCode::FAILURE
            }
            Failure::Unread => ExitCode::SUCCESS,
        }
    }
}

/// Ends the program for flags that cannot be read; whoever reads JSON gets a document then, too.
pub(crate) fn tell_misread(error: &clap::Error) -> ! {
    let asked = std::env::args_os().take_while(|word| word != "--").any(|word| word == "--json");
    if asked && error.use_stderr() {
        let text = error.to_string();
        // What is missing, or not understood, stands in lines of its own.
        let lines = text.lines().take_while(|line| !line.starts_with("Usage:")).map(str::trim);
        let what = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
        tell_json(what.trim_start_matches("error: "), Some("see 'stonefold --help'"));
    }
    error.exit()
}

fn tell_json(what: &str, remedy: Option<&str>) {
    let document = serde_json::json!({ "error": { "what": what, "remedy": remedy } });
    // Whoever does not read stdout any more has stderr and the status.
    let _ = crate::context::print(&format!("{document:#}\n"));
}

fn say(error: &Error) {
    let styles = crate::Cli::command().get_styles().clone();
    let (red, green) = (styles.get_error(), styles.get_valid());
    let mut text = format!("{red}error:{red:#} {}\n", error.what());
    if let Some(remedy) = error.remedy_text() {
        text.push_str(&format!("\n  {green}what to do:{green:#} {remedy}\n"));
    }
    let styled = clap::builder::StyledStr::from(text);
    if std::io::IsTerminal::is_terminal(&std::io::stderr()) && std::env::var_os("NO_COLOR").is_none() {
        tell(&styled.ansi().to_string());
    } else {
        tell(&styled.to_string());
    }
}

/// Says something on stderr. Nobody may read it; the exit status is the same then.
pub(crate) fn tell(text: &str) {
    let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
}
