//! Names made from times: `20261123T184005Z`, which sort by time.

use crate::Zone;
use stonefold_env::WallNanos;
use stonefold_types::Name;

const SECOND: WallNanos = 1_000_000_000;

/// The name of an instant, to the second.
fn of(at: WallNanos) -> Name {
    let text = Zone::utc().local(at).strftime("%Y%m%dT%H%M%SZ").to_string();
    Name::new(&text).expect("digits make a name")
}

/// For people: `2026-11-23 18:40:05 UTC`.
pub(crate) fn shown(at: WallNanos) -> String {
    Zone::utc().local(at).strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// The name of an instant, or of the first second after it that nobody has.
pub(crate) fn free(at: WallNanos, is_taken: impl Fn(&Name) -> bool) -> Name {
    let names = (0..).map(|later| of(at.saturating_add(later * SECOND)));
    names.into_iter().find(|name| !is_taken(name)).expect("time goes on")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_sort_by_time_and_are_never_one_that_is_taken() {
        let at = 1_795_459_205 * SECOND;
        assert_eq!(of(at).as_str(), "20261123T184005Z");
        let taken = [of(at), of(at + SECOND)];
        let next = free(at, |name| taken.contains(name));
        assert_eq!(next.as_str(), "20261123T184007Z");
        assert!(taken.iter().all(|name| *name < next));
    }
}
