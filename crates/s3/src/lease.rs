//! One server at a time: a lease on the pool, in the object `owner`.
//!
//! Who opens a pool swaps that object to its own, and swaps it again every [`BEAT`] as long as it lives. Each swap names the version before it, so of two
//! one loses. The lease holds for [`HOLD`] from *before* its last renewal was sent, on a clock that counts suspended time; then nothing is asked
//! of the place any more until a renewal succeeds, which shows that nobody else has taken the pool. Another takes it
//! over once it has watched the object for [`TAKE`] without seeing it change: longer than [`HOLD`], and than what a document's put takes
//! at most beyond it. What is longer than a document goes to names that nobody uses again.
//!
//! A process of the same machine that has ended is not waited for, nor one that has let the pool go.

use crate::bucket::{Bucket, Condition};
use crate::record::Owner;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::time::Duration;
use stonefold_engine::Version;
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result};

const OWNER: &str = "owner";
const BEAT: Duration = Duration::from_secs(5);
const HOLD: Duration = Duration::from_secs(20);
const TAKE: Duration = Duration::from_secs(32);
/// Between two looks at another's lease, and between two tries to renew one's own.
const LOOK: Duration = Duration::from_secs(1);
/// How long what is on its way to the place is waited for, before the pool is let go: longer than a document's put takes.
const LAND_MAX: Duration = Duration::from_secs(15);
const LAND_LOOK: Duration = Duration::from_millis(20);

/// Whether anything may be asked of the place.
#[derive(Default)]
pub(crate) struct Standing(Mutex<State>);

#[derive(Default)]
enum State {
    /// Not taken yet, or let go.
    #[default]
    Free,
    /// Until this time on the machine's monotonic clock.
    Held(Duration),
    /// Another has the pool now.
    Lost(Error),
    /// For good: whoever had it open is gone.
    Closed,
}

impl Standing {
    /// Fails where the lease does not hold now.
    pub(crate) fn check(&self, env: &Env, place: &str) -> Result<()> {
        match &*self.0.lock() {
            State::Held(until) if env.monotonic() < *until => Ok(()),
            State::Held(_) => {
                let what = format!(
                    "{place}: the lease on the pool has run out, as the store has not answered for {} s",
                    HOLD.as_secs()
                );
                Err(Error::new(Kind::Io, what)
                    .remedy("look whether the store is up and reached; it goes on by itself"))
            }
            State::Lost(error) => Err(error.clone()),
            State::Free | State::Closed => Err(Error::new(Kind::Closed, format!("{place} has been let go"))),
        }
    }

    fn is_free(&self) -> bool {
        matches!(&*self.0.lock(), State::Free)
    }

    /// What is lost or closed stays so: another's work is in the place.
    fn set(&self, to: State) -> bool {
        let mut state = self.0.lock();
        let goes_on = matches!(&*state, State::Free | State::Held(_));
        if goes_on {
            *state = to;
        }
        goes_on
    }
}

/// What an opening has in the place.
#[derive(Clone)]
struct Mine {
    /// The record as it was sent last.
    owner: Owner,
    /// The object's, as far as is known; nothing where the pool is not this opening's.
    version: Option<Version>,
    /// Whether nobody knows if what was sent last has arrived: it is sent again as it is, and known by that.
    unclear: bool,
    /// Of the taking: who renews an earlier one ends.
    taking: u64,
}

/// The lease of one opening.
pub(crate) struct Lease {
    bucket: Arc<Bucket>,
    /// One renewal at a time.
    mine: tokio::sync::Mutex<Mine>,
}

impl Lease {
    /// Takes the pool, waiting out an owner of whom nobody knows whether it lives. `Busy` where it does.
    pub(crate) async fn take(bucket: Arc<Bucket>) -> Result<Arc<Lease>> {
        let owner = Owner::this_process(bucket.env.random());
        let mine = Mine { owner, version: None, unclear: false, taking: 0 };
        let lease = Arc::new(Lease { bucket, mine: tokio::sync::Mutex::new(mine) });
        lease.acquire().await?;
        Ok(lease)
    }

    /// Takes the pool again if it was let go. Cheap where it is held.
    pub(crate) async fn ready(self: &Arc<Self>) -> Result<()> {
        if self.bucket.standing.is_free() {
            self.acquire().await?;
        }
        self.check()
    }

    /// Fails where the lease does not hold now.
    pub(crate) fn check(&self) -> Result<()> {
        self.bucket.standing.check(&self.bucket.env, &self.bucket.place)
    }

    async fn acquire(self: &Arc<Self>) -> Result<()> {
        let mut mine = self.mine.lock().await;
        if !self.bucket.standing.is_free() {
            return Ok(());
        }
        let lease = self.clone();
        let owner = mine.owner.next(self.bucket.env.random(), false);
        let (owner, version, until) = self.bucket.run(async move { lease.contend(owner).await }).await?;
        let taking = mine.taking + 1;
        *mine = Mine { owner, version: Some(version), unclear: false, taking };
        self.bucket.standing.set(State::Held(until));
        let (weak, env) = (Arc::downgrade(self), self.bucket.env.clone());
        self.bucket.begin(async move { keep(&env, weak, taking).await });
        Ok(())
    }

    /// Until the pool is this opening's, or another's.
    async fn contend(&self, owner: Owner) -> Result<(Owner, Version, Duration)> {
        let (bucket, mut watched) = (&self.bucket, None);
        loop {
            let condition = match bucket.get(OWNER).await {
                Err(error) if error.kind() == Kind::NotFound => Condition::Absent,
                Err(error) => return Err(error),
                Ok((bytes, version)) => {
                    let other = Owner::decode(&bytes)?;
                    if !self.may_take(&owner, &other, &version, &mut watched)? {
                        bucket.env.sleep(LOOK).await;
                        continue;
                    }
                    Condition::Is(version)
                }
            };
            let until = bucket.env.monotonic() + HOLD;
            match bucket.put(OWNER, owner.encode().into(), condition, false).await {
                Ok(version) => return Ok((owner, version, until)),
                // Another was quicker; what it is decides.
                Err(error) if matches!(error.kind(), Kind::Conflict | Kind::AlreadyExists) => {}
                Err(error) => return Err(error.context("taking the lease on the pool")),
            }
        }
    }

    /// Whether the other has let the pool go, or must have. `Busy` where it has just shown that it lives.
    fn may_take(
        &self,
        owner: &Owner,
        other: &Owner,
        version: &Version,
        watched: &mut Option<(Version, Duration)>,
    ) -> Result<bool> {
        if other.released || other.has_ended(owner) {
            return Ok(true);
        }
        let now = self.bucket.env.monotonic();
        match watched {
            None => {
                tracing::info!(
                    "{} was last served by {}; looking for {} s whether it still is",
                    self.bucket.place,
                    other.name(),
                    TAKE.as_secs()
                );
                *watched = Some((version.clone(), now));
                Ok(false)
            }
            Some((seen, since)) if seen == version => Ok(now - *since >= TAKE),
            Some(_) => {
                let what = format!("{} is served by {}", self.bucket.place, other.name());
                Err(Error::new(Kind::Busy, what).remedy("stop that one first; a pool has one server"))
            }
        }
    }

    /// Renews it once; returns whether to go on.
    async fn renew(&self, taking: u64) -> bool {
        let mut mine = self.mine.lock().await;
        let Some(version) = mine.version.clone().filter(|_| mine.taking == taking) else { return false };
        if !mine.unclear {
            mine.owner = mine.owner.next(self.bucket.env.random(), false);
        }
        mine.unclear = true;
        let sent = self.bucket.env.monotonic();
        match self.bucket.put(OWNER, mine.owner.encode().into(), Condition::Is(version), false).await {
            Ok(version) => {
                (mine.version, mine.unclear) = (Some(version), false);
                self.bucket.standing.set(State::Held(sent + HOLD))
            }
            Err(error) if matches!(error.kind(), Kind::Conflict | Kind::NotFound) => {
                match self.look().await {
                    // One whose answer was lost: to the last bit what was sent. The next one extends the lease.
                    Ok(Some((owner, version))) if owner == mine.owner => {
                        (mine.version, mine.unclear) = (Some(version), false);
                        true
                    }
                    Ok(other) => {
                        self.lose(other.map(|(owner, _)| owner));
                        false
                    }
                    Err(_) => true,
                }
            }
            Err(error) => {
                tracing::warn!("the lease on the pool could not be renewed, and is tried again: {error}");
                true
            }
        }
    }

    async fn look(&self) -> Result<Option<(Owner, Version)>> {
        match self.bucket.get(OWNER).await {
            Ok((bytes, version)) => Ok(Some((Owner::decode(&bytes)?, version))),
            Err(error) if error.kind() == Kind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn lose(&self, other: Option<Owner>) {
        let other = other.map_or("somebody who removed its owner's record".into(), |owner| owner.name());
        let what = format!("{} was taken over by {other}", self.bucket.place);
        tracing::error!("{what}; nothing is asked of it any more");
        let error = Error::new(Kind::Fenced, what).remedy("stop this server: the other has the pool");
        self.bucket.standing.set(State::Lost(error));
    }

    /// Lets the pool go, so that the next server need not wait. What could not be told is found out by waiting.
    pub(crate) async fn release(self: &Arc<Self>) {
        let lease = self.clone();
        if let Err(error) = self.bucket.run(async move { lease.let_go(State::Free).await }).await {
            tracing::debug!("the lease on the pool was not given back, and runs out: {error}");
        }
    }

    /// The same for good, and nobody waits for it.
    pub(crate) fn begin_release(self: &Arc<Self>) {
        let lease = self.clone();
        self.bucket.begin(async move { drop(lease.let_go(State::Closed).await) });
    }

    async fn let_go(&self, to: State) -> Result<()> {
        let mut mine = self.mine.lock().await;
        if !self.bucket.standing.set(to) {
            return Ok(());
        }
        let Some(version) = mine.version.take().filter(|_| !mine.unclear) else { return Ok(()) };
        // Nothing of this opening's arrives once another may have the pool.
        let until = self.bucket.env.monotonic() + LAND_MAX;
        while self.bucket.is_changing() {
            if self.bucket.env.monotonic() > until {
                return Err(Error::new(Kind::Io, "something is still on its way there"));
            }
            self.bucket.env.sleep(LAND_LOOK).await;
        }
        mine.owner = mine.owner.next(self.bucket.env.random(), true);
        self.bucket.put(OWNER, mine.owner.encode().into(), Condition::Is(version), false).await.map(drop)
    }

    /// Whether the last renewal succeeded.
    fn is_fresh(&self) -> bool {
        match &*self.bucket.standing.0.lock() {
            State::Held(until) => *until > self.bucket.env.monotonic() + HOLD - BEAT,
            _ => true,
        }
    }
}

/// Renews a lease as long as somebody has it.
async fn keep(env: &Env, lease: Weak<Lease>, taking: u64) {
    loop {
        let wait = match lease.upgrade() {
            Some(lease) if lease.is_fresh() => BEAT,
            Some(_) => LOOK,
            None => return,
        };
        env.sleep(wait).await;
        let Some(lease) = lease.upgrade() else { return };
        if !lease.renew(taking).await {
            return;
        }
    }
}
