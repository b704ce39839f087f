//! The fold: moves acknowledged data from the journal into segments and maps.
//!
//! A *round* takes every disk's layers as they are, makes the journal durable up to them, packs their data, waits
//! until it is durable, writes the map nodes that name it, waits, swaps the heads, and only then lets go of the layers and
//! the journal behind them (P3: put first, refer after). Only journal-durable records are folded, so that no head is
//! ever ahead of a journal. A round that fails changes nothing but for objects that nothing names; it is tried again.

use crate::ailing;
use crate::dedupe::{Dedupe, Fresh};
use crate::disk::{Disk, State};
use crate::ledger::{self, Gaps};
use crate::map::{Run, Update};
use crate::overlay::{Layer, Source};
use crate::pack::{self, Content, Packed, Piece, Seen};
use crate::packer::{Packer, Packers};
use crate::planted;
use crate::store::Store;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stonefold_env::Env;
use stonefold_format::entry::Entry;
use stonefold_format::fingerprint::{Fingerprint, FingerprintKey};
use stonefold_format::head::Head;
use stonefold_format::ledger::{Changes, Deaths, LedgerBuilder, LedgerRef};
use stonefold_format::segment::FirstUse;
use stonefold_format::snapshots::Commit;
use stonefold_types::{DiskSettings, Error, Result};

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
    /// What the layers did to references.
    changes: Changes,
    /// What died in an epoch and is held.
    deaths: Vec<(u64, Deaths)>,
    /// Where the ledger tells of the changes.
    changes_at: Vec<LedgerRef>,
    /// Where the ledger tells of the deaths in an epoch.
    deaths_at: Vec<(u64, Vec<LedgerRef>)>,
    /// Of each layer's data, what was not in the pool yet: bytes of frames.
    stored_bytes: Vec<u64>,
    /// Why this disk is left as it is.
    failed: Option<Error>,
}

impl Part {
    fn new(disk: Arc<Disk>, layers: Vec<Arc<Layer>>) -> Self {
        Part {
            runs: vec![Vec::new(); layers.len()],
            commits: Vec::new(),
            changes: Changes::default(),
            deaths: Vec::new(),
            changes_at: Vec::new(),
            deaths_at: Vec::new(),
            stored_bytes: vec![0; layers.len()],
            failed: None,
            disk,
            layers,
        }
    }
}

/// Folds everything appended before the call, on all disks or on one. A disk that cannot be folded holds up no other;
/// its error is returned once the others are done.
pub(crate) async fn round(store: &Store, only: Option<&Arc<Disk>>) -> Result<()> {
    let (parts, ailing) = probe_ailing(store, collect(store, only)).await;
    let folded = if parts.is_empty() { Ok(()) } else { fold_parts(store, parts).await };
    // Also when there was nothing to fold: journals of earlier sessions may have become needless.
    folded.and(store.forget_journal().await).and(ailing)
}

/// Leaves out the disks that failed in an earlier round and would fail again: nothing of theirs is stored for nothing.
async fn probe_ailing(store: &Store, parts: Vec<Part>) -> (Vec<Part>, Result<()>) {
    let (mut sound, mut result) = (Vec::new(), Ok(()));
    for part in parts {
        let (ailing, root) = {
            let state = part.disk.state.lock();
            (state.ailing.is_some(), state.commit.root)
        };
        let probed = match ailing {
            true => ailing::probe(&store.segments, &root, &part.layers).await,
            false => Ok(()),
        };
        match probed {
            Ok(()) => sound.push(part),
            Err(error) => {
                let error = error.context(format!("the map of disk '{}'", part.disk.name));
                ailing::note(store, &part.disk, &error);
                result = result.and(Err(error));
            }
        }
    }
    (sound, result)
}

async fn fold_parts(store: &Store, mut parts: Vec<Part>) -> Result<()> {
    let last_lsn =
        parts.iter().flat_map(|p| &p.layers).map(|l| l.last_lsn).max().expect("no part without a layer");
    store.journal.hand_over().await?;
    store.journal.make_durable(last_lsn + 1).await?;
    let data = Packers::new(store.segments.clone());
    let nodes = Packer::nodes(store.segments.clone());
    let fresh = Arc::new(Fresh::default());
    if let Err(error) = pack_and_map(store, &data, &nodes, &fresh, &mut parts).await {
        if planted::is("dedupe-trusts-failed") {
            store.dedupe.adopt(&store.env, &fresh, &data.lengths(), |_| true).await;
        }
        data.abandon().await;
        nodes.abandon().await;
        return Err(error);
    }
    let mut done = Vec::new();
    for group in parts.chunks(HEADS_ABREAST) {
        // Each to its end, whatever becomes of the others: a swap broken off leaves a head in doubt.
        done.extend(futures::future::join_all(group.iter().map(|part| commit(store, part))).await);
    }
    // What was committed is counted by reclaim, so that others may lean on it; the rest is not.
    store.dedupe.adopt(&store.env, &fresh, &data.lengths(), |part| done[part].is_ok()).await;
    store.segments.set_aside(store.dedupe.samples_bytes());
    store.counters.rounds.fetch_add(1, Ordering::Relaxed);
    done.into_iter().collect()
}

/// Packs what layers of a disk hold, for a map that is not the disk's own: the runs of each, ascending. Durable on return.
pub(crate) async fn pack_layers(
    store: &Store,
    disk: &Arc<Disk>,
    layers: Vec<Arc<Layer>>,
) -> Result<Vec<Vec<Run>>> {
    let data = Packers::new(store.segments.clone());
    let mut parts = vec![Part::new(disk.clone(), layers)];
    if let Err(error) = pack_data(store, &data, &Arc::default(), &mut parts).await {
        data.abandon().await;
        return Err(error);
    }
    let mut runs = std::mem::take(&mut parts[0].runs);
    runs.iter_mut().for_each(|runs| runs.sort_unstable_by_key(|run| run.blocks.start));
    Ok(runs)
}

async fn pack_and_map(
    store: &Store,
    data: &Packers,
    nodes: &Packer,
    fresh: &Arc<Fresh>,
    parts: &mut [Part],
) -> Result<()> {
    pack_data(store, data, fresh, parts).await?;
    write_maps(store, nodes, parts).await?;
    write_ledger(store, parts).await
}

/// Tells in the ledger what the round does to references; durable on return.
async fn write_ledger(store: &Store, parts: &mut [Part]) -> Result<()> {
    let mut builder = LedgerBuilder::new(store.segments.next_id().0);
    for part in parts.iter_mut().filter(|part| part.failed.is_none()) {
        part.changes_at = builder.changes(std::mem::take(&mut part.changes));
        for (epoch, deaths) in std::mem::take(&mut part.deaths) {
            part.deaths_at.push((epoch, builder.deaths(deaths)));
        }
    }
    store.segments.accounts.put_ledger(builder).await
}

fn collect(store: &Store, only: Option<&Arc<Disk>>) -> Vec<Part> {
    let now = store.env.monotonic();
    let left_out = |disk: &Arc<Disk>| disk.state.lock().ailing.is_some_and(|ailing| ailing.is_left_out(now));
    let disks = match only {
        Some(disk) => vec![disk.clone()],
        None => store.all_disks().into_iter().filter(|disk| !left_out(disk)).collect(),
    };
    let parts = disks.into_iter().map(|disk| {
        let layers: Vec<Arc<Layer>> = {
            let mut state = disk.state.lock();
            state.freeze(None);
            if state.buried { Vec::new() } else { state.frozen.iter().cloned().collect() }
        };
        Part::new(disk, layers)
    });
    let mut parts: Vec<Part> = parts.filter(|part| !part.layers.is_empty()).collect();
    // One domain after another, so that each fills its own segments.
    parts.sort_by_key(|part| part.disk.domain);
    parts
}

/// Data of one domain for a worker.
struct Job {
    domain: u16,
    pieces: Vec<Piece>,
}

/// Packs the data of all layers and notes the runs; everything is durable on return.
async fn pack_data(store: &Store, packers: &Packers, fresh: &Arc<Fresh>, parts: &mut [Part]) -> Result<()> {
    let mut waiting = VecDeque::new();
    let packed = pack_jobs(store, packers, fresh, parts, &mut waiting).await;
    for (_, job) in waiting {
        // Of a round that failed: none may go on beside the next, nor beside reclaim, with what it looked up in this one.
        let _ = job.await;
    }
    packed?;
    if planted::is("head-before-data") {
        return Ok(());
    }
    packers.finish().await
}

/// Jobs under way, and the domain of each.
type Waiting = VecDeque<(u16, Done)>;

async fn pack_jobs(
    store: &Store,
    packers: &Packers,
    fresh: &Arc<Fresh>,
    parts: &mut [Part],
    waiting: &mut Waiting,
) -> Result<()> {
    let (jobs, places) = jobs(store, parts);
    for job in jobs {
        store.check_staying()?;
        if waiting.len() == JOBS_MAX {
            place_next(store, packers, fresh, waiting, parts, &places).await?;
        }
        store.pace_fold(job.pieces.iter().map(|piece| piece.data.len() as u64).sum()).await;
        let (tell, told) = tokio::sync::oneshot::channel();
        let (env, dedupe, domain) = (store.env.clone(), store.dedupe.clone(), job.domain);
        let key = store.domains.keyring.fingerprints(domain)?;
        let work = process(env, dedupe, fresh.clone(), key, job.pieces);
        store.env.spawn("pack", async move {
            // The round may have failed meanwhile; then nobody wants the result.
            let _ = tell.send(work.await);
        });
        waiting.push_back((domain, told));
    }
    while !waiting.is_empty() {
        place_next(store, packers, fresh, waiting, parts, &places).await?;
    }
    Ok(())
}

/// A job that was looked at, judged and packed.
struct Processed {
    seen: Vec<Seen>,
    packed: Vec<Packed>,
    buffer: Vec<u8>,
}

/// The stages of a job; see [`crate::pack`].
async fn process(
    env: Env,
    dedupe: Arc<Dedupe>,
    fresh: Arc<Fresh>,
    key: FingerprintKey,
    job: Vec<Piece>,
) -> Processed {
    let (job, seen) = env
        .offload(move || {
            let seen = pack::look(&job, &key);
            (job, seen)
        })
        .await;
    let content = |seen: &Seen| match seen {
        Seen::Content(fingerprint) => Some(*fingerprint),
        Seen::Zero => None,
    };
    let fingerprints: Vec<Fingerprint> = seen.iter().filter_map(content).collect();
    let mut places = dedupe.find(&fingerprints, &fresh).await.into_iter();
    let found: Vec<Option<Entry>> =
        seen.iter().map(|seen| content(seen).and_then(|_| places.next().flatten())).collect();
    env.offload(move || {
        let verdicts = pack::judge(&job, &seen, &found);
        let (packed, buffer) = pack::pack(&job, &verdicts);
        Processed { seen, packed, buffer }
    })
    .await
}

type Done = tokio::sync::oneshot::Receiver<Processed>;

/// Packs what the oldest of the jobs under way made.
async fn place_next(
    store: &Store,
    packers: &Packers,
    fresh: &Fresh,
    waiting: &mut Waiting,
    parts: &mut [Part],
    places: &[(usize, usize)],
) -> Result<()> {
    let Some((domain, done)) = waiting.front_mut() else { return Ok(()) };
    let packer = packers.of(*domain).await?;
    packer.throttle().await?;
    let done = done.await;
    waiting.pop_front();
    // Where the workers are ahead nothing has been waited for.
    store.env.yield_now().await;
    let Processed { seen, packed, buffer } = done.map_err(|_| crate::closed())?;
    let mut found = 0;
    for piece in packed {
        let (part, layer) = places[piece.place];
        let first = match &piece.content {
            Content::Zero => Entry::HOLE,
            Content::Known(entry) => {
                found += 1;
                *entry
            }
            Content::Again => {
                found += 1;
                let Seen::Content(fingerprint) = seen[piece.index] else {
                    unreachable!("zeros are not repeats")
                };
                let mut entry = fresh.entry(&fingerprint).expect("a repeat follows what it repeats");
                if planted::is("repeat-misplaced") && entry.slot() > 0 && entry.hint.index() > 0 {
                    entry.address -= 1;
                    entry.hint = entry.hint.with_index(entry.hint.index() - 1);
                }
                entry
            }
            Content::Frame(range) => {
                parts[part].stored_bytes[layer] += range.len() as u64;
                place_frame(&packer, fresh, part, &piece, &seen, &buffer[range.clone()])
            }
        };
        let shared = matches!(piece.content, Content::Known(_) | Content::Again);
        parts[part].runs[layer].push(Run { blocks: piece.block..piece.block + piece.blocks, first, shared });
    }
    store.dedupe.count(seen.len() as u64, found);
    Ok(())
}

/// Packs a frame, and lets the rest of the round know its blocks.
fn place_frame(
    packer: &Packer,
    fresh: &Fresh,
    part: usize,
    piece: &Packed,
    seen: &[Seen],
    encoded: &[u8],
) -> Entry {
    let blocks = piece.blocks as usize;
    let fingerprint = |seen: &Seen| match seen {
        Seen::Content(fingerprint) => *fingerprint,
        Seen::Zero => unreachable!("zeros are not put into frames"),
    };
    let fingerprints: Vec<Fingerprint> =
        seen[piece.index..piece.index + blocks].iter().map(fingerprint).collect();
    let first_use = FirstUse { owner: piece.owner, epoch: piece.epoch, place: piece.block };
    let first = packer.push(encoded, blocks, &fingerprints, first_use);
    let run = Run { blocks: piece.block..piece.block + piece.blocks, first, shared: false };
    for (block, fingerprint) in run.blocks.clone().zip(fingerprints) {
        fresh.add(fingerprint, run.entry(block), part);
    }
    first
}

/// Cuts the data of all layers into jobs, whose places are numbers into the list returned beside them: part and layer. Runs of
/// zeros are noted at once. What was written to a domain that was shredded meanwhile goes the way of the rest of it.
fn jobs(store: &Store, parts: &mut [Part]) -> (Vec<Job>, Vec<(usize, usize)>) {
    let (mut jobs, mut bytes) = (Vec::new(), 0);
    let mut places = Vec::new();
    for (at, part) in parts.iter_mut().enumerate() {
        let domain = part.disk.domain;
        let shredded = store.domains.keyring.is_shredded(domain);
        let DiskSettings { compression, dedupe, .. } = part.disk.state.lock().settings.clone();
        for (layer, (content, runs)) in part.layers.iter().zip(&mut part.runs).enumerate() {
            places.push((at, if planted::is("merged-across-mark") { 0 } else { layer }));
            let place = places.len() - 1;
            for (blocks, source) in content.all() {
                let Source::Data(data) = source else {
                    if !planted::is("zeros-not-mapped") {
                        runs.push(Run { blocks, first: Entry::HOLE, shared: false });
                    }
                    continue;
                };
                if shredded {
                    continue;
                }
                if jobs.last().is_some_and(|job: &Job| job.domain != domain) || bytes >= JOB_BYTES {
                    bytes = 0;
                }
                if bytes == 0 {
                    jobs.push(Job { domain, pieces: Vec::new() });
                }
                bytes += data.len();
                let (owner, epoch, block) = (part.disk.id, content.epoch, blocks.start);
                let piece = Piece { place, owner, epoch, block, data: data.clone(), compression, dedupe };
                jobs.last_mut().expect("begun just now").pieces.push(piece);
            }
        }
    }
    (jobs, places)
}

/// Writes the map nodes of every layer; everything is durable on return. A disk whose map cannot be read is left out.
async fn write_maps(store: &Store, packer: &Packer, parts: &mut [Part]) -> Result<()> {
    let depth = parts.iter().map(|part| part.layers.len()).max().unwrap_or(0);
    for layer in 0..depth {
        for part in parts.iter_mut().filter(|part| layer < part.layers.len() && part.failed.is_none()) {
            if let Err(error) = map_layer(store, packer, part, layer).await {
                part.failed = Some(error.context(format!("the map of disk '{}'", part.disk.name)));
            }
            packer.throttle().await?;
            store.check_staying()?;
        }
        if planted::is("head-before-nodes") {
            continue;
        }
        // The next layer's update reads these nodes, and may not find them in the cache.
        packer.finish().await?;
    }
    Ok(())
}

async fn map_layer(store: &Store, packer: &Packer, part: &mut Part, layer: usize) -> Result<()> {
    let epoch = part.layers[layer].epoch;
    let (commit, held) = {
        let state = part.disk.state.lock();
        (state.commit, state.held_in(epoch))
    };
    let commit = part.commits.last().copied().unwrap_or(commit);
    part.runs[layer].sort_unstable_by_key(|run| run.blocks.start);
    let (segments, owner) = (&store.segments, part.disk.id);
    let update = Update { segments, packer, owner, epoch, tally: Mutex::default() };
    part.commits.push(update.apply(&commit, &part.runs[layer]).await?);
    let deaths = ledger::settle(update.tally.into_inner(), held, &mut part.changes);
    if !deaths.is_empty() {
        part.deaths.push((epoch, deaths));
    }
    Ok(())
}

/// Swaps the head, then lets go of the layers.
async fn commit(store: &Store, part: &Part) -> Result<()> {
    if let Some(error) = &part.failed {
        ailing::note(store, &part.disk, error);
        return Err(error.clone());
    }
    let newest = *part.commits.last().expect("a commit for each layer");
    let last_lsn = part.layers.iter().map(|layer| layer.last_lsn).max().unwrap_or(0);
    let last_lsn = if planted::is("folded-too-high") { store.journal.next_lsn() - 1 } else { last_lsn };
    let gaps = gaps(part);
    let edit = gaps.marked.into_iter().map(|record| (record.id, Some(record))).collect();
    let adopt = |state: &mut State| {
        for (layer, stored) in part.layers.iter().zip(&part.stored_bytes) {
            state.stored.add(*stored, layer.ends_with);
            let oldest = state.frozen.pop_front().expect("the layers of a round stay until it ends");
            debug_assert!(Arc::ptr_eq(&oldest, layer));
        }
        state.folds += 1;
        (state.ailing, state.damaged) = (None, None);
    };
    let draft = |head: &mut Head, _: &State| {
        head.commit = newest;
        head.folded_lsn = head.folded_lsn.max(last_lsn);
        let mut sizes = part.layers.iter().filter_map(|layer| layer.size_bytes);
        let size = if planted::is("resize-first-wins") { sizes.next() } else { sizes.next_back() };
        head.size_bytes = size.unwrap_or(head.size_bytes);
        head.changes.extend_from_slice(&part.changes_at);
        head.deaths = gaps.open;
    };
    store.change_snapshots(&part.disk, edit, draft, adopt).await?;
    store.budget.give(part.layers.iter().map(|layer| layer.budget_bytes).sum());
    Ok(())
}

/// The snapshots that the layers end with, and what died before each.
fn gaps(part: &Part) -> Gaps {
    let state = part.disk.state.lock();
    let ends = part.layers.iter().zip(&part.commits);
    let marked = ends.filter_map(|(layer, commit)| Some(state.snapshot(layer.ends_with?)?.record(*commit)));
    let mut gaps = Gaps::new(marked.collect(), state.deaths.clone());
    part.deaths_at.iter().for_each(|(epoch, refs)| gaps.add(*epoch, refs));
    gaps
}
