//! Copies that are damaged or cannot be read: healed from a sound one, or by their own parity, beside whatever else goes on, or when
//! somebody who knows what the bytes mean asks for it.

use super::member::Member;
use super::members::Members;
use super::object::not_found;
use super::settle::{copy, fetch_whole};
use crate::{Key, Repaired, Sound};
use bytes::Bytes;
use futures::future::join_all;
use std::sync::Arc;
use stonefold_types::{Kind, Result};

/// Objects healed in the background at once; more are healed when they are read again. Each may hold a segment in
/// memory.
const HEALING_MAX: usize = 8;

/// A range of a copy that could not be read, with what belongs there: its seat, where, what.
pub(super) type Unreadable = (usize, u64, Bytes);

impl Members {
    /// Heals a key that a read has found wanting, beside whatever else goes on. Returns whether that begins now: it may be under way.
    pub(super) fn heal_later(self: &Arc<Self>, key: &Key, unreadable: Option<Unreadable>) -> bool {
        {
            let mut healing = self.healing.lock();
            if healing.len() >= HEALING_MAX || !healing.insert(key.clone()) {
                return false;
            }
        }
        let (members, key) = (self.clone(), key.clone());
        self.env.spawn("heal", async move {
            if let Err(error) = members.heal(&key, unreadable).await {
                tracing::warn!(%error, "object '{key}' could not be healed");
            }
            members.healing.lock().remove(&key);
        });
        true
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
            Ok(()) => {
                view.member(seat).tell_healed(key);
                Ok(())
            }
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
        let targets = view.targets(key);
        let former = view.former(key, &targets);
        let seats: Vec<usize> = targets.iter().chain(former.iter().copied()).collect();
        let read = |seat: &usize| read_to_repair(view.member(*seat).clone(), key, offset, len);
        let (mut reads, mut mended): (Vec<_>, Vec<bool>) =
            join_all(seats.iter().map(read)).await.into_iter().unzip();
        if reads.iter().all(|read| read.as_ref().is_err_and(|e| e.kind() == Kind::NotFound)) {
            return Err(not_found(key));
        }
        let is_sound = |read: &Result<Bytes>| read.as_ref().is_ok_and(|bytes| sound(bytes));
        for (at, seat) in seats.iter().enumerate() {
            let is_absent = reads[at].as_ref().is_err_and(|e| e.kind() == Kind::NotFound);
            if !reads.iter().any(is_sound) && !is_absent {
                // No copy is sound as it lies there.
                mended[at] |= view.member(*seat).read_and_mend(key).await.is_ok_and(|whole| whole.mended > 0);
                reads[at] = view.member(*seat).get_range(key, offset, len).await;
            }
        }
        let Some(good) = reads.iter().position(is_sound) else { return whole_or_none(reads) };
        let bytes = reads[good].clone()?;
        let of_itself = |(read, mended): &(&Result<Bytes>, &bool)| **mended && is_sound(read);
        let mut healed = reads.iter().zip(&mended).filter(of_itself).count() as u32;
        // Read once, where a copy lacks more than this range.
        let mut whole = None;
        // Where it shall not lie any more it need not lie, but what lies there is read and must be sound.
        let gone = |seat: &usize, read: &Result<Bytes>| {
            former.contains(seat) && read.as_ref().is_err_and(|e| e.kind() == Kind::NotFound)
        };
        let copies = seats.iter().zip(&reads).filter(|(seat, read)| !gone(seat, read)).count();
        for (seat, read) in seats.iter().zip(&reads) {
            if is_sound(read) || gone(seat, read) {
                continue;
            }
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
                Ok(()) => {
                    healed += 1;
                    to.tell_healed(key);
                }
                Err(error) if error.kind() == Kind::NoSpace => {
                    tracing::warn!(%error, "object '{key}' could not be healed");
                }
                Err(error) => self.without(*seat, error).await?,
            }
        }
        Ok(Some(Repaired { bytes, copies: copies as u32, healed }))
    }
}

/// A range of a copy, and whether something of the copy was mended meanwhile: who reads all there is learns of damage to its parity, too.
async fn read_to_repair(member: Arc<Member>, key: &Key, offset: u64, len: usize) -> (Result<Bytes>, bool) {
    let is_all = match member.handle(key).await {
        Ok(handle) => offset == 0 && handle.len <= len as u64,
        Err(error) => return (Err(error), false),
    };
    if !is_all {
        return (member.get_range(key, offset, len).await, false);
    }
    let whole = member.read_and_mend(key).await;
    let mended = whole.as_ref().is_ok_and(|whole| whole.mended > 0);
    (whole.map(|whole| whole.payload.into()), mended)
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
