use super::*;
use crate::segments::form_of;
use crate::store::{Options, Store};
use stonefold_dice::{Dice, noise};
use stonefold_engine::{Engine, MemoryEngine};
use stonefold_env::{Env, SystemWorld};
use stonefold_types::{BLOCK_BYTES, DiskSettings};

/// Frames at slots, each of two blocks.
fn places(slots: impl IntoIterator<Item = u32>) -> Vec<Place> {
    let place =
        |(at, first_slot)| Place { first_slot, blocks: 2, offset: 80 + at as u32 * 4096, length: 4096 };
    slots.into_iter().enumerate().map(place).collect()
}

/// What is found, and how many pieces that took.
fn find(all: &[Place], slot: u32) -> (Option<Place>, u32) {
    let form = Form { index_offset: 0, frames: all.len() as u32, blocks: 2 * all.len() as u32 };
    let mut search = Search::new(&form, slot);
    while let Some(number) = search.next() {
        let from = (number * PIECE_RECORDS) as usize;
        let piece = &all[from..all.len().min(from + PIECE_RECORDS as usize)];
        if let Some(found) = search.look(number, piece) {
            return (Some(found), search.steps);
        }
    }
    (None, search.steps)
}

fn all_are_found(all: &[Place], slots: u32) -> u32 {
    let mut most = 0;
    for slot in 0..slots {
        let (found, steps) = find(all, slot);
        let there = all.iter().find(|place| (place.first_slot..place.end_slot()).contains(&slot));
        assert_eq!(found.as_ref(), there, "slot {slot}");
        most = most.max(steps);
    }
    most
}

/// Goal: every block is found and nothing else, with few pieces however what died lies.
#[test]
fn every_block_is_found_with_few_pieces() {
    let evenly = places((0..4096).filter(|frame| frame % 4 != 3).map(|frame| frame * 2));
    assert!(all_are_found(&evenly, 8192) <= 3);
    let all_at_the_end = places((3000..4096).map(|frame| frame * 2));
    assert!(all_are_found(&all_at_the_end, 8192) <= 8);
    let two_heaps = places((0..300).chain(3500..4096).map(|frame| frame * 2));
    assert!(all_are_found(&two_heaps, 8192) <= 8);
    assert_eq!(all_are_found(&places([6]), 20), 1);
    assert_eq!(find(&[], 0), (None, 0));
}

/// Goal: a piece that holds anything at all ends the search, and leads nowhere out of a segment.
#[test]
fn what_was_never_written_is_not_followed() {
    let mut chance = Dice::new(5);
    for _ in 0..2000 {
        let mut bytes = vec![0; INDEX_RECORD * chance.between(1, 1000) as usize];
        chance.fill(&mut bytes);
        let all: Vec<Place> =
            IndexRecord::decode_unverified(&bytes).map(|record| Place::new(&record)).collect();
        let slot = chance.below(1 << 20) as u32;
        let (found, steps) = find(&all, slot);
        assert!(steps <= 16 && found.is_none_or(|place| place.is_sane() && place.first_slot <= slot));
    }
}

/// Blocks of the disk, a leaf of its own each: more nodes than frames of a small piece, fewer than a piece has.
const LEAVES: u64 = 200;
/// From leaf to leaf, in blocks.
const STEP: u64 = 256;

async fn written(store: &Arc<Store>, leaves: impl Iterator<Item = u64>, seed: u64) {
    let disk = store.attach(&"web".parse().unwrap()).unwrap();
    for leaf in leaves {
        let block = noise(seed << 32 | leaf, BLOCK_BYTES);
        disk.write(leaf * STEP * BLOCK_BYTES as u64, &block, false).await.unwrap();
    }
    store.fold(None).await.unwrap();
}

/// Each piece of a form written anew, with every place but the first taken by the one before it, which claims to hold all that follows:
/// what it leads to is sound, and something else.
async fn mislead(store: &Arc<Store>) -> usize {
    let segments = &store.segments;
    let listed = store.engine.list("segment/", None, 10_000).await.unwrap();
    let forms: Vec<_> = listed.iter().filter_map(|one| form_of(&one.key)).filter(|form| form.1 > 0).collect();
    let mut wrong = Vec::new();
    for (segment, generation) in forms {
        let form = segments.form(segment, generation).await.unwrap();
        let piece = segments.piece(segment, generation, &form, 0).await.unwrap();
        let shifted = (0..piece.len()).map(|at| Place { blocks: u8::MAX, ..piece[at.saturating_sub(1)] });
        wrong.push((segment.0 << 20 | u64::from(generation) << 12, shifted.collect::<Arc<[Place]>>()));
    }
    segments.locator.pieces.clear();
    let count = wrong.len();
    wrong.into_iter().for_each(|(piece, places)| segments.locator.pieces.insert(piece, places, 16));
    count
}

/// Goal: a piece that is wrong costs time and nothing else (P6): a map node is the one that was sought, and a block holds what was written.
/// *Past bug*: the sound node of a neighbour was taken for a node.
#[tokio::test]
async fn a_wrong_piece_leads_to_nothing_else() {
    let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap());
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::default());
    let options = Options { cache_bytes: 64 << 20, journal_bytes_max: 16 << 20, ..Options::default() };
    let store = Store::open(env, engine, options).await.unwrap();
    let size = LEAVES * STEP * BLOCK_BYTES as u64;
    store.create_disk(&"web".parse().unwrap(), size, DiskSettings::default()).await.unwrap();
    written(&store, 0..LEAVES, 1).await;
    written(&store, (0..LEAVES).step_by(3), 2).await;
    store.reclaim().await.unwrap();
    store.drop_cache();
    assert!(mislead(&store).await >= 2, "a segment of data and one of nodes were written anew");
    let disk = store.attach(&"web".parse().unwrap()).unwrap();
    for leaf in 0..LEAVES {
        let mut block = vec![0; BLOCK_BYTES];
        disk.read(leaf * STEP * BLOCK_BYTES as u64, &mut block).await.unwrap();
        let seed = if leaf % 3 == 0 { 2 } else { 1 };
        assert!(block == noise(seed << 32 | leaf, BLOCK_BYTES), "leaf {leaf} is another's");
    }
}
