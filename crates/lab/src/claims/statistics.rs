//! `averaged-percentiles`, `percentile-count`, `rare-percentile` and `no-impact`: what figures may be made of runs.

use super::Claims;
use super::quantity::{Quantity, Unit, quantities};
use super::text::{Block, Piece};
use super::tokens::has;
use crate::record::is_told;
use std::collections::BTreeSet;
use std::ops::Range;

/// What is counted when a percentile is taken.
const COUNTED: &[&str] = &[
    "ios",
    "samples",
    "sample",
    "requests",
    "operations",
    "ops",
    "reads",
    "writes",
    "removals",
    "queries",
    "transactions",
    "snapshots",
    "measurements",
    "iops",
];

/// That something costs nothing.
const CLAIMS: &[&str] = &[
    "no impact",
    "zero impact",
    "without impact",
    "without any impact",
    "no performance impact",
    "no measurable impact",
    "no noticeable impact",
    "no discernible impact",
    "without affecting",
    "does not affect",
    "no performance penalty",
    "no penalty",
    "zero penalty",
    "zero performance penalty",
    "zero performance impact",
    "without penalty",
    "without any penalty",
    "without a performance penalty",
    "no performance degradation",
    "no degradation",
    "without degradation",
    "no slowdown",
    "no overhead",
    "zero overhead",
    "negligible overhead",
    "negligible impact",
    "no performance cost",
    "little or no impact",
    "minimal impact",
];
/// The same, in words that are said of other things as well.
const UNTOUCHED: &[&str] = &[
    "did not affect",
    "do not affect",
    "didn't affect",
    "doesn't affect",
    "did not impact",
    "does not impact",
    "do not impact",
    "didn't impact",
    "doesn't impact",
    "not affected by",
    "unaffected by",
    "no effect on",
    "no measurable effect",
    "no noticeable effect",
    "no discernible effect",
];
/// What such a sentence must be about, so that it is a claim.
const PERFORMANCE: &[&str] =
    &["performance", "latency", "latencies", "iops", "tpm", "throughput", "speed", "response time"];
/// What it may cost.
const ABOUT: &[&str] = &[
    "performance",
    "latency",
    "iops",
    "throughput",
    "speed",
    "overhead",
    "load",
    "applications",
    "response",
    "workload",
    "workloads",
    "penalty",
    "dedupe",
    "deduplication",
    "compression",
    "snapshots",
];
/// What tells of a run in which it was off.
const OFF_RUN: &[&str] = &[
    "off",
    "disabled",
    "switched off",
    "turned off",
    "with and without",
    "without it",
    "the same without",
    "baseline",
    "before and after",
    "on and off",
    "against the same",
    "a b",
    "abba",
    "with it on",
    "pairs",
];

pub(super) fn look(claims: &mut Claims<'_>) {
    let mut found = Vec::new();
    let mut sections = BTreeSet::new();
    for (section, block) in &claims.text.blocks {
        if let Block::Table(rows) = block {
            found.extend(averaged_row(rows).map(|(at, why)| ("averaged-percentiles", at, why)));
        }
        for piece in block.pieces() {
            found.extend(averaged(piece).map(|(at, why)| ("averaged-percentiles", at, why)));
            found.extend(rare(piece).map(|(at, why)| ("rare-percentile", at, why)));
        }
        if let Block::Paragraph(sentences) = block {
            for sentence in sentences {
                found.extend(no_impact(claims, *section, sentence).map(|(at, why)| ("no-impact", at, why)));
                let told = percentile_told(sentence).filter(|_| !has_count(&claims.text.around(*section)));
                if let Some(at) = told.filter(|_| sections.insert(*section)) {
                    let why =
                        "nothing says of how many I/Os: a percentile of a few is one of them".to_owned();
                    found.push(("percentile-count", at, why));
                }
            }
        }
    }
    found.into_iter().for_each(|(rule, at, why)| claims.find(rule, at, why));
}

/// Where a percentile is named: its token, and its percent.
fn percentiles(piece: &Piece) -> Vec<Quantity> {
    quantities(&piece.tokens).into_iter().filter(|one| one.unit == Unit::Percentile).collect()
}

/// `the average p99`, `p99 averaged over`, `mean of the 95th percentiles`.
fn averaged(piece: &Piece) -> Option<(Range<usize>, String)> {
    if has(&piece.plain, &["never", "not", "no", "without", "nothing"]) {
        return None;
    }
    let word = |at: usize| piece.tokens.get(at).and_then(|token| token.word()).unwrap_or_default();
    for one in percentiles(piece) {
        // 'p' is a token of its own.
        let start = if word(one.token.wrapping_sub(1)) == "p" { one.token - 1 } else { one.token };
        let filling = |at: &usize| {
            matches!(word(*at), "of" | "the" | "all" | "these" | "those" | "per" | "node" | "vm")
        };
        let before = (1..=5).filter_map(|far| start.checked_sub(far)).find(|at| !filling(at));
        let average = |at: usize| {
            matches!(word(at), "average" | "averaged" | "avg" | "mean" | "averages" | "averaging")
        };
        let after = (one.token + 1..one.token + 6).find(|at| average(*at));
        let over = after.filter(|at| matches!(word(at + 1), "over" | "across") || word(*at) == "averaged");
        if let Some(at) = before.filter(|at| average(*at) && !word(*at).is_empty()) {
            return Some((piece.tokens[at].at.start..one.at.end, WHY.into()));
        }
        if let Some(at) = over {
            return Some((one.at.start..piece.tokens[at].at.end, WHY.into()));
        }
    }
    None
}

const WHY: &str = "percentiles do not add up: the average of several is the percentile of nothing";

/// A row called 'average' with a figure below a percentile.
fn averaged_row(rows: &[Vec<Piece>]) -> Option<(Range<usize>, String)> {
    let columns: Vec<usize> =
        (1..rows[0].len()).filter(|column| !percentiles(&rows[0][*column]).is_empty()).collect();
    let is_average = |row: &&Vec<Piece>| {
        row.first().is_some_and(|cell| matches!(cell.plain.trim(), "average" | "mean" | "avg" | "averages"))
    };
    let row = rows[1..].iter().find(is_average).filter(|_| rows.len() > 3)?;
    let mut cells = columns.iter().filter_map(|column| row.get(*column));
    let cell = cells.find(|cell| cell.tokens.iter().any(|token| token.number().is_some()))?;
    Some((cell.at.clone(), WHY.into()))
}

/// A percentile of a number of I/Os that is told beside it.
fn rare(piece: &Piece) -> Option<(Range<usize>, String)> {
    let all = quantities(&piece.tokens);
    let word = |at: usize| piece.tokens.get(at).and_then(|token| token.word()).unwrap_or_default();
    let mark = |at: usize, mark: char| piece.tokens.get(at).is_some_and(|token| token.is_mark(mark));
    let count = all.iter().find(|one| {
        let at = one.token + 1;
        let spelt = word(at) == "i" && mark(at + 1, '/') && matches!(word(at + 2), "o" | "os");
        one.unit == Unit::None && one.written.fract() == 0.0 && (spelt || is_counted(word(at)))
    })?;
    // A percentile that needs so many is a rule, and no claim.
    if has(
        &piece.plain,
        &["needs", "need", "requires", "only from", "at least", "fewer than", "too few", "more than"],
    ) {
        return None;
    }
    let percentile =
        all.iter().filter(|one| one.unit == Unit::Percentile).max_by(|a, b| a.value.total_cmp(&b.value))?;
    let above = count.value * (1.0 - percentile.value / 100.0);
    (!is_told(count.value, percentile.value / 100.0)).then(|| {
        let why = format!("of {} only {above:.0} lie above p{}", count.written, percentile.value);
        (percentile.at.clone(), why)
    })
}

fn is_counted(word: &str) -> bool {
    COUNTED.contains(&word) && word != "iops" && word != "ops"
}

/// A percentile with its figure.
fn percentile_told(sentence: &Piece) -> Option<Range<usize>> {
    let all = quantities(&sentence.tokens);
    let percentile = all.iter().find(|one| one.unit == Unit::Percentile)?;
    let time = all.iter().any(|one| one.unit == Unit::Time && one.token > percentile.token);
    time.then(|| percentile.at.clone())
}

/// `4,000 removals`; or a rate with the time that it went on.
fn has_count(around: &str) -> bool {
    let words: Vec<&str> = around.split(' ').filter(|word| !word.is_empty()).collect();
    let number = |word: &str| word.parse::<f64>().is_ok_and(|number| number >= 100.0);
    let is_io = |two: &[&str]| two[0] == "i" && matches!(two[1], "o" | "os");
    let counted = words.windows(3).any(|three| {
        number(three[0]) && (is_io(&three[1..]) || three[1..].iter().any(|word| COUNTED.contains(word)))
    });
    counted || has(around, &["million", "number of", "sample size"])
}

/// That something costs nothing, where no run is told in which it was off.
fn no_impact(claims: &Claims<'_>, section: usize, sentence: &Piece) -> Option<(Range<usize>, String)> {
    let said = |phrases: &[&'static str], about: &[&str]| {
        let phrase = phrases.iter().find(|phrase| has(&sentence.plain, &[phrase])).copied();
        phrase.filter(|_| has(&sentence.plain, about))
    };
    let phrase = said(CLAIMS, ABOUT).or_else(|| said(UNTOUCHED, PERFORMANCE))?;
    if has(&claims.text.around(section), OFF_RUN) {
        return None;
    }
    let first = phrase.split(' ').next().unwrap_or_default();
    let at = sentence.tokens.iter().find(|token| token.word() == Some(first))?.at.start;
    Some((at..sentence.at.end, "nothing is told of a run in which it was off".into()))
}
