//! One disk in memory: its unfolded layers, its newest commit, its snapshots.
//!
//! Invariant: what the disk holds is its commit with all layers over it, oldest first. What a pending snapshot holds is the commit
//! with the layers up to the one that ends with it. The fold keeps this: it moves the oldest layer into the commit under one lock.

use crate::ailing::Ailing;
use crate::capture::Tap;
use crate::clients::Clients;
use crate::latency::Histogram;
use crate::overlay::{Blocks, Layer, Part, resolve};
use crate::planted;
use crate::qos::Flow;
use crate::reserve::Refusal;
use crate::snapshot::{Snapshot, Snapshots};
use crate::stored::Stored;
use crate::usage::Usage;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use stonefold_engine::{Key, Version};
use stonefold_env::WallNanos;
use stonefold_format::entry::Entry;
use stonefold_format::head::{Base, Head, Lease};
use stonefold_format::ledger::LedgerRef;
use stonefold_format::record::Leased;
use stonefold_format::snapshots::Commit;
use stonefold_types::{BLOCK_BYTES, DiskSettings, Error, Kind, Name, Result, SnapshotName};

/// One disk.
pub(crate) struct Disk {
    pub(crate) id: u64,
    /// The domain it was made in, for good.
    pub(crate) domain: u16,
    pub(crate) name: Name,
    /// Where its head is stored.
    pub(crate) key: Key,
    pub(crate) created: WallNanos,
    /// This gateway's right to write it.
    pub(crate) lease: Lease,
    pub(crate) origin: Option<SnapshotName>,
    pub(crate) state: Mutex<State>,
    /// Held while the head changes, so that changes come one after another.
    pub(crate) head: tokio::sync::Mutex<StoredHead>,
    pub(crate) counters: Counters,
    /// What it took of the pool when that was last counted.
    pub(crate) usage: Mutex<Option<Usage>>,
    /// Whether it must not touch what was promised to others.
    pub(crate) refusal: Refusal,
    /// Its way through the scheduler.
    pub(crate) flow: Arc<Flow>,
    /// Where its requests are recorded, when somebody wants them.
    pub(crate) tap: Tap,
}

/// What is known of the stored head.
pub(crate) struct StoredHead {
    /// The version last seen.
    pub(crate) version: Version,
    /// What a swap tried to store of which nobody knows whether it was.
    pub(crate) in_doubt: Option<Vec<u8>>,
    /// What is stored is not what memory holds: a swap that nobody saw through had happened.
    pub(crate) ahead: bool,
}

impl StoredHead {
    /// Whether memory and what is stored are known to be the same. While they are not, nothing that either refers to may be given
    /// back.
    pub(crate) fn is_settled(&self) -> bool {
        self.in_doubt.is_none() && !self.ahead
    }
}

/// What clients did since the start.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) reads: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) write_bytes: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) read_latency: Histogram,
    pub(crate) write_latency: Histogram,
    pub(crate) flush_latency: Histogram,
}

/// What changes of a disk.
pub(crate) struct State {
    pub(crate) size_bytes: u64,
    /// The size that goes with the commit.
    pub(crate) folded_size_bytes: u64,
    pub(crate) settings: DiskSettings,
    pub(crate) commit: Commit,
    /// Journal records up to this one are in the commits.
    pub(crate) folded_lsn: u64,
    /// Of a clone: the snapshot it began as.
    pub(crate) base: Option<Base>,
    /// Of a removed disk: blocks before this one were given back.
    pub(crate) reclaimed: u64,
    /// What reclaim has not taken over yet.
    pub(crate) changes: Vec<LedgerRef>,
    /// What died since the newest materialised snapshot and is held by one.
    pub(crate) deaths: Vec<LedgerRef>,
    /// Takes writes.
    pub(crate) active: Layer,
    /// Oldest first.
    pub(crate) frozen: VecDeque<Arc<Layer>>,
    pub(crate) snapshots: Snapshots,
    pub(crate) next_snapshot_id: u64,
    /// Attached to it or to a snapshot.
    pub(crate) clients: Clients,
    /// What was stored from snapshot to snapshot.
    pub(crate) stored: Stored,
    /// Counts folds: what was read from the map before one may be older than what was overlaid then.
    pub(crate) folds: u64,
    /// Why nothing may attach or write, while something needs the disk for itself or it is gone.
    pub(crate) barred: Option<Error>,
    /// Its removal was begun and nobody knows how far it came: its head must stay as it is.
    pub(crate) buried: bool,
    /// The fold could not go on with it.
    pub(crate) ailing: Option<Ailing>,
    /// Why nothing may be written although reads go on: its map is damaged, and the fold cannot go on with it.
    pub(crate) damaged: Option<Error>,
}

/// What of a disk is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// The present.
    Now,
    /// The snapshot with this id.
    Snapshot(u64),
}

impl Disk {
    /// A disk as its head describes it.
    pub(crate) fn from_head(key: Key, head: Head, version: Version, snapshots: Snapshots) -> Arc<Self> {
        let newest = snapshots.iter().next_back().and_then(|snapshot| snapshot.commit);
        let stored = Stored::of(&head.commit, newest.as_ref());
        Arc::new(Disk {
            id: head.id,
            domain: head.domain,
            name: head.name,
            key,
            created: head.created,
            lease: head.lease,
            origin: head.origin,
            state: Mutex::new(State {
                size_bytes: head.size_bytes,
                folded_size_bytes: head.size_bytes,
                settings: head.settings,
                commit: head.commit,
                folded_lsn: head.folded_lsn,
                base: head.base,
                reclaimed: head.reclaimed,
                changes: head.changes,
                deaths: head.deaths,
                active: Layer::default(),
                frozen: VecDeque::new(),
                snapshots,
                next_snapshot_id: head.next_snapshot_id,
                clients: Clients::default(),
                stored,
                folds: 0,
                barred: None,
                buried: false,
                ailing: None,
                damaged: None,
            }),
            head: tokio::sync::Mutex::new(StoredHead { version, in_doubt: None, ahead: false }),
            counters: Counters::default(),
            usage: Mutex::default(),
            refusal: Refusal::default(),
            flow: Flow::new(head.id),
            tap: Tap::default(),
        })
    }

    /// What its journal records begin with.
    pub(crate) fn leased(&self) -> Leased {
        Leased { disk: self.id, epoch: self.lease.epoch }
    }

    /// Whether it was removed, and reclaim is not done with it.
    pub(crate) fn is_gone(&self) -> bool {
        self.key.as_str().starts_with("gone/")
    }

    /// The head as it would be stored now: only what is folded.
    pub(crate) fn head(&self, state: &State) -> Head {
        Head {
            id: self.id,
            domain: self.domain,
            name: self.name.clone(),
            created: self.created,
            lease: self.lease,
            size_bytes: state.folded_size_bytes,
            settings: state.settings.clone(),
            origin: self.origin.clone(),
            base: state.base,
            folded_lsn: state.folded_lsn,
            commit: state.commit,
            next_snapshot_id: state.next_snapshot_id,
            reclaimed: state.reclaimed,
            changes: state.changes.clone(),
            deaths: state.deaths.clone(),
            directories: state.snapshots.list.directories(),
            recent: state
                .snapshots
                .within(state.snapshots.list.paged_up_to() + 1..)
                .filter_map(|s| s.commit.map(|commit| s.record(commit)))
                .collect(),
        }
    }
}

impl State {
    /// Ends the active layer; the next write begins another. A snapshot ends it even when it is empty.
    pub(crate) fn freeze(&mut self, ends_with: Option<u64>) {
        if self.active.is_clean() && ends_with.is_none() {
            return;
        }
        let mut layer = std::mem::take(&mut self.active);
        layer.ends_with = ends_with;
        // Of a mark its own number: in a replay the next one may be further on already.
        layer.epoch = ends_with.unwrap_or(self.next_snapshot_id);
        self.frozen.push_back(Arc::new(layer));
    }

    /// Fails while something needs the disk for itself, and when it is gone.
    pub(crate) fn check_not_barred(&self) -> Result<()> {
        self.barred.clone().map_or(Ok(()), Err)
    }

    /// Fails unless a change of `blocks` can be taken.
    pub(crate) fn check_change(&self, blocks: &Blocks) -> Result<()> {
        self.check_not_barred()?;
        if let Some(why) = &self.damaged {
            return Err(why.clone());
        }
        let end = self.size_bytes.next_multiple_of(BLOCK_BYTES as u64);
        if blocks.end * BLOCK_BYTES as u64 > end && !planted::is("write-behind-end") {
            return Err(Error::new(Kind::Invalid, "the disk has become smaller meanwhile"));
        }
        Ok(())
    }

    /// Bytes written and not folded, as the budget counts them.
    pub(crate) fn unfolded_bytes(&self) -> u64 {
        self.frozen.iter().map(|layer| layer.budget_bytes).sum::<u64>() + self.active.budget_bytes
    }

    /// The oldest journal record that is not folded.
    pub(crate) fn first_unfolded_lsn(&self) -> Option<u64> {
        let layers = self.frozen.iter().map(|layer| layer.first_lsn);
        layers.chain([self.active.first_lsn]).flatten().min()
    }

    /// What was born up to here and died in `epoch` is held: by the newest snapshot that ended before, or by what the disk
    /// was cloned from.
    pub(crate) fn held_in(&self, epoch: u64) -> u64 {
        let base = self.base.map_or(0, |base| base.epoch);
        epoch.checked_sub(1).and_then(|before| self.snapshots.newest_up_to(before)).unwrap_or(base)
    }

    /// Takes over what was stored of a head, but for its snapshots.
    pub(crate) fn adopt(&mut self, head: &Head) {
        self.settings = head.settings.clone();
        self.folded_size_bytes = head.size_bytes;
        self.base = head.base;
        self.folded_lsn = head.folded_lsn;
        self.commit = head.commit;
        self.reclaimed = head.reclaimed;
        self.changes.clone_from(&head.changes);
        self.deaths.clone_from(&head.deaths);
    }

    pub(crate) fn snapshot(&self, id: u64) -> Option<&Snapshot> {
        self.snapshots.get(id)
    }

    /// By name.
    pub(crate) fn snapshot_named(&self, disk: &Name, name: &Name) -> Result<&Snapshot> {
        self.snapshots.named(name).ok_or_else(|| match self.snapshots.list.lost().next() {
            None => Error::new(Kind::NotFound, format!("snapshot '{disk}@{name}' does not exist"))
                .remedy(format!("'stonefold snapshot ls {disk}' names those that do")),
            Some((_, why)) => {
                let lost: u64 = self.snapshots.list.lost().map(|(at, _)| u64::from(at.records)).sum();
                why.clone().context(format!(
                    "snapshot '{disk}@{name}' is none that can be read, and {lost} of disk '{disk}' cannot"
                ))
            }
        })
    }

    /// Shows `found` every part of `blocks` that lies in a layer of the view; returns the map's root to be asked for
    /// the rest, and the rest.
    pub(crate) fn overlay(
        &self,
        view: View,
        blocks: Blocks,
        found: impl FnMut(Blocks, u64, Part<'_>),
    ) -> Result<(Entry, Vec<Blocks>)> {
        let frozen = || self.frozen.iter().rev().map(|layer| &**layer);
        let View::Snapshot(id) = view else {
            if planted::is("oldest-layer-wins") {
                let layers = self.frozen.iter().map(|layer| &**layer).chain([&self.active]);
                return Ok((self.commit.root, resolve(layers, blocks, found)));
            }
            let layers = std::iter::once(&self.active).chain(frozen());
            return Ok((self.commit.root, resolve(layers, blocks, found)));
        };
        let snapshot =
            self.snapshot(id).ok_or_else(|| Error::new(Kind::NotFound, "the snapshot has been removed"))?;
        match snapshot.commit {
            Some(commit) => Ok((commit.root, vec![blocks])),
            None => {
                let layers = frozen()
                    .skip_while(|layer| layer.ends_with != Some(id) && !planted::is("snapshot-reads-on"));
                Ok((self.commit.root, resolve(layers, blocks, found)))
            }
        }
    }

    pub(crate) fn size_of(&self, view: View) -> u64 {
        match view {
            View::Now => self.size_bytes,
            View::Snapshot(id) => self.snapshot(id).map_or(0, |s| s.size_bytes),
        }
    }
}

/// The blocks that a range of bytes touches.
pub(crate) fn blocks_of(offset: u64, len: u64) -> Blocks {
    offset / BLOCK_BYTES as u64..(offset + len).div_ceil(BLOCK_BYTES as u64)
}
