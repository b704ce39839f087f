//! `best-arm`: a peak, and what the same text shows beside it.

use super::Claims;
use super::quantity::{Quantity, Unit, quantities};
use super::text::Piece;
use super::tokens::has;
use super::units::column_unit;
use std::collections::BTreeSet;

/// A result must be higher by more than this share: a peak may be rounded.
const HIGHER: f64 = 0.01;

pub(super) fn look(claims: &mut Claims<'_>) {
    let mut found = Vec::new();
    for (section, _, sentences) in claims.text.paragraphs() {
        for sentence in sentences {
            let Some(peak) = peak(sentence) else { continue };
            let tables = claims.text.tables().filter(|(other, ..)| *other == section);
            let higher = tables.filter_map(|(_, _, rows)| higher_in(rows, sentence, &peak)).next();
            let beside = || {
                higher_beside(sentences, sentence, &peak).or_else(|| higher_step(sentences, sentence, &peak))
            };
            if let Some((words, value)) = higher.or_else(beside) {
                let told = claims.source[peak.at.clone()].trim();
                found.push((peak.at.clone(), format!("{told} is not the highest: {value} in '{words}'")));
            }
        }
    }
    found.into_iter().for_each(|(at, why)| claims.find("best-arm", at, why));
}

/// The rate that a sentence calls the highest.
fn peak(sentence: &Piece) -> Option<Quantity> {
    const PEAK: &[&str] = &["peak", "peaked", "peaks", "maximum", "highest", "best", "topped"];
    let at =
        sentence.tokens.iter().position(|token| token.word().is_some_and(|word| PEAK.contains(&word)))?;
    let rate = |quantity: &&Quantity| matches!(quantity.unit, Unit::Rate(_) | Unit::Throughput(_));
    let all = quantities(&sentence.tokens);
    let near = |quantity: &&Quantity| quantity.token > at && quantity.token <= at + 10;
    // '334 IOPS was the peak' as well as 'a peak of 334 IOPS'; two rates are a comparison of their own.
    let rates: Vec<&Quantity> = all.iter().filter(rate).collect();
    match rates.as_slice() {
        [only] => Some((*only).clone()),
        _ => rates.into_iter().find(near).cloned(),
    }
}

/// A higher result of the same kind of load in a table.
fn higher_in(rows: &[Vec<Piece>], sentence: &Piece, peak: &Quantity) -> Option<(String, f64)> {
    let head = rows.first()?;
    let said = |cell: &Piece| {
        let label = cell.plain.trim();
        !label.is_empty() && label.parse::<f64>().is_err() && sentence.plain.contains(&cell.plain)
    };
    let asked = kinds(sentence);
    let named_rows = rows[1..].iter().any(|row| row.first().is_some_and(said));
    let named_columns: Vec<usize> = (1..head.len()).filter(|column| said(&head[*column])).collect();
    let kinds_of: Vec<BTreeSet<String>> =
        rows[1..].iter().map(|row| row.first().map(kinds).unwrap_or_default()).collect();
    let alike = kinds_of.windows(2).all(|pair| pair[0] == pair[1]);
    let mut highest: Option<(String, f64)> = None;
    for (row, its_kinds) in rows[1..].iter().zip(&kinds_of) {
        let of_kind = if asked.is_empty() {
            alike
        } else {
            its_kinds.is_superset(&asked) || (alike && its_kinds.is_empty())
        };
        if !of_kind || (named_rows && !row.first().is_some_and(said)) {
            continue;
        }
        for (column, cell) in row.iter().enumerate().skip(1) {
            let Some(title) = head.get(column) else { continue };
            if !named_columns.is_empty() && !named_columns.contains(&column) {
                continue;
            }
            let Some((value, _)) = value_of(cell, title, peak) else { continue };
            if value > peak.value * (1.0 + HIGHER) && highest.as_ref().is_none_or(|(_, most)| value > *most) {
                let label = row.first().map_or("", |cell| cell.plain.trim());
                highest = Some((label.to_owned(), value));
            }
        }
    }
    highest.map(|(label, value)| (label, value / peak.factor))
}

/// A cell's number in the base of the peak's unit, where its title or itself says that it is one of those.
fn value_of(cell: &Piece, title: &Piece, peak: &Quantity) -> Option<(f64, Unit)> {
    let of = quantities(&cell.tokens);
    let first = of.first()?;
    // Ratios and ranges in a cell are no results.
    if of.len() > 1 {
        return None;
    }
    let (unit, factor) = match first.unit {
        Unit::None => column_unit(title)?,
        unit => (unit, first.factor),
    };
    (unit == peak.unit).then_some((first.written * factor, unit))
}

/// A higher one of a list in the same paragraph: 'T1 to T4 gave 200, 250, 390 and 334 IOPS'.
fn higher_beside(sentences: &[Piece], sentence: &Piece, peak: &Quantity) -> Option<(String, f64)> {
    const OF_OTHERS: &[&str] = &[
        "required",
        "target",
        "goal",
        "limit",
        "rated",
        "theoretical",
        "against",
        "than",
        "instead",
        "ceiling",
        "could",
    ];
    for other in
        sentences.iter().filter(|other| !has(&other.plain, OF_OTHERS) && kinds(other) == kinds(sentence))
    {
        let all = quantities(&other.tokens);
        let ends_in = all.iter().any(|one| one.unit == peak.unit);
        let list: Vec<&Quantity> = all
            .iter()
            .filter(|one| one.unit == peak.unit || (one.unit == Unit::None && one.written >= 10.0))
            .collect();
        if !ends_in || list.len() < 3 {
            continue;
        }
        let highest = list.iter().map(|one| one.written * peak.factor).fold(0.0, f64::max);
        if highest > peak.value * (1.0 + HIGHER) {
            return Some((other.plain.trim().chars().take(60).collect(), highest / peak.factor));
        }
    }
    None
}

/// A higher one of steps that have numbers, whose unit is said with the peak: 'T6 with 362.7 IOPS. T1 200.7, T3 389.8'.
fn higher_step(sentences: &[Piece], sentence: &Piece, peak: &Quantity) -> Option<(String, f64)> {
    for other in sentences {
        let Some((name, steps)) = steps(other) else { continue };
        let is_of_them = sentence.tokens.iter().any(|token| token.word() == Some(name))
            || steps.iter().any(|(_, value)| *value == peak.written);
        let highest = steps.iter().max_by(|(_, a), (_, b)| a.total_cmp(b))?;
        if is_of_them && highest.1 * peak.factor > peak.value * (1.0 + HIGHER) {
            return Some((format!("{name}{}", highest.0), highest.1));
        }
    }
    None
}

/// The steps of a sentence that says nothing else, with what they share: 't', and 200.7 of 1, 389.8 of 3.
fn steps(sentence: &Piece) -> Option<(&str, Vec<(f64, f64)>)> {
    const FILLING: &[&str] =
        &["and", "the", "others", "steps", "gave", "did", "had", "were", "was", "reached", "with", "then"];
    let tokens = &sentence.tokens;
    let number = |at: usize| tokens.get(at).and_then(|token| token.number());
    let is_step = |at: &usize| tokens.get(at + 1).is_some_and(|next| next.glued && next.number().is_some());
    let name = (0..tokens.len()).find(is_step).and_then(|at| tokens[at].word())?;
    if tokens.iter().filter_map(|token| token.word()).any(|word| word != name && !FILLING.contains(&word)) {
        return None;
    }
    let value = |at: usize| {
        let ended = tokens.get(at + 1).is_none_or(|next| ",;.)".contains(|mark| next.is_mark(mark)))
            || tokens[at + 1].word() == Some("and");
        number(at).filter(|_| ended)
    };
    let named = (0..tokens.len()).filter(|at| tokens[*at].word() == Some(name)).filter(is_step);
    let steps: Vec<(f64, f64)> =
        named.filter_map(|at| Some((number(at + 1)?, value(at + 2).or_else(|| value(at + 3))?))).collect();
    (steps.len() >= 2).then_some((name, steps))
}

/// What an I/O is: reads or writes, by chance or in order, its size.
pub(super) fn kinds(piece: &Piece) -> BTreeSet<String> {
    let mut kinds: BTreeSet<String> = BTreeSet::new();
    for word in piece.tokens.iter().filter_map(|token| token.word()) {
        match word {
            "read" | "reads" => kinds.insert("read".into()),
            "write" | "writes" => kinds.insert("write".into()),
            "random" | "rand" => kinds.insert("random".into()),
            "sequential" | "seq" => kinds.insert("sequential".into()),
            _ => false,
        };
    }
    let of = quantities(&piece.tokens);
    kinds.extend(of.iter().filter(|one| one.unit == Unit::Block).map(|one| format!("{} B", one.value)));
    kinds
}
