//! What is known of the references to a segment's blocks: objects `account/ID`, and the document `accounts`.
//!
//! An account object holds the accounts of a *shard*: up to 256 segments with consecutive numbers.
//! ```text
//! object  = check 8 · length 4 · Zstandard frame of `length` bytes       check: XXH3-64 of the rest, seeded with the number
//! content = count 4, then each: segment 8 · generation 1 · present 4 · slots 4
//!           then the states of all slots of all segments, one byte each
//!           then exceptions: count 4, then each: segment 8 · slot 4 · references 4
//! ```
//! *State of a slot*: 0 dead: nothing refers to it, and nothing ever will; 1 nothing is known to refer to it, but it has not been
//! condemned; n + 1 for n references up to 253; 255 see the exceptions. *Present*: slots that the segment's physical form holds.
//!
//! The document `accounts` names the newest object of each shard, so that one swap of it takes a whole batch over. Body,
//! version 1:
//! ```text
//! batch 8 · live blocks 8 · present blocks 8
//! shards: count 4, each: shard 8 · object 8 · idle 4
//! consumed: count 4, each: disk id 8 · ledger object 8
//! ```
//! *Idle*: slots of the shard with no references that are not dead; the next batch condemns them unless one has come up.
//! *Consumed*: of each disk that still names ledger sections taken over by a batch, the last of them.

use crate::document::{self, DocumentKind};
use crate::entry::{SLOTS_MAX, SegmentId};
use crate::wire::{Reader, Writer};
use std::collections::BTreeMap;
use stonefold_types::{Error, Kind, Result};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// log2 of the segments in a shard.
pub const SHARD_SHIFT: u32 = 8;
/// A shard's content takes at most this many bytes: 256 segments of 64 MiB in the smallest frames.
const CONTENT_BYTES_MAX: usize = 1 << 29;

const EXCEPTION: u8 = 255;
const VERSION: u16 = 1;

/// The references to one segment's blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The physical form to read.
    pub generation: u8,
    /// Blocks that form holds.
    pub present: u32,
    /// By slot.
    pub slots: Vec<Slot>,
}

/// What is known of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// Nothing refers to it, and nothing ever will.
    Dead,
    /// So many references.
    Live(u32),
}

impl Account {
    /// Slots that are not dead.
    pub fn live(&self) -> u32 {
        self.slots.iter().filter(|slot| **slot != Slot::Dead).count() as u32
    }

    /// Slots without references that are not dead.
    pub fn idle(&self) -> u32 {
        self.slots.iter().filter(|slot| **slot == Slot::Live(0)).count() as u32
    }
}

/// The accounts of a shard.
pub type Shard = BTreeMap<SegmentId, Account>;

/// The shard that a segment belongs to.
pub fn shard_of(segment: SegmentId) -> u64 {
    segment.0 >> SHARD_SHIFT
}

/// The object.
pub fn encode(shard: &Shard, id: u64) -> Vec<u8> {
    let mut content = Vec::new();
    content.u32(shard.len() as u32);
    for (segment, account) in shard {
        content.u64(segment.0);
        content.u8(account.generation);
        content.u32(account.present);
        content.u32(account.slots.len() as u32);
    }
    let mut exceptions = Vec::new();
    for (segment, account) in shard {
        for (at, slot) in account.slots.iter().enumerate() {
            content.u8(match slot {
                Slot::Dead => 0,
                Slot::Live(count) => {
                    let state = u8::try_from(count.saturating_add(1)).unwrap_or(EXCEPTION);
                    if state == EXCEPTION {
                        exceptions.push((segment.0, at as u32, *count));
                    }
                    state
                }
            });
        }
    }
    content.u32(exceptions.len() as u32);
    for (segment, slot, count) in exceptions {
        content.u64(segment);
        content.u32(slot);
        content.u32(count);
    }
    let mut rest = (content.len() as u32).to_le_bytes().to_vec();
    rest.extend(zstd::bulk::compress(&content, 1).expect("memory is never full for the compressor"));
    let mut object = xxh3_64_with_seed(&rest, id).to_le_bytes().to_vec();
    object.extend(rest);
    object
}

/// Reads and verifies object `id`.
pub fn decode(object: &[u8], id: u64) -> Result<Shard> {
    let wrong = |why: &str| Error::new(Kind::Corrupt, format!("account {id:011x} {why}"));
    let (check, rest) = object.split_first_chunk::<8>().ok_or_else(|| wrong("is cut short"))?;
    if xxh3_64_with_seed(rest, id).to_le_bytes() != *check {
        return Err(wrong("fails its checksum"));
    }
    let (length, packed) = rest.split_first_chunk::<4>().ok_or_else(|| wrong("is cut short"))?;
    let length = u32::from_le_bytes(*length) as usize;
    if length > CONTENT_BYTES_MAX {
        return Err(wrong("is too long"));
    }
    let content = zstd::bulk::decompress(packed, length).map_err(|_| wrong("does not decompress"))?;
    let mut reader = Reader::new(&content, "an account");
    let mut accounts = Vec::new();
    for _ in 0..reader.u32()? {
        let segment = SegmentId(reader.u64()?);
        let (generation, present, slots) = (reader.u8()?, reader.u32()?, reader.u32()?);
        if slots > SLOTS_MAX {
            return Err(wrong("has a segment of too many slots"));
        }
        accounts.push((segment, Account { generation, present, slots: Vec::new() }, slots));
    }
    let mut shard = Shard::new();
    for (segment, mut account, slots) in accounts {
        let states = reader.bytes(slots as usize)?.iter();
        account.slots = states
            .map(|state| match state {
                0 => Slot::Dead,
                state => Slot::Live(u32::from(*state) - 1),
            })
            .collect();
        shard.insert(segment, account);
    }
    for _ in 0..reader.u32()? {
        let (segment, slot, count) = (SegmentId(reader.u64()?), reader.u32()?, reader.u32()?);
        let account = shard.get_mut(&segment).and_then(|account| account.slots.get_mut(slot as usize));
        *account.ok_or_else(|| wrong("has an exception for no slot"))? = Slot::Live(count);
    }
    reader.end()?;
    Ok(shard)
}

/// The document `accounts`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// Counts the batches taken over.
    pub batch: u64,
    /// Blocks that are not dead, of all segments.
    pub live_blocks: u64,
    /// Blocks that the segments hold.
    pub present_blocks: u64,
    /// From shard to the newest object with its accounts, and the idle slots in it.
    pub shards: BTreeMap<u64, (u64, u32)>,
    /// From disk id to the last ledger object of it that was taken over.
    pub consumed: BTreeMap<u64, u64>,
}

impl Accounts {
    /// The document.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.u64(self.batch);
        body.u64(self.live_blocks);
        body.u64(self.present_blocks);
        body.u32(self.shards.len() as u32);
        for (shard, (object, idle)) in &self.shards {
            body.u64(*shard);
            body.u64(*object);
            body.u32(*idle);
        }
        body.u32(self.consumed.len() as u32);
        for (disk, ledger) in &self.consumed {
            body.u64(*disk);
            body.u64(*ledger);
        }
        document::seal(DocumentKind::Accounts, VERSION, &body)
    }

    /// Reads the document.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (_, body) = document::open(bytes, DocumentKind::Accounts, VERSION)?;
        let mut reader = Reader::new(body, "the accounts");
        let (batch, live_blocks, present_blocks) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let (mut shards, mut consumed) = (BTreeMap::new(), BTreeMap::new());
        for _ in 0..reader.u32()? {
            shards.insert(reader.u64()?, (reader.u64()?, reader.u32()?));
        }
        for _ in 0..reader.u32()? {
            consumed.insert(reader.u64()?, reader.u64()?);
        }
        reader.end()?;
        Ok(Accounts { batch, live_blocks, present_blocks, shards, consumed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    fn slot() -> impl Strategy<Value = Slot> {
        prop_oneof![
            Just(Slot::Dead),
            (0u32..5).prop_map(Slot::Live),
            (250u32..260).prop_map(Slot::Live),
            Just(Slot::Live(u32::MAX))
        ]
    }

    proptest! {
        #[test]
        fn comes_back(accounts in btree_map(0u64..1 << 44, (any::<u8>(), 0u32..99, vec(slot(), 0..50)), 0..20), id: u64) {
            let account = |(generation, present, slots)| Account { generation, present, slots };
            let shard: Shard = accounts.into_iter().map(|(at, parts)| (SegmentId(at), account(parts))).collect();
            let object = encode(&shard, id);
            prop_assert_eq!(decode(&object, id).unwrap(), shard);
            prop_assert!(decode(&object, id ^ 1).is_err());
        }

        #[test]
        fn noise_is_refused(bytes in vec(any::<u8>(), 0..200)) {
            prop_assert!(decode(&bytes, 3).is_err());
            let mut rest = (bytes.len() as u32).to_le_bytes().to_vec();
            rest.extend(zstd::bulk::compress(&bytes, 1).unwrap());
            let sealed = [&xxh3_64_with_seed(&rest, 3).to_le_bytes()[..], &rest].concat();
            let _ = decode(&sealed, 3);
        }
    }

    #[test]
    fn the_document_comes_back() {
        let accounts = Accounts {
            batch: 3,
            live_blocks: 4,
            present_blocks: 5,
            shards: [(1, (2, 3))].into(),
            consumed: [(6, 7), (8, 9)].into(),
        };
        assert_eq!(Accounts::decode(&accounts.encode()).unwrap(), accounts);
    }
}
