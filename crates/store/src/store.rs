//! An open pool: its disks by name, and the tasks that keep it going.

use crate::budget::{Budget, Taken};
use crate::dedupe::Dedupe;
use crate::disk::Disk;
use crate::domains::{Domains, Keys};
use crate::findings::Findings;
use crate::fold;
use crate::growth::Growth;
use crate::journal::Journal;
use crate::planted;
use crate::qos::{Background, PRESSURE_FULL, Qos};
use crate::reclaim;
use crate::recovery::{self, Retired};
use crate::rewrite;
use crate::scrubber::Scrubber;
use crate::segments::Segments;
use crate::status::Work;
use crate::time::{self, Clock};
use crate::unreadable::Damage;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use stonefold_engine::Engine;
use stonefold_env::Env;
use stonefold_types::{AlignedBuf, Error, Kind, Name, Result, Size};
use tokio::sync::Notify;

/// How a store is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Memory for the block and node caches, in bytes.
    pub cache_bytes: u64,
    /// Memory for acknowledged data not yet folded, in bytes.
    pub journal_bytes_max: u64,
    /// What opens sealed domains.
    pub keys: Keys,
    /// How far an opening believes the wall clock against the time that was recorded, and in all since as much was lived
    /// through or confirmed.
    pub time_step_max: Duration,
    /// Snapshots in a page of a disk's list, and pages in a directory. Large enough that the head stays short, small
    /// enough that a change of one writes some 30 KiB.
    pub snapshot_page_records: usize,
    /// In this time every copy of every segment is read once in the background and healed; `None` for never.
    pub scrub_period: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            cache_bytes: 1 << 30,
            journal_bytes_max: 192 << 20,
            keys: Keys::default(),
            time_step_max: Duration::from_secs(7 * 86_400),
            snapshot_page_records: 256,
            scrub_period: Some(Duration::from_secs(30 * 86_400)),
        }
    }
}

/// A round of the fold begins when this part of the budget is used: half, so that writers have the other half while it works.
const FOLD_PART: u64 = 2;
/// A round begins at the latest this long after the last, so that an idle disk's data is not kept in memory and a
/// restart has little to replay.
const FOLD_INTERVAL: Duration = Duration::from_secs(15);
/// A pass of reclaim begins this long after the last: much has gathered by then, and space comes back in a minute or two.
const RECLAIM_INTERVAL: Duration = Duration::from_secs(60);
/// The same while room is short.
const RECLAIM_HURRIED: Duration = Duration::from_secs(2);
/// From this pressure on room is short.
const PRESSURE_HURRIES: u64 = PRESSURE_FULL / 2;
/// A round that failed is tried again after this.
const FOLD_RETRY: Duration = Duration::from_secs(1);
/// How often it is looked whether the fold, which would disturb others, still need not begin.
const FOLD_WAITS: Duration = Duration::from_millis(20);

/// For a round of the fold or a pass of reclaim to notice that the store is being left: a job of packing, a put of a segment.
const GIVE_UP_MAX: Duration = Duration::from_millis(250);

/// Room kept beside what the journal may hold, in bytes: for map nodes, heads, and what reclaim writes before it frees.
pub(crate) const RESERVE_BYTES: u64 = 64 << 20;

/// An open pool.
pub struct Store {
    pub(crate) env: Env,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) options: Options,
    pub(crate) domains: Domains,
    pub(crate) segments: Arc<Segments>,
    pub(crate) dedupe: Arc<Dedupe>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) budget: Budget,
    pub(crate) qos: Qos,
    pub(crate) clock: Clock,
    pub(crate) counters: Counters,
    pub(crate) growth: Growth,
    pub(crate) disks: Mutex<BTreeMap<Name, Arc<Disk>>>,
    /// Removed disks that reclaim is not done with.
    pub(crate) gone: Mutex<Vec<Arc<Disk>>>,
    /// Journals of earlier sessions: removed once everything in them is folded.
    pub(crate) retired: Mutex<Vec<Retired>>,
    /// Heads that cannot be read.
    pub(crate) damage: Damage,
    /// Of the copies that the engine has healed, how many a check has told of.
    pub(crate) healed_told: AtomicU64,
    /// Held by a round of the fold, and by whoever needs that none is under way.
    pub(crate) folding: tokio::sync::Mutex<()>,
    /// Held by a pass of reclaim.
    pub(crate) reclaiming: tokio::sync::Mutex<reclaim::Memory>,
    /// Held by a step of bringing objects to other directories.
    pub(crate) moving: tokio::sync::Mutex<()>,
    /// Long work under way.
    pub(crate) work: Mutex<Vec<Work>>,
    pub(crate) moving_wake: Notify,
    fold_wake: Notify,
    reclaim_wake: Notify,
    pub(crate) scrubber: Scrubber,
    pub(crate) findings: Findings,
    /// Held while the scrub looks at a segment.
    pub(crate) scrubbing: tokio::sync::Mutex<()>,
    pub(crate) scrub_wake: Notify,
    /// Some disks must not touch what was promised to others.
    refuses_some: AtomicBool,
    /// How urgent it is that reclaim gives room back, in thousandths; see [`Store::room_pressure`].
    pressure: AtomicU64,
    closed: AtomicBool,
    /// A round of the fold that is under way is to be given up.
    leaving: AtomicBool,
}

/// What happened since the start.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) rounds: AtomicU64,
    pub(crate) failed_rounds: AtomicU64,
    pub(crate) passes: AtomicU64,
    pub(crate) failed_passes: AtomicU64,
    pub(crate) dead_blocks: AtomicU64,
    pub(crate) freed_bytes: AtomicU64,
    pub(crate) deleted_segments: AtomicU64,
    pub(crate) rewritten_segments: AtomicU64,
    pub(crate) scrubs: AtomicU64,
}

impl Store {
    /// Opens the pool, or makes it when the place is empty, and replays what its journals hold. Tasks are spawned on
    /// `env` and end with [`Store::close`].
    pub async fn open(env: Env, engine: Arc<dyn Engine>, options: Options) -> Result<Arc<Self>> {
        let store = recovery::open(env, engine, options).await?;
        store.env.spawn("fold", store.clone().fold_rounds());
        store.env.spawn("reclaim", store.clone().reclaim_passes());
        if let Some(period) = store.options.scrub_period {
            store.env.spawn("scrub", store.clone().scrub_slowly(period));
        }
        if store.engine.directories().is_some() {
            store.env.spawn("directories", store.clone().move_objects());
        }
        store.env.spawn("trusted time", time::keep(store.env.clone(), Arc::downgrade(&store)));
        let (env, dedupe, segments) = (store.env.clone(), store.dedupe.clone(), store.segments.clone());
        store.env.spawn("dedupe index", async move {
            if let Err(error) = dedupe.read_samples(&env).await {
                tracing::warn!("dedupe will find fewer duplicates until the next start: {error}");
            }
            segments.set_aside(dedupe.samples_bytes());
        });
        Ok(store)
    }

    pub(crate) fn new(
        env: Env,
        engine: Arc<dyn Engine>,
        options: Options,
        (domains, segments, dedupe): (Domains, Arc<Segments>, Arc<Dedupe>),
        journal: (Arc<Journal>, Vec<Retired>),
        (disks, gone, damage): (BTreeMap<Name, Arc<Disk>>, Vec<Arc<Disk>>, Damage),
        (qos, growth, scrubber, clock): (Qos, Growth, Scrubber, Clock),
    ) -> Arc<Self> {
        let budget = Budget::new(options.journal_bytes_max);
        for disk in disks.values() {
            let state = disk.state.lock();
            let layers = state.frozen.iter().map(|layer| &**layer).chain([&state.active]);
            budget.take_anyway(layers.map(|layer| layer.budget_bytes).sum());
            qos.assign(&disk.flow, state.settings.qos.as_str());
        }
        Arc::new(Store {
            env,
            engine,
            domains,
            segments,
            dedupe,
            journal: journal.0,
            budget,
            qos,
            clock,
            options,
            counters: Counters::default(),
            growth,
            disks: Mutex::new(disks),
            gone: Mutex::new(gone),
            retired: Mutex::new(journal.1),
            damage,
            healed_told: AtomicU64::new(0),
            folding: tokio::sync::Mutex::default(),
            reclaiming: tokio::sync::Mutex::default(),
            moving: tokio::sync::Mutex::default(),
            work: Mutex::default(),
            moving_wake: Notify::new(),
            fold_wake: Notify::new(),
            reclaim_wake: Notify::new(),
            scrubber,
            findings: Findings::default(),
            scrubbing: tokio::sync::Mutex::default(),
            scrub_wake: Notify::new(),
            refuses_some: AtomicBool::new(false),
            pressure: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
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
        self.qos.close();
        // A pass that is under way ends first, so that nothing touches the pool after this returns.
        let _no_pass = self.reclaiming.lock().await;
        let _no_step = self.moving.lock().await;
        self.scrub_wake.notify_one();
        let _no_look = self.scrubbing.lock().await;
        if let Err(error) = self.put_progress().await {
            tracing::debug!("the progress of the scrub was not noted: {error}");
        }
        self.segments.written().await;
        let folded = self.fold(None).await;
        // Whatever the fold could not do, what was acknowledged is made as durable as it can be.
        let flushed = self.flush().await;
        self.journal.close();
        self.scrub_wake.notify_one();
        self.fold_wake.notify_one();
        self.reclaim_wake.notify_one();
        self.moving_wake.notify_one();
        folded?;
        flushed?;
        self.put_to_rest().await
    }

    /// Ends for somebody who will open the pool again in a moment: makes everything durable that was acknowledged, and leaves what
    /// is not folded in the journal for the next opening, so that it takes as long as a sync, however much there is.
    /// Afterwards every call fails with `Closed`.
    ///
    /// What goes on in the background is given up where it is. Where that takes longer than [`GIVE_UP_MAX`] it goes on after
    /// this has returned, until the process or its runtime ends: nobody else may open the pool before.
    pub async fn leave(&self) -> Result<()> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.leaving.store(true, Ordering::Release);
        self.qos.close();
        // Before anything else: whatever happens to the rest, this is what was promised.
        let flushed = if planted::is("left-unsynced") { Ok(()) } else { self.flush().await };
        let given_up = async {
            self.segments.written().await;
            let _no_look = self.scrubbing.lock().await;
            (self.reclaiming.lock().await, self.folding.lock().await, self.moving.lock().await)
        };
        let quiet = futures::future::select(Box::pin(given_up), self.env.sleep(GIVE_UP_MAX)).await;
        self.journal.close();
        self.scrub_wake.notify_one();
        self.fold_wake.notify_one();
        self.reclaim_wake.notify_one();
        self.moving_wake.notify_one();
        flushed?;
        match quiet {
            futures::future::Either::Left(_) => self.put_to_rest().await,
            futures::future::Either::Right(_) => Ok(()),
        }
    }

    /// Folds what was acknowledged so far, as fast as it can.
    pub async fn fold_everything(&self) -> Result<()> {
        self.check_open()?;
        self.fold(None).await
    }

    /// Fails when what takes long is to be given up.
    pub(crate) fn check_staying(&self) -> Result<()> {
        if self.leaving.load(Ordering::Acquire) { Err(crate::closed()) } else { Ok(()) }
    }

    /// The last of an orderly end. A journal that holds nothing need not be replayed, and nobody needs what is kept for the next one.
    async fn put_to_rest(&self) -> Result<()> {
        let empty = self.all_disks().iter().all(|disk| disk.state.lock().first_unfolded_lsn().is_none());
        if empty {
            self.engine.journal_remove(self.journal.id()).await?;
        }
        self.record_time().await?;
        if empty {
            self.engine.rest().await;
        }
        Ok(())
    }

    pub(crate) async fn flush(&self) -> Result<()> {
        self.journal.make_durable(self.journal.handed_below()).await
    }

    /// One round of the fold, after any that is under way, for somebody who waits for it.
    pub(crate) async fn fold(&self, only: Option<&Arc<Disk>>) -> Result<()> {
        let _hurry = self.qos.hurry();
        self.fold_unhurried(only).await
    }

    /// Waits until the fold may handle so many bytes more.
    pub(crate) async fn pace_fold(&self, bytes: u64) {
        self.qos.pace(Background::Fold, bytes, || self.budget.filled()).await;
    }

    /// Waits until what looks through the pool, and gives nothing back, may read so many bytes more.
    pub(crate) async fn pace_looking(&self, bytes: u64) {
        self.qos.pace(Background::Reclaim, bytes, || 0).await;
    }

    /// Waits until reclaim may read or write so many bytes more.
    pub(crate) async fn pace_reclaim(&self, bytes: u64) {
        self.qos.pace(Background::Reclaim, bytes, || self.pressure.load(Ordering::Relaxed)).await;
    }

    pub(crate) async fn fold_unhurried(&self, only: Option<&Arc<Disk>>) -> Result<()> {
        let _alone = self.folding.lock().await;
        fold::round(self, only).await
    }

    /// Waits for room for what is about to be appended; the fold is told when there is none.
    pub(crate) async fn take_room(&self, bytes: u64) -> Result<Taken<'_>> {
        if self.budget.is_short_of(bytes) {
            self.fold_wake.notify_one();
        }
        self.budget.take(bytes).await
    }

    /// Tells the fold that there is more to do.
    pub(crate) fn note_appended(&self) {
        if self.budget.used() >= self.options.journal_bytes_max / FOLD_PART {
            self.fold_wake.notify_one();
        }
    }

    /// Has a round come now, without waiting for it.
    pub(crate) fn fold_soon(&self) {
        self.fold_wake.notify_one();
    }

    async fn fold_rounds(self: Arc<Self>) {
        while self.check_open().is_ok() {
            while self.check_open().is_ok() && self.qos.can_fold_wait(self.budget.filled()) {
                self.env.sleep(FOLD_WAITS).await;
            }
            // At once after opening, too: what was replayed is folded, and a full place is seen before it is needed.
            while self.check_open().is_ok() && !self.fold_and_check().await {
                self.env.sleep(FOLD_RETRY).await;
            }
            let woken = self.fold_wake.notified();
            // Who is refused is to be let in as soon as there is room; the others' rounds go on as ever.
            let refused = self.refuses_some.load(Ordering::Relaxed);
            let timer = self.env.sleep(if refused { FOLD_RETRY } else { FOLD_INTERVAL });
            futures::future::select(Box::pin(woken), timer).await;
            if self.budget.used() == 0 {
                // Nobody has written for a while: what writing needs is needed elsewhere.
                AlignedBuf::release_kept();
            }
        }
    }

    async fn reclaim_passes(self: Arc<Self>) {
        // At once after opening, too: deduplication may lean on older segments only when they are in the accounts.
        loop {
            let mut memory = self.reclaiming.lock().await;
            if self.check_open().is_err() {
                return;
            }
            let freed = match reclaim::pass(&self, &mut memory, rewrite::DEAD_PART_IDLE).await {
                Ok((done, _)) => done.freed_bytes > 0 || done.dead_blocks > 0,
                Err(error) => {
                    self.counters.failed_passes.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!("reclaim failed and will be tried again; nothing is lost: {error}");
                    false
                }
            };
            self.watch_growth().await;
            drop(memory);
            let woken = self.reclaim_wake.notified();
            // To hurry where nothing comes back would only disturb.
            let presses = freed && self.pressure.load(Ordering::Relaxed) >= PRESSURE_HURRIES;
            let timer = self.env.sleep(if presses { RECLAIM_HURRIED } else { RECLAIM_INTERVAL });
            futures::future::select(Box::pin(woken), timer).await;
        }
    }

    /// One round, and a look at the room left; `false` when either is to be tried again.
    async fn fold_and_check(&self) -> bool {
        let folded = self.fold_unhurried(None).await;
        // A full place or an ended journal gives no room back by itself: who waits for some must be told.
        let full = folded.as_ref().err().filter(|e| e.kind() == Kind::NoSpace).cloned();
        self.budget.block(full.or_else(|| self.journal.failure()));
        let room = self.look_at_room().await;
        if let Err(error) = &folded {
            self.counters.failed_rounds.fetch_add(1, Ordering::Relaxed);
            tracing::warn!("folding failed and will be tried again; nothing is lost: {error}");
        }
        folded.is_ok() && room
    }

    /// Fails while there is not room enough to fold everything that may be acknowledged: what is admitted must
    /// find its place.
    async fn check_room(&self) -> Result<()> {
        let room = self.engine.room().await?;
        self.refuses_some.store(self.keep_promises(&room), Ordering::Relaxed);
        let pressure = self.room_pressure(&room);
        let before = self.pressure.swap(pressure, Ordering::Relaxed);
        if before < PRESSURE_HURRIES && pressure >= PRESSURE_HURRIES {
            self.hurry_reclaim();
        }
        let needed = self.needed_bytes();
        if room.free_bytes >= needed {
            return Ok(());
        }
        if room.total_bytes < needed {
            let (total, needed) = (Size(room.total_bytes), Size(needed));
            let what =
                format!("the pool's place is too small to write to: it has {total}, and {needed} are kept");
            return Err(
                Error::new(Kind::NoSpace, what).remedy("enlarge it, or serve it with a smaller --journal")
            );
        }
        let (free, needed) = (Size(room.free_bytes), Size(needed));
        let what =
            format!("the pool is full: {free} are free, and {needed} are kept to fold what was acknowledged");
        Err(Error::new(Kind::NoSpace, what).remedy(
            "remove disks or snapshots and run 'stonefold pool reclaim', or enlarge its place; reads go on, and \
             nothing is lost",
        ))
    }

    /// Looks at the room left, and lets write who may from now on; `false` when nobody may. Also called by whoever has made room or a
    /// promise, so that it counts at once and not from the next round.
    pub(crate) async fn look_at_room(&self) -> bool {
        let room = self.check_room().await;
        let was_full = self.budget.refuse(room.as_ref().err().cloned());
        // Told when it changes: it is looked at every second.
        match &room {
            Err(error) if !was_full => tracing::warn!("{error}"),
            Ok(()) if was_full => tracing::info!("the pool has room again; writes are let in"),
            _ => {}
        }
        room.is_ok()
    }

    pub(crate) fn hurry_reclaim(&self) {
        self.reclaim_wake.notify_one();
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
        let gone: Vec<Retired> = {
            let mut retired = self.retired.lock();
            let left = self.journal.take_left().into_iter();
            retired.extend(left.map(|(id, end)| Retired { id, end, has_strangers: false }));
            let hidden = self.damage.hides_a_disk();
            let (gone, kept) =
                retired.drain(..).partition(|one: &Retired| one.is_needless(needed_from, hidden));
            *retired = kept;
            gone
        };
        for one in gone {
            self.engine.journal_remove(one.id).await?;
        }
        Ok(())
    }

    pub(crate) fn all_disks(&self) -> Vec<Arc<Disk>> {
        self.disks.lock().values().cloned().collect()
    }

    pub(crate) fn gone_disks(&self) -> Vec<Arc<Disk>> {
        self.gone.lock().clone()
    }

    /// Every head there is, also those of removed disks.
    pub(crate) fn disks_and_gone(&self) -> Vec<Arc<Disk>> {
        let mut all = self.all_disks();
        all.extend(self.gone_disks());
        all
    }

    pub(crate) fn find(&self, name: &Name) -> Result<Arc<Disk>> {
        self.check_open()?;
        self.disks
            .lock()
            .get(name)
            .cloned()
            .ok_or_else(|| self.damage.of(name).unwrap_or_else(|| absent(name)))
    }

    /// Waits until what was appended is durable.
    pub(crate) async fn durably(&self, appended: crate::journal::Appended) -> Result<()> {
        appended.handed.wait().await?;
        self.flush().await
    }
}

fn absent(name: &Name) -> Error {
    Error::new(Kind::NotFound, format!("disk '{name}' does not exist"))
        .remedy("'stonefold disk ls' names those that do")
}

impl Drop for Store {
    fn drop(&mut self) {
        self.journal.close();
    }
}
