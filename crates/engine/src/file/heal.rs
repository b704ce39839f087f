//! Copies that do not agree, or are damaged: which of them is right, and making the others like it.
//!
//! The newest sound put wins: had it been acknowledged, every copy would be it, so an older one is left only where a
//! put was under way, or where a copy was lost. Nothing is shown before it is durable on every target; only where a
//! target has no room left is it shown all the same, with a warning.

use super::header::Header;
use super::member::Member;
use super::members::{Members, View};
use super::object::not_found;
use crate::{Key, Repaired, Sound};
use bytes::Bytes;
use futures::future::join_all;
use std::sync::Arc;
use stonefold_types::{Kind, Result};

/// Objects healed in the background at once; more are healed when they are read again. Each may hold a segment in
/// memory.
const HEALING_MAX: usize = 8;

/// What a key holds, on every target.
pub(super) struct Settled {
    pub(super) header: Header,
    /// The payload, where the object is a document.
    pub(super) payload: Option<Bytes>,
}

/// What one copy shows: nothing, an object, or an error.
type Looked = Result<Option<(Header, Option<Bytes>)>>;

/// A range of a copy that could not be read, with what belongs there: its seat, where, what.
pub(super) type Unreadable = (usize, u64, Bytes);

impl Members {
    /// What a key holds, the same on every target from now on.
    pub(super) async fn settle_locked(self: &Arc<Self>, key: &Key) -> Result<Option<Settled>> {
        let _held = self.lock_key(key).await;
        self.settle(key).await
    }

    /// The same, by whoever has the key's lock.
    pub(super) async fn settle(self: &Arc<Self>, key: &Key) -> Result<Option<Settled>> {
        loop {
            let view = self.view();
            let targets = view.targets(key);
            let seats: Vec<usize> = targets.iter().collect();
            let looks = join_all(seats.iter().map(|seat| view.member(*seat).look(key))).await;
            let Some((source, settled)) = newest(&seats, &looks) else {
                // Absent everywhere; or the only trace of it is damage.
                return looks.into_iter().find_map(Result::err).map_or(Ok(None), Err);
            };
            let differ = seats.iter().zip(&looks).filter(|(_, look)| !is_put(look, &settled.header));
            let differ: Vec<usize> = differ.map(|(seat, _)| *seat).collect();
            if differ.is_empty() || self.spread(&view, key, source, &settled, &differ).await? {
                return Ok(Some(settled));
            }
        }
    }

    /// Copies what one member has to others. `false`: one of these failed and was dropped.
    async fn spread(
        self: &Arc<Self>,
        view: &View,
        key: &Key,
        source: usize,
        settled: &Settled,
        to: &[usize],
    ) -> Result<bool> {
        let payload = match fetch(view.member(source), key, settled).await {
            Ok(payload) => payload,
            Err(error) => {
                tracing::warn!(%error, "object '{key}' has copies that differ, and the newest cannot be copied");
                return Ok(true);
            }
        };
        let mut all = true;
        for seat in to {
            let to = view.member(*seat);
            match copy(to, key, &settled.header, payload.clone()).await {
                Ok(()) => tracing::info!("object '{key}' is healed in '{}'", to.path().display()),
                Err(error) if error.kind() == Kind::NoSpace => {
                    tracing::warn!(%error, "object '{key}' stays with a copy less");
                }
                Err(error) => {
                    self.without(*seat, error).await?;
                    all = false;
                }
            }
        }
        Ok(all)
    }

    /// Heals a key that a read has found wanting, beside whatever else goes on.
    pub(super) fn heal_later(self: &Arc<Self>, key: &Key, unreadable: Option<Unreadable>) {
        {
            let mut healing = self.healing.lock();
            if healing.len() >= HEALING_MAX || !healing.insert(key.clone()) {
                return;
            }
        }
        let (members, key) = (self.clone(), key.clone());
        self.env.spawn("heal", async move {
            if let Err(error) = members.heal(&key, unreadable).await {
                tracing::warn!(%error, "object '{key}' could not be healed");
            }
            members.healing.lock().remove(&key);
        });
    }

    /// Heals what lacks a copy, one after the other, beside whatever else goes on.
    pub(super) fn heal_all_later(self: &Arc<Self>, keys: Vec<Key>) {
        if keys.is_empty() {
            return;
        }
        // Whoever closes the pool must not wait for this to end.
        let members = Arc::downgrade(self);
        self.env.spawn("heal", async move {
            tracing::info!(objects = keys.len(), "objects with a copy less are copied");
            for key in keys {
                let Some(members) = members.upgrade() else { return };
                if let Err(error) = members.settle_locked(&key).await {
                    tracing::warn!(%error, "object '{key}' could not be healed");
                }
            }
        });
    }

    async fn heal(self: &Arc<Self>, key: &Key, unreadable: Option<Unreadable>) -> Result<()> {
        let _held = self.lock_key(key).await;
        let settled = self.settle(key).await?;
        let (Some(settled), Some((seat, offset, bytes))) = (settled, unreadable) else { return Ok(()) };
        let view = self.view();
        // What was read may have been deleted since, and another be there now: only immutable objects are mended so.
        if !view.is_current(seat) || settled.payload.is_some() {
            return Ok(());
        }
        match view.member(seat).mend(key, offset, bytes).await {
            Err(error) => self.without(seat, error).await,
            Ok(()) => Ok(()),
        }
    }

    /// See [`crate::Engine::repair`].
    pub(super) async fn repair(
        self: &Arc<Self>,
        key: &Key,
        offset: u64,
        len: usize,
        sound: &Sound<'_>,
    ) -> Result<Option<Repaired>> {
        let _held = self.lock_key(key).await;
        let view = self.view();
        let seats: Vec<usize> = view.targets(key).iter().collect();
        let reads = join_all(seats.iter().map(|seat| view.member(*seat).get_range(key, offset, len))).await;
        if reads.iter().all(|read| read.as_ref().is_err_and(|e| e.kind() == Kind::NotFound)) {
            return Err(not_found(key));
        }
        let is_sound = |read: &Result<Bytes>| read.as_ref().is_ok_and(|bytes| sound(bytes));
        let Some(good) = reads.iter().position(is_sound) else { return whole_or_none(reads) };
        let bytes = reads[good].clone()?;
        let mut healed = 0;
        // Read once, where a copy lacks more than this range.
        let mut whole = None;
        for (seat, read) in seats.iter().zip(&reads).filter(|(_, read)| !is_sound(read)) {
            let to = view.member(*seat);
            let present = read.as_ref().is_ok_and(|found| found.len() == bytes.len());
            let unreadable = read.as_ref().is_err_and(|e| e.kind() == Kind::Io);
            let mended = match present || unreadable {
                true => mend(to, key, offset, &bytes).await,
                false => false,
            };
            if !mended && whole.is_none() {
                match fetch_whole(view.member(seats[good]), key).await {
                    Ok(fetched) => whole = Some(fetched),
                    // That is no fault of the member that lacks it.
                    Err(error) => {
                        tracing::warn!(%error, "object '{key}' stays with a copy less: the other is damaged elsewhere");
                        continue;
                    }
                }
            }
            let copied = match &whole {
                Some((header, payload)) if !mended => copy(to, key, header, payload.clone()).await,
                _ => Ok(()),
            };
            match copied {
                Ok(()) => healed += 1,
                Err(error) if error.kind() == Kind::NoSpace => {
                    tracing::warn!(%error, "object '{key}' could not be healed");
                }
                Err(error) => self.without(*seat, error).await?,
            }
        }
        Ok(Some(Repaired { bytes, copies: seats.len() as u32, healed }))
    }
}

/// No copy is sound; where none could even be read, that is told instead.
fn whole_or_none(reads: Vec<Result<Bytes>>) -> Result<Option<Repaired>> {
    let damaged = |read: &Result<Bytes>| !read.as_ref().is_err_and(|e| e.kind() == Kind::Io);
    if reads.iter().any(damaged) {
        return Ok(None);
    }
    reads.into_iter().find_map(Result::err).map_or(Ok(None), Err)
}

/// Writes sound bytes over damaged ones, and reads them back from the medium.
async fn mend(member: &Arc<Member>, key: &Key, offset: u64, bytes: &Bytes) -> bool {
    if member.mend(key, offset, bytes.clone()).await.is_err() {
        return false;
    }
    member.get_range(key, offset, bytes.len()).await.is_ok_and(|found| found == bytes)
}

async fn fetch_whole(from: &Arc<Member>, key: &Key) -> Result<(Header, Bytes)> {
    let (header, payload) = from.look(key).await?.ok_or_else(|| not_found(key))?;
    let settled = Settled { header, payload };
    let payload = fetch(from, key, &settled).await?;
    Ok((settled.header, payload))
}

pub(super) async fn fetch(from: &Arc<Member>, key: &Key, settled: &Settled) -> Result<Bytes> {
    let payload = match &settled.payload {
        Some(payload) => payload.clone(),
        None => from.get_range(key, 0, usize::MAX).await?,
    };
    settled.header.verify(&payload).map_err(|e| from.named(e, key))?;
    Ok(payload)
}

/// Puts a copy of what another member has.
pub(super) async fn copy(to: &Arc<Member>, key: &Key, header: &Header, payload: Bytes) -> Result<()> {
    let temporary = to.stage(header, payload).await?;
    to.publish(key, temporary, true).await
}

/// The newest of the copies that are sound, and whose it is. Equal counts of different puts do not come about while
/// histories are one; a rule decides all the same, so that everybody who looks decides alike.
pub(super) fn newest(seats: &[usize], looks: &[Looked]) -> Option<(usize, Settled)> {
    let sound =
        seats.iter().zip(looks).filter_map(|(seat, look)| Some((*seat, look.as_ref().ok()?.as_ref()?)));
    let best = sound.max_by_key(|(_, (header, _))| (header.count, header.nonce));
    best.map(|(seat, (header, payload))| (seat, Settled { header: header.clone(), payload: payload.clone() }))
}

/// Whether a copy is this put.
pub(super) fn is_put(look: &Looked, header: &Header) -> bool {
    let same =
        |found: &Header| (found.count, found.nonce, found.len) == (header.count, header.nonce, header.len);
    look.as_ref().is_ok_and(|found| found.as_ref().is_some_and(|(found, _)| same(found)))
}
