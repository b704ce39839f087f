//! Retention by hand, against a model written from the words, and over years of judgements.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const MINUTE: u64 = 60_000_000_000;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

fn keep(text: &str) -> Keep {
    text.parse().unwrap()
}

fn utc(text: &str) -> WallNanos {
    Zone::utc().instant(text.parse().unwrap())
}

/// The points that stay, in the order given.
fn staying(keep: &Keep, points: &[WallNanos], zone: &Zone) -> Vec<WallNanos> {
    let reasons = keep.reasons(points, zone);
    points.iter().zip(reasons).filter(|(_, reasons)| !reasons.is_empty()).map(|(point, _)| *point).collect()
}

#[test]
fn by_hand() {
    let points: Vec<_> = [
        "2025-12-31T23:00",
        "2026-11-01T10:00",
        "2026-11-15T10:00",
        "2026-11-22T09:00",
        "2026-11-23T09:10",
        "2026-11-23T09:50",
        "2026-11-23T10:05",
    ]
    .map(utc)
    .to_vec();
    let stays = |text: &str| {
        let reasons = keep(text).reasons(&points, &Zone::utc());
        reasons.iter().map(|reasons| !reasons.is_empty()).map(u8::from).collect::<Vec<_>>()
    };
    assert_eq!(stays("last=2"), [0, 0, 0, 0, 0, 1, 1]);
    assert_eq!(stays("hourly=2"), [0, 0, 0, 0, 0, 1, 1], "the last of each hour");
    assert_eq!(stays("hourly=3"), [0, 0, 0, 1, 0, 1, 1], "the next hour that has points");
    assert_eq!(stays("daily=2"), [0, 0, 0, 1, 0, 0, 1]);
    assert_eq!(stays("weekly=3"), [0, 0, 1, 1, 0, 0, 1], "the 22nd is a Sunday, the week before's last");
    assert_eq!(stays("monthly=2"), [1, 0, 0, 0, 0, 0, 1]);
    assert_eq!(stays("daily=1,yearly=7"), [1, 0, 0, 0, 0, 0, 1]);
    let reasons = keep("hourly=1,yearly=2").reasons(&points, &Zone::utc());
    assert_eq!(reasons[0], [Period::Year]);
    assert_eq!(reasons[6], [Period::Point, Period::Hour, Period::Year]);
}

/// Goal: the same instants are other days elsewhere.
#[test]
fn days_are_those_of_the_zone() {
    let points = [utc("2026-06-01T21:00"), utc("2026-06-01T23:00")];
    assert_eq!(staying(&keep("daily=2"), &points, &Zone::utc()), points[1..]);
    assert_eq!(staying(&keep("daily=2"), &points, &"Europe/Berlin".parse().unwrap()), points);
}

#[test]
fn what_keeps_nothing_or_is_not_understood_is_refused() {
    for bad in ["", "daily", "daily=", "daily=-1", "dayly=3", "daily=3,daily=4", "daily=0", "daily=9999999"] {
        assert!(bad.parse::<Keep>().is_err(), "{bad}");
    }
    let text = "hourly=24,daily=30,weekly=8,monthly=12,yearly=7";
    assert_eq!(keep(text).to_string(), text);
    assert_eq!(keep(" yearly=7 , last=3 ").to_string(), "last=3,yearly=7");
}

/// Goal: three years of hourly points, judged every hour, are in the end what one judgement of all would have left.
#[test]
fn judging_often_leaves_what_judging_once_does() {
    let (keep, zone) =
        (keep("hourly=24,daily=30,weekly=8,monthly=12,yearly=7"), "Europe/Berlin".parse().unwrap());
    let begin = utc("2023-05-17T03:07");
    let all: Vec<WallNanos> = (0..3 * 365 * 24).map(|hour| begin + hour * HOUR).collect();
    let mut points = Vec::new();
    for point in &all {
        points.push(*point);
        points = staying(&keep, &points, &zone);
        assert!(points.len() <= 24 + 30 + 8 + 12 + 7);
    }
    assert_eq!(points, staying(&keep, &all, &zone));
    assert_eq!(
        points.len(),
        67,
        "24 hours, 30 days, 8 weeks, 12 months and 4 years, but for those that are one"
    );
}

/// From the words: group by period, take each one's last, keep the newest so many.
fn model(keep: &Keep, points: &[WallNanos], zone: &Zone) -> BTreeSet<usize> {
    let mut stays = BTreeSet::new();
    for (period, format) in [
        (Period::Hour, "%Y-%m-%d %H"),
        (Period::Day, "%Y-%m-%d"),
        (Period::Week, "%G-%V"),
        (Period::Month, "%Y-%m"),
        (Period::Year, "%Y"),
    ] {
        let mut last_of: BTreeMap<String, usize> = BTreeMap::new();
        for (at, point) in points.iter().enumerate() {
            let name = zone.local(*point).strftime(format).to_string();
            let last = last_of.entry(name).or_insert(at);
            if (points[*last], *last) < (*point, at) {
                *last = at;
            }
        }
        stays.extend(last_of.into_values().rev().take(keep.count(period) as usize));
    }
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_by_key(|at| (points[*at], *at));
    stays.extend(order.into_iter().rev().take(keep.count(Period::Point).max(1) as usize));
    stays
}

fn keeps() -> impl Strategy<Value = Keep> {
    prop::array::uniform6(0u32..6).prop_map(Keep)
}

proptest! {
    #[test]
    fn as_the_words_say(
        keep in keeps(),
        minutes in prop::collection::vec(0u64..3 * 365 * 24 * 60, 0..60),
        close in any::<bool>(),
        zone in prop::sample::select(vec!["UTC", "America/New_York", "Australia/Lord_Howe"]),
    ) {
        let zone: Zone = zone.parse().unwrap();
        let scale = if close { 300 } else { 1 };
        let points: Vec<_> =
            minutes.iter().map(|minute| utc("2024-01-01T00:00") + minute / scale * MINUTE).collect();
        let reasons = keep.reasons(&points, &zone);
        let stays: BTreeSet<usize> = (0..points.len()).filter(|at| !reasons[*at].is_empty()).collect();
        prop_assert_eq!(stays, model(&keep, &points, &zone));
    }

    /// Goal: a second judgement of the same points takes nothing more, and the newest always stays.
    #[test]
    fn judging_again_changes_nothing(keep in keeps(), days in prop::collection::vec(0u64..1500, 1..60)) {
        let points: Vec<_> = days.iter().map(|day| day * DAY).collect();
        let once = staying(&keep, &points, &Zone::utc());
        prop_assert_eq!(staying(&keep, &once, &Zone::utc()), once.clone());
        prop_assert!(once.contains(points.iter().max().unwrap()));
    }

    #[test]
    fn noise_is_survived(text in "\\PC{0,30}") {
        let _ = text.parse::<Keep>();
    }
}

/// Only what stays for good is settled: the last of a period of which a later one has a point.
#[test]
fn settled_by_hand() {
    let points: Vec<_> =
        ["2026-09-30T10:00", "2026-10-15T10:00", "2026-10-31T22:00", "2026-10-31T23:00", "2026-11-01T00:00"]
            .map(utc)
            .to_vec();
    let settled = |text: &str, upto: usize| {
        let settled = keep(text).settled(&points[..upto], &Zone::utc());
        settled.into_iter().map(u8::from).collect::<Vec<_>>()
    };
    assert_eq!(settled("monthly=12", 4), [1, 0, 0, 0], "October is not over");
    assert_eq!(settled("monthly=12", 5), [1, 0, 0, 1, 0]);
    assert_eq!(settled("monthly=1", 5), [0, 0, 0, 1, 0], "November is not over, and not counted");
    assert_eq!(settled("monthly=2", 5), [1, 0, 0, 1, 0]);
    assert_eq!(settled("monthly=1", 4), [1, 0, 0, 0]);
    assert_eq!(settled("last=2", 5), [0, 0, 0, 1, 1], "each point is a period, and over");
    assert_eq!(settled("yearly=7", 5), [0; 5]);
    assert!(settled("daily=3", 0).is_empty());
}

proptest! {
    /// What is settled stays so, whatever points come later, as long as its period is counted.
    #[test]
    fn what_is_settled_stays(gaps in prop::collection::vec(1u64..90, 1..60), upto: prop::sample::Index) {
        let mut at = utc("2026-01-01T00:00");
        let points: Vec<WallNanos> = gaps.iter().map(|gap| { at += gap * HOUR; at }).collect();
        let upto = upto.index(points.len()) + 1;
        let keep = keep("daily=1000,weekly=100,monthly=50");
        let before = keep.settled(&points[..upto], &Zone::utc());
        let after = keep.settled(&points, &Zone::utc());
        for (before, after) in before.into_iter().zip(after) {
            prop_assert!(!before || after);
        }
    }
}
