//! Tables and lists for people: aligned, plain, the same on a terminal and in a file.

use std::fmt::Write;

/// A table with a head.
pub(crate) struct Table {
    /// Whether a column holds numbers, which line up at their right.
    numbers: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Columns by their heads; one that ends in `>` holds numbers.
    pub(crate) fn new(heads: &[&str]) -> Self {
        let numbers = heads.iter().map(|head| head.ends_with('>')).collect();
        Table {
            numbers,
            rows: vec![heads.iter().map(|head| head.trim_end_matches('>').to_owned()).collect()],
        }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().collect();
        assert_eq!(cells.len(), self.numbers.len(), "a row has a cell for each column");
        self.rows.push(cells);
    }

    /// The table, or `otherwise` when it has no rows.
    pub(crate) fn or(self, otherwise: &str) -> String {
        if self.rows.len() == 1 { format!("{otherwise}\n") } else { self.text() }
    }

    pub(crate) fn text(self) -> String {
        let width =
            |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.numbers.len()).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, width), number) in row.iter().zip(&widths).zip(&self.numbers) {
                let written =
                    if *number { write!(line, "{cell:>width$}  ") } else { write!(line, "{cell:<width$}  ") };
                written.expect("a string takes all");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Facts, one a line: what it is, then its value, all values in one column.
pub(crate) fn facts<const N: usize>(facts: [(&str, String); N]) -> String {
    let width = facts.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    facts
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| {
            format!("{name:<width$}  {}\n", value.replace('\n', &format!("\n{:width$}  ", "")))
        })
        .collect()
}

/// A duration as people read it: `80 µs`, `1.3 ms`, `2.0 s`.
pub(crate) fn micros(micros: u64) -> String {
    match micros {
        0..1000 => format!("{micros} µs"),
        1000..1_000_000 => format!("{:.1} ms", micros as f64 / 1e3),
        _ => format!("{:.1} s", micros as f64 / 1e6),
    }
}

/// `1 snapshot`, `2 snapshots`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_no_line_ends_in_blanks() {
        let mut table = Table::new(&["NAME", "SIZE>", "ORIGIN"]);
        table.row(["web".into(), "20G".into(), String::new()]);
        table.row(["database".into(), "1.5T".into(), "web@a".into()]);
        assert_eq!(table.text(), "NAME      SIZE  ORIGIN\nweb        20G\ndatabase  1.5T  web@a\n");
        assert_eq!(Table::new(&["NAME"]).or("no disks"), "no disks\n");
    }

    #[test]
    fn facts_line_up_and_empty_ones_are_left_out() {
        let text = facts([("size", "20G".into()), ("origin", String::new()), ("reached at", "a\nb".into())]);
        assert_eq!(text, "size        20G\nreached at  a\n            b\n");
    }
}
