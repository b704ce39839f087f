//! Whoever keeps recovery points of the disk: the server of the target, or commands of the user's.

use crate::shell;
use crate::target::TargetSpec;
use serde::Deserialize;
use std::fmt;
use stonefold_types::{Error, Kind, Result};

/// Tells a command the point's number.
const VARIABLE: &str = "STONEFOLD_LAB_POINT";

/// See the module. Points are numbered from 0, the first and full one. What fails leaves nothing behind, and takes nothing of others away: only what
/// succeeded is discarded and forgotten.
pub trait Keeper: fmt::Debug + Send + Sync {
    /// Who it is, in words.
    fn told(&self) -> String;

    /// Keeps the target as it is at this moment.
    ///
    /// # Errors
    /// Why it cannot.
    fn keep(&self, point: u32) -> Result<()>;

    /// Brings a point back as a disk of its own, and says where that is.
    ///
    /// # Errors
    /// Why it cannot.
    fn recover(&self, point: u32) -> Result<TargetSpec>;

    /// Takes down what was [recovered](Keeper::recover). The point stays.
    ///
    /// # Errors
    /// Why it cannot.
    fn discard(&self, point: u32) -> Result<()>;

    /// Removes a point.
    ///
    /// # Errors
    /// Why it cannot.
    fn forget(&self, point: u32) -> Result<()>;
}

/// Makes a target of its text.
type Resolve = Box<dyn Fn(&str) -> Result<TargetSpec> + Send + Sync>;

/// Keeps by commands of the shell, which find the number of the point in `STONEFOLD_LAB_POINT`.
pub struct Commands {
    words: Words,
    resolve: Resolve,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Words {
    keep: String,
    recover: String,
    discard: Option<String>,
    forget: Option<String>,
}

impl fmt::Debug for Commands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.words.fmt(f)
    }
}

impl Commands {
    /// Those of a file: TOML, with `keep`, `recover`, which prints the target, and, if wanted, `discard` and `forget`.
    ///
    /// # Errors
    /// [`Kind::Invalid`] with the line where it is no TOML, lacks a word or has one that is not known.
    pub fn of_file(
        text: &str,
        resolve: impl Fn(&str) -> Result<TargetSpec> + Send + Sync + 'static,
    ) -> Result<Self> {
        let words = toml::from_str(text).map_err(|e| {
            Error::new(Kind::Invalid, format!("the list of commands: {}", e.to_string().trim_end()))
                .remedy("it takes 'keep' and 'recover', and 'discard' and 'forget' if they are wanted")
        })?;
        Ok(Commands { words, resolve: Box::new(resolve) })
    }

    fn run(&self, word: &str, command: &str, point: u32) -> Result<String> {
        let told = || format!("the command '{word}' for point {point}, \"{command}\",");
        shell::run(told, command, (VARIABLE, &point.to_string()))
    }

    /// The target that is the last line of what `recover` said.
    fn named(&self, said: &str, point: u32) -> Result<TargetSpec> {
        let Some(target) = said.lines().rev().map(str::trim).find(|line| !line.is_empty()) else {
            let what = format!("the command 'recover' for point {point} does not say where it is");
            return Err(Error::new(Kind::Invalid, what).remedy(
                "let it print the target as its last line, as in 'nbd+unix:///disk?socket=/run/back'",
            ));
        };
        (self.resolve)(target).map_err(|e| e.context(format!("what 'recover' printed for point {point}")))
    }
}

impl Keeper for Commands {
    fn told(&self) -> String {
        format!("commands: keep \"{}\", recover \"{}\"", self.words.keep, self.words.recover)
    }

    fn keep(&self, point: u32) -> Result<()> {
        self.run("keep", &self.words.keep, point).map(drop)
    }

    fn recover(&self, point: u32) -> Result<TargetSpec> {
        let said = self.run("recover", &self.words.recover, point)?;
        self.named(&said, point).inspect_err(|_| {
            // It is there, and nobody can use it.
            let _ = self.discard(point);
        })
    }

    fn discard(&self, point: u32) -> Result<()> {
        self.words.discard.as_ref().map_or(Ok(()), |command| self.run("discard", command, point).map(drop))
    }

    fn forget(&self, point: u32) -> Result<()> {
        self.words.forget.as_ref().map_or(Ok(()), |command| self.run("forget", command, point).map(drop))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(text: &str) -> Result<Commands> {
        Commands::of_file(text, |target| target.parse())
    }

    #[test]
    fn a_command_knows_the_point_and_says_where_it_is() {
        let keeper = commands(
            "keep = 'test $STONEFOLD_LAB_POINT = 3'\nrecover = 'echo some words; echo file:/p$STONEFOLD_LAB_POINT'",
        )
        .unwrap();
        keeper.keep(3).unwrap();
        assert_eq!(keeper.recover(12).unwrap(), "file:/p12".parse().unwrap());
        keeper.discard(12).unwrap();
        keeper.forget(3).unwrap();
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert!(commands("keep = 'true'").unwrap_err().to_string().contains("recover"));
        let error = commands("keep = 'a'\nrecover = 'b'\nrestore = 'c'").unwrap_err().to_string();
        assert!(error.contains("restore"), "{error}");
        let keeper =
            commands("keep = 'echo no room >&2; exit 1'\nrecover = 'true'\ndiscard = 'false'").unwrap();
        let error = keeper.keep(7).unwrap_err().to_string();
        assert!(error.contains("point 7") && error.contains("no room"), "{error}");
        assert!(keeper.recover(0).unwrap_err().to_string().contains("does not say where"));
        assert!(keeper.discard(0).is_err());
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().display();
        let keeper = commands(&format!(
            "keep = 'true'\nrecover = 'touch {inside}/back; echo nonsense'\ndiscard = 'rm {inside}/back'"
        ))
        .unwrap();
        assert!(keeper.recover(4).unwrap_err().to_string().contains("point 4"));
        assert!(!folder.path().join("back").exists(), "what nobody can use stayed");
    }
}
