//! Whether the volumes of a profile that is about a cache are as large as it means, against the cache that was measured.

use crate::bundle::Run;
use crate::profile::Profile;
use crate::stats::gates::{Gate, State};
use stonefold_types::Size;

/// How far the volumes may be from what the profile means, as a share: sizes are whole blocks, and caches round.
const APART_MAX: f64 = 0.1;

/// What is to be said of all loads of a run; nothing where the profile is not about a cache.
///
/// A footprint is a part of the volumes, and not of the cache: on volumes of any other size what is told as a quarter of the cache may be
/// all of it, and a fall where a cache ends is not found, or looks like one where there is none.
pub(super) fn gate(profile: &Profile, run: &Run) -> Option<Gate> {
    let meant = profile.of_cache?;
    let gate = |state, why| Some(Gate { name: "cache".into(), state, why });
    let told = run.cache.or(run.system.as_ref().and_then(|system| system.cache));
    let Some(cache) = told else {
        let why = "how large the target's cache is was not told (--cache), so that nobody can say which parts of the volumes fit into it";
        return gate(State::Warn, why.into());
    };
    if cache == 0 {
        return gate(State::Pass, "the target has none".into());
    }
    let times = run.bytes as f64 / cache as f64;
    let why = format!("the volumes, {}, are {times:.2} times the cache of {}", Size(run.bytes), Size(cache));
    match (times / meant - 1.0).abs() <= APART_MAX {
        true => gate(State::Pass, why),
        false => gate(State::Fail, format!("{why}; the profile means {meant} times")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::shipped::find;

    /// Goal: volumes that are not what a profile about a cache means, and a cache of which nobody knows, are said; of other profiles nothing is.
    #[test]
    fn volumes_that_are_not_for_the_cache_are_told() {
        let of = |profile: &str, cache, bytes| {
            gate(&find(profile).unwrap(), &Run { cache, bytes, ..Run::default() })
                .map(|gate| (gate.state, gate.why))
        };
        assert_eq!(of("sqlio", Some(1 << 30), 1 << 30), None);
        assert_eq!(of("corners", None, 10 << 30).unwrap().0, State::Warn);
        assert_eq!(of("corners", Some(4 << 30), 10 << 30).unwrap().0, State::Pass);
        let (state, why) = of("corners", Some(16 << 30), 10 << 30).unwrap();
        assert!(state == State::Fail && why.contains("0.62 times") && why.contains("2.5 times"), "{why}");
        assert_eq!(of("corners", Some(0), 10 << 30).unwrap().0, State::Pass);
    }

    /// Goal: what a system was declared to have counts as told.
    #[test]
    fn a_declared_cache_is_told() {
        let system = crate::system::System { cache: Some(4 << 30), ..crate::system::System::default() };
        let run = Run { bytes: 10 << 30, system: Some(system), ..Run::default() };
        assert_eq!(gate(&find("corners").unwrap(), &run).unwrap().state, State::Pass);
    }
}
