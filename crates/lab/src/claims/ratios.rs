//! `one-ratio` and `interval`: "three times faster".

use super::Claims;
use super::quantity::{Quantity, Unit, quantities};
use super::text::Piece;
use super::tokens::has;
use std::collections::BTreeSet;
use std::ops::Range;

/// Beside the last digit that is written, so much of a ratio may be lost by rounding both figures.
const ROUNDING: f64 = 0.03;

/// A ratio, as it is claimed.
#[derive(Clone, Debug)]
struct Ratio {
    /// What would be in keeping with it.
    low: f64,
    high: f64,
    at: Range<usize>,
}

pub(super) fn look(claims: &mut Claims<'_>) {
    let mut found = Vec::new();
    let mut said: Vec<(Ratio, BTreeSet<String>, BTreeSet<String>)> = Vec::new();
    let text = &claims.text;
    let pieces = text.blocks.iter().flat_map(|(_, block)| block.pieces());
    let known: BTreeSet<String> = pieces.flat_map(|piece| capitals(claims.source, piece).skip(1)).collect();
    let headings = text.blocks.iter().filter_map(|(section, block)| match block {
        super::text::Block::Heading(_, piece) => Some((*section, std::slice::from_ref(piece))),
        super::text::Block::Paragraph(sentences) => Some((*section, sentences.as_slice())),
        super::text::Block::Table(_) => None,
    });
    for (section, sentences) in headings {
        for (number, sentence) in sentences.iter().enumerate() {
            for ratio in ratios(sentence) {
                if let Some(why) = against_figures(&ratio, sentences, number) {
                    found.push(("one-ratio", ratio.at.clone(), why));
                }
                let names = names(claims.source, sentence, &known);
                if names.len() >= 2 {
                    said.push((ratio.clone(), names, loads(sentence)));
                }
                if is_faster(sentence) && !has_interval(&text.around(section)) {
                    let why = "a difference is claimed, and nothing says how far the runs spread".to_owned();
                    found.push(("interval", ratio.at.clone(), why));
                }
            }
        }
    }
    for (number, (ratio, names, load)) in said.iter().enumerate() {
        let other = said[..number].iter().find(|(other, its_names, its_load)| {
            its_names == names && its_load == load && (other.high < ratio.low || ratio.high < other.low)
        });
        if let Some((other, ..)) = other {
            let why = format!("elsewhere it is '{}'", claims.source[other.at.clone()].trim());
            found.push(("one-ratio", ratio.at.clone(), why));
        }
    }
    found.into_iter().for_each(|(rule, at, why)| claims.find(rule, at, why));
}

/// Words that make a multiple or a share one of performance.
const COMPARED: &[&str] = &[
    "faster",
    "slower",
    "more",
    "higher",
    "lower",
    "better",
    "quicker",
    "outperform…",
    "speedup",
    "performance",
    "throughput",
    "iops",
    "tpm",
    "transactions",
    "times the",
    "rate of",
    "as fast",
    "as many",
];

fn ratios(sentence: &Piece) -> Vec<Ratio> {
    if !has(&sentence.plain, COMPARED) {
        return Vec::new();
    }
    let word = |at: usize| sentence.tokens.get(at).and_then(|token| token.word()).unwrap_or_default();
    let all = quantities(&sentence.tokens);
    let claimed = all.iter().filter_map(|quantity| {
        let after = quantity.token + if quantity.unit == Unit::Percent { 2 } else { 1 };
        let value = match quantity.unit {
            Unit::Ratio => quantity.value,
            Unit::Percent if matches!(word(after), "faster" | "more" | "higher" | "better" | "greater") => {
                1.0 + quantity.value / 100.0
            }
            _ => return None,
        };
        // What is divided is not claimed: 'three times a day', 'four times out of five', a range '1.4 to 1.6 ×'.
        let ratio_of_none = matches!(word(quantity.token + 2), "a" | "an" | "out" | "in" | "per" | "over");
        let in_range = quantity.token >= 2
            && matches!(word(quantity.token - 1), "to" | "and")
            && sentence.tokens[quantity.token - 2].number().is_some();
        if ratio_of_none || in_range || value <= 1.0 {
            return None;
        }
        let ratio =
            claimed_as(quantity, value, |far| quantity.token.checked_sub(far).map(word).unwrap_or_default());
        // 'triple the RAM' is none of performance.
        let of_what = matches!(word(quantity.token), "double" | "triple" | "quadruple");
        (!of_what || says_performance(&ratio, sentence)).then_some(ratio)
    });
    claimed.collect()
}

fn claimed_as<'a>(quantity: &Quantity, value: f64, before: impl Fn(usize) -> &'a str) -> Ratio {
    let half =
        if quantity.unit == Unit::Percent { quantity.rounding / 100.0 } else { quantity.rounding.min(0.5) };
    let near = value * ROUNDING + if half >= 0.5 { 0.1 * value } else { half };
    let (low, high) = match (before(2), before(1)) {
        ("more", "than") | (_, "over" | "above" | "exceeding") | ("at", "least") => {
            (value * 0.995, f64::INFINITY)
        }
        ("up", "to") => (0.0, value + near),
        ("less", "than") | (_, "under" | "below") => (0.0, value * 1.005),
        (_, "about" | "nearly" | "almost" | "around" | "roughly" | "some" | "approximately") => {
            (value * 0.85, value * 1.15)
        }
        _ => (value - near, value + near),
    };
    Ratio { low, high, at: quantity.at.clone() }
}

/// Why a ratio is not that of the only two figures beside it.
fn against_figures(ratio: &Ratio, sentences: &[Piece], number: usize) -> Option<String> {
    if has(
        &sentences[number].plain,
        &["target", "limit", "within", "every", "each", "timeout", "times the load"],
    ) {
        return None;
    }
    let windows =
        [number..number + 1, number.saturating_sub(1)..number + 1, number..(number + 2).min(sentences.len())];
    for window in windows {
        // Two ratios in one place: which is of which figures cannot be told, but where one is theirs and the other is said of the same.
        let others: Vec<Ratio> = sentences[window.clone()].iter().flat_map(ratios).collect();
        let contradicted = window.len() == 1 && says_performance(ratio, &sentences[number]);
        if others.len() > 1 && !contradicted {
            continue;
        }
        let all: Vec<Quantity> =
            sentences[window.clone()].iter().flat_map(|sentence| quantities(&sentence.tokens)).collect();
        let mut pairs = pairs(&all);
        if pairs.is_empty() && has(&sentences[number].plain, &["iops", "tpm", "tps", "nopm"]) {
            pairs.extend(sentences[window].iter().filter_map(bare_pair));
        }
        let [(a, b)] = pairs.as_slice() else { if pairs.is_empty() { continue } else { return None } };
        let quotient = a.max(*b) / a.min(*b);
        // '2 times faster' may mean twice or three times as fast.
        let kept = |of: &Ratio, quotient: f64| (of.low..=of.high).contains(&quotient);
        if others.len() > 1 && !others.iter().any(|other| other.at != ratio.at && kept(other, quotient)) {
            continue;
        }
        return (!kept(ratio, quotient) && !kept(ratio, quotient - 1.0))
            .then(|| format!("the figures beside it, {a} and {b}, are {quotient:.2} times each other"));
    }
    None
}

/// Whether what is so many times another is said, and is performance: 'three times the transactions', and not 'three times the price'.
fn says_performance(ratio: &Ratio, sentence: &Piece) -> bool {
    const OF: &[&str] = &[
        "transactions",
        "iops",
        "tpm",
        "throughput",
        "performance",
        "faster",
        "fast",
        "rate",
        "i/os",
        "speed",
    ];
    let behind = sentence.tokens.iter().filter(|token| token.at.start >= ratio.at.end);
    behind.take(3).filter_map(|token| token.word()).any(|word| OF.contains(&word))
}

/// The figures of each unit of which there are two, as they are written.
fn pairs(all: &[Quantity]) -> Vec<(f64, f64)> {
    let counted = |unit: &Unit| matches!(unit, Unit::Rate(_) | Unit::Throughput(_) | Unit::Time);
    let mut pairs = Vec::new();
    for (number, first) in all.iter().enumerate().filter(|(_, quantity)| counted(&quantity.unit)) {
        let same: Vec<&Quantity> = all.iter().filter(|other| like(other, first, all)).collect();
        let is_first = !all[..number].iter().any(|other| like(other, first, all));
        if same.len() == 2
            && is_first
            && same[0].value != same[1].value
            && same.iter().all(|one| one.value > 0.0)
        {
            pairs.push((same[0].value, same[1].value));
        }
    }
    pairs
}

/// `118,417 against 44,821`: the only large numbers of a sentence, whose unit is said elsewhere.
fn bare_pair(sentence: &Piece) -> Option<(f64, f64)> {
    let all = quantities(&sentence.tokens);
    let large: Vec<&Quantity> =
        all.iter().filter(|one| one.unit == Unit::None && one.written >= 1000.0).collect();
    let [a, b] = large.as_slice() else { return None };
    let between: Vec<&str> =
        sentence.tokens[a.token + 1..b.token].iter().filter_map(|token| token.word()).collect();
    let against = matches!(between.as_slice(), ["against" | "versus" | "vs"] | ["compared", "with" | "to"]);
    // '5000 against 4000 customers' says what they are of.
    let behind = sentence.tokens.get(b.token + 1).and_then(|token| token.word());
    let is_bare = behind.is_none_or(|word| matches!(word, "for" | "on" | "of" | "by" | "with" | "in" | "at"));
    (against && is_bare && a.value != b.value).then_some((a.value, b.value))
}

/// Of one unit; a large number without any belongs to the one that has one: '118,417 TPM against 44,821'.
fn like(other: &Quantity, first: &Quantity, all: &[Quantity]) -> bool {
    let bare = other.unit == Unit::None && other.written >= 1000.0 && matches!(first.unit, Unit::Rate(_));
    let alone = all.iter().filter(|one| one.unit == first.unit).count() == 1;
    other.unit == first.unit || (bare && alone)
}

/// Names in a sentence: words with capitals that elsewhere have them without beginning a sentence.
fn names(source: &str, sentence: &Piece, known: &BTreeSet<String>) -> BTreeSet<String> {
    capitals(source, sentence).filter(|word| known.contains(word)).collect()
}

/// The first word, whatever it is, and then each with a capital that is no unit and no usual word.
fn capitals<'a>(source: &'a str, sentence: &'a Piece) -> impl Iterator<Item = String> + 'a {
    const COMMON: &[&str] = &[
        "the", "in", "a", "an", "it", "we", "our", "with", "at", "iops", "tpm", "nopm", "mb", "gb", "tb",
        "mib", "gib", "vm", "vms", "p", "io", "ssd", "nvme", "db", "and", "this", "these", "both", "on",
        "for", "k", "x", "when", "its", "i", "os",
    ];
    let capital = |at: &Range<usize>| source[at.clone()].chars().next().is_some_and(char::is_uppercase);
    let words =
        sentence.tokens.iter().enumerate().filter_map(|(place, token)| Some((place, token, token.word()?)));
    words
        .filter(move |(place, token, word)| *place == 0 || (capital(&token.at) && !COMMON.contains(word)))
        .map(|(_, _, word)| word.trim_end_matches("'s").to_owned())
}

/// What sets one comparison apart from another: the I/Os, their number in flight, what is done.
fn loads(sentence: &Piece) -> BTreeSet<String> {
    const WORDS: &[&str] = &[
        "read",
        "reads",
        "write",
        "writes",
        "random",
        "sequential",
        "latency",
        "backup",
        "restore",
        "recovery",
        "migration",
        "clone",
        "boot",
        "backups",
        "restores",
    ];
    let mut loads: BTreeSet<String> = sentence
        .tokens
        .iter()
        .filter_map(|token| token.word())
        .filter(|word| WORDS.contains(word))
        .map(|word| word.trim_end_matches('s').to_owned())
        .collect();
    let of = quantities(&sentence.tokens);
    loads.extend(
        of.iter()
            .filter(|one| matches!(one.unit, Unit::Block | Unit::Load(_)))
            .map(|one| format!("{:?} {}", one.unit, one.value)),
    );
    loads
}

fn is_faster(sentence: &Piece) -> bool {
    let plain = &sentence.plain;
    has(plain, &["faster", "slower", "outperform…", "quicker", "speedup"])
        || (has(plain, &["more", "higher", "better", "lower", "times the", "as many"])
            && has(plain, &["performance", "throughput", "iops", "tpm", "latency", "transactions"]))
}

/// Anything that tells how far runs spread.
fn has_interval(plain: &str) -> bool {
    has(
        plain,
        &[
            "ci",
            "confidence",
            "interval",
            "intervals",
            "±",
            "pairs",
            "rounds",
            "runs",
            "deviation",
            "spread",
            "noise",
            "range",
            "repeated",
            "repetitions",
            "median of",
            "rates spread",
        ],
    )
}
