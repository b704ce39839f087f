//! An open pool: its disks by name, and the tasks that keep it going.

use crate::attachment::Attachment;
use crate::budget::Budget;
use crate::dedupe::Dedupe;
use crate::disk::{Disk, State, View};
use crate::fold;
use crate::journal::Journal;
use crate::planted;
use crate::recovery;
use crate::segments::Segments;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use stonefold_engine::{Engine, JournalId, Key};
use stonefold_env::{Env, WallNanos};
use stonefold_format::head::{Commit, Head};
use stonefold_format::record::{Change, Record};
use stonefold_types::{
    BLOCK_BYTES, DISK_BYTES_MAX, DiskSettings, Error, ExportName, Kind, Name, Result, Size, SnapshotName,
};
use tokio::sync::Notify;

/// How a store is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Memory for the block and node caches, in bytes.
    pub cache_bytes: u64,
    /// Memory for acknowledged data not yet folded, in bytes.
    pub journal_bytes_max: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { cache_bytes: 1 << 30, journal_bytes_max: 192 << 20 }
    }
}

/// A round of the fold begins when this part of the budget is used: half, so that writers have the other half while it works.
const FOLD_PART: u64 = 2;
/// A round begins at the latest this long after the last, so that an idle disk's data is not kept in memory and a
/// restart has little to replay.
const FOLD_INTERVAL: Duration = Duration::from_secs(15);
/// A round that failed is tried again after this.
const FOLD_RETRY: Duration = Duration::from_secs(1);

/// Room kept beside what the journal may hold, in bytes: for map nodes, heads, and what reclaim writes before it frees.
const RESERVE_BYTES: u64 = 64 << 20;

/// An open pool.
pub struct Store {
    pub(crate) env: Env,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) options: Options,
    pub(crate) segments: Arc<Segments>,
    pub(crate) dedupe: Arc<Dedupe>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) journal_id: JournalId,
    pub(crate) budget: Budget,
    pub(crate) counters: Counters,
    disks: Mutex<BTreeMap<Name, Arc<Disk>>>,
    /// Journals of earlier sessions, and the record after their last: removed once everything before that is folded.
    pub(crate) retired: Mutex<Vec<(JournalId, u64)>>,
    folding: tokio::sync::Mutex<()>,
    fold_wake: Notify,
    closed: AtomicBool,
}

/// What happened since the start.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) rounds: AtomicU64,
    pub(crate) failed_rounds: AtomicU64,
}

/// What is known of a disk.
#[derive(Clone, Debug)]
pub struct DiskInfo {
    /// Unique in the pool.
    pub name: Name,
    /// In bytes.
    pub size_bytes: u64,
    /// As chosen.
    pub settings: DiskSettings,
    /// Nanoseconds since 1970.
    pub created: WallNanos,
    /// Attached clients that can write.
    pub clients: usize,
    /// The snapshot it was cloned from; that may be gone.
    pub origin: Option<SnapshotName>,
    /// How many it has.
    pub snapshots: usize,
    /// Bytes of blocks mapped, unfolded writes left out.
    pub mapped_bytes: u64,
    /// Since the start: reads, bytes read, writes, bytes written, flushes.
    pub traffic: [u64; 5],
}

/// The state of the pool.
#[derive(Clone, Debug)]
pub struct PoolStatus {
    /// The URL and how it is reached.
    pub engine: String,
    /// How many.
    pub disks: usize,
    /// How many, on all disks.
    pub snapshots: usize,
    /// The sum of the disks' sizes.
    pub provisioned_bytes: u64,
    /// What the place can hold.
    pub total_bytes: u64,
    /// What it can still hold.
    pub free_bytes: u64,
    /// What the pool occupies there.
    pub used_bytes: u64,
    /// Acknowledged, not yet folded.
    pub journal_bytes: u64,
    /// Held by the caches.
    pub cache_bytes: u64,
    /// The bound of the caches.
    pub cache_bytes_max: u64,
    /// Counters since the start, for metrics: name, help, value.
    pub counters: Vec<(&'static str, &'static str, u64)>,
}

pub(crate) fn head_key(disk: &Name) -> Key {
    Key::new(format!("head/{disk}"))
}

impl Store {
    /// Opens the pool, or makes it when the place is empty, and replays what its journals hold. Tasks are spawned on
    /// `env` and end with [`Store::close`].
    pub async fn open(env: Env, engine: Arc<dyn Engine>, options: Options) -> Result<Arc<Self>> {
        let store = recovery::open(env, engine, options).await?;
        store.env.spawn("fold", store.clone().fold_rounds());
        let dedupe = store.dedupe.clone();
        store.env.spawn("dedupe index", async move {
            if let Err(error) = dedupe.read_samples().await {
                tracing::warn!("dedupe will find fewer duplicates until the next start: {error}");
            }
        });
        Ok(store)
    }

    pub(crate) fn new(
        env: Env,
        engine: Arc<dyn Engine>,
        options: Options,
        (segments, dedupe): (Arc<Segments>, Arc<Dedupe>),
        journal: (Arc<Journal>, JournalId),
        disks: BTreeMap<Name, Arc<Disk>>,
        retired: Vec<(JournalId, u64)>,
    ) -> Arc<Self> {
        let budget = Budget::new(options.journal_bytes_max);
        for disk in disks.values() {
            let state = disk.state.lock();
            let layers = state.frozen.iter().map(|layer| &**layer).chain([&state.active]);
            budget.take_anyway(layers.map(|layer| layer.budget_bytes).sum());
        }
        Arc::new(Store {
            env,
            engine,
            segments,
            dedupe,
            journal: journal.0,
            journal_id: journal.1,
            budget,
            options,
            counters: Counters::default(),
            disks: Mutex::new(disks),
            retired: Mutex::new(retired),
            folding: tokio::sync::Mutex::default(),
            fold_wake: Notify::new(),
            closed: AtomicBool::new(false),
        })
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(crate::closed()) } else { Ok(()) }
    }

    /// Folds everything, swaps the heads, removes the journal, and ends the tasks. Afterwards every call fails with
    /// `Closed`. What cannot be folded stays in the journal for the next opening.
    pub async fn close(&self) -> Result<()> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let folded = self.fold(None).await;
        // Whatever the fold could not do, what was acknowledged is made as durable as it can be.
        let flushed = self.flush().await;
        self.journal.close();
        self.fold_wake.notify_one();
        folded?;
        flushed?;
        let empty = self.all_disks().iter().all(|disk| disk.state.lock().first_unfolded_lsn().is_none());
        if empty {
            self.engine.journal_remove(self.journal_id).await?;
        }
        Ok(())
    }

    pub(crate) async fn flush(&self) -> Result<()> {
        self.journal.make_durable(self.journal.handed_below()).await
    }

    /// One round of the fold, after any that is under way.
    pub(crate) async fn fold(&self, only: Option<&Arc<Disk>>) -> Result<()> {
        let _alone = self.folding.lock().await;
        fold::round(self, only).await
    }

    /// Tells the fold that there is more to do.
    pub(crate) fn note_appended(&self) {
        if self.budget.used() >= self.options.journal_bytes_max / FOLD_PART {
            self.fold_wake.notify_one();
        }
    }

    async fn fold_rounds(self: Arc<Self>) {
        while self.check_open().is_ok() {
            // At once after opening, too: what was replayed is folded, and a full place is seen before it is needed.
            while self.check_open().is_ok() && !self.fold_and_check().await {
                self.env.sleep(FOLD_RETRY).await;
            }
            let woken = self.fold_wake.notified();
            let timer = self.env.sleep(FOLD_INTERVAL);
            futures::future::select(Box::pin(woken), timer).await;
        }
    }

    /// One round, and a look at the room left; `false` when either is to be tried again.
    async fn fold_and_check(&self) -> bool {
        let folded = self.fold(None).await;
        self.budget.block(folded.as_ref().err().filter(|e| e.kind() == Kind::NoSpace).cloned());
        let room = self.check_room().await;
        self.budget.refuse(room.as_ref().err().cloned());
        if let Err(error) = &folded {
            self.counters.failed_rounds.fetch_add(1, Ordering::Relaxed);
            tracing::warn!("folding failed and will be tried again; nothing is lost: {error}");
        } else if let Err(error) = &room {
            tracing::warn!("{error}");
        }
        folded.is_ok() && room.is_ok()
    }

    /// Fails while there is not room enough to fold everything that may be acknowledged: what is admitted must
    /// find its place.
    async fn check_room(&self) -> Result<()> {
        let room = self.engine.room().await?;
        let needed = self.options.journal_bytes_max + RESERVE_BYTES;
        if room.free_bytes >= needed {
            return Ok(());
        }
        let (free, needed) = (Size(room.free_bytes), Size(needed));
        let what =
            format!("the pool is full: {free} are free, and {needed} are kept to fold what was acknowledged");
        Err(Error::new(Kind::NoSpace, what).remedy("give it more room; reads go on, and nothing is lost"))
    }

    /// Lets the engine forget what is folded everywhere.
    pub(crate) async fn forget_journal(&self) -> Result<()> {
        // The next number is taken first: a disk that is clean when it is looked at may get a record later, but not
        // an earlier one.
        let mut needed_from = self.journal.next_lsn();
        for disk in self.all_disks() {
            needed_from = needed_from.min(disk.state.lock().first_unfolded_lsn().unwrap_or(u64::MAX));
        }
        if planted::is("trimmed-too-far") {
            needed_from = self.journal.next_lsn();
        }
        self.journal.trim(needed_from).await?;
        let gone: Vec<JournalId> = {
            let mut retired = self.retired.lock();
            let done = |end: u64| end <= needed_from || planted::is("retired-too-early");
            let gone = retired.iter().filter(|(_, end)| done(*end)).map(|(id, _)| *id).collect();
            retired.retain(|(_, end)| !done(*end));
            gone
        };
        for id in gone {
            self.engine.journal_remove(id).await?;
        }
        Ok(())
    }

    pub(crate) fn all_disks(&self) -> Vec<Arc<Disk>> {
        self.disks.lock().values().cloned().collect()
    }

    pub(crate) fn find(&self, name: &Name) -> Result<Arc<Disk>> {
        self.check_open()?;
        self.disks.lock().get(name).cloned().ok_or_else(|| {
            Error::new(Kind::NotFound, format!("disk '{name}' does not exist"))
                .remedy("'stonefold disk ls' names those that do")
        })
    }

    /// Stores a disk's head as `draft` changes it, then adopts the change in memory. On failure nothing is changed.
    pub(crate) async fn change_head(
        &self,
        disk: &Arc<Disk>,
        draft: impl FnOnce(&mut Head, &State),
        adopt: impl FnOnce(&mut State),
    ) -> Result<()> {
        let key = head_key(&disk.name);
        let mut stored = disk.head.lock().await;
        if let Some(attempt) = stored.in_doubt.take() {
            let found = self.engine.get(&key).await;
            match found {
                Ok((bytes, version)) if bytes == attempt || version == stored.version => {
                    stored.version = version
                }
                Ok(_) => return Err(fenced(&disk.name)),
                Err(error) => {
                    stored.in_doubt = Some(attempt);
                    return Err(error.context(format!("reading back the head of disk '{}'", disk.name)));
                }
            }
        }
        let bytes = {
            let state = disk.state.lock();
            if let Some(why) = state.barred.as_ref().filter(|why| why.kind() == Kind::NotFound) {
                return Err(why.clone());
            }
            let mut head = disk.head(&state);
            draft(&mut head, &state);
            head.encode()
        };
        match self.engine.put_if(&key, bytes.clone().into(), &stored.version).await {
            Ok(version) => stored.version = version,
            // An error does not say whether it happened: what is stored does.
            Err(error) => match self.engine.get(&key).await {
                Ok((found, version)) if found == bytes => stored.version = version,
                found => {
                    if found.is_err() {
                        stored.in_doubt = Some(bytes);
                    }
                    return Err(error.context(format!("storing the head of disk '{}'", disk.name)));
                }
            },
        }
        adopt(&mut disk.state.lock());
        Ok(())
    }

    /// Makes a disk of zeros.
    pub async fn create_disk(
        &self,
        name: &Name,
        size_bytes: u64,
        settings: DiskSettings,
    ) -> Result<DiskInfo> {
        check_size(size_bytes)?;
        self.add_disk(name, size_bytes, settings, None, Commit::default()).await
    }

    pub(crate) async fn add_disk(
        &self,
        name: &Name,
        size_bytes: u64,
        settings: DiskSettings,
        origin: Option<SnapshotName>,
        commit: Commit,
    ) -> Result<DiskInfo> {
        self.check_open()?;
        let head = Head {
            id: u64::from_le_bytes(self.env.random()),
            name: name.clone(),
            created: self.env.wall(),
            size_bytes,
            settings,
            origin,
            // Records before its birth are not its own.
            folded_lsn: self.journal.next_lsn() - 1,
            commit,
            next_snapshot_id: 1,
            snapshots: Vec::new(),
        };
        let (key, bytes) = (head_key(name), head.encode());
        let version = match self.engine.put_new(&key, bytes.clone().into()).await {
            Ok(version) => version,
            Err(error) if error.kind() == Kind::AlreadyExists => {
                let what = format!("disk '{name}' exists already");
                return Err(Error::new(Kind::AlreadyExists, what)
                    .remedy("choose another name, or remove that disk first"));
            }
            // An error does not say whether it happened: what is stored does.
            Err(error) => match self.engine.get(&key).await {
                Ok((found, version)) if found == bytes => version,
                _ => return Err(error.context(format!("creating disk '{name}'"))),
            },
        };
        let disk = Disk::from_head(head, version);
        self.disks.lock().insert(name.clone(), disk.clone());
        Ok(describe(&disk))
    }

    /// All disks, by name.
    pub fn disks(&self) -> Vec<DiskInfo> {
        self.all_disks().iter().map(|disk| describe(disk)).collect()
    }

    /// One disk.
    pub fn disk(&self, name: &Name) -> Result<DiskInfo> {
        self.find(name).map(|disk| describe(&disk))
    }

    /// Replaces a disk's settings; they hold for what is written from now on.
    pub async fn set_disk(&self, name: &Name, settings: DiskSettings) -> Result<DiskInfo> {
        let disk = self.find(name)?;
        let chosen = settings.clone();
        self.change_head(&disk, |head, _| head.settings = chosen, |state| state.settings = settings).await?;
        Ok(describe(&disk))
    }

    /// Changes a disk's size. What a smaller size cuts off is gone. Clients see the new size when they next connect.
    pub async fn resize_disk(&self, name: &Name, size_bytes: u64) -> Result<DiskInfo> {
        check_size(size_bytes)?;
        let disk = self.find(name)?;
        let appended = {
            let mut state = disk.state.lock();
            state.check_not_barred()?;
            let block_bytes = BLOCK_BYTES as u64;
            let lost = size_bytes / block_bytes..state.size_bytes.div_ceil(block_bytes);
            let mut encoded = Vec::new();
            let shrinks = !lost.is_empty();
            if shrinks {
                let change = Change::Zero { block: lost.start, blocks: lost.end - lost.start };
                Record { disk: disk.id, change }.encode(&mut encoded);
            }
            Record { disk: disk.id, change: Change::Resize { size_bytes } }.encode(&mut encoded);
            let count = 1 + u32::from(shrinks);
            let appended = self.journal.append_records(&encoded, count)?;
            if shrinks {
                state.active.insert(lost, appended.lsn, crate::overlay::Source::Zero);
            }
            state.active.note(appended.lsn, 0);
            state.active.note(appended.lsn + u64::from(count) - 1, 0);
            state.active.size_bytes = Some(size_bytes);
            state.size_bytes = size_bytes;
            appended
        };
        self.durably(appended).await?;
        Ok(describe(&disk))
    }

    /// Waits until what was appended is durable.
    pub(crate) async fn durably(&self, appended: crate::journal::Appended) -> Result<()> {
        appended.handed.wait().await?;
        self.flush().await
    }

    /// Removes a disk. Refused while clients are attached or it has snapshots; clones of it live on.
    pub async fn remove_disk(&self, name: &Name) -> Result<()> {
        let disk = self.find(name)?;
        // After any round that is under way, so that none writes the head anew.
        let _alone = self.folding.lock().await;
        {
            let mut state = disk.state.lock();
            check_idle(&disk.name, &state)?;
            if !state.snapshots.is_empty() {
                let what = format!("disk '{name}' has {} snapshots", state.snapshots.len());
                return Err(Error::new(Kind::Busy, what).remedy("remove its snapshots first"));
            }
            state.barred = Some(Error::new(Kind::NotFound, format!("disk '{name}' has been removed")));
        }
        if let Err(error) = self.engine.delete(&head_key(name)).await {
            // An error does not say whether it happened: what is stored does. While nobody knows, the disk stays
            // barred, so that nothing is written to a disk that may be gone; removing it again is allowed.
            match self.engine.get(&head_key(name)).await {
                Err(gone) if gone.kind() == Kind::NotFound => {}
                Ok(_) => {
                    disk.state.lock().barred = None;
                    return Err(error.context(format!("removing disk '{name}'")));
                }
                Err(_) => {
                    let what = format!("disk '{name}' may have been removed: {}", error.what());
                    disk.state.lock().barred = Some(Error::new(Kind::Busy, what).remedy("remove it again"));
                    return Err(error.context(format!("removing disk '{name}'")));
                }
            }
        }
        self.disks.lock().remove(name);
        let mut state = disk.state.lock();
        state.freeze(None);
        self.budget.give(state.frozen.drain(..).map(|layer| layer.budget_bytes).sum());
        Ok(())
    }

    /// Attaches a client to a disk, writable, or to a snapshot, read-only.
    pub fn attach(self: &Arc<Self>, export: &ExportName) -> Result<Attachment> {
        let disk = self.find(export.disk())?;
        let mut state = disk.state.lock();
        state.check_not_barred()?;
        let view = match export {
            ExportName::Disk(_) => {
                state.clients += 1;
                View::Now
            }
            ExportName::Snapshot(name) => {
                let id = state.snapshot_named(&name.disk, &name.snapshot)?.id;
                let snapshot =
                    state.snapshots.iter_mut().find(|s| s.id == id).expect("found by name just now");
                snapshot.readers += 1;
                View::Snapshot(id)
            }
        };
        let size_bytes = state.size_of(view);
        drop(state);
        Ok(Attachment::new(self.clone(), disk, view, export.clone(), size_bytes))
    }

    /// Empties the caches: the next reads are cold.
    pub fn drop_cache(&self) {
        self.segments.drop_caches();
    }

    /// A new bound for the caches, in bytes, kept to at once.
    pub fn resize_cache(&self, bytes: u64) {
        self.segments.resize_caches(bytes);
    }

    /// The state of the pool.
    pub async fn status(&self) -> Result<PoolStatus> {
        self.check_open()?;
        let room = self.engine.room().await?;
        let disks = self.disks();
        let (cache_bytes, cache_bytes_max) = self.segments.cache_bytes();
        Ok(PoolStatus {
            engine: self.engine.describe(),
            disks: disks.len(),
            snapshots: disks.iter().map(|disk| disk.snapshots).sum(),
            provisioned_bytes: disks.iter().map(|disk| disk.size_bytes).sum(),
            total_bytes: room.total_bytes,
            free_bytes: room.free_bytes,
            used_bytes: room.used_bytes,
            journal_bytes: self.budget.used(),
            cache_bytes,
            cache_bytes_max,
            counters: self.read_counters(),
        })
    }

    fn read_counters(&self) -> Vec<(&'static str, &'static str, u64)> {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (journal, segments) = (&self.journal.counters, &self.segments.counters);
        let (hits, misses) = self.segments.cache_hits_misses();
        vec![
            ("journal_chunks", "Chunks appended to the journal", get(&journal.chunks)),
            ("journal_bytes_written", "Bytes appended to the journal", get(&journal.chunk_bytes)),
            ("journal_syncs", "Times the journal was made durable", get(&journal.syncs)),
            ("fold_rounds", "Rounds of the fold", get(&self.counters.rounds)),
            (
                "fold_failures",
                "Rounds of the fold that failed and were tried again",
                get(&self.counters.failed_rounds),
            ),
            ("segment_puts", "Segments put", get(&segments.puts)),
            ("segment_bytes_put", "Bytes of segments put", get(&segments.put_bytes)),
            ("segment_reads", "Reads from segments", get(&segments.reads)),
            ("segment_bytes_read", "Bytes read from segments", get(&segments.read_bytes)),
            ("stale_hints", "Reads that had to ask a segment's index", get(&segments.stale_hints)),
            ("dedupe_sought_blocks", "Blocks folded, zeros included", get(&self.dedupe.sought_blocks)),
            ("dedupe_found_blocks", "Blocks that were stored already", get(&self.dedupe.found_blocks)),
            (
                "dedupe_samples",
                "Fingerprints in memory that stand for their neighbourhoods",
                self.dedupe.samples(),
            ),
            ("cache_hits", "Blocks found in the cache", hits),
            ("cache_misses", "Blocks not found in the cache", misses),
        ]
    }
}

pub(crate) fn describe(disk: &Disk) -> DiskInfo {
    let state = disk.state.lock();
    let counters = &disk.counters;
    let traffic =
        [&counters.reads, &counters.read_bytes, &counters.writes, &counters.write_bytes, &counters.flushes];
    DiskInfo {
        name: disk.name.clone(),
        size_bytes: state.size_bytes,
        settings: state.settings.clone(),
        created: disk.created,
        clients: state.clients,
        origin: disk.origin.clone(),
        snapshots: state.snapshots.len(),
        mapped_bytes: state.commit.mapped_blocks * BLOCK_BYTES as u64,
        traffic: traffic.map(|counter| counter.load(Ordering::Relaxed)),
    }
}

fn fenced(disk: &Name) -> Error {
    let what = format!("the head of disk '{disk}' was changed by another gateway");
    Error::new(Kind::Fenced, what).remedy("stop this one: the other owns the disk")
}

/// Fails with `Busy` while a client is attached to the disk or to one of its snapshots.
pub(crate) fn check_idle(name: &Name, state: &State) -> Result<()> {
    let clients = state.clients + state.snapshots.iter().map(|s| s.readers).sum::<usize>();
    if clients == 0 {
        return Ok(());
    }
    let what = format!("disk '{name}' is in use by {clients} client{}", if clients == 1 { "" } else { "s" });
    Err(Error::new(Kind::Busy, what).remedy("disconnect them first"))
}

fn check_size(size_bytes: u64) -> Result<()> {
    if size_bytes > 0 && size_bytes <= DISK_BYTES_MAX && size_bytes % BLOCK_BYTES as u64 == 0 {
        return Ok(());
    }
    let what = format!("{size_bytes} bytes is no size for a disk");
    Err(Error::new(Kind::Invalid, what)
        .remedy(format!("choose a multiple of 4K, from 4K to {}", Size(DISK_BYTES_MAX))))
}

impl Drop for Store {
    fn drop(&mut self) {
        self.journal.close();
    }
}
