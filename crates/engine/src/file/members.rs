//! The members of a pool: who is current, and how one is dropped.
//!
//! *Promises*: whoever acknowledges with a [`View`] of the members has waited for all that are current in it; a member
//! is dropped only after that is durable on all the others, under a new generation, so that whatever is opened later
//! knows that it lacks what came after. *Never*: drops so many that an object might have no copy left. *Owns*: the
//! members, and the locks that keep the copies of one key together. *May be used by*: the file engine.
//!
//! Membership only shrinks while a pool is open; a member comes back when the pool is opened ([`super::opening`]),
//! which is also where it will be added, drained and replaced.

use super::member::Member;
use super::placement::{self, Candidate, Targets};
use super::roster::Roster;
use crate::{JournalId, Key};
use parking_lot::{Mutex, RwLock};
use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::future::Future;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result};

/// Locks that keys share: enough that two puts rarely meet, 64 KiB of memory.
const KEY_LOCKS: usize = 1024;

/// All members of an open pool.
pub(super) struct Members {
    pub(super) env: Env,
    view: RwLock<Arc<View>>,
    /// Held while a member is dropped.
    dropping: tokio::sync::Mutex<()>,
    /// The highest generation that was tried: one that reached only some members is not tried again.
    generation_max: AtomicU64,
    /// Held by whatever changes a key, or looks whether its copies agree.
    keys: Box<[tokio::sync::Mutex<()>]>,
    hasher: RandomState,
    /// Shared by puts and deletes from the first name they change to the last; a listing waits for them.
    pub(super) settling: tokio::sync::RwLock<()>,
    /// Whose turn it is among members that are equally busy.
    pub(super) turn: AtomicUsize,
    /// Keys that are being healed in the background.
    pub(super) healing: Mutex<HashSet<Key>>,
}

/// The members as of one generation.
#[derive(Clone)]
pub(super) struct View {
    pub(super) roster: Roster,
    /// In the roster's order; those that were not found are missing.
    seats: Vec<Option<Arc<Member>>>,
    candidates: Vec<Candidate>,
}

impl View {
    /// Only members that are there may be current.
    pub(super) fn new(roster: Roster, seats: Vec<Option<Arc<Member>>>) -> Self {
        let entries = roster.members.iter().enumerate().filter(|(_, entry)| entry.current);
        let candidates: Vec<_> = entries.map(|(seat, entry)| Candidate::new(seat, &entry.id)).collect();
        debug_assert!(candidates.iter().all(|c| seats[c.seat].is_some()), "a current member is there");
        View { roster, seats, candidates }
    }

    pub(super) fn copies(&self) -> usize {
        usize::from(self.roster.copies)
    }

    /// Copies that can be had now.
    pub(super) fn copies_now(&self) -> usize {
        self.copies().min(self.candidates.len())
    }

    pub(super) fn targets(&self, key: &Key) -> Targets {
        placement::of_object(key, &self.candidates, self.copies())
    }

    pub(super) fn journal_targets(&self, id: JournalId, number: u64) -> Vec<usize> {
        placement::of_journal_file(id, number, &self.candidates, self.copies())
    }

    /// A member that is there.
    pub(super) fn member(&self, seat: usize) -> &Arc<Member> {
        self.seats[seat].as_ref().expect("a current member is there")
    }

    pub(super) fn current(&self) -> impl Iterator<Item = (usize, &Arc<Member>)> + Clone {
        self.candidates.iter().map(|one| (one.seat, self.member(one.seat)))
    }

    pub(super) fn is_current(&self, seat: usize) -> bool {
        self.roster.members[seat].current
    }

    /// All that are there, current or not.
    pub(super) fn present(&self) -> &[Option<Arc<Member>>] {
        &self.seats
    }
}

impl Members {
    pub(super) fn new(env: Env, view: View) -> Arc<Self> {
        Arc::new(Members {
            env,
            generation_max: AtomicU64::new(view.roster.generation),
            view: RwLock::new(Arc::new(view)),
            dropping: tokio::sync::Mutex::default(),
            keys: (0..KEY_LOCKS).map(|_| tokio::sync::Mutex::default()).collect(),
            hasher: RandomState::new(),
            settling: tokio::sync::RwLock::default(),
            turn: AtomicUsize::new(0),
            healing: Mutex::default(),
        })
    }

    pub(super) fn view(&self) -> Arc<View> {
        self.view.read().clone()
    }

    /// The lock of one key.
    pub(super) async fn lock_key(&self, key: &Key) -> tokio::sync::MutexGuard<'_, ()> {
        let index = self.hasher.hash_one(key) as usize % self.keys.len();
        self.keys[index].lock().await
    }

    /// Runs a change to its end even if the caller loses interest: a put half done would leave it unclear what a
    /// later read has shown.
    pub(super) async fn detached<T: Send + 'static>(
        &self,
        name: &'static str,
        change: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let (tell, told) = tokio::sync::oneshot::channel();
        self.env.spawn(name, async move {
            let _ = tell.send(change.await);
        });
        told.await.unwrap_or_else(|_| Err(Error::new(Kind::Closed, format!("{name}: the runtime has ended"))))
    }

    /// A change failed on a member. `Ok`: go on without it, it is dropped. `Err`: the change has failed, by the
    /// error it came with where nothing better is known.
    ///
    /// A full place is no reason to drop a member: nothing on it is lost.
    pub(super) async fn without(self: &Arc<Self>, seat: usize, error: Error) -> Result<()> {
        if matches!(error.kind(), Kind::NoSpace | Kind::Invalid | Kind::AlreadyExists) {
            return Err(error);
        }
        let members = self.clone();
        self.detached("drop-member", async move { members.drop_member(seat, error).await }).await
    }

    async fn drop_member(&self, seat: usize, error: Error) -> Result<()> {
        let _held = self.dropping.lock().await;
        let view = self.view();
        if !view.is_current(seat) {
            return Ok(());
        }
        let dir = view.member(seat).path().display().to_string();
        if view.roster.dropped().count() + 1 >= view.copies() {
            // With one copy there is nothing more to say than what failed.
            return Err(match view.copies() {
                1 => error,
                _ => error.remedy(format!(
                    "bring the directories back that were dropped before, then restart: '{dir}' cannot be spared"
                )),
            });
        }
        let mut roster = view.roster.next(self.env.random());
        roster.generation = self.generation_max.fetch_add(1, Ordering::AcqRel) + 1;
        roster.set(seat, false);
        let next = View::new(roster, view.seats.clone());
        // The point of it all: nothing is acknowledged without a member before the others know.
        next.record()
            .await
            .map_err(|e| e.context(format!("dropping '{dir}', which failed ({})", error.what())))?;
        *self.view.write() = Arc::new(next);
        tracing::error!(
            %error,
            "directory '{dir}' is dropped: the pool goes on without it, with a copy less of what lay there; \
             mend or replace it and restart to have it filled again"
        );
        Ok(())
    }
}

impl View {
    /// Writes the roster, durably, on every current member.
    pub(super) async fn record(&self) -> Result<()> {
        let writes = self.current().map(|(seat, member)| member.write_roster(&self.roster, seat));
        futures::future::try_join_all(writes).await.map(drop)
    }
}
