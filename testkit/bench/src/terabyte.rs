//! A large disk, mapped and not written, with snapshots between rounds of changes.
//!
//! First a *stock* is written, through the ordinary path: unique blocks that nothing compresses, each in a frame of its own, in as
//! many segments as wanted. Then the disk is made: every block of it refers to one of the stock, in random order, so that its map is
//! as large and as hard to compress as one that was written at random. Then, once for each snapshot, some blocks at random are
//! changed and a snapshot is taken.

use anyhow::{Context, Result, ensure};
use std::sync::Arc;
use stonefold_dice::Dice;
use stonefold_env::Env;
use stonefold_format::entry::{Entry, Hint, SegmentId};
use stonefold_format::frame;
use stonefold_format::node::{NODE_WAYS, Node};
use stonefold_store::Store;
use stonefold_store::synthetic::Stock;
use stonefold_types::{BLOCK_BYTES, Compression, DiskSettings, Name};

/// Blocks mapped in one round: 4 GiB, whose leaves fill a segment.
const ROUND_BLOCKS: u64 = 1 << 20;
/// Rounds between two passes of reclaim, which holds 16 bytes for each reference made since the last.
const ROUNDS_TO_RECLAIM: u64 = 8;
/// Leaves made to tell how long one is.
const LEAVES_TRIED: u64 = 1000;
/// Segments of 16 MiB in a disk of 1 TiB of which nothing is a duplicate, and blocks in each.
const REAL_SEGMENTS: u64 = 1 << 16;
const REAL_SLOTS: u64 = 1 << 12;

/// What is to be made.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The disk's size in bytes; all of it is mapped.
    pub size_bytes: u64,
    /// Unique bytes that are really stored.
    pub stock_bytes: u64,
    /// Bytes of the stock in one segment.
    pub segment_bytes: u64,
    /// How many.
    pub snapshots: u64,
    /// Blocks changed before each snapshot.
    pub changed_blocks: u64,
    /// The same pool for the same seed.
    pub seed: u64,
}

/// What was made.
#[derive(Clone, Debug)]
pub struct Made {
    /// Blocks that are really stored, and segments that they lie in.
    pub stock_blocks: u64,
    /// See `stock_blocks`.
    pub stock_segments: u64,
    /// Nodes of the disk's map, those of its snapshots left out.
    pub map_nodes: u64,
}

/// Makes the disk `disk`, and `stock` beside it, in an empty pool. `say` is told what is being done.
///
/// # Errors
/// When the plan makes no sense, or the store fails.
pub async fn make(env: &Env, store: &Arc<Store>, plan: &Plan, say: impl Fn(&str)) -> Result<Made> {
    ensure!(plan.size_bytes % (NODE_WAYS * BLOCK_BYTES) as u64 == 0, "the size is no multiple of 1 MiB");
    ensure!(
        plan.stock_bytes >= plan.segment_bytes && plan.segment_bytes >= BLOCK_BYTES as u64,
        "the stock is too small"
    );
    let mut dice = Dice::new(plan.seed);
    say("writing the stock");
    write_stock(store, plan, &mut dice).await.context("writing the stock")?;
    let stock = store.stock(&name("stock")).await?;
    let disk = name("disk");
    store.create_disk(&disk, plan.size_bytes, DiskSettings::default()).await?;
    say("mapping the disk");
    map_all(store, plan, &stock, &mut dice).await.context("mapping the disk")?;
    say("changing it between snapshots");
    for number in 0..plan.snapshots {
        store.refer(&disk, &stock, &changed(plan, &stock, &mut dice)).await.context("changing the disk")?;
        store.snapshot(std::slice::from_ref(&disk), Some(name(&format!("s{number}")))).await?;
        store.fold_everything().await?;
    }
    say("reclaiming");
    let since = env.monotonic();
    store.reclaim().await.context("reclaiming")?;
    say(&format!("reclaimed in {:.1} s", (env.monotonic() - since).as_secs_f64()));
    Ok(Made {
        stock_blocks: stock.blocks() as u64,
        stock_segments: stock.segments() as u64,
        map_nodes: map_nodes(plan.size_bytes / BLOCK_BYTES as u64),
    })
}

fn name(text: &str) -> Name {
    Name::new(text).expect("it is one")
}

/// Nodes of a full map of so many blocks, of all four levels.
fn map_nodes(blocks: u64) -> u64 {
    (1..=4).map(|level| blocks.div_ceil((NODE_WAYS as u64).pow(level))).sum()
}

/// A hole behind each block, so that no two share a frame; a round after each segment's worth.
async fn write_stock(store: &Arc<Store>, plan: &Plan, dice: &mut Dice) -> Result<()> {
    let blocks = plan.stock_bytes / BLOCK_BYTES as u64;
    let stock = name("stock");
    store.create_disk(&stock, 2 * blocks * BLOCK_BYTES as u64, DiskSettings::default()).await?;
    let disk = store.attach(&stock.as_str().parse()?)?;
    let mut bytes = vec![0; BLOCK_BYTES];
    let round = plan.segment_bytes / BLOCK_BYTES as u64;
    for block in 0..blocks {
        dice.fill(&mut bytes);
        disk.write(2 * block * BLOCK_BYTES as u64, &bytes, false).await?;
        if (block + 1) % round == 0 {
            store.fold_everything().await?;
        }
    }
    Ok(())
}

async fn map_all(store: &Arc<Store>, plan: &Plan, stock: &Stock, dice: &mut Dice) -> Result<()> {
    let blocks = plan.size_bytes / BLOCK_BYTES as u64;
    let starts = (0..blocks).step_by(ROUND_BLOCKS as usize);
    for (round, start) in starts.enumerate() {
        let refs: Vec<(u64, usize)> =
            (start..(start + ROUND_BLOCKS).min(blocks)).map(|block| (block, any(stock, dice))).collect();
        store.refer(&name("disk"), stock, &refs).await?;
        if (round as u64 + 1) % ROUNDS_TO_RECLAIM == 0 {
            store.reclaim().await?;
        }
    }
    Ok(())
}

fn changed(plan: &Plan, stock: &Stock, dice: &mut Dice) -> Vec<(u64, usize)> {
    let blocks = plan.size_bytes / BLOCK_BYTES as u64;
    let mut places: Vec<u64> = (0..plan.changed_blocks).map(|_| dice.below(blocks)).collect();
    places.sort_unstable();
    places.dedup();
    places.into_iter().map(|block| (block, any(stock, dice))).collect()
}

fn any(stock: &Stock, dice: &mut Dice) -> usize {
    dice.below(stock.blocks() as u64) as usize
}

/// How many bytes a leaf takes in a segment, on average, when its blocks lie anywhere in so many segments of so many slots each.
pub fn leaf_bytes(segments: u64, slots: u64, seed: u64) -> f64 {
    let mut dice = Dice::new(seed);
    let mut total = 0;
    for _ in 0..LEAVES_TRIED {
        let mut node = Node::default();
        for entry in node.entries.iter_mut() {
            let (segment, slot) = (SegmentId::new(1, dice.below(segments) as u32), dice.below(slots) as u32);
            // As single blocks that do not compress lie in their segment: header, then frame behind frame.
            let hint = Hint::new(64 + slot as usize * (BLOCK_BYTES + 32), BLOCK_BYTES + 32, 0);
            *entry = Entry::new(segment, slot, hint).born(1);
        }
        let mut encoded = Vec::new();
        frame::encode(&node.encode(), Compression::Lz4, &mut encoded);
        total += encoded.len();
    }
    total as f64 / LEAVES_TRIED as f64
}

/// The same of a disk of 1 TiB of which nothing is a duplicate.
pub fn real_leaf_bytes(seed: u64) -> f64 {
    leaf_bytes(REAL_SEGMENTS, REAL_SLOTS, seed)
}
