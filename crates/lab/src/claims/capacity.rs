//! `capacity`: bytes of which it is not said whether they are logical, written or physical.

use super::Claims;
use super::quantity::{Quantity, Unit, quantities};
use super::text::Piece;
use super::tokens::has;
use std::ops::Range;

/// What tells of which kind a capacity is, and the kind.
const KINDS: &[(&str, Kind)] = &[
    ("logical", Kind::Logical),
    ("provisioned", Kind::Logical),
    ("virtual", Kind::Logical),
    ("effective", Kind::Logical),
    ("written", Kind::Written),
    ("ingested", Kind::Written),
    ("original", Kind::Written),
    ("unique", Kind::Written),
    ("physical", Kind::Physical),
    ("raw", Kind::Physical),
    ("usable", Kind::Physical),
    ("stored", Kind::Physical),
    ("allocated", Kind::Physical),
    ("disk", Kind::Physical),
    ("flash", Kind::Physical),
    ("consumed", Kind::Physical),
];
/// Words of what reduces data, or of how well.
const REDUCTION: &[&str] = &[
    "deduplication",
    "dedupe",
    "dedup",
    "compression",
    "compressed",
    "deduplicated",
    "reduction",
    "savings",
    "saves",
    "saved",
    "efficiency",
    "thin",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Logical,
    Written,
    Physical,
}

pub(super) fn look(claims: &mut Claims<'_>) {
    let mut found = Vec::new();
    for (_, _, sentences) in claims.text.paragraphs() {
        for sentence in sentences {
            let all: Vec<Quantity> =
                quantities(&sentence.tokens).into_iter().filter(|one| one.unit == Unit::Capacity).collect();
            found.extend(priced(sentence));
            let mixed = compared(sentence, &all).or_else(|| reduced(sentence, &all));
            found.extend(mixed.or_else(|| held(sentence, &all)));
        }
    }
    found.into_iter().for_each(|(at, why)| claims.find("capacity", at, why));
}

/// `$0.20 per GB`, of which kind nothing says.
fn priced(sentence: &Piece) -> Option<(Range<usize>, String)> {
    let money = |token: &super::tokens::Token| token.is_mark('$') || token.is_mark('€');
    let at = sentence.tokens.iter().position(money)?;
    let rest = &sentence.tokens[at..];
    let unit = rest.iter().position(|token| matches!(token.word(), Some("tb" | "gb" | "tib" | "gib")))?;
    let per = unit > 0 && (rest[unit - 1].is_mark('/') || matches!(rest[unit - 1].word(), Some("per" | "a")));
    if !per || KINDS.iter().any(|(word, _)| has(&sentence.plain, &[word])) {
        return None;
    }
    let place = rest[0].at.start..rest[unit].at.end;
    Some((place, "nothing says of which capacity: logical, written or physical".into()))
}

/// Two capacities of different kinds, held against each other as if they were of one.
fn compared(sentence: &Piece, all: &[Quantity]) -> Option<(Range<usize>, String)> {
    let [a, b] = all else { return None };
    let between = sentence.tokens[a.token..b.token]
        .iter()
        .any(|token| matches!(token.word(), Some("than" | "against" | "versus" | "vs")));
    let kinds = (kind(sentence, a)?, kind(sentence, b)?);
    let reduces = has(&sentence.plain, REDUCTION) || has(&sentence.plain, &["ratio"]);
    (between && kinds.0 != kinds.1 && !reduces).then(|| {
        (a.at.start..b.at.end, format!("{:?} capacity against {:?}", kinds.0, kinds.1).to_lowercase())
    })
}

/// A reduction, with a capacity of which the kind is not told.
fn reduced(sentence: &Piece, all: &[Quantity]) -> Option<(Range<usize>, String)> {
    let [a, b] = all else { return None };
    // Room that is saved is the difference of two, and says so.
    if !has(&sentence.plain, REDUCTION) || a.value.max(b.value) / a.value.min(b.value) < 1.2 {
        return None;
    }
    let untold = [a, b].into_iter().find(|one| kind(sentence, one).is_none())?;
    Some((untold.at.clone(), "nothing says whether it is logical, written or physical".into()))
}

/// `40 TB of VMs on 15 TB of flash`: more on less, and nothing says what the more is.
fn held(sentence: &Piece, all: &[Quantity]) -> Option<(Range<usize>, String)> {
    const HELD: &[&str] =
        &["vms", "machines", "desktops", "guests", "databases", "data", "backups", "images"];
    // Of several such, or of a part that is kept twice, the sum cannot be told.
    const OF_MANY: &[&str] =
        &["each", "every", "per", "nodes", "tier", "tiers", "tiered", "cache", "cached", "caching", "rest"];
    let [more, less] = all else { return None };
    let word = |at: usize| sentence.tokens.get(at).and_then(|token| token.word()).unwrap_or_default();
    let on = (1..=2).find_map(|far| match (far, word(less.token - far)) {
        (_, "on" | "onto" | "in" | "into") => Some(less.token - far),
        _ => None,
    })?;
    let between = || (more.token + 2..on).map(word);
    let is_held = between().all(|word| !word.is_empty()) && between().any(|word| HELD.contains(&word));
    let reduces = more.value / less.value >= 1.2 && kind(sentence, less) == Some(Kind::Physical);
    // Of a machine it says nothing that it is virtual.
    let tells = |word: &str, kind: Kind| kind != Kind::Physical && word != "virtual";
    let untold = !KINDS.iter().any(|(word, kind)| tells(word, *kind) && has(&sentence.plain, &[word]));
    (is_held && reduces && untold && !has(&sentence.plain, OF_MANY))
        .then(|| (more.at.start..less.at.end, "nothing says whether the first is logical or written".into()))
}

/// The kind that is told within four words of a capacity, and nearer to it than to the other.
fn kind(sentence: &Piece, of: &Quantity) -> Option<Kind> {
    let kind_of = |at: usize| {
        let word = sentence.tokens.get(at).and_then(|token| token.word())?;
        KINDS.iter().find(|(name, _)| *name == word).map(|(_, kind)| *kind)
    };
    let behind = (of.token + 1..of.token + 7).take_while(|at| {
        !sentence.tokens.get(*at).is_some_and(|token| token.number().is_some() || token.is_mark(';'))
    });
    let before = (1..=4)
        .filter_map(|far| of.token.checked_sub(far))
        .take_while(|at| sentence.tokens[*at].number().is_none());
    behind.filter_map(kind_of).next().or_else(|| before.filter_map(kind_of).next())
}
