//! `same-load`: arms held against each other that were asked for different things.

use super::super::Claims;
use super::super::quantity::{Quantity, Unit, quantities};
use super::super::text::Piece;
use super::super::tokens::has;
use super::super::units::column_unit;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

pub(super) fn look(claims: &mut Claims<'_>) {
    let mut found = unlike_results_beside(claims);
    for (_, _, sentences) in claims.text.paragraphs() {
        let one = |sentence| unlike_arms(sentence).or_else(|| unlike_names(claims.source, sentence));
        found.extend(sentences.iter().filter_map(one));
    }
    for (section, _, rows) in claims.text.tables() {
        found.extend(unlike_rows(rows, &claims.text.around(section)));
    }
    found.into_iter().for_each(|(at, why)| claims.find("same-load", at, why));
}

/// Two arms in one sentence, each with a number of its own of the same circumstance.
fn unlike_arms(sentence: &Piece) -> Option<(Range<usize>, String)> {
    const BETWEEN: &[&str] = &["against", "versus", "vs", "than", "while", "whereas", "compared"];
    let cut =
        sentence.tokens.iter().position(|token| token.word().is_some_and(|word| BETWEEN.contains(&word)))?;
    let all = quantities(&sentence.tokens);
    let (left, right): (Vec<&Quantity>, Vec<&Quantity>) =
        all.iter().partition(|quantity| quantity.token < cut);
    let circumstances: BTreeSet<String> = all.iter().filter_map(|one| circumstance(sentence, one)).collect();
    for name in circumstances {
        let of = |side: &[&Quantity]| -> Vec<f64> {
            let same = side.iter().filter(|one| circumstance(sentence, one).as_ref() == Some(&name));
            same.map(|one| one.value).collect()
        };
        let (on_left, mut on_right) = (of(&left), of(&right));
        // '… at 21 users, against 44,821 at 9': what it is of is said once.
        if on_right.is_empty() && on_left.len() == 1 {
            let last = right
                .last()
                .filter(|one| one.unit == Unit::None && one.written.fract() == 0.0 && one.written < 10_000.0);
            let after_at =
                |one: &&Quantity| one.token > 0 && sentence.tokens[one.token - 1].word() == Some("at");
            on_right.extend(last.filter(|one| after_at(one)).map(|one| one.value));
        }
        match (on_left.as_slice(), on_right.as_slice()) {
            ([a], [b]) if a != b => return Some((sentence.at.clone(), unlike(&name, *a, *b))),
            _ => {}
        }
    }
    None
}

/// Two names in one sentence, joined by 'and', each with a rate and a number of its own of the same circumstance.
fn unlike_names(source: &str, sentence: &Piece) -> Option<(Range<usize>, String)> {
    const BEGIN: &[&str] =
        &["at", "with", "on", "in", "for", "the", "a", "when", "each", "both", "one", "all", "by"];
    let all = quantities(&sentence.tokens);
    let name = |range: Range<usize>| {
        let is_capital = |at: &Range<usize>| source[at.clone()].starts_with(char::is_uppercase);
        let is_name = |place: usize| {
            let token = &sentence.tokens[place];
            let word = token.word().filter(|word| {
                !BEGIN.contains(word) && !all.iter().any(|one| one.at.contains(&token.at.start))
            })?;
            is_capital(&token.at).then_some(word)
        };
        range.into_iter().find_map(is_name)
    };
    let ends = sentence.tokens.len();
    let cut = (0..ends).filter(|at| sentence.tokens[*at].word() == Some("and")).find(|cut| {
        let names = (name(0..*cut), name(cut + 1..ends));
        matches!(names, (Some(left), Some(right)) if left != right)
    })?;
    let (left, right): (Vec<&Quantity>, Vec<&Quantity>) = all.iter().partition(|one| one.token < cut);
    Some((sentence.at.clone(), unlike_results(&result(sentence, &left)?, &result(sentence, &right)?)?))
}

/// Two results one behind the other, each headed by its arm: `Alpha: 9,000 IOPS with 32 threads; Beta: 7,000 IOPS with 16 threads`,
/// as sentences, or as lines of a list.
fn unlike_results_beside(claims: &Claims<'_>) -> Vec<(Range<usize>, String)> {
    let paragraphs = claims.text.paragraphs();
    let headed: Vec<Option<Headed>> = paragraphs
        .flat_map(|(section, _, sentences)| sentences.iter().map(move |sentence| (section, sentence)))
        .flat_map(|(section, sentence)| {
            parts(sentence).into_iter().map(move |part| (section, sentence, part))
        })
        .map(|(section, sentence, part)| headed(claims.source, section, sentence, part))
        .collect();
    let unlike = |pair: &[Option<Headed>]| {
        let [Some(one), Some(other)] = pair else { return None };
        let beside = one.section == other.section && one.name != other.name;
        let why = unlike_results(&one.result, &other.result).filter(|_| beside)?;
        Some((one.at.start..other.at.end, why))
    };
    headed.windows(2).filter_map(unlike).collect()
}

/// A result that begins with whose it is.
struct Headed {
    section: usize,
    name: String,
    result: Outcome,
    at: Range<usize>,
}

/// The tokens of a sentence, cut at its semicolons.
fn parts(sentence: &Piece) -> Vec<Range<usize>> {
    let cuts = (0..sentence.tokens.len()).filter(|at| sentence.tokens[*at].is_mark(';'));
    let ends: Vec<usize> = cuts.chain([sentence.tokens.len()]).collect();
    let starts = [0].into_iter().chain(ends.iter().map(|end| end + 1));
    starts.zip(&ends).map(|(start, end)| start..*end).filter(|part| !part.is_empty()).collect()
}

fn headed(source: &str, section: usize, sentence: &Piece, part: Range<usize>) -> Option<Headed> {
    // What a load is, or a step of it: their numbers are meant to differ.
    const STEPS: &str = " read reads reading write writes writing random sequential mixed first \
        second third last then next light heavy low high small large few many idle busy peak \
        quick start end baseline saturation before after note example today it this that we they \
        each both all one none some others ";
    const GAVE: &[&str] = &["did", "gave", "reached", "delivered", "achieved", "managed", "served", "had"];
    let start = part.start + usize::from(sentence.tokens[part.start].is_mark('-'));
    let (head, behind) = (sentence.tokens.get(start)?, sentence.tokens.get(start + 1)?);
    let name = head.word().filter(|word| !has(STEPS, &[word]))?;
    let gave = [':', '–', '—'].iter().any(|mark| behind.is_mark(*mark))
        || behind.word().is_some_and(|word| GAVE.contains(&word));
    if !gave || !source[head.at.clone()].starts_with(char::is_uppercase) {
        return None;
    }
    let all = quantities(&sentence.tokens);
    let its: Vec<&Quantity> = all.iter().filter(|one| part.contains(&one.token)).collect();
    let at = head.at.start..sentence.tokens[part.end - 1].at.end;
    Some(Headed { section, name: name.to_owned(), result: result(sentence, &its)?, at })
}

/// A rate, and the circumstance that it was reached with.
type Outcome = (Unit, String, f64);

/// The only rate of some quantities, with the only circumstance.
fn result(sentence: &Piece, its: &[&Quantity]) -> Option<Outcome> {
    let rates: Vec<Unit> =
        its.iter().map(|one| one.unit).filter(|unit| matches!(unit, Unit::Rate(_))).collect();
    let loads: Vec<(String, f64)> =
        its.iter().filter_map(|one| Some((circumstance(sentence, one)?, one.value))).collect();
    match (rates.as_slice(), loads.as_slice()) {
        ([rate], [(name, value)]) => Some((*rate, name.clone(), *value)),
        _ => None,
    }
}

fn unlike_results((rate, name, a): &Outcome, (its_rate, its_name, b): &Outcome) -> Option<String> {
    (rate == its_rate && name == its_name && a != b).then(|| unlike(name, *a, *b))
}

fn unlike(name: &str, a: f64, b: f64) -> String {
    format!("one arm has {name} {}, the other {}", short(a), short(b))
}

/// Of what a load's circumstance a number is; a ratio's own figures are none.
fn circumstance(sentence: &Piece, quantity: &Quantity) -> Option<String> {
    let before = |far: usize| {
        quantity.token.checked_sub(far).and_then(|at| sentence.tokens[at].word()).unwrap_or_default()
    };
    match quantity.unit {
        Unit::Load(name) => Some(name.to_owned()),
        Unit::Block => Some("block size".into()),
        Unit::Capacity if (1..=4).any(|far| matches!(before(far), "footprint" | "set" | "dataset")) => {
            Some("working set".into())
        }
        _ => None,
    }
}

fn short(value: f64) -> String {
    match value {
        value if value >= 1e9 => format!("{:.1} GB", value / 1e9),
        value => format!("{value}"),
    }
}

/// Rows that are arms, and a column of their circumstances in which they differ. Rows of one arm that differ are a sweep.
fn unlike_rows(rows: &[Vec<Piece>], around: &str) -> Option<(Range<usize>, String)> {
    const COMPARES: &[&str] =
        &["vs", "versus", "against", "faster", "slower", "compared", "comparison", "than", "ratio"];
    // Heads of a column of arms, whatever is said around.
    const ARMS: &[&str] = &[
        "system",
        "systems",
        "product",
        "storage",
        "array",
        "vendor",
        "platform",
        "solution",
        "file system",
        "cluster",
    ];
    let body = &rows[1..];
    let compares = has(around, COMPARES) || rows[0].first().is_some_and(|head| has(&head.plain, ARMS));
    if !(2..=4).contains(&body.len()) || !compares {
        return None;
    }
    for (column, title) in rows[0].iter().enumerate().skip(1) {
        let Some((Unit::Load(name), _)) = column_unit(title) else { continue };
        let mut arms: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for row in body {
            let (Some(arm), Some(cell)) = (row.first(), row.get(column)) else { return None };
            // A first column of numbers is a sweep over them.
            if arm.tokens.iter().all(|token| token.word().is_none()) {
                return None;
            }
            arms.entry(arm.plain.trim()).or_default().insert(cell.plain.trim().to_owned());
        }
        let values: BTreeSet<&String> = arms.values().flatten().collect();
        if arms.len() >= 2 && arms.values().all(|values| values.len() == 1) && values.len() > 1 {
            return Some((title.at.clone(), format!("each arm has another number of {name}")));
        }
    }
    None
}
