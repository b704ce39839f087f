//! Goal: what is right is passed, and each kind of fault is told from the others.

use super::*;
use crate::durability::Durability;
use crate::payload::Reduction;

const BLOCKS: u64 = 64;

/// A volume and what lies on its medium.
struct Volume {
    payload: Payload,
    generations: Generations,
    erased: Erased,
    medium: Vec<u8>,
}

impl Volume {
    /// Every block written twice, so that there is something older.
    fn written(reduction: Reduction) -> Self {
        let payload = Payload::new(5, 1, BLOCKS, reduction).unwrap();
        let mut volume = Volume {
            payload,
            generations: Generations::new(BLOCKS),
            erased: Erased::default(),
            medium: vec![0; BLOCKS as usize * BLOCK_BYTES],
        };
        for block in (0..BLOCKS).chain(0..BLOCKS) {
            let generation = volume.generations.begin(block, 0, SECTORS);
            let at = block as usize * BLOCK_BYTES;
            volume.payload.fill(block, generation, 0, &mut volume.medium[at..at + BLOCK_BYTES]);
            volume.generations.end(block, 0, SECTORS, generation, false);
        }
        volume
    }

    fn read(&self) -> Verification {
        let verifier = Verifier {
            payload: &self.payload,
            volume: 1,
            generations: &self.generations,
            erased: &self.erased,
        };
        let expect = |block| Expected::of(&self.generations, block, None);
        let expected: Vec<_> = (0..BLOCKS).map(expect).collect();
        let mut seen = Verification::default();
        verifier.check(0, &self.medium, &expected, &mut seen);
        assert_eq!(seen.right + seen.faults() + seen.unwritten + seen.free, BLOCKS * SECTORS as u64);
        seen
    }

    fn block(&mut self, block: u64) -> &mut [u8] {
        let at = block as usize * BLOCK_BYTES;
        &mut self.medium[at..at + BLOCK_BYTES]
    }
}

#[test]
fn what_was_written_is_right() {
    for dedupe in [1.0, 2.0] {
        let seen = Volume::written(Reduction { dedupe, compression: 2.0 }).read();
        assert_eq!((seen.right, seen.faults()), (BLOCKS * SECTORS as u64, 0));
    }
}

#[test]
fn each_kind_of_fault_is_told_from_the_others() {
    let mut volume = Volume::written(Reduction::NONE);
    volume.block(3).fill(0);
    let payload = volume.payload.clone();
    payload.fill(7, 1, 0, volume.block(7));
    let elsewhere = volume.block(20).to_vec();
    volume.block(9).copy_from_slice(&elsewhere);
    volume.block(11)[700] ^= 0x10;
    // A torn write: the last three sectors are from before.
    payload.fill(13, 1, 5, &mut volume.block(13)[5 * SECTOR_BYTES..]);
    // The sectors of a block, one further.
    volume.block(15).rotate_right(SECTOR_BYTES);
    let seen = volume.read();
    assert_eq!((seen.lost, seen.stale, seen.misplaced, seen.corrupt), (8, 8 + 3, 8 + 8, 1));
    assert_eq!(seen.findings[0].offset, 3 * BLOCK_BYTES as u64);
    assert_eq!(seen.findings[8].found, format!("generation 1 of byte {} of volume 1", 7 * BLOCK_BYTES));
}

/// Blocks that share their content with others are held to the same.
#[test]
fn stale_and_misplaced_are_told_among_equal_blocks() {
    let mut volume = Volume::written(Reduction { dedupe: 4.0, compression: 1.0 });
    let payload = volume.payload.clone();
    let pooled = |block: &u64| {
        payload.shared(*block, 1).is_some() && payload.identity(*block, 1) != payload.identity(*block, 2)
    };
    let stale = (0..BLOCKS).find(pooled).unwrap();
    payload.fill(stale, 1, 0, volume.block(stale));
    let other = (0..BLOCKS)
        .find(|block| {
            *block != stale
                && (1..=2)
                    .all(|generation| payload.identity(*block, generation) != payload.identity(stale, 2))
        })
        .unwrap();
    payload.fill(stale, 2, 0, volume.block(other));
    let seen = volume.read();
    assert_eq!((seen.stale, seen.misplaced, seen.lost + seen.corrupt), (8, 8, 0));
}

#[test]
fn what_was_zeroed_reads_as_zeros_and_what_was_trimmed_as_anything() {
    let mut volume = Volume::written(Reduction::NONE);
    let mut erase = |block: u64, to: usize, how| {
        let generation = volume.generations.begin(block, 0, to);
        volume.erased.note(block, generation, how, 2);
        volume.generations.end(block, 0, to, generation, false);
    };
    erase(3, SECTORS, How::Zeroed);
    erase(4, 3, How::Zeroed);
    erase(5, SECTORS, How::Trimmed);
    erase(6, SECTORS, How::Zeroed);
    volume.block(3).fill(0);
    volume.block(4)[..3 * SECTOR_BYTES].fill(0);
    let noise = volume.block(9).to_vec();
    volume.block(5).copy_from_slice(&noise);
    let seen = volume.read();
    // Block 6 still holds what it did.
    assert_eq!((seen.free, seen.stale, seen.faults()), (8, 8, 8));
    // What is written there afterwards is looked at again.
    let generation = volume.generations.begin(5, 0, SECTORS);
    volume.generations.end(5, 0, SECTORS, generation, false);
    assert_eq!(volume.read().misplaced, 8);
}

/// A sector that is read while it is written may be old in one byte and new in the next, and nothing else; once the write is over it is whole.
#[test]
fn half_a_sector_is_right_only_while_it_is_written() {
    let mut volume = Volume::written(Reduction::NONE);
    let payload = volume.payload.clone();
    let halves = |volume: &mut Volume, block: u64| {
        let mut newer = [0; SECTOR_BYTES];
        payload.fill(block, 3, 2, &mut newer);
        volume.block(block)[2 * SECTOR_BYTES + 100..3 * SECTOR_BYTES].copy_from_slice(&newer[100..]);
    };
    let verdict = |seen: &Verification| (seen.torn, seen.corrupt, seen.faults());
    let generation = volume.generations.begin(7, 0, SECTORS);
    halves(&mut volume, 7);
    assert_eq!(verdict(&volume.read()), (1, 0, 0));
    // One byte that is neither.
    volume.block(7)[2 * SECTOR_BYTES + 9] ^= 1;
    assert_eq!(verdict(&volume.read()), (0, 1, 1));
    volume.block(7)[2 * SECTOR_BYTES + 9] ^= 1;
    volume.generations.end(7, 0, SECTORS, generation, false);
    assert_eq!(volume.read().faults(), SECTORS as u64, "the old ones are stale, and that one is nothing");
    // Nor is it after a loss of power, which may bring old ones back, and whole ones only.
    volume.generations.lower(7, Lows::Same(2));
    assert_eq!(verdict(&volume.read()), (0, 1, 1));

    // Another sector of the block is being written: that excuses this one no more.
    let generation = volume.generations.begin(7, 5, SECTORS);
    let seen = volume.read();
    assert_eq!((seen.torn, seen.corrupt), (0, 1));
    volume.generations.end(7, 5, SECTORS, generation, false);

    // Issued while nothing was written, answered when something had been; and the other way round.
    let verifier = |volume: &Volume, expected: &[Expected]| {
        let (payload, generations) = (&volume.payload, &volume.generations);
        let verifier = Verifier { payload, volume: 1, generations, erased: &volume.erased };
        let mut seen = Verification::default();
        let at = 9 * BLOCK_BYTES;
        verifier.check(at as u64, &volume.medium[at..at + BLOCK_BYTES], expected, &mut seen);
        verdict(&seen)
    };
    let before = [Expected::of(&volume.generations, 9, None)];
    let generation = volume.generations.begin(9, 0, SECTORS);
    let meanwhile = [Expected::of(&volume.generations, 9, None)];
    volume.generations.end(9, 0, SECTORS, generation, false);
    halves(&mut volume, 9);
    assert_eq!(verifier(&volume, &before), (1, 0, 0));
    assert_eq!(verifier(&volume, &meanwhile), (1, 0, 0));
}

/// Two writes of a sector at once may leave a part of each, and of nothing else; the next one ends that.
#[test]
fn half_of_each_is_right_where_two_were_written_at_once() {
    for overlap in [true, false] {
        let mut volume = Volume::written(Reduction::NONE);
        let first = volume.generations.begin(7, 0, SECTORS);
        let end = |volume: &mut Volume, generation| {
            volume.generations.end(7, 0, SECTORS, generation, false);
        };
        if !overlap {
            end(&mut volume, first);
        }
        let second = volume.generations.begin(7, 0, SECTORS);
        if overlap {
            end(&mut volume, first);
        }
        end(&mut volume, second);
        let payload = volume.payload.clone();
        payload.fill(7, second, 0, volume.block(7));
        let mut other = [0; SECTOR_BYTES];
        payload.fill(7, first, 2, &mut other);
        volume.block(7)[2 * SECTOR_BYTES..][..100].copy_from_slice(&other[..100]);
        let verdict = |seen: &Verification| (seen.torn, seen.corrupt, seen.faults());
        assert_eq!(verdict(&volume.read()), if overlap { (1, 0, 0) } else { (0, 1, 1) });
        // What was there before both has no part in it.
        payload.fill(7, 2, 2, &mut other);
        volume.block(7)[2 * SECTOR_BYTES..][..100].copy_from_slice(&other[..100]);
        assert_eq!(verdict(&volume.read()), (0, 1, 1));
        let alone = volume.generations.begin(7, 0, SECTORS);
        end(&mut volume, alone);
        payload.fill(7, alone, 0, volume.block(7));
        assert_eq!(verdict(&volume.read()), (0, 0, 0));
    }
}

/// A target that promises on a flush died: of what it had only acknowledged each sector may be old or new, and is told.
#[test]
fn what_was_lost_is_held_against_both_lines() {
    let mut volume = Volume::written(Reduction::NONE);
    let mut durability = Durability::default();
    let write = |volume: &mut Volume, durability: &mut Durability, block: u64| {
        let before = volume.generations.lows(block);
        let generation = volume.generations.begin(block, 0, SECTORS);
        volume.generations.end(block, 0, SECTORS, generation, false);
        durability.acknowledged(block, 0, SECTORS, before, volume.generations.lows(block));
    };
    // Flushed: generation 3 of blocks 3 to 5. Acknowledged: generation 4 of the same.
    (3..6).for_each(|block| write(&mut volume, &mut durability, block));
    let number = durability.begin_flush();
    durability.flushed(number);
    (3..6).for_each(|block| write(&mut volume, &mut durability, block));
    durability.crash(&mut volume.generations, crate::chaos::Promise::Flush);
    let payload = volume.payload.clone();
    payload.fill(3, 3, 0, volume.block(3));
    payload.fill(4, 4, 0, volume.block(4));
    payload.fill(4, 3, 6, &mut volume.block(4)[6 * SECTOR_BYTES..]);
    payload.fill(5, 2, 0, volume.block(5));
    // Half a sector of what was flushed, in what was acknowledged: nothing is in flight that would excuse it.
    let mut older = [0; SECTOR_BYTES];
    payload.fill(4, 3, 1, &mut older);
    volume.block(4)[SECTOR_BYTES..][..100].copy_from_slice(&older[..100]);
    let verifier = Verifier {
        payload: &volume.payload,
        volume: 1,
        generations: &volume.generations,
        erased: &volume.erased,
    };
    let expect = |block| {
        let lines = durability.lines(block, volume.generations.lows(block));
        Expected::of(&volume.generations, block, lines)
    };
    let expected: Vec<_> = (0..BLOCKS).map(expect).collect();
    let mut seen = Verification::default();
    verifier.check(0, &volume.medium, &expected, &mut seen);
    assert_eq!((seen.stale, seen.corrupt, seen.faults(), seen.torn), (8, 1, 9, 1), "{:?}", seen.findings);
    assert_eq!((seen.gone_acknowledged, seen.gone_flushed), (8 + 2 + 8, 8));
}

#[test]
fn what_was_never_written_is_not_judged() {
    let mut volume = Volume::written(Reduction::NONE);
    volume.generations = Generations::new(BLOCKS);
    let seen = volume.read();
    assert_eq!((seen.unwritten, seen.faults()), (BLOCKS * SECTORS as u64, 0));
}
