//! What becomes of a job of blocks: zeros, duplicates, frames.
//!
//! A job passes three stages: *look* (on a worker: find zeros, fingerprint the rest), *judge* (find duplicates, and
//! decline those that would scatter a long run), *pack* (on a worker: gather neighbours into frames and compress them).
//! Pure functions, but that they let threads that wait go first; what is stored where is the fold's business.

use crate::arena::ArenaSlice;
use crate::planted;
use std::collections::HashSet;
use std::ops::Range;
use stonefold_env::give_way;
use stonefold_format::entry::{Entry, FRAME_BLOCKS_MAX};
use stonefold_format::fingerprint::{Fingerprint, FingerprintKey};
use stonefold_format::frame;
use stonefold_types::{BLOCK_BYTES, Compression};

/// A stretch of duplicates inside a longer run of new blocks is stored again when it is shorter than this, in blocks: one
/// frame, and one seek saved for whoever reads the run.
const STRETCH_MIN: usize = 8;

/// Consecutive blocks to be looked at together.
pub(crate) struct Piece {
    /// Where its runs belong: a number that means something to the fold.
    pub(crate) place: usize,
    /// The disk's id.
    pub(crate) owner: u64,
    /// The disk's epoch when it was written.
    pub(crate) epoch: u64,
    /// The first block.
    pub(crate) block: u64,
    /// Whole blocks.
    pub(crate) data: ArenaSlice,
    pub(crate) compression: Compression,
    /// Whether duplicates are looked for.
    pub(crate) dedupe: bool,
}

/// One block of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// All zeros.
    Zero,
    /// Something.
    Content(Fingerprint),
}

/// What becomes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A hole.
    Zero,
    /// It is stored in a frame.
    New,
    /// It is stored already.
    Known(Entry),
    /// The same as an earlier block of this job.
    Again,
}

/// Consecutive blocks and what was made of them.
pub(crate) struct Packed {
    pub(crate) place: usize,
    pub(crate) owner: u64,
    pub(crate) epoch: u64,
    pub(crate) block: u64,
    pub(crate) blocks: u64,
    /// The first block's number in the job.
    pub(crate) index: usize,
    pub(crate) content: Content,
}

/// What consecutive blocks hold.
pub(crate) enum Content {
    Zero,
    Known(Entry),
    Again,
    /// The frame's bytes in the job's buffer.
    Frame(Range<usize>),
}

/// The blocks of a job, in order: piece, block address, content.
fn blocks(job: &[Piece]) -> impl Iterator<Item = (&Piece, u64, &[u8])> {
    job.iter().flat_map(|piece| {
        let contents = piece.data.chunks_exact(BLOCK_BYTES).enumerate();
        contents.map(move |(at, content)| (piece, piece.block + at as u64, content))
    })
}

/// Looks at every block.
pub(crate) fn look(job: &[Piece], key: &FingerprintKey) -> Vec<Seen> {
    let see = |(index, (_, _, content)): (usize, (_, _, &[u8]))| {
        give_way_at(index);
        if is_zero(content) { Seen::Zero } else { Seen::Content(key.of(content)) }
    };
    blocks(job).enumerate().map(see).collect()
}

/// Whoever waits for this processor has it first: a job takes milliseconds.
fn give_way_at(index: usize) {
    if index % 8 == 0 {
        give_way();
    }
}

/// Decides over every block, given where each was found, if it was.
pub(crate) fn judge(job: &[Piece], seen: &[Seen], found: &[Option<Entry>]) -> Vec<Verdict> {
    let mut earlier = HashSet::new();
    let mut verdicts: Vec<Verdict> = Vec::with_capacity(seen.len());
    for ((piece, _, _), (seen, found)) in blocks(job).zip(seen.iter().zip(found)) {
        verdicts.push(match (seen, found) {
            (Seen::Zero, _) => Verdict::Zero,
            (_, Some(entry)) if piece.dedupe => Verdict::Known(*entry),
            (Seen::Content(fingerprint), _) if !earlier.insert(*fingerprint) && piece.dedupe => {
                Verdict::Again
            }
            _ => Verdict::New,
        });
    }
    decline_short_stretches(job, &mut verdicts);
    settle_repeats(seen, &mut verdicts);
    verdicts
}

/// In every run of consecutive blocks: stretches of duplicates that are short, and not the whole run, become new.
fn decline_short_stretches(job: &[Piece], verdicts: &mut [Verdict]) {
    let places: Vec<(usize, u64)> = blocks(job).map(|(piece, block, _)| (piece.place, block)).collect();
    let follows = |at: usize| places[at].0 == places[at - 1].0 && places[at].1 == places[at - 1].1 + 1;
    let duplicate = |verdict: &Verdict| matches!(verdict, Verdict::Known(_) | Verdict::Again);
    let mut start = 0;
    while start < verdicts.len() {
        let end = (start + 1..verdicts.len()).find(|at| !follows(*at)).unwrap_or(verdicts.len());
        let run = &mut verdicts[start..end];
        if run.contains(&Verdict::New) {
            for stretch in run.chunk_by_mut(|a, b| duplicate(a) == duplicate(b)) {
                if duplicate(&stretch[0]) && stretch.len() < STRETCH_MIN {
                    stretch.fill(Verdict::New);
                }
            }
        }
        start = end;
    }
}

/// A repeat needs an earlier block of the job that is stored by it; where declining or finding left none, it is new.
fn settle_repeats(seen: &[Seen], verdicts: &mut [Verdict]) {
    let mut stored = HashSet::new();
    for (seen, verdict) in seen.iter().zip(verdicts) {
        let Seen::Content(fingerprint) = seen else { continue };
        match verdict {
            Verdict::New => {
                stored.insert(*fingerprint);
            }
            Verdict::Again if stored.insert(*fingerprint) => *verdict = Verdict::New,
            _ => {}
        }
    }
}

/// Gathers neighbours into frames and compresses them; returns the parts in order and the frames' bytes.
pub(crate) fn pack(job: &[Piece], verdicts: &[Verdict]) -> (Vec<Packed>, Vec<u8>) {
    let bytes: usize = job.iter().map(|piece| piece.data.len()).sum();
    // For what does not compress and its headers; a frame needs some more while it is tried.
    let buffer = Vec::with_capacity(bytes + bytes / 32);
    let mut packing = Packing { out: Vec::new(), buffer, group: None, scattered: Vec::new() };
    for (index, ((piece, block, content), verdict)) in blocks(job).zip(verdicts).enumerate() {
        give_way_at(index);
        packing.block(index, piece, block, content, *verdict);
    }
    if !planted::is("last-frame-lost") {
        packing.end_group();
    }
    (packing.out, packing.buffer)
}

/// Blocks that are compressed together, at most. A cold read of one block reads and unpacks all of its frame, so frames of what
/// is read often are small; who asked for Zstandard wants it small on the medium, and there more context saves most.
fn frame_blocks(compression: Compression) -> u64 {
    match compression {
        Compression::None | Compression::Lz4 => 2,
        Compression::Zstd(_) => FRAME_BLOCKS_MAX as u64,
    }
}

struct Packing<'a> {
    out: Vec<Packed>,
    buffer: Vec<u8>,
    /// The frame being gathered.
    group: Option<Group<'a>>,
    /// Its contents, where they do not lie behind one another in one piece.
    scattered: Vec<u8>,
}

struct Group<'a> {
    /// The first block's number in the job.
    index: usize,
    /// Where the first block lies.
    piece: &'a Piece,
    block: u64,
    blocks: usize,
    /// The contents, while they lie in one piece.
    whole: Option<&'a [u8]>,
}

impl<'a> Packing<'a> {
    fn block(&mut self, index: usize, piece: &'a Piece, block: u64, content: &'a [u8], verdict: Verdict) {
        let content = match verdict {
            Verdict::New => content,
            Verdict::Zero => return self.push_single(index, piece, block, Content::Zero),
            Verdict::Known(entry) => return self.push_single(index, piece, block, Content::Known(entry)),
            Verdict::Again => return self.push_single(index, piece, block, Content::Again),
        };
        // Frames begin at multiples of that, so that neighbours written later make whole ones again.
        let gathered = frame_blocks(piece.compression);
        let joins = |group: &Group<'_>| {
            let next = group.block + group.blocks as u64;
            group.piece.place == piece.place && next == block && block % gathered != 0
        };
        let Some(group) = self.group.as_mut().filter(|group| joins(group)) else {
            self.end_group();
            self.group = Some(Group { index, piece, block, blocks: 1, whole: Some(content) });
            return;
        };
        group.blocks += 1;
        let start = (group.block - group.piece.block) as usize * BLOCK_BYTES;
        match group.whole.take() {
            Some(_) if std::ptr::eq(group.piece, piece) => {
                group.whole = Some(&piece.data[start..][..group.blocks * BLOCK_BYTES]);
            }
            whole => {
                self.scattered.extend_from_slice(whole.unwrap_or_default());
                self.scattered.extend_from_slice(content);
            }
        }
    }

    fn push_single(&mut self, index: usize, piece: &Piece, block: u64, content: Content) {
        self.end_group();
        if let (Content::Zero, Some(last)) = (&content, self.out.last_mut()) {
            let follows = last.place == piece.place && last.block + last.blocks == block;
            if follows && matches!(last.content, Content::Zero) {
                last.blocks += 1;
                return;
            }
        }
        let Piece { place, owner, epoch, .. } = *piece;
        self.out.push(Packed { place, owner, epoch, block, blocks: 1, index, content });
    }

    fn end_group(&mut self) {
        let Some(Group { index, piece, block, blocks, whole }) = self.group.take() else { return };
        let start = self.buffer.len();
        frame::encode(whole.unwrap_or(&self.scattered), piece.compression, &mut self.buffer);
        let content = Content::Frame(start..self.buffer.len());
        let Piece { place, owner, epoch, .. } = *piece;
        let blocks = blocks as u64;
        self.out.push(Packed { place, owner, epoch, block, blocks, index, content });
        self.scattered.clear();
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

#[cfg(test)]
mod tests {
    use super::*;
    use stonefold_format::entry::{Hint, SegmentId};

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

    /// A job of one run whose blocks hold these tags.
    fn job(tags: &[u8]) -> Vec<Piece> {
        let bytes: Vec<u8> = tags.iter().flat_map(|tag| vec![*tag; BLOCK_BYTES]).collect();
        let data = ArenaSlice::copy_of(&bytes);
        vec![Piece {
            place: 0,
            owner: 1,
            epoch: 1,
            block: 8,
            data,
            compression: Compression::Lz4,
            dedupe: true,
        }]
    }

    fn judged(tags: &[u8], known: &[u8]) -> String {
        let job = job(tags);
        let seen = look(&job, &FingerprintKey::derive(b"x"));
        let entry = Entry::new(SegmentId(1), 3, Hint::new(64, 112, 0));
        let found: Vec<_> = tags.iter().map(|tag| known.contains(tag).then_some(entry)).collect();
        let letter = |verdict: &Verdict| match verdict {
            Verdict::Zero => '0',
            Verdict::New => 'n',
            Verdict::Known(_) => 'k',
            Verdict::Again => 'a',
        };
        judge(&job, &seen, &found).iter().map(letter).collect()
    }

    #[test]
    fn short_stretches_in_new_runs_are_stored_again() {
        assert_eq!(judged(&[1], &[1]), "k", "alone");
        assert_eq!(judged(&[1, 1, 0, 1], &[1]), "kk0k", "nothing new in the run");
        assert_eq!(judged(&[1, 9, 9], &[9]), "nnn", "short");
        assert_eq!(judged(&[1, 9, 9, 9, 9, 9, 9, 9, 9, 2], &[9]), "nkkkkkkkkn", "long enough");
        assert_eq!(judged(&[1, 2, 1, 3], &[]), "nnnn", "a repeat inside a new run");
        assert_eq!(judged(&[5, 5, 5, 5, 5, 5, 5, 5, 5, 5], &[]), "naaaaaaaaa", "repeats of one block");
    }

    #[test]
    fn repeats_lean_on_something_stored() {
        // The second 9 is a repeat of one that was found, not stored: found itself, it needs nobody.
        assert_eq!(judged(&[9, 9], &[9]), "kk");
    }

    #[test]
    fn neighbours_in_several_pieces_make_one_frame() {
        let mut pieces = job(&[1, 2, 3]);
        for (tag, block) in [(4u8, 11), (5, 12), (6, 14)] {
            let data = ArenaSlice::copy_of(&[tag; 4096]);
            pieces.push(Piece {
                place: 0,
                owner: 1,
                epoch: 1,
                block,
                data,
                compression: Compression::Zstd(1),
                dedupe: true,
            });
        }
        pieces[0].compression = Compression::Zstd(1);
        let seen = look(&pieces, &FingerprintKey::derive(b"x"));
        let verdicts = judge(&pieces, &seen, &vec![None; seen.len()]);
        let (parts, mut buffer) = pack(&pieces, &verdicts);
        let shape: Vec<_> = parts.iter().map(|p| (p.block, p.blocks)).collect();
        assert_eq!(shape, [(8, 5), (14, 1)]);
        let Content::Frame(range) = &parts[0].content else { panic!("it is new") };
        let encoded = &mut buffer[range.clone()];
        frame::place(encoded, 7);
        let content = frame::decode(encoded, 7, None).unwrap();
        let tags: Vec<u8> = content.chunks(BLOCK_BYTES).map(|block| block[100]).collect();
        assert_eq!(tags, [1, 2, 3, 4, 5]);
    }

    #[test]
    fn frames_hold_neighbours_up_to_their_alignment() {
        let shape = |compression| {
            let mut job = job(&[1, 2, 3, 0, 4, 5, 6, 7, 8, 9]);
            job[0].compression = compression;
            let seen = look(&job, &FingerprintKey::derive(b"x"));
            let verdicts = judge(&job, &seen, &vec![None; seen.len()]);
            let (parts, buffer) = pack(&job, &verdicts);
            assert!(buffer.len() < 9 * BLOCK_BYTES);
            let shape = parts.iter().map(|p| (p.block, p.blocks, matches!(p.content, Content::Frame(_))));
            shape.collect::<Vec<_>>()
        };
        assert_eq!(shape(Compression::Zstd(1)), [(8, 3, true), (11, 1, false), (12, 4, true), (16, 2, true)]);
        let pairs =
            [(8, 2, true), (10, 1, true), (11, 1, false), (12, 2, true), (14, 2, true), (16, 2, true)];
        assert_eq!(shape(Compression::Lz4), pairs);
    }
}
