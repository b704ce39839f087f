//! Numbers with what they are of.

use super::tokens::{Token, TokenKind};
use std::ops::Range;

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// I/Os, operations or transactions a second or a minute: by name, as only equals are compared.
    Rate(&'static str),
    /// Bytes a second.
    Throughput(Prefix),
    /// Bytes.
    Capacity,
    /// Bytes of an I/O: `4K`.
    Block,
    /// Seconds.
    Time,
    Percent,
    /// So many times.
    Ratio,
    /// Concurrency, or another circumstance of a load: by name.
    Load(&'static str),
    /// `p99`: percent.
    Percentile,
    /// Nothing beside it.
    None,
}

/// How the prefix of a unit is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prefix {
    /// `MB`: 10^6.
    Decimal,
    /// `MiB`: 2^20.
    Binary,
}

/// A number in a text.
#[derive(Clone, Debug)]
pub(super) struct Quantity {
    /// In the unit's base: bytes, seconds, times, percent.
    pub value: f64,
    /// As it is written.
    pub written: f64,
    /// Half of its last digit, in the base.
    pub rounding: f64,
    pub unit: Unit,
    /// What one of the written ones is in the base.
    pub factor: f64,
    pub at: Range<usize>,
    /// Its first token.
    pub token: usize,
}

const RATES: &[(&str, &str)] =
    &[("iops", "IOPS"), ("tpm", "TPM"), ("tpmc", "TPM"), ("nopm", "NOPM"), ("tps", "TPS"), ("ops", "IOPS")];
const LOADS: &[(&str, &str)] = &[
    ("users", "users"),
    ("user", "users"),
    ("threads", "threads"),
    ("thread", "threads"),
    ("clients", "clients"),
    ("workers", "threads"),
    ("jobs", "jobs"),
    ("outstanding", "queue depth"),
];
/// Prefixes of bytes, with powers of ten and of two.
const BYTES: &[(&str, Prefix, f64)] = &[
    ("kb", Prefix::Decimal, 1e3),
    ("mb", Prefix::Decimal, 1e6),
    ("gb", Prefix::Decimal, 1e9),
    ("tb", Prefix::Decimal, 1e12),
    ("pb", Prefix::Decimal, 1e15),
    ("kib", Prefix::Binary, 1024.0),
    ("mib", Prefix::Binary, 1_048_576.0),
    ("gib", Prefix::Binary, 1_073_741_824.0),
    ("tib", Prefix::Binary, 1_099_511_627_776.0),
];
const NUMBER_WORDS: &[(&str, f64)] = &[
    ("two", 2.0),
    ("three", 3.0),
    ("four", 4.0),
    ("five", 5.0),
    ("six", 6.0),
    ("seven", 7.0),
    ("eight", 8.0),
    ("nine", 9.0),
    ("ten", 10.0),
];

/// Every number of some tokens, and what stands for one.
pub(super) fn quantities(tokens: &[Token]) -> Vec<Quantity> {
    (0..tokens.len()).filter_map(|at| quantity(tokens, at)).collect()
}

fn quantity(tokens: &[Token], at: usize) -> Option<Quantity> {
    let next = |far: usize| tokens.get(at + far);
    let word = |far: usize| next(far).and_then(Token::word).unwrap_or_default();
    let of = |value: f64, decimals: u32, unit: Unit, factor: f64, used: usize| {
        let end = tokens[(at + used).min(tokens.len() - 1)].at.end;
        let rounding = 0.5 * 10f64.powi(-(decimals as i32)) * factor;
        Some(Quantity {
            value: value * factor,
            written: value,
            rounding,
            unit,
            factor,
            at: tokens[at].at.start..end,
            token: at,
        })
    };
    let (value, decimals) = match &tokens[at].kind {
        TokenKind::Number { value, decimals } => (*value, *decimals),
        TokenKind::Word(number) if matches!(word(1), "times" | "fold") => {
            let (_, value) = NUMBER_WORDS.iter().find(|(name, _)| name == number)?;
            return of(*value, 0, Unit::Ratio, 1.0, 1);
        }
        TokenKind::Word(name) => return of(multiple(name, word(1))?, 0, Unit::Ratio, 1.0, 0),
        TokenKind::Mark(_) => return None,
    };
    let before = |far: usize| at.checked_sub(far).and_then(|at| tokens[at].word()).unwrap_or_default();
    if before(1) == "p" && tokens[at].glued {
        return of(value, decimals, Unit::Percentile, 1.0, 0);
    }
    if matches!(word(1), "th" | "st" | "rd" | "nd") && word(2).starts_with("percentile") {
        return of(value, decimals, Unit::Percentile, 1.0, 2);
    }
    if before(1) == "qd"
        || before(1) == "iodepth"
        || before(1) == "depth"
        || (before(2) == "depth" && before(1) == "of")
    {
        return of(value, decimals, Unit::Load("queue depth"), 1.0, 0);
    }
    let (unit, factor, used) = unit_of(tokens, at);
    of(value, decimals, unit, factor, used)
}

/// What a word alone says of how many times something is another: `tripled`, and `triple the`, as a triple mirror is three disks.
fn multiple(name: &str, next: &str) -> Option<f64> {
    let of_what = matches!(next, "the" | "that" | "those");
    match name {
        "twice" | "doubles" | "doubled" => Some(2.0),
        "thrice" | "triples" | "tripled" => Some(3.0),
        "quadruples" | "quadrupled" => Some(4.0),
        "double" if of_what => Some(2.0),
        "triple" if of_what => Some(3.0),
        "quadruple" if of_what => Some(4.0),
        _ => None,
    }
}

/// `I/Os`, `I/O operations`, `IOs` and the like, a second: how many tokens that takes from a place on.
fn spelt_rate(tokens: &[Token], from: usize) -> Option<usize> {
    let word = |at: usize| tokens.get(at).and_then(Token::word).unwrap_or_default();
    let mark = |at: usize, mark: char| tokens.get(at).is_some_and(|token| token.is_mark(mark));
    let mut at = match word(from) {
        "i" if mark(from + 1, '/') && matches!(word(from + 2), "o" | "os") => from + 3,
        "io" | "ios" => from + 1,
        _ => return None,
    };
    at += usize::from(matches!(word(at), "operations" | "requests"));
    let a_second = (matches!(word(at), "per" | "a" | "each") && word(at + 1) == "second")
        || (mark(at, '/') && matches!(word(at + 1), "s" | "sec"));
    a_second.then_some(at + 2 - from)
}

/// The unit behind a number, what one of it is, and how many tokens it takes.
fn unit_of(tokens: &[Token], at: usize) -> (Unit, f64, usize) {
    let next = |far: usize| tokens.get(at + far);
    let word = |far: usize| next(far).and_then(Token::word).unwrap_or_default();
    let mark = |far: usize, mark: char| next(far).is_some_and(|token| token.is_mark(mark));
    let rate = |far: usize| {
        let named =
            RATES.iter().find(|(name, _)| *name == word(far)).map(|(_, unit)| (Unit::Rate(unit), far));
        named.or_else(|| Some((Unit::Rate("IOPS"), spelt_rate(tokens, at + far)? + far - 1)))
    };
    if let Some((unit, used)) = rate(1) {
        return (unit, 1.0, used);
    }
    let thousands = match word(1) {
        "k" if next(1).is_some_and(|token| token.glued) => 1e3,
        "m" if next(1).is_some_and(|token| token.glued) => 1e6,
        "million" => 1e6,
        _ => 0.0,
    };
    if thousands > 0.0 {
        if let Some((unit, used)) = rate(2) {
            return (unit, thousands, used);
        }
        if word(1) != "million" {
            return (Unit::Block, if word(1) == "k" { 1024.0 } else { 1_048_576.0 }, 1);
        }
    }
    if let Some((_, prefix, factor)) = BYTES.iter().find(|(name, ..)| *name == word(1)) {
        let per_second = (mark(2, '/') && matches!(word(3), "s" | "sec"))
            || (matches!(word(2), "per" | "a") && word(3) == "second");
        return match per_second {
            true => (Unit::Throughput(*prefix), *factor, 3),
            // Blocks are written in KB and meant in KiB; another number of them is an amount of data.
            false if word(1).starts_with('k') && is_power_of_two(tokens[at].number()) => {
                (Unit::Block, 1024.0, 1)
            }
            false => (Unit::Capacity, *factor, 1),
        };
    }
    if let Some((_, kind)) = LOADS.iter().find(|(name, _)| *name == word(1)) {
        return (Unit::Load(kind), 1.0, 1);
    }
    match word(1) {
        "mbps" => (Unit::Throughput(Prefix::Decimal), 1e6, 1),
        "ms" | "milliseconds" | "millisecond" => (Unit::Time, 1e-3, 1),
        "us" | "µs" | "microseconds" => (Unit::Time, 1e-6, 1),
        "s" | "seconds" => (Unit::Time, 1.0, 1),
        "minutes" | "min" => (Unit::Time, 60.0, 1),
        "percent" => (Unit::Percent, 1.0, 1),
        "times" | "fold" => (Unit::Ratio, 1.0, 1),
        "x" if next(1).is_some_and(|token| token.glued) => (Unit::Ratio, 1.0, 1),
        _ if mark(1, '%') => (Unit::Percent, 1.0, 1),
        _ if mark(1, '×') => (Unit::Ratio, 1.0, 1),
        _ => (Unit::None, 1.0, 0),
    }
}

fn is_power_of_two(number: Option<f64>) -> bool {
    number.is_some_and(|number| number.fract() == 0.0 && (number as u64).is_power_of_two())
}
