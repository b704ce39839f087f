//! Snapshots, clones, rollback, and what changed between two instants.
//!
//! A snapshot is a mark in the journal: durable with it, readable at once, and cheap at any size. The fold
//! materialises it, as a commit, when it gets there; what needs a commit (a clone, a comparison) has the fold come
//! now.

use crate::clients::Client;
use crate::disk::{Disk, State, View};
use crate::disks::{Beginning, check_idle};
use crate::map;
use crate::overlay::Blocks;
use crate::planted;
use crate::rollback;
use crate::snapshot::Snapshot;
use crate::status::DiskInfo;
use crate::store::Store;
use crate::time::TimeStatus;
use std::sync::Arc;
use stonefold_env::WallNanos;
use stonefold_format::head::Base;
use stonefold_format::record::{Change, Record};
use stonefold_format::snapshots::Commit;
use stonefold_types::{BLOCK_BYTES, Error, ExportName, Kind, Name, Result, SnapshotName};

/// Snapshots not folded that a disk has before a round comes by itself: each is a layer that reads go through, some ten
/// nanoseconds; a round for fewer would show in how long one in a hundred takes.
const PENDING_MAX: usize = 1024;

/// What is known of a snapshot.
#[derive(Clone, Debug)]
pub struct SnapshotInfo {
    /// `disk@name`.
    pub name: SnapshotName,
    /// Its number: unique within its disk, and growing.
    pub number: u64,
    /// The disk's size then, in bytes.
    pub size_bytes: u64,
    /// Nanoseconds since 1970.
    pub created: WallNanos,
    /// Nanoseconds since 1970, by trusted time; `None` when it is not locked or no longer.
    pub locked_until: Option<WallNanos>,
}

impl Store {
    /// Snapshots all the disks at one instant, under one name (made from the time when left out). Durable on return.
    pub async fn snapshot(&self, disks: &[Name], name: Option<Name>) -> Result<Vec<SnapshotInfo>> {
        let mut disks: Vec<Arc<Disk>> = disks.iter().map(|name| self.find(name)).collect::<Result<_>>()?;
        // In one order everywhere, so that two such calls never wait for each other's locks.
        disks.sort_by_key(|disk| disk.id);
        disks.dedup_by_key(|disk| disk.id);
        if disks.is_empty() {
            return Err(Error::new(Kind::Invalid, "no disk to snapshot").remedy("name at least one"));
        }
        let created = self.env.wall();
        let name = name.unwrap_or_else(|| fresh_name(&disks, created));
        for disk in &disks {
            disk.state.lock().check_not_barred()?;
        }
        self.check_snapshot_room(&disks).await?;
        // Once more: while room was asked for, a rollback may have begun.
        self.mark_durably(&disks, &name, created, State::check_not_barred).await
    }

    /// `check` is asked of each disk at the very instant of the mark.
    async fn mark_durably(
        &self,
        disks: &[Arc<Disk>],
        name: &Name,
        created: WallNanos,
        check: fn(&State) -> Result<()>,
    ) -> Result<Vec<SnapshotInfo>> {
        let appended = self.mark(disks, name, created, check)?;
        self.durably(appended).await?;
        let found = |disk: &Arc<Disk>| {
            disk.state.lock().snapshots.named(name).map(|s| info(disk, s, self.clock.now()))
        };
        Ok(disks.iter().filter_map(found).collect())
    }

    /// Makes everything durable that was asked for before this call, also what nobody was told of: a snapshot that a failed call may have taken
    /// can be looked at, and is gone after a crash, unless this has returned. Fails where that cannot be.
    pub async fn settle_marks(&self) -> Result<()> {
        self.check_open()?;
        self.journal.hand_over().await?;
        self.flush().await
    }

    /// Puts the marks into the journal and ends the layers, all under all disks' locks: one instant.
    fn mark(
        &self,
        disks: &[Arc<Disk>],
        name: &Name,
        created: WallNanos,
        check: fn(&State) -> Result<()>,
    ) -> Result<crate::journal::Appended> {
        let mut states: Vec<_> = disks.iter().map(|disk| disk.state.lock()).collect();
        let mut encoded = Vec::new();
        for (disk, state) in disks.iter().zip(&states) {
            check(state)?;
            if state.snapshots.named(name).is_some() {
                return Err(Error::new(
                    Kind::AlreadyExists,
                    format!("snapshot '{}@{name}' exists already", disk.name),
                )
                .remedy("choose another name, or remove that snapshot first"));
            }
            let (snapshot, size_bytes) = (state.next_snapshot_id, state.size_bytes);
            let change = Change::Mark { snapshot, created, size_bytes, name: name.clone() };
            Record { of: disk.leased(), change }.encode(&mut encoded);
        }
        let count = if planted::is("group-torn") { 1 } else { disks.len() as u32 };
        if planted::is("group-torn") {
            encoded.truncate(encoded.len() / disks.len());
        }
        let appended = self.journal.append_records(&encoded, count)?;
        for (at, state) in states.iter_mut().enumerate() {
            let (id, size_bytes) = (state.next_snapshot_id, state.size_bytes);
            state.apply_mark(id, appended.lsn + at as u64, name.clone(), created, size_bytes);
        }
        if states.iter().any(|state| state.snapshots.pending() >= PENDING_MAX) {
            self.fold_soon();
        }
        Ok(appended)
    }

    /// All snapshots of one disk, or of all by the disks' names, oldest first.
    pub fn snapshots(&self, disk: Option<&Name>) -> Result<Vec<SnapshotInfo>> {
        self.snapshots_after(disk, None, usize::MAX)
    }

    /// As [`snapshots`](Self::snapshots): at most `limit` of those that follow the one of a disk with a number, whether that one is still
    /// there or not. With the last one's disk and number the next call goes on.
    pub fn snapshots_after(
        &self,
        disk: Option<&Name>,
        after: Option<(&Name, u64)>,
        limit: usize,
    ) -> Result<Vec<SnapshotInfo>> {
        let disks = match disk {
            Some(name) => vec![self.find(name)?],
            None => self.all_disks(),
        };
        let (mut found, now) = (Vec::new(), self.clock.now());
        for disk in disks.iter().filter(|disk| after.is_none_or(|(after, _)| disk.name >= *after)) {
            let from = after.filter(|(after, _)| disk.name == **after).map_or(0, |(_, number)| number + 1);
            let state = disk.state.lock();
            let live = state.snapshots.within(from..).filter(|s| !s.removed);
            found.extend(live.take(limit - found.len()).map(|snapshot| info(disk, snapshot, now)));
            if found.len() == limit {
                break;
            }
        }
        Ok(found)
    }

    /// One snapshot.
    pub fn snapshot_info(&self, name: &SnapshotName) -> Result<SnapshotInfo> {
        let disk = self.find(&name.disk)?;
        let state = disk.state.lock();
        state
            .snapshot_named(&name.disk, &name.snapshot)
            .map(|snapshot| info(&disk, snapshot, self.clock.now()))
    }

    /// Removes a snapshot. Refused while it is locked, and while a client reads it. Clones of it live on.
    pub async fn remove_snapshot(&self, name: &SnapshotName) -> Result<()> {
        let disk = self.find(&name.disk)?;
        let appended = {
            let mut state = disk.state.lock();
            state.check_not_barred()?;
            let snapshot = state.snapshot_named(&name.disk, &name.snapshot)?;
            if !planted::is("lock-not-asked") {
                self.check_unlocked(&format!("snapshot '{name}'"), snapshot.locked_until)?;
            }
            if snapshot.readers > 0 {
                let of_it =
                    |client: &Client| matches!(&client.export, ExportName::Snapshot(read) if read == name);
                state.clients.check_none(&format!("snapshot '{name}'"), of_it)?;
            }
            let id = snapshot.id;
            let mut encoded = Vec::new();
            Record { of: disk.leased(), change: Change::Unmark { snapshot: id } }.encode(&mut encoded);
            let appended = match planted::is("unmark-not-journaled") {
                true => self.journal.append_records(&[], 0)?,
                false => self.journal.append_records(&encoded, 1)?,
            };
            state.apply_unmark(id, appended.lsn);
            appended
        };
        self.durably(appended).await
    }

    /// Locks a snapshot until an instant of trusted time, nanoseconds since 1970: nobody can remove it before, by whatever command. A
    /// lock is never shortened: fails with `Invalid` unless it ends later than now and than the one there is.
    pub async fn lock_snapshot(&self, name: &SnapshotName, until: WallNanos) -> Result<SnapshotInfo> {
        let disk = self.find(&name.disk)?;
        let appended = {
            let mut state = disk.state.lock();
            state.check_not_barred()?;
            // A domain that is being shredded was found without locks, each disk under this lock: none may come any more.
            self.check_domain(&disk)?;
            let snapshot = state.snapshot_named(&name.disk, &name.snapshot)?;
            check_lock(name, snapshot.locked_until, until, self.clock.status())?;
            let id = snapshot.id;
            let mut encoded = Vec::new();
            Record { of: disk.leased(), change: Change::Lock { snapshot: id, until } }.encode(&mut encoded);
            let appended = match planted::is("lock-not-journaled") {
                true => self.journal.append_records(&[], 0)?,
                false => self.journal.append_records(&encoded, 1)?,
            };
            state.apply_lock(id, appended.lsn, until);
            appended
        };
        self.durably(appended).await?;
        self.snapshot_info(name)
    }

    /// Fails with `Locked` while any snapshot of the disk is.
    pub fn check_no_locks(&self, disk: &Name) -> Result<()> {
        let disk = self.find(disk)?;
        let state = disk.state.lock();
        self.check_none_locked(&disk, &state)
    }

    pub(crate) fn check_none_locked(&self, disk: &Disk, state: &State) -> Result<()> {
        let Some(longest) = state.snapshots.longest_locked() else { return Ok(()) };
        self.check_unlocked(&format!("snapshot '{}@{}'", disk.name, longest.name), longest.locked_until)
    }

    /// Makes a disk that begins as a snapshot and shares all it has not overwritten.
    pub async fn clone_snapshot(&self, from: &SnapshotName, new: &Name) -> Result<DiskInfo> {
        self.clone_snapshot_as(from, new, u64::from_le_bytes(self.env.random())).await
    }

    /// The same with a [number](DiskInfo::number) that the caller has drawn, so that he knows the disk for his own whatever becomes of this call.
    pub async fn clone_snapshot_as(&self, from: &SnapshotName, new: &Name, number: u64) -> Result<DiskInfo> {
        let disk = self.find(&from.disk)?;
        self.check_domain(&disk)?;
        let found = self.materialised(&disk, &from.snapshot).await?;
        let (snapshot, settings) = {
            let mut state = disk.state.lock();
            let settings = state.settings.clone();
            let live = state.snapshot(found.id).filter(|s| !s.removed).cloned();
            let snapshot = live.ok_or_else(|| removed_meanwhile(&from.disk, &from.snapshot))?;
            state.snapshots.hold(snapshot.id);
            (snapshot, settings)
        };
        let commit = found.commit;
        let commit = if planted::is("clone-of-now") { disk.state.lock().commit } else { commit };
        let base = Base { disk: disk.id, epoch: snapshot.id };
        let begins = Beginning::clone_of(number.to_le_bytes(), disk.domain, from.clone(), base, commit);
        let made = self.add_disk(new, snapshot.size_bytes, settings, begins).await;
        // When it may have been made although an error says otherwise, the snapshot is held until a restart tells.
        let sure = made.as_ref().map_or_else(|error| error.kind() == Kind::AlreadyExists, |_| true);
        if sure {
            disk.state.lock().snapshots.release(snapshot.id);
        }
        made
    }

    /// Sets a disk back to one of its snapshots. Refused while a client is connected. The present is kept as a
    /// snapshot, which is returned.
    pub async fn rollback(&self, to: &SnapshotName) -> Result<SnapshotInfo> {
        let disk = self.find(&to.disk)?;
        {
            let mut state = disk.state.lock();
            state.check_not_barred()?;
            state.snapshot_named(&to.disk, &to.snapshot)?;
            check_idle(&disk.name, &state)?;
            let what = format!("disk '{}' is being rolled back", disk.name);
            state.barred = Some(Error::new(Kind::Busy, what).remedy("try again in a moment"));
        }
        let result = self.set_back(&disk, &to.snapshot).await;
        disk.state.lock().barred = None;
        result
    }

    async fn set_back(&self, disk: &Arc<Disk>, to: &Name) -> Result<SnapshotInfo> {
        let created = self.env.wall();
        let name = fresh_name(std::slice::from_ref(disk), created);
        // The disk is barred, and by this.
        let any = |_: &State| Ok(());
        let kept = self.mark_durably(std::slice::from_ref(disk), &name, created, any).await?.remove(0);
        let target = self.materialised(disk, to).await?;
        self.set_commit(disk, &target).await?;
        Ok(kept)
    }

    async fn set_commit(&self, disk: &Arc<Disk>, target: &Materialised) -> Result<()> {
        self.fold(Some(disk)).await?;
        // Were it removed by now, reclaim could have taken what is about to be referred to; of a barred disk none is removed.
        let there = disk.state.lock().snapshot(target.id).is_some_and(|snapshot| !snapshot.removed);
        if !there {
            return Err(removed_meanwhile(&disk.name, &target.name));
        }
        rollback::set_back(self, disk, target).await
    }

    /// A snapshot once the fold has reached it. Another of the same name, made meanwhile, is not taken for it.
    async fn materialised(&self, disk: &Arc<Disk>, name: &Name) -> Result<Materialised> {
        let id = disk.state.lock().snapshot_named(&disk.name, name)?.id;
        loop {
            let found = disk.state.lock().snapshot(id).filter(|s| !s.removed).cloned();
            let found = found.ok_or_else(|| removed_meanwhile(&disk.name, name))?;
            let Snapshot { name, size_bytes, commit, .. } = found;
            if let Some(commit) = commit {
                return Ok(Materialised { id, name, size_bytes, commit });
            }
            self.fold(Some(disk)).await?;
        }
    }

    /// Ranges (offset and length in bytes, up to the end of `to`) that differ between a snapshot and another snapshot or a disk as it is
    /// now; without `to`, the snapshot's own disk. Between any two, of whatever disks: what both share, as a clone and its origin do, is
    /// not even read. What merely looks the same but is stored twice is told as different.
    pub async fn diff(&self, from: &SnapshotName, to: Option<&ExportName>) -> Result<Vec<(u64, u64)>> {
        let disk = self.find(&from.disk)?;
        let other = to.map_or(Ok(Arc::clone(&disk)), |to| self.find(to.disk()))?;
        let view = match to {
            None | Some(ExportName::Disk(_)) => View::Now,
            Some(ExportName::Snapshot(name)) => {
                View::Snapshot(other.state.lock().snapshot_named(&name.disk, &name.snapshot)?.id)
            }
        };
        if !Arc::ptr_eq(&disk, &other) {
            self.fold(Some(&other)).await?;
        }
        let end = other.state.lock().size_of(view).div_ceil(BLOCK_BYTES as u64);
        let changed = self.changed_blocks(&disk, &from.snapshot, (&other, view), 0..end).await?;
        let bytes = BLOCK_BYTES as u64;
        Ok(changed.into_iter().map(|run| (run.start * bytes, (run.end - run.start) * bytes)).collect())
    }

    /// Blocks of `within` that differ between a snapshot and a view of a disk, which is folded as far as the difference is to tell.
    pub(crate) async fn changed_blocks(
        &self,
        disk: &Arc<Disk>,
        since: &Name,
        (other, view): (&Arc<Disk>, View),
        within: Blocks,
    ) -> Result<Vec<Blocks>> {
        self.fold(Some(disk)).await?;
        let before = self.materialised(disk, since).await?;
        // Pinned first, and then looked at: what a snapshot that is there refers to stays until the pin goes.
        let _pin = self.segments.pins.pin();
        let before = {
            let state = disk.state.lock();
            let live = state.snapshot(before.id).filter(|s| !s.removed);
            live.ok_or_else(|| removed_meanwhile(&disk.name, since))?;
            before.commit
        };
        // So it is with a disk that has not been removed.
        if !Arc::ptr_eq(&self.find(&other.name)?, other) {
            let what = format!("disk '{}' was removed meanwhile", other.name);
            return Err(Error::new(Kind::NotFound, what).remedy("choose another"));
        }
        let after = commit_of(&other.state.lock(), view)?;
        map::diff(&self.segments, &before.root, &after.root, within).await
    }
}

/// What is known of a snapshot that the fold has reached.
pub(crate) struct Materialised {
    pub(crate) id: u64,
    pub(crate) name: Name,
    pub(crate) size_bytes: u64,
    pub(crate) commit: Commit,
}

fn removed_meanwhile(disk: &Name, snapshot: &Name) -> Error {
    let what = format!("snapshot '{disk}@{snapshot}' was removed meanwhile");
    Error::new(Kind::NotFound, what).remedy("choose another")
}

fn commit_of(state: &State, view: View) -> Result<Commit> {
    let View::Snapshot(id) = view else { return Ok(state.commit) };
    let snapshot = state.snapshot(id).filter(|s| !s.removed).and_then(|s| s.commit);
    let gone = || Error::new(Kind::NotFound, "the snapshot was removed meanwhile").remedy("choose another");
    snapshot.ok_or_else(gone)
}

impl State {
    /// The effect of a mark, also in a replay.
    pub(crate) fn apply_mark(&mut self, id: u64, lsn: u64, name: Name, created: WallNanos, size_bytes: u64) {
        self.active.note(lsn, 0);
        self.freeze(Some(id));
        self.next_snapshot_id = self.next_snapshot_id.max(id + 1);
        self.snapshots.insert(Snapshot {
            id,
            name,
            created,
            size_bytes,
            locked_until: 0,
            commit: None,
            deaths: Vec::new(),
            removed: false,
            readers: 0,
            held: 0,
        });
    }

    /// The effect of a lock, also in a replay.
    pub(crate) fn apply_lock(&mut self, id: u64, lsn: u64, until: WallNanos) {
        self.active.note(lsn, 0);
        self.snapshots.lock(id, until);
    }

    /// The effect of a removal, also in a replay.
    pub(crate) fn apply_unmark(&mut self, id: u64, lsn: u64) {
        self.active.note(lsn, 0);
        self.snapshots.remove(id);
    }
}

fn info(disk: &Disk, snapshot: &Snapshot, now: WallNanos) -> SnapshotInfo {
    SnapshotInfo {
        locked_until: Some(snapshot.locked_until).filter(|until| *until > now),
        name: SnapshotName { disk: disk.name.clone(), snapshot: snapshot.name.clone() },
        number: snapshot.id,
        size_bytes: snapshot.size_bytes,
        created: snapshot.created,
    }
}

/// A lock may end so long from now at most, in nanoseconds, a hundred years: one that was mistyped cannot be taken back.
const LOCK_MAX: u64 = 36_525 * 86_400 * 1_000_000_000;

fn check_lock(name: &SnapshotName, is: WallNanos, wanted: WallNanos, time: TimeStatus) -> Result<()> {
    let refused = |why: String, remedy: &str| {
        let what = format!("snapshot '{name}' cannot be locked until {}: {why}", text_of(wanted));
        Err(Error::new(Kind::Invalid, what).remedy(remedy.to_owned()))
    };
    if wanted < is {
        return refused(format!("it is locked until {}", text_of(is)), "a lock can only be extended");
    }
    if wanted <= time.trusted || wanted <= time.wall && !time.in_doubt {
        return refused("that is past".into(), "name a later time");
    }
    if wanted > time.trusted.max(time.wall).saturating_add(LOCK_MAX) {
        return refused("that is more than a hundred years from now".into(), "name an earlier time");
    }
    Ok(())
}

/// For people: `2026-11-21 20:45:00 UTC`.
pub(crate) fn text_of(nanos: WallNanos) -> String {
    let seconds = nanos / 1_000_000_000;
    let (year, month, day) = date_of(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// A name made from the time, or from as little later as makes it new to all the disks.
fn fresh_name(disks: &[Arc<Disk>], now: WallNanos) -> Name {
    let taken = |name: &Name| disks.iter().any(|disk| disk.state.lock().snapshots.named(name).is_some());
    let names = (0..).map(|later| name_from_time(now + later * 1_000_000));
    names.into_iter().find(|name| !taken(name)).expect("time goes on")
}

/// `20261121T204500.123Z`: sorts by time, and is a valid name.
fn name_from_time(nanos: WallNanos) -> Name {
    let (seconds, millis) = (nanos / 1_000_000_000, nanos / 1_000_000 % 1000);
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date_of(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    Name::new(&format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}.{millis:03}Z"))
        .expect("digits make a name")
}

/// Year, month and day of a day since 1970-01-01, in the Gregorian calendar (Howard Hinnant's `civil_from_days`).
fn date_of(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_time() {
        for (seconds, name) in [
            (0, "19700101T000000.000Z"),
            (951_782_400, "20000229T000000.000Z"),
            (1_709_210_096, "20240229T123456.000Z"),
            (4_102_444_799, "20991231T235959.000Z"),
        ] {
            assert_eq!(name_from_time(seconds * 1_000_000_000).as_str(), name);
        }
    }
}
