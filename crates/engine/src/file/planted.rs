//! Bugs of the kind that a change of directories invites, for the tests to find; outside of tests only their names are
//! left.

#[cfg(test)]
pub(super) use chosen::{is, plant};

#[cfg(not(test))]
pub(super) const fn is(_bug: &str) -> bool {
    false
}

/// Their names, and what is wrong with each.
#[cfg(test)]
pub(super) const BUGS: &[(&str, &str)] = &[
    ("placed-before-recorded", "the new rule holds before anybody has it recorded"),
    ("one-rule", "what lies by the rule from before is not looked for"),
    ("deleted-before-copied", "a copy that moves is deleted where it lay before it is where it shall lie"),
    ("ended-too-early", "the rule from before ends while something lies by it"),
    ("journals-not-awaited", "a directory leaves with files of a journal"),
    ("left-without-record", "a directory is emptied before it is recorded that it has left"),
    ("no-tombstone", "a directory that is emptied does not tell that it has left"),
    ("copies-not-filled", "an object counts as moved when one of its copies is"),
];

#[cfg(test)]
mod chosen {
    use std::cell::Cell;

    thread_local! {
        static CHOSEN: Cell<Option<&'static str>> = const { Cell::new(None) };
    }

    /// Plants a bug for this thread, or none.
    pub(in crate::file) fn plant(bug: Option<&'static str>) {
        assert!(
            bug.is_none_or(|bug| super::BUGS.iter().any(|(name, _)| *name == bug)),
            "{bug:?} is no bug of ours"
        );
        CHOSEN.set(bug);
    }

    pub(in crate::file) fn is(bug: &str) -> bool {
        CHOSEN.get() == Some(bug)
    }
}
