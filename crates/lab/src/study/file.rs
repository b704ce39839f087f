//! The words of a study's file.
//!
//! ```text
//! title, report, about    texts
//! profile, or runs        what is run: one profile, or a list of them, one after the other
//! with_operations         the profile in place of the only one of `runs`, where something is done beside it
//! arms                    names; none for a single target
//! cores                   of the published system's storage
//! [[table]]               title, columns, unit (iops, ms, MB/s, a minute, ratio, s, min, %, count, money), per_core, shape, relative
//! [[table.row]]           name, published = [figures, or "-"], and of what is measured here one of
//!   points, figure, arm   a point for each column ("-": none), the figure's name, the arm's number (0)
//!   point, figure         one point, and in each column another arm
//!   named, arm            a figure's name for each column ("-": none), of those that are of no single point
//!   each                  one such name, and in each column another arm
//!   ratio                 one point: in each column the ratio of the next arm to the first
//!   spread                one point: the best arm against the worst
//! ```

use super::{Cell, Here, Load, Row, Study, Table, Unit, named};
use serde::Deserialize;
use stonefold_types::{Error, Kind, Result};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StudyFile {
    title: String,
    report: String,
    about: String,
    profile: Option<String>,
    runs: Option<Vec<String>>,
    with_operations: Option<String>,
    #[serde(default)]
    arms: Vec<String>,
    cores: Option<f64>,
    table: Vec<TableWords>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TableWords {
    title: String,
    columns: Vec<String>,
    unit: UnitWord,
    #[serde(default)]
    per_core: bool,
    #[serde(default)]
    shape: bool,
    #[serde(default)]
    relative: bool,
    row: Vec<RowWords>,
}

#[derive(Clone, Copy, Deserialize)]
enum UnitWord {
    #[serde(rename = "iops")]
    Iops,
    #[serde(rename = "ms")]
    Milliseconds,
    #[serde(rename = "MB/s")]
    Megabytes,
    #[serde(rename = "a minute")]
    PerMinute,
    #[serde(rename = "ratio")]
    Ratio,
    #[serde(rename = "s")]
    Seconds,
    #[serde(rename = "min")]
    Minutes,
    #[serde(rename = "%")]
    Percent,
    #[serde(rename = "count")]
    Count,
    #[serde(rename = "money")]
    Money,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RowWords {
    name: String,
    published: Vec<Published>,
    points: Option<Vec<String>>,
    point: Option<String>,
    figure: Option<String>,
    named: Option<Vec<String>>,
    each: Option<String>,
    #[serde(default)]
    arm: usize,
    ratio: Option<String>,
    spread: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Published {
    Figure(f64),
    Dash(String),
}

const DASH: &str = "-";

impl StudyFile {
    pub(super) fn study(self, name: &str) -> Result<Study> {
        let wrong = |why: String| Error::new(Kind::Invalid, format!("the study '{name}': {why}"));
        let arms = self.arms.len();
        if arms == 1 {
            return Err(wrong("one arm is no comparison: name none, or two and more".into()));
        }
        let load = match (self.profile, self.runs) {
            (Some(profile), None) => Load::Profile(profile),
            (None, Some(runs)) if !runs.is_empty() => Load::Runs(runs),
            _ => return Err(wrong("it takes a profile, or a list of runs".into())),
        };
        if self.with_operations.is_some() && (!load.is_of_runs() || load.profiles().len() != 1) {
            return Err(wrong("with_operations takes the place of a single one of runs".into()));
        }
        let tables: std::result::Result<Vec<Table>, String> =
            self.table.into_iter().map(|table| table.table(arms, self.cores.is_some())).collect();
        Ok(Study {
            name: name.into(),
            title: self.title,
            report: self.report,
            about: self.about.trim().into(),
            load,
            with_operations: self.with_operations,
            arms: self.arms,
            cores: self.cores,
            tables: tables.map_err(wrong)?,
        })
    }
}

impl TableWords {
    fn table(self, arms: usize, cores: bool) -> std::result::Result<Table, String> {
        let title = self.title;
        let at = |why: String| format!("table '{title}': {why}");
        if self.per_core && !cores {
            return Err(at("per_core needs the published system's cores".into()));
        }
        let columns = self.columns.len();
        let rows = self.row.into_iter().map(|row| row.row(columns, arms));
        Ok(Table {
            rows: rows.collect::<std::result::Result<_, String>>().map_err(at)?,
            title: title.clone(),
            columns: self.columns,
            unit: match self.unit {
                UnitWord::Iops => Unit::Iops,
                UnitWord::Milliseconds => Unit::Milliseconds,
                UnitWord::Megabytes => Unit::Megabytes,
                UnitWord::PerMinute => Unit::PerMinute,
                UnitWord::Ratio => Unit::Ratio,
                UnitWord::Seconds => Unit::Seconds,
                UnitWord::Minutes => Unit::Minutes,
                UnitWord::Percent => Unit::Percent,
                UnitWord::Count => Unit::Count,
                UnitWord::Money => Unit::Money,
            },
            per_core: self.per_core,
            shape: self.shape,
            relative: self.relative,
        })
    }
}

impl RowWords {
    fn row(self, columns: usize, arms: usize) -> std::result::Result<Row, String> {
        let at = |why: String| format!("row '{}': {why}", self.name);
        if self.published.len() != columns {
            return Err(at(format!("{} figures for {columns} columns", self.published.len())));
        }
        let here = self.here(columns, arms).map_err(at)?;
        let published = self.published.into_iter().map(|figure| match figure {
            Published::Figure(figure) => Ok(Some(figure)),
            Published::Dash(dash) if dash == DASH => Ok(None),
            Published::Dash(word) => Err(format!("'{word}' is neither a figure nor \"{DASH}\"")),
        });
        let cells = published.zip(here).map(|(published, here)| Ok(Cell { published: published?, here }));
        Ok(Row { cells: cells.collect::<std::result::Result<_, String>>()?, name: self.name })
    }

    fn here(&self, columns: usize, arms: usize) -> std::result::Result<Vec<Here>, String> {
        let ways =
            [&self.point, &self.each, &self.ratio, &self.spread].iter().filter(|way| way.is_some()).count()
                + [&self.points, &self.named].iter().filter(|way| way.is_some()).count();
        if ways > 1 {
            return Err("one of points, point, named, each, ratio and spread is enough".into());
        }
        if let Some(unknown) = self.named.iter().flatten().chain(&self.each).find(|name| !is_name(name)) {
            return Err(format!("there is no figure '{unknown}'"));
        }
        let figure = || self.figure.clone().ok_or("it needs a figure, as in iops or read.mean");
        if self.arm >= arms.max(1) {
            return Err(format!("there is no arm {}", self.arm));
        }
        if let Some(points) = &self.points {
            if points.len() != columns {
                return Err(format!("{} points for {columns} columns", points.len()));
            }
            let figure = figure()?;
            let here = |point: &String| match point.as_str() {
                DASH => Here::Nowhere,
                point => Here::Point { point: point.into(), figure: figure.clone(), arm: self.arm },
            };
            return Ok(points.iter().map(here).collect());
        }
        if let Some(names) = &self.named {
            if names.len() != columns {
                return Err(format!("{} names for {columns} columns", names.len()));
            }
            let here = |name: &String| match name.as_str() {
                DASH => Here::Nowhere,
                name => Here::Named { name: name.into(), arm: self.arm },
            };
            return Ok(names.iter().map(here).collect());
        }
        if let Some(name) = &self.each {
            return Ok((0..columns).map(|arm| Here::Named { name: name.clone(), arm }).collect());
        }
        if let Some(point) = &self.point {
            let figure = figure()?;
            let of_arm = |arm| Here::Point { point: point.clone(), figure: figure.clone(), arm };
            return Ok((0..columns).map(of_arm).collect());
        }
        if let Some(point) = &self.ratio {
            return Ok((1..=columns).map(|arm| Here::Ratio { point: point.clone(), arm }).collect());
        }
        if let Some(point) = &self.spread {
            return Ok((0..columns).map(|_| Here::Spread { point: point.clone() }).collect());
        }
        Ok(vec![Here::Nowhere; columns])
    }
}

fn is_name(name: &str) -> bool {
    name == DASH || named::is_known(name)
}
