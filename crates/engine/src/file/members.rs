//! The members of a pool: who counts, and how that changes.
//!
//! *Promises*: whoever acknowledges with a [`View`] of the members has waited for all that count in it; a change holds
//! only after it is durable on all that count in it, under a new generation, so that whatever is opened later knows who
//! lacks what came after, and by which rules objects lie. *Never*: drops so many that an object might have no copy left.
//! *Owns*: the members, and the locks that keep the copies of one key together. *May be used by*: the file engine.
//!
//! A member that fails is dropped here; how directories come and go on command is [`super::change`]'s.

use super::journal::FileJournal;
use super::moving::Mover;
use super::options::Options;
use super::planted;
use super::roster::Roster;
use super::view::View;
use crate::Key;
use crate::directories::Moving;
use parking_lot::{Mutex, RwLock};
use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::future::Future;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result};

/// Locks that keys share: enough that two puts rarely meet, 64 KiB of memory.
const KEY_LOCKS: usize = 1024;

/// All members of an open pool.
pub(super) struct Members {
    pub(super) env: Env,
    /// How it was opened.
    pub(super) options: Options,
    view: RwLock<Arc<View>>,
    /// What was healed on members that have left since.
    healed_on_former: AtomicU64,
    /// Held by a command that changes the directories.
    pub(super) commanding: tokio::sync::Mutex<()>,
    /// Held while it is changed who counts.
    pub(super) changing: tokio::sync::Mutex<()>,
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
    /// Keys, hashed, that lie by the old rule as far as is known: where to look first, and nothing more.
    pub(super) unmoved: RwLock<HashSet<u64>>,
    /// Shared by listings, each from the first member it looks at to the last; a copy that was moved away is deleted between
    /// them, so that no listing misses an object in both places.
    pub(super) listing: tokio::sync::RwLock<()>,
    /// Journals that are being written.
    pub(super) journals: Mutex<Vec<Weak<FileJournal>>>,
    /// Moves what lies by the old rule.
    pub(super) mover: tokio::sync::Mutex<Mover>,
    /// How far it is.
    pub(super) moving: Mutex<Option<Moving>>,
}

impl Members {
    #[expect(clippy::disallowed_methods, reason = "only spreads keys over locks")]
    pub(super) fn new(env: Env, options: &Options, view: View) -> Arc<Self> {
        Arc::new(Members {
            env,
            options: options.clone(),
            generation_max: AtomicU64::new(view.roster.generation),
            view: RwLock::new(Arc::new(view)),
            healed_on_former: AtomicU64::new(0),
            commanding: tokio::sync::Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            keys: (0..KEY_LOCKS).map(|_| tokio::sync::Mutex::default()).collect(),
            hasher: RandomState::new(),
            settling: tokio::sync::RwLock::default(),
            turn: AtomicUsize::new(0),
            healing: Mutex::default(),
            unmoved: RwLock::default(),
            listing: tokio::sync::RwLock::default(),
            journals: Mutex::default(),
            mover: tokio::sync::Mutex::default(),
            moving: Mutex::default(),
        })
    }

    pub(super) fn view(&self) -> Arc<View> {
        self.view.read().clone()
    }

    /// See [`crate::Engine::healed`].
    pub(super) fn healed(&self) -> u64 {
        let view = self.view.read();
        self.healed_on_former.load(Ordering::Relaxed) + view.healed()
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
        let _held = self.changing.lock().await;
        let view = self.view();
        if !view.is_current(seat) {
            return Ok(());
        }
        let dir = view.member(seat).path().display().to_string();
        let mut roster = self.next(&view);
        roster.drop_member(seat);
        if roster.lacking() >= view.copies() {
            // With one copy there is nothing more to say than what failed.
            return Err(match view.copies() {
                1 => error,
                _ => error.remedy(format!(
                    "bring the directories back that were dropped before, then restart: '{dir}' cannot be spared"
                )),
            });
        }
        // The point of it all: nothing is acknowledged without a member before the others know.
        self.adopt(View::new(roster, view.present().to_vec()))
            .await
            .map_err(|e| e.context(format!("dropping '{dir}', which failed ({})", error.what())))?;
        tracing::error!(
            %error,
            "directory '{dir}' is dropped: the pool goes on without it, with a copy less of what lay there; \
             mend or replace it and restart to have it filled again"
        );
        Ok(())
    }

    /// The next generation of the roster. One that was tried and reached only some members is not tried again.
    pub(super) fn next(&self, view: &View) -> Roster {
        let mut roster = view.roster.next(self.env.random());
        roster.generation = self.generation_max.fetch_add(1, Ordering::AcqRel) + 1;
        roster
    }

    /// Lets a new view hold, once all that count in it have it durably. By whoever has `changing`.
    pub(super) async fn adopt(&self, next: View) -> Result<Arc<View>> {
        if !planted::is("placed-before-recorded") {
            next.record().await?;
        }
        let next = Arc::new(next);
        let mut view = self.view.write();
        self.healed_on_former.fetch_add(view.healed().saturating_sub(next.healed()), Ordering::Relaxed);
        *view = next.clone();
        Ok(next)
    }

    /// Waits until every change of a key is over that began before this.
    pub(super) async fn wait_for_changes(&self) {
        for lock in &self.keys {
            drop(lock.lock().await);
        }
    }

    /// The hash of a key, of this process.
    pub(super) fn hash(&self, key: &Key) -> u64 {
        self.hasher.hash_one(key)
    }
}
