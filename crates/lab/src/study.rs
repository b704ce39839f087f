//! Studies: a published report repeated as a whole, its own tables beside what was measured here.
//!
//! A study is a file: which profile is run, on one target or on several arms in turn, or which profiles one after the other, and how the report's
//! tables were filled. What is run is what `lab run` and `lab compare` do, and what is kept is their bundle; so a study can be read again from
//! folders, and there is nothing that it measures itself. *Promises*: published figures are told as they were published; beside them stands what was measured,
//! or nothing; what each was divided by is said. *Never*: gives a score, or tells one machine's figure as another's. *May be used by*: the
//! command line.

mod compute;
mod file;
mod named;
#[cfg(test)]
mod tests;

pub use compute::{ArmRuns, Found, FoundRow, FoundTable, of_run, of_runs, of_trial};

use serde::Serialize;
use stonefold_types::{Error, Kind, Result};

/// One report, and how it is repeated.
#[derive(Clone, Debug, PartialEq)]
pub struct Study {
    /// How it is called.
    pub name: String,
    /// What it is about, in a line.
    pub title: String,
    /// The report, its year and its system.
    pub report: String,
    /// What was done there, what is done here in its place, and what cannot be held against the report.
    pub about: String,
    /// What is run.
    pub load: Load,
    /// The profile that takes the place of the only one where something is to be done beside it (`--ops`).
    pub with_operations: Option<String>,
    /// What the arms were there, the one first against which others are held; none where a single target is measured.
    pub arms: Vec<String>,
    /// Processor cores of the published system's storage; nothing where the report does not say.
    pub cores: Option<f64>,
    /// The report's tables.
    pub tables: Vec<Table>,
}

/// What a study runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Load {
    /// One profile, on one target, or on several arms in turn.
    Profile(String),
    /// Several, one after the other on one target. Arms are runs of their own.
    Runs(Vec<String>),
}

impl Load {
    /// The profiles, in order.
    pub fn profiles(&self) -> &[String] {
        match self {
            Load::Profile(profile) => std::slice::from_ref(profile),
            Load::Runs(profiles) => profiles,
        }
    }

    /// Whether arms are runs of their own.
    pub fn is_of_runs(&self) -> bool {
        matches!(self, Load::Runs(_))
    }
}

/// A table of the report.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// As there.
    pub title: String,
    /// Heads of its columns.
    pub columns: Vec<String>,
    /// Of all its figures.
    pub unit: Unit,
    /// Whether figures are told for each core, too.
    pub per_core: bool,
    /// Whether each figure is told as a share of its row's first, too.
    pub shape: bool,
    /// Whether what is measured is told as a share of its row's first, as what was published is.
    pub relative: bool,
    /// At least one.
    pub rows: Vec<Row>,
}

/// A row of figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its head.
    pub name: String,
    /// One for each column.
    pub cells: Vec<Cell>,
}

/// A figure that was published, and where its like is found in a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// As published, in the table's unit; nothing where the report has none.
    pub published: Option<f64>,
    /// What is measured here.
    pub here: Here,
}

/// Where a figure is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Here {
    /// Nowhere: it cannot be had on one machine, or not with what there is.
    Nowhere,
    /// In a point, by a figure's name as requirements have it, of an arm; the median of an arm's runs.
    Point {
        /// Step and label.
        point: String,
        /// As in `iops`, `db:read.mean`, `write.bytes`.
        figure: String,
        /// The arm's number, from 0.
        arm: usize,
    },
    /// In a run of an arm, under a name of [those that are of no single point](named); the arm's number, from 0.
    Named {
        /// As in `chain.24th.tpm`.
        name: String,
        /// From 0.
        arm: usize,
    },
    /// The ratio of an arm to the first, with its interval.
    Ratio {
        /// Step and label.
        point: String,
        /// The arm's number, from 1.
        arm: usize,
    },
    /// The best arm's I/Os against the worst's.
    Spread {
        /// Step and label.
        point: String,
    },
}

/// What a table's figures are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// I/Os a second.
    Iops,
    /// Milliseconds.
    Milliseconds,
    /// 10^6 bytes a second.
    Megabytes,
    /// Transactions a minute.
    PerMinute,
    /// One figure by another.
    Ratio,
    /// Seconds.
    Seconds,
    /// Minutes.
    Minutes,
    /// A share, in hundredths.
    Percent,
    /// So many.
    Count,
    /// Of the price file's currency.
    Money,
}

impl Unit {
    /// As it stands behind a table's title.
    pub fn words(self) -> &'static str {
        match self {
            Unit::Iops => "I/Os a second",
            Unit::Milliseconds => "ms",
            Unit::Megabytes => "MB/s",
            Unit::PerMinute => "a minute",
            Unit::Ratio => "ratio",
            Unit::Seconds => "s",
            Unit::Minutes => "min",
            Unit::Percent => "%",
            Unit::Count => "count",
            Unit::Money => "in the currency of each price list",
        }
    }

    /// A measured figure (a second, bytes a second, nanoseconds of a response, seconds of a phase, a share of 1, a count) in this unit.
    pub(crate) fn of(self, measured: f64) -> f64 {
        match self {
            Unit::Iops | Unit::PerMinute | Unit::Ratio | Unit::Seconds | Unit::Count | Unit::Money => {
                measured
            }
            Unit::Minutes => measured / 60.0,
            Unit::Percent => measured * 100.0,
            Unit::Milliseconds => measured / 1e6,
            Unit::Megabytes => measured / 1e6,
        }
    }

    /// A figure for people.
    pub fn told(self, value: f64) -> String {
        match self {
            Unit::Iops | Unit::PerMinute if value >= 100.0 => grouped(value),
            Unit::Ratio => format!("{value:.3}"),
            Unit::Count => format!("{value:.0}"),
            Unit::Money => format!("{value:.2}"),
            _ if value >= 100.0 => format!("{value:.0}"),
            _ if value >= 1.0 => format!("{value:.1}"),
            _ => format!("{value:.2}"),
        }
    }
}

fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Each with its file.
const SHIPPED: &[(&str, &str)] = &[
    ("corners", include_str!("../studies/corners.toml")),
    ("sqlio", include_str!("../studies/sqlio.toml")),
    ("ladder", include_str!("../studies/ladder.toml")),
    ("filesystems", include_str!("../studies/filesystems.toml")),
    ("recovery", include_str!("../studies/recovery.toml")),
    ("tiles", include_str!("../studies/tiles.toml")),
    ("storage-nodes", include_str!("../studies/storage-nodes.toml")),
];

/// All of them.
pub fn all() -> impl Iterator<Item = Study> {
    SHIPPED
        .iter()
        .map(|(name, text)| Study::parse(name, text).expect("a shipped study is right, as a test shows"))
}

/// One by its name.
///
/// # Errors
/// [`Kind::NotFound`] with the names that there are.
pub fn find(name: &str) -> Result<Study> {
    all().find(|study| study.name == name).ok_or_else(|| {
        let names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
        Error::new(Kind::NotFound, format!("there is no study '{name}'"))
            .remedy(format!("name one of {}", names.join(", ")))
    })
}

impl Study {
    /// The profiles that are run, where something is done beside them or not.
    pub fn runs(&self, with_operations: bool) -> &[String] {
        match &self.with_operations {
            Some(profile) if with_operations => std::slice::from_ref(profile),
            _ => self.load.profiles(),
        }
    }

    /// Reads a study's file.
    ///
    /// # Errors
    /// [`Kind::Invalid`], with what is wrong in it.
    pub fn parse(name: &str, text: &str) -> Result<Study> {
        let file: file::StudyFile = toml::from_str(text).map_err(|e| {
            Error::new(Kind::Invalid, format!("the study '{name}': {}", e.to_string().trim_end()))
        })?;
        file.study(name)
    }
}
