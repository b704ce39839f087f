//! Meta contexts: what `BLOCK_STATUS` can tell about an export.
//!
//! | context | status bits |
//! |---|---|
//! | `base:allocation` | 1: nothing stored, 2: reads as zeros; a hole is both |
//! | `stonefold:changed-since/SNAP` | 1: differs from that snapshot of the same disk |

use std::fmt;
use stonefold_types::Name;

use crate::wire::reply::allocation;

const ALLOCATION: &str = "base:allocation";
const CHANGED_SINCE: &str = "stonefold:changed-since/";

/// Status of a range that differs from the snapshot.
const CHANGED: u32 = 1;

/// One selected context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MetaContext {
    /// Which parts are stored.
    Allocation,
    /// Which parts differ from a snapshot.
    ChangedSince(Name),
}

impl MetaContext {
    /// The status of an extent of which the store says whether it is a hole.
    pub(crate) fn status(&self, hole: bool) -> u32 {
        match (self, hole) {
            (MetaContext::Allocation, true) => allocation::HOLE | allocation::ZERO,
            (MetaContext::ChangedSince(_), false) => CHANGED,
            (MetaContext::Allocation, false) | (MetaContext::ChangedSince(_), true) => 0,
        }
    }

    /// The context that a query of `SET_META_CONTEXT` names exactly, if there is one.
    pub(crate) fn select(query: &str, snapshots: &[Name]) -> Option<MetaContext> {
        if query == ALLOCATION {
            return Some(MetaContext::Allocation);
        }
        let wanted = query.strip_prefix(CHANGED_SINCE)?;
        let found = snapshots.iter().find(|snapshot| snapshot.as_str() == wanted)?;
        Some(MetaContext::ChangedSince(found.clone()))
    }

    /// The contexts that a query of `LIST_META_CONTEXT` covers: one, a whole family, or (`None`) all.
    pub(crate) fn matching(query: Option<&str>, snapshots: &[Name]) -> Vec<MetaContext> {
        let all = std::iter::once(MetaContext::Allocation)
            .chain(snapshots.iter().cloned().map(MetaContext::ChangedSince));
        match query {
            None => all.collect(),
            Some("base:") => vec![MetaContext::Allocation],
            Some("stonefold:" | CHANGED_SINCE) => all.skip(1).collect(),
            Some(exact) => Self::select(exact, snapshots).into_iter().collect(),
        }
    }
}

impl fmt::Display for MetaContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MetaContext::Allocation => f.write_str(ALLOCATION),
            MetaContext::ChangedSince(snapshot) => write!(f, "{CHANGED_SINCE}{snapshot}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_select_and_list() {
        let snapshots = ["a", "b"].map(|name| Name::new(name).unwrap());
        let listed = |query| {
            MetaContext::matching(query, &snapshots).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let (a, b) = ("stonefold:changed-since/a", "stonefold:changed-since/b");
        assert_eq!(listed(None), [ALLOCATION, a, b]);
        assert_eq!(listed(Some("base:")), [ALLOCATION]);
        assert_eq!(listed(Some("base:allocation")), [ALLOCATION]);
        assert_eq!(listed(Some("stonefold:")), [a, b]);
        assert_eq!(listed(Some("stonefold:changed-since/")), [a, b]);
        assert_eq!(listed(Some("stonefold:changed-since/b")), [b]);
        for nothing in ["", "base", "stonefold:changed-since/c", "qemu:dirty-bitmap:x"] {
            assert!(listed(Some(nothing)).is_empty(), "{nothing}");
        }
        assert_eq!(MetaContext::select("stonefold:", &snapshots), None);
        assert_eq!(MetaContext::select(b, &snapshots).unwrap().to_string(), b);
    }
}
