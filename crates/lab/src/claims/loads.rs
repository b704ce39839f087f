//! `same-load`, `queue-depth` and `closed-loop`: what the storage was asked for.

use super::Claims;
use super::quantity::{Quantity, Unit, quantities};
use super::text::{Block, Piece};
use super::tokens::has;
use super::units::column_unit;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Words that tell how many I/Os were in flight, or when they came.
const IN_FLIGHT: &[&str] = &[
    "queue depth",
    "queue depths",
    "qd…",
    "depth",
    "depths",
    "outstanding",
    "in flight",
    "iodepth",
    "threads",
    "thread",
    "jobs",
    "users",
    "user",
    "clients",
    "workers",
    "concurrent…",
    "concurrency",
    "open loop",
    "offered",
    "poisson",
    "streams",
];
/// Words that tell of an open loop.
const OPEN: &[&str] = &[
    "open loop",
    "intended",
    "meant to be",
    "poisson",
    "offered load",
    "fixed rate",
    "constant rate",
    "coordinated omission",
    "arrival…",
    "when it was due",
];
const CLOSED: &[&str] =
    &["closed loop", "queue depth", "qd…", "outstanding", "iodepth", "in flight", "threads", "at depth"];

/// Words of what is set or asked for, and not measured.
const SET: &[&str] = &[
    "limit",
    "limits",
    "limited",
    "cap",
    "capped",
    "reserved",
    "reservation",
    "required",
    "requirement",
    "at most",
];

pub(super) fn look(claims: &mut Claims<'_>) {
    let mut found = Vec::new();
    for (section, _, sentences) in claims.text.paragraphs() {
        for sentence in sentences {
            let unlike = unlike_arms(sentence).or_else(|| unlike_names(claims.source, sentence));
            found.extend(unlike.map(|(at, why)| ("same-load", at, why)));
            if let Some(at) = told_as_response(sentence) {
                let around = claims.text.around(section);
                if has(&around, CLOSED) && !has(&around, OPEN) {
                    let why = "the load was a closed loop: an I/O that waits keeps the next from being issued, and a stall is one slow I/O";
                    found.push(("closed-loop", at, why.to_owned()));
                }
            }
        }
    }
    for (section, _, rows) in claims.text.tables() {
        found.extend(unlike_rows(rows, &claims.text.around(section)).map(|(at, why)| ("same-load", at, why)));
    }
    found.extend(without_depth(claims).into_iter().map(|at| {
        (
            "queue-depth",
            at,
            "nothing says how many I/Os were in flight, or at which rate they came".to_owned(),
        )
    }));
    found.into_iter().for_each(|(rule, at, why)| claims.find(rule, at, why));
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
        if let ([a], [b]) = (on_left.as_slice(), on_right.as_slice())
            && a != b
        {
            return Some((
                sentence.at.clone(),
                format!("one arm has {name} {}, the other {}", short(*a), short(*b)),
            ));
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
    let side = |left: bool| {
        let of: Vec<&Quantity> = all.iter().filter(|one| (one.token < cut) == left).collect();
        let rates: Vec<Unit> =
            of.iter().map(|one| one.unit).filter(|unit| matches!(unit, Unit::Rate(_))).collect();
        let loads: Vec<(String, f64)> =
            of.iter().filter_map(|one| Some((circumstance(sentence, one)?, one.value))).collect();
        (rates, loads)
    };
    let ((left_rates, left), (right_rates, right)) = (side(true), side(false));
    match (left.as_slice(), right.as_slice()) {
        ([(of, a)], [(same, b)])
            if left_rates.len() == 1 && left_rates == right_rates && of == same && a != b =>
        {
            let why = format!("one arm has {of} {}, the other {}", short(*a), short(*b));
            Some((sentence.at.clone(), why))
        }
        _ => None,
    }
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

/// A figure that is told as what somebody waits for.
fn told_as_response(sentence: &Piece) -> Option<Range<usize>> {
    const WAITED: &[&str] = &[
        "response time",
        "response times",
        "users see",
        "users wait",
        "users experience",
        "user sees",
        "sla",
    ];
    let time = quantities(&sentence.tokens).into_iter().find(|quantity| quantity.unit == Unit::Time)?;
    (has(&sentence.plain, WAITED) && !has(&sentence.plain, &["service time", "service times"]))
        .then_some(time.at)
}

/// The first rate of a section in which nothing tells of a depth.
fn without_depth(claims: &Claims<'_>) -> Option<Range<usize>> {
    claims.text.blocks.iter().find_map(|(section, block)| {
        let at = first_rate(block)?;
        // 'at 1,000 IOPS' is a rate at which they came.
        let offered = claims.source[..at.start].trim_end().ends_with(" at");
        (!offered && !has(&claims.text.around(*section), IN_FLIGHT)).then_some(at)
    })
}

/// The pieces of a block in which figures may be measured ones: not those of what is set or asked for.
pub(super) fn measured(block: &Block) -> impl Iterator<Item = &Piece> {
    let is_set = |piece: &&Piece| has(&piece.plain, SET);
    let set_columns: Vec<usize> = match block {
        Block::Table(rows) => (0..rows[0].len()).filter(|column| is_set(&&rows[0][*column])).collect(),
        _ => Vec::new(),
    };
    let pieces: Vec<&Piece> = match block {
        Block::Table(rows) => {
            let cells = rows.iter().flat_map(|row| row.iter().enumerate());
            cells.filter(|(column, _)| !set_columns.contains(column)).map(|(_, cell)| cell).collect()
        }
        Block::Paragraph(sentences) => sentences.iter().collect(),
        Block::Heading(..) => Vec::new(),
    };
    pieces.into_iter().filter(move |piece| !is_set(piece))
}

/// The first figure of I/Os a second.
pub(super) fn first_rate(block: &Block) -> Option<Range<usize>> {
    if let Block::Table(rows) = block {
        let is_rate = |title: &Piece| {
            matches!(column_unit(title), Some((Unit::Rate("IOPS"), _))) && !has(&title.plain, SET)
        };
        let column = rows[0].iter().position(is_rate);
        let cell = column.and_then(|column| rows[1..].iter().find_map(|row| row.get(column)));
        if let Some(cell) = cell.filter(|cell| cell.tokens.iter().any(|token| token.number().is_some())) {
            return Some(cell.at.clone());
        }
    }
    measured(block).find_map(|piece| {
        let all = quantities(&piece.tokens);
        all.into_iter()
            .find(|one| matches!(one.unit, Unit::Rate("IOPS")) && one.value >= 10.0)
            .map(|one| one.at)
    })
}
