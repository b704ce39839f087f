//! The members as of one generation, and what lies on which.
//!
//! While no directory is added, drained or replaced there is one rule: an object lies on its *targets* among the members
//! that receive. During a change there are two, the rule from before and the rule to come, and they differ by the
//! members of that one change. What is put goes by the rule to come; what was put before lies by the old one until it
//! is moved. So an object lies on some of its targets by either rule, nowhere else, and whoever looks for it looks at
//! both: nothing has to be remembered of where the moving has come to.
//!
//! A seat is a member's place in the roster, and stays the same as long as the pool is open.

use super::member::Member;
use super::placement::{self, Candidate, Targets};
use super::planted;
use super::roster::{Entry, Roster, State};
use crate::{JournalId, Key};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stonefold_types::Result;

/// See the module.
#[derive(Clone)]
pub(super) struct View {
    pub(super) roster: Roster,
    /// In the roster's order; those that were not found are missing.
    seats: Vec<Option<Arc<Member>>>,
    counting: Vec<usize>,
    /// Members that objects are placed on.
    to: Vec<Candidate>,
    /// Members that objects were placed on before the change under way.
    from: Vec<Candidate>,
    changing: bool,
}

impl View {
    /// Only members that are there may count.
    pub(super) fn new(roster: Roster, seats: Vec<Option<Arc<Member>>>) -> Self {
        let seats_of = |wanted: fn(State) -> bool| {
            let entries = roster.members.iter().enumerate();
            entries.filter(move |(_, entry)| wanted(entry.state)).map(|(seat, _)| seat)
        };
        let candidate = |seat: usize| Candidate::new(seat, &roster.members[seat].id);
        let counting: Vec<usize> = seats_of(State::counts).collect();
        let to = seats_of(State::receives).map(candidate).collect();
        let from = seats_of(State::received).map(candidate).collect();
        let changing = roster.members.iter().any(|entry| entry.state.changes());
        debug_assert!(counting.iter().all(|seat| seats[*seat].is_some()), "who counts is there");
        View { counting, to, from, changing, roster, seats }
    }

    pub(super) fn copies(&self) -> usize {
        usize::from(self.roster.copies)
    }

    /// Copies that can be had now.
    pub(super) fn copies_now(&self) -> usize {
        self.copies().min(self.to.len())
    }

    /// How many members receive.
    pub(super) fn receivers(&self) -> usize {
        self.to.len()
    }

    /// The members that an object shall lie on.
    pub(super) fn targets(&self, key: &Key) -> Targets {
        placement::of_object(key, &self.to, self.copies())
    }

    /// The members that it lay on by the rule from before the change under way; without one, its targets.
    pub(super) fn old_targets(&self, key: &Key) -> Targets {
        placement::of_object(key, &self.from, self.copies())
    }

    /// The members that it may still lie on although it shall not.
    pub(super) fn former(&self, key: &Key, targets: &Targets) -> Vec<usize> {
        if !self.changing || planted::is("one-rule") {
            return Vec::new();
        }
        self.old_targets(key).iter().filter(|seat| !targets.contains(*seat)).collect()
    }

    pub(super) fn journal_targets(&self, id: JournalId, number: u64) -> Vec<usize> {
        placement::of_journal_file(id, number, &self.to, self.copies())
    }

    /// A member that is there.
    pub(super) fn member(&self, seat: usize) -> &Arc<Member> {
        self.seats[seat].as_ref().expect("a member that counts is there")
    }

    /// The members that count.
    pub(super) fn current(&self) -> impl Iterator<Item = (usize, &Arc<Member>)> + Clone {
        self.counting.iter().map(|seat| (*seat, self.member(*seat)))
    }

    /// Objects that were damaged or missing on one of its members, and were made sound again.
    pub(super) fn healed(&self) -> u64 {
        self.seats.iter().flatten().map(|member| member.healed.load(Ordering::Relaxed)).sum()
    }

    /// Whether a member counts.
    pub(super) fn is_current(&self, seat: usize) -> bool {
        self.is(seat, State::counts)
    }

    /// Whether anything is placed on a member.
    pub(super) fn receives(&self, seat: usize) -> bool {
        self.is(seat, State::receives)
    }

    /// A seat that came later than this view is nobody's in it.
    fn is(&self, seat: usize, what: fn(State) -> bool) -> bool {
        self.roster.members.get(seat).is_some_and(|entry| what(entry.state))
    }

    /// Whether a change is under way, so that there are two rules.
    pub(super) fn is_changing(&self) -> bool {
        self.changing
    }

    /// All that are there, whether they count or not.
    pub(super) fn present(&self) -> &[Option<Arc<Member>>] {
        &self.seats
    }

    /// The directories that belong to the pool, with their seats.
    pub(super) fn entries(&self) -> impl Iterator<Item = (usize, &Entry)> {
        let entries = self.roster.members.iter().enumerate();
        entries.filter(|(_, entry)| !matches!(entry.state, State::Left | State::Gone))
    }

    /// The seat of a directory that belongs to the pool. Where a new one takes the place of another under the same path,
    /// the one from before.
    pub(super) fn seat_of(&self, dir: &Path) -> Option<usize> {
        self.entries().find(|(_, entry)| entry.dir == dir).map(|(seat, _)| seat)
    }

    /// Writes the roster, durably, on every member that counts.
    pub(super) async fn record(&self) -> Result<()> {
        let writes = self.current().map(|(seat, member)| member.write_roster(&self.roster, seat));
        futures::future::try_join_all(writes).await.map(drop)
    }
}
