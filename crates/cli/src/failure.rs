//! How a command fails.

use clap::CommandFactory;
use std::process::ExitCode;
use stonefold_types::Error;

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

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Failed(error)
    }
}

impl Failure {
    /// Says it on stderr, in the words and the form that misuse of flags is told in.
    pub(crate) fn tell(&self) -> ExitCode {
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

fn say(error: &Error) {
    let styles = crate::Cli::command().get_styles().clone();
    let (red, green) = (styles.get_error(), styles.get_valid());
    let mut text = format!("{red}error:{red:#} {}\n", error.what());
    if let Some(remedy) = error.remedy_text() {
        text.push_str(&format!("\n  {green}what to do:{green:#} {remedy}\n"));
    }
    let styled = clap::builder::StyledStr::from(text);
    if std::io::IsTerminal::is_terminal(&std::io::stderr()) && std::env::var_os("NO_COLOR").is_none() {
        eprint!("{}", styled.ansi());
    } else {
        eprint!("{styled}");
    }
}
