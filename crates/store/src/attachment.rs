//! A client's hold on a disk or a snapshot: what doors read and write through.
//!
//! *Promises*: a read returns what some instant between its call and its return held; a write is seen by every read
//! that begins after it returned, whatever the connection; a flush covers everything acknowledged before it (P1). Any
//! alignment is taken. *May be called by*: doors.

use crate::capture;
use crate::clients::Client;
use crate::disk::{Disk, View, blocks_of};
use crate::latency::Histogram;
use crate::overlay::{Blocks, Part, Source};
use crate::planted;
use crate::qos::Lane;
use crate::read;
use crate::store::Store;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use stonefold_format::record::{Change, EXTENT_HEADER, Record};
use stonefold_format::trace::Op;
use stonefold_types::{BLOCK_BYTES, Durability, Error, ExportName, Kind, Name, Result};

/// Of reads that are answered from memory at once, one in so many is timed and counts for all.
const CACHED_READS_TIMED: u64 = 16;

/// A client's hold on a disk or a snapshot. Clones share the hold, which ends with the last of them.
#[derive(Clone)]
pub struct Attachment {
    hold: Arc<Hold>,
}

struct Hold {
    store: Arc<Store>,
    disk: Arc<Disk>,
    view: View,
    name: ExportName,
    size_bytes: u64,
    client: Arc<Client>,
    /// Its number among the disk's clients, for traces.
    queue: u32,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.disk.state.lock();
        state.clients.remove(&self.client);
        if let View::Snapshot(id) = self.view {
            state.snapshots.drop_reader(id);
        }
    }
}

/// Proof that a flush happened: everything acknowledged before it is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Flushed(());

/// One run of an answer to [`Attachment::extents`] or [`Attachment::changed_since`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// How long it is.
    pub bytes: u64,
    /// Nothing is stored, or nothing has changed.
    pub hole: bool,
}

/// Data waiting to be written, in parts that lie behind one another, and the partial blocks at its ends.
struct Edges {
    /// The whole blocks touched.
    blocks: Blocks,
    /// What lay in the first block before the data.
    front: Vec<u8>,
    /// What lay in the last block behind the data.
    back: Vec<u8>,
}

impl Attachment {
    pub(crate) fn new(
        store: Arc<Store>,
        disk: Arc<Disk>,
        view: View,
        client: Arc<Client>,
        size_bytes: u64,
    ) -> Self {
        let name = client.export.clone();
        let queue = disk.tap.next_queue();
        Attachment { hold: Arc::new(Hold { store, disk, view, name, size_bytes, client, queue }) }
    }

    /// The size when attached, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.hold.size_bytes
    }

    /// Whether writes are refused: a snapshot never changes.
    pub fn read_only(&self) -> bool {
        self.hold.view != View::Now
    }

    /// For people: shown in export lists.
    pub fn description(&self) -> String {
        match &self.hold.name {
            ExportName::Disk(name) => format!("disk {name}"),
            ExportName::Snapshot(name) => format!("snapshot {name}, read-only"),
        }
    }

    /// A client has made a request. Doors tell each once, when they take it up, however many calls carry it out: so a trace has what was
    /// asked and not what became of it. Of a snapshot nothing is recorded.
    #[inline]
    pub fn note(&self, op: Op, offset: u64, bytes: u64, fua: bool) {
        let hold = &self.hold;
        if hold.disk.tap.is_on() && hold.view == View::Now {
            hold.disk.tap.note(&hold.store.env, capture::request(op, fua, hold.queue, offset, bytes));
        }
    }

    fn check(&self, offset: u64, len: u64) -> Result<()> {
        self.hold.store.check_open()?;
        // The disk may have shrunk since it was attached.
        let size = self.hold.disk.state.lock().size_of(self.hold.view);
        if offset.checked_add(len).is_some_and(|end| end <= size) {
            return Ok(());
        }
        let name = &self.hold.name;
        Err(Error::new(
            Kind::Invalid,
            format!("{len} bytes at {offset} lie beyond the end of '{name}' ({size} bytes)"),
        ))
    }

    fn check_writable(&self) -> Result<()> {
        if !self.read_only() {
            return Ok(());
        }
        let what = format!("'{}' is a snapshot and never changes", self.hold.name);
        Err(Error::new(Kind::ReadOnly, what).remedy("clone it and write to the clone"))
    }

    /// Fills `buf` from `offset`, both in bytes. Fails with `Invalid` beyond the end, with `Corrupt` when what is
    /// stored fails its checksum.
    pub async fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let since = self.hold.store.env.monotonic();
        self.read_uncounted(offset, buf).await?;
        self.count_read(buf.len());
        self.note_latency(&self.hold.disk.counters.read_latency, since, 1);
        Ok(())
    }

    /// The same for what no client has asked for.
    async fn read_uncounted(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check(offset, buf.len() as u64)?;
        let hold = &self.hold;
        if hold.disk.flow.is_limited() {
            hold.store.qos.pass_limit(&hold.disk.flow, buf.len() as u64).await;
            // Nobody has looked yet whether it is in memory.
            if let Some(done) = read::read_cached(&hold.store.segments, &hold.disk, hold.view, offset, buf) {
                return done;
            }
        }
        let _place = hold.store.qos.enter(&hold.disk.flow, Lane::Reads, buf.len() as u64).await;
        read::read(&hold.store.segments, &hold.disk, hold.view, offset, buf)
            .await
            .map_err(|e| self.unread(e, offset, buf.len()))
    }

    /// Says of what could not be read where it is, and what is to be done about damage.
    fn unread(&self, error: Error, offset: u64, bytes: usize) -> Error {
        // What is known to be lost has a remedy of its own, and is no news.
        let damaged = error.kind() == Kind::Corrupt && error.remedy_text().is_none();
        let error = error.context(format!("reading {bytes} bytes at {offset} of '{}'", self.hold.name));
        if !damaged {
            return error;
        }
        let store = &self.hold.store;
        store.findings.met(&self.hold.name.to_string(), store.time().trusted, &error);
        error.remedy(
            "ask 'stonefold pool check' what is affected; 'stonefold disk export --salvage' saves the rest",
        )
    }

    /// As [`read`](Self::read) when everything is in memory and the disk has no limit; `None` when it would have to wait, and
    /// `buf` is then undefined.
    pub fn read_cached(&self, offset: u64, buf: &mut [u8]) -> Option<Result<()>> {
        if let Err(error) = self.check(offset, buf.len() as u64) {
            return Some(Err(error));
        }
        let hold = &self.hold;
        if hold.disk.flow.is_limited() {
            return None;
        }
        // Two looks at the clock would take half as long as the read: one in so many is timed, for all.
        let timed = hold.disk.counters.reads.load(Ordering::Relaxed) % CACHED_READS_TIMED == 0;
        let since = timed.then(|| hold.store.env.monotonic());
        let done = read::read_cached(&hold.store.segments, &hold.disk, hold.view, offset, buf)?;
        self.count_read(buf.len());
        if let Some(since) = since {
            self.note_latency(&hold.disk.counters.read_latency, since, CACHED_READS_TIMED);
        }
        Some(done)
    }

    fn note_latency(&self, of: &Histogram, since: Duration, count: u64) {
        of.note(self.hold.store.env.monotonic().saturating_sub(since), count);
    }

    fn count_read(&self, bytes: usize) {
        let counters = &self.hold.disk.counters;
        counters.reads.fetch_add(1, Ordering::Relaxed);
        counters.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Writes. On return the data outlives this process; with `fua`, or on a disk with durability `ack`, also the
    /// loss of power. Fails with `NoSpace` when the pool is full, and then changes nothing.
    pub async fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<()> {
        self.check_writable()?;
        self.check(offset, data.len() as u64)?;
        if data.is_empty() {
            return Ok(());
        }
        if data.len() > WRITE_BYTES_MAX {
            let what = format!("a write of {} bytes is too long", data.len());
            return Err(
                Error::new(Kind::Invalid, what).remedy(format!("write at most {WRITE_BYTES_MAX} at a time"))
            );
        }
        let since = self.hold.store.env.monotonic();
        let blocks = blocks_of(offset, data.len() as u64);
        let room = (blocks.end - blocks.start) * BLOCK_BYTES as u64 + EXTENT_HEADER as u64;
        let (qos, flow) = (&self.hold.store.qos, &self.hold.disk.flow);
        qos.pass_limit(flow, data.len() as u64).await;
        let _place = qos.enter(flow, Lane::Writes, data.len() as u64).await;
        self.hold.disk.refusal.check()?;
        let taken = self.hold.store.take_room(room).await?;
        let (lsn, handed) = self.append(offset, data, room).await?;
        // The layer has it now, and the fold gives it back.
        taken.keep();
        self.acknowledge(lsn, handed, fua).await?;
        let counters = &self.hold.disk.counters;
        counters.writes.fetch_add(1, Ordering::Relaxed);
        counters.write_bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        self.note_latency(&counters.write_latency, since, 1);
        Ok(())
    }

    async fn append(&self, offset: u64, data: &[u8], room: u64) -> Result<(u64, Arc<crate::gate::Gate>)> {
        let block_bytes = BLOCK_BYTES as u64;
        if offset % block_bytes == 0 && data.len() % BLOCK_BYTES == 0 {
            return self
                .append_blocks(offset / block_bytes, &[data], room, |_| true)
                .map(|done| done.expect("always"));
        }
        loop {
            let (edges, seen) = self.read_edges(offset, data.len() as u64).await?;
            let parts = [&edges.front[..], data, &edges.back[..]];
            // Whatever touched the partial blocks since they were read must not be undone by what was read.
            let untouched = |state: &crate::disk::State| {
                let last = edges.blocks.end - 1;
                let mut fresh = state.folds == seen.folds;
                for block in [edges.blocks.start, last] {
                    let newest = |_: Blocks, lsn: u64, _: Part<'_>| fresh &= lsn < seen.next_lsn;
                    fresh &= state.overlay(View::Now, block..block + 1, newest).is_ok();
                }
                fresh
            };
            if let Some(done) = self.append_blocks(edges.blocks.start, &parts, room, untouched)? {
                return Ok(done);
            }
        }
    }

    /// Appends whole blocks given in parts to the journal and lays them over the disk, unless `still` says no.
    fn append_blocks(
        &self,
        block: u64,
        parts: &[&[u8]],
        room: u64,
        still: impl FnOnce(&crate::disk::State) -> bool,
    ) -> Result<Option<(u64, Arc<crate::gate::Gate>)>> {
        let disk = &self.hold.disk;
        let mut state = disk.state.lock();
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        state.check_change(&(block..block + (bytes / BLOCK_BYTES) as u64))?;
        if !still(&state) && !planted::is("partial-write-unchecked") {
            return Ok(None);
        }
        // Under the disk's lock, so that the order of records is the order of layers.
        let key = self.hold.store.domains.keyring.record_key(disk.domain)?;
        let (appended, slice) = self.hold.store.journal.append_write(disk.leased(), block, parts, key)?;
        let blocks = block..block + (slice.len() / BLOCK_BYTES) as u64;
        state.active.insert(blocks, appended.lsn, Source::Data(slice));
        state.active.note(appended.lsn, room);
        Ok(Some((appended.lsn, appended.handed)))
    }

    async fn read_edges(&self, offset: u64, len: u64) -> Result<(Edges, Seen)> {
        let hold = &self.hold;
        let seen = {
            let state = hold.disk.state.lock();
            Seen { folds: state.folds, next_lsn: hold.store.journal.next_lsn() }
        };
        let blocks = blocks_of(offset, len);
        let (start, end) = (blocks.start * BLOCK_BYTES as u64, blocks.end * BLOCK_BYTES as u64);
        let mut front = vec![0; (offset - start) as usize];
        let mut back = vec![0; (end - offset - len) as usize];
        read::read(&hold.store.segments, &hold.disk, View::Now, start, &mut front).await?;
        read::read(&hold.store.segments, &hold.disk, View::Now, offset + len, &mut back).await?;
        Ok((Edges { blocks, front, back }, seen))
    }

    async fn acknowledge(&self, lsn: u64, handed: Arc<crate::gate::Gate>, fua: bool) -> Result<()> {
        let hold = &self.hold;
        hold.store.note_appended();
        handed.wait().await?;
        if fua && planted::is("fua-ignored") {
            return Ok(());
        }
        let ack = || hold.disk.state.lock().settings.durability == Durability::Ack;
        if fua || (ack() && !planted::is("ack-ignored")) {
            hold.store.journal.make_durable(lsn + 1).await?;
        }
        Ok(())
    }

    /// Makes a range read as zeros. Whole blocks of it cost no space and no time that grows with them; parts of blocks at its ends are
    /// written.
    pub async fn zero(&self, offset: u64, len: u64, fua: bool) -> Result<()> {
        self.check_writable()?;
        self.check(offset, len)?;
        let block_bytes = BLOCK_BYTES as u64;
        let whole = whole_blocks(offset, len);
        if whole.is_empty() {
            return self.write(offset, &vec![0; len as usize], fua).await;
        }
        let (front, back) = (whole.start * block_bytes - offset, offset + len - whole.end * block_bytes);
        self.write(offset, &vec![0; front as usize], fua).await?;
        self.write(whole.end * block_bytes, &vec![0; back as usize], fua).await?;
        self.zero_blocks(whole, fua).await
    }

    /// Gives back the whole blocks of a range, which read as zeros from then on; parts of blocks at its ends stay as they are. Needs no
    /// room in the pool.
    pub async fn trim(&self, offset: u64, len: u64, fua: bool) -> Result<()> {
        self.check_writable()?;
        self.check(offset, len)?;
        let whole = whole_blocks(offset, len);
        if whole.is_empty() { Ok(()) } else { self.zero_blocks(whole, fua).await }
    }

    async fn zero_blocks(&self, whole: Blocks, fua: bool) -> Result<()> {
        // One operation of no bytes: it costs nothing that grows with its length.
        self.hold.store.qos.pass_limit(&self.hold.disk.flow, 0).await;
        // Always let in: on a full pool this is what gives space back.
        let room = EXTENT_HEADER as u64;
        self.hold.store.budget.take_anyway(room);
        let appended = self.append_zero(whole, room);
        if appended.is_err() {
            self.hold.store.budget.give(room);
        }
        let (lsn, handed) = appended?;
        self.acknowledge(lsn, handed, fua).await
    }

    fn append_zero(&self, blocks: Blocks, room: u64) -> Result<(u64, Arc<crate::gate::Gate>)> {
        let disk = &self.hold.disk;
        let change = Change::Zero { block: blocks.start, blocks: blocks.end - blocks.start };
        let mut encoded = Vec::new();
        Record { of: disk.leased(), change }.encode(&mut encoded);
        let mut state = disk.state.lock();
        state.check_change(&blocks)?;
        let appended = self.hold.store.journal.append_records(&encoded, 1)?;
        state.active.insert(blocks, appended.lsn, Source::Zero);
        state.active.note(appended.lsn, room);
        Ok((appended.lsn, appended.handed))
    }

    /// Makes everything acknowledged before this call durable, on whichever connection it was written.
    pub async fn flush(&self) -> Result<Flushed> {
        self.hold.store.check_open()?;
        let since = self.hold.store.env.monotonic();
        self.hold.store.qos.pass_limit(&self.hold.disk.flow, 0).await;
        self.hold.store.flush().await?;
        let counters = &self.hold.disk.counters;
        counters.flushes.fetch_add(1, Ordering::Relaxed);
        self.note_latency(&counters.flush_latency, since, 1);
        Ok(Flushed(()))
    }

    /// Which parts of a range are stored. Covers exactly the range, in order.
    pub async fn extents(&self, offset: u64, len: u64) -> Result<Vec<Extent>> {
        self.check(offset, len)?;
        let hold = &self.hold;
        let found = read::stored(&hold.store.segments, &hold.disk, hold.view, blocks_of(offset, len)).await?;
        Ok(clip(found, offset, len))
    }

    /// Which parts of a range differ from a snapshot of the same disk: a hole is what has not changed. The snapshot
    /// and, for a snapshot's attachment, this view are folded first.
    pub async fn changed_since(&self, snapshot: &Name, offset: u64, len: u64) -> Result<Vec<Extent>> {
        self.check(offset, len)?;
        let blocks = blocks_of(offset, len);
        let changed = self.changed_blocks(snapshot.clone(), blocks.clone()).await?;
        let mut runs = Vec::new();
        let mut at = blocks.start;
        for run in changed {
            let run = run.start.max(blocks.start)..run.end.min(blocks.end);
            if run.start >= run.end {
                continue;
            }
            if run.start > at {
                runs.push((at..run.start, false));
            }
            at = run.end;
            runs.push((run, true));
        }
        if at < blocks.end {
            runs.push((at..blocks.end, false));
        }
        Ok(clip(runs, offset, len))
    }

    /// In a task of its own: the round of the fold that it begins with goes on to its end, whether the client stays or not.
    async fn changed_blocks(&self, snapshot: Name, blocks: Blocks) -> Result<Vec<Blocks>> {
        let (tell, told) = tokio::sync::oneshot::channel();
        let hold = self.hold.clone();
        self.hold.store.env.spawn("changed since", async move {
            let found =
                hold.store.changed_blocks(&hold.disk, &snapshot, (&hold.disk, hold.view), blocks).await;
            // Nobody may be there any more to be told.
            let _ = tell.send(found);
        });
        told.await.map_err(|_| crate::closed())?
    }

    /// Brings a range into the cache: what of it is stored, and no more than the cache holds, which would push out again what
    /// came first. Takes [`PREFETCH_BYTES`] of memory, and lets others have their turn, whatever the length.
    pub async fn prefetch(&self, offset: u64, len: u64) -> Result<()> {
        self.check(offset, len)?;
        let mut room = self.hold.store.segments.cache_bytes().1;
        let mut buf = vec![0; PREFETCH_BYTES.min(len as usize)];
        let end = offset + len;
        let mut at = offset;
        while at < end && room > 0 {
            let upto = end.min((at / PREFETCH_LOOK_BYTES + 1) * PREFETCH_LOOK_BYTES);
            let mut seen = at;
            for extent in self.extents(at, upto - at).await? {
                let begin = seen;
                seen += extent.bytes;
                at = if extent.hole { at } else { at.max(begin) };
                // Small holes are read along with what is around them.
                while !extent.hole && at < seen && room > 0 {
                    let part = (upto - at).min(buf.len() as u64);
                    self.read_uncounted(at, &mut buf[..part as usize]).await?;
                    tokio::task::yield_now().await;
                    at += part;
                    room = room.saturating_sub(part);
                }
            }
            at = upto;
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}

/// The longest write, in bytes: it and its record fit one chunk of the journal.
const WRITE_BYTES_MAX: usize = 32 << 20;
/// Prefetching reads this much at a time, in bytes: one engine read.
pub const PREFETCH_BYTES: usize = 1 << 20;
/// Prefetching looks for what is stored in so much at a time, in bytes: some hundreds of map nodes at most.
const PREFETCH_LOOK_BYTES: u64 = 256 << 20;

/// The instant at which partial blocks were read.
struct Seen {
    folds: u64,
    next_lsn: u64,
}

/// The blocks that lie in a range with all of their bytes.
fn whole_blocks(offset: u64, len: u64) -> Blocks {
    offset.div_ceil(BLOCK_BYTES as u64)..(offset + len) / BLOCK_BYTES as u64
}

/// Block runs as byte extents of exactly the range.
fn clip(runs: Vec<(Blocks, bool)>, offset: u64, len: u64) -> Vec<Extent> {
    let clipped = runs.into_iter().map(|(blocks, stored)| {
        let start = (blocks.start * BLOCK_BYTES as u64).max(offset);
        let end = (blocks.end * BLOCK_BYTES as u64).min(offset + len);
        Extent { bytes: end - start, hole: !stored }
    });
    clipped.filter(|extent| extent.bytes > 0).collect()
}
