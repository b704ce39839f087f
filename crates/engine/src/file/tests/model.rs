//! What a pool may hold, by what its users were told: one definition for every world.

use crate::JournalId;
use std::collections::BTreeMap;

/// Why something is not as it must be.
pub(super) type Verdict<T = ()> = std::result::Result<T, String>;

/// What is known to be stored.
#[derive(Default)]
pub(super) struct Model {
    /// What an object is, or may be where a change was under way at a death: `None` for absent.
    pub(super) objects: BTreeMap<String, Vec<Option<Vec<u8>>>>,
    pub(super) journals: BTreeMap<JournalId, Chunks>,
    /// The journals that were begun.
    pub(super) begun: u8,
}

/// A journal's chunks, by their sequence numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunks {
    /// Its beginning was acknowledged, and its removal was not asked for: it must be there.
    pub(super) stands: bool,
    /// Chunks below this were appended, or shown.
    pub(super) appended: u64,
    /// Chunks below this are durable, by the word of a sync, or because they were shown after a death.
    pub(super) synced: u64,
    /// Chunks below this need not be there.
    pub(super) trimmed: u64,
}

impl Model {
    /// Somebody found an object to be this. From then on it is.
    pub(super) fn show(&mut self, name: &str, found: Option<Vec<u8>>) -> Verdict {
        let known = self.objects.entry(name.to_owned()).or_insert_with(|| vec![None]);
        if !known.contains(&found) {
            let is = if found.is_some() { "not what was stored" } else { "gone" };
            return Err(format!("{name} is {is}"));
        }
        *known = vec![found];
        Ok(())
    }

    /// An object may become this, from now until somebody knows.
    pub(super) fn doubt(&mut self, name: &str, new: Option<Vec<u8>>) {
        self.objects.entry(name.to_owned()).or_insert_with(|| vec![None]).push(new);
    }

    /// It was acknowledged that an object is this.
    pub(super) fn know(&mut self, name: &str, now: Option<Vec<u8>>) {
        self.objects.insert(name.to_owned(), vec![now]);
    }

    /// What was appended and not synced may be lost.
    pub(super) fn lose_power(&mut self) {
        self.journals.values_mut().for_each(|chunks| chunks.appended = chunks.synced);
    }

    /// The journals that exist are these, and no others.
    pub(super) fn show_journals(&mut self, listed: &[JournalId]) -> Verdict {
        if let Some(id) = listed.iter().find(|id| !self.journals.contains_key(id)) {
            return Err(format!("journal {id} is there again, or was never begun"));
        }
        if let Some((id, chunks)) = self.journals.iter().find(|(id, c)| c.stands && !listed.contains(id)) {
            return Err(format!("journal {id} is gone: {chunks:?}"));
        }
        self.journals.retain(|id, _| listed.contains(id));
        Ok(())
    }

    /// A replay gave these chunks of a journal, from `first` to before `end`. From then on they are there.
    pub(super) fn show_chunks(&mut self, id: JournalId, first: Option<u64>, end: u64) -> Verdict {
        let Some(chunks) = self.journals.get_mut(&id).filter(|chunks| chunks.stands) else { return Ok(()) };
        let needed = chunks.appended > chunks.trimmed;
        if needed && (first.is_none_or(|first| first > chunks.trimmed) || end < chunks.appended) {
            return Err(format!("journal {id} has chunks from {first:?} to {end}: {chunks:?}"));
        }
        (chunks.appended, chunks.synced) = (chunks.appended.max(end), chunks.synced.max(end));
        Ok(())
    }
}
