//! Checking a whole pool: every reference, every checksum.
//!
//! Sealed frames are opened where their domain is open; of a locked one the checksum alone is verified.
//!
//! *Promises*: first everything is folded, and what cannot be is counted, so that nothing is passed over in silence; then a
//! check reads one copy, and another where that one is damaged, which mends it as any read does; a scrub reads every copy. What it
//! says is sound was read and verified, every byte that something refers to. Clients go on
//! meanwhile; only reclaim waits. Trees shared by many snapshots are walked once. Memory: a number for each map node, two bits for each
//! block, and the references that changed since the last batch of reclaim.
//!
//! Everything is looked at as it was at one instant between two rounds of the fold: the maps, and what the accounts do not know
//! yet ([`Untold`]). So what is counted is exact however busy the pool is.

mod counted;

use crate::domains::DomainState;
use crate::pages;
use crate::planted;
use crate::reclaim;
use crate::releases::Future;
use crate::segments;
use crate::store::Store;
use bytes::Bytes;
use counted::{Bits, Untold};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::atomic::Ordering;
use stonefold_engine::Key;
use stonefold_format::account::shard_of;
use stonefold_format::entry::{Entry, SegmentId};
use stonefold_format::frame;
use stonefold_format::node::{NODE_SHIFT, NODE_WAYS};
use stonefold_format::seal::SealKey;
use stonefold_format::segment::{Footer, Header, IndexRecord};
use stonefold_types::{BLOCK_BYTES, Kind, Result};

/// The level of a map's top node.
const TOP: u32 = 3;

/// How many of those that damage affects are named.
const NAMES_MAX: usize = 8;

/// Why a block that was salvaged without its content cannot be read.
const LOST: &str = "nothing was found of it when the disk was salvaged, and it was not written since";

/// Keys asked for at one time; large, because an engine may look at every name for every page.
const LIST_LIMIT: usize = 100_000;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Disks, and snapshots of all disks, whose maps were walked.
    pub disks: u64,
    /// See `disks`.
    pub snapshots: u64,
    /// Map nodes that something refers to.
    pub nodes: u64,
    /// Blocks of data that something refers to; one that several refer to counts once.
    pub blocks: u64,
    /// Segments read.
    pub segments: u64,
    /// Bytes of segments read.
    pub bytes: u64,
    /// Copies that were damaged or missing and have been made sound again, whoever met them: since the check before, or
    /// since the pool was opened.
    pub healed: u64,
    /// Damaged parts of segments that this check or scrub met itself, and that were made sound.
    pub met: u64,
    /// Blocks with references in the accounts although nothing refers to them, and nothing that was removed is about to give them
    /// back: space that does not come back by itself. Nothing, in a sound pool.
    pub lost_blocks: u64,
    /// Bytes acknowledged before it began that could not be folded, and so were not looked at.
    pub unfolded_bytes: u64,
    /// What should be known of it although it is no damage, in words.
    pub notes: Vec<String>,
    /// What is wrong, in words: what is affected and where. Empty when all is sound.
    pub problems: Vec<String>,
}

/// A map to be walked.
struct Tree {
    /// `disk` or `disk@snapshot`.
    name: String,
    root: Entry,
}

/// What was found so far.
#[derive(Default)]
struct Walk {
    /// Addresses of nodes walked.
    nodes: HashSet<u64>,
    /// Slots referred to, per segment; nodes included.
    reached: BTreeMap<SegmentId, Bits>,
    /// Addresses that cannot be read, and why.
    damaged: HashMap<u64, String>,
    /// Whether something is known to be lost.
    lost: bool,
}

impl Store {
    /// Reads everything that something refers to and verifies it. Fails only when the engine does.
    pub async fn check(&self) -> Result<Checked> {
        self.read_all(false).await
    }

    /// As [`check`](Self::check), of every copy; damaged copies are healed.
    pub async fn scrub(&self) -> Result<Checked> {
        self.read_all(true).await
    }

    async fn read_all(&self, heal: bool) -> Result<Checked> {
        self.check_open()?;
        // Nothing may be deleted or moved while it is looked at.
        let _no_pass = self.reclaiming.lock().await;
        let checked = self.verify_all(heal).await?.0;
        self.findings.checked(self.time().trusted, &checked.problems);
        Ok(checked)
    }

    /// Looks at everything; returns also the addresses that cannot be read, and why. The caller holds reclaim's lock.
    pub(crate) async fn verify_all(&self, heal: bool) -> Result<(Checked, HashMap<u64, String>)> {
        let telling = self.tell(if heal { "scrub" } else { "check" });
        // A full place, or a disk that cannot be folded, does not keep the rest from being looked at.
        let folded = self.fold(None).await;
        let (trees, untold, mut checked) = self.trees().await;
        if let Err(error) = folded {
            self.check_open()?;
            checked.unfolded_bytes = self.budget.used();
            checked.notes.push(format!("what is not folded was not looked at: {error}"));
        } else {
            self.tell_left_out(&mut checked);
        }
        self.tell_missing(&mut checked);
        checked.problems.extend(self.damage.reasons().iter().map(ToString::to_string));
        checked.problems.extend(self.check_catalog().await?);
        let mut walk = Walk::default();
        for tree in &trees {
            self.check_open()?;
            walk_below(self, tree.root, TOP, &mut walk).await?;
        }
        checked.nodes = walk.nodes.len() as u64;
        let (total, mut lengths) = self.lengths(&walk).await?;
        let mut done = 0;
        for (segment, reached) in &walk.reached {
            self.check_open()?;
            done += lengths.remove(segment).unwrap_or(0);
            telling.set(done, total);
            let found = read_segment(self, *segment, reached, heal, &mut checked).await?;
            walk.damaged.extend(found);
        }
        let all: u64 = walk.reached.values().map(|bits| bits.iter().count() as u64).sum();
        checked.blocks = all - checked.nodes;
        pages::check(self, heal, &mut checked).await?;
        let healed = self.engine.healed();
        checked.healed += healed.saturating_sub(self.healed_told.swap(healed, Ordering::Relaxed));
        self.compare_accounts(&walk, &untold, &mut checked).await?;
        if !walk.damaged.is_empty() || walk.lost {
            self.tell_affected(&trees, &walk, &mut checked).await?;
        }
        Ok((checked, walk.damaged))
    }

    /// Disks that the fold leaves out for a while, because it failed there.
    fn tell_left_out(&self, checked: &mut Checked) {
        for disk in self.all_disks() {
            let state = disk.state.lock();
            if state.ailing.is_some() {
                checked.unfolded_bytes += state.unfolded_bytes();
                let what = "what is not folded was not looked at: it could not be folded lately";
                checked.notes.push(format!("disk '{}': {what}", disk.name));
            }
        }
    }

    /// What no reading of frames shows: copies that are not there, and data that nobody can open.
    fn tell_missing(&self, checked: &mut Checked) {
        checked.problems.extend(self.engine.missing().iter().map(|part| {
            format!("the pool is without '{part}': what is kept has fewer copies than it should; see the log for why")
        }));
        let domains: BTreeSet<u16> = self.all_disks().iter().map(|disk| disk.domain).collect();
        for domain in domains {
            let keyring = &self.domains.keyring;
            let state = match keyring.public_state(domain) {
                DomainState::Locked => "locked",
                DomainState::Shredded => "shredded",
                DomainState::Plain | DomainState::Open => continue,
            };
            checked.notes.push(format!(
                "domain '{}' is {state}: the checksums of its data were verified, and nothing of it was decrypted",
                keyring.name(domain)
            ));
        }
    }

    /// The lengths of all segments that are reached, in bytes, together and each.
    async fn lengths(&self, walk: &Walk) -> Result<(u64, HashMap<SegmentId, u64>)> {
        let mut lengths = HashMap::new();
        let mut after = None;
        loop {
            let listed = self.engine.list("segment/", after.as_ref(), LIST_LIMIT).await?;
            let Some(last) = listed.last() else { break };
            after = Some(last.key.clone());
            let forms = listed.iter().filter_map(|one| Some((segments::form_of(&one.key)?.0, one.bytes)));
            lengths.extend(forms.filter(|(segment, _)| walk.reached.contains_key(segment)));
        }
        Ok((lengths.values().sum(), lengths))
    }

    /// Every commit there is and what the accounts do not know yet, at one instant between two rounds of the fold.
    async fn trees(&self) -> (Vec<Tree>, Untold, Checked) {
        let _alone = self.folding.lock().await;
        let (mut trees, mut checked) = (Vec::new(), Checked::default());
        let disks = self.disks_and_gone();
        let future = Future::new(&disks, None);
        let untold = Untold { changes: reclaim::untold(self, &disks), releases: future.releases() };
        for disk in &disks {
            let gone = disk.is_gone();
            let name = if gone { format!("{} (removed)", disk.name) } else { disk.name.to_string() };
            let state = disk.state.lock();
            checked.disks += u64::from(!gone);
            // The map of a removed disk is being given back, unless clones hold it.
            if !gone || future.stays(disk) {
                trees.push(Tree { name: name.clone(), root: state.commit.root });
            }
            for snapshot in state.snapshots.iter() {
                let stays = (!snapshot.removed && !gone) || future.holds(disk, snapshot.id);
                let Some(commit) = snapshot.commit.filter(|_| stays) else { continue };
                checked.snapshots += u64::from(!snapshot.removed);
                trees.push(Tree { name: format!("{name}@{}", snapshot.name), root: commit.root });
            }
        }
        (trees, untold, checked)
    }

    /// Says which blocks of which disks and snapshots cannot be read.
    async fn tell_affected(&self, trees: &[Tree], walk: &Walk, checked: &mut Checked) -> Result<()> {
        // A disk, its snapshots and its clones share most of what they hold: damage is told once, with all it affects.
        let mut places: BTreeMap<(u64, u64, String), Vec<&str>> = BTreeMap::new();
        for tree in trees {
            let mut ranges: Vec<(u64, u64, String)> = Vec::new();
            affected_below(self, tree.root, TOP, 0, walk, &mut ranges).await?;
            ranges.into_iter().for_each(|range| places.entry(range).or_default().push(&tree.name));
        }
        for ((start, blocks, why), names) in places {
            let shown: Vec<_> = names.iter().take(NAMES_MAX).map(|name| format!("'{name}'")).collect();
            let more = match names.len().saturating_sub(NAMES_MAX) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let bytes = BLOCK_BYTES as u64;
            // What is known to be lost is no damage: nothing can be done about it but to write there.
            let list = if why == LOST { &mut checked.notes } else { &mut checked.problems };
            list.push(format!(
                "{}{more} cannot be read from {} for {} bytes: {why}",
                shown.join(", "),
                start * bytes,
                blocks * bytes
            ));
        }
        Ok(())
    }
}

fn walk_below<'a>(
    store: &'a Store,
    at: Entry,
    level: u32,
    walk: &'a mut Walk,
) -> futures::future::BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        walk.lost |= at.is_lost();
        if !at.is_stored() || !walk.nodes.insert(at.address) {
            return Ok(());
        }
        walk.reached.entry(at.segment()).or_default().set(at.slot());
        let node = match store.segments.node(&at).await {
            Ok(node) => node,
            Err(error) if error.kind() == Kind::Corrupt => {
                walk.damaged.insert(at.address, error.to_string());
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        for entry in node.entries.iter().filter(|entry| !entry.is_hole()) {
            if level == 0 && entry.is_lost() {
                walk.lost = true;
            } else if level == 0 {
                walk.reached.entry(entry.segment()).or_default().set(entry.slot());
            } else {
                walk_below(store, *entry, level - 1, walk).await?;
            }
        }
        Ok(())
    })
}

/// Which form of a segment counts: by its account, else, where that cannot be read, the newest that lies there.
pub(crate) async fn newest_generation(store: &Store, segment: SegmentId) -> Result<u8> {
    match store.segments.accounts.shard(shard_of(segment)).await {
        Ok(shard) => Ok(shard.get(&segment).map_or(0, |account| account.generation)),
        // That is told beside; what is read from a form is verified whoever named it.
        Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::Io) => {
            store.segments.accounts.newest_form(segment).await
        }
        Err(error) => Err(error),
    }
}

/// Reads a segment and verifies every frame; returns the addresses that are reached and cannot be read.
async fn read_segment(
    store: &Store,
    segment: SegmentId,
    reached: &Bits,
    heal: bool,
    checked: &mut Checked,
) -> Result<Vec<(u64, String)>> {
    let generation = newest_generation(store, segment).await?;
    let key = segments::key(segment, generation);
    let object = match read_form(store, &key).await {
        Ok(object) if heal && !planted::is("scrub-heals-nothing") => {
            healed(store, segment, &key, object, &mut checked.met).await?
        }
        Ok(object) => object,
        Err(error) if error.kind() == Kind::NotFound => {
            let address = |slot| (segment.0 << 20 | u64::from(slot), format!("segment {segment} is missing"));
            return Ok(reached.iter().map(address).collect());
        }
        Err(error) => return Err(error),
    };
    checked.segments += 1;
    checked.bytes += object.len() as u64;
    let (mut sound, mut problem) = look(store, segment, object.clone()).await;
    let is_damaged = |sound: &HashSet<u32>| reached.iter().any(|slot| !sound.contains(&slot));
    if !heal && (problem.is_some() || is_damaged(&sound)) {
        let object = healed(store, segment, &key, object, &mut checked.met).await?;
        (sound, problem) = look(store, segment, object).await;
    }
    checked.problems.extend(problem);
    let why = |slot: u32| format!("slot {slot} of segment {segment} is damaged");
    let lost = reached.iter().filter(|slot| !sound.contains(slot));
    Ok(lost.map(|slot| (segment.0 << 20 | u64::from(slot), why(slot))).collect())
}

/// All of a segment's form as it lies there. An engine may refuse a short one that is damaged as a whole; its parts can be had, and tell of
/// themselves which are sound.
pub(crate) async fn read_form(store: &Store, key: &Key) -> Result<Bytes> {
    match store.engine.get(key).await {
        Err(error) if error.kind() == Kind::Corrupt => store.engine.get_range(key, 0, usize::MAX).await,
        done => done.map(|(object, _)| object),
    }
}

/// The slots of an object that are sound, and what is wrong with it as a whole.
async fn look(store: &Store, segment: SegmentId, object: Bytes) -> (HashSet<u32>, Option<String>) {
    let opener = opener(store, segment, &object);
    store.env.offload(move || sound_slots(segment, &object, opener.as_ref())).await
}

/// Reads every copy of a form, verifies all its frames, whether anything refers to them or not, and heals what some copy has whole; tells
/// whether all of it is sound then.
pub(crate) async fn verify_form(store: &Store, segment: SegmentId, key: &Key) -> Result<bool> {
    let object = read_form(store, key).await?;
    if !is_all_sound(store, segment, &object).await {
        let object = healed(store, segment, key, object, &mut 0).await?;
        return Ok(is_all_sound(store, segment, &object).await);
    }
    // Any copy that is unlike this one is damaged.
    let same = |bytes: &[u8]| bytes == object;
    store.engine.repair(key, 0, object.len(), &same).await?;
    Ok(true)
}

async fn is_all_sound(store: &Store, segment: SegmentId, object: &Bytes) -> bool {
    let opener = opener(store, segment, object);
    let object = object.clone();
    store.env.offload(move || is_whole(segment, &object, opener.as_ref())).await
}

/// The object, from whichever copy is sound: whole if there is one, else frame by frame.
pub(crate) async fn healed(
    store: &Store,
    segment: SegmentId,
    key: &Key,
    object: Bytes,
    parts: &mut u64,
) -> Result<Bytes> {
    let whole = |bytes: &[u8]| is_whole(segment, bytes, opener(store, segment, bytes).as_ref());
    if let Some(repaired) = store.engine.repair(key, 0, object.len(), &whole).await? {
        *parts += u64::from(repaired.healed);
        return Ok(repaired.bytes);
    }
    let opener = opener(store, segment, &object);
    for record in index_of(segment, &object).unwrap_or_default() {
        let sound = |bytes: &[u8]| is_sound_frame(segment, bytes, &record, opener.as_ref());
        let (offset, length) = (record.offset.into(), record.length as usize);
        let repaired = store.engine.repair(key, offset, length, &sound).await?;
        *parts += repaired.map_or(0, |repaired| repaired.healed.into());
    }
    read_form(store, key).await
}

fn index_of(segment: SegmentId, object: &[u8]) -> Result<Vec<IndexRecord>> {
    let footer = Footer::decode(object, segment)?;
    let start = footer.index_offset as usize;
    let index = object.get(start..start + footer.index_bytes()).unwrap_or_default();
    footer.decode_index(index).map(|(records, _)| records)
}

/// What opens the frames of a form, as far as its front and its domain's keys are there.
fn opener(store: &Store, segment: SegmentId, object: &[u8]) -> Option<SealKey> {
    store.segments.key_by_header(object, segment).ok().flatten()
}

fn is_sound(segment: SegmentId, object: &[u8], record: &IndexRecord, opener: Option<&SealKey>) -> bool {
    let frame = object.get(record.offset as usize..).unwrap_or_default();
    // Without its front nobody can tell what opens it.
    let can_open = !frame::is_sealed(frame) || Header::decode(object, segment).is_ok();
    can_open && is_sound_frame(segment, frame, record, opener)
}

fn is_sound_frame(segment: SegmentId, frame: &[u8], record: &IndexRecord, opener: Option<&SealKey>) -> bool {
    let address = segment.0 << 20 | u64::from(record.first_slot);
    match frame::decode(frame, address, opener) {
        Ok(content) => content.len() == usize::from(record.blocks) * BLOCK_BYTES,
        // Its checksum was verified before, which is all that can be without a key.
        Err(error) => error.kind() == Kind::WrongKey,
    }
}

/// Whether everything in a segment is sound.
fn is_whole(segment: SegmentId, object: &[u8], opener: Option<&SealKey>) -> bool {
    Header::decode(object, segment).is_ok_and(|header| header.object_bytes == object.len() as u64)
        && index_of(segment, object)
            .is_ok_and(|records| records.iter().all(|record| is_sound(segment, object, record, opener)))
}

/// The slots whose frames are sound. Without a sound index none can be found by it; that is told.
fn sound_slots(
    segment: SegmentId,
    object: &[u8],
    opener: Option<&SealKey>,
) -> (HashSet<u32>, Option<String>) {
    let records = match index_of(segment, object) {
        Ok(records) => records,
        Err(error) => return (HashSet::new(), Some(error.to_string())),
    };
    let sound = records.iter().filter(|record| is_sound(segment, object, record, opener));
    let sound = sound.flat_map(|r| r.first_slot..r.first_slot + u32::from(r.blocks)).collect();
    (sound, Header::decode(object, segment).err().map(|error| error.to_string()))
}

/// Adds runs of blocks that cannot be read, with the reason for the first of each.
fn affected_below<'a>(
    store: &'a Store,
    at: Entry,
    level: u32,
    base: u64,
    walk: &'a Walk,
    out: &'a mut Vec<(u64, u64, String)>,
) -> futures::future::BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        if at.is_hole() {
            return Ok(());
        }
        let width = 1u64 << (level * NODE_SHIFT);
        if at.is_lost() {
            add_run(out, base, width * NODE_WAYS as u64, LOST);
            return Ok(());
        }
        if let Some(why) = walk.damaged.get(&at.address) {
            add_run(out, base, width * NODE_WAYS as u64, why);
            return Ok(());
        }
        let node = store.segments.node(&at).await?;
        for (place, entry) in node.entries.iter().enumerate() {
            let start = base + place as u64 * width;
            if level > 0 {
                affected_below(store, *entry, level - 1, start, walk, out).await?;
            } else if entry.is_lost() {
                add_run(out, start, 1, LOST);
            } else if let Some(why) = walk.damaged.get(&entry.address).filter(|_| !entry.is_hole()) {
                add_run(out, start, 1, why);
            }
        }
        Ok(())
    })
}

fn add_run(out: &mut Vec<(u64, u64, String)>, start: u64, blocks: u64, why: &str) {
    match out.last_mut() {
        Some((first, length, last)) if *first + *length == start && (*last == LOST) == (why == LOST) => {
            *length += blocks;
        }
        _ => out.push((start, blocks, why.to_owned())),
    }
}
