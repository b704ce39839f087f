//! `score`: counts of what was done and of what was required, and the score that is made of them.
//!
//! With 8 of 6 and 7 of 3 the ratios are 1.33 and 2.33: the smaller of them is 1.33, their geometric mean 1.76.

use super::Claims;
use super::quantity::{Quantity, Unit, quantities};
use super::text::Piece;
use std::ops::Range;

/// Words between a count and what was required of it.
const BETWEEN: &[&str] = &["of", "against", "for", "from", "versus"];
/// Words that say of a number that it was required.
const REQUIRED: &[&str] = &["required", "requires", "needed", "needs", "minimum", "due"];
/// Words between the two numbers of a count at most.
const FAR: usize = 8;

pub(super) fn look(claims: &mut Claims<'_>) {
    let mut found = Vec::new();
    for (section, number, sentences) in claims.text.paragraphs() {
        let Some((at, score, rounding)) = sentences.iter().find_map(score) else { continue };
        let mut ratios: Vec<f64> = sentences.iter().flat_map(counts).collect();
        if ratios.len() < 2 {
            // Counts in the paragraph before, or in a table beside it.
            let near =
                claims.text.paragraphs().filter(|(other, near, _)| *other == section && near + 1 == number);
            ratios.extend(near.flat_map(|(_, _, sentences)| sentences.iter().flat_map(counts)));
            let tables = claims.text.tables().filter(|(other, ..)| *other == section);
            ratios.extend(tables.flat_map(|(_, _, rows)| table_counts(rows)));
        }
        if ratios.len() >= 2 {
            found.extend(unlike(score, rounding, &ratios).map(|why| (at, why)));
        }
    }
    found.into_iter().for_each(|(at, why)| claims.find("score", at, why));
}

fn unlike(score: f64, rounding: f64, ratios: &[f64]) -> Option<String> {
    let smaller = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
    let near = |value: f64| (score - value).abs() <= rounding + 0.005 * value;
    (!near(smaller) && !near(mean)).then(|| {
        let told: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
        format!(
            "the ratios are {}: the smallest is {smaller:.2}, the geometric mean {mean:.2}",
            told.join(" and ")
        )
    })
}

/// A number that is called a score.
fn score(sentence: &Piece) -> Option<(Range<usize>, f64, f64)> {
    let word = |at: usize| sentence.tokens.get(at).and_then(|token| token.word()).unwrap_or_default();
    let is_score = |word: &str| matches!(word, "score" | "scores" | "scored" | "scoring" | "index");
    let all = quantities(&sentence.tokens);
    let named = |one: &&Quantity| {
        let before = (1..=5).filter_map(|far| one.token.checked_sub(far)).any(|at| is_score(word(at)));
        one.unit == Unit::None && !is_count(sentence, &all, one) && (before || is_score(word(one.token + 1)))
    };
    all.iter().find(named).map(|one| (one.at.clone(), one.value, one.rounding))
}

fn is_count(sentence: &Piece, all: &[Quantity], one: &Quantity) -> bool {
    pairs(sentence, all).iter().any(|(a, b)| a.token == one.token || b.token == one.token)
}

/// `8 clones of 6 that are required`, `8 where 6 are needed`, `8 (required 6)`.
fn pairs<'a>(sentence: &Piece, all: &'a [Quantity]) -> Vec<(&'a Quantity, &'a Quantity)> {
    let plain = |one: &Quantity| one.unit == Unit::None && one.written.fract() == 0.0 && one.written > 0.0;
    let between = |from: usize, to: usize| {
        let tokens = &sentence.tokens[from + 1..to];
        let words = |range: Range<usize>| {
            sentence.tokens.get(range).into_iter().flatten().filter_map(|token| token.word())
        };
        let joins = tokens.iter().any(|token| token.is_mark('/'))
            || words(from + 1..to).any(|word| BETWEEN.contains(&word))
            || words(from + 1..to).next_back().is_some_and(|word| REQUIRED.contains(&word))
            || (words(from + 1..to).any(|word| word == "where")
                && words(to + 1..to + 4).any(|word| REQUIRED.contains(&word)));
        let mark = |mark: char| tokens.iter().any(|token| token.is_mark(mark));
        // '8 clones, 6 required'.
        let said_behind = mark(',') && words(to + 1..to + 2).any(|word| REQUIRED.contains(&word));
        !mark(';') && (said_behind || joins && !mark(','))
    };
    let mut pairs = Vec::new();
    let mut at = 0;
    while at + 1 < all.len() {
        let (a, b) = (&all[at], &all[at + 1]);
        let is_pair = plain(a) && plain(b) && b.token - a.token <= FAR && between(a.token, b.token);
        if is_pair {
            pairs.push((a, b));
        }
        at += if is_pair { 2 } else { 1 };
    }
    pairs
}

fn counts(sentence: &Piece) -> Vec<f64> {
    let all = quantities(&sentence.tokens);
    pairs(sentence, &all).iter().map(|(done, required)| done.written / required.written).collect()
}

/// Rows with a column of what was done and one of what was required.
fn table_counts(rows: &[Vec<Piece>]) -> Vec<f64> {
    let column = |names: &[&str]| {
        rows[0].iter().position(|title| {
            title.tokens.iter().any(|token| token.word().is_some_and(|word| names.contains(&word)))
        })
    };
    let done = column(&["done", "completed", "achieved", "count", "measured", "actual"]);
    let required = column(&["required", "minimum", "needed", "requirement"]);
    let (Some(done), Some(required)) = (done, required) else { return Vec::new() };
    let number = |row: &Vec<Piece>, column: usize| {
        row.get(column)
            .and_then(|cell| cell.tokens.first())
            .and_then(|token| token.number())
            .filter(|number| *number > 0.0)
    };
    rows[1..].iter().filter_map(|row| Some(number(row, done)? / number(row, required)?)).collect()
}
