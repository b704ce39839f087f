//! A disk's snapshots in memory: all of them, by number and by name.
//!
//! *Promises*: looking one up, adding one and asking what holds an epoch take no longer behind 100,000 snapshots than
//! behind one. Memory: some 300 bytes for each. How they are stored is in [`crate::pages`].

use crate::pages::{Edit, Next, StoredList};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use stonefold_env::WallNanos;
use stonefold_format::ledger::LedgerRef;
use stonefold_format::snapshots::{Commit, SnapshotRecord};
use stonefold_types::Name;

/// Sections of deaths in one gap before they are merged.
pub(crate) const SECTIONS_MAX: usize = 64;

/// A snapshot.
#[derive(Clone)]
pub(crate) struct Snapshot {
    pub(crate) id: u64,
    pub(crate) name: Name,
    pub(crate) created: WallNanos,
    pub(crate) size_bytes: u64,
    /// By trusted time; 0 when it is not locked.
    pub(crate) locked_until: WallNanos,
    /// What it holds, once the fold has reached it.
    pub(crate) commit: Option<Commit>,
    /// What died between the snapshot before it and this one, and is held by an earlier one.
    pub(crate) deaths: Vec<LedgerRef>,
    /// Removed: nobody can see it, and reclaim will take it away.
    pub(crate) removed: bool,
    /// Attached readers.
    pub(crate) readers: u32,
    /// Clones being made of it: reclaim must wait for them.
    pub(crate) held: u32,
}

impl Snapshot {
    pub(crate) fn from_record(record: SnapshotRecord) -> Self {
        Snapshot {
            id: record.id,
            name: record.name,
            created: record.created,
            size_bytes: record.size_bytes,
            locked_until: record.locked_until,
            commit: Some(record.commit),
            deaths: record.deaths,
            removed: record.removed,
            readers: 0,
            held: 0,
        }
    }

    /// As it is stored.
    pub(crate) fn record(&self, commit: Commit) -> SnapshotRecord {
        SnapshotRecord {
            id: self.id,
            removed: self.removed,
            name: self.name.clone(),
            created: self.created,
            size_bytes: self.size_bytes,
            locked_until: self.locked_until,
            commit,
            deaths: self.deaths.clone(),
        }
    }
}

fn dead(snapshot: &Snapshot) -> u64 {
    snapshot.deaths.iter().map(|at| u64::from(at.addresses)).sum()
}

/// All snapshots of a disk that can be read from the medium; also those that were removed and wait for reclaim.
#[derive(Default)]
pub(crate) struct Snapshots {
    by_id: BTreeMap<u64, Snapshot>,
    /// Those that were not removed.
    by_name: HashMap<Name, u64>,
    /// Those that were.
    removed: BTreeSet<u64>,
    /// Those that end a gap of more sections than [`SECTIONS_MAX`].
    crowded: BTreeSet<u64>,
    /// Those in a page that does not say what is true of them now.
    changed: BTreeSet<u64>,
    /// Those that the fold has not reached.
    pending: usize,
    readers: usize,
    held: usize,
    /// Addresses in the deaths of all gaps that end with a snapshot.
    dead: u64,
    /// Where all but the recent ones are stored.
    pub(crate) list: StoredList,
}

impl Snapshots {
    /// As they were loaded. Of two with one name, which only damage can have made, the older is found by another.
    pub(crate) fn loaded(list: StoredList, records: Vec<SnapshotRecord>) -> Self {
        let mut all = Snapshots { list, ..Snapshots::default() };
        for mut record in records {
            if let Some(other) = (!record.removed).then(|| all.by_name.get(&record.name).copied()).flatten() {
                all.rename(other);
            }
            record.deaths.shrink_to_fit();
            all.insert(Snapshot::from_record(record));
        }
        all
    }

    /// Gives one that lost its name to a younger one a name that tells its number.
    fn rename(&mut self, id: u64) {
        let snapshot = self.by_id.get_mut(&id).expect("it has a name");
        self.by_name.remove(&snapshot.name);
        let stem: String = snapshot.name.as_str().chars().take(100).collect();
        let names = (0..).map(|at| Name::new(&format!("{stem}.{id}.{at}")).expect("letters make a name"));
        let name = names.into_iter().find(|name| !self.by_name.contains_key(name)).expect("one is free");
        tracing::warn!("snapshot '{}' is shown as '{name}': a younger one took its name", snapshot.name);
        snapshot.name = name.clone();
        self.by_name.insert(name, id);
    }

    /// Adds the youngest, or one that was loaded.
    pub(crate) fn insert(&mut self, snapshot: Snapshot) {
        let id = snapshot.id;
        match snapshot.removed {
            true => drop(self.removed.insert(id)),
            false => drop(self.by_name.insert(snapshot.name.clone(), id)),
        }
        self.pending += usize::from(snapshot.commit.is_none());
        self.note_gap(id, snapshot.deaths.len());
        self.dead += dead(&snapshot);
        self.by_id.insert(id, snapshot);
    }

    fn note_gap(&mut self, id: u64, sections: usize) {
        match sections > SECTIONS_MAX {
            true => drop(self.crowded.insert(id)),
            false => drop(self.crowded.remove(&id)),
        }
    }

    pub(crate) fn get(&self, id: u64) -> Option<&Snapshot> {
        self.by_id.get(&id)
    }

    /// One that was not removed.
    pub(crate) fn named(&self, name: &Name) -> Option<&Snapshot> {
        self.by_name.get(name).map(|id| &self.by_id[id])
    }

    /// All, oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Snapshot> {
        self.by_id.values()
    }

    /// Those with numbers in a range, oldest first.
    pub(crate) fn within(
        &self,
        ids: impl std::ops::RangeBounds<u64>,
    ) -> impl DoubleEndedIterator<Item = &Snapshot> {
        self.by_id.range(ids).map(|(_, snapshot)| snapshot)
    }

    /// How many were not removed.
    pub(crate) fn live(&self) -> usize {
        self.by_name.len()
    }

    /// How many the fold has not reached.
    pub(crate) fn pending(&self) -> usize {
        self.pending
    }

    /// The youngest, removed or not.
    pub(crate) fn last(&self) -> Option<&Snapshot> {
        self.by_id.values().next_back()
    }

    /// Addresses in the deaths of all gaps that end with a snapshot.
    pub(crate) fn dead(&self) -> u64 {
        self.dead
    }

    /// Attached readers of all of them.
    pub(crate) fn readers(&self) -> usize {
        self.readers
    }

    /// Clones being made of any of them.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Whether there is none left, neither here nor in a page that cannot be read.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_id.is_empty() && self.list.lost().next().is_none()
    }

    /// Numbers of the removed, ascending.
    pub(crate) fn removed(&self) -> impl Iterator<Item = &Snapshot> {
        self.removed.iter().map(|id| &self.by_id[id])
    }

    /// Those that end a gap of too many sections.
    pub(crate) fn crowded(&self) -> impl Iterator<Item = &Snapshot> {
        self.crowded.iter().map(|id| &self.by_id[id])
    }

    /// Those whose pages are to be written anew.
    pub(crate) fn changed(&self) -> &BTreeSet<u64> {
        &self.changed
    }

    /// The newest that ended no later than `epoch`, removed ones and those that cannot be read included: what was born up to
    /// then and lived on is held by it.
    pub(crate) fn newest_up_to(&self, epoch: u64) -> Option<u64> {
        let known = self.by_id.range(..=epoch).next_back().map(|(id, _)| *id);
        let lost = self.list.lost().map(|(at, _)| at.last).filter(|last| *last <= epoch).max();
        known.max(lost)
    }

    /// Whether some that cannot be read lie between two numbers.
    pub(crate) fn lost_between(&self, after: u64, before: u64) -> bool {
        self.list.lost().any(|(at, _)| at.last > after && at.first < before)
    }

    /// Says that it was removed; `false` when it is not there.
    pub(crate) fn remove(&mut self, id: u64) -> bool {
        let Some(snapshot) = self.by_id.get_mut(&id).filter(|s| !s.removed) else { return false };
        snapshot.removed = true;
        self.by_name.remove(&snapshot.name);
        self.removed.insert(id);
        self.note_changed(id);
        true
    }

    /// Locks it until then; never for less than before.
    pub(crate) fn lock(&mut self, id: u64, until: WallNanos) {
        if let Some(snapshot) = self.by_id.get_mut(&id) {
            snapshot.locked_until = snapshot.locked_until.max(until);
            self.note_changed(id);
        }
    }

    /// The one that is locked longest, of those that are not removed.
    pub(crate) fn longest_locked(&self) -> Option<&Snapshot> {
        let locked = self.iter().filter(|s| !s.removed && s.locked_until > 0);
        locked.max_by_key(|s| s.locked_until)
    }

    fn note_changed(&mut self, id: u64) {
        if id <= self.list.paged_up_to() && !crate::planted::is("page-not-renewed") {
            self.changed.insert(id);
        }
    }

    /// Has the page of these written anew with the next change of the list.
    pub(crate) fn renew(&mut self, ids: impl std::ops::RangeBounds<u64>) {
        let ids: Vec<u64> = self.by_id.range(ids).map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.note_changed(id));
    }

    pub(crate) fn add_reader(&mut self, id: u64) {
        if let Some(snapshot) = self.by_id.get_mut(&id) {
            snapshot.readers += 1;
            self.readers += 1;
        }
    }

    pub(crate) fn drop_reader(&mut self, id: u64) {
        if let Some(snapshot) = self.by_id.get_mut(&id) {
            snapshot.readers -= 1;
            self.readers -= 1;
        }
    }

    pub(crate) fn hold(&mut self, id: u64) {
        if let Some(snapshot) = self.by_id.get_mut(&id) {
            snapshot.held += 1;
            self.held += 1;
        }
    }

    pub(crate) fn release(&mut self, id: u64) {
        if let Some(snapshot) = self.by_id.get_mut(&id) {
            snapshot.held -= 1;
            self.held -= 1;
        }
    }

    /// Takes over a list that was stored.
    pub(crate) fn adopt(&mut self, next: Next) {
        self.list = next.list;
        self.apply(next.edit);
        // A snapshot may have been removed while its page was put.
        for written in next.written {
            let differs = self.by_id.get(&written.id).is_some_and(|now| {
                now.removed != written.removed || now.locked_until != written.locked_until
            });
            match differs {
                true => drop(self.changed.insert(written.id)),
                false => drop(self.changed.remove(&written.id)),
            }
        }
    }

    fn apply(&mut self, edit: Edit) {
        for (id, record) in edit {
            let Some(record) = record else {
                if let Some(gone) = self.by_id.remove(&id) {
                    self.dead -= dead(&gone);
                    self.removed.remove(&id);
                    self.crowded.remove(&id);
                    self.changed.remove(&id);
                }
                continue;
            };
            let Some(snapshot) = self.by_id.get_mut(&id) else { continue };
            self.pending -= usize::from(snapshot.commit.is_none());
            snapshot.commit = Some(record.commit);
            self.dead -= dead(snapshot);
            snapshot.deaths = record.deaths;
            snapshot.deaths.shrink_to_fit();
            self.dead += dead(snapshot);
            let sections = snapshot.deaths.len();
            self.note_gap(id, sections);
        }
    }

    /// Those that a removed disk's head has; nobody can see them any more.
    pub(crate) fn of_gone(&self) -> Snapshots {
        let mut gone = Snapshots { list: self.list.clone(), ..Snapshots::default() };
        for snapshot in self.iter().filter(|s| s.commit.is_some()) {
            gone.insert(Snapshot { removed: true, readers: 0, held: 0, ..snapshot.clone() });
        }
        gone
    }
}
