//! `units`: bytes a second that are those of another prefix.
//!
//! A rate of I/Os times their size is a throughput; where that fits in MiB and is called MB, or the reverse, the name is wrong.
//! Both lie 4.9% apart, a third of which is left for rounding.

use super::Claims;
use super::quantity::{Prefix, Quantity, Unit, quantities};
use super::text::Piece;
use std::ops::Range;

/// How far a throughput may be from rate × size to be that, as a share.
const NEAR: f64 = 0.015;

pub(super) fn look(claims: &mut Claims<'_>) {
    let mut found = Vec::new();
    for (_, _, sentences) in claims.text.paragraphs() {
        for sentence in sentences {
            let all = quantities(&sentence.tokens);
            found.extend(wrong_name(&all));
        }
    }
    for (section, _, rows) in claims.text.tables() {
        let headings = claims.text.blocks.iter().filter_map(|(other, block)| match block {
            super::text::Block::Heading(_, piece) if *other == section => {
                Some(block_in(&quantities(&piece.tokens)))
            }
            _ => None,
        });
        let of_section = headings.flatten().next();
        for row in &rows[1..] {
            found.extend(wrong_name(&row_quantities(&rows[0], row, of_section)));
        }
    }
    found.into_iter().for_each(|(at, why)| claims.find("units", at, why));
}

fn block_in(all: &[Quantity]) -> Option<f64> {
    all.iter().find(|one| one.unit == Unit::Block).map(|one| one.value)
}

/// The quantities of a row, with the units that their columns' titles say; `block` is the size where the row has none.
fn row_quantities(head: &[Piece], row: &[Piece], block: Option<f64>) -> Vec<Quantity> {
    let mut all: Vec<Quantity> = Vec::new();
    for (column, cell) in row.iter().enumerate() {
        for mut one in quantities(&cell.tokens) {
            if let (Unit::None, Some((unit, factor))) = (one.unit, head.get(column).and_then(column_unit)) {
                (one.value, one.rounding) = (one.written * factor, one.rounding * factor);
                (one.unit, one.factor) = (unit, factor);
            }
            all.push(one);
        }
    }
    if let (None, Some(block)) =
        (block_in(&all), block.or_else(|| head.iter().find_map(|cell| block_in(&quantities(&cell.tokens)))))
    {
        let at = row.first().map_or(0..0, |cell| cell.at.clone());
        all.push(Quantity {
            value: block,
            written: block,
            rounding: 0.0,
            unit: Unit::Block,
            factor: 1.0,
            at,
            token: 0,
        });
    }
    all
}

/// Throughputs that are rate × size only by the other name.
fn wrong_name(all: &[Quantity]) -> Option<(Range<usize>, String)> {
    let of = |wanted: fn(&Unit) -> bool| -> Vec<&Quantity> {
        all.iter().filter(|one| wanted(&one.unit)).collect()
    };
    let rates = of(|unit| matches!(unit, Unit::Rate("IOPS")));
    let blocks = of(|unit| matches!(unit, Unit::Block));
    let throughputs = of(|unit| matches!(unit, Unit::Throughput(_)));
    let ([rate], [block], [through]) = (rates.as_slice(), blocks.as_slice(), throughputs.as_slice()) else {
        return None;
    };
    let bytes = rate.value * block.value;
    let apart = |factor: f64| (through.written * factor / bytes - 1.0).abs();
    let step = through.factor;
    let (prefix, other) = match through.unit {
        Unit::Throughput(Prefix::Decimal) => ("MB", 1024f64.powf((step.log10() / 3.0).round())),
        _ => ("MiB", 1000f64.powf((step.log2() / 10.0).round())),
    };
    // What is written with few digits says nothing of 5%.
    let precise = through.rounding / through.value < NEAR && rate.rounding / rate.value < NEAR;
    if precise && apart(step) > 2.0 * NEAR && apart(other) <= NEAR {
        let meant = if prefix == "MB" { "MiB" } else { "MB" };
        let why = format!(
            "{} I/Os a second of {} bytes are {:.0} {meant}/s, which is what it says",
            rate.written,
            block.value,
            bytes / if prefix == "MB" { 1_048_576.0 } else { 1e6 }
        );
        return Some((through.at.clone(), why));
    }
    None
}

/// What a column's numbers are, by its title: `IOPS`, `MB/s`, `p99, ms`, `threads`.
pub(super) fn column_unit(title: &Piece) -> Option<(Unit, f64)> {
    // A title is read as a number of itself: `1 IOPS`.
    let mut tokens = title.tokens.clone();
    let one = super::tokens::Token {
        kind: super::tokens::TokenKind::Number { value: 1.0, decimals: 0 },
        at: title.at.start..title.at.start,
        glued: false,
    };
    for at in 0..tokens.len() {
        tokens.insert(at, one.clone());
        let found = quantities(&tokens).into_iter().find(|quantity| quantity.token == at);
        tokens.remove(at);
        match found {
            Some(quantity) if !matches!(quantity.unit, Unit::None | Unit::Ratio | Unit::Block) => {
                return Some((quantity.unit, quantity.factor));
            }
            _ => {}
        }
    }
    None
}
