//! What is needed, asked of whoever sits at a terminal before anything is measured: a figure says something once it is held against a need.

use std::io::{BufRead, IsTerminal, Write};
use stonefold_lab::stats::require;
use stonefold_types::{Error, Result};

/// Whether somebody is there who could answer.
pub(super) fn is_anybody_there() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Needs as '--require' takes them, of a database in its own words; nothing where nothing is needed.
///
/// # Errors
/// When the terminal cannot be written to or read.
pub(super) fn needs(of_database: bool) -> Result<String> {
    let failed = |e| Error::io("asking what is needed", e);
    let example = if of_database { "nopm>=5000,new-order.p90<=50ms" } else { "iops>=216,read.mean<=20ms" };
    eprintln!("What do you need of it? As in {example}; Enter alone: nothing, only figures are wanted.");
    loop {
        eprint!("> ");
        std::io::stderr().flush().map_err(failed)?;
        let mut said = String::new();
        std::io::stdin().lock().read_line(&mut said).map_err(failed)?;
        let said = said.trim();
        match require::parse(said) {
            Ok(_) => return Ok(said.to_owned()),
            Err(error) => eprintln!("{error}"),
        }
    }
}
