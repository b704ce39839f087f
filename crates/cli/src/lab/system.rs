//! What is behind a target, as a file tells it.

use super::load::quoted;
use crate::failure::Failure;
use clap::Args;
use std::path::{Path, PathBuf};
use stonefold_lab::system::System;
use stonefold_types::Error;

/// The flag of commands that measure one target.
#[derive(Args, Default)]
pub(super) struct Declared {
    /// What is behind the target, as a TOML file tells it: hardware, cache, redundancy, price. It stands in the report, with I/Os for
    /// each node, core and TB
    #[arg(long, value_name = "FILE")]
    system: Option<PathBuf>,
}

impl Declared {
    /// As if this file had been given.
    pub(super) fn of(path: Option<&Path>) -> Self {
        Declared { system: path.map(Path::to_owned) }
    }

    /// What the file says.
    pub(super) fn read(&self) -> Result<Option<System>, Failure> {
        self.system.as_deref().map(read).transpose()
    }

    /// The flag as it was given.
    pub(super) fn words(&self) -> Option<String> {
        words("--system", self.system.as_deref())
    }
}

/// A flag that names such a file.
pub(super) fn words(flag: &str, path: Option<&Path>) -> Option<String> {
    path.map(|path| format!("{flag} {}", quoted(&path.display().to_string())))
}

/// Reads such a file.
pub(super) fn read(path: &Path) -> Result<System, Failure> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|e| Error::io(format!("reading the system '{name}'"), e).remedy("name a readable file"))?;
    System::parse(&name, &text).map_err(Failure::Misuse)
}
