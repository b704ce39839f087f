//! Bringing objects to where they shall lie, while the pool is used.
//!
//! A change of directories makes a second rule of where objects lie ([`super::view`]); here what lies by the first alone
//! is brought to where the second wants it, one object after another, under its key's lock ([`super::settle`]). A
//! pass goes through all objects, a 64th of their names at a time, so that memory does not grow with the pool but for
//! eight bytes for each object that is yet to be moved: they tell readers where to look first, and nothing depends on them.
//! What is put meanwhile goes by the second rule, so a pass in which every object was found or brought where it shall lie is
//! the last. Then journals are waited for: what is appended goes elsewhere from now on, and what they hold is folded and
//! trimmed before long. At the end a new roster ends the rule from before, and directories that have left are emptied.
//!
//! A crash anywhere leaves two rules, objects that lie by either, and a roster that says so: the next process begins
//! with a pass of its own.

use super::journal;
use super::leaving;
use super::members::Members;
use super::planted;
use super::replay::files_of;
use super::roster::State;
use super::settle::Settled;
use super::tombstone::Tombstone;
use super::view::View;
use crate::Key;
use crate::directories::{Moving, Step};
use futures::stream::{self, StreamExt};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use stonefold_types::{Error, Kind, Result};

/// Parts that the objects are gone through in: the folders of each kind.
pub(super) const PARTS: u64 = super::layout::BUCKETS;
/// Objects moved at once: one is read while another is written. Each may hold a segment in memory.
const AT_ONCE: usize = 2;
/// A step ends when it has come to this many bytes, or to this many objects.
const STEP_BYTES: u64 = 16 << 20;
const STEP_OBJECTS: usize = 64;
/// What a look at a part's names counts for, in bytes read.
const LOOK_BYTES: u64 = 256 << 10;
/// A pass is given up after this many objects in a row that found no room.
const REFUSED_MAX: u64 = 8;

/// Where the moving is.
#[derive(Default)]
pub(super) struct Mover {
    /// The generation that it works for.
    generation: u64,
    stage: Stage,
    /// Objects of the part at hand.
    queue: Vec<Misplaced>,
    /// In this pass: objects that could not be moved, those in a row that found no room, and why the first could not.
    failed: u64,
    refused: u64,
    why: Option<Error>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    /// A new view: changes that began under the one before are to end first.
    #[default]
    New,
    /// Looking for what is to be moved; the part that is next.
    Looking(u64),
    /// Moving; the part that is next.
    Moving(u64),
    /// Everything lies where it shall; journals may not.
    Journals,
}

/// What lies where it shall not, or not everywhere that it shall.
pub(super) struct Misplaced {
    pub(super) key: Key,
    pub(super) bytes: u64,
    /// Seats that lack it.
    pub(super) lacking: Vec<usize>,
    /// Seats that have it and shall not.
    pub(super) excess: Vec<usize>,
}

/// The misplaced objects of one part, as a view wants them placed.
pub(super) async fn misplaced(view: &View, part: u64) -> Result<Vec<Misplaced>> {
    let surveys = view.current().map(|(seat, member)| async move { Ok((seat, member.survey(part).await?)) });
    let found: Vec<(usize, HashMap<Key, u64>)> = futures::future::try_join_all(surveys).await?;
    let mut holders: BTreeMap<Key, (u64, Vec<usize>)> = BTreeMap::new();
    for (seat, objects) in found {
        for (key, bytes) in objects {
            let holder = holders.entry(key).or_default();
            holder.0 = holder.0.max(bytes);
            holder.1.push(seat);
        }
    }
    let misplaced = holders.into_iter().filter_map(|(key, (bytes, seats))| {
        let targets = view.targets(&key);
        let lacking: Vec<usize> = targets.iter().filter(|seat| !seats.contains(seat)).collect();
        let excess: Vec<usize> = seats.into_iter().filter(|seat| !targets.contains(*seat)).collect();
        let wrong = !(lacking.is_empty() && excess.is_empty());
        wrong.then_some(Misplaced { key, bytes, lacking, excess })
    });
    Ok(misplaced.collect())
}

impl Members {
    /// See [`crate::Directories::step`].
    pub(super) async fn step(self: &Arc<Self>) -> Result<Step> {
        let mut mover = self.mover.lock().await;
        let view = self.view();
        if !view.is_changing() {
            *mover = Mover::default();
            *self.moving.lock() = None;
            return self.empty_left(&view).await;
        }
        if mover.generation != view.roster.generation {
            *mover = Mover { generation: view.roster.generation, ..Mover::default() };
            *self.moving.lock() = Some(Moving::default());
        }
        match mover.stage {
            Stage::New => {
                self.wait_for_changes().await;
                mover.stage = Stage::Looking(0);
                Ok(Step::Went { bytes: 0 })
            }
            Stage::Looking(PARTS) => {
                let early = planted::is("ended-too-early");
                mover.stage = if early { Stage::Journals } else { Stage::Moving(0) };
                (mover.failed, mover.refused, mover.why) = Default::default();
                Ok(Step::Went { bytes: 0 })
            }
            Stage::Looking(part) => self.look_through(&mut mover, &view, part).await,
            Stage::Moving(PARTS) if mover.queue.is_empty() => Ok(self.end_pass(&mut mover)),
            Stage::Moving(part) => self.move_some(&mut mover, &view, part).await,
            Stage::Journals => self.end_change(&mut mover, &view).await,
        }
    }

    /// Notes what of a part is to be moved.
    async fn look_through(&self, mover: &mut Mover, view: &View, part: u64) -> Result<Step> {
        if part == 0 {
            self.unmoved.write().clear();
            // What is left to be moved is counted anew.
            if let Some(moving) = self.moving.lock().as_mut() {
                moving.total_bytes = moving.done_bytes;
            }
        }
        let found = misplaced(view, part).await?;
        let bytes: u64 = found.iter().map(|one| one.bytes * one.lacking.len() as u64).sum();
        self.unmoved.write().extend(found.iter().map(|one| self.hash(&one.key)));
        if let Some(moving) = self.moving.lock().as_mut() {
            moving.total_bytes += bytes;
        }
        mover.stage = Stage::Looking(part + 1);
        Ok(Step::Went { bytes: LOOK_BYTES })
    }

    async fn move_some(self: &Arc<Self>, mover: &mut Mover, view: &View, part: u64) -> Result<Step> {
        if mover.queue.is_empty() {
            let found = misplaced(view, part).await?;
            mover.queue = found;
            mover.stage = Stage::Moving(part + 1);
            return Ok(Step::Went { bytes: LOOK_BYTES });
        }
        let mut batch = Vec::new();
        let mut batch_bytes = 0;
        while batch.len() < STEP_OBJECTS && batch_bytes < STEP_BYTES {
            let Some(one) = mover.queue.pop() else { break };
            batch_bytes += one.bytes;
            batch.push(one);
        }
        let moves = batch.into_iter().map(|one| self.place(one));
        let results: Vec<_> = stream::iter(moves).buffer_unordered(AT_ONCE).collect().await;
        let mut copied = 0;
        for result in results {
            copied += mover.note(result);
        }
        if let Some(moving) = self.moving.lock().as_mut() {
            moving.done_bytes += copied;
            moving.total_bytes = moving.total_bytes.max(moving.done_bytes);
        }
        if mover.refused >= REFUSED_MAX {
            mover.queue.clear();
            mover.stage = Stage::Moving(PARTS);
        }
        // What is copied is read and written.
        Ok(Step::Went { bytes: 2 * copied })
    }

    /// Brings an object to where it shall lie, wherever it was found.
    async fn place(self: &Arc<Self>, one: Misplaced) -> Result<Option<Settled>> {
        let _held = self.lock_key(&one.key).await;
        self.settle_from(&one.key, &one.excess).await
    }

    /// Everything was gone through. What could not be moved is tried again later.
    fn end_pass(&self, mover: &mut Mover) -> Step {
        let failed = std::mem::take(&mut mover.failed);
        let why = mover.why.take().map(|error| error.what());
        let waits = why.map(|why| match failed {
            1 => format!("an object cannot be moved: {why}"),
            many => format!("{many} objects cannot be moved, the first because {why}"),
        });
        let stuck = waits.is_some();
        self.wait_for(waits);
        mover.stage = if stuck { Stage::Looking(0) } else { Stage::Journals };
        if stuck { Step::Waits { for_journals: false } } else { Step::Went { bytes: 0 } }
    }

    fn wait_for(&self, what: Option<String>) {
        if let Some(moving) = self.moving.lock().as_mut() {
            if let Some(what) = what.as_ref().filter(|what| moving.waits.as_ref() != Some(*what)) {
                tracing::warn!("the change of directories waits: {what}");
            }
            moving.waits = what;
        }
    }

    /// All objects lie where they shall. Once journals do, too, the rule from before ends.
    async fn end_change(self: &Arc<Self>, mover: &mut Mover, view: &Arc<View>) -> Result<Step> {
        if planted::is("left-without-record") {
            for (seat, member) in view.current().filter(|(seat, _)| !view.receives(*seat)) {
                member.empty(self.tombstone(view, seat)).await?;
            }
        }
        if !self.are_journals_placed(view).await? {
            if let Some(moving) = self.moving.lock().as_mut() {
                moving.waits = Some("what the journal holds is to be folded first".into());
            }
            return Ok(Step::Waits { for_journals: true });
        }
        if view.receivers() < view.copies() {
            self.wait_for(Some(format!("{} copies need as many directories", view.copies())));
            return Ok(Step::Waits { for_journals: false });
        }
        let _held = self.changing.lock().await;
        if !Arc::ptr_eq(view, &self.view()) {
            *mover = Mover::default();
            return Ok(Step::Went { bytes: 0 });
        }
        let mut roster = self.next(view);
        for seat in 0..roster.members.len() {
            match roster.members[seat].state {
                State::Joining => roster.set(seat, State::Current),
                State::Leaving => roster.set(seat, State::Left),
                State::Lost => roster.set(seat, State::Gone),
                _ => {}
            }
        }
        self.adopt(View::new(roster, view.present().to_vec())).await?;
        self.unmoved.write().clear();
        *self.moving.lock() = None;
        tracing::info!("the change of directories is done; the pool is {}", self.url());
        Ok(Step::Went { bytes: 0 })
    }

    /// Whether every journal's files lie on members that receive, as often as they shall. What is appended goes there from
    /// now on; what lies elsewhere goes when it is trimmed.
    async fn are_journals_placed(&self, view: &View) -> Result<bool> {
        if planted::is("journals-not-awaited") {
            return Ok(true);
        }
        let written: Vec<_> = self.journals.lock().iter().filter_map(std::sync::Weak::upgrade).collect();
        for journal in written {
            journal.go_on_elsewhere().await?;
        }
        for id in journal::list(view).await? {
            for seats in files_of(view, id).await?.unwrap_or_default().into_values() {
                let receiving = seats.iter().filter(|seat| view.receives(**seat)).count();
                if receiving < seats.len() || receiving < view.copies_now() {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// What a directory that has left says of itself.
    fn tombstone(&self, view: &View, seat: usize) -> Tombstone {
        let entry = &view.roster.members[seat];
        Tombstone { pool: view.roster.pool, member: entry.id, generation: entry.since, url: self.url() }
    }

    /// Empties the directories that have left, and forgets them.
    async fn empty_left(self: &Arc<Self>, view: &Arc<View>) -> Result<Step> {
        let left = |entry: &super::roster::Entry| entry.state == State::Left;
        let Some(seat) = view.roster.members.iter().position(left) else { return Ok(Step::Idle) };
        let dir = view.roster.members[seat].dir.clone();
        let tombstone = self.tombstone(view, seat);
        match &view.present()[seat] {
            Some(member) => member.empty(tombstone).await?,
            None => leaving::remove_remains(&dir, &tombstone),
        }
        let _held = self.changing.lock().await;
        let view = self.view();
        let mut roster = self.next(&view);
        roster.set(seat, State::Gone);
        let mut seats = view.present().to_vec();
        seats[seat] = None;
        self.adopt(View::new(roster, seats)).await?;
        tracing::info!("'{}' has left the pool: nothing of it lies there any more", dir.display());
        Ok(Step::Went { bytes: 0 })
    }
}

impl Mover {
    /// Takes note of an object; returns the bytes copied for it.
    fn note(&mut self, result: Result<Option<Settled>>) -> u64 {
        let (copied, placed) = match result {
            Ok(Some(settled)) => (settled.copied_bytes, settled.placed),
            // It was deleted meanwhile.
            Ok(None) => (0, Ok(())),
            Err(error) => (0, Err(error)),
        };
        match placed {
            Ok(()) => self.refused = 0,
            Err(error) => {
                self.failed += 1;
                self.refused = if error.kind() == Kind::NoSpace { self.refused + 1 } else { 0 };
                self.why.get_or_insert(error);
            }
        }
        copied
    }
}
