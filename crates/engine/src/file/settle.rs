//! What a key holds, and making it so on every member that shall have it.
//!
//! The newest sound put wins: had it been acknowledged, every copy would be it, so an older one is left only where a
//! put was under way, or where a copy was lost. Nothing is shown before it is durable on every target; only where a
//! target has no room left is it shown all the same, with a warning.
//!
//! While directories are added, drained or replaced this is also how an object comes to where it shall lie: what lies on
//! its targets of before is copied to those to come, and only when all of these have it durably does it go from where it
//! shall not lie. A copy that has to go is the source of the one that takes its place: two copies may be damaged in
//! different ranges, and together still hold everything.

use super::header::Header;
use super::member::Member;
use super::members::Members;
use super::object::not_found;
use super::planted;
use super::view::View;
use crate::Key;
use bytes::Bytes;
use futures::future::join_all;
use std::sync::Arc;
use stonefold_types::{Error, Kind, Result};

/// What a key holds, on every target.
pub(super) struct Settled {
    pub(super) header: Header,
    /// The payload, where the object is a document.
    pub(super) payload: Option<Bytes>,
    /// Whether all of its targets have it, and nobody else; where not, why.
    pub(super) placed: Result<()>,
    /// Bytes that were copied for it.
    pub(super) copied_bytes: u64,
}

/// What became of copies that were to be made.
enum Spread {
    /// All are there: so many bytes.
    Done(u64),
    /// Some could not be made.
    Short(u64, Error),
    /// A member failed and was dropped, so that targets have changed.
    Dropped,
}

/// What one copy shows: nothing, an object, or an error.
pub(super) type Looked = Result<Option<(Header, Option<Bytes>)>>;

/// What all members show that an object may lie on.
struct Looks {
    /// Those that shall have it.
    targets: Vec<(usize, Looked)>,
    /// Those that may have it and shall not.
    former: Vec<(usize, Looked)>,
}

impl Members {
    /// What a key holds, the same on every target from now on.
    pub(super) async fn settle_locked(self: &Arc<Self>, key: &Key) -> Result<Option<Settled>> {
        let _held = self.lock_key(key).await;
        self.settle(key).await
    }

    /// The same, by whoever has the key's lock.
    pub(super) async fn settle(self: &Arc<Self>, key: &Key) -> Result<Option<Settled>> {
        self.settle_from(key, &[]).await
    }

    /// The same, where other members are known to have it, too.
    pub(super) async fn settle_from(self: &Arc<Self>, key: &Key, also: &[usize]) -> Result<Option<Settled>> {
        loop {
            let view = self.view();
            let looks = Looks::at(&view, key, also).await;
            let Some(mut settled) = looks.newest() else {
                // Absent everywhere; or the only trace of it is damage.
                return looks.into_error().map_or(Ok(None), Err);
            };
            let leftover = looks.leftover();
            if planted::is("deleted-before-copied") {
                self.remove_moved(&view, key, &leftover).await?;
            }
            match self.spread(&view, key, &settled, &looks).await? {
                Spread::Dropped => continue,
                Spread::Short(copied, why) => (settled.copied_bytes, settled.placed) = (copied, Err(why)),
                Spread::Done(copied) => {
                    settled.copied_bytes = copied;
                    // Whoever only reads need not care where it cannot be removed; a put must, and will fail.
                    settled.placed = self.remove_moved(&view, key, &leftover).await;
                }
            }
            return Ok(Some(settled));
        }
    }

    /// Removes the copies of what lies where it shall, from where it shall not.
    async fn remove_moved(self: &Arc<Self>, view: &View, key: &Key, seats: &[usize]) -> Result<()> {
        if !seats.is_empty() {
            let _between = self.listing.write().await;
            for seat in seats {
                if let Err(error) = view.member(*seat).delete(key).await {
                    self.without(*seat, error).await?;
                }
            }
        }
        if view.is_changing() {
            self.unmoved.write().remove(&self.hash(key));
        }
        Ok(())
    }

    /// Makes copies on targets that lack them, each from another source as far as there are enough.
    async fn spread(
        self: &Arc<Self>,
        view: &View,
        key: &Key,
        settled: &Settled,
        looks: &Looks,
    ) -> Result<Spread> {
        let (sources, lacking) = (looks.sources(&settled.header), looks.lacking(&settled.header));
        let (mut short, mut dropped, mut copied) = (None, false, 0);
        let mut fetched: Option<(usize, Bytes)> = None;
        for (at, seat) in lacking.into_iter().enumerate() {
            let first = at.min(sources.len().saturating_sub(1));
            let again = fetched.take().filter(|(source, _)| *source == first).map(|(_, payload)| payload);
            let made = match again {
                Some(payload) => Ok(payload),
                None => fetch_from(view, key, settled, &sources, first).await,
            };
            let Ok(payload) = made.inspect_err(|error| short = Some(error.clone())) else { continue };
            fetched = Some((first, payload.clone()));
            let bytes = payload.len() as u64;
            match copy(view.member(seat), key, &settled.header, payload).await {
                Ok(()) => {
                    copied += bytes;
                    // A change of directories tells of itself.
                    if !view.is_changing() {
                        view.member(seat).tell_healed(key);
                    }
                }
                Err(error) if error.kind() == Kind::NoSpace => short = Some(error),
                Err(error) => {
                    self.without(seat, error).await?;
                    dropped = true;
                }
            }
        }
        Ok(match (dropped, short) {
            (true, _) => Spread::Dropped,
            (false, Some(error)) => {
                if !view.is_changing() {
                    tracing::warn!(%error, "object '{key}' stays with a copy less");
                }
                Spread::Short(copied, error)
            }
            (false, None) => Spread::Done(copied),
        })
    }
}

impl Looks {
    async fn at(view: &View, key: &Key, also: &[usize]) -> Looks {
        let targets = view.targets(key);
        let mut former = view.former(key, &targets);
        for seat in also {
            if view.is_current(*seat) && !targets.contains(*seat) && !former.contains(seat) {
                former.push(*seat);
            }
        }
        let look = |seat: usize| async move { (seat, view.member(seat).look(key).await) };
        let (targets, former) =
            futures::future::join(join_all(targets.iter().map(look)), join_all(former.into_iter().map(look)))
                .await;
        Looks { targets, former }
    }

    fn all(&self) -> impl Iterator<Item = &(usize, Looked)> {
        self.targets.iter().chain(&self.former)
    }

    fn newest(&self) -> Option<Settled> {
        let (header, payload) = newest(self.all().map(|(_, look)| look))?;
        Some(Settled { header: header.clone(), payload: payload.clone(), placed: Ok(()), copied_bytes: 0 })
    }

    fn into_error(self) -> Option<Error> {
        self.targets.into_iter().chain(self.former).find_map(|(_, look)| look.err())
    }

    /// Those that have this put: first those from which it has to go.
    fn sources(&self, header: &Header) -> Vec<usize> {
        let all = self.former.iter().chain(&self.targets);
        all.filter(|(_, look)| is_put(look, header)).map(|(seat, _)| *seat).collect()
    }

    /// The targets that do not have it.
    fn lacking(&self, header: &Header) -> Vec<usize> {
        let lacking = self.targets.iter().filter(|(_, look)| !is_put(look, header));
        let lacking: Vec<usize> = lacking.map(|(seat, _)| *seat).collect();
        let enough = planted::is("copies-not-filled") && lacking.len() < self.targets.len();
        if enough { Vec::new() } else { lacking }
    }

    /// Where something lies that shall not.
    fn leftover(&self) -> Vec<usize> {
        let leftover = self.former.iter().filter(|(_, look)| !matches!(look, Ok(None)));
        leftover.map(|(seat, _)| *seat).collect()
    }
}

/// From the source that is chosen, else from any that can be read.
async fn fetch_from(
    view: &View,
    key: &Key,
    settled: &Settled,
    sources: &[usize],
    first: usize,
) -> Result<Bytes> {
    let mut failed = None;
    for seat in sources[first..].iter().chain(&sources[..first]) {
        match fetch(view.member(*seat), key, &settled.header, settled.payload.as_ref()).await {
            Err(error) => failed = failed.or(Some(error)),
            done => return done,
        }
    }
    Err(failed.unwrap_or_else(|| not_found(key)))
}

/// All of what one member has, which is this put; of a document it is known already.
pub(super) async fn fetch(
    from: &Arc<Member>,
    key: &Key,
    header: &Header,
    document: Option<&Bytes>,
) -> Result<Bytes> {
    let payload = match document {
        Some(payload) => payload.clone(),
        None => from.get_range(key, 0, usize::MAX).await?,
    };
    header.verify(&payload).map_err(|e| from.named(e, key))?;
    Ok(payload)
}

/// Puts a copy of what another member has.
pub(super) async fn copy(to: &Arc<Member>, key: &Key, header: &Header, payload: Bytes) -> Result<()> {
    let temporary = to.stage(header, payload).await?;
    to.publish(key, temporary, true).await
}

/// The newest of the copies that are sound. Equal counts of different puts do not come about while histories are one; a
/// rule decides all the same, so that everybody who looks decides alike.
pub(super) fn newest<'a>(looks: impl Iterator<Item = &'a Looked>) -> Option<&'a (Header, Option<Bytes>)> {
    let sound = looks.filter_map(|look| look.as_ref().ok()?.as_ref());
    let age = |(header, _): &&(Header, Option<Bytes>)| (header.count, header.nonce);
    if planted::is("stale-copy-wins") { sound.min_by_key(age) } else { sound.max_by_key(age) }
}

/// Whether a copy is this put.
pub(super) fn is_put(look: &Looked, header: &Header) -> bool {
    let same =
        |found: &Header| (found.count, found.nonce, found.len) == (header.count, header.nonce, header.len);
    look.as_ref().is_ok_and(|found| found.as_ref().is_some_and(|(found, _)| same(found)))
}

/// The whole of what one member has.
pub(super) async fn fetch_whole(from: &Arc<Member>, key: &Key) -> Result<(Header, Bytes)> {
    let (header, payload) = from.look(key).await?.ok_or_else(|| not_found(key))?;
    let payload = fetch(from, key, &header, payload.as_ref()).await?;
    Ok((header, payload))
}
