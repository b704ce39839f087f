//! Streams that do the same, each on a volume of its own: ten that are numbered are one to whoever reads a report.

use super::PointLoad;
use std::ops::Range;

impl PointLoad {
    /// Streams next to each other that are numbered, of one name, each time with the load of all of them; any other by itself.
    pub fn together(loads: &[PointLoad]) -> Vec<(Range<usize>, PointLoad)> {
        alike(loads).into_iter().map(|range| (range.clone(), sum(&loads[range]))).collect()
    }
}

fn alike(loads: &[PointLoad]) -> Vec<Range<usize>> {
    let base = |load: &PointLoad| {
        load.name.rsplit_once('-').map(|(base, number)| (base.to_owned(), number.parse::<u32>().is_ok()))
    };
    let mut found: Vec<Range<usize>> = Vec::new();
    for (at, load) in loads.iter().enumerate() {
        let same =
            at > 0 && base(load).is_some_and(|(_, numbered)| numbered) && base(load) == base(&loads[at - 1]);
        match found.last_mut() {
            Some(last) if same => last.end = at + 1,
            _ => found.push(at..at + 1),
        }
    }
    found
}

/// One load of several, of which there is one at least.
fn sum(loads: &[PointLoad]) -> PointLoad {
    let (first, last) = (&loads[0], &loads[loads.len() - 1]);
    let number = last.name.rsplit_once('-').map_or("", |(_, number)| number);
    PointLoad {
        name: if loads.len() > 1 { format!("{} to {number}", first.name) } else { first.name.clone() },
        outstanding: loads.iter().map(|load| load.outstanding).sum(),
        rate: loads.iter().map(|load| load.rate).sum(),
        ..first.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbered_streams_are_one() {
        let load = |name: &str, outstanding| PointLoad {
            stream: 0,
            name: name.to_owned(),
            outstanding,
            rate: outstanding.is_none().then_some(5.0),
            arrivals: None,
        };
        let loads = [
            load("db", Some(8)),
            load("log-1", Some(1)),
            load("log-2", Some(2)),
            load("scan-1", None),
            load("scan-2", None),
            load("4k-read", Some(1)),
        ];
        let found = PointLoad::together(&loads);
        let told: Vec<_> =
            found.iter().map(|(range, load)| (range.clone(), load.name.as_str(), load.words())).collect();
        let of = |range, name, words: &str| (range, name, words.to_owned());
        assert_eq!(
            told,
            [
                of(0..1, "db", "closed, 8 in flight"),
                of(1..3, "log-1 to 2", "closed, 3 in flight"),
                of(3..5, "scan-1 to 2", "open, 10/s"),
                of(5..6, "4k-read", "closed, 1 in flight"),
            ]
        );
    }
}
