//! The table at the end: what took how long.

use std::time::Duration;

use stonefold_guest::Accelerator;

use crate::progress::{say, shown};

/// One line of the table.
struct Figure {
    what: String,
    took: Duration,
    note: String,
}

#[derive(Default)]
pub(crate) struct Figures(Vec<Figure>);

impl Figures {
    pub(crate) fn add(&mut self, what: &str, took: Duration, note: &str) {
        self.0.push(Figure { what: what.into(), took, note: note.into() });
    }

    pub(crate) fn print(&self, accelerator: Accelerator) {
        say("\nWhat took how long");
        for line in self.lines() {
            say(&line);
        }
        say(&format!(
            "  Commands are timed from start to end of their process; the guests ran under {accelerator}."
        ));
    }

    fn lines(&self) -> Vec<String> {
        let width = self.0.iter().map(|figure| figure.what.chars().count()).max().unwrap_or(0);
        let line = |figure: &Figure| {
            format!("  {:width$}  {:>8}  {}", figure.what, shown(figure.took), figure.note)
                .trim_end()
                .to_owned()
        };
        self.0.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_are_aligned() {
        let mut figures = Figures::default();
        figures.add("import", Duration::from_millis(2500), "2 GiB");
        figures.add("snapshot, clone", Duration::from_millis(12), "");
        assert_eq!(figures.lines(), ["  import              2.5 s  2 GiB", "  snapshot, clone     12 ms"]);
    }
}
