//! The fold: moves acknowledged data from the journal into segments and maps.
//!
//! A *round* takes every disk's layers as they are, makes the journal durable up to them, packs their data, waits
//! until it is durable, writes the map nodes that name it, waits, swaps the heads, and only then lets go of the layers and
//! the journal behind them (P3: put first, refer after). Only journal-durable records are folded, so that no head is
//! ever ahead of a journal. A round that fails changes nothing but for objects that nothing names; it is tried again.

use crate::arena::ArenaSlice;
use crate::disk::{Disk, State};
use crate::map::{Run, Update};
use crate::overlay::{Layer, Source};
use crate::planted;
use crate::segments::Packer;
use crate::store::Store;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stonefold_format::entry::{Entry, FRAME_BLOCKS_MAX};
use stonefold_format::frame;
use stonefold_format::head::{Commit, Head};
use stonefold_format::segment::SegmentKind;
use stonefold_types::{BLOCK_BYTES, Compression, Error, Kind, Result};

/// Data handed to a worker at one time, in bytes: a few milliseconds of compressing.
const JOB_BYTES: usize = 1 << 20;
/// Jobs under way at one time.
const JOBS_MAX: usize = 4;
/// Heads swapped at one time.
const HEADS_ABREAST: usize = 16;

/// One disk's part of a round.
struct Part {
    disk: Arc<Disk>,
    layers: Vec<Arc<Layer>>,
    /// Per layer.
    runs: Vec<Vec<Run>>,
    /// After each layer.
    commits: Vec<Commit>,
    /// Why this disk is left as it is.
    failed: Option<Error>,
}

/// Where the runs of a piece of work belong.
#[derive(Clone, Copy)]
struct Place {
    part: usize,
    layer: usize,
}

/// Blocks to be looked at together.
struct Piece {
    place: Place,
    owner: u64,
    block: u64,
    data: ArenaSlice,
    compression: Compression,
}

/// What a worker made of consecutive blocks.
struct Packed {
    place: Place,
    owner: u64,
    block: u64,
    blocks: u64,
    /// The frame's bytes in the job's buffer; none for zeros.
    frame: Option<std::ops::Range<usize>>,
}

/// Folds everything appended before the call, on all disks or on one. A disk that cannot be folded holds up no other;
/// its error is returned once the others are done.
pub(crate) async fn round(store: &Store, only: Option<&Arc<Disk>>) -> Result<()> {
    let parts = collect(store, only);
    let folded = if parts.is_empty() { Ok(()) } else { fold_parts(store, parts).await };
    // Also when there was nothing to fold: journals of earlier sessions may have become needless.
    folded.and(store.forget_journal().await)
}

async fn fold_parts(store: &Store, mut parts: Vec<Part>) -> Result<()> {
    let last_lsn =
        parts.iter().flat_map(|p| &p.layers).map(|l| l.last_lsn).max().expect("no part without a layer");
    store.journal.hand_over().await?;
    if !planted::is("fold-before-durable") {
        store.journal.make_durable(last_lsn + 1).await?;
    }
    let data = Packer::new(store.segments.clone(), SegmentKind::Data);
    let nodes = Packer::new(store.segments.clone(), SegmentKind::Map);
    if let Err(error) = pack_and_map(store, &data, &nodes, &mut parts).await {
        data.abandon().await;
        nodes.abandon().await;
        return Err(error);
    }
    let mut done = Vec::new();
    for group in parts.chunks(HEADS_ABREAST) {
        // Each to its end, whatever becomes of the others: a swap broken off leaves a head in doubt.
        done.extend(futures::future::join_all(group.iter().map(|part| commit(store, part))).await);
    }
    store.counters.rounds.fetch_add(1, Ordering::Relaxed);
    done.into_iter().collect()
}

async fn pack_and_map(store: &Store, data: &Packer, nodes: &Packer, parts: &mut [Part]) -> Result<()> {
    pack_data(store, data, parts).await?;
    write_maps(store, nodes, parts).await
}

fn collect(store: &Store, only: Option<&Arc<Disk>>) -> Vec<Part> {
    let disks = match only {
        Some(disk) => vec![disk.clone()],
        None => store.all_disks(),
    };
    let parts = disks.into_iter().map(|disk| {
        let layers: Vec<Arc<Layer>> = {
            let mut state = disk.state.lock();
            state.freeze(None);
            state.frozen.iter().cloned().collect()
        };
        Part { runs: vec![Vec::new(); layers.len()], commits: Vec::new(), failed: None, disk, layers }
    });
    parts.filter(|part| !part.layers.is_empty()).collect()
}

/// Packs the data of all layers and notes the runs; everything is durable on return.
async fn pack_data(store: &Store, packer: &Packer, parts: &mut [Part]) -> Result<()> {
    let mut waiting = VecDeque::new();
    for job in jobs(parts) {
        if waiting.len() == JOBS_MAX {
            let done = waiting.pop_front().expect("the queue is full");
            place_all(packer, done, parts).await?;
        }
        let (tell, told) = tokio::sync::oneshot::channel();
        let env = store.env.clone();
        store.env.spawn("pack", async move {
            // The round may have failed meanwhile; then nobody wants the result.
            let _ = tell.send(env.offload(move || pack(&job)).await);
        });
        waiting.push_back(told);
    }
    while let Some(done) = waiting.pop_front() {
        place_all(packer, done, parts).await?;
    }
    if planted::is("head-before-data") {
        return Ok(());
    }
    packer.finish().await
}

type Done = tokio::sync::oneshot::Receiver<(Vec<Packed>, Vec<u8>)>;

async fn place_all(packer: &Packer, done: Done, parts: &mut [Part]) -> Result<()> {
    packer.throttle().await?;
    let (packed, buffer) = done.await.map_err(|_| crate::closed())?;
    for piece in packed {
        let first = match piece.frame {
            None => Entry::HOLE,
            Some(range) => packer.push(&buffer[range], piece.blocks as usize, piece.owner, piece.block),
        };
        let run = Run { blocks: piece.block..piece.block + piece.blocks, first };
        parts[piece.place.part].runs[piece.place.layer].push(run);
    }
    Ok(())
}

/// Cuts the data of all layers into jobs; runs of zeros are noted at once.
fn jobs(parts: &mut [Part]) -> Vec<Vec<Piece>> {
    let mut jobs = Vec::new();
    let mut job = Vec::new();
    let mut bytes = 0;
    for (at, part) in parts.iter_mut().enumerate() {
        let compression = part.disk.state.lock().settings.compression;
        for (layer, (content, runs)) in part.layers.iter().zip(&mut part.runs).enumerate() {
            for (blocks, source) in content.all() {
                let Source::Data(data) = source else {
                    if !planted::is("zeros-not-mapped") {
                        runs.push(Run { blocks, first: Entry::HOLE });
                    }
                    continue;
                };
                bytes += data.len();
                let layer = if planted::is("merged-across-mark") { 0 } else { layer };
                let place = Place { part: at, layer };
                job.push(Piece {
                    place,
                    owner: part.disk.id,
                    block: blocks.start,
                    data: data.clone(),
                    compression,
                });
                if bytes >= JOB_BYTES {
                    jobs.push(std::mem::take(&mut job));
                    bytes = 0;
                }
            }
        }
    }
    jobs.push(job);
    jobs.retain(|job| !job.is_empty());
    jobs
}

/// Finds zeros, groups neighbours into frames, compresses. Runs on a worker.
fn pack(job: &[Piece]) -> (Vec<Packed>, Vec<u8>) {
    let mut packing = Packing { out: Vec::new(), buffer: Vec::new(), group: Vec::new(), first: None };
    for piece in job {
        for (at, content) in piece.data.chunks_exact(BLOCK_BYTES).enumerate() {
            packing.block(piece, piece.block + at as u64, content);
        }
    }
    if !planted::is("last-frame-lost") {
        packing.end_group();
    }
    (packing.out, packing.buffer)
}

struct Packing<'a> {
    out: Vec<Packed>,
    buffer: Vec<u8>,
    /// Contents of the frame being gathered.
    group: Vec<u8>,
    /// Its first piece and block.
    first: Option<(&'a Piece, u64)>,
}

impl<'a> Packing<'a> {
    fn block(&mut self, piece: &'a Piece, block: u64, content: &[u8]) {
        if is_zero(content) {
            self.end_group();
            self.push(piece, block, 1, None);
            return;
        }
        if let Some((first, at)) = self.first {
            let next = at + (self.group.len() / BLOCK_BYTES) as u64;
            let same = first.owner == piece.owner && first.place.layer == piece.place.layer;
            // Frames begin at multiples of their largest size, so that neighbours written later make whole ones again.
            if !same || next != block || block % FRAME_BLOCKS_MAX as u64 == 0 {
                self.end_group();
            }
        }
        self.first.get_or_insert((piece, block));
        self.group.extend_from_slice(content);
    }

    fn end_group(&mut self) {
        let Some((piece, block)) = self.first.take() else { return };
        let start = self.buffer.len();
        frame::encode(&self.group, piece.compression, &mut self.buffer);
        let blocks = (self.group.len() / BLOCK_BYTES) as u64;
        self.push(piece, block, blocks, Some(start..self.buffer.len()));
        self.group.clear();
    }

    fn push(&mut self, piece: &Piece, block: u64, blocks: u64, frame: Option<std::ops::Range<usize>>) {
        if let (None, Some(last)) = (&frame, self.out.last_mut()) {
            let follows = last.owner == piece.owner && last.block + last.blocks == block;
            if last.frame.is_none() && follows && last.place.layer == piece.place.layer {
                last.blocks += blocks;
                return;
            }
        }
        self.out.push(Packed { place: piece.place, owner: piece.owner, block, blocks, frame });
    }
}

/// Whether every byte is zero; written so that the compiler uses wide registers.
fn is_zero(block: &[u8]) -> bool {
    let (before, words, after) = {
        // SAFETY: any bytes are valid as `u128`.
        unsafe { block.align_to::<u128>() }
    };
    before.iter().chain(after).all(|b| *b == 0)
        && words.chunks(16).all(|chunk| chunk.iter().fold(0, |all, word| all | word) == 0)
}

/// Writes the map nodes of every layer; everything is durable on return. A disk whose map cannot be read is left out.
async fn write_maps(store: &Store, packer: &Packer, parts: &mut [Part]) -> Result<()> {
    let depth = parts.iter().map(|part| part.layers.len()).max().unwrap_or(0);
    for layer in 0..depth {
        for part in parts.iter_mut().filter(|part| layer < part.layers.len() && part.failed.is_none()) {
            let base = part.commits.last().copied().unwrap_or_else(|| part.disk.state.lock().commit);
            part.runs[layer].sort_unstable_by_key(|run| run.blocks.start);
            let update = Update { segments: &store.segments, packer, owner: part.disk.id };
            match update.apply(&base, &part.runs[layer]).await {
                Ok(commit) => part.commits.push(commit),
                Err(error) => {
                    part.failed = Some(error.context(format!("the map of disk '{}'", part.disk.name)))
                }
            }
            packer.throttle().await?;
        }
        if planted::is("head-before-nodes") {
            continue;
        }
        // The next layer's update reads these nodes, and may not find them in the cache.
        packer.finish().await?;
    }
    Ok(())
}

/// Swaps the head, then lets go of the layers.
async fn commit(store: &Store, part: &Part) -> Result<()> {
    if let Some(error) = &part.failed {
        if error.kind() == Kind::Corrupt {
            // Otherwise it would go on taking room that the other disks need.
            let remedy = "reads of what is sound go on; restore the disk from another copy";
            part.disk.state.lock().damaged = Some(error.clone().remedy(remedy));
        }
        return Err(error.clone());
    }
    let newest = *part.commits.last().expect("a commit for each layer");
    let last_lsn = part.layers.iter().map(|layer| layer.last_lsn).max().unwrap_or(0);
    let last_lsn = if planted::is("folded-too-high") { store.journal.next_lsn() - 1 } else { last_lsn };
    let marked = || {
        let ends = part.layers.iter().zip(&part.commits);
        ends.filter_map(|(layer, commit)| layer.ends_with.map(|id| (id, *commit)))
    };
    let adopt = |state: &mut State| {
        state.commit = newest;
        state.folded_lsn = state.folded_lsn.max(last_lsn);
        for (id, commit) in marked() {
            if let Some(snapshot) = state.snapshots.iter_mut().find(|s| s.id == id) {
                snapshot.commit = Some(commit);
            }
        }
        for layer in &part.layers {
            let oldest = state.frozen.pop_front().expect("the layers of a round stay until it ends");
            debug_assert!(Arc::ptr_eq(&oldest, layer));
            state.folded_size_bytes = layer.size_bytes.unwrap_or(state.folded_size_bytes);
        }
        state.folds += 1;
        state.damaged = None;
    };
    let draft = |head: &mut Head, state: &State| {
        head.commit = newest;
        head.folded_lsn = head.folded_lsn.max(last_lsn);
        head.size_bytes = part.layers.iter().rev().find_map(|l| l.size_bytes).unwrap_or(head.size_bytes);
        for (id, commit) in marked() {
            // Unless it was removed meanwhile.
            head.snapshots.extend(state.snapshot(id).map(|snapshot| snapshot.record(commit)));
        }
    };
    store.change_head(&part.disk, draft, adopt).await?;
    store.budget.give(part.layers.iter().map(|layer| layer.budget_bytes).sum());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_seen_wherever_the_block_lies() {
        let bytes = vec![0u8; BLOCK_BYTES + 1];
        assert!(is_zero(&bytes[1..]));
        for at in [0, 1, 15, 16, 17, 2048, BLOCK_BYTES - 1] {
            let mut block = bytes[1..].to_vec();
            block[at] = 1;
            assert!(!is_zero(&block), "byte {at}");
        }
    }
}
