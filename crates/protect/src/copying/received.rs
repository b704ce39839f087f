//! Points that another pool sends: its snapshots are read where they are, and what they hold is compared with what has arrived.
//!
//! *Promise*: what is encrypted in one pool is nowhere in the other in the clear: a sealed domain of the same name takes it, or nothing does.

use super::{Copying, Live, Reading};
use crate::catalog;
use crate::machines::MachineDisk;
use crate::origin::{Origin, Snapshot};
use crate::points::{Point, PointDisk};
use crate::runs::{Copied, Received, Run, RunRequest, RunState, Slot, key};
use crate::sources::{ReplicaOf, Source, copied_to};
use crate::{Hardware, Protection, SourceOf};
use std::ops::Range;
use std::sync::Arc;
use stonefold_env::WallNanos;
use stonefold_store::{Attachment, DomainState};
use stonefold_types::{Error, ExportName, Kind, Name, Result};

/// What arrived is compared in pieces of so much, in bytes.
const PIECE_BYTES: u64 = 1 << 20;
/// It is asked what there is of so much at a time, in bytes.
const LOOK_BYTES: u64 = 64 << 20;
/// Who reads a snapshot that is sent, for people.
const PEER: &str = "replication";

/// A point, and where it is read.
pub(crate) struct Sent {
    pub(crate) from: Arc<Protection>,
    pub(crate) point: Point,
    /// Until when nobody is to remove it, by trusted time, nanoseconds since 1970.
    pub(crate) lock_until: Option<WallNanos>,
}

impl Protection {
    /// Takes a point of another pool, by its name there; returns when it is there, durably, and is what was sent.
    pub(crate) async fn receive(&self, sent: Sent) -> Result<Run> {
        let copying = self.change(self.begin_receiving(sent)).await?;
        self.copy(copying).await
    }

    async fn begin_receiving(&self, sent: Sent) -> Result<Copying> {
        let point = &sent.point;
        let source = self.replica_of(&point.name.source, sent.from.store.pool_id()).await?;
        self.check_no_run(&source.name).await?;
        // One that somebody has broken here, by removing a snapshot, is received anew.
        if catalog::find::<Point>(&self.store, &key(&point.name)).await?.is_some() {
            self.remove_now(&point.name).await?;
        }
        let disk = |disk: &PointDisk| {
            let (target, disk) = (disk.target.clone(), copied_to(&source.name, &disk.target)?);
            Ok(MachineDisk { target, disk })
        };
        let received =
            Received { taken: point.taken, consistency: point.consistency, unknown: catalog::Unknown::new() };
        let run = Run {
            name: point.name.clone(),
            machine: point.machine.clone(),
            disks: point.disks.iter().map(disk).collect::<Result<_>>()?,
            hardware: point.hardware.clone(),
            database: point.database.clone(),
            copied: Some(Copied::default()),
            state: RunState::Running,
            paused: false,
            begun: self.store.time().trusted,
            ended: None,
            note: None,
            slot: point.policy.clone().map(|policy| Slot { policy, at: point.taken }),
            cut_off: false,
            asked: None,
            lock_until: sent.lock_until,
            received: Some(received),
            unknown: catalog::Unknown::new(),
        };
        let mut copying = self.copies.enter(source, run, RunRequest::default());
        copying.sent = Some(Box::new(sent));
        self.steps_begin();
        // In the place of one that failed, or was cut off.
        catalog::put(&self.store, &copying.run).await?;
        Ok(copying)
    }

    /// The source whose points a pool sends; within a change.
    async fn replica_of(&self, name: &Name, pool: [u8; 16]) -> Result<Source> {
        if let Some(source) = self.check_replica(name, pool).await? {
            return Ok(source);
        }
        let source = Source::replica(name.clone(), ReplicaOf::new(pool), self.store.time().trusted);
        catalog::put_new(&self.store, &source).await?;
        Ok(source)
    }

    /// The source whose points a pool sends, where there is one. Fails where what there is of that name is not that pool's.
    pub(crate) async fn check_replica(&self, name: &Name, pool: [u8; 16]) -> Result<Option<Source>> {
        let of = ReplicaOf::new(pool);
        let refused = |what: String| {
            let error = Error::new(Kind::AlreadyExists, what);
            Err(error.remedy("name another pool, or call the source here otherwise"))
        };
        match catalog::find::<Source>(&self.store, name.as_str()).await? {
            Some(source) if matches!(&source.of, SourceOf::Replica(is) if is.pool == of.pool) => {
                Ok(Some(source))
            }
            Some(_) => refused(format!("the other pool has a source '{name}' that is none of this pool's")),
            None if catalog::keys::<Point>(&self.store, Some(name.as_str())).await?.is_empty() => Ok(None),
            None => {
                refused(format!("the other pool has points of a source '{name}' that is not there any more"))
            }
        }
    }

    /// The disks of what is sent, each with what differs from the last point, where the other pool still has that.
    pub(super) async fn open_sent(
        &self,
        copying: &Copying,
        last: Option<&Point>,
    ) -> Result<(Vec<Reading>, Option<Hardware>)> {
        let Some(Sent { from, point, .. }) = copying.sent.as_deref() else {
            let what = format!("the points of source '{}' are sent by another pool", copying.source.name);
            return Err(Error::new(Kind::Invalid, what).remedy("back it up where it is"));
        };
        let base = match last {
            Some(last) => {
                let found = from.readable::<Point>(&key(&last.name)).await?;
                found.filter(|base| base.taken == last.taken && from.status_of(base.clone()).is_whole())
            }
            None => None,
        };
        let mut disks = Vec::new();
        for disk in &point.disks {
            let export = ExportName::Snapshot(point.snapshot_of(disk));
            let attached = from.store.attach_for(&export, PEER.into())?;
            let changed = changed_since(from, base.as_ref(), disk, &export).await?;
            let whole = (last.is_some() && base.is_none())
                .then(|| "the pool that sends it does not have the last point any more".to_owned());
            let from = Origin::Snapshot(Snapshot::new(attached, disk.size_bytes, changed));
            disks.push(Reading { target: disk.target.clone(), from, whole });
        }
        // They were opened by their names: these are its own, and all of them are there.
        if !from.status_of(point.clone()).is_whole() {
            let what = format!("a snapshot of point '{}' was removed", point.name);
            return Err(Error::new(Kind::NotFound, what).remedy("the next attempt sends the others"));
        }
        Ok((disks, point.hardware.clone()))
    }

    /// The domain of a disk that is made for what is copied; nothing for the predefined one. Of what is sent one of the same name as where it lies, if
    /// there is one.
    pub(super) fn domain_for(&self, copying: &Copying, target: &Name) -> Result<Option<Name>> {
        let Some(Sent { from, point, .. }) = copying.sent.as_deref() else { return Ok(None) };
        let Some(disk) = point.disks.iter().find(|disk| disk.target == *target) else { return Ok(None) };
        let lies = from.store.disk(&disk.disk)?;
        let is_sealed = !matches!(lies.domain_state, DomainState::Plain);
        match self.store.domain(&lies.domain) {
            Ok(domain) if !is_sealed || domain.state == DomainState::Open => Ok(Some(domain.name)),
            Err(error) if error.kind() == Kind::NotFound && !is_sealed => Ok(None),
            Err(error) if error.kind() != Kind::NotFound => Err(error),
            _ => Err(in_the_clear(&disk.disk, &lies.domain)),
        }
    }

    /// The same of a disk that is there already: another of the machine's may have taken the place of the one that it was made for.
    pub(super) fn check_sealed(&self, copying: &Copying, target: &Name, disk: &Name) -> Result<()> {
        let Some(Sent { from, point, .. }) = copying.sent.as_deref() else { return Ok(()) };
        let Some(sent) = point.disks.iter().find(|disk| disk.target == *target) else { return Ok(()) };
        let lies = from.store.disk(&sent.disk)?;
        let is_safe = lies.domain_state == DomainState::Plain
            || self.store.disk(disk)?.domain_state == DomainState::Open;
        if is_safe { Ok(()) } else { Err(in_the_clear(&sent.disk, &lies.domain)) }
    }

    /// Fails where a disk does not hold what was sent: read where it has been stored, not where it was put first.
    /// `since` is what of the disk had changed since the last point, whoever did that; without it all was looked at.
    pub(super) async fn check_arrived(
        &self,
        live: &Live,
        from: &Origin,
        to: &Attachment,
        since: Option<&[Range<u64>]>,
    ) -> Result<()> {
        self.store.fold_everything().await?;
        self.store.drop_cache();
        let (mut at, end) = (0, from.bytes());
        while at < end {
            live.check()?;
            for run in from.runs(at, (end - at).min(LOOK_BYTES) as u32).await? {
                let range = at..at + run.bytes;
                at = range.end;
                if run.changed || since.is_none() {
                    self.check_same(live, from, to, range, run.zero).await?;
                }
            }
        }
        for range in since.into_iter().flatten() {
            self.check_same(live, from, to, range.start..range.end.min(end), false).await?;
        }
        Ok(())
    }

    async fn check_same(
        &self,
        live: &Live,
        from: &Origin,
        to: &Attachment,
        range: Range<u64>,
        zero: bool,
    ) -> Result<()> {
        if zero && to.extents(range.start, range.end - range.start).await?.iter().all(|extent| extent.hole) {
            return Ok(());
        }
        for at in range.clone().step_by(PIECE_BYTES as usize) {
            live.check()?;
            let len = (range.end - at).min(PIECE_BYTES);
            live.may_move(&self.env, len).await?;
            let sent = from.read(at, len as u32).await?.bytes;
            let mut arrived = vec![0; len as usize];
            to.read(at, &mut arrived).await?;
            if let Some(differs) = sent.iter().zip(&arrived).position(|(sent, arrived)| sent != arrived) {
                let what = format!("what arrived is not what was sent, from byte {} on", at + differs as u64);
                return Err(Error::new(Kind::Corrupt, what)
                    .remedy("the next attempt sends it again; check the other pool's medium"));
            }
            self.env.yield_now().await;
        }
        Ok(())
    }
}

fn in_the_clear(disk: &Name, domain: &Name) -> Error {
    let what = format!(
        "disk '{disk}' is encrypted, in domain '{domain}', and would not be in the other pool: it has no such domain that is, and that can be opened"
    );
    Error::new(Kind::Denied, what).remedy(format!(
        "serve that pool with a key, make it there by 'stonefold domain create {domain} --encrypt', and stop that server"
    ))
}

/// What differs between a disk of a point and the same of an earlier one.
async fn changed_since(
    from: &Protection,
    base: Option<&Point>,
    disk: &PointDisk,
    export: &ExportName,
) -> Result<Option<Vec<Range<u64>>>> {
    let Some(base) = base else { return Ok(None) };
    let is_it = |of: &&PointDisk| of.target == disk.target && of.size_bytes == disk.size_bytes;
    let Some(before) = base.disks.iter().find(is_it) else { return Ok(None) };
    let ranges = from.store.diff(&base.snapshot_of(before), Some(export)).await?;
    Ok(Some(ranges.into_iter().map(|(at, bytes)| at..at + bytes).collect()))
}

#[cfg(test)]
mod tests;
