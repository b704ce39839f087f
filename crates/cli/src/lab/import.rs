//! `stonefold lab import`.

use crate::context::Context;
use crate::failure::Failure;
use crate::table::Table;
use clap::Args;
use std::path::PathBuf;
use stonefold_lab::import;
use stonefold_types::Error;

/// Make a profile of a job file of fio or of a parameter file of vdbench
///
/// What has no place in a profile, or only nearly one, is told with its line: in comments at the profile's head, and with --out
/// on the terminal, too.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    stonefold lab import database.fio --out database.toml\n  \
    stonefold lab run database.toml --target file:/srv/test.img --quick")]
pub(crate) struct Import {
    /// The file
    file: PathBuf,
    /// Where the profile goes [default: it is printed]
    #[arg(long, value_name = "PROFILE.toml")]
    out: Option<PathBuf>,
}

impl Import {
    pub(super) fn run(&self, context: &Context) -> Result<(), Failure> {
        let imported = import::import(&self.file).map_err(Failure::Misuse)?;
        let text = imported.file();
        if let Some(out) = &self.out {
            std::fs::write(out, &text)
                .map_err(|e| Error::io(format!("writing the profile '{}'", out.display()), e))?;
        }
        let document = serde_json::json!({
            "from": imported.from, "profile": text, "notes": imported.notes, "out": self.out,
        });
        context.answer(&document, || match &self.out {
            None => text.clone(),
            Some(out) => {
                let mut table = Table::new(&["LINE", "OPTION", "MAPPED", "WHY"]);
                for note in &imported.notes {
                    let place = format!("{}:{}", note.file, note.line);
                    table.row([place, note.option.clone(), note.mapped.to_string(), note.why.clone()]);
                }
                format!("{}{}\n", table.or("every option was mapped"), out.display())
            }
        })
    }
}
