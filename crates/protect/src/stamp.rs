//! Names made from times: `20261123T184005Z`, and `20261123T184005Z-02` for the second of one second. They sort in the order in which they were
//! made.

use crate::Zone;
use stonefold_env::WallNanos;
use stonefold_types::Name;

const SECOND: WallNanos = 1_000_000_000;
/// Names of one second: two digits, which sort as they count. More than that are of the next.
const IN_A_SECOND_MAX: u32 = 99;

/// The name of an instant, to the second.
fn of(at: WallNanos) -> Name {
    let text = Zone::utc().local(at).strftime("%Y%m%dT%H%M%SZ").to_string();
    Name::new(&text).expect("digits make a name")
}

/// For people: `2026-11-23 18:40:05 UTC`.
pub(crate) fn shown(at: WallNanos) -> String {
    Zone::utc().local(at).strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// A name for an instant that nobody has: after `last`, where there is one, and so as little later as it can be.
pub(crate) fn free(at: WallNanos, last: Option<&Name>, is_taken: impl Fn(&Name) -> bool) -> Name {
    let second = |later: u64| at.saturating_add(later * SECOND);
    // Trusted time may have been set back by as much as a crash took of it.
    let is_reached = |later: &u64| last.is_none_or(|last| of(second(later + 1)) > *last);
    let first = (0..).find(is_reached).expect("time goes on");
    let names = (first..).flat_map(|later| names_of(of(second(later))));
    let is_free = |name: &Name| last.is_none_or(|last| name > last) && !is_taken(name);
    names.into_iter().find(is_free).expect("time goes on")
}

/// Those of one second, in their order.
fn names_of(second: Name) -> impl Iterator<Item = Name> {
    let later = second.clone();
    let numbered = (2..=IN_A_SECOND_MAX).map(move |number| format!("{later}-{number:02}"));
    std::iter::once(second).chain(numbered.map(|text| Name::new(&text).expect("digits make a name")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_sort_by_time_and_are_never_one_that_is_taken() {
        let at = 1_795_459_205 * SECOND;
        assert_eq!(of(at).as_str(), "20261123T184005Z");
        let mut taken: Vec<Name> = Vec::new();
        for _ in 0..250 {
            taken.push(free(at, taken.last(), |name| taken.contains(name)));
        }
        assert_eq!(taken[1].as_str(), "20261123T184005Z-02");
        assert_eq!(taken[99].as_str(), "20261123T184006Z");
        assert!(taken.windows(2).all(|pair| pair[0] < pair[1]));
        // A clock that went back makes no name before those there are; another's name is passed over.
        let later = free(at - 3600 * SECOND, taken.last(), |_| false);
        assert!(later > taken[249] && later < of(at + 4 * SECOND), "{later}");
        assert_eq!(free(at, None, |name| *name == of(at)).as_str(), "20261123T184005Z-02");
    }
}
