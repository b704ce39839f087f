//! Parameter files of vdbench (the guide of Vdbench 5.04, "Parameter file(s)"): raw I/O, that is `sd`, `wd` and `rd`.
//!
//! A storage definition is a volume. A workload definition is a stream to each of its volumes, as a run definition wants it;
//! a run definition is a step, or one for each rate and each turn of its loops.

mod defined;
mod runs;
mod turns;
mod values;
mod words;

use super::draft::Draft;
use super::{Mapped, Notes};
use defined::Definitions;
use std::path::Path;
use stonefold_types::Result;
use words::Line;

pub(super) fn map(path: &Path, text: &str) -> Result<(Draft, Notes)> {
    let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut notes = Notes::default();
    let mut definitions = Definitions::default();
    let mut draft = Draft {
        title: format!("{file}, imported"),
        source: format!("vdbench's parameter file {file}"),
        about: "As far as a profile can say what the parameter file does; the importer told what it cannot."
            .into(),
        precondition: 0.0,
        sample: 0.0,
        ..Draft::default()
    };
    for mut line in words::lines(path, &file, text, &mut notes)? {
        match line.kind().to_owned().as_str() {
            "sd" => definitions.storage(&mut line, &mut notes)?,
            "wd" => definitions.workload(&mut line, &mut notes)?,
            "rd" => runs::add(&mut line, &mut definitions, &mut draft, &mut notes)?,
            "fsd" | "fwd" => {
                let why = "work on files: a profile loads volumes";
                notes.tell(&line.place, format!("{}=…", line.kind()), Mapped::Not, why);
                continue;
            }
            "hd" => {
                notes.tell(&line.place, "hd=…", Mapped::Beside, "one machine makes the load");
                continue;
            }
            _ => definitions.general(&mut line, &mut notes)?,
        }
        leave(line, &mut notes);
    }
    if draft.sample == 0.0 {
        draft.sample = runs::ELAPSED_SECONDS;
    }
    Ok((draft, notes))
}

/// What nobody has taken is told.
fn leave(line: Line, notes: &mut Notes) {
    for (name, value) in line.options {
        let (mapped, why) = values::left(&name);
        notes.tell(&line.place, format!("{name}={}", value.join(",")), mapped, why);
    }
}

#[cfg(test)]
mod tests;
