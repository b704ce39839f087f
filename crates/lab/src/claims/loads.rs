//! `same-load` (by its [arms]), `queue-depth` and `closed-loop`: what the storage was asked for.

mod arms;

use super::Claims;
use super::quantity::{Unit, quantities};
use super::text::{Block, Piece};
use super::tokens::has;
use super::units::column_unit;
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
    "trace",
    "traces",
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
    arms::look(claims);
    let mut found = Vec::new();
    for (section, _, sentences) in claims.text.paragraphs() {
        for sentence in sentences {
            if let Some(at) = told_as_response(sentence) {
                let around = claims.text.around(section);
                if has(&around, CLOSED) && !has(&around, OPEN) {
                    let why = "the load was a closed loop: an I/O that waits keeps the next from being issued, and a stall is one slow I/O";
                    found.push(("closed-loop", at, why.to_owned()));
                }
            }
        }
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
