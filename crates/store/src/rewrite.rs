//! Writing sparse segments anew without what is dead.
//!
//! The new form has the same number, the next generation, and every live block in its slot. A frame with nothing dead
//! is moved whole; of others the runs of live blocks become frames of their own, when that takes less. Nothing is moved that
//! was not verified. What is sealed is opened and sealed again, by the newest key of its domain; where the domain is not open, the
//! segment stays as it is until it is. The accounts name the new form by one swap; then the old one goes, once nobody is left who might read it.

use crate::check;
use crate::reclaim::{Reclaimed, delete_form, swap_shard};
use crate::segments;
use crate::store::Store;
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stonefold_format::account::{Account, Shard, Slot, shard_of};
use stonefold_format::entry::{SEGMENT_BYTES_MAX, SegmentId};
use stonefold_format::fingerprint::Fingerprint;
use stonefold_format::frame;
use stonefold_format::seal::{SealKey, TAG_BYTES};
use stonefold_format::segment::{
    Footer, Header, IndexRecord, Scope, SegmentBuilder, SegmentKind, object_bytes_for,
};
use stonefold_types::{BLOCK_BYTES, Compression, Error, Kind, Result};

/// In the background a segment is written anew when one part in this many of its blocks is dead: three quarters are then moved
/// for each quarter that comes back.
pub(crate) const DEAD_PART_IDLE: u32 = 4;
/// The same when somebody asked for space.
pub(crate) const DEAD_PART_ASKED: u32 = 16;
/// Segments taken over by one swap.
const GROUP: usize = 8;
/// Written before what it takes the place of goes, in bytes.
pub(crate) const UNDER_WAY_BYTES_MAX: u64 = (GROUP * segments::SEGMENT_FRAMES_BYTES) as u64;

/// Whether it pays to write a segment anew.
pub(crate) fn is_worth(dead: u32, present: u32, dead_part: u32) -> bool {
    dead > 0 && u64::from(dead) * u64::from(dead_part) >= u64::from(present)
}

/// Writes segments anew.
pub(crate) async fn rewrite(store: &Store, sparse: &[SegmentId], done: &mut Reclaimed) -> Result<()> {
    for group in sparse.chunk_by(|a, b| shard_of(*a) == shard_of(*b)).flat_map(|group| group.chunks(GROUP)) {
        store.check_open()?;
        let number = shard_of(group[0]);
        let mut shard = Shard::clone(&*store.segments.accounts.shard(number).await?);
        let mut moved = Vec::new();
        for segment in group {
            let Some(account) = shard.get_mut(segment).filter(|account| account.generation < u8::MAX) else {
                continue;
            };
            match write_anew(store, *segment, account).await {
                Ok(bytes) => {
                    moved.push((*segment, account.generation, bytes));
                    account.generation += 1;
                    account.present = account.live();
                }
                // A domain that is locked, or that was shredded and has disks still, is told of elsewhere.
                Err(error) if error.kind() == Kind::WrongKey => {}
                Err(error) => tracing::warn!("segment {segment} is left as it is: {error}"),
            }
        }
        if moved.is_empty() {
            continue;
        }
        swap_shard(store, number, shard).await?;
        for (segment, generation, bytes) in &moved {
            store.segments.accounts.set_generation(*segment, generation + 1);
            store.dedupe.note_form(*segment, Some((generation + 1, *bytes)));
        }
        store.segments.pins.drained().await;
        for (segment, generation, bytes) in moved {
            let before = delete_form(store, segment, generation).await?;
            done.freed_bytes += before.saturating_sub(bytes);
            done.rewritten_segments += 1;
        }
    }
    Ok(())
}

/// Puts the next form of a segment; returns its length in bytes.
async fn write_anew(store: &Store, segment: SegmentId, account: &Account) -> Result<u64> {
    // First: of a locked domain nothing more is read, pass after pass.
    let opener = store.segments.key(segment, account.generation).await?;
    // How long it is shows when it is there; most are full.
    store.pace_reclaim(segments::SEGMENT_FRAMES_BYTES as u64).await;
    let before = segments::key(segment, account.generation);
    let object = check::read_form(store, &before).await?;
    let built = match build_next(store, segment, account, &opener, object.clone()).await {
        // Nothing was moved that was not verified; perhaps another copy is sound.
        Err(error) if error.kind() == Kind::Corrupt => {
            let object = check::healed(store, segment, &before, object, &mut 0).await?;
            build_next(store, segment, account, &opener, object).await?
        }
        done => done?,
    };
    let bytes = built.len() as u64;
    store.pace_reclaim(bytes).await;
    let key = segments::key(segment, account.generation + 1);
    // A form that an earlier pass left over when it was broken off: no account names it.
    store.engine.delete(&key).await?;
    store.segments.counters.rewritten_bytes.fetch_add(bytes, Ordering::Relaxed);
    store.engine.put_new(&key, built).await?;
    Ok(bytes)
}

async fn build_next(
    store: &Store,
    segment: SegmentId,
    account: &Account,
    opener: &Option<Arc<SealKey>>,
    object: Bytes,
) -> Result<Bytes> {
    let scope = store.segments.keyring.scope(Header::decode(&object, segment)?.domain)?;
    let form = Form { segment, generation: account.generation + 1, scope, seed: store.env.random() };
    let (opener, slots) = (opener.clone(), account.slots.clone());
    store.env.offload(move || build(form, &object, opener.as_deref(), &slots)).await
}

/// A physical form that is about to be.
struct Form {
    segment: SegmentId,
    generation: u8,
    scope: Scope,
    seed: [u8; 32],
}

fn build(form: Form, object: &Bytes, opener: Option<&SealKey>, slots: &[Slot]) -> Result<Bytes> {
    let Form { segment, generation, scope, seed } = form;
    let footer = Footer::decode(object, segment)?;
    let start = footer.index_offset as usize;
    let index = object.get(start..start + footer.index_bytes()).unwrap_or_default();
    let (records, fingerprints) = footer.decode_index(index)?;
    let kind = if fingerprints.is_empty() { SegmentKind::Map } else { SegmentKind::Data };
    let room = room_for(&records, slots);
    if room > SEGMENT_BYTES_MAX {
        return Err(no_room(segment));
    }
    let mut builder = SegmentBuilder::next_generation(segment, generation, kind, scope, seed, room);
    let mut fingerprints = fingerprints.chunks(1);
    for record in records {
        let known: Vec<Fingerprint> =
            fingerprints.by_ref().take(record.blocks.into()).flatten().copied().collect();
        move_frame(&mut builder, (object, opener), &record, &known, slots)?;
    }
    Ok(builder.finish().freeze())
}

/// Bytes in which the next form has room, however its frames are split. The old form says little: as blocks of it die,
/// frames may become more, and each block is reckoned with all it could take behind the frames.
fn room_for(records: &[IndexRecord], slots: &[Slot]) -> usize {
    let (mut frames, mut blocks, mut stored) = (0, 0, 0);
    for record in records {
        let alive = |at: &usize| is_alive(slots, record.first_slot as usize + at);
        let live: Vec<usize> = (0..usize::from(record.blocks)).filter(alive).collect();
        if live.is_empty() {
            continue;
        }
        frames += live.chunk_by(|a, b| *b == *a + 1).count();
        blocks += usize::from(record.blocks);
        // Parts are taken only where they are shorter than the whole, which may be sealed for the first time.
        stored += record.length as usize + TAG_BYTES;
    }
    object_bytes_for(frames, blocks, stored)
}

fn is_alive(slots: &[Slot], slot: usize) -> bool {
    slots.get(slot).is_some_and(|slot| *slot != Slot::Dead)
}

fn no_room(segment: SegmentId) -> Error {
    Error::new(Kind::Invalid, format!("the next form of segment {segment} would be too long"))
}

fn move_frame(
    builder: &mut SegmentBuilder,
    (object, opener): (&[u8], Option<&SealKey>),
    record: &IndexRecord,
    fingerprints: &[Fingerprint],
    slots: &[Slot],
) -> Result<()> {
    let segment = builder.id();
    let (first, blocks) = (record.first_slot as usize, usize::from(record.blocks));
    let alive = |at: usize| is_alive(slots, first + at);
    if !(0..blocks).any(alive) {
        return Ok(());
    }
    let short = || Error::new(Kind::Corrupt, format!("segment {segment} is cut short"));
    let frame = object.get(record.offset as usize..).ok_or_else(short)?;
    let address = segment.0 << 20 | u64::from(record.first_slot);
    let content = frame::decode(frame, address, opener)?;
    let mut parts = split(&content, alive);
    let whole = frame::unsealed(frame, address, opener)?;
    let stored = |encoded: &[u8]| encoded.len() + builder.tag_bytes();
    if parts.iter().map(|(_, part)| stored(part)).sum::<usize>() >= stored(&whole) {
        parts = vec![(0..blocks, whole)];
    }
    for (run, encoded) in parts {
        let known = if fingerprints.is_empty() { &[][..] } else { &fingerprints[run.clone()] };
        if !builder.has_room(encoded.len(), run.len()) {
            return Err(no_room(segment));
        }
        builder.skip_to((first + run.start) as u32);
        builder.push(&encoded, run.len(), known, record.first_use(run.start));
    }
    Ok(())
}

/// The runs of live blocks, each encoded as a frame.
fn split(content: &[u8], alive: impl Fn(usize) -> bool) -> Vec<(Range<usize>, Vec<u8>)> {
    let blocks: Vec<usize> = (0..content.len() / BLOCK_BYTES).filter(|at| alive(*at)).collect();
    let runs = blocks.chunk_by(|a, b| *b == *a + 1).map(|run| run[0]..run[run.len() - 1] + 1);
    let encode = |run: Range<usize>| {
        let mut encoded = Vec::new();
        let content = &content[run.start * BLOCK_BYTES..run.end * BLOCK_BYTES];
        frame::encode(content, Compression::Lz4, &mut encoded);
        (run, encoded)
    };
    runs.map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use stonefold_dice::Dice;
    use stonefold_format::segment::FirstUse;

    /// A segment filled to the brim with frames of so many blocks, each stamped with its number and otherwise zero.
    fn full(kind: SegmentKind, blocks_of_frame: usize, noise_bytes: usize) -> (SegmentId, Bytes, usize) {
        let segment = SegmentId::new(1, 1);
        let mut builder = SegmentBuilder::new(segment, kind, Scope::default(), [1; 32], 128 << 10);
        let mut blocks = 0;
        loop {
            let mut content = vec![0; blocks_of_frame * BLOCK_BYTES];
            for (at, block) in content.chunks_mut(BLOCK_BYTES).enumerate() {
                let number = (blocks + at) as u64 + 1;
                block[..8].copy_from_slice(&number.to_le_bytes());
                Dice::new(number).fill(&mut block[8..8 + noise_bytes]);
            }
            let mut encoded = Vec::new();
            frame::encode(&content, Compression::Lz4, &mut encoded);
            if !builder.has_room(encoded.len(), blocks_of_frame) {
                return (segment, builder.finish().freeze(), blocks);
            }
            let known = match kind {
                SegmentKind::Map => Vec::new(),
                // Every one of them a sample, which takes the most room.
                SegmentKind::Data => vec![Fingerprint { low: 0, high: 7 }; blocks_of_frame],
            };
            builder.push(
                &encoded,
                blocks_of_frame,
                &known,
                FirstUse { owner: 1, epoch: 1, place: blocks as u64 },
            );
            blocks += blocks_of_frame;
        }
    }

    fn moved(segment: SegmentId, object: &Bytes, slots: &[Slot]) -> Bytes {
        let form = Form { segment, generation: 1, scope: Scope::default(), seed: [2; 32] };
        build(form, object, None, slots).expect("what lives fits")
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Goal: whatever lives of whatever segment has room in its next form, and is found there.
        #[test]
        fn what_lives_has_room(is_map: bool, frame in 1usize..=8, noise in 0usize..600, dead_of_32 in 1u32..32, seed: u64) {
            let (kind, frame) = if is_map { (SegmentKind::Map, 1) } else { (SegmentKind::Data, frame) };
            let (segment, object, blocks) = full(kind, frame, noise);
            let dead = |slot: u64| ((slot ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59) < u64::from(dead_of_32);
            let slots: Vec<Slot> =
                (0..blocks as u64).map(|slot| if dead(slot) { Slot::Dead } else { Slot::Live(1) }).collect();
            let next = moved(segment, &object, &slots);
            let footer = Footer::decode(&next, segment).unwrap();
            let start = footer.index_offset as usize;
            let (records, _) = footer.decode_index(&next[start..start + footer.index_bytes()]).unwrap();
            let mut found = vec![false; blocks];
            for record in records {
                let address = segment.0 << 20 | u64::from(record.first_slot);
                let content = frame::decode(&next[record.offset as usize..], address, None).unwrap();
                for (at, block) in content.chunks(BLOCK_BYTES).enumerate() {
                    let slot = record.first_slot as usize + at;
                    prop_assert_eq!(&block[..8], &(slot as u64 + 1).to_le_bytes());
                    found[slot] = true;
                }
            }
            for (slot, found) in found.iter().enumerate() {
                prop_assert!(*found || slots[slot] == Slot::Dead, "slot {slot} lives and is lost");
            }
        }
    }
}
