//! Objects on several members: each on as many as there are copies, all of them the same put.
//!
//! A put writes its file on every target first and names it only then; so a full or failing member shows before
//! anything has changed. A crash between the names leaves the new version here and the old one there: the newest
//! wins, and whoever looks next makes it so everywhere before he shows it ([`super::settle`]).
//!
//! A target that fails is dropped, and whichever member takes its place gets the copy instead.
//!
//! While directories are added, drained or replaced an object may lie on its targets by the rule to come or by the one
//! from before ([`super::view`]). What is put goes by the rule to come, and what lies elsewhere under its key is gone
//! before the put is acknowledged: so nothing older can ever be taken for it.

use super::header::{Header, SUMMED_BYTES_MAX};
use super::member::Member;
use super::members::Members;
use super::object::not_found;
use super::placement::Targets;
use super::planted;
use super::view::View;
use crate::{Key, Listed, Version};
use bytes::Bytes;
use futures::future::join_all;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stonefold_types::{Error, Kind, Result};

impl Members {
    /// Puts an object: a new one, or over the version `expected`.
    pub(super) async fn put(
        self: &Arc<Self>,
        key: &Key,
        bytes: Bytes,
        expected: Option<&Version>,
    ) -> Result<Version> {
        let _held = self.lock_key(key).await;
        let settled_in = self.view();
        let settled = self.settle(key).await?;
        let placed = settled.as_ref().is_none_or(|settled| settled.placed.is_ok());
        let found = settled.map(|settled| settled.header);
        let count = check_expected(key, found.as_ref(), expected)? + 1;
        let header = Header::of(&bytes, count, self.env.random());
        let mut named = Vec::new();
        let mut put = self.put_on_targets(key, &header, &bytes, expected.is_some(), &mut named).await;
        if put.is_ok() && !(placed && Arc::ptr_eq(&settled_in, &self.view())) {
            put = self.remove_elsewhere(key).await;
        }
        let changed = expected.is_some() && !named.is_empty();
        if put.is_err() && expected.is_none() {
            // A put that fails for want of room leaves nothing behind.
            let view = self.view();
            let undone = named.into_iter().filter(|seat| view.is_current(*seat));
            join_all(undone.map(|seat| view.member(seat).delete(key))).await;
        }
        match put {
            Ok(()) => Ok(header.version()),
            // NoSpace would say that nothing was changed.
            Err(error) if error.kind() == Kind::NoSpace && changed => Err(error.with_kind(Kind::Io)),
            Err(error) => Err(error),
        }
    }

    /// Removes what lies under a key where nothing of it shall lie any more, since a change began beside its put.
    async fn remove_elsewhere(self: &Arc<Self>, key: &Key) -> Result<()> {
        let view = self.view();
        let targets = view.targets(key);
        let seats: Vec<usize> =
            view.current().map(|(seat, _)| seat).filter(|seat| !targets.contains(*seat)).collect();
        let deletes = join_all(seats.iter().map(|seat| view.member(*seat).delete(key))).await;
        self.spare_failing(&seats, deletes).await.map(drop)
    }

    /// Until every target has it; which ones these are changes when a member is dropped.
    async fn put_on_targets(
        self: &Arc<Self>,
        key: &Key,
        header: &Header,
        bytes: &Bytes,
        replaces: bool,
        named: &mut Vec<usize>,
    ) -> Result<()> {
        loop {
            let view = self.view();
            let wanted = if planted::is("one-copy-will-do") { 1 } else { usize::MAX };
            let targets = view.targets(key);
            let lacking: Vec<usize> =
                targets.iter().take(wanted).filter(|seat| !named.contains(seat)).collect();
            if lacking.is_empty() {
                return Ok(());
            }
            let stages = lacking.iter().map(|seat| view.member(*seat).stage(header, bytes.clone()));
            let Some(staged) = self.spare_failing(&lacking, join_all(stages).await).await? else { continue };
            let _settling = self.settling.read().await;
            let names = lacking
                .iter()
                .zip(staged)
                .map(|(seat, temporary)| view.member(*seat).publish(key, temporary, replaces));
            let results = join_all(names).await;
            named.extend(
                lacking.iter().zip(&results).filter(|(_, result)| result.is_ok()).map(|(seat, _)| seat),
            );
            self.spare_failing(&lacking, results).await?;
        }
    }

    /// What each of the members answered; `None` when one failed and was dropped, so that targets have changed.
    async fn spare_failing<T>(
        self: &Arc<Self>,
        seats: &[usize],
        results: Vec<Result<T>>,
    ) -> Result<Option<Vec<T>>> {
        let mut answers = Vec::with_capacity(results.len());
        let mut dropped = false;
        for (seat, result) in seats.iter().zip(results) {
            match result {
                Ok(answer) => answers.push(answer),
                Err(error) => {
                    self.without(*seat, error).await?;
                    dropped = true;
                }
            }
        }
        Ok((!dropped).then_some(answers))
    }

    /// The whole of an object. A document is verified, and the same on every target before it is shown.
    pub(super) async fn get(self: &Arc<Self>, key: &Key) -> Result<(Bytes, Version)> {
        loop {
            let settled = self.settle_locked(key).await?.ok_or_else(|| not_found(key))?;
            let version = settled.header.version();
            if let Some(payload) = settled.payload {
                return Ok((payload, version));
            }
            let payload = self.get_range(key, 0, usize::MAX).await?;
            // Meanwhile another object may have come in its place.
            let again = self.settle_locked(key).await?.ok_or_else(|| not_found(key))?;
            if again.header.version() == version {
                let verified = again.header.verify(&payload);
                verified
                    .map_err(|e| e.context(format!("object '{key}'")).remedy("run a scrub, or restore it"))?;
                return Ok((payload, version));
            }
        }
    }

    /// Part of an object, from whichever copy is least busy, or else from another.
    pub(super) async fn get_range(self: &Arc<Self>, key: &Key, offset: u64, len: usize) -> Result<Bytes> {
        let view = self.view();
        let targets = match view.is_changing() && self.unmoved.read().contains(&self.hash(key)) {
            true => view.old_targets(key),
            false => view.targets(key),
        };
        match self.get_range_of(&view, &targets, key, offset, len).await {
            Err(error) if error.kind() == Kind::NotFound => {
                self.get_range_anywhere(&view, key, error, offset, len).await
            }
            done => done,
        }
    }

    async fn get_range_of(
        self: &Arc<Self>,
        view: &View,
        targets: &Targets,
        key: &Key,
        offset: u64,
        len: usize,
    ) -> Result<Bytes> {
        let seat = if targets.len() == 1 { targets.first() } else { self.least_busy(view, targets) };
        let read = match read_from(view, targets, seat, key, offset, len).await {
            Err(failed) => self.get_range_elsewhere(view, targets, failed, key, offset, len).await,
            Ok(bytes) => return Ok(bytes),
        };
        match read {
            Err(error) if error.kind() == Kind::Io => {
                mend_and_read(view, targets, error, key, offset, len).await
            }
            done => done,
        }
    }

    /// What was not found where it was looked for, while nothing under its key changes or moves.
    async fn get_range_anywhere(
        self: &Arc<Self>,
        before: &Arc<View>,
        key: &Key,
        absent: Error,
        offset: u64,
        len: usize,
    ) -> Result<Bytes> {
        if !before.is_changing() && Arc::ptr_eq(before, &self.view()) {
            return Err(absent);
        }
        let _held = self.lock_key(key).await;
        let view = self.view();
        let targets = view.targets(key);
        let mut error = absent;
        for seat in targets.iter().chain(view.former(key, &targets)) {
            match view.member(seat).get_range(key, offset, len).await {
                Err(other) if other.kind() != Kind::NotFound => error = other,
                Err(_) => {}
                done => return done,
            }
        }
        Err(error)
    }

    fn least_busy(&self, view: &View, targets: &Targets) -> usize {
        let busy = |seat: &usize| view.member(*seat).reads.load(Ordering::Relaxed);
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % targets.len();
        // From another place each time, so that idle members take turns.
        let mut order =
            targets.iter().skip(turn).chain(targets.iter().take(turn)).map(|seat| (busy(&seat), seat));
        let first = order.next().expect("an object has targets");
        order.fold(first, |best, one| if one.0 < best.0 { one } else { best }).1
    }

    async fn get_range_elsewhere(
        self: &Arc<Self>,
        view: &View,
        targets: &Targets,
        (failed, mut error): (usize, Error),
        key: &Key,
        offset: u64,
        len: usize,
    ) -> Result<Bytes> {
        for seat in targets.iter().filter(|seat| *seat != failed) {
            match view.member(seat).get_range(key, offset, len).await {
                Ok(bytes) => {
                    // Damage to the file is found by looking; an unreadable range has to be told.
                    let mend = (error.kind() == Kind::Io).then(|| (failed, offset, bytes.clone()));
                    // Once, not for each read until it is healed.
                    if self.heal_later(key, mend) {
                        tracing::warn!(%error, "a copy cannot be read, another can");
                    }
                    return Ok(bytes);
                }
                // An absent copy says less than one that cannot be read.
                Err(other) if error.kind() == Kind::NotFound => error = other,
                Err(_) => {}
            }
        }
        Err(error)
    }

    /// Deletes an object, durably, from every member.
    pub(super) async fn delete(self: &Arc<Self>, key: &Key) -> Result<()> {
        let _held = self.lock_key(key).await;
        let _settling = self.settling.read().await;
        let view = self.view();
        let seats: Vec<usize> = view.current().map(|(seat, _)| seat).collect();
        let deletes = join_all(seats.iter().map(|seat| view.member(*seat).delete(key))).await;
        self.spare_failing(&seats, deletes).await.map(drop)
    }

    /// One page of a listing, of all members together.
    pub(super) async fn list(&self, prefix: &str, after: Option<&Key>, limit: usize) -> Result<Vec<Listed>> {
        let listing = self.listing.read().await;
        let view = self.view();
        let pages = join_all(view.current().map(|(_, member)| member.list(prefix, after, limit))).await;
        let mut failed = view.roster.lacking();
        let mut listed: BTreeMap<Key, u64> = BTreeMap::new();
        for page in pages {
            match page {
                Ok(page) => page.into_iter().for_each(|one| {
                    let bytes = listed.entry(one.key).or_default();
                    *bytes = one.bytes.max(*bytes);
                }),
                // Whatever it has the others have too, as long as there are more copies than failures.
                Err(error) => {
                    failed += 1;
                    if failed >= view.copies() {
                        return Err(error);
                    }
                    tracing::warn!(%error, "a directory cannot be listed, the others can");
                }
            }
        }
        drop(listing);
        // What was seen may have been named a moment ago: wait until it is durable, everywhere.
        drop(self.settling.write().await);
        Ok(listed.into_iter().take(limit).map(|(key, bytes)| Listed { key, bytes }).collect())
    }
}

/// Reads from one copy, counted while it is on its way; the error tells which. A document is read from its first copy, whichever was chosen:
/// while it is being replaced, copies differ, and no read may be older than one before it.
async fn read_from(
    view: &View,
    targets: &Targets,
    seat: usize,
    key: &Key,
    offset: u64,
    len: usize,
) -> std::result::Result<Bytes, (usize, Error)> {
    let mut seat = seat;
    let mut handle = view.member(seat).handle(key).await.map_err(|e| (seat, e))?;
    if seat != targets.first() && handle.len <= SUMMED_BYTES_MAX as u64 {
        // Where the first has none there is nothing that it could be older than.
        if let Ok(first) = view.member(targets.first()).handle(key).await {
            (seat, handle) = (targets.first(), first);
        }
    }
    let member = view.member(seat);
    let _counted = Counted::new(member);
    member.read_handle(key, &handle, offset, len).await.map_err(|e| (seat, e))
}

/// Reads a range that no medium gives: from the first copy whose own parity restores it.
async fn mend_and_read(
    view: &View,
    targets: &Targets,
    error: Error,
    key: &Key,
    offset: u64,
    len: usize,
) -> Result<Bytes> {
    for seat in targets.iter() {
        if view.member(seat).read_and_mend(key).await.is_ok_and(|whole| whole.mended > 0) {
            if let Ok(bytes) = view.member(seat).get_range(key, offset, len).await {
                return Ok(bytes);
            }
        }
    }
    Err(error)
}

/// A read on its way.
struct Counted<'a>(&'a Member);

impl<'a> Counted<'a> {
    fn new(member: &'a Member) -> Self {
        member.reads.fetch_add(1, Ordering::Relaxed);
        Counted(member)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.reads.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The number of the put that made what is there now; 0 for nothing.
fn check_expected(key: &Key, found: Option<&Header>, expected: Option<&Version>) -> Result<u64> {
    match (found, expected) {
        (None, None) => Ok(0),
        (None, Some(_)) => Err(not_found(key)),
        (Some(_), None) => Err(Error::new(Kind::AlreadyExists, format!("object '{key}' exists already"))),
        (Some(found), Some(expected)) if found.version() == *expected => Ok(found.count),
        (Some(found), Some(expected)) => {
            let why = format!("object '{key}' is version {}, not {}", found.version().0, expected.0);
            Err(Error::new(Kind::Conflict, why).remedy("read it again"))
        }
    }
}
