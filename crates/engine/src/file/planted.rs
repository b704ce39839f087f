//! Bugs of the kinds that a change of directories, and a loss of power, invite, for the tests to find; outside of tests only their
//! names are left.

#[cfg(test)]
pub(super) use chosen::is;
#[cfg(test)]
pub(crate) use chosen::{plant, planted};

#[cfg(not(test))]
pub(super) const fn is(_bug: &str) -> bool {
    false
}

/// Those of changes of directories: their names, and what is wrong with each.
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

/// Those that a loss of power shows, or a directory that was away.
#[cfg(test)]
pub(super) const BUGS_OF_POWER: &[(&str, &str)] = &[
    ("object-not-synced", "what an object holds is not synced before it gets its name"),
    ("name-not-synced", "the folder is not synced after an object got its name"),
    ("deletion-not-synced", "the folder is not synced after an object was deleted"),
    ("bucket-not-synced", "the folder that a new one is made in is not synced"),
    ("way-not-synced", "of the folders that a new directory lies in only the last is synced"),
    ("journal-not-synced", "what a journal's file holds is not synced"),
    ("journal-file-not-synced", "a journal's folder is not synced when it gets a file"),
    ("journal-folder-not-synced", "the folder of the journals is not synced when it gets one"),
    ("journal-removal-not-synced", "the folder of the journals is not synced when one is removed"),
    ("found-not-synced", "names that the last process left are shown before they are synced"),
    ("replay-not-synced", "what the last process left of a journal is shown before it is synced"),
    ("roster-not-synced", "the record of who counts is not synced"),
    ("stale-copy-wins", "of two copies the older one is chosen"),
    ("stale-roster-wins", "of two records of who counts the older one is believed"),
    ("one-copy-will-do", "a put is acknowledged when one of its copies is written"),
    ("one-journal-will-do", "a sync of a journal is answered when one of its copies is durable"),
    ("not-filled-again", "a directory that was away counts again as it is"),
];

#[cfg(test)]
mod chosen {
    use std::cell::Cell;

    thread_local! {
        static CHOSEN: Cell<Option<&'static str>> = const { Cell::new(None) };
    }

    /// Plants a bug for this thread, or none.
    pub(crate) fn plant(bug: Option<&'static str>) {
        let mut all = super::BUGS.iter().chain(super::BUGS_OF_POWER);
        assert!(bug.is_none_or(|bug| all.any(|(name, _)| *name == bug)), "{bug:?} is no bug of ours");
        CHOSEN.set(bug);
    }

    /// The bug that is planted for this thread.
    pub(crate) fn planted() -> Option<&'static str> {
        CHOSEN.get()
    }

    pub(in crate::file) fn is(bug: &str) -> bool {
        CHOSEN.get() == Some(bug)
    }
}
