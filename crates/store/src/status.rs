//! What is told of a pool and its disks.

use crate::clients::Client;
use crate::disk::Disk;
use crate::domains::DomainState;
use crate::findings::Known;
use crate::growth::Trend;
use crate::latency::Latencies;
use crate::qos::Background;
use crate::recovery::DEDUPE_CACHE_PART;
use crate::scrubber::ScrubStatus;
use crate::store::Store;
use crate::time::TimeStatus;
use crate::usage::Usage;
use std::sync::atomic::{AtomicU64, Ordering};
use stonefold_engine::{Directory, DirectoryState, Room};
use stonefold_env::WallNanos;
use stonefold_types::{BLOCK_BYTES, DiskSettings, Error, Name, Result, SnapshotName};

/// What is known of a disk.
#[derive(Clone, Debug)]
pub struct DiskInfo {
    /// Unique in the pool.
    pub name: Name,
    /// Chance: another disk that has its name later is not taken for it.
    pub number: u64,
    /// The domain it was made in.
    pub domain: Name,
    /// In bytes.
    pub size_bytes: u64,
    /// As chosen.
    pub settings: DiskSettings,
    /// Nanoseconds since 1970.
    pub created: WallNanos,
    /// Attached clients that can write.
    pub clients: usize,
    /// All that are attached to it or to its snapshots, in the order in which they came.
    pub connections: Vec<Client>,
    /// The snapshot it was cloned from; that may be gone.
    pub origin: Option<SnapshotName>,
    /// How many it has.
    pub snapshots: usize,
    /// Whether what it holds can be read.
    pub domain_state: DomainState,
    /// Bytes of blocks mapped, unfolded writes left out.
    pub mapped_bytes: u64,
    /// Bytes written and not yet folded: at most so much more is mapped when they are.
    pub unfolded_bytes: u64,
    /// Since the start: reads, bytes read, writes, bytes written, flushes.
    pub traffic: [u64; 5],
    /// How long requests took since the start, and how long QoS let them wait.
    pub latencies: Latencies,
    /// What it takes of the pool, if that was counted since the start.
    pub usage: Option<Usage>,
}

/// A disk that nobody can use, because its head cannot be read.
#[derive(Clone, Debug)]
pub struct DamagedDisk {
    /// Unique in the pool.
    pub name: Name,
    /// What is wrong, and what to do.
    pub why: Error,
}

/// Long work under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// What is being done.
    pub what: &'static str,
    /// Bytes dealt with.
    pub done_bytes: u64,
    /// Bytes in all, as far as is known; 0 while that is being found out.
    pub total_bytes: u64,
}

/// Work that is told of while it goes on.
pub(crate) struct Telling<'a> {
    store: &'a Store,
    what: &'static str,
}

impl Telling<'_> {
    pub(crate) fn set(&self, done_bytes: u64, total_bytes: u64) {
        let mut work = self.store.work.lock();
        if let Some(work) = work.iter_mut().find(|work| work.what == self.what) {
            (work.done_bytes, work.total_bytes) = (done_bytes, total_bytes);
        }
    }
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        self.store.work.lock().retain(|work| work.what != self.what);
    }
}

/// The state of the pool.
#[derive(Clone, Debug)]
pub struct PoolStatus {
    /// The URL and how it is reached.
    pub engine: String,
    /// Parts of the place that are not used although they belong to it: what is kept has fewer copies.
    pub missing: Vec<String>,
    /// The place's directories, where it has any.
    pub directories: Vec<Directory>,
    /// Why a change of directories under way does not get on.
    pub directories_wait: Option<String>,
    /// The URL that names all of the place; `None` where there is nothing that it could lack.
    pub url: Option<String>,
    /// Whether writes are refused because there is too little room left.
    pub full: bool,
    /// Disks whose heads cannot be read: nobody can use them, and nothing is given back.
    pub damaged: Vec<DamagedDisk>,
    /// How many.
    pub disks: usize,
    /// How many, on all disks.
    pub snapshots: usize,
    /// The sum of the disks' sizes.
    pub provisioned_bytes: u64,
    /// The same of those for which the pool keeps room.
    pub reserved_bytes: u64,
    /// The place itself, whatever lies there and however many copies are kept.
    pub raw_bytes: u64,
    /// What the place can hold.
    pub total_bytes: u64,
    /// What it can still hold.
    pub free_bytes: u64,
    /// What the pool occupies there.
    pub used_bytes: u64,
    /// Bytes of the blocks that disks hold now, each for itself, before anything is saved.
    pub logical_bytes: u64,
    /// How fast the pool fills; `None` while that is not known.
    pub trend: Option<Trend>,
    /// How far the scrub in the background is.
    pub scrub: ScrubStatus,
    /// What is known to be damaged.
    pub known: Known,
    /// Acknowledged, not yet folded.
    pub journal_bytes: u64,
    /// Held by the caches, and by deduplication's samples, which are taken from them.
    pub cache_bytes: u64,
    /// The bound of all that.
    pub cache_bytes_max: u64,
    /// Bytes of it that caches may not use now because the rest of the process needs them.
    pub cache_withheld_bytes: u64,
    /// Bytes of blocks that something refers to, before compression, as reclaim last counted them.
    pub live_bytes: u64,
    /// Bytes of dead blocks, before compression, that still lie in segments with others.
    pub dead_bytes: u64,
    /// What locks are judged by.
    pub time: TimeStatus,
    /// Long work under way.
    pub work: Vec<Work>,
    /// Counters since the start, for metrics: name, help, value.
    pub counters: Vec<(&'static str, &'static str, u64)>,
}

/// The reduction is told from this many logical bytes on: below, the journal's files and other fixed costs are most of a pool.
const REDUCTION_LOGICAL_MIN: u64 = 1 << 30;

impl PoolStatus {
    /// What the pool could hold as it stores things, in bytes: what it occupies and what is free to it, a copy of each.
    pub fn usable_bytes(&self) -> u64 {
        self.used_bytes.saturating_add(self.free_bytes)
    }

    /// How many bytes of disks one byte of the pool holds, with all that is kept beside them: snapshots, and what is not given back
    /// yet. `None` while the pool holds too little to tell.
    pub fn reduction(&self) -> Option<f64> {
        let enough = self.logical_bytes >= REDUCTION_LOGICAL_MIN && self.used_bytes > 0;
        enough.then(|| self.logical_bytes as f64 / self.used_bytes as f64)
    }

    /// How many bytes of disks the pool could hold in all, at the present reduction.
    pub fn effective_bytes(&self) -> Option<u64> {
        self.reduction().map(|ratio| (self.usable_bytes() as f64 * ratio) as u64)
    }
}

impl Store {
    /// The pool's number, drawn when it was made.
    pub fn pool_id(&self) -> [u8; 16] {
        self.domains.pool
    }

    /// Empties the caches: the next reads are cold.
    pub fn drop_cache(&self) {
        self.segments.drop_caches();
    }

    /// A new bound for the caches, in bytes, kept to at once.
    pub fn resize_cache(&self, bytes: u64) {
        let dedupe_bytes = bytes / DEDUPE_CACHE_PART;
        self.segments.resize_caches(bytes - dedupe_bytes);
        self.dedupe.resize(dedupe_bytes);
    }

    /// The bound of the caches, in bytes: what [`Options::cache_bytes`](crate::Options) or [`resize_cache`](Self::resize_cache)
    /// told last.
    pub fn cache_bytes_max(&self) -> u64 {
        self.segments.cache_bytes().1 + self.dedupe.cache_bytes().1
    }

    /// Makes the caches smaller by so many bytes for as long as the process needs them for other things, though never by more than
    /// half. Zero gives all back.
    pub fn withhold_cache(&self, bytes: u64) {
        self.segments.withhold(bytes);
    }

    /// Tells of work until what is returned is dropped. One of a kind at a time.
    pub(crate) fn tell(&self, what: &'static str) -> Telling<'_> {
        self.work.lock().push(Work { what, done_bytes: 0, total_bytes: 0 });
        Telling { store: self, what }
    }

    /// The state of the pool.
    pub async fn status(&self) -> Result<PoolStatus> {
        self.check_open()?;
        let (places, mut work) = (self.engine.directories(), self.work.lock().clone());
        let room = match self.engine.room().await {
            // Which of the directories are gone is told below: that is what is asked for when they are.
            Err(error) if places.is_some() => {
                tracing::warn!("the pool's room is not known: {error}");
                Room::default()
            }
            other => other?,
        };
        let directories = match places {
            Some(places) => places.states().await?,
            None => Vec::new(),
        };
        let mut missing = self.engine.missing();
        for failed in directories.iter().filter(|one| one.state == DirectoryState::Damaged) {
            let dir = failed.dir.display().to_string();
            if !missing.contains(&dir) {
                missing.push(dir);
            }
        }
        let moving = places.and_then(|places| places.moving());
        work.extend(moving.iter().map(|moving| Work {
            what: crate::directories::WORK,
            done_bytes: moving.done_bytes,
            total_bytes: moving.total_bytes,
        }));
        let disks = self.disks();
        let accounts = self.segments.accounts.document();
        let (caches, neighbours) = (self.segments.cache_bytes(), self.dedupe.cache_bytes());
        Ok(PoolStatus {
            engine: self.engine.describe(),
            missing,
            directories,
            directories_wait: moving.and_then(|moving| moving.waits),
            url: places.map(|places| places.url()),
            full: self.budget.is_refusing(),
            damaged: self.damaged_disks(),
            disks: disks.len(),
            snapshots: disks.iter().map(|disk| disk.snapshots).sum(),
            reserved_bytes: disks
                .iter()
                .filter(|disk| disk.settings.reserve)
                .map(|disk| disk.size_bytes)
                .sum(),
            provisioned_bytes: disks.iter().map(|disk| disk.size_bytes).sum(),
            raw_bytes: room.raw_bytes,
            total_bytes: room.total_bytes,
            free_bytes: room.free_bytes,
            used_bytes: room.used_bytes,
            logical_bytes: disks.iter().map(|disk| disk.mapped_bytes).sum(),
            trend: self.growth.trend(),
            scrub: self.scrubber.status(),
            known: self.findings.known(),
            journal_bytes: self.budget.used(),
            cache_bytes: caches.0 + neighbours.0,
            cache_bytes_max: caches.1 + neighbours.1,
            cache_withheld_bytes: self.segments.cache_withheld(),
            live_bytes: accounts.live_blocks * BLOCK_BYTES as u64,
            dead_bytes: (accounts.present_blocks - accounts.live_blocks) * BLOCK_BYTES as u64,
            time: self.time(),
            work,
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
            (
                "journal_failures",
                "Journals that failed and were gone on with in another",
                get(&journal.rollovers),
            ),
            ("journal_syncs", "Times the journal was made durable", get(&journal.syncs)),
            ("fold_rounds", "Rounds of the fold", get(&self.counters.rounds)),
            (
                "fold_failures",
                "Rounds of the fold that failed and were tried again",
                get(&self.counters.failed_rounds),
            ),
            ("segment_puts", "Segments put", get(&segments.puts)),
            ("segment_bytes_put", "Bytes of segments put", get(&segments.put_bytes)),
            ("map_bytes_put", "Of these, bytes of segments of map nodes", get(&segments.map_bytes)),
            ("map_leaves_put", "Leaves of maps written", get(&segments.leaves)),
            ("map_inner_nodes_put", "Nodes above leaves written", get(&segments.inner_nodes)),
            (
                "rewritten_bytes_put",
                "Bytes of segments written anew by reclaim",
                get(&segments.rewritten_bytes),
            ),
            ("ledger_bytes_put", "Bytes of the ledger put", get(&self.segments.accounts.ledger_bytes)),
            ("account_bytes_put", "Bytes of accounts put", get(&self.segments.accounts.put_bytes)),
            ("segment_reads", "Reads from segments", get(&segments.reads)),
            ("map_node_reads", "Of these, reads of map nodes", get(&segments.node_reads)),
            ("segment_bytes_read", "Bytes read from segments", get(&segments.read_bytes)),
            (
                "stale_hints",
                "Times that a hint was of no use, mostly of blocks in segments written anew",
                get(&segments.stale_hints),
            ),
            ("healed_copies", "Damaged or missing copies made sound again", self.engine.healed()),
            ("reclaim_reads", "Ledgers and accounts read", get(&self.segments.accounts.reads)),
            ("reclaim_passes", "Passes of reclaim", get(&self.counters.passes)),
            (
                "scrub_passes",
                "Passes of the scrub in the background over the whole pool",
                get(&self.counters.scrubs),
            ),
            (
                "reclaim_failures",
                "Passes of reclaim that failed and were tried again",
                get(&self.counters.failed_passes),
            ),
            (
                "reclaimed_blocks",
                "Blocks that reclaim found to be referred to by nothing",
                get(&self.counters.dead_blocks),
            ),
            ("reclaimed_bytes", "Bytes of segments given back", get(&self.counters.freed_bytes)),
            ("segments_deleted", "Segments deleted", get(&self.counters.deleted_segments)),
            (
                "segments_rewritten",
                "Segments written anew without what was dead",
                get(&self.counters.rewritten_segments),
            ),
            (
                "fold_held_back_milliseconds",
                "For how long the fold was held back by QoS",
                self.qos.held_back(Background::Fold).as_millis() as u64,
            ),
            (
                "reclaim_held_back_milliseconds",
                "For how long reclaim was held back by QoS",
                self.qos.held_back(Background::Reclaim).as_millis() as u64,
            ),
            (
                "moving_held_back_milliseconds",
                "For how long moving data between directories was held back by QoS",
                self.qos.held_back(Background::Moving).as_millis() as u64,
            ),
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

impl Store {
    pub(crate) fn describe(&self, disk: &Disk) -> DiskInfo {
        let state = disk.state.lock();
        let counters = &disk.counters;
        let traffic = [
            &counters.reads,
            &counters.read_bytes,
            &counters.writes,
            &counters.write_bytes,
            &counters.flushes,
        ];
        DiskInfo {
            name: disk.name.clone(),
            number: disk.id,
            domain: self.domains.keyring.name(disk.domain),
            size_bytes: state.size_bytes,
            settings: state.settings.clone(),
            created: disk.created,
            clients: state.clients.guests(),
            connections: state.clients.all(),
            origin: disk.origin.clone(),
            snapshots: state.snapshots.live(),
            domain_state: self.domains.keyring.public_state(disk.domain),
            mapped_bytes: state.commit.mapped_blocks * BLOCK_BYTES as u64,
            unfolded_bytes: state.unfolded_bytes(),
            traffic: traffic.map(|counter| counter.load(Ordering::Relaxed)),
            latencies: Latencies {
                reads: counters.read_latency.read(),
                writes: counters.write_latency.read(),
                flushes: counters.flush_latency.read(),
                qos_waits: disk.flow.waits(),
            },
            usage: *disk.usage.lock(),
        }
    }
}
